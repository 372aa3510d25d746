"""Archives, and rows that were set aside, over the API."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from windrow.engine import Engine

MADE = """
    CREATE ARCHIVE recent AS SELECT auction, price FROM bid [RANGE 100] KEY auction, price EVERY 10 PARTITIONS 2 x 2;
"""


@pytest.fixture
def archived(engine: Engine, reader: httpx.Client) -> httpx.Client:
    """A reader of an archive that has had an update, with a row that waits for the next one."""
    engine.execute(MADE)
    engine.push("bid", {"ts": [1, 2, 3, 12, 13], "auction": [*"abac", "d"], "price": [10, 20, 30, 40, 50]})
    return reader


def test_what_archives_there_are(archived: httpx.Client) -> None:
    """A line says what an archive is for, when it was updated, what waits, and what every sub-index holds."""
    (line,) = archived.get("/api/archives").json()
    assert (line["name"], line["keys"], line["every"], line["lifetime"]) == ("recent", ["auction", "price"], 10, 100)
    assert line["clock"] == "tick" and [c["name"] for c in line["columns"]] == ["auction", "price"]
    assert (line["status"]["as_of"], line["status"]["rows"], line["status"]["waiting"]) == (10, 3, 1)
    (layout,) = line["layouts"]
    assert (layout["layout"], layout["insertions"], layout["expirations"]) == ("2 x 2 no rebuild", 2, 2)
    assert sum(layout["rows"]) == 3 and len(layout["rows"]) == len(layout["bytes"]) == 4


def test_probe_and_scan(archived: httpx.Client) -> None:
    """A key, a part of a key, a range with one end or two, and everything; each as of the last update."""

    def found(**asked: object) -> list[list[object]]:
        answered = archived.get("/api/archives/RECENT/probe", params=asked).json()
        assert answered["as_of"] == "10"
        return sorted(answered["rows"])

    assert found(key="a") == [["a", 10], ["a", 30]]
    assert found(key=["a", "30"]) == [["a", 30]]
    assert found(low="b") == [["b", 20]]
    assert found(low=["a", "20"], high="b") == [["a", 30], ["b", 20]]
    assert found(key="z") == []
    everything = archived.get("/api/archives/recent/rows", params={"limit": 2}).json()
    assert everything["total"] == 3 and len(everything["rows"]) == 2


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "probe takes a key"),
        ({"key": "a", "low": "b"}, "probe takes a key"),
        ({"key": ["a", "x"]}, "'x' is no value of the key \"price\""),
        ({"key": ["a", "1", "2"]}, "the key has 2 columns, and 3 values are given"),
    ],
)
def test_a_wrong_probe_says_so(archived: httpx.Client, asked: dict[str, object], said: str) -> None:
    """Neither key nor range, both, a value of another type, too many values: each is told."""
    refused = archived.get("/api/archives/recent/probe", params=asked)
    assert refused.status_code == 400 and said in refused.json()["error"]["message"]


def test_an_archive_that_is_not_there(reader: httpx.Client, engine: Engine) -> None:
    """An unknown archive is 404; one without an update says what it waits for."""
    engine.execute(MADE)
    for what in ("rows", "probe?key=1"):
        assert reader.get(f"/api/archives/nobody/{what}").status_code == 404
    waiting = reader.get("/api/archives/recent/rows")
    assert waiting.status_code == 503 and "no update yet" in waiting.json()["error"]["message"]
    assert reader.get("/api/archives").json()[0]["layouts"] == []


def test_a_script_with_an_archive_is_checked(reader: httpx.Client) -> None:
    """An editor gets the plan of an archive, and the reason where it cannot be one."""
    (found,) = reader.post("/api/check", json={"script": MADE}).json()
    assert (found["statement"], found["name"]) == ("archive", "recent") and found["plan"]["plan"]["operator"]
    wrong = reader.post("/api/check", json={"script": MADE.replace("price FROM", "COUNT(*) FROM")})
    assert wrong.status_code == 400


def test_quarantine(tmp_path: Path, engine: Engine, reader: httpx.Client) -> None:
    """What of a stream cannot be read is listed with its file, position and reason, and counted."""
    assert reader.get("/api/streams/bid/quarantine").json()["rows"] == []
    (tmp_path / "one.csv").write_text("ts,v\n1,5\n2,five\n3,7\n")
    engine.execute(
        f"CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts ON ERROR QUARANTINE FROM csv (path => '{tmp_path}');"
        "CREATE QUERY q AS SELECT v FROM s [RANGE 5]"
    )
    engine.drain()
    answered = reader.get("/api/streams/s/quarantine").json()
    (row,) = (dict(zip([c["name"] for c in answered["columns"]], r, strict=True)) for r in answered["rows"])
    assert row["file"].endswith("one.csv") and row["position"] == "line 3" and "five" in row["reason"] + row["text"]
    assert reader.get("/api/status").json()["streams"]["s"]["quarantined"] == 1
    assert reader.get("/api/streams/nobody/quarantine").status_code == 404
