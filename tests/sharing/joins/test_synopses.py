"""Synopses by name: each reads what recomputing from all results gives, and the cheapest is chosen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windrow.sharing.joins.kernels import PairedRows
from windrow.sharing.joins.synopsis import JoinSynopsis, Requests, Results, blank, cheapest
from windrow.sharing.synopses import BasicInterval, Interval, SynopsisKind, best_between

BIJ, IJ, RJ = SynopsisKind.BASIC_INTERVAL_JOIN, SynopsisKind.INTERVAL_JOIN, SynopsisKind.RUNNING_JOIN


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-9, 9), st.booleans()), min_size=1, max_size=40), st.data())
def test_interval_and_basic_interval_read_the_same(entries: list[tuple[int, bool]], data: st.DataObject) -> None:
    """Any windows over any entries, youngest first or by dyadic intervals: the greatest of what lies between."""
    codes = np.array([c for c, _ in entries], np.int64)
    filled = np.array([f for _, f in entries], np.bool_)
    asked = data.draw(st.lists(st.tuples(st.integers(0, len(codes)), st.integers(0, len(codes))), max_size=20))
    low = np.array([min(a) for a in asked], np.int64)
    high = np.array([max(a) for a in asked], np.int64)
    want = [max((int(c) for c, f in zip(codes[a:b], filled[a:b], strict=True) if f), default=None)
            for a, b in zip(low, high, strict=True)]  # fmt: skip
    for best, some in (
        Interval(codes, filled).between(low, high),
        BasicInterval(codes, filled).between(low, high),
        best_between(low, high, codes, filled),
    ):
        assert [int(b) if s else None for b, s in zip(best, some, strict=True)] == want


rows = st.lists(st.tuples(st.integers(0, 30), st.integers(-5, 5)), min_size=1, max_size=15)


def side(given_rows: list[tuple[int, int]], axis: np.ndarray, shift: int) -> PairedRows:
    ordered = sorted(given_rows)
    ts = np.array([t for t, _ in ordered], np.int64)
    values = np.array([[v] for _, v in ordered], np.int64)
    place = np.searchsorted(axis, ts + shift).astype(np.int32)
    return PairedRows(ts, place, np.ones(len(ts), np.bool_), values, values, np.ones((len(ts), 1), np.bool_))


def results(first: PairedRows, second: PairedRows) -> Results:
    """All pairs, in the order of their birth."""
    found = np.array([(i, j) for i in range(len(first.ts)) for j in range(len(second.ts))], np.int32)
    birth = np.maximum(first.ts[found[:, 0]], second.ts[found[:, 1]])
    return Results(found[np.argsort(birth, kind="stable")], (first, second))


@settings(deadline=None, max_examples=60)
@given(rows, rows, st.integers(1, 12), st.integers(1, 12), st.sampled_from([BIJ, IJ, RJ]))
def test_join_synopses_read_what_the_join_has(
    first: list[tuple[int, int]], second: list[tuple[int, int]], one: int, two: int, kind: SynopsisKind
) -> None:
    """SS3: at every instant the (n1, n2)-join's count, sums and maxima, by the difference of the lengths."""
    least, axis = min(one, two), np.arange(-20, 60)
    shifts = (one - least, two - least)
    a, b = (side(r, axis, s) for r, s in zip((first, second), shifts, strict=True))
    if kind is RJ:
        a, b = (p._replace(codes=p.codes[:, :0].copy(), some=p.some[:, :0].copy()) for p in (a, b))
    synopsis = JoinSynopsis()
    synopsis.intervals = blank(0, 3, a.codes.shape[1] + b.codes.shape[1])
    instants = np.arange(0, 45)
    read = synopsis.sweep(
        axis, results(a, b), Requests.of(np.zeros(45, np.int64), instants, instants - least, instants + 1), kind
    )
    for t in range(45):
        alive = [(x, y) for ta, x in first for tb, y in second if t - one < ta <= t and t - two < tb <= t]
        at = t  # requests come in the order of instants
        assert read.sums.lanes[at].tolist() == [len(alive), sum(x for x, _ in alive), sum(y for _, y in alive)]
        if kind is not RJ and alive:
            assert read.sums.codes[at].tolist() == [max(x for x, _ in alive), max(y for _, y in alive)]


def test_three_values_are_too_few() -> None:
    """The printed SS3: without the oldest rows of the first window a (6, 8)-join still counts results too many.

    b = 8, g = 2. A (7, 8)-join leaves out results whose first row is in part 8: right. A (6, 8)-join must also leave
    out results whose second row is the oldest, in part 8, and whose first is in part 7: they are in no flagged value.
    """
    r = np.random.default_rng(8)
    part = [r.integers(1, 9, 4000), r.integers(1, 9, 4000)]  # 8 is the oldest

    def joined(n1: int, n2: int) -> int:
        return int(((part[0] <= n1) & (part[1] <= n2)).sum())

    oldest = np.maximum(*part)  # the interval in which a result expires first

    def printed(n1: int, n2: int) -> int:
        """All of the younger intervals, and of the older ones the results without old rows of the first window."""
        return int((oldest <= n1).sum() + ((oldest > n1) & (oldest <= n2) & (part[0] < oldest)).sum())

    assert printed(7, 8) == joined(7, 8)
    assert printed(6, 8) > joined(6, 8)


@pytest.mark.parametrize(
    ("situation", "kind"),
    [
        ((10_000, 10, 640, 100, True), BIJ),  # many results, many windows at each instant
        ((20, 1000, 1000, 5000, False), IJ),  # few results, one window at a time, many intervals
        ((1, 1000, 1000, 50, True), RJ),  # hardly any results, and read all the time
    ],
)
def test_the_cheapest_join_synopsis_is_chosen(situation: tuple[int, int, int, int, bool], kind: SynopsisKind) -> None:
    """By how many results come, how many instants and windows are read, and how many intervals there are."""
    assert cheapest(*situation) is kind
