"""The server in front of an engine on Spark answers as it does in front of one in process."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from windrow.engine import Engine
from windrow.server.access import Right, Tokens
from windrow.server.process import Address, Server

pytestmark = pytest.mark.spark

SCRIPT = """
    CREATE STREAM bid (ts BIGINT, auction VARCHAR, price BIGINT) TIMESTAMP BY ts RETAIN 100;
    CREATE QUERY top AS SELECT auction, MAX(price) AS price FROM bid [RANGE 5] GROUP BY auction;
"""
ADMIN = "the-administrator-s-token"


def test_every_door(spark: Any, tmp_path: Any) -> None:
    """Declarations, rows, changes as they come, snapshots, questions, status and metrics."""
    with (
        Engine(runtime="spark", spark=spark, home=str(tmp_path / "home")) as engine,
        Server(engine, Tokens({ADMIN: Right.ADMIN}), Address(port=0)) as server,
        httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {ADMIN}"}, timeout=60) as client,
    ):
        assert client.post("/api/execute", json={"script": SCRIPT}).status_code == 200
        engine.start()
        with client.stream("GET", "/api/queries/top/changes") as changes:
            lines = changes.iter_lines()
            assert next(x for x in lines if x.startswith("event:")) == "event: begin"
            rows = [{"ts": ts, "auction": "a", "price": 10 * ts} for ts in (1, 2, 7, 9)]
            assert client.post("/api/push/bid", json={"rows": rows}).status_code == 200
            told = next(x for x in lines if x.startswith("data:") and '"rows"' in x)
        assert {tuple(r[-2:]) for r in json.loads(told.removeprefix("data:"))["rows"]} == {
            ("a", 10),
            ("a", 20),
            ("a", 70),
        }
        assert json.loads(told.removeprefix("data:"))["as_of"] == "8"
        shown = client.get("/api/queries/top/snapshot").json()
        assert shown["rows"] == [list(r.values()) for r in engine["top"].snapshot().to_pylist()] != []
        assert shown["as_of"] == client.get("/api/queries/top/results").json()["as_of"] == "8"
        for isolation in ("snapshot", "latest"):
            asked = {"query": "SELECT COUNT(*) AS n FROM bid [RANGE 50]", "isolation": isolation}
            found = client.post("/api/ask", json=asked).json()
            assert (found["rows"], found["as_of"]) == ([[3]], "8")  # time has passed 8
        assert client.get("/api/status").json()["runtime"] == "spark"
        assert client.get("/api/queries/top").json()["plan"]
        assert "windrow_" in client.get("/metrics").text
        wrong = client.post("/api/execute", json={"script": "CREATE QUERY bad AS SELECT nobody FROM bid [RANGE 5]"})
        assert wrong.status_code == 400 and wrong.json()["error"]["column"] > 0
