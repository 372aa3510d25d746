"""What an operator is.

An operator is a pure state machine over elements. `advance(inputs, frontier)` consumes, for each input, all elements
with `previous frontier < ts <= frontier`, and returns all elements of its output that start in that interval. It
reads no clock and does no I/O, so one row per batch and a million rows per batch give the same sum of elements.

State is a set of immutable runs (`state/run.py`), so a snapshot is a list of references.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from windrow.operators.elements import Elements
from windrow.operators.state.run import Run

State = Mapping[str, tuple[Run, ...]]
"""Named slots of runs: all that an operator needs to go on after a restart."""


class Operator(Protocol):
    """A node of a running dataflow."""

    def start(self, ts: int) -> None:
        """The query's clock starts at `ts`; called once, before the first advance."""

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        """Consume everything up to `frontier`, return what begins there."""

    def state(self) -> State:
        """The present state; runs that did not change are the same objects as before."""

    def restore(self, state: State, frontier: int) -> None:
        """Go on from a state that an equal operator returned after advancing to `frontier`."""


class Unclocked:
    """Base of operators that need not know when the clock starts."""

    def start(self, ts: int) -> None:
        """Nothing to do."""


class Stateless(Unclocked):
    """Base of operators that remember nothing."""

    def state(self) -> State:
        """No state."""
        return {}

    def restore(self, state: State, frontier: int) -> None:
        """Nothing to restore."""
