"""Shared aggregation in the tasks of a tick.

    stage 0   the rows of a task, joined with tables, reduced to entries and partials of all queries at once
              (`shared_reduction`)
    stage 1   entries go to one partition, partials by their keys; added to the state, answered, finished (here)

Entries and partials end at window edges, so rows beyond the frontier are reduced at once and nothing waits; what is
answered is what lies up to the frontier. Only answers travel to the driver, those of all queries with the same columns
in one envelope. Cost of a tick: one pass over rows per space, then the answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from windrow.errors import RuntimeFailure
from windrow.operators.row_limit import MOST_ROWS
from windrow.operators.state.run import Run
from windrow.runtime.deadline_program import DeadlineProgram, held_back
from windrow.runtime.family_programs import FamilyProgram
from windrow.runtime.member_blocks import FamilyPlace, MemberBlock
from windrow.runtime.messages import Envelope, FamilyPartials, PartialCounts, QueryFailed, SharedAnswer, SharedRows
from windrow.runtime.program import Program
from windrow.runtime.shared_state import SavedRuns, follow
from windrow.sharing.family import Counters, Family
from windrow.sharing.finish import Finish, finish, finish_slots, restore_finishes
from windrow.sharing.member import Kind, Spent
from windrow.sharing.query_group import HeldInstants
from windrow.sharing.registry import Functions
from windrow.store.sealed import STATE, as_written


@dataclass
class FamilyState(SavedRuns):
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
    blocks: dict[str, MemberBlock] = field(default_factory=dict)  # of members that were looked at
    deadlines: DeadlineProgram | None = None  # of this tick
    late: frozenset[str] = frozenset()  # members whose periods are deadlines
    most_rows: int = MOST_ROWS

    def __post_init__(self) -> None:
        self.family.counters = self.counted

    def follow(self, family_program: FamilyProgram, functions: Functions) -> None:
        """Do what the driver's family does."""
        if self.family_program is family_program and self.followed:
            return
        self.followed = True
        self.family_program, self.functions, self.family.functions = family_program, functions, functions
        gone, new = follow(self.family, family_program, self.blocks)
        self.late = frozenset(n for b in family_program.blocks for n in b.late)
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

    def schedule(self, deadlines: DeadlineProgram | None) -> None:
        """Let it know the deadlines of this tick. Without a budget there are none, and nothing is kept for them."""
        self.deadlines = deadlines
        late = frozenset() if deadlines is None else self.late
        if late != self.family.deadlines:
            self.family.hold_back(late)

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

    def reported(self) -> Counters:
        counted = super().reported()
        self.family.counters = self.counted
        return counted

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


def recalled(program: Program, family_program: FamilyProgram, partition: int, known: FamilyState | None) -> FamilyState:
    """A family as of the last accepted tick."""
    functions = program.deployment.functions
    if known is None:
        with as_written(STATE, f"of the family {family_program.name} in {program.store.uri}"):
            known = _restored(program, family_program, partition, functions)
    known.follow(family_program, functions)
    known.schedule(program.deadlines)
    known.family.stopwatch = program.stopwatch
    return known


def _restored(program: Program, family_program: FamilyProgram, partition: int, functions: Functions) -> FamilyState:
    held = FamilyState(family_program, Family(functions, family_program.slicing), partition,
                      family_program.home(program.partitions) == partition, functions,
                      most_rows=program.most_rows)  # fmt: skip
    held.follow(family_program, functions)
    state = held.read(program, family_program.name, 1, partition)
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
