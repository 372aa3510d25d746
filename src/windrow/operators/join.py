"""The n-way window join, one operator with no materialised intermediate results.

A result is one element of each input, with equal keys and all residual predicates true; it lives on the intersection of their lifetimes
with the product of their signs. New elements of input i probe what all other inputs remember, step by step along the join graph, then are
remembered themselves; the inputs take turns, so each combination is found exactly once (thesis 5.2.1).

Equalities fall into classes of columns that must all be equal. A step binds input j by the columns of j whose class is already bound; j keeps one index
(`KeyedRuns`) for each such set of columns. A step without any is a product, filtered by the residual predicates it completes.

Cost per advance: new elements times the steps, plus the matches at each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.operators import scalar
from windrow.operators.elements import BEGINNING, INF, Elements, Int64s, concat
from windrow.operators.keys import hash_rows, is_bijective, same_rows
from windrow.operators.linear import Formula
from windrow.operators.protocol import State
from windrow.operators.state.keyed import KeyedRuns

PRODUCT_ROWS = 1 << 20
"""A product is formed in parts of at most this many pairs."""


@dataclass(frozen=True)
class Part:
    """One input of a join: its columns; whether negatives come; whether its window bounds matching but not results;
    whether it only ever meets rows that come after its own (a table that does not reach back)."""

    columns: dict[str, pa.DataType]
    strict: bool = False
    internal: bool = False
    static: bool = False


@dataclass(frozen=True)
class Step:
    """Bind input `part`: its columns `keys` equal the already bound columns `bound`; then `residual` can be checked."""

    part: int
    keys: tuple[str, ...]
    bound: tuple[str, ...]
    null_safe: tuple[bool, ...]
    residual: tuple[Formula, ...]


class Join:
    """Join `parts` on equalities (left, right, null_safe) and residual predicates; `eager`: search all state to expire."""

    def __init__(
        self,
        parts: Sequence[Part],
        equalities: Sequence[tuple[str, str, bool]] = (),
        residual: Sequence[Formula] = (),
        orders: Sequence[Sequence[int]] | None = None,
        eager: bool = False,
    ) -> None:
        self.parts = tuple(parts)
        self.classes = _classes(equalities)
        self.residual = tuple(residual)
        # a static input never looks for partners, so nobody need be remembered for it
        self.paths = [
            () if p.static else self._path(i, orders[i] if orders else None) for i, p in enumerate(parts)
        ]
        self._turns = sorted(range(len(parts)), key=lambda i: not parts[i].static)
        self._self_equal = [self._own_classes(i) for i in range(len(parts))]
        wanted = {(s.part, s.keys) for path in self.paths for s in path}
        self._indexes = {
            (p, keys): KeyedRuns(keys, self.parts[p].strict, eager) for p, keys in sorted(wanted)
        }
        self._last = BEGINNING

    def start(self, ts: int) -> None:
        """Nothing to do."""

    def _path(self, first: int, order: Sequence[int] | None) -> tuple[Step, ...]:
        """The steps that complete a new element of input `first`, along the join graph where there is one."""
        owner = {c: i for i, p in enumerate(self.parts) for c in p.columns}
        bound, steps = {first}, []
        checked: set[int] = set()
        rest = [i for i in (order or range(len(self.parts))) if i != first]
        while rest:
            linked = [j for j in rest if self._links(j, bound, owner)]
            part = (linked or rest)[0]
            rest.remove(part)
            links = self._links(part, bound, owner)
            bound.add(part)
            ready = [
                i
                for i, f in enumerate(self.residual)
                if i not in checked and all(owner[c] in bound for c in f.reads)
            ]
            checked.update(ready)
            steps.append(
                Step(
                    part,
                    tuple(k for k, _, _ in links),
                    tuple(b for _, b, _ in links),
                    tuple(n for _, _, n in links),
                    tuple(self.residual[i] for i in ready),
                )
            )
        return tuple(steps)

    def _links(self, part: int, bound: set[int], owner: dict[str, int]) -> list[tuple[str, str, bool]]:
        """(own column, bound column, null safe) for each class that reaches from `part` into `bound`."""
        links = []
        for columns, null_safe in self.classes:
            own = [c for c in columns if owner[c] == part]
            other = [c for c in columns if owner[c] in bound]
            if own and other:
                links.append((own[0], other[0], null_safe))
        return links

    def _own_classes(self, part: int) -> list[tuple[list[str], bool]]:
        """Classes with columns of this input; several columns of one class must be equal within the row."""
        mine = self.parts[part].columns
        return [([c for c in columns if c in mine], safe) for columns, safe in self.classes if any(c in mine for c in columns)]

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        for index in self._indexes.values():
            index.expire(self._last)
        results = []
        for i in self._turns:
            new = self._eligible(i, inputs[i])
            if len(new):
                if not self.parts[i].static:
                    results.append(self._complete(i, new))
                for (part, _), index in self._indexes.items():
                    if part == i:
                        index.insert(new, self._last)
                        if self.parts[i].static and (new.sign < 0).any():
                            index.settle()  # a table row that is gone must meet nobody who comes now
        self._last = frontier
        if not results:
            return Elements.empty({n: t for p in self.parts for n, t in p.columns.items()})
        return concat(results)

    def _eligible(self, part: int, new: Elements) -> Elements:
        """Elements that can match at all: no null in a plain equality, equal columns where a class repeats."""
        keep = np.ones(len(new), np.bool_)
        for columns, null_safe in self._self_equal[part]:
            if not null_safe and new.columns[columns[0]].null_count:
                keep &= np.asarray(new.columns[columns[0]].is_valid())
            for other in columns[1:]:
                keep &= same_rows([new.columns[columns[0]]], [new.columns[other]], len(new), null_safe)
        return new.filter(keep)

    def _complete(self, first: int, new: Elements) -> Elements:
        internal = self.parts[first].internal
        # `alive` bounds matching, `exp` bounds the result; they differ for internal windows only
        alive = new.exp
        found = new.with_lifetimes(new.ts, np.full(len(new), INF)) if internal else new
        for step in self.paths[first]:
            found, alive = self._step(step, found, alive)
        order = [n for p in self.parts for n in p.columns]
        return found.with_columns({n: found.columns[n] for n in order})

    def _step(self, step: Step, found: Elements, alive: Int64s) -> tuple[Elements, Int64s]:
        part = self.parts[step.part]
        index = self._indexes[step.part, step.keys]
        outputs: list[tuple[Elements, Int64s]] = []
        for other, left, right in self._pairs(step, index, found):
            ts = np.maximum(found.ts[left], other.ts[right])
            ends = np.minimum(alive[left], other.exp[right])
            meet = ts < ends
            if not meet.all():
                keep = np.flatnonzero(meet)
                left, right, ts, ends = left[keep], right[keep], ts[keep], ends[keep]
            if not len(left):
                continue
            exp = found.exp[left] if part.internal else np.minimum(found.exp[left], other.exp[right])
            lefts, rights = pa.array(left), pa.array(right)
            columns = {n: a.take(lefts) for n, a in found.columns.items()}
            columns |= {n: a.take(rights) for n, a in other.columns.items()}
            pairs = Elements(ts, exp, found.sign[left] * other.sign[right], columns)
            pairs, ends = self._check(step, pairs, ends)
            outputs.append((pairs, ends))
        if not outputs:
            return Elements.empty({n: a.type for n, a in found.columns.items()} | part.columns), np.zeros(0, np.int64)
        return concat([p for p, _ in outputs]), np.concatenate([e for _, e in outputs])

    def _pairs(self, step: Step, index: KeyedRuns, found: Elements):  # type: ignore[no-untyped-def]
        """Candidate pairs: (remembered elements, indices into found, indices into remembered)."""
        if step.keys:
            hashes = hash_rows([found.columns[b] for b in step.bound], len(found))
            yield from index.probe(hashes)
            return
        for other in index.everything():
            per_part = max(1, PRODUCT_ROWS // max(1, len(other)))
            for begin in range(0, len(found), per_part):
                left = np.arange(begin, min(begin + per_part, len(found)))
                yield other, np.repeat(left, len(other)), np.tile(np.arange(len(other)), len(left))

    def _check(self, step: Step, pairs: Elements, ends: Int64s) -> tuple[Elements, Int64s]:
        """Keep pairs whose keys are truly equal and whose residual predicates hold."""
        keep = np.ones(len(pairs), np.bool_)
        types = [self.parts[step.part].columns[k] for k in step.keys]
        if not is_bijective(types) or step.null_safe[0]:
            for key, bound, safe in zip(step.keys, step.bound, step.null_safe, strict=True):
                keep &= same_rows([pairs.columns[key]], [pairs.columns[bound]], len(pairs), safe)
        if step.residual:
            if not keep.all():
                pairs, ends = pairs.filter(keep), ends[keep]
            reads = {c: pairs.columns[c] for f in step.residual for c in f.reads}
            keep = scalar.holds(reads, len(pairs), [f.sql for f in step.residual])
        return (pairs, ends) if keep.all() else (pairs.filter(keep), ends[keep])

    def state(self) -> State:
        slots = {f"{p}:{','.join(k)}": index.runs() for (p, k), index in self._indexes.items()}
        return slots

    def restore(self, state: State, frontier: int) -> None:
        self._last = frontier
        for (p, k), index in self._indexes.items():
            index.restore(state[f"{p}:{','.join(k)}"])


def _classes(equalities: Sequence[tuple[str, str, bool]]) -> list[tuple[list[str], bool]]:
    """Columns that must all be equal, by transitivity; null-safe equalities form classes of their own.

    >>> _classes([("a.k", "b.k", False), ("b.k", "c.k", False)])
    [(['a.k', 'b.k', 'c.k'], False)]
    """
    classes: list[tuple[list[str], bool]] = []
    for left, right, safe in equalities:
        touched = [c for c in classes if c[1] == safe and (left in c[0] or right in c[0])]
        merged = list(dict.fromkeys([x for c in touched for x in c[0]] + [left, right]))
        classes = [c for c in classes if c not in touched] + [(merged, safe)]
    return classes
