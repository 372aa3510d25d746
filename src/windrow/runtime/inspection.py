"""Looking into a runtime while it runs: its state, what is kept of streams, and figures.

A durable state is read from the newest manifest, which nobody waits for; without a home, between two ticks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from windrow.errors import RuntimeFailure, StateError
from windrow.plan.nodes import QueryPlan
from windrow.runtime import state_reader
from windrow.runtime.family_programs import SharedQuery
from windrow.runtime.instances import TemplateGroup
from windrow.runtime.job import Given, Made
from windrow.runtime.past_answers import last_answer, last_answers_of, last_instant
from windrow.runtime.program import QueryProgram
from windrow.runtime.quarantine import late, malformed
from windrow.runtime.state_reader import StateReader, StateSnapshot, StoredState
from windrow.runtime.turn import Turns
from windrow.sharing.plans.explain import sharing_of_continuous
from windrow.sharing.recognise import Recognised
from windrow.sharing.reused_partials import ReusedPartials
from windrow.store.sealed import STATE, as_written

HANDING_ON = 5.0
"""Seconds to wait for answers that are committed and not told yet."""


class Inspection(Turns):
    """What can be seen of a runtime from outside."""

    @contextlib.contextmanager
    def state(self) -> Iterator[StateReader]:
        """The state after the newest tick, while ticks go on."""
        if not self.store.runs.durable:
            with self.declared.busy:
                found = self._state()
            yield found
            return
        with self.store.snapshot() as manifest:
            if manifest is None:
                raise StateError("no tick has been committed yet", hint="declare something, or start the engine")
            yield StoredState(self.store.runs, manifest)

    @contextlib.contextmanager
    def view(self) -> Iterator[StateSnapshot]:
        """The present, for one-time queries."""
        with self.state() as state:
            streams = dict(self.declared.streams)
            yield StateSnapshot(
                state.tick,
                state.frontier,
                lambda stream: state_reader.kept_rows(state, streams[stream].definition),
                lambda query: self.relation(state, query),
                self.reach,
            )

    def relation(self, state: StateReader, query: str) -> pa.Table:
        """The rows of a relation-valued query in a state."""
        program = self._running_query(query)
        assert isinstance(program, QueryProgram)
        with as_written(STATE, f'of query "{query}"'):
            if query in self.ticker.plans.place:
                return self._relation_of_many(state, query)
            return state_reader.relation(state, program)

    def _running_query(self, query: str) -> QueryProgram | SharedQuery:
        """A query that runs; one that has stopped has no state."""
        found = self.ticker.queries.get(query)
        if found is None:
            raise RuntimeFailure(
                f'query "{query}" has stopped',
                detail=str(self.declared.failures.get(query, "it was dropped")),
                hint="CREATE OR REPLACE QUERY it, drop it, or start the engine again when its rows can be computed",
            )
        return found

    def last_answer(self, state: StateReader, query: str) -> pa.Table:
        """What a periodic query answered at its last evaluation in a state."""
        self.answered()
        plan = self._running_query(query).plan
        return last_answer(plan, self.declared.outlets[query], self._last_instant(plan, query, state.frontier))

    def _last_instant(self, plan: QueryPlan, query: str, frontier: int) -> int:
        deadlines = self.ticker.deadlines
        record = None if deadlines is None else deadlines.records.get(query)
        done = None if deadlines is None or record is None else deadlines.done(record)
        return last_instant(plan.emit, frontier, done)

    def answer_of_group(self, state: StateReader, key: str) -> pa.Table:
        """The present answer of all instances of a template: their relations, or their last answers."""
        group, queries = self.declared.groups.live[key], self.ticker.queries
        running = {name: number for name, number in group.place.items() if name.lower() in queries}
        if group.plan.has_op:
            parts = [group.with_values(self.relation(state, name.lower()), name) for name in running]
            parts += [self._relation_of_block(state, group, block) for block in group.blocks]
            return pa.concat_tables([group.empty_relation, *parts])
        self.answered()
        instants = {
            number: self._last_instant(queries[name.lower()].plan, name.lower(), state.frontier)
            for name, number in running.items()
        }
        for members in group.blocks.values():
            at = last_instant(members.plan.emit, state.frontier, None)
            instants |= dict.fromkeys(members.numbers.tolist(), at)
        return last_answers_of(group, self.declared.outlets[key], instants)

    def _relation_of_block(self, state: StateReader, group: TemplateGroup, block: str) -> pa.Table:
        """The rows of instances that are in a shared plan as columns, with their values."""
        name = self.ticker.plans.columns.get(block)
        if name is None:  # no tick has been planned with them
            return group.empty_relation
        program, shared = self.ticker.shared_program(name), self.ticker.plans.plans[name]
        members = shared.blocks[block]
        rows, which = shared.relation_of_many(state_reader.materialized(state, program), members)
        values = group.values(members.numbers[which])
        return pa.Table.from_arrays(
            [*values, *rows.columns], names=[*group.template.parameters, *rows.column_names]
        )  # fmt: skip

    def answered(self) -> int:
        """The frontier up to which every answer has been told: the state is committed a moment before."""
        self._handed_on.wait(HANDING_ON)
        return self.ticker.frontier if self._told is None else self._told

    def _relation_of_many(self, state: StateReader, query: str) -> pa.Table:
        """The rows of a query that is one plan with others."""
        name, number = self.ticker.plans.place[query]
        program, shared = self.ticker.shared_program(name), self.ticker.plans.plans[name]
        return shared.relation(state_reader.materialized(state, program), number)

    def shared_with(self, plan: QueryPlan) -> dict[str, Any] | None:
        """With whom a continuous query shares, or why not, once a tick has been planned with it."""
        with self.declared.busy:
            return sharing_of_continuous(self.ticker.plans, plan)

    def reach(self, stream: str) -> int:
        """How far back a stream's kept rows go, in ticks of its clock."""
        return self.declared.streams[stream].definition.retain or 0

    def table(self, name: str) -> pa.Table:
        """What a table holds."""
        return self.declared.tables[name].reading.table

    def reused_partials(self, asked: Recognised, state: StateReader) -> tuple[str, ReusedPartials] | None:
        """The family, and its member, whose partials in a state have most of a question's window."""
        return self.ticker.sharing.reused_partials(asked, state)

    def map(self, work: Callable[[Given], Made], values: Sequence[Given], check: Callable[[], None]) -> list[Made]:
        """What a function gives for each value, computed by tasks that leave half of the cores to ticks."""
        return self.job.map(work, values, check, max(1, self.job.parallelism // 2))

    def joins(self, query: str) -> list[dict[str, Any]]:
        """What the joins of a running query do, and why."""
        with self.declared.busy:
            owner = self.ticker.owner(query)
            return self.ticker.choices.describe(owner) + self.ticker.heavy.describe(owner)

    def reduced(self, query: str) -> dict[str, int] | None:
        """How many rows were sent to the groups of a running query, and how many they were before."""
        with self.declared.busy:
            return self.ticker.reduced.describe(self.ticker.owner(query))

    def late(self, stream: str) -> pa.Table:
        """The late rows of a stream."""
        return late(self.late_rows, self.declared.streams[stream.lower()].definition)

    def quarantined(self, stream: str) -> pa.Table:
        """What of a stream could not be read."""
        return malformed(self.quarantine, stream)
