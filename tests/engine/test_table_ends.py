"""Rows that announce their ends, and a table that changes in between: what a row has met goes with it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import windrow
from windrow.catalog import TableDef
from windrow.plan.lower import lower

DECLARED = """
    CREATE STREAM s (ts BIGINT, k BIGINT, a BIGINT) TIMESTAMP BY ts;
    CREATE STREAM t (ts BIGINT, k BIGINT, a BIGINT) TIMESTAMP BY ts;
    CREATE TABLE u (id BIGINT, w BIGINT) KEY (id) CHANGES BY op;
"""
ROWS = [(3, 2, 0), (4, 1, 0), (5, 1, 0), (6, None, 1), (7, 2, 1), (7, 2, 1)]
BEFORE, AFTER = {1: None, 2: 7}, {1: 1, 2: 8}  # what u has for a key up to 4, and from 5 on

QUERIES = {
    "rows": ("SELECT x.ts, u.w FROM s [ROWS 1] x, u WHERE x.k = u.id", {3: [(3, 7)], 4: [], 5: [(5, 1)], 6: []}),
    "rows of a key": (
        "SELECT x.k, u.w FROM s [PARTITION BY k ROWS 1] x, u WHERE x.k = u.id",
        {3: [(2, 7)], 4: [(2, 7)], 5: [(1, 1), (2, 7)], 6: [(1, 1), (2, 7)], 7: [(1, 1), (2, 8)]},
    ),
    "equal rows": (
        "SELECT x.k, u.w FROM s [ROWS 4] x, u WHERE x.k = u.id",
        {4: [(2, 7)], 6: [(1, 1), (2, 7)], 7: [(1, 1), (2, 8), (2, 8)]},
    ),
    "distinct": (
        "SELECT DISTINCT x.k, u.w FROM s [PARTITION BY a ROWS 2] x, u WHERE x.k = u.id",
        {4: [(2, 7)], 5: [(1, 1)], 6: [(1, 1)], 7: [(1, 1), (2, 8)]},
    ),
    "counts": (
        "SELECT x.k, x.n, u.w FROM (SELECT k, COUNT(*) AS n FROM s [RANGE 4] GROUP BY k) x, u WHERE x.k = u.id",
        {3: [(2, 1, 7)], 4: [(2, 1, 7)], 5: [(1, 2, 1), (2, 1, 7)], 7: [(1, 2, 1), (2, 2, 8)], 11: []},
    ),
    "outer": (
        "SELECT x.ts, u.w FROM s [ROWS 1] x LEFT JOIN u ON x.k = u.id",
        {3: [(3, 7)], 4: [(4, None)], 5: [(5, 1)], 6: [(6, None)], 7: [(7, 8)]},
    ),
    "outer with a condition": (
        "SELECT x.ts, u.w FROM s [ROWS 1] x LEFT JOIN u ON x.k = u.id AND u.w > x.a + 6",
        {3: [(3, 7)], 4: [(4, None)], 5: [(5, None)], 7: [(7, 8)]},
    ),
    "absent": (
        "SELECT x.ts FROM s [ROWS 2] x WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.id = x.k)",
        {3: [], 4: [(4,)], 5: [(4,)], 6: [(6,)], 7: []},
    ),
    "present with a condition": (
        "SELECT x.ts FROM s [ROWS 2] x WHERE EXISTS (SELECT 1 FROM u WHERE u.w < x.k + 6)",
        {3: [(3,)], 4: [(3,)], 5: [(5,)], 6: [(5,)], 7: [(7,), (7,)]},
    ),
    "groups": (
        "SELECT u.w, COUNT(*) AS n FROM s [ROWS 4] x, u WHERE x.k = u.id GROUP BY u.w",
        {3: [(7, 1)], 5: [(1, 1), (7, 1)], 7: [(1, 1), (8, 2)]},
    ),
    "a value": (
        "SELECT x.ts, (SELECT MAX(w) FROM u WHERE u.id = x.k) AS m FROM s [ROWS 1] x",
        {3: [(3, 7)], 4: [(4, None)], 5: [(5, 1)], 7: [(7, 8)]},
    ),
    "two streams": (
        "SELECT x.ts, y.ts AS b, u.w FROM s [ROWS 1] x, t [ROWS 3] y, u WHERE x.k = u.id AND x.k = y.k",
        {3: [(3, 3, 7)], 4: [], 5: [(5, 5, 1)], 6: [], 7: [(7, 7, 8), (7, 7, 8)]},
    ),
    "the first": (
        "SELECT x.ts, u.w FROM (SELECT * FROM s [RANGE 9] ORDER BY ts, k LIMIT 1) x, u WHERE x.k = u.id",
        {3: [(3, 7)], 11: [(3, 7)], 12: [(4, 1)], 13: [(5, 1)], 14: [], 15: [(7, 8)], 16: []},
    ),
    "equal values at different times": (
        "SELECT x.ts FROM s [RANGE 9] x WHERE EXISTS (SELECT 1 FROM u WHERE u.w > x.k + 5)",
        {3: [], 4: [(4,)], 5: [(4,), (5,)], 7: [(4,), (5,), (7,), (7,)], 13: [(5,), (7,), (7,)], 14: [(7,), (7,)]},
    ),
}  # fmt: skip


def pushed(engine: windrow.Engine, rows: list[tuple[Any, ...]]) -> None:
    """Rows on both streams."""
    for stream in "st":
        engine.push(stream, [dict(zip(("ts", "k", "a"), row, strict=True)) for row in rows])


def told(engine: windrow.Engine, table: dict[int, int | None]) -> None:
    """The table as it is from now on."""
    rows = [{"op": "c", "id": k, "w": w} for k, w in table.items() if w is not None]
    engine.push("u", rows)


def relation(log: list[dict[str, Any]], instant: int) -> list[tuple[Any, ...]]:
    """What a log has made of the relation by an instant."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in log:
        at, sign, *values = row.values()
        if at <= instant:
            found[tuple(values)] += sign
    assert all(n >= 0 for n in found.values()), (instant, found)
    return sorted(found.elements(), key=str)


