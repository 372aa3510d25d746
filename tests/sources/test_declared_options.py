"""Options of a declaration: whoever gives a path, they say how its files are written, and none is ignored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import windrow
from windrow.errors import SourceError

STREAM = "CREATE STREAM s (ts BIGINT, id BIGINT) TIMESTAMP BY ts"
JOINED = "CREATE QUERY q AS SELECT ISTREAM(t.*) FROM s [NOW], t WHERE s.id = t.id;"
ONE = {"ts": [1], "id": [7]}

WRITTEN = {
    "sep": ("csv", "sep => ';'", "id;x;day\n7;1.5;2024-01-02\n"),
    "sep and decimal": ("csv", "sep => ';', decimal => ','", "id;x;day\n7;1,5;2024-01-02\n"),
    "header": ("csv", "header => 'false'", "7,1.5,2024-01-02\n"),
    "times": ("csv", "timestampFormat => 'dd.MM.yyyy'", "id,x,day\n7,1.5,02.01.2024\n"),
    "mode": ("csv", "mode => 'DROPMALFORMED'", "id,x,day\n7,1.5,2024-01-02\n7,b,2024-01-02\n"),
    "null": ("csv", "nullValue => '?'", "id,x,day\n7,1.5,2024-01-02\n?,?,?\n"),
    "times in json": ("json", "timestampFormat => 'epoch_s'", '{"id": 7, "x": 1.5, "day": 1704153600}\n'),
    "mode in json": ("json", "mode => 'DROPMALFORMED'", '{"id": 7, "x": 1.5, "day": "2024-01-02"}\n{"id": "a"}\n'),
    "any file": ("file", "sep => ';'", "id;x;day\n7;1.5;2024-01-02\n"),
}


def table(path: Path, kind: str, options: str) -> str:
    """A table that is read from files."""
    said = f", {options}" if options else ""
    return f"CREATE TABLE t (id BIGINT, x DOUBLE, day TIMESTAMP) FROM {kind} (path => '{path}'{said});"


def live(script: str, given: Callable[[windrow.Engine], object] = lambda _: None) -> list[dict[str, object]]:
    """What a live engine answers when one row is pushed."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute(f"{STREAM};{script}{JOINED}")
        engine.start()
        given(engine)
        engine.push("s", ONE)
        engine.advance(9)
        return engine["q"].results().to_pylist()


@pytest.mark.parametrize("written", WRITTEN)
def test_tables_are_read_by_their_options(written, tmp_path):
    """Live from the declared path, and from a path that is given live or to a replay."""
    kind, options, text = WRITTEN[written]
    file = tmp_path / f"rows.{kind.replace('file', 'csv')}"
    file.write_text(text)
    other = tmp_path / "others"
    other.mkdir()
    found = live(table(file, kind, options))
    assert [(row["id"], row["x"], str(row["day"])) for row in found] == [(7, 1.5, "2024-01-02 00:00:00")]
    elsewhere = table(other, kind, options)
    assert windrow.run(f"{STREAM};{elsewhere}{JOINED}", {"s": ONE}, {"t": file}, "local")["q"].to_pylist() == found
    (other / file.name).write_text(text.replace("7", "8"))
    assert live(elsewhere, lambda engine: engine.table("t", file)) == found


def test_malformed_rows_of_a_table_are_named(tmp_path):
    """By file and line, with what to write for a table."""
    file = tmp_path / "t.csv"
    file.write_text("id;x;day\n7;1.5;2024-01-02\n8;b;2024-01-02\n")
    with pytest.raises(SourceError, match=r'table "t": malformed row in .*t\.csv, line 3') as error:
        live(table(file, "csv", "sep => ';'"))
    assert error.value.hint == "fix the row, or leave such rows out: mode => 'DROPMALFORMED'"


def test_a_table_is_read_again_by_its_options(tmp_path):
    """And after a restart, where what it held stands in for a file that cannot be read."""
    file = tmp_path / "t.csv"
    file.write_text("id;x;day\n7;1,5;2024-01-02\n")
    declared = STREAM + ";" + table(file, "csv", "sep => ';', decimal => ','") + JOINED
    with windrow.Engine(runtime="local", home=str(tmp_path / "home")) as engine:
        engine.execute(declared)
        file.write_text("id;x;day\n7;2,5;2024-01-02\n")
        engine.refresh("t")
        engine.start()
        engine.push("s", ONE)
        engine.advance(1)
        assert engine["q"].results()["x"].to_pylist() == [2.5]
    file.write_text("id;x;day\n7;3,5;2024-01-02\n")
    with windrow.Engine(runtime="local", home=str(tmp_path / "home")) as engine:
        engine.start()
        engine.push("s", {"ts": [3], "id": [7]})
        engine.advance(3)
        assert engine["q"].results()["x"].to_pylist()[-1] == 3.5


