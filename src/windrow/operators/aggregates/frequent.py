"""FREQUENT(x, k): the frequent values of a window, from the k most frequent of each basic window (thesis 6.2).

    basic window    1        2        3          its summary: the k best with their counts, and delta_i, the k-th count
    counters        sums of counts over the summaries of the window;  delta = delta_1 + delta_2 + ...
    answer          every value whose counter exceeds delta

A value that a summary lacks was there at most delta_i times, so a counter above delta proves a true count above delta:
nothing is ever reported that is not frequent; what is missed was never proven. The true count of a value lies between
its counter and that plus the delta_i of the summaries without it. A basic window of at most k values is kept whole and
has delta_i = 0. Of equal counts the smaller value is kept, so answers depend on rows alone.

Cost: k pairs per basic window; an answer looks at every counter of the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.operators.aggregates.basic_kernels import cut, frequent_sweep
from windrow.operators.aggregates.call import Aggregation
from windrow.operators.aggregates.order import encode
from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.aggregates.window_contents import WindowContents
from windrow.operators.elements import one
from windrow.operators.keys import factorize
from windrow.operators.state.run import ints


@dataclass(frozen=True)
class FrequentSummary:
    """The k most frequent values of each basic window."""

    column: str
    type: pa.DataType
    k: int

    @property
    def name(self) -> str:
        return f"{self.k} most frequent {self.column}"

    def columns(self, first: Int64s, value: pa.Array, count: Int64s) -> dict[str, pa.Array]:
        """Summaries of slices whose values are `first[s]:first[s + 1]`."""
        (codes,), _ = encode([value])
        kept, begin, least = cut(first, codes, count, self.k)
        pairs = pa.StructArray.from_arrays([value.take(pa.array(kept)), pa.array(count[kept])], ["value", "count"])
        total = np.concatenate(([0], np.cumsum(count)))[first]
        return {
            self.name: pa.ListArray.from_arrays(pa.array(begin.astype(np.int32)), pairs),
            f"delta of {self.name}": pa.array(least),
            f"rows of {self.name}": pa.array(np.diff(total)),
        }

    def answers(self, calls: Sequence[Aggregation], slices: pa.Table, held: WindowContents) -> dict[str, pa.Array]:
        """The answers of calls with this k at every version of the contents."""
        found: dict[str, pa.Array] = {}
        for call in calls:
            swept = self._swept(call, slices, held)
            found[call.output] = pa.array(swept.delta) if call.kind == "frequent_delta" else swept.lists(call.type)
        return found

    def _swept(self, call: Aggregation, slices: pa.Table, held: WindowContents) -> _Swept:
        lists = one(slices.column(self.name))
        begin = np.concatenate(([0], np.cumsum(pc.list_value_length(lists).to_numpy()))).astype(np.int64)
        pairs = lists.flatten()
        value = pairs.field("value")
        count = pairs.field("count").to_numpy()
        numbers, first = _numbered(value, np.repeat(held.group_of, np.diff(begin)), held.groups)
        threshold = call.parameters[1] if len(call.parameters) > 1 else 0
        whole = isinstance(threshold, int)
        delta = ints(slices, f"delta of {self.name}")
        delta, at, pair, low, high = frequent_sweep(
            held.firsts, held.come, held.going, held.go, held.versions, held.at, delta,
            ints(slices, f"rows of {self.name}"), begin, numbers, count, len(first),
            threshold if whole else 0, 0.0 if whole else threshold,
        )  # fmt: skip
        return _Swept(delta, at, pair, low, high, value, first)


@dataclass(frozen=True)
class _Swept:
    """Lists of pairs, one for each version."""

    delta: Int64s
    begin: Int64s
    pair: Int64s
    low: Int64s
    high: Int64s
    value: pa.Array
    first: Int64s  # a place of each pair's value

    def lists(self, type_: pa.DataType) -> pa.Array:
        """The lists, most frequent first, equal ones by value."""
        value = self.value.take(pa.array(self.first[self.pair]))
        (codes,), _ = encode([value])
        version = np.repeat(np.arange(len(self.begin) - 1), np.diff(self.begin))
        order = np.lexsort((codes, -self.low, version))
        parts = [value.take(pa.array(order)), pa.array(self.low[order]), pa.array(self.high[order])]
        items = pa.StructArray.from_arrays(parts, fields=list(type_.value_type))
        return pa.ListArray.from_arrays(pa.array(self.begin.astype(np.int32)), items, type=type_)


def _numbered(value: pa.Array, group: Int64s, groups: int) -> tuple[Int64s, Int64s]:
    """Number the distinct (group, value)."""
    return factorize([value] if groups == 1 else [pa.array(group), value], len(value))
