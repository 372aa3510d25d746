"""Stage 0 of shared aggregation: the rows of a task reduced to entries and partials of all queries at once.

A row meets the tables as they stand when it arrives. Families are kept by worker processes, here without state; they
follow the program that the driver ships. Cost: one pass over rows per space.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from windrow.operators.elements import INF, Int64s, one
from windrow.operators.keys import hash_rows
from windrow.runtime.by_hash import by_hash, rows_at, rows_of_each
from windrow.runtime.family_programs import FamilyProgram
from windrow.runtime.member_blocks import MemberBlock
from windrow.runtime.messages import Envelope, FamilyPartials, PartialCounts, QueryFailed, SharedRows
from windrow.runtime.program import Program
from windrow.runtime.shared_state import follow
from windrow.runtime.table_versions import Chain, behind, cuts, in_force
from windrow.sharing.family import Counters, Family
from windrow.sharing.recognise import FamilySource
from windrow.sharing.registry import Functions
from windrow.sharing.rows import SourceRows

MOST_REDUCERS = 1 << 10
"""Families without state that a worker process keeps."""

_reducers: OrderedDict[tuple[str, str], Reducer] = OrderedDict()
_rows: OrderedDict[tuple[str, FamilySource], tuple[tuple[Chain, ...], SourceRows]] = OrderedDict()


class Reducer:
    """A family without state: rows in, partials out."""

    def __init__(self, family_program: FamilyProgram, functions: Functions) -> None:
        self.family = Family(functions, family_program.slicing)
        self.family_program = replace(family_program, blocks=(), instances=())
        self.followed: dict[str, MemberBlock] = {}
        self.behind = False  # what the family is to do has changed, and it has not followed
        self.columns: dict[str, pa.DataType] = {}  # that its queries read

    def follow(self, family_program: FamilyProgram, functions: Functions, direct: bool) -> None:
        """Do what the driver's family does; `direct`: rows are only passed on."""
        if self.family_program is not family_program:
            if not self._knows_some_of(family_program):
                # another engine's family, or all anew: numbers of synopses may come again and mean something else
                self.family, self.followed = Family(functions, family_program.slicing), {}
            self.family.functions, self.family_program = functions, family_program
            self.columns, self.behind = family_program.columns, True
        if self.behind and not direct:
            follow(self.family, family_program, self.followed)
            self.behind = False

    def _knows_some_of(self, family_program: FamilyProgram) -> bool:
        """Whether a block of members, or a member, has been followed before."""
        if any(block.uid in self.followed for block in family_program.blocks):
            return True
        if any(members.uid in self.family.columns for members in family_program.instances):
            return True
        places = ((e, family_program.member(n)) for n, e in self.family.joined.items())
        return any(place is not None and place.uid == e.uid for e, place in places)


def _reducer(program: Program, family_program: FamilyProgram) -> Reducer:
    key = (program.store.uri, family_program.name)
    if key not in _reducers:
        _reducers[key] = Reducer(family_program, program.deployment.functions)
        while len(_reducers) > MOST_REDUCERS:
            _reducers.popitem(last=False)
    found = _reducers[key]
    found.follow(family_program, program.deployment.functions, program.direct)
    return found


def _source_rows(
    program: Program, source: FamilySource, columns: Mapping[str, pa.DataType], instant: int
) -> SourceRows:
    """The rows of a source, joined with its tables as they are at an instant, made once for all its families."""
    labels = sorted({t.partition("#")[0] for t in source.tables})
    there = {t: in_force(program.tables[t], instant) for t in labels}
    versions = tuple(v.refs for v in there.values())
    known = _rows.get((program.store.uri, source))
    if known is None or known[0] != versions:
        read = program.store.read
        tables = {t: [read(ref).table for ref in v.refs] for t, v in there.items()}
        new = [behind(seen, refs) for seen, refs in zip(known[0], versions, strict=True)] if known else [None]
        rows = SourceRows(source, tables) if known is None or None in new else known[1]
        if known is not None and rows is known[1]:
            rows.change(tables, {t: [read(ref).table for ref in n or ()] for t, n in zip(there, new, strict=True)})
        known = (versions, rows)
        _rows[program.store.uri, source] = known
        while len(_rows) > MOST_REDUCERS:
            _rows.popitem(last=False)
    known[1].read(columns)
    return known[1]


