"""An object store on loopback that speaks as much of S3 as pyarrow does, with faults on request.

Objects are bytes in a dict and appear whole. `fail(n)`: every nth request is answered with "slow down" (503), before
or after it has been carried out, as a busy store or a lost answer does; clients are to try again.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

XMLNS = "http://s3.amazonaws.com/doc/2006-03-01/"


class ObjectStore:
    """A server for the time of a test; `uri(path)` is what an engine is given."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.requests = self.refused = 0
        self.every: int | None = None
        self.numbers = itertools.count()
        self.guard = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": self}))
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def uri(self, path: str) -> str:
        address = f"127.0.0.1:{self.server.server_address[1]}"
        return f"s3://key:secret@bucket/{path}?endpoint_override={address}&scheme=http&region=us-east-1"

    def fail(self, every: int | None) -> None:
        """Refuse every so manyth request, or none."""
        self.every = every

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class _Handler(BaseHTTPRequestHandler):
    store: ObjectStore
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if headers is None or "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _error(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        query = {k: v[0] for k, v in parse_qs(parts.query, keep_blank_values=True).items()}
        _, bucket, *rest = unquote(parts.path).split("/", 2)
        key, body, store = rest[0] if rest else "", self._body(), self.store
        with store.guard:
            store.requests += 1
            faulty = store.every is not None and store.requests % store.every == 0
            after = faulty and next(store.numbers) % 2 == 1
            store.refused += faulty
            if faulty and not after:
                return self._error(503, "SlowDown")
            status, answer, headers = self._carry_out(bucket, key, query, body)
        if after:
            return self._error(503, "SlowDown")
        self._answer(status, answer, headers)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "") == "chunked":
            chunks = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            raw = b"".join(chunks)
        else:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return _unchunked(raw) if "aws-chunked" in self.headers.get("Content-Encoding", "") else raw

    def _carry_out(
        self, bucket: str, key: str, query: dict[str, str], body: bytes
    ) -> tuple[int, bytes, dict[str, str] | None]:
        store = self.store
        match self.command:
            case "HEAD" if not key:
                return 200, b"", None
            case "GET" if not key:
                return 200, _listing(bucket, store.objects, query), {"Content-Type": "application/xml"}
            case "POST" if "uploads" in query:
                name = f"upload{next(store.numbers)}"
                store.uploads[name] = {}
                return (
                    200,
                    _xml("InitiateMultipartUploadResult", {"Bucket": bucket, "Key": key, "UploadId": name}),
                    None,
                )
            case "PUT" if "uploadId" in query:
                store.uploads[query["uploadId"]][int(query["partNumber"])] = body
                return 200, b"", {"ETag": _etag(body)}
            case "POST" if "uploadId" in query:
                if query["uploadId"] in store.uploads:
                    store.objects[key] = b"".join(p for _, p in sorted(store.uploads.pop(query["uploadId"]).items()))
                if key not in store.objects:
                    return 404, b"<Error><Code>NoSuchUpload</Code></Error>", None
                made = {"Bucket": bucket, "Key": key, "ETag": _etag(store.objects[key])}
                return 200, _xml("CompleteMultipartUploadResult", made), None
            case "POST":  # delete several
                for part in body.decode().split("<Key>")[1:]:
                    store.objects.pop(part.split("</Key>")[0], None)
                return 200, _xml("DeleteResult", {}), None
            case "PUT":
                store.objects[key] = body
                return 200, b"", {"ETag": _etag(body)}
            case "DELETE":
                store.objects.pop(key, None)
                return 204, b"", None
        return self._found(key)

    def _found(self, key: str) -> tuple[int, bytes, dict[str, str] | None]:
        data = self.store.objects.get(key)
        if data is None:
            return 404, b"<Error><Code>NoSuchKey</Code></Error>", None
        headers = {"ETag": _etag(data), "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
        if self.command == "HEAD":
            return 200, b"", {**headers, "Content-Length": str(len(data))}
        span = self.headers.get("Range")
        if span is None:
            return 200, data, headers
        low, high = span.removeprefix("bytes=").split("-")
        part = data[int(low) : int(high or len(data)) + 1]
        return 206, part, {**headers, "Content-Range": f"bytes {low}-{int(low) + len(part) - 1}/{len(data)}"}


def _unchunked(raw: bytes) -> bytes:
    """The payload of a signed stream: sizes in hexadecimal, each before its chunk."""
    found, at = [], 0
    while True:
        end = raw.index(b"\r\n", at)
        size = int(raw[at:end].split(b";")[0], 16)
        if size == 0:
            return b"".join(found)
        found.append(raw[end + 2 : end + 2 + size])
        at = end + 4 + size


def _listing(bucket: str, objects: dict[str, bytes], query: dict[str, str]) -> bytes:
    prefix, mark = query.get("prefix", ""), query.get("delimiter", "")
    keys, folders = [], set()
    for key in sorted(k for k in objects if k.startswith(prefix)):
        rest = key[len(prefix) :]
        if mark and mark in rest:
            folders.add(prefix + rest.split(mark)[0] + mark)
        else:
            keys.append(key)
    inside = "".join(
        f"<Contents><Key>{escape(k)}</Key><Size>{len(objects[k])}</Size><ETag>{_etag(objects[k])}</ETag>"
        "<LastModified>2024-01-01T00:00:00.000Z</LastModified></Contents>"
        for k in keys
    )
    inside += "".join(f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in sorted(folders))
    count = len(keys) + len(folders)
    head = f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{count}</KeyCount><MaxKeys>1000</MaxKeys>"
    return (
        f'<ListBucketResult xmlns="{XMLNS}">{head}<IsTruncated>false</IsTruncated>{inside}</ListBucketResult>'.encode()
    )


def _xml(name: str, content: dict[str, str]) -> bytes:
    inside = "".join(f"<{k}>{escape(v)}</{k}>" for k, v in content.items())
    return f'<{name} xmlns="{XMLNS}">{inside}</{name}>'.encode()


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
