"""What partials and entries hold of rows: sums as lanes, and best codes.

Sums of several columns stand side by side in one matrix, so that whoever adds, takes away or passes them on needs no
idea of what they are: lane 0 counts rows, then come the lanes of every column (`aggregates.sums`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.answers import PointValues, coded, scalars
from windrow.operators.aggregates.call import EXTREMES, MOMENTS
from windrow.operators.aggregates.final_values import Lowering
from windrow.operators.aggregates.order import CodeOrder, encode, has_fixed_codes
from windrow.operators.aggregates.sums import Cells, SumLanes, Sums, relaid
from windrow.operators.aggregates.vectors import Bools, Int64s, validity
from windrow.operators.state.run import ints
from windrow.sharing.kernels import greatest, tally

_NO_NULLS = np.ones(1, np.bool_)
ROWS = "rows"


@dataclass(frozen=True)
class SlicedRows:
    """Rows in time order, cut at edges: `first[s]:first[s + 1]` are the rows up to `edges[s]`."""

    first: Int64s
    edges: Int64s


def takes(calls: Sequence[Aggregation], types: Mapping[str, pa.DataType]) -> bool:
    """Whether lanes and codes are all that these aggregates need of rows."""
    return all(
        c.column is None
        or (c.kind in EXTREMES and has_fixed_codes(types[c.column]))
        or (c.kind in ("count", "sum", "avg", *MOMENTS) and not c.distinct)
        for c in calls
    )


class Lanes(Sums):
    """Sums whose needs may grow while queries join."""

    def require(self, sums: bool, squares: bool) -> None:
        """Also keep these from now on; what is there already has none of them."""
        self._sums, self._squares = self._sums or sums, self._squares or squares

    def like(self) -> Lanes:
        """Lanes with the same needs and nothing in them."""
        return Lanes(self.type, self._sums, self._squares)


class Best:
    """The greatest codes of a column; for a minimum, codes are inverted."""

    def __init__(self, type_: pa.DataType, least: bool) -> None:
        self.type, self.least = type_, least

    def per_partial(self, column: pa.Array, of_row: Int64s, count: int) -> tuple[Int64s, Bools]:
        """The greatest code of each partial, and whether it has any."""
        codes, valid = encode([column])[0][0], validity(column)
        codes = ~codes if self.least else codes
        found: tuple[Int64s, Bools] = greatest(
            of_row, codes, _NO_NULLS if valid is None else valid, valid is not None, count
        )
        return found

    def answer(self, best: Int64s, some: Bools, type_: pa.DataType) -> PointValues:
        """Codes as values; null where there are none."""
        return coded(~best if self.least else best, None if some.all() else some, CodeOrder(self.type), type_)


@dataclass(frozen=True)
class Packing:
    """Which columns' lanes a matrix has behind lane 0, in order."""

    columns: tuple[tuple[str, SumLanes], ...] = ()

    @property
    def width(self) -> int:
        return 1 + sum(layout.width for _, layout in self.columns)

    def places(self) -> dict[str, tuple[int, SumLanes]]:
        """Where each column's lanes begin."""
        found, at = {}, 1
        for column, layout in self.columns:
            found[column] = (at, layout)
            at += layout.width
        return found

    def names(self) -> list[str]:
        """A name for every lane, for tables of state."""
        return [ROWS, *(f"{name}|{column}" for column, layout in self.columns for name in layout.names())]


def packed(rows: Int64s, lanes: Mapping[str, tuple[Int64s, SumLanes]], packing: Packing) -> Int64s:
    """Lanes of columns in one matrix; columns that are not given have none."""
    found = np.zeros((len(rows), packing.width), np.int64)
    found[:, 0] = rows
    for column, (at, layout) in packing.places().items():
        if column in lanes:
            mine, own = lanes[column]
            found[:, at : at + layout.width] = mine if own == layout else relaid(mine, own, layout)
    return found


def unpacked(matrix: Int64s, packing: Packing) -> dict[str, tuple[Int64s, SumLanes]]:
    """The lanes of every column of a matrix."""
    return {c: (matrix[:, at : at + layout.width], layout) for c, (at, layout) in packing.places().items()}


