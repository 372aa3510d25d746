"""The manifest: everything the engine is, after a tick, as one small immutable value.

Runs, outputs and progress are real only when a manifest that names them has its final name. It is a sealed file: cut or
changed anywhere, it is refused.

Cost: proportional to the number of live runs, not to their rows; about 100 bytes for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from windrow.store.runs import RunRef
from windrow.store.sealed import seal, unseal

FORMAT = 2
MAGIC = "windrow-manifest"

SlotKey = tuple[str, int, str, str]
"""(stage, partition, operator, slot): whose state a list of runs is."""


@dataclass(frozen=True)
class Manifest:
    """The state after a tick.

    `version` numbers manifests without gaps; `tick` numbers ticks. `batches`: the last batch id of each stream that
    is part of this state. `marks`: the greatest time seen on each stream. `frontier`: all that happened up to here has
    been answered. `clocks`: the instant at which each query's clock started. `runs`: operator state. `outputs`:
    answers of (query, tick) that some sink may not have yet; `sinks`: the last tick each query's sink has taken.
    `catalog` and `changes`: the catalog in force, as its last whole version and what was changed since. `extra`: plain
    JSON for the runtime.
    """

    version: int
    tick: int
    batches: Mapping[str, int] = field(default_factory=dict)
    marks: Mapping[str, int] = field(default_factory=dict)
    frontier: int | None = None
    clocks: Mapping[str, int] = field(default_factory=dict)
    runs: Mapping[SlotKey, tuple[RunRef, ...]] = field(default_factory=dict)
    outputs: Mapping[tuple[str, int], tuple[RunRef, ...]] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    sinks: Mapping[str, int] = field(default_factory=dict)
    catalog: int = 0
    changes: tuple[Mapping[str, Any], ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    def refs(self) -> Iterator[RunRef]:
        """Every run this manifest keeps alive."""
        for refs in self.runs.values():
            yield from refs
        for refs in self.outputs.values():
            yield from refs

    def paths(self) -> set[str]:
        """The files that hold those runs."""
        return {ref.path for ref in self.refs()}


def encode(manifest: Manifest) -> bytes:
    """The bytes of a manifest file."""
    return seal(MAGIC, FORMAT, _plain(manifest))


def decode(data: bytes, name: str) -> Manifest:
    """The manifest in the bytes of the file `name`; anything but a whole manifest of this format is refused."""
    return _manifest(unseal(data, MAGIC, FORMAT, name))


def _plain(m: Manifest) -> dict[str, Any]:
    # Packs are named once and referred to by number: a path is longer than the rest of a reference.
    packs = {path: i for i, path in enumerate(sorted(m.paths()))}

    def flat(refs: tuple[RunRef, ...]) -> list[list[Any]]:
        return [[r.uid, packs[r.path], r.rows, r.bytes, r.checksum, r.offset] for r in refs]

    return {
        "version": m.version,
        "tick": m.tick,
        "batches": dict(m.batches),
        "marks": dict(m.marks),
        "frontier": m.frontier,
        "clocks": dict(m.clocks),
        "packs": list(packs),
        "runs": [[*key, flat(refs)] for key, refs in m.runs.items()],
        "outputs": [[*key, flat(refs)] for key, refs in m.outputs.items()],
        "counters": dict(m.counters),
        "sinks": dict(m.sinks),
        "catalog": m.catalog,
        "changes": list(m.changes),
        "extra": dict(m.extra),
    }


def _manifest(plain: dict[str, Any]) -> Manifest:
    packs = plain.pop("packs")

    def refs(flat: list[list[Any]]) -> tuple[RunRef, ...]:
        return tuple(RunRef(uid, packs[pack], *rest) for uid, pack, *rest in flat)

    runs = {(s, p, o, slot): refs(flat) for s, p, o, slot, flat in plain.pop("runs")}
    outputs = {(query, tick): refs(flat) for query, tick, flat in plain.pop("outputs")}
    changes = tuple(plain.pop("changes"))
    return Manifest(runs=runs, outputs=outputs, changes=changes, **plain)
