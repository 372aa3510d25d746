"""Strangers at the door get nothing, and readers cannot do more than read."""

from __future__ import annotations

import base64
import json
import socket
import time

import httpx
import numpy as np
import pyarrow as pa
import pytest
from tests.server.conftest import ADMIN, READ, TOKENS, client

from windrow.engine import Engine
from windrow.server.guard import ServerLimits
from windrow.server.process import Address, Server

BASIC = base64.b64encode(f"admin:{ADMIN}".encode()).decode()
CREDENTIALS = [
    {},
    {"authorization": ""},
    {"authorization": "Bearer"},
    {"authorization": f"Bearer {ADMIN[:-1]}"},
    {"authorization": f"Bearer {ADMIN}x"},
    {"authorization": f"Bearer {ADMIN.upper()}"},
    {"authorization": f"Bearer {ADMIN} {READ}"},
    {"authorization": f"Bearer {ADMIN},{READ}"},
    {"authorization": f'Bearer "{ADMIN}"'},
    {"authorization": f"Token {ADMIN}"},
    {"authorization": f"Basic {BASIC}"},
    {"authorization": f"Bearer\t{ADMIN}"},
    {"authorization": "Bearer *"},
    {"authorization": "Bearer null"},
    {"authorization": "Bearer " + "a" * 30_000},
    {"x-authorization": f"Bearer {ADMIN}"},
    {"proxy-authorization": f"Bearer {ADMIN}"},
    {"x-api-key": ADMIN},
    {"x-forwarded-for": "127.0.0.1", "x-forwarded-user": "admin", "x-real-ip": "127.0.0.1"},
    {"x-original-url": "/healthz", "x-rewrite-url": "/healthz"},
    {"x-http-method-override": "GET"},
    {"cookie": f"windrow={ADMIN}"},
    {"cookie": "windrow-{port}=" + ADMIN},
    {"cookie": "windrow-{port}=admin.9999999999.x."},
    {"cookie": "windrow-{port}=admin.9999999999.x." + "0" * 64},
    {"cookie": "windrow-{port}=admin"},
    {"cookie": "windrow-{port}=..."},
    {"cookie": "windrow-{port}=\\075\\000; windrow-{port}=x"},
    {"cookie": "windrow-{port}=" + "a" * 30_000},
    {"cookie": ";" * 5000},
]
DOORS = ["/api/status", "/api/queries/top/snapshot", "/api/streams/bid/rows", "/metrics", "/openapi.json", "/docs"]
PATHS = [
    "/static/../api/status",
    "/static/..%2fapi/status",
    "/static/%2e%2e/api/status",
    "/static/../../../../../../etc/passwd",
    "/static/..%2f..%2f..%2f..%2f..%2fetc%2fpasswd",
    "/static/%00",
    "/static//etc/passwd",
    "/static/..\\..\\etc\\passwd",
    "/static/.git/config",
    "//api/status",
    "/API/STATUS",
    "/api/status/",
    "/api/status;/healthz",
    "/api/status?/healthz",
    "/api/status%00",
    "/healthz/../api/status",
    "/healthz/%2e%2e/api/status",
    "/%61pi/status",
    "/api//status",
    "/.env",
    "/api/login/../status",
    "http://127.0.0.1/api/status",
]


def said(response: httpx.Response) -> str:
    """All that an answer tells."""
    return response.text + str(response.headers)


