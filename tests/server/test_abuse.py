"""Five thousand malformed requests leave the server answering, and none of them gets to see anything."""

from __future__ import annotations

import json
import random
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from windrow.engine import Engine
from windrow.server.access import read_tokens
from windrow.server.process import Address, Server

PATHS = ["/", "/api/status", "/api/ask", "/api/execute", "/api/push/bid", "/api/queries/top/changes", "/x", "*", "//"]
WORDS = [b"GET", b"POST", b"\x00", b"\xff\xfe", b" ", b"\r\n", b":", b"HTTP/1.1", b"Host: x", b"Content-Length: -1"]
WORDS += [b"Content-Length: 99999999999999999999", b"Transfer-Encoding: chunked", b"Authorization: Bearer \xf0\x9f"]
WORDS += [b"Cookie: windrow=\x01;;;=", b"Expect: 100-continue", b"Upgrade: websocket", b"{", b"[" * 2000, b"%00%2e%2e/"]
TEXTS = ["", "\x00", "'", '"', "SELECT", "(" * 500, "SELECT * FROM bid [RANGE", "🜁" * 50, "a" * 5000, "-- \n", "/*"]


def malformed(chance: random.Random) -> bytes:
    """Bytes that look more or less like a request."""
    if chance.random() < 0.5:
        return b" ".join(chance.choice(WORDS) for _ in range(chance.randrange(1, 9))) + b"\r\n\r\n"
    path, body = chance.choice(PATHS), chance.choice(TEXTS).encode()
    said = chance.choice([len(body), len(body) + 7, -1, "x", 10**12])
    head = f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {said}\r\n"
    head += chance.choice(["", "Authorization: Bearer the-administrator-s-token\r\n", "Last-Event-ID: ²\r\n", "A\r\n"])
    return head.encode() + b"\r\n" + body


def test_malformed_bytes(server: Server, admin: httpx.Client) -> None:
    """Nonsense on the socket, cut off at any point: the server goes on."""
    chance = random.Random(1)
    for _ in range(2500):
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as line:
            text = malformed(chance)
            line.sendall(text[: chance.randrange(len(text) + 1)] if chance.random() < 0.3 else text)
            if chance.random() < 0.05:
                line.settimeout(0.05)
                try:
                    seen = line.recv(65536)
                except TimeoutError:
                    seen = b""
                assert b"auction" not in seen and b"Traceback" not in seen
    assert admin.get("/api/status").status_code == 200


def test_malformed_bodies(admin: httpx.Client, engine: Engine) -> None:
    """Well-formed requests with nonsense inside get an error in JSON, never a fault of the server."""
    chance = random.Random(2)
    keys, values = ["script", "query", "rows", "token", "isolation", "limit", "x"], [*TEXTS, None, 1, -1, 1e99, [], {}]
    for number in range(2500):
        path = chance.choice(["execute", "check", "ask", "push/bid", "login", "push/nobody", "queries/top/snapshot"])
        given = {chance.choice(keys): chance.choice(values) for _ in range(3)}
        body = json.dumps(given).encode()
        if chance.random() < 0.2:
            body = body[: chance.randrange(len(body) + 1)] + bytes([chance.randrange(256)])
        method = "GET" if "snapshot" in path else "POST"
        response = admin.request(method, f"/api/{path}", content=body, params={"limit": str(chance.choice(values))})
        assert response.status_code < 500, (number, path, body, response.text)
        if response.status_code >= 400:
            assert response.json()["error"]["message"]
            assert "Traceback" not in response.text
    assert {"top", "counts"} == set(engine.catalog.queries)


def test_tls(engine: Engine, tmp_path: Path) -> None:
    """By certificate: the cookie is for TLS only, and browsers are told to stay with it."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate)]
    try:
        more = ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
        subprocess.run([*made, *more], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    tokens = tmp_path / "tokens"
    tokens.write_text("# mine\nadmin 0123456789abcdef  # strong enough\nread fedcba9876543210\n")
    address = Address(port=0, certificate=str(certificate), key=str(key))
    with (
        Server(engine, read_tokens(tokens), address) as server,
        httpx.Client(base_url=server.url, verify=ssl.create_default_context(cafile=str(certificate))) as client,
    ):
        entered = client.post("/api/login", json={"token": "fedcba9876543210"})
        assert "secure" in entered.headers["set-cookie"].lower()
        assert "strict-transport-security" in entered.headers
        assert client.get("/api/status").status_code == 200


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("admin short", "line 1: the token is shorter"),
        ("\nroot 0123456789abcdef", "line 2: not a token"),
        ("read 0123456789abcdef", "has no admin token"),
    ],
)
def test_bad_token_files(text: str, said: str, tmp_path: Path) -> None:
    """A token file that would leave the door open or shut is refused, by line."""
    from windrow.errors import SourceError

    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(SourceError, match=said):
        read_tokens(path)


def test_serve_from_the_command_line(tmp_path: Path) -> None:
    """`windrow serve` prints a link once, serves the script, and stops at a signal with exit code 0."""
    script = tmp_path / "bids.cql"
    script.write_text(
        "CREATE STREAM bid (ts BIGINT, price BIGINT) TIMESTAMP BY ts;\nSELECT MAX(price) FROM bid [ROWS 2]"
    )
    command = [sys.executable, "-m", "windrow.cli", "serve", str(script), "--runtime", "local", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        link = lines[2].strip()
        with httpx.Client() as client:
            assert client.get(link).status_code == 303
            base = link.partition("/?")[0]
            assert [q["name"] for q in client.get(f"{base}/api/queries").json()] == ["q1"]
        process.terminate()
        _, errors = process.communicate(timeout=20)
        assert (process.returncode, errors) == (0, "")