REFUSED = {
    "csv": ("csv (path => '{path}', sepp => ';')", 'no option "sepp"'),
    "parquet": ("parquet (path => '{path}', sep => ';')", 'no option "sep"'),
    "a value": ("csv (path => '{path}', header => 'perhaps')", 'header is "perhaps"'),
    "no path": ("csv (sep => ';')", "needs the option path"),
}
STREAMS = REFUSED | {
    "files of a tick": ("csv (path => '{path}', max_files => 'all')", 'max_files is "all"'),
    "kafka": ("kafka (servers => 'x', topic => 't', topik => 'u')", 'no option "topik"'),
    "replay": ("replay (path => '{path}', sep => ';')", 'no option "sep"'),
    "rate": ("rate (rows => 5)", 'no option "rows"'),
    "delta": ("delta (path => '{path}', maxfiles => 1)", 'no option "maxfiles"'),
    "iceberg": ("iceberg (table => 'a.b', maxfiles => 1)", 'no option "maxfiles"'),
    "a kind": ("nowhere (path => '{path}')", "no source that windrow knows"),
}
TABLES = REFUSED | {
    "postgres": ("postgres (dsn => 'x', tabel => 'u')", 'no option "tabel"'),
    "a period": ("csv (path => '{path}', every => 'often')", "'often' is no period"),
    "a kind": ("nowhere (path => '{path}')", "no source that windrow knows"),
}


@pytest.mark.parametrize("refused", STREAMS)
def test_options_of_streams_are_refused_in_a_replay_as_live(refused, tmp_path):
    """Whether a path or rows are given."""
    source, why = STREAMS[refused]
    (tmp_path / "a.csv").write_text("ts,id\n1,7\n")
    parquet.write_table(pa.table(ONE), tmp_path / "a.parquet")
    query = "CREATE QUERY q AS SELECT ISTREAM(id) FROM s [NOW];"
    script = f"{STREAM} FROM {source.format(path=tmp_path)};{query}"
    with windrow.Engine(runtime="local") as engine, pytest.raises(SourceError, match=why):
        engine.execute(script)
    for given in (tmp_path / "a.csv", tmp_path / "a.parquet", ONE):
        with pytest.raises(SourceError, match=why):
            windrow.run(script, {"s": given}, runtime="local")


@pytest.mark.spark
def test_options_are_refused_on_spark(tmp_path):
    """Before a task reads."""
    (tmp_path / "a.csv").write_text("ts,id\n1,7\n")
    script = f"{STREAM} FROM csv (path => 'a', sepp => ';');CREATE QUERY q AS SELECT ISTREAM(id) FROM s [NOW];"
    with pytest.raises(SourceError, match='no option "sepp"'):
        windrow.run(script, {"s": tmp_path / "a.csv"})


@pytest.mark.parametrize("refused", TABLES)
def test_options_of_tables_are_refused(refused, tmp_path):
    """Live, in a replay, and of changes."""
    source, why = TABLES[refused]
    (tmp_path / "t.csv").write_text("id,x,day\n7,1.5,2024-01-02\n")
    parquet.write_table(pa.table({"id": [7], "x": [1.5], "day": ["2024-01-02"]}), tmp_path / "t.parquet")
    declared = f"CREATE TABLE t (id BIGINT, x DOUBLE, day TIMESTAMP) FROM {source.format(path=tmp_path)};"
    with pytest.raises(SourceError, match=why):
        live(declared)
    for given in (tmp_path / "t.csv", {"id": [7], "x": [1.5], "day": ["2024-01-02"]}):
        with pytest.raises(SourceError, match=why):
            windrow.run(f"{STREAM};{declared}{JOINED}", {"s": ONE}, {"t": given}, "local")


def test_options_of_changes_are_refused(tmp_path):
    """As those of a stream."""
    script = f"{STREAM};CREATE TABLE t (id BIGINT) KEY (id) CHANGES BY op FROM csv (path => 'a', sepp => ';');{JOINED}"
    with pytest.raises(SourceError, match='table "t" FROM csv: no option "sepp"'):
        windrow.run(script, {"s": ONE}, {"t": {"op": ["c"], "id": [7]}}, "local")
