"""Connections to DuckDB compute and reach nothing, and every one in the product comes from one function."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from windrow import scalar_engine
from windrow.scalar_engine import bounded, connect, cursor, project, select

SOURCE = Path(__file__).parents[1] / "src" / "windrow"
OUTSIDE = [
    "SELECT * FROM read_text('{file}')", "SELECT * FROM '{file}'", "SELECT * FROM glob('{file}')",
    "COPY (SELECT 1) TO '{out}'", "ATTACH '{out}' AS evil", "EXPORT DATABASE '{out}'", "INSTALL httpfs", "LOAD httpfs",
    "SET TimeZone = 'Asia/Tokyo'", "SET enable_external_access = true", "SET memory_limit = '1TB'", "RESET threads",
    "SET lock_configuration = false", "SELECT * FROM rows_of_this_test", "SELECT getenv('HOME')",
]  # fmt: skip


@pytest.mark.parametrize("make", [connect, cursor])
@pytest.mark.parametrize("text", OUTSIDE)
def test_a_connection_reaches_nothing(text, make, tmp_path):
    """Files, other databases, extensions, settings, Python variables and the environment are out of reach."""
    rows_of_this_test = pa.table({"a": [1]})
    (tmp_path / "secret.csv").write_text("secret\n")
    with make() as connection, pytest.raises(duckdb.Error):
        connection.execute(text.format(file=tmp_path / "secret.csv", out=tmp_path / "out")).fetchall()
    assert os.listdir(tmp_path) == ["secret.csv"]
    assert rows_of_this_test.num_rows == 1


def test_a_connection_reaches_what_it_is_given(tmp_path):
    """One file, or what lies in one directory."""
    inside, beside = tmp_path / "inside", tmp_path / "inside-not"
    inside.mkdir()
    beside.mkdir()
    (beside / "b.json").write_text('{"a": 1}')
    with connect(directory=str(inside)) as connection:
        connection.execute(f"COPY (SELECT 1 AS a) TO '{inside / 'a.json'}'")
        for path in (beside / "b.json", inside / ".." / "inside-not" / "b.json"):
            with pytest.raises(duckdb.Error):
                connection.execute(f"SELECT * FROM read_json('{path}')").fetchall()
    with connect(file=str(beside / "b.json")) as connection:
        assert connection.execute(f"SELECT * FROM read_json('{beside / 'b.json'}')").fetchall() == [(1,)]
        with pytest.raises(duckdb.Error):
            connection.execute(f"SELECT * FROM read_json('{inside / 'a.json'}')").fetchall()


def test_text_is_one_select():
    """A second statement, or one that is no SELECT, is not run."""
    connection = connect()
    for text in (
        "SELECT 1; SELECT 2",
        "CREATE MACRO abs(x) AS 7",
        "SELECT 1; CREATE MACRO abs(x) AS 7",
        "SET x = 1",
        "",
    ):
        with pytest.raises(duckdb.Error):
            select(connection, text).fetchall()
    for items in ("a; SELECT 2", "a FROM (SELECT 3 AS a) --", "a) , (a", "1 LIMIT 1"):
        with pytest.raises(duckdb.Error):
            project(connection, pa.table({"a": [1]}), items)
    assert select(connection, "SELECT abs(-3)").fetchall() == [(3,)]


def test_what_takes_too_long_is_interrupted(monkeypatch):
    """The call ends with an error, and the next one is not touched."""
    monkeypatch.setattr(scalar_engine, "SECONDS", 0.5)
    monkeypatch.setattr(scalar_engine, "SECONDS_PER_ROW", 0.0)
    connection, start = connect(), time.monotonic()
    with pytest.raises(duckdb.InterruptException) as raised:
        project(
            connection, pa.table({"a": np.arange(10_000_000)}), "list_sum(list_transform(range(999), lambda x: x * a))"
        )
    assert time.monotonic() - start < 20
    assert scalar_engine.reason(raised.value) == "it took too long"
    with bounded(connection):
        assert project(connection, pa.table({"a": [1]}), "a + 1 AS b").column("b").to_pylist() == [2]


def test_every_connection_comes_from_here():
    """No other module opens a DuckDB, but the oracle, and a relation that a program asks for by name."""
    allowed = {"scalar_engine.py", "engine/query.py"}
    opens = re.compile(r"\bduckdb\.connect\b|\bfrom duckdb import\b")
    files = ((str(p.relative_to(SOURCE)), p.read_text(encoding="utf-8")) for p in SOURCE.rglob("*.py"))
    found = {name for name, text in files if opens.search(text)}
    assert {f for f in found if not f.startswith("testing/")} <= allowed
