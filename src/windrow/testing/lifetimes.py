"""Windows as lifetimes: when each row of a stream enters its window and when it leaves.

    [RANGE T]          |ts ........ ts + T)
    [ROWS n SLIDE k]   |arrival of row ceil(j/k)*k ........ arrival of row ceil((j+n)/k)*k)     for row number j

Row j is in the window `[from, to)`; a row whose two ends meet is never seen. Each definition is written out for one
row after another. Cost: linear in the rows (after sorting).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from windrow.testing.script import duration
from windrow.testing.tokens import Tokens, is_at, split

FOREVER = 2**100
"""The end of a row that never leaves: after every int64 instant, with room to compare."""


@dataclass(frozen=True)
class OracleWindow:
    """What is written between the brackets; `rows` or `range` or neither (unbounded)."""

    range: int | None = None
    rows: int | None = None
    slide: int | None = None
    partition: tuple[str, ...] = ()
    internal: bool = False
    offset: int = 0
    aligned: bool = False  # TUMBLE or HOP
    gap: int | None = None  # SESSION
    since: int | None = None  # CUMULATE: windows begin at k * range + since

    @property
    def period(self) -> tuple[int, int] | None:
        """The period of evaluation and its offset: SLIDE on any window but ROWS."""
        return None if self.rows is not None or self.slide is None else (self.slide, self.offset)


def read_window(tokens: Tokens) -> OracleWindow:
    """Read a window from the tokens between its brackets."""
    size: dict[str, int] = {}
    slide: int | None = None
    partition: tuple[str, ...] = ()
    internal = False
    i = 0
    while i < len(tokens):
        if is_at(tokens, i, "PARTITION", "BY"):
            end = next(k for k in range(i, len(tokens)) if tokens[k].upper == "ROWS")
            partition = tuple(p[-1].name or "" for p in split(tokens[i + 2 : end], ","))
            i = end
        elif is_at(tokens, i, "ROWS"):
            size["rows"], i = int(tokens[i + 1].text), i + 2
        elif is_at(tokens, i, "SLIDE", "AT", "MOST"):  # a replay evaluates at every multiple
            slide, i = duration(tokens, i + 3)
        elif is_at(tokens, i, "SLIDE"):
            slide, i = duration(tokens, i + 1)
        elif is_at(tokens, i, "INTERNAL"):
            internal, i = True, i + 1
        elif is_at(tokens, i, "WINDOW", "UNTIL", "NOW"):
            i += 3
        elif is_at(tokens, i, "NOW"):
            size["range"], i = 1, i + 1
        elif tokens[i].upper in ("RANGE", "WINDOW"):
            if tokens[i + 1].upper == "UNBOUNDED":
                i += 2
            else:
                size["range"], i = duration(tokens, i + 1)
        elif tokens[i].upper in ("UNBOUNDED", ","):
            i += 1
        else:
            raise ValueError(f"not a window: {' '.join(t.text for t in tokens)}")
    return OracleWindow(size.get("range"), size.get("rows"), slide, partition, internal)


def lifetimes(window: OracleWindow, times: Sequence[int], groups: Sequence[Hashable]) -> list[tuple[int, int]]:
    """`[from, to)` of each row; rows come in order of time and arrival, `groups` are their partitions.

    >>> lifetimes(OracleWindow(range=5), [1, 3], [0, 0])
    [(1, 6), (3, 8)]
    >>> lifetimes(OracleWindow(rows=1), [1, 3, 3], [0, 0, 0]) == [(1, 3), (3, 3), (3, FOREVER)]
    True
    """
    if window.aligned:
        size = window.range
        assert size is not None
        if window.since is not None:
            return [(ts + 1, (ts - window.since) // size * size + size + window.since + 1) for ts in times]
        return [(ts + 1, ts + 1 + size) for ts in times]
    if window.rows is None:
        return [(ts, FOREVER if window.range is None else ts + window.range) for ts in times]
    arrivals: dict[Hashable, list[int]] = {}
    for ts, group in zip(times, groups, strict=True):
        arrivals.setdefault(group, []).append(ts)
    seen = dict.fromkeys(arrivals, 0)
    step = window.slide or 1
    found = []
    for group in groups:
        seen[group] += 1
        enters = _arrival(arrivals[group], seen[group], step)
        leaves = _arrival(arrivals[group], seen[group] + window.rows, step)
        found.append((enters, leaves))
    return found


def _arrival(arrivals: Sequence[int], row: int, step: int) -> int:
    """When the window first moves to row number `row` (1-based) or past it."""
    moves_at = -(-row // step) * step
    return arrivals[moves_at - 1] if moves_at <= len(arrivals) else FOREVER