@pytest.mark.parametrize("headers", CREDENTIALS, ids=range(len(CREDENTIALS)))
def test_what_is_no_token_opens_nothing(headers: dict[str, str], server: Server, stranger: httpx.Client) -> None:
    """Prefixes, other cases, other schemes, other headers, forged cookies: 401 at every door, known or not."""
    sent = {k: v.replace("{port}", str(server.port)) for k, v in headers.items()}
    for path in (*DOORS, "/nowhere"):
        answer = stranger.get(path, headers=sent)
        assert answer.status_code in (401, 431, 400), (path, answer.status_code)
        assert "auction" not in said(answer) and "Traceback" not in said(answer)
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "HEAD", "PROPFIND", "CONNECT"):
        answer = stranger.request(method, "/api/execute", headers=sent)
        assert answer.status_code in (401, 400), (method, answer.status_code)


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leads_around_the_guard(path: str, server: Server) -> None:
    """As written on the wire, without a client that would tidy it."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
        seen = b""
        while more := line.recv(65536):
            seen += more
    status = int(seen.split(b" ", 2)[1])
    assert status in (400, 401, 404, 405)
    assert b"frontier" not in seen and b"root:" not in seen and b"Traceback" not in seen


SMUGGLED = [
    "Content-Length: 5\r\nContent-Length: 60\r\n",
    "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked, identity\r\n",
    "Transfer-Encoding: xchunked\r\n",
    "Transfer-Encoding : chunked\r\n",
    "Content-Length: +5\r\n",
    "Content-Length: 5 \r\n Content-Length: 60\r\n",
    "Content-Length: 0x5\r\n",
    "Content-Length: 5,60\r\n",
    "X: y\nContent-Length: 60\r\n",
    "X\x00Y: z\r\n",
    "Authorization: Bearer x\r\nAuthorization: Bearer {admin}\r\n",
]


@pytest.mark.parametrize("head", SMUGGLED, ids=range(len(SMUGGLED)))
def test_no_request_hides_in_another(head: str, server: Server, engine: Engine, admin: httpx.Client) -> None:
    """Whatever the lengths say, a second request in a body is one of a stranger, and answered as such or not at all."""
    hidden = "DROP QUERY top"
    inner = (
        f"POST /api/execute HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(json.dumps({'script': hidden}))}\r\n\r\n{json.dumps({'script': hidden})}"
    )
    text = f"POST /api/login HTTP/1.1\r\nHost: h\r\n{head.format(admin=ADMIN)}\r\n0\r\n\r\n{inner}"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as line:
        line.sendall(text.encode())
        line.settimeout(0.3)
        try:
            while line.recv(65536):
                pass
        except (TimeoutError, ConnectionError):
            pass
    assert "top" in engine
    assert admin.get("/api/status").status_code == 200


FOREIGN = [
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:1"},
    {"origin": "http://localhost"},
    {"origin": "", "sec-fetch-site": "cross-site"},
    {"origin": "https://evil.example/", "referer": "http://127.0.0.1/"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=range(len(FOREIGN)))
def test_a_cookie_from_another_site_changes_nothing(
    headers: dict[str, str], server: Server, stranger: httpx.Client, engine: Engine
) -> None:
    """With a cookie that is good, a page elsewhere can neither declare, push, ask nor log in or out."""
    assert stranger.post("/api/login", json={"token": ADMIN}).status_code == 200
    for path, body in (
        ("execute", {"script": "DROP QUERY top"}),
        ("push/bid", {"rows": [{"ts": 1, "auction": "a", "price": 1}]}),
        ("ask", {"query": "SELECT * FROM bid"}),
        ("login", {"token": ADMIN}),
        ("logout", {}),
    ):
        answer = stranger.post(f"/api/{path}", json=body, headers=headers)
        assert answer.status_code == 403, path
        assert not [h for h in answer.headers if h.startswith("access-control")]
    answer = stranger.post(
        "/api/execute", content=b'{"script": "DROP QUERY top"}', headers={"content-type": "text/plain", **headers}
    )
    assert answer.status_code == 403
    assert "top" in engine


READERS = [
    ("POST", "execute", {"script": "CREATE STREAM t (a BIGINT, ts BIGINT) FROM '/etc' FORMAT csv"}),
    ("POST", "execute", {"script": "EXPLAIN SELECT 1"}),
    ("POST", "execute", {"script": "SHOW STREAMS"}),
    ("POST", "push/bid", {"rows": []}),
    ("POST", "push/person", {"rows": []}),
    ("DELETE", "queries/top", None),
    ("PUT", "queries/top", {}),
]


@pytest.mark.parametrize(("method", "path", "body"), READERS, ids=range(len(READERS)))
def test_a_reader_only_reads(method: str, path: str, body: object, reader: httpx.Client, engine: Engine) -> None:
    """Whatever changes something, or could, is not for a token that reads."""
    before = set(engine.catalog.queries), set(engine.catalog.streams)
    assert reader.request(method, f"/api/{path}", json=body).status_code in (403, 405)
    assert (set(engine.catalog.queries), set(engine.catalog.streams)) == before


TEXTS = [
    "CREATE STREAM t (a BIGINT, ts BIGINT) FROM '/etc' FORMAT csv",
    "CREATE SINK k FOR top TO parquet (path '/tmp/evil')",
    "CREATE TABLE p FROM '/etc/passwd' FORMAT csv",
    "SELECT * FROM '/etc/passwd'",
    "DROP QUERY top",
    "ALTER STREAM bid ADD COLUMN evil BIGINT",
    "CREATE ARCHIVE a AS SELECT auction FROM bid KEY auction EVERY 5",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("door", ["check", "ask"])
def test_what_a_reader_writes_computes(text: str, door: str, reader: httpx.Client, engine: Engine) -> None:
    """Declarations by a reader are refused or only looked at; no file is opened for them, and nothing changes."""
    before = set(engine.catalog.queries), set(engine.catalog.streams), set(engine.catalog.tables)
    answer = reader.post(f"/api/{door}", json={"script": text, "query": text})
    assert answer.status_code < 500
    assert "root:" not in answer.text
    assert (set(engine.catalog.queries), set(engine.catalog.streams), set(engine.catalog.tables)) == before


@pytest.mark.parametrize(
    "place",
    [
        "0",
        "-1",
        "x-1",
        "{mark}-999999",
        "{mark}-",
        "{mark}--1",
        "{mark}-1e3",
        "9" * 5000,
        "{mark}-" + "9" * 19,
        "\u00e9",
    ],
)
def test_a_place_that_is_none(place: str, engine: Engine, reader: httpx.Client) -> None:
    """A Last-Event-ID from elsewhere, or from a future that is not, begins or is reset; what comes then is seen."""
    engine.push("bid", {"ts": [1], "auction": ["a"], "price": [5]})
    engine.drain()
    mark = engine.runtime.store.identity[:8]
    headers = {"last-event-id": place.format(mark=mark).encode("utf-8")}
    seen = ""
    with reader.stream("GET", "/api/queries/top/changes", headers=headers) as answer:
        assert answer.status_code == 200
        pieces = answer.iter_text()
        seen += next(pieces)
        engine.push("bid", {"ts": [2, 9], "auction": ["later", "b"], "price": [7, 1]})
        until = time.monotonic() + 20
        while "later" not in seen and time.monotonic() < until:
            seen += next(pieces)
    assert "later" in seen


@pytest.mark.parametrize("after", ["999999", "1" * 30, "-1", "x", "", "1e3"])
def test_a_tick_that_is_none(after: str, engine: Engine, reader: httpx.Client) -> None:
    """The parameter `after` likewise."""
    engine.push("bid", {"ts": [1], "auction": ["a"], "price": [5]})
    engine.drain()
    with reader.stream("GET", f"/api/queries/top/changes?after={after}") as answer:
        assert answer.status_code in (200, 400)
        if answer.status_code == 400:
            return
        pieces = answer.iter_text()
        seen = next(pieces)
        engine.push("bid", {"ts": [2, 9], "auction": ["later", "b"], "price": [7, 1]})
        until = time.monotonic() + 20
        while "later" not in seen and time.monotonic() < until:
            seen += next(pieces)
    assert "later" in seen


def stream(table: pa.Table, **options: object) -> bytes:
    """A table as an Arrow stream."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return out.getvalue().to_pybytes()


