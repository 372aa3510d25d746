"""Files of a directory as descriptors: each row once and in order, however polls, commits and crashes follow."""

import io
import json
import os
import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import ipc, parquet

from windrow.catalog import StreamDef
from windrow.errors import SourceError, StateError
from windrow.sources import directory, lines, read_arrow, read_parquet, seen
from windrow.sources.data_file import DataFile
from windrow.sources.directory import offset_of
from windrow.sources.given_files import files_given
from windrow.sources.listing import Listing
from windrow.sources.protocol import open_source
from windrow.store.place import Place

COLUMNS = {"ts": pa.timestamp("us"), "auction": pa.int64(), "price": pa.float64()}
KINDS = ("parquet", "csv", "json", "arrow")


def stream(kind="parquet", columns=COLUMNS, time="ts", **options):
    return StreamDef("bid", columns, time, options={"source": kind, **options})


def bids(numbers):
    numbers = list(numbers)
    return pa.table(
        {
            "ts": pa.array([n * 1_000_000 for n in numbers], pa.timestamp("us")),
            "auction": pa.array(numbers, pa.int64()),
            "price": pa.array([None if n % 7 == 0 else n / 2 for n in numbers], pa.float64()),
        }
    )


def write(path: Path, kind: str, table: pa.Table, group: int = 1 << 20) -> Path:
    """Write a file whole: under a hidden name, then renamed."""
    hidden = path.with_name("." + path.name)
    if kind == "parquet":
        parquet.write_table(table, hidden, row_group_size=group)
    elif kind == "arrow":
        with ipc.new_file(hidden, table.schema) as out:
            out.write_table(table, max_chunksize=group)
    elif kind == "csv":
        rows = [f"{r['ts']},{r['auction']},{'' if r['price'] is None else r['price']}\n" for r in table.to_pylist()]
        hidden.write_text("ts,auction,price\n" + "".join(rows))
    else:
        rows = [json.dumps({k: str(v) if k == "ts" else v for k, v in r.items()}) for r in table.to_pylist()]
        hidden.write_text("".join(f"{r}\n" for r in rows))
    os.rename(hidden, path)
    return path


def read(available, declared, columns=None, report=None):
    """The rows of all pieces, each read as a task would: after a trip through pickle."""
    batches = [b for p in available.pieces for b in pickle.loads(pickle.dumps(p)).read(declared, columns, report)]
    names = [n for n in declared.columns if columns is None or n in columns]
    return pa.Table.from_batches(batches, schema=pa.schema([(n, declared.columns[n]) for n in names]))


def read_all(declared, spool, columns=None, report=None):
    source, offset, tables = open_source(declared, Place.of(spool)), None, []
    while (found := source.poll(offset)) is not None:
        tables.append(read(found, declared, columns, report))
        offset = json.loads(json.dumps(found.offset))
        source.committed(offset)
    assert source.drained(offset)
    source.close()
    return pa.concat_tables(tables) if tables else None


@pytest.mark.parametrize("kind", KINDS)
def test_formats(tmp_path, kind):
    """Rows of every format have the declared columns and types, in order; projection reads only what is asked for."""
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "a", kind, bids(range(100)))
    declared = stream(kind, path=str(tmp_path / "in"))
    assert read_all(declared, tmp_path / "spool") == bids(range(100))
    assert read_all(declared, tmp_path / "other", ["price", "ts"]) == bids(range(100)).select(["ts", "price"])


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_are_the_whole(tmp_path, kind, monkeypatch):
    """One file becomes many pieces that hold its rows once, in order; a tick may take a part of it."""
    for module in (lines, read_parquet, read_arrow):
        monkeypatch.setattr(module, "PIECE_BYTES", 512)
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "a", kind, bids(range(500)), group=50)
    whole = stream(kind, path=str(tmp_path / "in"))
    found = open_source(whole, Place.of(tmp_path / "s")).poll(None)
    assert len(found.pieces) >= 8
    assert read(found, whole) == bids(range(500))
    weights = [p.weight for p in found.pieces]
    assert max(weights) <= 4 * min(weights) or kind == "parquet"
    parts = stream(kind, path=str(tmp_path / "in"), max_bytes="1500")
    assert read_all(parts, tmp_path / "t") == bids(range(500))


