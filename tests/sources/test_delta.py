"""Rows of a Delta table as a stream: every row that a commit adds, once, whatever the polls and restarts."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import windrow
from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.sources.protocol import open_source
from windrow.store.place import Place

deltalake = pytest.importorskip("deltalake", reason="the extra `delta` is not installed")

COLUMNS = {"ts": pa.int64(), "k": pa.string(), "v": pa.float64()}


def declared(path: Path, **options: str) -> StreamDef:
    """The stream of a table."""
    return StreamDef("s", COLUMNS, "ts", options={"source": "delta", "path": str(path), **options})


def rows(first: int, count: int) -> pa.Table:
    """So many rows."""
    numbers = range(first, first + count)
    return pa.table({"ts": list(numbers), "k": [f"k {n % 3}" for n in numbers], "v": [n / 2 for n in numbers]})


def commit(path: Path, table: pa.Table, **options: Any) -> None:
    """One more version."""
    deltalake.write_deltalake(str(path), table, mode="append", **options)


def read(found: Any, stream: StreamDef) -> list[dict[str, Any]]:
    """The rows of all pieces, each read as a task would: after a trip through pickle."""
    pieces = [pickle.loads(pickle.dumps(p)) for p in found.pieces]
    return [r for p in pieces for b in p.read(stream, None) for r in b.to_pylist()]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    plan=st.lists(st.sampled_from(["commit", "poll", "restart", "optimize"]), min_size=3, max_size=10),
    max_files=st.integers(1, 3),
    parted=st.booleans(),
)
def test_every_row_once(tmp_path_factory: Any, plan: list[str], max_files: int, parted: bool) -> None:
    """Commits, polls, restarts without a commit of the offset, and rewritten files, in any order."""
    path = tmp_path_factory.mktemp("delta") / "t"
    options: dict[str, Any] = {"partition_by": ["k"]} if parted else {}
    commit(path, rows(0, 5), **options)
    made, stream = 5, declared(path, max_files=str(max_files))
    source, offset, seen = open_source(stream, Place.of(path.parent / "spool")), None, []
    for step in [*plan, "end"]:
        if step == "commit":
            commit(path, rows(made, 4), **options)
            made += 4
        elif step == "optimize":
            deltalake.DeltaTable(str(path)).optimize.compact()
        elif step == "restart":
            source.poll(offset)  # taken, but never committed
            source = open_source(stream, Place.of(path.parent / "spool"))
        while (found := source.poll(offset)) is not None:
            seen += read(found, stream)
            offset = json.loads(json.dumps(found.offset))
            source.committed(offset)
            if step == "poll":
                break
        if step != "poll":
            assert source.drained(offset)
    assert sorted(r["ts"] for r in seen) == list(range(made))
    assert {r["ts"]: r for r in seen} == {r["ts"]: r for r in rows(0, made).to_pylist()}


def test_columns_that_are_younger_than_a_file(tmp_path: Path) -> None:
    """They are null there, as Delta has it."""
    commit(tmp_path / "t", rows(0, 2).drop_columns("v"))
    commit(tmp_path / "t", rows(2, 2), schema_mode="merge")
    stream = declared(tmp_path / "t")
    found = open_source(stream, Place.of(tmp_path / "spool")).poll(None)
    assert sorted((r["ts"], r["v"]) for r in read(found, stream)) == [(0, None), (1, None), (2, 1.0), (3, 1.5)]


def test_where_it_starts(tmp_path: Path) -> None:
    """With the whole table, with a version, or with the next commit."""
    path = tmp_path / "t"
    for n in range(3):
        commit(path, rows(n, 1))
    for start, wanted in ((None, [0, 1, 2, 3]), ("1", [1, 2, 3, 4]), ("latest", [5])):
        stream = declared(path, **({"startingVersion": start} if start else {}))
        source, seen, offset = open_source(stream, Place.of(tmp_path / "spool")), [], None
        for more in (False, True):
            if more:
                commit(path, rows(wanted[-1], 1))
            while (found := source.poll(offset)) is not None:
                seen += [r["ts"] for r in read(found, stream)]
                offset = found.offset
        assert seen == wanted


def test_rows_that_go(tmp_path: Path) -> None:
    """A stream cannot take rows back: it says so, or goes on as it is told to."""
    path = tmp_path / "t"
    commit(path, rows(0, 4))
    source = open_source(declared(path), Place.of(tmp_path / "spool"))
    offset = source.poll(None).offset  # type: ignore[union-attr]
    deltalake.DeltaTable(str(path)).delete("ts = 1")
    with pytest.raises(SourceError, match=r"version 1 of the Delta table .* changes rows"):
        source.poll(offset)
    lenient = open_source(declared(path, ignoreChanges="true"), Place.of(tmp_path / "spool"))
    found = lenient.poll(offset)
    assert [r["ts"] for r in read(found, declared(path))] == [0, 2, 3]
    deltalake.DeltaTable(str(path)).delete()
    with pytest.raises(SourceError, match="deletes rows"):
        source.poll({"version": 2, "files": 0, "first": False})
    for options, message in (
        ({"startingVersion": "soon"}, "startingVersion"),
        ({"mergeSchema": "true"}, "mergeschema"),
    ):
        with pytest.raises(SourceError, match=message):
            open_source(declared(path, **options), Place.of(tmp_path / "spool"))
    with pytest.raises(SourceError, match="nowhere"):
        open_source(declared(tmp_path / "nowhere"), Place.of(tmp_path / "spool"))


def test_from_table_to_table(tmp_path: Path) -> None:
    """A stream from one Delta table, its answer in another, across a restart of the engine."""
    commit(tmp_path / "in", rows(0, 10))
    for life in range(2):
        with windrow.Engine(runtime="local", home=str(tmp_path / "home")) as engine:
            if not life:
                engine.execute(
                    "CREATE STREAM s (ts BIGINT, k VARCHAR, v DOUBLE) TIMESTAMP BY ts"
                    f" FROM delta (path => '{tmp_path / 'in'}');"
                    "CREATE QUERY q AS SELECT ISTREAM(k, v) FROM s [RANGE 5] WHERE v > 1;"
                )
            engine.sink("q", "delta", path=str(tmp_path / "out"))
            engine.start()
            commit(tmp_path / "in", rows(10 * (life + 1), 10))
            engine.drain()
    found = pa.table(deltalake.DeltaTable(str(tmp_path / "out")).to_pyarrow_table())
    assert sorted(found["v"].to_pylist()) == [n / 2 for n in range(3, 29)]  # time has passed 28
