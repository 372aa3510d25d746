"""TUMBLE, HOP, CUMULATE and SESSION: which rows each window holds, written out from their definitions.

TUMBLE, HOP    `[end - size, end)` for every end `k * slide + offset`; seen at `end`
CUMULATE       `[start, end)` for every end `k * step + offset`, start the last `j * size + offset` before it
SESSION        a row `gap` or more after the one before it in its partition opens a session `[first, last + gap)`,
               which is seen at its end and only then
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence
from itertools import pairwise

from windrow.testing.lifetimes import OracleWindow
from windrow.testing.script import duration, sources
from windrow.testing.tokens import Token, Tokens, closing, is_at, split

FUNCTIONS = ("TUMBLE", "HOP", "SESSION", "CUMULATE")


def read_call(tokens: Tokens, i: int) -> tuple[Token, OracleWindow, int] | None:
    """The stream and the window of a call at `i`, and the index after it; None if there is no call."""
    wrapped = is_at(tokens, i, "TABLE", "(")
    start = i + 2 if wrapped else i
    if start >= len(tokens) or tokens[start].upper not in FUNCTIONS or not is_at(tokens, start + 1, "("):
        return None
    end = closing(tokens, start + 1)
    data, *rest = split(tokens[start + 2 : end], ",")
    data = data[1:] if is_at(data, 0, "TABLE") else data
    partition = [data[-1].name or ""] if is_at(data, 1, "PARTITION", "BY") else []
    while partition and len(rest) > 2:
        partition.append(rest.pop(0)[-1].name or "")
    lengths = [duration(part, int(is_at(part, 0, "INTERVAL")))[0] for part in rest[1:]]
    match tokens[start].upper:
        case "TUMBLE":
            size, offset = lengths[0], lengths[1] if len(lengths) > 1 else 0
            window = OracleWindow(range=size, slide=size, offset=offset % size, aligned=True)
        case "HOP":
            slide, size, offset = lengths[0], lengths[1], lengths[2] if len(lengths) > 2 else 0
            window = OracleWindow(range=size, slide=slide, offset=offset % slide, aligned=True)
        case "CUMULATE":
            step, size, offset = lengths[0], lengths[1], lengths[2] if len(lengths) > 2 else 0
            window = OracleWindow(range=size, slide=step, offset=offset % step, aligned=True, since=offset % size)
        case _:
            window = OracleWindow(gap=lengths[0], partition=tuple(partition))
    return data[0], window, end + 1 + wrapped


def sessions(gap: int, times: Sequence[int], groups: Sequence[Hashable]) -> list[tuple[int, int]]:
    """`[first, last + gap)` of the session of each row; rows come in order of time.

    >>> sessions(3, [1, 2, 5, 6], ["a", "a", "a", "b"])
    [(1, 5), (1, 5), (5, 8), (6, 9)]
    """
    found: list[tuple[int, int]] = [(0, 0)] * len(times)
    by_group: dict[Hashable, list[int]] = {}
    for row, group in enumerate(groups):
        by_group.setdefault(group, []).append(row)
    for rows in by_group.values():
        opened = [[rows[0]]]
        for before, row in pairwise(rows):
            if times[row] >= times[before] + gap:
                opened.append([])
            opened[-1].append(row)
        for session in opened:
            for row in session:
                found[row] = (times[session[0]], times[session[-1]] + gap)
    return found


def streams_read(tokens: Tokens, streams: Container[str]) -> list[str]:
    """Names of the streams that stand where a FROM clause names a source."""
    words = [t.upper for t in tokens]
    called = (i for i in range(2, len(words)) if words[i - 1] == "(" and words[i - 2] in FUNCTIONS)
    places = {*sources(tokens), *called, *(i for i in range(1, len(words)) if words[i - 1] == "TABLE")}
    found = (tokens[i].name for i in sorted(places))
    return list(dict.fromkeys(name for name in found if name is not None and name in streams))
