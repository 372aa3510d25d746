"""Aggregates by summaries over shards: exact partials until a query's period has passed, then its own summary of it.

    partials of (slice, cell, group, value), for all queries ── a query's period closes ── its queue of summaries

The cells of its predicate and the slices within its period are put together before anything is cut, so sharing changes
no answer. A query that has summaries reads partials one period deep; only one that has none yet, because it is new and
was given history, reads its whole window.

State: partials of the open periods, and for each query the summaries of its window. Cost of an evaluation: the partials
of a period, and the summaries.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.basic_windows import SummaryQueue
from windrow.operators.aggregates.call import SUMMARISED, Aggregation
from windrow.operators.aggregates.counts import COUNT, SLOT, gathered
from windrow.operators.aggregates.stretches import pieces
from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.elements import Elements, concat_arrays, one
from windrow.operators.state.run import Run, ints
from windrow.sharing.shard_blocks import DueQuery, within
from windrow.sharing.shard_totals import ShardTotals

_QUERY = b"query"


def summarises(calls: Sequence[Aggregation]) -> bool:
    """Whether a query is answered from summaries."""
    return any(c.kind in SUMMARISED for c in calls)


class ShardSummaries(ShardTotals):
    """Shards with the queues of queries by summaries, by the names of the queries."""

    def has_summaries(self, name: str) -> bool:
        """Whether a query has summaries, and so reads its partials one period deep."""
        queue = self._queues.get(name)
        return queue is not None and bool(queue.runs)

    @property
    def summarised(self) -> Set[str]:
        """The queries that have summaries, or had: they answer though nothing comes."""
        return self._queues.keys()

    def drop(self, name: str) -> None:
        """A query has left."""
        self._queues.pop(name, None)

    def _answer_summaries(self, due: DueQuery, name: str) -> tuple[Elements, int]:
        queue = self._queues.get(name)
        if queue is None or queue.calls != due.calls:
            kept = [] if queue is None else queue.runs
            queue = self._queues[name] = SummaryQueue(due.calls, self.types)
            queue.runs = list(kept)  # those that were taken back
        since = due.end(due.first - 1) if queue.runs else due.end(due.first) - due.window.range
        read = self._summarise(queue, due, name, since)
        cut = pieces(due.first, due.last - due.first + 1, queue.breaks())
        number, slots, columns = queue.answers(cut.numbers, bool(self.keys))
        queue.forget(due.last + 1)
        return due.elements(cut.numbers[number], self._key_columns(slots) | columns, cut.lengths[number]), read

    def _summarise(self, queue: SummaryQueue, due: DueQuery, name: str, since: int) -> int:
        """Add the summaries of the periods after `since`; returns how many partials they were made of."""
        picked = [p for b in self.blocks if (p := within(b, due, name, since, due.end(due.last))) is not None]
        if not picked:
            return 0
        edge, slot, rows = (np.concatenate(parts) for parts in zip(
            *((p.block.edge[p.at], p.block.slot[p.at], p.block.rows[p.at, 0]) for p in picked), strict=True
        ))  # fmt: skip
        columns = {c: concat_arrays([p.block.values[c].take(pa.array(p.at)) for p in picked]) for c in queue.columns}
        queue.add([gathered(due.first_with(edge), due.first_with(edge + due.window.range), slot, rows, columns)])
        return len(edge)

    # -- state -------------------------------------------------------------------------------------------------------

    def runs(self) -> list[Run]:
        """The blocks, and the summaries with their keys in full and the query's name."""
        found = super().runs()
        for name, queue in self._queues.items():
            found += [self._full(name, run) for run in queue.runs]
        return found

    def _full(self, name: str, run: Run) -> Run:
        known = self._saved.get(run.uid)
        if known is None:
            table = run.table.drop_columns([SLOT])
            for key, column in self._key_columns(ints(run.table, SLOT)).items():
                table = table.append_column(f"key|{key}", column)
            known = self._saved[run.uid] = Run(table.replace_schema_metadata({_QUERY: name.encode()}))
            alive = {r.uid for q in self._queues.values() for r in q.runs}
            self._saved = {uid: r for uid, r in self._saved.items() if uid in alive}
        return known

    def take_back(self, run: Run) -> None:
        """Have a block or summaries again that `runs` named."""
        name = (run.table.schema.metadata or {}).get(_QUERY)
        if name is None:
            super().take_back(run)
            return
        table = run.table.replace_schema_metadata(None)
        keys = [one(table.column(f"key|{k}")) for k in self.keys]
        slot = self.groups.lookup(keys, table.num_rows) if keys else np.zeros(table.num_rows, np.int64)
        table = table.drop_columns([f"key|{k}" for k in self.keys])
        mine = Run(table.add_column(table.column_names.index(COUNT), SLOT, pa.array(slot)))
        self._saved[mine.uid] = run
        queue = self._queues.setdefault(name.decode(), SummaryQueue((), self.types))
        queue.runs.append(mine)

    def _used(self) -> list[Int64s]:
        return [*super()._used(), *(q.slots for q in self._queues.values())]
