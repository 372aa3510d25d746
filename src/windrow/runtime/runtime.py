"""The runtime: rows of all streams meet in the driver, and what they do there together is a tick.

    sources ── poll ──┐
    push ─────────────┼──►  turn (`turn.py`)
    time, tables ─────┘

One loop for every kind of job. Rows that the program pushes are processed in the caller's thread where the job runs in
this process, so their answers are there when `push` returns; everything else is noticed by a thread of the runtime.
Changes (queries, streams, tables) are made between two ticks (`declarations.py`), and are durable when the call
returns; looking in (`inspection.py`) waits for nobody.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from windrow.catalog import Catalog
from windrow.errors import DrainTimeout, SourceError, WindrowError
from windrow.runtime.change import Change
from windrow.runtime.delivery import Delivery, by_label, settle
from windrow.runtime.inspection import Inspection
from windrow.runtime.job import LocalJob
from windrow.runtime.settings import Settings
from windrow.runtime.streams import PushSource, Stream
from windrow.sharing.registry import Registry
from windrow.sources.bounded import rows_given
from windrow.sources.intake import times
from windrow.sources.table_changes import check_changes
from windrow.store.background import spawn
from windrow.store.sealed import STATE, as_written
from windrow.store.store import MemoryStore, StateStore, Store

LOG = logging.getLogger("windrow.engine")

LOOKS = 0.05
"""The share of the time that looks at the sources take while nothing comes."""

SHORTEST, LONGEST = 0.003, 0.03
"""Seconds between two such looks: the delay of rows that appear."""

NAP = 0.2
"""Seconds between two looks at the clock and the tables."""

STOPPING = 10.0
"""Seconds that a stop waits for sinks that take what there is; what is left is in the home."""


class Runtime(Inspection):
    """Continuous queries over live streams, on any job."""

    # what the engine asks

    @property
    def sharing(self) -> Registry:
        """Who shares with whom."""
        return self.ticker.sharing

    @property
    def home(self) -> str | None:
        """Where the state is kept."""
        return self.store.place.uri if self.store.place is not None else None

    def apply(self, change: Change, then: Callable[[], None] | None = None) -> None:
        """Make a change between two ticks: all of it, durably, or none; `then` comes before the next tick."""
        with nullcontext() if then is None else self._ticking:
            # what has failed can still be looked at and dropped
            self.declared.apply(change, (lambda: None) if change.only_drops else self.check)
            if then is not None:
                then()
        if self._running and self.job.in_process and self._error is None:
            self._at_once()  # what streams have kept is answered at once
            if change.only_queries_come:  # how long the loop waits follows from streams and tables
                return
        self._wake.set()

    def restore(self, catalog: Catalog) -> Catalog:
        """The catalog that the home was left with, and its queries, ready to go on."""
        with nullcontext() if self.home is None else as_written(STATE, f"in {self.home}"):
            found = self.declared.restore(catalog)
        self.store.sweep(orphans=True)  # not before it is certain that the home can be opened
        self._found = self.ticker.manifest.tick
        return found

    @contextmanager
    def between_ticks(self) -> Iterator[None]:
        """No tick runs meanwhile."""
        with self._ticking:
            yield

    def on_close(self, then: Callable[[], None]) -> None:
        """Do this when the runtime has stopped."""
        self._closing.append(then)

    # running

    def start(self) -> None:
        """Begin to read streams, or go on after a stop or, where state lasts, after a failure."""
        if self._running and not self._stopping.is_set():
            return
        if not self.store.runs.durable:
            self.check()
        if self._closed:
            self._reopen()
        self._error = None
        self._stopping.clear()
        with self._ticking:
            self.declared.check_sources()
            self._redeliver()
            for stream in self.declared.streams.values():
                stream.seen = self._clock()
            self._running = True
        if self.job.in_process:  # rows that were pushed before are processed now
            self._at_once()
        self._loop = spawn(self._run, "windrow-ticks")

    def _reopen(self) -> None:
        """Take up what `stop` has let go of."""
        self.store.reopen()
        self._closed = False
        for stream in self.declared.streams.values():
            self.declared.reopen(stream)
        for outlet in self.declared.outlets.values():
            outlet.resume()

    def _run(self) -> None:
        while not self._stopping.is_set():
            begin = time.perf_counter()
            worked = self.turn()
            if worked is None:
                return
            if not worked:
                self._wake.wait(self._patience(time.perf_counter() - begin))
                self._wake.clear()

    def turn(self) -> bool | None:
        """Do once what the loop does again and again: whether there was anything to do; None: it has failed."""
        try:
            return self._turn()
        except Exception as error:
            self._fail(self._explain(error))
            return None

    def _patience(self, looked: float) -> float | None:
        """How long to wait after a look of so many seconds at which nothing had come; None: until something is pushed
        or declared."""
        declared = self.declared
        streams = list(declared.streams.values())
        if any(not isinstance(s.source, PushSource) for s in streams):
            return min(LONGEST, max(SHORTEST, looked / LOOKS))
        waits = any(s.definition.idle_after is not None for s in streams)
        waits |= any(t.every is not None for t in list(declared.tables.values()))
        return NAP if waits else None

    def _fail(self, error: WindrowError) -> None:
        LOG.error("tick %d: %s", self.ticker.manifest.tick + 1, error)
        self._error = error
        self._stopping.set()

    # rows from the program, and time

    def push(self, stream: str, rows: Any) -> int:
        """Hand in rows of a stream, in order of arrival: how many; in process they are answered when this returns."""
        self.check()
        found = self._pushed_to(stream)
        told = self.declared.tables.get(found.key)
        table, _ = rows_given(replace(found.definition, quarantine=False), rows)  # a file is taken whole, or not at all
        if not found.definition.quarantine:  # what is malformed is refused before it is anybody's
            if told is not None:
                check_changes(told.definition, table)
            else:
                times(found.definition, table)
        assert isinstance(found.source, PushSource)
        now = self._running and self.job.in_process
        found.source.push(table, spooled=not now)
        if now:
            self._at_once()
        else:
            self._wake.set()
        return int(table.num_rows)

    def _pushed_to(self, stream: str) -> Stream:
        found = self.declared.streams[stream.lower()]
        if not isinstance(found.source, PushSource):
            raise SourceError(
                f'stream "{found.definition.name}" has a source of its own',
                hint="declare it without FROM to push its rows",
            )
        return found

    def advance(self, until: int) -> None:
        """Move time to `until`: no row at or before it will come."""
        self.check()
        if until > self.ticker.frontier:
            self._at_once(until)

    def _at_once(self, until: int | None = None) -> None:
        try:
            self._turn(until)
        except Exception as error:
            failure = self._explain(error)
            self._fail(failure)
            raise failure from error

    # waiting and stopping

    def check(self) -> None:
        """Raise what made the runtime fail, if something did."""
        if self._error is not None:
            raise self._error

    def tick_runs(self) -> bool:
        """Whether a tick computes in another thread of this process, and so needs the interpreter."""
        return not self._quiet.is_set() and self.job.in_process and self._computing != threading.get_ident()

    def let_tick_pass(self, seconds: float) -> None:
        """Wait for the end of a tick that computes, at most so long."""
        self._quiet.wait(seconds)

    def wait(self, seconds: float | None = None) -> None:
        """Wait for the runtime to stop or fail; a failure is raised."""
        if self._loop is not None:
            self._loop.join(seconds)
        self.check()

    def drain(self, seconds: float = 60.0) -> None:
        """Wait until every stream has handed over all it has now, and whoever takes the answers has taken them.

        Receivers that fail when tried once more, or hang, are not waited for. Raises `DrainTimeout`, and has changed
        nothing, if that takes longer than so many seconds.
        """
        deadline = time.monotonic() + seconds
        tried, late = self._try_again(), list[str]()
        while self._error is None and self._running:
            late = [f'stream "{s.definition.name}"' for s in self._undrained(tried)]
            if not late:
                with self._ticking:  # a tick that is under way belongs to what was there
                    break
            if time.monotonic() >= deadline:
                break
            self._wake.set()
            time.sleep(0.01)
            self._quiet.wait(min(NAP, max(0.0, deadline - time.monotonic())))  # a tick that computes brings more
        self.check()
        late += [d.label for d in settle(self.deliveries(), max(0.0, deadline - time.monotonic()))]
        stopped = next((s.stopped for s in list(self.declared.streams.values()) if s.stopped is not None), None)
        if stopped is not None:
            raise stopped.error
        if late:
            raise DrainTimeout(
                f"not drained in {seconds:g} seconds: {', '.join(late)}",
                detail="the engine goes on, and nothing is lost",
                hint="give drain() more seconds, or see in status() how far streams and sinks are",
            )

    def _undrained(self, tried: Mapping[str, int]) -> list[Stream]:
        """Streams that have not handed over all they have, or have not been tried again."""
        offsets = self.ticker.manifest.offsets
        return [
            s for k, s in list(self.declared.streams.items())
            if (s.stopped.tries <= tried.get(k, 0) if s.stopped else not s.source.drained(offsets.get(k)))
        ]  # fmt: skip

    def _try_again(self) -> dict[str, int]:
        """Try streams that are stopped now; returns how often each has been tried."""
        tried = {}
        for key, stream in list(self.declared.streams.items()):
            if stream.stopped is not None:
                tried[key] = stream.stopped.tries
                stream.stopped.again = 0.0
        return tried

    def deliveries(self) -> list[Delivery]:
        """Everybody who is told of answers and ticks."""
        told = [o for o in list(self.declared.outlets.values()) if o.sinks or o.recent.subscribers]
        return [*(d for o in told for d in o.deliveries), *self.listeners]

    def stop(self) -> None:
        """End after the tick that runs; everything so far is kept."""
        self._stopping.set()
        self._wake.set()
        self._running = False
        if self._loop is not None and self._loop is not threading.current_thread():
            self._loop.join(60)
        self._loop = None
        for stream in self.declared.streams.values():
            stream.source.close()
        for table in self.declared.tables.values():
            table.close()
        settle(self.deliveries(), STOPPING if self.store.runs.durable else 6 * STOPPING)
        for outlet in self.declared.outlets.values():
            outlet.close()
        self.job.close()
        self.store.close()
        self._closed = True
        for then in self._closing:
            then()
        self._closing = []

    # figures

    def status(self, queries: Collection[str] | None = None) -> dict[str, Any]:
        """Figures about the run, as plain JSON, with a line for every query or for those of these keys."""
        return {
            "runtime": self.job.kind,
            "home": self.home,
            "running": self._running and not self._stopping.is_set(),
            "error": None if self._error is None else str(self._error),
            "failed": {name: str(error) for name, error in self.declared.failures.items()},
            **self.figures.status(self, queries),
            "archives": self.declared.archives.status(),
            "sinks": self.declared.outbox.status(),
            "receivers": by_label([d for d in self.deliveries() if not d.retried]),
        }

    def quality(self, query: str) -> dict[str, Any] | None:
        """What was shed before a query and in its joins; None when it never sheds."""
        return self.figures.quality(self, query.lower())


def open_local(
    home: str | os.PathLike[str] | None, functions: Mapping[str, Callable[..., object]], settings: Settings
) -> Runtime:
    """The runtime in this process over a home; without one its state goes with it."""
    store: StateStore = MemoryStore() if home is None else Store.open(home)
    try:
        if isinstance(store, Store):
            store.check()
        with as_written(STATE, f"in {home}"):
            return Runtime(LocalJob(), store, functions, settings)
    except BaseException:
        store.close()
        raise
