"""Names are data: whatever a stream, table or query is called, its files stay under home and where sinks were told."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windrow

EVIL = ["../../evil", "..", "a/b", "%2e%2e", ".hidden", "nul\u0001l", "Ümläut 'quoted'", "x" * 80]
EVIL += [
    "x" * 300,
    "ü" * 100,
    "\ue000" * 60,
    "trailing. . ",
    "con",
    "~root",
    "a\\b",
    "%00",
    "a\u202eb",
    "-rf *",
    "$HOME `id`",
]


@pytest.mark.parametrize("name", EVIL)
def test_nothing_is_written_outside(name: str, tmp_path: Path) -> None:
    """A stream, a table and a query of that name: state, late rows, spools and answers lie where they should."""
    room = tmp_path / "deep" / "room"
    room.mkdir(parents=True)
    quoted = '"' + name + '"'
    with windrow.Engine("local", home=room / "home") as engine:
        engine.execute(f"CREATE STREAM {quoted} (a BIGINT, ts BIGINT) TIMESTAMP BY ts RETAIN 9")
        engine.push(name, {"a": [1], "ts": [1]})  # before the start: it waits in the home
        engine.execute(f'CREATE QUERY "{name}q" AS SELECT a FROM {quoted} [RANGE 5]')
        engine.table(f"{name}t", pa.table({"k": [1]}))
        engine.sink(f"{name}q", "parquet", path=str(room / "out"))
        engine.start()
        engine.push(name, {"a": [2, 3], "ts": [7, 20]})
        engine.push(name, {"a": [9], "ts": [2]})
        assert engine.late(name).num_rows == 1
    assert {p.name for p in tmp_path.iterdir()} == {"deep"}
    assert {p.name for p in (tmp_path / "deep").iterdir()} == {"room"}
    assert {p.name for p in room.iterdir()} == {"home", "out"}
    (folder,) = (room / "out").iterdir()
    assert pq.read_table(folder).num_rows
    with windrow.Engine("local", home=room / "home") as engine:
        assert engine.late(name).num_rows == 1
        assert f"{name}q" in engine
