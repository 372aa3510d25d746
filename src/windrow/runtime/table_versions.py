"""Versions of a table, each in force from an instant on: rows meet the version of their own time.

    version      v1 ────────────┐ v2 ─────┐ v3 ──────►
    instants     ... 4  5  6  7  8  9  10  11          v2 came when the greatest time seen was 7, v3 when it was 10

An update is in force from the first instant that no row has reached yet: behind everything that has been answered, or
has come on any stream. So whether a row waits to be answered, shares its work or is out of order, it meets the version
that all others of its instant meet. What was in force before is kept until no row of its instants can come.

A version is a chain of runs: a whole table, or one and what has changed since (`sources/numbered_rows`). The chain of
the next version goes on from it, so that whoever has seen one is shown the runs behind it. Runs that no version ends
with are merged with others of like size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from windrow.operators.changes import cancel
from windrow.operators.elements import BEGINNING, INF, Elements, concat, one
from windrow.operators.state.run import ints
from windrow.plan.nodes import TableScan
from windrow.sources.numbered_rows import SIGN, to_merge, whole
from windrow.store.manifest import SlotKey
from windrow.store.runs import RunPlace, RunRef

TABLES = "tables"
"""The stage under which a manifest names the versions of each table."""

Chain = tuple[RunRef, ...]


class TableVersion(NamedTuple):
    """What a table holds from an instant on: its runs, of which the last one is its own."""

    refs: Chain
    at: int

    @property
    def uid(self) -> str:
        return self.refs[-1].uid


Versions = tuple[TableVersion, ...]
"""Of one table, in order of their instants; the first is also in force before its own."""


def updated(versions: Versions, refs: Chain, reached: int) -> Versions:
    """With one more, in force behind the instant that has been reached; one that was not yet in force gives way.

    >>> a, b, c = ((RunRef(u, "", 0, 0, 0),) for u in "abc")
    >>> [(v.uid, v.at) for v in updated(updated(updated((), a, 5), b, 7), c, 7)]
    [('a', -9223372036854775808), ('c', 8)]
    """
    at = BEGINNING if reached == BEGINNING or not versions else reached + 1
    return (*(v for v in versions if v.at < at), TableVersion(refs, at))


def in_force(versions: Versions, instant: int) -> TableVersion:
    """The version at an instant."""
    return next((v for v in reversed(versions) if v.at <= instant), versions[0])


def needed(tables: Mapping[str, Versions], frontier: int) -> dict[str, Versions]:
    """The versions of tables that rows behind the frontier can meet, and those that who has got there has seen."""
    return {name: v[v.index(in_force(v, frontier)) :] for name, v in tables.items()}


def table_slots(tables: Mapping[str, Versions]) -> dict[SlotKey, tuple[RunRef, ...]]:
    """The files of versions, as a manifest names them."""
    return {(TABLES, i, "", name): v.refs for name, versions in tables.items() for i, v in enumerate(versions)}


def instants(tables: Mapping[str, Versions]) -> dict[str, tuple[int, ...]]:
    """From when the versions are in force."""
    return {name: tuple(v.at for v in versions) for name, versions in tables.items()}


def table_columns(node: TableScan, table: pa.Table) -> dict[str, pa.Array]:
    """The columns that a scan wants of a version; one that is younger than the version is null."""
    known = set(table.column_names)
    return {
        internal: one(table.column(name)) if name in known else pa.nulls(table.num_rows, type_)
        for internal, name, type_ in node.columns
    }


def cuts(tables: Iterable[Versions], low: int, high: int) -> list[int]:
    """The last instants in `[low, high)` before a version comes in force: rows up to there go before it."""
    return sorted({v.at - 1 for versions in tables for v in versions if low < v.at - 1 < high})


def coming(versions: Versions, seen: str, low: int, high: int) -> Sequence[TableVersion]:
    """What comes in force in `(low, high]` for who has seen a version, each from its instant on."""
    found = [in_force(versions, low), *(v for v in versions if low < v.at <= high)]
    new = [v for i, v in enumerate(found) if v.uid != (found[i - 1].uid if i else seen)]
    return [TableVersion(v.refs, max(v.at, low + 1)) for v in new]


def behind(seen: Chain, chain: Chain) -> Chain | None:
    """The runs of a chain behind a version that has been seen; None: it does not go on from that one."""
    places = [i for i, ref in enumerate(chain) if ref.uid == seen[-1].uid]
    return chain[places[0] + 1 :] if places else None


def shortened(versions: Versions, merge: Callable[[Chain], RunRef]) -> Versions:
    """Versions with runs of like size merged, of those that none of them ends with."""
    first = versions[0].refs[:-1]
    count = to_merge([r.rows for r in first])
    if count == 1 or any(v.refs[: len(first)] != first for v in versions):
        return versions
    prefix = (*first[:-count], merge(first[-count:]))
    return tuple(TableVersion((*prefix, *v.refs[len(first) :]), v.at) for v in versions)


def table_changes(
    store: RunPlace, node: TableScan, versions: Versions, seen: Chain | None, low: int, high: int
) -> Elements:
    """A table's rows for who has seen none of them; later, what other versions change, each from its instant on."""
    parts = [Elements.empty(node.schema)]
    if seen is None:
        seen = in_force(versions, low + 1).refs
        parts = [_rows(store, node, seen, BEGINNING)]  # always there: history given to a new query meets them
    for now in coming(versions, seen[-1].uid, low, high):
        new = behind(seen, now.refs)
        if new is None:
            changed = [_rows(store, node, seen, now.at).negated(), _rows(store, node, now.refs, now.at)]
        else:
            changed = [_changes(store, node, ref, now.at) for ref in new]
        parts.append(cancel(concat(changed)))
        seen = now.refs
    return parts[0] if len(parts) == 1 else concat(parts)


def _changes(store: RunPlace, node: TableScan, run: RunRef, at: int) -> Elements:
    """What a run behind others changes in a table."""
    table = store.read(run).table
    rows = Elements.positive(np.full(table.num_rows, at), INF, table_columns(node, table))
    return replace(rows, sign=ints(table, SIGN))


def _rows(store: RunPlace, node: TableScan, version: Chain, at: int) -> Elements:
    table = whole([store.read(ref).table for ref in version])
    return Elements.positive(np.full(table.num_rows, at), INF, table_columns(node, table))
