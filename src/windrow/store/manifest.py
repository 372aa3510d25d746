"""The manifest: everything the engine is, after a tick, as one small immutable value.

Runs, outputs and offsets are real only when a manifest that names them has its final name: one commit point for state,
answers and what was read of every source. It is a sealed file: cut or changed anywhere, it is refused.

Cost: proportional to the number of live runs, not to their rows; about 100 bytes for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from windrow.store.manifest_values import ArchiveMark, HeavyKeysOfJoin, LastEvaluation
from windrow.store.runs import RunRef
from windrow.store.sealed import FORMAT, as_written, corrupt, seal, unknown_fields, unseal

MAGIC = "windrow-manifest"

SlotKey = tuple[str, int, str, str]
"""(stage, partition, query, slot): whose state a list of runs is."""

Offset = Mapping[str, Any]
"""Where a source has been read to, as plain JSON; only the source knows its meaning."""


@dataclass(frozen=True)
class Manifest:
    """The state after a tick.

    `version` numbers manifests without gaps; `tick` numbers ticks. `offsets`: what has been taken of each stream's
    source. `declared`: the identity of each stream's declaration, so that one that is declared anew begins anew.
    `marks`: the greatest time seen on each stream. `frontier`: all that happened up to here has been answered.
    `clocks`: the instant at which each query's clock started, one for all who joined a family between the same two
    ticks and one for all who share a plan; `firsts`: where those would start that time has not reached; `lapsed`:
    queries that shared and have failed.
    `runs`: operator state, dealt over `partitions`; `spread`: over how many it will be from the first large tick on (0:
    as it is). `outputs`: answers of (query, tick) that some sink may not have
    yet; `sinks`: by query, the sinks that were attached, and the last tick that each is known to have.
    `tables`: the instants from which the versions of each table, which are runs, are in force.
    `choices`: the orders and plans that joins follow, by query and step; `heavy`: keys that lie apart;
    `gathered`: families of queries that share which lie in one place. `budget`: what
    tick budgets know. `deadlines`: of queries with deadlines, the period and the instant for which they were
    evaluated last. `archives`: the last update of each archive and its layouts. `plans`: the dataflows that queries
    share, whose members are among the runs. `catalog` and `changes`: the catalog in force, as its last whole version
    and what was changed since.
    """

    version: int
    tick: int
    partitions: int = 1
    spread: int = 0
    offsets: Mapping[str, Offset] = field(default_factory=dict)
    declared: Mapping[str, str] = field(default_factory=dict)
    marks: Mapping[str, int] = field(default_factory=dict)
    frontier: int | None = None
    clocks: Mapping[str, int] = field(default_factory=dict)
    firsts: Mapping[str, int] = field(default_factory=dict)
    lapsed: tuple[str, ...] = ()
    runs: Mapping[SlotKey, tuple[RunRef, ...]] = field(default_factory=dict)
    outputs: Mapping[tuple[str, int], tuple[RunRef, ...]] = field(default_factory=dict)
    sinks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    choices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    heavy: tuple[HeavyKeysOfJoin, ...] = ()
    gathered: tuple[str, ...] = ()
    budget: Mapping[str, Any] = field(default_factory=dict)
    deadlines: Mapping[str, LastEvaluation] = field(default_factory=dict)
    archives: Mapping[str, ArchiveMark] = field(default_factory=dict)
    plans: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    catalog: int = 0
    changes: tuple[Mapping[str, Any], ...] = ()

    def refs(self) -> Iterator[RunRef]:
        """Every run this manifest keeps alive."""
        for refs in self.runs.values():
            yield from refs
        for refs in self.outputs.values():
            yield from refs

    def paths(self) -> set[str]:
        """The files that hold those runs."""
        return {ref.path for ref in self.refs()}


_PLAIN = (
    "version", "tick", "partitions", "spread", "marks", "frontier", "clocks", "firsts", "catalog", "budget",
    "plans", "tables",
)  # fmt: skip


_FIELDS = {"packs", *(each.name for each in fields(Manifest))}


def encode(manifest: Manifest, home: str = "") -> bytes:
    """The bytes of a manifest file of the home with this identity."""
    return seal(MAGIC, FORMAT, {"home": home, **_plain(manifest)})


def decode(data: bytes, name: str, home: str = "") -> Manifest:
    """The manifest in the bytes of the file `name`; anything but a whole one of a known format is refused.

    So is one that says that it was written in another home, or what this version does not know.
    """
    content, version = unseal(data, MAGIC, name)
    if content.pop("home", "") not in ("", home) and home:
        raise corrupt(MAGIC, name, "it was written in another home")
    with as_written(MAGIC, name):  # the format in the header may not be that of the content
        content = _upgraded(content) if version == 2 else content
        if unknown := content.keys() - _FIELDS:
            raise unknown_fields(name, unknown)
        return _checked(_manifest(content))


def _plain(m: Manifest) -> dict[str, Any]:
    # Packs are named once and referred to by number: a path is longer than the rest of a reference.
    packs = {path: i for i, path in enumerate(sorted(m.paths()))}

    def flat(refs: tuple[RunRef, ...]) -> list[list[Any]]:
        return [[r.uid, packs[r.path], r.rows, r.bytes, r.checksum, r.offset] for r in refs]

    plain = {name: getattr(m, name) for name in _PLAIN}
    return {
        **{name: dict(value) if isinstance(value, Mapping) else value for name, value in plain.items()},
        "offsets": {stream: dict(offset) for stream, offset in m.offsets.items()},
        "declared": dict(m.declared),
        "packs": list(packs),
        "runs": [[*key, flat(refs)] for key, refs in m.runs.items()],
        "outputs": [[*key, flat(refs)] for key, refs in m.outputs.items()],
        "sinks": {query: dict(reached) for query, reached in m.sinks.items()},
        "choices": {query: dict(chosen) for query, chosen in m.choices.items()},
        "heavy": [each.plain() for each in m.heavy],
        "deadlines": {query: each.plain() for query, each in m.deadlines.items()},
        "archives": {archive: each.plain() for archive, each in m.archives.items()},
        "changes": list(m.changes),
        "lapsed": list(m.lapsed),
        "gathered": list(m.gathered),
    }


def _manifest(plain: dict[str, Any]) -> Manifest:
    packs = plain.pop("packs")

    def refs(flat: list[list[Any]]) -> tuple[RunRef, ...]:
        return tuple(RunRef(uid, packs[pack], *rest) for uid, pack, *rest in flat)

    runs = {(str(s), p, q, slot): refs(r) for s, p, q, slot, r in plain.pop("runs")}
    outputs = {(query, tick): refs(r) for query, tick, r in plain.pop("outputs")}
    changes, heavy = tuple(plain.pop("changes")), tuple(map(HeavyKeysOfJoin.of, plain.pop("heavy")))
    plain["deadlines"] = {query: LastEvaluation.of(each) for query, each in plain.get("deadlines", {}).items()}
    plain["archives"] = {archive: ArchiveMark.of(each) for archive, each in plain.get("archives", {}).items()}
    lapsed, gathered = tuple(plain.pop("lapsed", ())), tuple(plain.pop("gathered", ()))
    plain["tables"] = {table: tuple(instants) for table, instants in plain.get("tables", {}).items()}
    return Manifest(**plain, changes=changes, heavy=heavy, lapsed=lapsed, gathered=gathered, runs=runs, outputs=outputs)


def _checked(found: Manifest) -> Manifest:
    """The manifest, if what counts is a count, what is a time one, and names and what they stand for are such."""
    refs = list(found.refs())
    counts = [found.version, found.tick, found.partitions, found.spread, found.catalog]
    counts += [tick for _, tick in found.outputs]
    counts += [n for r in refs for n in (r.rows, r.bytes, r.checksum, r.offset)]
    counts += [partition for _, partition, _, _ in found.runs]
    times = [*found.marks.values(), *found.clocks.values(), *found.firsts.values(), found.frontier or 0]
    times += [instant for instants in found.tables.values() for instant in instants]
    times += [tick for reached in found.sinks.values() for tick in reached.values()]
    names = [name for r in refs for name in (r.uid, r.path)]
    names += [name for _, _, query, slot in found.runs for name in (query, slot)]
    names += [*found.lapsed, *found.gathered, *found.declared.values(), *(query for query, _ in found.outputs)]
    objects = [found.offsets, found.choices, found.budget, found.plans]
    objects += [*found.offsets.values(), *found.choices.values(), *found.changes]
    whole = all(type(n) is int and n >= 0 for n in counts) and all(type(t) is int and abs(t) <= 2**63 for t in times)
    whole = whole and 0 < found.partitions <= 2**20 and found.spread <= 2**20
    if not whole or not all(type(name) is str for name in names):
        raise ValueError("a value of another kind")
    if not all(isinstance(each, Mapping) for each in objects):
        raise ValueError("a value where names and values should be")
    return found


def _upgraded(old: dict[str, Any]) -> dict[str, Any]:
    """A manifest of format 2, in which sources were numbered in batches and much was in one bag, as one of this."""
    bag = old["extra"]
    same = ("version", "tick", "marks", "frontier", "clocks", "packs", "runs", "outputs", "catalog", "changes")
    return {
        **{name: old[name] for name in same},
        "partitions": bag["partitions"],
        "offsets": {stream: {"batch": number} for stream, number in old["batches"].items()},
        "declared": bag.get("checkpoints", {}),
        "firsts": bag.get("firsts", {}),
        "choices": bag.get("choices", {}),
        "heavy": bag.get("heavy", []),
        "budget": bag.get("budget", {}),
    }
