"""Layouts of a doubly partitioned index: which sub-index a row lives in, and which an update opens (thesis 4.3).

Time is cut into slots of the length between two updates; update i ends slot i. A lifetime spans at most p slots. A row
that an update i inserts and an update j deletes lives in sub-index (g, e), g the part of slot i and e that of slot j:

    round robin     part(i) = (i mod p) mod G          neighbouring slots lie in different parts
    chronological   part(i) = (i mod p) div (p / G)    neighbouring slots lie together

Law: update i inserts into the E sub-indices (part(i), *), deletes from the G sub-indices (*, part(i)), and opens no
other: G + E - 1. Round robin keeps their sizes alike (theorem 4.1). A wave index is a layout with one part on one
side, n x 1 (by insertion) or 1 x n (by expiration), chronological: with lifetimes that differ it opens all n.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from windrow.errors import BindingError

_SIDES = re.compile(r"\s*(\d+)\s*[xX]\s*(\d+)\s*")
MOST = 4096
"""Sub-indices at most: each is a file that a probe opens."""

LARGE = 1 << 30
"""Bytes from which a window counts as large (the thesis measures 0.5 and 5 GB)."""

MANY = 100
"""Questions between two updates from which there are many."""


@dataclass(frozen=True, slots=True)
class ArchiveLayout:
    """G parts of insertion time, E of expiration time; `rebuild`: an opened sub-index is written anew."""

    insertions: int
    expirations: int
    rebuild: bool = False
    round_robin: bool = True

    def __post_init__(self) -> None:
        if min(self.insertions, self.expirations) < 1 or self.count > MOST:
            raise BindingError(
                f"an archive cannot have {self.insertions} x {self.expirations} partitions",
                hint=f"choose at least 1 x 1 and at most {MOST} in all; 4 x 4 opens 7 of 16 per update",
            )

    @classmethod
    def parse(cls, text: str, *, rebuild: bool = False) -> ArchiveLayout:
        """The layout of `4 x 4`, or of a number of sub-indices that is a square.

        >>> ArchiveLayout.parse("4 x 4") == ArchiveLayout.parse("16")
        True
        """
        sides = _SIDES.fullmatch(text)
        if sides is not None:
            return cls(int(sides[1]), int(sides[2]), rebuild)
        if not text.strip().isdecimal():
            raise BindingError(f'"{text}" are no partitions', hint="write PARTITIONS 4 x 4")
        root = math.isqrt(int(text))
        if root * root != int(text):
            raise BindingError(
                f"{text.strip()} is not a square",
                detail="with as many parts of insertion as of expiration an update opens the fewest sub-indices",
                hint=f"write PARTITIONS {root * root} or {(root + 1) ** 2}, or both sides, as in 2 x 8",
            )
        return cls(root, root, rebuild)

    @property
    def count(self) -> int:
        """The number of sub-indices."""
        return self.insertions * self.expirations

    def __str__(self) -> str:
        word = "rebuild" if self.rebuild else "no rebuild"
        return f"{self.insertions} x {self.expirations} {word}" + ("" if self.round_robin else " chronological")

    def number(self, g: int, e: int) -> int:
        """The number of a sub-index, row by row."""
        return g * self.expirations + e

    def insertion_part(self, slot: int, p: int) -> int:
        """The part of a slot in which rows are inserted."""
        return self._part(slot % p, p, self.insertions)

    def expiration_part(self, slot: int, p: int) -> int:
        """The part of a slot in which rows end."""
        return self._part(slot % p, p, self.expirations)

    def _part(self, slot: int, p: int, parts: int) -> int:
        return slot % parts if self.round_robin else slot * parts // p

    def expiration_parts(self, p: int) -> list[int]:
        """The part of every slot, modulo p."""
        return [self.expiration_part(slot, p) for slot in range(p)]

    def inserting(self, slot: int, p: int) -> list[int]:
        """The sub-indices that update `slot` inserts into, by the part of their rows' ends."""
        g = self.insertion_part(slot, p)
        return [self.number(g, e) for e in range(self.expirations)]

    def deleting(self, slots: Iterable[int], p: int) -> set[int]:
        """The sub-indices with rows that end in the given slots."""
        parts = {self.expiration_part(slot, p) for slot in slots}
        return {self.number(g, e) for g in range(self.insertions) for e in parts}

    def opened(self, slot: int, p: int) -> set[int]:
        """The sub-indices that update `slot` opens, if it follows the one before: G + E - 1 of them.

        >>> len(ArchiveLayout(4, 4).opened(7, 36)), len(ArchiveLayout(2, 8).opened(7, 36))
        (7, 9)
        """
        return {*self.inserting(slot, p), *self.deleting([slot], p)}


def advised(size: int, questions: float) -> ArchiveLayout:
    """The layout that suits a window of `size` bytes and so many questions between two updates (4.4.6).

    >>> str(advised(10 << 20, 3)), str(advised(10 << 30, 3)), str(advised(10 << 20, 5000)), str(advised(10 << 30, 5000))
    ('4 x 4 no rebuild', '3 x 3 no rebuild', '2 x 2 rebuild', '2 x 2 no rebuild')
    """
    if questions < MANY:
        return ArchiveLayout(3, 3) if size >= LARGE else ArchiveLayout(4, 4)
    return ArchiveLayout(2, 2, rebuild=size < LARGE)
