"""Paths given to a replay of a declared stream: they are read as its source would read them."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

import windrow
from windrow.errors import SourceError
from windrow.sources.files import read_path

RUNTIMES = ["local", pytest.param("spark", marks=pytest.mark.spark)]
QUERY = "CREATE QUERY q AS SELECT ISTREAM(ts AS at, x, name) FROM s [NOW];"
STREAM = "CREATE STREAM s (ts TIMESTAMP, x DOUBLE, name VARCHAR) TIMESTAMP BY ts"

WRITTEN = {
    "sep and decimal": ("csv", "sep => ';', decimal => ','", "ts;x;name\n2024-01-02 03:00:00;1,5;a\n"),
    "delimiter, in another case": ("csv", "Delimiter => '|'", "ts|x|name\n2024-01-02 03:00:00|1.5|a\n"),
    "header": ("csv", "header => 'false'", "2024-01-02 03:00:00,1.5,a\n"),
    "columns in another order": ("csv", "sep => ';'", "name;more;x;ts\na;?;1.5;2024-01-02 03:00:00\n"),
    "times": ("csv", "timestampFormat => 'dd.MM.yyyy HH:mm'", "ts,x,name\n02.01.2024 03:00,1.5,a\n"),
    "epochs": ("csv", "timestampFormat => 'epoch_ms'", "ts,x,name\n1704164400000,1.5,a\n"),
    "zones": ("csv", "", "ts,x,name\n2024-01-02 05:00:00+02:00,1.5,a\n"),
    "quote": ("csv", "quote => '|'", "ts,x,name\n2024-01-02 03:00:00,|1.5|,a\n"),
    "null": ("csv", "nullValue => 'n/a'", "ts,x,name\n2024-01-02 03:00:00,n/a,a\n"),
    "encoding": ("csv", "encoding => 'latin-1'", "ts,x,name\n2024-01-02 03:00:00,1.5,\xe4\n"),
    "mode": ("csv", "mode => 'DROPMALFORMED'", "ts,x,name\n2024-01-02 03:00:00,1.5,a\n2024-01-02 03:00:00,b,a\n"),
    "times in json": ("json", "timestampFormat => 'dd.MM.yyyy'", '{"ts": "02.01.2024", "x": 1.5, "name": "a"}\n'),
    "epochs in json": ("json", "timestampFormat => 'epoch_s'", '{"ts": 1704164400, "x": 1.5, "name": "a"}\n'),
    "an array": ("json", "multiLine => 'true'", '[{"ts": "2024-01-02T05:00+02:00", "x": 1.5}]'),
}


def declared(path: Path, kind: str, options: str, clauses: str = "") -> str:
    """The stream with a source."""
    return f"{STREAM} {clauses} FROM {kind} (path => '{path}'{', ' * bool(options)}{options});"


def live(path: Path, kind: str, options: str) -> list[dict[str, object]]:
    """What a live engine answers."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute(declared(path, kind, options) + QUERY)
        engine.start()
        engine.drain()
        engine.advance(1_800_000_000_000_000)
        return engine["q"].results().to_pylist()


@pytest.mark.parametrize("written", WRITTEN)
def test_options_mean_the_same_live_and_in_a_replay(written, tmp_path):
    """Of a file and of a directory, whichever path the declaration names."""
    kind, options, text = WRITTEN[written]
    file = tmp_path / "other" / f"rows.{kind}"
    file.parent.mkdir()
    file.write_bytes(text.encode("latin-1"))
    wanted = live(file.parent, kind, options)
    assert len(wanted) == 1
    script = declared(tmp_path / "nowhere", kind, options) + QUERY
    for path in (file, str(file.parent)):
        assert windrow.run(script, {"s": path}, runtime="local")["q"].to_pylist() == wanted


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_options_are_those_of_one_format(runtime, tmp_path):
    """Files of another format than the declared one, in one directory with others, are read as they are."""
    rows = {"ts": ["2024-01-01T00:00:00"], "x": [1.0], "name": ["a"]}
    (tmp_path / "a.csv").write_text("ts;x;name\n01.01.2024;1,0;a\n")
    (tmp_path / "b.json").write_text('{"ts": "2024-01-02T00:00:00", "x": 1.0, "name": "a"}\n')
    parquet.write_table(pa.table({**rows, "ts": ["2024-01-03T00:00:00"]}), tmp_path / "c.parquet")
    (tmp_path / "d.csv.gz").write_bytes(gzip.compress(b"ts;x;name\n04.01.2024;1,0;a\n"))
    options = "sep => ';', decimal => ',', timestampFormat => 'dd.MM.yyyy'"
    script = declared(tmp_path / "nowhere", "csv", options) + QUERY
    answer = windrow.run(script, {"s": tmp_path}, runtime=runtime)["q"]
    assert [at.day for at in answer["at"].to_pylist()] == [1, 2, 3, 4]
    assert answer["x"].to_pylist() == [1.0] * 4