def test_bytes_of_arrow_columns_that_nobody_wants_are_not_read(tmp_path, monkeypatch):
    """Of a record batch only the columns that are asked for are fetched."""
    read = []

    class Counting(io.FileIO):
        def readinto(self, buffer):
            read.append(size := super().readinto(buffer))
            return size

        def read(self, size=-1):
            read.append(len(data := super().read(size)))
            return data

    write(tmp_path / "a", "arrow", bids(range(100_000)))
    declared = stream("arrow", path=str(tmp_path))
    found = open_source(declared, Place.of(tmp_path / "_s")).poll(None)
    monkeypatch.setattr(DataFile, "open", lambda self: pa.PythonFile(Counting(self.path), "r"))
    counts = []
    for columns in (["ts"], None):
        read.clear()
        rows = [b for p in found.pieces for b in p.read(declared, columns)]
        assert pa.Table.from_batches(rows) == bids(range(100_000)).select(columns or list(COLUMNS))
        counts.append(sum(read))
    assert counts[0] < 900_000 < 2_400_000 < counts[1]


def test_footers_know(tmp_path):
    """Parquet's footers give the number of rows and their times without a read; text files do not."""
    for name, table in (("a", bids(range(5, 30))), ("b", bids([3, 40]))):
        write(tmp_path / name, "parquet", table, group=10)
    found = open_source(stream(path=str(tmp_path)), Place.of(tmp_path / "_s")).poll(None)
    assert (found.rows, found.bounds) == (27, (3_000_000, 40_000_000))
    seconds = pa.table({"ts": pa.array([1, 5], pa.timestamp("s")), "auction": [1, 2], "price": [0.5, 1.0]})
    write(tmp_path / "c", "parquet", seconds)
    found = open_source(stream(path=str(tmp_path / "c")), Place.of(tmp_path / "_t")).poll(None)
    assert (found.rows, found.bounds) == (2, (1_000_000, 5_000_000))
    ticks = {**COLUMNS, "auction": pa.int64()}
    found = open_source(
        stream(columns=ticks, time="auction", path=str(tmp_path / "b")), Place.of(tmp_path / "_u")
    ).poll(None)
    assert found.bounds == (3, 40)
    nulls = pa.table({"ts": pa.array([1, None], pa.timestamp("us")), "auction": [1, 2], "price": [0.5, 1.0]})
    write(tmp_path / "d", "parquet", nulls)
    assert open_source(stream(path=str(tmp_path / "d")), Place.of(tmp_path / "_v")).poll(None).bounds is None


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_file_that_could_not_be_cut_is_read_whole(tmp_path, kind, monkeypatch):
    """A store that did not answer may do so when a task reads: then it has all parts of the file."""
    write(tmp_path / "a", kind, bids(range(50)), group=10)
    declared = stream(kind, path=str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(DataFile, "open", lambda self: (_ for _ in ()).throw(OSError("no answer")))
        found = open_source(declared, Place.of(tmp_path / "_s")).poll(None)
    assert len(found.pieces) == 1
    assert read(found, declared) == bids(range(50))
    monkeypatch.setattr(read_parquet if kind == "parquet" else read_arrow, "PIECE_BYTES", 1)
    source = open_source(stream(kind, path=str(tmp_path), max_bytes="1"), Place.of(tmp_path / "_t"))
    found = source.poll(None)
    with monkeypatch.context() as patch:
        patch.setattr(DataFile, "open", lambda self: (_ for _ in ()).throw(OSError("no answer")))
        rest = source.poll(found.offset)
    assert pa.concat_tables([read(found, declared), read(rest, declared)]) == bids(range(50))
    assert source.poll(rest.offset) is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_without_a_byte_waits_for_its_writer(tmp_path, kind, monkeypatch):
    """It is read when it has rows, holds up neither other files nor the end, and is named if it stays empty."""
    told = []
    monkeypatch.setattr(directory.LOG, "warning", lambda text, *given: told.append(text % given))
    (tmp_path / "in").mkdir()
    slow = tmp_path / "in" / "a"
    slow.touch()
    write(tmp_path / "in" / "b", kind, bids(range(5)))
    declared = stream(kind, path=str(tmp_path / "in"))
    source = open_source(declared, Place.of(tmp_path / "spool"))
    found = source.poll(None)
    assert read(found, declared) == bids(range(5))
    source.committed(found.offset)
    assert source.poll(found.offset) is None
    assert source.drained(found.offset)
    assert not told
    monkeypatch.setattr(directory, "EMPTY_SECONDS", 0.0)
    source._empty.clear()
    assert source.poll(found.offset) is source.poll(found.offset) is None
    assert told == ['stream "bid": a is empty; it is read when it has rows']
    slow.write_bytes(write(tmp_path / "other", kind, bids(range(5, 9))).read_bytes())
    assert not source.drained(found.offset)
    assert source.poll(found.offset) is None  # it has grown since it was listed
    assert read(source.poll(found.offset), declared) == bids(range(5, 9))
    source.close()


class Engine:
    """What a runtime does with a source: polls from where it stands, commits, crashes."""

    def __init__(self, declared, spool):
        self.declared, self.spool = declared, spool
        self.manifest, self.rows = None, []  # what was committed
        self.start()

    def start(self):
        self.source = open_source(self.declared, Place.of(self.spool))
        self.flight = []  # polled, not committed: pipelined ticks

    def poll(self):
        at = json.loads(self.flight[-1][0]) if self.flight else self.manifest
        if (found := self.source.poll(at)) is not None:
            self.flight.append((json.dumps(found.offset), read(found, self.declared).column("auction").to_pylist()))
        return found is not None

    def commit(self):
        if self.flight:
            offset, rows = self.flight.pop(0)
            self.manifest = json.loads(offset)
            self.rows += rows
            self.source.committed(self.manifest)

    def crash(self):
        self.source.close()
        self.start()

    def fail(self):
        """A tick fails; the engine goes on from its manifest with the same source."""
        self.flight = []


ACTIONS = st.lists(
    st.one_of(st.sampled_from(["poll", "poll", "commit", "commit", "crash", "fail", "drained"]), st.integers(0, 30)),
    max_size=40,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=ACTIONS, kind=st.sampled_from(["parquet", "csv"]), files=st.integers(1, 3), tail=st.integers(1, 4))
def test_each_row_once_and_in_order(tmp_path_factory, monkeypatch, actions, kind, files, tail):
    """Any way of polling, committing and crashing reads each row exactly once, in order of arrival."""
    tmp_path = tmp_path_factory.mktemp("d")
    monkeypatch.setattr(directory, "TAIL_NAMES", tail)
    for module in (lines, read_parquet):
        monkeypatch.setattr(module, "PIECE_BYTES", 128)
    folder = tmp_path / "in"
    folder.mkdir()
    engine = Engine(stream(kind, path=str(folder), max_files=str(files), max_bytes="300"), tmp_path / "spool")
    count = written = 0
    for action in actions:
        if isinstance(action, int):
            path = write(folder / f"{count:04d}", kind, bids(range(written, written + action)), group=7)
            os.utime(path, ns=(count, count))  # far in the past: no clock decides what is new
            count, written = count + 1, written + action
        elif action == "drained":
            done = engine.source.drained(engine.manifest if not engine.flight else json.loads(engine.flight[-1][0]))
            assert not done or sum(map(len, [engine.rows, *(r for _, r in engine.flight)])) == written
        else:
            getattr(engine, action)()
    engine.crash()
    while engine.poll() or engine.flight:
        engine.commit()
    assert engine.rows == list(range(written))
    assert engine.source.drained(engine.manifest)
    engine.source.close()


def test_taken_once_by_name(tmp_path):
    """A file is known by its name: written again it is not read again, and no file is too old to be new."""
    declared, spool = stream(path=str(tmp_path / "in")), Place.of(tmp_path / "spool")
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "a", "parquet", bids([1]))
    source = open_source(declared, spool)
    offset = source.poll(None).offset
    source.committed(offset)
    write(tmp_path / "in" / "a", "parquet", bids([2]))
    assert source.drained(offset)
    old = write(tmp_path / "in" / "b", "parquet", bids([3]))
    os.utime(old, (1, 1))
    assert not source.drained(offset)
    assert read(source.poll(offset), declared) == bids([3])


