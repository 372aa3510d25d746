"""APPROX_COUNT_DISTINCT, APPROX_QUANTILE and APPROX_TOP_K: sketches of basic windows, merged over the window.

The sketches are those of Apache DataSketches. Each is made of the exact counts of a slice, in the order of values, and
merged oldest slice first, so no batch, task or restart can change an answer. What they promise:

    count distinct   theta sketch of 4,096 hashes: exact up to as many values, whatever the slices; beyond, the relative
                     standard error is 1/64, and the answer depends on the set of values alone
    quantile         t-digest of compression 1,000: a value whose rank is within 1 % of the rows, closer at the ends. A
                     centroid spans at most pi/1,000 of them; a digest promises nothing beyond that, so it is measured:
                     at most 0.32 % over all kinds of data and slices, where the library's default of 200 has 1.6 %
    top k            frequent items of at most 1,536 counters: exact up to as many values; beyond, counts are off by at
                     most 0.18 % of the rows

State: one sketch per slice and group. Cost: O(1) per row, the distinct values of a slice when it closes; per evaluation
and group the sketches of the window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.call import Aggregation
from windrow.operators.aggregates.order import CodeOrder, encode, has_fixed_codes
from windrow.operators.aggregates.vectors import Int64s, distinct_values
from windrow.operators.aggregates.window_contents import WindowContents
from windrow.operators.elements import one
from windrow.operators.keys import hash_rows

LOG_HASHES = 12
COMPRESSION = 1000
LOG_COUNTERS = 11
_HASHES = 1 << LOG_HASHES
_SEED_HASH = 0x93CC
"""What the library stores of its default seed, by which sketches know that they can be merged."""
_FLAGS = 0b11010  # read only, compact, ordered


@dataclass(frozen=True)
class ThetaSummary:
    """The distinct values of each basic window."""

    column: str
    type: pa.DataType

    @property
    def name(self) -> str:
        return f"distinct {self.column}"

    def columns(self, first: Int64s, value: pa.Array, count: Int64s) -> dict[str, pa.Array]:
        """A compact theta sketch of each slice: its least hashes, and the first that is left out."""
        hashes = _mixed(hash_rows([value], len(value)).view(np.uint64))
        images = []
        for a, b in zip(first[:-1].tolist(), first[1:].tolist(), strict=True):
            mine = distinct_values(hashes[a:b])
            images.append(_image(mine[:_HASHES], int(mine[_HASHES]) if len(mine) > _HASHES else None))
        return {self.name: pa.array(images, pa.binary())}

    def answers(self, calls: Sequence[Aggregation], slices: pa.Table, held: WindowContents) -> dict[str, pa.Array]:
        sketches = _read(slices, self.name, datasketches.compact_theta_sketch.deserialize)

        def estimate(parts: Sequence[Any]) -> int:
            union = datasketches.theta_union(LOG_HASHES)
            for part in parts:
                union.update(part)
            return round(union.get_result().get_estimate())

        answer = pa.array(_each(sketches, held, estimate), pa.int64())
        return {c.output: answer for c in calls}


def _mixed(x: np.ndarray) -> np.ndarray:
    """Hashes of 63 bits, none of them 0: the finaliser of splitmix64."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.maximum((x ^ (x >> np.uint64(31))) >> np.uint64(1), np.uint64(1))


def _image(hashes: np.ndarray, theta: int | None) -> bytes:
    """A compact theta sketch as the library writes it: all hashes below theta, in order."""
    n = len(hashes)
    longs = 3 if theta is not None else 2 if n > 1 else 1
    head = bytes((longs, 3, 3, 0, 0, _FLAGS | (n == 0) << 2)) + _SEED_HASH.to_bytes(2, "little")
    head += n.to_bytes(8, "little") if longs > 1 else b""
    return head + (b"" if theta is None else theta.to_bytes(8, "little")) + hashes.astype("<u8").tobytes()


