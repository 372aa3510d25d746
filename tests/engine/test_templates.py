"""Templates: the answer of queries from one is that of each instance run alone, with its values beside it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.waiting import until

import windrow
from windrow.engine import replay
from windrow.errors import WindrowError
from windrow.runtime import declared as declared_queries
from windrow.testing import assert_same, oracle


@pytest.fixture(scope="module", autouse=True, params=[64, 1], ids=["by themselves", "in columns"])
def few(request: pytest.FixtureRequest) -> Iterator[int]:
    """From how many on instances are members in columns: all tests hold for both ways."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (declared_queries, replay):
            patch.setattr(module, "FEW", request.param)
        yield request.param


STREAM = "CREATE STREAM trade (sym BIGINT, price DOUBLE, name VARCHAR, ts BIGINT) TIMESTAMP BY ts;"
CLICK = "CREATE STREAM click (sym BIGINT, ts BIGINT) TIMESTAMP BY ts;"
TEMPLATES = {
    "alert": (
        "s BIGINT, lim DOUBLE",
        "SELECT COUNT(*) AS n, MAX(price) AS m FROM trade [RANGE 12 SLIDE 4] WHERE sym = $s AND price > $lim",
    ),
    "either": (
        "s BIGINT, lim DOUBLE, t VARCHAR",
        "SELECT COUNT(*) AS n, SUM(price) AS m FROM trade [RANGE 12 SLIDE 4] "
        "WHERE (sym = $s OR price <= -$lim) AND NOT name > $t",
    ),
    "inside": (
        "s BIGINT, u BIGINT, lim DOUBLE, p BIGINT",
        "SELECT COUNT(*) AS n, MIN(price) AS m FROM trade [RANGE 8 SLIDE $p] "
        "WHERE (sym BETWEEN $s AND $u OR sym IN (0, $u) AND name IS NULL) AND sym <> $u AND NOT (sym > $lim)",
    ),
    "windows": (
        "w BIGINT, p BIGINT, s BIGINT",
        "SELECT sym, SUM(price) AS t FROM trade [RANGE $w SLIDE $p] WHERE sym <> $s GROUP BY sym HAVING COUNT(*) >= $p",
    ),
    "filter": (
        "t VARCHAR, lim DOUBLE",
        "SELECT sym, price * $lim AS x FROM trade [RANGE 5] WHERE name = $t OR $lim < price",
    ),
    "shown": (
        "s BIGINT, t VARCHAR",
        "SELECT ISTREAM($s AS s2, $t AS t2, $s + sym AS u) FROM trade WHERE sym IN ($s, 3)",
    ),
    "join": (
        "s BIGINT, lim DOUBLE",
        "SELECT t.price, c.ts AS at FROM trade [RANGE 6] t, click [RANGE 6] c WHERE t.sym = c.sym "
        "AND t.sym BETWEEN $s AND 5 AND price > -$lim",
    ),
    "absent": (
        "s BIGINT",
        "SELECT price FROM trade [RANGE 6] t WHERE sym=$s "
        "AND NOT EXISTS (SELECT 1 FROM click [RANGE 4] c WHERE c.sym = t.sym)",
    ),
    "rows": (
        "n BIGINT, t VARCHAR",
        "SELECT name, COUNT(*) AS c FROM trade [PARTITION BY sym ROWS $n] WHERE name >= $t GROUP BY name",
    ),
}  # fmt: skip
_VALUES = {
    "s": st.one_of(st.none(), st.integers(-1, 6)),
    "u": st.integers(-1, 6),
    "lim": st.one_of(st.none(), st.sampled_from([-1.5, 0.0, 2.5, 7.0, 0.1 + 0.2, 1e20, float("inf")])),
    "t": st.one_of(st.none(), st.sampled_from(["a", "b", "A", "it's", ""])),
    "w": st.integers(1, 9), "p": st.integers(1, 4), "n": st.integers(1, 3),
}  # fmt: skip


def trades(rng: np.random.Generator, rows: int = 40) -> pa.Table:
    return pa.table({
        "sym": rng.integers(0, 6, rows), "price": rng.integers(-8, 40, rows) / 4.0,
        "name": [["a", "b", "A", "it's", None][k] for k in rng.integers(0, 5, rows)],
        "ts": np.sort(rng.integers(0, 40, rows)),
    })  # fmt: skip


def clicks(rng: np.random.Generator) -> pa.Table:
    return pa.table({"sym": rng.integers(0, 6, 12), "ts": np.sort(rng.integers(0, 40, 12))})


