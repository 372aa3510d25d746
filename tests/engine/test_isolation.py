"""One query cannot stop another: an expression that raises, wherever it stands, stops the query that has it.

All kinds of queries with one that raises run in one engine beside queries that do not; the row comes, the others go on
through a restart to the answers that they have alone, and each that stopped is named, explained, and can be replaced or
dropped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import windrow
from windrow.errors import RuntimeFailure

N = "CAST(n AS BIGINT)"
BAD = {
    "filter": f"SELECT k FROM s [RANGE 10] WHERE {N} > 0",
    "projection": f"SELECT {N} AS x FROM s [RANGE 10]",
    "join_condition": "SELECT a.k FROM s [RANGE 10] a, s [RANGE 10] b WHERE a.k = b.k AND a.n::BIGINT < b.n::BIGINT",
    "join_key": "SELECT a.k FROM s [RANGE 10] a JOIN s [RANGE 10] b ON a.n::BIGINT = b.k",
    "table_join": "SELECT s.k FROM s [RANGE 10], t WHERE s.n::BIGINT = t.k",
    "outer_join": "SELECT a.k FROM s [RANGE 10] a LEFT JOIN s [RANGE 10] b ON a.k = b.k AND b.n::BIGINT > 0",
    "shared_join": "SELECT a.k, b.v FROM s [RANGE 10] a, s [RANGE 10] b WHERE a.k = b.k AND a.n::BIGINT > 1",
    "within": "SELECT a.k FROM s a JOIN s b WITHIN 5 ON a.k = b.k WHERE a.n::BIGINT > 0",
    "asof": "SELECT s.k, p.n FROM s ASOF JOIN s p ON s.k = p.k AND s.ts >= p.ts WHERE p.n::BIGINT > 0",
    "aggregate": f"SELECT k, SUM({N}) AS x FROM s [RANGE 10] GROUP BY k",
    "median": f"SELECT k, MEDIAN({N}) AS x FROM s [RANGE 10] GROUP BY k",
    "listed": f"SELECT k, list({N}) AS x FROM s [RANGE 10] GROUP BY k",
    "group_key": f"SELECT {N} AS x, COUNT(*) AS c FROM s [RANGE 10] GROUP BY {N}",
    "rollup": f"SELECT k, SUM({N}) AS x FROM s [RANGE 10] GROUP BY ROLLUP (k)",
    "having": "SELECT k, MAX(n) AS m FROM s [RANGE 10] GROUP BY k HAVING MAX(n)::BIGINT > 0",
    "over": f"SELECT k, SUM({N}) OVER (PARTITION BY k) AS x FROM s [RANGE 10]",
    "ranked": f"SELECT k, row_number() OVER (ORDER BY {N}) AS x FROM s [RANGE 10]",
    "qualify": f"SELECT k FROM s [RANGE 10] QUALIFY SUM({N}) OVER (PARTITION BY k) > 0",
    "periodic": f"SELECT k, SUM({N}) AS x FROM s [RANGE 10 SLIDE 5] GROUP BY k",
    "periodic_filter": f"SELECT k, COUNT(*) AS x FROM s [RANGE 10 SLIDE 5] WHERE {N} > 0 GROUP BY k",
    "periodic_having": "SELECT k, MAX(n) AS x FROM s [RANGE 10 SLIDE 5] GROUP BY k HAVING MAX(n)::BIGINT > 0",
    "at_most": f"SELECT k, SUM({N}) AS x FROM s [RANGE 10 SLIDE AT MOST 5] GROUP BY k",
    "frequent": f"SELECT FREQUENT({N}, 3) AS x FROM s [RANGE 10 SLIDE 5]",
    "tumble": f"SELECT k, SUM({N}) AS x FROM TUMBLE(s, ts, 5) GROUP BY k, window_start, window_end",
    "hop": f"SELECT k, SUM({N}) AS x FROM HOP(s, ts, 5, 10) GROUP BY k, window_start, window_end",
    "session": f"SELECT k, SUM({N}) AS x FROM SESSION(s, ts, 5) GROUP BY k, window_start, window_end",
    "top": f"SELECT k FROM s [RANGE 10] ORDER BY {N} LIMIT 2",
    "distinct_": f"SELECT DISTINCT {N} AS x FROM s [RANGE 10]",
    "rows_": f"SELECT {N} AS x FROM s [PARTITION BY k ROWS 2]",
    "istream_": f"SELECT ISTREAM({N} AS x) FROM s [RANGE 10]",
    "nested": f"SELECT x + 1 AS y FROM (SELECT {N} AS x FROM s [RANGE 10]) q",
    "exists_": f"SELECT k FROM t WHERE EXISTS (SELECT 1 FROM s [RANGE 10] WHERE s.k = t.k AND {N} > 0)",
    "member": f"SELECT k FROM t WHERE k IN (SELECT {N} FROM s [RANGE 10])",
    "scalar_": f"SELECT k FROM s [RANGE 10] WHERE k > (SELECT MAX({N}) FROM s [RANGE 10])",
    "union_": f"SELECT {N} AS x FROM s [RANGE 10] UNION ALL SELECT k FROM s [RANGE 5]",
    "except_": f"SELECT {N} AS x FROM s [RANGE 10] EXCEPT SELECT k FROM s [RANGE 5]",
    "unnested": f"SELECT u.v FROM s [RANGE 10], unnest([{N}]) u(v)",
    "of_view": "SELECT x FROM v",
    "of_query": "SELECT m::BIGINT AS x FROM newest",
    "called": "SELECT whole(n) AS x FROM s [RANGE 10]",
    "called_periodic": "SELECT k, SUM(whole(n)) AS x FROM s [RANGE 10 SLIDE 5] GROUP BY k",
    "kept": f"SELECT k, SUM({N}) AS x FROM s [RANGE 10] GROUP BY k KEEP 100",
}
FINE = {
    "counted": "SELECT k, COUNT(*) AS c FROM s [RANGE 10] GROUP BY k",
    "joined": "SELECT a.k, b.v FROM s [RANGE 10] a, s [RANGE 10] b WHERE a.k = b.k",
    "sampled": "SELECT k, MAX(n) AS x FROM s [RANGE 10 SLIDE 5] GROUP BY k",
    "newest": "SELECT k, MAX(n) AS m FROM s [RANGE 10] GROUP BY k HAVING MAX(n) > '0'",
    "sessions": "SELECT k, COUNT(*) AS x FROM SESSION(s, ts, 5) GROUP BY k, window_start, window_end",
}
DECLARED = f"""
CREATE STREAM s (ts BIGINT, k BIGINT, v BIGINT, n VARCHAR) TIMESTAMP BY ts RETAIN 100;
CREATE VIEW v AS SELECT {N} AS x FROM s [RANGE 10];
"""
OTHERS = f"""
CREATE TEMPLATE above (least BIGINT) AS SELECT k FROM s [RANGE 10] WHERE {N} > $least;
CREATE QUERIES many FROM TEMPLATE above VALUES (1), (2);
CREATE ARCHIVE past AS SELECT k, {N} AS x FROM s [RANGE 10] KEY k EVERY 5;
"""


def rows(first: int, last: int, worst: bool = False) -> dict[str, list[Any]]:
    """Rows of which one may hold a text that is no number."""
    ts = list(range(first, last))
    texts = ["boom" if worst and i == last - 2 else str(i) for i in ts]
    return {"ts": ts, "k": [i % 3 for i in ts], "v": ts, "n": texts}


def whole(texts: pa.Array) -> pa.Array:
    """A function that raises on such a text."""
    return texts.cast(pa.int64())


@pytest.mark.parametrize("runtime", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_what_raises_stops_alone(runtime: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Every query that meets the row stops, and nothing else does."""
    given = {"spark": request.getfixturevalue("spark")} if runtime == "spark" else {"runtime": runtime}
    windrow.function("whole", whole, returns="bigint")

    def seen(engine: windrow.Engine) -> dict[str, list[str]]:
        return {q: sorted(map(str, engine[q].snapshot().to_pylist())) for q in FINE}

    def declare(engine: windrow.Engine, texts: dict[str, str]) -> None:
        engine.execute(DECLARED)
        engine.table("t", pa.table({"k": [0, 1, 2]}))
        for name, text in texts.items():
            engine.execute(f"CREATE QUERY {name} AS {text}")

    parts = [rows(0, 10), rows(10, 20, worst=True), rows(30, 40), rows(50, 60)]  # gaps end sessions
    with windrow.Engine("local") as alone:
        declare(alone, FINE)
        alone.start()
        want = [(alone.push("s", part), seen(alone))[1] for part in parts]

    with windrow.Engine(home=str(tmp_path / "home"), **given) as engine:
        declare(engine, FINE | BAD)
        engine.execute(OTHERS)
        engine.start()
        for part in parts[:3]:
            engine.push("s", part)
        engine.drain()
        assert seen(engine) == want[2]
        failed = engine.status()["failed"]
        assert failed.keys() == {*BAD, "many(1)", "many(2)", "^past"}
        assert all("boom" in said and "Traceback" not in said for said in failed.values()), failed
        for name in BAD:
            if engine[name].plan.has_op:
                with pytest.raises(RuntimeFailure, match=f'query "{name}" has stopped'):
                    engine[name].snapshot()
            assert engine[name].explain()
        with pytest.raises(RuntimeFailure, match='query "filter" has stopped'):
            engine.ask("SELECT COUNT(*) AS c FROM filter")
        assert engine.ask("SELECT COUNT(*) AS c FROM s [RANGE 100]").to_pylist() == [{"c": 29}]  # up to the frontier

    with windrow.Engine(home=str(tmp_path / "home"), **given) as engine:
        engine.start()
        engine.push("s", parts[3])
        engine.drain()
        assert seen(engine) == want[3]
        for name in BAD:
            engine.execute(f"CREATE OR REPLACE QUERY {name} AS SELECT k FROM s [RANGE 3]")
        engine.execute("DROP QUERIES many; DROP TEMPLATE above; DROP ARCHIVE past")
        engine.push("s", rows(60, 62))
        engine.drain()
        assert not engine.status()["failed"]
        assert {engine[name].snapshot().num_rows for name in BAD} == {3}
