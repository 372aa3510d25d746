"""Versions of a table, each in force from an instant on: rows meet the version of their own time.

    version      v1 ────────────┐ v2 ─────┐ v3 ──────►
    instants     ... 4  5  6  7  8  9  10  11          v2 came when the greatest time seen was 7, v3 when it was 10

An update is in force from the first instant that no row has reached yet: behind everything that has been answered, or
has come on any stream. So whether a row waits to be answered, shares its work or is out of order, it meets the version
that all others of its instant meet. What was in force before is kept until no row of its instants can come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from windrow.operators.elements import BEGINNING
from windrow.store.runs import RunRef


class TableVersion(NamedTuple):
    """What a table holds from an instant on."""

    ref: RunRef
    at: int


Versions = tuple[TableVersion, ...]
"""Of one table, in order of their instants; the first is also in force before its own."""


def updated(versions: Versions, ref: RunRef, reached: int) -> Versions:
    """With one more, in force behind the instant that has been reached; one that was not yet in force gives way.

    >>> a, b, c = (RunRef(u, "", 0, 0, 0) for u in "abc")
    >>> [(v.ref.uid, v.at) for v in updated(updated(updated((), a, 5), b, 7), c, 7)]
    [('a', -9223372036854775808), ('c', 8)]
    """
    at = BEGINNING if reached == BEGINNING or not versions else reached + 1
    return (*(v for v in versions if v.at < at), TableVersion(ref, at))


def in_force(versions: Versions, instant: int) -> TableVersion:
    """The version at an instant."""
    return next((v for v in reversed(versions) if v.at <= instant), versions[0])


def needed(versions: Versions, frontier: int) -> Versions:
    """Those that rows behind the frontier can still meet."""
    first = versions.index(in_force(versions, frontier + 1))
    return versions[first:]


def cuts(tables: Iterable[Versions], low: int, high: int) -> list[int]:
    """The last instants in `[low, high)` before a version comes in force: rows up to there go before it."""
    return sorted({v.at - 1 for versions in tables for v in versions if low < v.at - 1 < high})


def coming(versions: Versions, seen: RunRef, low: int, high: int) -> Sequence[TableVersion]:
    """What comes in force in `(low, high]` for who has seen a version, each from its instant on."""
    found = [in_force(versions, low), *(v for v in versions if low < v.at <= high)]
    new = [v for i, v in enumerate(found) if v.ref.uid != (found[i - 1].ref if i else seen).uid]
    return [TableVersion(v.ref, max(v.at, low + 1)) for v in new]
