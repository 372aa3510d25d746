"""The answer, materialized: a change log passes through, and the rows that are there now stay behind.

Keeps the relation that a change log describes, so that a snapshot can be read from state at any time without asking the
operators below. Rows are kept in merged runs in which each departure cancels an arrival (`state/keyed.py`), so a tick
costs its changes, not the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from windrow.operators.elements import BEGINNING, Elements, concat
from windrow.operators.protocol import State, Unclocked
from windrow.operators.state.keyed import KeyedRuns
from windrow.operators.state.run import Run, elements_of
from windrow.operators.state.surviving import surviving


class Materialize(Unclocked):
    """Remember the relation of a change log."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._rows = KeyedRuns(columns, strict=True)
        self._last = BEGINNING

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (log,) = inputs
        self._rows.insert(log, frontier)
        self._last = frontier
        return log

    def replace_rows(self, part: int, keep: Callable[[Elements], np.ndarray], more: Sequence[Elements]) -> None:
        """Let go of the rows that `keep` does not keep, and take others."""
        mine = [e.filter(keep(e)) for e in self._rows.everything()]
        self._rows = KeyedRuns(self._rows.keys, strict=True)
        for rows in (*mine, *more):
            self._rows.insert(rows, self._last)

    def relation(self) -> Elements | None:
        """The rows that are there now."""
        return net(self._rows.everything())

    def state(self) -> State:
        return {"rows": self._rows.runs()}

    def restore(self, state: State, frontier: int) -> None:
        self._last = frontier
        self._rows.restore(state["rows"])


def net(parts: Sequence[Elements]) -> Elements | None:
    """What remains of changes when every departure has cancelled its arrival."""
    if not parts:
        return None
    rows = concat(list(parts))
    return rows.take(surviving(rows, rows.ts.max() if len(rows) else 0))


def relation_of(runs: Sequence[Run]) -> Elements | None:
    """The relation kept by the runs of one or several `Materialize` operators."""
    return net([elements_of(r, "_hash") for r in runs])
