"""A table that is told by what happens to it: changes in order of arrival, applied by key.

Each change becomes steps, and of every key the last step decides:

    flat       c, r, u ─► put the row           d ─► take the key away          t ─► take everything away
    envelope   c, r, u ─► take the key of `before` away, put `after`            d ─► take the key of `before` away

So a change that comes twice changes nothing the second time: a row that is there is replaced, one that is gone stays
gone. Law: applying changes in two parts, or the second part twice, gives what applying them all at once gives. A change
whose operation is not known, or that has no key, is malformed: it is reported, or else nothing is applied.

Cost: that of the changes. Keys are looked up in a directory (`operators/keytable`), and what a change takes away and
puts is a run behind those that are there (`numbered_rows`), merged with others of like size.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from windrow.catalog import TableDef
from windrow.catalog.change_columns import Path
from windrow.errors import SourceError
from windrow.operators.elements import one
from windrow.operators.keys import same_rows
from windrow.operators.keytable import KeyTable
from windrow.operators.state.run import ints
from windrow.sources.numbered_rows import NUMBER, SIGN, Int64s, merged, numbered, signed, to_merge, whole
from windrow.sources.protocol import MalformedRow, Report

PUT, TAKE, EMPTY, UNKNOWN = range(4)

OPERATIONS: Mapping[str, int] = {
    **dict.fromkeys(("c", "r", "u", "i", "create", "read", "update", "insert", "upsert", "+i", "+u"), PUT),
    **dict.fromkeys(("d", "delete", "-d", "-u"), TAKE),
    **dict.fromkeys(("t", "truncate"), EMPTY),
}
"""What an operation does, in lower case: the letters of Debezium, their long forms, SQL's words, Flink's row kinds."""

_WORDS = pa.array(list(OPERATIONS))
_KINDS = np.array([*OPERATIONS.values(), UNKNOWN])
_ENVELOPE = "where the row is within the change, as Debezium writes it, CHANGES BY op BEFORE before AFTER after; else "


class KeyedTable:
    """The rows of a table by key, as runs of numbered rows; `parts`: those that it holds, the oldest first."""

    def __init__(self, definition: TableDef, parts: Sequence[pa.Table]) -> None:
        self._definition = definition
        self._keys = KeyTable({k: definition.columns[k] for k in definition.keys})
        self._number = np.zeros(0, np.int64)  # by slot of the key: of the row that has it, or -1
        rows = numbered(parts[0]) if len(parts) == 1 else merged(parts)
        self.parts: tuple[pa.Table, ...] = (rows,)
        numbers = ints(rows, NUMBER)
        # no number comes twice, that of a row that has gone neither: its end is in the runs
        self._next = 1 + max((int(ints(numbered(p), NUMBER).max(initial=-1)) for p in parts), default=-1)
        self._number = np.full(rows.num_rows, -1, np.int64)
        self._number[self._slots(rows)] = numbers

    def change(self, changes: pa.Table, report: Report | None = None) -> TableChange | None:
        """What changes make of the table, which stays as it is until that is kept; None: it is the same after them.

        A malformed change is reported, or raised.
        """
        steps = _Steps(self._definition, changes, report)
        slots = self._slots(steps.images)
        touched, backwards = np.unique(slots[::-1], return_index=True)
        last = len(slots) - 1 - backwards  # of every key the last step
        put = ~steps.taken[last]
        if steps.emptied:
            gone = self._number[self._number >= 0]
        else:
            gone = self._number[touched][self._number[touched] >= 0]
        old = self._rows(gone)
        order = np.argsort(last[put])
        come, slots = steps.images.take(pa.array(last[put][order])), touched[put][order]
        kept = self._unchanged(old, gone, come, slots)
        if kept.any():
            stays = self._number[slots[kept]]
            old, gone = old.filter(pa.array(~np.isin(gone, stays))), gone[~np.isin(gone, stays)]
            come, slots = come.filter(pa.array(~kept)), slots[~kept]
        if not len(gone) and not come.num_rows:
            return None
        numbers = np.arange(self._next, self._next + come.num_rows)
        run = pa.concat_tables([signed(old, gone, -1), signed(come, numbers, 1)]).combine_chunks()
        return TableChange(self, run, gone, slots, numbers)

    def keep(self, run: pa.Table, gone: Int64s, slots: Int64s, numbers: Int64s) -> None:
        """Hold what a change has made."""
        if len(gone):
            ended = self._slots(run.slice(0, len(gone)))
            self._number[ended] = -1
        self._number[slots] = numbers
        self._next += len(numbers)
        parts = [*self.parts, run]
        count = to_merge([p.num_rows for p in parts])
        self.parts = (*parts[:-count], merged(parts[-count:])) if count > 1 else tuple(parts)

    def _slots(self, rows: pa.Table) -> Int64s:
        """The slots of the keys of some rows; new ones have no row yet."""
        slots = self._keys.slots({k: one(rows.column(k)) for k in self._definition.keys}, rows.num_rows)
        if len(self._keys) > len(self._number):
            more = np.full(max(len(self._keys), 2 * len(self._number)) - len(self._number), -1, np.int64)
            self._number = np.concatenate((self._number, more))
        return slots

    def _rows(self, numbers: Int64s) -> pa.Table:
        """The rows that have these numbers, in their order."""
        found, where = [], []
        for part in self.parts:
            here = np.flatnonzero(ints(part, SIGN) > 0)
            there = ints(part, NUMBER)[here]  # ascending: a row that comes later has a greater number
            at = np.minimum(np.searchsorted(there, numbers), max(len(there) - 1, 0))
            mine = np.flatnonzero(there[at] == numbers) if len(there) else np.zeros(0, np.int64)
            found.append(part.select(list(self._definition.columns)).take(pa.array(here[at[mine]])))
            where.append(mine)
        return pa.concat_tables(found).take(pa.array(np.argsort(np.concatenate(where))))

    def _unchanged(self, old: pa.Table, gone: Int64s, come: pa.Table, slots: Int64s) -> NDArray[np.bool_]:
        """Which rows that come are what is there already."""
        same = np.zeros(come.num_rows, np.bool_)
        at = np.flatnonzero(self._number[slots] >= 0)
        order = np.argsort(gone)
        place = order[np.searchsorted(gone, self._number[slots[at]], sorter=order)]
        before, after = old.take(pa.array(place)), come.take(pa.array(at))
        columns = list(self._definition.columns)
        same[at] = same_rows([one(before.column(c)) for c in columns], [one(after.column(c)) for c in columns], len(at))
        return same


@dataclass(frozen=True, eq=False)
class TableChange:
    """What changes make of a table: the rows that go and those that come, as a run behind its own."""

    table: KeyedTable
    run: pa.Table
    gone: Int64s
    slots: Int64s  # of the keys of rows that come
    numbers: Int64s

    def keep(self) -> None:
        """Let the table be so."""
        self.table.keep(self.run, self.gone, self.slots, self.numbers)


def changed(definition: TableDef, table: pa.Table, changes: pa.Table, report: Report | None = None) -> pa.Table:
    """What a table holds after changes; a malformed one is reported, or raised. Rows that are put come last."""
    keyed = KeyedTable(definition, [table])
    if (found := keyed.change(changes, report)) is not None:
        found.keep()
    return whole(keyed.parts)


def check_changes(definition: TableDef, changes: pa.Table) -> None:
    """Raise what is malformed."""
    _Steps(definition, changes, None)


class _Steps:
    """Changes as rows to put and rows whose keys are taken away, in order; `emptied`: nothing from before them stays.

    Shapes: one entry per change, until `images` and `taken`, which have one per step.
    """

    def __init__(self, definition: TableDef, changes: pa.Table, report: Report | None) -> None:
        assert definition.changes is not None
        self._definition, self._changes, self._report = definition, changes, report
        paths = definition.changes
        op = pc.utf8_lower(pc.utf8_trim_whitespace(_field(changes, paths.op)))
        kinds = _KINDS[pc.fill_null(pc.index_in(op, value_set=_WORDS), len(_WORDS)).to_numpy(zero_copy_only=False)]
        self._refuse(kinds == UNKNOWN, "unknown operation")
        if paths.after is None:
            images = changes.select(list(definition.columns))
            good = self._keyed(images, kinds < EMPTY, "no key")
            self._take_up([(images, good, kinds == TAKE)], kinds)
            return
        assert paths.before is not None
        before, after = self._image(paths.before), self._image(paths.after)
        put = self._keyed(after, kinds == PUT, "no key after the change")
        known = self._keyed(before, kinds == TAKE, "no key before the change") | (
            (kinds == PUT) & self._has_key(before)
        )
        always = np.ones(len(kinds), np.bool_)
        self._take_up([(before, known, always), (after, put, ~always)], kinds)

    def _take_up(
        self, images: list[tuple[pa.Table, NDArray[np.bool_], NDArray[np.bool_]]], kinds: NDArray[np.int64]
    ) -> None:
        """Set the steps of changes: for each its images in turn, those after the last that empties the table."""
        ends = np.flatnonzero(kinds == EMPTY)
        first = int(ends[-1]) + 1 if len(ends) else 0
        rows = np.arange(len(kinds))
        self.emptied = len(ends) > 0
        picked = [np.flatnonzero(good & (rows >= first)) for _, good, _ in images]
        at = np.concatenate([len(images) * p + i for i, p in enumerate(picked)])
        order = np.argsort(at, kind="stable")
        every = pa.concat_tables([image.take(pa.array(p)) for (image, _, _), p in zip(images, picked, strict=True)])
        self.images = every.take(pa.array(order)) if len(images) > 1 else every
        self.taken = np.concatenate([gone[p] for (_, _, gone), p in zip(images, picked, strict=True)])[order]

    def _image(self, path: Path) -> pa.Table:
        struct = _field(self._changes, path)
        columns = self._definition.columns
        return pa.table({n: pc.struct_field(struct, n) for n in columns}, pa.schema(list(columns.items())))

    def _has_key(self, image: pa.Table) -> NDArray[np.bool_]:
        valid = [image.column(k).is_valid().to_numpy(zero_copy_only=False) for k in self._definition.keys]
        return np.logical_and.reduce(valid)

    def _keyed(self, image: pa.Table, wanted: NDArray[np.bool_], why: str) -> NDArray[np.bool_]:
        """The wanted rows that have a key; others are malformed."""
        there = self._has_key(image)
        self._refuse(wanted & ~there, why)
        return wanted & there

    def _refuse(self, bad: NDArray[np.bool_], why: str) -> None:
        for row in self._changes.filter(pa.array(bad)).to_pylist() if bad.any() else ():
            text = json.dumps(row, default=str, ensure_ascii=False)
            if self._report is None:
                raise SourceError(
                    f'table "{self._definition.name}": a change with {why}',
                    detail=text if len(text) <= 200 else text[:200] + "...",
                    hint=_ENVELOPE * (why == "no key") + "mend it, or set such changes aside with ON ERROR QUARANTINE",
                )
            self._report(MalformedRow("", why, text))


def _field(rows: pa.Table, path: Path) -> pa.ChunkedArray:
    """The values at a path; names are those of the declaration."""
    names = {n.lower(): n for n in rows.column_names}
    column = rows.column(names[path[0].lower()])
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column
