"""The star join: streams that meet through the rows of a fact table, or through equal keys, in a memory of bounded
size.

A result is one row of each stream and one fact whose key columns equal theirs and that is active, `begin <= ts < end`,
at the time of every one of them (paper, condition 6). It lives on the intersection of its rows' lifetimes, as in the
exact join. What the memory sheds only keeps later results from being found: the answer is always a sub-bag of the exact
one, and equal to it while nothing is shed. Without a fact table the "facts" are the key values themselves, and every
row has one.

The fact table is indexed on each stream's key columns. A row finds its facts once, when it comes, so a change of the
table at t touches only rows from t on: an inserted fact is active from its `ts`, a deleted one until the `ts` of the
negative element. Facts that have ended are forgotten.

State: the rows in memory with their priorities, the facts, and counters. The kernel is `star_memory.py`; `advance`
gathers its input and output columns. Cost per advance: the memory and the new rows with their facts, once; then the
kernel's cost per instant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.errors import SourceError
from windrow.operators.elements import BEGINNING, INF, Elements, Int64s, concat
from windrow.operators.keys import factorize, hash_rows, is_bijective, same_rows
from windrow.operators.linear import Formula, satisfied
from windrow.operators.protocol import State, Unclocked
from windrow.operators.quality import Quality
from windrow.operators.star_memory import Outcome, Policy, StarRows, advance
from windrow.operators.state.run import Run, elements_of, ints, run_of

__all__ = ["FactTable", "Policy", "StarJoinOperator", "StarStream"]


@dataclass(frozen=True)
class StarStream:
    """One stream: its columns, the columns of its key, and the column of its importance (none: every row counts 1)."""

    name: str
    columns: Mapping[str, pa.DataType]
    keys: tuple[str, ...]
    importance: str | None = None


@dataclass(frozen=True)
class FactTable:
    """The fact table: its columns, the key columns for each stream, and the columns of the active interval."""

    name: str
    columns: Mapping[str, pa.DataType]
    keys: tuple[tuple[str, ...], ...]
    valid: tuple[str, str] | None = None


class StarJoinOperator(Unclocked):
    """Join streams through a fact table (the last input, if there is one) in bounded memory."""

    def __init__(
        self, streams: Sequence[StarStream], facts: FactTable | None, policy: Policy, residual: Sequence[Formula] = ()
    ) -> None:
        self.streams, self.policy, self.residual = tuple(streams), policy, tuple(residual)
        self.facts = _Facts(facts, len(streams)) if facts is not None else None
        self._memory = [Elements.empty(s.columns) for s in streams]
        self._prio = [np.empty(0) for _ in streams]
        self._matches = [np.empty(0, np.int64) for _ in streams]
        self._drops = np.zeros(len(streams), np.int64)
        self._counts = np.zeros(4, np.int64)
        self._sums = np.zeros(4)

    @property
    def quality(self) -> Quality:
        """How much of what came was kept, since the beginning."""
        return _quality(self._counts, self._sums)

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        if self.facts is not None:
            self.facts.update(inputs[-1])
        new = [_in_time(e) for e in inputs[: len(self.streams)]]
        if not any(len(e) for e in new):
            return Elements.empty(self._schema())
        for stream, elements in zip(self.streams, new, strict=True):
            _check_importance(stream, elements)
        held = [concat([m, e]) for m, e in zip(self._memory, new, strict=True)]
        rows, local = self._rows(held, [len(e) for e in new])
        outcome = advance(rows, len(self.streams), self.policy, self._drops, self._counts, self._sums)
        results = self._results(held, local, outcome)
        self._remember(held, local, rows, outcome.kept)
        if self.facts is not None:
            self.facts.forget(frontier)
        return results

    def _schema(self) -> dict[str, pa.DataType]:
        columns = {n: t for s in self.streams for n, t in s.columns.items()}
        return columns | (dict(self.facts.table.columns) if self.facts is not None else {})

    def _rows(self, held: Sequence[Elements], fresh: Sequence[int]) -> tuple[StarRows, Int64s]:
        """All rows in the kernel's numbering; `local[i]` is row i's place in its stream's elements."""
        stream = np.concatenate([np.full(len(e), s) for s, e in enumerate(held)])
        local = np.concatenate([np.arange(len(e)) for e in held])
        ts = np.concatenate([e.ts for e in held])
        old = np.array([len(e) - n for e, n in zip(held, fresh, strict=True)])
        is_new = local >= old[stream]
        order = np.lexsort((local, stream, np.where(is_new, ts, 0), is_new))
        stream, local, ts = stream[order], local[order], ts[order]
        exp = np.concatenate([e.exp for e in held])[order]
        imp = np.concatenate([self._importance(s, e) for s, e in zip(self.streams, held, strict=True)])[order]
        prio = np.concatenate([_padded(p, n) for p, n in zip(self._prio, fresh, strict=True)])[order]
        matches = np.concatenate([_padded(m, n) for m, n in zip(self._matches, fresh, strict=True)])[order]
        owner, fact, ends = self._facts_of(held)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        owner = place[owner]
        by_owner = np.argsort(owner, kind="stable")
        ptr = np.searchsorted(owner[by_owner], np.arange(len(order) + 1)).astype(np.int64)
        stored = int(len(order) - sum(fresh))
        return StarRows(stream, ts, exp, imp, prio, matches, ptr, fact[by_owner], ends, stored), local

    def _importance(self, stream: StarStream, elements: Elements) -> np.ndarray:
        if stream.importance is None:
            return np.ones(len(elements))
        return elements.columns[stream.importance].cast(pa.float64()).to_numpy(zero_copy_only=False)

    def _facts_of(self, held: Sequence[Elements]) -> tuple[Int64s, Int64s, Int64s]:
        """(row, dense fact) pairs, rows numbered stream after stream; and when each dense fact ends. Keeps the table
        row of each dense fact."""
        bases = np.cumsum([0, *(len(e) for e in held)])
        if self.facts is None:
            owner, codes = self._key_codes(held, int(bases[-1]))
            self._dense = np.empty(0, np.int64)
            count = int(codes.max()) + 1 if len(codes) else 0
            return owner, codes, np.full(count, INF)
        owners, found = [], []
        for s, elements in enumerate(held):
            keys = [elements.columns[k] for k in self.streams[s].keys]
            owner, fact = self.facts.active(s, keys, elements.ts)
            owners.append(owner + bases[s])
            found.append(fact)
        fact = np.concatenate(found)
        used = np.zeros(len(self.facts), np.bool_)
        used[fact] = True
        self._dense = np.flatnonzero(used)
        number = np.cumsum(used) - 1
        return np.concatenate(owners), number[fact].astype(np.int64), self.facts.end[self._dense]

    def _key_codes(self, held: Sequence[Elements], total: int) -> tuple[Int64s, Int64s]:
        """Without a table: rows with equal keys hold the same fact; a null key holds none."""
        width = len(self.streams[0].keys)
        columns = [
            pa.concat_arrays([e.columns[s.keys[k]] for s, e in zip(self.streams, held, strict=True)])
            for k in range(width)
        ]
        codes, _ = factorize(columns, total)
        valid = np.ones(total, np.bool_)
        for column in columns:
            if column.null_count:
                valid &= np.asarray(column.is_valid())
        owner = np.flatnonzero(valid)
        return owner, codes[owner]

    def _results(self, held: Sequence[Elements], local: Int64s, outcome: Outcome) -> Elements:
        """Result elements, from row and fact numbers."""
        found, (ts, exp) = outcome.results, outcome.spans
        if not found.shape[1]:
            return Elements.empty(self._schema())
        places = local.astype(np.int32)
        columns: dict[str, pa.Array] = {}
        for s, elements in enumerate(held):
            picks = pa.array(places[found[s]])
            columns |= {n: _picked(elements.columns[n], picks) for n in self.streams[s].columns}
        if self.facts is not None:
            picks = pa.array(self._dense.astype(np.int32)[found[-1]])
            columns |= {n: _picked(a, picks) for n, a in self.facts.columns().items()}
        results = Elements.positive(ts, exp, columns)
        if self.residual:
            reads = {c: columns[c] for f in self.residual for c in f.reads}
            results = results.filter(satisfied(reads, len(results), self.residual))
        return results

    def _remember(self, held: Sequence[Elements], local: Int64s, rows: StarRows, kept: Int64s) -> None:
        owner = rows.stream[kept]
        for s, elements in enumerate(held):
            mine = kept[owner == s]
            self._memory[s] = elements.take(local[mine])
            self._prio[s] = rows.prio[mine]
            self._matches[s] = rows.matches[mine]

    def state(self) -> State:
        slots = {
            f"memory{s}": (run_of(m, _prio=p, _matches=n),)
            for s, (m, p, n) in enumerate(zip(self._memory, self._prio, self._matches, strict=True))
        }
        figures = {"drops": pa.array([self._drops.tolist()]), "counts": pa.array([self._counts.tolist()])}
        slots["figures"] = (Run(pa.table({**figures, "sums": pa.array([self._sums.tolist()])})),)
        if self.facts is not None:
            slots["facts"] = (self.facts.run(),)
        return slots

    def restore(self, state: State, frontier: int) -> None:
        for s in range(len(self.streams)):
            (run,) = state[f"memory{s}"]
            table = run.table.combine_chunks()
            self._memory[s] = elements_of(run, "_prio", "_matches")
            self._prio[s] = ints(table, "_prio").copy()
            self._matches[s] = ints(table, "_matches").copy()
        (figures,) = state["figures"]
        row = figures.table.to_pylist()[0]
        self._drops = np.array(row["drops"], np.int64)
        self._counts = np.array(row["counts"], np.int64)
        self._sums = np.array(row["sums"], np.float64)
        if self.facts is not None:
            (facts,) = state["facts"]
            self.facts.restore(facts)