def test_hidden_and_nested_names(tmp_path):
    """What writers have not finished is skipped; patterns, filters and folders choose the rest."""
    unfinished = ("_x.csv", ".x.csv", "x.csv._COPYING_", "x.csv.tmp", "_temporary/x.csv")
    data = ("2024-01/x.csv", "2024-02/y.csv", "2024-02/deep/z.csv", "other/w.csv", "x.txt")
    for name in (*data, *(f"2024-01/{n}" for n in unfinished)):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("auction\n1\n")

    def names(path, **options):
        declared = stream("csv", {"auction": pa.int64()}, "auction", path=str(tmp_path / "in" / path), **options)
        found = open_source(declared, Place.of(tmp_path / "s")).poll(None)
        return [] if found is None else sorted(p.file.name for p in found.pieces)

    assert names("2024-01") == ["x.csv"]
    assert names("2024-*") == ["2024-01/x.csv", "2024-02/y.csv"]
    assert names("2024-*", recursiveFileLookup="true") == ["2024-01/x.csv", "2024-02/deep/z.csv", "2024-02/y.csv"]
    assert names("{2024-02,other}/*.csv") == ["2024-02/y.csv", "other/w.csv"]
    assert names("", pathGlobFilter="*.csv") == []
    assert names("x.txt") == ["x.txt"]


