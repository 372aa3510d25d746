"""The store: everything under `home`, and the only way to change it.

    home/format.json                  magic, format, and the identity of this home; written once
    home/lock                         who has it open
    home/catalog/00000003.json        declarations, by version; later changes are in manifests
    home/manifests/00000042.json      the state after a commit
    home/newest                       which manifest was the newest: one that is gone is missed
    home/runs/<stage>/<partition>/    run files, named by the tick that wrote them
    home/runs/answers/<query>/        long answers, until nobody waits for them
    home/answers/<query>/             answers of queries that say KEEP
    home/sources/<stream>-<id>/       what a source keeps for itself: logs of seen files, copies, pushed rows
    home/checkpoints/<stream>-<id>/   Spark's own progress of a streaming DataFrame
    home/late/<stream>/               rows that came too late, or from too far ahead
    home/quarantine/<stream>/         rows and files that could not be read

Invariant: the newest manifest is complete, and every file it names is there. A commit is one rename; before it
nothing has happened, after it everything has. Runs are deleted only when no kept manifest, pinned snapshot or running
tick can name them.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from windrow.errors import StateError
from windrow.store.home_files import (
    NEWEST,
    REPAIR,
    read_format,
    read_versions,
    read_witness,
    refuse_foreign,
    versions,
    write_format,
)
from windrow.store.lock import Lock
from windrow.store.manifest import Manifest, encode
from windrow.store.place import Place, is_temporary
from windrow.store.runs import MemoryRuns, RunPlace, RunStore, tick_of
from windrow.store.sealed import FORMAT, corrupt, seal, unseal

CATALOG = "windrow-catalog"


class StateStore(ABC):
    """Where the state of an engine is: in a home, or in memory."""

    identity: str
    runs: RunPlace
    place: Place | None = None  # the home

    @abstractmethod
    def latest(self) -> Manifest | None:
        """The newest manifest, or None when there is none yet."""

    @abstractmethod
    def commit(self, manifest: Manifest) -> None:
        """Make a manifest the newest one."""

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[Manifest | None]:
        """The newest manifest, its runs kept while the block reads them."""

    @abstractmethod
    def sweep(self, *, orphans: bool = False) -> int:
        """Delete what no manifest names."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the state."""

    @abstractmethod
    def reopen(self) -> None:
        """Take the state up again after `close`, as it was left."""


class MemoryStore(StateStore):
    """The state of an engine without a home: the newest manifest, and the runs of tables and answers it names."""

    def __init__(self) -> None:
        self.identity = uuid.uuid4().hex
        self._held = MemoryRuns()
        self.runs: RunPlace = self._held
        self._manifest: Manifest | None = None

    def latest(self) -> Manifest | None:
        return self._manifest

    def commit(self, manifest: Manifest) -> None:
        self._manifest = manifest

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Manifest | None]:
        yield self._manifest

    def sweep(self, *, orphans: bool = False) -> int:
        if self._manifest is not None:
            self._held.keep({ref.uid for ref in self._manifest.refs()})
        return 0

    def close(self) -> None:
        """Nothing is open."""

    def reopen(self) -> None:
        """It is as it was left."""


