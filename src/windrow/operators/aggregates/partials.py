"""The partials of a list of aggregate calls: each kept once, however many calls read it.

`needs_ends`: some partial must be told when each row ends. MIN and MAX (and GROUP BY without any aggregate) over
elements that are never retracted know it themselves: one more staircase, of rows as such, says whether a group lives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from windrow.errors import RuntimeFailure
from windrow.operators.aggregates.answers import PointValues, scalars
from windrow.operators.aggregates.call import EXTREMES, LINEAR, MOMENTS, RANKED, Aggregation
from windrow.operators.aggregates.extremes import Extremes
from windrow.operators.aggregates.final_values import Lowering
from windrow.operators.aggregates.kernels import count_in
from windrow.operators.aggregates.order import has_fixed_codes
from windrow.operators.aggregates.reduced import RowWeights, best_of, laid_out
from windrow.operators.aggregates.stairs import AnswerSteps, GroupedArrivals, Stairs, shown
from windrow.operators.aggregates.sums import SumLanes, Sums
from windrow.operators.aggregates.sweep import MultiplicityChanges, Sweep, sweep_at
from windrow.operators.aggregates.values import Members, Values, frequent, ranked
from windrow.operators.aggregates.vectors import Int64s, distinct_values
from windrow.operators.elements import one
from windrow.operators.state.run import Run, ints

_ROWS = "_row"
"""The column that stands for the row as such."""

LIMIT = 2**31
"""A group of so many rows at once would overflow its lanes."""


class Partials:
    """Partials per slot; `advance` or `glide` yields the answers of all calls at the points of a sweep."""

    def __init__(self, calls: Sequence[Aggregation], types: Mapping[str, pa.DataType], strict: bool) -> None:
        self.calls = tuple(calls)
        self.strict = strict
        self.needs_ends = strict or any(c.kind not in EXTREMES for c in calls)
        self.columns = tuple(dict.fromkeys(c.column for c in calls if c.column is not None))
        self.rows = np.zeros(0, np.int64)  # [slots] rows alive
        self.sums: dict[tuple[str, bool], Sums] = {}  # (column, distinct)
        self.stairs: dict[tuple[str, bool], Stairs] = {}  # (column, least)
        self.values: dict[str, Values] = {}
        self._types = types
        for key, group in self._linear().items():
            squares = any(c.kind in MOMENTS for c in group)
            self.sums[key] = Sums(types[key[0]], any(c.kind != "count" for c in group), squares)
        for call in calls:
            self._provide(call)
        if not self.needs_ends:
            self.stairs[_ROWS, False] = Stairs(pa.int8(), least=False)

    def _linear(self) -> dict[tuple[str, bool], list[Aggregation]]:
        groups: dict[tuple[str, bool], list[Aggregation]] = {}
        for call in self.calls:
            if call.kind in LINEAR and call.column is not None:
                groups.setdefault((call.column, call.distinct), []).append(call)
        return groups

    def _provide(self, call: Aggregation) -> None:
        if call.column is None:
            return
        type_ = self._types[call.column]
        if call.kind in EXTREMES and not self.strict:
            self.stairs.setdefault((call.column, call.kind == "min"), Stairs(type_, call.kind == "min"))
        elif call.collapses or call.kind not in LINEAR:
            self.values.setdefault(call.column, self._multiset(call.column, type_))

    def _multiset(self, column: str, type_: pa.DataType) -> Values:
        """The multiplicities that the calls over a column need: of the best values only, if it is MIN or MAX alone."""
        kinds = {c.kind for c in self.calls if c.column == column and (c.collapses or c.kind not in LINEAR)}
        collapses = any(c.collapses for c in self.calls if c.column == column)
        if len(kinds) == 1 and kinds <= EXTREMES and not collapses and has_fixed_codes(type_):
            return Extremes(type_, kinds == {"min"})
        return Values(type_)

    # -- advancing ---------------------------------------------------------------------------------------------------

    def grow(self, slots: int) -> None:
        """Make room for `slots` groups."""
        if slots > len(self.rows):
            slots = max(slots, 2 * len(self.rows))
            self.rows = np.concatenate((self.rows, np.zeros(slots - len(self.rows), np.int64)))
            for sums in self.sums.values():
                sums.grow(slots)

    def _position(self, slots: Int64s) -> Int64s:
        position = np.full(len(self.rows), -1, np.int64)
        position[slots] = np.arange(len(slots))
        return position

    def advance(
        self,
        sweep: Sweep,
        columns: Mapping[str, pa.Array],
        arrivals: GroupedArrivals | None,
        frontier: int,
        weights: RowWeights | None = None,
    ) -> tuple[Int64s, list[PointValues]]:
        """Rows alive and the answers at every point; `arrivals` is needed by staircases.

        `weights`: of rows that are reduced, some or all; then `columns` has no columns that are only summed.
        """
        feed = counted = sweep.feed
        if weights is not None:
            counted = MultiplicityChanges(feed.rows, feed.deltas * weights.rows[feed.rows], feed.ends)
        total = np.concatenate(([0], np.cumsum(counted.deltas)))
        rows = total[feed.ends] - (total[feed.ends[sweep.firsts[:-1]]] - self.rows[sweep.slots])[sweep.group]
        if weights is not None:
            check_rows(rows)
        self.rows[sweep.slots] = rows[sweep.last]
        position = self._position(sweep.slots) if self.values or self.stairs else rows
        changed = Sweep(sweep.slots, sweep.firsts, sweep.times, counted)
        members = {c: v.advance(changed, columns[c], position) for c, v in self.values.items()}
        for (column, distinct), sums in self.sums.items():
            if distinct:
                sums.advance(sweep, members[column].distinct.feed, members[column].values)
            elif weights is None:
                sums.advance(sweep, feed, columns[column])
            else:
                sums._trim_sometimes()
                sums.sweep(sweep, feed, laid_out(sums, *weights.lanes[column]))
        changes: dict[tuple[str, bool], AnswerSteps] = {}
        for key, stairs in self.stairs.items():
            assert arrivals is not None
            changes[key] = stairs.advance(arrivals, best_of(columns, *key), position, frontier)
        return rows, self._lower(sweep, rows, members, changes)

    def add(self, slots: Int64s, columns: Mapping[str, pa.Array]) -> None:
        """Count rows in for their groups, where all is sums of all rows; `totals` has the answers."""
        count_in(self.rows, slots)
        for (column, _), sums in self.sums.items():
            sums.add(columns[column], slots)

    def totals(self, slots: Int64s) -> tuple[Int64s, list[PointValues]]:
        """Rows and answers of groups whose rows were added."""
        rows = self.rows[slots]
        lowerings = {k: Lowering(s.store.take(slots, axis=0), s.layout, s.type, rows) for k, s in self.sums.items()}
        answers = [
            scalars(rows, None, c.type) if c.column is None else lowerings[c.column, c.distinct].answer(c)
            for c in self.calls
        ]
        return rows, answers

    def carry(self, slots: Int64s) -> None:
        """Bring the sums of groups to which rows were added to their only form."""
        for sums in self.sums.values():
            sums.carry(slots)

    def glide(
        self, arrivals: GroupedArrivals, columns: Mapping[str, pa.Array], frontier: int, begin: int | None
    ) -> tuple[Sweep, Int64s, list[PointValues]]:
        """The same where only staircases are kept: points are where one changes, and `begin` for the first group."""
        position = self._position(arrivals.slots)
        ones = pa.array(np.zeros(max((len(c) for c in columns.values()), default=len(arrivals.rows)), np.int8))
        given = {**columns, _ROWS: ones}
        changes = {key: s.advance(arrivals, best_of(given, *key), position, frontier) for key, s in self.stairs.items()}
        none = np.zeros(0, np.int64)
        group = [none if begin is None else np.zeros(1, np.int64)]
        time = [none if begin is None else np.array([begin])]
        for change in changes.values():
            later = np.ones(len(change.times), np.bool_)
            later[change.firsts[:-1]] = False
            group.append(np.repeat(np.arange(len(arrivals.slots)), np.diff(change.firsts))[later])
            time.append(change.times[later])
        sweep = sweep_at(arrivals.slots, np.concatenate(group), np.concatenate(time))
        alive = shown(changes[_ROWS, False], sweep, pa.int8())
        rows = np.ones(len(sweep.times), np.int64) if alive.valid is None else alive.valid.astype(np.int64)
        self.rows[sweep.slots] = rows[sweep.last]
        return sweep, rows, self._lower(sweep, rows, {}, changes)

    def due(self, frontier: int) -> Int64s:
        """Slots of groups in which a staircase changes by `frontier`."""
        found = [s.due(frontier) for s in self.stairs.values()]
        return distinct_values(np.concatenate(found)) if found else np.zeros(0, np.int64)

    # -- lowering ----------------------------------------------------------------------------------------------------

    def _lower(
        self,
        sweep: Sweep,
        rows: Int64s,
        members: Mapping[str, Members],
        changes: Mapping[tuple[str, bool], AnswerSteps],
    ) -> list[PointValues]:
        lowered = self._ranked(sweep, members)
        lowerings: dict[tuple[str, bool], Lowering] = {}
        answers = []
        for at, call in enumerate(self.calls):
            if at in lowered:
                answers.append(lowered[at])
            elif call.column is None:
                answers.append(scalars(rows, None, call.type))
            elif call.kind in EXTREMES:
                answers.append(shown(changes[call.column, call.kind == "min"], sweep, call.type))
            elif call.kind == "top_k":
                answers.append(frequent(call, sweep, _members(call, members)))
            else:
                key = (call.column, call.distinct)
                if key not in lowerings:
                    sums = self.sums[key]
                    count = _distinct_rows(members[call.column], sweep) if call.distinct else rows
                    lowerings[key] = Lowering(sums.points, sums.layout, sums.type, count)
                answers.append(lowerings[key].answer(call))
        return answers

    def _ranked(self, sweep: Sweep, members: Mapping[str, Members]) -> dict[int, PointValues]:
        """Order statistics, all calls over the same members in one sweep."""
        together: dict[tuple[str, bool], list[int]] = {}
        for at, call in enumerate(self.calls):
            if call.kind in RANKED or (call.kind in EXTREMES and self.strict):
                together.setdefault((str(call.column), call.collapses), []).append(at)
        answers: dict[int, PointValues] = {}
        for places in together.values():
            calls = [self.calls[at] for at in places]
            answers.update(zip(places, ranked(calls, sweep, _members(calls[0], members)), strict=True))
        return answers

    # -- state -------------------------------------------------------------------------------------------------------

    def forget(self, slots: Int64s) -> None:
        """Drop groups that have died."""
        self.rows[slots] = 0
        for sums in self.sums.values():
            sums.clear(slots)

    def keep(self, slots: Int64s) -> None:
        """Number groups anew: those in `slots` become 0, 1, ..., and the others are dropped; where all is sums."""
        self.rows = self.rows[slots]
        for sums in self.sums.values():
            sums.store = sums.store.take(slots, axis=0)

    def group_columns(self, slots: Int64s) -> dict[str, pa.Array]:
        """Per-group partials as columns of the table of groups."""
        columns = {"_rows": pa.array(self.rows[slots])}
        for (column, distinct), sums in self.sums.items():
            for k, name in enumerate(sums.layout.names()):
                columns[f"{'distinct' if distinct else 'all'}|{name}|{column}"] = pa.array(sums.store[slots, k])
        return columns

    def restore_groups(self, slots: Int64s, table: pa.Table) -> None:
        """Take per-group partials back from the table of groups."""
        capacity = int(slots.max()) + 1 if len(slots) else 0
        self.rows = np.zeros(capacity, np.int64)
        self.rows[slots] = ints(table, "_rows")
        for (column, distinct), sums in self.sums.items():
            mark = "distinct" if distinct else "all"
            parts = [n.split("|", 2) for n in table.column_names if n.startswith(f"{mark}|")]
            names = [name for _, name, of in parts if of == column]
            sums.layout = SumLanes.of_names(names)
            sums.store = np.zeros((capacity, sums.layout.width), np.int64)
            for k, name in enumerate(sums.layout.names()):
                sums.store[slots, k] = ints(table, f"{mark}|{name}|{column}")

    def value_runs(self) -> dict[str, Run]:
        """Multiplicities and staircases as runs."""
        runs: dict[str, Run] = {}
        for column, v in self.values.items():
            runs |= v.runs(column)
        for (column, least), s in self.stairs.items():
            name = f"{'least' if least else 'greatest'} {column}"
            runs[name] = Run(pa.table({"slot": pa.array(s.slot), "exp": pa.array(s.exp), "value": s.value}))
        return runs

    def restore_values(self, runs: Mapping[str, Run]) -> None:
        """Take multiplicities and staircases back."""
        for column, v in self.values.items():
            v.restore_runs(column, runs)
        for (column, least), s in self.stairs.items():
            table = runs[f"{'least' if least else 'greatest'} {column}"].table
            s.restore(ints(table, "slot"), ints(table, "exp"), one(table.column("value")))


def check_rows(rows: Int64s) -> None:
    """Refuse groups with more rows than lanes have room for."""
    if len(rows) and rows.max() >= LIMIT:
        raise RuntimeFailure(
            "too many join results in one group",
            detail=f"{int(rows.max())} rows are joined at once",
            hint="make a window shorter, or group by more columns",
        )


def _members(call: Aggregation, members: Mapping[str, Members]) -> Members:
    found = members[str(call.column)]
    return found.distinct if call.collapses else found


def _distinct_rows(members: Members, sweep: Sweep) -> Int64s:
    """How many distinct values each point has."""
    feed = members.distinct.feed
    total = np.concatenate(([0], np.cumsum(feed.deltas)))
    before = np.concatenate(([0], np.cumsum(members.before > 0)))
    held = before[members.firsts[1:]] - before[members.firsts[:-1]]
    return total[feed.ends] + (held - total[feed.ends[sweep.firsts[:-1]]])[sweep.group]
