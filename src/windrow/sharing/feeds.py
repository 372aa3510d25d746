"""From the cells of a space to those who need its rows: synopses, and shards.

Synopses whose windows have the same edges are of one class, so edges are found per class, however many synopses there
are. A feed is changed synopsis by synopsis as queries come and go; its arrays are made anew from plain lists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.vectors import Bools, Int64s
from windrow.operators.radix import stable_order
from windrow.sharing.cells import CellSpace
from windrow.sharing.conditions import Condition
from windrow.sharing.edges import Edges
from windrow.sharing.kernels import number
from windrow.sharing.lanes import NeededLanes
from windrow.sharing.settle import ByMembers, ByRuns, SettleTimes, settling
from windrow.sharing.synopsis_store import Entries
from windrow.sharing.windows import SlideWindow

ShardsKey = tuple[tuple[str, ...], tuple[str, ...]]
"""Which shards: the keys, and the columns whose values are kept."""
MOST_STAMPS = 1 << 20
_CLOSED = -1


@dataclass
class PredicateSynopsis:
    """A predicate whose rows are summed, for queries with some windows."""

    number: int
    condition: Condition
    windows: dict[SlideWindow, int] = field(default_factory=dict)  # how many queries have each


class SpaceReaders:
    """What one space feeds."""

    def __init__(self, space: CellSpace, technique: str) -> None:
        self.space, self.technique = space, technique
        self._position: dict[int, int] = {}  # of synopses, by number
        self._numbers: list[int] = []
        self._predicates: list[int] = []
        self._class: list[int] = []
        self._classes: dict[frozenset[SlideWindow], int] = {}
        self._arrays: _Arrays | None = None
        self._columns: dict[str, tuple[Int64s, Int64s, Int64s]] = {}  # by block: numbers, predicates, classes
        self._users: dict[ShardsKey, Counter[tuple[int, SlideWindow]]] = {}  # of shards: (predicate, window)
        self._shards: dict[ShardsKey, tuple[Edges, Bools | None]] = {}

    # -- who is fed --------------------------------------------------------------------------------------------------

    def put(self, synopsis: PredicateSynopsis, predicate: int) -> None:
        """Feed a synopsis, with the windows that it has now; without any, no longer."""
        at = self._position.get(synopsis.number)
        if at is None:
            at = self._position[synopsis.number] = len(self._numbers)
            self._numbers.append(synopsis.number)
            self._predicates.append(predicate)
            self._class.append(_CLOSED)
        windows = frozenset(synopsis.windows)
        known = self._classes.setdefault(windows, len(self._classes)) if windows else _CLOSED
        if known != self._class[at]:
            self._class[at], self._arrays = known, None

    def put_all(self, block: str, synopses: Int64s, open_: Bools, first: int, window: SlideWindow) -> None:
        """Feed synopses of predicates one after the other, those that are open."""
        known = self._classes.setdefault(frozenset((window,)), len(self._classes))
        self._columns[block] = (synopses, first + np.arange(len(synopses)), np.where(open_, known, _CLOSED))
        self._arrays = None

    def use(self, key: ShardsKey, predicate: int, window: SlideWindow, times: int) -> None:
        """Feed shards for so many more queries with a window and a predicate."""
        users = self._users.setdefault(key, Counter())
        users[predicate, window] += times
        if not users[predicate, window]:
            del users[predicate, window]
            if not users:
                del self._users[key]
        self._shards.pop(key, None)

    @property
    def feeds_synopses(self) -> bool:
        single = any(c != _CLOSED for c in self._class)
        return single or any((c != _CLOSED).any() for _, _, c in self._columns.values())

    @property
    def shards(self) -> Mapping[ShardsKey, tuple[Edges, Bools | None]]:
        """Where each shards' slices end, and which cells it needs (None: all)."""
        for key, users in self._users.items():
            if key not in self._shards:
                edges = Edges(((0, w) for w in {w for _, w in users}), 1, self.technique)
                self._shards[key] = (edges, self._covered({p for p, _ in users}))
        return {key: self._shards[key] for key in self._users}

    def _covered(self, predicates: set[int]) -> Bools | None:
        if self.space.boxed:
            return None
        return self.space.runs.take(np.array(sorted(predicates), np.int64)).covered(self.space.cells)

    # -- entries of synopses -----------------------------------------------------------------------------------------

    def entries(
        self, ts: Int64s, cell: Int64s, columns: Mapping[str, pa.Array], kept: NeededLanes
    ) -> tuple[Entries, int]:
        """The entries of rows in time order, in cells of the space, and how many partials they were made of."""
        arrays = self._made()
        calendar = SettleTimes.of(arrays.edges, ts, arrays.class_at, arrays.synopses)
        of_row, begin, cells = _partials(self.space.cells, calendar.first(ts), cell)
        lanes = kept.lift(columns, of_row, len(cells))
        synopsis, edge, sums = arrays.settling.sums(begin, cells, lanes, calendar)
        codes = {}
        if kept.bests:
            order = stable_order(synopsis)
            synopsis, edge, sums = synopsis[order], edge[order], sums[order]
            at = np.concatenate(([0], np.cumsum(np.bincount(synopsis, minlength=len(arrays.numbers)))))
            for key, (best, some) in kept.codes(columns, of_row, len(cells)).items():
                codes[key] = np.zeros(len(edge), np.int64), np.zeros(len(edge), np.bool_)
                arrays.settling.best(begin, cells, best, some, calendar, at, edge, *codes[key])
        return Entries(arrays.numbers[synopsis], edge, sums, kept.packing, codes), len(cells)

    def _made(self) -> _Arrays:
        if self._arrays is None:
            self._arrays = _Arrays.of(self)
        return self._arrays


@dataclass(frozen=True)
class _Arrays:
    """A feed's synopses as arrays, by position."""

    numbers: Int64s
    edges: Edges  # of classes
    class_at: Int64s
    synopses: Int64s  # by class
    settling: ByRuns | ByMembers

    @staticmethod
    def of(feed: SpaceReaders) -> _Arrays:
        space, parts = feed.space, list(feed._columns.values())
        numbers, predicates, class_ = (
            np.concatenate([np.array(single, np.int64), *(part[k] for part in parts)])
            for k, single in enumerate((feed._numbers, feed._predicates, feed._class))
        )
        used, number_of = np.unique(class_, return_inverse=True)
        windows = list(feed._classes)
        closed = int(len(used) > 0 and used[0] == _CLOSED)
        classes = [windows[c] for c in used[closed:].tolist()]
        edges = Edges(((i, w) for i, ws in enumerate(classes) for w in ws), len(classes), feed.technique)
        order = stable_order(number_of.reshape(-1))
        class_at = np.searchsorted(number_of.reshape(-1)[order], np.arange(closed, len(used) + 1))
        return _Arrays(numbers, edges, class_at, order, settling(space, predicates))


def _partials(cells: int, first: Int64s, cell: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Number the (slice, cell) that occur: each row's, the slices' first, their cells."""
    if cells <= max(MOST_STAMPS, 8 * len(cell)):
        made: tuple[Int64s, Int64s, Int64s] = number(first, cell, cells)
        return made
    found, of_cell = np.unique(cell, return_inverse=True)
    of_row, begin, numbers = number(first, of_cell.reshape(-1).astype(np.int64), len(found))
    return of_row, begin, found[numbers]
