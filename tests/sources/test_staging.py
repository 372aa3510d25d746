"""Bounded streams staged for tasks: what tasks read of files is what the driver reads of the whole, late rows too."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv, parquet

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.operators.state.zones import Zones
from windrow.sources import read_arrow, read_parquet
from windrow.sources.intake import arrivals
from windrow.sources.staging import StagedRows, Staging, Wish
from windrow.sources.tabular import described, to_table
from windrow.store.place import Place

COLUMNS = {"ts": pa.int64(), "x": pa.int64()}
FORMS = ("parquet", "arrow", "csv")


def stream(within: int | None = None) -> StreamDef:
    return StreamDef("s", COLUMNS, "ts", slack=within or 0, within=within is not None)


def write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=3)
    elif path.suffix == ".csv":
        csv.write_csv(table, path)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=3)


def staging(place: str) -> Staging:
    return Staging(Place.of(place), lambda work, values: [work(v) for v in values])


def read(
    rows: StagedRows, definition: StreamDef, cuts: list[int], tasks: int, columns: Sequence[str] = ("x", "ts")
) -> list[tuple[int, int | None]]:
    """All rows, tick by tick, in the order of their times; ties as they come."""
    found: list[tuple[int, int | None]] = []
    before = None
    for frontier in [*sorted(cuts), 10**9]:
        pieces = list(rows.between(before, frontier, tasks))
        batches = [b for p in pieces for b in p.read(definition, columns)]
        tick = [(r["ts"], r.get("x")) for b in batches for r in b.to_pylist()]
        found += sorted(tick, key=lambda r: r[0])
        before = frontier
    return found


def first_half(zones: Zones) -> np.ndarray:
    """Of which row groups x may be below 500."""
    low = zones.spans["x"].low
    return np.array([value is not None and value < 500 for value in low])


WISHES = {
    "all": Wish(),
    "times": Wish(()),
    "some": Wish(("x",), first_half),
}


@settings(max_examples=100, deadline=None)
@given(
    ts=st.lists(st.lists(st.integers(0, 30), max_size=12), min_size=1, max_size=4),
    sorted_=st.booleans(),
    within=st.none() | st.integers(1, 8),
    until=st.none() | st.integers(0, 30),
    form=st.sampled_from(FORMS),
    cuts=st.lists(st.integers(0, 30), max_size=3),
    tasks=st.integers(1, 3),
    wish=st.sampled_from(sorted(WISHES)),
    quarantine=st.booleans(),
)
def test_staged_files_are_the_whole(
    ts: list[list[int]],
    sorted_: bool,
    within: int | None,
    until: int | None,
    form: str,
    cuts: list[int],
    tasks: int,
    wish: str,
    quarantine: bool,
) -> None:
    """For any files, slack, cuts and wishes: the rows in time order, ties in order of arrival, and the late rows whole.

    Row groups in which nobody wants a row may be missing, but for their times.
    """
    definition = replace(stream(within), quarantine=quarantine)
    numbers = iter(range(0, 100_000, 11))
    ts = [sorted(t) if sorted_ else t for t in ts]
    tables = [
        pa.table({"ts": pa.array(t, pa.int64()), "x": pa.array([next(numbers) for _ in t], pa.int64())}) for t in ts
    ]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_parquet, "PIECE_BYTES", 100)
        patch.setattr(read_arrow, "PIECE_BYTES", 100)
        os.mkdir(f"{folder}/in")
        for n, table in enumerate(tables):
            write(table, Path(folder, "in", f"{n}.{form}"))
        wanted = arrivals(definition, to_table(f"{folder}/in", "s", COLUMNS), until)
        rows = list(zip(wanted.ts.tolist(), wanted.rows["x"].to_pylist(), strict=True))
        got = staging(f"{folder}/staged").path(definition, f"{folder}/in", until, WISHES[wish])
        if wish == "times":
            assert read(got, definition, cuts, tasks, ["ts"]) == [(t, None) for t, _ in rows]
        else:
            found = read(got, definition, cuts, tasks)
            assert [r for r in rows if r in set(found) or (wish == "some" and r[1] >= 500)] == rows
            assert [r for r in rows if r in set(found)] == found
        assert got.ts.tolist() == wanted.ts.tolist()
        assert got.late.to_pylist() == wanted.late.to_pylist()


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_typed_files_in_order_are_read_where_they_lie(form: str, tmp_path: Path) -> None:
    """Though they overlap in time; each is read whole by one tick if ticks end where one begins, and only as wished."""
    (tmp_path / "in").mkdir()
    for n in range(4):
        write(pa.table({"ts": [n, n + 2, n + 4], "x": [1, 2, 3]}), tmp_path / "in" / f"{n}.{form}")
    got = staging(str(tmp_path / "staged")).path(stream(4), str(tmp_path / "in"), None, Wish(("x",)))
    assert all(p.direct for p in got.parts)
    assert {type(p).__name__ for p in got.between(1, 3, 2)} == {"PartRange"}
    assert got.edges.tolist() == [0, 1, 2, 3]
    copies = [pa.ipc.open_file(file) for file in (tmp_path / "staged").iterdir()]
    assert [copy.schema.names for copy in copies] == [[" times"]] * 4
    assert read(got, stream(), [], 1) == sorted(
        [(n + 2 * i, i + 1) for n in range(4) for i in range(3)], key=lambda r: (r[0], -r[1])
    )
    late = staging(str(tmp_path / "late")).path(stream(1), str(tmp_path / "in"), None, Wish(()))
    assert [p.direct for p in late.parts] == [True, False, False, False]
    assert late.late.to_pylist() == [{"ts": n, "x": 1} for n in (1, 2, 3)]


def test_values_that_nobody_reads_must_fit(tmp_path: Path) -> None:
    """A column of another type than is declared is looked at, whoever reads it."""
    parquet.write_table(pa.table({"ts": [1, 2], "x": ["5", "many"]}), tmp_path / "a.parquet")
    for wish in WISHES.values():
        with pytest.raises(SourceError, match="column \"x\", row 2: 'many' is not BIGINT"):
            staging(str(tmp_path / "staged")).path(stream(), str(tmp_path / "a.parquet"), None, wish)
    parquet.write_table(pa.table({"ts": [1, 2], "x": ["5", "7"]}), tmp_path / "a.parquet")
    got = staging(str(tmp_path / "staged")).path(stream(), str(tmp_path / "a.parquet"), None)
    assert read(got, stream(), [], 1) == [(1, 5), (2, 7)]


def test_a_table_is_mapped_in_ranges(tmp_path: Path) -> None:
    """Rows that the driver has are written once; a tick's pieces are ranges of them across batches."""
    rows = 200_000
    table = pa.table({"ts": np.arange(rows), "x": np.arange(rows) * 2})
    got = staging(str(tmp_path)).table(stream(), arrivals(stream(), table))
    pieces = list(got.between(60_000, 140_000, 3))
    assert [(p.low, p.high) for p in pieces] == [(60_001, 86_668), (86_668, 113_335), (113_335, 140_001)]
    read = pa.concat_tables([pa.Table.from_batches(p.read(stream(), None)) for p in pieces])
    assert read.equals(table.slice(60_001, 80_000)) and os.listdir(tmp_path) == ["s.arrow"]


