"""The ledger: shared answers without GROUP BY, for sums, counts and extremes.

An account is one predicate; its entries are the sums (and best codes) of its rows between two edges of its own queries'
windows. One pass puts the rows into partials, one per (slice, cell); partials are settled into entries; and because
entries are integers, the answer of any window is the difference of two running sums over an account's entries:

    edges of the account    12    15    27    30          W[18, 15] at 30: (12, 30]
    entries                  a     b     c     d          b + c + d  =  (a+b+c+d) - a

All windows of all queries that are due are answered by one pair of binary searches and one subtraction. Extremes have
no difference; they are the best over the entries between the same two places.

State: the entries younger than the account's longest window (a handful per window), none of it per cell. So a query
that joins opens an account, one that leaves closes it, and nothing else changes. Cost per advance: rows once per plot,
then slices times predicates, then the answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.answers import Answer, coded, scalars
from windrow.operators.aggregates.call import EXTREMES, MOMENTS
from windrow.operators.aggregates.order import Order, encode, has_fixed_codes
from windrow.operators.aggregates.sums import Cells, Layout, Lowering, Sums, relaid
from windrow.operators.aggregates.vectors import Bools, Int64s, validity
from windrow.operators.state.run import Run, ints
from windrow.sharing.cells import Plot, members_of, runs_of
from windrow.sharing.kernels import greatest, number, settle, settle_best, settle_sparse, tally
from windrow.sharing.synopses import best_between

_NO_NULLS = np.ones(1, np.bool_)


class Accounts:
    """Accounts of one plot: account i, numbered `numbers[i]`, is the plot's predicate `predicates[i]`."""

    def __init__(self, plot: Plot, numbers: Sequence[int], predicates: Sequence[int]) -> None:
        self.numbers = np.array(numbers, np.int64)
        self.membership = plot.membership[list(predicates)]
        whole = list(predicates) == list(range(len(plot.conditions)))
        self.runs = plot.runs if whole else runs_of(self.membership)
        self.members = plot.members if whole else members_of(self.membership)


@dataclass(frozen=True)
class Sliced:
    """Rows in time order, cut at edges: `first[s]:first[s + 1]` are the rows up to `edges[s]`."""

    first: Int64s
    edges: Int64s


class Best:
    """The greatest codes of entries; for a minimum, codes are inverted."""

    def __init__(self, type_: pa.DataType, least: bool) -> None:
        self.type, self.least = type_, least
        self.codes, self.filled = np.zeros(0, np.int64), np.zeros(0, np.bool_)

    def codes_of(self, column: pa.Array) -> tuple[Int64s, Bools | None]:
        codes = encode([column])[0][0]
        return (~codes if self.least else codes), validity(column)

    def answer(self, low: Int64s, high: Int64s, type_: pa.DataType) -> Answer:
        best, some = best_between(low, high, self.codes, self.filled)
        return coded(~best if self.least else best, None if some.all() else some, Order(self.type), type_)


class Lanes(Sums):
    """Sums whose needs may grow while queries join."""

    def require(self, sums: bool, squares: bool) -> None:
        """Also keep these from now on; what is there already has none of them."""
        self._sums, self._squares = self._sums or sums, self._squares or squares


