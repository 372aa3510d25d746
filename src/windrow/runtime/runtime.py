"""The runtime: rows of all streams meet in the driver, and what they do there together is a tick.

    sources ── poll ──┐
    push ─────────────┼──►  turn:  program ─ job ─ collect ─ manifest (state, offsets) ─ sinks ─ sweep
    time, tables ─────┘            (driver)  (Spark, or this process)

One loop for every kind of job. Rows that the program pushes are processed in the caller's thread where the job runs in
this process, so their answers are there when `push` returns; everything else is noticed by a thread of the runtime.
Changes (queries, streams, tables) are made between two ticks (`declarations`), and are durable when the call returns.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa

from windrow.catalog import Catalog
from windrow.errors import SourceError, StateError, WindrowError
from windrow.operators.at_exit import gate
from windrow.operators.elements import BEGINNING
from windrow.plan.nodes import QueryPlan
from windrow.runtime import view
from windrow.runtime.change import Change, Frames
from windrow.runtime.deadlines import Deadlines, technique_of
from windrow.runtime.declarations import Declarations
from windrow.runtime.delivery import Delivery, settle
from windrow.runtime.job import Feed, Job
from windrow.runtime.late import LateRowsStore
from windrow.runtime.messages import StreamFailed
from windrow.runtime.program import QueryProgram, frontier
from windrow.runtime.quarantine import Quarantine, output_name
from windrow.runtime.status import TickFigures
from windrow.runtime.streams import PushSource, Stream
from windrow.runtime.tick import Tick, Ticker
from windrow.runtime.view import InMemoryState, StateReader, StoredState, View
from windrow.sharing.plans.explain import sharing_of_continuous
from windrow.sharing.registry import Registry
from windrow.sources.intake import times
from windrow.sources.protocol import Available
from windrow.sources.tabular import to_table
from windrow.store.failpoints import reach
from windrow.store.store import StateStore

LOG = logging.getLogger("windrow.engine")

POLL = 0.03
"""Seconds between two looks at the sources while nothing comes: the least delay of rows that appear."""

NAP = 0.2
"""Seconds between two looks at the clock and the tables."""

IDLE_TICK = 1.0
"""Seconds between two ticks that only time makes."""

STOPPING = 10.0
"""Seconds that a stop waits for sinks that take what there is; what is left is in the home."""

Functions = Mapping[str, Callable[..., object]]


class Runtime:
    """Continuous queries over live streams, on any job."""

    def __init__(
        self,
        job: Job,
        store: StateStore,
        functions: Functions,
        *,
        strategy: str = "upa",
        partitions: int | None = None,
        sharing: str = "auto",
        budget_us: int | None = None,
        schedule: str = "late-pending",
        ahead_us: int | None = None,
        allow: Collection[str] = (),
        frames: Frames | None = None,
        explain: Callable[[BaseException], WindrowError] | None = None,
        clock: Callable[[], float] = time.time,
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.job, self.store, self._clock, self._stopwatch = job, store, clock, stopwatch
        self._explain = explain or _unexpected
        self._ahead_us = ahead_us
        how = sharing if strategy == "upa" else "off"
        self.ticker = Ticker(store, functions, partitions or job.parallelism, how, in_process=job.in_process)
        self.ticker.deadlines = Deadlines(None if budget_us is None else budget_us / 1e6, technique_of(schedule))
        self.declared = Declarations(self.ticker, strategy, budget_us, frames, allow)
        self.late_rows = LateRowsStore(store)
        self.quarantine = Quarantine(store)
        self.figures = TickFigures()
        self._ticking = threading.RLock()  # one tick at a time
        self._quiet = threading.Event()  # no tick computes
        self._quiet.set()
        self._computing = 0  # the thread of the tick that does
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._loop: threading.Thread | None = None
        self._running = self._closed = False
        self._error: WindrowError | None = None
        self._last_tick = clock()
        self._closing: list[Callable[[], None]] = []
        self.listeners: dict[Delivery, Callable[[int], object]] = {}

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
        with contextlib.nullcontext() if then is None else self._ticking:
            # what has failed can still be looked at and dropped
            self.declared.apply(change, (lambda: None) if change.only_drops else self.check)
            if then is not None:
                then()
        if self._running and self.job.in_process and self._error is None:
            self._at_once()  # what streams have kept is answered at once
        self._wake.set()

    def restore(self, catalog: Catalog, without: frozenset[str]) -> Catalog:
        """The catalog that the home was left with, and its queries, ready to go on."""
        return self.declared.restore(catalog, without)

    @contextlib.contextmanager
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
            self._turn()
        self._loop = threading.Thread(target=self._run, name="windrow-ticks", daemon=True)
        self._loop.start()

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
            try:
                worked = self._turn()
            except Exception as error:
                self._fail(self._explain(error))
                return
            if not worked:
                self._wake.wait(self._patience())
                self._wake.clear()

    def _patience(self) -> float | None:
        """How long to wait when nothing comes; None: until something is pushed or declared."""
        declared = self.declared
        streams = list(declared.streams.values())
        if any(not isinstance(s.source, PushSource) for s in streams):
            return POLL
        waits = any(s.definition.idle_after is not None for s in streams)
        waits |= any(t.every is not None for t in list(declared.tables.values()))
        return NAP if waits else None

    def _turn(self, until: int | None = None) -> bool:
        """Take what all sources have and run a tick over it, if there is anything to do."""
        with gate, self._ticking:
            while not (done := self._attempt(until)):
                if done is None:
                    return False
            return True

    def _attempt(self, until: int | None) -> bool | None:
        """Poll, and run a tick: whether it was done. False: a stream could not be read, and nothing has happened; None:
        there is nothing to do."""
        polled = self._poll()
        declared = self.declared
        with declared.busy:
            rows = [(s, a) for s, a in polled if declared.streams.get(s.key) is s]
            self._refresh_tables()
            fresh = declared.fresh
            histories = self._histories()
            idle = self._idle()
            if not (rows or histories or until is not None or self._time_moves(idle)):
                return None
            self._computing = threading.get_ident()
            self._quiet.clear()
            before = self.ticker.manifest.tick
            try:
                return self._tick(rows, histories, idle, until)
            finally:
                self._quiet.set()
                if self.ticker.manifest.tick == before:  # nothing has happened
                    declared.fresh = fresh

    def _poll(self) -> list[tuple[Stream, Available]]:
        found = []
        offsets = self.ticker.manifest.offsets
        now = self._clock()
        for stream in list(self.declared.streams.values()):
            if stream.stopped is not None and now < stream.stopped.again:
                continue
            try:
                if stream.stopped is not None:
                    self.declared.reopen(stream)
                available = stream.source.poll(offsets.get(stream.key))
            except Exception as error:
                self._stop_stream(stream, self._explain(error))
                continue
            if available is not None:
                found.append((stream, available))
            else:
                stream.stopped = None
        return found

    def _stop_stream(self, stream: Stream, failure: WindrowError) -> None:
        """Let a stream stand still that cannot be read; one that fails for the home's sake stops everything."""
        failure = _of_stream(failure, stream)
        if isinstance(failure, StateError):
            raise failure
        stopped = stream.stop(failure, self._clock())
        if stopped.tries == 1:
            LOG.error("stream %s is stopped, and tried again: %s", stream.definition.name, failure)

    def _idle(self) -> dict[str, int | None]:
        """The streams that have been silent for so long that they follow the clock on the wall, and where they are."""
        now, marks = self._clock(), self.ticker.manifest.marks
        return {
            key: stream.reached(now, marks.get(key, BEGINNING))
            for key, stream in self.declared.streams.items()
            if stream.silent_for(now) is not None
        }

    def _time_moves(self, idle: Mapping[str, int | None]) -> bool:
        """Whether silence alone lets time go on, and long enough after the last tick to be worth one."""
        ticker = self.ticker
        if not idle or not ticker.queries or self._clock() - self._last_tick < IDLE_TICK:
            return False
        return frontier(ticker.streams, ticker.manifest.marks, idle, ticker.frontier) > ticker.frontier

    def _ahead(self) -> dict[str, int]:
        """By stream, the instant beyond which a row is set aside: further ahead than allowed of the stream's own time
        and of the clock on the wall."""
        found = {}
        for key, stream in self.ticker.streams.items():
            allowed = stream.ahead if stream.ahead is not None else self._ahead_us
            if allowed is not None and not pa.types.is_integer(stream.time_type):
                mark = self.ticker.manifest.marks.get(key)
                own = BEGINNING if mark is None else mark - stream.slack - 1
                found[key] = max(int(self._clock() * 1e6), own) + allowed
        return found

    def _tick(
        self,
        rows: list[tuple[Stream, Available]],
        histories: list[Feed],
        idle: Mapping[str, int | None],
        until: int | None,
    ) -> bool:
        """Run a tick; False if some stream could not be read, and nothing has happened."""
        begin = self._stopwatch()
        now = self._clock()
        for stream, _ in rows:
            stream.seen = now
        ticker, budgets = self.ticker, self.declared.budgets
        self._stop_queries(self.declared.outbox.stopped())
        ahead = self._ahead()
        seen = {s.key: mark for s, a in rows if (mark := ticker.unread(s.key, a, ahead)) is not None}
        feeds = [Feed(s.key, a.given) for s, a in rows if s.key not in seen] + histories
        tasks = self.job.tasks({s.key: a for s, a in rows}) if budgets.shedding else None
        ticker.quotas = budgets.quotas(tasks)
        program, stages = ticker.program(until, idle, ahead, tuple(seen.values())), ticker.stages
        planned = self._stopwatch()
        with contextlib.nullcontext() if self.job.in_process else self.declared.job_runs():
            envelopes = list(self.job.run(feeds, program, stages))
        ran = self._stopwatch()
        failed = {e.message.stream: e.message.error for e in envelopes if isinstance(e.message, StreamFailed)}
        for key, error in failed.items():
            self._stop_stream(self.declared.streams[key], error)
        if failed:
            return False
        tick = ticker.collect(program, envelopes, stages)
        ticker.take_apart(tick)
        tick.seconds |= {"plan": planned - begin, "job": ran - planned, "collect": self._stopwatch() - ran}
        self._commit(tick, rows)
        lap = self._stopwatch()
        self._deliver(tick)
        tick.seconds["sinks"] = self._stopwatch() - lap
        lap = self._stopwatch()
        self.store.sweep()
        tick.seconds["sweep"] = self._stopwatch() - lap
        tick.seconds["total"] = self._stopwatch() - begin
        self._last_tick = tick.ended = self._clock()
        rest = tick.seconds["total"] - tick.spent  # deadlines give way before rows are shed
        budgets.observe(tick.number, rest, tick.frontier, max(0.0, tick.kernels - tick.spent), self._stopwatch())
        if ticker.deadlines is not None:
            ticker.deadlines.observe(tick.seconds["total"], tick.spent)
        self.figures.add(tick)
        for delivery, listener in list(self.listeners.items()):
            delivery.add(tick.number, 0, lambda call=listener: call(tick.number))  # type: ignore[misc]
        LOG.debug("tick %d: frontier %d, %.0f ms", tick.number, tick.frontier, 1000 * tick.seconds["total"])
        return True

    def _commit(self, tick: Tick, rows: list[tuple[Stream, Available]]) -> None:
        budgets, outbox = self.declared.budgets, self.declared.outbox
        budgets.record(tick.admitted)
        tick.counters |= budgets.counters()
        tick.answers = {q: budgets.mark(q, t) for q, t in tick.answers.items()}
        outputs: dict[str, pa.Table] = {}
        if self.store.runs.durable:  # what a crash between here and the sinks would lose
            outputs = outbox.outputs(tick.answers)
            outputs |= {view.kept_name(s): table for s, table in tick.late.items()}
            outputs |= {output_name(s): table for s, table in tick.aside.items()}
        offsets = {s.key: a.offset for s, a in rows}
        lap = self._stopwatch()
        archives = self.declared.archives.prepare(tick.number, tick.frontier, tick.archived)
        tick.seconds["archives"] = self._stopwatch() - lap
        tick.failed |= archives.failed
        kept = (archives.slots, archives.marks)
        reached = outbox.reached(tick.number)
        self.ticker.commit(tick, offsets, outputs, budgets.dump() if budgets.behind else None, kept, reached)
        self.declared.archives.accept(archives)
        self.declared.let_in()
        reach("after manifest")
        for stream, available in rows:
            stream.stopped = None
            stream.source.committed(available.offset)

    def _histories(self) -> list[Feed]:
        """What the streams of new queries have kept."""
        declared, ticker = self.declared, self.ticker
        ticker.settle()
        owners: dict[str, frozenset[str]] = {}
        for query in (ticker.queries[q] for q in declared.fresh if q in ticker.queries):
            # those who share have one history
            owners[ticker.owner(query.plan.name.lower())] = query.streams
        declared.fresh = []
        found = []
        kept = {s for streams in owners.values() for s in streams if declared.streams[s].definition.retain is not None}
        state = self._state() if kept else None
        for owner, streams in owners.items():
            for stream in sorted(streams & kept):
                assert state is not None
                rows = view.kept_rows(state, declared.streams[stream].definition, waiting=True)
                if rows.num_rows:
                    found.append(Feed(stream, rows, owner))
        return found

    def _deliver(self, tick: Tick) -> None:
        declared = self.declared
        declared.outbox.deliver(tick.number, tick.answers)
        for name, error in tick.failed.items():
            LOG.error("query %s, tick %d: %s", name, tick.number, error)
            declared.failures[name] = error
        for stream, rows in tick.late.items():
            LOG.warning("stream %s, tick %d: %d late rows", stream, tick.number, rows.num_rows)
            self.late_rows.write(stream, tick.number, rows)
        for stream, rows in tick.aside.items():
            LOG.warning("stream %s, tick %d: %d rows in quarantine", stream, tick.number, rows.num_rows)
            self.quarantine.write(stream, tick.number, rows)
            declared.streams[stream].quarantined += rows.num_rows
        for key, found in declared.streams.items():
            found.rows += tick.counters.get(f"rows.{key}", 0)
            found.late += tick.counters.get(f"late.{key}", 0)

    def _stop_queries(self, stopped: Mapping[str, WindrowError]) -> None:
        """Stop queries before a tick."""
        for key, error in stopped.items():
            LOG.error("%s", error)
            self.declared.failures[key] = error
            group = self.ticker.groups.live.get(key)
            for name in [key] if group is None else group.instances:
                self.ticker.drop_query(name)

    def _redeliver(self) -> None:
        """After a crash between manifest and what comes behind it: keep the last answers and late rows again."""
        for (query, number), refs in self.ticker.manifest.outputs.items():
            if query.startswith("~"):
                for table in (self.store.runs.read(ref).table for ref in refs):
                    self.late_rows.write(query[1:], number, table)
            if query.startswith("!"):
                for table in (self.store.runs.read(ref).table for ref in refs):
                    self.quarantine.write(query[1:], number, table)
        for key, stream in self.declared.streams.items():
            stream.quarantined = self.quarantine.count(key)
        self.declared.outbox.redeliver()
        self.declared.outbox.report_missing()

    def _refresh_tables(self) -> None:
        for name, table in self.declared.tables.items():
            known = table.reading.version_us
            if table.current().version_us != known and self.declared.set_table(name, table.reading.table):
                tick = self.ticker.manifest.tick + 1
                LOG.info("table %s: %d rows from tick %d on", name, table.reading.table.num_rows, tick)

    def _fail(self, error: WindrowError) -> None:
        LOG.error("tick %d: %s", self.ticker.manifest.tick + 1, error)
        self._error = error
        self._stopping.set()

    # rows from the program, and time

    def push(self, stream: str, rows: Any) -> None:
        """Hand in rows of a stream, in order of arrival; in process they are answered when this returns."""
        self.check()
        found = self._pushed_to(stream)
        columns = dict(found.definition.columns)
        table = to_table(rows, f'stream "{stream}"', schema=columns)
        if not found.definition.quarantine:
            times(found.definition, table)  # a row without a time is refused before it is anybody's
        assert isinstance(found.source, PushSource)
        now = self._running and self.job.in_process
        found.source.push(table, spooled=not now)
        if now:
            self._at_once()
        else:
            self._wake.set()

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

    def let_tick_pass(self, seconds: float) -> None:
        """Wait for the end of a tick that runs in this process, at most so long: who is in no hurry lets it have the
        interpreter. A tick whose job runs elsewhere needs none."""
        if self.job.in_process and self._computing != threading.get_ident():
            self._quiet.wait(seconds)

    def wait(self, seconds: float | None = None) -> None:
        """Wait for the runtime to stop or fail; a failure is raised."""
        if self._loop is not None:
            self._loop.join(seconds)
        self.check()

    def drain(self, seconds: float = 60.0) -> None:
        """Wait until every stream has handed over all it has now, and whoever takes the answers has taken them.

        Receivers that fail when tried once more, or hang, are not waited for.
        """
        deadline = time.monotonic() + seconds
        tried = self._try_again()
        while self._error is None and self._running and time.monotonic() < deadline:
            offsets = self.ticker.manifest.offsets
            streams = list(self.declared.streams.items())
            left = [
                s for k, s in streams
                if (s.stopped.tries <= tried.get(k, 0) if s.stopped else not s.source.drained(offsets.get(k)))
            ]  # fmt: skip
            if not left:
                with self._ticking:  # a tick that is under way belongs to what was there
                    break
            self._wake.set()
            time.sleep(0.01)
        self.check()
        settle(self._deliveries(), max(0.0, deadline - time.monotonic()))
        stopped = next((s.stopped for s in list(self.declared.streams.values()) if s.stopped is not None), None)
        if stopped is not None:
            raise stopped.error

    def _try_again(self) -> dict[str, int]:
        """Try streams that are stopped now; returns how often each has been tried."""
        tried = {}
        for key, stream in list(self.declared.streams.items()):
            if stream.stopped is not None:
                tried[key] = stream.stopped.tries
                stream.stopped.again = 0.0
        return tried

    def _deliveries(self) -> list[Delivery]:
        """Everybody who is told of answers and ticks."""
        return [*(d for o in list(self.declared.outlets.values()) for d in o.deliveries), *self.listeners]

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
        settle(self._deliveries(), STOPPING if self.store.runs.durable else 6 * STOPPING)
        for outlet in self.declared.outlets.values():
            outlet.close()
        self.job.close()
        self.store.close()
        self._closed = True
        for then in self._closing:
            then()
        self._closing = []

    # looking in

    def _state(self) -> StateReader:
        """The state after the newest tick; without a home only between two ticks."""
        manifest = self.ticker.manifest
        if self.store.runs.durable:
            return StoredState(self.store.runs, manifest)
        return InMemoryState(manifest.tick, self.ticker.frontier, dict(self.job.state()))

    @contextlib.contextmanager
    def state(self) -> Iterator[StateReader]:
        """The state after the newest tick, while ticks go on."""
        if not self.store.runs.durable:
            with self.declared.busy:
                found = self._state()
            yield found
            return
        with self.store.snapshot() as manifest:
            if manifest is None:
                raise StateError("no tick has been committed yet", hint="declare something, or start the engine")
            yield StoredState(self.store.runs, manifest)

    @contextlib.contextmanager
    def view(self) -> Iterator[View]:
        """The present, for one-time queries."""
        with self.state() as state:
            streams = dict(self.declared.streams)
            yield View(
                state.tick,
                state.frontier,
                lambda stream: view.kept_rows(state, streams[stream].definition),
                lambda query: self.relation(state, query),
                self.reach,
            )

    def relation(self, state: StateReader, query: str) -> pa.Table:
        """The rows of a relation-valued query in a state."""
        program = self.ticker.queries[query]
        assert isinstance(program, QueryProgram)
        if query in self.ticker.plans.place:
            return self._relation_of_many(state, query)
        return view.relation(state, program)

    def _relation_of_many(self, state: StateReader, query: str) -> pa.Table:
        """The rows of a query that is one plan with others."""
        name, number = self.ticker.plans.place[query]
        program, shared = self.ticker.shared_program(name), self.ticker.plans.plans[name]
        return shared.relation(view.materialized(state, program), number)

    def shared_with(self, plan: QueryPlan) -> dict[str, Any] | None:
        """With whom a continuous query shares, or why not, once a tick has been planned with it."""
        with self.declared.busy:
            return sharing_of_continuous(self.ticker.plans, plan)

    def reach(self, stream: str) -> int:
        """How far back a stream's kept rows go, in ticks of its clock."""
        return self.declared.streams[stream].definition.retain or 0

    def table(self, name: str) -> pa.Table:
        """What a table holds."""
        return self.declared.tables[name].reading.table

    def joins(self, query: str) -> list[dict[str, Any]]:
        """What the joins of a running query do, and why."""
        with self.declared.busy:
            owner = self.ticker.owner(query)
            return self.ticker.choices.describe(owner) + self.ticker.heavy.describe(owner)

    def late(self, stream: str) -> pa.Table:
        """The late rows of a stream."""
        return self.late_rows.read(self.declared.streams[stream.lower()].definition)

    def quarantined(self, stream: str) -> pa.Table:
        """What of a stream could not be read."""
        return self.quarantine.read(stream.lower())

    def status(self) -> dict[str, Any]:
        """Figures about the run, as plain JSON."""
        return {
            "runtime": self.job.kind,
            "home": self.home,
            "running": self._running and not self._stopping.is_set(),
            "error": None if self._error is None else str(self._error),
            "failed": {name: str(error) for name, error in self.declared.failures.items()},
            **self.figures.status(self),
            "archives": self.declared.archives.status(),
            "sinks": self.declared.outbox.status(),
            "receivers": {d.label: d.status() for d in self._deliveries() if not d.retried},
        }

    def quality(self, query: str) -> dict[str, Any] | None:
        """What was shed before a query and in its joins; None when it never sheds."""
        return self.figures.quality(self, query.lower())


def _of_stream(failure: WindrowError, stream: Stream) -> WindrowError:
    if stream.definition.name not in failure.primary:
        failure.primary = f'stream "{stream.definition.name}": {failure.primary}'
    return failure


def _unexpected(error: BaseException) -> WindrowError:
    if isinstance(error, WindrowError):
        return error
    from windrow.errors import RuntimeFailure

    made = RuntimeFailure(f"{type(error).__name__}: {error}", hint="this is a fault in windrow")
    made.__cause__ = error
    return made
