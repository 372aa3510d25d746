"""Paired and paned windows, their composition, and the slice manager."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.sharing.edges import Edges
from windrow.sharing.windows import SlicedWindow, SlideWindow, edges_between, paired, paned, sliced
from windrow_bench.sharing_costs import compose

WINDOWS = st.builds(SlideWindow, st.integers(1, 40), st.integers(1, 30))
TECHNIQUES = st.sampled_from(["paired", "paned"])


def answers(cuts: SlicedWindow, window: SlideWindow) -> bool:
    """Whether the window's answers can be computed from these slices (lemma 1)."""
    start = cuts.period - window.range % window.slide
    return cuts.period == window.slide and (start == cuts.period or start in cuts.edges)


def next_edge(window: SlideWindow, after: int, technique: str) -> int:
    """The first edge beyond `after`, instant by instant."""
    edges = sliced(window, technique).edges
    return next(t for t in itertools.count(after + 1) if (t - window.phase - 1) % window.slide + 1 in edges)


def test_the_papers_window() -> None:
    """W[18, 15] is paned (3, 3, 3, 3, 3) and paired (12, 3)."""
    assert paned(SlideWindow(18, 15)).slices == (3, 3, 3, 3, 3)
    assert paired(SlideWindow(18, 15)).slices == (12, 3)


def test_the_papers_composition_corrected() -> None:
    """U(12, 3) with V(6, 3) has period 45 and twelve slices; the printed vector has one too many of each kind."""
    common = compose([SlicedWindow((12, 3)), SlicedWindow((6, 3))])
    assert common.period == 45
    assert common.slices == (6, 3, 3, 3, 3, 6, 3, 3, 3, 3, 6, 3)


@given(WINDOWS, TECHNIQUES)
def test_slices_answer_their_window(window: SlideWindow, technique: str) -> None:
    """Both ends of every window are edges (lemma 1)."""
    cuts = sliced(window, technique)
    assert answers(cuts, window)
    assert cuts.period == window.slide
    edges = set(edges_between([window], -200, 200, technique).tolist())
    assert all({t, t - window.range} <= edges for t in range(0, 120, window.slide) if t - window.range > -200)


@st.composite
def any_sliced(draw: st.DrawFn, window: SlideWindow) -> SlicedWindow:
    """Some sliced window that answers `window`."""
    must = {window.slide, window.slide - window.range % window.slide}
    more = draw(st.sets(st.integers(1, window.slide)))
    edges = sorted((must | more) - {0})
    return SlicedWindow(tuple(b - a for a, b in zip([0, *edges], edges, strict=False)))


@given(st.data(), st.lists(WINDOWS, min_size=1, max_size=4))
def test_paired_windows_have_the_fewest_edges(data: st.DataObject, windows: list[SlideWindow]) -> None:
    """No composition of sliced windows has fewer slices than that of the paired ones (theorem 1)."""
    slide = windows[0].slide
    same = [SlideWindow(w.range, slide) for w in windows]
    others = [data.draw(any_sliced(w)) for w in same]
    assert all(answers(o, w) for o, w in zip(others, same, strict=True))
    assert len(compose(map(paired, same))) <= len(compose(others))
    assert len(compose(map(paired, same))) <= len(compose(map(paned, same)))


@given(st.lists(WINDOWS, min_size=1, max_size=4), st.integers(-50, 50), TECHNIQUES)
def test_edges_on_the_fly_are_those_of_the_composition(windows: list[SlideWindow], begin: int, technique: str) -> None:
    """The arrays of edges have what composing finds, without composing; the next edge is the first of them."""
    found = edges_between(windows, begin, begin + 100, technique).tolist()
    common = compose(sliced(w, technique) for w in windows)
    edges = {e % common.period for e in common.edges}
    assert found == [t for t in range(begin + 1, begin + 101) if t % common.period in edges]
    assert found[:1] == [t for t in [min(next_edge(w, begin, technique) for w in windows)] if t <= begin + 100]


@given(
    st.lists(st.tuples(st.integers(0, 2), WINDOWS), min_size=1, max_size=6),
    st.lists(st.integers(-60, 60), min_size=1, max_size=20),
    TECHNIQUES,
)
def test_owners_have_their_own_edges(owned: list[tuple[int, SlideWindow]], times: list[int], technique: str) -> None:
    """For every owner and row the first own edge at or after the row is there."""
    ts = np.sort(np.array(times, np.int64))
    first, edges = Edges(owned, 3, technique).own(ts, int(ts[-1]))
    for owner in range(3):
        mine = [w for o, w in owned if o == owner]
        found = edges[first[owner] : first[owner + 1]].tolist()
        assert found == sorted(set(found))
        for t in times if mine else []:
            assert min(e for e in found if e >= t) == min(next_edge(w, t - 1, technique) for w in mine)


def test_dense_edges_are_made_for_rows_only() -> None:
    """A slide of one tick over a long time costs what the rows cost."""
    ts = np.array([0, 10**12], np.int64)
    _, edges = Edges([(0, SlideWindow(5, 1))], 1).own(ts, 10**12)
    assert edges.tolist() == [0, 10**12]


def test_bad_windows_are_refused() -> None:
    """A window has a range and a slide."""
    with pytest.raises(ValueError, match="range 0"):
        SlideWindow(0, 1)
    with pytest.raises(ValueError, match="sliced"):
        SlicedWindow(())
