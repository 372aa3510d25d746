"""GET routes: everything that a read token may see."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, HTTPException, Path, Query, Request
from fastapi.responses import Response, StreamingResponse

from windrow.errors import BindingError
from windrow.server.access import Right
from windrow.server.changes import of_itself
from windrow.server.listing import PageRequest, Sort
from windrow.server.live import Live
from windrow.sinks.json_text import table_json

router = APIRouter()

MOST_ROWS = 100_000
ARROW = "application/vnd.apache.arrow.stream"
JSON_OR_ARROW: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {}, ARROW: {}}, "description": "columns and rows, as JSON or Arrow by Accept"}
}
Name = Annotated[str, Path(max_length=200, description="a name; case does not matter")]
Limit = Annotated[int, Query(ge=0, le=MOST_ROWS, description="the newest so many rows")]


def live(request: Request) -> Live:
    """The engine of this server."""
    found: Live = request.app.state.live
    return found


def is_admin(request: Request) -> bool:
    """Whether the request may change things."""
    return request.scope["state"].get("right") == Right.ADMIN


def plain(value: Any) -> Response:
    """Figures as JSON; a number that JSON cannot write is null."""
    try:
        text = json.dumps(value, default=str, allow_nan=False)
    except (TypeError, ValueError):
        text = json.dumps(_finite(value), default=str)
    return Response(text, media_type="application/json")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, list | tuple) else value


def answer(request: Request, table: pa.Table, limit: int, **more: Any) -> Response:
    """A table as the reader wants it: Arrow whole, JSON with the newest `limit` rows."""
    accept = request.headers.get("accept", "")
    if ARROW in accept:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
        return Response(out.getvalue().to_pybytes(), media_type=ARROW)
    if accept and not any(kind in accept for kind in ("*/*", "application/*", "application/json")):
        raise HTTPException(406, {"hint": f"accept application/json or {ARROW}"})
    shown = table.slice(max(0, table.num_rows - limit))
    body = table_json(shown, total=table.num_rows, **of_itself(table), **more)
    return Response(body, media_type="application/json")


def arrow_stream(reader: pa.RecordBatchReader) -> Response:
    """An Arrow stream, sent as its batches are made."""

    def sent() -> Iterator[bytes]:
        out = io.BytesIO()
        with reader:
            with pa.ipc.new_stream(out, reader.schema) as writer:
                for batch in reader:
                    writer.write_batch(batch)
                    yield out.getvalue()
                    out.seek(0)
                    out.truncate()
            yield out.getvalue()

    return StreamingResponse(sent(), media_type=ARROW)


@router.get("/api/status")
def status(request: Request, queries: bool = True) -> Response:
    """Rates, tick times, frontier, lag, state; a line per stream, table and (unless `queries=false`) query."""
    return plain(live(request).status(None) if queries else live(request).overview())


@router.get("/api/session")
def session(request: Request) -> Response:
    """What the token or cookie of this request allows."""
    return plain({"right": "admin" if is_admin(request) else "read", "runtime": live(request).status().get("runtime")})


@router.get("/api/streams")
def streams(request: Request) -> Response:
    """Streams with their columns, clauses and figures."""
    return plain(live(request).streams(is_admin(request)))


@router.get("/api/streams/{name}/rows", responses=JSON_OR_ARROW)
def stream_rows(request: Request, name: Name, limit: Limit = 100) -> Response:
    """The newest rows that a stream keeps (RETAIN)."""
    known(name, live(request).engine.catalog.streams, "stream")
    return answer(request, live(request).newest(name, limit), limit)


@router.get("/api/streams/{name}/late", responses=JSON_OR_ARROW)
def late_rows(request: Request, name: Name, limit: Limit = 100) -> Response:
    """Rows that came too late."""
    known(name, live(request).engine.catalog.streams, "stream")
    return answer(request, live(request).engine.late(name), limit)


@router.get("/api/streams/{name}/quarantine", responses=JSON_OR_ARROW)
def quarantined_rows(request: Request, name: Name, limit: Limit = 100) -> Response:
    """What could not be read (ON ERROR QUARANTINE): tick, file, position, reason and what is written there."""
    known(name, live(request).engine.catalog.streams, "stream")
    return answer(request, live(request).engine.quarantine(name), limit)


@router.get("/api/tables")
def tables(request: Request) -> Response:
    """Tables with their columns and figures."""
    return plain(live(request).tables(is_admin(request)))


@router.get("/api/tables/{name}/rows", responses=JSON_OR_ARROW)
def table_rows(request: Request, name: Name, limit: Limit = 100) -> Response:
    """Rows of a table."""
    known(name, live(request).engine.catalog.tables, "table")
    return answer(request, live(request).table_rows(name), limit)


@router.get("/api/views")
def views(request: Request) -> Response:
    """Views with their columns and texts."""
    return plain(live(request).views())


FOUND = "windrow-found"
"""The header that says how many there are beyond the page."""


@router.get("/api/queries")
def queries(
    request: Request,
    search: Annotated[str, Query(max_length=1000, description="words that name, text or pattern have")] = "",
    sort: Annotated[Sort | None, Query(description="without it, as they were registered")] = None,
    down: bool = False,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int | None, Query(ge=0, description="a page of so many; without it, all")] = None,
) -> Response:
    """A line per query: text, pattern, answers, rate, state, with how many it shares; all, or a page of those that a
    search finds. The header `windrow-found` says how many that are."""
    found, lines = request.app.state.queries.page(PageRequest(search, sort, down, offset, limit))
    response = plain(lines)
    response.headers[FOUND] = str(found)
    return response


@router.get("/api/queries/{name}")
def query(request: Request, name: Name) -> Response:
    """One query: text, plan, explain, sharing, quality."""
    _query(request, name)
    return plain(live(request).query(name))


@router.get("/api/queries/{name}/snapshot", responses=JSON_OR_ARROW)
def snapshot(request: Request, name: Name, limit: Limit = 10_000) -> Response:
    """The rows of the answer now; for a stream-valued query those of its newest instant."""
    _query(request, name)
    tick, table = live(request).engine[name].as_of_tick()
    return answer(request, table, limit, tick=tick)


@router.get("/api/queries/{name}/results", responses=JSON_OR_ARROW)
def results(request: Request, name: Name, limit: Limit = 1000) -> Response:
    """The newest rows of the answer as they came."""
    _query(request, name)
    return answer(request, live(request).engine[name].results(), limit)


@router.get(
    "/api/queries/{name}/changes",
    responses={200: {"content": {"text/event-stream": {}}, "description": "events begin, change, reset, end"}},
    response_class=StreamingResponse,
)
async def changes(
    request: Request,
    name: Name,
    after: Annotated[int | None, Query(description="begin after this tick, as Last-Event-ID does")] = None,
) -> StreamingResponse:
    """The answer as it changes: server-sent events numbered by tick, resumed by `Last-Event-ID`."""
    _query(request, name)
    hub = request.app.state.changes
    if hub.full:
        raise HTTPException(503, {"hint": "there are as many event streams as this server bears"})
    place = hub.place(request.headers.get("last-event-id"))
    events = hub.events(name, after if place is None else place)
    headers = {"x-accel-buffering": "no", "cache-control": "no-store"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


@router.get("/api/ticks")
def ticks(request: Request, after: int = -1) -> Response:
    """The newest ticks: when they ended, how long each phase took, rows and answers."""
    return plain(live(request).engine.ticks(after))


def known(name: str, names: Any, kind: str) -> None:
    """Say that nothing of that name is declared, if so."""
    if name.lower() not in names:
        raise HTTPException(404, {"message": f'{kind} "{name}" does not exist'})


def _query(request: Request, name: str) -> None:
    try:
        live(request).engine[name]
    except BindingError as error:
        raise HTTPException(404, {"message": error.primary}) from None
