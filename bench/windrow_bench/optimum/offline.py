"""The best answer a star join could have given in so much memory: OSSJ and SJA-S (paper, section 3.1).

Results through rows of one instant need no memory (the paper's SA graph). Every other result is found when its newer
row arrives, if its older row is still in memory; so each stream is a problem of its own (R graph, S graph): which rows
to keep how long. `timeline.py` solves it in polynomial time, `exhaustive.py` as the paper does. Memory is divided
evenly among the streams, or shared by all rows (`divide="need"`), which is one line with all tokens.

Order of events at an instant: the paper's offline algorithm evicts first, so a row that leaves at t earns nothing at t
(`evict_first`, the default). A join that probes before it evicts, as the online operator does, is bounded by the
optimum with `evict_first=False`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.errors import BindingError, SourceError, UnsupportedError, WindrowError
from windrow.operators.keys import factorize
from windrow.sources.tabular import to_table
from windrow_bench.optimum.exhaustive import best_path
from windrow_bench.optimum.matches import (
    Facts,
    Floats,
    Ints,
    MatchSide,
    Pairs,
    has_active_fact,
    instant_pairs,
    later_pairs,
)
from windrow_bench.optimum.timeline import place_tokens

METHODS = ("flow", "states")
_FIRST, _LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True)
class Optimum:
    """An optimal answer.

    `results`: `_ts`, one column per stream with the row's number in it, `importance`. `importance`: the total; `size`:
    how many. `last`: for each stream and row the last instant at which it is in memory, or null if it never stays to an
    instant after its own.
    """

    results: pa.Table
    importance: float
    size: int
    last: Mapping[str, pa.Array]
    times: Mapping[str, Ints]
    evict_first: bool

    @cached_property
    def instants(self) -> Ints:
        """The instants at which rows arrive."""
        return np.unique(np.concatenate(list(self.times.values())))

    def states(self) -> Iterator[tuple[int, dict[str, list[int]]]]:
        """Memory along the optimal path: for each instant, the rows of each stream that are in memory at its end."""
        ends = {name: self._ends(name) for name in self.times}
        for t in self.instants.tolist():
            held = {}
            for name, ts in self.times.items():
                arrived = int(np.searchsorted(ts, t, "right"))
                held[name] = np.flatnonzero(ends[name][:arrived] > t).tolist()
            yield t, held

    def _ends(self, name: str) -> Ints:
        """The first instant at whose end each row is gone: after its last match, or with it when rows are evicted
        after they match."""
        last = self.last[name].fill_null(_FIRST).to_numpy(zero_copy_only=False)
        return np.where(last == _FIRST, last, last + (1 if self.evict_first else 0))


def optimal(
    streams: Mapping[str, Any],
    relation: Any = None,
    *,
    lifetime: int,
    memory: int,
    objective: str = "importance",
    divide: str = "evenly",
    evict_first: bool = True,
    prefilter: bool = True,
    method: str = "flow",
    on: Mapping[str, Mapping[str, str]] | None = None,
    time: str = "ts",
    importance: str = "imp",
    valid: tuple[str, str] = ("begin", "end"),
) -> Optimum:
    """Find the answer of greatest total importance (or size) that a memory of so many rows allows.

    `streams`: one or two tables by name, with a time, an importance (absent: 1) and key columns. `relation`: the fact
    table; its interval `valid` may be absent or null (open). Keys are the columns that a stream and the relation share,
    or `on[stream] = {stream column: relation column}`. Without a relation the streams are joined on the columns they
    share. `lifetime` is in units of the time column. `method="states"` is the paper's dynamic program.
    """
    _check_options(streams, memory, lifetime, objective, divide, method)
    names = list(streams)
    tables = {n: to_table(t, f'stream "{n}"') for n, t in streams.items()}
    times = {n: _times(n, t, time) for n, t in tables.items()}
    weights = {n: _importances(n, t, importance) for n, t in tables.items()}
    facts_table = to_table(relation, "relation") if relation is not None else None
    keys = _keys(tables, facts_table, on or {}, (time, importance), valid)
    sides, facts = _coded(names, tables, times, weights, facts_table, keys, valid)
    if len(names) == 1:
        return _semi(names[0], sides[0], facts, times)
    problem = _Problem(names, sides, facts, lifetime, memory, objective, divide, evict_first, prefilter)
    ends = problem.by_states() if method == "states" else problem.by_flow()
    return problem.answer(ends)


class _Problem:
    """Two streams, their pairs, and how to choose among them."""

    def __init__(
        self, names: Sequence[str], sides: Sequence[MatchSide], facts: Facts, lifetime: int, memory: int,
        objective: str, divide: str, evict_first: bool, prefilter: bool,
    ) -> None:  # fmt: skip
        self.names, self.sides, self.facts = names, sides, facts
        self.lifetime, self.objective, self.evict_first, self.prefilter = lifetime, objective, evict_first, prefilter
        self.shared, self.memory = divide == "need", memory
        self.instants = np.unique(np.concatenate([s.ts for s in sides]))
        self.pairs = [
            later_pairs(sides[0], sides[1], facts, lifetime),
            later_pairs(sides[1], sides[0], facts.flipped(), lifetime),
        ]

    def _profit(self, s: int) -> Floats:
        """What each pair earns: the lesser importance of its rows; or 1, with importance to choose among answers of
        one size.

        The latter only while every sum stays exact; beyond that, any answer of the greatest size will do."""
        pairs = self.pairs[s]
        least = np.minimum(self.sides[s].imp[pairs.older], self.sides[1 - s].imp[pairs.newer])
        if self.objective == "importance":
            return least
        one = 2.0 ** np.ceil(np.log2(least.sum() + 1.0))
        return one + least if one * len(least) < 2.0**52 else np.ones(len(least))

    def by_flow(self) -> list[Ints]:
        """For each stream, the last instant of each row in memory (the least integer: none), by minimum-cost flow."""
        lines = [self._line(s) for s in range(2)]
        cells = len(self.instants)
        if self.shared:
            return self._shared(lines, cells)
        with ThreadPoolExecutor(2) as pool:
            work = [pool.submit(place_tokens, *line, cells, self.memory // 2) for line in lines]
            return [self._ends(s, lines[s], work[s].result()[0]) for s in range(2)]

    def _shared(self, lines: Sequence[tuple[Ints, Ints, Ints, Floats]], cells: int) -> list[Ints]:
        starts = np.concatenate([line[0] for line in lines])
        order = np.argsort(starts, kind="stable")
        counts = np.concatenate([np.diff(line[1]) for line in lines])
        begins = np.concatenate([lines[0][1][:-1], lines[1][1][:-1] + lines[0][1][-1]])
        ptr = np.concatenate([[0], np.cumsum(counts[order])])
        picks = np.repeat(begins[order] - ptr[:-1], counts[order]) + np.arange(ptr[-1])
        stops = np.concatenate([line[2] for line in lines])[picks]
        profit = np.concatenate([line[3] for line in lines])[picks]
        chosen, _ = place_tokens(starts[order], ptr, stops, profit, cells, self.memory)
        stop_of = np.full(len(starts), -1)
        stop_of[order] = np.where(chosen >= 0, stops[chosen] if len(stops) else -1, -1)
        first = len(lines[0][0])
        return [self._last(stop_of[:first]), self._last(stop_of[first:])]

    def _line(self, s: int) -> tuple[Ints, Ints, Ints, Floats]:
        """The rows of a stream as tokens: (start, ptr, stops, cumulated profit)."""
        pairs = self.pairs[s]
        older = pairs.older
        at = np.searchsorted(self.instants, self.sides[1 - s].ts[pairs.newer])
        total = np.cumsum(self._profit(s))
        base = np.concatenate([[0.0], total])[pairs.ptr[:-1]]
        cumulated = total - base[older]
        # several matches of one row at one instant are one stop
        last = np.ones(len(older), np.bool_)
        last[:-1] = (at[1:] != at[:-1]) | (older[1:] != older[:-1])
        kept = np.flatnonzero(last)
        ptr = np.searchsorted(older[kept], np.arange(len(self.sides[s]) + 1)).astype(np.int64)
        start = np.searchsorted(self.instants, self.sides[s].ts)
        return start, ptr, at[kept] + (1 if self.evict_first else 0), cumulated[kept]

    def _ends(self, s: int, line: tuple[Ints, Ints, Ints, Floats], chosen: Ints) -> Ints:
        stops = line[2]
        return self._last(np.where(chosen >= 0, stops[chosen] if len(stops) else -1, -1))

    def _last(self, stops: Ints) -> Ints:
        index = stops - (1 if self.evict_first else 0)
        return np.where(stops >= 0, self.instants[np.maximum(index, 0)], _FIRST)

    def by_states(self) -> list[Ints]:
        """The same by the paper's dynamic program."""
        if self.shared:
            raise UnsupportedError("the dynamic program with shared memory", hint='use method="flow"')
        ends = []
        for s, side in enumerate(self.sides):
            start = np.searchsorted(self.instants, side.ts)
            expires = np.searchsorted(self.instants, side.ts + self.lifetime)
            facts = self.facts if s == 0 else self.facts.flipped()
            may = has_active_fact(side, facts) if self.prefilter else np.ones(len(side), np.bool_)
            arrivals: list[list[int]] = [[] for _ in self.instants]
            for row in np.flatnonzero(may).tolist():
                arrivals[start[row]].append(row)
            profits: list[dict[int, float]] = [{} for _ in self.instants]
            at = np.searchsorted(self.instants, self.sides[1 - s].ts[self.pairs[s].newer])
            for t, row, gain in zip(at.tolist(), self.pairs[s].older.tolist(), self._profit(s).tolist(), strict=True):
                profits[t][row] = profits[t].get(row, 0.0) + gain
            _, path = best_path(arrivals, expires.tolist(), profits, self.memory // 2, self.evict_first)
            last = np.full(len(side), _FIRST)
            for t, state in enumerate(path):
                # a row in memory at the end of t was there for t's matches, and for those of t + 1 if it is evicted
                # after them
                index = t if self.evict_first else min(t + 1, len(self.instants) - 1)
                last[list(state)] = self.instants[index]
            ends.append(np.where(last > side.ts, last, _FIRST))
        return ends

    def answer(self, ends: Sequence[Ints]) -> Optimum:
        """The results that rows kept until `ends` give."""
        parts = [self._found(0, ends[0]), self._found(1, ends[1]), self._together()]
        ts = np.concatenate([p[0] for p in parts])
        rows = [np.concatenate([p[1 + s] for p in parts]) for s in range(2)]
        imp = np.minimum(self.sides[0].imp[rows[0]], self.sides[1].imp[rows[1]])
        order = np.lexsort((rows[1], rows[0], ts))
        columns = {
            "_ts": ts[order],
            **{n: r[order] for n, r in zip(self.names, rows, strict=True)},
            "importance": imp[order],
        }
        last = {n: pa.array(e, mask=e == _FIRST) for n, e in zip(self.names, ends, strict=True)}
        times = {n: s.ts for n, s in zip(self.names, self.sides, strict=True)}
        return Optimum(pa.table(columns), float(imp.sum()), len(imp), last, times, self.evict_first)

    def _found(self, s: int, ends: Ints) -> tuple[Ints, Ints, Ints]:
        pairs: Pairs = self.pairs[s]
        older, newer = pairs.older, pairs.newer
        ts = self.sides[1 - s].ts[newer]
        keep = ts <= ends[older]
        rows = older[keep].astype(np.int64), newer[keep].astype(np.int64)
        return ts[keep], *(rows if s == 0 else rows[::-1])

    def _together(self) -> tuple[Ints, Ints, Ints]:
        pairs = instant_pairs(self.sides[0], self.sides[1], self.facts)
        older = pairs.older.astype(np.int64)
        return self.sides[0].ts[older], older, pairs.newer.astype(np.int64)


def _semi(name: str, side: MatchSide, facts: Facts, times: Mapping[str, Ints]) -> Optimum:
    """One stream needs no memory: every row meets the facts active at its time, and is gone."""
    instants = np.unique(side.ts)
    nothing = np.zeros(len(instants), np.int64)  # a partner at every instant, which every fact matches
    partners = Facts((facts.codes[0], np.zeros(len(facts.begin), np.int64)), facts.begin, facts.end)
    rows = instant_pairs(side, MatchSide(instants, np.ones(len(instants)), nothing), partners).older.astype(np.int64)
    table = pa.table({"_ts": side.ts[rows], name: rows, "importance": side.imp[rows]})
    never = {name: pa.nulls(len(side), pa.int64())}
    return Optimum(table, float(side.imp[rows].sum()), len(rows), never, times, True)


def _check_options(
    streams: Mapping[str, Any], memory: int, lifetime: int, objective: str, divide: str, method: str
) -> None:
    for what, given, allowed in (
        ("objective", objective, ("importance", "size")),
        ("division", divide, ("evenly", "need")),
        ("method", method, METHODS),
    ):
        if given not in allowed:
            raise WindrowError(f"unknown {what} {given!r}", hint=f"use one of {', '.join(allowed)}")
    if not streams:
        raise WindrowError("a star join needs a stream", hint='pass streams={"r": table, "s": table}')
    if len(streams) > 2:
        raise UnsupportedError(
            f"the offline optimum of {len(streams)} streams",
            detail="a result of three streams needs two rows in memory at once, so rows have no profits of their own",
            hint="give one or two streams; the online heuristics take any number",
        )
    if memory < 2:
        raise WindrowError(
            f"a memory of {memory} rows", hint="memory is divided among the streams: give at least 2 rows"
        )
    if lifetime < 1:
        raise WindrowError(f"a lifetime of {lifetime}", hint="a row lives for at least one unit of time")


def _times(name: str, table: pa.Table, column: str) -> Ints:
    if column not in table.column_names:
        raise BindingError(
            f'stream "{name}" has no column "{column}"', hint=f"name its time column: time={table.column_names[0]!r}"
        )
    ts = table.column(column).cast(pa.int64()).to_numpy()
    if (np.diff(ts) < 0).any():
        raise SourceError(f'stream "{name}" is not in order of "{column}"', hint=f'sort it: table.sort_by("{column}")')
    return ts.astype(np.int64)


def _importances(name: str, table: pa.Table, column: str) -> Floats:
    if column not in table.column_names:
        return np.ones(table.num_rows)
    values = table.column(column).cast(pa.float64()).to_numpy()
    bad = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
    if len(bad):
        raise SourceError(
            f'importance {table.column(column)[int(bad[0])].as_py()} in row {int(bad[0])} of stream "{name}"',
            hint="importance is a finite number greater than 0",
        )
    return values.astype(np.float64)


def _keys(
    tables: Mapping[str, pa.Table],
    relation: pa.Table | None,
    on: Mapping[str, Mapping[str, str]],
    reserved: Sequence[str],
    valid: Sequence[str],
) -> dict[str, dict[str, str]]:
    """For each stream: its key columns, and those of the relation (or of the other stream) that equal them."""
    found: dict[str, dict[str, str]] = {}
    names = list(tables)
    for i, name in enumerate(names):
        if relation is not None:
            others = [c for c in relation.column_names if c not in valid]
        elif len(names) == 2:
            others = tables[names[1 - i]].column_names
        else:
            raise BindingError("one stream and no relation: there is nothing to join", hint="pass the relation")
        shared = {c: c for c in tables[name].column_names if c in others and c not in reserved}
        found[name] = dict(on.get(name, shared))
        if not found[name]:
            raise BindingError(
                f'stream "{name}" shares no column with '
                + ("the relation" if relation is not None else "the other stream"),
                hint=f'say which are equal: on={{"{name}": {{"stream column": "relation column"}}}}',
            )
    return found


def _coded(
    names: Sequence[str], tables: Mapping[str, pa.Table], times: Mapping[str, Ints], weights: Mapping[str, Floats],
    relation: pa.Table | None, keys: Mapping[str, Mapping[str, str]], valid: Sequence[str],
) -> tuple[list[MatchSide], Facts]:  # fmt: skip
    """Keys as codes that are equal where the keys are; -1 for a key with a null."""
    sides: list[MatchSide] = []
    codes: list[Ints] = []
    if relation is None:
        columns = [[_column(tables[n], c) for c in keys[names[0]]] for n in names]
        both = [pa.concat_arrays(list(pair)) for pair in zip(*columns, strict=True)]
        coded = _codes(both, sum(tables[n].num_rows for n in names))
        cut = tables[names[0]].num_rows
        for n, part in zip(names, (coded[:cut], coded[cut:]), strict=True):
            sides.append(MatchSide(times[n], weights[n], part))
        values = np.arange(int(coded.max()) + 1 if len(coded) else 0)
        return sides, Facts((values, values), np.full(len(values), _FIRST), np.full(len(values), _LAST))
    for n in names:
        pairs = keys[n].items()
        both = [
            pa.concat_arrays([_column(tables[n], own), _column(relation, other).cast(_column(tables[n], own).type)])
            for own, other in pairs
        ]
        coded = _codes(both, tables[n].num_rows + relation.num_rows)
        sides.append(MatchSide(times[n], weights[n], coded[: tables[n].num_rows]))
        codes.append(coded[tables[n].num_rows :])
    begin = _bounds(relation, valid[0], _FIRST)
    end = _bounds(relation, valid[1], _LAST)
    if (end < begin).any():
        row = int(np.flatnonzero(end < begin)[0])
        raise SourceError(
            f"row {row} of the relation ends before it begins",
            detail=f"it is active on [{begin[row]}, {end[row]})",
            hint="a fact is active on [begin, end): begin must not be after end",
        )
    return sides, Facts((codes[0], codes[-1]), begin, end)


def _codes(columns: Sequence[pa.Array], length: int) -> Ints:
    codes, _ = factorize(columns, length)
    for column in columns:
        if column.null_count:
            codes = np.where(np.asarray(column.is_null()), -1, codes)
    return codes.astype(np.int64)


def _bounds(relation: pa.Table, column: str, open_: int) -> Ints:
    if column not in relation.column_names:
        return np.full(relation.num_rows, open_)
    return _column(relation, column).cast(pa.int64()).fill_null(open_).to_numpy(zero_copy_only=False).astype(np.int64)


def _column(table: pa.Table, name: str) -> pa.Array:
    if name not in table.column_names:
        raise BindingError(f'unknown column "{name}"', hint=f"columns are {', '.join(table.column_names)}")
    column = table.column(name)
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays(column.chunks)
        if column.num_chunks
        else pa.array([], column.type)
    )