def test_columns_in_the_path(tmp_path):
    """Folders named column=value give that column, as they do in Spark."""
    columns = {"ts": pa.int64(), "day": pa.date32(), "kind": pa.string()}
    for kind, name in (("parquet", "day=2024-01-02/kind=a%20b/x"), ("csv", "day=2024-01-02/kind=a%20b/x")):
        folder = tmp_path / kind / name
        folder.parent.mkdir(parents=True)
        if kind == "csv":
            folder.write_text("ts\n7\n")
        else:
            parquet.write_table(pa.table({"ts": [7]}), folder)
        rows = read_all(stream(kind, columns, path=str(tmp_path / kind)), tmp_path / f"spool-{kind}")
        assert [[str(v) for v in r.values()] for r in rows.to_pylist()] == [["7", "2024-01-02", "a b"]]


def test_many_names(tmp_path, monkeypatch):
    """The log of taken names is written in segments that absorb each other, and is checked when it is read."""
    monkeypatch.setattr(directory, "TAIL_NAMES", 4)
    folder = tmp_path / "in"
    folder.mkdir()
    for i in range(60):
        write(folder / f"{i:03d}", "csv", bids([i]))
    declared = stream("csv", path=str(folder), max_files="3")
    assert read_all(declared, tmp_path / "spool") == bids(range(60))
    assert len(list((tmp_path / "spool").glob("seen-*"))) <= 12
    source, offset = open_source(declared, Place.of(tmp_path / "two")), None
    while (found := source.poll(offset)) is not None:
        offset = found.offset
        source.committed(offset)
    again = open_source(declared, Place.of(tmp_path / "two"))
    assert again.poll(offset) is None
    segment = tmp_path / "two" / offset["log"][0][0]
    segment.write_bytes(segment.read_bytes()[:-5] + b"xxxxx")
    with pytest.raises(StateError, match="corrupt"):
        open_source(declared, Place.of(tmp_path / "two")).poll(offset)


def test_offset_of_names(tmp_path):
    """An offset can be made of the names that an older home kept."""
    folder = tmp_path / "in"
    folder.mkdir()
    for i in range(3):
        write(folder / f"{i} x", "csv", bids([i]))
    declared = stream("csv", path=str(folder))
    source = open_source(declared, Place.of(tmp_path / "spool"))
    offset = offset_of(source, [f"file://{folder}/0%20x", f"file:{folder}/1 x"])
    assert read(source.poll(json.loads(json.dumps(offset))), declared) == bids([2])


HEADER, EPOCH = "ts,auction,price\n", "1970-01-01 00:00:00"


