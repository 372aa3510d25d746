"""Shared aggregation in the tasks of a tick.

    stage 0   the rows of a task, joined with tables, reduced to entries and partials of all queries at once
    stage 1   entries go to one partition, partials by their keys; added to the state, answered, finished

Entries and partials end at window edges, so rows beyond the frontier are reduced at once and nothing waits; what is
answered is what lies up to the frontier. A row meets the tables as they stand when it arrives. Only answers travel to
the driver, those of all queries with the same columns in one envelope.

Families are kept by worker processes: at stage 0 without state, at stage 1 with the state of the accepted attempt. Both
follow the program that the driver ships. Cost of a tick: one pass over rows per space, then the answers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from windrow.errors import RuntimeFailure
from windrow.operators.elements import BEGINNING, INF, Int64s, one
from windrow.operators.keys import hash_rows
from windrow.operators.row_limit import MOST_ROWS
from windrow.operators.state.run import Run
from windrow.runtime.deadline_program import DeadlineProgram, held_back
from windrow.runtime.family_programs import FamilyProgram
from windrow.runtime.instances import without_collector
from windrow.runtime.member_blocks import FamilyPlace, MemberBlock
from windrow.runtime.messages import Envelope, FamilyPartials, PartialCounts, QueryFailed, SharedAnswer, SharedRows
from windrow.runtime.program import Program
from windrow.runtime.table_versions import cuts, in_force
from windrow.sharing.family import Counters, Family, FamilyMember
from windrow.sharing.finish import Finish, finish, finish_slots, restore_finishes
from windrow.sharing.member import Kind, Spent
from windrow.sharing.query_group import HeldInstants
from windrow.sharing.recognise import FamilySource
from windrow.sharing.registry import Functions
from windrow.sharing.rows import SourceRows
from windrow.store.runs import RunRef


def follow(
    family: Family, program: FamilyProgram, followed: dict[str, MemberBlock]
) -> tuple[list[str], dict[str, FamilyPlace]]:
    """Let those leave and join who did so on the driver: (those who have left, those who have joined).

    `followed`: the blocks of members that were looked at before, by their uids.
    """
    now = {b.uid: b for b in program.blocks}
    gone, new = list[str](), dict[str, FamilyPlace]()
    for uid in followed.keys() - now.keys():
        for name, place in followed.pop(uid).members.items():
            joined, is_ = family.joined.get(name), program.member(name)
            if joined is not None and joined.uid == place.uid and (is_ is None or is_.uid != place.uid):
                family.leave(name)
                gone.append(name)
    for uid in now.keys() - followed.keys():
        followed[uid] = now[uid]
        new |= {n: m for n, m in now[uid].members.items() if n not in family.joined}
    with without_collector():
        for place in new.values():
            member = place.query.member
            family.serve(FamilyMember(member, BEGINNING, place.epoch, place.synopsis, uid=place.uid))
    follow_columns(family, program)
    family.epoch = program.epoch
    return gone, new


def follow_columns(family: Family, program: FamilyProgram) -> None:
    """The same for members in columns."""
    now = {m.uid for m in program.instances}
    for block, members in list(family.columns.items()):
        if block not in now:
            family.leave_columns(block, np.arange(len(members)))
    for members in program.instances:
        left = program.left[members.uid]
        if members.uid not in family.columns and len(left) < len(members):
            family.serve_columns(members)
        if len(left):
            family.leave_columns(members.uid, left)


# -- stage 0 -----------------------------------------------------------------------------------------------------------

MOST_REDUCERS = 1 << 10
"""Families without state that a worker process keeps."""

_reducers: OrderedDict[tuple[str, str], Reducer] = OrderedDict()
_rows: OrderedDict[tuple[str, FamilySource], tuple[tuple[str, ...], SourceRows]] = OrderedDict()


class Reducer:
    """A family without state: rows in, partials out."""

    def __init__(self, family_program: FamilyProgram, functions: Functions) -> None:
        self.family = Family(functions, family_program.slicing)
        self.family_program = replace(family_program, blocks=(), instances=())
        self.followed: dict[str, MemberBlock] = {}
        self.columns: dict[str, pa.DataType] = {}  # that its queries read

    def follow(self, family_program: FamilyProgram, functions: Functions, direct: bool) -> None:
        """Do what the driver's family does; `direct`: rows are only passed on."""
        if self.family_program is not family_program:
            if not self._knows_some_of(family_program):
                # another engine's family, or all anew: numbers of synopses may come again and mean something else
                self.family, self.followed = Family(functions, family_program.slicing), {}
            self.family.functions, self.family_program = functions, family_program
            if not direct:
                follow(self.family, family_program, self.followed)
            self.columns = family_program.columns

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
    refs = {t: in_force(program.tables[t], instant).refs for t in labels}
    versions = tuple(chain[-1].uid for chain in refs.values())
    known = _rows.get((program.store.uri, source))
    if known is None or known[0] != versions:
        tables = {t: [program.store.read(ref).table for ref in chain] for t, chain in refs.items()}
        known = (versions, SourceRows(source, tables))
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
            to = hash_rows(keys, table.num_rows).view(np.uint64) % np.uint64(partitions)
            for p in np.unique(to).tolist():
                part = table.filter(pa.array(to == p))
                yield Envelope(int(p), sender, FamilyPartials(family_program.name, slot, part))


