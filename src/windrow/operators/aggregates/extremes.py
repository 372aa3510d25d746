"""MIN or MAX where values may be taken back: the best values of each group at hand, the rest on a pile.

A multiset answers MIN under deletion, but an advance that goes through all values of the groups it touches costs the
window. Only the best values can become the answer soon. So each group has a *head*, its best values with their
multiplicities, and an *edge*; what is worse than the edge is piled up as changes, unread.

    best ── head: exact multiplicities ── edge ── pile: sorted (group, value, multiplicity), and new changes ── worst

Law: all of a value that is not worse than its group's edge is in the head, and while a group has a pile, its head
outlasts every advance: before one, the head has more values than the advance takes away; else it is filled up from the
pile. A head that has grown too long gives its worse part to the pile.

Cost: the heads of touched groups, per advance; a pass over the pile about every `HEAD` removals of a group's best.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.operators.aggregates.order import CodeOrder, encode
from windrow.operators.aggregates.sweep import MultiplicityChanges, Sweep
from windrow.operators.aggregates.values import Members, Values
from windrow.operators.aggregates.vectors import Int64s, validity
from windrow.operators.elements import INF, concat_arrays
from windrow.operators.state.run import Run, ints

HEAD = 1024
"""Values of a group that are kept at hand; four times as many, and the worse ones go to the pile."""


class Extremes(Values):
    """The multiplicities of one column's values, of which only the least (or greatest) will be asked for."""

    def __init__(self, type_: pa.DataType, least: bool) -> None:
        self.least = least
        self._edge = np.zeros(0, np.int64)  # [slots] in ranks: the smaller the better; INF: there is no pile
        self._pile = _none()
        self._changes: list[tuple[Int64s, Int64s, Int64s]] = []
        self._run: Run | None = None
        super().__init__(type_)

    def _ranks(self, codes: Int64s) -> Int64s:
        return codes if self.least else ~codes

    def advance(self, sweep: Sweep, column: pa.Array, position: Int64s) -> Members:
        """Apply the sweep's events; `position[slot]` is the group's place in the sweep, or -1."""
        if len(position) > len(self._edge):
            self._edge = np.concatenate((self._edge, np.full(len(position) - len(self._edge), INF)))
        feed = sweep.feed.where(validity(column))
        group = sweep.group[feed.points()]
        self._fill_up(sweep, group, feed, position)
        (codes,), _ = encode([column])
        slots, ranks = sweep.slots[group], self._ranks(codes[feed.rows])
        piled = ranks > self._edge[slots]
        if piled.any():
            self._changes.append((slots[piled], ranks[piled], feed.deltas[piled]))
            keep = np.ones(len(column), np.bool_)
            keep[feed.rows[piled]] = False
            column = _masked(column, keep)
        members = super().advance(sweep, column, position)
        if len(self.slot) > HEAD:
            self._shorten()
        return members

    def _fill_up(self, sweep: Sweep, group: Int64s, feed: MultiplicityChanges, position: Int64s) -> None:
        """Fill the heads of groups that may run out in this advance."""
        groups = len(sweep.slots)
        losses = np.bincount(group[feed.deltas < 0], minlength=groups)
        mine = position[self.slot] if len(self.slot) else np.zeros(0, np.int64)
        at_hand = np.bincount(mine[(mine >= 0) & (self.count > 0)], minlength=groups)
        short = np.flatnonzero((at_hand <= losses) & (self._edge[sweep.slots] != INF))
        if not len(short):
            return
        self._settle()
        slot, rank, count = self._pile
        taken = np.zeros(len(slot), np.bool_)
        for g in short:
            own = sweep.slots[g]
            low, high = np.searchsorted(slot, (own, own + 1))
            stop = min(low + int(losses[g]) + HEAD, high)
            taken[low:stop] = True
            self._edge[own] = INF if stop == high else rank[stop - 1]
        self._run = None
        values = CodeOrder(self.type).decode(self._ranks(rank[taken]))
        self.slot = np.concatenate((self.slot, slot[taken]))
        self.count = np.concatenate((self.count, count[taken]))
        self.value = concat_arrays([self.value, values])
        self._pile = (slot[~taken], rank[~taken], count[~taken])

    def _settle(self) -> None:
        """Merge the new changes into the pile."""
        if self._changes:
            slot, rank, count = (np.concatenate(part) for part in zip(*self._changes, strict=True))
            order = np.lexsort((rank, slot))
            self._pile = _merged(*self._pile, slot[order], rank[order], count[order])
            self._changes, self._run = [], None

    def _shorten(self) -> None:
        """Give the worse part of heads that are too long to the pile."""
        sizes = np.bincount(self.slot, minlength=len(self._edge))
        if sizes.max() <= 4 * HEAD:
            return
        (codes,), _ = encode([self.value])
        ranks = self._ranks(codes)
        order = np.lexsort((ranks, self.slot))
        place = np.arange(len(order)) - (np.cumsum(sizes) - sizes)[self.slot[order]]
        given = (place >= HEAD) & (sizes[self.slot[order]] > 4 * HEAD)
        last = order[(place == HEAD - 1) & (sizes[self.slot[order]] > 4 * HEAD)]
        self._edge[self.slot[last]] = ranks[last]
        out, kept = order[given], order[~given]
        self._changes.append((self.slot[out], ranks[out], self.count[out]))
        self.slot, self.count, self.value = self.slot[kept], self.count[kept], self.value.take(pa.array(kept))

    # state

    def runs(self, name: str) -> dict[str, Run]:
        """The head with the new changes, which are often written, and the pile, which is not."""
        if self._run is None:
            self._run = Run(pa.table([pa.array(a) for a in self._pile], names=["slot", "rank", "count"]))
        changes = self._changes or [_none()]
        together = [pa.array(np.concatenate(part)) for part in zip(*changes, strict=True)]
        edged = np.flatnonzero(self._edge != INF)
        return {
            **super().runs(name),
            f"pile {name}": self._run,
            f"piled {name}": Run(pa.table(together, names=["slot", "rank", "count"])),
            f"edges {name}": Run(pa.table({"slot": pa.array(edged), "edge": pa.array(self._edge[edged])})),
        }

    def restore_runs(self, name: str, runs: Mapping[str, Run]) -> None:
        """Go on from what `runs` gave."""
        super().restore_runs(name, runs)
        pile, piled, edges = (runs[f"{what} {name}"].table for what in ("pile", "piled", "edges"))
        self._pile = _changes(pile)
        self._changes = [_changes(piled)] if piled.num_rows else []
        slots = ints(edges, "slot")
        self._edge = np.full(int(slots.max(initial=-1)) + 1, INF)
        self._edge[slots] = ints(edges, "edge")
        self._run = runs[f"pile {name}"]


