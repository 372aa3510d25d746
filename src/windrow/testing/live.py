"""A live engine by the definition: which rows of a tick are late, how far time has come, and what is answered.

A tick takes what has come by a moment of the clock on the wall. A row is late if its time is at or before the frontier
that earlier ticks have answered, and set aside with the late ones if it is further ahead than AHEAD allows; the others
take part, whatever tick they came in. So the answers are those of a replay of them, up to the last frontier, in which
tables that are RETROACTIVE change at the instants at which they did. Time moves with the least of the streams: each has
come to its greatest time less its slack, or, silent for longer than IDLE AFTER, to where the wall has taken it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pyarrow as pa

from windrow.testing.given import Version, row_times
from windrow.testing.lifetimes import FOREVER
from windrow.testing.oracle import answers
from windrow.testing.script import OracleDeclaration, read_script

SECOND = 1_000_000


@dataclass(frozen=True)
class Moment:
    """A tick, and the wall at it in seconds: rows of streams, and tables as they are from now on, or their changes."""

    wall: float
    rows: Mapping[str, pa.Table] = field(default_factory=dict)
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    restart: bool = False  # the engine is stopped before it, and opened again


class LiveAnswers(NamedTuple):
    """By query the answer, by stream the rows that were late or too far ahead and those that took part, in the order in
    which they came, and the frontier after each tick."""

    answers: dict[str, pa.Table]
    late: dict[str, pa.Table]
    kept: dict[str, pa.Table]
    frontiers: list[int | None]


def live_oracle(
    script: str,
    moments: Sequence[Moment],
    tables: Mapping[str, pa.Table] | None = None,
    until: int | None = None,
    began: float | None = None,
) -> LiveAnswers:
    """What an engine answers that takes a tick at each moment, and is then told that time has come to `until`.

    `tables` are there before all rows. `began`: the wall when the engine was started, by default that of the first
    tick.
    """
    declared = read_script(script)
    began = began if began is not None else moments[0].wall if moments else 0.0
    clocks = {name: _StreamClock(stream, began) for name, stream in declared.streams.items()}
    versions: dict[str, list[Version]] = {name.lower(): [(-FOREVER, table)] for name, table in (tables or {}).items()}
    frontier: int | None = None
    frontiers: list[int | None] = []
    for moment in moments:
        _change(versions, declared.tables, moment.tables, _reached(clocks, frontier))
        for clock in clocks.values() if moment.restart else ():
            clock.seen = moment.wall
        for name, rows in moment.rows.items():
            clocks[name.lower()].take(rows, frontier, moment.wall)
        frontier = _least(clocks.values(), moment.wall, frontier)
        frontiers.append(frontier)
    if until is not None:
        frontier = until if frontier is None else max(frontier, until)
        frontiers.append(frontier)
    judged = {name: replace(stream, slack=None) for name, stream in declared.streams.items()}
    kept = {name: pa.concat_tables(clock.kept) for name, clock in clocks.items() if clock.kept}
    late = {name: pa.concat_tables(clock.late) for name, clock in clocks.items() if clock.late}
    found = answers(replace(declared, streams=judged), kept, versions, -FOREVER if frontier is None else frontier)
    return LiveAnswers(found, late, kept, frontiers)


class _StreamClock:
    """What has come of a stream, and how far its time is."""

    def __init__(self, declared: OracleDeclaration, began: float) -> None:
        self.declared = declared
        self.slack = declared.slack or 0
        self.mark: int | None = None  # the greatest time that takes part
        self.seen = began  # when rows last came, by the wall
        self.ticks = True
        self.kept: list[pa.Table] = []
        self.late: list[pa.Table] = []

    def silence(self, wall: float) -> float | None:
        """Seconds without rows, if that is long enough not to hold time back."""
        silent = wall - self.seen
        return silent if self.declared.idle is not None and silent * SECOND > self.declared.idle else None

    def reached(self, wall: float) -> tuple[bool, int | None]:
        """Whether time waits for the stream, and up to which instant its rows have come (None: it has none)."""
        silent = self.silence(wall)
        if silent is not None and (self.mark is None or self.ticks):
            return False, None
        if self.mark is None:
            return True, None
        return True, self.mark + (0 if silent is None else int(silent * SECOND)) - self.slack - 1

    def take(self, rows: pa.Table, frontier: int | None, wall: float) -> None:
        """Judge the rows of a tick: by what was answered before it, not by each other."""
        _, time_type, times = row_times(self.declared, self.declared.name, rows)
        self.ticks = not pa.types.is_timestamp(time_type)
        self.seen = wall
        last = FOREVER
        if self.declared.ahead is not None:
            own = -FOREVER if self.mark is None else self.mark - self.slack - 1
            last = max(own, int(wall * SECOND)) + self.declared.ahead
        first = -FOREVER if frontier is None else frontier + 1
        good = [first <= ts <= last for ts in times]
        self.late.append(rows.filter(pa.array([not g for g in good], pa.bool_())))
        self.kept.append(rows.filter(pa.array(good, pa.bool_())))
        taken = [ts for ts, g in zip(times, good, strict=True) if g]
        self.mark = max([*taken, *([] if self.mark is None else [self.mark])], default=None)


def _least(clocks: Iterable[_StreamClock], wall: float, frontier: int | None) -> int | None:
    """How far all streams have come; time never goes back."""
    waited = [at for waits, at in (clock.reached(wall) for clock in clocks) if waits]
    if not waited or None in waited:
        return frontier
    least = min(at for at in waited if at is not None)
    return least if frontier is None else max(frontier, least)


def _reached(clocks: Mapping[str, _StreamClock], frontier: int | None) -> int | None:
    """The last instant that a row or the frontier has reached."""
    known = [c.mark for c in clocks.values() if c.mark is not None] + ([frontier] if frontier is not None else [])
    return max(known, default=None)


def _change(
    versions: dict[str, list[Version]],
    declared: Mapping[str, OracleDeclaration],
    tables: Mapping[str, pa.Table],
    reached: int | None,
) -> None:
    """Let tables be as they are from the first instant that nothing has reached."""
    for name, rows in tables.items():
        table, before = declared[name.lower()], versions.get(name.lower(), [])
        if not table.retroactive:
            raise ValueError(f"a live table that is not RETROACTIVE: {name}")
        if table.changes and before:  # what comes is what changes
            rows = pa.concat_tables([before[-1][1], rows])
        since = -FOREVER if reached is None else reached + 1
        versions[name.lower()] = [*(v for v in before if v[0] < since), (since, rows)]
