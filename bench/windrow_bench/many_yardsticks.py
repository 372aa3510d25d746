"""What the queries of `many` answer, by other means: the table of rules joined with the streams, by DuckDB over all
rows at once, written from the meaning of the queries: a row of ISTREAM is one that is there at an instant and was not
there before it.

Answers are compared row by row, by a sum of hashes of whole rows: bags that differ in a row differ in it.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from windrow.scalar_engine import connect, quote
from windrow_bench.harness import CLOCKS
from windrow_bench.many_shapes import LENGTH, SLIDE, SPAN

Row = Mapping[str, Any]

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
_LEFT_JOINS = f"""
    SELECT _ts, lim, sym, price, sym AS other FROM ({_JOINS})
    UNION ALL SELECT _ts, lim, sym, price, NULL FROM ({_ABSENCE})"""
_EITHER = """(SELECT s, lim, sym, ts, price, 60 AS length FROM trade JOIN given ON price > lim
    UNION ALL SELECT s, lim, sym, ts, 0, 20 FROM quote JOIN given ON sym = s)"""


def _counted(rule: str, length: str, rows: str, among: str, having: str, shown: str, again: str | None = None) -> str:
    """Groups that come to pass a condition, or pass it with another count: of the rows of each rule, or of all rows.

    `again`: what makes a group that passed it before the same.
    """
    before = having.replace("total", "total_before").replace("n ", "n_before ")
    same = "n_before = n" if again is None else again
    return f"""
    WITH changes AS (SELECT {rule} sym, ts AS t, 1 AS d, price AS v FROM {rows}
        UNION ALL SELECT {rule} sym, ts + {length}, -1, -price FROM {rows}),
    net AS (SELECT {rule} sym, t, SUM(d) AS d, SUM(v) AS v FROM changes WHERE t < {SPAN} GROUP BY ALL),
    states AS (SELECT {rule} sym, t, SUM(d) OVER so_far AS n, SUM(v) OVER so_far AS total FROM net
        WINDOW so_far AS (PARTITION BY {rule} sym ORDER BY t)),
    followed AS (SELECT *, LAG(n, 1, 0) OVER past AS n_before, LAG(total, 1, 0) OVER past AS total_before FROM states
        WINDOW past AS (PARTITION BY {rule} sym ORDER BY t))
    SELECT t AS _ts, {shown} FROM followed {among} WHERE n > 0 AND {having} AND NOT ({same} AND {before})"""


_SELECTED = "trade JOIN given ON price > lim"
TEXTS = {
    "alerts": _ALERTS,
    "filters": _FILTERS,
    "having": _counted("", str(LENGTH), "trade", ", given", "total > lim AND n > 4", "lim, sym, n"),
    "aggregates": _counted("lim,", str(LENGTH), _SELECTED, "", "n > 1", "lim, sym, n"),
    "windows": _counted("length,", "length", "trade, given", "", "total > 1000", "length, sym, n"),
    "distinct": _counted("lim,", str(LENGTH), _SELECTED, "", "n > 0", "lim, sym", "true"),
    "union": _counted("s, lim,", "length", _EITHER, "", "n > 0", "s, lim, sym", "true"),
    "joins": _JOINS,
    "left joins": _LEFT_JOINS,
    "absence": _ABSENCE,
}
"""By shape, the answers of all queries, each row with its rule."""


def digest(answers: pa.Table) -> Row:
    """What two ways to the same rows are compared by: how many count something, if they do, and a sum of hashes."""
    some = answers.filter(pc.greater(answers.column("n"), 0)) if "n" in answers.column_names else answers
    names = sorted(some.column_names)
    kinds = ["DOUBLE" if pa.types.is_floating(some.schema.field(c).type) else "BIGINT" for c in names]
    columns = ", ".join(f"CAST({quote(c)} AS {kind})" for c, kind in zip(names, kinds, strict=True))
    connection = connect()
    connection.register("answers", some)
    ((hashes,),) = connection.sql(f"SELECT SUM(CAST(hash({columns}) AS HUGEINT)) FROM answers").fetchall()
    return {"found": some.num_rows, "columns": names, "hashes": str(hashes)}


def same(what: str, mine: Row, other: Row) -> None:
    """Refuse answers that differ."""
    if any(mine[k] != other[k] for k in ("found", "columns", "hashes")):
        raise SystemExit(f"the answers of {what} differ: {mine} {other}")


def joined(shape: str, streams: Mapping[str, pa.Table], given: pa.Table, clock: str) -> Row:
    """The queries as a join with a table of rules."""
    now, connection = CLOCKS[clock], connect()
    begin = now()
    for name, table in (*streams.items(), ("given", given)):
        connection.register(name, table)
    found = connection.sql(TEXTS[shape]).to_arrow_table()
    took = now() - begin
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return {"plan_s": 0.0, "run_s": took, "answers": found.num_rows, "memory_mb": memory, **digest(found)}