@pytest.mark.parametrize(
    ("kind", "content", "message", "detail"),
    [
        ("csv", f"{HEADER}{EPOCH},1,1\n\n{EPOCH},many,0.5\n", "a, line 4", "'many' is not BIGINT"),
        ("csv", f"{HEADER}{EPOCH},1.5,0.5\n", "a, line 2", "'1.5' is not BIGINT"),
        ("csv", f"{HEADER}{EPOCH},1\n", "malformed.*line 2", "2 values, 3 expected"),
        ("csv", f"ts,auction,cost\n{EPOCH},1,0.5\n", "CSV header does not conform", 'no column "price"'),
        ("csv", f"{HEADER}{EPOCH},1,\xff\n", "line 2", "is not UTF-8"),
        ("json", f'{{"ts": "{EPOCH}"}}\n{{"ts": "{EPOCH}", "auction": \n', "malformed.*line 2", "not JSON"),
        ("json", '{"ts": 5}\n', "line 1", "'5' is not TIMESTAMP"),
        ("json", "[1, 2]\n", "line 1", "not a JSON object"),
        ("parquet", "this is not parquet", "cannot read .*/a", "Parquet"),
        ("arrow", "this is not arrow", "cannot read .*/a", ""),
    ],
)
def test_corrupt_files(tmp_path, kind, content, message, detail):
    """A corrupt file or row is named by stream, file and position; reported, the rest goes on."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(content.encode("latin-1"))
    declared = stream(kind, path=str(tmp_path / "in"))
    with pytest.raises(SourceError, match=f'stream "bid".*{message}') as caught:
        read_all(declared, tmp_path / "spool")
    assert detail in caught.value.detail
    reported = []
    rows = read_all(declared, tmp_path / "other", report=reported.append)
    assert rows.num_rows == content.count("00:00:00,1,1\n") + content.count('00:00:00"}\n')
    assert [str(tmp_path) in r.where for r in reported] == [True]


def test_types_that_do_not_fit(tmp_path):
    """A file whose typed column is of another kind, wider, or missing is named."""
    (tmp_path / "in").mkdir()
    for column, message in (
        (pa.array(["x"]), 'column "auction" is declared BIGINT, but .*a has VARCHAR'),
        (pa.array([1.5]), "declared BIGINT, but .* has DOUBLE"),
        (None, 'has no column "auction"'),
    ):
        table = bids([1]).drop_columns(["auction"])
        write(tmp_path / "in" / "a", "parquet", table if column is None else table.append_column("auction", column))
        with pytest.raises(SourceError, match=message):
            read_all(stream(path=str(tmp_path / "in")), tmp_path / "spool")
    narrow = bids([1]).set_column(1, "AUCTION", pa.array([1], pa.int8()))
    write(tmp_path / "in" / "a", "parquet", narrow.append_column("junk", pa.array([0])))
    assert read_all(stream(path=str(tmp_path / "in")), tmp_path / "spool") == bids([1])


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_types_that_fit(tmp_path, kind):
    """A column of nulls is of any type; times and dates of another unit are taken."""
    (tmp_path / "in").mkdir()
    types = [pa.string(), pa.float64(), pa.timestamp("us"), pa.bool_(), pa.int16(), pa.decimal128(10, 2), pa.date32()]
    columns = {"ts": pa.int64(), **{f"c{i}": t for i, t in enumerate([*types, pa.time64("us"), pa.list_(pa.int64())])}}
    nulls = pa.table({n: pa.nulls(2) for n in columns}).set_column(0, "ts", pa.array([1, 2], pa.int64()))
    write(tmp_path / "in" / "a", kind, nulls)
    declared = stream(kind, columns, path=str(tmp_path / "in"))
    assert read_all(declared, tmp_path / "spool") == pa.table(
        {n: pa.array([1, 2] if n == "ts" else [None] * 2, t) for n, t in columns.items()}
    )
    found = {"ts": pa.array([1], pa.int64()), "t": pa.array([5], pa.time32("s")), "d": pa.array([0], pa.date64())}
    (tmp_path / "units").mkdir()
    write(tmp_path / "units" / "a", kind, pa.table(found))
    columns = {"ts": pa.int64(), "t": pa.time64("us"), "d": pa.date32()}
    rows = read_all(stream(kind, columns, path=str(tmp_path / "units")), tmp_path / "spool-of-units").to_pylist()
    assert [str(v) for v in rows[0].values()] == ["1", "00:00:05", "1970-01-01"]
    write(tmp_path / "units" / "a", kind, pa.table({"ts": [1], "i": pa.array([1], pa.time64("ns"))}))
    declared = stream(kind, {"ts": pa.int64(), "i": pa.time64("us")}, path=str(tmp_path / "units"))
    with pytest.raises(SourceError, match=r"declared TIME, but .* has TIME_NS"):
        read_all(declared, tmp_path / "spool-of-nanoseconds")


def test_kinds_of_one_name_are_told_apart(tmp_path):
    """A span of time of an Arrow file is no interval of months and days."""
    write(tmp_path / "a", "arrow", pa.table({"ts": [1], "i": pa.array([1], pa.duration("us"))}))
    declared = stream("arrow", {"ts": pa.int64(), "i": pa.month_day_nano_interval()}, path=str(tmp_path / "a"))
    with pytest.raises(SourceError, match=r"declared INTERVAL, but .* has duration\[us\]"):
        read_all(declared, tmp_path / "spool")


@pytest.mark.parametrize(
    "options",
    [
        {"path": ""},
        {"max_files": "0"},
        {"cleanSource": "delete"},
        {"maxfile": "3"},
        {"mode": "PERMISSIVE"},
        {"encoding": "utf-16"},
        {"timestampFormat": "EEE"},
    ],
)
def test_refused_options(tmp_path, options):
    """Options that are unknown, senseless or dangerous are refused by name."""
    with pytest.raises(SourceError, match="|".join(options)) as caught:
        open_source(stream("csv", **{"path": str(tmp_path), **options}), Place.of(tmp_path / "s"))
    assert caught.value.hint


def test_no_directory(tmp_path):
    """A directory that is not there, or goes, is named; so is a file that goes or changes before it is read."""
    with pytest.raises(SourceError, match="nowhere"):
        open_source(stream("csv", path=str(tmp_path / "nowhere")), Place.of(tmp_path / "s"))
    folder = tmp_path / "in"
    folder.mkdir()
    source = open_source(stream("csv", path=str(folder)), Place.of(tmp_path / "s"))
    path = write(folder / "a", "csv", bids([1]))
    found = source.poll(None)
    path.write_text("ts,auction,price\n")
    with pytest.raises(SourceError, match="changed after it was listed"):
        read(found, source.stream)
    path.unlink()
    with pytest.raises(SourceError, match="is gone"):
        read(found, source.stream)
    folder.rmdir()
    with pytest.raises(SourceError, match="no directory"):
        source.drained(found.offset)


def test_clean_source(tmp_path):
    """With the owner's leave files are deleted or moved once a manifest says that they were taken."""
    folder = tmp_path / "in"
    folder.mkdir()
    for what, options in (("delete", {}), ("archive", {"sourceArchiveDir": str(tmp_path / "old")})):
        path = write(folder / what, "csv", bids([1]))
        declared = stream("csv", path=str(folder), cleanSource=what, **options)
        source = open_source(declared, Place.of(tmp_path / f"s-{what}"), may_write=True)
        found = source.poll(None)
        assert path.exists()
        source.committed(found.offset)
        assert not path.exists()
    assert (tmp_path / "old" / "archive").exists()


