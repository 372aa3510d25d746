"""Heavy keys: values so frequent that the partition they hash to would do most of a join's work.

Tasks count the keys of a sample of the rows that reach a join (`counted_keys`); the driver adds the counts of all tasks
up and calls a key heavy when its rows are more than a share of what one partition should have (`Threshold`). From the
next tick on, rows with that key lie on a grid (`grid.py`) of all partitions, each input along an axis of its own by the
hash of its row: every pair still meets in exactly one cell.

State follows. What is heavy from tick t on lay in its home partition before; at t every task takes from the home's runs
what lies with it now, and the home lets go of the rest (`rebalance.py`). A key stays heavy while its query runs: the
rows it spread would have to come home first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from windrow.operators.elements import Elements, Int64s
from windrow.operators.keys import hash_rows
from windrow.runtime.placement import Partitioning
from windrow.runtime.undo_log import LoggedDict, UndoLog
from windrow.store.manifest_values import HeavyKeysOfJoin

SAMPLE = 8192
"""Rows of an input that are looked at per task and tick."""

MOST = 64
"""Heavy keys that a join may have."""

Since = tuple[tuple[int, int], ...]
"""Hashes of heavy keys, each with the tick from which on it is heavy."""

KeyCounts = tuple[int, dict[int, float]]
"""Rows, and the number of rows of each frequent key."""


@dataclass(frozen=True)
class Threshold:
    """A key is heavy when it has more than `share` of the rows that one partition should have, and `rows` per tick."""

    share: float = 0.5
    rows: int = 2000


def frequent(rows: Elements, partitioning: Partitioning, partitions: int) -> KeyCounts:
    """The keys that may be heavy, by a sample."""
    step = max(1, len(rows) // SAMPLE)
    some = rows if step == 1 else rows.take(np.arange(0, len(rows), step))
    hashes = hash_rows([some.columns[c] for c in partitioning.columns], len(some))
    values, counts = np.unique(hashes, return_counts=True)
    often = counts * partitions * 8 > len(some)
    return len(rows), dict(zip(values[often].tolist(), (counts[often] * float(step)).tolist(), strict=True))


def counted_keys(
    parts: Iterable[Elements], partitioning: Partitioning, partitions: int, heavy: Collection[int], before: KeyCounts
) -> tuple[float, KeyCounts]:
    """The share of rows that are no copies of a heavy key's, and the keys that may be heavy with those `before`."""
    assert partitioning.split is not None
    rows, counts = before
    copied = partitioning.split.grid.copies(partitions)
    arrived = own = 0.0
    for part in parts:
        more, found = frequent(part, partitioning, partitions)
        for value, count in found.items():
            counts[value] = counts.get(value, 0.0) + count / (copied if value in heavy else 1)
        arrived, own = arrived + more, own + more
        own -= (1 - 1 / copied) * sum(count for value, count in found.items() if value in heavy)
    return own / max(arrived, 1.0), (rows + round(own), counts)


class HeavyKeys:
    """The heavy keys of all joins; the driver's."""

    def __init__(self, partitions: int, threshold: Threshold | None = None, *, undo: UndoLog | None = None) -> None:
        self.partitions, self.threshold = partitions, threshold or Threshold()
        self._since: LoggedDict[tuple[str, int], dict[int, int]] = LoggedDict(undo or UndoLog())

    def take(self, tick: int, counted: Iterable[Mapping[tuple[str, int], KeyCounts]]) -> None:
        """Take in what the tasks of a tick counted for each (query, step); what is heavy is so from the next tick."""
        if self.partitions == 1:
            return
        rows: dict[tuple[str, int], int] = {}
        keys: dict[tuple[str, int], dict[int, float]] = {}
        for told in counted:
            for key, (n, counts) in told.items():
                rows[key] = rows.get(key, 0) + n
                mine = keys.setdefault(key, {})
                for value, count in counts.items():
                    mine[value] = mine.get(value, 0.0) + count
        for key, counts in keys.items():
            known = self._since.setdefault(key, {})
            least = max(self.threshold.rows, self.threshold.share * rows[key] / self.partitions)
            for value in sorted(counts, key=lambda v: (-counts[v], v)):
                if counts[value] >= least and value not in known and len(known) < MOST:
                    known[value] = tick + 1

    def forget(self, query: str) -> None:
        """A query is gone."""
        self._since.keep(lambda key: key[0] != query)

    def since(self, tick: int) -> dict[str, dict[int, Since]]:
        """For the tasks of a tick: by query and step."""
        found: dict[str, dict[int, Since]] = {}
        for (query, step), known in self._since.items():
            due = tuple((h, t) for h, t in known.items() if t <= tick)
            if due:
                found.setdefault(query, {})[step] = due
        return found

    def describe(self, query: str) -> list[dict[str, object]]:
        """For EXPLAIN: how many keys of each join lie apart, and since when."""
        return [
            {"heavy keys": len(known), "since ticks": sorted(known.values())}
            for (q, _), known in sorted(self._since.items())
            if q == query and known
        ]

    def saved(self) -> tuple[HeavyKeysOfJoin, ...]:
        """For the manifest."""
        return tuple(HeavyKeysOfJoin(*join, tuple(keys.items())) for join, keys in self._since.items() if keys)

    def restore(self, saved: Iterable[HeavyKeysOfJoin], queries: Iterable[str]) -> None:
        """What `saved` gave, of the queries that there still are."""
        there = set(queries)
        for each in saved:
            if each.query in there:
                self._since[each.query, each.step] = dict(each.since)


def hashes(since: Since) -> Int64s:
    """The heavy keys."""
    return np.array([h for h, _ in since], np.int64)


def fresh(since: Since, tick: int) -> Int64s:
    """The keys that are heavy from this tick on."""
    return np.array([h for h, t in since if t == tick], np.int64)