# -- stage 1 -----------------------------------------------------------------------------------------------------------


@dataclass
class FamilyState:
    """A family in one task: partials in memory, and the runs that hold them on disk."""

    family_program: FamilyProgram
    family: Family
    partition: int
    home: bool
    functions: Functions
    finishes: dict[str, Finish] = field(default_factory=dict)
    circuits: list[str] = field(default_factory=list)  # whose finishes have state
    columns: set[str] = field(default_factory=set)  # blocks of members in columns, which have a finish each
    alike: dict[Kind, Finish] = field(default_factory=dict)  # finishes that serve all queries of a kind
    inbox: dict[str, list[pa.Table]] = field(default_factory=dict)
    rows: list[SharedRows] = field(default_factory=list)
    saved: dict[str, tuple[Run, ...]] = field(default_factory=dict)
    refs: dict[str, RunRef] = field(default_factory=dict)  # by uid, of the saved runs
    counted: Counters = field(default_factory=Counters)
    followed: bool = False
    blocks: dict[str, MemberBlock] = field(default_factory=dict)  # of members that were looked at
    deadlines: DeadlineProgram | None = None  # of this tick
    most_rows: int = MOST_ROWS

    def follow(self, family_program: FamilyProgram, functions: Functions) -> None:
        """Do what the driver's family does."""
        if self.family_program is family_program and self.followed:
            return
        self.followed = True
        self.family_program, self.functions, self.family.functions = family_program, functions, functions
        gone, new = follow(self.family, family_program, self.blocks)
        late = {n for b in family_program.blocks for n in b.late}
        if late != self.family.deadlines:
            self.family.hold_back(late)
        for name in gone:
            self.finishes.pop(name, None)
        for name, place in new.items():
            if self._answers(name):
                self.finishes[name] = self._finish(place, place.query.member.kind)
        for block in [b for b in self.columns if b not in self.family.columns]:
            self.columns.discard(block)
            self.finishes.pop(block, None)
        for members in family_program.instances if self.home else ():
            self.columns.add(members.uid)
            if members.uid not in self.finishes:
                self.finishes[members.uid] = Finish(members.query, functions, self.most_rows)
        if gone:
            self.circuits = [n for n in self.circuits if n in self.finishes]
        self.circuits += [n for n in new if n in self.finishes and self.finishes[n].circuit is not None]
        self.alike = {kind: f for kind, f in self.alike.items() if f.functions is functions}

    def _finish(self, member: FamilyPlace, kind: Kind) -> Finish:
        """What stands above the aggregate of a query; one for all of a kind where that is the same."""
        known = self.alike.get(kind)
        if known is not None:
            return known
        made = Finish(member.query, self.functions, self.most_rows)
        made.uid = member.uid
        if made.alike:
            self.alike[kind] = made
        return made

    def _answers(self, name: str) -> bool:
        spread = not self.family_program.gathered and bool(self.family.joined[name].member.kind.keys)
        return self.home or spread

    def receive(self, message: FamilyPartials | PartialCounts | SharedRows) -> None:
        """Take in what stage 0 sent."""
        match message:
            case PartialCounts(_, rows, lifted, partials):
                self.counted.rows += rows
                self.counted.lifted += lifted
                self.counted.partials += partials
            case FamilyPartials(_, slot, table):
                self.inbox.setdefault(slot, []).append(table)
            case SharedRows():
                self.rows.append(message)

    def advance(self, frontier: int, starts: Mapping[str, int], out: list[Envelope]) -> None:
        """Add what came to the state, and answer what is due."""
        for epoch in list(self.family.unstarted):
            start = starts.get(self.family_program.clock(epoch))
            if start is not None and start <= frontier:
                begun = self.family.begin_epoch(epoch, start)
                for name in begun if self.circuits else ():
                    if name in self.finishes:
                        self.finishes[name].start(start)
        self.family.counters = self.counted
        for rows in self.rows:
            self.family.settle(rows.ts, rows.columns, rows.members)
        self.rows = []
        self.family.absorb(self.inbox)
        self.inbox = {}
        failures: dict[str, RuntimeFailure] = dict(self.family.failed)
        self.family.failed.clear()
        due = self.family.finish(frontier, self.home, self._held(frontier, starts))
        answers = finish(self.finishes, due, frontier, failures, [n for n in self.circuits if n in self.finishes])
        for name, error in failures.items():
            self.family.leave(name)
            self.finishes.pop(name, None)
            out.append(Envelope(0, self.partition, QueryFailed(name.lower(), error)))
        out += [Envelope(self.partition, self.partition, SharedAnswer(batch)) for batch in answers]

    def _held(self, frontier: int, starts: Mapping[str, int]) -> dict[str, HeldInstants] | None:
        """At which multiples the queries with deadlines are answered; the others at all of theirs."""
        if self.deadlines is None or not self.family.deadlines:
            return None
        return held_back(self.deadlines, self.family.deadlines, frontier, starts)

    @property
    def spent(self) -> Mapping[str, Spent]:
        """What queries with deadlines took in this tick."""
        return self.family.spent

    # what a task writes

    def slots(self, stage: int, partition: int) -> Iterator[tuple[str, tuple[Run, ...]]]:
        """Named lists of runs: all that the family needs to go on."""
        yield from self.family.held().items()
        yield from finish_slots(self.finishes.values())

    @property
    def kept(self) -> bool:
        """Whether there is something to name in a manifest."""
        return True

    @property
    def table_refs(self) -> Mapping[str, RunRef]:
        """Versions of tables that the state depends on: none, rows have met theirs."""
        return {}