@pytest.mark.parametrize("options", ["", ", sep => ';'", ", delimiter => ';'"])
def test_tabs_are_the_default_of_tsv(options, tmp_path):
    """What is declared counts before what the name of a file says."""
    text = "ts\tx\tname\n2024-01-02\t1.5\ta\n"
    (tmp_path / "a.tsv").write_text(text.replace("\t", ";") if options else text)
    script = f"{STREAM} FROM csv (path => 'nowhere'{options});" + QUERY
    assert windrow.run(script, {"s": tmp_path / "a.tsv"}, runtime="local")["q"]["x"].to_pylist() == [1.5]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_names_that_say_nothing_have_the_declared_format(runtime, tmp_path):
    """A live source takes every file of its directory for the format that is declared; so does a replay."""
    (tmp_path / "a.txt").write_text("ts;x;name\n2024-01-01;1.0;a\n")
    parquet.write_table(pa.table({"ts": pa.array([0], pa.timestamp("us")), "x": [2.0], "name": ["b"]}), tmp_path / "b")
    for name, kind, x in (("a.txt", "csv", 1.0), ("b", "parquet", 2.0)):
        script = declared(tmp_path, kind, "sep => ';'" * (kind == "csv")) + QUERY
        assert windrow.run(script, {"s": tmp_path / name}, runtime=runtime)["q"]["x"].to_pylist() == [x]
    with pytest.raises(SourceError, match=r"unknown kind of file: .*a\.txt"):
        windrow.run(STREAM + ";" + QUERY, {"s": tmp_path / "a.txt"}, runtime=runtime)


def test_formats_of_messages_are_those_of_files(tmp_path):
    """Files of what a topic holds: times are written as they are declared."""
    (tmp_path / "a.json").write_text('{"ts": 1704164400, "x": 1.5, "name": "a"}\n')
    (tmp_path / "a.csv").write_text("ts;x;name\n1704164400;1.5;a\n")
    for kind, options in (("json", ""), ("csv", ", format => 'csv', sep => ';'")):
        source = f"FROM kafka (servers => 'nowhere', topic => 't', timestampFormat => 'epoch_s'{options});"
        answer = windrow.run(f"{STREAM} {source}" + QUERY, {"s": tmp_path / f"a.{kind}"}, runtime="local")["q"]
        assert str(answer["at"][0]) == "2024-01-02 03:00:00"


def test_malformed_rows_are_refused_or_set_aside_by_the_declared_format(tmp_path):
    """By file and line, with the hint of the format."""
    file = tmp_path / "a.csv"
    file.write_text("ts;x;name\n2024-01-02;1,5;a\n2024-01-03;2.5;b\n")
    with pytest.raises(SourceError, match=r"malformed row in .*a\.csv, line 2") as error:
        windrow.run(declared(tmp_path, "csv", "sep => ';'") + QUERY, {"s": file}, runtime="local")
    assert error.value.hint == "if commas are decimal points, say decimal => ','"
    script = declared(tmp_path, "csv", "sep => ';'", "ON ERROR QUARANTINE") + QUERY
    with pytest.warns(UserWarning, match="1 row of s cannot be read"):
        answers = windrow.run(script, {"s": file}, runtime="local")
    assert answers["q"]["x"].to_pylist() == [2.5]
    assert answers.quarantine["s"]["text"].to_pylist() == ["2024-01-02;1,5;a"]
    for clauses in ("", "ON ERROR QUARANTINE"):
        with pytest.raises(SourceError, match='sep is ";;"'):
            windrow.run(declared(tmp_path, "csv", "sep => ';;'", clauses) + QUERY, {"s": file}, runtime="local")