def test_csv_with_another_delimiter(tmp_path):
    """A header that is one long name says which delimiter to write."""
    (tmp_path / "a.csv").write_text("ts;auction;price\n")
    with pytest.raises(SourceError, match="does not conform") as told:
        read_all(stream("csv", path=str(tmp_path)), tmp_path / "spool")
    assert told.value.hint == "the values look separated by ;: say sep => ';'"
    assert told.value.detail == 'it has no column "ts"; its columns are: ts;auction;price'


def test_times_of_another_format(tmp_path):
    """A time that is not ISO 8601 says which option reads it; where one is given, a row is wrong."""
    (tmp_path / "a.csv").write_text("ts,auction,price\n18.11.2026 02:26:50,1,20\n")
    with pytest.raises(SourceError, match="malformed row") as told:
        read_all(stream("csv", path=str(tmp_path)), tmp_path / "spool")
    assert told.value.hint.startswith("if times are written so, say timestampFormat => 'dd.MM.yyyy HH:mm:ss'")
    said = stream("csv", path=str(tmp_path), timestampFormat="dd.MM.yyyy HH:mm:ss")
    assert read_all(said, tmp_path / "first").num_rows == 1
    (tmp_path / "a.csv").write_text("ts,auction,price\n2026-11-18,1,20\n")
    with pytest.raises(SourceError, match="malformed row") as told:
        read_all(said, tmp_path / "second")
    assert told.value.hint == "fix the row, or let the stream set such rows aside: ON ERROR QUARANTINE"