def _changes(table: pa.Table) -> tuple[Int64s, Int64s, Int64s]:
    return ints(table, "slot"), ints(table, "rank"), ints(table, "count")


def _none() -> tuple[Int64s, Int64s, Int64s]:
    none = np.zeros(0, np.int64)
    return none, none, none


def _masked(column: pa.Array, keep: np.ndarray) -> pa.Array:
    """The column with nulls where not `keep`: what is null changes no multiplicity."""
    return pa.compute.if_else(pa.array(keep), column, pa.scalar(None, column.type))


@njit(cache=True)
def _merged(s1, r1, c1, s2, r2, c2):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Two sorted lists of changes as one, equal values added up, what is nothing left out."""
    n = len(s1) + len(s2)
    slot, rank, count = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    i = j = k = 0
    while i < len(s1) or j < len(s2):
        if j >= len(s2) or (i < len(s1) and (s1[i] < s2[j] or (s1[i] == s2[j] and r1[i] <= r2[j]))):
            s, r, c = s1[i], r1[i], c1[i]
            i += 1
        else:
            s, r, c = s2[j], r2[j], c2[j]
            j += 1
        if k and slot[k - 1] == s and rank[k - 1] == r:
            count[k - 1] += c
            if count[k - 1] == 0:
                k -= 1
        else:
            slot[k], rank[k], count[k] = s, r, c
            k += 1
    return slot[:k].copy(), rank[:k].copy(), count[:k].copy()