def test_arrow_that_is_not_what_it_says(admin: httpx.Client, engine: Engine) -> None:
    """Cut at every place, with every byte changed: refused or taken, and the server answers on."""
    whole = stream(pa.table({"ts": [1, 2], "auction": ["a", "b"], "price": [3, 4]}))
    headers = {"content-type": "application/vnd.apache.arrow.stream"}
    for at in range(0, len(whole), 7):
        for body in (whole[:at], whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]):
            assert admin.post("/api/push/bid", content=body, headers=headers).status_code < 500
    assert admin.get("/api/status").status_code == 200


def test_a_body_that_grows_when_it_is_read(admin: httpx.Client) -> None:
    """Compressed to less than the bound, a stream is counted as what it is."""
    many = 100_000
    zeros = {"ts": np.ones(many, np.int64), "auction": pa.nulls(many, pa.string()), "price": np.zeros(many, np.int64)}
    body = stream(pa.table(zeros), compression="zstd")
    assert len(body) < 100_000  # the bound of this server; it lets a body become 16 times as much
    answer = admin.post("/api/push/bid", content=body, headers={"content-type": "application/vnd.apache.arrow.stream"})
    assert answer.status_code == 413


JSONS = [
    b"[" * 90_000,
    b'{"rows": ' + b"[" * 80_000,
    b'{"rows": [{"ts": ' + b"9" * 80_000 + b"}]}",
    b'{"rows": [{"ts": 1e999, "auction": "a", "price": 1}]}',
    b'{"rows": [{"ts": NaN, "auction": "a", "price": 1}]}',
    b'{"rows": [{"ts": 1, "auction": "\\ud800", "price": 1}]}',
    b'{"rows": [{"ts": 1, "auction": "\\u0000", "price": 1}]}',
    b'{"rows": [{"ts": 99999999999999999999, "auction": "a", "price": 1}]}',
    b'{"rows": [{"ts": {"a": 1}, "auction": [], "price": 1}]}',
    b'{"rows": {"ts": [1, 2], "auction": ["a"], "price": []}}',
    b'{"rows": {"ts": [[[]]]}}',
    b'{"rows": [{"ts": 1, "ts": 2, "auction": "a", "price": 1}]}',
    b'{"rows": [null]}',
    b'{"rows": [{}]}',
    b'{"rows": [{"__proto__": 1, "": 2}]}',
    b'\xef\xbb\xbf{"rows": []}',
    '{"rows": []}'.encode("utf-16"),
    b"\xff\xfe\x00",
    b"",
]


