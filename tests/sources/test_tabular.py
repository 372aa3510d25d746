"""Bounded data of every accepted kind becomes one plain Arrow table."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.errors import SourceError
from windrow.sources.casting import cast_column, sql_name
from windrow.sources.tabular import to_table

ROWS = pa.table({"a": [1, 2, None], "s": ["x", None, "z"]})
TS = pa.timestamp("us")


@pytest.mark.parametrize(
    "data",
    [
        ROWS,
        ROWS.to_batches()[0],
        ROWS.to_reader(),
        ROWS.to_pydict(),
        pl.from_arrow(ROWS),
        pd.DataFrame({"a": pd.array([1, 2, None], "Int64"), "s": ["x", None, "z"]}),
        pa.table({"a": ROWS["a"], "s": ROWS["s"].dictionary_encode()}),
        pa.concat_tables([ROWS.slice(0, 1), ROWS.slice(1)]),
    ],
    ids=["table", "batch", "reader", "mapping", "polars", "pandas", "dictionary", "chunked"],
)
def test_memory(data: object) -> None:
    """Every in-memory kind gives the same plain, contiguous table."""
    table = to_table(data, "stream s")
    assert table.to_pylist() == ROWS.to_pylist()
    assert table.schema.types == [pa.int64(), pa.string()]
    assert table.schema.metadata is None
    assert all(c.num_chunks == 1 for c in table.columns)


def test_pandas_index() -> None:
    """A named pandas index is a column; unnamed row labels are not."""
    frame = pd.DataFrame({"a": [1, 2, 3]})
    assert to_table(frame[frame.a > 1], "s").column_names == ["a"]
    assert set(to_table(frame.set_index(pd.Index([7, 8, 9], name="ts")), "s").column_names) == {"a", "ts"}


def test_frames_are_not_imported() -> None:
    """Reading Arrow data imports neither pandas nor polars."""
    import subprocess
    import sys

    code = (
        "import sys, pyarrow as pa; from windrow.sources.tabular import to_table\n"
        "to_table(pa.table({'a': pa.nulls(1)}), 's')\n"
        "print([m for m in ('pandas', 'polars', 'duckdb') if m in sys.modules])"
    )
    path = str(Path(__file__).parents[2] / "src")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": path}, check=True
    )
    assert done.stdout.strip() == "[]"


def test_unknown_object() -> None:
    """An object that holds no rows is refused with what would do."""
    with pytest.raises(SourceError, match="cannot read rows from int") as caught:
        to_table(7, "stream bid")
    assert "pandas" in str(caught.value.hint)


def test_repeated_column() -> None:
    """Two columns of one name are refused."""
    with pytest.raises(SourceError, match='column "a" appears more than once'):
        to_table(pa.table([[1], [2]], names=["a", "a"]), "stream s")


def test_all_null_column() -> None:
    """A column of nothing but nulls gets the type that DuckDB gives a bare NULL."""
    assert to_table({"a": [None, None]}, "s").schema.types == [pa.int32()]


def write(path: Path, kind: str) -> Path:
    """Write ROWS as a file of one kind."""
    rows = ROWS.to_pylist()
    text = "a,s\n1,x\n2,\n,z\n"
    match kind:
        case "csv":
            path.write_text(text)
        case "csv.gz":
            path.write_bytes(gzip.compress(text.encode()))
        case "tsv":
            path.write_text(text.replace(",", "\t"))
        case "json":
            path.write_text(json.dumps(rows))
        case "ndjson" | "jsonl":
            path.write_text("\n".join(map(json.dumps, rows)))
        case "json.gz":
            path.write_bytes(gzip.compress(json.dumps(rows).encode()))
        case "parquet":
            pa.parquet.write_table(ROWS, path)
        case "feather":
            pa.feather.write_feather(ROWS, path)
        case "arrow":
            with pa.ipc.new_file(path, ROWS.schema) as sink:
                sink.write_table(ROWS)
        case "ipc":
            with pa.ipc.new_stream(path, ROWS.schema) as sink:
                sink.write_table(ROWS)
    return path


KINDS = ["csv", "csv.gz", "tsv", "json", "json.gz", "ndjson", "jsonl", "parquet", "feather", "arrow", "ipc"]


@pytest.mark.parametrize("kind", KINDS)
def test_file(tmp_path: Path, kind: str) -> None:
    """Every kind of file gives the rows it was written from, with and without a declared schema."""
    path = write(tmp_path / f"rows.{kind}", kind)
    assert to_table(path, "s").to_pylist() == ROWS.to_pylist()
    declared = to_table(str(path), "s", {"s": pa.string(), "a": pa.float64()})
    assert declared.to_pylist() == [{"s": r["s"], "a": r["a"]} for r in ROWS.to_pylist()]
    assert declared.schema.types == [pa.string(), pa.float64()]


def test_directory(tmp_path: Path) -> None:
    """A directory is its files in order of name, without what writers leave beside them."""
    write(tmp_path / "b.parquet", "parquet")
    write(tmp_path / "a.csv", "csv")
    (tmp_path / "_SUCCESS").touch()
    assert to_table(tmp_path, "s").to_pylist() == ROWS.to_pylist() * 2


def test_directory_types_widen(tmp_path: Path) -> None:
    """Files whose numbers differ in kind are widened; text against numbers is refused with a hint."""
    (tmp_path / "1.csv").write_text("a\n1\n")
    (tmp_path / "2.csv").write_text("a\n2.5\n")
    assert to_table(tmp_path, "s").to_pydict() == {"a": [1.0, 2.5]}
    (tmp_path / "3.csv").write_text("a\nx\n")
    with pytest.raises(SourceError, match="differ in their columns"):
        to_table(tmp_path, "s")
    assert to_table(tmp_path, "s", {"a": pa.string()}).to_pydict() == {"a": ["1", "2.5", "x"]}


def test_path_with_partition_name(tmp_path: Path) -> None:
    """Directory names such as day=1 add no columns."""
    (tmp_path / "day=1").mkdir()
    assert to_table(write(tmp_path / "day=1" / "r.parquet", "parquet"), "s").column_names == ["a", "s"]


def test_csv_types(tmp_path: Path) -> None:
    """Types come from all rows: integers, doubles (NaN too), booleans, dates, times with and without offset, text."""
    rows = ["i,d,b,day,t,z,s"] + ["1,nan,true,2024-01-01,2024-01-01 00:00:00,2024-01-01T02:00:00+02:00,007a"] * 3000
    rows.append("-2,1.5,FALSE,2024-01-02,2024-01-01 00:00:00.25,2024-01-01T00:00:00Z,")
    path = tmp_path / "r.csv"
    path.write_text("\n".join(rows))
    table = to_table(path, "s")
    assert table.schema.types == [
        pa.int64(), pa.float64(), pa.bool_(), pa.date32(), TS, pa.timestamp("us", "UTC"), pa.string(),
    ]  # fmt: skip
    assert table["z"][0].as_py() == table["z"][3000].as_py() == datetime(2024, 1, 1, tzinfo=UTC)
    assert table["s"][3000].as_py() is None
    assert len(table) == 3001


def test_csv_late_surprise(tmp_path: Path) -> None:
    """A value deep in the file that breaks the pattern of the first rows changes the type, and loses nothing."""
    path = tmp_path / "r.csv"
    path.write_text("a\n" + "1\n" * 500_000 + "1.5\n")
    table = to_table(path, "s")
    assert table.schema.types == [pa.float64()]
    assert len(table) == 500_001


def test_csv_quotes(tmp_path: Path) -> None:
    """Quoted separators, line breaks and empty strings are values; an unquoted nothing is null."""
    path = tmp_path / "r.csv"
    path.write_text('s,n\n"a,b\nc",1\n"",2\n,3\n')
    assert to_table(path, "s")["s"].to_pylist() == ["a,b\nc", "", None]


def test_csv_header_only(tmp_path: Path) -> None:
    """A file with a header alone is an empty table."""
    path = tmp_path / "r.csv"
    path.write_text("a,b\n")
    assert to_table(path, "s", {"a": pa.int64(), "b": TS}).schema.types == [pa.int64(), TS]
    assert len(to_table(path, "s")) == 0


def test_declared_text_is_kept(tmp_path: Path) -> None:
    """A column declared as text keeps its digits and its spelling of times."""
    csv, ndjson = tmp_path / "r.csv", tmp_path / "r.ndjson"
    csv.write_text("s\n007\n")
    ndjson.write_text('{"s": "2024-01-01T00:00:00Z"}\n')
    assert to_table(csv, "s", {"s": pa.string()}).to_pydict() == {"s": ["007"]}
    assert to_table(ndjson, "s", {"s": pa.string()}).to_pydict() == {"s": ["2024-01-01T00:00:00Z"]}


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("r.csv", b"a,b\n1,x\n2,y,z\n", "Row #3: Expected 2 columns, got 3"),
        ("r.csv", b"", "holds nothing"),
        ("r.csv.gz", b"not gzip", "cannot read"),
        ("r.json", b'{"a": 1}\n{bad\n', "Malformed JSON"),
        ("r.parquet", b"PAR1 no", "cannot read"),
        ("r.arrow", b"rubbish", "cannot read"),
        ("r.xlsx", b"", "unknown kind of file"),
        ("noextension", b"", "unknown kind of file"),
        ("r.parquet.gz", b"", "unknown kind of file"),
    ],
)
def test_bad_file(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    """A file that cannot be read is named with the reason."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError) as caught:
        to_table(tmp_path / name, "stream bid")
    assert reason in str(caught.value)
    assert name in str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    """A missing file is named, with a file of the same stem where there is one."""
    (tmp_path / "bid.csv.gz").touch()
    with pytest.raises(SourceError, match="no such file") as caught:
        to_table(tmp_path / "bid.csv", "stream bid")
    assert "bid.csv.gz" in str(caught.value.hint)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="no files in directory"):
        to_table(tmp_path / "empty", "stream bid")


