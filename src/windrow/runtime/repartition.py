"""Another number of partitions for a home: where everything lies from now on, in one manifest.

    newest manifest ── each query, family and shared join: its slots cut anew (`moved_state.py`) ── next manifest

Nothing has happened until that manifest is there: a crash before it leaves the old layout whole, and files that nobody
names, which the next sweep takes. Law: the placement of a query's steps does not depend on the number, so a slot of a
step stays a slot of that step. No key is heavy at first; tables, archives and answers that sinks wait for stay as they
are. Cost: the driver reads all state that moves and writes it once.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from windrow.operators.elements import BEGINNING, Int64s, one
from windrow.operators.keys import hash_rows
from windrow.operators.protocol import State
from windrow.operators.state.run import Run
from windrow.runtime.by_hash import by_hash, rows_of_each
from windrow.runtime.family_programs import FamilyProgram, JoinProgram
from windrow.runtime.moved_state import NotMovedError, Repartitioning, moved, moved_rows, together
from windrow.runtime.partitioning import follow_columns
from windrow.runtime.placement import ONE, How, Partitioning
from windrow.runtime.program import Deployment, Functions, QueryProgram
from windrow.runtime.shared_joins import key_hashes
from windrow.runtime.task_state import TABLE, WAITING
from windrow.sharing.finish import FINISH, Finish
from windrow.sharing.joins.members import name_of
from windrow.sharing.joins.recognise import RecognisedJoin
from windrow.sharing.joins.side import columns_of
from windrow.sharing.recognise import Recognised
from windrow.store.manifest import Manifest, SlotKey
from windrow.store.runs import RunPlace, RunRef

Slots = dict[str, tuple[Run, ...]]


def repartitioned(
    manifest: Manifest, runs: RunPlace, deployment: Deployment, partitions: int, gathered: Collection[str]
) -> Manifest:
    """The manifest that follows, with the state of all that is deployed over so many partitions, written.

    `gathered`: families that lie in one place from now on.
    """
    work = _Repartitioning(manifest, runs, partitions, frozenset(gathered), deployment.functions)
    for name, query in deployment.queries.items():
        try:
            work.query(name, query)
        except NotMovedError as error:
            raise NotMovedError(
                f'the state of query "{query.plan.name}" cannot be moved to {partitions} partitions',
                detail=f"{error.primary}; nothing has been changed",
                hint="open the home without a number of partitions: it keeps its own",
            ) from error
    for name, family in deployment.families.items():
        work.family(name, family)
    for name, join in deployment.joins.items():
        work.join(name, join)
    return replace(
        manifest, version=manifest.version + 1, partitions=partitions, runs=work.found, heavy=(),
        gathered=tuple(sorted(gathered)),
    )  # fmt: skip


class _Repartitioning:
    """The slots of a manifest, by owner and stage, and those of the next one."""

    def __init__(
        self, manifest: Manifest, runs: RunPlace, new: int, gathered: frozenset[str], functions: Functions
    ) -> None:
        self.old, self.new, self._gathered, self._functions = manifest.partitions, new, gathered, functions
        self._were_gathered, self._runs, self._tick = frozenset(manifest.gathered), runs, manifest.tick
        self._frontier = BEGINNING if manifest.frontier is None else manifest.frontier
        self._heavy = {
            (each.query, each.step): np.array([h for h, since in each.since if since <= manifest.tick], np.int64)
            for each in manifest.heavy
        }
        self._known = {ref.uid: ref for ref in manifest.refs()}
        self._slots: dict[tuple[str, int], list[dict[str, tuple[RunRef, ...]]]] = {}
        self.found: dict[SlotKey, tuple[RunRef, ...]] = {}
        for (stage, partition, owner, slot), refs in manifest.runs.items():
            if stage.isdecimal():
                parts = self._slots.setdefault((owner, int(stage)), [{} for _ in range(self.old)])
                parts[partition][slot] = refs
            else:  # tables and archives are not of any task
                self.found[stage, partition, owner, slot] = refs

    def _read(self, refs: Sequence[RunRef]) -> tuple[Run, ...]:
        return tuple(self._runs.read(ref, cached=False) for ref in refs)

    def _put(self, name: str, stage: int, made: Sequence[Slots]) -> None:
        """Write what is new of the slots in each partition, and name all."""
        for partition, slots in enumerate(made):
            fresh = {r.uid: r for runs in slots.values() for r in runs if r.uid not in self._known}
            written = self._runs.write((stage, partition), self._tick, list(fresh.values()))
            self._known |= {ref.uid: ref for ref in written}
            for slot, runs in slots.items():
                self.found[str(stage), partition, name, slot] = tuple(self._known[r.uid] for r in runs)

    # queries that run by themselves, or are one plan

    def query(self, name: str, query: QueryProgram) -> None:
        """Move the operators' state and the waiting rows of a query."""
        for stage in [s for owner, s in self._slots if owner == name]:
            parts, made = self._slots[name, stage], [Slots() for _ in range(self.new)]
            for step in sorted({int(s.partition("/")[0]) for part in parts for s in part if s[0].isdecimal()}):
                prefix = f"{step}/"
                states: list[State] = [
                    {s.removeprefix(prefix): self._read(refs) for s, refs in part.items() if s.startswith(prefix)}
                    for part in parts
                ]
                for mine, state in zip(made, self._step(name, query, step, states), strict=True):
                    mine.update({prefix + slot: runs for slot, runs in state.items()})
            for number, exchange in enumerate(query.layout.exchanges):
                slot = f"{WAITING}/{number}"
                waiting = [self._read(part.get(slot, ())) for part in parts]
                for mine, runs in zip(
                    made, moved_rows(waiting, self._spread(name, exchange.partitioning)), strict=True
                ):
                    if runs and runs[0].table.num_rows:
                        mine[slot] = runs
            self._put(name, stage, made)
            versions = {s: refs for part in parts for s, refs in part.items() if s.startswith(f"{TABLE}/")}
            self.found |= {(str(stage), p, name, s): refs for p in range(self.new) for s, refs in versions.items()}

    def _step(self, name: str, query: QueryProgram, step: int, states: Sequence[State]) -> list[State]:
        """The state of a step in each new partition."""
        placement, made = query.layout.placement, query.layout.flow.steps[step]
        assert made.operator is not None
        if step in placement.tables:
            return [states[0]] * self.new
        if placement.partitionings[step] == ONE:
            return [states[0], *({} for _ in range(self.new - 1))]

        def spread(port: int) -> Repartitioning:
            return self._spread(name, placement.lies(step, port, made.inputs[port]))

        return moved(made.operator, states, self._frontier, spread)

    def _spread(self, name: str, partitioning: Partitioning) -> Repartitioning:
        split = partitioning.split
        heavy = None if split is None else self._heavy.get((name, split.step))
        return Repartitioning(partitioning, self.old, self.new, *(() if heavy is None else (heavy,)))

    # families

    def family(self, name: str, family: FamilyProgram) -> None:
        """Move the entries and partials of a family, and what stands above them."""
        parts = self._slots.get((name, 1), [])
        made, home = [Slots() for _ in range(self.new)], family.home(self.new)
        for slot, refs in [(s, refs) for part in parts for s, refs in part.items() if not s.startswith(FINISH)]:
            for run in self._read(refs):
                for p, mine in self._by_keys(name, run, home):
                    made[p][slot] = (*made[p].get(slot, ()), mine)
        members = {n: place.query for block in family.blocks for n, place in block.members.items()}
        self._above(name, made, parts, (family.home(self.old), home), members)
        self._put(name, 1, made)

    def _by_keys(self, name: str, run: Run, home: int) -> list[tuple[int, Run]]:
        """A run in parts: partials with keys by their keys, all else at home."""
        keys = [one(run.table.column(c)) for c in run.table.column_names if c.startswith("key|")]
        if name in self._gathered or not keys:
            return [(home, run)]
        return _cut(run, hash_rows(keys, run.table.num_rows), self.new)

    def _above(
        self,
        name: str,
        made: Sequence[Slots],
        parts: Sequence[Mapping[str, tuple[RunRef, ...]]],
        homes: tuple[int, int],
        members: Mapping[str, Recognised | RecognisedJoin],
    ) -> None:
        """Move what DISTINCT, ISTREAM and DSTREAM keep of each query: with its groups, or from home to home."""
        states: dict[tuple[str, int], list[dict[str, tuple[Run, ...]]]] = {}
        for q, part in enumerate(parts):
            for slot, refs in part.items():
                if slot.startswith(FINISH):
                    member, step, inner = json.loads(slot[len(FINISH) :])
                    if member in members:
                        known = states.setdefault((member, step), [{} for _ in parts])
                        known[q][inner] = self._read(refs)
        whole = name in self._gathered or (self.new == 1 and name in self._were_gathered)
        for (member, step), found in states.items():
            for p, state in self._finish(members[member], step, found, homes, whole):
                made[p].update({FINISH + json.dumps([member, step, inner]): runs for inner, runs in state.items()})

    def _finish(
        self,
        query: Recognised | RecognisedJoin,
        step: int,
        states: Sequence[State],
        homes: tuple[int, int],
        whole: bool,
    ) -> list[tuple[int, State]]:
        keys = _keys(query)
        if whole or not keys:
            return [(homes[1], states[homes[0]])]
        circuit = Finish(query, self._functions).circuit
        assert circuit is not None
        at = circuit.flow.steps[step]
        lies = follow_columns(circuit.flow, keys)[at.inputs[0]]
        assert at.operator is not None and lies.how is How.COLUMNS
        spread = Repartitioning(lies, self.old, self.new)
        return list(enumerate(moved(at.operator, states, self._frontier, lambda _: spread)))

    # shared joins

    def join(self, name: str, join: JoinProgram) -> None:
        """Move the rows of both sides of a shared join, and what stands above its sums."""
        parts, made = self._slots.get((name, 1), []), [Slots() for _ in range(self.new)]
        for side in (0, 1):
            for slot, order in ((str(side), "_ts"), (f"{side} waiting", None)):
                runs = [run for part in parts for run in self._read(part.get(slot, ()))]
                cut = [self._by_join_key(join, side, run) for run in runs]
                for p, mine in enumerate(made if runs else ()):
                    mine[slot] = (together([(r, picks[p]) for r, picks in zip(runs, cut, strict=True)], order),)
                    if not mine[slot][0].table.num_rows:
                        del mine[slot]
        answering = parts if self.old == 1 else self._slots.get((name, 2), [])
        above = made if self.new == 1 else [Slots() for _ in range(self.new)]
        members = {n: join.query(n) for n in join.members}
        self._above(name, above, answering, (join.home(self.old), join.home(self.new)), members)
        self._put(name, 1, made)
        if self.new > 1:
            self._put(name, 2, above)

    def _by_join_key(self, join: JoinProgram, side: int, run: Run) -> list[Int64s]:
        hashes, _ = key_hashes(join, side, columns_of(run.table), run.table.num_rows)
        to = by_hash(hashes, self.new)
        return [np.flatnonzero(to == p) for p in range(self.new)]


def _cut(run: Run, hashes: Int64s, partitions: int) -> list[tuple[int, Run]]:
    return [(p, together([(run, mine)])) for p, mine in rows_of_each(by_hash(hashes, partitions), partitions)]


def _keys(query: Recognised | RecognisedJoin) -> tuple[str, ...]:
    """The columns of a query's groups, as what stands above the aggregate calls them, in the order of their hash."""
    named: dict[Any, str] = {}
    for internal, name in query.shown:
        named.setdefault(name, internal)
    if isinstance(query, Recognised):
        return tuple(named[k] for k in query.member.kind.keys)
    return tuple(
        named[name_of(k)] for k in sorted(query.member.keys, key=lambda key: key[0])
    )  # those of one side first
