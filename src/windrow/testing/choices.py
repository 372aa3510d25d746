"""Where random data and queries get their choices: from Hypothesis, which can shrink, or from a seed, which is fast.

One grammar serves both. Hypothesis spends most of its examples on variations of one it has seen, good for closing in
on a failure and poor for covering a language; a seed gives a new case every time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol, TypeVar

from hypothesis import strategies as st

Value = TypeVar("Value")


class Choices(Protocol):
    """Choose numbers; the smallest is the simplest."""

    def number(self, low: int, high: int) -> int:
        """An integer between low and high, both included."""
        ...


@dataclass
class Drawn:
    """Choices that Hypothesis makes."""

    draw: st.DrawFn

    def number(self, low: int, high: int) -> int:
        """An integer between low and high, both included."""
        return self.draw(st.integers(low, high))


class Seeded:
    """Choices that follow from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def number(self, low: int, high: int) -> int:
        """An integer between low and high, both included."""
        return self.random.randint(low, high)


class Chooser:
    """Picks among options, simplest first."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices

    def number(self, low: int, high: int) -> int:
        """An integer between low and high, both included."""
        return self.choices.number(low, high)

    def pick(self, *options: Value) -> Value:
        """One of the options."""
        return options[self.number(0, len(options) - 1)]

    def chance(self, one_in: int) -> bool:
        """True once in so many times; False is the simple case."""
        return self.number(1, one_in) == one_in

    def shuffled(self, values: list[Value]) -> list[Value]:
        """The values in some order."""
        rest, found = list(values), []
        while rest:
            found.append(rest.pop(self.number(0, len(rest) - 1)))
        return found