LINES = {
    "\\r\\n": (b"ts,x,name\r\n2024-01-02,1.5,a\r\n2024-01-02,2,b\r\n", [1.5, 2.0]),
    "\\r": (b"ts,x,name\r2024-01-02,1.5,a\r2024-01-02,2,b\r", [1.5, 2.0]),
    "\\r, no end": (b"ts,x,name\r2024-01-02,1.5,a", [1.5]),
    "blank lines": (b"\n \r\nts,x,name\n\n2024-01-02,1.5,a\n\n", [1.5]),
    "a lone quote": (b'ts,x,name\n2024-01-02,1.5,5" pipe\n', [1.5]),
    "nothing": (b"", []),
    "only blank lines": (b"\n\r\n  \n", []),
    "only a header": (b"ts,x,name\r", []),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("lines", LINES)
def test_lines_of_a_file_are_the_same_live_and_in_a_replay(lines, packed, tmp_path):
    """However they end, compressed or not; a file without any has no rows."""
    content, wanted = LINES[lines]
    (tmp_path / ("a.csv.gz" if packed else "a.csv")).write_bytes(gzip.compress(content) if packed else content)
    assert [row["x"] for row in live(tmp_path, "csv", "")] == wanted
    plain = STREAM + ";"
    for script in (declared(tmp_path, "csv", ""), plain if lines != "blank lines" else ""):
        if script:
            answer = windrow.run(script + QUERY, {"s": tmp_path}, runtime="local")["q"]
            assert answer["x"].to_pylist() == wanted


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_files_without_lines_say_nothing_of_columns(kind, tmp_path):
    """Beside others in a replay of a stream that is not declared."""
    for name, content in ((f"a.{kind}", b""), (f"c.{kind}.gz", gzip.compress(b"")), (f"d.{kind}", b"\n")):
        (tmp_path / name).write_bytes(content)
    (tmp_path / f"b.{kind}").write_text("ts,x\n1,2\n" if kind == "csv" else '{"ts": 1, "x": 2}\n')
    assert read_path(str(tmp_path), "s").to_pylist() == [{"ts": 1, "x": 2}]


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_files_without_lines_lie_beside_others(kind, tmp_path):
    """In a replay of a stream that says its columns."""
    (tmp_path / f"a.{kind}").write_text("")
    (tmp_path / f"b.{kind}").write_text("ts,x,name\n2024-01-02,1.5,a" if kind == "csv" else '{"ts": 0, "x": 1.5}')
    stream = STREAM if kind == "csv" else STREAM.replace("TIMESTAMP,", "BIGINT,")
    assert windrow.run(f"{stream};" + QUERY, {"s": tmp_path}, runtime="local")["q"]["x"].to_pylist() == [1.5]


def test_a_folder_that_leads_back_is_refused(tmp_path):
    """By a link; in a replay, too, with a message of its own."""
    (tmp_path / "a=1").symlink_to(tmp_path)
    with pytest.raises(SourceError, match=r'stream "s": cannot read '):
        windrow.run(f"{STREAM};" + QUERY, {"s": tmp_path}, runtime="local")


def test_malformed_rows_of_lines_that_end_in_carriage_returns_are_named(tmp_path):
    """By their lines, not by the block."""
    (tmp_path / "a.csv").write_bytes(b"ts,x,name\r2024-01-02,1.5,a\r2024-01-02,b,c\r")
    with pytest.raises(SourceError, match=r"malformed row in .*line 2") as told:
        windrow.run(declared(tmp_path, "csv", "") + QUERY, {"s": tmp_path}, runtime="local")
    assert told.value.detail.endswith(": 2024-01-02,b,c")


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files_are_those_of_the_source_in_its_order(kind, runtime, tmp_path):
    """Unfinished names are left out, folders and filters are those that are declared, the order is that of changes."""
    names = ("b", "a", "c.tmp", "c._COPYING_", "_c", "deep/d", "name=n/e", "x")
    for number, name in enumerate(names):
        path = tmp_path / (name if "." in name or name == "x" else f"{name}.{kind}")
        path.parent.mkdir(exist_ok=True)
        rows = {"ts": pa.array([10 * number], pa.int64()), "x": pa.array([float(number)])}
        rows |= {} if "=" in name else {"name": ["a"]}
        if kind == "parquet":
            parquet.write_table(pa.table(rows), path)
        else:
            path.write_text(f"{','.join(rows)}\n{','.join(str(c[0]) for c in rows.values())}\n")
        os.utime(path, (number, number))
    stream = "CREATE STREAM s (ts BIGINT, x DOUBLE, name VARCHAR) TIMESTAMP BY ts WITHIN 1"
    for options, wanted in (
        ("", [0, 1, 6, 7]),
        ("recursiveFileLookup => 'true', pathGlobFilter => '*.*'", [0, 1, 5, 6]),
    ):
        script = f"{stream} FROM {kind} (path => '{tmp_path}'{', ' * bool(options)}{options});" + QUERY
        with windrow.Engine(runtime="local") as engine:
            engine.execute(script)
            engine.start()
            engine.drain()
            engine.advance(100)
            assert engine["q"].results().column("x").to_pylist() == wanted
        assert windrow.run(script, {"s": tmp_path}, runtime=runtime)["q"].column("x").to_pylist() == wanted
    if runtime == "local":
        (tmp_path / "x").unlink()
        (tmp_path / "name=n" / f"e.{kind}").unlink()
        (tmp_path / "name=n").rmdir()
        answer = windrow.run(stream.replace("WITHIN 1", "WITHIN 99;") + QUERY, {"s": tmp_path}, runtime="local")["q"]
        assert sorted(answer.column("x").to_pylist()) == [0, 1]


def test_a_file_is_read_whatever_its_name(tmp_path):
    """A path that names one that looks unfinished means it."""
    (tmp_path / "_a.csv").write_text("ts,x,name\n2024-01-02,1.5,a\n")
    script = declared(tmp_path, "csv", "") + QUERY
    assert windrow.run(script, {"s": tmp_path / "_a.csv"}, runtime="local")["q"]["x"].to_pylist() == [1.5]


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("source", ["", "FROM csv (path => 'nowhere')"])
def test_a_name_that_is_not_text_is_refused(source, folder, tmp_path):
    """By its bytes, live and in a replay, of a file and of a folder."""
    (tmp_path / "a.csv").write_text("ts,x,name\n2024-01-02,1.5,a\n")
    odd = os.fsdecode(os.fsencode(tmp_path) + (b"/x=\xff" if folder else b"/\xff.csv"))
    if folder:
        os.mkdir(odd)
        odd += "/b.csv"
    Path(odd).write_text("ts,x,name\n2024-01-02,1.5,a\n")
    message = r'stream "s": the name of a file is not UTF-8: .*\\xff'
    for path in (str(tmp_path), odd):
        with pytest.raises(SourceError, match=message):
            windrow.run(f"{STREAM} {source};" + QUERY, {"s": path}, runtime="local")
    with pytest.raises(SourceError, match=message):
        live(tmp_path, "csv", "")
    for path in (str(tmp_path), odd):
        with pytest.raises(SourceError, match="the name of a file is not UTF-8"):
            windrow.run("SELECT x FROM s", {"s": path}, runtime="local")


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow"])
def test_a_column_that_is_there_twice_is_refused(kind, tmp_path):
    """If it is declared; live and in a replay, with a source and without."""
    file = tmp_path / f"a.{kind}"
    table = pa.table([[1], [2], [1.5], [3]], names=["ts", "n", "x", "n"])
    if kind == "csv":
        file.write_text("ts,n,x,n\n1,2,1.5,3\n")
    elif kind == "parquet":
        parquet.write_table(table, file)
    else:
        with ipc.new_file(file, table.schema) as out:
            out.write_table(table)
    for column, wanted in (("x DOUBLE", [1.5]), ("n BIGINT", None), ("N BIGINT", None)):
        plain = f"CREATE STREAM s (ts BIGINT, {column}) TIMESTAMP BY ts"
        query = f"CREATE QUERY q AS SELECT ISTREAM(ts AS t, {column[0]}) FROM s [NOW];"
        from_source = f"{plain} FROM {kind} (path => '{tmp_path}');"
        for given in (None, tmp_path):
            for script in (from_source, f"{plain};")[: 1 if given is None else 2]:
                if wanted is None:
                    with pytest.raises(SourceError, match=r'column "[nN]" appears more than once in .*a\.'):
                        _answer(script + query, given)
                else:
                    assert _answer(script + query, given).column("x").to_pylist() == wanted
    with pytest.raises(SourceError, match='column "n" appears more than once'):
        windrow.run("SELECT ISTREAM(ts, x) FROM s [NOW]", {"s": tmp_path}, runtime="local")


def _answer(script, given):
    """Of a replay or, if nothing is given, of a live engine."""
    if given is not None:
        return windrow.run(script, {"s": given}, runtime="local")["q"]
    with windrow.Engine(runtime="local") as engine:
        engine.execute(script)
        engine.start()
        engine.drain()
        engine.advance(9)
        return engine["q"].results()