def written(value: Any) -> str:
    """A value as somebody would write it in the text."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE)"
    return str(value)


def alone(template: str, values: dict[str, Any]) -> str:
    """The text of one instance, as somebody would write it."""
    text = TEMPLATES[template][1]
    for name, value in sorted(values.items(), key=lambda v: -len(v[0])):
        text = text.replace(f"-${name}", f"-({written(value)})").replace(f"${name}", written(value))
    return text


def part(answer: pa.Table, values: dict[str, Any]) -> pa.Table:
    """The rows of an answer that are of one instance, as that instance alone would show them."""
    first = 2 if "_op" in answer.column_names else 1
    mine = np.ones(answer.num_rows, bool)
    for place, value in enumerate(values.values(), first):
        column = answer.column(place)
        same = (
            pc.is_null(column)
            if value is None
            else pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), False)
        )
        mine &= same.to_numpy(zero_copy_only=False)
    keep = [i for i in range(answer.num_columns) if not first <= i < first + len(values)]
    return answer.select(keep).filter(pa.array(mine))


def queries(template: str, rows: list[dict[str, Any]]) -> str:
    parameters, text = TEMPLATES[template]
    values = ", ".join(f"({', '.join(map(written, r.values()))})" for r in rows).replace(
        "CAST('inf' AS DOUBLE)", "'inf'"
    )
    values = values.replace("CAST(", "").replace(" AS DOUBLE)", "")
    made = f"CREATE TEMPLATE {template} ({parameters}) AS {text};"
    return f"{made} CREATE QUERIES q FROM TEMPLATE {template} VALUES {values};"


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, list[dict[str, Any]], int]:
    template = draw(st.sampled_from(sorted(TEMPLATES)))
    names = [p.split()[0] for p in TEMPLATES[template][0].split(", ")]
    rows = draw(st.lists(st.tuples(*(_VALUES[n] for n in names)), min_size=1, max_size=5, unique=True))
    return template, [dict(zip(names, row, strict=True)) for row in rows], draw(st.integers(0, 5))


@settings(max_examples=40)
@given(case=cases())
def test_every_instance_answers_as_it_would_alone(case):
    """Whatever the values: nulls, texts, long and negative numbers, in windows, conditions and the SELECT list."""
    template, rows, seed = case
    rng = np.random.default_rng(seed)
    streams = {"trade": trades(rng), "click": clicks(rng)}
    got = windrow.run(STREAM + CLICK + queries(template, rows), streams, runtime="local", until=50, batch_rows=15)["q"]
    assert got.column_names[-got.num_columns :][0] == "_ts"
    script = "".join(f"CREATE QUERY i{k} AS {alone(template, row)};" for k, row in enumerate(rows))
    want = oracle(STREAM + CLICK + script, streams, until=50)
    for k, row in enumerate(rows):
        try:
            assert_same(part(got, row), want[f"i{k}"])
        except AssertionError as error:
            raise AssertionError(f"{template} {row}: {error}") from error


RULES = pa.table({"lim": [2.5, 0.0, -1.0], "note": ["x", "y", "z"], "S": [1, 2, 3]})


def lived(folder: Path | None, **engine: Any) -> dict[str, Any]:
    """Instances come and go by statement and by the rows of a table, over a restart where there is a home."""
    home = None if folder is None else folder / "home"
    rng = np.random.default_rng(7)
    found: dict[str, Any] = {}
    opened = windrow.Engine(home=home, **engine)
    opened.execute(STREAM + CLICK + "CREATE TABLE rules (lim DOUBLE, note VARCHAR, S BIGINT);")
    opened.execute(queries("alert", [{"s": 1, "lim": 0.5}, {"s": 2, "lim": None}, {"s": None, "lim": 1.0}]))
    parameters, text = TEMPLATES["join"]
    opened.execute(f"CREATE TEMPLATE j ({parameters}) AS {text}; CREATE QUERIES r FROM TEMPLATE j USING TABLE rules")
    opened.start()

    def push(tick: int) -> None:
        rows, clicked = trades(rng), clicks(rng)
        for name, table in (("trade", rows), ("click", clicked)):
            table = table.set_column(table.schema.get_field_index("ts"), "ts", pc.add(table.column("ts"), 40 * tick))
            opened.push(name, table)
        opened.drain()

    push(0)
    opened.table("rules", RULES)
    push(1)
    opened.execute("CREATE QUERIES q FROM TEMPLATE alert VALUES (4, 2), (5, 1.25)")
    push(2)
    opened.execute("DROP QUERIES q WHERE s IN (1, 5) OR lim IS NULL")
    opened.table("rules", RULES.slice(1))
    push(3)
    found["early"] = {q: opened[q].results() for q in "qr"}
    if home is not None:
        opened.stop()
        opened = windrow.Engine(home=home, **engine)
        opened.start()
    found["instances"] = [sorted(map(str, opened[q].instances().to_pylist())) for q in "qr"]
    push(4)
    opened.table("rules", RULES.slice(0, 2))
    push(5)
    found["late"] = {q: opened[q].results() for q in "qr"}
    found["snapshot"] = opened["r"].snapshot()
    found["status"] = {n: s["instances"] for n, s in opened.status()["templates"].items()}
    opened.execute("DROP QUERIES q; DROP QUERIES IF EXISTS q; DROP TEMPLATE alert; DROP QUERIES r; DROP TEMPLATE j")
    assert not opened.runtime.ticker.queries
    opened.stop()
    return found


def test_instances_are_in_columns_where_they_can_be(few: int) -> None:
    """Those that differ in conditions and windows; not those with nulls, nor of what may raise."""
    rows = [{"s": s, "lim": 0.5 * s} for s in range(5)] + [{"s": None, "lim": 1.0}]
    with windrow.Engine(runtime="local") as engine:
        engine.execute(STREAM + queries("alert", rows))
        engine.execute(
            "CREATE TEMPLATE f (s BIGINT) AS SELECT COUNT(*) AS n FROM trade [RANGE 4 SLIDE 4] WHERE sym + 1 = $s;"
            "CREATE QUERIES g FROM TEMPLATE f VALUES (1), (2)"
        )
        alert, raising = (engine.runtime.declared.groups.live[name] for name in "qg")
        assert len(alert) == 6 and len(engine["q"]) == 6
        assert [len(m) for m in alert.blocks.values()] == ([] if few > 1 else [5])
        assert len(alert.place) == (6 if few > 1 else 1)
        assert not raising.blocks and len(raising.place) == 2


def test_instances_come_and_go_and_survive(tmp_path: Path) -> None:
    """By VALUES, by DROP QUERIES ... WHERE, by rows of a table: with a restart as without, on any partitions."""
    plain = lived(None, runtime="local")
    assert plain["status"] == {"q": 2, "r": 2}
    assert plain["instances"][0] == ["{'s': 4, 'lim': 2.0}", "{'s': None, 'lim': 1.0}"]
    assert plain["early"]["q"].num_rows and plain["early"]["r"].num_rows
    for partitions in (1, 3):
        other = lived(tmp_path / str(partitions), runtime="local", partitions=partitions)
        for name in "qr":
            assert_same(other["early"][name], plain["early"][name])
            since = other["late"][name]
            before = plain["early"][name].num_rows
            assert_same(since, plain["late"][name].slice(before))
        assert (other["instances"], other["status"]) == (plain["instances"], plain["status"])
        assert sorted(map(str, other["snapshot"].to_pylist())) == sorted(map(str, plain["snapshot"].to_pylist()))


@pytest.mark.spark
def test_templates_on_spark(spark: Any, tmp_path: Path, few: int) -> None:
    """The same on Spark, live and replayed."""
    if few > 1:
        pytest.skip("once is enough")
    plain, other = lived(None, runtime="local"), lived(tmp_path, runtime="spark", spark=spark)
    assert other["instances"] == plain["instances"]
    for name in "qr":
        assert_same(other["early"][name], plain["early"][name])
    rng = np.random.default_rng(1)
    streams = {"trade": trades(rng), "click": clicks(rng)}
    script = STREAM + CLICK + queries("alert", [{"s": s, "lim": 0.5 * s} for s in range(6)])
    got, want = (windrow.run(script, streams, runtime=r, until=50) for r in ("spark", "local"))
    assert_same(got["q"], want["q"])


ERRORS = (
    ("unknown parameter", "CREATE TEMPLATE t (a BIGINT) AS SELECT sym FROM trade WHERE sym = $b AND sym = $a", '"$b"'),
    ("unused", "CREATE TEMPLATE t (a BIGINT, b BIGINT) AS SELECT sym FROM trade WHERE sym = $a", '"$b" does not stand'),
    ("twice", "CREATE TEMPLATE t (a BIGINT, A BIGINT) AS SELECT sym FROM trade WHERE sym = $a", '"A" stands twice'),
    ("a bad body", "CREATE TEMPLATE t (a BIGINT) AS SELECT nope FROM trade WHERE sym = $a", 'unknown column "nope"'),
    ("a question mark", "CREATE TEMPLATE t (a BIGINT) AS SELECT sym FROM trade WHERE sym = ?", "? in a template"),
    ("no template", "CREATE QUERIES z FROM TEMPLATE nope VALUES (1)", 'unknown template "nope"'),
    ("no literal", "CREATE QUERIES z FROM TEMPLATE f VALUES (random())", "literals"),
    ("too many values", "CREATE QUERIES z FROM TEMPLATE f VALUES (1, 2)", "do not fit"),
    ("a text for a number", "CREATE QUERIES z FROM TEMPLATE f VALUES ('x')", "do not fit"),
    ("equal instances", "CREATE QUERIES z FROM TEMPLATE f VALUES (1), (2), (1)", "z(1) stands twice"),
    ("one that is there", "CREATE QUERIES q FROM TEMPLATE f VALUES (7)", "q(7) stands twice"),
    ("another template", "CREATE QUERIES q FROM TEMPLATE g VALUES (7)", 'queries "q" already exist'),
    ("a taken name", "CREATE QUERIES trade FROM TEMPLATE f VALUES (1)", 'stream "trade" already exists'),
    ("a window of none", "CREATE QUERIES z FROM TEMPLATE g VALUES (0)", "z(0): "),
    ("no such table", "CREATE QUERIES z FROM TEMPLATE f USING TABLE nope", 'unknown table "nope"'),
    ("a column short", "CREATE QUERIES z FROM TEMPLATE f USING TABLE bare", 'has no column "s"'),
    ("in use", "DROP TEMPLATE f", "is read by q"),
    ("a stream in use", "DROP STREAM trade", "is read by"),
    ("a table in use", "DROP TABLE rules", "is read by r"),
    ("rows of a table", "DROP QUERIES r WHERE s = 1", 'with the rows of table "rules"'),
    ("a condition on nothing", "DROP QUERIES q WHERE nope = 1", 'unknown column "nope"'),
    ("a parameter elsewhere", "CREATE QUERY x AS SELECT sym FROM trade WHERE sym = $a", "$"),
)  # fmt: skip


@pytest.fixture(scope="module")
def declared():
    with windrow.Engine(runtime="local") as engine:
        engine.execute(STREAM + "CREATE TABLE rules (s BIGINT); CREATE TABLE bare (x BIGINT)")
        engine.execute("CREATE TEMPLATE f (s BIGINT) AS SELECT price FROM trade WHERE sym = $s")
        engine.execute("CREATE TEMPLATE g (w BIGINT) AS SELECT price FROM trade [ROWS $w]")
        engine.execute(
            "CREATE QUERIES q FROM TEMPLATE f VALUES (7); CREATE QUERIES r FROM TEMPLATE f USING TABLE rules"
        )
        yield engine


@pytest.mark.parametrize(("statement", "said"), [e[1:] for e in ERRORS], ids=[e[0] for e in ERRORS])
def test_what_is_wrong_is_refused(declared, statement, said):
    """With the reason, and nothing has changed."""
    before = declared.catalog, dict(declared.runtime.ticker.queries)
    with pytest.raises(WindrowError) as error:
        declared.execute(statement)
    assert said in str(error.value)
    assert (declared.catalog, dict(declared.runtime.ticker.queries)) == before


def test_rows_that_are_equal_are_refused(declared):
    """A table may not ask for one instance twice; it stays as it was."""
    declared.table("rules", pa.table({"s": [1, 2]}))
    with pytest.raises(WindrowError, match="stands twice"):
        declared.table("rules", pa.table({"s": [3, 3]}))
    assert declared["r"].instances().to_pylist() == [{"s": 1}, {"s": 2}]
    declared.table("rules", pa.table({"s": pa.array([], pa.int64())}))
    assert len(declared["r"]) == 0


def test_rows_read_again_that_are_equal_stop_nobody(tmp_path):
    """The table stays as it was and says why; ticks go on, and rows that can be accepted are taken up."""
    path, written = tmp_path / "rules.parquet", itertools.count(1_000)

    def read_in(rows):
        pq.write_table(pa.table({"s": rows}), path)
        os.utime(path, (when := next(written), when))

    def push(row):
        engine.runtime.declared.tables["rules"]._due = 0.0  # an hour has passed
        engine.push("trade", [row])
        return engine["r"].instances().column("s").to_pylist(), engine.status()["tables"]["rules"].get("error") or ""

    read_in([1, 2])
    with windrow.Engine(runtime="local") as engine:
        engine.execute(
            STREAM + f"CREATE TABLE rules (s BIGINT) FROM parquet (path => '{path}', every => '1 hour');"
            "CREATE TEMPLATE f (s BIGINT) AS SELECT price FROM trade WHERE sym = $s;"
            "CREATE QUERIES r FROM TEMPLATE f USING TABLE rules"
        )
        engine.start()
        read_in([3, 3])
        for ts in (10, 11):  # the second time the file is as it was
            instances, error = push({"sym": 1, "price": 5.0, "name": "a", "ts": ts})
            assert instances == [1, 2] and "stands twice" in error
        with pytest.raises(WindrowError, match="stands twice"):
            engine.refresh("rules")
        read_in([2, 3])
        assert push({"sym": 3, "price": 7.0, "name": "a", "ts": 12}) == ([2, 3], "")


def test_an_instance_that_fails_stops_alone():
    """The others go on, and status says which."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute(
            STREAM + "CREATE TEMPLATE f (s BIGINT) AS SELECT CAST(name AS BIGINT) AS n FROM trade WHERE sym = $s"
        )
        engine.execute("CREATE QUERIES q FROM TEMPLATE f VALUES (1), (2)")
        engine.start()
        engine.push("trade", pa.table({"sym": [1, 2], "price": [1.0, 1.0], "name": ["x", "5"], "ts": [1, 1]}))
        engine.push("trade", pa.table({"sym": [1, 2], "price": [1.0, 1.0], "name": ["6", "7"], "ts": [2, 2]}))
        engine.advance(9)
        assert engine["q"].results().column("n").to_pylist() == [5, 7]
        assert engine.status()["templates"]["q"]["failed"] == ["q(1)"]


