"""What the shell talks to: an engine in this process, or a server at an address.

Both give Arrow tables and windrow's own errors; only the way there differs.
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from queue import Empty, Queue
from typing import Any, Protocol

import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.engine import Engine
from windrow.errors import RuntimeFailure, SourceError, Span, WindrowError
from windrow.scalar_engine import quote

JSON, ARROW = "application/json", "application/vnd.apache.arrow.stream"
Names = dict[str, list[str]]


class SqlSession(Protocol):
    """Statements in, tables out."""

    def execute(self, script: str) -> list[str | pa.Table]:
        """Run statements; what each EXPLAIN, SHOW and DESCRIBE shows."""

    def ask(self, query: str) -> pa.Table:
        """Answer a one-time SELECT."""

    def names(self) -> dict[str, Names]:
        """Streams, tables, views and queries with their columns."""

    def push(self, stream: str, path: str) -> int:
        """Hand in the rows of a file; how many."""

    def status(self) -> dict[str, Any]:
        """`engine.status()`."""

    def snapshot(self, query: str) -> pa.Table:
        """The answer of a query now."""

    def changed(self, query: str) -> Iterator[None]:
        """One beat for each change of a query's answer, and about one a second besides."""

    def close(self) -> None:
        """Leave."""


class EngineSession:
    """An engine in this process."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        engine.start()

    def execute(self, script: str) -> list[str | pa.Table]:
        return self.engine.execute(script)

    def ask(self, query: str) -> pa.Table:
        return self.engine.ask(query)

    def names(self) -> dict[str, Names]:
        catalog = self.engine.catalog
        return {
            "streams": {s.name: list(s.columns) for s in catalog.streams.values()},
            "tables": {t.name: list(t.columns) for t in catalog.tables.values()},
            "views": {v.name: list(v.columns) for v in catalog.views.values()},
            "archives": {a.name: list(a.columns) for a in catalog.archives.values()},
            "queries": {q.name: [name for name, _ in q.output] for q in catalog.queries.values()},
        }

    def push(self, stream: str, path: str) -> int:
        return self.engine.push(stream, path)

    def status(self) -> dict[str, Any]:
        return self.engine.status()

    def snapshot(self, query: str) -> pa.Table:
        return self.engine[query].snapshot()

    def changed(self, query: str) -> Iterator[None]:
        changed = threading.Event()
        end = self.engine[query].subscribe(lambda _: changed.set())
        try:
            while True:
                changed.wait(1.0)
                changed.clear()
                yield None
        finally:
            end()

    def close(self) -> None:
        self.engine.stop()


class ServerSession:
    """A server at an address, by its API."""

    def __init__(self, url: str, token: str | None) -> None:
        parts = urllib.parse.urlsplit(url)
        given = urllib.parse.parse_qs(parts.query).get("token", [None])[0]  # the printed link is an address, too
        self._token = token or given
        self._base = f"{parts.scheme}://{parts.netloc}"
        if parts.scheme not in ("http", "https"):
            raise SourceError(f"{url} is not an address of a server", hint="write --server http://127.0.0.1:8765")
        self._get("/api/session")

    def _request(self, path: str, body: bytes | None = None, accept: str = "*/*", kind: str = JSON) -> Any:
        headers = {"accept": accept, "content-type": kind}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(self._base + path, body, headers)
        try:
            return urllib.request.urlopen(request, timeout=60)
        except urllib.error.HTTPError as error:
            with error:
                raise _told(error) from None
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise RuntimeFailure(f"the server at {self._base} does not answer", detail=str(reason)) from None

    def _get(self, path: str) -> Any:
        with self._request(path) as response:
            return json.load(response)

    def _post(self, path: str, **body: Any) -> Any:
        with self._request(path, json.dumps(body).encode()) as response:
            return json.load(response)

    def _table(self, path: str, body: dict[str, Any] | None = None) -> pa.Table:
        with self._request(path, None if body is None else json.dumps(body).encode(), ARROW) as response:
            return pa.ipc.open_stream(response.read()).read_all()

    def execute(self, script: str) -> list[str | pa.Table]:
        shown = self._post("/api/execute", script=script)["shown"]
        return [one if isinstance(one, str) else _rows(one) for one in shown]

    def ask(self, query: str) -> pa.Table:
        return self._table("/api/ask", {"query": query})

    def names(self) -> dict[str, Names]:
        found = {k: self._get(f"/api/{k}") for k in ("streams", "tables", "views", "archives")}
        names = {k: {one["name"]: [c["name"] for c in one["columns"]] for one in v} for k, v in found.items()}
        return names | {"queries": {q["name"]: [] for q in self._get("/api/queries")}}

    def push(self, stream: str, path: str) -> int:
        from windrow.sources.bounded import rows_given

        (rows, _), out = rows_given(self._declared(stream), path), pa.BufferOutputStream()
        with pa.ipc.new_stream(out, rows.schema) as writer:
            writer.write_table(rows)
        where = f"/api/push/{urllib.parse.quote(stream)}"
        with self._request(where, out.getvalue().to_pybytes(), kind=ARROW) as response:
            return int(json.load(response)["rows"])

    def _declared(self, name: str) -> StreamDef:
        """A stream, or the changes of a table, as the server has it: how its files are written, and of what types."""
        from windrow import cql
        from windrow.catalog import Catalog, TableDef

        (facts,) = self.execute(f"DESCRIBE {quote(name)}")
        assert isinstance(facts, pa.Table)
        (kind, _, text), *rest = [tuple(row.values()) for row in facts.to_pylist()]
        added = tuple(column for fact, column, _ in rest if fact == "added")
        bound = cql.bind(cql.parse(text)[0], Catalog()) if kind in ("stream", "table") else None
        match bound:
            case cql.Create(StreamDef() as stream):
                return replace(stream, added=added, quarantine=False)
            case cql.Create(TableDef() as table) if table.changes is not None:
                return replace(table.change_stream, added=added, quarantine=False)
        raise SourceError(f'stream "{name}" does not exist')

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self._get("/api/status")
        return found

    def snapshot(self, query: str) -> pa.Table:
        return self._table(f"/api/queries/{urllib.parse.quote(query)}/snapshot")

    def changed(self, query: str) -> Iterator[None]:
        response = self._request(f"/api/queries/{urllib.parse.quote(query)}/changes")
        beats: Queue[bool] = Queue()

        def read() -> None:
            try:
                for line in response:
                    if line.startswith(b"data:"):
                        beats.put(True)
            except (OSError, ValueError):  # closed under the reader
                pass
            beats.put(False)

        threading.Thread(target=read, name="windrow-changes", daemon=True).start()
        try:
            while True:
                try:
                    if not beats.get(timeout=1.0):
                        return
                except Empty:
                    pass
                yield None
        finally:
            response.close()

    def close(self) -> None:
        """There is nothing to leave."""


def _rows(shown: dict[str, Any]) -> pa.Table:
    """A table of texts that was written as JSON."""
    names = [c["name"] for c in shown["columns"]]
    columns = list(zip(*shown["rows"], strict=True)) or [()] * len(names)
    return pa.table([pa.array(list(c)) for c in columns], names=names)


def _told(error: urllib.error.HTTPError) -> WindrowError:
    """What the server says is wrong."""
    try:
        said = json.load(error)["error"]
    except (ValueError, KeyError):
        return RuntimeFailure(f"the server says {error.code}")
    span = Span(said["line"], said["column"]) if said.get("line") else None
    return WindrowError(said["message"], detail=said.get("detail"), hint=said.get("hint"), span=span)
