"""Every sink has a place for the frontier of the tick whose answer it takes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from rich.console import Console

import windrow
from windrow.sinks.directory import DirectorySink
from windrow.sinks.terminal import TerminalSink

SCRIPT = """
    CREATE STREAM s (ts BIGINT, k VARCHAR) TIMESTAMP BY ts;
    CREATE QUERY sums AS SELECT k, COUNT(*) AS n FROM s [RANGE 5] GROUP BY k;
"""


def at(frontier: int, **columns: list[Any]) -> pa.Table:
    """An answer that is exact for a frontier."""
    return pa.table(columns).replace_schema_metadata({"windrow.as_of": str(frontier)})


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_directories(tmp_path: Path, kind: str) -> None:
    """In each file of Parquet, and beside those of JSON; written at once or by tasks."""
    sink = DirectorySink(tmp_path, kind)
    sink.write("q", 1, at(3, _ts=[1]))
    sink.publish("q", 2, [sink.write_part("q", 2, i, at(7, _ts=[5 + i])) for i in range(2)])
    if kind == "json":
        assert json.loads((tmp_path / "q" / "_as_of").read_text()) == {"tick": 2, "as_of": 7}
        return
    said = [parquet.read_schema(p).metadata[b"windrow.as_of"] for p in sorted((tmp_path / "q").glob("*.parquet"))]
    assert said == [b"3", b"7", b"7"]


def test_the_terminal() -> None:
    """In the title."""
    out = io.StringIO()
    TerminalSink(console=Console(file=out, width=80)).write("q", 1, at(42, _ts=[1]))
    assert "q, tick 1, as of 42" in " ".join(out.getvalue().split())


def test_delta(tmp_path: Path) -> None:
    """In the metadata of each commit: rows that are appended, files that tasks wrote, and a relation."""
    deltalake = pytest.importorskip("deltalake")
    from windrow.sinks.delta import DeltaRelationSink, DeltaSink

    sink = DeltaSink(str(tmp_path / "a"), owner="h")
    sink.write("q", 1, at(3, _ts=[1]))
    sink.publish("q", 2, [sink.write_part("q", 2, i, at(7, _ts=[5 + i])) for i in range(2)])
    relation = DeltaRelationSink(str(tmp_path / "r"), ["k"], owner="h")
    relation.fill("q", 1, at(3, k=["a"], n=[1]))
    relation.write("q", 2, at(7, _ts=[5, 5], _op=[-1, 1], k=["a", "a"], n=[1, 2]))
    for name in ("a", "r"):
        history = deltalake.DeltaTable(str(tmp_path / name)).history()
        assert [h.get("windrow.as_of") for h in history if h["operation"] != "CREATE TABLE"] == ["7", "3"]


def test_iceberg(tmp_path: Path) -> None:
    """In the summary of each snapshot, likewise."""
    pytest.importorskip("pyiceberg")
    from windrow.sinks.iceberg import IcebergRelationSink, IcebergSink
    from windrow.sources.iceberg import load_table, open_catalog

    where = {"catalog": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake"}
    sink = IcebergSink("a.t", where, owner="h")
    sink.write("q", 1, at(3, _ts=[1]))
    sink.publish("q", 2, [sink.write_part("q", 2, i, at(7, _ts=[5 + i])) for i in range(2)])
    relation = IcebergRelationSink("a.r", ["k"], where, owner="h")
    relation.fill("q", 1, at(3, k=["a"], n=[1]))
    relation.write("q", 2, at(7, _ts=[5, 5], _op=[-1, 1], k=["a", "a"], n=[1, 2]))
    relation.write("q", 3, at(9, _ts=[6], _op=[-1], k=["a"], n=[2]))
    for name, said in (("a.t", ["3", "7"]), ("a.r", ["3", "7", "7", "9"])):
        snapshots = load_table(open_catalog(where), name).snapshots()
        assert [s.summary["windrow.as_of"] for s in snapshots] == said


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_postgres(postgres: Any, mode: str) -> None:
    """Beside the number of the tick, in the transaction that brings its rows; a table made without it gets it."""
    import psycopg

    with psycopg.connect(postgres.dsn, autocommit=True) as connection, windrow.Engine(runtime="local") as engine:
        connection.execute("DROP TABLE IF EXISTS windrow_ticks, sums")
        connection.execute(
            "CREATE TABLE windrow_ticks (owner text, query text, tick bigint NOT NULL,"
            " written timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (owner, query))"
        )
        engine.execute(SCRIPT)
        engine.start()
        engine.push("s", {"ts": [1, 2], "k": ["a", "b"]})
        engine.drain()
        engine.sink("sums", "postgres", dsn=postgres.dsn, mode=mode)
        for ts in (5, 8):
            engine.push("s", {"ts": [ts], "k": ["a"]})
            engine.drain()
            frontier = int(engine["sums"].results().schema.metadata[b"windrow.as_of"])
            assert connection.execute("SELECT as_of FROM windrow_ticks").fetchall() == [(frontier,)]
