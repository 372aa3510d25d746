"""Answers that a machine's zone, language or number of cores might change, as text on stdout; see test_machine.py."""

from __future__ import annotations

import datetime
import sys
import tempfile
from pathlib import Path

import pyarrow as pa

import windrow

PARTS = (
    "hour", "minute", "day", "month", "year", "dayname", "monthname", "dayofweek", "isodow", "dayofyear", "week",
    "weekofyear", "quarter", "decade", "century", "era", "yearweek", "last_day", "epoch", "epoch_ms", "julian",
)  # fmt: skip
CALLS = (
    "date_trunc('day', {0})", "date_trunc('hour', {0})", "date_part('hour', {0})", "EXTRACT(hour FROM {0})",
    "date_diff('day', {0}, {1})", "date_sub('hour', {0}, {1})", "time_bucket(INTERVAL '1 day', {0})",
    "strftime({0}, '%Y-%m-%d %H:%M:%S %a %B %Z')", "CAST({0} AS VARCHAR)", "CAST({0} AS DATE)",
    "{0} + INTERVAL '1 month'", "{0} - INTERVAL '36 hours'", "{0} - {1}", "{0}::DATE = DATE '2024-03-10'",
    "{0} > '2024-03-10 03:00:00'", "age({0}, {1})",
)  # fmt: skip
ACROSS = (
    "CAST(ts AS TIME)", "CAST(p AS TIMESTAMP)", "CAST(ts AS TIMESTAMPTZ)", "ts = p", "timezone('Asia/Kolkata', p)",
    "timezone('America/New_York', ts)", "CAST(CAST(p AS VARCHAR) AS TIMESTAMPTZ)",
    "make_timestamptz(2024, 3, 10, 2, 30, 0.0)",
    "strptime('2024-03-10 02:30', '%Y-%m-%d %H:%M')", "to_timestamp(epoch(p))", "format('{{:,d}}', k)", "upper(t)",
    "t < 'ä'", "lower('I')",
)  # fmt: skip
"""Between the two kinds of time, and what a locale might change."""


def rows() -> pa.Table:
    """Instants around changes of summer time and of the day, in several zones."""
    start = datetime.datetime(2024, 3, 10, 6, 30, tzinfo=datetime.UTC)
    times = [start + datetime.timedelta(minutes=37 * i) for i in range(12)]
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us")),
            "p": pa.array(times[::-1], pa.timestamp("us", "UTC")),
            "z": pa.array(times[::-1], pa.timestamp("ms", "Asia/Kolkata")),
            "k": pa.array([1234567 * (i % 3) for i in range(12)]),
            "t": pa.array(["ä", "Z", "i"] * 4),
        }
    )


def main() -> None:
    given = rows()
    values = [f"{part}({c})" for part in PARTS for c in ("ts", "p", "z")]
    values += [call.format(a, b) for call in CALLS for a, b in (("ts", "ts"), ("p", "z"), ("z", "p"))]
    values += [call.format() for call in ACROSS]
    listed = ", ".join(f"{v} AS c{i}" for i, v in enumerate(values))
    script = f"""
        CREATE QUERY everything AS SELECT RSTREAM({listed}) FROM S [NOW];
        CREATE QUERY days AS SELECT date_trunc('day', p) AS d, hour(p) AS h, COUNT(*) AS n, SUM(k) AS s
            FROM S [RANGE 3 HOURS SLIDE 1 HOUR] WHERE hour(z) > 3 OR t > 'a' GROUP BY date_trunc('day', p), hour(p);
        CREATE QUERY met AS SELECT a.ts, b.p FROM S a [RANGE 1 HOUR], S b [RANGE 2 HOURS] WHERE hour(a.p) = hour(b.ts);
        CREATE QUERY last AS SELECT MAX(p) AS m, MIN(CAST(p AS VARCHAR)) AS v, COUNT(DISTINCT CAST(z AS DATE)) AS n
            FROM S [ROWS 5]
    """
    answers = windrow.run(script, {"S": given}, runtime="local", until="2024-03-10 15:00:00")
    for name, table in answers.items():
        print(name, table.schema.types, *table.to_pylist(), sep="\n")
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "s.csv")
        text.write_text(
            "ts,p,v\n2024-03-10 02:30:00,2024-03-10T02:30:00+05:30,1.5\n2024-03-10 12:30:00,2024-03-10 12:30:00Z,2\n"
        )
        query = "SELECT hour(ts) AS h, hour(p) AS g, CAST(p AS VARCHAR) AS s, v FROM S"
        print(*windrow.run(query, {"S": str(text)}, runtime="local")["q1"].to_pylist(), sep="\n")


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    main()
