"""The predicate index: which cell a row is in.

Every tested attribute has one axis: the sorted cuts of all registered predicates on it. A row's place on an axis is
one binary search, whatever the number of predicates. Predicates that test the same attributes form a plot; a plot is
the grid of its attributes' places, with the cuts of its own predicates only, and a row's cell is its place on that
grid. No grid is formed of attributes that no query combines.

    plot {r3000, vol}            vol < 100   100..500   > 500
        r3000 false                  0          1         2
        r3000 true                   3          4         5        r3000 AND vol >= 100: cells [4, 6)
        r3000 null                   6          7         8

A predicate is a set of cells; in cell order it is a few runs, because the attribute with most places varies fastest.
Small plots are merged and large ones are split where that is cheaper (`Index`): a plot of its own with one predicate
is a bit per row.

Cost per row: log(cuts) per attribute, then a lookup per plot and attribute.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from math import prod

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates.order import encode
from windrow.operators.aggregates.vectors import Bools, Int64s, filled, raw, validity
from windrow.sharing.conditions import (
    Attribute,
    Condition,
    Cut,
    IsNull,
    Opaque,
    Truth,
    Within,
    atoms,
    cuts,
    truth,
)
from windrow.sharing.kernels import locate

MOST_CELLS = 1 << 16
"""A grid of more cells is not formed; its predicates get a bit each."""

MOST_SETS = 64
"""With more sets of attributes than this, merging is not searched for."""

Atom = Within | IsNull | Opaque


@dataclass(frozen=True)
class Axis:
    """An attribute and its cuts. Places: 0 below the first cut, ..., n above the last, n + 1 for NULL."""

    attribute: Attribute
    cuts: tuple[Cut, ...]

    @property
    def size(self) -> int:
        return len(self.cuts) + 2

    def places(self, column: pa.Array) -> Int64s:
        """The place of every row."""
        valid = validity(column)
        if self.attribute.is_text:
            found = self._places_of_text(column)
        elif pa.types.is_boolean(column.type):
            found = filled(column) if self.cuts == (1,) else self._search(filled(column))
        else:
            found = self._search(encode([column])[0][0])
        return found if valid is None else np.where(valid, found, len(self.cuts) + 1)

    def _search(self, codes: Int64s) -> Int64s:
        found = np.empty(len(codes), np.int64)
        locate(codes, np.array(self.cuts, np.int64), found)
        return found

    def _places_of_text(self, column: pa.Array) -> Int64s:
        """Search the distinct values only."""
        encoded = column.dictionary_encode()
        words = [v.encode() if v is not None else b"" for v in encoded.dictionary.to_pylist()]
        marks = np.empty(len(self.cuts), object)
        marks[:] = self.cuts
        sought = np.empty(len(words), object)
        sought[:] = words
        table = np.searchsorted(marks, sought, "right").astype(np.int64) if len(words) else np.zeros(1, np.int64)
        picks = raw(encoded.indices)
        inside = validity(encoded.indices)
        return table[picks if inside is None else np.where(inside, picks, 0)]

    def truth(self, atom: Atom) -> Truth:
        """Where the atom holds, per place."""
        null = np.zeros(self.size, np.bool_)
        null[-1] = True
        if isinstance(atom, IsNull):
            return Truth(null, ~null)
        spans = ((1, None),) if isinstance(atom, Opaque) else atom.spans
        yes = np.zeros(self.size, np.bool_)
        at = {cut: k + 1 for k, cut in enumerate(self.cuts)}
        for low, high in spans:
            begin = 0 if low is None else at[low]
            end = len(self.cuts) + 1 if high is None else at[high]
            yes[begin:end] = True
        return Truth(yes, ~yes & ~null)

    def fold(self, coarse: Axis) -> Int64s:
        """The place on an axis with fewer cuts of the same attribute, for every place on this one."""
        kept = set(coarse.cuts)
        steps = np.array([0, *(cut in kept for cut in self.cuts)], np.int64)
        return np.append(np.cumsum(steps), len(coarse.cuts) + 1)


@lru_cache(maxsize=1 << 16)
def marks(condition: Condition) -> Mapping[str, tuple[Attribute, frozenset[Cut]]]:
    """The attributes that a condition tests, with its cuts on each."""
    found: dict[str, tuple[Attribute, frozenset[Cut]]] = {}
    for atom in atoms(condition):
        sql = atom.attribute.sql
        _, known = found.get(sql, (atom.attribute, frozenset()))
        found[sql] = (atom.attribute, known | cuts(atom))
    return found


def axes_of(conditions: Iterable[Condition]) -> dict[str, Axis]:
    """One axis per attribute that the conditions test."""
    found: dict[str, tuple[Attribute, set[Cut]]] = {}
    for condition in conditions:
        for sql, (attribute, mine) in marks(condition).items():
            found.setdefault(sql, (attribute, set()))[1].update(mine)
    return {sql: Axis(a, tuple(sorted(all_))) for sql, (a, all_) in found.items()}


class Plot:
    """Predicates over one set of attributes, and the grid of cells that tells them apart.

    `solo`: no grid, one predicate; cell 1 is inside it, cell 0 outside.
    """

    def __init__(self, conditions: Sequence[Condition], solo: bool = False) -> None:
        self.conditions, self.solo = tuple(conditions), solo
        axes = axes_of(conditions)
        self.axes = tuple(sorted(axes.values(), key=lambda a: a.size))  # the most places vary fastest
        self.shape = tuple(a.size for a in self.axes)
        self.cells = 2 if solo else int(np.prod(self.shape, dtype=np.int64))

    @property
    def attributes(self) -> tuple[str, ...]:
        return tuple(a.attribute.sql for a in self.axes)

    def cell(self, places: Sequence[Int64s], rows: int) -> Int64s:
        """The cell of every row from its places on the plot's own axes."""
        if self.solo:
            return self._holds(places, rows).astype(np.int64)
        code: Int64s | None = None
        for mine, size in zip(places, self.shape, strict=True):
            code = mine if code is None else code * size + mine
        return np.zeros(rows, np.int64) if code is None else code

    def _holds(self, places: Sequence[Int64s], rows: int) -> Bools:
        index = {a: i for i, a in enumerate(self.attributes)}

        def atom(leaf: Atom) -> Truth:
            i = index[leaf.attribute.sql]
            found = self.axes[i].truth(leaf)
            return Truth(found.true[places[i]], found.false[places[i]])

        return np.broadcast_to(truth(self.conditions[0], atom).true, (rows,))

    def cells_of(self, condition: Condition) -> Bools:
        """The cells that satisfy a condition."""
        index = {a: i for i, a in enumerate(self.attributes)}

        def atom(leaf: Atom) -> Truth:
            i = index[leaf.attribute.sql]
            found = self.axes[i].truth(leaf)
            view = tuple(-1 if k == i else 1 for k in range(len(self.axes)))
            return Truth(found.true.reshape(view), found.false.reshape(view))

        return np.broadcast_to(truth(condition, atom).true, self.shape or (1,)).ravel()

    @cached_property
    def membership(self) -> Bools:
        """Which cells satisfy which predicate: [predicates, cells]."""
        if self.solo:
            return np.array([[False, True]])
        return np.array([self.cells_of(c) for c in self.conditions]).reshape(len(self.conditions), self.cells)

    @cached_property
    def runs(self) -> tuple[Int64s, Int64s, Int64s]:
        return runs_of(self.membership)

    @cached_property
    def members(self) -> tuple[Int64s, Int64s]:
        return members_of(self.membership)

    @cached_property
    def packed(self) -> bytes:
        """The plot for another process."""
        return pickle.dumps((self.conditions, self.solo))