def test_the_answer_goes_where_a_query_s_answer_goes(tmp_path: Path):
    """Sinks, subscribers, EXPLAIN: as one query."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute(STREAM + queries("alert", [{"s": s, "lim": 0.5} for s in range(4)]))
        heard: list[pa.Table] = []
        engine["q"].subscribe(heard.append)
        engine.sink("q", "parquet", path=str(tmp_path / "out"))
        engine.start()
        engine.push("trade", trades(np.random.default_rng(2)))
        engine.advance(60)
        whole = engine["q"].results()
        assert whole.column_names == ["_ts", "s", "lim", "n", "m"]
        until(lambda: sum(t.num_rows for t in heard) == whole.num_rows)
        until(lambda: (tmp_path / "out").exists() and ds.dataset(tmp_path / "out").count_rows() == whole.num_rows)
        assert engine["q"].explain().startswith("4 queries from template alert")
        assert len(engine["q"]) == 4


def test_patterns_are_parameters() -> None:
    """Whatever the pattern is, an instance answers what a query with it does."""
    patterns = ["'a%'", "'ab%'", "'%b'", "'_b%'", "'%'", "''", "'ab'", "'a%b'", "NULL", "'it''s%'", "'a_%'"]
    declared = "CREATE STREAM s (n VARCHAR, ts BIGINT) TIMESTAMP BY ts;"
    script = (
        declared + "CREATE TEMPLATE t (p VARCHAR) AS SELECT n FROM s [RANGE 5] WHERE n LIKE $p AND n NOT LIKE 'x%';"
    )
    script += f"CREATE QUERIES q FROM TEMPLATE t VALUES {', '.join(f'({p})' for p in patterns)};"
    script += "".join(
        f"CREATE QUERY q{i} AS SELECT n FROM s [RANGE 5] WHERE n LIKE CAST({p} AS VARCHAR) AND n NOT LIKE 'x%';"
        for i, p in enumerate(patterns)
    )
    names = ["a", "ab", "abc", "b", "", None, "it's", "xb", "a%b"]
    rows = pa.table({"n": names * 2, "ts": list(range(2 * len(names)))})
    for sharing in ("auto", "off"):
        found = windrow.run(script, {"s": rows}, runtime="local", sharing=sharing, until=40)
        for i, pattern in enumerate(patterns):
            value = None if pattern == "NULL" else pattern[1:-1].replace("''", "'")
            mine = [r for r in found["q"].to_pylist() if r.pop("p") == value]
            assert mine == found[f"q{i}"].to_pylist(), pattern
