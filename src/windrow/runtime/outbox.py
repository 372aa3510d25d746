"""Answers on their way to sinks: what waits for each, in the home, and who was there before.

Answers are written with the tick that brought them and stay in manifests (`outputs`) until every sink of their query
has them, so a sink that is away loses nothing, over restarts too. How far each sink is goes into the manifest of the
next tick; what is handed over twice for that, sinks tell by the tick. When more than its bound waits for a sink, its
query stops before the next tick, and what it answered until then is still handed over.

A sink that was attached when the home was left, and is not now, is missing: its answers wait for it within the bound,
and then it is given up; both are said.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from windrow.errors import BindingError, StateError, WindrowError
from windrow.runtime.delivery import OUTBOX
from windrow.runtime.kept_answers import AnyAnswer, KeptAnswer, MapTasks, rows_of
from windrow.runtime.outlet import AttachedSink, Outlet
from windrow.runtime.tick import Ticker
from windrow.sinks import RelationSink, Sink
from windrow.store.runs import RunRef

LOG = logging.getLogger("windrow.engine")


class Outbox:
    """The sinks of all queries; used between ticks and by the thread that runs them."""

    def __init__(self, ticker: Ticker, outlets: Mapping[str, Outlet], tasks: MapTasks | None = None) -> None:
        """`tasks`: runs a function over values in tasks."""
        self._ticker, self._outlets, self._tasks = ticker, outlets, tasks
        self._given_up: dict[str, dict[str, str]] = {}  # by query and sink, why
        self._served: set[str] = set()  # queries that have had sinks; what a tick walks

    # who is there

    def attach(self, key: str, kind: str, sink: Sink, name: str | None, bound: int | None) -> AttachedSink:
        """Write a query's answers to a sink from the next tick on, and what a home has kept for it."""
        outlet = self._outlets[key]
        name = name or _free(kind, outlet)
        if name in outlet.sinks:
            raise BindingError(f'query "{outlet.name}" has a sink "{name}"', hint="choose another name, or detach it")
        made = AttachedSink(outlet.name, name, sink, kind, OUTBOX if bound is None else bound, self._tasks)
        manifest = self._ticker.manifest
        known = manifest.sinks.get(key)
        reached = -1 if known is None else known.get(name, manifest.tick)  # a home without this knowledge keeps all
        for (query, tick), refs in sorted(manifest.outputs.items(), key=lambda entry: entry[0]):
            if query == key and tick > reached and not isinstance(sink, RelationSink):  # which is filled anew
                made.add_kept(tick, self._kept(refs))
        outlet.sinks[name] = made
        self._served.add(key)
        self._given_up.get(key, {}).pop(name, None)
        return made

    def detach(self, key: str, name: str) -> None:
        """Write to a sink no longer, and let go of what waits for it."""
        outlet = self._outlets[key]
        sink = outlet.sinks.pop(name, None)
        known = name in self._ticker.manifest.sinks.get(key, {}) or name in self._given_up.get(key, {})
        if sink is None and not known:
            names = ", ".join([*outlet.sinks, *self._ticker.manifest.sinks.get(key, {})]) or "none"
            raise BindingError(f'query "{outlet.name}" has no sink "{name}"', hint=f"its sinks: {names}")
        self._given_up.get(key, {}).pop(name, None)
        self._ticker.forget_sink(key, name)
        if sink is not None:
            sink.close()

    def put_off(self, key: str, name: str) -> None:
        """Close a sink that another is about to take the place of: what waits for it waits for that."""
        sink = self._outlets[key].sinks.pop(name, None)
        if sink is not None:
            sink.close()

    def missing(self, key: str) -> dict[str, int]:
        """Sinks that a query had when its home was left and has not now, and what each was known to have."""
        attached = self._outlets[key].sinks
        return {n: r for n, r in self._ticker.manifest.sinks.get(key, {}).items() if n not in attached}

    def _with_sinks(self) -> Iterator[tuple[str, Outlet]]:
        """The queries that have sinks, or had them when the home was left."""
        self._served &= self._outlets.keys()
        for key in sorted(self._served | (self._ticker.manifest.sinks.keys() & self._outlets.keys())):
            yield key, self._outlets[key]

    def report_missing(self) -> None:
        """Say which sinks are missing."""
        for key, outlet in self._with_sinks():
            for name in self.missing(key):
                LOG.warning(
                    'sink "%s" of query "%s" was attached before and is not now: its answers wait; '
                    "attach it, or engine.detach it",
                    name, outlet.name,
                )  # fmt: skip

    # ticks

    def stopped(self) -> dict[str, WindrowError]:
        """Queries that must not go on because too much waits for one of their sinks."""
        found: dict[str, WindrowError] = {}
        for key, outlet in self._with_sinks():
            sink = outlet.full if key in self._ticker.queries or self._runs(key) else None
            if sink is not None:
                state = sink.delivery.status()
                found[key] = StateError(
                    f'query "{outlet.name}" stopped after tick {self._ticker.manifest.tick}: '
                    f'{state["waiting_bytes"]:,} bytes wait for its sink "{sink.name}", over {sink.delivery.bound:,}',
                    detail=state["error"] or "the sink is slower than the query",
                    hint="what was answered is handed over when the sink takes it; drop the query and create it again",
                )
        return found

    def _runs(self, key: str) -> bool:
        """Whether some query from a template, under this name, runs."""
        group = self._ticker.groups.live.get(key)
        if group is None:
            return False
        return bool(group.blocks) or any(name.lower() in self._ticker.queries for name in group.place)

    def outputs(self, answers: Mapping[str, AnyAnswer]) -> dict[str, AnyAnswer]:
        """The answers of a tick that a crash before their sinks have them would lose."""
        found: dict[str, AnyAnswer] = {}
        waited_for = self._ticker.manifest.sinks
        for query, each in answers.items():
            key = query.lower()
            outlet = self._outlets[key]
            last = outlet.sinks or outlet.log is not None or (key in waited_for and self.missing(key))
            if last and each.num_rows:
                found[key] = each
        return found

    def reached(self, tick: int) -> dict[str, dict[str, int]]:
        """By query, the last tick before this one that each of its sinks has."""
        found: dict[str, dict[str, int]] = {}
        for key, outlet in self._with_sinks():
            each = {}
            for name, sink in outlet.sinks.items():
                first = sink.delivery.first_waiting
                each[name] = tick - 1 if first is None else first - 1
            each |= {name: r for name, r in self.missing(key).items() if self._bears(key, name, r)}
            if each:
                found[key] = each
        return found

    def _bears(self, key: str, name: str, reached: int) -> bool:
        """Whether what waits for a missing sink is within the bound."""
        waits = sum(_size(r) for (q, t), r in self._ticker.manifest.outputs.items() if q == key and t > reached)
        if waits <= OUTBOX:
            return True
        why = f"{waits:,} bytes waited for it; ticks after {reached} are not kept for it"
        LOG.error('sink "%s" of query "%s" is given up: %s', name, self._outlets[key].name, why)
        self._given_up.setdefault(key, {})[name] = why
        return False

    def deliver(self, number: int, answers: Mapping[str, AnyAnswer], frontier: int) -> None:
        """Hand the answers of a tick that is committed over; nothing here waits for a disk, or can fail."""
        outputs = self._ticker.manifest.outputs
        for query, found in answers.items():
            outlet = self._outlets[query.lower()]
            refs = outputs.get((query.lower(), number))
            kept = found if isinstance(found, KeptAnswer) else self._kept(refs) if refs else None
            for sink in outlet.sinks.values() if found.num_rows else ():
                sink.add(number, found, kept)
            outlet.recent.add(number, found, frontier)

    def keep(self, number: int, answers: Mapping[str, AnyAnswer]) -> None:
        """Write the answers of a tick that last; what fails is written by the next start (`redeliver`)."""
        for query, found in answers.items():
            log = self._outlets[query.lower()].log
            if log is not None:
                log.write(query, number, rows_of(found))

    def redeliver(self) -> None:
        """After a crash between manifest and log: write the last answers again."""
        for (key, number), refs in self._ticker.manifest.outputs.items():
            outlet = self._outlets.get(key)
            if outlet is not None and outlet.log is not None and number == self._ticker.manifest.tick:
                outlet.log.write(outlet.name, number, self._kept(refs).table())

    def status(self) -> dict[str, Any]:
        """Every sink, by query and name; what waits, since when, and what is wrong."""
        found: dict[str, Any] = {}
        known = self._served | self._ticker.manifest.sinks.keys() | self._given_up.keys()
        for key, outlet in [(k, o) for k, o in list(self._outlets.items()) if k in known] if known else ():
            each = outlet.status()
            for name, reached in self.missing(key).items():
                each[name] = {"missing": True, "reached": reached}
            for name, why in self._given_up.get(key, {}).items():
                each[name] = {"missing": True, "given_up": why}
            if each:
                found[outlet.name] = each
        return found

    def _kept(self, refs: tuple[RunRef, ...]) -> KeptAnswer:
        return KeptAnswer(self._ticker.store.runs, refs)


def _size(refs: tuple[RunRef, ...]) -> int:
    return sum(ref.bytes for ref in refs)


def _free(kind: str, outlet: Outlet) -> str:
    """A name for a sink without one: its kind, with a number from the second on."""
    names = (kind if n == 1 else f"{kind} {n}" for n in range(1, len(outlet.sinks) + 2))
    return next(name for name in names if name not in outlet.sinks)
