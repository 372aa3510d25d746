"""ALTER ... ADD COLUMN and DROP COLUMN while queries run: old rows and files give nulls, no reader tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import windrow
from windrow.errors import BindingError, SourceError, UnsupportedError, WindrowError

STREAM = "CREATE STREAM s (a BIGINT, ts BIGINT) TIMESTAMP BY ts{};"
COUNT = "CREATE QUERY n AS SELECT COUNT(*) AS n, SUM(a) AS a FROM s [RANGE 100];"
BY_B = "CREATE QUERY by_b AS SELECT b, COUNT(*) AS n FROM s [RANGE 100] GROUP BY b;"


def rows(engine: windrow.Engine, query: str) -> list[tuple[Any, ...]]:
    """The present answer of a query."""
    return sorted((tuple(r.values()) for r in engine[query].snapshot().to_pylist()), key=str)


def test_a_column_is_added_to_a_stream(tmp_path):
    """Queries go on with their state; rows pushed without the column have a null there; so it is after a restart."""
    home = str(tmp_path / "home")
    with windrow.Engine(runtime="local", home=home) as engine:
        engine.execute(STREAM.format("") + COUNT)
        engine.start()
        engine.push("s", {"a": [1, 1], "ts": [1, 2]})
        engine.execute("ALTER STREAM s ADD COLUMN b VARCHAR")
        engine.execute(BY_B)
        engine.push("s", {"a": [1], "ts": [3]})
        engine.push("s", {"a": [1], "b": ["x"], "ts": [4]})
        engine.push("s", {"a": [1], "ts": [5]})
        assert rows(engine, "n") == [(4, 4)] and rows(engine, "by_b") == [("x", 1), (None, 1)]
        with pytest.raises(SourceError, match='no column "a"'):  # the others must be there
            engine.push("s", {"b": ["x"], "ts": [6]})
    with windrow.Engine(runtime="local", home=home) as engine:
        assert list(engine.catalog.streams["s"].columns) == ["a", "ts", "b"]
        engine.start()
        engine.push("s", {"a": [1], "ts": [9]})
        engine.push("s", {"a": [1], "b": ["x"], "ts": [10]})
        assert rows(engine, "n") == [(6, 6)] and rows(engine, "by_b") == [("x", 1), (None, 3)]


def test_rows_that_wait_are_of_the_old_columns(tmp_path):
    """What was pushed before the engine started, or before the column came, is read with nulls."""
    with windrow.Engine(runtime="local", home=str(tmp_path / "home")) as engine:
        engine.execute(STREAM.format("") + COUNT)
        engine.push("s", {"a": [1, 1], "ts": [1, 2]})
        engine.execute("ALTER STREAM s ADD COLUMN b VARCHAR;" + BY_B)
        engine.start()
        engine.push("s", {"a": [1], "ts": [3]})
        engine.advance(3)
        assert rows(engine, "by_b") == [(None, 3)] and rows(engine, "n") == [(3, 3)]


def _csv(place: Path, name: str, table: pa.Table) -> None:
    lines = [",".join(table.column_names), *(",".join(map(str, r.values())) for r in table.to_pylist())]
    (place / f".{name}").write_text("\n".join(lines) + "\n")
    (place / f".{name}").rename(place / f"{name}.csv")


def _parquet(place: Path, name: str, table: pa.Table) -> None:
    parquet.write_table(table, place / f".{name}")
    (place / f".{name}").rename(place / f"{name}.parquet")


def _json(place: Path, name: str, table: pa.Table) -> None:
    import json

    (place / f".{name}").write_text("".join(json.dumps(r) + "\n" for r in table.to_pylist()))
    (place / f".{name}").rename(place / f"{name}.json")


def _arrow(place: Path, name: str, table: pa.Table) -> None:
    with pa.OSFile(str(place / f".{name}"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    (place / f".{name}").rename(place / f"{name}.arrow")


@pytest.mark.parametrize(("kind", "write"), [("csv", _csv), ("parquet", _parquet), ("json", _json), ("arrow", _arrow)])
def test_files_without_the_column(tmp_path, kind, write):
    """Old files and new ones of writers who do not know it; before it was added they must have what is declared."""
    place = tmp_path / "in"
    place.mkdir()
    with windrow.Engine(runtime="local", home=str(tmp_path / "home")) as engine:
        engine.execute(STREAM.format(f" FROM {kind} (path => '{place}')") + COUNT)
        write(place, "1", pa.table({"a": [1], "ts": [1]}))
        engine.start()
        engine.drain()
        engine.execute("ALTER STREAM s ADD COLUMN b BIGINT;" + BY_B)
        write(place, "2", pa.table({"a": [1, 2], "ts": [2, 3]}))
        engine.drain()
        write(place, "3", pa.table({"a": [3], "ts": [4], "b": [7]}))
        engine.drain()
        write(place, "4", pa.table({"a": [3], "ts": [5]}))
        engine.drain()
        assert rows(engine, "n") == [(4, 7)] and rows(engine, "by_b") == [(7, 1), (None, 2)]


def test_a_column_is_dropped_from_a_stream(tmp_path):
    """One that nobody reads; rows that have it still come."""
    home = str(tmp_path / "home")
    script = "CREATE STREAM s (a BIGINT, b VARCHAR, ts BIGINT) TIMESTAMP BY ts;"
    with windrow.Engine(runtime="local", home=home) as engine:
        engine.execute(script + COUNT)
        engine.start()
        engine.push("s", {"a": [1], "b": ["x"], "ts": [1]})
        engine.execute("ALTER STREAM s DROP COLUMN b")
        engine.push("s", {"a": [1], "b": ["x"], "ts": [2]})
        engine.push("s", {"a": [1], "ts": [3]})
    with windrow.Engine(runtime="local", home=home) as engine:
        engine.start()
        engine.push("s", {"a": [1], "ts": [4]})
        assert rows(engine, "n") == [(3, 3)]
        with pytest.raises(BindingError, match='unknown column "b"'):
            engine.execute(BY_B)


TABLE = "CREATE TABLE t (id BIGINT, name VARCHAR){};"
JOINED = "CREATE QUERY j AS SELECT s.ts AS at, t.name FROM s [RANGE 100], t WHERE s.a = t.id;"
JOINED_B = "CREATE QUERY k AS SELECT s.ts AS at, t.b FROM s [RANGE 100], t WHERE s.a = t.id;"


@pytest.mark.parametrize("kind", ["", " RETROACTIVE", " KEY (id) CHANGES BY op", " RETROACTIVE KEY (id) CHANGES BY op"])
def test_a_column_is_added_to_a_table(tmp_path, kind):
    """What it holds has nulls there, for queries to come; those that run see nothing of it, over a restart too."""
    home, changes = str(tmp_path / "home"), "CHANGES" in kind

    def tell(engine: windrow.Engine, **columns: list[Any]) -> None:
        if changes:
            engine.push("t", {"op": ["u"] * len(columns["id"]), **columns})
        else:
            engine.table("t", columns)

    with windrow.Engine(runtime="local", home=home) as engine:
        engine.execute(STREAM.format("") + TABLE.format(kind) + JOINED)
        engine.start()
        tell(engine, id=[1, 2], name=["x", "y"])
        engine.push("s", {"a": [1, 2], "ts": [1, 2]})
        engine.advance(3)
        before = engine["j"].results().num_rows
        engine.execute("ALTER TABLE t ADD COLUMN b BIGINT;" + JOINED_B)
        engine.push("s", {"a": [1], "ts": [10]})
        engine.advance(11)
        assert engine["j"].results().num_rows == before + 1
        assert engine.ask("SELECT id, b FROM t ORDER BY id").to_pylist() == [{"id": 1, "b": None}, {"id": 2, "b": None}]
        assert rows(engine, "k") == [(10, None)]
        tell(engine, id=[1, 2], name=["x", "y"], b=[5, 6])
        engine.push("s", {"a": [1], "ts": [20]})
        engine.advance(21)
    with windrow.Engine(runtime="local", home=home) as engine:
        engine.start()
        engine.push("s", {"a": [2], "ts": [30]})
        engine.advance(31)
        reaches = [(10, 5)] if "RETROACTIVE" in kind else [(10, None)]
        assert rows(engine, "k") == sorted([*reaches, (20, 5), (30, 6)], key=str)
        assert rows(engine, "j") == [(1, "x"), (10, "x"), (2, "y"), (20, "x"), (30, "y")]
        engine.execute("DROP QUERY k; ALTER TABLE t DROP COLUMN b")
        assert engine.ask("SELECT * FROM t").column_names == ["id", "name"]
        engine.push("s", {"a": [2], "ts": [40]})
        engine.advance(41)
        assert (40, "y") in rows(engine, "j")


def test_a_file_of_a_table_need_not_have_it(tmp_path):
    """It is read again, with nulls, until it has the column."""
    file = tmp_path / "t.csv"
    file.write_text("id,name\n1,x\n")
    with windrow.Engine(runtime="local") as engine:
        engine.execute(STREAM.format("") + TABLE.format(f" FROM csv (path => '{file}')"))
        engine.execute("ALTER TABLE t ADD COLUMN b BIGINT")
        assert engine.ask("SELECT * FROM t").to_pylist() == [{"id": 1, "name": "x", "b": None}]
        file.write_text("id,name,b\n1,x,12\n")
        engine.refresh("t")
        assert engine.ask("SELECT b FROM t").to_pylist() == [{"b": 12}]


@pytest.mark.parametrize(
    ("reader", "alter", "says"),
    [
        ("CREATE QUERY q AS SELECT * FROM s [RANGE 5]", "ADD COLUMN b BIGINT", 'query "q" would mean'),
        ("CREATE VIEW v AS SELECT * FROM s", "ADD COLUMN b BIGINT", 'view "v" would mean'),
        ("CREATE QUERY q AS SELECT name FROM s [RANGE 5], t WHERE a = id", "ADD name VARCHAR", 'query "q" would mean'),
        ("CREATE QUERY q AS SELECT c FROM s [RANGE 5]", "DROP COLUMN c", 'query "q" would mean'),
        ("CREATE VIEW v AS SELECT c AS d FROM s", "DROP c", 'view "v" would mean'),
        ("CREATE TEMPLATE p (x BIGINT) AS SELECT c FROM s [RANGE 5] WHERE a = $x", "DROP c", 'template "p" would'),
        ("SELECT 1 AS x FROM s [NOW]", "ADD COLUMN c VARCHAR", 'column "c" already exists'),
        ("SELECT 1 AS x FROM s [NOW]", "DROP COLUMN ts", "the time of the stream"),
        ("SELECT 1 AS x FROM s [NOW]", "DROP COLUMN no", 'unknown column "no"'),
        ("SELECT 1 AS x FROM s [NOW]", "ADD COLUMN b BIGINT NOT NULL", "NOT on a column"),
        ("SELECT 1 AS x FROM s [NOW]", "ADD COLUMN b NONSENSE", "unknown type"),
        ("SELECT 1 AS x FROM s [NOW]", "RENAME COLUMN c TO d", "cannot be renamed"),
    ],
)
def test_who_would_mean_something_else(reader, alter, says):
    """It is refused with the name of the reader, and nothing happens."""
    script = "CREATE STREAM s (a BIGINT, c BIGINT, ts BIGINT) TIMESTAMP BY ts;" + TABLE.format("")
    with windrow.Engine(runtime="local") as engine:
        engine.execute(script + (reader if reader.startswith("CREATE") else f"CREATE QUERY q AS {reader}"))
        before = engine.catalog
        with pytest.raises(WindrowError, match=says):
            engine.execute(f"ALTER STREAM s {alter}")
        assert engine.catalog is before


@pytest.mark.parametrize(
    "reader",
    ["SELECT COUNT(*) AS n FROM s [RANGE 5]", "SELECT s.name2, t.name FROM s [RANGE 5], t WHERE s.a = t.id"],
)
def test_who_names_what_it_reads_does_not_mind(reader):
    """COUNT(*), and columns with their stream before them."""
    script = "CREATE STREAM s (a BIGINT, name2 VARCHAR, ts BIGINT) TIMESTAMP BY ts;" + TABLE.format("")
    with windrow.Engine(runtime="local") as engine:
        engine.execute(f"{script} CREATE QUERY q AS {reader}; ALTER STREAM s ADD COLUMN name VARCHAR")
        assert "name" in engine.catalog.streams["s"].columns


@pytest.mark.parametrize(
    ("declared", "kind", "says"),
    [
        (STREAM.format(" RETAIN 5"), "STREAM s", "RETAIN keeps rows"),
        (STREAM.format(" FROM csv (path => '/tmp', header => 'false')"), "STREAM s", "by position"),
        ("CREATE TABLE t (id BIGINT) KEY (id) CHANGES BY op BEFORE b AFTER a;", "TABLE t", "structs"),
    ],
)
def test_where_rows_would_be_misread(declared, kind, says):
    """Rows that are kept, columns by position, structs: it says why, and the way out."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute(declared)
        for alter in ("ADD COLUMN b BIGINT", "DROP COLUMN a" if kind == "STREAM s" else "DROP COLUMN id"):
            with pytest.raises(UnsupportedError) as error:
                engine.execute(f"ALTER {kind} {alter}")
            assert says in str(error.value) and "declare another" in str(error.value)


