"""POST routes: declarations and rows for administrators; questions and log-in for everyone who has a token."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Annotated, Any, Literal

import anyio
import pyarrow as pa
from anyio import to_thread
from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from windrow.errors import SourceError
from windrow.server.access import SESSION_SECONDS
from windrow.server.checking import check
from windrow.server.guard import cookie_of
from windrow.server.reading import (
    ARROW,
    JSON_OR_ARROW,
    MOST_ROWS,
    Name,
    answer,
    arrow_stream,
    is_admin,
    known,
    live,
    plain,
)
from windrow.sinks.json_text import table_json
from windrow.sources.tabular import of_rows

router = APIRouter()

Text = Annotated[str, Field(min_length=1, max_length=1_000_000)]
FORBIDDEN: dict[int | str, dict[str, Any]] = {403: {"description": "the token may only read"}}


class ScriptBody(BaseModel):
    """CQL statements."""

    script: Text


class AskRequest(BaseModel):
    """A one-time SELECT."""

    query: Text
    parameters: dict[str, Any] | list[Any] | None = Field(None, description="the values of $name, $1 or ?")
    isolation: Literal["snapshot", "latest"] = "snapshot"
    limit: int = Field(10_000, ge=0, le=MOST_ROWS)
    timeout: float = Field(300, ge=0, le=3600, description="seconds, to the last batch of an Arrow stream")


class Pushed(BaseModel):
    """Rows for a stream: objects, or a mapping of columns."""

    rows: list[dict[str, Any]] | dict[str, list[Any]]


class TokenBody(BaseModel):
    """A token to log in with."""

    token: Annotated[str, Field(max_length=1000)]


def _admin(request: Request) -> None:
    if not is_admin(request):
        raise HTTPException(403, {"hint": "use the admin token"})


@router.post("/api/execute", responses=FORBIDDEN)
def execute(request: Request, body: ScriptBody) -> Response:
    """Run CQL statements, all or none; `shown` is what each EXPLAIN says (a text) and each SHOW and DESCRIBE answers
    (an object with `columns` and `rows`). Needs the admin token."""
    _admin(request)
    shown = live(request).engine.execute(body.script)
    live(request).forget()
    parts = [json.dumps(one) if isinstance(one, str) else table_json(one).decode() for one in shown]
    return Response(f'{{"shown": [{", ".join(parts)}]}}', media_type="application/json")


@router.post("/api/check")
async def check_script(request: Request, body: ScriptBody) -> Response:
    """What a script would do: its errors where they are, and the plans of its queries. Changes nothing."""
    async with slot(request):
        engine, declarations = live(request).engine, is_admin(request)
        return plain(await to_thread.run_sync(check, engine, body.script, declarations))


@router.post("/api/ask", responses=JSON_OR_ARROW)
async def ask(request: Request, body: AskRequest) -> Response:
    """Answer a one-time SELECT over kept windows, tables and the relations of queries. A question whose asker goes
    away is given up."""
    gone = threading.Event()
    how: dict[str, Any] = {"isolation": body.isolation, "timeout": body.timeout, "cancel": gone}

    def work() -> Response:
        engine = live(request).engine
        if ARROW in request.headers.get("accept", ""):
            return arrow_stream(engine.ask_batches(body.query, body.parameters, **how))
        return answer(request, engine.ask(body.query, body.parameters, **how), body.limit)

    async def listen() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        gone.set()

    async with slot(request):
        listening = asyncio.ensure_future(listen())
        try:
            return await to_thread.run_sync(work)
        finally:
            listening.cancel()


PUSHED: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": Pushed.model_json_schema()}, ARROW: {}},
    }
}


@router.post("/api/push/{stream}", responses=FORBIDDEN, openapi_extra=PUSHED)
async def push(request: Request, stream: Name) -> Response:
    """Hand in rows of a stream, or changes of a table, as JSON (`{"rows": [...]}`) or as an Arrow stream. Needs the
    admin token."""
    _admin(request)
    catalog = live(request).engine.catalog
    told = {key: table for key, table in catalog.tables.items() if table.changes is not None}
    known(stream, {**catalog.streams, **told}, "stream")
    body, kind = await request.body(), request.headers.get("content-type", "").partition(";")[0].strip()

    def work() -> Response:
        table = (
            _arrow(body, request.app.state.most_arrow) if kind == ARROW else _objects(Pushed.model_validate_json(body))
        )
        live(request).engine.push(stream, table)
        live(request).forget()
        return plain({"rows": table.num_rows})

    return await to_thread.run_sync(work)


def _arrow(body: bytes, most: int) -> pa.Table:
    try:
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            batches, size, _ = [], 0, reader.schema.names  # names that are no text raise here
            for batch in reader:
                batch.validate(full=True)  # offsets of a stranger may point anywhere
                size += batch.nbytes
                if size > most:
                    raise HTTPException(413, {"hint": f"send rows of at most {most:,} bytes, as they are in memory"})
                batches.append(batch)
            return pa.Table.from_batches(batches, reader.schema)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise SourceError("the body is not an Arrow stream", detail=str(error)) from None


def _objects(pushed: Pushed) -> pa.Table:
    try:
        rows = pushed.rows
        return of_rows(rows) if isinstance(rows, list) else pa.table(rows)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SourceError("the rows do not make a table", detail=str(error)) from None


@router.post("/api/login")
async def login(request: Request, body: TokenBody) -> Response:
    """Exchange a token for a cookie that scripts cannot read."""
    right = request.app.state.tokens.right(body.token)
    if right is None:
        raise HTTPException(401, {"message": "this token is not known"})
    response = plain({"right": right.name.lower()})
    let_in(request, response, right)
    return response


def let_in(request: Request, response: Response, right: Any) -> None:
    """Set the cookie of a new session."""
    response.set_cookie(
        request.app.state.cookie,
        request.app.state.sessions.begin(right),
        max_age=SESSION_SECONDS,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


@router.post("/api/logout")
async def logout(request: Request) -> Response:
    """End the session of the cookie."""
    name = cookie_of(request.headers, request.app.state.cookie)
    if name:
        request.app.state.sessions.end(name)
    response = plain({})
    response.delete_cookie(request.app.state.cookie)
    return response


class Slots:
    """So many at once, so many more in line, the others are told to come back."""

    def __init__(self, at_once: int, waiting: int) -> None:
        self._limiter, self._most, self._here = anyio.CapacityLimiter(at_once), at_once + waiting, 0

    async def __aenter__(self) -> None:
        if self._here >= self._most:
            raise HTTPException(503, {"hint": "too many questions at once"}, headers={"retry-after": "1"})
        self._here += 1
        try:
            await self._limiter.acquire_on_behalf_of(anyio.get_current_task().id)
        except BaseException:
            self._here -= 1
            raise

    async def __aexit__(self, *_: object) -> None:
        self._here -= 1
        self._limiter.release_on_behalf_of(anyio.get_current_task().id)


def slot(request: Request) -> Slots:
    """The place of one that computes; to be entered."""
    slots: Slots = request.app.state.slots
    return slots
