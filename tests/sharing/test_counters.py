"""The paper's tables, as formulas and as counted on running operators."""

from __future__ import annotations

import random
from collections import Counter
from math import lcm

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.operators.aggregates import Aggregation
from windrow.operators.linear import Formula
from windrow.sharing.conditions import EVERYTHING, Attribute, Condition, within
from windrow.sharing.edges import Edges
from windrow.sharing.family import Family, Kind, Member
from windrow.sharing.windows import SlideWindow, least_rate, slice_rate, sliced, worth_sharing
from windrow_bench.sharing_costs import count_fragments, count_slices, shared_slices, unshared_slices

ANY = st.builds(SlideWindow, st.integers(1, 30), st.integers(2, 12))
WHOLE = st.builds(lambda k, s: SlideWindow(k * s, s), st.integers(1, 4), st.integers(2, 12))
WINDOWS = st.lists(ANY, min_size=2, max_size=4, unique=True) | st.lists(WHOLE, min_size=2, max_size=4, unique=True)
COUNT = Aggregation("count", None, "c", pa.int64())


def family(windows: list[SlideWindow], technique: str) -> Family:
    made = Family(technique=technique)
    for i, window in enumerate(windows):
        made.join(Member(f"q{i}", window, EVERYTHING, Kind.of((), (COUNT,), {})))
    return made


@given(WINDOWS, st.sampled_from(["paired", "paned"]))
def test_shared_slices_cost_what_table_3_says(windows: list[SlideWindow], technique: str) -> None:
    """Over a period: |T| partial aggregations, and the common slices in every window final ones.

    That is E (r / s) per query, exactly, where every slice is in r / s windows: where slides divide ranges.
    """
    period = lcm(*(w.slide for w in windows))
    longest = max(w.range for w in windows)
    begin = -(-longest // period) * period
    ts = np.arange(1, begin + period + 1)  # a row in every tick, so that no slice is empty
    running = family(windows, technique)
    running.advance(ts[:begin], {}, begin)
    before = running.counters.reads, running.counters.lifted
    running.advance(ts[begin:], {}, begin + period)
    want = shared_slices(windows, period, technique)
    assert running.counters.lifted - before[1] == want.partial
    assert running.counters.reads - before[0] == count_slices(windows, begin, begin + period, True, technique)
    if all(w.range % w.slide == 0 for w in windows):
        assert running.counters.reads - before[0] == want.final


@given(WINDOWS, st.sampled_from(["paired", "paned"]))
def test_unshared_slices_cost_what_table_3_says(windows: list[SlideWindow], technique: str) -> None:
    """Each query for itself: n |T| partial, and S / s windows of its own slices; 2 r / s bounds the paired ones."""
    period = lcm(*(w.slide for w in windows))
    begin = -(-max(w.range for w in windows) // period) * period
    ts = np.arange(1, begin + period + 1)
    lifted = reads = 0
    for window in windows:
        running = family([window], technique)
        running.advance(ts[:begin], {}, begin)
        before = running.counters.reads, running.counters.lifted
        running.advance(ts[begin:], {}, begin + period)
        reads += running.counters.reads - before[0]
        lifted += running.counters.lifted - before[1]
    assert lifted == unshared_slices(windows, period, period, technique).partial == len(windows) * period
    assert reads == count_slices(windows, begin, begin + period, False, technique)
    if technique == "paired":
        assert reads <= sum(period // w.slide * -(-2 * w.range // w.slide) for w in windows)
    if all(w.range % w.slide == 0 for w in windows):
        assert reads == unshared_slices(windows, period, period, technique).final


@given(WINDOWS)
def test_paired_slices_never_cost_more(windows: list[SlideWindow]) -> None:
    """Shared paired windows need no more final aggregations than shared paned ones."""
    assert shared_slices(windows, 100, "paired").final <= shared_slices(windows, 100, "paned").final
    assert count_slices(windows, 100, 400, True, "paired") <= count_slices(windows, 100, 400, True, "paned")


def below(k: int) -> Condition:
    return within(Attribute('"v"', pa.int64(), ("v",)), (None, k))


@pytest.mark.parametrize("seed", range(5))
def test_fragments_cost_what_table_5_says(seed: int) -> None:
    """alpha |T| unshared, |T| and k beta shared, against signatures made one by one."""
    r = random.Random(seed)
    cuts = [r.randint(0, 20) for _ in range(6)]
    values = [r.randint(0, 25) for _ in range(200)]
    signatures = [tuple(v < k for k in cuts) for v in values]
    satisfied = [s for s in signatures if any(s)]
    found = count_fragments([below(k) for k in cuts], {'"v"': pa.array(values)}, len(values))
    assert found.unshared.final == sum(map(sum, signatures))
    assert found.shared.partial == len(satisfied)
    assert found.fragments == len(set(satisfied))
    assert found.shared.final == sum(map(sum, set(satisfied)))
    assert found.alpha * found.rows == pytest.approx(found.unshared.final)
    assert found.beta * found.fragments == pytest.approx(found.shared.final)


def test_partials_are_fragments_when_one_attribute_is_tested() -> None:
    """What the operator forms per slice are the paper's shards, where predicates test one attribute."""
    cuts, window = [3, 7, 12], SlideWindow(20, 10)
    formulas = {'"v"': Formula('"v"', pa.int64(), ("v",), "v")}
    running = Family()
    for i, k in enumerate(cuts):
        running.join(Member(f"q{i}", window, below(k), Kind.of((), (COUNT,), formulas)))
    r = random.Random(1)
    ts, values = np.sort(np.array([r.randint(1, 100) for _ in range(300)])), [r.randint(0, 11) for _ in range(300)]
    running.advance(ts, {"v": pa.array(values)}, 100)
    first = np.concatenate(([0], np.searchsorted(ts, np.arange(10, 101, 10), "right")))
    found = count_fragments([below(k) for k in cuts], {'"v"': pa.array(values)}, 300, first)
    assert running.counters.partials == found.fragments
    assert running.counters.lifted == found.rows == 300


def test_to_share_or_not() -> None:
    """Inequality 1: the paper's workload shares at 375 rows a second and not at 0.0005; a single query never does."""
    r = random.Random(7)
    windows = [SlideWindow(r.randint(600, 900), r.randint(300, 600)) for _ in range(256)]
    assert worth_sharing(windows, 375.0)
    assert not worth_sharing(windows, 0.0005)
    assert not worth_sharing(windows[:1], 375.0)
    two = [SlideWindow(18, 15), SlideWindow(12, 9)]
    by_hand = (slice_rate(two) * (18 / 15 + 12 / 9) - 2 * (18 / 225 + 12 / 81)) / 1
    assert least_rate(two) == pytest.approx(by_hand)
    assert least_rate(Counter({two[0]: 3, two[1]: 2})) == pytest.approx(least_rate([two[0]] * 3 + [two[1]] * 2))


def test_edges_are_counted_without_being_made() -> None:
    """The estimate that chooses spaces counts every window's edges."""
    edges = Edges([(0, SlideWindow(18, 15))], 1)
    assert edges.count(0, 45) == 3 * len(sliced(SlideWindow(18, 15))) + 2