@pytest.mark.parametrize("body", JSONS, ids=range(len(JSONS)))
def test_rows_that_are_none(body: bytes, admin: httpx.Client, engine: Engine) -> None:
    """Refused with a reason or taken; the stream goes on."""
    answer = admin.post("/api/push/bid", content=body, headers={"content-type": "application/json"})
    assert answer.status_code < 500, answer.text
    assert admin.post("/api/push/bid", json={"rows": [{"ts": 50, "auction": "z", "price": 1}]}).status_code == 200
    assert engine.status()["streams"]["bid"].get("failed") is None


def test_slow_bodies_and_heads(engine: Engine) -> None:
    """A body, or a head, that comes byte by byte holds its own line and nobody else's; in the end it is cut."""
    limits = ServerLimits(body_seconds=0.5)
    with Server(engine, TOKENS, Address(port=0), limits) as server:
        lines = []
        for number in range(60):
            line = socket.create_connection(("127.0.0.1", server.port), timeout=10)
            head = f"POST /api/ask HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {READ}\r\nContent-Length: 50\r\n"
            line.sendall(head.encode() + (b"\r\n{" if number % 2 else b"X-"))
            lines.append(line)
        with client(server, READ) as reader:
            assert reader.get("/api/status").status_code == 200
        assert b"408" in lines[1].recv(4096)
        for line in lines:
            line.close()


def test_many_event_streams_at_once(engine: Engine) -> None:
    """As many as the bound says, and no more; those that go make room."""
    with (
        Server(engine, TOKENS, Address(port=0), ServerLimits(event_streams=3)) as server,
        client(server, READ) as reader,
    ):
        open_ = [reader.stream("GET", "/api/queries/top/changes") for _ in range(3)]
        texts = [one.__enter__().iter_text() for one in open_]  # kept: one that is let go closes its stream
        for text in texts:
            next(text)
        assert reader.get("/api/queries/top/changes").status_code == 503
        texts.clear()
        for one in open_:
            one.__exit__(None, None, None)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with reader.stream("GET", "/api/queries/top/changes") as answer:
                if answer.status_code == 200:
                    return
            time.sleep(0.2)
        pytest.fail("those who went left no room")
