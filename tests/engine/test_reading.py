"""What an engine reads of its sources: only what somebody needs, and late rows whole."""

import os
import threading

import pyarrow as pa
import pytest
from pyarrow import parquet

import windrow
from windrow.errors import SourceError
from windrow.sources import read_parquet

STREAM = "CREATE STREAM {} (ts BIGINT, k BIGINT, v DOUBLE, s VARCHAR) TIMESTAMP BY ts FROM parquet (path => '{}')"


def put(folder, name, ts):
    """Let a file appear whole."""
    rows = pa.table({"ts": ts, "k": [t % 3 for t in ts], "v": [t / 2 for t in ts], "s": [f"s{t}" for t in ts]})
    parquet.write_table(rows, folder / f".{name}")
    os.rename(folder / f".{name}", folder / name)


@pytest.fixture
def reads(monkeypatch):
    """The columns that were read, a file and a reading at a time."""
    seen, read = [], read_parquet.ParquetPiece.read

    def watched(self, stream, columns, report=None):
        seen.append((stream.name, None if columns is None else tuple(columns)))
        return read(self, stream, columns, report)

    monkeypatch.setattr(read_parquet.ParquetPiece, "read", watched)
    return seen


@pytest.fixture
def folders(tmp_path):
    """A directory for each of two streams."""
    made = {name: tmp_path / name for name in ("a", "b")}
    for folder in made.values():
        folder.mkdir()
    return made


def test_columns_that_nobody_reads(folders, reads):
    """Only columns of some query are read; a late row is read again, and kept with all of its columns."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute(STREAM.format("a", folders["a"]))
        engine.execute("CREATE QUERY n AS SELECT k, COUNT(*) AS n FROM a [RANGE 5 SLIDE 5] GROUP BY k")
        engine.start()
        put(folders["a"], "1", [1, 2, 11])
        engine.drain()
        assert set(reads) == {("a", ("ts", "k"))}
        assert engine["n"].results().to_pylist() == [{"_ts": 5, "k": 1, "n": 1}, {"_ts": 5, "k": 2, "n": 1}]
        put(folders["a"], "2", [3, 12])
        engine.drain()
        assert reads[-1] == ("a", None)
        assert engine.late("a").to_pylist() == [{"ts": 3, "k": 0, "v": 1.5, "s": "s3"}]


def test_streams_that_nobody_reads(folders, reads):
    """Such a stream moves time by what its footers say; only where a row could be late is it read."""
    with windrow.Engine(runtime="local") as engine:
        for name, folder in folders.items():
            engine.execute(STREAM.format(name, folder))
        engine.execute("CREATE QUERY n AS SELECT COUNT(*) AS n FROM a [RANGE 5 SLIDE 5]")
        engine.start()
        put(folders["a"], "1", [1, 2, 30])
        put(folders["b"], "1", [4, 11])
        engine.drain()
        assert {name for name, _ in reads} == {"a"}
        assert engine["n"].results().column("_ts").to_pylist() == [5, 10]
        assert engine.status()["streams"]["b"]["rows"] == 2
        put(folders["b"], "2", [6, 20])
        engine.drain()
        assert ("b", ("ts",)) in reads
        assert engine.late("b").column("ts").to_pylist() == [6]


def test_streams_of_one_tick_are_read_side_by_side(folders, monkeypatch):
    """Files of several streams are read by threads; one that cannot be stops its stream alone, late rows are whole."""
    seen, read = set(), read_parquet.ParquetPiece.read

    def watched(self, stream, columns, report=None):
        seen.add((stream.name, threading.current_thread().name.startswith("windrow-reading")))
        return read(self, stream, columns, report)

    monkeypatch.setattr(read_parquet.ParquetPiece, "read", watched)
    with windrow.Engine(runtime="local") as engine:
        for name, folder in folders.items():
            engine.execute(STREAM.format(name, folder))
            engine.execute(f"CREATE QUERY n{name} AS SELECT k, COUNT(*) AS n FROM {name} [RANGE 5 SLIDE 5] GROUP BY k")
            put(folder, "1", [1, 2, 11])
        engine.start()
        engine.drain()
        assert seen == {("a", True), ("b", True)}
        assert engine["na"].results().to_pylist() == engine["nb"].results().to_pylist()
        assert engine["na"].results().to_pylist() == [{"_ts": 5, "k": 1, "n": 1}, {"_ts": 5, "k": 2, "n": 1}]
        with engine.runtime.between_ticks():
            put(folders["a"], "2", [3, 12])
            (folders["b"] / ".2").write_bytes(b"PAR1 is not enough PAR1")
            os.rename(folders["b"] / ".2", folders["b"] / "2")
        with pytest.raises(SourceError, match='stream "b"'):
            engine.drain()
        assert engine.late("a").to_pylist() == [{"ts": 3, "k": 0, "v": 1.5, "s": "s3"}]
        assert engine.status()["streams"]["a"]["rows"] == 5
