"""Rows in an order that is total: by sort keys, then by the values of other columns.

Sort keys say what the user asked for: descending or not, nulls first or last. Rows that tie there are ordered by the
tie columns, ascending, NaN after all numbers, nulls last, so that the order depends on the rows alone. Rows that are
equal in all of these are one class: which of them comes first makes no difference. Rows that are equal in the sort keys
are peers.

Cost: one sort by the keys; the tie columns are looked at only where keys tie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.operators import scalar
from windrow.operators.aggregates.order import encode
from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.operators.keys import factorize
from windrow.operators.radix import stable_order
from windrow.operators.terms import SortKey


@dataclass(frozen=True)
class Ordered:
    """A permutation that sorts rows, and where, in that order, a new partition, peer group or class begins."""

    order: Int64s
    opens_partition: Bools
    opens_peers: Bools
    opens_class: Bools


def oriented(array: pa.Array, key: SortKey) -> list[Int64s]:
    """Integer vectors, most significant first, whose ascending order is that of the key."""
    codes = _codes(array)
    if key.descending:
        codes = ~codes
    if not array.null_count:
        return [codes]
    null = np.asarray(array.is_null())
    return [np.where(null, 0 if key.nulls_first else 2, 1), np.where(null, 0, codes)]


def _codes(array: pa.Array) -> Int64s:
    if pa.types.is_nested(array.type):
        return _ranks(array)
    (codes,), _ = encode([array])
    return codes


def _ranks(array: pa.Array) -> Int64s:
    """Dense ranks of values that only the scalar engine can compare."""
    order = scalar.ordered([array], len(array))
    codes, _ = factorize([array], len(array))
    ranks = np.empty(len(array), np.int64)
    ranks[order] = np.cumsum(np.append(0, np.diff(codes[order]) != 0)[: len(array)])
    return ranks


def ordered(
    partition: Int64s, columns: Mapping[str, pa.Array], keys: Sequence[SortKey], ties: Sequence[str]
) -> Ordered:
    """Rows by partition, keys and ties."""
    vectors = [v for key in keys for v in oriented(columns[key.column], key)]
    order = _sorted([partition, *vectors])
    opens_partition = _opens([partition], order)
    opens_peers = opens_partition | _opens(vectors, order)
    if not ties or opens_peers.all():
        return Ordered(order, opens_partition, opens_peers, opens_peers)
    # only peers can tie
    run = np.cumsum(opens_peers) - 1
    tied = np.flatnonzero(np.bincount(run)[run] > 1)
    rows = order[tied]
    picks = pa.array(rows)
    among = [v for c in ties for v in oriented(columns[c].take(picks), SortKey(c))]
    within = _sorted([run[tied], *among])
    order[tied] = rows[within]
    opens_class = opens_peers.copy()
    opens_class[tied] |= _opens([run[tied], *among], within)
    return Ordered(order, opens_partition, opens_peers, opens_class)


def _sorted(vectors: Sequence[Int64s]) -> Int64s:
    """The permutation that sorts by the vectors, the first most significant."""
    order = stable_order(vectors[-1])
    for vector in reversed(vectors[:-1]):
        order = order[stable_order(vector[order])]
    return order


def _opens(vectors: Sequence[Int64s], order: Int64s) -> Bools:
    """Where, in the order, a vector has another value than before."""
    opens = np.zeros(len(order), np.bool_)
    opens[:1] = True
    for v in vectors:
        sorted_ = v[order]
        opens[1:] |= sorted_[1:] != sorted_[:-1]
    return opens
