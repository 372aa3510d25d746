"""Shared joins in the tasks of a tick.

    stage 0   the rows of both streams, with the columns that somebody reads, to the partitions of their join keys
    stage 1   pairs and synopses (`sharing/joins`): the sums of every window that is due, of the keys that lie here
    stage 2   sums of all partitions added up, by group; answered and finished

With one partition the sums are finished where they are made. Rows beyond the frontier wait in the state of stage 1, of
which only rows are kept: synopses are made anew after a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import pyarrow as pa

from windrow.errors import RuntimeFailure
from windrow.operators import scalar
from windrow.operators.aggregates.vectors import Bools, validity
from windrow.operators.elements import BEGINNING, Int64s, one
from windrow.operators.keys import hash_rows
from windrow.operators.row_limit import MOST_ROWS
from windrow.operators.state.run import Run, ints
from windrow.runtime.by_hash import by_hash, rows_at, rows_of_each
from windrow.runtime.deadline_program import DeadlineProgram, held_back
from windrow.runtime.family_programs import JoinProgram
from windrow.runtime.messages import Envelope, JoinRows, JoinSums, QueryFailed, SharedAnswer
from windrow.runtime.program import Program
from windrow.runtime.shared_state import SavedRuns
from windrow.sharing.finish import FINISH, Finish, finish, finish_slots, restore_finishes
from windrow.sharing.joins.combine import combine
from windrow.sharing.joins.operator import SharedJoin
from windrow.sharing.joins.readers import ResultGrouping
from windrow.sharing.joins.spending import JoinSpending
from windrow.sharing.member import Spent
from windrow.sharing.registry import Functions
from windrow.store.sealed import STATE, as_written

# -- stage 0 -----------------------------------------------------------------------------------------------------------


def sides(
    program: Program, stream: str, ts: Int64s, columns: Mapping[str, pa.Array], sender: int
) -> Iterator[Envelope]:
    """New rows of a stream for all shared joins that read it."""
    given = {name.lower(): array for name, array in columns.items()}
    for join in program.deployment.joins.values():
        for side, read in enumerate(join.source.streams):
            if read != stream:
                continue
            try:
                yield from _routed(join, side, ts, given, program.partitions, sender)
            except RuntimeFailure as error:  # the key itself raises: nobody can go on
                for name in join.members:
                    yield Envelope(0, sender, QueryFailed(name.lower(), error))


def _routed(
    join: JoinProgram, side: int, ts: Int64s, columns: Mapping[str, pa.Array], partitions: int, sender: int
) -> Iterator[Envelope]:
    """Rows to the partitions of their keys; a row without a key meets nobody."""
    hashes, there = key_hashes(join, side, columns, len(ts))
    table = pa.table({"_ts": ts, **{c: columns[c] for c in sorted(join.reads(side))}})
    if partitions == 1:
        part = table if there.all() else table.filter(pa.array(there))
        yield Envelope(0, sender, JoinRows(join.name, side, join.epoch, part))
        return
    to = by_hash(hashes, partitions)
    some = None if there.all() else np.flatnonzero(there)
    for p, rows in rows_of_each(to if some is None else to[some], partitions):
        part = rows_at(table, rows if some is None else some[rows])
        yield Envelope(p, sender, JoinRows(join.name, side, join.epoch, part))


def key_hashes(join: JoinProgram, side: int, columns: Mapping[str, pa.Array], rows: int) -> tuple[Int64s, Bools]:
    """The hashes of the join keys of rows, and which rows have a key."""
    found = [
        columns[f.copies]
        if f.copies is not None
        else scalar.evaluate({c: columns[c] for c in f.reads}, rows, [(f.sql, f.type)])[0]
        for f in (pair[side] for pair in join.source.keys)
    ]
    there = np.ones(rows, np.bool_)
    for column in found:
        valid = validity(column)
        there &= valid if valid is not None else True
    return hash_rows(found, rows), there


# -- stage 2, or the end of stage 1 ------------------------------------------------------------------------------------


@dataclass
class JoinAnswers(SavedRuns):
    """What stands above the aggregates of one task's queries: sums in, answers out."""

    join: JoinProgram
    partition: int
    home: bool
    finishes: dict[str, Finish] = field(default_factory=dict)
    circuits: list[str] = field(default_factory=list)  # whose finishes have state
    inbox: dict[ResultGrouping, list[pa.Table]] = field(default_factory=dict)
    spending: JoinSpending = field(default_factory=JoinSpending)
    most_rows: int = MOST_ROWS

    def follow(self, join: JoinProgram, functions: Functions) -> None:
        """Let those leave and join who did so on the driver."""
        if self.join is join and self.followed:
            return
        self.join, self.followed = join, True
        uids = {name: m.uid for name, m in join.members.items()}
        self.finishes = {n: f for n, f in self.finishes.items() if uids.get(n) == f.uid}
        for name, member in join.members.items():
            query = join.query(name)
            if name not in self.finishes and (self.home or (query.member.keys and not join.gathered)):
                made = self.finishes[name] = Finish(query, functions, self.most_rows)
                made.uid = member.uid
        self.circuits = [name for name, mine in self.finishes.items() if mine.circuit is not None]

    def receive(self, message: JoinSums) -> None:
        """Take in what stage 1 sent."""
        self.inbox.setdefault(self.join.groupings[message.grouping], []).append(message.table)

    def advance(self, frontier: int, starts: Mapping[str, int], out: list[Envelope]) -> None:
        """Answer and finish what came."""
        for name in self.circuits:
            start = starts.get(self.join.clock(name))
            if start is not None and start <= frontier:
                self.finishes[name].start(start)
        names, begun = list(self.join.members), self.spending.stopwatch()
        query = [ints(t, "query") for tables in self.inbox.values() for t in tables]
        batches = combine(self.join.alike, self.inbox)
        self.inbox = {}
        failures: dict[str, RuntimeFailure] = {}
        for batch in finish(self.finishes, batches, frontier, failures, self.circuits):
            self.counted.answers += len(batch)
            out.append(Envelope(self.partition, self.partition, SharedAnswer(batch)))
        if query and self.spending.groups:
            self.spending.finishing(names, np.concatenate(query), self.spending.stopwatch() - begun)
        for name, error in failures.items():
            self.finishes.pop(name, None)
            self.circuits = [n for n in self.circuits if n != name]
            out.append(Envelope(0, self.partition, QueryFailed(name.lower(), error)))

    def slots(self, stage: int, partition: int) -> Iterator[tuple[str, tuple[Run, ...]]]:
        """Named lists of runs: what DISTINCT, ISTREAM and DSTREAM need to go on."""
        yield from finish_slots(self.finishes.values())

    @property
    def spent(self) -> Mapping[str, Spent]:
        """What queries with deadlines took in this tick."""
        return self.spending.spent

    def restore(self, state: Mapping[str, tuple[Run, ...]], program: Program) -> None:
        """Take back what `slots` named."""
        for name, mine in self.finishes.items():
            clock = self.join.clock(name)
            start = program.starts.get(clock)
            begun = start is not None and start <= program.previous and clock not in program.fresh
            if mine.circuit is not None and begun:
                mine.circuit.started, mine.circuit.frontier = True, program.previous
        fresh = {n for n in self.finishes if self.join.clock(n) in program.fresh}
        restore_finishes(self.finishes, state, fresh, program.previous)


