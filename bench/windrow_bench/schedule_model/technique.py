"""Ways to schedule: how tasks are formed, and which of them run together. Six are the thesis's (table 8.1).

No-S    no sharing        sub-groups, one at a time: algorithm 9
AS      aggressive        a group is one task, as frequent as its most frequent query
CS      conservative      sub-groups; those of a group with the same least time to their deadline together: 10
HS      hybrid            the same with periods shortened where that costs less
H-LS    hybrid, late      while something is late, all that are late in the group together
H-LP    hybrid, late-pending   while something is late, all that are late or due: algorithm 11
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from windrow.schedule.technique import Forming, Joint
from windrow_bench.schedule_model.hybrid import hybrid_periods
from windrow_bench.schedule_model.tasks import PeriodicQuery, Task, sub_groups


@dataclass(frozen=True)
class Technique:
    """A way to schedule."""

    name: str
    forming: Forming
    joint: Joint
    in_step: bool = False

    def tasks(self, queries: Iterable[PeriodicQuery]) -> list[Task]:
        """The tasks of a workload.

        >>> two = [PeriodicQuery("a", "g", 2, {"s": 9}), PeriodicQuery("b", "g", 3, {"s": 14})]
        >>> [t.period for t in CONSERVATIVE.tasks(two)], [t.period for t in HYBRID.tasks(two)]
        ([2, 3], [2])
        """
        parts = sub_groups(queries)
        match self.forming:
            case Forming.GROUP:
                least = {p.group: min(q.period for q in parts if q.group == p.group) for p in parts}
                periods = [least[p.group] for p in parts]
            case Forming.HYBRID:
                periods = hybrid_periods(parts)
            case Forming.SUB_GROUP:
                periods = [p.period for p in parts]
        members: dict[tuple[Hashable, int], list[int]] = {}
        for i, (part, period) in enumerate(zip(parts, periods, strict=True)):
            members.setdefault((part.group, period), []).append(i)
        return [Task(group, period, tuple(parts[i] for i in at)) for (group, period), at in members.items()]


NO_SHARING = Technique("No-S", Forming.SUB_GROUP, Joint.NONE)
AGGRESSIVE = Technique("AS", Forming.GROUP, Joint.EQUAL)
CONSERVATIVE = Technique("CS", Forming.SUB_GROUP, Joint.EQUAL)
HYBRID = Technique("HS", Forming.HYBRID, Joint.EQUAL)
HYBRID_LATE = Technique("H-LS", Forming.HYBRID, Joint.LATE)
HYBRID_LATE_PENDING = Technique("H-LP", Forming.HYBRID, Joint.PENDING)
IN_STEP = Technique("H-LP+", Forming.HYBRID, Joint.PENDING, in_step=True)

TECHNIQUES = (NO_SHARING, AGGRESSIVE, CONSERVATIVE, HYBRID, HYBRID_LATE, HYBRID_LATE_PENDING, IN_STEP)