def test_a_key_is_not_dropped():
    """Nor is a bound of VALID FROM."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute("CREATE TABLE t (id BIGINT, v BIGINT) KEY (id) CHANGES BY op")
        with pytest.raises(UnsupportedError, match="part of the KEY"):
            engine.execute("ALTER TABLE t DROP COLUMN id")


def test_a_column_is_dropped_that_only_a_query_read_that_shared_and_left(tmp_path):
    """Those that share its plan go on, and after a restart."""
    asked = "CREATE QUERY {0} AS SELECT a, COUNT(*) AS n FROM s [RANGE 100] WHERE {1} GROUP BY a;"
    script = STREAM.format("") + asked.format("p", "a > 0") + asked.format("q", "a > 1")
    with windrow.Engine(runtime="local", home=tmp_path / "home") as engine:
        engine.execute(script.replace("a BIGINT", "a BIGINT, b BIGINT") + asked.format("r", "b > 1"))
        engine.start()
        engine.push("s", {"a": [1, 2], "b": [1, 2], "ts": [1, 2]})
        engine.execute("DROP QUERY r; ALTER STREAM s DROP COLUMN b")
        engine.push("s", {"a": [1, 2], "ts": [3, 4]})
        engine.push("s", {"a": [1], "ts": [5]})
        assert rows(engine, "p") == [(1, 2), (2, 2)] and rows(engine, "q") == [(2, 2)]
    with windrow.Engine(runtime="local", home=tmp_path / "home") as engine:
        engine.start()
        engine.push("s", {"a": [2, 2], "ts": [6, 7]})
        assert rows(engine, "p") == [(1, 3), (2, 3)] and rows(engine, "q") == [(2, 3)]
