"""A turn: take what all sources have, run a tick over it, commit it, and hand the answers on.

    poll ── program ── job ── collect ── manifest (state, offsets) ── sinks ── sweep

Whoever takes a turn holds `_ticking`, so there is one tick at a time; `busy` of the declarations is free only while a
job runs elsewhere. A stream that cannot be read stands still and is tried again, and the tick is run without it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pyarrow as pa

from windrow.errors import RuntimeFailure, StateError, WindrowError
from windrow.operators.at_exit import gate
from windrow.operators.elements import BEGINNING
from windrow.runtime import state_reader
from windrow.runtime.answer_metadata import with_answer_metadata
from windrow.runtime.change import Frames
from windrow.runtime.changed_tables import TakenChanges, take_changes
from windrow.runtime.deadlines import Deadlines, technique_of
from windrow.runtime.declarations import Declarations
from windrow.runtime.delivery import Delivery
from windrow.runtime.job import Feed, Job
from windrow.runtime.kept_answers import AnyAnswer, rows_of
from windrow.runtime.messages import StreamFailed
from windrow.runtime.program import frontier
from windrow.runtime.quarantine import RowsByTick, output_name
from windrow.runtime.settings import Settings
from windrow.runtime.state_reader import InMemoryState, StateReader, StoredState
from windrow.runtime.status import TickFigures
from windrow.runtime.streams import Stream
from windrow.runtime.tick import Ticker
from windrow.runtime.tick_result import TickResult
from windrow.runtime.undo_log import LoggedDict
from windrow.sources.protocol import Available
from windrow.store.failpoints import reach
from windrow.store.sealed import DAMAGED, STATE, unlike
from windrow.store.store import StateStore

LOG = logging.getLogger("windrow.engine")

IDLE_TICK = 1.0
"""Seconds between two ticks that only time makes."""

Functions = Mapping[str, Callable[..., object]]


class Turns:
    """What a runtime does in one turn, in whichever thread."""

    def __init__(
        self,
        job: Job,
        store: StateStore,
        functions: Functions,
        settings: Settings,
        *,
        frames: Frames | None = None,
        explain: Callable[[BaseException], WindrowError] | None = None,
        clock: Callable[[], float] = time.time,
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.job, self.store, self._clock = job, store, clock
        self._explained = explain or _unexpected
        self._found = 0  # the tick up to which the home had been written when it was opened
        self._ahead_us = settings.ahead_us
        how = settings.optimizer.strategy.sharing(settings.sharing)
        spread = settings.partitions or job.parallelism
        self.ticker = Ticker(
            store, functions, spread, how, in_process=job.in_process, most_rows=settings.most_rows,
            keeps_partitions=settings.partitions is None, gathers=not job.in_process, expire_us=settings.expire_us,
        )  # fmt: skip
        self.measure_by(stopwatch)
        self.ticker.deadlines = Deadlines(
            None if settings.budget_us is None else settings.budget_us / 1e6, technique_of(settings.schedule),
            LoggedDict(self.ticker.undo), unscheduled=LoggedDict(self.ticker.undo),
        )  # fmt: skip
        self.declared = Declarations(self.ticker, settings, frames, job.map)
        place = store.place
        self.late_rows = RowsByTick(None if place is None else place.below("late"))
        self.quarantine = RowsByTick(None if place is None else place.below("quarantine"))
        self.figures = TickFigures()
        self._ticking = threading.RLock()  # one tick at a time
        self._quiet = threading.Event()  # no tick computes
        self._quiet.set()
        self._computing = 0  # the thread of the tick that does
        self._handed_on = threading.Event()  # every answer that is committed has been told
        self._handed_on.set()
        self._told: int | None = None  # the frontier up to which that is so; None: that of the home
        self._last_tick = clock()
        self.listeners: dict[Delivery, Callable[[int], object]] = {}
        # of the thread that takes turns
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._loop: threading.Thread | None = None
        self._running = self._closed = False
        self._error: WindrowError | None = None
        self._closing: list[Callable[[], None]] = []

    def measure_by(self, stopwatch: Callable[[], float]) -> None:
        """Count the seconds of ticks, and of evaluations in their tasks, by this clock: budgets are in its seconds."""
        self._stopwatch = self.ticker.stopwatch = stopwatch

    def _explain(self, error: Exception) -> WindrowError:
        """As users see it: until a tick is done, what was found in the home may be the reason."""
        ours = isinstance(error, DAMAGED if not self.job.in_process else Exception)  # else it may be Spark's
        told = isinstance(error, (WindrowError, OSError, MemoryError))
        if ours and not told and self.store.place is not None and 0 < self._found == self.ticker.manifest.tick:
            return unlike(STATE, f"in {self.store.place.uri}", error)
        return self._explained(error)

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
            found = [(s, a) for s, a in polled if declared.streams.get(s.key) is s]
            rows = [(s, a) for s, a in found if s.key not in declared.tables]
            self._refresh_tables()
            told = [(s, a) for s, a in found if s.key in declared.tables]
            changes = take_changes(declared, told, self._stop_stream)
            fresh = declared.fresh
            histories = self._histories()
            now = self._clock()
            for stream, _ in (*rows, *changes.read):  # from now on it is not silent
                stream.seen = now
            idle = self._idle()
            if not (rows or changes.read or histories or until is not None or self._time_moves(idle)):
                return None
            self._computing = threading.get_ident()
            self._quiet.clear()
            before = self.ticker.manifest.tick
            try:
                return self._tick(rows, changes, histories, idle, until)
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
        if not idle or ticker.idle or self._clock() - self._last_tick < IDLE_TICK:
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
        changes: TakenChanges,
        histories: list[Feed],
        idle: Mapping[str, int | None],
        until: int | None,
    ) -> bool:
        """Run a tick; False if some stream could not be read, and nothing has happened."""
        begin = self._stopwatch()
        ticker, budgets = self.ticker, self.declared.budgets
        self._stop_queries(self.declared.outbox.stopped())
        ahead = self._ahead()
        seen = {s.key: mark for s, a in rows if (mark := ticker.unread(s.key, a, ahead)) is not None}
        feeds = [Feed(s.key, a.given) for s, a in rows if s.key not in seen] + histories
        tasks = self.job.tasks({s.key: a for s, a in rows}) if budgets.shedding else None
        ticker.quotas = budgets.quotas(tasks)
        plan = partial(ticker.program, until, idle, ahead, tuple(seen.values()))
        program, stages = ticker.placed(plan, self.job, feeds), ticker.stages
        planned = self._stopwatch()
        envelopes = list(self.job.run(feeds, program, stages, self.declared.job_runs))
        ran = self._stopwatch()
        failed = {e.message.stream: e.message.error for e in envelopes if isinstance(e.message, StreamFailed)}
        for key, error in failed.items():
            self._stop_stream(self.declared.streams[key], error)
        if failed:
            return False
        tick = ticker.collect(program, envelopes, stages)
        budgets.record(tick.admitted)
        tick.counters |= budgets.counters()
        for query in [q for q in tick.answers if q.lower() in budgets.behind]:
            tick.answers[query] = budgets.mark(query, rows_of(tick.answers[query]))
        ticker.take_apart(tick)  # behind it, answers of instances are one table
        tick.seconds |= {"plan": planned - begin, "job": ran - planned, "collect": self._stopwatch() - ran}
        tick.aside |= changes.aside
        tick.counters |= {f"rows.{key}": count for key, count in changes.rows.items()}
        self._told = ticker.frontier
        self._handed_on.clear()
        try:
            self._commit(tick, [*rows, *changes.read])
            lap = self._stopwatch()
            self._deliver(tick)
            self._told = tick.frontier
        finally:
            self._handed_on.set()
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

    def _commit(self, tick: TickResult, rows: list[tuple[Stream, Available]]) -> None:
        budgets, outbox = self.declared.budgets, self.declared.outbox
        for query, found in tick.answers.items():
            if isinstance(found, pa.Table):  # what lies in files says it there
                tick.answers[query] = with_answer_metadata(found, tick.frontier)
        self.ticker.held.shorten(tick.number, tick.answers)
        outputs: dict[str, AnyAnswer] = {}
        if self.store.runs.durable:  # what a crash between here and the sinks would lose
            outputs = outbox.outputs(tick.answers)
            outputs |= {state_reader.kept_name(s): table for s, table in tick.late.items()}
            outputs |= {output_name(s): table for s, table in tick.aside.items()}
        offsets = {s.key: a.offset for s, a in rows}
        lap = self._stopwatch()
        failed = {**self.declared.failures, **tick.failed}
        archives = self.declared.archives.prepare(tick.number, tick.frontier, tick.archived, failed)
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
        """What the streams of new queries have kept. Queries find who shares with them when the next tick is planned,
        or here, where some have a history."""
        declared, ticker = self.declared, self.ticker
        fresh, declared.fresh = [ticker.queries[q] for q in declared.fresh if q in ticker.queries], []
        kept = {s for q in fresh for s in q.streams if declared.streams[s].definition.retain is not None}
        if not kept:
            return []
        ticker.settle()
        found, state = [], self._state()
        # those who share have one history
        for owner, streams in {ticker.owner(q.plan.name.lower()): q.streams for q in fresh}.items():
            for stream in sorted(streams & kept):
                rows = state_reader.kept_rows(state, declared.streams[stream].definition, waiting=True)
                if rows.num_rows:
                    found.append(Feed(stream, rows, owner))
        return found

    def _deliver(self, tick: TickResult) -> None:
        declared = self.declared
        declared.outbox.deliver(tick.number, tick.answers, tick.frontier)
        for name, error in tick.failed.items():
            LOG.error("query %s, tick %d: %s", name, tick.number, error)
            declared.failures[name] = error.kept()
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
        declared.outbox.keep(tick.number, tick.answers)

    def _stop_queries(self, stopped: Mapping[str, WindrowError]) -> None:
        """Stop queries before a tick."""
        for key, error in stopped.items():
            LOG.error("%s", error)
            self.declared.failures[key] = error.kept()
            group = self.ticker.groups.live.get(key)
            for name in [key] if group is None else list(group.place):
                self.ticker.drop_query(name)
            if group is not None:
                for block, members in list(group.blocks.items()):
                    self.ticker.drop_columns(group, block, np.arange(len(members)))

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
            before = table.reading
            if table.current().version_us == before.version_us:
                continue
            try:
                changed = self.declared.accept(name, before)
            except StateError:
                raise
            except WindrowError as error:
                LOG.error("table %s stays as it was: %s", name, error)
                continue
            if changed:
                tick = self.ticker.manifest.tick + 1
                LOG.info("table %s: %d rows from tick %d on", name, table.reading.table.num_rows, tick)

    def _state(self) -> StateReader:
        """The state after the newest tick; without a home only between two ticks."""
        manifest = self.ticker.manifest
        if self.store.runs.durable:
            return StoredState(self.store.runs, manifest)
        held = dict(self.job.state())
        return InMemoryState(manifest.tick, self.ticker.frontier, held, manifest.clocks, manifest.lapsed)


def _of_stream(failure: WindrowError, stream: Stream) -> WindrowError:
    if stream.definition.name not in failure.primary:
        failure.primary = f'stream "{stream.definition.name}": {failure.primary}'
    return failure


def _unexpected(error: BaseException) -> WindrowError:
    if isinstance(error, WindrowError):
        return error
    made = RuntimeFailure(f"{type(error).__name__}: {error}", hint="this is a fault in windrow")
    made.__cause__ = error
    return made
