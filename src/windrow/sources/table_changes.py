"""A table that is told by what happens to it: changes in order of arrival, applied by key.

Each change becomes steps, and of every key the last step decides:

    flat       c, r, u ─► put the row           d ─► take the key away          t ─► take everything away
    envelope   c, r, u ─► take the key of `before` away, put `after`            d ─► take the key of `before` away

So a change that comes twice changes nothing the second time: a row that is there is replaced, one that is gone stays
gone. Law: applying changes in two parts, or the second part twice, gives what applying them all at once gives. A change
whose operation is not known, or that has no key, is malformed: it is reported, or else nothing is applied.

Cost: a look-up for each row of the table, and a numbering of the keys of the changes and of the rows that they meet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from windrow.catalog import TableDef
from windrow.catalog.change_columns import Path
from windrow.errors import SourceError
from windrow.operators.elements import one
from windrow.operators.keys import comparable, factorize
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


def changed(definition: TableDef, table: pa.Table, changes: pa.Table, report: Report | None = None) -> pa.Table:
    """What a table holds after changes; a malformed one is reported, or raised. Rows that are put come last."""
    steps = _Steps(definition, changes, report)
    rest = table.slice(0, 0) if steps.emptied else table
    near = _near(rest, steps.images, definition.keys)
    met = rest.filter(pa.array(near))
    every = pa.concat_tables([met, steps.images]).combine_chunks()
    taken = np.concatenate([np.zeros(met.num_rows, np.bool_), steps.taken])
    codes, _ = factorize([one(every.column(k)) for k in definition.keys], every.num_rows)
    last = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    last[codes] = np.arange(len(codes))  # of equal codes the last one stays
    kept = (last[codes] == np.arange(len(codes))) & ~taken
    return pa.concat_tables([rest.filter(pa.array(~near)), every.filter(pa.array(kept))]).combine_chunks()


def _near(table: pa.Table, images: pa.Table, keys: Sequence[str]) -> NDArray[np.bool_]:
    """Rows of a table that changes may concern: each column of their key is that of some change."""
    found = np.ones(table.num_rows, np.bool_)
    for key in keys:
        both = comparable(pa.concat_arrays([one(table.column(key)), one(images.column(key))]))
        held, told = both.slice(0, table.num_rows), both.slice(table.num_rows)
        found &= pc.is_in(held, value_set=told).to_numpy(zero_copy_only=False)
    return found


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
                    hint="mend it, or set such changes aside with ON ERROR QUARANTINE",
                )
            self._report(MalformedRow("", why, text))


def _field(rows: pa.Table, path: Path) -> pa.ChunkedArray:
    """The values at a path; names are those of the declaration."""
    names = {n.lower(): n for n in rows.column_names}
    column = rows.column(names[path[0].lower()])
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column
