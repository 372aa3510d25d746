"""The linear operators: selection, projection, user calls, unnesting and union.

Each maps elements one by one and keeps lifetimes and signs, so it is right for every update pattern and needs no state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from windrow.errors import RuntimeFailure
from windrow.operators import scalar
from windrow.operators.conjunction import holds
from windrow.operators.elements import Elements, Int64s, concat
from windrow.operators.protocol import Stateless


@dataclass(frozen=True)
class Formula:
    """An expression ready to run: SQL, its type, the columns it reads, and the column it merely copies, if so.

    `total`: it is known to raise on no row.
    """

    sql: str
    type: pa.DataType
    reads: tuple[str, ...]
    copies: str | None = None
    total: bool = False


def satisfied(columns: Mapping[str, pa.Array], length: int, predicates: Sequence[Formula]) -> NDArray[np.bool_]:
    """Where all predicates are true, asked in the order that costs least."""
    return holds(columns, length, [p.sql for p in predicates], {p.sql for p in predicates if p.total})


class SelectOperator(Stateless):
    """Keep the elements whose row satisfies all predicates."""

    def __init__(self, predicates: Sequence[Formula]) -> None:
        self.predicates = tuple(predicates)
        self._reads = tuple(dict.fromkeys(c for p in predicates for c in p.reads))

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (rows,) = inputs
        if not len(rows):
            return rows
        columns = {n: rows.columns[n] for n in self._reads}
        return rows.filter(satisfied(columns, len(rows), self.predicates))


class ProjectOperator(Stateless):
    """Compute each output column."""

    def __init__(self, outputs: Sequence[tuple[str, Formula]]) -> None:
        self.outputs = tuple(outputs)
        self._computed = [(n, f) for n, f in outputs if f.copies is None]
        self._reads = tuple(dict.fromkeys(c for _, f in self._computed for c in f.reads))

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (rows,) = inputs
        computed: dict[str, pa.Array] = {}
        if self._computed:
            columns = {n: rows.columns[n] for n in self._reads}
            arrays = scalar.evaluate(columns, len(rows), [(f.sql, f.type) for _, f in self._computed])
            computed = dict(zip((n for n, _ in self._computed), arrays, strict=True))
        return rows.with_columns({n: rows.columns[f.copies] if f.copies else computed[n] for n, f in self.outputs})


class CallOperator(Stateless):
    """Add a column computed by a user's vectorised function."""

    def __init__(
        self, output: str, name: str, fn: Callable[..., object], arguments: Sequence[str], type_: pa.DataType
    ) -> None:
        self.output, self.name, self.fn, self.arguments, self.type = output, name, fn, tuple(arguments), type_

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (rows,) = inputs
        if not len(rows):
            return rows.with_columns({**rows.columns, self.output: pa.array([], self.type)})
        return rows.with_columns({**rows.columns, self.output: self._apply(rows)})

    def _apply(self, rows: Elements) -> pa.Array:
        try:
            result = self.fn(*(rows.columns[a] for a in self.arguments))
            if isinstance(result, pa.ChunkedArray):
                result = result.combine_chunks()
            array = result.cast(self.type) if isinstance(result, pa.Array) else pa.array(result, self.type)
        except Exception as error:
            raise RuntimeFailure(
                f"function {self.name} failed",
                detail=f"{type(error).__name__}: {error}",
                hint="the function gets one Arrow array per argument and returns an array of the declared type",
            ) from error
        if len(array) != len(rows):
            raise RuntimeFailure(
                f"function {self.name} returned {len(array)} values for {len(rows)} rows",
                hint="a vectorised function returns one value per row",
            )
        return array


class UnnestOperator(Stateless):
    """One element for each place of some lists, side by side; a list that has ended is null there.

    >>> rows = Elements.positive(np.array([1, 2]), 9, {"l": pa.array([[1, 2], []]), "m": pa.array([["x"], None])})
    >>> made = UnnestOperator([("a", "l", pa.int64()), ("b", "m", pa.string())]).advance([rows], 5)
    >>> made.ts.tolist(), made.columns["a"].to_pylist(), made.columns["b"].to_pylist()
    ([1, 1], [1, 2], ['x', None])
    """

    def __init__(self, lists: Sequence[tuple[str, str, pa.DataType]]) -> None:
        self.lists = tuple(lists)

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (rows,) = inputs
        spans = [_spans(rows.columns[column]) for _, column, _ in self.lists]
        counts = np.maximum.reduce([length for _, length, _ in spans])
        which = np.repeat(np.arange(len(rows)), counts)
        place = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
        made = rows.take(which)
        columns = dict(made.columns)
        for (output, _, type_), (first, length, values) in zip(self.lists, spans, strict=True):
            picks = pa.array(first[which] + place, mask=place >= length[which])
            columns[output] = _as_type(values.take(picks), type_)
        return made.with_columns(columns)


def _spans(lists: pa.Array) -> tuple[Int64s, Int64s, pa.Array]:
    """Where each list begins among all elements, its length (0 for null), and the elements."""
    if pa.types.is_fixed_size_list(lists.type):
        bounds = (lists.offset + np.arange(len(lists) + 1)) * lists.type.list_size
    else:
        bounds = lists.offsets.to_numpy().astype(np.int64)
    length = np.diff(bounds)
    if lists.null_count:
        length = np.where(np.asarray(lists.is_null()), 0, length)
    return bounds[:-1], length, lists.values


def _as_type(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return array if array.type == type_ else array.cast(type_)


class Bounds(Stateless):
    """Add columns of instants: the time at which each element begins, less a length."""

    def __init__(self, bounds: Sequence[tuple[str, int]], type_: pa.DataType) -> None:
        self.bounds, self.type = tuple(bounds), type_

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (rows,) = inputs
        return bounded(rows, [self], np.zeros(len(rows), np.int64))


def bounded(rows: Elements, alike: Sequence[Bounds], which: Int64s) -> Elements:
    """The rows with the bounds of several windows: `which[i]` is the window of row i; names and types are the same."""
    names, type_ = [name for name, _ in alike[0].bounds], alike[0].type
    back = np.array([[back for _, back in one.bounds] for one in alike], np.int64)  # [windows, bounds]
    shown = {name: pa.array(rows.ts - back[which, k]).cast(type_) for k, name in enumerate(names)}
    return rows.with_columns({**rows.columns, **shown})


class Pad(Stateless):
    """Add columns of nulls: the missing side of a left join."""

    def __init__(self, columns: Mapping[str, pa.DataType]) -> None:
        self.columns = dict(columns)

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (rows,) = inputs
        return rows.with_columns({**rows.columns, **{c: pa.nulls(len(rows), t) for c, t in self.columns.items()}})


class UnionOperator(Stateless):
    """The merge of its inputs; inputs listed in `negated` count with opposite sign."""

    def __init__(self, negated: Sequence[bool] = ()) -> None:
        self.negated = tuple(negated)

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        flips = self.negated or (False,) * len(inputs)
        return concat([e.negated() if flip else e for e, flip in zip(inputs, flips, strict=True)])
