"""Partial and final aggregations of running operators, held against the formulas of tables 3 and 5 of Krishnamurthy,
Wu and Franklin.

Table 3 is over one period of the composed window, so queries here have slides whose least common multiple is an hour,
and there is a row in every second: no slice is empty. The formula's final aggregations are exact where slides divide
ranges; for windows like those of workload A, whose period is longer than any run, the slices in every window are
counted instead. Table 5 is over the rows of the experiment: which queries a row satisfies is found by testing every
predicate on every row, which is what neither the index nor the operators do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import lcm

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates import Aggregation
from windrow.operators.conjunction import holds
from windrow.operators.elements import Int64s
from windrow.operators.linear import Formula
from windrow.scalar_engine import quote
from windrow.sharing.conditions import EVERYTHING, Attribute, Condition, within
from windrow.sharing.family import Family, Kind, Member
from windrow.sharing.windows import PAIRED, PANED, SlideWindow, edges_between
from windrow_bench.harness import Ratio
from windrow_bench.sharing_costs import Cost, count_fragments, count_slices, shared_slices, unshared_slices

SLIDES = (300, 360, 400, 450, 600)
COUNT = Aggregation("count", None, "n", pa.int64())
Tested = tuple[Condition, Sequence[str]]
"""A predicate as the index has it, and as SQL conjuncts."""


@dataclass(frozen=True)
class Counted:
    """What a plan did, and what the paper says that it does."""

    plan: str
    queries: int
    counted: Cost
    formula: Cost

    def row(self) -> dict[str, object]:
        """One line of the result."""
        return {
            "workload": f"counters, {self.plan}", "queries": self.queries,
            "partial": self.counted.partial, "final": self.counted.final,
            "formula partial": self.formula.partial, "formula final": self.formula.final,
        }  # fmt: skip


def compared(
    rows: int, columns: Mapping[str, pa.Array], ts: Int64s, tests: Sequence[Tested], seed: int
) -> list[Counted]:
    """Every plan of both tables; `tests`: predicates over `columns`, of which the first `rows` rows are taken."""
    r = random.Random(f"counters {seed}")
    whole = [SlideWindow(k * s, s) for s, k in ((r.choice(SLIDES), r.randint(1, 3)) for _ in range(64))]
    free = [SlideWindow(r.randint(600, 900), r.randint(300, 600)) for _ in range(64)]
    rows = min(rows, len(ts))
    few = {n: c.slice(0, rows) for n, c in columns.items()}
    return [*_slices(whole, formula=True), *_slices(free, formula=False), *_fragments(few, ts[:rows], tests)]


def target(found: Sequence[Counted]) -> Ratio:
    """Counters equal the formulas, or the experiment has failed."""
    different = sum(c.counted != c.formula for c in found)
    return Ratio(f"counters equal the formulas (tables 3 and 5), {len(found)} plans: differences", different, 0.0)


def _slices(windows: Sequence[SlideWindow], formula: bool) -> list[Counted]:
    """Table 3: a query set in one family, and every query in its own, by both slicings."""
    period = lcm(*(w.slide for w in windows)) if formula else 3600
    found = []
    for technique in (PAIRED, PANED):
        together = _over(windows, period, technique, windows)
        each = [_over([w], period, technique, windows) for w in windows]
        apart = Cost(sum(c.partial for c in each), sum(c.final for c in each))
        if formula:
            want = shared_slices(windows, period, technique), unshared_slices(windows, period, period, technique)
        else:
            begin = _begin(windows, period)
            final = [count_slices(windows, begin, begin + period, shared, technique) for shared in (True, False)]
            want = Cost(period, final[0]), Cost(len(windows) * period, final[1])
        what = "table 3" if formula else "windows of A"
        found += [
            Counted(f"{what}, shared {technique}", len(windows), together, want[0]),
            Counted(f"{what}, unshared {technique}", len(windows), apart, want[1]),
        ]
    return found


def _begin(windows: Sequence[SlideWindow], period: int) -> int:
    """The first multiple of the period by which every window has been whole."""
    return -(-max(w.range for w in windows) // period) * period


def _over(windows: Sequence[SlideWindow], period: int, technique: str, everyone: Sequence[SlideWindow]) -> Cost:
    """What a family does in one period, with a row in every tick."""
    begin = _begin(everyone, period)
    ts = np.arange(1, begin + period + 1)
    family = _family(((w, EVERYTHING) for w in windows), {}, technique)
    _advance(family, ts[:begin], {}, begin)
    lifted, reads = family.counters.lifted, family.counters.reads
    _advance(family, ts[begin:], {}, begin + period)
    return Cost(family.counters.lifted - lifted, family.counters.reads - reads)


def _advance(family: Family, ts: Int64s, columns: Mapping[str, pa.Array], frontier: int) -> None:
    """Take in rows, those among them that wait for the next instant at which somebody is due."""
    family.advance(ts, columns, frontier)
    family.catch_up()


def _family(
    queries: Iterable[tuple[SlideWindow, Condition]], formulas: Mapping[str, Formula], technique: str = PAIRED
) -> Family:
    made = Family(technique=technique)
    for i, (window, condition) in enumerate(queries):
        made.join(Member(f"q{i}", window, condition, Kind.of((), (COUNT,), formulas)))
    return made


def _fragments(columns: Mapping[str, pa.Array], ts: Int64s, tests: Sequence[Tested]) -> list[Counted]:
    """Table 5: the fragments of the workload's predicates, and the partials of operators over one attribute."""
    named = {quote(n): c for n, c in columns.items()}
    asked = [lambda sql=sql: holds(columns, len(ts), sql) for _, sql in tests]
    found = count_fragments([c for c, _ in tests], named, len(ts))
    tested = _tested(asked, len(ts), np.zeros(len(ts), np.int64))
    return [
        Counted("table 5, shared", len(tests), found.shared, tested[0]),
        Counted("table 5, unshared", len(tests), found.unshared, tested[1]),
        _shards(columns, ts),
    ]


