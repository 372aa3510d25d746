"""Windows give every row the lifetime the definition says."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from windrow.operators.elements import INF, Elements
from windrow.operators.window import RangeWindow, RowsWindow


def elements(ts, **columns):
    return Elements.positive(np.array(ts, np.int64), INF, {n: pa.array(v) for n, v in columns.items()})


def alive(parts, t):
    """The bag of row numbers at an instant: the law of elements."""
    found = Counter()
    for part in parts:
        for i in range(len(part)):
            if part.ts[i] <= t < part.exp[i]:
                found[part.columns["row"][i].as_py()] += int(part.sign[i])
    return +found


def cut(rows, sizes):
    """Split a list at the given sizes, never inside an instant."""
    at = 0
    while at < len(rows):
        end = min(len(rows), at + max(1, sizes[at % len(sizes)]))
        while end < len(rows) and rows[end][0] == rows[end - 1][0]:
            end += 1
        yield rows[at:end]
        at = end


@given(
    times=st.lists(st.integers(0, 12), max_size=14).map(sorted),
    partitions=st.lists(st.integers(0, 2), min_size=14, max_size=14),
    size=st.integers(1, 5),
    slide=st.integers(1, 4),
    by=st.booleans(),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
)
def test_rows_window_holds_the_newest_rows(times, partitions, size, slide, by, sizes):
    """At every instant the window holds rows (floor(m/k)*k - n, floor(m/k)*k] of each partition."""
    rows = [(t, p, i) for i, (t, p) in enumerate(zip(times, partitions, strict=False))]
    window, out = RowsWindow(size, slide, ("p",) if by else ()), []
    for batch in cut(rows, sizes):
        ts, p, row = zip(*batch, strict=True)
        out.append(window.advance([elements(ts, p=list(p), row=list(row))], ts[-1]))
    for t in range(14):
        want = Counter()
        for partition in {p for _, p, _ in rows} if by else {None}:
            seen = [i for s, p, i in rows if s <= t and partition in (None, p)]
            moved = len(seen) // slide * slide
            want.update(seen[max(0, moved - size) : moved])
        assert alive(out, t) == want


def test_range_window_saturates_at_the_end_of_time():
    """A window that reaches past the last instant never ends, instead of wrapping around."""
    (window,) = (RangeWindow(10),)
    out = window.advance([elements([0, INF - 5], row=[1, 2])], INF - 1)
    assert out.exp.tolist() == [10, INF]