# -- stage 1 -----------------------------------------------------------------------------------------------------------


@dataclass
class JoinState(SavedRuns):
    """A shared join in one task: the rows of its keys, and the synopses over their pairs."""

    join: JoinProgram
    operator: SharedJoin
    partition: int
    partitions: int
    uids: dict[str, str] = field(default_factory=dict)  # of the members that have joined the operator
    answers: JoinAnswers | None = None  # with one partition: what stage 2 does elsewhere
    deadlines: DeadlineProgram | None = None  # of this tick

    def follow(self, join: JoinProgram, functions: Functions) -> None:
        """Let those leave and join who did so on the driver."""
        if self.join is join and self.followed:
            return
        self.join, self.followed = join, True
        for name in [n for n, uid in self.uids.items() if n not in join.members or join.members[n].uid != uid]:
            self.operator.leave(name)
            del self.uids[name]
        for name, member in join.members.items():
            if name not in self.uids:
                self.operator.join(join.query(name).member, member.epoch)
                self.uids[name] = member.uid
        if self.answers is not None:
            self.answers.follow(join, functions)

    def receive(self, message: JoinRows) -> None:
        """Take in what stage 0 sent."""
        ts = one(message.table.column("_ts")).to_numpy()
        columns = {c: one(message.table.column(c)) for c in message.table.column_names if c != "_ts"}
        self.operator.take(message.side, ts, columns, message.epoch)
        self.counted.rows += len(ts)

    def advance(self, frontier: int, starts: Mapping[str, int], out: list[Envelope]) -> None:
        """Pair what came, and read the windows that are due."""
        if frontier == BEGINNING:
            return
        for name in [n for n, reader in self.operator.readers.items() if reader.start == BEGINNING]:
            start = starts.get(self.join.clock(name))
            if start is not None and start <= frontier:
                self.operator.begin(name, start)
        before = self.operator.pairs
        held = None
        if self.deadlines is not None and self.operator.spending.groups:
            held = held_back(self.deadlines, self.operator.spending.groups, frontier, starts)
        read = self.operator.advance(frontier, list(self.join.members), held)
        self.counted.partials += self.operator.pairs - before
        for name, error in self.operator.failed.items():
            self.uids.pop(name, None)
            out.append(Envelope(0, self.partition, QueryFailed(name.lower(), error)))
        self.operator.failed.clear()
        for grouping, tables in read.items():
            for table in tables:
                self._send(grouping, table, out)
        if self.answers is not None:
            self.answers.counted = self.counted
            self.answers.advance(frontier, starts, out)

    def _send(self, grouping: ResultGrouping, table: pa.Table, out: list[Envelope]) -> None:
        """Sums to where they are answered: those of a group to one place."""
        number = self.join.groupings.index(grouping)
        if self.answers is not None:
            self.answers.receive(JoinSums(self.join.name, number, table))
            return
        keys = [one(table.column(c)) for c in table.column_names if c.startswith("key|")]
        if not keys or self.join.gathered:
            home = self.join.home(self.partitions)
            out.append(Envelope(home, self.partition, JoinSums(self.join.name, number, table)))
            return
        to = by_hash(hash_rows(keys, table.num_rows), self.partitions)
        for p, rows in rows_of_each(to, self.partitions):
            out.append(Envelope(p, self.partition, JoinSums(self.join.name, number, rows_at(table, rows))))

    def slots(self, stage: int, partition: int) -> Iterator[tuple[str, tuple[Run, ...]]]:
        """Named lists of runs: the rows, and with one partition what stands above."""
        for slot, runs in self.operator.state().items():
            if runs:
                yield slot, runs
        if self.answers is not None:
            yield from self.answers.slots(stage, partition)

    @property
    def spent(self) -> Mapping[str, Spent]:
        """What queries with deadlines took in this tick."""
        return self.operator.spending.spent


