"""Ways to schedule: how often queries run, and which of them run together. They are the thesis's (table 8.1).

edf            No-S   no sharing: one at a time
aggressive     AS     all of a group, as often as its most frequent query
conservative   CS     those of a group with the same least time to their deadline together: algorithm 10
hybrid         HS     the same with periods shortened where that costs less
late           H-LS   while something is late, all that are late in the group together
late-pending   H-LP   while something is late, all that are late or due: algorithm 11
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Forming(Enum):
    """What becomes a task, and so how often its queries run."""

    GROUP = "group"
    SUB_GROUP = "sub-group"
    HYBRID = "hybrid"


class Joint(Enum):
    """Which tasks of a group run together with the one that is chosen."""

    NONE = "none"
    EQUAL = "equal"  # those with as little time left
    LATE = "late"  # in overload, all that are late
    PENDING = "pending"  # in overload, all that are late or due


@dataclass(frozen=True)
class Technique:
    """A way to schedule."""

    forming: Forming
    joint: Joint


BY_NAME = {
    "edf": Technique(Forming.SUB_GROUP, Joint.NONE),
    "aggressive": Technique(Forming.GROUP, Joint.EQUAL),
    "conservative": Technique(Forming.SUB_GROUP, Joint.EQUAL),
    "hybrid": Technique(Forming.HYBRID, Joint.EQUAL),
    "late": Technique(Forming.HYBRID, Joint.LATE),
    "late-pending": Technique(Forming.HYBRID, Joint.PENDING),
}
"""As a user names them."""
