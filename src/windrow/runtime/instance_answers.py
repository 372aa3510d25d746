"""The answer of all instances of a name: parts of it, put in the order of time.

A part is the answer of instances that were answered together, one instance after the other. Where all of them have the
same instants, as members in columns do, a part is a matrix, which is turned over column by column; every instant is a
chunk of the answer then, and the values of the parameters are taken once for all instants:

    part       a: 10 20 | b: 10 20 | c: 10 20        instance by instance
    chunks     10: a b c   10: d e   20: a b c   20: d e        instant by instant, of each part

Where chunks would be short, or instances have instants of their own, all rows are sorted instead. Either way rows of
one instant come in the order of parts, and of instances within them. Cost: a copy of the rows; to sort them, two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.vectors import Int64s, fixed, raw, validity
from windrow.operators.elements import one
from windrow.operators.radix import stable_order

LONG = 4096
"""Rows of a chunk, on average, from which on an answer is of chunks."""

Columns = list[pa.Array | pa.ChunkedArray]
ValuesOf = Callable[[Int64s], Columns]
"""The values of the parameters of instances, by their numbers."""


class AnswerPart(NamedTuple):
    """Rows as users see them: `counts[i]` of the instance with number `numbers[i]`, one after the other."""

    table: pa.Table
    numbers: Int64s
    counts: Int64s

    @property
    def ts(self) -> Int64s:
        found: Int64s = one(self.table.column("_ts")).cast(pa.int64()).to_numpy()
        return found

    @property
    def owner(self) -> Int64s:
        """The number of every row's instance."""
        return np.repeat(self.numbers, self.counts)


def in_order(parts: Sequence[AnswerPart], values: ValuesOf) -> tuple[pa.Table, Columns]:
    """Parts of one answer as one, in the order of time, and the values of the parameters for its rows."""
    schema = parts[0].table.schema
    parts = [p for p in parts if p.table.num_rows] or parts[:1]
    parts = [p if p.table.schema == schema else p._replace(table=p.table.cast(schema)) for p in parts]
    instants = _common_instants(parts)
    return _sorted(parts, values) if instants is None else _by_instant(parts, instants, values)


def _common_instants(parts: Sequence[AnswerPart]) -> list[Int64s] | None:
    """The instants of each part, if its instances have the same ones and chunks would be long; else None."""
    rows = sum(p.table.num_rows for p in parts)
    if not rows or rows < LONG * sum(int(p.counts.max(initial=0)) for p in parts):
        return None
    found = []
    for part in parts:
        count = int(part.counts.max(initial=0))
        if not (part.counts == count).all():
            return None
        at = part.ts.reshape(len(part.counts), count)  # [instances, instants]
        if (np.diff(at[:1]) <= 0).any() or (at != at[:1]).any():
            return None
        found.append(at[0])
    return found


def _by_instant(parts: Sequence[AnswerPart], instants: Sequence[Int64s], values: ValuesOf) -> tuple[pa.Table, Columns]:
    """Chunks, one for every instant of every part."""
    chunks: list[tuple[int, int, pa.Table]] = []
    for number, (part, at) in enumerate(zip(parts, instants, strict=True)):
        many = len(part.numbers)
        columns = [_turned(one(column), many) for column in part.table.columns]
        turned = pa.Table.from_arrays(columns, schema=part.table.schema)
        chunks += ((instant, number, turned.slice(k * many, many)) for k, instant in enumerate(at.tolist()))
    chunks.sort(key=lambda chunk: chunk[:2])
    given = [values(part.numbers) for part in parts]
    of_chunks = zip(*(given[number] for _, number, _ in chunks), strict=True)  # the same arrays at every instant
    return pa.concat_tables(table for _, _, table in chunks), [pa.chunked_array(c) for c in of_chunks]


def _turned(array: pa.Array, many: int) -> pa.Array:
    """The values of `many` instances, one instance after the other, as those of instants, one instant after the other.

    >>> _turned(pa.array([1, 2, 3, None, 5, 6]), 2).to_pylist()
    [1, None, 2, 5, 3, 6]
    """
    if not pa.types.is_primitive(array.type) or array.type.bit_width not in (8, 16, 32, 64):
        return array.take(pa.array(np.arange(len(array)).reshape(many, -1).T.reshape(-1)))
    valid = validity(array)
    turned = None if valid is None else valid.reshape(many, -1).T.reshape(-1)
    return fixed(raw(array).reshape(many, -1).T.reshape(-1), turned, array.type)


def _sorted(parts: Sequence[AnswerPart], values: ValuesOf) -> tuple[pa.Table, Columns]:
    """All rows as one chunk."""
    table = pa.concat_tables([p.table for p in parts]).combine_chunks()
    owner = np.concatenate([p.owner for p in parts])
    ts = table.column("_ts").cast(pa.int64()).to_numpy()
    if (np.diff(ts) < 0).any():
        order = stable_order(ts)
        table, owner = table.take(pa.array(order)), owner[order]
    return table, values(owner)


__all__ = ["AnswerPart", "in_order"]
