"""The API over a real port: routes, rights, errors, limits."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from tests.waiting import until

from windrow.engine import Engine
from windrow.errors import RuntimeFailure
from windrow.runtime.ask import AskLimits
from windrow.server.access import Right, Tokens
from windrow.server.guard import OPEN, Rates, ServerLimits
from windrow.server.process import Address, Server

ARROW = "application/vnd.apache.arrow.stream"
BIDS = {"rows": [{"ts": 1, "auction": "a", "price": 10}, {"ts": 3, "auction": "b", "price": 20}]}
LATER = {"rows": {"ts": [4, 5], "auction": ["a", "a"], "price": [30, 7]}}


def test_health_is_open(stranger: httpx.Client) -> None:
    """Anyone may ask whether the engine goes on, and learns nothing else."""
    response = stranger.get("/healthz")
    assert (response.status_code, response.json()) == (200, {"ok": True})


def test_a_stranger_gets_nothing_else(stranger: httpx.Client, admin: httpx.Client) -> None:
    """Every other route, known or not, with any method, asks for a token and shows nothing."""
    document = admin.get("/api/openapi.json").json()
    paths = [p.replace("{name}", "top").replace("{stream}", "bid") for p in document["paths"]]
    assert "/api/queries/top/changes" in paths
    for path in [*paths, "/api/openapi.json", "/docs", "/nothing", "/api/../healthz/x"]:
        for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"):
            response = stranger.request(method, path)
            assert response.status_code == 401 or path in OPEN, (method, path)
            assert "bid" not in response.text or path in OPEN
    for token in ("x", "Bearer", "the-administrator-s-toke"):
        assert stranger.get("/api/status", headers={"authorization": f"Bearer {token}"}).status_code == 401
    assert "bid" not in stranger.get("/").text
    assert stranger.get("/?token=wrong").status_code == 200


def test_a_script_an_answer_a_question(admin: httpx.Client) -> None:
    """Rows pushed as JSON come out of snapshots, results and questions."""
    made = "CREATE QUERY least AS SELECT MAX(price) AS least FROM bid [RANGE 5]; EXPLAIN least"
    assert "query least" in admin.post("/api/execute", json={"script": made}).json()["shown"][0]
    assert admin.post("/api/push/bid", json=BIDS).json() == {"rows": 2}
    assert admin.post("/api/push/bid", json=LATER).json() == {"rows": 2}
    snapshot = admin.get("/api/queries/top/snapshot").json()
    assert sorted(snapshot["rows"]) == [["a", 30], ["b", 20]]
    assert [c["name"] for c in snapshot["columns"]] == ["auction", "price"]
    results = admin.get("/api/queries/least/results", params={"limit": 1}).json()
    assert results["total"] > 1 and len(results["rows"]) == 1
    assert results["as_of"] == admin.get("/api/queries/least/snapshot").json()["as_of"]
    asked = admin.post("/api/ask", json={"query": "SELECT COUNT(*) AS n FROM bid [RANGE 100]"}).json()
    assert asked["rows"] == [[3]]
    assert admin.post("/api/ask", json={"query": "SELECT name FROM person WHERE id = 2"}).json()["rows"] == [["bob"]]


def test_show_and_describe(admin: httpx.Client) -> None:
    """What SHOW and DESCRIBE answer comes as columns and rows, among what EXPLAIN says."""
    script = "SHOW TABLES; EXPLAIN top; DESCRIBE bid"
    tables, text, bid = admin.post("/api/execute", json={"script": script}).json()["shown"]
    assert [r[0] for r in tables["rows"]] == ["person"]
    assert text.startswith("query top")
    assert ["time", "ts", "BIGINT"] in bid["rows"]
    assert [c["name"] for c in bid["columns"]] == ["property", "name", "value"]
    checked = admin.post("/api/check", json={"script": script}).json()
    assert [c["statement"] for c in checked] == ["show", "query", "describe"]


def test_arrow_in_and_out(admin: httpx.Client) -> None:
    """A program may speak Arrow both ways."""
    table = pa.table({"ts": [1, 2], "auction": ["a", "b"], "price": [5, 6]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body = sink.getvalue().to_pybytes()
    assert admin.post("/api/push/bid", content=body, headers={"content-type": ARROW}).json() == {"rows": 2}
    asked = admin.post("/api/ask", json={"query": "SELECT * FROM bid [RANGE 50]"}, headers={"accept": ARROW})
    assert pa.ipc.open_stream(asked.content).read_all().to_pylist() == table.slice(0, 1).to_pylist()
    broken = admin.post("/api/push/bid", content=body[:-40] + b"x" * 9, headers={"content-type": ARROW})
    assert broken.status_code == 400 and "Arrow" in broken.json()["error"]["message"]
    assert admin.get("/api/queries/top/snapshot", headers={"accept": "image/png"}).status_code == 406


LONG = (
    "SELECT COUNT(*) AS n FROM bid [RANGE 90] a, bid [RANGE 90] b, bid [RANGE 90] c WHERE a.price + b.price < c.price"
)


def test_questions_have_parameters_and_limits(
    admin: httpx.Client, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values stand for parameters; a question is given up after its time, and when nobody waits for it any more."""
    admin.post("/api/push/bid", json={"rows": {"ts": [1] * 60, "auction": ["a"] * 60, "price": list(range(60))}})
    admin.post("/api/push/bid", json={"rows": {"ts": [9], "auction": ["b"], "price": [1]}})
    asked = {"query": "SELECT COUNT(*) AS n FROM bid [RANGE 90] WHERE price > $p", "parameters": {"p": 49}}
    assert admin.post("/api/ask", json=asked).json()["rows"] == [[10]]
    assert admin.post("/api/ask", json={**asked, "query": asked["query"].replace("$p", "?"), "parameters": [9]}).json()[
        "rows"
    ] == [[50]]
    late = admin.post("/api/ask", json={"query": LONG, "timeout": 0})
    assert late.status_code == 422 and "took longer than 0 s" in late.json()["error"]["message"]
    begun, ended = threading.Event(), threading.Event()
    check = AskLimits.check

    def look(limits: AskLimits) -> None:
        begun.set()
        assert limits.cancel is not None
        limits.cancel.wait(20)  # the asker has gone
        try:
            check(limits)
        except RuntimeFailure:
            ended.set()
            raise

    monkeypatch.setattr(AskLimits, "check", look)
    with pytest.raises(httpx.ReadTimeout):
        admin.post("/api/ask", json={"query": LONG}, timeout=0.5)
    assert begun.is_set() and ended.wait(10)