def test_decimal_commas(tmp_path):
    """Numbers with a comma are read as declared, by both parsers; a point of thousands is no number."""
    rows = "ts;auction;price\n2024-01-01 00:00:01;1;20,5\n2024-01-01 00:00:02;1;-0,25\n"
    (tmp_path / "a.csv").write_text(rows)
    with pytest.raises(SourceError, match="malformed row") as told:
        read_all(stream("csv", path=str(tmp_path), sep=";"), tmp_path / "spool")
    assert told.value.hint == "if commas are decimal points, say decimal => ','"
    assert told.value.__cause__ is None  # an error that is its own cause would never be let go
    said = stream("csv", path=str(tmp_path), sep=";", decimal=",")
    assert read_all(said, tmp_path / "first").column("price").to_pylist() == [20.5, -0.25]
    (tmp_path / "a.csv").write_text(rows + "2024-01-01 00:00:03;1;1.234,5\n")
    with pytest.raises(SourceError, match="line 4"):
        read_all(said, tmp_path / "second")
    (tmp_path / "a.csv").write_text(rows + "2024-01-01 00:00:03;1;1.234\n")
    with pytest.raises(SourceError, match="line 4"):
        read_all(said, tmp_path / "third")


def test_json_array_names_its_option(tmp_path):
    """A file that is one array of objects says what to write."""
    (tmp_path / "a.json").write_text('[\n{"ts": "2024-01-01", "auction": 1, "price": 1}\n]')
    with pytest.raises(SourceError, match="line 1") as told:
        read_all(stream("json", path=str(tmp_path)), tmp_path / "spool")
    assert told.value.hint == "if the file is an array of objects, say multiLine => 'true'"


def test_settled_folders_are_seldom_listed(tmp_path, monkeypatch):
    """A folder that has not changed for a while is listed ten times a second at most, and at once when it changes."""
    now, listed, entries = [100.0], [], Listing._entries
    monkeypatch.setattr(Listing, "_entries", lambda self, path: listed.append(now[0]) or entries(self, path))
    listing = Listing(Place(str(tmp_path)), [], False, None, lambda: now[0])
    for _ in range(1000):  # four seconds
        listing.look(list)
        now[0] += 0.004
    recent, settled = [t for t in listed if t < 103], [t for t in listed if t >= 103.1]
    assert len(recent) > 700
    assert 5 <= len(settled) <= 10
    (tmp_path / "a").write_text("1")
    assert [f.name for f in listing.look(list)] == ["a"]


def test_only_regular_files_are_taken(tmp_path):
    """A pipe or a socket among them is none, whether it was there first or came in the place of a file."""
    os.mkfifo(tmp_path / "a.csv")
    write(tmp_path / "b.csv", "csv", bids([1]))
    write(tmp_path / "c.csv", "csv", bids([2]))
    declared = stream("csv", path=str(tmp_path), max_files="1")
    source = open_source(declared, Place.of(tmp_path / "spool"))
    first = source.poll(None)
    assert read(first, declared) == bids([1])
    (tmp_path / "c.csv").unlink()
    os.mkfifo(tmp_path / "c.csv")
    assert source.poll(first.offset) is None
    assert source.drained(first.offset)
    source.close()


