"""The listening process: a socket, TLS, and a stop that lets everyone finish.

`run` serves until a signal; a `with` block has it in a thread, beside something else. On a stop, event streams end
first (readers come back to the next server with their Last-Event-ID), then requests under way, then the socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

import uvicorn

from windrow.engine import Engine
from windrow.errors import SourceError
from windrow.server.access import Tokens
from windrow.server.app import create_app
from windrow.server.guard import ServerLimits
from windrow.server.ticks_first import TicksFirst

GRACE = 5
"""Seconds that requests under way have left when the server stops."""

BACKLOG = 1024
"""Connections that may wait to be taken."""


@dataclass(frozen=True)
class Address:
    """Where to listen, and the files of the certificate if by TLS."""

    host: str = "127.0.0.1"
    port: int = 8765
    certificate: str | None = None
    key: str | None = None


class Server(uvicorn.Server):
    """An engine at an address."""

    def __init__(self, engine: Engine, tokens: Tokens, address: Address, limits: ServerLimits | None = None) -> None:
        self._socket = listening(address)
        self.port: int = self._socket.getsockname()[1]
        scheme = "https" if address.certificate else "http"
        host = f"[{address.host}]" if ":" in address.host else address.host
        self.url = f"{scheme}://{host}:{self.port}"
        guard = create_app(engine, tokens, limits, cookie=f"windrow-{self.port}")
        self._changes = guard.app.state.changes
        self._runtime = engine.runtime
        self._thread: threading.Thread | None = None
        try:
            super().__init__(_config(guard, address))
            self.config.load()
        except OSError as error:
            self._socket.close()
            files = f"{address.certificate} and {address.key}"
            raise SourceError(f"the certificate cannot be read: {files}", detail=str(error)) from None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A signal ends the event streams and then the server; it is not raised again: the engine must stop, too."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def asked(number: int, frame: FrameType | None) -> None:
            self._changes.stop()
            self.handle_exit(number, frame)

        before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until asked to stop."""
        runtime = self._runtime
        selector = TicksFirst(runtime.tick_runs, runtime.let_tick_pass)
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
            runner.run(self.serve(sockets))

    def run_until_signal(self) -> None:
        """Serve until SIGINT or SIGTERM."""
        self.run(sockets=[self._socket])

    def __enter__(self) -> Server:
        """Serve from a thread while the block runs, from when requests are taken."""
        self._thread = threading.Thread(
            target=self.run, kwargs={"sockets": [self._socket]}, name="windrow-server", daemon=True
        )
        self._thread.start()
        while not self.started and self._thread.is_alive():
            time.sleep(0.01)
        return self

    def __exit__(self, *raised: object) -> None:
        self._changes.stop()
        self.should_exit = True
        if self._thread is not None:
            self._thread.join(GRACE + 5)
        self._socket.close()


def listening(address: Address) -> socket.socket:
    """A socket that listens, so that the port is known and a taken one is an error that people understand.

    Two sockets that may reuse an address can both be bound to it; only the one that listens first has it.
    """
    try:
        family, kind, proto, _, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        with contextlib.ExitStack() as unbound:
            made = unbound.enter_context(socket.socket(family, kind, proto))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(where)
            made.listen(BACKLOG)
            unbound.pop_all()
        return made
    except OSError as error:
        raise SourceError(
            f"cannot listen at {address.host}, port {address.port}",
            detail=error.strerror or str(error),
            hint="choose another one with --port (0: any that is free)",
        ) from None


def _config(app: object, address: Address) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        ssl_certfile=address.certificate,
        ssl_keyfile=address.key,
        log_level="warning",
        access_log=False,  # addresses may carry a token
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE,
        backlog=BACKLOG,
    )