def test_a_table_told_by_its_changes(admin: httpx.Client, reader: httpx.Client) -> None:
    """Changes are pushed like rows, and the list says how the table is told and how many have come."""
    script = "CREATE TABLE item (id BIGINT, name VARCHAR) KEY (id) CHANGES BY op"
    assert admin.post("/api/execute", json={"script": script}).status_code == 200
    rows = [
        {"op": "c", "id": 1, "name": "vase"},
        {"op": "c", "id": 2, "name": "lamp"},
        {"op": "d", "id": 2, "name": None},
    ]
    assert admin.post("/api/push/item", json={"rows": rows}).json() == {"rows": 3}
    assert reader.get("/api/tables/item/rows").json()["rows"] == [[1, "vase"]]
    item = next(t for t in reader.get("/api/tables").json() if t["name"] == "item")
    assert (item["key"], item["changes"], item["rows"]) == (["id"], "CHANGES BY op", 1)
    assert item["status"]["changes"] == 3
    bad = admin.post("/api/push/item", json={"rows": [{"op": "?", "id": 1, "name": ""}]})
    assert bad.status_code == 400 and "unknown operation" in bad.json()["error"]["message"]


def test_what_is_declared(admin: httpx.Client, reader: httpx.Client, engine: Engine) -> None:
    """Streams, tables and queries are listed with what the console shows of them."""
    assert [s["name"] for s in reader.get("/api/streams").json()] == ["bid"]
    assert [t["name"] for t in reader.get("/api/tables").json()] == ["person"]
    assert {q["name"]: q["pattern"] for q in reader.get("/api/queries").json()}.keys() == {"top", "counts"}
    query = reader.get("/api/queries/TOP").json()
    assert query["text"].startswith("CREATE QUERY top AS") and query["plan"]["plan"]["operator"]
    assert query["relation"] and query["streams"] == ["bid"] and "query top" in query["explain"]
    admin.post("/api/push/bid", json=LATER)
    assert reader.get("/api/streams/bid/rows").json()["rows"] == [[4, "a", 30]]
    admin.post("/api/push/bid", json=BIDS)
    assert len(reader.get("/api/streams/bid/late").json()["rows"]) == 2
    assert reader.get("/api/tables/person/rows").json()["rows"] == [[1, "ann"], [2, "bob"]]
    assert reader.get("/api/status").json()["streams"]["bid"]["late"] == 2
    assert reader.get("/api/status", params={"queries": False}).json()["counts"]["queries"] == 2
    assert reader.get("/api/ticks").status_code == 200
    assert reader.get("/api/session").json()["right"] == "read"