@pytest.mark.parametrize("again", [None, 0, 2])
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("query", QUERIES)
def test_rows_end_with_what_they_have_met(query, partitions, again, tmp_path):
    """In joins, outer joins, EXISTS and subqueries, over partitions, and over a restart with `again` more of them."""
    text, wanted = QUERIES[query]
    home, log = str(tmp_path / "home"), []
    engine = windrow.Engine(runtime="local", home=home, partitions=partitions)
    engine.execute(f"{DECLARED} CREATE QUERY q AS {text}")
    engine.start()
    told(engine, BEFORE)
    pushed(engine, ROWS[:2])
    if again is not None:
        log += engine["q"].results().to_pylist()
        engine.stop()
        engine = windrow.Engine(runtime="local", home=home, partitions=partitions + again)
        engine.start()
    told(engine, AFTER)
    pushed(engine, ROWS[2:])
    engine.advance(40)
    known = len(log)
    log = engine["q"].results().to_pylist() if again is None else _joined(log, engine["q"].results().to_pylist())
    engine.stop()
    assert len(log) >= known
    for instant, rows in wanted.items():
        assert relation(log, instant) == sorted(rows, key=str), instant


@pytest.mark.parametrize("query", [*QUERIES, "equal rows once"])
def test_a_home_from_before_goes_on(query, tmp_path, monkeypatch):
    """Its tables are those of joins that remembered nothing, until they are declared anew."""
    text = QUERIES[query][0] if query in QUERIES else "SELECT DISTINCT x.k, u.w FROM s [RANGE 3] x, u WHERE x.k = u.id"
    home, made = str(tmp_path / "home"), []
    for recall in (False, True):
        with monkeypatch.context() as before:
            if not recall:
                before.setattr("windrow.cql.ddl.TableDef", lambda *given, recall: TableDef(*given))
            engine = windrow.Engine(runtime="local", home=home)
            if not recall:
                engine.execute(f"{DECLARED} CREATE QUERY q AS {text}")
            engine.start()
        made.append([type(s.operator) for s in lower(engine.catalog.queries["q"], {}).steps])
        told(engine, AFTER if recall else BEFORE)
        pushed(engine, ROWS[2:] if recall else ROWS[:2])
        assert engine.catalog.tables["u"].recall is False
        engine.advance(30 + recall)
        assert engine.status()["failed"] == {} and engine.status()["frontier"] == 30 + recall
        if recall:
            engine.execute(f"DROP QUERY q; DROP TABLE u; {DECLARED[DECLARED.index('CREATE TABLE') :]}")
            assert engine.catalog.tables["u"].recall
        engine.stop()
    assert made[0] == made[1]


def _joined(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A log over a restart, which keeps what was answered last."""
    return after if after[: len(before)] == before else before + after


def test_explain_says_what_is_remembered():
    """A value of DISTINCT is one row while it is there, so it is counted, and the join keeps whom it met."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute(
            f"{DECLARED} CREATE QUERY q AS SELECT x.k, w FROM (SELECT DISTINCT k FROM s [RANGE 5]) x, u WHERE x.k = id"
        )
        shown = str(engine["q"].explain()).splitlines()
    assert ["counts" in line for line in shown if "distinct" in line] == [True]
    assert ["+ whom rows met" in line for line in shown if "join" in line] == [True]
