"""What the queries of `many` answer, by other means: the table of rules joined with the streams.

By DuckDB over all rows at once, written from the meaning of the queries: a row of ISTREAM is one that is there at an
instant and was not there before it. By Structured Streaming as its users do, with a broadcast table of rules, for the
shapes that it can say without a window for every instant: alerts, and selections.
"""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from windrow.scalar_engine import connect
from windrow_bench.harness import CLOCKS

Row = Mapping[str, Any]
SLIDE, SPAN, LENGTH = 60, 960, 60
"""Between evaluations of alerts; the instants there are; how long rows are followed."""
STREAMED = ("alerts", "filters")
"""Shapes that Structured Streaming is given."""

_ALERTS = f"""
    WITH seen AS (SELECT s, lim, w, ts, price FROM trade JOIN given ON sym = s AND price > lim),
    evaluated AS (SELECT s, lim, w, price, t FROM seen,
        LATERAL (SELECT UNNEST(range(CAST(ceil(ts / {SLIDE}) AS BIGINT) * {SLIDE}, ts + w, {SLIDE})) AS t))
    SELECT t AS _ts, s, lim, w, COUNT(*) AS n, MAX(price) AS m FROM evaluated WHERE t <= {SPAN - 1} GROUP BY ALL"""
_FILTERS = "SELECT ts AS _ts, lim, sym, price FROM trade JOIN given ON price > lim"
_JOINS = f"""
    WITH pairs AS (SELECT t.sym, price, t.ts AS one, q.ts AS other FROM trade t JOIN quote q
        ON t.sym = q.sym AND t.ts < q.ts + {LENGTH} AND q.ts < t.ts + {LENGTH}),
    changes AS (SELECT sym, price, greatest(one, other) AS t, 1 AS d FROM pairs
        UNION ALL SELECT sym, price, least(one, other) + {LENGTH}, -1 FROM pairs),
    net AS (SELECT sym, price, t, SUM(d) AS d FROM changes WHERE t < {SPAN} GROUP BY ALL HAVING SUM(d) > 0)
    SELECT t AS _ts, lim, sym, price FROM net, LATERAL (SELECT UNNEST(range(CAST(d AS BIGINT))))
    JOIN given ON price > lim"""
_ABSENCE = f"""
    WITH instants AS (SELECT sym, price, ts, ts AS t FROM trade
        UNION SELECT t.sym, price, t.ts, q.ts + {LENGTH} FROM trade t JOIN quote q
            ON t.sym = q.sym AND q.ts + {LENGTH} > t.ts AND q.ts < t.ts)
    SELECT t AS _ts, lim, sym, price FROM instants i JOIN given ON price > lim WHERE t < {SPAN}
    AND NOT EXISTS (SELECT 1 FROM quote q WHERE q.sym = i.sym AND q.ts > i.t - {LENGTH} AND q.ts <= i.t)"""


def _counted(rule: str, length: str, rows: str, among: str, having: str) -> str:
    """Groups that come to pass a condition, or pass it with another count: of the rows of each rule, or of all rows."""
    before = having.replace("total", "total_before").replace("n ", "n_before ")
    return f"""
    WITH changes AS (SELECT {rule} sym, ts AS t, 1 AS d, price AS v FROM {rows}
        UNION ALL SELECT {rule} sym, ts + {length}, -1, -price FROM {rows}),
    net AS (SELECT {rule} sym, t, SUM(d) AS d, SUM(v) AS v FROM changes WHERE t < {SPAN} GROUP BY ALL),
    states AS (SELECT {rule} sym, t, SUM(d) OVER so_far AS n, SUM(v) OVER so_far AS total FROM net
        WINDOW so_far AS (PARTITION BY {rule} sym ORDER BY t)),
    followed AS (SELECT *, LAG(n, 1, 0) OVER past AS n_before, LAG(total, 1, 0) OVER past AS total_before FROM states
        WINDOW past AS (PARTITION BY {rule} sym ORDER BY t))
    SELECT t AS _ts, sym, n FROM followed {among} WHERE n > 0 AND {having} AND NOT (n_before = n AND {before})"""


