"""The strategies by which results expire (thesis, chapter 3), and what follows from each; none changes an answer."""

from __future__ import annotations

from enum import StrEnum

from windrow.errors import BindingError


class Strategy(StrEnum):
    """By update pattern, by negative tuples, or directly; lifetimes travel with elements in the first and last."""

    UPA = "upa"
    NEGATIVE = "negative"
    DIRECT = "direct"

    @classmethod
    def _missing_(cls, value: object) -> Strategy:
        raise BindingError(f'unknown strategy "{value}"', hint=f"one of {', '.join(cls)}")

    @property
    def by_pattern(self) -> bool:
        """Whether operators and their state are chosen by pattern (FIFO, calendar, keyed)."""
        return self is Strategy.UPA

    @property
    def announces(self) -> bool:
        """Whether windows spell every end as a negative element, and all state is keyed."""
        return self is Strategy.NEGATIVE

    @property
    def scans(self) -> bool:
        """Whether state is searched whole to expire."""
        return self is Strategy.DIRECT

    def sharing(self, asked: str) -> str:
        """How queries share: what they have together is chosen by pattern."""
        return asked if self.by_pattern else "off"
