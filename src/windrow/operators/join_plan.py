"""The orders in which rows of each input of a join meet the others: made, measured, followed, described.

An order is a path of steps, one for every other input; each step looks into an index by the columns that are bound so
far. Indexes follow from the orders, so another order may need another index, which is built from one that is there.
What an order costs rests on what is measured here of the inputs; whoever sees all partitions chooses by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from windrow.operators.elements import BEGINNING, Elements
from windrow.operators.join_steps import (
    LEAST,
    JoinOrders,
    JoinReport,
    JoinStep,
    Matches,
    Orders,
    Part,
    Probes,
    classes,
    method,
)
from windrow.operators.linear import Formula
from windrow.operators.state.bands import Band
from windrow.operators.state.keyed import KeyedRuns
from windrow.operators.statistics import InputStatistics, Observed, class_columns


def _nothing() -> None: ...


class JoinPlan:
    """A join's inputs, orders, indexes and figures."""

    def __init__(
        self,
        parts: Sequence[Part],
        equalities: Sequence[tuple[str, str, bool]] = (),
        residual: Sequence[Formula] = (),
        orders: Sequence[Sequence[int]] | None = None,
        eager: bool = False,
        *,
        bands: Sequence[Band] = (),
        measures: bool = False,
        interval: int = 0,
    ) -> None:
        self.parts = tuple(parts)
        self.classes = classes(equalities)
        self.residual = tuple(residual)
        self.bands = tuple(bands)
        self.eager, self.interval, self.measures = eager, interval, measures
        self.watch: Callable[[], None] = _nothing
        self._owner = {c: i for i, p in enumerate(parts) for c in p.columns}
        everyone = tuple(range(len(parts)))
        self.orders: Orders = tuple(tuple(o) for o in orders) if orders else (everyone,) * len(parts)
        self.paths = self._paths(self.orders)
        self._turns = sorted(everyone, key=lambda i: not parts[i].static)
        self._self_equal = [self._own_classes(i) for i in everyone]
        self._indexes = {s.index: self._index(s.index) for path in self.paths for s in path}
        self._none = Elements.empty({n: t for p in parts for n, t in p.columns.items()})
        self._last = self._expired = BEGINNING
        self._changed = False  # a row of a table that does not reach back has come after the beginning
        self._dates = len(parts) > 2 or any(LEAST in p.columns for p in parts)  # and rows may be older than their time
        # two inputs have one order only: their keys need not be counted
        counted = self.classes if len(parts) > 2 else []
        self._statistics = [InputStatistics(class_columns(counted, p.columns)) for p in parts] if measures else []
        self._probes: dict[tuple[frozenset[int], int], Probes] = {}

    def _paths(self, orders: Orders) -> list[tuple[JoinStep, ...]]:
        # a static input never looks for partners, so nobody need be remembered for it
        return [() if p.static else self._path(i, orders[i]) for i, p in enumerate(self.parts)]

    def _index(self, which: tuple[int, tuple[str, ...], str | None]) -> KeyedRuns:
        part, keys, band = which
        return KeyedRuns(keys, self.parts[part].strict, self.eager, band, self.parts[part].static)

    def _path(self, first: int, order: Sequence[int]) -> tuple[JoinStep, ...]:
        """The steps that complete a new element of input `first`, along the join graph where there is one."""
        bound, steps = {first}, []
        checked: set[int] = set()
        rest = [i for i in order if i != first]
        while rest:
            linked = [j for j in rest if self._links(j, bound)] or [j for j in rest if self._band(j, bound)]
            part = (linked or rest)[0]
            rest.remove(part)
            links, band = self._links(part, bound), self._band(part, bound)
            bound.add(part)
            ready = [
                i
                for i, f in enumerate(self.residual)
                if i not in checked and all(self._owner[c] in bound for c in f.reads)
            ]
            checked.update(ready)
            steps.append(
                JoinStep(
                    part,
                    tuple(k for k, _, _ in links),
                    tuple(b for _, b, _ in links),
                    tuple(n for _, _, n in links),
                    tuple(self.residual[i] for i in ready),
                    band,
                )
            )
        return tuple(steps)

    def _links(self, part: int, bound: set[int]) -> list[tuple[str, str, bool]]:
        """(own column, bound column, null safe) for each class that reaches from `part` into `bound`."""
        links = []
        for columns, null_safe in self.classes:
            own = [c for c in columns if self._owner[c] == part]
            other = [c for c in columns if self._owner[c] in bound]
            if own and other:
                links.append((own[0], other[0], null_safe))
        return links

    def _band(self, part: int, bound: set[int]) -> tuple[str, str, float, float] | None:
        """The narrowest band that reaches from `part` into `bound`; bands over the same two columns act together."""
        found: dict[tuple[str, str], tuple[float, float]] = {}
        for band in self.bands:
            for own in (band.left, band.right):
                other, low, high = band.seen_from(own)
                if self._owner[own] == part and self._owner[other] in bound:
                    known = found.get((own, other), (float("-inf"), float("inf")))
                    found[own, other] = (max(known[0], low), min(known[1], high))
        if not found:
            return None
        (own, other), (low, high) = min(found.items(), key=lambda f: f[1][1] - f[1][0])
        return own, other, low, high

    def _own_classes(self, part: int) -> list[tuple[list[str], bool]]:
        """Classes with columns of this input; several columns of one class must be equal within the row."""
        mine = self.parts[part].columns
        own = [([c for c in columns if c in mine], safe) for columns, safe in self.classes]
        return [(columns, safe) for columns, safe in own if columns]

    def follow(self, orders: Sequence[Sequence[int]]) -> None:
        """Follow these orders from now on; indexes they need are built from those there are."""
        before, self.orders = self.orders, tuple(tuple(o) for o in orders)
        if self.orders == before:
            return
        self.paths = self._paths(self.orders)
        wanted = {s.index for path in self.paths for s in path}
        held, self._indexes = self._indexes, {}
        for which in sorted(wanted, key=str):
            self._indexes[which] = held[which] if which in held else self._built(which, held)

    def _built(self, which: tuple[int, tuple[str, ...], str | None], held: Mapping[Any, KeyedRuns]) -> KeyedRuns:
        index = self._index(which)
        # an index by a band leaves out rows with a null there, so one without is the better source
        sources = sorted((k for k in held if k[0] == which[0]), key=lambda k: k[2] is not None)
        if sources:
            for elements in held[sources[0]].everything():
                index.insert(elements, self._last)
        return index

    def _held(self) -> list[int]:
        return [next((len(x) for (p, _, _), x in self._indexes.items() if p == i), 0) for i in range(len(self.parts))]

    def measured(self, samples: bool = True) -> JoinReport:
        """What is measured here, for whoever sees all partitions."""
        pairs = zip(self._statistics, self._held(), strict=True)
        return JoinReport(tuple(s.seen(rows, samples) for s, rows in pairs), dict(self._probes))

    def described(
        self,
        orders: Orders,
        choice: JoinOrders | None,
        observed: Sequence[Observed],
        matches: Matches,
        reorderings: int,
    ) -> dict[str, Any]:
        """For EXPLAIN: the order of each input, its cost, what else was priced, and the statistics it rests on."""
        names = [p.name for p in self.parts]

        def shown(orders: Orders) -> dict[str, list[str]]:
            paths = zip(names, self._paths(orders), strict=True)
            return {name: [names[s.part] for s in path] for name, path in paths if path}

        described: dict[str, Any] = {"orders": shown(orders), "reorderings": reorderings}
        if self.interval:
            described["expires every"] = f"{self.interval:,} ticks of the clock"
        described["methods"] = {
            name: [method(s) for s in path] for name, path in zip(names, self._paths(orders), strict=True) if path
        }
        if choice is not None:
            described["cost"] = choice.cost
            described["alternatives"] = {
                label: {"orders": shown(other), "cost": cost} for label, (other, cost) in choice.alternatives.items()
            }
        if observed:
            described["statistics"] = {
                name: {"rate": o.rate, "rows": o.rows, "distinct": dict(o.values)}
                for name, o in zip(names, observed, strict=True)
            }
            described["matches per probe"] = {
                f"{', '.join(names[i] for i in sorted(bound))} -> {names[part]}": seen.matches / seen.probes
                for (bound, part), seen in sorted(matches.items(), key=str)
                if seen.probes
            }
        return described