def quality_of(runs: Sequence[Run]) -> Quality:
    """The quality of several star joins together, from their `figures` runs."""
    rows = [run.table.to_pylist()[0] for run in runs]
    return _quality(
        sum((np.array(r["counts"]) for r in rows), np.zeros(4, np.int64)),
        sum((np.array(r["sums"]) for r in rows), np.zeros(4)),
    )


def _quality(counts: np.ndarray, sums: np.ndarray) -> Quality:
    seen, filtered, shed, results = (int(c) for c in counts)
    return Quality(seen, filtered, shed, results, *(float(s) for s in sums))


class _Facts:
    """The active part of the fact table: elements with `begin` and `end`, and one sorted index of key hashes per
    stream."""

    def __init__(self, table: FactTable, streams: int) -> None:
        self.table, self.streams = table, streams
        self.rows = Elements.empty(table.columns)
        self.begin = np.empty(0, np.int64)
        self.end = np.empty(0, np.int64)
        self._run: Run | None = None
        self._next_end = INF
        self._index()

    def __len__(self) -> int:
        return len(self.rows)

    def columns(self) -> dict[str, pa.Array]:
        """The facts' columns."""
        return self.rows.columns

    def update(self, elements: Elements) -> None:
        """Take in inserted facts, and end deleted ones at the time of their deletion."""
        if not len(elements):
            return
        added = elements.filter(elements.sign > 0)
        if len(added):
            begin, end = self._interval(added)
            self.rows = concat([self.rows, added])
            self.begin = np.concatenate([self.begin, np.maximum(begin, added.ts)])
            self.end = np.concatenate([self.end, np.minimum(end, added.exp)])
        self._delete(elements.filter(elements.sign < 0))
        self._index()

    def _delete(self, gone: Elements) -> None:
        """Each deleted row ends one equal fact that is active then, the newest."""
        if not len(gone):
            return
        names = list(self.table.columns)
        both = [pa.concat_arrays([self.rows.columns[n], gone.columns[n]]) for n in names]
        codes, _ = factorize(both, len(self.rows) + len(gone))
        own, theirs = codes[: len(self.rows)], codes[len(self.rows) :]
        for code, ts in zip(theirs.tolist(), gone.ts.tolist(), strict=True):
            equal = np.flatnonzero((own == code) & (self.rows.ts <= ts) & (self.end > ts))
            if len(equal):
                self.end[equal[-1]] = ts

    def _interval(self, facts: Elements) -> tuple[Int64s, Int64s]:
        if self.table.valid is None:
            return np.full(len(facts), BEGINNING), np.full(len(facts), INF)
        begin, end = self.table.valid
        bounds = _instants(facts.columns[begin], BEGINNING), _instants(facts.columns[end], INF)
        reversed_ = np.flatnonzero(bounds[1] < bounds[0])
        if len(reversed_):
            shown = {n: facts.columns[n][int(reversed_[0])].as_py() for n in facts.columns}
            raise SourceError(
                f'a row of table "{self.table.name}" ends before it begins',
                detail=", ".join(f"{n.rpartition('.')[2]} = {v}" for n, v in shown.items()),
                hint="a fact is active on [begin, end): begin must not be after end; NULL is an open end",
            )
        return bounds

    def forget(self, frontier: int) -> None:
        """Drop the facts that ended by `frontier`: no later row can hold them."""
        if self._next_end > frontier:
            return
        alive = np.flatnonzero(self.end > frontier)
        self.rows, self.begin, self.end = self.rows.take(alive), self.begin[alive], self.end[alive]
        self._index()

    def _index(self) -> None:
        self._run = None
        self._next_end = int(self.end.min()) if len(self.end) else INF
        self._sorted: list[tuple[Int64s, Int64s]] = []
        for s in range(self.streams):
            keys = [self.rows.columns[k] for k in self.table.keys[s]]
            hashes = hash_rows(keys, len(self.rows))
            usable = np.ones(len(self.rows), np.bool_)
            for key in keys:
                if key.null_count:
                    usable &= np.asarray(key.is_valid())
            order = np.flatnonzero(usable)[np.argsort(hashes[usable], kind="stable")]
            self._sorted.append((hashes[order], order))

    def active(self, stream: int, keys: Sequence[pa.Array], ts: Int64s) -> tuple[Int64s, Int64s]:
        """(row, fact) pairs: the facts with a row's keys that are active at its time."""
        hashes, order = self._sorted[stream]
        wanted = hash_rows(keys, len(ts))
        low = np.searchsorted(hashes, wanted, "left")
        count = np.searchsorted(hashes, wanted, "right") - low
        for key in keys:
            if key.null_count:
                count = np.where(np.asarray(key.is_valid()), count, 0)
        row = np.repeat(np.arange(len(ts)), count)
        skipped = np.repeat(np.cumsum(count) - count, count)
        fact = order[np.repeat(low, count) + np.arange(len(row)) - skipped]
        keep = (self.begin[fact] <= ts[row]) & (ts[row] < self.end[fact])
        if not is_bijective(keys):
            own = [self.rows.columns[k] for k in self.table.keys[stream]]
            left = [k.take(pa.array(row)) for k in keys]
            keep &= same_rows(left, [o.take(pa.array(fact)) for o in own], len(row), null_safe=False)
        return row[keep], fact[keep]

    def run(self) -> Run:
        """The facts as a run; the same object until they change."""
        if self._run is None:
            self._run = run_of(self.rows, _begin=self.begin, _end=self.end)
        return self._run

    def restore(self, run: Run) -> None:
        """Go back to the facts of a run."""
        table = run.table.combine_chunks()
        self.rows = elements_of(run, "_begin", "_end")
        self.begin, self.end = ints(table, "_begin").copy(), ints(table, "_end").copy()
        self._index()
        self._run = run


