"""Answers as they change, as server-sent events numbered by tick.

    begin   where this stream of events begins: the columns and the tick     id: 41
    change  the rows of one tick, as `results()` has them                    id: 42
    reset   that point is gone: the present answer instead                   id: 57
    end     the query is gone

A reader who comes back with `Last-Event-ID: 42` gets what came after tick 42: nothing lost, nothing twice. Each reader
has a place in the log of its query and nothing else, so one that reads slowly holds up nobody; when the log has moved
past its place it gets a `reset`. A tick's rows are written as JSON once, however many read them.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
from anyio import to_thread

from windrow.engine import Engine
from windrow.server.rows import FEW, columns, rows_json, table_json

KEPT_ROWS = 100_000
"""Rows of changes kept for those who come back."""

BEAT = 15.0
"""Seconds of silence after which a comment says that the connection lives."""

LOOK = 1.0
"""Seconds after which a quiet stream looks whether its query is still there."""


class Entry:
    """What changed in one tick."""

    def __init__(self, tick: int, table: pa.Table) -> None:
        self.tick, self.table = tick, table
        self._event: bytes | None = None

    async def event(self) -> bytes:
        """The event, written once."""
        if self._event is None:
            write = self._write
            self._event = write() if self.table.num_rows <= FEW else await to_thread.run_sync(write)
        return self._event

    def _write(self) -> bytes:
        return event("change", f'{{"tick": {self.tick}, "rows": {rows_json(self.table)}}}', self.tick)


class ChangeLog:
    """The newest changes of one query. Written by the engine's thread, read by the event loop."""

    def __init__(self, engine: Engine, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._engine, self._loop = engine, loop
        self.query = engine[name]
        self.plan = self.query.plan
        self._entries: deque[Entry] = deque()
        self._rows = 0
        self._lock = threading.Lock()
        self._changed = asyncio.Event()
        self.newest = self._gone = _tick_of(engine)
        self.query.subscribe(self._add)

    @property
    def alive(self) -> bool:
        """Whether the query that this log is of is still registered."""
        return self._engine.catalog.queries.get(self.plan.name.lower()) is self.plan

    def _add(self, table: pa.Table) -> None:
        tick = max(_tick_of(self._engine), self.newest + 1)
        with self._lock:
            self._entries.append(Entry(tick, table))
            self.newest = tick
            self._rows += table.num_rows
            while self._rows > KEPT_ROWS and len(self._entries) > 1:
                oldest = self._entries.popleft()
                self._gone = oldest.tick
                self._rows -= oldest.table.num_rows
        self.wake()

    def wake(self) -> None:
        """Let every reader look; from any thread."""

        def look() -> None:
            self._changed.set()
            self._changed = asyncio.Event()

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(look)

    def after(self, tick: int) -> list[Entry] | None:
        """What changed after a tick; None if some of it is gone, or if that tick has not been."""
        with self._lock:
            if not self._gone <= tick <= self.newest:
                return None
            return [e for e in self._entries if e.tick > tick]

    async def wait(self, seconds: float) -> None:
        """Until something changes, or for so long."""
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return

    def snapshot(self) -> tuple[int, pa.Table]:
        """The present answer and the tick it is of."""
        while True:
            before = self.newest
            table = self.query.snapshot()
            if self.newest == before:
                return before, table


class Changes:
    """The logs of all queries that somebody reads, and the readers."""

    def __init__(self, engine: Engine, limit: int) -> None:
        self._engine, self._limit = engine, limit
        self._logs: dict[str, ChangeLog] = {}
        self.readers = 0
        self._stopping = False

    def log(self, name: str) -> ChangeLog:
        """The log of a query; it begins when somebody first reads it."""
        key = name.lower()
        known = self._logs.get(key)
        if known is None or not known.alive:
            known = ChangeLog(self._engine, name, asyncio.get_running_loop())
            self._logs = {k: v for k, v in self._logs.items() if v.alive} | {key: known}
        return known

    @property
    def full(self) -> bool:
        """Whether no more readers are taken."""
        return self.readers >= self._limit or self._stopping

    def stop(self) -> None:
        """End every stream of events; readers come back when there is a server again."""
        self._stopping = True
        for log in self._logs.values():
            log.wake()

    async def events(self, log: ChangeLog, after: int | None) -> AsyncIterator[bytes]:
        """The events for one reader, who has everything up to tick `after` (None: begins now)."""
        self.readers += 1
        try:
            async for text in self._events(log, after):
                yield text
        finally:
            self.readers -= 1

    async def _events(self, log: ChangeLog, after: int | None) -> AsyncIterator[bytes]:
        place = log.newest if after is None else after
        quiet = 0.0
        if log.after(place) is not None:
            said = {"tick": place, "columns": columns(log.query.results().schema)}
            yield b"retry: 1000\n" + event("begin", json.dumps(said), place)
        while log.alive and not self._stopping:
            entries = log.after(place)
            if entries is None:
                place, text = await to_thread.run_sync(_reset, log)
                yield text
                continue
            for entry in entries:
                yield await entry.event()
                place, quiet = entry.tick, 0.0
            if not entries:
                await log.wait(LOOK)
                quiet += LOOK
                if quiet >= BEAT:
                    quiet = 0.0
                    yield b": still here\n\n"
        if not self._stopping:
            yield event("end", "{}", place)


def _reset(log: ChangeLog) -> tuple[int, bytes]:
    tick, table = log.snapshot()
    return tick, event("reset", table_json(table, tick=tick).decode(), tick)


def event(kind: str, data: str, number: int) -> bytes:
    """One event. JSON has no line breaks outside of escapes, so `data` is one line.

    >>> event("change", '{"rows": []}', 42)
    b'id: 42\\nevent: change\\ndata: {"rows": []}\\n\\n'
    """
    return f"id: {number}\nevent: {kind}\ndata: {data}\n\n".encode()


def _tick_of(engine: Engine) -> int:
    """The number of the newest tick."""
    runtime: Any = engine.runtime
    ticker: Any = getattr(runtime, "ticker", None)
    found: int = ticker.manifest.tick if ticker is not None else runtime._ticks
    return found