@lru_cache(maxsize=64)
def unpacked(packed: bytes) -> Plot:
    """The plot of another process; equal ones are one object."""
    return Plot(*pickle.loads(packed))


def runs_of(membership: Bools) -> tuple[Int64s, Int64s, Int64s]:
    """Every predicate as runs of cells: (first run of each predicate, lows, highs).

    >>> [x.tolist() for x in runs_of(np.array([[False, True, True, False], [True, False, False, True]]))]
    [[0, 1, 3], [1, 0, 3], [3, 1, 4]]
    """
    padded = np.zeros((len(membership), membership.shape[1] + 2), np.int8)
    padded[:, 1:-1] = membership
    turns = np.diff(padded, axis=1)
    p, low = np.nonzero(turns == 1)
    _, high = np.nonzero(turns == -1)
    return np.searchsorted(p, np.arange(len(membership) + 1)), low, high


def members_of(membership: Bools) -> tuple[Int64s, Int64s]:
    """The predicates of every cell: (first of each cell, predicates)."""
    c, p = np.nonzero(membership.T)
    return np.searchsorted(c, np.arange(membership.shape[1] + 1)), p


class Index:
    """The axes and plots of a set of conditions; plots of an `old` index with the same predicates are kept."""

    def __init__(
        self,
        conditions: Iterable[Condition] = (),
        rows_per_slice: float = 256.0,
        costs: Costs | None = None,
        old: Index | None = None,
    ) -> None:
        wanted = list(dict.fromkeys(conditions))
        known = {(p.conditions, p.solo): p for p in old.plots} if old is not None else {}
        split = _split(wanted, rows_per_slice, costs or Costs())
        self._set([known.get((tuple(m), solo)) or Plot(m, solo) for m, solo in split], axes_of(wanted))

    def _set(self, plots: list[Plot], axes: dict[str, Axis]) -> None:
        self.plots, self.axes = plots, axes
        self._folds = [
            tuple(None if axes[a.attribute.sql].cuts == a.cuts else axes[a.attribute.sql].fold(a) for a in p.axes)
            for p in plots
        ]
        self.home = {c: (k, i) for k, p in enumerate(plots) for i, c in enumerate(p.conditions)}

    def extended(self, conditions: Sequence[Condition]) -> Index:
        """An index with more conditions, each put where its attributes are; nothing else is planned anew."""
        plots = list(self.plots)
        homes = [set(p.attributes) for p in plots]
        more: dict[int, list[Condition]] = {}
        for condition in conditions:
            tested = set(marks(condition))
            fitting = [k for k, p in enumerate(plots) if not p.solo and tested <= homes[k]]
            fitting = [k for k in fitting if _cells([*plots[k].conditions, *more.get(k, ()), condition]) <= MOST_CELLS]
            if not fitting:
                plots.append(Plot([condition]))
                homes.append(tested)
                continue
            more.setdefault(min(fitting, key=lambda k: plots[k].cells), []).append(condition)
        for k, added in more.items():
            plots[k] = Plot([*plots[k].conditions, *added])
        made = Index.__new__(Index)
        axes = dict(self.axes)
        for sql in dict.fromkeys(sql for c in conditions for sql in marks(c)):
            mine = {cut for c in conditions for cut in marks(c).get(sql, (None, ()))[1]}
            attribute = next(marks(c)[sql][0] for c in conditions if sql in marks(c))
            cuts_ = mine.union(axes[sql].cuts) if sql in axes else mine
            axes[sql] = Axis(attribute, tuple(sorted(cuts_)))
        made._set(plots, axes)
        return made

    def places(self, columns: Mapping[str, pa.Array]) -> dict[str, Int64s]:
        """Every row's place on every axis; `columns` are the attributes by their SQL."""
        return {sql: axis.places(columns[sql]) for sql, axis in self.axes.items()}

    def cells(self, k: int, places: Mapping[str, Int64s], rows: int) -> Int64s:
        """Every row's cell in plot k."""
        plot = self.plots[k]
        mine = [
            places[a.attribute.sql] if fold is None else fold[places[a.attribute.sql]]
            for a, fold in zip(plot.axes, self._folds[k], strict=True)
        ]
        return plot.cell(mine, rows)


