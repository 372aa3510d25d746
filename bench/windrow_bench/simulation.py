"""The whole driver under faults, from a seed: what it answers equals a run without faults, and the definition.

    seed ─► scenario (steps) + schedule (faults at numbered calls of the disk, tasks run twice, receivers that fail)
         ─► run in process, through every crash ─► answers at the receivers: none lost, none doubled, none changed

A disk that lies (it loses what it said it had synced) may be noticed: then the home is refused, by name. A failure is
made smaller (faults, steps, chaos left out while it fails) and shown with its seed. Cost: about 0.1 s a schedule.
"""

from __future__ import annotations

import functools
import logging
import multiprocessing
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from windrow.errors import RuntimeFailure, StateError, WindrowError
from windrow.store.runs import cache
from windrow.testing import assert_same, oracle
from windrow_bench.simulated_disk import ENDS, KINDS, LIES, Ended, Fault, SimulatedDisk
from windrow_bench.simulated_engine import OUT, SimulatedEngine, Tape, simulated
from windrow_bench.simulated_scenario import DECLARED, KEEP, NAMES, RETAIN, SLACK, STREAMS, Scenario, Step, scenario_of

SCHEDULES_OF_ONE = 16
"""Schedules that share a scenario, and the run without faults."""

ATTEMPTS = 60
"""How often a step is tried before the engine is said to make no progress."""

Bag = Counter[tuple[Any, ...]]


class Wrong(AssertionError):
    """What the engine did is not what it promises."""


class Refused(Exception):
    """The home was refused, as it must be when the disk has lied."""


@dataclass(frozen=True)
class Schedule:
    """A scenario and what befalls it; `chaos`: tasks run twice and forget, messages in any order, receivers fail."""

    seed: int
    scenario: Scenario
    faults: tuple[Fault, ...] = ()
    chaos: bool = False

    def __str__(self) -> str:
        kind = f"in process {self.scenario.in_process}, {self.scenario.partitions} partitions, chaos {self.chaos}"
        steps = [f"  {i}. {s}" for i, s in enumerate(self.scenario.steps)]
        faults = [f"  at call {f.at}: {f.kind} ({f.seed})" for f in self.faults]
        return "\n".join([f"seed {self.seed}: {kind}", *steps, *(faults or ["  no faults"])])


@dataclass
class Received:
    """A receiver outside the engine, which outlives it: it tells answers that come again by their tick."""

    ticks: dict[str, dict[int, Bag]] = field(default_factory=dict)

    def take(self, query: str, tick: int, table: pa.Table) -> None:
        """Take an answer, once."""
        known = self.ticks.setdefault(query, {})
        found = bag(table)
        if tick in known:
            if known[tick] != found:
                raise Wrong(f"tick {tick} of {query} came again, and is not what it was")
        elif known and tick < max(known):
            raise Wrong(f"tick {tick} of {query} came after tick {max(known)}")
        else:
            known[tick] = found

    def answers(self) -> dict[str, Bag]:
        """Everything that came, by query."""
        return {q: sum(ticks.values(), Counter()) for q, ticks in self.ticks.items()}


@dataclass(frozen=True)
class Outcome:
    """What a run came to: by query what receivers and files have, the late rows, the answers that last, archives, and
    where time is."""

    received: dict[str, Bag]
    files: dict[str, Bag]
    late: dict[str, Bag]
    kept: dict[str, Bag]
    archives: dict[str, Bag]
    frontier: int
    calls: int
    ends: int