@dataclass(frozen=True)
class DigestSummary:
    """The distribution of each basic window's values, which are doubles."""

    column: str

    @property
    def name(self) -> str:
        return f"digest of {self.column}"

    def columns(self, first: Int64s, value: pa.Array, count: Int64s) -> dict[str, pa.Array]:
        """A t-digest of each slice, from its values in order."""
        numbers = value.to_numpy(zero_copy_only=False).astype(np.float64)
        images = []
        for a, b in zip(first[:-1].tolist(), first[1:].tolist(), strict=True):
            order = np.argsort(numbers[a:b], kind="stable")
            digest = datasketches.tdigest_double(COMPRESSION)
            digest.update(np.repeat(numbers[a:b][order], count[a:b][order]))
            images.append(digest.serialize())
        return {self.name: pa.array(images, pa.binary())}

    def answers(self, calls: Sequence[Aggregation], slices: pa.Table, held: WindowContents) -> dict[str, pa.Array]:
        digests = _read(slices, self.name, datasketches.tdigest_double.deserialize)
        fractions = [float(c.parameters[0]) for c in calls]

        def quantiles(parts: Sequence[Any]) -> list[float | None]:
            merged = datasketches.tdigest_double(COMPRESSION)
            for part in parts:
                if not part.is_empty():
                    merged.merge(part)
            return [None if merged.is_empty() else merged.get_quantile(f) for f in fractions]

        found = _each(digests, held, quantiles)
        return {c.output: pa.array([row[i] for row in found], pa.float64()) for i, c in enumerate(calls)}


@dataclass(frozen=True)
class ItemsSummary:
    """The frequent items of each basic window: numbers and times by their codes, text as it is."""

    column: str
    type: pa.DataType

    @property
    def name(self) -> str:
        return f"items of {self.column}"

    def columns(self, first: Int64s, value: pa.Array, count: Int64s) -> dict[str, pa.Array]:
        """A sketch of each slice, from its values in order with their counts."""
        (codes,), _ = encode([value])
        texts = codes.astype(str) if has_fixed_codes(self.type) else value.to_numpy(zero_copy_only=False)
        images = []
        for a, b in zip(first[:-1].tolist(), first[1:].tolist(), strict=True):
            sketch = datasketches.frequent_strings_sketch(LOG_COUNTERS)
            order = a + np.argsort(codes[a:b], kind="stable")
            for text, weight in zip(texts[order].tolist(), count[order].tolist(), strict=True):
                sketch.update(text, weight)
            images.append(sketch.serialize())
        return {self.name: pa.array(images, pa.binary())}

    def answers(self, calls: Sequence[Aggregation], slices: pa.Table, held: WindowContents) -> dict[str, pa.Array]:
        sketches = _read(slices, self.name, datasketches.frequent_strings_sketch.deserialize)
        most = [int(c.parameters[0]) for c in calls]

        def best(parts: Sequence[Any]) -> list[str]:
            merged = datasketches.frequent_strings_sketch(LOG_COUNTERS)
            for part in parts:
                merged.merge(part)
            items = merged.get_frequent_items(datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES)
            return [text for text, *_ in sorted(items, key=lambda i: (-i[1], self._order(i[0])))[: max(most)]]

        found = _each(sketches, held, best)
        return {c.output: self._lists([row[:k] for row in found], c.type) for c, k in zip(calls, most, strict=True)}

    def _order(self, text: str) -> int | bytes:
        return int(text) if has_fixed_codes(self.type) else text.encode()

    def _lists(self, found: Sequence[Sequence[str]], type_: pa.DataType) -> pa.Array:
        """Lists of values, null where there are none."""
        flat = [text for row in found for text in row]
        if has_fixed_codes(self.type):
            values = CodeOrder(self.type).decode(np.array([int(t) for t in flat], np.int64))
        else:
            values = pa.array(flat, self.type)
        ends = np.cumsum([len(row) for row in found]).tolist()
        offsets = [0, *ends]
        empty = pa.array([None if not row else at for row, at in zip(found, offsets, strict=False)] + [offsets[-1]])
        return pa.ListArray.from_arrays(empty.cast(pa.int32()), values, type=type_)


def _read(slices: pa.Table, name: str, deserialize: Callable[[bytes], Any]) -> list[Any]:
    return [deserialize(image) for image in one(slices.column(name)).to_pylist()]


def _each(sketches: Sequence[Any], held: WindowContents, answer: Callable[[Sequence[Any]], Any]) -> list[Any]:
    """An answer for each version of each group, from its sketches, oldest first."""
    return [
        answer([sketches[s] for s in held.slices_of(v, g).tolist()])
        for g in range(held.groups)
        for v in range(int(held.versions[g]), int(held.versions[g + 1]))
    ]
