"""The page of first steps leads to an answer in a server."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

import httpx
from tests.docs.test_examples import ROOT, blocks

from windrow.engine import Engine
from windrow.server.access import Right, Tokens
from windrow.server.process import Address, serving


def test_the_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows and its script, as they are on the page, give the answer that the page speaks of."""
    monkeypatch.chdir(tmp_path)
    texts = {b.words[0]: b.text for b in blocks(ROOT / "docs" / "first-steps.md") if b.words[1:] == ("first-steps",)}
    exec(compile(texts["python"], "first-steps", "exec"), {})
    token = "a-token-for-the-walk"
    with (
        Engine(runtime="local", home="state") as engine,
        serving(engine, Tokens({token: Right.ADMIN}), Address(port=0)) as server,
        httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {token}"}) as client,
    ):
        engine.execute(texts["cql"])
        engine.start()
        engine.drain()
        shown = client.get("/api/queries/warm/snapshot").json()
        assert [c["name"] for c in shown["columns"]] == ["_ts", "sensor", "mean", "high"]
        assert sorted(r[1] for r in shown["rows"]) == ["cellar", "kitchen", "roof"]
        asked = {"query": "SELECT sensor, COUNT(*) AS n FROM reading [RANGE 10 MINUTES] GROUP BY sensor"}
        assert all(n > 280 for _, n in client.post("/api/ask", json=asked).json()["rows"])
