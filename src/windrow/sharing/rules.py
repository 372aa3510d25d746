"""The rules of sharing: which queries may use one synopsis (SS), and which may run together (CS). Thesis 8.3 and 8.4.3.

    SS1  one synopsis serves functions of the same data over windows that are multiples of its interval
    CS1  queries on a running or interval synopsis run together if their windows are equal
    CS2  all queries on one basic interval synopsis run together
    SS2  an average needs a synopsis of sums and one of counts, updated at the same times
    CS3  sum, count and average over one window run together
    SS3  a generalised join synopsis serves joins of equal windows, and of windows whose lengths differ as it provides
    CS4  queries on an IJ or RJ synopsis run together if both their windows are equal
    CS5  all queries on one BIJ synopsis run together
    SS4  synopses that cover a query's predicate serve it, if they reach back far enough
    CS6  candidates, then the query, run together if their windows are equal (running, interval, RJ, IJ)
    CS7  candidates, then the query, run together (basic interval, BIJ)
    CS8  a query that equals another but for a longer period takes its answers

A function per rule, over what is known of queries and synopses (`AggregateSpec`, `SynopsisSpec`). SS1 to SS3 and CS1
to CS5 always pay. SS4, CS6 and CS7 save space and may cost time: `worth_covering` decides.

SS3 as printed keeps three values in each of the g oldest intervals: all results, those without the oldest rows of the
first window, and those without the oldest of the second. That is right for lengths that differ by one interval. With a
difference of two a result may also have to go because its *other* row is in a part between; so an interval needs a
value for every difference that is read (`differences`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd

from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.call import EXTREMES, LINEAR, MOMENTS
from windrow.sharing.covers import Relevant, Terms, relevant
from windrow.sharing.synopses import SynopsisKind

ROWS = "rows"
"""What a synopsis of counts holds."""

RUNNING_KINDS = (SynopsisKind.RUNNING, SynopsisKind.INTERVAL)
JOIN_KINDS = (SynopsisKind.RUNNING_JOIN, SynopsisKind.INTERVAL_JOIN)


@dataclass(frozen=True)
class AggregateSpec:
    """A periodic aggregate: the rows it reads, through which predicate, over which windows, how often, and what.

    `windows`: one length, or one for each stream of a join. `terms`: the predicate as a disjunction, if it is one.
    """

    name: str
    rows: Hashable
    predicate: Hashable
    windows: tuple[int, ...]
    period: int
    calls: tuple[Aggregation, ...]
    keys: Hashable = ()
    terms: Terms | None = None
    shown: Hashable = ()

    @property
    def data(self) -> frozenset[str]:
        """What each interval must hold for it."""
        return frozenset(d for call in self.calls for d in data_of(call))


@dataclass(frozen=True)
class SynopsisSpec:
    """A synopsis: `intervals` intervals of length `interval`, what each holds, of which rows; updated at `phase`."""

    kind: SynopsisKind
    rows: Hashable
    predicate: Hashable
    interval: int
    intervals: int
    data: frozenset[str]
    phase: int = 0
    keys: Hashable = ()
    terms: Terms | None = None
    differences: frozenset[int] = field(default_factory=lambda: frozenset({0}))  # of join windows, in intervals

    def spans(self, window: int) -> bool:
        """Whether a window is a multiple of its interval, and no longer than all of them."""
        return window % self.interval == 0 and window <= self.interval * self.intervals


def data_of(call: Aggregation) -> frozenset[str]:
    """What intervals must hold for a function.

    >>> sorted(data_of(Aggregation("avg", "x", "m", None)))
    ['count:x', 'sum:x']
    """
    if call.column is None:
        return frozenset({ROWS})
    if call.collapses or call.kind not in EXTREMES | LINEAR:
        return frozenset({f"counters:{call.column}"})
    if call.kind in EXTREMES:
        return frozenset({f"{'least' if call.kind == 'min' else 'greatest'}:{call.column}"})
    if call.kind in MOMENTS:
        return frozenset({f"count:{call.column}", f"sum:{call.column}", f"squares:{call.column}"})
    needs = {"count": ("count",), "sum": ("sum",), "avg": ("sum", "count")}[call.kind]
    return frozenset(f"{part}:{call.column}" for part in needs)


def synopsis_of(queries: Sequence[AggregateSpec], kind: SynopsisKind) -> SynopsisSpec:
    """The synopsis that some queries over the same rows and predicate would have together."""
    first = queries[0]
    s = gcd(*(w for q in queries for w in q.windows), *(q.period for q in queries))
    longest = max(max(q.windows) for q in queries)
    differences = frozenset((q.windows[-1] - q.windows[0]) // s for q in queries)
    data = frozenset(d for q in queries for d in q.data)
    return SynopsisSpec(
        kind, first.rows, first.predicate, s, longest // s, data, 0, first.keys, first.terms, differences
    )  # fmt: skip


def _same_rows(synopsis: SynopsisSpec, query: AggregateSpec) -> bool:
    return (synopsis.rows, synopsis.predicate, synopsis.keys) == (query.rows, query.predicate, query.keys)


# -- one window --------------------------------------------------------------------------------------------------------


def ss1(synopsis: SynopsisSpec, query: AggregateSpec) -> bool:
    """The query's functions need what the synopsis holds, over a window of n intervals, 1 <= n <= b."""
    plain = len(query.windows) == 1 and _same_rows(synopsis, query)
    return plain and query.data <= synopsis.data and synopsis.spans(query.windows[0])


