"""Runs a statement of Flink SQL until it is terminated: `python flink_live.py JOB`, with PyFlink's interpreter.

Imports nothing of windrow. Answers are printed by Flink's own sink for that, whose output is that of this process. The
cluster is in this process's JVM and ends with it. Standard input must not be a pipe that stays open: the start of
PyFlink's JVM waits for its end.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any


def main(job_path: str) -> int:
    """Declare, start, and wait."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    start(json.loads(Path(job_path).read_text(encoding="utf-8"))).wait()
    return 0


def start(job: dict[str, Any]) -> Any:
    """The running statement."""
    from pyflink.common import Configuration  # type: ignore[import-not-found]
    from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

    settings = Configuration()
    for name, value in job["settings"].items():
        settings.set_string(name, value)
    tables = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings).build()
    )
    for declaration in job["declarations"]:
        tables.execute_sql(declaration)
    return tables.execute_sql(job["statement"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