class Ledger:
    """Entries of all accounts, by (account, edge)."""

    def __init__(self) -> None:
        self.account = np.zeros(0, np.int64)
        self.edge = np.zeros(0, np.int64)
        self.rows = np.zeros((0, 1), np.int64)
        self.sums: dict[str, Lanes] = {}
        self.bests: dict[tuple[str, bool], Best] = {}

    def __len__(self) -> int:
        return len(self.account)

    @staticmethod
    def takes(calls: Sequence[Aggregation], types: Mapping[str, pa.DataType]) -> bool:
        """Whether these aggregates can be kept as entries."""
        return all(
            c.column is None
            or (c.kind in EXTREMES and has_fixed_codes(types[c.column]))
            or (c.kind in ("count", "sum", "avg", *MOMENTS) and not c.distinct)
            for c in calls
        )

    def provide(self, calls: Sequence[Aggregation], types: Mapping[str, pa.DataType]) -> None:
        """Keep what these aggregates need from now on."""
        for call in calls:
            if call.column is None:
                continue
            if call.kind in EXTREMES:
                key = (call.column, call.kind == "min")
                if key not in self.bests:
                    best = self.bests[key] = Best(types[call.column], call.kind == "min")
                    best.codes, best.filled = np.zeros(len(self), np.int64), np.zeros(len(self), np.bool_)
                continue
            if call.column not in self.sums:
                self.sums[call.column] = Lanes(types[call.column], False, False)
                self.sums[call.column].grow(len(self))
            sums = self.sums[call.column]
            sums.require(sums=call.kind != "count", squares=call.kind in MOMENTS)

    # -- taking rows in ----------------------------------------------------------------------------------------------

    def settle(
        self, plot: Plot, accounts: Accounts, own: tuple[Int64s, Int64s], cell: Int64s, rows: Sliced,
        columns: Mapping[str, pa.Array], needed: frozenset[tuple[str, str]],
    ) -> int:  # fmt: skip
        """Add rows to the accounts of a plot's predicates; returns the number of partials formed.

        `own`: (first own edge of each account, own edges). `needed`: columns with what is kept of each.
        """
        of_row, begin, cells = number(rows.first, cell, plot.cells)
        count = len(cells)
        own_at, own_edges = own
        slots = np.arange(len(own_edges))
        shape = (own_at, slots, rows.edges, own_edges)
        row_lanes = tally(of_row, count)
        made = {"rows": self._settled(accounts, plot.cells, begin, cells, row_lanes, shape)}
        placed = Cells(of_row, np.ones(len(of_row), np.int8), count)
        for column, sums in self.sums.items():
            if (column, "sums") in needed:
                lanes = sums.lift(columns[column], placed)
                made[column] = self._settled(accounts, plot.cells, begin, cells, lanes, shape)
        bests: dict[tuple[str, bool], tuple[Int64s, Bools]] = {}
        for key, best in self.bests.items():
            if (key[0], "least" if key[1] else "greatest") in needed:
                codes, valid = best.codes_of(columns[key[0]])
                top, some = greatest(of_row, codes, _NO_NULLS if valid is None else valid, valid is not None, count)
                out, filled = np.zeros(len(own_edges), np.int64), np.zeros(len(own_edges), np.bool_)
                settle_best(begin, cells, top, some, *accounts.members, *shape, out, filled)
                bests[key] = (out, filled)
        owner = np.repeat(accounts.numbers, np.diff(own_at))
        kept = np.flatnonzero(made["rows"][:, 0] > 0)
        lanes_kept = {c: m[kept] for c, m in made.items()}
        self._merge(owner[kept], own_edges[kept], lanes_kept, {k: (c[kept], f[kept]) for k, (c, f) in bests.items()})
        return count

    def _settled(
        self, accounts: Accounts, size: int, begin: Int64s, cells: Int64s, lanes: Int64s, shape: tuple[Int64s, ...]
    ) -> Int64s:
        own_edges = shape[-1]
        out = np.zeros((len(own_edges), lanes.shape[1]), np.int64)
        if lanes.shape[1] == 0 or len(cells) == 0:
            return out
        run_at, low, high = accounts.runs
        member_at, members = accounts.members
        dense = (len(begin) - 1) * (size + len(low))
        sparse = float(np.diff(member_at)[cells].sum())
        if dense <= 2 * sparse:
            settle(begin, cells, lanes, size, run_at, low, high, *shape, out)
        else:
            settle_sparse(begin, cells, lanes, member_at, members, *shape, out)
        return out

    def _merge(
        self,
        owner: Int64s,
        edge: Int64s,
        lanes: Mapping[str, Int64s],
        bests: Mapping[tuple[str, bool], tuple[Int64s, Bools]],
    ) -> None:
        """Add entries; those of one account and edge become one."""
        n = len(owner)
        accounts = np.concatenate((self.account, owner))
        edges = np.concatenate((self.edge, edge))
        order = np.lexsort((edges, accounts))
        a, e = accounts[order], edges[order]
        opens = np.ones(len(order), np.bool_)
        opens[1:] = (a[1:] != a[:-1]) | (e[1:] != e[:-1])
        begins = np.flatnonzero(opens)
        self.account, self.edge = a[begins], e[begins]

        def joined(old: np.ndarray, new: np.ndarray | None) -> np.ndarray:
            more = np.zeros((n, *old.shape[1:]), old.dtype) if new is None else new
            both: np.ndarray = np.concatenate((old, more))[order]
            return both

        def added(old: Int64s, new: Int64s | None) -> Int64s:
            both = joined(old, new)
            return np.add.reduceat(both, begins, axis=0) if len(begins) else both

        self.rows = added(self.rows, lanes["rows"])
        for column, sums in self.sums.items():
            sums.store = sums.canonical(added(sums.store, lanes.get(column)))
        for key, best in self.bests.items():
            codes, filled = bests.get(key, (None, None))
            some = joined(best.filled, filled)
            top = np.where(some, joined(best.codes, codes), np.iinfo(np.int64).min)
            best.codes = np.maximum.reduceat(top, begins) if len(begins) else top
            best.filled = np.logical_or.reduceat(some, begins) if len(begins) else some

    # -- answers -----------------------------------------------------------------------------------------------------

    def reader(self) -> Reader:
        """The entries as they are now, to answer from."""
        return Reader(self)

    def forget(self, oldest: Mapping[int, int]) -> None:
        """Drop entries at or before `oldest[account]`; accounts that are not named are closed."""
        if not len(self):
            return
        names = np.array(sorted(oldest), np.int64)
        bounds = np.array([oldest[k] for k in sorted(oldest)], np.int64)
        at = np.searchsorted(names, self.account)
        known = (
            (at < len(names)) & (names[np.minimum(at, len(names) - 1)] == self.account)
            if len(names)
            else np.zeros(len(self), np.bool_)
        )
        keep = known.copy()
        keep[known] = self.edge[known] > bounds[at[known]]
        if keep.all():
            return
        self.account, self.edge, self.rows = self.account[keep], self.edge[keep], self.rows[keep]
        for sums in self.sums.values():
            sums.store = sums.store[keep]
            if sums.layout.width > 6:
                sums.trim()
        for best in self.bests.values():
            best.codes, best.filled = best.codes[keep], best.filled[keep]

    # -- state -------------------------------------------------------------------------------------------------------

    def run(self) -> Run:
        """All entries as one run."""
        columns: dict[str, np.ndarray] = {"account": self.account, "edge": self.edge, "rows": self.rows[:, 0]}
        for column, sums in self.sums.items():
            columns |= {f"{name}|{column}": sums.store[:, k] for k, name in enumerate(sums.layout.names())}
        for (column, least), best in self.bests.items():
            mark = "least" if least else "greatest"
            columns |= {f"{mark}|{column}": best.codes, f"{mark}?|{column}": best.filled}
        return Run(pa.table({n: pa.array(np.ascontiguousarray(v)) for n, v in columns.items()}))

    def add_all(self, tables: Sequence[pa.Table]) -> None:
        """Add the entries of tables that `run` of like ledgers holds; what is to be kept has been provided."""
        filled = [t for t in tables if t.num_rows]
        if not filled:
            return
        found: dict[str, list[tuple[Int64s, Layout]]] = {}
        for column, sums in self.sums.items():
            found[column] = [lanes_of(t, column) for t in filled]
            for _, layout in found[column]:
                sums.widen(layout)
        lanes = {"rows": np.concatenate([ints(t, "rows") for t in filled]).reshape(-1, 1)}
        for column, parts in found.items():
            lanes[column] = np.concatenate([relaid(m, old, self.sums[column].layout) for m, old in parts])
        bests = {}
        for key in self.bests:
            codes = [_codes(t, *key) for t in filled]
            bests[key] = (np.concatenate([c for c, _ in codes]), np.concatenate([f for _, f in codes]))
        account, edge = (np.concatenate([ints(t, n) for t in filled]) for n in ("account", "edge"))
        self._merge(account, edge, lanes, bests)


