"""The rows of one stream within the longest window, and what queries need of each.

A row is evaluated once, when it comes: its join key, which predicates it satisfies, the lanes and codes of arguments,
and the groups it belongs to. Rows are numbered in time order; those that no window holds any more are dropped from the
front. A query that joins sees rows that come after it, so nothing is evaluated anew: of older rows its predicate is
false (rows carry the epoch in which they came).

State: the columns that are read, as runs of rows in the order of time, each with its epoch. All else is made again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.errors import RuntimeFailure
from windrow.operators import scalar
from windrow.operators.aggregates.groups import Groups
from windrow.operators.aggregates.order import encode
from windrow.operators.aggregates.sums import Sums
from windrow.operators.aggregates.vectors import Bools, Int64s, validity
from windrow.operators.conjunction import holds
from windrow.operators.elements import BEGINNING, one
from windrow.operators.linear import Formula
from windrow.operators.state.run import Run, ints

_NONE = np.zeros(0, np.int64)
Predicate = tuple[Formula, ...]
"""Formulas that must all hold."""


class ArgumentLanes(Sums):
    """The lanes of one argument, row by row."""

    def require(self, sums: bool, squares: bool) -> None:
        """Also keep these of the rows that come from now on."""
        self._sums, self._squares = self._sums or sums, self._squares or squares

    def append(self, column: pa.Array) -> None:
        """More rows."""
        more = self.lift(column)
        self.store = np.concatenate((self.store, more))

    def skip(self, rows: int) -> None:
        """Rows from before anybody needed them."""
        self.store = np.zeros((rows, self.layout.width), np.int64)

    def drop(self, rows: int) -> None:
        """Forget the first rows."""
        self.store = self.store[rows:]


class ArgumentCodes:
    """The codes of one argument by which the greatest (of `least`, inverted, the least) is found."""

    def __init__(self, least: bool, rows: int) -> None:
        self.least = least
        self.codes, self.some = np.zeros(rows, np.int64), np.zeros(rows, np.bool_)

    def append(self, column: pa.Array) -> None:
        """More rows."""
        codes, valid = encode([column])[0][0], validity(column)
        self.codes = np.concatenate((self.codes, ~codes if self.least else codes))
        self.some = np.concatenate((self.some, np.ones(len(column), np.bool_) if valid is None else valid))

    def drop(self, rows: int) -> None:
        """Forget the first rows."""
        self.codes, self.some = self.codes[rows:], self.some[rows:]


@dataclass
class GroupSlots:
    """The groups of rows by some formulas."""

    formulas: tuple[Formula, ...]
    groups: Groups
    slots: Int64s


class SideRows:
    """Rows of one side."""

    def __init__(self, side: int, keys: Sequence[Formula]) -> None:
        self.side, self.keys = side, tuple(keys)
        self.base = 0  # the number of the first row
        self.ts, self.key, self.epoch, self.prev = _NONE, _NONE, _NONE, _NONE
        self.predicates: dict[Predicate, Bools] = {}
        self.lanes: dict[str, tuple[Formula, ArgumentLanes]] = {}
        self.codes: dict[tuple[str, bool], tuple[Formula, ArgumentCodes]] = {}
        self.grouped: dict[tuple[str, ...], GroupSlots] = {}
        self._runs: list[tuple[int, int, Run]] = []  # (least time, greatest time, rows)

    def __len__(self) -> int:
        return len(self.ts)

    # -- what is needed ----------------------------------------------------------------------------------------------

    def need_predicate(self, predicate: Predicate) -> None:
        """Tell from now on whether rows satisfy a predicate."""
        self.predicates.setdefault(predicate, np.zeros(len(self), np.bool_))

    def need_lanes(self, formula: Formula, sums: bool, squares: bool) -> None:
        """Keep sums of an argument from now on."""
        if formula.sql not in self.lanes:
            self.lanes[formula.sql] = (formula, ArgumentLanes(formula.type, False, False))
            self.lanes[formula.sql][1].skip(len(self))
        self.lanes[formula.sql][1].require(sums, squares)

    def need_codes(self, formula: Formula, least: bool) -> None:
        """Keep codes of an argument from now on."""
        self.codes.setdefault((formula.sql, least), (formula, ArgumentCodes(least, len(self))))

    def need_groups(self, formulas: Sequence[Formula]) -> None:
        """Tell the groups of rows by formulas from now on."""
        key = tuple(f.sql for f in formulas)
        if key not in self.grouped:
            slots = np.zeros(len(self), np.int64)
            self.grouped[key] = GroupSlots(tuple(formulas), Groups([f.type for f in formulas]), slots)

    def release(self, needed: SideRows) -> None:
        """Keep only what is needed of another, which has no rows."""
        self.predicates = {p: known for p, known in self.predicates.items() if p in needed.predicates}
        self.lanes = {k: v for k, v in self.lanes.items() if k in needed.lanes}
        self.codes = {k: v for k, v in self.codes.items() if k in needed.codes}
        self.grouped = {k: v for k, v in self.grouped.items() if k in needed.grouped}

    # -- rows --------------------------------------------------------------------------------------------------------

    def append(self, table: pa.Table, keys: Groups) -> None:
        """Take in rows in time order; `keys` numbers their join keys."""
        ts, epoch = ints(table, "_ts"), ints(table, "_epoch")
        values = self._evaluate(columns_of(table), len(ts))
        found = [values[f.sql] for f in self.keys]
        slots = keys.lookup(found, len(ts))
        for column in found:
            valid = validity(column)
            if valid is not None:
                slots = np.where(valid, slots, -1)
        for predicate, known in self.predicates.items():
            self.predicates[predicate] = np.concatenate((known, _holds(values, predicate, len(ts))))
        for formula, lanes in self.lanes.values():
            lanes.append(values[formula.sql])
        for formula, codes in self.codes.values():
            codes.append(values[formula.sql])
        for mine in self.grouped.values():
            more = mine.groups.lookup([values[f.sql] for f in mine.formulas], len(ts))
            mine.slots = np.concatenate((mine.slots, more))
        self.ts, self.key = np.concatenate((self.ts, ts)), np.concatenate((self.key, slots))
        self.epoch = np.concatenate((self.epoch, epoch))
        self.prev = np.concatenate((self.prev, np.full(len(ts), -1, np.int64)))

    def newest_before(self, epoch: int) -> int:
        """The time of the newest row from before an epoch."""
        old = np.flatnonzero(self.epoch < epoch)
        return int(self.ts[old[-1]]) if len(old) else BEGINNING

    def keep(self, table: pa.Table) -> None:
        """Remember rows, in time order, as part of the state."""
        ts = ints(table, "_ts")
        self._runs.append((int(ts[0]), int(ts[-1]), Run(table)))
        while len(self._runs) > 1 and self._runs[-2][2].table.num_rows <= 2 * self._runs[-1][2].table.num_rows:
            (low, _, before), (_, high, after) = self._runs[-2:]
            both = pa.concat_tables([before.table, after.table], promote_options="default").combine_chunks()
            self._runs[-2:] = [(low, high, Run(both))]

    def drop(self, oldest: int) -> None:
        """Forget rows at or before `oldest`."""
        self._runs = [r for r in self._runs if r[1] > oldest]
        n = int(np.searchsorted(self.ts, oldest, "right"))
        if 2 * n < len(self) or n == 0:
            return
        self.base += n
        self.ts, self.key, self.epoch, self.prev = (a[n:] for a in (self.ts, self.key, self.epoch, self.prev))
        self.predicates = {p: known[n:] for p, known in self.predicates.items()}
        for _, lanes in self.lanes.values():
            lanes.drop(n)
        for _, codes in self.codes.values():
            codes.drop(n)
        for mine in self.grouped.values():
            mine.slots = mine.slots[n:]

    def runs(self) -> tuple[Run, ...]:
        """The rows of the state."""
        return tuple(run for _, _, run in self._runs)

    def take_back(self, runs: Sequence[Run]) -> pa.Table | None:
        """Have the rows of a state again, to be appended."""
        self._runs = []
        for run in runs:
            ts = ints(run.table, "_ts")
            self._runs.append((int(ts[0]), int(ts[-1]), run))
        tables = [run.table for run in runs]
        return pa.concat_tables(tables, promote_options="default").combine_chunks() if tables else None

    def failing(self, columns: Mapping[str, pa.Array], rows: int) -> bool:
        """Whether some predicate raises on rows, if all are asked together."""
        asked = {f.sql: f for predicate in self.predicates for f in predicate if f.copies is None}
        asked = {sql: f for sql, f in asked.items() if columns.keys() >= set(f.reads)}
        if not asked or not rows:
            return False
        try:
            _computed(asked, columns, rows)
        except RuntimeFailure:
            return True
        return False

    def _evaluate(self, columns: Mapping[str, pa.Array], rows: int) -> dict[str, pa.Array]:
        """All formulas by their SQL. Who raises has been taken out before; on rows that others reject it is NULL."""
        wanted = {f.sql: f for f in self.keys}
        wanted |= {f.sql: f for predicate in self.predicates for f in predicate}
        wanted |= {f.sql: f for f, _ in self.lanes.values()} | {f.sql: f for f, _ in self.codes.values()}
        wanted |= {f.sql: f for mine in self.grouped.values() for f in mine.formulas}
        unknown = {sql: f for sql, f in wanted.items() if not columns.keys() >= set(f.reads)}
        found = {sql: pa.nulls(rows, f.type) for sql, f in unknown.items()}  # who needs them came after these rows
        wanted = {sql: f for sql, f in wanted.items() if sql not in unknown}
        found |= {sql: columns[f.copies] for sql, f in wanted.items() if f.copies is not None}
        rest = {sql: f for sql, f in wanted.items() if f.copies is None}
        try:
            return found | _computed(rest, columns, rows)
        except RuntimeFailure:
            return found | _computed(rest, columns, rows, attempt=True)


def columns_of(table: pa.Table) -> dict[str, pa.Array]:
    """The columns of a stream in a table of rows."""
    return {c: one(table.column(c)) for c in table.column_names if c not in ("_ts", "_epoch")}


def _computed(
    formulas: Mapping[str, Formula], columns: Mapping[str, pa.Array], rows: int, attempt: bool = False
) -> dict[str, pa.Array]:
    """Formulas by their SQL; `attempt`: NULL where they raise."""
    if not formulas:
        return {}
    reads = {c: columns[c] for f in formulas.values() for c in f.reads}
    asked = [(f"TRY({sql})" if attempt else sql, f.type) for sql, f in formulas.items()]
    return dict(zip(formulas, scalar.evaluate(reads, rows, asked), strict=True))


def unused(groups: Groups, held: Sequence[Int64s]) -> Int64s:
    """The slots of groups that nothing holds."""
    used = np.zeros(groups.capacity, np.bool_)
    for slots in held:
        used[slots[slots >= 0]] = True
    return groups.slots[~used[groups.slots]]


def _holds(values: Mapping[str, pa.Array], predicate: Predicate, rows: int) -> Bools:
    """Where all formulas are true."""
    found = np.ones(rows, np.bool_)
    for formula in predicate:
        array = values[formula.sql]
        found &= np.asarray(array.fill_null(False))
    return found


def raises(predicate: Predicate, columns: Mapping[str, pa.Array], rows: int) -> RuntimeFailure | None:
    """The error of a predicate on rows, tested formula by formula as a plan does; None if there is none."""
    at, mine = rows, dict(columns)
    for formula in predicate:
        try:
            keep = holds({c: mine[c] for c in formula.reads}, at, [formula.sql])
        except RuntimeFailure as error:
            return error
        picks = pa.array(np.flatnonzero(keep))
        at, mine = len(picks), {c: a.take(picks) for c, a in mine.items()}
    return None