class Run:
    """One schedule from its first step to its last."""

    def __init__(self, schedule: Schedule, observed: Callable[[str, str], None] | None = None) -> None:
        self.schedule = schedule
        self.disk = SimulatedDisk(list(schedule.faults), observed=observed)
        self.chance = random.Random(schedule.seed)
        self.received = Received()
        self.tape = Tape(STREAMS["s"])
        self.engine: SimulatedEngine | None = None
        self.pushed = self.changed = self.ends = 0
        self.partitions = schedule.scenario.partitions

    def outcome(self) -> Outcome:
        """Do everything."""
        with simulated(self.disk, self.schedule.seed):
            for step in self.schedule.scenario.steps:
                self._prepare(step)
                self._until_done(lambda engine, step=step: self._do(engine, step))  # type: ignore[misc]
            return self._until_done(self._finish)

    # through crashes

    def _until_done(self, do: Callable[[SimulatedEngine], Any]) -> Any:
        for _ in range(ATTEMPTS):
            try:
                engine = self.engine = self.engine or self._open()
                return do(engine)
            except Ended:
                self._restart()
            except WindrowError as error:
                self._after(error)
        raise Wrong("no progress")

    def _restart(self) -> None:
        self.ends += 1
        self.engine = None
        cache.clear()
        self.disk.restart()

    def _after(self, error: WindrowError) -> None:
        """Go on after a failure that a fault explains: with the same engine, or with another."""
        if isinstance(error, StateError):
            if "disk is full" in str(error):
                if self.engine is not None and self.chance.random() < 0.5:
                    try:
                        self.engine.start()
                        return
                    except (Ended, StateError):
                        pass
                if self.disk.ended is None:
                    self.disk.ended = "killed"
                self._restart()
                return
            if self.disk.lied:
                raise Refused(str(error)) from error
        raise Wrong(f"{type(error).__name__}: {error}") from error

    def _open(self) -> SimulatedEngine:
        scenario = self.schedule.scenario
        chaos = self.chance if self.schedule.chaos else None
        engine = SimulatedEngine(self.disk, chaos, scenario.in_process, self.partitions)
        engine.stream("s", self.tape, "ts", SLACK, retain=RETAIN)
        if "u" not in engine.catalog.streams:
            engine.execute(next(t for t in DECLARED.split(";") if "STREAM u" in t))
        if "names" not in engine.catalog.tables:
            engine.table("names", NAMES[0])
        for query in engine.catalog.queries:
            self._attach(engine, query)
        engine.start()
        return engine

    def _attach(self, engine: SimulatedEngine, query: str) -> None:
        if not self.schedule.scenario.in_process:  # there ticks run before a caller can attach anything
            engine.sink(query, "callback", fn=self._take, name="receiver")

    def _take(self, query: str, tick: int, table: pa.Table) -> None:
        if self.schedule.chaos and self.chance.random() < 0.1:
            raise ConnectionError("the receiver is away")
        self.disk._call("hand over", query)
        self.received.take(query, tick, table)
        self.disk._call("handed over", query)

    # steps

    def _prepare(self, step: Step) -> None:
        """What happens outside the engine."""
        if step.kind == "rows" and step.name == "s":
            self.tape.rows = pa.concat_tables([self.tape.rows, step.table()])
        if step.kind == "rows" and step.name == "u":
            self.pushed += 1
        if step.kind == "table":
            self.changed += 1
        self._again = step.kind in ("restart", "resume")
        self.partitions = step.partitions or self.partitions

    def _do(self, engine: SimulatedEngine, step: Step) -> None:
        match step.kind:
            case "rows":
                if step.name == "u" and _accepted(engine) < self.pushed:
                    engine.push("u", step.table())
                self._take_turns(engine)
            case "create":
                if step.name not in engine:
                    sink = f"CREATE SINK f_{step.name} FOR {step.name} TO parquet (path => '{OUT}')"
                    kept = f" KEEP {KEEP}" if step.keep else ""
                    engine.execute(f"CREATE QUERY {step.name} AS {step.text}{kept}; {sink}")
                    self._attach(engine, step.name)
                self._take_turns(engine)
            case "drop":
                if step.name in engine:
                    self._hand_over_all(engine)
                    engine.execute(f"DROP SINK f_{step.name}; DROP QUERY {step.name}")
            case "archive":
                if step.name not in engine.catalog.archives:
                    engine.execute(f"CREATE ARCHIVE {step.name} AS {step.text} KEY k EVERY 4")
                self._take_turns(engine)
            case "table":
                engine.table("names", NAMES[self.changed % 2])
            case _ if self._again:
                engine.stop()
                self._again = False
                if step.kind == "resume":
                    engine.start()
                else:
                    self.engine = None
                    cache.clear()

    def _take_turns(self, engine: SimulatedEngine) -> None:
        """Let the engine do all that there is to do."""
        while (worked := engine.runtime.turn()) is not False:
            if worked is None:
                engine.runtime.check()
            for delivery in engine.runtime.deliveries():
                if self.chance.random() < 0.7:
                    delivery.step()
            for outlet in engine.runtime.declared.outlets.values():
                if outlet.log is not None and self.chance.random() < 0.3:
                    outlet.log.settle()
        engine.runtime.check()

    def _hand_over_all(self, engine: SimulatedEngine) -> None:
        for delivery in engine.runtime.deliveries():
            for _ in range(ATTEMPTS):
                if not delivery.step():
                    break
            else:
                error = str(delivery.status()["error"])
                raise Refused(error) if self.disk.lied else Wrong(f"{delivery.label} takes nothing: {error}")

    def _finish(self, engine: SimulatedEngine) -> Outcome:
        self._take_turns(engine)
        self._hand_over_all(engine)
        status = engine.status()
        if status["failed"]:
            raise Wrong(f"queries stopped: {status['failed']}")
        late = {s: bag(engine.late(s)) for s in STREAMS}
        frontier = engine.runtime.ticker.frontier
        made = [s for s in self.schedule.scenario.steps if s.keep and s.name in engine]
        kept = {s.name: bag(engine[s.name].results(since=-(10**6))) for s in made}  # slack begins before 0
        archives = {name: bag(engine.archive(name).scan()) for name in engine.catalog.archives}
        engine.stop()
        self._check_files()
        files = {s.name: self._files(s.name) for s in self.schedule.scenario.steps if s.kind == "create"}
        calls, ends = self.disk.calls, self.ends
        if any(files[name] != found for name, found in kept.items()):
            raise Wrong(f"answers that last are not those that were written: {_difference(kept, files)}")
        return Outcome(self.received.answers(), files, late, kept, archives, frontier, calls, ends)

    def _files(self, query: str) -> Bag:
        names = [n for n in self.disk.names(f"{OUT}/{query}", True) if n.endswith(".parquet")]
        return sum((bag(pq.read_table(pa.BufferReader(self.disk.read(n)))) for n in names), Counter())

    def _check_files(self) -> None:
        """An engine that starts finds what manifests name, and leaves nothing else."""
        from windrow.store.store import Store
        from windrow_bench.simulated_engine import HOME

        with Store.open(HOME) as store:
            store.sweep(orphans=True)
            manifests = list(store._manifests.values())
            named = {f"{HOME}/{path}" for m in manifests for path in m.paths()}
            newest = max(m.tick for m in manifests)
            there = {n for n in self.disk.names(f"{HOME}/runs", True) if int(n.split("/")[-1].split("-")[0]) <= newest}
            if named != there:
                raise Wrong(f"files that nobody names: {sorted(there - named)}; missing: {sorted(named - there)}")


