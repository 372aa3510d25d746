"""Reading a stream's history: the columns, the stretch of time and the predicates that a scan wants, and little else.

A scan asks for rows of the last `size` ticks for which its predicates may hold. Runs outside that time are not looked
at, of the others only the blocks that their zones admit (`pruning`), of those the times first and the columns where
rows are left. What comes back may have rows that the predicates refuse, never too few: the plan's own filters decide.

`HistoryFigures` counts runs, blocks and bytes: what was read, and what is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.order import encode
from windrow.operators.elements import BEGINNING, INF, Elements, Int64s, concat, one
from windrow.operators.history import TS
from windrow.operators.state.run import Run, times
from windrow.operators.state.zones import Code, zones_of
from windrow.plan.expr import Expr
from windrow.plan.nodes import Filter, Node, Scan, TableScan, Window, walk
from windrow.runtime import pruning
from windrow.runtime.table_versions import table_columns
from windrow.sharing.conditions import Condition
from windrow.store.sealed import STATE, as_written


@dataclass
class HistoryFigures:
    """How much was read, of how much."""

    runs: int = 0
    of_runs: int = 0
    blocks: int = 0
    rows: int = 0
    bytes: int = 0
    of_bytes: int = 0

    def add(self, other: HistoryFigures) -> None:
        """Count what another has read."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


Test = tuple[str, pruning.Spans]
"""A column, by its internal name, and where its codes must lie."""


@dataclass(frozen=True)
class ScanWish:
    """What a scan wants of its stream's history; `size`: of the window on it, in ticks of its clock."""

    scan: Scan
    size: int
    conditions: tuple[Condition, ...] = ()
    names: dict[str, str] = field(default_factory=dict)  # internal name -> the run's column
    tests: tuple[Test, ...] = ()  # of columns of numbers, all of which must hold
    decided: frozenset[Expr] = frozenset()  # predicates that say no more than the tests

    @property
    def stream(self) -> str:
        return self.scan.stream.lower()

    @property
    def empty(self) -> Elements:
        """No rows."""
        return Elements.empty(self.scan.schema)


def wishes(root: Node) -> dict[Scan, ScanWish]:
    """What each windowed scan of a plan wants: the predicates next to it, below and above its window."""
    found: dict[Scan, ScanWish] = {}
    above: dict[int, Node] = {id(child): node for node in walk(root) for child in node.inputs}
    for scan in (node for node in walk(root) if isinstance(node, Scan)):
        predicates, size, node = [], None, above.get(id(scan))
        while isinstance(node, Filter | Window):
            if isinstance(node, Filter):
                predicates.append(node.predicate)
            elif size is None:
                size = node.spec.longest
            node = above.get(id(node))
        if size is not None:
            names = {internal: f"{scan.stream.lower()}.{column}" for internal, column, _ in scan.columns}
            conditions = pruning.conditions_of(predicates)
            tests = pruning.tests_of(conditions, scan.schema)
            judged = zip(predicates, conditions, strict=True)
            decided = frozenset(p for p, c in judged if pruning.is_tested(c, scan.schema))
            found[scan] = ScanWish(scan, size, conditions, names, tests, decided)
    return found


def span_of(run: Run) -> tuple[int, int]:
    """The first and last time in a run."""
    zones = zones_of(run)
    if zones is not None:
        return zones.spans[TS].ends
    with as_written(STATE, "of a stream's history"):
        ts = times(run.table, TS)
    return int(ts.min()), int(ts.max())


def youngest_first(runs: Sequence[Run]) -> list[Run]:
    """Runs in the order in which their sub-windows will be overwritten last (algorithm 8)."""
    return sorted((r for r in runs if r.table.num_rows), key=lambda r: span_of(r)[::-1], reverse=True)


def to_read(run: Run, wish: ScanWish, frontier: int) -> int:
    """About how many bytes of a run a scan will read, as its zones tell."""
    first, last = span_of(run)
    if last <= frontier - wish.size or first > frontier:
        return 0
    zones, columns = zones_of(run), (len(wish.names) + 1) / run.table.num_columns
    share = 1.0 if zones is None else float(pruning.blocks(wish.conditions, zones, wish.names).mean())
    return int(size_of(run) * columns * share)


