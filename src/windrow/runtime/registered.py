"""The streams and queries that run, over the newest manifest, which holds where each of them is.

A query shares with others, in a family or in one plan, or is a program of its own; under which name its state is kept
follows from that (`owner`). What is forgotten here is gone from the manifest, too, as soon as the next one is put.
Cost: a change costs what it changes, and the walk over the slots of the manifest when a query goes; a tick none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from windrow.catalog import StreamDef
from windrow.catalog.names import Names
from windrow.operators.aggregate_join import AggregateDeltas
from windrow.operators.join import JoinOperator
from windrow.operators.row_limit import MOST_ROWS
from windrow.plan.nodes import QueryPlan, StreamOp
from windrow.plan.strategies import Strategy
from windrow.runtime.admission import Quotas
from windrow.runtime.deadlines import DeadlineRecord, Deadlines
from windrow.runtime.exchange import ReducedRows
from windrow.runtime.family_programs import SharedQuery, clock_name
from windrow.runtime.heavy_keys import HeavyKeys
from windrow.runtime.instances import TemplateGroups
from windrow.runtime.join_choices import JoinChoices
from windrow.runtime.kept_answers import KeptAnswers
from windrow.runtime.member_blocks import cost_of, has_deadline, unique
from windrow.runtime.membership import Sharing
from windrow.runtime.newest_manifest import NewestManifest, last_evaluated, with_clocks_of_epochs
from windrow.runtime.plan_members import PlanMembers
from windrow.runtime.program import Deployment, Functions, QueryProgram
from windrow.runtime.undo_log import LoggedDict
from windrow.sharing.joins.recognise import RecognisedJoin
from windrow.sharing.plans.registry import SharedPlans
from windrow.sharing.recognise import Recognised
from windrow.store.manifest import Manifest
from windrow.store.store import StateStore


class RegisteredQueries(NewestManifest):
    """What a ticker runs, between two ticks."""

    def __init__(
        self,
        store: StateStore,
        functions: Functions,
        partitions: int,
        sharing: str = "auto",
        *,
        in_process: bool = False,
        most_rows: int = MOST_ROWS,
        keeps_partitions: bool = True,
        gathers: bool = False,
        expire_us: int | None = None,
    ) -> None:
        super().__init__(store, 1 if gathers else partitions, partitions)
        self._functions, self.most_rows, self.expire_us = functions, most_rows, expire_us
        self.streams: LoggedDict[str, StreamDef] = LoggedDict(self.undo)
        self.queries: LoggedDict[str, QueryProgram | SharedQuery] = LoggedDict(self.undo)
        self.quotas: Quotas = {}  # of the next tick
        # state lies by partition: a home keeps its number, or what is there must be moved (`repartition`)
        there, self.gathers = self.manifest.partitions, gathers
        self.partitions = self.spread = there if keeps_partitions else partitions
        if gathers:  # while ticks are small, state lies in one partition (`elastic_partitions.py`)
            self.spread = max(there, self.manifest.spread) if keeps_partitions else partitions
            self.partitions = 1 if there == 1 else self.spread
            self.manifest = replace(self.manifest, spread=self.spread)
        self.direct = in_process and self.partitions == 1
        self.sharing = Sharing(functions, sharing, rate=self.rate, partitions=self.spread)
        self.sharing.gather(self.manifest.gathered)
        self.sharing.joins.alone = LoggedDict(self.undo)
        self.sharing.joins.kept = lambda stream: self.streams[stream].retain is not None
        self.plan_members = PlanMembers(store.runs, self.manifest)
        left = self.plan_members.left(self.manifest.plans)
        self.plans = SharedPlans(sharing in ("auto", "shards"), self.manifest.plans, left)
        self._plan_programs: dict[str, QueryProgram] = {}
        self._coming: dict[str, QueryProgram] = {}  # new queries, until they have found a place: most are never lowered
        self._seen: dict[str, tuple[int, int]] = {}  # rows of a stream so far, and its first time
        self.starts: LoggedDict[str, int] = LoggedDict(self.undo)  # given from outside; the manifest's clocks go before
        self.choices = JoinChoices(self.undo)
        self.heavy = HeavyKeys(self.partitions, undo=self.undo)
        self.reduced = ReducedRows()
        self._generations: dict[tuple[int, int], str] = {}
        self._deployment: Deployment | None = None
        self._all_run: Deployment | None = None  # the deployment of which every clock runs
        self._next: tuple[dict[str, Any], dict[tuple[int, int], str]] | None = None  # of the manifest to come
        self.held = KeptAnswers(store)
        self.groups = TemplateGroups(self.undo)  # queries from templates
        self._clockless: LoggedDict[str, None] = LoggedDict(self.undo)  # of queries that share and have had no tick
        self._swept = False  # clocks of queries that did not come back are gone
        self.deadlines: Deadlines | None = None  # of a live engine
        self.stopwatch: Callable[[], float] = time.perf_counter  # of ticks and their tasks
        self.sharing.period, self.sharing.may_be_late = self._period, self._may_be_late

    @property
    def functions(self) -> Functions:
        """The user functions that queries may call."""
        return self._functions

    @functions.setter
    def functions(self, functions: Functions) -> None:
        self._functions = self.sharing.functions = functions
        self._deployment = None

    @contextmanager
    def change(self) -> Iterator[None]:
        """Change what runs, and all that is declared with it, as a whole or not at all; between two ticks."""
        with self.undo.change():
            self.undo.note(self._be_as_before, self.manifest, self.functions)
            yield

    def _be_as_before(self, manifest: Manifest, functions: Functions) -> None:
        self.manifest, self.functions = manifest, functions

    def add_stream(self, stream: StreamDef) -> None:
        """Read a stream from the next tick on."""
        self.streams[stream.name.lower()] = stream
        self._deployment = None

    def add_query(
        self,
        plan: QueryPlan,
        strategy: str,
        start: int | None = None,
        *,
        retain: int | None = None,
        materialized: bool = False,
        archived: bool = False,
        known: bool = False,
        alone: bool = False,
    ) -> None:
        """Run a query from the next tick on, with others if it can share; its tables must be known.

        `known`: it goes on after a restart. `alone`: in no family; with others in one plan it may still be.
        """
        shared = None if alone or archived or retain is not None else self.sharing.add(plan, known)
        if shared is not None:
            self.undo.note(self.sharing.remove, plan.name)
            self.add_shared(shared, start)
            self._share_first(plan.name)
            return
        made = QueryProgram(
            unique(), plan, strategy, self.functions, retain, materialized, archived, most_rows=self.most_rows,
            expire_us=self.expire_us,
        )  # fmt: skip
        key = plan.name.lower()
        if retain is None and not archived and Strategy(strategy).by_pattern:
            retained = any(self.streams[s].retain is not None for s in made.streams)
            self.plans.offer(plan, materialized=materialized, start=start, retained=retained, known=known)
            self.undo.note(self.plans.remove, key)
        if known and key not in self.plans.place:  # what was chosen for its joins is in the manifest, and stays there
            self._choose(key, made)
        else:
            self._coming[key] = made
        self.queries[key] = made
        self._deployment = None
        if not known:
            self._begin_anew(key)
        self._never_late(plan, self.sharing.reasons.get(plan.name, "sharing is off"))
        if start is not None:
            self.starts[key] = start

    def _share_first(self, name: str) -> None:
        """When a second query comes over a join, let the first share, too, unless it has begun."""
        joined = self.sharing.joins.served.get(name)
        first = None if joined is None else self.sharing.joins.alone.get(joined.query.source)
        if first is None:
            return
        key = first.plan.name.lower()
        if not self.has_clock(key) and key in self.queries:
            self.sharing.joins.forget(first.plan.name)
            self.choices.forget(key)
            self.add_shared(self.sharing.admit(first), self.starts.pop(key, None))
            self.undo.note(self.sharing.remove, first.plan.name)

    def settle(self) -> None:
        """Let queries that have come since the last tick be one plan with others like them."""
        there, known = set(self.plans.plans), self.plans.plans.keys() - self._plan_programs.keys()
        if self.plans.turn(self.frontier):
            self._deployment = None
        for key in self.plans.settle(self.starts, self._rows):
            self.choices.forget(key)
            self.heavy.forget(key)
            self._deployment = None
            many = self.plans.columns.get(key)
            name = self.plans.place[key][0] if many is None else many
            start = self.starts.pop(key, None) if many is None else self.plans.block(key).start
            if name in there and name not in self.starts:  # its clock starts at its first row, which may have come
                continue
            if start is not None and self.plans.plans[name].told_when:
                self.starts[name] = min(start, self.starts.get(name, start))
        for name in (self.plans.plans.keys() - self._plan_programs.keys()) | known:
            self._choose(name, self.shared_program(name))
        coming, self._coming = self._coming, {}
        for key, made in coming.items():
            if key not in self.plans.place and self.queries.get(key) is made:
                self._choose(key, made)

    def _rows(self, streams: Iterable[str]) -> int:
        """How many rows some streams have had in this process."""
        return sum(self._seen.get(s.lower(), (0, 0))[0] for s in streams)

    def owner(self, key: str) -> str:
        """Under which name the state of a query is kept: its own, its family's, or that of the plan it shares."""
        query = self.queries.get(key)
        if isinstance(query, SharedQuery):
            return query.family
        return self.plans.place[key][0] if key in self.plans.place else key

    def shared_program(self, name: str) -> QueryProgram:
        """A shared plan as tasks see it; the same object until its queries change."""
        shared, known = self.plans.plans[name], self._plan_programs.get(name)
        plan = shared.planned(self.frontier)
        if known is None or known.plan is not plan:
            materialized = shared.one.materialized and shared.one.form.plan.has_op
            known = QueryProgram(
                shared.uid, plan, "upa", self.functions, None, materialized, parted=True, most_rows=self.most_rows,
                expire_us=self.expire_us,
            )  # fmt: skip
            self._plan_programs[name] = known
        return known

    def add_shared(self, query: SharedQuery, start: int | None = None) -> None:
        """Run a query that has joined its family."""
        key = query.plan.name.lower()
        self.queries[key] = query
        self._deployment = None
        self._note_deadline(query)
        if not self.has_begun(query.plan.name):
            self._begin_anew(key)
        self.await_clock(query.clock)
        if start is not None and not self.has_clock(query.clock):
            self.starts[query.clock] = start

    def _begin_anew(self, key: str) -> None:
        if key in self.manifest.lapsed:
            self.manifest = replace(self.manifest, lapsed=tuple(q for q in self.manifest.lapsed if q != key))

    def _note_deadline(self, query: SharedQuery) -> None:
        """Keep the deadlines of a query that shares, or why it has none."""
        key, name = query.plan.name.lower(), query.plan.name
        if self.deadlines is None or not query.plan.root.at_most:
            return
        joined = self.sharing.joins.served.get(name)
        served = joined.query if joined is not None else self.sharing.served[name].query
        if not has_deadline(served):
            changes = query.plan.root.op is not StreamOp.RSTREAM
            self._never_late(query.plan, "it answers with changes" if changes else "it compares the rows of its answer")
            return
        assert query.plan.root.period is not None
        synopsis = (served.source, served.member.synopsis) if isinstance(served, RecognisedJoin) else None
        self.deadlines.add(key, DeadlineRecord(
            served.member.window.slide, query.plan.root.period, *cost_of(served),
            last_evaluated(self.manifest, key, query.clock, served.member.window.slide),
            clock=query.clock, synopsis=synopsis,
        ))  # fmt: skip

    def _never_late(self, plan: QueryPlan, why: str) -> None:
        """Say of a query with a deadline why it is evaluated at every multiple."""
        if self.deadlines is not None and plan.root.at_most and plan.root.period is not None:
            self.deadlines.unscheduled[plan.name.lower()] = (plan.root.period, why)

    def await_clock(self, clock: str) -> None:
        """Let a clock begin with the next tick, if it has not yet."""
        if not self.has_clock(clock) and clock in self.sharing.on_clock:
            self._clockless[clock] = None

    def has_clock(self, clock: str) -> bool:
        """Whether a clock runs, or is about to."""
        return clock in self.manifest.clocks or clock in self.manifest.firsts

    def clock(self, key: str) -> str:
        """The name of the clock of a query: of all who share and came together, of the plan it shares, or its own."""
        query = self.queries.get(key)
        if isinstance(query, SharedQuery):
            return query.clock
        return self.plans.place[key][0] if key in self.plans.place else key

    def began(self, key: str) -> int | None:
        """Where the clock of a query started; None if it has not."""
        name, number = self.plans.place.get(key, ("", 0))
        late = self.plans.plans[name].members[number].start if name in self.manifest.clocks else None
        return self.manifest.clocks.get(self.clock(key)) if late is None else late

    def runs_on(self, clock: str) -> bool:
        """Whether somebody has this clock."""
        own = clock in self.queries and clock not in self.plans.place
        return own or clock in self.plans.plans or clock in self.sharing.on_clock

    def has_begun(self, name: str) -> bool:
        """Whether a query that the home was left with has had a tick, and goes on where it was."""
        key, clock = name.lower(), self.sharing.left_on(name)
        if clock is not None and key not in self.manifest.lapsed and self.has_clock(clock):
            return True
        if key in self.manifest.lapsed:
            return False
        return self.has_clock(key) or (key in self.plans.left and self.has_clock(self.plans.left[key][0]))

    def take_up(self, saved: Mapping[str, Any]) -> None:
        """Let the queries that come now share as they did when the home was left. Of a home in which each of them had a
        clock of its own, those of one epoch become one."""
        self.sharing.take_up(saved)
        left = {name.lower(): clock_name(*place[:2]) for name, place in saved["queries"].items()}
        self.manifest = with_clocks_of_epochs(self.manifest, left)

    def _period(self, query: Recognised | RecognisedJoin) -> int:
        """The period at which a query that shares is to run: one with a deadline may be evaluated more often."""
        slide, kept = query.member.window.slide, self.manifest.deadlines.get(query.plan.name.lower())
        if self.deadlines is None or not has_deadline(query):
            return slide
        group, depth = cost_of(query)
        return kept.period if kept else self.deadlines.period(group, slide, depth)

    def _may_be_late(self, plan: QueryPlan) -> bool:
        """Whether a budget may let a query be late: those that share can be, so it does."""
        return plan.emit.at_most and self.deadlines is not None and self.deadlines.budget is not None

    def rate(self, stream: str) -> float | None:
        """Rows of a stream per tick of its clock, as far as this process has seen any."""
        rows, begin = self._seen.get(stream, (0, 0))
        span = self.manifest.marks.get(stream, begin) - begin
        return rows / span if rows and span > 0 else None

    def _choose(self, name: str, query: QueryProgram) -> None:
        """Begin to choose for the joins of a query; after a restart, from what was chosen before."""
        kept = self.manifest.choices.get(name, {})
        placement = query.layout.placement
        for i, step in enumerate(query.layout.flow.steps):
            if isinstance(step.operator, JoinOperator | AggregateDeltas) and step.operator.measures:
                copies = [placement.copies(i, port, self.partitions) for port in range(len(step.inputs))]
                self.choices.register(name, i, step.operator, copies, kept.get(str(i)))
        if self.manifest.heavy:
            self.heavy.restore(self.manifest.heavy, [name])

    @property
    def idle(self) -> bool:
        """Whether nothing runs."""
        return not self.queries and not self.sharing.columns and not any(g.blocks for g in self.groups.live.values())

    def drop_query(self, name: str) -> None:
        """Stop a query and forget its state."""
        key = name.lower()
        dropped = self.queries.pop(key, None)  # one that failed is gone already
        self._deployment = None
        if dropped is not None:
            self.sharing.joins.forget(dropped.plan.name)
        if isinstance(dropped, SharedQuery):
            self.undo.note(self.sharing.reinstate, self.sharing.token(dropped.plan.name))
            self.sharing.remove(dropped.plan.name)
            self.end_clock(dropped.clock)
        self.forget(key)

    def end_clock(self, clock: str) -> None:
        """Forget a clock of queries that share if nobody has it any more."""
        if clock not in self.sharing.on_clock:
            self._clockless.pop(clock, None)
            self.forget(clock)

    def forget(self, key: str) -> None:
        """Forget the clocks, choices and state of a query, and of a shared plan that nobody else is in."""
        self.undo.note(self.plans.reinstate, self.plans.token(key))
        over = self.plans.remove(key)
        if over is not None:
            self._plan_programs.pop(over, None)
            self.forget(over)
        self.starts.pop(key, None)
        if self.deadlines is not None:
            self.deadlines.drop(key)
        self.choices.forget(key)
        self.heavy.forget(key)
        manifest = self.manifest
        self.manifest = replace(
            manifest,
            runs={k: refs for k, refs in manifest.runs.items() if k[2] != key},
            clocks=Names.of(manifest.clocks).without(key) if key in manifest.clocks else manifest.clocks,
            firsts={q: s for q, s in manifest.firsts.items() if q != key},
            lapsed=tuple(q for q in manifest.lapsed if q != key),
            deadlines={q: kept for q, kept in manifest.deadlines.items() if q != key},
            plans=self.plans.saved(),
            **self.chosen(),
        )

    def chosen(self) -> dict[str, Any]:
        """The choices in force, for the manifest."""
        chosen = {q: {str(step): value for step, value in made.items()} for q, made in self.choices.chosen().items()}
        return {"choices": chosen, "heavy": self.heavy.saved()}

    def drop_stream(self, name: str) -> None:
        """Forget a stream and where it was."""
        self.streams.pop(name)
        self._deployment = None
        self.forget_source(name)

    def deployed(self) -> Deployment:
        """What runs; the same object while nothing changes."""
        if self._deployment is None:
            apart = {k: q for k, q in self.queries.items() if isinstance(q, QueryProgram) and k not in self.plans.place}
            apart |= {name: self.shared_program(name) for name in self.plans.plans}
            shared, joins = self.sharing.programs(), self.sharing.join_programs()
            self._deployment = Deployment(dict(self.streams), apart, shared, joins, dict(self.functions))
        return self._deployment