def reduced(
    program: Program, stream: str, ts: Int64s, columns: Mapping[str, pa.Array], sender: int, only: str | None
) -> Iterator[Envelope]:
    """The partials of new rows for all families over a stream; `only`: history, for the new queries of one family.

    Where all of a family is in this process, its rows go on as they are and are aggregated once.
    """
    reducers = [
        _reducer(program, family_program)
        for family_program in program.deployment.families.values()
        if family_program.source.stream == stream and only in (None, family_program.name)
    ]
    wanted: dict[FamilySource, dict[str, pa.DataType]] = {}
    for reducer in reducers:
        wanted.setdefault(reducer.family_program.source, {}).update(reducer.columns)
    order = None if (ts[1:] >= ts[:-1]).all() else np.argsort(ts, kind="stable")
    taken = {}
    for source, read in wanted.items():
        taken[source] = _taken(program, source, read, ts, columns, order)
    for reducer in reducers:
        family_program, family = reducer.family_program, reducer.family
        names = None if only is None else frozenset(family_program.fresh(program.fresh))
        if program.direct:
            yield Envelope(0, sender, SharedRows(family_program.name, *taken[family_program.source], names))
            continue
        family.counters = Counters()
        tables = family.reduce(*taken[family_program.source], names)
        for name, error in family.failed.items():
            yield Envelope(0, sender, QueryFailed(name.lower(), error))
        family.failed.clear()
        yield from _routed(family_program, tables, program.partitions, sender)
        c = family.counters
        counts = PartialCounts(family_program.name, c.rows, c.lifted, c.partials)
        yield Envelope(family_program.home(program.partitions), sender, counts)


def _taken(
    program: Program,
    source: FamilySource,
    read: Mapping[str, pa.DataType],
    ts: Int64s,
    columns: Mapping[str, pa.Array],
    order: Int64s | None,
) -> tuple[Int64s, dict[str, pa.Array]]:
    """The rows of a source in time order, each joined with its tables as they are at its time."""
    tables = [program.tables[t.partition("#")[0]] for t in source.tables]
    ends = [*cuts(tables, program.previous, INF), INF]
    parts: list[tuple[Int64s, dict[str, pa.Array]]] = []
    begin, sorted_ts = 0, ts if order is None else ts[order]
    for end, instant in zip(ends, [program.previous + 1, *(e + 1 for e in ends[:-1])], strict=True):
        stop = int(np.searchsorted(sorted_ts, end, "right"))
        if stop > begin or (not parts and end == INF):
            rows = _source_rows(program, source, read, instant)
            at, given = _sorted(ts, columns, order, rows)
            cut = slice(begin, stop)
            arrived = at[cut], {n: a[cut] for n, a in given.items()}
            parts.append(rows.take(lambda _, given=arrived: given))  # type: ignore[misc]
        begin = stop
    if len(parts) == 1:
        return parts[0]
    every = np.concatenate([part[0] for part in parts])
    return every, {n: pa.concat_arrays([part[1][n] for part in parts]) for n in parts[0][1]}


def _sorted(
    ts: Int64s, columns: Mapping[str, pa.Array], order: Int64s | None, rows: SourceRows
) -> tuple[Int64s, dict[str, pa.Array]]:
    wanted = {c.partition(".")[2] for c in rows.columns if c.partition(".")[0] == rows.source.stream}
    read = {n: a for n, a in columns.items() if n.lower() in wanted}
    if order is None:
        return ts, read
    picks = pa.array(order)
    return ts[order], {n: a.take(picks) for n, a in read.items()}


def _routed(
    family_program: FamilyProgram, partials: Mapping[str, tuple[pa.Table, ...]], partitions: int, sender: int
) -> Iterator[Envelope]:
    """Entries to the family's home, partials by the hash of their keys."""
    home = family_program.home(partitions)
    for slot, found in partials.items():
        for table in found:
            keys = [one(table.column(c)) for c in table.column_names if c.startswith("key|")]
            if table.num_rows == 0:
                continue
            if not keys or partitions == 1 or family_program.gathered:
                yield Envelope(home, sender, FamilyPartials(family_program.name, slot, table))
                continue
            to = by_hash(hash_rows(keys, table.num_rows), partitions)
            for p, rows in rows_of_each(to, partitions):
                yield Envelope(p, sender, FamilyPartials(family_program.name, slot, rows_at(table, rows)))
