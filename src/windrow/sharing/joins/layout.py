"""Which lanes and codes the intervals of a synopsis have: those that its queries need of both sides' arguments.

    lane 0: rows | lanes of side 0, argument by argument | lanes of side 1      codes likewise

Arguments come with queries, and lanes with the values that need them, so layouts grow; intervals are moved along.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates import limbs
from windrow.operators.aggregates.sums import SumLanes, relaid
from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.sharing.joins.kernels import JoinIntervals
from windrow.sharing.joins.members import JoinMember
from windrow.sharing.joins.side import SideRows

Argument = tuple[int, str]
Code = tuple[int, str, bool]


@dataclass(frozen=True)
class LaneLayout:
    """Lanes by side and argument; codes by side, argument, and whether the least is wanted."""

    lanes: dict[Argument, SumLanes] = field(default_factory=dict)
    codes: tuple[Code, ...] = ()

    @classmethod
    def of(cls, members: Iterable[JoinMember], sides: Sequence[SideRows]) -> LaneLayout:
        """What some queries need, as the rows of both sides have it by now."""
        lanes: set[Argument] = set()
        codes: set[Code] = set()
        for member in members:
            lanes |= member.lanes
            codes |= member.codes
        return cls({k: sides[k[0]].lanes[k[1]][1].layout for k in sorted(lanes)}, tuple(sorted(codes)))

    @cached_property
    def begins(self) -> dict[Argument, int]:
        """The first lane of every argument."""
        widths = [layout.width for layout in self.lanes.values()]
        return dict(zip(self.lanes, (1 + np.cumsum([0, *widths])).tolist(), strict=False))

    @property
    def width(self) -> int:
        return 1 + sum(layout.width for layout in self.lanes.values())

    def of_rows(self, rows: SideRows) -> tuple[Int64s, Int64s, Bools]:
        """Lanes, codes and whether there are any, of every row of a side."""
        n = len(rows)
        lanes = [rows.lanes[sql][1].store for side, sql in self.lanes if side == rows.side]
        mine = [rows.codes[sql, least][1] for side, sql, least in self.codes if side == rows.side]
        codes = [(c.codes, c.some) for c in mine]
        return (
            np.concatenate([np.zeros((n, 0), np.int64), *lanes], axis=1),
            np.stack([c for c, _ in codes], axis=1) if codes else np.zeros((n, 0), np.int64),
            np.stack([s for _, s in codes], axis=1) if codes else np.zeros((n, 0), np.bool_),
        )

    def moved(self, intervals: JoinIntervals, old: LaneLayout) -> JoinIntervals:
        """Intervals of an old layout in this one."""
        n, before = len(intervals.lanes), old.begins
        lanes = np.zeros((n, self.width), np.int64)
        lanes[:, 0] = intervals.lanes[:, 0]
        for key, at in self.begins.items():
            if key in before:
                known, b = old.lanes[key], before[key]
                lanes[:, at : at + self.lanes[key].width] = relaid(
                    intervals.lanes[:, b : b + known.width], known, self.lanes[key]
                )
        codes, some = np.zeros((n, len(self.codes)), np.int64), np.zeros((n, len(self.codes)), np.bool_)
        for k, code in enumerate(self.codes):
            if code in old.codes:
                codes[:, k] = intervals.codes[:, old.codes.index(code)]
                some[:, k] = intervals.some[:, old.codes.index(code)]
        return JoinIntervals(lanes, codes, some)

    def carry(self, lanes: Int64s) -> None:
        """Carry limbs, so that adding again and again does not overflow."""
        for key, at in self.begins.items():
            layout = self.lanes[key]
            limbs.carry(lanes, at + layout.sums_at, at + layout.squares_at)
            limbs.carry(lanes, at + layout.squares_at, at + layout.width)

    def columns(self, intervals: JoinIntervals) -> dict[str, pa.Array]:
        """Intervals as columns of a table, named by lane and argument."""
        found: dict[str, pa.Array] = {}
        for (side, sql), at in self.begins.items():
            for k, name in enumerate(self.lanes[side, sql].names()):
                found[f"{name}|{side}:{sql}"] = pa.array(np.ascontiguousarray(intervals.lanes[:, at + k]))
        for k, (side, sql, least) in enumerate(self.codes):
            mark = "least" if least else "greatest"
            found[f"{mark}|{side}:{sql}"] = pa.array(np.ascontiguousarray(intervals.codes[:, k]))
            found[f"{mark}?|{side}:{sql}"] = pa.array(np.ascontiguousarray(intervals.some[:, k]))
        return found