def _accepted(engine: SimulatedEngine) -> int:
    """How many tables have been pushed, as far as the engine knows."""
    source: Any = engine.runtime.declared.streams["u"].source
    offset = engine.runtime.ticker.manifest.offsets.get("u") or {}
    return max([int(offset.get("pushed", 0)), *source._pieces])


def bag(table: pa.Table) -> Bag:
    """The rows of a table, in no order."""
    return Counter(zip(*(c.to_pylist() for c in table.columns), strict=True))


# schedules


@functools.lru_cache(maxsize=64)
def reference(scenario: Scenario) -> Outcome:
    """What a scenario comes to without faults; compared with the definition."""
    found = Run(Schedule(0, scenario)).outcome()
    if scenario.plain:
        _compare_with_definition(scenario, found)
    return found


def _compare_with_definition(scenario: Scenario, found: Outcome) -> None:
    brought = [s for s in scenario.steps if s.kind == "rows"]
    left = {}
    for stream, schema in STREAMS.items():
        rows = pa.concat_tables([schema.empty_table(), *(s.table() for s in brought if s.name == stream)])
        left[stream] = _without(rows, found.late[stream])
    for name, want in oracle(scenario.script, left, {"names": NAMES[0]}, until=found.frontier).items():
        rows = sorted(found.files[name].elements(), key=lambda row: row[0])
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(want.schema)
        got = pa.table([pa.array(c, t) for c, t in zip(columns, want.schema.types, strict=True)], want.column_names)
        assert_same(got, want)


