"""The n-way window join, one operator with no materialised intermediate results.

A result is one element of each input, with equal keys and all residual predicates true; it lives on the intersection of
their lifetimes with the product of their signs. New elements of input i probe what all other inputs remember, step by
step along the join graph, then are remembered themselves; the inputs take turns, so each combination is found exactly
once (thesis 5.2.1).

Equalities fall into classes of columns that must all be equal. A step binds input j by the columns of j whose class is
already bound, and by one band (`state/bands.py`) if there is one; j keeps one index (`KeyedRuns`) for each such choice.
A step without any is a product, filtered by the residual predicates it completes.

Each input has its own order of steps. Whoever runs the join may let it follow others, by what is measured here
(`runtime/join_choices.py`): an order only says in which sequence the same windows are visited, so no answer changes.
Whatever an order needs is built from what another index of the same input holds.

Cost per advance: new elements times the steps, plus the matches at each step. Pairs are made at most `PART_ROWS` at a
time, depth first, so what lies between the steps stays small however large the result; `parts_of` hands the result out
in pieces. What spans more time than windows do is taken in stretches, so that rows are found that live, not all there
were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from windrow.operators.elements import BEGINNING, INF, Elements, Int64s, concat, gathered
from windrow.operators.join_plan import JoinPlan
from windrow.operators.join_steps import LEAST, SINCE, JoinStep, Probes, index_slot, stretches, touched
from windrow.operators.keys import has_signed_values, hash_rows, same_rows
from windrow.operators.linear import satisfied
from windrow.operators.protocol import State, Unclocked
from windrow.operators.state.bands import range_of
from windrow.operators.state.keyed import KeyedRuns
from windrow.operators.state.pairs import Needles, Pairs
from windrow.operators.state.run import Run

PART_ROWS = 1 << 20
"""Pairs are formed in parts of at most this many candidates (one row's candidates at least)."""


class JoinOperator(JoinPlan, Unclocked):
    """Join `parts` on equalities (left, right, null_safe), bands and residual predicates.

    A band must also be among the residual predicates: it only finds candidates. `eager`: search all state to expire;
    `interval`: look for ended elements only after so many ticks. `watch` is called for every part of pairs, whether or
    not any of them holds, and may raise.
    """

    @property
    def nbytes(self) -> int:
        """Bytes in memory, indexes included."""
        return sum(index.nbytes for index in self._indexes.values())

    # advancing

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        results = list(self.parts_of(inputs, frontier))
        return concat(results) if results else self._none

    def parts_of(self, inputs: Sequence[Elements], frontier: int) -> Iterator[Elements]:
        """The output of one advance in pieces; it must be read to its end."""
        for some, until in stretches(inputs, [p.static for p in self.parts], frontier):
            yield from self._parts_until(some, until)

    def _parts_until(self, inputs: Sequence[Elements], frontier: int) -> Iterator[Elements]:
        self._expire()
        for i in self._turns:
            new = self.eligible(i, inputs[i]) if len(inputs[i]) else inputs[i]
            if self._statistics:
                self._statistics[i].observe(new, frontier)
            if len(new):
                hashes: dict[tuple[str, ...], Int64s] = {}  # by its key: often the same one that it is kept by
                if not self.parts[i].static:
                    yield from self._complete(i, new, hashes)
                else:
                    self._changed |= bool((new.ts > BEGINNING).any()) and self._dates
                for (part, keys, _), index in self._indexes.items():
                    if part == i:
                        index.insert(new, self._last, hashes.get(keys))
        self._last = frontier

    def _expire(self) -> None:
        if self.interval and self._expired != BEGINNING and self._last < self._expired + self.interval:
            return
        self._expired = self._last
        for index in self._indexes.values():
            index.expire(self._last)

    def eligible(self, part: int, new: Elements) -> Elements:
        """Elements that can match at all: no null in a plain equality, equal columns where a class repeats."""
        keep: np.ndarray | None = None
        for columns, null_safe in self._self_equal[part]:
            if not null_safe and new.columns[columns[0]].null_count:
                valid = np.asarray(new.columns[columns[0]].is_valid())
                keep = valid if keep is None else keep & valid
            for other in columns[1:]:
                same = same_rows([new.columns[columns[0]]], [new.columns[other]], len(new), null_safe)
                keep = same if keep is None else keep & same
        return new if keep is None else new.filter(keep)

    def _complete(self, first: int, new: Elements, hashes: dict[tuple[str, ...], Int64s]) -> Iterator[Elements]:
        internal = self.parts[first].internal
        # `alive` bounds matching, `exp` bounds the result; they differ for internal windows only
        found = new.with_lifetimes(new.ts, np.full(len(new), INF)) if internal else new
        for result in self._extend(first, 0, self._with_dates(found), new.exp, hashes):
            yield result.with_columns({n: result.columns[n] for n in self._none.columns})

    def _with_dates(self, found: Elements) -> Elements:
        if not self._changed:
            return found
        dates = {SINCE: pa.array(np.full(len(found), BEGINNING)), LEAST: pa.array(found.ts)}
        return found.with_columns({**dates, **found.columns})

    def _extend(
        self,
        first: int,
        k: int,
        found: Elements,
        alive: Int64s,
        hashes: dict[tuple[str, ...], Int64s] | None = None,
    ) -> Iterator[Elements]:
        if k == len(self.paths[first]):
            # a table row touches only rows from its own time on, all of them
            yield touched(found) if self._changed else found
            return
        step = self.paths[first][k]
        matches = 0
        for pairs, ends in self._step(step, found, alive, hashes):
            matches += len(pairs)
            yield from self._extend(first, k + 1, pairs, ends)
        if self._statistics:
            bound = frozenset((first, *(s.part for s in self.paths[first][:k])))
            known = self._probes.get((bound, step.part), Probes())
            new = Probes(len(found), matches, len(found) * len(self._indexes[step.index]))
            self._probes[bound, step.part] = known.faded() + new

    def _step(
        self, step: JoinStep, found: Elements, alive: Int64s, hashes: dict[tuple[str, ...], Int64s] | None
    ) -> Iterator[tuple[Elements, Int64s]]:
        """Pairs of `found` and the step's input, in parts."""
        needles = self._needles(step, found, alive)
        if hashes is not None:
            hashes[step.bound] = needles.hashes
        for met in self._indexes[step.index].probe(needles, PART_ROWS):
            if len(met):
                self.watch()
                met = self._matching(step, found, met)
                if len(met):
                    yield self._paired(step, found, alive, met)

    def _needles(self, step: JoinStep, found: Elements, alive: Int64s) -> Needles:
        hashes = hash_rows([found.columns[c] for c in step.bound], len(found))
        if step.band is None:
            return Needles(hashes, found.ts, alive, found.sign)
        _, other, low, high = step.band
        return Needles(hashes, found.ts, alive, found.sign, *range_of(found.columns[other], low, high))

    def _paired(self, step: JoinStep, found: Elements, alive: Int64s, met: Pairs) -> tuple[Elements, Int64s]:
        ends = exp = met.end
        if self.parts[step.part].internal:
            exp = found.exp[met.left]
        elif alive is not found.exp:
            exp = np.minimum(found.exp[met.left], met.times("exp"))
        columns = dict(found.columns)
        if len(found) > 1 or len(met) > 1:
            columns = {n: gathered([(a, met.left)]) for n, a in found.columns.items()}
        columns |= {n: met.column(n) for n in self.parts[step.part].columns}
        if self._changed:
            date, bound = (SINCE, np.maximum) if self.parts[step.part].static else (LEAST, np.minimum)
            columns[date] = pa.array(bound(columns[date].to_numpy(), met.times("ts")))
        return Elements(met.ts, exp, met.sign, columns), ends

    def _matching(self, step: JoinStep, found: Elements, met: Pairs) -> Pairs:
        """The pairs whose keys are truly equal and whose residual predicates hold; no other column is looked at."""
        own = self.parts[step.part].columns
        types = [own[k] for k in step.keys]
        if types and (len(types) > 1 or not has_signed_values(types[0]) or step.null_safe[0]):
            keep = np.ones(len(met), np.bool_)
            for key, bound, safe in zip(step.keys, step.bound, step.null_safe, strict=True):
                keep &= same_rows([met.column(key)], [gathered([(found.columns[bound], met.left)])], len(met), safe)
            met = met.where(keep)
        if step.residual and len(met):
            reads = dict.fromkeys(c for f in step.residual for c in f.reads)
            columns = {c: met.column(c) if c in own else gathered([(found.columns[c], met.left)]) for c in reads}
            met = met.where(satisfied(columns, len(met), step.residual))
        return met

    # moving rows to other partitions

    def replace_rows(self, part: int, keep: Callable[[Elements], np.ndarray], more: Sequence[Elements]) -> None:
        """Let go of the rows of an input that `keep` does not keep, and take others in without joining them."""
        for which in [w for w in self._indexes if w[0] == part]:
            index = self._index(which)
            for elements in self._indexes[which].everything():
                index.insert(elements.filter(keep(elements)), self._last)
            for elements in more:
                index.insert(elements, self._last)
            self._indexes[which] = index

    # state

    def state(self) -> State:
        return {index_slot(which): index.runs() for which, index in self._indexes.items()}

    def adopt(self, runs: Mapping[str, Run]) -> None:
        """Go on with runs of the same uid and content that lie elsewhere."""
        for index in self._indexes.values():
            index.adopt(runs)

    def inherit(self, other: JoinOperator) -> None:
        """Take over the indexes of the same join, for `restore`: what is in them already is not indexed again."""
        self._indexes |= {which: index for which, index in other._indexes.items() if which in self._indexes}

    def restore(self, state: State, frontier: int) -> None:
        self._last = self._expired = frontier
        missing = []
        for which, index in self._indexes.items():
            if index_slot(which) in state:
                index.restore(state[index_slot(which)])
            else:
                missing.append(which)
        for which in missing:  # the state is from other orders: build from an index of the same input
            part = f"{which[0]}:"
            slot = min((s for s in state if s.startswith(part)), key=lambda s: ("~" in s, s))
            source = KeyedRuns((), self.parts[which[0]].strict, static=self.parts[which[0]].static)
            source.restore(state[slot])
            self._indexes[which] = self._index(which)
            for elements in source.everything():
                self._indexes[which].insert(elements, frontier)
        tables = [x for (p, _, _), x in self._indexes.items() if self.parts[p].static and self._dates]
        self._changed = any((e.ts > BEGINNING).any() for x in tables for e in x.everything())
