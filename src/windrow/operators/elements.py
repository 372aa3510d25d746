"""Elements: Arrow columns whose rows carry a lifetime and a sign.

An element with lifetime `[ts, exp)` and sign `s` adds `s` copies of its row to the relation at every
instant t with `ts <= t < exp`. The relation of an edge at t is the sum over all elements sent on it:

    Q(t) = sum of sign * row  over elements with  ts <= t < exp

Everything follows from this one law. A window is elements with `exp = ts + T`. A negative element
`-[t, e)` ends the rest of an earlier `+[s, e)`. A join of two elements is the intersection of their
lifetimes with the product of their signs, whatever the signs are; selection, projection and union are
linear. `exp = INF` means "never, or not known yet": if it is not known, a negative element will say.

Invariant: `ts < exp` for every element, and within one edge an element is sent no later than the
advance whose frontier covers its `ts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

INF: int = np.iinfo(np.int64).max
"""The end of a lifetime that nothing bounds."""

BEGINNING: int = np.iinfo(np.int64).min
"""Before every instant: the last frontier of an operator that has seen nothing."""

Int64s = NDArray[np.int64]
Columns = Mapping[str, pa.Array]


@dataclass(frozen=True, slots=True)
class Elements:
    """A batch of elements; all arrays have one length."""

    ts: Int64s
    exp: Int64s
    sign: NDArray[np.int8]
    columns: dict[str, pa.Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ts)

    @classmethod
    def empty(cls, types: Mapping[str, pa.DataType]) -> Elements:
        """No elements, with the given columns."""
        none = np.empty(0, np.int64)
        return cls(none, none, np.empty(0, np.int8), {n: pa.nulls(0, t) for n, t in types.items()})

    @classmethod
    def positive(cls, ts: Int64s, exp: Int64s | int, columns: Mapping[str, pa.Array]) -> Elements:
        """Elements with sign +1; a scalar `exp` is shared."""
        ends = same_end(len(ts), exp) if isinstance(exp, int) else np.broadcast_to(np.asarray(exp, np.int64), ts.shape)
        return cls(ts, ends, np.ones(len(ts), np.int8), dict(columns))

    def take(self, index: NDArray[np.integer]) -> Elements:
        """The elements at `index`, in that order."""
        exp = self.exp[index] if self.exp.strides[0] or not len(self) else np.broadcast_to(self.exp[0], index.shape)
        columns = {n: gathered([(a, index)]) for n, a in self.columns.items()}
        return Elements(self.ts[index], exp, self.sign[index], columns)

    def filter(self, mask: NDArray[np.bool_]) -> Elements:
        """The elements where `mask` holds; self when all do."""
        if mask.all():
            return self
        at = np.flatnonzero(mask)
        return self.take(at) if len(at) else Elements.empty({n: a.type for n, a in self.columns.items()})

    def slice(self, begin: int, end: int | None = None) -> Elements:
        """The elements from `begin` on, up to `end`, without copying them."""
        end = len(self) if end is None else end
        columns = {n: a.slice(begin, end - begin) for n, a in self.columns.items()}
        return Elements(self.ts[begin:end], self.exp[begin:end], self.sign[begin:end], columns)

    def with_columns(self, columns: Mapping[str, pa.Array]) -> Elements:
        """The same lifetimes and signs over other columns."""
        return Elements(self.ts, self.exp, self.sign, dict(columns))

    def with_lifetimes(self, ts: Int64s, exp: Int64s) -> Elements:
        """The same rows and signs over other lifetimes."""
        return Elements(ts, exp, self.sign, self.columns)

    def negated(self) -> Elements:
        """The same elements with opposite signs."""
        return Elements(self.ts, self.exp, -self.sign, self.columns)

    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self.ts.nbytes + self.exp.nbytes + self.sign.nbytes + sum(a.nbytes for a in self.columns.values())


def same_end(count: int, end: int = INF) -> Int64s:
    """One end for so many elements."""
    # broadcasting costs as much as a few thousand ends, and no memory however many there are
    return np.full(count, end, np.int64) if count < 4096 else np.broadcast_to(np.int64(end), (count,))


def concat(parts: Sequence[Elements]) -> Elements:
    """All elements of `parts` in order; at least one part is needed for the columns.

    >>> one = Elements.positive(np.array([1]), 5, {"a": pa.array([7])})
    >>> len(concat([one, one]))
    2
    """
    filled = [p for p in parts if len(p)]
    if len(filled) <= 1:
        return filled[0] if filled else parts[0]
    return Elements(
        np.concatenate([p.ts for p in filled]),
        np.concatenate([p.exp for p in filled]),
        np.concatenate([p.sign for p in filled]),
        {n: concat_arrays([p.columns[n] for p in filled]) for n in filled[0].columns},
    )


def concat_arrays(parts: Sequence[pa.Array]) -> pa.Array:
    """One contiguous array from several of the same type."""
    if len(parts) == 1:
        return parts[0]
    return pa.concat_arrays(parts)


_WIDTHS: Mapping[int, type[np.signedinteger]] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
_FIXED = {
    t.id: _WIDTHS[t.bit_width]
    for t in (
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
        pa.float32(), pa.float64(), pa.date32(), pa.timestamp("us"), pa.duration("us"),
    )
}  # fmt: skip


Places = Sequence[tuple[pa.Array, NDArray[np.integer] | slice]]
"""Arrays of one type, and which of their values are meant."""


def gathered(parts: Places) -> pa.Array:
    """The values at the given places of several arrays, end to end, each copied at most once.

    >>> gathered([(pa.array([1, 2, 3]), np.array([2, 0])), (pa.array([7, 8]), slice(1, 2))]).to_pylist()
    [3, 1, 8]
    """
    array, at = parts[0]
    if len(parts) == 1 and isinstance(at, slice):
        return array.slice(at.start, at.stop - at.start)
    width = fixed_width(parts)
    if width is None:
        return concat_arrays([_picked(array, at) for array, at in parts])
    if len(parts) == 1 and not isinstance(at, slice):
        out = fixed_values(array, width).take(at, mode="clip")
        return pa.Array.from_buffers(array.type, len(out), [None, pa.py_buffer(out)])
    sizes = [counted(at) for _, at in parts]
    out, begin = np.empty(sum(sizes), width), 0
    for (array, at), size in zip(parts, sizes, strict=True):
        values = fixed_values(array, width)
        if isinstance(at, slice):
            out[begin : begin + size] = values[at]
        else:
            np.take(values, at, out=out[begin : begin + size], mode="clip")  # unbuffered; no place is out of bounds
        begin += size
    return pa.Array.from_buffers(array.type, len(out), [None, pa.py_buffer(out)])


def fixed_width(parts: Places) -> type[np.signedinteger] | None:
    """The integers that values are copied as: they have a width of whole bytes, and none is null; else None."""
    width = _FIXED.get(parts[0][0].type.id)
    if width is None:
        return None
    for array, _ in parts:
        if array.null_count:
            return None
    return width


def fixed_values(array: pa.Array, width: type[np.signedinteger]) -> np.ndarray:
    """The values of an array, as integers."""
    return np.frombuffer(array.buffers()[1], width)[array.offset : array.offset + len(array)]


def counted(at: NDArray[np.integer] | slice) -> int:
    """How many places are meant."""
    return at.stop - at.start if isinstance(at, slice) else len(at)


def _picked(array: pa.Array, at: NDArray[np.integer] | slice) -> pa.Array:
    return array.slice(at.start, at.stop - at.start) if isinstance(at, slice) else array.take(pa.array(at))


def one(column: pa.ChunkedArray) -> pa.Array:
    """A column as one contiguous array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