def recalled_join(program: Program, join: JoinProgram, partition: int, known: JoinState | None) -> JoinState:
    """A shared join as of the last accepted tick."""
    functions = program.deployment.functions
    if known is None:
        known = JoinState(join, SharedJoin(join.source), partition, program.partitions)
        if program.partitions == 1:
            known.answers = JoinAnswers(join, partition, home=True, most_rows=program.most_rows)
        known.follow(join, functions)
        _schedule(known, program)
        state = known.read(program, join.name, 1, partition)
        for name, reader in known.operator.readers.items():
            clock = join.clock(name)
            start = program.starts.get(clock)
            if clock not in program.fresh:
                reader.fresh = False
                if start is not None and start <= program.previous:
                    reader.start = start
        with _reading(program, join):
            known.operator.restore({s: r for s, r in state.items() if not s.startswith(FINISH)}, program.previous)
            if known.answers is not None:
                known.answers.restore(state, program)
    else:
        known.follow(join, functions)
        _schedule(known, program)
    return known


def _reading(program: Program, join: JoinProgram) -> AbstractContextManager[None]:
    return as_written(STATE, f"of {', '.join(islice(join.members, 3))} in {program.store.uri}")


def _schedule(state: JoinState, program: Program) -> None:
    """Let a join know its deadlines in this tick, before anything is added to its synopses."""
    state.deadlines, state.operator.spending = program.deadlines, _spending(program, state.join)
    grids = {} if program.deadlines is None else program.deadlines.grids(state.join.members)
    state.operator.cut(grids)
    if state.answers is not None:
        state.answers.spending = state.operator.spending


def _spending(program: Program, join: JoinProgram) -> JoinSpending:
    return JoinSpending({} if program.deadlines is None else join.late, program.stopwatch)


def recalled_answers(program: Program, join: JoinProgram, partition: int, known: JoinAnswers | None) -> JoinAnswers:
    """What stands above a shared join, as of the last accepted tick."""
    functions = program.deployment.functions
    if known is None:
        home = join.home(program.partitions) == partition
        known = JoinAnswers(join, partition, home, most_rows=program.most_rows)
        known.follow(join, functions)
        with _reading(program, join):
            known.restore(known.read(program, join.name, 2, partition), program)
    else:
        known.follow(join, functions)
    known.spending = _spending(program, join)
    return known