def test_queries_by_pages(admin: httpx.Client, reader: httpx.Client) -> None:
    """Queries are searched by words in name, text and pattern, ordered by plan or figures, and sent by pages."""
    high = "CREATE QUERY High{0} AS SELECT price FROM bid [RANGE 5] WHERE price > {0};"
    admin.post("/api/execute", json={"script": "".join(map(high.format, range(0, 50, 10)))})

    def page(**params: object) -> tuple[int, list[str]]:
        response = reader.get("/api/queries", params=params)
        return int(response.headers["windrow-found"]), [q["name"] for q in response.json()]

    highs = ["High0", "High10", "High20", "High30", "High40"]
    assert page() == (7, ["top", "counts", *highs])
    assert page(offset=1, limit=2) == (7, ["counts", "High0"]) and page(offset=9) == (7, [])
    assert page(search="HIGH", sort="name", down=True) == (5, highs[::-1])
    assert page(search="price bid 40") == (1, ["High40"])
    assert page(search="weakest") == (5, highs) and page(search="strict") == (1, ["top"])
    assert page(search="failed") == (0, [])
    admin.post("/api/push/bid", json=BIDS)
    admin.post("/api/push/bid", json=LATER)
    assert page(search="high", sort="answers", down=True, limit=2) == (5, ["High0", "High10"])
    assert page(search="high", sort="answers")[1][-1] == "High0"
    for sort in ("pattern", "rate", "late", "state", "shared", "failed", "text"):
        assert page(sort=sort)[0] == 7
    lines = {q["name"]: q for q in reader.get("/api/queries", params={"limit": 3}).json()}
    assert lines["top"]["answers"] > 0 and lines["top"]["unit"] == "tick" and lines["top"]["pattern"] == "strict"
    for wrong in ({"sort": "luck"}, {"offset": -1}, {"limit": "x"}):
        assert reader.get("/api/queries", params=wrong).status_code == 400


def test_errors_say_where(admin: httpx.Client) -> None:
    """An error has windrow's message, hint and place, in JSON."""
    wrong = admin.post("/api/execute", json={"script": "CREATE QUERY q AS\n  SELECT nothing FROM bid [RANGE 5]"})
    error = wrong.json()["error"]
    assert wrong.status_code == 400
    assert (error["line"], error["column"]) == (2, 10) and "nothing" in error["message"] and error["hint"]
    assert admin.post("/api/check", json={"script": "SELEC 1"}).json()["error"]["line"] == 1
    missing = admin.get("/api/queries/nobody")
    assert missing.status_code == 404 and "nobody" in missing.json()["error"]["message"]
    for path in ("/api/queries/nobody/changes", "/api/streams/x/rows", "/api/tables/x/rows", "/nothing"):
        assert admin.get(path).status_code == 404
        assert admin.get(path).json()["error"]["message"]
    assert admin.delete("/api/queries").status_code == 405
    rows = admin.post("/api/push/bid", json={"rows": [{"ts": "x"}]})
    assert rows.status_code == 400 and rows.json()["error"]["message"]
    assert admin.post("/api/push/bid", json={"rows": "/etc/passwd"}).status_code == 400


def test_check_changes_nothing(admin: httpx.Client, reader: httpx.Client, engine: Engine) -> None:
    """A script is looked at as a whole: names and plans come back, and nothing is registered."""
    script = "DROP QUERY top; CREATE QUERY top AS SELECT * FROM bid [NOW]; SELECT price FROM bid [ROWS 2]"
    found = reader.post("/api/check", json={"script": script}).json()
    assert [(f["statement"], f["name"]) for f in found] == [("drop query", "top"), ("query", "top"), ("query", "q2")]
    assert found[1]["plan"]["plan"]["inputs"]
    assert engine["top"].plan.text.endswith("GROUP BY auction")
    stream = {"script": "CREATE STREAM s (ts BIGINT) TIMESTAMP BY ts"}
    assert reader.post("/api/check", json=stream).status_code == 400
    assert admin.post("/api/check", json=stream).json() == [{"statement": "stream", "name": "s"}]
    assert "s" not in engine.catalog.streams


def test_read_tokens_change_nothing(reader: httpx.Client, engine: Engine) -> None:
    """A read token may look and ask; to change something is forbidden."""
    drop = reader.post("/api/execute", json={"script": "DROP QUERY top"})
    assert drop.status_code == 403 and drop.json()["error"]["message"] == "this token may only read"
    assert reader.post("/api/push/bid", json=BIDS).status_code == 403
    assert reader.post("/api/ask", json={"query": "DROP QUERY top"}).status_code == 400
    assert "top" in engine
    assert reader.post("/api/ask", json={"query": "SELECT COUNT(*) FROM person"}).status_code == 200