def test_missing_column() -> None:
    """A declared column that the data lacks is named beside what is there; case does not matter."""
    with pytest.raises(SourceError, match='no column "price"') as caught:
        to_table(ROWS, "stream bid", {"A": pa.int64(), "price": pa.int64()})
    assert caught.value.detail == "its columns are: a, s"


@pytest.mark.parametrize(
    ("values", "type_", "row", "value"),
    [
        (["1", "2", "x"], pa.int64(), 3, "'x'"),
        (["1", "1.5"], pa.int64(), 2, "'1.5'"),
        ([1.0, 2.5], pa.int64(), 2, "2.5"),
        ([1, 2**40], pa.int32(), 2, str(2**40)),
        ([None, "2024-13-01"], TS, 2, "'2024-13-01'"),
    ],
)
def test_unfit_value(values: list[object], type_: pa.DataType, row: int, value: str) -> None:
    """A value that does not fit its declared type is named by column, row and value."""
    with pytest.raises(SourceError) as caught:
        to_table({"a": values}, "stream bid", {"a": type_})
    assert f'column "a", row {row}: {value} is not {sql_name(type_)}' in caught.value.primary


def test_number_is_no_time() -> None:
    """A number declared as a timestamp is refused: it has no unit."""
    with pytest.raises(SourceError, match="holds numbers") as caught:
        to_table({"ts": [1, 2]}, "stream bid", {"ts": TS})
    assert "BIGINT" in str(caught.value.hint)
    assert "epoch_ms" in str(caught.value.hint)


