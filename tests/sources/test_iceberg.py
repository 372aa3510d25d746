"""Rows of an Iceberg table as a stream: every row that a snapshot adds, once, whatever the polls and restarts."""

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

pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")

from pyiceberg.catalog import load_catalog

COLUMNS = {"ts": pa.int64(), "k": pa.string(), "v": pa.float64()}


def lake(path: Path) -> dict[str, str]:
    """The options of a catalog in a folder."""
    return {"uri": f"sqlite:///{path / 'catalog.db'}", "warehouse": f"file://{path / 'lake'}"}


def declared(path: Path, **options: str) -> StreamDef:
    """The stream of a table."""
    return StreamDef("s", COLUMNS, "ts", options={"source": "iceberg", "table": "a.t", **lake(path), **options})


def rows(first: int, count: int) -> pa.Table:
    """So many rows."""
    numbers = range(first, first + count)
    return pa.table({"ts": list(numbers), "k": [f"k {n % 3}" for n in numbers], "v": [n / 2 for n in numbers]})


def made(path: Path, columns: pa.Schema | None = None) -> Any:
    """An empty table."""
    catalog = load_catalog("default", **lake(path))
    catalog.create_namespace("a")
    return catalog.create_table("a.t", columns or rows(0, 1).schema)


def read(found: Any, stream: StreamDef) -> list[dict[str, Any]]:
    """The rows of all pieces, each read as a task would: after a trip through pickle."""
    pieces = [pickle.loads(pickle.dumps(p)) for p in found.pieces]
    return [r for p in pieces for b in p.read(stream, None) for r in b.to_pylist()]


def opened(stream: StreamDef, path: Path) -> Any:
    """The source of a stream."""
    return open_source(stream, Place.of(path / "spool"))


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    plan=st.lists(st.sampled_from(["commit", "poll", "restart"]), min_size=3, max_size=8),
    max_files=st.integers(1, 3),
    parted=st.booleans(),
)
def test_every_row_once(tmp_path_factory: Any, plan: list[str], max_files: int, parted: bool) -> None:
    """Commits, polls, and restarts without a commit of the offset, in any order; with partitions or without."""
    path = tmp_path_factory.mktemp("iceberg")
    table, count = made(path), 0
    if parted:
        table.update_spec().add_identity("k").commit()
    stream = declared(path, max_files=str(max_files))
    source, offset, seen = opened(stream, path), None, []
    for step in [*plan, "end"]:
        if step == "commit":
            table.append(rows(count, 4))
            count += 4
        elif step == "restart":
            source.poll(offset)  # taken, but never committed
            source = opened(stream, path)
        while (found := source.poll(offset)) is not None:
            seen += read(found, stream)
            offset = json.loads(json.dumps(found.offset))
            source.committed(offset)
            if step == "poll":
                break
        if step != "poll":
            assert source.drained(offset)
    assert sorted(seen, key=lambda r: r["ts"]) == rows(0, count).to_pylist()


def test_where_it_starts(tmp_path: Path) -> None:
    """With the whole table, with a version, or with the next snapshot."""
    table = made(tmp_path)
    for n in range(3):
        table.append(rows(n, 1))
    for start, wanted in ((None, [0, 1, 2, 3]), ("2", [1, 2, 3, 4]), ("latest", [5])):
        stream = declared(tmp_path, **({"startingVersion": start} if start else {}))
        source, seen, offset = opened(stream, tmp_path), [], None
        for more in (False, True):
            if more:
                table.append(rows(wanted[-1], 1))
            while (found := source.poll(offset)) is not None:
                seen += [r["ts"] for r in read(found, stream)]
                offset = found.offset
        assert seen == wanted


def test_rows_that_go(tmp_path: Path) -> None:
    """A stream cannot take rows back: it says so, or goes on as it is told to."""
    table = made(tmp_path)
    table.append(rows(0, 4))
    source = opened(declared(tmp_path), tmp_path)
    offset = source.poll(None).offset
    table.delete("ts = 1")
    with pytest.raises(SourceError, match=r"version 2 of the Iceberg table a.t changes rows"):
        source.poll(offset)
    lenient = opened(declared(tmp_path, ignoreChanges="true"), tmp_path).poll(offset)
    assert [r["ts"] for r in read(lenient, declared(tmp_path))] == [0, 2, 3]
    table.delete("true")
    with pytest.raises(SourceError, match="deletes rows"):
        source.poll({"version": 3, "files": 0, "first": False})


def test_snapshots_that_are_gone(tmp_path: Path) -> None:
    """One that has expired is an error; one that was rolled back brings nothing, and the next one counts."""
    table = made(tmp_path)
    for n in range(3):
        table.append(rows(n, 1))
    first, second, _ = table.snapshots()
    with table.manage_snapshots() as manage:
        manage.rollback_to_snapshot(second.snapshot_id)
    table.append(rows(9, 1))
    source = opened(declared(tmp_path, startingVersion="2"), tmp_path)
    assert [r["ts"] for r in read(source.poll(None), declared(tmp_path))] == [1, 9]
    table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    with pytest.raises(SourceError, match=r"version 1 of the Iceberg table a.t has expired"):
        opened(declared(tmp_path, startingVersion="1"), tmp_path).poll(None)


def test_columns_that_come_and_are_renamed(tmp_path: Path) -> None:
    """A younger column is null in older files; one that was renamed is refused."""
    table = made(tmp_path, rows(0, 1).drop_columns("v").schema)
    table.append(rows(0, 2).drop_columns("v"))
    with table.update_schema() as update:
        update.union_by_name(rows(0, 1).schema)
    table.append(rows(2, 2))
    found = opened(declared(tmp_path), tmp_path).poll(None)
    assert sorted((r["ts"], r["v"]) for r in read(found, declared(tmp_path))) == [
        (0, None),
        (1, None),
        (2, 1),
        (3, 1.5),
    ]
    with table.update_schema() as update:
        update.rename_column("v", "w")
    with pytest.raises(SourceError, match='has renamed column "v"'):
        opened(declared(tmp_path), tmp_path)
    for options, message in (({"startingVersion": "soon"}, "startingVersion"), ({"table": "a.nothing"}, "a.nothing")):
        with pytest.raises(SourceError, match=message):
            opened(declared(tmp_path, **options), tmp_path)


def test_from_table_to_table(tmp_path: Path) -> None:
    """A stream from one Iceberg table, its answer in another, across a restart of the engine."""
    table = made(tmp_path)
    table.append(rows(0, 10))
    at = ", ".join(f"{k} => '{v}'" for k, v in lake(tmp_path).items())
    for life in range(2):
        with windrow.Engine(runtime="local", home=str(tmp_path / "home")) as engine:
            if not life:
                engine.execute(
                    "CREATE STREAM s (ts BIGINT, k VARCHAR, v DOUBLE) TIMESTAMP BY ts"
                    f" FROM iceberg (table => 'a.t', {at});"
                    "CREATE QUERY q AS SELECT ISTREAM(k, v) FROM s [RANGE 5] WHERE v > 1;"
                    f"CREATE SINK kept FOR q TO iceberg (table => 'a.out', {at});"
                )
            engine.start()
            table.append(rows(10 * (life + 1), 10))
            engine.drain()
    found = load_catalog("default", **lake(tmp_path)).load_table("a.out").scan().to_arrow()
    assert sorted(found["v"].to_pylist()) == [n / 2 for n in range(3, 29)]  # time has passed 28
