"""Members in columns: what columns say is what each condition says, and nothing is written or made for every member."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windrow
from windrow.catalog.instances import InstanceTable, positions, row_numbers
from windrow.cql import templates
from windrow.engine.replay import Replay
from windrow.runtime.job import Feed, LocalJob
from windrow.runtime.program import Deployment
from windrow.runtime.saved_catalog import FOLD, in_force
from windrow.sharing import member_columns
from windrow.sharing.boxes import PredicateBoxes
from windrow.sharing.cells import CellSpace
from windrow.sharing.condition_columns import ConditionColumns
from windrow.sharing.recognise import recognise
from windrow.sharing.synopsis_store import SynopsisStore
from windrow.store.manifest import encode
from windrow.store.store import MemoryStore, Store
from windrow.testing import assert_same

STREAM = "CREATE STREAM st (sym BIGINT, price DOUBLE, name VARCHAR, ts BIGINT) TIMESTAMP BY ts;"
TEMPLATE = """CREATE TEMPLATE t (s BIGINT, lim DOUBLE) AS
    SELECT COUNT(*) AS n, MAX(price) AS m FROM st [RANGE 10 SLIDE 5] WHERE sym = $s AND price > $lim;"""
ROWS = pa.table({
    "sym": [0, 1, 2, 3, 1, 7], "price": [1.0, 5.0, 2.0, 9.0, 6.5, 4.0], "name": ["a", None, "b", "a", "c", "a"],
    "ts": [1, 2, 6, 11, 12, 16],
})  # fmt: skip


def rules(count: int) -> pa.Table:
    return pa.table({"s": np.arange(count), "lim": np.arange(count) % 7 + 0.5})


def declared(count: int, where: str = "sym = $s AND price > $lim") -> ConditionColumns:
    """The conditions of instances, as an engine has them."""
    script = f"{STREAM} {TEMPLATE.replace('sym = $s AND price > $lim', where)}"
    replay = Replay.of(
        f"{script} CREATE TABLE rules (s BIGINT, lim DOUBLE); CREATE QUERIES q FROM TEMPLATE t USING TABLE rules",
        {"st": ROWS}, {"rules": rules(count)},
    )  # fmt: skip
    queries, template = replay.catalog.groups["q"], replay.catalog.templates["t"]
    planned = replay.planner.planned(queries, template, rules(count), replay.catalog, 1)
    (columns,) = planned.columns
    return columns.conditions


@pytest.mark.parametrize(
    "where",
    [
        "sym = $s AND price > $lim", "(sym = $s OR price < $lim) AND NOT sym > $s", "sym BETWEEN $s AND 9",
        "sym IN (3, $s) AND price <> $lim", "name LIKE 'a%' AND sym >= $s AND $lim <= price",
        "name IS NULL OR sym = $s",
    ],
)  # fmt: skip
def test_columns_say_what_each_condition_says(where: str) -> None:
    """A space of columns has the boxes, keys and cells of a space of the same conditions one by one."""
    columns = declared(40, where if "$lim" in where else f"{where} AND price > $lim")
    single = [columns.condition(i) for i in range(len(columns))]
    places = []
    for conditions in ([columns], single):
        axes, boxes = PredicateBoxes.of_conditions(conditions)
        by_sql = sorted(range(len(axes)), key=lambda a: axes[a].attribute.sql)
        low, high = boxes.low[by_sql], boxes.high[by_sql]
        places.append({(int(p), *low[:, b].tolist(), *high[:, b].tolist()) for b, p in enumerate(boxes.of)})
        cuts = [axes[a].cuts.tolist() for a in by_sql]
    assert places[0] == places[1] and all(c == sorted(c) for c in cuts)
    one, other = CellSpace([columns]), CellSpace(single)
    assert (one.predicates, one.cells, one.keys, set(one.attributes)) == (
        other.predicates, other.cells, other.keys, set(other.attributes),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("computed", "plain"),
    [
        ("sym = $s AND price > 10 * $lim", lambda s, lim: f"sym = {s} AND price > {10 * lim}"),
        ("($s * 2 - 1 <= sym AND price < -$lim + 9)", lambda s, lim: f"sym >= {2 * s - 1} AND price < {9 - lim}"),
        ("sym BETWEEN $s + 1 AND 9 AND price > ($lim + 1) / 2", lambda s, lim: f"sym BETWEEN {s + 1} AND 9 AND price > "
         f"{(lim + 1) / 2}"),
    ],
)  # fmt: skip
def test_computed_constants_are_columns(computed: str, plain: Callable[[int, float], str]) -> None:
    """What a template computes of its parameters and compares is a column, with the values that DuckDB computes."""
    columns = declared(40, computed)
    values = zip(*rules(40).to_pydict().values(), strict=True)
    for i, (s, lim) in enumerate(values):
        query = "SELECT COUNT(*) AS n, MAX(price) AS m FROM st [RANGE 10 SLIDE 5] WHERE "
        engine = windrow.Engine(runtime="local")
        engine.execute(f"{STREAM} CREATE QUERY q AS {query}{plain(s, lim)}")
        assert columns.condition(i) == recognise(engine["q"].plan).member.condition


def ticked(count: int, store: Any) -> tuple[list[int], Any]:
    """Two ticks with so many instances: how much the programs say, and the ticker."""
    script = f"{STREAM} CREATE TABLE rules (s BIGINT, lim DOUBLE); {TEMPLATE}"
    replay = Replay.of(
        f"{script} CREATE QUERIES q FROM TEMPLATE t USING TABLE rules", {"st": ROWS}, {"rules": rules(count)}
    )
    ticker, sent = replay.registered(LocalJob(), store, "upa"), []
    for frontier, first in ((5, 0), (11, 2)):
        program = ticker.program(frontier)
        sent.append(len(pickle.dumps(replace(program, deployment=Deployment()))))
        tick = ticker.collect(program, LocalJob().run([Feed("st", ROWS.slice(first, 2))], program, 1), 1)
        ticker.commit(tick)
    return sent, ticker


def test_ticks_say_nothing_of_every_instance(tmp_path: Path) -> None:
    """Programs and manifests are as long for many as for few; there is one clock, and no query for an instance."""
    sizes = []
    for count in (100, 4000):
        with Store.open(str(tmp_path / str(count))) as store:
            sent, ticker = ticked(count, store)
            assert not ticker.queries and len(ticker.sharing.columns) == 1 and list(ticker.manifest.clocks) == ["+1@0"]
            sizes.append((sent[-1], len(encode(ticker.manifest))))
    assert all(abs(many - few) < 200 for few, many in zip(*sizes, strict=True))


def test_no_instance_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the table of rules to the answer no name and no plan is made but for the few that are compared."""
    made = {"names": 0, "instances": 0}
    name, instances = member_columns.InstanceNames._name, templates.instances

    def named(self: Any, i: int) -> str:
        made["names"] += 1
        return name(self, i)

    def planned(queries: str, rows: pa.Table) -> Any:
        made["instances"] += rows.num_rows
        return instances(queries, rows)

    monkeypatch.setattr(member_columns.InstanceNames, "_name", named)
    monkeypatch.setattr(templates, "instances", planned)
    script = f"{STREAM} CREATE TABLE rules (s BIGINT, lim DOUBLE); {TEMPLATE}"
    script += "CREATE QUERIES q FROM TEMPLATE t USING TABLE rules"
    answer = windrow.run(script, {"st": ROWS}, {"rules": rules(5000)}, runtime="local")["q"]
    assert answer.num_rows == 3 * 5000 and sum(answer.column("n").to_pylist()) == 6
    assert made["names"] == 0 and made["instances"] <= 10


