"""What footers say: a row group with a row that a condition wants is never passed over, of whatever type and writer."""

from __future__ import annotations

import datetime
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from windrow import cql
from windrow.catalog import Catalog, StreamDef
from windrow.optimize import optimize
from windrow.runtime.pruning import may_hold, row_boxes
from windrow.runtime.wanted_rows import wanted_rows
from windrow.sources.data_file import DataFile
from windrow.sources.footers import said_by_folders
from windrow.sources.read_parquet import ParquetPiece, cut_parquet
from windrow.store.place import Place

TYPES = {
    "ts": pa.int64(), "s": pa.string(), "day": pa.date32(), "d": pa.decimal128(9, 2), "ok": pa.bool_(),
    "u": pa.uint64(), "u4": pa.uint32(), "b": pa.int8(), "i": pa.int16(), "t": pa.timestamp("us"), "x": pa.float64(),
    "r": pa.float32(), "w": pa.decimal128(38, 0), "l": pa.list_(pa.int64()), "n": pa.int64(),
    "h": pa.time64("us"), "k": pa.string(),
}  # fmt: skip
STREAM = StreamDef("s", TYPES, "ts")
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "s": st.sampled_from(["", "a", "ab", "b", "ä", "z" * 5000, "z" * 5001, "zz\U0001f600", "\x7f"]),
    "day": st.dates(datetime.date(1969, 12, 25), datetime.date(1970, 1, 9)),
    "d": st.decimals(-9, 9, places=2),
    "ok": st.booleans(),
    "u": st.sampled_from([0, 1, 2**63 - 1, 2**63, 2**64 - 1]),
    "u4": st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32 - 1]),
    "b": st.integers(-128, 127),
    "i": st.integers(-9, 9),
    "t": st.integers(-9, 9).map(lambda s: datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=s)),
    "x": st.sampled_from([-1.5, -0.0, 0.0, 2.5, float("inf"), float("nan"), -float("inf")]),
    "r": st.sampled_from([-1.5, -0.0, 0.0, 2.5, float("nan")]),
    "w": st.integers(-9, 9).map(Decimal),
    "l": st.lists(st.integers(0, 3), max_size=2),
    "n": st.just(None),
    "h": st.integers(0, 9).map(lambda s: datetime.time(0, 0, s)),
    "k": st.sampled_from(["p", "q"]),
}
CONSTANTS = {
    "s": ["''", "'a'", "'b'", "'ä'", "'zzz'", f"'{'z' * 5000}'"],
    "day": ["DATE '1970-01-01'", "DATE '1970-01-05'"],
    "d": ["0", "1.5", "-2.25"],
    "ok": ["true", "false"],
    "u": ["0", "5", "9223372036854775808"],
    "u4": ["0", "5", "2147483648"],
    "b": ["0", "-5"],
    "i": ["0", "3"],
    "t": ["TIMESTAMP '1970-01-01 00:00:02'", "TIMESTAMP '1969-12-31 23:59:55'"],
    "x": ["0", "2.5", "'NaN'::DOUBLE"],
    "r": ["0", "2.5"],
    "w": ["0", "5"],
    "n": ["0"],
    "h": ["TIME '00:00:04'"],
    "k": ["'p'", "'q'"],
}  # fmt: skip
TESTS = st.one_of(
    st.sampled_from([f"{c} IS NULL" for c in VALUES] + [f"{c} IS NOT NULL" for c in VALUES]),
    st.sampled_from(["ok", "NOT ok", "s LIKE 'z%'", "s LIKE 'ä%'", "b IN (1, 2, 3)", "s IN ('a', 'ä')", "ts > 3"]),
    st.sampled_from([(c, v) for c, values in CONSTANTS.items() for v in values]).flatmap(
        lambda cv: st.sampled_from(["=", "<", "<=", ">", ">=", "<>"]).map(lambda op: f"{cv[0]} {op} {cv[1]}")
    ),
)
CONDITIONS = st.recursive(
    TESTS,
    lambda part: st.one_of(
        part.map(lambda p: f"NOT ({p})"),
        st.tuples(part, part).map(lambda p: f"({p[0]} AND {p[1]})"),
        st.tuples(part, part).map(lambda p: f"({p[0]} OR {p[1]})"),
    ),
    max_leaves=4,
)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Rows of all types; sorted by one of them, so that row groups differ."""
    rows = draw(st.integers(1, 24))
    sparse = draw(st.integers(0, 3))
    columns = {
        c: pa.array([draw(v) if not sparse or draw(st.integers(0, sparse)) else None for _ in range(rows)], TYPES[c])
        for c, v in VALUES.items()
    }
    found = pa.table({"ts": pa.array(range(rows)), **columns}).select(list(TYPES))
    return found.sort_by(draw(st.sampled_from([c for c in TYPES if c != "l"])))


def boxes_of(test: str) -> Any:
    """What is asked of footers for a WHERE."""
    catalog = Catalog(streams={"s": STREAM})
    (statement,) = cql.parse(f"CREATE QUERY q AS SELECT ISTREAM(ts) FROM s [NOW] WHERE {test}")
    bound = cql.bind(statement, catalog)
    assert isinstance(bound, cql.Create)
    plan = optimize(bound.definition, catalog)
    return row_boxes(wanted_rows(plan)["s"], TYPES)


def groups_of(file: DataFile) -> Any:
    (share,) = cut_parquet(file, STREAM, 0)
    assert isinstance(share.piece, ParquetPiece)
    return share.piece.row_groups(STREAM, set(TYPES))


@settings(max_examples=150, deadline=None)
@given(table=tables(), test=CONDITIONS, writer=st.sampled_from(["arrow", "integers", "duckdb"]), size=st.integers(1, 8))
def test_no_row_is_passed_over(table: pa.Table, test: str, writer: str, size: int) -> None:
    """For any condition: a row group in which it is true of some row may hold it, and all row groups are told of."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.parquet")
        if writer == "duckdb":
            duckdb.from_arrow(table).write_parquet(str(path))
        else:
            parquet.write_table(table, path, row_group_size=size, store_decimal_as_integer=writer == "integers")
        groups = groups_of(DataFile(Place.of(folder), path.name, path.stat().st_size))
        boxes = boxes_of(test)
        if boxes is None:
            return
        may = may_hold(boxes, groups.zones)
        assert len(may) == parquet.ParquetFile(path).num_row_groups == len(groups.numbers)
        at = 0
        for possible, rows in zip(may, groups.rows.tolist(), strict=True):
            part = table.slice(at, rows)
            some = duckdb.from_arrow(part).filter(test).aggregate("count(*)").fetchall()
            assert possible or some == [(0,)]
            at += rows


