"""Answers as they change, as server-sent events numbered by tick.

    begin   where this stream of events begins: the columns and the tick     id: 3fa9-41
    change  the rows of one tick, as `results()` has them, and its frontier  id: 3fa9-42
    reset   that point is gone: the present answer instead                   id: 3fa9-57
    end     the query is gone

The number of an event is the tick, behind a mark of the home (or, without one, of the process) whose ticks these are. A
reader who comes back with `Last-Event-ID: 3fa9-42` gets what came after tick 42: nothing lost, nothing twice. The
engine keeps the log; a reader has a place in it and nothing else, so one that reads slowly holds up nobody, and gets a
`reset` when the log has moved past its place. A tick's rows are written as JSON once, however many read them.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
from anyio import to_thread

from windrow.engine import Engine, Query
from windrow.errors import WindrowError
from windrow.runtime.answer_metadata import answer_metadata
from windrow.sinks.json_text import FEW, columns, rows_json, table_json

BEAT = 15.0
"""Seconds of silence after which a comment says that the connection lives."""

LOOK = 1.0
"""Seconds after which a quiet stream looks whether its query is still there."""

WRITTEN = 2000
"""Events kept as text for those who read them a little later."""


def of_itself(table: pa.Table) -> dict[str, Any]:
    """What an answer says of itself, for JSON: as_of, isolation, from, quality."""
    found: dict[str, Any] = dict(answer_metadata(table.schema))
    if "quality" in found:
        found["quality"] = json.loads(found["quality"])
    return found


class ChangeStreams:
    """The readers of all queries."""

    def __init__(self, engine: Engine, limit: int) -> None:
        self._engine, self._limit = engine, limit
        self.readers = 0
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ticked = asyncio.Event()
        self._pulse: asyncio.TimerHandle | None = None
        self._written: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._mark = engine.runtime.store.identity[:8]
        self._end = engine.on_tick(self.wake)

    @property
    def full(self) -> bool:
        """Whether no more readers are taken."""
        return self.readers >= self._limit or self._stopping

    def stop(self) -> None:
        """End every stream of events; readers come back when there is a server again."""
        self._stopping = True
        self._end()
        self.wake()

    def wake(self, tick: int = 0) -> None:
        """Let every reader look; from any thread."""
        loop = self._loop
        if self.readers and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        """Let everybody look now, and again after `LOOK` seconds: one timer for all of them."""
        self._ticked.set()
        self._ticked = asyncio.Event()
        if self._pulse is not None:
            self._pulse.cancel()
        assert self._loop is not None
        self._pulse = self._loop.call_later(LOOK, self._look) if self.readers else None

    def place(self, last_event_id: str | None) -> int | None:
        """The tick that a Last-Event-ID names; one of another life is before all ticks of this one."""
        mark, _, tick = (last_event_id or "").rpartition("-")
        if not tick.isdecimal() or len(tick) > 18:
            return None
        return int(tick) if mark == self._mark else -1

    async def events(self, name: str, after: int | None) -> AsyncIterator[bytes]:
        """The events for one reader, who has everything up to tick `after` (None: begins now)."""
        self._loop = asyncio.get_running_loop()
        self.readers += 1
        if self._pulse is None:
            self._look()
        try:
            async for text in self._events(self._engine[name], after):
                yield text
        finally:
            self.readers -= 1

    async def _events(self, query: Query, after: int | None) -> AsyncIterator[bytes]:
        plan, beat = query.plan, time.monotonic() + BEAT
        place = self._engine.runtime.ticker.manifest.tick if after is None else after
        if query.changes(place) is not None:
            shown = self._engine.runtime.declared.outlets[plan.name.lower()].recent.schema
            yield b"retry: 1000\n" + self.event("begin", json.dumps({"tick": place, "columns": columns(shown)}), place)
        while self._is_there(query, plan) and not self._stopping:
            ticked, entries = self._ticked, query.changes(place)
            if not entries and self._failure(query) is not None:
                break
            if entries is None:
                place, text = await to_thread.run_sync(self._reset, query)
                yield text
                continue
            for tick, table in entries:
                yield await self._change(tick, table)
                place, beat = tick, time.monotonic() + BEAT
            if not entries:
                await ticked.wait()
                if time.monotonic() >= beat:
                    beat = time.monotonic() + BEAT
                    yield b": still here\n\n"
        if not self._stopping:
            failure = self._failure(query)
            yield self.event("end", json.dumps({} if failure is None else {"stopped": str(failure)}), place)

    def _is_there(self, query: Query, plan: object) -> bool:
        return query.key in self._engine and self._engine[query.key].plan is plan

    def _failure(self, query: Query) -> WindrowError | None:
        """Why a query has stopped, which has no present answer then."""
        return self._engine.runtime.declared.failures.get(query.key)

    def _reset(self, query: Query) -> tuple[int, bytes]:
        tick, table = query.as_of_tick()
        return tick, self.event("reset", table_json(table, tick=tick, **of_itself(table)).decode(), tick)

    async def _change(self, tick: int, table: pa.Table) -> bytes:
        """The event of a tick, written once."""
        key = (tick, id(table))
        if key not in self._written:

            def write() -> bytes:
                head = json.dumps({"tick": tick, **of_itself(table)})
                return self.event("change", f'{head[:-1]}, "rows": {rows_json(table)}}}', tick)

            self._written[key] = write() if table.num_rows <= FEW else await to_thread.run_sync(write)
            while len(self._written) > WRITTEN:
                self._written.popitem(last=False)
        return self._written[key]

    def event(self, kind: str, data: str, tick: int) -> bytes:
        """One event. JSON has no line breaks outside of escapes, so `data` is one line."""
        return f"id: {self._mark}-{tick}\nevent: {kind}\ndata: {data}\n\n".encode()
