"""The page of first steps leads to an answer in a server."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from tests.docs.test_examples import ROOT, blocks

from windrow.cli.serve import declare
from windrow.engine import Engine
from windrow.server.access import Right, Tokens
from windrow.server.process import Address, Server


def test_the_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows and its script, as they are on the page, give the answer that the page speaks of."""
    monkeypatch.chdir(tmp_path)
    texts = {b.words[0]: b.text for b in blocks(ROOT / "docs" / "first-steps.md") if b.words[1:] == ("first-steps",)}
    exec(compile(texts["python"], "first-steps", "exec"), {})
    token = "a-token-for-the-walk"
    with (
        Engine(runtime="local", home="state") as engine,
        Server(engine, Tokens({token: Right.ADMIN}), Address(port=0)) as server,
        httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {token}"}, timeout=60) as client,
    ):
        declare(engine, texts["cql"])
        engine.start()
        engine.drain()
        shown = client.get("/api/queries/warm/snapshot").json()
        assert [c["name"] for c in shown["columns"]] == ["_ts", "sensor", "mean", "high"]
        assert sorted(r[1] for r in shown["rows"]) == ["cellar", "kitchen", "roof"]
        asked = {"query": "SELECT sensor, COUNT(*) AS n FROM reading [RANGE 10 MINUTES] GROUP BY sensor"}
        assert all(n > 280 for _, n in client.post("/api/ask", json=asked).json()["rows"])


def test_the_script_starts_again(tmp_path, monkeypatch, capsys) -> None:
    """After a restart the script of the page changes nothing, nor one with everything that a script may declare."""
    monkeypatch.chdir(tmp_path)
    texts = {b.words[0]: b.text for b in blocks(ROOT / "docs" / "first-steps.md") if b.words[1:] == ("first-steps",)}
    exec(compile(texts["python"], "first-steps", "exec"), {})
    more = """
        -- by sensor; with a semicolon
        CREATE FUNCTION fahrenheit(c DOUBLE) AS c * 9 / 5 + 32; -- and one here
        CREATE VIEW hot AS SELECT sensor, fahrenheit(celsius) AS f FROM reading [RANGE 1 MINUTE] WHERE celsius > 30;
        CREATE OR REPLACE QUERY hottest AS SELECT MAX(f) AS f FROM hot;
        CREATE SINK board FOR hottest TO memory;
        CREATE TEMPLATE of (name VARCHAR) AS
            SELECT AVG(celsius) AS c FROM reading [RANGE 1 MINUTE] WHERE sensor = $name;
        CREATE QUERIES means FROM TEMPLATE of VALUES ('roof');
        CREATE ARCHIVE kept AS SELECT sensor, celsius FROM reading [RANGE 1 HOUR] KEY sensor EVERY '10 minutes';
        SELECT COUNT(*) AS n FROM reading [RANGE 1 MINUTE]
    """
    counts: list[int] = []
    for _ in range(3):
        with Engine(runtime="local", home="state") as engine:
            declare(engine, texts["cql"] + more)
            engine.start()
            engine.drain()
            taken = engine.ask("SELECT COUNT(*) AS n FROM reading [RANGE 10 MINUTES]")["n"].to_pylist()
            assert taken == (counts[:1] or taken)
            counts += taken
            assert sorted(engine.catalog.queries) == ["hottest", "q3", "warm"]
    assert "warning" not in capsys.readouterr().err
    changed = texts["cql"].replace("1 MINUTE", "2 MINUTES").replace("WITHIN 5", "WITHIN 9")
    with Engine(runtime="local", home="state") as engine:
        declare(engine, changed)
        assert "[RANGE 1 MINUTE" in engine["warm"].plan.text
    told = capsys.readouterr().err
    assert "another reading than the home" in told and "another warm than the home" in told
