"""One start in a process of its own: seconds to a Spark session, and from there to the first answer of a small script.

`python -m windrow_bench.start [MASTER]` prints both as JSON; `starts` runs it with and without the archive of classes
that an earlier session has left (`spark/archive.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from windrow.spark.archive import SWITCH

SCRIPT = "CREATE QUERY first AS SELECT symbol, COUNT(*) AS n FROM trade [RANGE 5 SECONDS] GROUP BY symbol"


def starts(master: str | None, repeat: int) -> Iterator[dict[str, Any]]:
    """The first start of all, which leaves an archive; some without any; some that begin with it."""
    with tempfile.TemporaryDirectory(prefix="windrow-starts-") as cache:
        cases = [("first of all", "on", 1), ("without an archive", "off", repeat), ("with an archive", "on", repeat)]
        for case, switch, times in cases:
            environment = {**os.environ, "XDG_CACHE_HOME": cache, SWITCH: switch}
            environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
            for _ in range(times):
                command = [sys.executable, "-m", "windrow_bench.start", *([master] if master else [])]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
                yield {"case": case, **json.loads(done.stdout)}


def main() -> None:
    """Start, answer, and say how long it took."""
    from windrow.cli.trades import DECLARATION, trades
    from windrow.engine import Engine
    from windrow.spark.session import session
    from windrow_bench.pipes import Feed

    begin = time.perf_counter()
    spark = session(master=sys.argv[1] if len(sys.argv) > 1 else None)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="windrow-start-", ignore_cleanup_errors=True) as place:
        feed = Feed(Path(place) / "trade")
        feed.put(trades(1000, 0, 1_000_000, seed=1))
        engine = Engine(home=f"{place}/home", spark=spark)
        source = f"FROM parquet (path => '{feed.path}')"
        engine.execute(f"CREATE STREAM trade {DECLARATION} WITHIN 100 MILLISECONDS {source}; {SCRIPT}")
        answered = threading.Event()
        engine["first"].subscribe(lambda rows: answered.set())
        engine.start()
        while not answered.wait(0.02):
            engine.wait(0)
        done = time.perf_counter()
        engine.stop()
    spark.stop()
    print(json.dumps({"session s": round(started - begin, 2), "answer s": round(done - started, 2)}))


if __name__ == "__main__":
    main()