def _picked(column: pa.Array, picks: pa.Array) -> pa.Array:
    return pc.take(column, picks, boundscheck=False)


def _in_time(elements: Elements) -> Elements:
    if len(elements) and (np.diff(elements.ts) < 0).any():
        return elements.take(np.argsort(elements.ts, kind="stable"))
    return elements


def _padded(values: np.ndarray, more: int) -> np.ndarray:
    return np.concatenate([values, np.zeros(more, values.dtype)])


def _instants(bounds: pa.Array, open_: int) -> Int64s:
    """Bounds of active intervals as instants, rounded up to the clock's unit; null is open."""
    if pa.types.is_date(bounds.type):
        bounds = bounds.cast(pa.timestamp("us"))
    if pa.types.is_timestamp(bounds.type):
        unit = bounds.type.unit
        raw = bounds.cast(pa.int64())
        values = raw.fill_null(0).to_numpy(zero_copy_only=False)
        values = -(-values // 1000) if unit == "ns" else values * {"s": 1_000_000, "ms": 1000, "us": 1}[unit]
    else:
        values = bounds.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return np.where(np.asarray(bounds.is_null()), open_, values)


def _check_importance(stream: StarStream, elements: Elements) -> None:
    """Importance is a finite number above zero (paper, 2.1)."""
    if stream.importance is None or not len(elements):
        return
    given = elements.columns[stream.importance]
    values = given.cast(pa.float64()).to_numpy(zero_copy_only=False)
    bad = np.flatnonzero(~(np.isfinite(values) & (values > 0)))  # null reads as NaN
    if len(bad):
        first = int(bad[0])
        value = given[first].as_py()
        raise SourceError(
            f'importance {"NULL" if value is None else value} in stream "{stream.name}"',
            detail=f"the row at time {int(elements.ts[first])}; {len(bad)} such rows in this batch",
            hint="importance is a finite number greater than 0; filter such rows in WHERE or compute it, "
            "as in IMPORTANCE coalesce(imp, 1)",
        )