def _tested(asked: Sequence[Callable[[], np.ndarray]], rows: int, slice_: Int64s) -> tuple[Cost, Cost]:
    """Both lines of table 5 by the signatures of all rows: |T| and k beta, 0 and alpha |T|."""
    signatures = np.stack([ask() for ask in asked], axis=1)  # (rows, queries)
    some = signatures.any(axis=1)
    keyed = np.concatenate((slice_[:, None], np.packbits(signatures, axis=1)), axis=1)[some]
    _, first = np.unique(keyed, axis=0, return_index=True)
    fragments = signatures[some][first]
    return Cost(int(some.sum()), int(fragments.sum())), Cost(0, int(signatures.sum()))


def _shards(columns: Mapping[str, pa.Array], ts: Int64s) -> Counted:
    """Shards as operators form them, per slice: rows lifted and partials formed."""
    name = next(n for n, c in columns.items() if pa.types.is_integer(c.type))
    column = columns[name].cast(pa.int64())
    values = column.to_numpy()
    cuts = sorted({int(v) for v in np.quantile(values, [0.1, 0.3, 0.5, 0.7, 0.9])} | {int(values.max()) + 1})
    attribute = Attribute(quote(name), pa.int64(), (name,))
    window = SlideWindow(int(ts[-1] - ts[0]) // 4, int(ts[-1] - ts[0]) // 8)
    formulas = {attribute.sql: Formula(attribute.sql, pa.int64(), (name,), name)}
    family = _family(((window, within(attribute, (None, k))) for k in cuts), formulas)
    _advance(family, ts, {name: column}, int(ts[-1]))
    slice_ = np.searchsorted(edges_between([window], int(ts[0]) - 1, int(ts[-1])), ts, "left")
    keyed = np.stack([slice_, *(values < k for k in cuts)], axis=1)
    counted = Cost(family.counters.lifted, family.counters.partials)
    return Counted("shards of one attribute", len(cuts), counted, Cost(len(ts), len(np.unique(keyed, axis=0))))


__all__ = ["Counted", "compared", "target"]
