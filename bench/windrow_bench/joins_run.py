"""Multi-way joins over generated streams, as the papers ran them: the operator, the general lazy join, the clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.operators.elements import Elements, Int64s, concat
from windrow.operators.join import JoinOperator
from windrow.operators.join_steps import JoinStep, Part
from windrow.operators.linear import Formula
from windrow.operators.state.pairs import Pairs
from windrow_bench.harness import CLOCKS

Parameters = list[tuple[float, float, float]]


class Counting(JoinOperator):
    """A join that counts the pairs it looks at."""

    pairs = 0

    def _matching(self, step: JoinStep, found: Elements, met: Pairs) -> Pairs:
        self.pairs += len(met)
        return super()._matching(step, found, met)


class Unrestored(Counting):
    """Re-evaluation without restore: new rows begin when the join is evaluated, so that what came and went since then
    meets nobody."""

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        there = [e.filter(e.exp > frontier) for e in inputs]
        return super().advance([e.with_lifetimes(np.full(len(e), frontier), e.exp) for e in there], frontier)


class GeneralJoin(Counting):
    """The general lazy join (3.3 of the report): new elements of an input take their place in its order, wherever that
    is; if it is not the first, everything that the first input remembers is looked at."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.general = {i: self._path(order[0], order) for i, order in enumerate(self.orders) if order[0] != i}
        for path in self.general.values():
            self._indexes |= {s.index: self._index(s.index) for s in path if s.index not in self._indexes}

    def _complete(self, first: int, new: Elements, hashes: dict[tuple[str, ...], Int64s]) -> Iterator[Elements]:
        if first not in self.general:
            yield from super()._complete(first, new, hashes)
            return
        lead, path = self.orders[first][0], self.general[first]
        usual, indexes = self.paths[lead], self._indexes
        own = {s.index: self._index(s.index) for s in path if s.part == first}
        for index in own.values():
            index.insert(new, self._last)
        held = next(x for (part, _, _), x in indexes.items() if part == lead).everything()
        self.paths[lead], self._indexes = path, {**indexes, **own}
        if held:
            yield from super()._complete(lead, concat(held), {})
        self.paths[lead], self._indexes = usual, indexes


class Streams:
    """Generated streams; a unit of time has as many ticks as tuples come in it."""

    def __init__(self, parameters: Parameters, tuples: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        rates = np.array([r for r, _, _ in parameters])
        self.unit = int(rates.sum())
        source = rng.choice(len(rates), tuples, p=rates / rates.sum())
        self.parts: list[Elements] = []
        for i, (_, window, values) in enumerate(parameters):
            ts = np.flatnonzero(source == i)
            keys = pa.array(rng.integers(1, int(values) + 1, len(ts)))
            columns = {f"s{i + 1}.ts": pa.array(ts), f"s{i + 1}.a": keys}
            self.parts.append(Elements.positive(ts, ts + int(window * self.unit), columns))
        self.tuples = tuples
        self.longest = int(max(w for _, w, _ in parameters) * self.unit)

    def between(self, begin: int, end: int) -> list[Elements]:
        """What comes in `[begin, end)`."""
        found = []
        for s in self.parts:
            low, high = np.searchsorted(s.ts, (begin, end))
            columns = {n: a.slice(low, high - low) for n, a in s.columns.items()}
            found.append(Elements(s.ts[low:high], s.exp[low:high], s.sign[low:high], columns))
        return found


Orders = str | Sequence[Sequence[int]]
"""One order for all inputs ("2134", each new tuple before the rest of it), or one for each, wherever it stands."""


def join_of(streams: Streams, order: Orders, method: str, expiration: int = 0, restore: bool = True) -> Counting:
    """The join of all streams on their common attribute."""
    parts = [Part({n: a.type for n, a in s.columns.items()}) for s in streams.parts]
    names = [f"s{i + 1}.a" for i in range(len(parts))]
    made: type[Counting] = GeneralJoin if not isinstance(order, str) else Counting if restore else Unrestored
    orders = [[int(c) - 1 for c in order]] * len(parts) if isinstance(order, str) else order
    if method == "hash":
        equalities = [(a, b, False) for a, b in pairwise(names)]
        return made(parts, equalities, orders=orders, interval=expiration)
    # every pair of inputs has its predicate, as every loop compares with the new tuple
    pairs = [(a, b) for k, a in enumerate(names) for b in names[k + 1 :]]
    same = [Formula(f'"{a}" = "{b}"', pa.bool_(), (a, b)) for a, b in pairs]
    return made(parts, residual=same, orders=orders, interval=expiration)


def measure(
    streams: Streams,
    order: Orders,
    method: str,
    every: float,
    clock: str,
    expiration: float = 0,
    restore: bool = True,
) -> dict[str, Any]:
    """Run once, from the moment the windows are full; `every` and `expiration` in units of time."""
    join = join_of(streams, order, method, int(expiration * streams.unit), restore)
    step = max(1, int(every * streams.unit))
    for begin in range(0, streams.longest, max(step, streams.longest // 8)):
        end = min(begin + max(step, streams.longest // 8), streams.longest)
        join.advance(streams.between(begin, end), end - 1)
    join.pairs = results = 0
    now = CLOCKS[clock]
    spent = 0.0
    for begin in range(streams.longest, streams.tuples, step):
        new = streams.between(begin, begin + step)
        before = now()
        results += len(join.advance(new, begin + step - 1))
        spent += now() - before
    seen = streams.tuples - streams.longest
    return {
        "tuples_per_s": seen / spent,
        "results_per_s": results / spent,
        "pairs_per_unit": join.pairs / (seen / streams.unit),
        "results": results,
    }


def best(repeat: int, *arguments: Any, **more: Any) -> dict[str, Any]:
    """The fastest of several runs, and by how much the next one is slower."""
    runs = sorted((measure(*arguments, **more) for _ in range(max(1, repeat))), key=lambda m: -float(m["tuples_per_s"]))
    scatter = {"scatter": runs[0]["tuples_per_s"] / runs[1]["tuples_per_s"] - 1} if len(runs) > 1 else {}
    return runs[0] | scatter
