"""A table as rows with numbers, in runs: what has come and what has gone, the oldest first.

    base     +0 a   +1 b   +2 c
    then     -1 b   +3 B                b was replaced
    then     -0 a                       a was deleted; together: c, B

Every row has a number of its own, for ever; one that goes is written again, with its number and a minus. Laws: the
table is what has a plus and no minus, in the order of the numbers; runs that follow each other may be merged, and there
a plus and a minus of one number cancel. So a change costs its own rows. A run without numbers is a whole table, whose
rows are counted from 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from windrow.operators.state.run import ints

NUMBER, SIGN = "~number", "~sign"
FANOUT = 2
"""A run is merged with those behind it when it has at most so many times their rows."""

Int64s = NDArray[np.int64]


def numbered(rows: pa.Table) -> pa.Table:
    """The rows of a run with their numbers and signs."""
    if NUMBER in rows.column_names:
        return rows
    return signed(rows, np.arange(rows.num_rows), 1)


def signed(rows: pa.Table, numbers: Int64s, sign: int) -> pa.Table:
    """Rows with these numbers, all of which come or go."""
    rows = rows.append_column(NUMBER, pa.array(numbers, pa.int64()))
    return rows.append_column(SIGN, pa.array(np.full(rows.num_rows, sign, np.int8)))


def merged(runs: Sequence[pa.Table]) -> pa.Table:
    """Runs that follow each other as one."""
    every = pa.concat_tables([numbered(r) for r in runs]).combine_chunks()
    numbers, come = ints(every, NUMBER), ints(every, SIGN) > 0
    gone = np.sort(numbers[~come])
    if not len(gone):
        return every
    here = np.flatnonzero(come)
    at = np.minimum(np.searchsorted(gone, numbers[here]), len(gone) - 1)
    ended = here[gone[at] == numbers[here]]  # a plus whose minus is here
    keep = come.copy()
    keep[ended] = False
    if len(ended) < len(gone):  # a minus whose plus is in an older run
        keep |= ~come & ~np.isin(numbers, numbers[ended])
    return every.filter(pa.array(keep)).combine_chunks()


def whole(runs: Sequence[pa.Table]) -> pa.Table:
    """The table that runs hold together."""
    if len(runs) == 1 and NUMBER not in runs[0].column_names:
        return runs[0]
    return merged(runs).drop_columns([NUMBER, SIGN])


def row_count(runs: Sequence[pa.Table]) -> int:
    """How many rows the table has."""
    return sum(r.num_rows if SIGN not in r.column_names else int(ints(r, SIGN).sum(dtype=np.int64)) for r in runs)


def to_merge(sizes: Sequence[int]) -> int:
    """How many of the last runs should be one; 1: none.

    >>> to_merge([1000, 40, 20, 10]), to_merge([1000, 40, 10])
    (3, 1)
    """
    total, count = sizes[-1] if sizes else 0, 1
    while count < len(sizes) and sizes[-count - 1] <= FANOUT * total:
        total, count = total + sizes[-count - 1], count + 1
    return count
