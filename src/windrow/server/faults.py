"""Errors as JSON: `{"error": {"message", "detail", "hint", "line", "column"}}`, never a traceback.

What a user can do about an error decides its status: a wrong text is 400, a name that is not there 404, something that
the engine cannot do now 503. What nobody foresaw is 500 with a number; the log has the traceback under that number.
"""

from __future__ import annotations

import json
import logging
import secrets
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from windrow.errors import RuntimeFailure, StateError, WindrowError

LOG = logging.getLogger("windrow.server")

WORDS = {
    400: "the request cannot be understood",
    401: "a token is needed",
    403: "this token may only read",
    404: "there is nothing here",
    405: "this address does not take that method",
    406: "no form that you accept can be given",
    408: "the request came too slowly",
    413: "the request is too large",
    415: "the request has a form that is not taken here",
    429: "too many requests",
    503: "the server is busy",
}


def fault(
    status: int,
    message: str | None = None,
    *,
    detail: str | None = None,
    hint: str | None = None,
    line: int | None = None,
    column: int | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """An error as a response."""
    said = {"message": message or WORDS.get(status, "the request failed"), "detail": detail, "hint": hint}
    body = json.dumps({"error": {**said, "line": line, "column": column}})
    return Response(body, status, headers, media_type="application/json")


def of_windrow(_: Request, error: Exception) -> Response:
    """windrow's own errors, with their place in the text."""
    assert isinstance(error, WindrowError)
    status = 503 if isinstance(error, StateError) else 422 if isinstance(error, RuntimeFailure) else 400
    span = error.span
    return fault(
        status,
        error.primary,
        detail=error.detail,
        hint=error.hint,
        line=span.line if span is not None else None,
        column=span.column if span is not None else None,
    )


def of_http(_: Request, error: Exception) -> Response:
    """What the framework or a route refuses."""
    assert isinstance(error, HTTPException)
    detail: Any = error.detail
    said: dict[str, Any] = detail if isinstance(detail, dict) else {}
    return fault(error.status_code, headers=dict(error.headers or {}), **said)


def of_validation(_: Request, error: Exception) -> Response:
    """A body or parameter of the wrong form."""
    assert isinstance(error, RequestValidationError | ValidationError)
    first = error.errors()[0] if error.errors() else {"loc": (), "msg": ""}
    place = ".".join(str(part) for part in first["loc"])
    return fault(400, detail=f"{place}: {first['msg']}"[:500].encode(errors="replace").decode())


def of_others(request: Request, error: Exception) -> Response:
    """What a route did not foresee."""
    request.scope["state"]["told"] = True  # the framework raises it again when it has been answered
    return unforeseen(error)


def unforeseen(error: BaseException) -> Response:
    """A fault of windrow's: the reader gets a number to look for in the log."""
    number = secrets.token_hex(4)
    LOG.error("request failed, number %s", number, exc_info=error)
    return fault(500, "internal error", detail=f"the server's log has it under {number}")
