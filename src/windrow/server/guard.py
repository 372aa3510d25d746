"""What every request passes before any route: rate, token, origin, size; and the headers every answer leaves with.

    request ── who is it? ── too fast? ── allowed to knock here? ── body counted and timed as it comes ──► routes

Without a token only `OPEN` answers, and nothing of it shows data: so an unknown path looks the same as a known one.
A request that changes something and comes with a cookie must come from this server's own pages: `SameSite=Strict`
alone would let other ports of this machine in.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

from fastapi import FastAPI, HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message, Receive, Scope, Send

from windrow.server.access import LogIns, Right, Tokens
from windrow.server.faults import fault, unforeseen

OPEN = ("/healthz", "/", "/api/login")
OPEN_BELOW = "/static/"

CONTENT = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; style-src-attr 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True)
class ServerLimits:
    """What one server bears."""

    body_bytes: int = 16 << 20
    body_seconds: float = 30.0
    requests_per_second: float = 300.0  # of one token or address
    refusals_per_second: float = 20.0  # answers to requests without a token, for one address
    asks: int = 4  # that are computed at once
    asks_waiting: int = 100
    event_streams: int = 1000


EXPANSION = 16
"""How many times its own size a compressed body may become."""


class Rates:
    """Token buckets by name: `rate` a second, twice that at once. Bounded: names not seen for longest are forgotten."""

    def __init__(self, rate: float, names: int = 10_000) -> None:
        self._rate, self._names = rate, names
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str) -> bool:
        """Whether one more is within the rate."""
        now = time.monotonic()
        left, then = self._left.pop(name, (2 * self._rate, now))
        left = min(2 * self._rate, left + (now - then) * self._rate)
        self._left[name] = (left - 1 if left >= 1 else left, now)
        if len(self._left) > self._names:
            self._left.popitem(last=False)
        return left >= 1


class Guard:
    """An ASGI layer around the whole application."""

    def __init__(self, app: FastAPI, tokens: Tokens, sessions: LogIns, limits: ServerLimits, cookie: str) -> None:
        self.app, self.tokens, self.sessions, self.limits, self.cookie = app, tokens, sessions, limits, cookie
        self._known, self._unknown = Rates(limits.requests_per_second), Rates(limits.refusals_per_second)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets here
            await send({"type": "websocket.close", "code": 1008})
            return
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                self._sign(scope, MutableHeaders(scope=message))
            await send(message)

        scope["state"] = {**scope.get("state", {}), "nonce": secrets.token_urlsafe(16)}
        try:
            refusal = self._refusal(scope)
            if refusal is not None:
                await refusal(scope, receive, sending)
            else:
                await self.app(scope, self._bounded(scope, receive), sending)
        except Exception as error:
            if scope["state"].get("told"):
                return
            response = unforeseen(error)
            if not begun:  # half an answer cannot be taken back: the connection is cut
                await response(scope, receive, sending)

    def _refusal(self, scope: Scope):  # type: ignore[no-untyped-def]
        """The answer to a request that goes no further; None lets it pass."""
        headers, path = Headers(scope=scope), scope["path"]
        address = (scope.get("client") or ("", 0))[0]
        right, by_cookie = self._right(headers)
        scope["state"]["right"] = right
        if not (self._known if right is not None else self._unknown).take(address):
            return fault(429, hint="wait a second", headers={"retry-after": "1"})
        if right is None and path not in OPEN and not path.startswith(OPEN_BELOW):
            hint = "send `Authorization: Bearer TOKEN`, or log in at /"
            return fault(401, hint=hint, headers={"www-authenticate": "Bearer"})
        if scope["method"] not in ("GET", "HEAD") and (by_cookie or path == "/api/login") and not _is_own(headers):
            return fault(403, "a request from another site", hint="programs send `Authorization: Bearer TOKEN`")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.limits.body_bytes:
            return fault(413, hint=f"send at most {self.limits.body_bytes:,} bytes at once")
        return None

    def _right(self, headers: Headers) -> tuple[Right | None, bool]:
        """What a request may do, and whether it says so by cookie."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.tokens.right(token.strip()), False
        name = cookie_of(headers, self.cookie)
        return (self.sessions.right(name) if name else None), True

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        """Count and time the body as it comes."""
        count, whole = 0, False
        until = time.monotonic() + self.limits.body_seconds

        async def bounded() -> Message:
            nonlocal count, whole
            if whole:  # waiting for the client to go away takes as long as it takes
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(0.0, until - time.monotonic()))
            except TimeoutError:
                raise HTTPException(408) from None
            count += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if count > self.limits.body_bytes:
                raise HTTPException(413, {"hint": f"send at most {self.limits.body_bytes:,} bytes at once"})
            return message

        return bounded

    def _sign(self, scope: Scope, headers: MutableHeaders) -> None:
        for name, value in HEADERS.items():
            headers[name] = value
        headers["content-security-policy"] = CONTENT.format(nonce=scope["state"]["nonce"])
        if scope.get("scheme") == "https":
            headers["strict-transport-security"] = "max-age=31536000"
        if "cache-control" not in headers:
            headers["cache-control"] = "no-store"


def cookie_of(headers: Headers, name: str) -> str | None:
    """The value of a cookie."""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return None
    return found.value if found is not None else None


def _is_own(headers: Headers) -> bool:
    """Whether a browser says that its own page here sends this; programs say nothing."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host")