@pytest.mark.parametrize(("text", "hint"), [("1704067200000", "epoch_ms"), ("31.01.2024", "dd.MM.yyyy")])
def test_hint_of_a_time(text: str, hint: str) -> None:
    """Text that is no time says how a source reads such times."""
    with pytest.raises(SourceError, match="is not TIMESTAMP") as caught:
        to_table({"ts": [text]}, "stream bid", {"ts": TS})
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024-01-01 12:00:00", datetime(2024, 1, 1, 12)),
        ("2024-01-01T12:00:00+02:00", datetime(2024, 1, 1, 10)),
        ("2024-01-01T12:00:00.000001Z", datetime(2024, 1, 1, 12, 0, 0, 1)),
        ("2024-01-01", datetime(2024, 1, 1)),
    ],
)
def test_text_times(text: str, moment: datetime) -> None:
    """Text becomes the instant it names: an offset counts, none means UTC."""
    assert to_table({"ts": [text]}, "s", {"ts": TS})["ts"].to_pylist() == [moment]
    aware = to_table({"ts": [text]}, "s", {"ts": pa.timestamp("us", "UTC")})
    assert aware["ts"].to_pylist() == [moment.replace(tzinfo=UTC)]


def test_time_units() -> None:
    """Finer or coarser time units, with or without a zone, become the declared one."""
    nanos = pa.array([1_000_001, None], pa.timestamp("ns", "Europe/Paris"))
    assert to_table({"ts": nanos}, "s", {"ts": TS})["ts"].cast(pa.int64()).to_pylist() == [1000, None]


@given(st.lists(st.one_of(st.none(), st.integers(-(2**40), 2**40)), min_size=1, max_size=40))
def test_first_unfit_row(values: list[int | None]) -> None:
    """The row that an error names is the first whose value is out of range."""
    column = pa.chunked_array([pa.array(values, pa.int64())])
    unfit = [i for i, v in enumerate(values) if v is not None and not -(2**31) <= v < 2**31]
    if not unfit:
        assert cast_column(column, pa.int32(), "a", "s").to_pylist() == values
        return
    with pytest.raises(SourceError, match=f"row {unfit[0] + 1}: "):
        cast_column(column, pa.int32(), "a", "s")


@pytest.mark.parametrize(
    "type_", [pa.list_(pa.int64()), pa.struct([("a", pa.int8())]), pa.string(), pa.timestamp("us")]
)
def test_only_nulls_fit_every_type(type_):
    """A column without a value has the declared type."""
    assert to_table({"a": [None, None]}, "stream s", {"a": type_}).column("a").to_pylist() == [None, None]
    assert to_table({"a": [None, None]}, "stream s", {"a": type_}).schema.field("a").type == type_


def test_rows_one_by_one():
    """Rows as mappings are a table: what a row does not name is null, and no column of a later row is lost."""
    schema = {"a": pa.int64(), "b": pa.string()}
    assert to_table([{"a": 1}, {"b": "x", "a": 2}], "stream s", schema).to_pylist() == [
        {"a": 1, "b": None},
        {"a": 2, "b": "x"},
    ]
    assert to_table([], "stream s", schema).num_rows == 0
    with pytest.raises(SourceError, match="cannot be read as a table"):
        to_table([{"a": 1}, {"a": "x"}], "stream s", schema)
    with pytest.raises(SourceError, match="list of rows"):
        to_table([(1, "x")], "stream s", schema)
