"""Repair: what a damaged home has lost, and how it can go on all the same.

A home is refused when its newest manifest, a file that this names, its catalog or what a source keeps is not as it was
written. `examine` reads everything and says, finding by finding, what is wrong and what would be done; `repair` does it
by writing one new manifest, so it happens wholly or not at all, and nothing is deleted. It goes on from the newest
manifest of which everything is there; else from the newest whole one, without what is gone:

    manifest   the ticks after an older one are computed again from what sources still have
    state      the query begins anew with the next row
    answers    that a sink may not have had are gone
    table      empty until it is read or given again
    offset     the stream is read again from its beginning; rows that time has passed are late, and counted so

Ticks get numbers that no sink has seen: an answer may come twice then, and none is taken for one that came before.
What another version of windrow wrote is not damaged, and a home that has such a file is refused, untouched.
Cost: every file is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from windrow.archive.subindex import Shelf
from windrow.errors import StateError
from windrow.operators.state.run import Run
from windrow.runtime.archives import STAGE as ARCHIVES
from windrow.runtime.archives import WAITING, hidden_name, part_of
from windrow.runtime.plan_members import PlanMembers
from windrow.runtime.saved_catalog import columns_of_text, in_force
from windrow.runtime.table_versions import TABLES
from windrow.sources.checkpoint import checkpoint_id
from windrow.store.home_files import read_versions, read_witness
from windrow.store.manifest import Manifest
from windrow.store.place import Place, segment
from windrow.store.runs import RunRef, RunStore, tick_of
from windrow.store.sealed import OtherVersionError
from windrow.store.store import Store


@dataclass(frozen=True)
class Damage:
    """What is wrong, and what is done about it."""

    what: str
    remedy: str


@dataclass
class Examination:
    """All that was found, and the manifest that would put it right; None: nothing is to be done."""

    findings: list[Damage] = field(default_factory=list)
    base: Manifest | None = None
    damaged: set[str] = field(default_factory=set)  # uids of runs
    offsets: set[str] = field(default_factory=set)  # streams
    version: int = 0  # that is free
    tick: int = 0  # that was reached by anybody

    def note(self, what: str, remedy: str) -> None:
        self.findings.append(Damage(what, remedy))


def examine(home: str) -> Examination:
    """Read a home and say what is wrong with it; changes nothing."""
    store = Store.open(home, read_only=True, lenient=True)
    place, found = store.place, Examination()
    whole, broken = read_versions(place, store.identity)
    if others := [e for e in broken.values() if isinstance(e, OtherVersionError)]:
        raise others[-1]
    witness = read_witness(place, store.identity)
    reached = max([*whole, *broken, witness[0]], default=-1)
    if not whole:
        if reached < 0:
            return found  # new
        raise StateError(
            f"home {place.uri} has no whole manifest left",
            detail="; ".join(str(e) for e in broken.values()) or f"manifest {reached} and those before it are gone",
            hint="restore home from a backup, or start with a new home; the sources are then read from their beginning",
        )
    newest = max(whole)
    base = next((v for v in sorted(whole, reverse=True) if not _damage(store, whole[v])), newest)
    for version in sorted(broken):
        if version > base:
            found.note(f"manifest {version} is damaged: {broken[version].detail}", f"manifest {base} takes its place")
    gone = [v for v in range(newest + 1, witness[0] + 1) if v not in broken]
    if gone:
        found.note(
            f"manifest {gone[-1]} was written and is gone",
            f"manifest {base} takes its place: what came after tick {whole[base].tick} is computed again, "
            "except rows that were pushed",
        )
    if base < newest:
        found.note(
            f"manifest {newest} names what is gone: {', '.join(sorted(_damage(store, whole[newest])))}",
            f"manifest {base} takes its place: what came after tick {whole[base].tick} is computed again, "
            "except rows that were pushed",
        )
    found.base, found.version = whole[base], reached + 1
    ticks = [t for n in place.names("runs", recursive=True) if (t := tick_of(n)) is not None]
    found.tick = max([whole[base].tick, witness[1], *ticks])
    _look_at_runs(store, found)
    _look_at_offsets(store, found)
    return found


def _damage(store: Store, manifest: Manifest) -> dict[str, str]:
    """The files that a manifest needs and that are not as they were written, with the reason."""
    wrong = {ref.path: why for ref, why in _broken_runs(store.place, manifest)}
    if manifest.catalog:
        try:
            in_force(store, manifest)
        except OtherVersionError:
            raise
        except StateError as error:
            wrong[f"catalog/{manifest.catalog:08d}.json"] = str(error.detail)
    return wrong


def _broken_runs(place: Place, manifest: Manifest) -> Iterator[tuple[RunRef, str]]:
    runs, shelf = RunStore(place), Shelf(place, (), pa.schema([]))
    indices = {k: refs[0] for k, refs in manifest.runs.items() if k[0] == ARCHIVES and k[3] != WAITING}
    named = [refs for k, refs in manifest.runs.items() if k not in indices] + list(manifest.outputs.values())
    checks: list[tuple[RunRef, Callable[[], object]]] = [
        (ref, partial(runs.checked, ref)) for ref in {r.uid: r for refs in named for r in refs}.values()
    ]
    checks += [(ref, partial(shelf.check, part_of(manifest.runs[k]))) for k, ref in indices.items()]
    for ref, check in checks:
        try:
            check()
        except StateError as error:
            yield ref, f"{error.primary}: {error.detail}"


def _look_at_runs(store: Store, found: Examination) -> None:
    assert found.base is not None
    base = found.base
    if base.catalog:
        in_force(store, base)  # without its declarations nothing can go on: refused by its name
    found.damaged = {ref.uid for ref, _ in _broken_runs(store.place, base)}
    for (query, tick), refs in base.outputs.items():
        if any(r.uid in found.damaged for r in refs):
            found.note(f'answers of query "{query}", tick {tick}, are gone', "sinks that had not taken them go without")
    for owner in _owners(base, found.damaged):
        queries = ", ".join(f'"{q}"' for q in _members(store, base, owner)) or f'"{owner}"'
        found.note(f"state of {queries} is gone", "begins anew with the next row")
    for (stage, _, _, table), refs in base.runs.items():
        if stage == TABLES and any(r.uid in found.damaged for r in refs):
            told = table in base.offsets
            found.offsets |= {table} if told else set()
            then = "its changes are read again from their beginning, except those that were pushed"
            found.note(f'table "{table}" is gone', then if told else "empty until it is read or given again")


def _owners(base: Manifest, damaged: set[str]) -> list[str]:
    """Whose state is not whole."""
    touched = [k for k, refs in base.runs.items() if any(r.uid in damaged for r in refs)]
    return sorted({owner for stage, _, owner, _ in touched if stage != TABLES})


def _members(store: Store, base: Manifest, owner: str) -> list[str]:
    """The queries whose state lies under a name: one, or those that share (of many in columns, the name of all)."""
    if owner in base.plans:
        with suppress(StateError):  # the list itself may be what is damaged
            left = PlanMembers(store.runs, base).left({owner: base.plans[owner]})
            return list(left) or [owner]
        return [owner]
    content: Mapping[str, Any] = in_force(store, base) if base.catalog else {}
    places = content.get("shared", {})
    shared = [name.lower() for name, seat in places.get("queries", {}).items() if seat and seat[0] == owner]
    shared += [c["queries"].lower() for c in places.get("columns", {}).values() if c["family"] == owner]
    return list(dict.fromkeys(shared)) or [owner]


def _look_at_offsets(store: Store, found: Examination) -> None:
    """Whether what the sources keep for themselves is there as the manifest knows it."""
    assert found.base is not None
    for stream, offset in found.base.offsets.items():
        uid = found.base.declared.get(stream, "")
        folder = store.place.below(f"sources/{segment(stream)}-{uid}")
        lost = [str(entry[0]) for entry in offset.get("log", ()) if not folder.exists(str(entry[0]))]
        checkpoint = store.place.below(f"checkpoints/{segment(stream)}-{uid}")
        if "checkpoint" in offset and checkpoint_id(checkpoint) != offset["checkpoint"]:
            lost.append("Spark's checkpoint")
        if lost:
            found.offsets.add(stream)
            found.note(
                f'what stream "{stream}" has read is not known any more: {", ".join(lost)} gone',
                "it is read again from its beginning; rows that time has passed are set aside as late",
            )


def repair(home: str, found: Examination) -> Manifest:
    """Do what was found, as one new manifest."""
    assert found.base is not None
    with Store.open(home, lenient=True) as store:
        base, over = found.base, _owners(found.base, found.damaged)
        anew = {name for owner in over for name in (owner, *_members(store, base, owner))}
        runs = {k: refs for k, refs in base.runs.items() if k[2] not in over or k[0] == TABLES}
        tick, gone = found.tick + 1, set[str]()
        for key, refs in list(runs.items()):
            if any(r.uid in found.damaged for r in refs) and key in runs:  # a table, and so all of its versions
                runs = {k: refs for k, refs in runs.items() if k[0] != TABLES or k[3] != key[3]}
                gone.add(key[3])
                empty = Run(_empty(store, base, key[3]))
                runs[TABLES, 0, "", key[3]] = store.runs.write((TABLES, key[3]), tick, [empty])
        outputs = {k: refs for k, refs in base.outputs.items() if not any(r.uid in found.damaged for r in refs)}
        made = replace(
            base,
            version=found.version,
            tick=tick,
            runs=runs,
            outputs=outputs,
            tables={t: at for t, at in base.tables.items() if t not in gone},
            offsets={s: o for s, o in base.offsets.items() if s not in found.offsets},
            clocks={q: t for q, t in base.clocks.items() if q not in anew and q.rpartition("@")[0] not in over},
            firsts={q: t for q, t in base.firsts.items() if q not in anew and q.rpartition("@")[0] not in over},
            choices={q: c for q, c in base.choices.items() if q not in anew},
            deadlines={q: d for q, d in base.deadlines.items() if q not in anew},
            archives={a: mark for a, mark in base.archives.items() if hidden_name(a) not in over},
        )
        store.commit_repaired(made)
        return made


def _empty(store: Store, base: Manifest, table: str) -> pa.Table:
    (plain,) = (t for t in in_force(store, base)["tables"] if t["name"].lower() == table)
    return pa.schema(list(columns_of_text(plain["columns"]).items())).empty_table()
