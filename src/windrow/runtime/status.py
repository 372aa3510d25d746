"""Figures about a run: recent rates, phases of the last ticks, state, and a line per stream, table and query."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from windrow.operators.elements import BEGINNING
from windrow.runtime import state_reader
from windrow.runtime.family_programs import SharedQuery
from windrow.runtime.instances import TemplateGroup
from windrow.runtime.outlet import Outlet
from windrow.runtime.program import QueryProgram, holding
from windrow.runtime.streams import Stream
from windrow.runtime.tables import LiveTable
from windrow.runtime.tick import Ticker
from windrow.runtime.tick_result import TickResult
from windrow.store.manifest import Manifest

if TYPE_CHECKING:
    from windrow.runtime.runtime import Runtime

RECENT_SECONDS = 30.0
RECENT_TICKS = 20


class TickFigures:
    """What recent ticks were like; ticks are added by one thread and read by others.

    Counters of the last half minute are summed as ticks come and go: a rate costs a look, however many there are.
    """

    def __init__(self) -> None:
        self._ticks: deque[TickResult] = deque(maxlen=1000)
        self._began = time.time()
        self._recent: deque[TickResult] = deque()
        self._sums: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, tick: TickResult) -> None:
        """Remember a tick's figures, not its rows."""
        known = replace(tick, answers={}, shared=[], late={}, aside={}, admitted=[])
        self._ticks.append(known)
        with self._lock:
            self._recent.append(known)
            self._sums.update(known.counters)
            self._forget()

    def _forget(self) -> None:
        """Take what is older than half a minute out of the sums."""
        since = time.time() - RECENT_SECONDS
        while self._recent and self._recent[0].ended < since:
            self._sums.subtract(self._recent.popleft().counters)

    def timeline(self, after: int) -> list[dict[str, Any]]:
        """The ticks beyond a number, oldest first: when, milliseconds by phase, rows in and answers out."""
        return [_line(t) for t in self.ticks if t.number > after]

    @property
    def ticks(self) -> list[TickResult]:
        """The ticks remembered, oldest first."""
        return list(self._ticks)

    def phases(self, last: int) -> dict[str, float]:
        """Mean milliseconds of each phase of the last ticks."""
        ticks = self.ticks[-last:]
        names = dict.fromkeys(p for t in ticks for p in t.seconds)
        return {p: round(1000 * sum(t.seconds.get(p, 0.0) for t in ticks) / len(ticks), 1) for p in names}

    def status(self, runtime: Runtime, queries: Collection[str] | None) -> dict[str, Any]:
        """Everything but whether the engine runs; a line for each of `queries`, or for all of them."""
        ticker, declared = runtime.ticker, runtime.declared
        manifest = ticker.manifest
        state = _state(runtime)
        return {
            "ticks": manifest.tick,
            "frontier": manifest.frontier,
            "held_back_by": _holding(runtime, manifest),
            "partitions": ticker.spread,
            "rows_per_second": self._rate(*(f"rows.{k}" for k in declared.streams)),
            "tick_ms": self.phases(RECENT_TICKS),
            "state": {"runs": sum(r for r, _ in state.values()), "bytes": sum(b for _, b in state.values())},
            "streams": {
                s.definition.name: self._stream(s, manifest, state.get(f"~{k}", (0, 0)))
                for k, s in declared.streams.items()
                if k not in declared.tables
            },
            "tables": {
                t.definition.name: _table(t) | _told(declared.streams.get(k), manifest)
                for k, t in dict(declared.tables).items()
            },
            "shedding": declared.budgets.status(),
            "queries": {
                ticker.queries[k].plan.name: self._query(k, o, state.get(k, (0, 0)), ticker.began(k))
                | _shared(ticker, k, state)
                | {"quality": self.quality(runtime, k)}
                | {"deadline": None if ticker.deadlines is None else ticker.deadlines.status(k, manifest.frontier)}
                for k, o in _outlets(declared.outlets, queries)
                if k in ticker.queries
            },
            "templates": {
                g.name: self._query(k, declared.outlets[k], (0, 0), None) | _instances(g, declared.failures)
                for k, g in dict(declared.groups.live).items()
            },
        }

    def answers(self, runtime: Runtime) -> int:
        """Rows answered by all queries."""
        return sum([o.recent.rows for o in list(runtime.declared.outlets.values())])

    def quality(self, runtime: Runtime, key: str) -> dict[str, Any] | None:
        """What a query lost to the tick budget and to the memory of its joins; None when it can lose nothing."""
        query = runtime.ticker.queries.get(key)
        memory = None
        shares = key in runtime.ticker.plans.place  # and then it never sheds
        if not shares and isinstance(query, QueryProgram) and state_reader.sheds(query):
            with runtime.state() as state:
                memory = state_reader.star_quality(state, query)
        parts = {"time": runtime.declared.budgets.quality(key), "memory": None if memory is None else memory.as_dict()}
        found = {what: figures for what, figures in parts.items() if figures is not None}
        return found or None

    def _rate(self, *counters: str) -> float:
        """Rows per second over the recent past."""
        with self._lock:
            self._forget()
            rows = sum(self._sums[c] for c in counters)
        return round(rows / max(min(RECENT_SECONDS, time.time() - self._began), 1e-3), 1)

    def _stream(self, stream: Stream, manifest: Manifest, kept: tuple[int, int]) -> dict[str, Any]:
        mark = manifest.marks.get(stream.key)
        lag = None if mark is None or manifest.frontier is None else max(0, mark - manifest.frontier)
        return {
            "rows": stream.rows,
            "rows_per_second": self._rate(f"rows.{stream.key}"),
            "late": stream.late,
            "quarantined": stream.quarantined,
            "stopped_since": stream.stopped.since if stream.stopped else None,
            "error": str(stream.stopped.error) if stream.stopped else None,
            "offset": manifest.offsets.get(stream.key),
            "greatest": mark,
            "lag": lag,
            "idle": stream.silent_for(time.time()) is not None,
            "kept_bytes": kept[1],
        }

    def _query(self, key: str, outlet: Outlet, state: tuple[int, int], began: int | None) -> dict[str, Any]:
        return {
            "answers": outlet.recent.rows,
            "answers_per_second": self._rate(f"answers.{key}"),
            "clock": began,
            "runs": state[0],
            "state_bytes": state[1],
            "sinks": len(outlet.sinks),
        }