def test_log_in_by_cookie(stranger: httpx.Client, server: Server) -> None:
    """A browser exchanges its token for a cookie that scripts cannot read and other sites cannot use."""
    assert stranger.post("/api/login", json={"token": "wrong"}).status_code == 401
    entered = stranger.post("/api/login", json={"token": "the-administrator-s-token"})
    cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and "the-administrator" not in cookie
    assert stranger.get("/api/session").json()["right"] == "admin"
    script = {"script": "EXPLAIN top"}
    assert stranger.post("/api/execute", json=script).status_code == 200
    for headers in ({"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}, {"origin": "http://evil.test"}):
        assert stranger.post("/api/execute", json=script, headers=headers).status_code == 403
    assert stranger.post("/api/execute", json=script, headers={"origin": server.url}).status_code == 200
    stranger.post("/api/logout")
    assert stranger.get("/api/session").status_code == 401


def test_log_in_by_link(stranger: httpx.Client) -> None:
    """The link that is printed logs in and hides its token."""
    entered = stranger.get("/?token=a-token-that-only-reads")
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    assert stranger.get("/api/session").json()["right"] == "read"


def test_headers(stranger: httpx.Client, reader: httpx.Client) -> None:
    """Every answer, refusals too, forbids framing, sniffing, foreign scripts and caching of data."""
    for response in (stranger.get("/"), stranger.get("/x"), reader.get("/api/status")):
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self';" in policy and "frame-ancestors 'none'" in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert "server" not in response.headers
    assert reader.get("/api/status").headers["cache-control"] == "no-store"


def test_limits(admin: httpx.Client, engine: Engine) -> None:
    """Bodies beyond the limit are refused, announced or not."""
    big = json.dumps({"script": "x" * 200_000})
    assert admin.post("/api/execute", content=big).status_code == 413
    parts = (b"x" * 10_000 for _ in range(20))
    assert admin.post("/api/execute", content=parts).status_code == 413
    assert admin.get("/healthz").status_code == 200


def test_rates() -> None:
    """A name may take twice its rate at once, and then its rate; others are not touched by it."""
    rates = Rates(1, names=2)
    assert [rates.take("a") for _ in range(3)] == [True, True, False]
    assert rates.take("b")
    for name in "cd":
        rates.take(name)
    assert rates.take("a")  # forgotten, and so new


def test_rates_over_http(engine: Engine) -> None:
    """Too many requests are told to wait; a stranger's flood does not use up what a token may do."""
    tokens = Tokens({"my-very-own-token": Right.READ})
    with (
        Server(engine, tokens, Address(port=0), ServerLimits(refusals_per_second=2)) as server,
        httpx.Client(base_url=server.url) as flood,
    ):
        statuses = [flood.get("/api/status").status_code for _ in range(20)]
        assert statuses[0] == 401 and statuses[-1] == 429
        assert flood.get("/api/status", headers={"authorization": "Bearer my-very-own-token"}).status_code == 200


def test_metrics(admin: httpx.Client, stranger: httpx.Client) -> None:
    """Prometheus gets counters and gauges per stream and query, with a token only."""
    admin.post("/api/push/bid", json=BIDS)
    text = admin.get("/metrics").text
    assert 'windrow_stream_rows_total{stream="bid"} 2.0' in text
    assert 'windrow_query_answer_rows_total{query="top"}' in text
    assert "windrow_up 1.0" in text
    assert stranger.get("/metrics").status_code == 401


def test_metrics_of_what_does_not_go_on(admin: httpx.Client, engine: Engine, tmp_path: Path) -> None:
    """A stream that stands still and a sink that fails are figures to alert on."""

    def fail(query: str, tick: int, table: pa.Table) -> None:
        raise RuntimeError("the other end is away")

    engine.sink("counts", "callback", name="other", fn=fail)
    admin.post("/api/push/bid", json={"rows": {"ts": [1, 50], "auction": ["a", "a"], "price": [1, 2]}})
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("ts,v\n1,five\n")
    engine.execute(f"""CREATE STREAM sheet (ts BIGINT, v BIGINT) TIMESTAMP BY ts FROM csv (path => '{tmp_path / "in"}');
        CREATE QUERY sheets AS SELECT v FROM sheet [ROWS 1]""")
    wanted = ('windrow_stream_stopped{stream="sheet"} 1.0', 'windrow_stream_stopped{stream="bid"} 0.0')
    wanted += ('windrow_sink_failing{query="counts",sink="other"} 1.0',)
    until(lambda: all(line in admin.get("/metrics").text for line in wanted))


def test_unforeseen_faults_show_nothing(admin: httpx.Client, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the server is a number; its traceback is for the log."""

    def fail() -> None:
        raise RuntimeError("secret words")

    monkeypatch.setattr(engine, "status", fail)
    response = admin.get("/api/status")
    assert response.status_code == 500 and response.json()["error"]["message"] == "internal error"
    assert "secret" not in response.text and "Traceback" not in response.text
