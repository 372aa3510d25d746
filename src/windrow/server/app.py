"""The application: routes inside a guard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import RedirectResponse, Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from windrow import __version__
from windrow.engine import Engine
from windrow.errors import WindrowError
from windrow.server import archives, changing, faults, reading
from windrow.server.access import LogIns, Tokens
from windrow.server.changes import ChangeStreams
from windrow.server.guard import EXPANSION, Guard, ServerLimits
from windrow.server.listing import QueryList
from windrow.server.live import Live
from windrow.server.metrics import exposition

STATIC = Path(__file__).with_name("static")
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message"],
            "properties": {
                "message": {"type": "string"},
                "detail": {"type": ["string", "null"]},
                "hint": {"type": ["string", "null"]},
                "line": {"type": ["integer", "null"]},
                "column": {"type": ["integer", "null"]},
            },
        }
    },
}


def create_app(engine: Engine, tokens: Tokens, limits: ServerLimits | None = None, cookie: str = "windrow") -> Guard:
    """The application of one engine. `cookie`: its name, for cookies do not tell ports apart."""
    limits = limits or ServerLimits()
    app = FastAPI(title="windrow", version=__version__, openapi_url=None, docs_url=None, redoc_url=None)
    state = app.state
    state.live, state.tokens, state.sessions, state.cookie = Live(engine), tokens, LogIns(tokens), cookie
    state.queries = QueryList(state.live)
    state.changes = ChangeStreams(engine, limits.event_streams)
    state.most_arrow = EXPANSION * limits.body_bytes
    state.slots = changing.Slots(limits.asks, limits.asks_waiting)
    app.include_router(reading.router)
    app.include_router(changing.router)
    app.include_router(archives.router)
    _add_pages(app)
    app.add_exception_handler(WindrowError, faults.of_windrow)
    app.add_exception_handler(HTTPException, faults.of_http)
    app.add_exception_handler(RequestValidationError, faults.of_validation)
    app.add_exception_handler(ValidationError, faults.of_validation)
    app.add_exception_handler(Exception, faults.of_others)
    return Guard(app, tokens, state.sessions, limits, cookie)


def _add_pages(app: FastAPI) -> None:
    page = STATIC.joinpath("index.html").read_text(encoding="utf-8")

    @app.get("/healthz")
    def health(request: Request) -> Response:
        """Whether the engine goes on; open to everybody."""
        status = reading.live(request).status()
        well = status.get("error") is None
        response = reading.plain({"ok": well})
        response.status_code = 200 if well else 503
        return response

    @app.get("/metrics", responses={200: {"content": {"text/plain": {}}}})
    def metrics(request: Request) -> Response:
        """For Prometheus."""
        state = request.app.state
        return Response(exposition(state.live, state.changes), media_type="text/plain; version=1.0.0; charset=utf-8")

    @app.get("/api/openapi.json", include_in_schema=False)
    def openapi(request: Request) -> Response:
        return reading.plain(document(app))

    @app.get("/", include_in_schema=False)
    def console(request: Request, token: str | None = None) -> Response:
        """The page, which shows no data before log-in; a link with a token logs in."""
        right = request.app.state.tokens.right(token) if token else None
        if right is not None:
            response: Response = RedirectResponse("/", 303)
            changing.let_in(request, response, right)
            return response
        return Response(page.replace("{{nonce}}", request.scope["state"]["nonce"]), media_type="text/html")

    app.mount("/static", StaticFiles(directory=STATIC))


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document: every route may also answer with an error."""
    made = get_openapi(title=app.title, version=app.version, routes=app.routes, description=(__doc__ or "").strip())
    content = {"description": "an error", "content": {"application/json": {"schema": ERROR}}}
    for path in made["paths"].values():
        for route in path.values():
            route["responses"].pop("422", None)
            route["responses"]["default"] = content
    made.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    made["security"] = [{"token": []}]
    return made