def recalled(program: Program, family_program: FamilyProgram, partition: int, known: FamilyState | None) -> FamilyState:
    """A family as of the last accepted tick."""
    functions = program.deployment.functions
    if known is None:
        known = _restored(program, family_program, partition, functions)
    known.follow(family_program, functions)
    known.counted, known.deadlines, known.family.stopwatch = Counters(), program.deadlines, program.stopwatch
    return known


def _restored(program: Program, family_program: FamilyProgram, partition: int, functions: Functions) -> FamilyState:
    held = FamilyState(family_program, Family(functions, family_program.slicing), partition,
                      family_program.home(program.partitions) == partition, functions,
                      most_rows=program.most_rows)  # fmt: skip
    held.follow(family_program, functions)
    slots = program.runs.get((family_program.name, 1, partition), {})
    state: dict[str, tuple[Run, ...]] = {}
    for slot, refs in slots.items():
        state[slot] = held.saved[slot] = tuple(program.store.read(r) for r in refs)
        held.refs |= {r.uid: r for r in refs}
    held.family.hold(state, program.previous)
    for epoch in list(held.family.unstarted):
        clock = family_program.clock(epoch)
        if clock in program.fresh:
            continue
        held.family.done_epoch(epoch)
        start = program.starts.get(clock)
        if start is not None and start <= program.previous:
            begun = held.family.begin_epoch(epoch, start)
            for name in begun if held.circuits else ():
                mine = held.finishes.get(name)
                if mine is not None and mine.circuit is not None:
                    mine.circuit.started, mine.circuit.frontier = True, program.previous
    fresh = set(family_program.fresh(program.fresh)) if held.circuits else set()
    restore_finishes(held.finishes, state, fresh, program.previous)
    return held
