"""The state of an operator over another number of partitions: its tables cut by where their rows lie from now on.

    old partitions   [ state 0 ][ state 1 ]          each a few named tables (slots)
                        |  \\      /  |
    new partitions   [ state 0 ][ state 1 ][ state 2 ]

Slots are of three kinds. Rows carry the columns by which they lie. Numbered rows refer to groups, sessions or entries
by a number; they go where those go, and are numbered anew. The rest (clocks, chosen plans) is the same everywhere.

Law: what the states of all partitions hold together stays the same bag, each key is in one place, rows of one key keep
their order, and rows that were copied (on a grid, or of a heavy key) count once before they are copied anew.
Cost: one reading and one writing of what moves; what stays whole is not touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from windrow.errors import StateError
from windrow.operators.aggregate_join import AggregateDeltas
from windrow.operators.aggregates.counts import SLOT
from windrow.operators.aggregates.reduced import is_reduced
from windrow.operators.aggregates.sums import SumLanes
from windrow.operators.asof import AsofOperator
from windrow.operators.bag import BagOperator
from windrow.operators.elements import INF, Elements, Int64s, concat_arrays, one
from windrow.operators.history import EXP, MOST, SEQ, TS, HistoryOperator
from windrow.operators.join import JoinOperator
from windrow.operators.open_sessions import SESSION
from windrow.operators.protocol import Operator, State
from windrow.operators.query_aggregate import CELL, QueryAggregate
from windrow.operators.recall_join import RecallJoin
from windrow.operators.state.run import Run, ints
from windrow.runtime.exchange import is_heavy, partition_of
from windrow.runtime.grid import GridPlacement
from windrow.runtime.placement import How, Partitioning

SINGLE = frozenset({"clock", "plan", "figures", "sets"})
"""Slots that hold the same in every partition."""

EARLY = "early"
"""The slot of what waits for a clock to start: the clock, then rows."""

NUMBERS = ("_slot", SLOT, SESSION, "_entry", "_group")
"""Columns by which rows refer to a group, a session or an entry."""

_LANE = re.compile(r"^((?:all|distinct)\|)?([sq]\d+)\|(.+)$", re.DOTALL)

Picked = tuple[Run, Int64s]
"""Some rows of a run."""


@dataclass(frozen=True)
class Repartitioning:
    """How rows lay over `old` partitions, and lie over `new` ones; `heavy`: hashes of keys that lay apart.

    `adds_up`: they are sums, which may lie anywhere, if they have lost the columns by which the rows lay.
    """

    partitioning: Partitioning
    old: int
    new: int
    heavy: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    adds_up: bool = False

    def parts(self, table: pa.Table, here: int) -> list[Int64s]:
        """For each new partition, the rows of a table of the old partition `here` that lie there."""
        rows = np.arange(table.num_rows)
        match self.partitioning.how:
            case How.EVERYWHERE | How.ONE as how:
                whole = rows if here == 0 else rows[:0]
                return [whole if p == 0 or how is How.EVERYWHERE else rows[:0] for p in range(self.new)]
            case How.ANY:
                return [rows[rows % self.new == p] for p in range(self.new)]
            case How.GRID:
                keep, cells = self._on_grid(table, here)
            case _:
                keep, cells = self._by_columns(table, here)
        return [keep[(cells == p).any(axis=1)] for p in range(self.new)]

    def _by_columns(self, table: pa.Table, here: int) -> tuple[Int64s, Int64s]:
        """The rows that are not copies of what lies in another partition, and their new partitions."""
        partitioning = self.partitioning
        if self.adds_up and not all(_has(table, c) for c in partitioning.columns):
            rows = np.arange(table.num_rows)
            return rows, (rows % self.new)[:, None]
        found = _elements_of(table, partitioning.columns)
        keep, split = np.arange(len(found)), partitioning.split
        if split is not None and len(self.heavy) and not split.grid.first_copies(self.old, here):
            keep = np.flatnonzero(~is_heavy(found, partitioning, self.heavy))
        return keep, partition_of(found.take(keep), partitioning, self.new)

    def _on_grid(self, table: pa.Table, here: int) -> tuple[Int64s, Int64s]:
        grid = self.partitioning.grid
        assert grid is not None
        if not grid.first_copies(self.old, here):
            return np.zeros(0, np.int64), np.zeros((0, 1), np.int64)
        axes = grid.axes
        if self.adds_up:
            axes = tuple(tuple(c for c in axis if _has(table, c)) or (("",) if axis else ()) for axis in axes)
            table = table.append_column("", pa.array(np.zeros(table.num_rows, np.int64)))
        rows = _elements_of(table, [c for axis in axes for c in axis])
        return np.arange(len(rows)), GridPlacement(axes, grid.inputs).cells(rows, self.new)


def _elements_of(table: pa.Table, columns: Sequence[str]) -> Elements:
    """The columns of a table by which its rows lie."""
    return Elements.positive(np.zeros(table.num_rows, np.int64), INF, {c: _column(table, c) for c in columns})


def _has(table: pa.Table, column: str) -> bool:
    return column in table.column_names or f"key|{column}" in table.column_names


class NotMovedError(StateError):
    """State that does not say where it belongs."""


def _column(table: pa.Table, column: str) -> pa.Array:
    if not _has(table, column):
        raise NotMovedError(f"it lies by the column {column}, which it does not have")
    return one(table.column(column if column in table.column_names else f"key|{column}"))


def moved(
    operator: Operator, states: Sequence[State], frontier: int, spread: Callable[[int], Repartitioning]
) -> list[State]:
    """The state of an operator in each new partition; `spread`: how the rows of each of its inputs lie."""
    new = spread(0).new
    if isinstance(operator, HistoryOperator):
        return _history(operator, states, frontier, new)
    states = [{slot: _unspent(slot, runs, frontier) for slot, runs in state.items()} for state in states]
    if isinstance(operator, QueryAggregate):
        states = _with_the_same_cells(states)
    found: list[dict[str, tuple[Run, ...]]] = [{} for _ in range(new)]
    first = next(s for s in states if s)
    numbered = _numbering(operator, first)
    if numbered is not None:
        core = [{slot: runs for slot, runs in state.items() if slot != EARLY} for state in states]
        _put(found, _renumbered(core, numbered, spread(0)))
        states = [{slot: runs for slot, runs in state.items() if slot == EARLY} for state in states]
    for slot in dict.fromkeys(s for state in states for s in state):
        runs = [state.get(slot, ()) for state in states]
        lies = spread(_port(operator, slot))
        if slot in SINGLE or slot.startswith("table "):
            _put(found, [{slot: first[slot]}] * new)
        elif slot == EARLY:
            rows = moved_rows([r[1:] for r in runs], lies)
            _put(found, [{slot: (*first[slot][:1], *part)} for part in rows])
        elif slot.startswith("set "):
            pairs: list[State] = [{"entries": r[:1], "ends": r[1:]} if r else {} for r in runs]
            both = _renumbered(pairs, ("entries", ""), replace(lies, adds_up=True))
            _put(found, [{slot: (*part["entries"], *part["ends"])} for part in both])
        else:
            _put(found, [{slot: part} for part in moved_rows(runs, lies, "_exp" if slot == "pending" else None)])
    return list(found)


def _unspent(slot: str, runs: tuple[Run, ...], frontier: int) -> tuple[Run, ...]:
    """Runs without the ends that have come: those of groups that are gone have numbers that others have by now."""
    if slot != "pending":
        return runs
    waiting = [(run, ints(run.table, "_exp") > frontier) for run in runs]
    return tuple(run if mask.all() else Run(run.table.filter(pa.array(mask))) for run, mask in waiting)


def _put(found: Sequence[dict[str, tuple[Run, ...]]], more: Sequence[State]) -> None:
    for mine, part in zip(found, more, strict=True):
        mine.update(part)


def _port(operator: Operator, slot: str) -> int:
    """The input whose rows a slot holds."""
    match operator:
        case JoinOperator():
            return int(slot.partition(":")[0])
        case AggregateDeltas() if slot.startswith("set "):
            return int(slot.removeprefix("set "))
        case RecallJoin():
            return operator.port(slot)
        case AsofOperator():
            return 1 if slot == "held" else 0
    return 0


def moved_rows(
    runs: Sequence[tuple[Run, ...]], lies: Repartitioning, order: str | None = None
) -> list[tuple[Run, ...]]:
    """The rows of one slot as one run for each new partition, in `order` if there is one; none where there was none."""
    if not any(runs):
        return [()] * lies.new
    if lies.partitioning.how is How.ANY:
        parts = _anywhere(runs, lies.new)
    else:
        cut = [(run, lies.parts(run.table, q)) for q, mine in enumerate(runs) for run in mine]
        parts = [[(run, picks[p]) for run, picks in cut] for p in range(lies.new)]
    return [(together(part, order),) for part in parts]


def _anywhere(runs: Sequence[tuple[Run, ...]], new: int) -> list[list[Picked]]:
    """Rows one by one to all partitions, those that came together side by side."""
    of = [(run, q) for q, mine in enumerate(runs) for run in mine]
    before = dict.fromkeys(range(len(runs)), 0)
    place, where = [], []
    for run, q in of:
        place.append(before[q] + np.arange(run.table.num_rows))
        where.append(np.full(run.table.num_rows, q))
        before[q] += run.table.num_rows
    order = np.lexsort((np.concatenate(where), np.concatenate(place)))
    to = np.empty(len(order), np.int64)
    to[order] = np.arange(len(order)) % new
    ends = np.cumsum([run.table.num_rows for run, _ in of])
    cut = [to[end - run.table.num_rows : end] for (run, _), end in zip(of, ends.tolist(), strict=True)]
    return [[(run, np.flatnonzero(t == p)) for (run, _), t in zip(of, cut, strict=True)] for p in range(new)]


def together(parts: Sequence[Picked], order: str | None = None) -> Run:
    """Some rows of runs as one run, with the columns of all; a run that is all there is stays itself."""
    some = [(run, picks) for run, picks in parts if len(picks)] or parts[:1]
    types = _types([run.table for run, _ in parts])
    whole = some[0][0]
    if len(some) == 1 and len(some[0][1]) == whole.table.num_rows and types.keys() == set(whole.table.column_names):
        return whole
    tables = [run.table.take(pa.array(picks)) for run, picks in some]
    columns = {n: concat_arrays([_lane_or_zeros(t, n) for t in tables]) for n in types}
    table = pa.table(columns).replace_schema_metadata(whole.table.schema.metadata)
    return Run(table if order is None else table.take(pa.array(np.argsort(ints(table, order), kind="stable"))))


def _types(tables: Sequence[pa.Table]) -> dict[str, pa.DataType]:
    """The columns of tables that differ in lanes, with the lanes that lie between those of two."""
    types = {f.name: f.type for t in tables for f in t.schema}
    lanes: dict[tuple[str, str], list[str]] = {}
    for name in types:
        found = _LANE.match(name)
        if found is not None:
            lanes.setdefault((found[1] or "", found[3]), []).append(found[2])
    for (mark, column), known in lanes.items():
        types |= {f"{mark}{n}|{column}": pa.int64() for n in SumLanes.of_names(known).names()}
    return types


def _lane_or_zeros(table: pa.Table, name: str) -> pa.Array:
    """A column; a lane that a table lacks is zero there."""
    if name in table.column_names:
        return one(table.column(name))
    return pa.array(np.zeros(table.num_rows, np.int64))


# -- rows with numbers -------------------------------------------------------------------------------------------------


def _numbering(operator: Operator, state: State) -> tuple[str, str] | None:
    """The slot whose rows have numbers that others refer to, and the column of the numbers; "": their places."""
    if isinstance(operator, BagOperator):
        return "rows", ""
    for slot in ("groups", "open"):
        names = state[slot][0].table.column_names if state.get(slot) else ()
        column = next((n for n in NUMBERS if n in names), None)
        if column is not None and (slot == "groups" or column == SESSION):
            return slot, column
    return None


def _renumbered(states: Sequence[State], numbered: tuple[str, str], lies: Repartitioning) -> list[State]:
    """What is numbered where it lies now, with new numbers in the order of the old ones, and what refers to it."""
    owner, column = numbered
    cuts = [_cut(state[owner][0], column, partial(lies.parts, here=q)) for q, state in enumerate(states) if state]
    states = [state for state in states if state]
    return [_one_part(states, numbered, [(numbers, cut[p]) for numbers, cut in cuts]) for p in range(lies.new)]


def _cut(run: Run, column: str, parts: Callable[[pa.Table], list[Int64s]]) -> tuple[Int64s, list[Int64s]]:
    """The numbers of rows, and for each new partition its rows in the order of their numbers."""
    table = run.table
    numbers = ints(table, column) if column else np.arange(table.num_rows)
    return numbers, [mine[np.argsort(numbers[mine], kind="stable")] for mine in parts(table)]


def _one_part(states: Sequence[State], numbered: tuple[str, str], cuts: Sequence[tuple[Int64s, Int64s]]) -> State:
    """The state of one new partition, of the rows that each old one gives it."""
    owner, column = numbered
    found: dict[str, list[list[Run]]] = {}
    before = 0
    for state, (numbers, mine) in zip(states, cuts, strict=True):
        renamed = np.full(int(numbers.max(initial=-1)) + 1, -1, np.int64)
        renamed[numbers[mine]] = before + np.arange(len(mine))
        before += len(mine)
        for slot, runs in state.items():
            parts = found.setdefault(slot, [])
            if slot == owner:
                picked = runs[0].table.take(pa.array(mine))
                parts.append([Run(_with_numbers(picked, column, renamed[numbers[mine]]) if column else picked)])
            elif slot in SINGLE:
                parts.append(list(runs))
            else:
                parts.append([_referring(run, renamed) for run in runs])
    return {slot: _put_together(slot, parts) for slot, parts in found.items()}


def _referring(run: Run, renamed: Int64s) -> Run:
    """The rows of a run whose group is here, with its new number."""
    column = next(n for n in NUMBERS if n in run.table.column_names)
    now = renamed[ints(run.table, column)]
    keep = np.flatnonzero(now >= 0)
    return Run(_with_numbers(run.table.take(pa.array(keep)), column, now[keep]))


def _with_numbers(table: pa.Table, column: str, numbers: Int64s) -> pa.Table:
    at = table.column_names.index(column)
    return table.set_column(at, column, pa.array(numbers, table.schema.field(column).type))


def _put_together(slot: str, parts: Sequence[list[Run]]) -> tuple[Run, ...]:
    if slot in SINGLE:
        return tuple(parts[0])
    runs = [run for mine in parts for run in mine]
    if slot == "queue" or slot.startswith("open "):  # each with the others of its number
        return tuple(runs)
    kinds = [[run for run in runs if is_reduced(run.table.column_names) == kind] for kind in (False, True)]
    whole = [[(run, np.arange(run.table.num_rows)) for run in kind] for kind in kinds if kind]
    return tuple(together(kind, "_exp" if slot == "pending" else None) for kind in whole)


def _with_the_same_cells(states: Sequence[State]) -> list[State]:
    """States in which a set of queries has the same number in every partition."""
    known: dict[bytes, int] = {}
    for table in [state["sets"][0].table for state in states if state]:
        for each in table.column("queries").to_pylist():
            known.setdefault(each, len(known))
    numbers = pa.array(list(known.values()), pa.int64())
    sets = Run(pa.table({"cell": numbers, "queries": pa.array(list(known), pa.binary())}))
    made: list[State] = []
    for state in states:
        renamed = dict[int, int]()
        for run in state.get("sets", ()):
            cells = zip(ints(run.table, "cell").tolist(), run.table.column("queries").to_pylist(), strict=True)
            renamed = {cell: known[each] for cell, each in cells}
        lookup = np.full(max(renamed, default=-1) + 1, -1, np.int64)
        lookup[list(renamed)] = list(renamed.values())
        mine = dict(state)
        for slot, column in (("cells", "_cell"), ("pending", CELL)):
            if slot in state:
                mine[slot] = tuple(Run(_looked_up(r.table, column, lookup)) for r in state[slot])
        made.append(mine | {"sets": (sets,)} if state else {})
    return made


def _looked_up(table: pa.Table, column: str, lookup: Int64s) -> pa.Table:
    return _with_numbers(table, column, lookup[ints(table, column)])


# -- histories ---------------------------------------------------------------------------------------------------------


def _history(operator: HistoryOperator, states: Sequence[State], frontier: int, new: int) -> list[State]:
    """The rows of a stream, one by one to all partitions in the order in which they came."""
    tables = []
    for q, state in enumerate(states):
        known = HistoryOperator(operator.key, operator.time)
        known.restore(state or {"rows": ()}, frontier)
        for run in known.state()["rows"]:
            table = run.table.replace_schema_metadata(None)
            tables.append((table, np.full(table.num_rows, q)))
    made = [HistoryOperator(operator.key, operator.time) for _ in range(new)]
    if tables:
        rows = pa.concat_tables([t for t, _ in tables]).combine_chunks()
        order = np.lexsort((np.concatenate([q for _, q in tables]), ints(rows, SEQ)))
        for p, mine in enumerate(made):
            for begin in range(p, len(order), MOST * new):
                picks = order[begin : begin + MOST * new : new]
                mine.advance([_elements(rows.take(pa.array(picks)))], frontier)
    return [mine.state() for mine in made]


def _elements(rows: pa.Table) -> Elements:
    columns = {n: one(rows.column(n)) for n in rows.column_names if n not in (TS, EXP, SEQ)}
    return Elements(ints(rows, TS), ints(rows, EXP), np.ones(rows.num_rows, np.int8), columns)