@dataclass(frozen=True)
class Costs:
    """What a plot costs, in nanoseconds: per row, per cell and slice, per predicate and slice."""

    row: float = 25.0
    cell: float = 5.0
    predicate: float = 10.0


def _split(conditions: Sequence[Condition], rows_per_slice: float, price: Costs) -> list[tuple[list[Condition], bool]]:
    """The conditions of every plot, and whether it is solo: one per set of attributes, merged and split by cost."""
    per_pass = price.row * rows_per_slice

    def cost(members: Sequence[Condition]) -> float:
        cells = _cells(members)
        return per_pass + price.cell * cells + price.predicate * len(members) if cells <= MOST_CELLS else float("inf")

    sets: dict[frozenset[str], list[Condition]] = {}
    for condition in conditions:
        sets.setdefault(frozenset(marks(condition)), []).append(condition)
    plots: list[tuple[list[Condition], bool]] = []
    for members in _merged(list(sets.values()), cost):
        apart = len(members) * (per_pass + price.predicate)
        if cost(members) <= apart or (len(members) == 1 and _cells(members) <= MOST_CELLS):
            plots.append((members, False))
        else:
            plots += [([c], True) for c in members]
    return plots


def _merged(groups: list[list[Condition]], cost: Callable[[Sequence[Condition]], float]) -> list[list[Condition]]:
    """Merge the two groups that save most, again and again; groups that cannot be formed stay as they are."""
    alive = dict(enumerate(groups))
    prices = {k: cost(g) for k, g in alive.items()}
    pairs = combinations(alive, 2) if len(groups) <= MOST_SETS else ()
    saved = {(a, b): prices[a] + prices[b] - cost(alive[a] + alive[b]) for a, b in pairs if _alike(alive[a], alive[b])}
    new = len(groups)
    while saved:
        (a, b), gain = max(saved.items(), key=lambda kv: kv[1])
        if not gain > 0 or gain == float("inf"):
            break
        alive[new] = alive.pop(a) + alive.pop(b)
        prices[new] = cost(alive[new])
        saved = {pair: g for pair, g in saved.items() if a not in pair and b not in pair}
        saved |= {
            (k, new): prices[k] + prices[new] - cost(alive[k] + alive[new])
            for k in alive
            if k != new and _alike(alive[k], alive[new])
        }
        new += 1
    return list(alive.values())


def _alike(a: Sequence[Condition], b: Sequence[Condition]) -> bool:
    """Whether merging two groups is worth a thought: few cells in either."""
    return (
        _cells(a) * _cells(b) <= MOST_CELLS
        or set(marks(a[0])) <= set(marks(b[0]))
        or set(marks(b[0])) <= set(marks(a[0]))
    )


def _cells(conditions: Sequence[Condition]) -> int:
    """The size of the grid of conditions."""
    found: dict[str, set[Cut]] = {}
    for condition in conditions:
        for sql, (_, mine) in marks(condition).items():
            found.setdefault(sql, set()).update(mine)
    return prod(len(all_) + 2 for all_ in found.values())
