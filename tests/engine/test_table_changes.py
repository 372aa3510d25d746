"""Tables that are told by their changes: what they hold, when queries see it, and what becomes of it in a crash."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from tests.kafka import MockKafka

import windrow
from windrow.catalog import TableDef
from windrow.catalog.change_columns import ChangeColumns
from windrow.errors import BindingError, SourceError, UnsupportedError, WindrowError
from windrow.sources.numbered_rows import merged, row_count, whole
from windrow.sources.table_changes import KeyedTable, changed
from windrow.testing import assert_same, oracle

STREAM = "CREATE STREAM s (k BIGINT, ts BIGINT) TIMESTAMP BY ts;"
TABLE = "CREATE TABLE t (id BIGINT, name VARCHAR){more} KEY (id) CHANGES BY op{source};"
JOINED = "CREATE QUERY q AS SELECT s.ts AS at, k, name FROM s [RANGE 10], t WHERE k = id;"


def table(more: str = "", source: str = "") -> str:
    return TABLE.format(more=more, source=source)


def changes(*rows: tuple[str, int | None, str | None]) -> pa.Table:
    """Flat changes: operation, id, name."""
    op, key, name = (list(c) for c in zip(*rows, strict=True))
    return pa.table({"op": op, "id": pa.array(key, pa.int64()), "name": pa.array(name, pa.string())})


def held(engine: windrow.Engine, name: str = "t") -> list[tuple[Any, ...]]:
    """What a table holds, in order."""
    return sorted(tuple(r.values()) for r in engine.ask(f"SELECT * FROM {name}").to_pylist())


def answered(engine: windrow.Engine, query: str = "q") -> list[tuple[Any, ...]]:
    return sorted(tuple(r.values()) for r in engine[query].results().to_pylist())


@pytest.fixture
def engine():
    with windrow.Engine(runtime="local") as made:
        yield made


def test_changes_are_applied_in_order_of_arrival(engine):
    """What is there is replaced, what is gone stays gone, in the words of Debezium, SQL and Flink."""
    engine.execute(table())
    engine.start()
    engine.push("t", changes(("c", 1, "a"), ("r", 2, "b"), ("INSERT", 3, "c"), ("+I", 4, "d")))
    assert held(engine) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    engine.push(
        "t", changes(("u", 1, "A"), (" Update ", 9, "new"), ("d", 2, None), ("delete", 2, None), ("-U", 4, "d"))
    )
    assert held(engine) == [(1, "A"), (3, "c"), (9, "new")]
    engine.push("t", changes(("d", 1, None), ("c", 1, "again"), ("c", 3, "x"), ("-D", 3, None)))
    assert held(engine) == [(1, "again"), (9, "new")]
    engine.push("t", changes(("c", 5, "gone"), ("truncate", None, None), ("c", 6, "stays")))
    assert held(engine) == [(6, "stays")]


def test_non_retroactive_changes_concern_rows_to_come(engine):
    """Answers that are out stay as they are."""
    engine.execute(STREAM + table() + JOINED)
    engine.start()
    engine.push("t", changes(("c", 1, "a"), ("c", 2, "b")))
    engine.push("s", {"k": [1, 2], "ts": [1, 1]})
    engine.advance(1)
    engine.push("t", changes(("u", 1, "A"), ("d", 2, None)))
    engine.push("s", {"k": [1, 2], "ts": [3, 3]})
    engine.advance(5)
    assert answered(engine) == [(1, 1, 1, 1, "a"), (1, 1, 1, 2, "b"), (3, 1, 3, 1, "A")]


def test_retroactive_changes_reach_back(engine):
    """Answers that are out are taken back."""
    engine.execute(STREAM + table(" RETROACTIVE") + JOINED)
    engine.start()
    engine.push("t", changes(("c", 1, "a"), ("c", 2, "b")))
    engine.push("s", {"k": [1, 2], "ts": [1, 1]})
    engine.advance(1)
    engine.push("t", changes(("u", 1, "A"), ("d", 2, None)))
    engine.advance(5)
    assert answered(engine) == [
        (1, 1, 1, 1, "a"), (1, 1, 1, 2, "b"), (2, -1, 1, 1, "a"), (2, -1, 1, 2, "b"), (2, 1, 1, 1, "A"),
    ]  # fmt: skip


def test_a_version_that_a_query_has_seen_stays_until_it_has_seen_the_next(engine):
    """A table changes while time stands still, twice: without a home the first version must not be forgotten."""
    engine.execute(STREAM + "CREATE TABLE t (id BIGINT, name VARCHAR) RETROACTIVE;" + JOINED)
    engine.start()
    engine.table("t", {"id": [1], "name": ["a"]})
    engine.push("s", {"k": [1, 1], "ts": [1, 2]})
    for name in ("b", "c"):
        engine.table("t", {"id": [1], "name": [name]})
        engine.push("s", {"k": [5], "ts": [2]})  # a tick in which time stands still
    engine.advance(3)
    assert not engine.status()["failed"]
    assert answered(engine)[2:] == [(3, -1, 1, 1, "a"), (3, -1, 2, 1, "a"), (3, 1, 1, 1, "c"), (3, 1, 2, 1, "c")]


ENVELOPES = [
    {"op": "r", "before": None, "after": {"id": 1, "name": "a"}},
    {"op": "c", "before": None, "after": {"id": 2, "name": "b"}},
    {"op": "u", "before": {"id": 1, "name": "a"}, "after": {"id": 7, "name": "moved"}},
    {"op": "u", "before": None, "after": {"id": 2, "name": "B"}},
    {"op": "d", "before": {"id": 2}, "after": None},
    {"op": "c", "before": None, "after": {"id": 3, "name": "c"}},
]
ENVELOPED = "CREATE TABLE t (id BIGINT, name VARCHAR) KEY (id) CHANGES BY {p}op BEFORE {p}before AFTER {p}after {more};"


@pytest.mark.parametrize("inside", ["", "payload."])
def test_envelopes_of_debezium_json(engine, tmp_path, inside):
    """Before and after, with or without a schema around them; an update may give a row another key."""
    lines = [{"schema": {"type": "struct"}, "payload": e} if inside else e for e in ENVELOPES]
    (tmp_path / "a.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    engine.execute(ENVELOPED.format(p=inside, more=f"FROM json (path => '{tmp_path}')"))
    engine.start()
    engine.drain()
    assert held(engine) == [(3, "c"), (7, "moved")]
    assert engine.status()["tables"]["t"]["changes"] == len(ENVELOPES)


def test_envelopes_from_kafka_and_the_tombstones_behind_deletions(engine):
    """A message without a value is what compaction needs, and no change."""
    kafka = MockKafka()
    values = [json.dumps(e).encode() for e in ENVELOPES]
    kafka.send("db.t", [*values[:5], None, values[5]])
    source = f"FROM kafka (servers => '{kafka.servers}', topic => 'db.t')"
    engine.execute(ENVELOPED.format(p="", more=source))
    engine.start()
    engine.drain()
    assert held(engine) == [(3, "c"), (7, "moved")]


FLAT = changes(("c", 1, "a"), ("c", 2, "b"), ("u", 1, "A"), ("d", 2, None))


def _csv(place: Path) -> None:
    (place / "a.csv").write_text("op,id,name\nc,1,a\nc,2,b\nu,1,A\nd,2,\n")


def _json(place: Path) -> None:
    (place / "a.json").write_text("".join(json.dumps(r) + "\n" for r in FLAT.to_pylist()))


def _parquet(place: Path) -> None:
    parquet.write_table(FLAT, place / "a.parquet")


def _arrow(place: Path) -> None:
    with pa.OSFile(str(place / "a.arrow"), "wb") as file, pa.ipc.new_file(file, FLAT.schema) as writer:
        writer.write_table(FLAT)


def _delta(place: Path) -> None:
    pytest.importorskip("deltalake").write_deltalake(str(place), FLAT)


@pytest.mark.parametrize(
    ("kind", "write"), [("csv", _csv), ("json", _json), ("parquet", _parquet), ("arrow", _arrow), ("delta", _delta)]
)
def test_changes_come_from_every_source_of_streams(engine, tmp_path, kind, write):
    """Files and Delta tables; the operation stands beside the columns."""
    write(tmp_path)
    header = ", header => 'true'" if kind == "csv" else ""
    engine.execute(table(source=f" FROM {kind} (path => '{tmp_path}'{header})"))
    engine.start()
    engine.drain()
    assert held(engine) == [(1, "A")]


def test_changes_come_from_an_iceberg_table(engine, tmp_path):
    """Rows that a snapshot adds tell of changes like any others."""
    catalog = pytest.importorskip("pyiceberg.catalog")
    lake = {"uri": f"sqlite:///{tmp_path / 'catalog.db'}", "warehouse": f"file://{tmp_path / 'lake'}"}
    opened = catalog.load_catalog("default", **lake)
    opened.create_namespace("a")
    opened.create_table("a.t", FLAT.schema).append(FLAT)
    options = ", ".join(f"{k} => '{v}'" for k, v in {"table": "a.t", **lake}.items())
    engine.execute(table(source=f" FROM iceberg ({options})"))
    engine.start()
    engine.drain()
    assert held(engine) == [(1, "A")]


def test_a_replay_holds_what_all_changes_make():
    """Tables do not change in a replay."""
    got = windrow.run(
        table() + "SELECT name FROM s [NOW], t WHERE k = id",
        {"s": {"k": [1, 2], "ts": [1, 1]}}, {"t": FLAT}, runtime="local",
    )["q1"]  # fmt: skip
    assert got["name"].to_pylist() == ["A"]


# what cannot be applied


BAD = [(("x", 1, "a"), "unknown operation"), ((None, 1, "a"), "op"), (("c", None, "a"), "no key")]


@pytest.mark.parametrize(("row", "why"), BAD)
def test_a_malformed_change_is_refused_where_it_is_pushed(engine, row, why):
    """Nothing of what was pushed with it is applied."""
    engine.execute(table())
    engine.start()
    with pytest.raises(SourceError, match="unknown operation" if why == "op" else why) as error:
        engine.push("t", changes(("c", 5, "ok"), row))
    assert held(engine) == []
    assert ("BEFORE before AFTER after" in (error.value.hint or "")) == (why == "no key")


@pytest.mark.parametrize(("row", "why"), BAD)
def test_a_malformed_change_stops_its_table_alone(tmp_path, row, why):
    """By default the table stands still and says why; streams go on; once mended it goes on where it was."""
    place = tmp_path / "changes"
    place.mkdir()
    parquet.write_table(changes(("c", 1, "a")), place / "1.parquet")
    engine = windrow.Engine(runtime="local")
    engine.execute(STREAM + table(source=f" FROM parquet (path => '{place}')") + JOINED)
    engine.start()
    engine.drain()
    parquet.write_table(changes(("c", 2, "b"), row), place / "2.parquet")
    with pytest.raises(SourceError, match=why):
        engine.drain()
    engine.push("s", {"k": [1, 2], "ts": [1, 2]})
    engine.advance(2)
    assert held(engine) == [(1, "a")] and answered(engine) == [(1, 1, 1, 1, "a")]
    status = engine.status()["tables"]["t"]
    assert status["failing_since_us"] is not None and why in status["error"]
    engine.stop()


@pytest.mark.parametrize("home", [False, True])
def test_malformed_changes_go_to_quarantine(tmp_path, home):
    """With ON ERROR QUARANTINE they are set aside, counted and readable, once, and the others are applied."""
    options = {"home": str(tmp_path / "home")} if home else {}
    with windrow.Engine(runtime="local", **options) as engine:
        engine.execute(table(" ON ERROR QUARANTINE"))
        engine.start()
        engine.push("t", changes(*(row for row, _ in BAD), ("c", 3, "c")))
        assert held(engine) == [(3, "c")]
        assert engine.quarantine("t")["reason"].to_pylist() == ["unknown operation", "unknown operation", "no key"]
        assert engine.status()["tables"]["t"]["quarantined"] == 3
    if home:
        with windrow.Engine(runtime="local", **options) as engine:
            engine.start()
            assert engine.quarantine("t").num_rows == 3 and held(engine) == [(3, "c")]


# over restarts


def test_changes_are_applied_once_over_restarts(tmp_path):
    """The table and how far its changes were read are in one manifest; pushed and read ones go on behind it."""
    place, home = tmp_path / "changes", str(tmp_path / "home")
    place.mkdir()
    declared = STREAM + table(source=f" FROM parquet (path => '{place}')") + table().replace(" t ", " u ") + JOINED
    parquet.write_table(changes(("c", 1, "a"), ("c", 2, "b")), place / "1.parquet")
    with windrow.Engine(runtime="local", home=home) as engine:
        engine.execute(declared)
        engine.start()
        engine.push("u", changes(("c", 1, "x")))
        engine.drain()
    with windrow.Engine(runtime="local", home=home) as engine:
        engine.push("u", changes(("c", 2, "y"), ("d", 1, None)))  # before the start: it waits in the home
        parquet.write_table(changes(("d", 1, None)), place / "2.parquet")
    with windrow.Engine(runtime="local", home=home) as engine:
        assert held(engine) == [(1, "a"), (2, "b")]
        engine.start()
        engine.drain()
        assert held(engine) == [(2, "b")] and held(engine, "u") == [(2, "y")]
        assert engine.status()["tables"]["t"]["changes"] == 1  # what was applied before is not read again
        engine.execute("ALTER TABLE t SET (maxFilesPerTrigger => '1')")
        parquet.write_table(changes(("c", 3, "c")), place / "3.parquet")
        engine.drain()
        assert held(engine) == [(2, "b"), (3, "c")]
        engine.execute("DROP QUERY q; DROP TABLE t")
        engine.execute(table(source=f" FROM parquet (path => '{place}')"))  # declared anew, it begins anew
        engine.drain()
        assert held(engine) == [(2, "b"), (3, "c")]
        assert engine.status()["tables"]["t"]["changes"] == 4


def test_instances_of_a_template_come_and_go_with_changes(engine):
    """USING TABLE follows a table that is told by its changes; one that would be refused stops the table alone."""
    engine.execute(f"""{STREAM}
        CREATE TABLE rules (id BIGINT, k BIGINT) KEY (id) CHANGES BY op;
        CREATE TEMPLATE alert (k BIGINT) AS SELECT COUNT(*) AS n FROM s [RANGE 10 SLIDE 5] WHERE k = $k;
        CREATE QUERIES ruled FROM TEMPLATE alert USING TABLE rules""")
    engine.start()
    engine.push("rules", {"op": ["c", "c"], "id": [1, 2], "k": [10, 20]})
    assert sorted(engine["ruled"].instances()["k"].to_pylist()) == [10, 20]
    engine.push("rules", {"op": ["u", "d"], "id": [1, 2], "k": [30, None]})
    assert engine["ruled"].instances()["k"].to_pylist() == [30]
    engine.push("rules", {"op": ["c"], "id": [3], "k": [30]})  # twice the same instance
    assert engine["ruled"].instances()["k"].to_pylist() == [30]
    assert engine.status()["running"] and "30" in engine.status()["tables"]["rules"]["error"]
    engine.push("s", {"k": [30], "ts": [1]})
    engine.advance(5)
    assert answered(engine, "ruled") == [(5, 30, 1)]


# the language


def test_what_is_declared_is_shown(engine):
    """DESCRIBE and SHOW TABLES say how a table is told, in words that declare it again."""
    text = ENVELOPED.format(p="payload.", more="ON ERROR QUARANTINE").rstrip(";")
    engine.execute(text)
    known, shown = engine.execute("DESCRIBE t; SHOW TABLES")
    assert {"property": "key", "name": "id", "value": None} in known.to_pylist()
    assert {
        "property": "changes", "name": "payload.op",
        "value": "CHANGES BY payload.op BEFORE payload.before AFTER payload.after",
    } in known.to_pylist()  # fmt: skip
    assert shown["text"].to_pylist() == [text]


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("CREATE TABLE t (id BIGINT) CHANGES BY op", BindingError, "CHANGES BY needs a KEY"),
        ("CREATE TABLE t (id BIGINT) KEY (id)", BindingError, "KEY without CHANGES BY"),
        ("CREATE TABLE t (id BIGINT) ON ERROR STOP", BindingError, "ON ERROR without CHANGES BY"),
        ("CREATE TABLE t (id BIGINT) KEY (no) CHANGES BY op", BindingError, 'unknown column "no"'),
        ("CREATE TABLE t (id BIGINT) KEY (id, ID) CHANGES BY op", BindingError, "twice in KEY"),
        ("CREATE TABLE t (id BIGINT) KEY (id) CHANGES BY id", BindingError, "no text"),
        ("CREATE TABLE t (id BIGINT) KEY (id) CHANGES BY a.op", BindingError, "no text"),
        ("CREATE TABLE t (id BIGINT) KEY (id) CHANGES BY a BEFORE a AFTER b", BindingError, "one field twice"),
        ("CREATE TABLE t (id BIGINT) KEY (id) CHANGES BY op BEFORE b", WindrowError, "expected AFTER"),
        ("CREATE TABLE t (id BIGINT) KEY (id) CHANGES BY op FROM postgres (dsn => '')", UnsupportedError, "postgres"),
    ],
)
def test_what_makes_no_sense_is_refused(engine, text, error, match):
    """Clauses that need each other, and sources that know no changes."""
    with pytest.raises(error, match=match):
        engine.execute(text)


def test_the_whole_of_such_a_table_cannot_be_given(engine):
    """Its changes can."""
    engine.execute(table())
    with pytest.raises(BindingError, match="told by its changes"):
        engine.table("t", {"id": [1], "name": ["a"]})


def test_the_operation_may_be_a_column_of_the_table(engine):
    """Then it is kept as well."""
    engine.execute("CREATE TABLE t (id BIGINT, op VARCHAR) KEY (id) CHANGES BY Op")
    engine.start()
    engine.push("t", {"id": [1, 2], "op": ["c", "u"]})
    assert held(engine) == [(1, "c"), (2, "u")]


# the laws

DEFINED = TableDef(
    "t", {"a": pa.int64(), "b": pa.string(), "v": pa.int64()}, keys=("a", "b"), changes=ChangeColumns(("op",))
)
EMPTY = pa.schema(list(DEFINED.columns.items())).empty_table()
ROWS = st.tuples(
    st.sampled_from(["c", "u", "d", "D", "t"]), st.integers(0, 2), st.sampled_from(["x", "y"]), st.integers(0, 9)
)


@settings(max_examples=150)
@given(st.lists(ROWS, max_size=14), st.integers(0, 14))
def test_changes_in_parts_or_twice_are_the_changes(rows: list[tuple[str, int, str, int]], cut: int) -> None:
    """Any cut, and any part again, gives what all of them give at once: that of a dictionary."""
    want: dict[tuple[int, str], int] = {}
    for op, a, b, v in rows:
        if op.lower() == "t":
            want.clear()
        elif op.lower() == "d":
            want.pop((a, b), None)
        else:
            want[a, b] = v
    columns = list(zip(*rows, strict=True)) or [()] * 4
    made = pa.table(dict(zip(("op", "a", "b", "v"), map(list, columns), strict=True)), schema=pa.schema(
        [("op", pa.string()), *DEFINED.columns.items()]
    ))  # fmt: skip
    first, second = made.slice(0, cut), made.slice(cut)
    once = changed(DEFINED, changed(DEFINED, EMPTY, first), second)
    assert {(r["a"], r["b"]): r["v"] for r in once.to_pylist()} == want
    assert (
        changed(DEFINED, once, second)
        .sort_by([("a", "ascending"), ("b", "ascending")])
        .equals(changed(DEFINED, EMPTY, made).sort_by([("a", "ascending"), ("b", "ascending")]))
    )


def test_the_oracle_knows_changes():
    """A script with CHANGES BY means the same to it, flat and in envelopes."""
    data = {"s": pa.table({"k": [1, 2, 3, 7], "ts": [1, 2, 2, 3]})}
    query = "SELECT k, name FROM s [RANGE 2], t WHERE k = id"
    image = pa.struct([("id", pa.int64()), ("name", pa.string())])
    boxed = pa.Table.from_pylist(ENVELOPES, pa.schema([("op", pa.string()), ("before", image), ("after", image)]))
    for declared, given_changes in ((table(), FLAT), (ENVELOPED.format(p="", more=""), boxed)):
        case = (STREAM + declared + query, data, {"t": given_changes})
        assert oracle(*case)["q1"].num_rows
        assert_same(windrow.run(*case, runtime="local")["q1"], oracle(*case)["q1"])


@settings(max_examples=60)
@given(st.lists(st.lists(ROWS, min_size=1, max_size=5), max_size=10))
def test_runs_of_changes_are_the_table(steps: list[list[tuple[str, int, str, int]]]) -> None:
    """However runs are merged, they hold what all changes at once make; a change that says nothing new makes none."""
    schema = pa.schema([("op", pa.string()), *DEFINED.columns.items()])
    keyed, chain, every = KeyedTable(DEFINED, [EMPTY]), [EMPTY], EMPTY
    for step in steps:
        made = pa.table(dict(zip(schema.names, map(list, zip(*step, strict=True)), strict=True)), schema=schema)
        before, change = every, keyed.change(made)
        every = changed(DEFINED, every, made)
        order = [("a", "ascending"), ("b", "ascending")]
        if change is None:
            assert every.sort_by(order).equals(before.sort_by(order))
        else:
            change.keep()
            chain.append(change.run)
            assert row_count(chain) == row_count(keyed.parts) == every.num_rows
        for runs in (chain, keyed.parts, [*chain[:2], *([merged(chain[2:])] if chain[2:] else [])]):
            assert whole(runs).sort_by(order).equals(every.sort_by(order))
    assert len(keyed.parts) <= 8


def test_a_change_costs_what_it_changes(tmp_path):
    """Ticks write the rows that change, not the table; after a restart all are there."""
    home, many = tmp_path / "home", 20_000

    with windrow.Engine(runtime="local", home=str(home)) as engine:
        engine.execute(STREAM + table() + JOINED)
        engine.start()
        engine.push("t", {"op": ["c"] * many, "id": range(many), "name": ["a"] * many})
        engine.push("s", {"k": [1], "ts": [1]})
        for i in range(2, 30):
            engine.push("t", changes(("u", i, f"b{i}"), ("d", many - i, None)))
            engine.push("s", {"k": [i, 5], "ts": [i, i]})
        written = {f: f.stat().st_size for f in (home / "runs" / "tables").rglob("*.arrow")}
        assert sum(written.values()) < 1.5 * max(written.values())
        last = sorted(f for f in home.glob("runs/[0-9]*/**/*.arrow"))
        assert min(f.stat().st_size for f in last) < max(written.values()) / 10
        (name,) = engine.runtime.ticker.tables.keys()
        assert len(engine.runtime.ticker.tables[name][-1].refs) < 12
        want = held(engine)
        assert len(want) == many - 28 and (5, "b5") in want
    with windrow.Engine(runtime="local", home=str(home)) as engine:
        assert held(engine) == want
        engine.start()
        engine.push("t", changes(("u", 5, "again")))
        engine.push("s", {"k": [5, many - 3, 7], "ts": [40, 40, 40]})
        engine.advance(40)
        assert answered(engine)[-2:] == [(40, 1, 40, 5, "again"), (40, 1, 40, 7, "b7")]


KILLED = """
import sys, windrow
engine = windrow.Engine(runtime="local", home=sys.argv[1])
engine.start()
engine.drain()
"""


@pytest.mark.parametrize("point", ["before manifest", "after manifest"])
def test_a_crash_around_the_manifest_applies_changes_once(tmp_path, point):
    """What was applied in memory and lost is applied again; what the manifest holds is not read again."""
    place, home = tmp_path / "changes", str(tmp_path / "home")
    place.mkdir()
    parquet.write_table(changes(("c", 1, "a"), ("c", 2, "b")), place / "1.parquet")
    with windrow.Engine(runtime="local", home=home) as engine:
        engine.execute(table(" ON ERROR QUARANTINE", f" FROM parquet (path => '{place}')"))
        engine.start()
        engine.drain()
    parquet.write_table(changes(("d", 1, None), ("x", 3, "bad"), ("u", 2, "B")), place / "2.parquet")
    environment = {**os.environ, "WINDROW_CRASH_AT": f"{point}:1"}
    ended = subprocess.run([sys.executable, "-c", KILLED, home], env=environment, check=False, capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    with windrow.Engine(runtime="local", home=home) as engine:
        assert held(engine) == ([(1, "a"), (2, "b")] if point == "before manifest" else [(2, "B")])
        engine.start()
        engine.drain()
        assert held(engine) == [(2, "B")] and engine.quarantine("t")["reason"].to_pylist() == ["unknown operation"]
        assert engine.status()["tables"]["t"]["changes"] == (3 if point == "before manifest" else 0)


@pytest.mark.parametrize("again", ["restart", "alter"])
def test_changes_after_a_restart_concern_the_rows_that_they_name(again, tmp_path):
    """Whichever rows were deleted before: a change ends the row of its key, and a row that comes has its own number."""
    home, options = str(tmp_path / "home"), f"path => '{tmp_path / 'changes'}'"
    (tmp_path / "changes").mkdir()
    script = f"""
        CREATE STREAM s (ts BIGINT, id BIGINT) TIMESTAMP BY ts;
        CREATE TABLE u (id BIGINT, w BIGINT) KEY (id) CHANGES BY op FROM csv ({options});
        CREATE QUERY q AS SELECT s.ts, u.w FROM s [NOW], u WHERE s.id = u.id;
    """
    steps = ["c,9,0", "d,9,\nc,1,1\nc,2,2", "d,2,", "c,3,3", "d,1,", "c,1,4\nd,3,"]
    held = [{9: 0}, {1: 1, 2: 2}, {1: 1}, {1: 1, 3: 3}, {3: 3}, {1: 4}]
    engine = windrow.Engine(runtime="local", home=home)
    engine.execute(script)
    engine.start()
    for number, (text, table) in enumerate(zip(steps, held, strict=True)):
        (tmp_path / "changes" / f"{number}.csv").write_text(f"op,id,w\n{text}\n")
        engine.drain()
        engine.push("s", {"ts": [10 * number] * 4, "id": [1, 2, 3, 9]})
        engine.advance(10 * number)
        found = engine["q"].snapshot()["w"].to_pylist()
        assert sorted(found) == sorted(table.values()), number
        assert {r["id"]: r["w"] for r in engine.ask("SELECT * FROM u").to_pylist()} == table
        if again == "restart":
            engine.stop()
            engine = windrow.Engine(runtime="local", home=home)
            engine.start()
        else:
            engine.execute(f"ALTER TABLE u SET (max_files => {number + 2})")
    engine.stop()