def _holding(runtime: Runtime, manifest: Manifest) -> list[str]:
    """The streams for whose rows all others wait."""
    now = time.time()
    silent = {k: s for k, s in runtime.declared.streams.items() if s.silent_for(now) is not None}
    idle = {k: s.reached(now, manifest.marks.get(k, BEGINNING)) for k, s in silent.items()}
    return holding(dict(runtime.ticker.streams), manifest.marks, idle)


def _outlets(outlets: Mapping[str, Outlet], keys: Collection[str] | None) -> list[tuple[str, Outlet]]:
    return list(outlets.items()) if keys is None else [(k, outlets[k]) for k in keys if k in outlets]


def _line(tick: TickResult) -> dict[str, Any]:
    def total(kind: str) -> int:
        return sum(n for counter, n in tick.counters.items() if counter.startswith(kind))

    return {
        "tick": tick.number,
        "ended": tick.ended,
        "frontier": tick.frontier,
        "ms": {phase: round(1000 * seconds, 2) for phase, seconds in tick.seconds.items()},
        "rows": total("rows."),
        "late": total("late."),
        "answers": total("answers."),
    }


def _state(runtime: Runtime) -> dict[str, tuple[int, int]]:
    """Runs and bytes by query."""
    found: dict[str, tuple[int, int]] = {}
    if runtime.store.runs.durable:
        sizes = [(q, [r.bytes for r in refs]) for (_, _, q, _), refs in runtime.ticker.manifest.runs.items()]
    else:
        with runtime.declared.busy:
            sizes = [(q, [r.nbytes for r in runs]) for (_, _, q, _), runs in runtime.job.state()]
    for query, each in sizes:
        runs, size = found.get(query, (0, 0))
        found[query] = (runs + len(each), size + sum(each))
    return found


def _shared(ticker: Ticker, key: str, state: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """With how many others a query shares; the state is the family's."""
    query, owner = ticker.queries[key], ticker.owner(key)
    if owner == key:
        return {}
    runs, size = state.get(owner, (0, 0))
    shares = isinstance(query, SharedQuery)
    others = ticker.sharing.others(query.plan.name) if shares else len(ticker.plans.plans[owner].members) - 1
    return {"shared_with": others, "runs": runs, "state_bytes": size, "family": owner}


def _instances(group: TemplateGroup, failures: Mapping[str, Any]) -> dict[str, Any]:
    """How many queries run, and which have failed."""
    failed = [name for name in failures if name.startswith(f"{group.name.lower()}(")]
    return {"template": group.template.name, "instances": len(group), "failed": failed}


def _table(table: LiveTable) -> dict[str, Any]:
    reading = table.reading
    return {
        "rows": reading.rows,
        "version_us": reading.version_us,
        "failing_since_us": reading.failing_since_us,
        "error": reading.error,
    }


def _told(stream: Stream | None, manifest: Manifest) -> dict[str, Any]:
    """How far the changes of a table have been read, and why they stand still, if they do."""
    if stream is None:
        return {}
    stopped = stream.stopped
    return {
        "changes": stream.rows,
        "quarantined": stream.quarantined,
        "offset": manifest.offsets.get(stream.key),
        "failing_since_us": int(stopped.since * 1e6) if stopped else None,
        "error": str(stopped.error) if stopped else None,
    }