TEXTS = {
    "alerts": _ALERTS,
    "filters": _FILTERS,
    "having": _counted("", str(LENGTH), "trade", ", given", "total > lim AND n > 4"),
    "aggregates": _counted("lim,", str(LENGTH), "trade JOIN given ON price > lim", "", "n > 1"),
    "windows": _counted("length,", "length", "trade, given", "", "total > 1000"),
    "joins": _JOINS,
    "absence": _ABSENCE,
}
"""By shape, the answers of all queries."""


def figures(answers: pa.Table) -> Row:
    """What two ways to the same answers are compared by: how many count something, if they do, and sums."""
    names = answers.column_names
    some = answers.filter(pc.greater(answers.column("n"), 0)) if "n" in names else answers
    sums = {c: float(pc.sum(some.column(c)).as_py() or 0) for c in ("n", "m", "price") if c in names}
    instants = float(pc.sum(some.column("_ts")).as_py() or 0)
    return {"found": some.num_rows, "sums": {**sums, "_ts": instants}}


def same(what: str, mine: Row, other: Row) -> None:
    """Refuse answers that differ."""
    close = all(abs(mine["sums"][c] - v) <= 1e-9 * abs(v) for c, v in other["sums"].items())
    if mine["found"] != other["found"] or not close:
        raise SystemExit(f"the answers of {what} differ from those of the join: {mine} {other}")


def joined(shape: str, streams: Mapping[str, pa.Table], given: pa.Table, runtime: str, clock: str) -> Row:
    """The queries as a join with a table of rules."""
    now = CLOCKS[clock]
    if runtime == "spark":
        took, found = _structured(shape, streams["trade"], given, now)
    else:
        connection = connect()
        begin = now()
        for name, table in (*streams.items(), ("given", given)):
            connection.register(name, table)
        found = connection.sql(TEXTS[shape]).to_arrow_table()
        took = now() - begin
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return {"plan_s": 0.0, "run_s": took, "answers": found.num_rows, "memory_mb": memory, **figures(found)}


def _structured(shape: str, trade: pa.Table, given: pa.Table, now: Any) -> tuple[float, pa.Table]:
    """On Structured Streaming: a broadcast table, event-time windows, everything that is there in one go."""
    import pyarrow.parquet as pq
    from pyspark.sql import functions as f

    from windrow.spark.session import session

    spark, second = session(None), f.unix_timestamp
    with tempfile.TemporaryDirectory(prefix="windrow-many-") as place:
        os.makedirs(f"{place}/trade")
        at = pa.array(trade.column("ts").to_numpy() * 1_000_000).cast(pa.timestamp("us", "UTC"))
        pq.write_table(trade.set_column(2, "ts", at), f"{place}/trade/0.parquet")
        known = f.broadcast(spark.createDataFrame(given.to_pandas()))
        stream = spark.readStream.schema("sym bigint, price double, ts timestamp").parquet(f"{place}/trade")

        def shown(answer: Any, mode: str, name: str) -> Any:
            query = answer.writeStream.outputMode(mode).format("memory").queryName(name)
            query.trigger(availableNow=True).start().awaitTermination()
            return spark.table(name)

        begin, found = now(), list[pa.Table]()
        if shape == "filters":
            chosen = stream.join(known, f.col("price") > f.col("lim")).select(second("ts").alias("_ts"), "price")
            found.append(shown(chosen, "append", "many").toArrow())
            return now() - begin, found[0]
        joined = stream.join(known, (f.col("sym") == f.col("s")) & (f.col("price") > f.col("lim")))
        for length in sorted(set(given.column("w").to_pylist())):
            # (t - w, t] in whole seconds is [t - w + 1, t + 1)
            window = f.window("ts", f"{length} seconds", f"{SLIDE} seconds", "1 seconds").alias("w")
            grouped = joined.where(f.col("w") == length).groupBy(window, "s", "lim")
            counted = grouped.agg(f.count("*").alias("n"), f.max("price").alias("m"))
            ended = shown(counted, "complete", f"many{length}").where(second("w.end") <= SPAN)
            found.append(ended.select((second("w.end") - 1).alias("_ts"), "n", "m").toArrow())
        return now() - begin, pa.concat_tables(found)