@pytest.mark.parametrize("hashed", [False, True])
def test_a_file_that_went_before_it_was_taken_is_new_when_it_comes_again(tmp_path, monkeypatch, hashed):
    """As often as that happens, and once; so is one whose name was there first."""
    monkeypatch.setattr(seen, "FRESH", 0 if hashed else 1 << 16)
    first, other = tmp_path / "in" / "1", tmp_path / "in" / "2"
    (tmp_path / "in").mkdir()
    write(first, "csv", bids([1]))
    write(other, "csv", bids([2]))
    (tmp_path / "in" / "3").symlink_to(tmp_path / "target")
    declared = stream("csv", path=str(tmp_path / "in"), max_files="1")
    source = open_source(declared, Place.of(tmp_path / "spool"))
    offset = source.poll(None).offset
    for _ in range(3):
        other.unlink()
        assert source.poll(offset) is None
        os.utime(write(other, "csv", bids([4])), (5, 5))
        assert not source.drained(offset)
    write(tmp_path / "target", "csv", bids([3]))
    assert not source.drained(offset)
    rows = []
    while (found := source.poll(offset)) is not None:
        rows += read(found, declared).column("auction").to_pylist()
        offset = found.offset
        source.committed(offset)
    assert rows == [4, 3]
    assert source.drained(offset)
    source.close()


def test_a_file_that_changed_between_two_polls_is_taken_as_it_is(tmp_path):
    """What was said of it by its former size is not said again."""
    write(tmp_path / "a", "csv", bids([1]))
    declared = stream("csv", path=str(tmp_path))
    source = open_source(declared, Place.of(tmp_path / "spool"))
    found = source.poll(None)
    write(tmp_path / "a", "csv", bids([1, 2]))
    with pytest.raises(SourceError, match="changed after it was listed"):
        read(found, declared)
    while (found := source.poll(None)) is None:  # its size is looked at twice
        pass
    assert read(found, declared) == bids([1, 2])
    source.close()


@pytest.mark.parametrize("size", [3, 20, 45, 1000])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_however_lines_end(tmp_path, monkeypatch, end, size):
    """Pieces of bytes hold each line once, and the header is none."""
    monkeypatch.setattr(lines, "PIECE_BYTES", size)
    text = write(tmp_path / "a.csv", "csv", bids(range(9))).read_text()
    (tmp_path / "a.csv").write_bytes(("\n" + text).replace("\n", end).encode())
    assert read_all(stream("csv", path=str(tmp_path)), tmp_path / "spool") == bids(range(9))


@pytest.mark.parametrize("path", ["in[1]", "in[1]/x[1].csv", "in[1]/*.csv", "in[1]/a{b}.csv", "in[1]/_q?.csv", "in?1"])
def test_a_name_that_is_there_is_no_pattern(tmp_path, path):
    """Nor is it unfinished, if the path names it; what is not there is a pattern as before."""
    for name in ("in[1]/x[1].csv", "in[1]/a{b}.csv", "in[1]/_q?.csv", "in?1/x.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, "csv", bids([len(name)]))
    found = open_source(stream("csv", path=str(tmp_path / path)), Place.of(tmp_path / "s")).poll(None)
    names = {"in[1]": ["a{b}.csv", "x[1].csv"], "in[1]/*.csv": ["a{b}.csv", "x[1].csv"], "in?1": ["x.csv"]}
    assert sorted(p.file.name for p in found.pieces) == names.get(path, [path.rpartition("/")[2]])
    given = files_given(str(tmp_path / path), stream("csv", path="nowhere"))
    assert sorted(f.name for f in given) == names.get(path, [path.rpartition("/")[2]])


def test_a_store_is_listed_half_of_the_time_at_most(tmp_path, monkeypatch):
    """One that has no times of folders: as long as a listing took it is left alone, unless all must be known now."""
    now, listed, entries = [0.0], [], Listing._entries

    def slow(listing, path):
        listed.append(now[0])
        now[0] += 50.0
        return entries(listing, path)

    monkeypatch.setattr(Listing, "_entries", slow)
    monkeypatch.setattr(Place, "local", False)
    listing = Listing(Place(str(tmp_path)), [], False, None, lambda: now[0])
    for _ in range(400):
        listing.look(list)
        now[0] += 1.0
    assert listed == [100.0 * i for i in range(8)]
    listing.look(list, force=True)
    assert len(listed) == 9
