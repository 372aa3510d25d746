"""The manifest: everything the engine is, after a tick, as one small immutable value.

Runs, outputs and progress are real only when a manifest that names them has its final name. A manifest is two lines
of JSON: a header (magic, format, length and digest of the body) and the body. The digest covers every byte of the
body, and the length says where it ends, so a file cut or changed anywhere is refused.

Cost: proportional to the number of live runs, not to their rows; about 100 bytes for each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from windrow.errors import StateError
from windrow.spark.runs import RunRef

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
    body = json.dumps(_plain(manifest), separators=(",", ":"), sort_keys=True).encode()
    header = {"magic": MAGIC, "format": FORMAT, "bytes": len(body), "digest": digest(body)}
    return json.dumps(header).encode() + b"\n" + body + b"\n"


def decode(data: bytes, name: str) -> Manifest:
    """The manifest in the bytes of the file `name`; anything but a whole manifest of this format is refused."""
    head, newline, rest = data.partition(b"\n")
    header = _header(head, name) if newline else None
    if header is None:
        raise _corrupt(name, "its header is cut or is not a manifest's")
    if header.get("format") != FORMAT:
        raise other_version(name, header.get("format"), FORMAT)
    body = rest[:-1]
    if len(rest) != header.get("bytes", -1) + 1 or rest[-1:] != b"\n":
        raise _corrupt(name, f"{max(len(rest) - 1, 0)} bytes of content, {header.get('bytes')} expected")
    if digest(body) != header.get("digest"):
        raise _corrupt(name, "the digest of its content differs")
    return _manifest(json.loads(body))


def other_version(name: str, found: object, known: int) -> StateError:
    """The refusal of a file written in another format."""
    return StateError(
        f"{name} was written by another version of windrow",
        detail=f"its format is {found}, this version reads format {known}",
        hint="run the version of windrow that wrote it, or start with a new home",
    )


def _corrupt(name: str, what: str) -> StateError:
    return StateError(
        f"corrupt manifest {name}",
        detail=what,
        hint="restore home from a backup, or start with a new home; the sources are then read from their beginning",
    )


def _header(line: bytes, name: str) -> dict[str, Any] | None:
    try:
        header = json.loads(line)
    except ValueError:
        return None
    return header if isinstance(header, dict) and header.get("magic") == MAGIC else None


def digest(body: bytes) -> str:
    """What tells changed bytes from the ones that were written."""
    return hashlib.blake2b(body, digest_size=16).hexdigest()


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
