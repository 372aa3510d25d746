"""SHED in CQL: what it means, what it refuses, and that star joins without it are exact."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

import windrow
from windrow import cql
from windrow.catalog import Catalog
from windrow.engine.script import bind_script
from windrow.errors import SourceError, WindrowError
from windrow.plan.explain import explain
from windrow.plan.nodes import QueryPlan, StarJoin, walk

DECLARE = """
CREATE STREAM r (a BIGINT, imp DOUBLE, ts BIGINT) TIMESTAMP BY ts;
CREATE STREAM s (b BIGINT, imp DOUBLE, ts BIGINT) TIMESTAMP BY ts;
CREATE STREAM q (a BIGINT, imp DOUBLE, ts BIGINT) TIMESTAMP BY ts;
CREATE TABLE f (a BIGINT, b BIGINT, c BIGINT, vf BIGINT, vt BIGINT) VALID FROM vf TO vt;
CREATE TABLE g (a BIGINT, b BIGINT);
CREATE TABLE h (a BIGINT, b BIGINT) RETROACTIVE;
"""
STAR = "SELECT {items} FROM r [RANGE 4], f, s [RANGE 4] WHERE r.a = f.a AND f.b = s.b {rest}"
HEURISTICS = ("SIMP", "SIMPPROB", "DIMPPROB", "DGL(alpha => 5, beta => 0.5)", "RANDOM(seed => 3)", "FIFO")


def data(seed: int, rows: int = 40) -> tuple[dict[str, pa.Table], dict[str, pa.Table]]:
    rng = random.Random(seed)
    streams = {}
    for name, key in (("r", "a"), ("s", "b"), ("q", "a")):
        ts = sorted(rng.randrange(rows) for _ in range(rows))
        keys, imp = [rng.randrange(4) for _ in ts], [float(rng.randint(1, 5)) for _ in ts]
        streams[name] = pa.table({key: keys, "imp": imp, "ts": pa.array(ts, pa.int64())})
    begin = [rng.choice([None, rng.randrange(rows)]) for _ in range(9)]
    end = [rng.choice([None, (b or 0) + rng.randrange(20)]) for b in begin]
    pairs = [[rng.randrange(4) for _ in range(9)] for _ in range(3)]
    facts = pa.table(
        dict(zip("abc", pairs, strict=True)) | {"vf": pa.array(begin, pa.int64()), "vt": pa.array(end, pa.int64())}
    )
    return streams, {"f": facts, "g": facts.select(["a", "b"]), "h": facts.select(["a", "b"])}


def run(query: str, seed: int = 0, **options: object) -> pa.Table:
    streams, tables = data(seed)
    return windrow.run(DECLARE + query, streams, tables, runtime="local", **options)["q1"]  # type: ignore[arg-type]


def bag(table: pa.Table) -> Counter:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def plan(query: str) -> QueryPlan:
    catalog = bind_script(DECLARE, Catalog())
    return cql.compile_select(query, catalog, "q")


@pytest.mark.parametrize("shed", HEURISTICS)
def test_a_shed_answer_is_a_part_of_the_exact_one(shed: str) -> None:
    """For ISTREAM the results are a sub-bag of the exact ones, and all of them when KEEP exceeds the windows."""
    items = "ISTREAM(r.ts AS rt, s.ts AS st, r.imp AS ri, s.imp AS si)"
    for seed in range(6):
        exact = bag(run(STAR.format(items=items, rest=""), seed))
        shed_ = bag(run(STAR.format(items=items, rest=f"SHED BY {shed} KEEP 4 ROWS IMPORTANCE imp"), seed))
        assert shed_ <= exact
        roomy = STAR.format(items=items, rest=f"SHED BY {shed} KEEP 1000 ROWS IMPORTANCE imp")
        assert bag(run(roomy, seed)) == exact


@pytest.mark.parametrize("shed", HEURISTICS)
def test_answers_do_not_depend_on_batches_or_strategy(shed: str) -> None:
    """Batches of any size and all three strategies give one answer."""
    for divide in ("", "EACH", "BY NEED"):
        query = STAR.format(items="r.ts AS rt, s.ts AS st", rest=f"SHED BY {shed} KEEP 5 ROWS {divide} IMPORTANCE imp")
        whole = bag(run(query, 2))
        assert bag(run(query, 2, batch_rows=1)) == whole
        assert bag(run(query, 2, strategy="negative")) == whole
        assert bag(run(query, 2, strategy="direct", without=("pushdown_predicates", "pushdown_projections"))) == whole


def test_importance_of_a_result() -> None:
    """IMPORTANCE() is the least importance of the rows that make a result."""
    table = run(
        STAR.format(
            items="ISTREAM(r.imp AS a, s.imp AS b, IMPORTANCE())", rest="SHED BY SIMP KEEP 90 ROWS IMPORTANCE imp"
        )
    )
    assert table.column_names[-1] == "importance"
    assert table.num_rows > 0
    assert all(row["importance"] == min(row["a"], row["b"]) for row in table.to_pylist())
    total = run(
        STAR.format(items="SUM(IMPORTANCE()) AS t", rest="SHED BY FIFO KEEP 90 ROWS IMPORTANCE r.imp * 2, s.imp")
    )
    assert total.num_rows > 0


def test_periodic_and_internal_queries_shed_too() -> None:
    """A SLIDE looks at the shed join at its instants; INTERNAL makes it append-only; with room both are exact."""
    for windows in ("[RANGE 4 SLIDE 2]", "[RANGE 4 INTERNAL]"):
        query = (
            f"SELECT r.ts AS x, s.ts AS y FROM r {windows}, f, s {windows} WHERE r.a = f.a AND f.b = s.b AND r.imp > 1"
        )
        exact = bag(run(query, 1))
        assert exact
        assert bag(run(f"{query} SHED BY DGL KEEP 500 ROWS IMPORTANCE imp", 1)) == exact
    small = run(f"{query} SHED BY DGL KEEP 2 ROWS IMPORTANCE imp", 1)
    assert bag(small) <= exact


def test_window_joins_without_a_table() -> None:
    """Plain window joins shed as well; every row can match."""
    query = "SELECT ISTREAM(r.ts AS x, q.ts AS y) FROM r [RANGE 6], q [RANGE 9] WHERE r.a = q.a AND r.ts <= q.ts"
    for seed in range(4):
        exact = bag(run(query, seed))
        assert bag(run(f"{query} SHED BY SIMPPROB KEEP 400 ROWS IMPORTANCE imp", seed)) == exact
        assert bag(run(f"{query} SHED BY SIMPPROB KEEP 4 ROWS", seed)) <= exact


def test_three_streams_and_one() -> None:
    """n streams meet through one table; one stream needs no memory and stays exact."""
    three = (
        "SELECT ISTREAM(r.ts AS x, s.ts AS y, q.ts AS z) FROM r [RANGE 5], s [RANGE 5], q [RANGE 5], f "
        "WHERE r.a = f.a AND s.b = f.b AND q.a = f.c"
    )
    exact = bag(run(three, 3))
    assert exact
    assert bag(run(f"{three} SHED BY DIMPPROB KEEP 300 ROWS IMPORTANCE imp", 3)) == exact
    assert bag(run(f"{three} SHED BY DIMPPROB KEEP 6 ROWS IMPORTANCE imp", 3)) <= exact
    one = "SELECT ISTREAM(r.ts AS x, f.b AS y) FROM r [RANGE 4], f WHERE r.a = f.a"
    assert bag(run(f"{one} SHED BY FIFO KEEP 2 ROWS IMPORTANCE imp", 3)) == bag(run(one, 3))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT r.ts AS x, f.b AS y FROM r [RANGE 4], f WHERE r.a = f.a",
        "SELECT r.ts AS x, s.ts AS y FROM r [RANGE 4], f, s [RANGE 7] WHERE r.a = f.a AND f.b = s.b",
        "SELECT ISTREAM(r.ts AS x, s.ts AS y) FROM r [RANGE 4], g, s [RANGE 4] WHERE r.a = g.a AND g.b = s.b",
        "SELECT r.ts AS x, s.ts AS y, q.ts AS z FROM r [RANGE 3], s [RANGE 3], q [RANGE 3], f "
        "WHERE r.a = f.a AND s.b = f.b AND q.a = f.c",
    ],
)
def test_star_joins_without_shed_are_exact(query: str) -> None:
    """Semi- and star-streaming joins of one to three streams agree with the oracle."""
    from windrow.testing import assert_same, oracle

    for seed in range(3):
        streams, tables = data(seed, rows=16)
        expected = oracle(DECLARE + query, streams, tables)["q1"]
        found = windrow.run(DECLARE + query, streams, tables, runtime="local")["q1"]
        assert_same(found, expected)


def test_the_plan_and_explain() -> None:
    """The plan holds the star join with its policy and the tick budget; EXPLAIN shows both keys and clause."""
    query = STAR.format(
        items="IMPORTANCE()",
        rest="SHED BY DGL(20, beta => 2) KEEP 101 ROWS IMPORTANCE imp SHED WHEN TICK OVER '2 seconds'",
    )
    made = plan(query)
    (star,) = [n for n in walk(made.root) if isinstance(n, StarJoin)]
    assert (star.shedding.heuristic, star.shedding.keep, star.shedding.alpha, star.shedding.beta) == (
        "DGL",
        (50, 50),
        20,
        2,
    )
    assert star.valid is not None
    assert made.budget is not None
    assert made.budget.us == 2_000_000
    assert [(s, e.sql()) for s, e in made.budget.importance] == [("r", '"imp"'), ("s", '"imp"')]
    text = explain(made)
    assert "star join" in text
    assert "SHED BY DGL(20, beta => 2) KEEP 101 ROWS" in text
    assert "shed when a tick takes over 2 s, by r: imp, s: imp" in text
    for fmt in ("json", "dot", "svg"):
        assert "star join" in explain(made, fmt)


@pytest.mark.parametrize(
    ("rest", "message", "hint"),
    [
        ("SHED BY DLG KEEP 4 ROWS", 'unknown heuristic "DLG"', 'did you mean "DGL"'),
        ("SHED BY SIMP", "SHED BY needs KEEP", "KEEP 100 ROWS"),
        ("SHED BY SIMP KEEP 0 ROWS", "KEEP 0 ROWS", "at least 2"),
        ("SHED BY SIMP KEEP 1 ROWS", "KEEP 1 ROWS", "at least 2"),
        ("SHED BY SIMP KEEP 0 ROWS EACH", "KEEP 0 ROWS", "at least 1"),
        ("SHED BY SIMP KEEP -3 ROWS", "KEEP -3 ROWS", "at least 2"),
        ("SHED BY SIMP KEEP 2.5 ROWS", "KEEP 2.5", "whole number"),
        ("SHED BY SIMP KEEP 4", "expected ROWS", "KEEP 4 ROWS"),
        ("SHED BY DGL(alpha => 0) KEEP 4 ROWS", "alpha is 0", "greater than 0"),
        ("SHED BY DGL(beta => -1) KEEP 4 ROWS", "beta is -1", "0 or more"),
        ("SHED BY DGL(gamma => 1) KEEP 4 ROWS", 'unknown parameter "gamma"', "DGL takes alpha, beta"),
        ("SHED BY SIMP(3) KEEP 4 ROWS", "SIMP takes no parameters", ""),
        ("SHED BY SIMP KEEP 4 ROWS IMPORTANCE 0", "importance is 0", "greater than 0"),
        ("SHED BY SIMP KEEP 4 ROWS IMPORTANCE -2", "importance is -2", "greater than 0"),
        ("SHED BY SIMP KEEP 4 ROWS IMPORTANCE NULL", "importance is NULL", "greater than 0"),
        ("SHED BY SIMP KEEP 4 ROWS IMPORTANCE weight", 'unknown column "weight"', "columns are"),
        ("SHED BY SIMP KEEP 4 ROWS IMPORTANCE r.imp", 'no importance for stream "s"', "s.column"),
        ("SHED BY SIMP KEEP 4 ROWS KEEP 5 ROWS", "KEEP twice", "once"),
        ("SHED WHEN TICK OVER 5", "has no unit", "5 seconds"),
        ("SHED WHEN TICK OVER '0 seconds'", "TICK OVER '0 seconds'", "greater than 0"),
        ("SHED WHEN LATE", "expected TICK", "TICK OVER"),
    ],
)
def test_what_is_refused(rest: str, message: str, hint: str) -> None:
    """Errors name the place and what is allowed."""
    with pytest.raises(WindrowError) as error:
        plan(STAR.format(items="r.ts", rest=rest))
    assert message in error.value.primary
    assert hint in str(error.value)
    assert error.value.span is not None


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT IMPORTANCE() FROM r [RANGE 4]", "IMPORTANCE() without an importance"),
        ("SELECT r.a FROM r [RANGE 4] SHED BY SIMP KEEP 4 ROWS", "joins nothing"),
        ("SELECT r.a FROM r [ROWS 4], q [RANGE 4] WHERE r.a = q.a SHED BY SIMP KEEP 4 ROWS", "ROWS window"),
        ("SELECT r.a FROM r, q [RANGE 4] WHERE r.a = q.a SHED BY DGL KEEP 4 ROWS", "needs a window"),
        (
            "SELECT r.a FROM r [RANGE 4], h, s [RANGE 4] WHERE r.a = h.a AND h.b = s.b SHED BY SIMP KEEP 4 ROWS",
            "retroactive",
        ),
        (
            "SELECT r.a FROM r [RANGE 4], f, g, s [RANGE 4] WHERE r.a = f.a AND f.b = s.b AND g.a = f.a "
            "SHED BY SIMP KEEP 4 ROWS",
            "several tables",
        ),
        (
            "SELECT r.a FROM r [RANGE 4], f, s [RANGE 4] WHERE r.a = f.a AND f.b < s.b SHED BY SIMP KEEP 4 ROWS",
            "not linked",
        ),
        ("SELECT r.a FROM r [RANGE 4] LEFT JOIN q [RANGE 4] ON r.a = q.a SHED BY SIMP KEEP 4 ROWS", "outer join"),
        (
            "SELECT r.a FROM r [RANGE 4], q [RANGE 4], s [RANGE 4] WHERE r.a = q.a AND r.ts = s.b "
            "SHED BY SIMP KEEP 6 ROWS",
            "same keys",
        ),
    ],
)
def test_what_is_no_star(query: str, message: str) -> None:
    """Queries that cannot shed are refused with a hint."""
    with pytest.raises(WindrowError) as error:
        plan(query)
    assert message in error.value.primary
    assert error.value.hint
    assert error.value.span is not None


@pytest.mark.parametrize("bad", [0.0, -1.0, float("inf"), float("nan"), None])
def test_bad_importance_in_the_data(bad: float | None) -> None:
    """A row whose importance is no positive number stops the query with its stream and time."""
    streams, tables = data(0)
    r = streams["r"]
    streams["r"] = r.set_column(1, "imp", pa.array([bad, *r["imp"].to_pylist()[1:]], pa.float64()))
    with pytest.raises(SourceError, match='in stream "r"'):
        windrow.run(
            DECLARE + STAR.format(items="r.ts", rest="SHED BY SIMP KEEP 4 ROWS IMPORTANCE imp"),
            streams,
            tables,
            runtime="local",
        )


def test_shed_is_no_reserved_word() -> None:
    """A stream may still be called shed, and a column importance."""
    stream = pa.table({"importance": [1, 2], "ts": [1, 2]})
    table = windrow.run(
        "SELECT shed.importance FROM shed [RANGE 5] WHERE importance > 1", {"shed": stream}, runtime="local"
    )["q1"]
    assert table["importance"].to_pylist() == [2]


def test_columns_that_nobody_reads_are_not_kept() -> None:
    """Projections go below the star join; what it sheds stays the same."""
    from windrow.optimize import optimize

    join = "SELECT ISTREAM(r.ts AS x) FROM r [RANGE 6], q [RANGE 9] WHERE r.a = q.a"
    query = f"{join} SHED BY DGL KEEP 5 ROWS IMPORTANCE imp"
    catalog = bind_script(DECLARE, Catalog())
    (star,) = [n for n in walk(optimize(plan(query), catalog).root) if isinstance(n, StarJoin)]
    assert set(star.schema) == {"r.ts", "r.a", "q.a", "r.imp", "q.imp"}
    for seed in range(3):
        assert bag(run(query, seed)) == bag(run(query, seed, without=("pushdown_projections",)))


def test_quality_is_in_status_results_and_explain() -> None:
    """What a shed join lost is said wherever one may look."""
    import json

    streams, tables = data(3)
    engine = windrow.Engine("local")
    engine.table("f", tables["f"], valid=("vf", "vt"))
    engine.execute(";".join(d for d in DECLARE.split(";") if "STREAM" in d))
    star = STAR.format(items="ISTREAM(r.ts AS x)", rest="SHED BY SIMP KEEP 4 ROWS IMPORTANCE imp")
    engine.execute(f"CREATE QUERY shed AS {star}")
    engine.start()
    for name, rows in streams.items():
        engine.push(name, rows)
    engine.advance(100)
    quality = engine["shed"].quality()
    assert quality is not None
    memory = quality["memory"]
    assert memory["rows_shed"] > 0 and not memory["exact"] and 0 < memory["importance_kept"] < 1
    assert engine.status()["queries"]["shed"]["quality"] == quality
    assert json.loads(engine["shed"].results().schema.metadata[b"windrow.quality"]) == quality
    assert f"shed for memory: {memory['rows_shed']} of {memory['rows_seen']} rows" in engine["shed"].explain()
    assert json.loads(engine["shed"].explain("json"))["quality"] == quality
