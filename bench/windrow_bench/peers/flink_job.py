"""Executes a job of `flink.Job` in the interpreter that has PyFlink: `python flink_job.py JOB SAID`.

Imports nothing of windrow. The clock starts when the statements are handed over and stops when the last result file is
closed; a tiny job before it starts the cluster's classes.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any


def main(job_path: str, said_path: str) -> int:
    """Run the job; write seconds and column types, or the error."""
    job = json.loads(Path(job_path).read_text(encoding="utf-8"))
    try:
        said = execute(job)
    except Exception as error:
        said = {"error": reason(str(error))}
    Path(said_path).write_text(json.dumps(said), encoding="utf-8")
    return 1 if "error" in said else 0


def execute(job: dict[str, Any]) -> dict[str, Any]:
    """Declare, warm up, run."""
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
    start = warm_up(tables, job["scratch"])
    types = [columns(tables.sql_query(statement)) for statement in job["statements"]]
    for number, (named, path) in enumerate(zip(types, job["results"], strict=True)):
        listed = ", ".join(f"`{name}` {kind}" for name, kind in named)
        tables.execute_sql(f"CREATE TABLE `r_{number}` ({listed}) {files(path)}")
    begin = time.perf_counter()
    together = tables.create_statement_set()
    for number, statement in enumerate(job["statements"]):
        together.add_insert_sql(f"INSERT INTO `r_{number}` {statement}")
    submitted = together.execute()
    planned = time.perf_counter()
    submitted.wait()
    seconds = time.perf_counter() - begin
    net = submitted.get_job_client().get_job_execution_result().result().get_net_runtime() / 1000
    plan = max(0.0, planned - begin - start)
    return {"seconds": max(net, seconds - start), "start": start, "plan": plan, "job": net, "types": types}


def files(path: str) -> str:
    """The options of a table of CSV files."""
    return f"WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv', 'csv.null-literal' = '')"


def warm_up(tables: Any, scratch: str) -> float:
    """Count two rows in windows, twice: seconds until the second job is accepted, which is its cluster's start."""
    place = Path(scratch)
    place.mkdir(parents=True)
    (place / "rows.csv").write_text("1,1\n2,2\n", encoding="utf-8")
    tables.execute_sql(
        "CREATE TABLE `warm` (k BIGINT, t BIGINT, `_rt` AS TO_TIMESTAMP_LTZ(t, 3), WATERMARK FOR `_rt` AS `_rt`) "
        + files(str(place))
    )
    tables.execute_sql("CREATE TABLE `warm_sink` (k BIGINT, n BIGINT) WITH ('connector' = 'blackhole')")
    window = "HOP(TABLE `warm`, DESCRIPTOR(`_rt`), INTERVAL '1' SECOND, INTERVAL '2' SECOND)"
    count = f"INSERT INTO `warm_sink` SELECT k, COUNT(*) FROM TABLE({window}) GROUP BY window_start, window_end, k"
    tables.execute_sql(count).wait()
    begin = time.perf_counter()
    accepted = tables.execute_sql(count)
    seconds = time.perf_counter() - begin
    accepted.wait()
    return seconds


def columns(table: Any) -> list[tuple[str, str]]:
    """Names and SQL types of a statement's columns."""
    schema = table.get_schema()
    return [(n, sql_type(t)) for n, t in zip(schema.get_field_names(), schema.get_field_data_types(), strict=True)]


def sql_type(kind: Any) -> str:
    """A PyFlink type as SQL."""
    name = type(kind).__name__
    if name == "DecimalType":
        return f"DECIMAL({kind.precision}, {kind.scale})"
    known = {
        "BigIntType": "BIGINT",
        "IntType": "INT",
        "DoubleType": "DOUBLE",
        "BooleanType": "BOOLEAN",
        "TimestampType": "TIMESTAMP(3)",
    }
    return known.get(name, "STRING")


def reason(text: str) -> str:
    """The innermost message of a Java error, without its stack."""
    causes = re.findall(r"^(?:Caused by: )?[\w.$]+(?:Exception|Error): (.+)$", text, re.M)
    return causes[-1] if causes else text.strip().splitlines()[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
