"""Options of a declaration: whoever gives a path, they say how its files are written, and none is ignored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import windrow
from windrow.cli import main
from windrow.errors import SourceError

RUNTIMES = ["local", pytest.param("spark", marks=pytest.mark.spark)]
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


PUSHED = {
    "sep": ("a.csv", "sep => ';', decimal => ','", "ts;id;x;at\n1;007;1,5;2024-01-02\n"),
    "times": ("a.csv", "timestampFormat => 'dd.MM.yyyy'", "ts,id,x,at\n1,007,1.5,02.01.2024\n"),
    "header": ("a.csv", "header => 'false'", "1,007,1.5,2024-01-02\n"),
    "json": (
        "a.json",
        "timestampFormat => 'epoch_s', sep => ';'",
        '{"ts": 1, "id": "007", "x": 1.5, "at": 1704153600}\n',
    ),
    "nothing": ("a.csv", "", "ts,id,x,at\n1,007,1.5,2024-01-02\n"),
}  # fmt: skip
ROWS = "CREATE STREAM p (ts BIGINT, id VARCHAR, x DOUBLE, at TIMESTAMP) TIMESTAMP BY ts"
ALL = "CREATE QUERY q AS SELECT ISTREAM(*) FROM p [NOW];"


@pytest.mark.parametrize("pushed", PUSHED)
@pytest.mark.parametrize("door", ["engine", "shell", "server"])
def test_a_path_is_pushed_by_the_declared_options(pushed, door, tmp_path):
    """By the program, by the shell, and by the shell of a server; a replay reads it so, too."""
    name, options, text = PUSHED[pushed]
    file = tmp_path / name
    file.write_text(text)
    script = ROWS + (f" WITH ({options});" if options else ";") + ALL
    with windrow.Engine(runtime="local") as engine:
        engine.execute(script)
        engine.start()
        if door == "engine":
            assert engine.push("p", file) == 1
        elif door == "shell":
            from windrow.cli.sessions import EngineSession

            assert EngineSession(engine).push("p", str(file)) == 1
        else:
            assert by_server(engine, "p", file) == 1
        engine.advance(9)
        found = engine["q"].results().to_pylist()
    assert [(row["id"], row["x"], str(row["at"])) for row in found] == [("007", 1.5, "2024-01-02 00:00:00")]
    assert windrow.run(script, {"p": file}, runtime="local")["q"].to_pylist() == found


def by_server(engine: windrow.Engine, name: str, file: Path) -> int:
    """Push a file with the shell of a server."""
    from windrow.cli.sessions import ServerSession
    from windrow.server.access import Right, Tokens
    from windrow.server.process import Address, Server

    with Server(engine, Tokens({"0123456789abcdef": Right.ADMIN}), Address(port=0)) as server:
        return ServerSession(server.url, "0123456789abcdef").push(name, str(file))


def test_changes_and_older_files_are_pushed_to_a_server(tmp_path):
    """Changes of a table, and a file that lacks a column that was added; one that lacks another is refused."""
    file, short = tmp_path / "a.csv", tmp_path / "b.csv"
    file.write_text("op,id,x\nc,007,1.5\n")
    short.write_text("op,x\nc,1.5\n")
    with windrow.Engine(runtime="local") as engine:
        engine.execute("CREATE TABLE t (id VARCHAR, x DOUBLE) KEY (id) CHANGES BY op; CREATE TABLE u (id BIGINT);")
        engine.execute("ALTER TABLE t ADD COLUMN y BIGINT")
        engine.start()
        assert by_server(engine, "t", file) == 1
        assert engine.ask("SELECT * FROM t").to_pylist() == [{"id": "007", "x": 1.5, "y": None}]
        with pytest.raises(SourceError, match=r'table "t": .*b\.csv has no column "id"'):
            by_server(engine, "t", short)
        with pytest.raises(SourceError, match='stream "u" does not exist'):
            by_server(engine, "u", file)


def test_a_pushed_file_is_taken_whole_or_not_at_all(tmp_path):
    """A malformed row is refused at the push, of a stream with a quarantine, too."""
    file = tmp_path / "a.csv"
    file.write_text("ts;id;x;at\n1;007;1.5;2024-01-02\n2;8;b;2024-01-02\n")
    with windrow.Engine(runtime="local") as engine:
        engine.execute(f"{ROWS} ON ERROR QUARANTINE WITH (sep => ';'); {ALL}")
        engine.start()
        with pytest.raises(SourceError, match=r'stream "p": malformed row in .*a\.csv, line 3'):
            engine.push("p", file)
        engine.advance(9)
        assert engine["q"].results().num_rows == 0


@pytest.mark.parametrize("options", ["sepp => ';'", "path => 'a'", "header => 'perhaps'"])
def test_options_without_a_source_are_those_of_files(options):
    """Others are refused where they are declared."""
    with windrow.Engine(runtime="local") as engine, pytest.raises(SourceError, match='stream "p" WITH: '):
        engine.execute(f"{ROWS} WITH ({options})")
    with pytest.raises(SourceError, match='stream "p" WITH: '):
        windrow.run(f"{ROWS} WITH ({options});{ALL}", {"p": []}, runtime="local")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_run_reads_the_changes_that_a_table_declares(runtime, tmp_path, capsys):
    """All that its source holds now, as of a stream; what cannot be read is told."""
    changes, script = tmp_path / "changes", tmp_path / "s.cql"
    changes.mkdir()
    declared = "CREATE TABLE t (id BIGINT, x DOUBLE) KEY (id) CHANGES BY op ON ERROR QUARANTINE\n"
    declared += f"FROM csv (path => '{changes}', sep => ';', decimal => ',');"
    rows = tmp_path / "rows.csv"
    rows.write_text("ts,id\n1,7\n2,8\n")
    script.write_text(f"{STREAM};{declared}{JOINED}")
    command = ["run", str(script), "--stream", f"s={rows}", "--runtime", runtime, "--format", "csv"]
    assert main(command) == 0
    assert "note: there is no change of table t yet" in capsys.readouterr().err
    (changes / "a.csv").write_text("op;id;x\nc;7;1,5\nc;8;2,5\nc;9;b\nu;7;3,5\nd;8;\n")
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert out == "_ts,id,x\n1,7,3.5\n"
    assert "1 row of t cannot be read" in err and "line 4" in err