class Reader:
    """Answers from the entries of a ledger that does not change meanwhile; running sums are made once per column."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._running: dict[str, Int64s] = {}
        self._edges: Int64s | None = None

    def between(self, account: Int64s, low: Int64s, high: Int64s) -> tuple[Int64s, Int64s]:
        """The entries of `account` with edges in `(low, high]`, as places `[a, b)`."""
        if self._edges is None:
            self._edges = np.unique(self.ledger.edge)
            self._step = len(self._edges) + 1
            self._key = self.ledger.account * self._step + np.searchsorted(self._edges, self.ledger.edge)
        key, base = self._key, account * self._step
        first, last = (np.searchsorted(key, base + np.searchsorted(self._edges, at, "right")) for at in (low, high))
        return first, last

    def answers(self, calls: Sequence[Aggregation], low: Int64s, high: Int64s) -> dict[Aggregation, Answer]:
        """The answers of distinct calls over entries `[low, high)`, at every request."""
        ledger = self.ledger
        rows = self._difference("", ledger.rows, low, high)[:, 0]
        lowered: dict[str, Lowering] = {}
        found: dict[Aggregation, Answer] = {}
        for call in calls:
            if call.column is None:
                found[call] = scalars(rows, None, call.type)
            elif call.kind in EXTREMES:
                found[call] = ledger.bests[call.column, call.kind == "min"].answer(low, high, call.type)
            else:
                if call.column not in lowered:
                    sums = ledger.sums[call.column]
                    lanes = self._difference(call.column, sums.store, low, high)
                    lowered[call.column] = Lowering(lanes, sums.layout, sums.type, rows)
                found[call] = lowered[call.column].answer(call)
        return found

    def _difference(self, column: str, lanes: Int64s, low: Int64s, high: Int64s) -> Int64s:
        """Sums of entries `[low, high)`; running sums wrap around, their differences do not."""
        running = self._running.get(column)
        if running is None:
            running = self._running[column] = np.zeros((len(lanes) + 1, lanes.shape[1]), np.int64)
            np.cumsum(lanes, axis=0, out=running[1:])
        return running[high] - running[low]


def _codes(table: pa.Table, column: str, least: bool) -> tuple[Int64s, Bools]:
    mark = "least" if least else "greatest"
    if f"{mark}|{column}" not in table.column_names:
        return np.zeros(table.num_rows, np.int64), np.zeros(table.num_rows, np.bool_)
    return ints(table, f"{mark}|{column}"), ints(table, f"{mark}?|{column}")


def lanes_of(table: pa.Table, column: str) -> tuple[Int64s, Layout]:
    """The lanes of one column in a table of partials or entries, and their layout."""
    ending = f"|{column}"
    marks = ("least", "least?", "greatest", "greatest?")
    names = [n[: -len(ending)] for n in table.column_names if n.endswith(ending) and n[: -len(ending)] not in marks]
    layout = Layout.of_names(names)
    lanes = np.zeros((table.num_rows, layout.width), np.int64)
    for k, name in enumerate(layout.names()):
        if name in names:
            lanes[:, k] = ints(table, name + ending)
    return lanes, layout