def cs1(synopsis: SynopsisSpec, queries: Sequence[AggregateSpec]) -> bool:
    """Queries on a running or interval synopsis run together if their windows are equal."""
    served = all(ss1(synopsis, q) for q in queries)
    return served and synopsis.kind in RUNNING_KINDS and _equal_windows(queries)


def cs2(synopsis: SynopsisSpec, queries: Sequence[AggregateSpec]) -> bool:
    """All queries on one basic interval synopsis run together: shorter windows are met on the way."""
    return synopsis.kind is SynopsisKind.BASIC_INTERVAL and all(ss1(synopsis, q) for q in queries)


def ss2(sums: SynopsisSpec, counts: SynopsisSpec, query: AggregateSpec) -> bool:
    """An average comes from running sums and running counts that are updated at the same times."""
    averages = [c for c in query.calls if c.kind == "avg" and not c.distinct]
    aligned = (sums.interval, sums.phase) == (counts.interval, counts.phase)
    running = sums.kind is counts.kind is SynopsisKind.RUNNING
    held = all(f"sum:{c.column}" in sums.data and f"count:{c.column}" in counts.data for c in averages)
    rows = _same_rows(sums, query) and _same_rows(counts, query)
    reach = sums.spans(query.windows[0]) and counts.spans(query.windows[0])
    return bool(averages) and len(averages) == len(query.calls) and running and aligned and held and rows and reach


def cs3(sums: SynopsisSpec, counts: SynopsisSpec, queries: Sequence[AggregateSpec]) -> bool:
    """Sum, count and average over one window run together: the average divides what the others found."""
    kinds = {c.kind for q in queries for c in q.calls}
    averages = [q for q in queries if any(c.kind == "avg" for c in q.calls)]
    served = all(ss2(sums, counts, q) for q in averages)
    others = all(ss1(sums, q) or ss1(counts, q) for q in queries if q not in averages)
    return kinds == {"sum", "count", "avg"} and served and others and _equal_windows(queries)


# -- joins -------------------------------------------------------------------------------------------------------------


def ss3(synopsis: SynopsisSpec, query: AggregateSpec) -> bool:
    """A join of windows that the synopsis reaches, of equal lengths or with a difference that it has values for."""
    if len(query.windows) != 2 or not _same_rows(synopsis, query) or not query.data <= synopsis.data:
        return False
    first, second = query.windows
    reached = synopsis.spans(first) and synopsis.spans(second)
    return reached and (second - first) // synopsis.interval in synopsis.differences


