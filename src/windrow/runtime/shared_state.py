"""What tasks keep of families and of shared joins: members as the driver has them, and the runs on disk.

Families are kept by worker processes, at stage 1 with the state of the accepted attempt. They follow the program that
the driver ships: its blocks say who has come and who has gone, so a tick costs those who did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from windrow.operators.elements import BEGINNING
from windrow.operators.state.run import Run
from windrow.runtime.collector import without_collector
from windrow.runtime.family_programs import FamilyProgram
from windrow.runtime.member_blocks import FamilyPlace, MemberBlock
from windrow.runtime.program import Program
from windrow.runtime.table_versions import Chain
from windrow.sharing.family import Counters, Family, FamilyMember
from windrow.store.runs import RunRef


@dataclass(kw_only=True)
class SavedRuns:
    """Shared state of one task, and the runs that hold it on disk."""

    saved: dict[str, tuple[Run, ...]] = field(default_factory=dict)
    refs: dict[str, RunRef] = field(default_factory=dict)  # by uid, of the saved runs
    counted: Counters = field(default_factory=Counters)
    followed: bool = False  # a program

    @property
    def kept(self) -> bool:
        """Whether there is something to name in a manifest."""
        return True

    @property
    def table_refs(self) -> Mapping[str, Chain]:
        """Versions of tables that the state depends on: none, rows have met theirs."""
        return {}

    def reported(self) -> Counters:
        """What was done since this was asked last."""
        counted, self.counted = self.counted, Counters()
        return counted

    def read(self, program: Program, name: str, stage: int, partition: int) -> dict[str, tuple[Run, ...]]:
        """The runs that the last manifest names, by slot."""
        for slot, refs in program.runs.get((name, stage, partition), {}).items():
            self.saved[slot] = tuple(program.store.read(r) for r in refs)
            self.refs |= {r.uid: r for r in refs}
        return dict(self.saved)


def follow(
    family: Family, program: FamilyProgram, followed: dict[str, MemberBlock]
) -> tuple[list[str], dict[str, FamilyPlace]]:
    """Let those leave and join who did so on the driver: (those who have left, those who have joined).

    `followed`: the blocks of members that were looked at before, by their uids.
    """
    family.catch_up()
    now = {b.uid: b for b in program.blocks}
    gone, new = list[str](), dict[str, FamilyPlace]()
    for uid in followed.keys() - now.keys():
        for name, place in followed.pop(uid).members.items():
            joined, is_ = family.joined.get(name), program.member(name)
            if joined is not None and joined.uid == place.uid and (is_ is None or is_.uid != place.uid):
                family.leave(name)
                gone.append(name)
    for uid in now.keys() - followed.keys():
        followed[uid] = now[uid]
        new |= {n: m for n, m in now[uid].members.items() if n not in family.joined}
    with without_collector():
        for place in new.values():
            member = place.query.member
            family.serve(FamilyMember(member, BEGINNING, place.epoch, place.synopsis, uid=place.uid))
    follow_columns(family, program)
    family.epoch = program.epoch
    return gone, new


def follow_columns(family: Family, program: FamilyProgram) -> None:
    """The same for members in columns."""
    now = {m.uid for m in program.instances}
    for block, members in list(family.columns.items()):
        if block not in now:
            family.leave_columns(block, np.arange(len(members)))
    for members in program.instances:
        left = program.left[members.uid]
        if members.uid not in family.columns and len(left) < len(members):
            family.serve_columns(members)
        if len(left):
            family.leave_columns(members.uid, left)
