"""Exact counts of the rows and values of basic windows, as long as these are open.

A basic window (slice) is what a window holds from one instant (`begin`) to just before another (`end`): rows with the
same two are always seen together. Its counts are tables, so that those of parts (batches, tasks) can be put together in
any order, and only then is a slice summarised: the most frequent values of parts are not those of the whole.

Cost: O(1) per row; a slice that comes in parts is counted again, by its distinct values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.basic_kernels import count_slices
from windrow.operators.aggregates.vectors import Bools, Int64s, opens, validity
from windrow.operators.elements import concat_arrays, one
from windrow.operators.keys import factorize
from windrow.operators.state.run import ints

BEGIN, END, SLOT, VALUE, COUNT = "begin", "end", "slot", "value", "count"
_NAMES = (BEGIN, END, SLOT)


@dataclass(frozen=True)
class SliceCounts:
    """How many rows each (slice, group) has, and for each column how many of each value; nulls are not counted."""

    rows: pa.Table  # begin, end, slot, count
    values: Mapping[str, pa.Table]  # begin, end, slot, value, count

    def parted(self, upto: int) -> tuple[SliceCounts, SliceCounts]:
        """Slices that begin by `upto`, and the others."""
        return self._where(upto, True), self._where(upto, False)

    def _where(self, upto: int, closed: bool) -> SliceCounts:
        return SliceCounts(_part(self.rows, upto, closed), {c: _part(t, upto, closed) for c, t in self.values.items()})

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes + sum(t.nbytes for t in self.values.values()))


def _part(table: pa.Table, upto: int, closed: bool) -> pa.Table:
    inside = (ints(table, BEGIN) <= upto) == closed
    return table if inside.all() else table.filter(pa.array(inside))


def counted(
    begin: Int64s, end: Int64s, slot: Int64s | None, columns: Mapping[str, pa.Array], slots: int = 1
) -> SliceCounts:
    """The counts of rows; `slot` None: all are of one group. Rows of a slice should lie side by side."""
    if (np.diff(begin) < 0).any():
        order = np.lexsort((end, begin))
        picks = pa.array(order)
        begin, end, slot = begin[order], end[order], None if slot is None else slot[order]
        columns = {c: a.take(picks) for c, a in columns.items()}
    first = _stretches(begin, end)
    groups = np.zeros(len(begin), np.int64) if slot is None else slot
    at, codes, count = count_slices(first, groups, max(slots, 1))
    of = first[np.repeat(np.arange(len(first) - 1), np.diff(at))]
    rows = _table(begin[of], end[of], codes, count)
    values = {}
    for name, column in columns.items():
        codes, where = factorize([column] if slot is None else [pa.array(groups), column], len(begin))
        valid = validity(column)
        if valid is not None:
            codes = np.where(valid, codes, -1)
        at, found, count = count_slices(first, codes, max(len(where), 1))
        of, row = first[np.repeat(np.arange(len(first) - 1), np.diff(at))], where[found]
        values[name] = _table(begin[of], end[of], groups[row], count, column.take(pa.array(row)))
    return SliceCounts(rows, values)


def gathered(begin: Int64s, end: Int64s, slot: Int64s, rows: Int64s, columns: Mapping[str, pa.Array]) -> SliceCounts:
    """The counts of lines that stand for so many rows each, in any order."""
    values = {}
    for name, column in columns.items():
        table = _table(begin, end, slot, rows, column)
        values[name] = _in_order(_summed(table.filter(column.is_valid()) if column.null_count else table))
    return SliceCounts(_in_order(_summed(_table(begin, end, slot, rows))), values)


def _table(begin: Int64s, end: Int64s, slot: Int64s, count: Int64s, value: pa.Array | None = None) -> pa.Table:
    columns = {BEGIN: begin, END: end, SLOT: slot, COUNT: count}
    return pa.table(columns if value is None else {**columns, VALUE: value})


def _stretches(*keys: np.ndarray) -> Int64s:
    """Where stretches of equal keys begin, and the end."""
    return np.append(np.flatnonzero(opens(*keys)), len(keys[0]))


def added(parts: Sequence[SliceCounts]) -> SliceCounts:
    """The counts of all parts, in the order of slices, each (slice, group, value) once."""
    rows = _added([p.rows for p in parts])
    return SliceCounts(rows, {c: _added([p.values[c] for p in parts]) for c in parts[0].values})


def _added(parts: Sequence[pa.Table]) -> pa.Table:
    table = pa.concat_tables(parts).combine_chunks()
    keys = [ints(table, name) for name in _NAMES]
    again = _again(parts, keys)
    if again.any():
        table = pa.concat_tables([table.filter(pa.array(~again)), _summed(table.filter(pa.array(again)))])
        table = table.combine_chunks()
    return _in_order(table)


def _in_order(table: pa.Table) -> pa.Table:
    keys = [ints(table, name) for name in _NAMES]
    in_order = all(_nested(keys, i) for i in range(len(keys)))
    return table if in_order else table.take(pa.array(np.lexsort(keys[::-1]))).combine_chunks()


def _nested(keys: Sequence[Int64s], i: int) -> bool:
    """Whether key i is in order wherever those before it are equal."""
    same = np.ones(max(len(keys[0]) - 1, 0), np.bool_)
    for key in keys[:i]:
        same &= key[1:] == key[:-1]
    return not (same & (keys[i][1:] < keys[i][:-1])).any()


def _again(parts: Sequence[pa.Table], keys: Sequence[Int64s]) -> Bools:
    """Which lines are of slices that occur in more than one stretch, and so may have a value twice."""
    cuts = [np.zeros(1, np.int64)]
    base = 0
    for part in parts:
        cuts.append(base + _stretches(ints(part, BEGIN), ints(part, END))[1:] if part.num_rows else cuts[0][:0])
        base += part.num_rows
    first = np.concatenate(cuts)
    at = first[:-1]
    if len(at) < 2:
        return np.zeros(base, np.bool_)
    codes, begins = factorize([pa.array(keys[0][at]), pa.array(keys[1][at])], len(at))
    twice = np.bincount(codes, minlength=len(begins))[codes] > 1
    return np.repeat(twice, np.diff(first))


def _summed(table: pa.Table) -> pa.Table:
    names = [n for n in table.column_names if n != COUNT]
    codes, first = factorize([one(table.column(n)) for n in names], table.num_rows)
    total = np.zeros(len(first), np.int64)
    np.add.at(total, codes, ints(table, COUNT))
    picked = table.select(names).take(pa.array(first)).append_column(COUNT, pa.array(total))
    return picked.select(table.column_names)


def owners(slices: pa.Table, values: pa.Table) -> Int64s:
    """Where the values of each slice begin, and the end; both in the order of slices."""
    keys = [ints(values, n) for n in _NAMES]
    first = _stretches(*keys) if values.num_rows else np.zeros(1, np.int64)
    at = first[:-1]
    both = [concat_arrays([one(slices.column(n)), pa.array(k[at])]) for n, k in zip(_NAMES, keys, strict=True)]
    codes, _ = factorize(both, slices.num_rows + len(at))
    place = np.empty(slices.num_rows, np.int64)  # slices are distinct, and every value is of one
    place[codes[: slices.num_rows]] = np.arange(slices.num_rows)
    length = np.zeros(slices.num_rows, np.int64)
    length[place[codes[slices.num_rows :]]] = np.diff(first)
    return np.concatenate(([0], np.cumsum(length)))
