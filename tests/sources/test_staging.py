"""Bounded streams staged for tasks: what tasks read of files is what the driver reads of the whole, late rows too."""

from __future__ import annotations

import os
import tempfile
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
from windrow.sources.intake import arrivals
from windrow.sources.staging import StagedRows, Staging
from windrow.sources.tabular import described, to_table
from windrow.store.place import Place

COLUMNS = {"ts": pa.int64(), "x": pa.int64()}
FORMS = ("parquet", "arrow", "csv")


def stream(within: int | None = None) -> StreamDef:
    return StreamDef("s", COLUMNS, "ts", within=within)


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


def read(rows: StagedRows, definition: StreamDef, cuts: list[int], tasks: int) -> list[tuple[int, int]]:
    """All rows, tick by tick, in the order of their times; ties as they come."""
    found: list[tuple[int, int]] = []
    before = None
    for frontier in [*sorted(cuts), 10**9]:
        pieces = list(rows.between(before, frontier, tasks))
        batches = [b for p in pieces for b in p.read(definition, ["x", "ts"])]
        tick = [(r["ts"], r["x"]) for b in batches for r in b.to_pylist()]
        found += sorted(tick, key=lambda r: r[0])
        before = frontier
    return found


@settings(max_examples=60, deadline=None)
@given(
    ts=st.lists(st.lists(st.integers(0, 30), max_size=12), min_size=1, max_size=4),
    within=st.none() | st.integers(1, 8),
    until=st.none() | st.integers(0, 30),
    form=st.sampled_from(FORMS),
    cuts=st.lists(st.integers(0, 30), max_size=3),
    tasks=st.integers(1, 3),
)
def test_staged_files_are_the_whole(
    ts: list[list[int]], within: int | None, until: int | None, form: str, cuts: list[int], tasks: int
) -> None:
    """For any files, slack and cuts: the rows in time order, ties in order of arrival, and the late rows."""
    definition = stream(within)
    numbers = iter(range(1000))
    tables = [
        pa.table({"ts": pa.array(t, pa.int64()), "x": pa.array([next(numbers) for _ in t], pa.int64())}) for t in ts
    ]
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/in")
        for n, table in enumerate(tables):
            write(table, Path(folder, "in", f"{n}.{form}"))
        wanted = arrivals(definition, to_table(f"{folder}/in", "s", COLUMNS), until)
        got = staging(f"{folder}/staged").path(definition, f"{folder}/in", until)
        assert read(got, definition, cuts, tasks) == list(
            zip(wanted.ts.tolist(), wanted.rows["x"].to_pylist(), strict=True)
        )
        assert got.ts.tolist() == wanted.ts.tolist()
        assert got.late.to_pylist() == wanted.late.to_pylist()


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