def size_of(run: Run) -> int:
    """The bytes of a run."""
    zones = zones_of(run)
    return run.nbytes if zones is None else zones.of_bytes


def table_rows(node: TableScan, table: pa.Table) -> Elements:
    """The rows of a table: they have always been there."""
    return Elements.positive(np.full(table.num_rows, BEGINNING), INF, table_columns(node, table))


def rows_of(run: Run, wish: ScanWish, frontier: int, figures: HistoryFigures) -> Elements:
    """The rows of a run that a scan may want at the frontier."""
    figures.of_runs += 1
    figures.of_bytes += size_of(run)
    first, last = span_of(run)
    oldest = frontier - wish.size  # rows after this are in the window
    if last <= oldest or first > frontier:
        return wish.empty
    figures.runs += 1
    stretches, narrowed = _stretches(run, wish, figures)
    parts = [_stretch(run.table, b, e, oldest, frontier, wish, narrowed, figures) for b, e in stretches]
    return parts[0] if len(parts) == 1 else concat([wish.empty, *parts])


def _stretches(run: Run, wish: ScanWish, figures: HistoryFigures) -> tuple[list[tuple[int, int]], Test | None]:
    """The stretches of rows that the run's zones admit, and the test that all of their rows pass, if it was made."""
    zones = zones_of(run)
    if zones is None:
        return [(0, run.table.num_rows)], None
    figures.bytes += zones.size
    chosen = np.flatnonzero(pruning.blocks(wish.conditions, zones, wish.names))
    figures.blocks += len(chosen)
    if not len(chosen):
        return [], None
    breaks = np.flatnonzero(np.diff(chosen) > 1) + 1
    found = [(int(zones.begins[p[0]]), int(zones.begins[p[-1] + 1])) for p in np.split(chosen, breaks)]
    test = next((t for t in wish.tests if wish.names[t[0]] == zones.sorted_by and len(t[1]) == 1), None)
    if test is None:
        return found, None
    column = run.table.column(wish.names[test[0]])
    return [n for b, e in found if (n := _narrowed(column, b, e, test[1][0], figures)) is not None], test


def _narrowed(
    column: pa.ChunkedArray, begin: int, end: int, span: tuple[Code | None, Code | None],
    figures: HistoryFigures,
) -> tuple[int, int] | None:  # fmt: skip
    """The rows of a stretch whose value lies in a span, of the column that they are in the order of."""
    part = one(column.slice(begin, end - begin))
    (codes,), _ = encode([part])
    codes = codes[: len(part) - part.null_count]  # nulls are last
    low, high = span
    first = 0 if low is None else int(np.searchsorted(codes, int(low)))
    last = len(codes) if high is None else int(np.searchsorted(codes, int(high)))
    figures.bytes += 2 * 64 * len(codes).bit_length()
    return (begin + first, begin + last) if first < last else None


def _stretch(
    table: pa.Table, begin: int, end: int, oldest: int, frontier: int, wish: ScanWish, passed: Test | None,
    figures: HistoryFigures,
) -> Elements:  # fmt: skip
    """The rows of a stretch that are in the window: times first, then the columns, if any is left."""

    def column_of(name: str) -> pa.Array:
        with as_written(STATE, "of a stream's history"):
            return one(table.column(name).slice(begin, end - begin))

    ts: Int64s = column_of(TS).to_numpy(zero_copy_only=False)
    figures.bytes += ts.nbytes
    inside = (ts > oldest) & (ts <= frontier)
    tested: set[str] = set()
    for internal, spans in (t for t in wish.tests if t is not passed):
        if not inside.any():
            return wish.empty
        values = column_of(wish.names[internal])
        figures.bytes += 0 if internal in tested else values.nbytes
        tested.add(internal)
        inside &= pruning.holds(values, spans)
    if not inside.any():
        return wish.empty
    columns = {}
    picks = None if inside.all() else pa.array(inside)
    for internal, column in wish.names.items():
        values = column_of(column)
        figures.bytes += 0 if internal in tested else values.nbytes
        columns[internal] = values if picks is None else values.filter(picks)
    found: Int64s = ts[inside]
    figures.rows += len(found)
    return Elements.positive(found, INF, columns)