@pytest.mark.parametrize("form", FORMS)
def test_a_column_that_some_files_lack(form: str, tmp_path: Path) -> None:
    """It is refused by file and column, as live, whoever reads; one that was added later is null there."""
    (tmp_path / "in").mkdir()
    write(pa.table({"ts": [1]}), tmp_path / "in" / f"a.{form}")
    write(pa.table({"ts": [2], "x": [5]}), tmp_path / "in" / f"b.{form}")
    for data in (str(tmp_path / "in"), str(tmp_path / "in" / f"a.{form}")):
        with pytest.raises(SourceError, match=f'a.{form} has no column "x"'):
            staging(str(tmp_path / "staged")).path(stream(), data, None)
        with pytest.raises(SourceError, match=f'a.{form} has no column "x"'):
            to_table(data, "s", COLUMNS)
    later = replace(stream(), added=("x",))
    got = staging(str(tmp_path / "staged")).path(later, str(tmp_path / "in"), None)
    assert read(got, later, [], 1) == [(1, None), (2, 5)]
    assert to_table(str(tmp_path / "in"), "s", COLUMNS, later.added)["x"].to_pylist() == [None, 5]


def test_a_key_that_some_files_lack_is_null_there(tmp_path: Path) -> None:
    """In JSON a missing key is null, as live; one that no file has is refused."""
    (tmp_path / "a.json").write_text('{"ts": 1}\n')
    for reads in (
        lambda: to_table(str(tmp_path), "s", COLUMNS)["x"].to_pylist(),
        lambda: [
            x for _, x in read(staging(f"{tmp_path}.staged").path(stream(), str(tmp_path), None), stream(), [], 1)
        ],
    ):
        (tmp_path / "b.json").unlink(missing_ok=True)
        with pytest.raises(SourceError, match='no column "x"'):
            reads()
        (tmp_path / "b.json").write_text('{"ts": 2, "x": 5}\n')
        assert reads() == [None, 5]


@pytest.mark.parametrize("form", FORMS)
def test_columns_are_told_as_the_rows_tell_them(tmp_path: Path, form: str) -> None:
    """What a stream is declared from without reading its rows has the columns that reading them gives."""
    table = pa.table({"ts": [1, 2], "s": pa.array(["a", "b"]).dictionary_encode(), "n": pa.nulls(2)})
    table = table.drop_columns(["s", "n"]) if form == "csv" else table
    for name in ("a", "b"):
        write(table, tmp_path / f"{name}.{form}")
    told = described(str(tmp_path), "s")
    assert told.schema.equals(to_table(str(tmp_path), "s").schema)
    assert form == "csv" or told.num_rows == 0
