"""A run: an immutable Arrow table that is part of an operator's state.

A run is written once and never changes; sliding a window is an edit of the list of runs. The identity
of a run (`uid`) names its file in a store, so an unchanged run is never written again.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from windrow.operators.elements import Elements, one

TIMES = ("_ts", "_exp", "_sign")
"""The columns of a run of elements that are theirs, and have no nulls."""


def _new_uid() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """An immutable table with an identity."""

    table: pa.Table
    uid: str = field(default_factory=_new_uid)
    _nbytes: int = field(default=-1, init=False, repr=False)

    @property
    def nbytes(self) -> int:
        """The bytes of its rows, counted once: that takes as long as writing a short run."""
        if self._nbytes < 0:
            object.__setattr__(self, "_nbytes", self.table.nbytes)
        return self._nbytes


def run_of(elements: Elements, **extra: np.ndarray) -> Run:
    """A run that holds elements: `_ts`, `_exp`, `_sign`, any extra arrays, then the columns."""
    arrays = {"_ts": elements.ts, "_exp": elements.exp, "_sign": elements.sign, **extra}
    named = {n: pa.array(a) for n, a in arrays.items()} | elements.columns
    return Run(pa.table(named))


def elements_of(run: Run, *extra: str) -> Elements:
    """The elements of a run made by `run_of` with the same extra names."""
    table = run.table.combine_chunks()
    hidden = {*TIMES, *extra}
    columns = {n: one(table.column(n)) for n in table.column_names if n not in hidden}
    ts, exp, sign = (times(table, name) for name in TIMES)
    return Elements(ts, exp, sign, columns)


def times(table: pa.Table, name: str) -> np.ndarray:
    """A column that counts, as a NumPy view; a file may hold another one."""
    column = table.column(name)
    if column.null_count or not pa.types.is_integer(column.type):
        raise ValueError(f"column {name} of a run has nulls, or no integers")
    return ints(table, name)


def ints(table: pa.Table, name: str | int) -> np.ndarray:
    """A null-free fixed-width column as a NumPy view."""
    return one(table.column(name)).to_numpy(zero_copy_only=False)