def _without(table: pa.Table, late: Bag) -> pa.Table:
    """A stream without its late rows, in time order: then none is late in a replay. Of equal rows the last are late."""
    left, still = [], Counter(late)
    for row in reversed(list(zip(*(c.to_pylist() for c in table.columns), strict=True))):
        if still[row]:
            still[row] -= 1
        else:
            left.append(row)
    left.reverse()
    left.sort(key=lambda row: row[2])
    columns = list(zip(*left, strict=True)) or [(), (), ()]
    return pa.table([pa.array(c, pa.int64()) for c in columns], table.schema.names)


def schedule_of(seed: int) -> Schedule:
    """The schedule of a seed."""
    scenario = scenario_of(seed // SCHEDULES_OF_ONE)
    calls = reference(scenario).calls
    chance = random.Random(seed)
    faults = []
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 5))):
        kind = chance.choice((*KINDS, *ENDS, *ENDS))
        faults.append(Fault(chance.randrange(calls), kind, chance.randrange(1000)))
        if kind in LIES:
            faults.append(Fault(faults[-1].at + chance.randrange(calls // 2), "power", chance.randrange(1000)))
    return Schedule(seed, scenario, tuple(sorted(faults)), chance.random() < 0.5)


def failure_of(schedule: Schedule, observed: Callable[[str, str], None] | None = None) -> str | None:
    """What is wrong with a run of a schedule; None if nothing is."""
    want = reference(schedule.scenario)
    try:
        found = Run(schedule, observed).outcome()
    except Refused:
        return None
    except (Wrong, RuntimeFailure) as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    for what in ("received", "files", "late", "archives", "frontier"):
        if getattr(found, what) != getattr(want, what):
            return f"{what} differ: {_difference(getattr(found, what), getattr(want, what))}"
    return None


def _difference(found: Any, want: Any) -> str:
    if not isinstance(found, dict):
        return f"{found}, not {want}"
    said = []
    for name in sorted({*found, *want}):
        got, wanted = found.get(name, Counter()), want.get(name, Counter())
        if got != wanted:
            said.append(f"{name}: too much {dict(got - wanted)}, missing {dict(wanted - got)}")
    return "; ".join(said)


def smallest(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """A smaller schedule that fails, too: chaos, faults and steps are left out while it does."""
    before = None
    while before != schedule:
        before = schedule
        for smaller in _smaller(schedule):
            try:
                if fails(smaller):
                    schedule = smaller
                    break
            except Exception:
                continue
    return schedule


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    if schedule.chaos:
        yield replace(schedule, chaos=False)
    for i in range(len(schedule.faults)):
        yield replace(schedule, faults=schedule.faults[:i] + schedule.faults[i + 1 :])
    steps = schedule.scenario.steps
    for i in reversed(range(len(steps))):
        yield replace(schedule, scenario=replace(schedule.scenario, steps=steps[:i] + steps[i + 1 :]))


# many


@dataclass(frozen=True)
class Failure:
    """A schedule that fails, as small as it was found to fail, and how."""

    seed: int
    what: str
    schedule: str


def _expect_crashes() -> None:
    """Log nothing in this process, which is there for schedules alone: crashes say much."""
    logging.getLogger("windrow").setLevel(logging.CRITICAL + 1)


def failures(seeds: Sequence[int]) -> list[Failure]:
    """What fails among the schedules of some seeds."""
    found = []
    for seed in seeds:
        try:
            schedule = schedule_of(seed)
            what = failure_of(schedule)
        except Exception as error:  # the run without faults has failed
            without = Schedule(seed, scenario_of(seed // SCHEDULES_OF_ONE))
            found.append(Failure(seed, f"without faults: {error}", str(without)))
            continue
        if what is not None:
            least = smallest(schedule, lambda s: failure_of(s) is not None)
            found.append(Failure(seed, failure_of(least) or what, str(least)))
    return found


def simulate(first: int, schedules: int, processes: int) -> Iterator[tuple[int, list[Failure]]]:
    """Run so many schedules from a seed on, in processes of their own: how many have been run, and what failed."""
    step = 4 * SCHEDULES_OF_ONE
    chunks = [range(i, min(i + step, first + schedules)) for i in range(first, first + schedules, step)]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn, initializer=_expect_crashes) as pool:
        for chunk, found in zip(chunks, pool.map(failures, chunks), strict=True):
            yield chunk[-1] + 1 - first, found
