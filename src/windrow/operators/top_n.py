"""The first rows of each partition, followed as rows come and go: ORDER BY ... LIMIT, and ranks with a bound.

    n = 2, smallest first      t=1  +5  +9        {5, 9}
                               t=2  +7            {5, 7}      9 waits: it comes back at t=4
                               t=4  -5            {7, 9}

At every instant the output is the rows with a rank in `(offset, offset + limit]`, by ROW_NUMBER, RANK or DENSE_RANK on
a total order (`sorting`), with the rank as a column or not. The rows of an advance are sorted once together with those
that wait, so that each has a place; then the events of each partition are followed in time, on a bitmap of the places
that are alive. What comes into sight is sent as `[t, INF)` and ended by `-[t', INF)`: a log in which, unless it tells
ranks, nothing cancels.

Where ends are known, most rows are never among the first: a walk in time, by the first sort key, leaves them out before
anything is sorted (`contenders`). Where nothing ends, it compares each row with the n-th best so far.

State: the rows that may still be shown. Where ends are known, a row with n better ones that live as long as it does is
never shown and is forgotten (the n-skyband), so a window of m rows in random order keeps about n log(m / n) of them per
partition. Cost per advance: its rows, and what waits in the partitions it touches, sorted; n per change of an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.order import has_fixed_codes
from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.asof import by_slot
from windrow.operators.elements import INF, Elements, concat, one
from windrow.operators.keys import dense
from windrow.operators.keytable import KeyTable
from windrow.operators.protocol import State, Unclocked
from windrow.operators.sorting import Ordered, ordered, oriented
from windrow.operators.state.run import elements_of, run_of
from windrow.operators.state.surviving import surviving
from windrow.operators.terms import SortKey
from windrow.operators.top_n_contenders import contenders, contenders_without_end, skyband
from windrow.operators.top_n_kernels import DENSE, RANK, ROW_NUMBER, follow

KINDS = {"row_number": ROW_NUMBER, "rank": RANK, "dense_rank": DENSE}
_BEST, _WORST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class TopNOperator(Unclocked):
    """Rows with a rank in `(offset, offset + limit]` within their partition; `output`: the rank as a column.

    `strict`: negative elements may come, so that no end is certain.
    """

    def __init__(
        self,
        types: Mapping[str, pa.DataType],
        partition: Sequence[str],
        order: Sequence[SortKey],
        ties: Sequence[str],
        limit: int,
        offset: int = 0,
        kind: str = "row_number",
        output: str | None = None,
        strict: bool = False,
    ) -> None:
        self.types, self.partition, self.order = dict(types), tuple(partition), tuple(order)
        keys = {*partition, *(k.column for k in order)}
        self.ties = tuple(ties or (c for c in types if c not in keys))  # a negative element must find what it ends
        self.limit, self.offset, self.kind, self.output = limit, offset, KINDS[kind], output
        self._groups = KeyTable({p: types[p] for p in self.partition})
        self._strict = strict
        self._held: Elements | None = None
        self._slots = np.zeros(0, np.int64)
        first = types[self.order[0].column] if self.order else pa.null()
        self._contends = not strict and self.kind != DENSE and has_fixed_codes(first) and not pa.types.is_null(first)

    @property
    def schema(self) -> dict[str, pa.DataType]:
        """The columns of the output."""
        return self.types if self.output is None else {**self.types, self.output: pa.int64()}

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (new,) = inputs
        slots = self._groups.slots({p: new.columns[p] for p in self.partition}, len(new))
        if self._contends and self.limit + self.offset and len(new):
            keep = self._contenders(new, slots)
            new, slots = new.filter(keep), slots[keep]
        rows, slots, count = self._touched(new, slots, frontier)
        if not len(rows):
            return Elements.empty(self.schema)
        places = ordered(dense(slots, len(self._groups))[0], rows.columns, self.order, self.ties)
        out = self._followed(rows, places, count, frontier)
        self._keep(rows, slots, places, frontier)
        return out

    def _contenders(self, new: Elements, slots: Int64s) -> np.ndarray:
        """Which new rows may be shown at all: few of many, so the others need not be sorted."""
        order = None if (new.ts[1:] >= new.ts[:-1]).all() else np.argsort(new.ts, kind="stable")
        codes, ts, exp, groups = self._codes(new), new.ts, new.exp, len(self._groups)
        if order is not None:
            codes, ts, exp, slots = codes[order], ts[order], exp[order], slots[order]
        held, old = self._held, self._slots
        if held is None:
            held, old = new.slice(0, 0), slots[:0]
        bound = self.limit + self.offset
        if bound <= 64 and (exp == INF).all() and (held.exp == INF).all():
            keep = contenders_without_end(slots, codes, old, self._codes(held), groups, bound)
        else:
            both = ((held.ts, ts), (held.exp, exp), (self._codes(held), codes), (old, slots))
            ts, exp, codes, slots = map(np.concatenate, both)
            keep = contenders(*by_slot(slots, groups), codes, ts, exp, len(held), bound)[len(held) :]
        if order is not None:
            keep[order] = keep.copy()
        return keep

    def _codes(self, rows: Elements) -> Int64s:
        """The first sort key, the smaller the better."""
        key = self.order[0]
        codes = oriented(rows.columns[key.column], key)
        return codes[-1] if len(codes) == 1 else np.select([codes[0] == 0, codes[0] == 2], [_BEST, _WORST], codes[1])

    # -- rows --------------------------------------------------------------------------------------------------------

    def _touched(self, new: Elements, slots: Int64s, frontier: int) -> tuple[Elements, Int64s, int]:
        """The rows of all partitions in which something happens, those that wait first, and how many these are."""
        if self._held is None or not len(self._held):
            return new, slots, 0
        touched = np.zeros(len(self._groups), np.bool_)
        touched[slots] = True
        touched[self._slots[self._held.exp <= frontier]] = True
        mine = touched[self._slots]
        if mine.all():
            held, old, self._held, self._slots = self._held, self._slots, None, self._slots[:0]
        else:
            held, old = self._held.filter(mine), self._slots[mine]
            self._held, self._slots = self._held.filter(~mine), self._slots[~mine]
        return concat([held, new]), np.concatenate((old, slots)), len(held)

    def _followed(self, rows: Elements, places: Ordered, held: int, frontier: int) -> Elements:
        """What comes and goes among the first rows."""
        order = places.order
        first, class_begins = np.flatnonzero(places.opens_partition), np.flatnonzero(places.opens_class)
        class_of, part_of = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        class_of[order], part_of[order] = np.cumsum(places.opens_class) - 1, np.cumsum(places.opens_partition) - 1
        # a class has one place; places of a partition stand together
        begins = np.append(class_of[order[first]], len(class_begins))
        peers = (np.cumsum(places.opens_peers) - 1)[class_begins]
        start = np.bincount(class_of[:held], rows.sign[:held], minlength=len(class_begins)).astype(np.int64)
        came, went = np.arange(held, len(rows)), np.flatnonzero(rows.exp <= frontier)
        which, time = np.concatenate((came, went)), np.concatenate((rows.ts[came], rows.exp[went]))
        delta = np.concatenate((rows.sign[came], -rows.sign[went]))
        in_time = np.argsort(time, kind="stable")
        by_part, events = by_slot(part_of[which[in_time]], len(first))
        in_time = in_time[by_part]
        which, time, delta = which[in_time], time[in_time], delta[in_time]
        log = follow(
            begins, events, class_of[which], time, delta, start, peers, self.limit, self.offset, self.kind,
            self.output is not None,
        )  # fmt: skip
        picks = pa.array(order[class_begins[log[:, 0]]])  # a row of each class, to be shown for it
        columns = {n: a.take(picks) for n, a in rows.columns.items()}
        if self.output is not None:
            columns[self.output] = pa.array(log[:, 3].copy())
        return Elements(log[:, 1].copy(), np.full(len(log), INF), log[:, 2].astype(np.int8), columns)

    def _keep(self, rows: Elements, slots: Int64s, places: Ordered, frontier: int) -> None:
        """Let rows that may still be shown wait."""
        order = places.order
        alive = rows.exp[order] > frontier
        if self._strict:
            rest, mine = rows.take(order[alive]), slots[order[alive]]
            kept = surviving(rest, frontier)
            rest, mine = rest.take(kept), mine[kept]
        else:
            part, peers = np.cumsum(places.opens_partition) - 1, np.cumsum(places.opens_peers) - 1
            bound = min(self.limit + self.offset, len(part) + 1)  # room is made for so many
            alive &= skyband(part, peers, rows.exp[order], alive, bound, self.kind) if bound else False
            rest, mine = rows.take(order[alive]), slots[order[alive]]
        if self._held is None or not len(self._held):
            self._held, self._slots = rest, mine
        else:
            self._held, self._slots = concat([self._held, rest]), np.concatenate((self._slots, mine))
        self._forget_groups()

    def _forget_groups(self) -> None:
        """Drop partitions without rows, when they are most."""
        if len(self._groups) > 1024 and len(self._groups) > 4 * len(self._slots):
            alive = np.zeros(len(self._groups), np.bool_)
            alive[self._slots] = True
            old = self._groups.compact(alive)
            renumbered = np.full(len(alive), -1, np.int64)
            renumbered[old] = np.arange(len(old))
            self._slots = renumbered[self._slots]

    # -- state -------------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """The rows that wait: what is shown follows from them."""
        return {"held": () if self._held is None else (run_of(self._held),)}

    def restore(self, state: State, frontier: int) -> None:
        self._groups = KeyTable({p: self.types[p] for p in self.partition})
        self._held, self._slots = None, np.zeros(0, np.int64)
        for run in state["held"]:
            self._held = elements_of(run)
            keys = {p: one(run.table.column(p)) for p in self.partition}
            self._slots = self._groups.slots(keys, len(self._held))