class Store(StateStore):
    """An open home: commit manifests, read and sweep runs."""

    place: Place

    def __init__(self, place: Place, lock: Lock | None, keep: int, lenient: bool = False) -> None:
        self.place = place
        self._format, self.identity, self._created = read_format(place)
        self.runs: RunPlace = RunStore(place)
        self.keep = keep
        self._lock = lock
        self._pins: Counter[int] = Counter()
        self._guard = threading.Lock()
        self._manifests = read_versions(place, self.identity)[0] if lenient else self._load()

    @classmethod
    def open(
        cls,
        home: str | os.PathLike[str],
        *,
        read_only: bool = False,
        keep: int = 2,
        clock: Callable[[], float] = time.time,
        lenient: bool = False,
    ) -> Store:
        """Open a home for one engine, creating it when new; `keep` manifests are kept besides the newest.

        `lenient`: take what is whole of a damaged one, to repair it.
        """
        place = Place.of(home)
        if read_only:
            return cls(place, None, keep, lenient)
        refuse_foreign(place)
        place.make()
        lock = Lock(place, clock)
        try:
            if not place.exists("format.json"):
                write_format(place, uuid.uuid4().hex, clock())
            place.sync("manifests")  # what is found there is relied on: a power failure must not take it back
            return cls(place, lock, keep, lenient)
        except BaseException:
            lock.release()
            raise

    @property
    def format(self) -> int:
        """The format that this home was written in."""
        return self._format

    def latest(self) -> Manifest | None:
        """The newest manifest, or None in a new home."""
        if self._lock is None:  # a reader: the engine that owns the home may have gone on
            self._manifests = self._load()
        return self._manifests[max(self._manifests)] if self._manifests else None

    def commit(self, manifest: Manifest) -> None:
        """Make a manifest the newest one. It must follow the newest by exactly one."""
        self._own()
        name = f"manifests/{manifest.version:08d}.json"
        newest = max(self._manifests, default=-1)
        if manifest.version != newest + 1 or self.place.exists(name):
            raise StateError(
                f"cannot commit manifest {manifest.version}: the newest known is {newest}",
                detail="another engine has written to this home, or a commit was made twice",
                hint="stop every engine that uses this home and start one again",
            )
        self._publish(manifest)

    def commit_repaired(self, manifest: Manifest) -> None:
        """Make a manifest the newest one of a damaged home, whatever numbers are missing before it."""
        self._own()
        self._publish(manifest)

    def _publish(self, manifest: Manifest) -> None:
        if self._format != FORMAT:  # from the first commit on it is a home of this format
            write_format(self.place, self.identity, self._created)
            self._format = FORMAT
        self.place.write(f"manifests/{manifest.version:08d}.json", encode(manifest, self.identity))
        with self._guard:
            self._manifests[manifest.version] = manifest
        if self.place.local:  # a note, never ahead of the manifest: it need not be synced, nor be written at all
            content = {"home": self.identity, "version": manifest.version, "tick": manifest.tick}
            with contextlib.suppress(StateError):
                self.place.write(NEWEST, json.dumps(content).encode(), sync=False)

    def check(self) -> None:
        """Refuse a home of which a file is gone or cut that the newest manifest names."""
        newest = self.latest()
        sizes = self.place.names("runs", recursive=True) if newest is not None and newest.paths() else {}
        lost = sorted({
            r.path for r in (newest.refs() if newest is not None else ()) if sizes.get(r.path, -1) < r.offset + r.bytes
        })  # fmt: skip
        if lost:
            raise StateError(
                f"home {self.place.uri} lacks {len(lost)} of its files",
                detail=f"{lost[0]} is gone or shorter than manifest {newest.version if newest else 0} says",
                hint=REPAIR.format(self.place.uri),
            )

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Manifest | None]:
        """The newest manifest, its runs kept while the block reads them."""
        with self._guard:
            manifest = self._manifests[max(self._manifests)] if self._manifests else None
            if manifest is not None:
                self._pins[manifest.version] += 1
        try:
            yield manifest
        finally:
            if manifest is not None:
                with self._guard:
                    self._pins[manifest.version] -= 1

    def sweep(self, *, orphans: bool = False) -> int:
        """Delete old manifests and the run files only they named; returns the number of files deleted.

        With `orphans` also every file of a finished tick that no kept manifest names, and temporaries of
        writers that died. That lists all of `runs`; do it at start and now and then, not every tick.
        """
        self._own()
        if not self._manifests:
            return 0
        kept, dropped = self._retire()
        live = {path for manifest in kept for path in manifest.paths()}
        dead = {path for manifest in dropped for path in manifest.paths()} - live
        if orphans:
            dead |= self._orphans(live, kept[-1])
        # Manifests first: a manifest must never name a file that is gone.
        for manifest in dropped:
            self.place.delete(f"manifests/{manifest.version:08d}.json")
        for path in sorted(dead):
            self.place.delete(path)
        return len(dead) + len(dropped)

    def _retire(self) -> tuple[list[Manifest], list[Manifest]]:
        with self._guard:
            versions = sorted(self._manifests)
            stay = set(versions[-1 - self.keep :]) | {v for v, pins in self._pins.items() if pins > 0}
            self._pins = +self._pins
            dropped = [self._manifests.pop(v) for v in versions if v not in stay]
            return [self._manifests[v] for v in sorted(self._manifests)], dropped

    def write_catalog(self, version: int, content: Mapping[str, Any]) -> None:
        """Write a version of the catalog; a manifest that names it makes it the one in force."""
        self._own()
        data = seal(CATALOG, FORMAT, {"home": self.identity, "version": version, "content": dict(content)})
        self.place.write(f"catalog/{version:08d}.json", data)
        for old in versions(self.place, "catalog")[: -1 - self.keep]:
            self.place.delete(f"catalog/{old:08d}.json")

    def read_catalog(self, version: int) -> Mapping[str, Any]:
        """The content of a version of the catalog."""
        name = f"catalog/{version:08d}.json"
        found, _ = unseal(bytes(self.place.read(name)), CATALOG, self.place.path(name))
        if found["version"] != version:
            raise corrupt(CATALOG, self.place.path(name), f"it is version {found['version']}")
        if found.get("home", "") not in ("", self.identity) and self.identity:
            raise corrupt(CATALOG, self.place.path(name), "it was written in another home")
        content: Mapping[str, Any] = found["content"]
        return content

    def close(self) -> None:
        """Release the home."""
        if self._lock is not None:
            self._lock.release()

    def reopen(self) -> None:
        """Lock the home again; refused if it is gone, or another engine has written to it meanwhile."""
        if not self.place.exists("format.json"):
            raise StateError(
                f"home {self.place.uri} is gone", hint="give the engine a home of its own: Engine(home=...)"
            )
        lock = Lock(self.place)
        found = max(versions(self.place, "manifests"), default=-1)
        if found != max(self._manifests, default=-1):
            lock.release()
            raise StateError(
                f"another engine has used home {self.place.uri} meanwhile",
                detail=f"its newest manifest is {found}, and was {max(self._manifests, default=-1)}",
                hint="open a new Engine on it",
            )
        self._lock = lock

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load(self) -> dict[int, Manifest]:
        """The manifests on disk. The newest must be whole; a temporary that was never renamed never happened."""
        found, broken = read_versions(self.place, self.identity)
        newest = max(found, default=-1)
        if broken and max(broken) > newest:
            raise broken[max(broken)]
        known, _ = read_witness(self.place, self.identity)
        if known > newest and max(versions(self.place, "manifests"), default=-1) == newest:
            raise StateError(
                f"home {self.place.uri} lacks its newest manifest",
                detail=f"manifest {known} was written, and the newest that is there is {newest}"
                if newest >= 0
                else f"manifest {known} was written, and none is there",
                hint=REPAIR.format(self.place.uri),
            )
        return found

    def _orphans(self, live: set[str], newest: Manifest) -> set[str]:
        found = {n for folder in ("", "manifests", "catalog") for n in self.place.names(folder) if is_temporary(n)}
        oldest = min(self._manifests)
        found |= {
            f"manifests/{v:08d}.json"
            for v in versions(self.place, "manifests")
            if v not in self._manifests and v < oldest
        }
        for name in self.place.names("runs", recursive=True):
            tick = tick_of(name)
            if name not in live and tick is not None and tick <= newest.tick:
                found.add(name)
        return found

    def _own(self) -> None:
        if self._lock is None:
            raise StateError("this home was opened for reading only")
        if not self._lock.held():
            raise StateError(
                f"home {self.place.uri} has been taken over by another engine",
                detail="its lock is gone: this engine was not heard of for too long, or home was removed",
                hint="stop one of the two; the other goes on",
            )