@pytest.mark.parametrize("partitions", [1, 3])
def test_synopses_are_opened_where_they_are_read(monkeypatch: pytest.MonkeyPatch, partitions: int) -> None:
    """The driver, tasks that reduce rows and partitions that answer nothing open none, however many instances."""
    opened = []
    open_all = SynopsisStore.open_all

    def counted(self: SynopsisStore, synopses: Any, window: Any) -> Any:
        opened.append(len(synopses))
        return open_all(self, synopses, window)

    monkeypatch.setattr(SynopsisStore, "open_all", counted)
    script = f"{STREAM} CREATE TABLE rules (s BIGINT, lim DOUBLE); {TEMPLATE}"
    script += "CREATE QUERIES q FROM TEMPLATE t USING TABLE rules"
    replay = Replay.of(script, {"st": ROWS}, {"rules": rules(200)})
    ticker = replay.registered(LocalJob(), MemoryStore(), "upa", partitions)
    assert not opened
    answer = replay.play(ticker, LocalJob(), 2)["q"]
    assert opened == [200]
    assert answer.num_rows == 3 * 200 and sum(answer.column("n").to_pylist()) == 6


def test_instances_that_left_before_any_row_came_have_no_answer() -> None:
    """Who has left when the synopses of the others are opened is in none of them."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute(f"{STREAM} CREATE TABLE rules (s BIGINT, lim DOUBLE); {TEMPLATE}")
        values = ", ".join(f"({s}, 0.5)" for s in range(100))
        engine.execute(f"CREATE QUERIES q FROM TEMPLATE t VALUES {values}; DROP QUERIES q WHERE s IN (1, 3)")
        engine.start()
        engine.push("st", ROWS)
        engine.advance(16)
        answer = engine["q"].results()
    seen = {row["s"]: row["n"] for row in answer.to_pylist() if row["_ts"] == 15}
    assert sorted(seen) == [s for s in range(100) if s not in (1, 3)] and seen[2] == 1 and seen[7] == 0


def test_homes_keep_rows_once_and_then_who_leaves(tmp_path: Path) -> None:
    """Many that come are in the catalog and not in manifests; one that leaves is one number in the next manifest."""
    rng = np.random.default_rng(3)
    pushed = pa.table(
        {"sym": rng.integers(0, 300, 60), "price": rng.random(60) * 9, "name": ["a"] * 60, "ts": np.arange(60)}
    )
    answers = []
    for home in (None, tmp_path / "home"):
        engine = windrow.Engine(runtime="local", home=home)
        engine.execute(STREAM + TEMPLATE)
        written = ", ".join(f"({s}, {s % 7}.5)" for s in range(300))
        engine.execute(f"CREATE QUERIES q FROM TEMPLATE t VALUES {written}")
        engine.start()
        engine.push("st", pushed.slice(0, 20))
        engine.drain()
        long = len(encode(engine.runtime.ticker.manifest))
        engine.execute("DROP QUERIES q WHERE s = 17")
        engine.execute("CREATE QUERIES q FROM TEMPLATE t VALUES (17, 3)")
        manifest = engine.runtime.ticker.manifest
        engine.push("st", pushed.slice(20, 20))
        engine.drain()
        found = [engine["q"].results()]
        if home is not None:
            assert long < 8000 and len(encode(manifest)) < long + 8000
            change = manifest.changes[-2]
            ((_, left),) = change["leave columns"].items()
            assert left == [17] and "add columns" not in change and FOLD > 4
            engine.stop()
            store = Store.open(home, read_only=True)
            (block,) = in_force(store, store.latest())["shared"]["columns"].values()
            assert (block["size"], block["left"], block["family"]) == (300, [17], "+1")
            engine = windrow.Engine(runtime="local", home=home)
            engine.start()
            group = engine.runtime.declared.groups.live["q"]
            assert [len(m) for m in group.blocks.values()] == [299] and list(group.place) == ["q(17, 3.0)"]
        engine.push("st", pushed.slice(40))
        engine.advance(90)
        found.append(engine["q"].results())
        answers.append((found, json.dumps(sorted(map(str, engine["q"].instances().to_pylist())))))
        engine.stop()
    (plain, there), (kept, again) = answers
    assert there == again
    assert_same(kept[0], plain[0])
    assert_same(kept[1], plain[1].slice(plain[0].num_rows))


def test_instances_that_came_one_by_one_keep_their_state(tmp_path: Path) -> None:
    """However many they are by now: a restart finds each where it was, and gives those that come then columns."""
    answers = []
    for home in (None, tmp_path / "home"):
        engine = windrow.Engine(runtime="local", home=home)
        engine.execute(STREAM + TEMPLATE)
        for first in range(0, 100, 25):
            written = ", ".join(f"({s}, 0.5)" for s in range(first, first + 25))
            engine.execute(f"CREATE QUERIES q FROM TEMPLATE t VALUES {written}")
        engine.start()
        engine.push("st", pa.table({"sym": [1, 2, 99], "price": [5.0] * 3, "name": ["a"] * 3, "ts": [1, 12, 13]}))
        engine.drain()
        if home is not None:
            engine.stop()
            engine = windrow.Engine(runtime="local", home=home)
            engine.start()
        engine.push("st", pa.table({"sym": [2, 150], "price": [7.0] * 2, "name": ["a"] * 2, "ts": [14, 16]}))
        engine.execute(f"CREATE QUERIES q FROM TEMPLATE t VALUES {', '.join(f'({s}, 0.5)' for s in range(100, 200))}")
        engine.advance(30)
        group = engine.runtime.declared.groups.live["q"]
        assert len(group.place) == 100 and [len(m) for m in group.blocks.values()] == [100]
        answers.append([(r["_ts"], r["s"], r["n"]) for r in engine["q"].results().to_pylist() if r["n"]])
        engine.stop()
    assert [a for a in answers[0] if a[0] > 12] == [a for a in answers[1] if a[0] > 12]
    assert (15, 2, 2) in answers[1] and (15, 99, 1) in answers[1]


def test_one_of_many_that_fails_stops_alone(tmp_path: Path) -> None:
    """What its select list raises stops one instance, by its name; the others go on. It begins anew with a restart."""
    home, rows = tmp_path / "home", {"sym": [7, 3, 1], "name": ["a", "a", "a"]}
    engine = windrow.Engine(runtime="local", home=home)
    engine.execute(STREAM + TEMPLATE.replace("MAX(price)", "CAST(MAX(price) AS TINYINT)"))
    written = ", ".join(f"({s}, 0.5)" for s in range(100))
    engine.execute(f"CREATE QUERIES q FROM TEMPLATE t VALUES {written}")
    assert engine.runtime.ticker.sharing.columns and not engine.runtime.ticker.queries
    engine.start()
    for at, prices in ((2, [5.0, 6.0, 7.0]), (7, [1000.0, 6.0, 7.0]), (12, [5.0, 6.0, 7.0])):
        engine.push("st", pa.table({**rows, "price": prices, "ts": [at] * 3}))
        engine.drain()
    engine.push("st", pa.table({**rows, "price": [5.0, 6.0, 7.0], "ts": [22] * 3}))
    engine.drain()
    seen = {(r["_ts"], r["s"]) for r in engine["q"].results().to_pylist() if r["n"]}
    assert {s for t, s in seen if t == 5} == {1, 3, 7}
    assert all({s for t, s in seen if t == at} == {1, 3} for at in (10, 15, 20))
    assert engine.status()["templates"]["q"]["failed"] == ["q(7, 0.5)"]
    assert engine.runtime.ticker.manifest.lapsed == ("q(7, 0.5)",)
    engine.stop()
    engine = windrow.Engine(runtime="local", home=home)
    engine.start()
    assert list(engine.runtime.declared.groups.live["q"].place) == ["q(7, 0.5)"]
    engine.push("st", pa.table({**rows, "price": [5.0, 6.0, 7.0], "ts": [32] * 3}))
    engine.advance(36)
    assert {r["s"] for r in engine["q"].results().to_pylist() if r["n"] and r["_ts"] == 35} == {1, 3, 7}
    engine.stop()


def test_gaps_in_time_are_answered_in_columns_too() -> None:
    """A long time without rows is one stretch; instances answer before it and behind it as they would alone."""
    rows = pa.table({"sym": [1, 2, 1], "price": [1.0, 2.0, 3.0], "name": ["a"] * 3, "ts": [1, 2, 2_000_000]})
    having = TEMPLATE.replace(";", " HAVING COUNT(*) > 0;")
    script = f"{STREAM} CREATE TABLE rules (s BIGINT, lim DOUBLE); {having}"
    script += "CREATE QUERIES q FROM TEMPLATE t USING TABLE rules"
    given_rules = pa.table({"s": np.arange(70), "lim": np.zeros(70)})
    answer = windrow.run(script, {"st": rows}, {"rules": given_rules}, runtime="local", until=2_000_010)["q"]
    found = [(r["_ts"], r["s"], r["n"], r["m"]) for r in answer.to_pylist()]
    assert sorted(found) == [
        (5, 1, 1, 1.0), (5, 2, 1, 2.0), (10, 1, 1, 1.0), (10, 2, 1, 2.0),
        (2_000_000, 1, 1, 3.0), (2_000_005, 1, 1, 3.0),
    ]  # fmt: skip


def test_a_query_that_failed_stays_failed_until_a_restart(tmp_path: Path) -> None:
    """Its name is in every manifest from then on, and gone with the query."""
    engine = windrow.Engine(runtime="local", home=tmp_path / "home")
    texts = (
        f"CREATE QUERY q{i} AS SELECT CAST(MAX(price) AS TINYINT) AS m FROM st [RANGE 10 SLIDE 5] WHERE sym = {i};"
        for i in range(3)
    )
    engine.execute(STREAM + "".join(texts))
    engine.start()
    seen = []
    for at, price in ((2, 5.0), (7, 1000.0), (12, 5.0), (22, 5.0)):
        engine.push("st", pa.table({"sym": [0, 1], "price": [5.0, price], "name": ["a", "a"], "ts": [at] * 2}))
        engine.drain()
        seen.append(engine.runtime.ticker.manifest.lapsed)
    assert seen == [(), (), ("q1",), ("q1",)]
    engine.execute("DROP QUERY q1")
    assert engine.runtime.ticker.manifest.lapsed == ()
    engine.stop()


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", None])), max_size=12))
def test_rows_are_numbered_by_their_values(rows: list[tuple[int, str | None]]) -> None:
    """Equal rows have equal numbers, nulls are equal, and a row is found where it first stood."""
    table = pa.table(
        {"a": pa.array([r[0] for r in rows], pa.int64()), "b": pa.array([r[1] for r in rows], pa.string())}
    )
    (numbers,) = row_numbers([table])
    assert [[a == b for b in rows] for a in rows] == [[a == b for b in numbers] for a in numbers]
    assert [rows[i] for i in positions(table, table)] == rows
    known = InstanceTable.empty({"a": pa.int64(), "b": pa.string()})
    twice = known.repeated(table)
    assert (twice is None) == (len(set(rows)) == len(rows))
    if twice is None:
        assert known.added(table).repeated(table.slice(0, 1)) == (0 if rows else None)


@pytest.mark.parametrize("condition", ["sym = $s AND price > $lim", "NOT (price <= $lim) OR sym = $s"])
def test_grouped_instances_are_planned_by_their_shape(condition: str) -> None:
    """Plans, conditions and answers are those of planning each by itself, whatever digits and signs values have."""
    text = f"SELECT name, COUNT(*) AS n, MAX(price) AS m FROM st [RANGE 10 SLIDE 5] WHERE {condition} GROUP BY name"
    made = f"{STREAM} CREATE TEMPLATE t (s BIGINT, lim DOUBLE) AS {text}; CREATE TABLE rules (s BIGINT, lim DOUBLE);"
    made += "CREATE QUERIES q FROM TEMPLATE t USING TABLE rules"
    limits = [0.5, -1.25, 4.0, 1e20, 2.5e-7, -3.0, 123456.75, 5.0] * 10
    given_rules = pa.table({"s": np.arange(80) - 20, "lim": limits})
    replay = Replay.of(made, {"st": ROWS}, {"rules": given_rules})
    queries, template = replay.catalog.groups["q"], replay.catalog.templates["t"]
    by_shape, alone = (replay.planner.planned(queries, template, given_rules, replay.catalog, n) for n in (1, None))
    assert not by_shape.columns and list(by_shape.plans) == list(alone.plans)
    for name, plan in by_shape.plans.items():
        want = alone.plans[name]
        assert (plan.root, plan.text, plan.output) == (want.root, want.text, want.output)
        assert recognise(plan).member.condition == recognise(want).member.condition
    script = "".join(f"CREATE QUERY {n} AS {t};" for n, t in _texts(text, given_rules))
    wanted = windrow.run(STREAM + script, {"st": ROWS}, runtime="local", sharing="off", until=30)
    found = windrow.run(made, {"st": ROWS}, {"rules": given_rules}, runtime="local", until=30)["q"]
    for i, (name, _) in enumerate(_texts(text, given_rules)):
        mine = found.filter(pc.equal(found.column("s"), i - 20)).drop_columns(["s", "lim"])
        assert_same(mine, wanted[name])


def _texts(text: str, rows: pa.Table) -> list[tuple[str, str]]:
    """The text of each instance, as somebody would write it."""
    both = zip(rows.column("s").to_pylist(), rows.column("lim").to_pylist(), strict=True)
    return [(f"i{i}", text.replace("$s", str(s)).replace("$lim", repr(lim))) for i, (s, lim) in enumerate(both)]