@pytest.mark.parametrize(
    ("column", "test", "left"),
    [
        ("s", "s = 'b5'", [5]),
        ("s", "s LIKE 'b7%'", [7]),
        ("s", "s IN ('b1', 'b9') OR s < 'b01'", [0, 1, 9]),
        ("day", "day >= DATE '1970-03-02'", [6, 7, 8, 9]),
        ("d", "d BETWEEN 3.5 AND 4.5", [3, 4]),
        ("ok", "ok", [5, 6, 7, 8, 9]),
        ("u", "u > 9223372036854775808", [5, 6, 7, 8, 9]),
        ("u4", "u4 < 1000000000", [0, 1, 2]),
        ("b", "b = 33", [3]),
        ("h", "h > TIME '00:00:08'", [8, 9]),
        ("n", "n IS NULL", [2]),
        ("n", "n IS NOT NULL", [0, 1, 3, 4, 5, 6, 7, 8, 9]),
        ("n", "n > 0", [0, 1, 3, 4, 5, 6, 7, 8, 9]),
        ("w", "w IS NULL", [2]),
        ("k", "k = 'p'", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("k", "k = 'q'", []),
    ],
)
def test_what_is_passed_over(column: str, test: str, left: list[int], tmp_path: Path) -> None:
    """Of ten row groups in the order of a column those stay whose ends a condition meets."""
    numbers = np.arange(100)
    step = numbers // 10
    gap = pa.array([None if s == 2 else 1 for s in step.tolist()], pa.int64())
    sorted_: dict[str, Any] = {
        "s": [f"b{s}" for s in step.tolist()],
        "day": pa.array(numbers.astype(np.int32)).cast(pa.date32()),
        "d": pa.array([Decimal(int(n)) / 10 for n in numbers], pa.decimal128(9, 2)),
        "ok": numbers >= 50,
        "u": numbers.astype(np.uint64) * np.uint64(2**64 // 100),
        "u4": (numbers * (2**32 // 100)).astype(np.uint32),
        "b": numbers.astype(np.int8),
        "h": pa.array(numbers * 100_000, pa.time64("us")),
        "n": gap,
        "w": gap.cast(pa.decimal128(38, 0)),
    }
    columns = {
        c: pa.array(sorted_[c], TYPES[c]) if c in sorted_ and not isinstance(sorted_[c], pa.Array) else sorted_.get(c)
        for c in TYPES if c not in ("ts", "k")
    }  # fmt: skip
    table = pa.table({"ts": numbers, **{c: pa.nulls(100, TYPES[c]) if v is None else v for c, v in columns.items()}})
    (tmp_path / "k=p").mkdir()
    path = tmp_path / "k=p" / "a.parquet"
    parquet.write_table(table, path, row_group_size=10)
    groups = groups_of(DataFile(Place.of(tmp_path), "k=p/a.parquet", path.stat().st_size, (("k", "p"),)))
    assert np.flatnonzero(may_hold(boxes_of(test), groups.zones)).tolist() == left


def test_a_column_of_the_file_counts_before_its_folder(tmp_path: Path) -> None:
    """Where a file has the column that its folder names, the folder says nothing; values that do not fit neither."""
    columns = {c: pa.nulls(1, t) for c, t in TYPES.items() if c != "ts"}
    parquet.write_table(pa.table({"ts": [1], **columns, "K": ["q"]}).drop_columns(["k"]), tmp_path / "a.parquet")
    file = DataFile(Place.of(tmp_path), "a.parquet", (tmp_path / "a.parquet").stat().st_size, (("k", "p"), ("b", "x")))
    (share,) = cut_parquet(file, STREAM, 0)
    assert isinstance(share.piece, ParquetPiece)
    assert share.piece.given(STREAM) == ()
    assert may_hold(boxes_of("k = 'q'"), groups_of(file).zones).tolist() == [True]
    assert said_by_folders(STREAM, (("b", "x"),)) == {}


def test_a_footer_without_statistics_says_nothing(tmp_path: Path) -> None:
    """A column whose ends are not written may have any value; a stream whose times are not, is read."""
    columns = {c: pa.nulls(3, t) for c, t in TYPES.items() if c != "ts"}
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"ts": [1, 2, 3], **columns}), path, write_statistics=["ts"])
    file = DataFile(Place.of(tmp_path), path.name, path.stat().st_size)
    for test in ("s = 'a'", "b = 1", "x > 2", "n IS NOT NULL", "n IS NULL"):
        assert may_hold(boxes_of(test), groups_of(file).zones).tolist() == [True]
    parquet.write_table(pa.table({"ts": [1, 2, 3], **columns}), path, write_statistics=["b"])
    file = DataFile(Place.of(tmp_path), path.name, path.stat().st_size)
    assert groups_of(file).numbers.tolist() == []