class NeededLanes:
    """What some aggregates need of rows: lanes of columns, and best codes."""

    def __init__(self) -> None:
        self.sums: dict[str, Lanes] = {}
        self.bests: dict[tuple[str, bool], Best] = {}

    def provide(self, calls: Iterable[Aggregation], types: Mapping[str, pa.DataType]) -> None:
        """Keep what these aggregates need from now on."""
        for call in calls:
            if call.column is None:
                continue
            if call.kind in EXTREMES:
                key = (call.column, call.kind == "min")
                if key not in self.bests:
                    self.bests[key] = Best(types[call.column], call.kind == "min")
                continue
            lanes = self.sums.setdefault(call.column, Lanes(types[call.column], False, False))
            lanes.require(sums=call.kind != "count", squares=call.kind in MOMENTS)

    @property
    def reads(self) -> list[str]:
        """The columns of rows that are read."""
        return list(dict.fromkeys([*self.sums, *(c for c, _ in self.bests)]))

    @property
    def packing(self) -> Packing:
        return Packing(tuple((c, s.layout) for c, s in self.sums.items()))

    def lift(self, columns: Mapping[str, pa.Array], of_row: Int64s, count: int) -> Int64s:
        """The lanes of partials, `count` of them: row i is in partial `of_row[i]`."""
        placed = Cells(of_row, np.ones(len(of_row), np.int8), count)
        lanes = {c: (s.lift(columns[c], placed), s.layout) for c, s in self.sums.items() if c in columns}
        return packed(tally(of_row, count)[:, 0], lanes, self.packing)

    def codes(
        self, columns: Mapping[str, pa.Array], of_row: Int64s, count: int
    ) -> dict[tuple[str, bool], tuple[Int64s, Bools]]:
        """The best codes of partials."""
        return {k: b.per_partial(columns[k[0]], of_row, count) for k, b in self.bests.items() if k[0] in columns}

    # -- tables ------------------------------------------------------------------------------------------------------

    def read(self, table: pa.Table) -> tuple[Int64s, Packing]:
        """The lanes in a table of partials or entries; columns are widened to what it has."""
        found = {c: lanes_of(table, c) for c in self.sums}
        for column, (_, layout) in found.items():
            self.sums[column].widen(layout)
        return packed(ints(table, ROWS), found, self.packing), self.packing

    def read_codes(self, table: pa.Table) -> dict[tuple[str, bool], tuple[Int64s, Bools]]:
        """The best codes in a table; none where the table is older than the wish for them."""
        found = {}
        for column, least in self.bests:
            codes, some = code_names(column, least)
            if codes in table.column_names:
                found[column, least] = (ints(table, codes), ints(table, some))
            else:
                found[column, least] = (np.zeros(table.num_rows, np.int64), np.zeros(table.num_rows, np.bool_))
        return found


def code_names(column: str, least: bool) -> tuple[str, str]:
    """The names of a column's best codes in a table, and of whether there are any."""
    mark = "least" if least else "greatest"
    return f"{mark}|{column}", f"{mark}?|{column}"


def lane_columns(matrix: Int64s, packing: Packing) -> dict[str, np.ndarray]:
    """Lanes as columns of a table."""
    return {name: np.ascontiguousarray(matrix[:, k]) for k, name in enumerate(packing.names())}


def lanes_of(table: pa.Table, column: str) -> tuple[Int64s, SumLanes]:
    """The lanes of one column in a table, and their layout."""
    ending = f"|{column}"
    marks = ("least", "least?", "greatest", "greatest?")
    names = [n[: -len(ending)] for n in table.column_names if n.endswith(ending) and n[: -len(ending)] not in marks]
    layout = SumLanes.of_names(names)
    lanes = np.zeros((table.num_rows, layout.width), np.int64)
    for k, name in enumerate(layout.names()):
        if name in names:
            lanes[:, k] = ints(table, name + ending)
    return lanes, layout


def lowered(
    calls: Sequence[Aggregation], matrix: Int64s, packing: Packing, kept: NeededLanes
) -> dict[Aggregation, PointValues]:
    """The answers of the calls that are sums, one per row of a matrix of lanes."""
    rows = np.ascontiguousarray(matrix[:, 0])
    places = packing.places()
    lowerings: dict[str, Lowering] = {}
    found: dict[Aggregation, PointValues] = {}
    for call in calls:
        if call.column is None:
            found[call] = scalars(rows, None, call.type)
        elif call.kind not in EXTREMES:
            if call.column not in lowerings:
                at, layout = places[call.column]
                lowerings[call.column] = Lowering(matrix, layout, kept.sums[call.column].type, rows, at)
            found[call] = lowerings[call.column].answer(call)
    return found