def cs4(synopsis: SynopsisSpec, queries: Sequence[AggregateSpec]) -> bool:
    """Queries on an IJ or RJ synopsis run together if both their windows are equal."""
    served = all(ss3(synopsis, q) for q in queries)
    return served and synopsis.kind in JOIN_KINDS and _equal_windows(queries)


def cs5(synopsis: SynopsisSpec, queries: Sequence[AggregateSpec]) -> bool:
    """All queries on one BIJ synopsis run together."""
    return synopsis.kind is SynopsisKind.BASIC_INTERVAL_JOIN and all(ss3(synopsis, q) for q in queries)


# -- predicates --------------------------------------------------------------------------------------------------------


def ss4(query: AggregateSpec, synopses: Mapping[str, SynopsisSpec]) -> Relevant | None:
    """The synopses that cover the query's predicate, hold what it needs and reach back far enough; None if none do."""
    if query.terms is None:
        return None
    fitting = {
        name: s
        for name, s in synopses.items()
        if (s.rows, s.keys) == (query.rows, query.keys) and query.data <= s.data and all(map(s.spans, query.windows))
    }
    duplicates = any(c.kind not in EXTREMES for c in query.calls)
    subtracts = all(c.column is None or (c.kind in ("count", "sum", "avg") and not c.distinct) for c in query.calls)
    for aligned in _aligned(fitting):
        found = relevant(
            query.terms, {n: s.terms for n, s in aligned.items() if s.terms is not None}, duplicates, subtracts
        )
        if found is not None:
            return found
    return None


def _aligned(synopses: Mapping[str, SynopsisSpec]) -> list[dict[str, SynopsisSpec]]:
    """Synopses that are updated at the same times."""
    found: dict[tuple[int, int], dict[str, SynopsisSpec]] = {}
    for name, s in synopses.items():
        found.setdefault((s.interval, s.phase), {})[name] = s
    return list(found.values())


def worth_covering(query: AggregateSpec, found: Relevant, interval: int, update: float = 1.0) -> bool:
    """Whether reading several synopses costs less than one more to keep: per run, intervals read and merged.

    `update`: what adding to a synopsis costs, in intervals read; one of its own is added to at every update.
    """
    n = max(query.windows) / interval
    own = n + update * query.period / interval
    return len(found) * n + len(found) - 1 <= own


def cs6(
    query: AggregateSpec, found: Relevant, synopses: Mapping[str, SynopsisSpec], candidates: Sequence[AggregateSpec]
) -> bool:
    """Candidates, then the query, run together if their windows are equal."""
    kinds = (*RUNNING_KINDS, *JOIN_KINDS)
    return _all_of(found, synopses, kinds) and _equal_windows([query, *candidates])


def cs7(found: Relevant, synopses: Mapping[str, SynopsisSpec]) -> bool:
    """Candidates, then the query, run together, whatever their windows."""
    return _all_of(found, synopses, (SynopsisKind.BASIC_INTERVAL, SynopsisKind.BASIC_INTERVAL_JOIN))


def _all_of(found: Relevant, synopses: Mapping[str, SynopsisSpec], kinds: Iterable[SynopsisKind]) -> bool:
    return all(synopses[name].kind in tuple(kinds) for name in (*found.together, *found.without))


# -- periods -----------------------------------------------------------------------------------------------------------


def cs8(query: AggregateSpec, other: AggregateSpec) -> bool:
    """The query equals the other but for a longer period: it takes the other's answers."""
    return query.period > other.period and identity(query) == identity(other)


def identity(query: AggregateSpec) -> Hashable:
    """What a query computes, the same for queries that differ in name and period only."""
    return (query.rows, query.predicate, query.windows, query.calls, query.keys, query.shown)


def _equal_windows(queries: Sequence[AggregateSpec]) -> bool:
    return len({q.windows for q in queries}) <= 1
