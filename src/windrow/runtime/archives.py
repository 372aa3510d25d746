"""Archives of a running engine: rows wait between updates, and an update is part of a tick's commit.

    tick        rows of the archive's query, lifetimes and all, join those that wait (runs that the manifest names)
    update      at the first tick that reaches the next multiple of EVERY: what has come until then goes into the
                index (`windrow.archive`), whose files the same manifest names; what came after waits on

So an archive shows Q(t) at a multiple of EVERY, and a crash leaves the update before or the one after. Readers hold a
manifest, whose files stay while they read. Whoever does not choose a layout has it chosen by size and use (thesis
4.4.6), and changed beside the old one, which runs empty.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.archive import OPEN, ArchiveIndex, ArchiveLayout, ArchiveState, advised
from windrow.archive.index import SubIndices
from windrow.archive.subindex import SubIndex
from windrow.catalog import ArchiveDef
from windrow.errors import StateError, UnsupportedError, WindrowError
from windrow.operators.elements import Elements
from windrow.operators.state.run import Run
from windrow.store.failpoints import reach
from windrow.store.manifest import Manifest, SlotKey
from windrow.store.manifest_values import ArchiveMark
from windrow.store.place import Place
from windrow.store.runs import RunRef, pack_name
from windrow.store.sealed import STATE, as_written
from windrow.store.store import StateStore, Store

STAGE = "archive"
"""The stage under which a manifest names the files of archives."""

WAITING = "waiting"
REVIEW = 16
"""Updates after which a layout that nobody chose is thought over."""

Slots = dict[SlotKey, tuple[RunRef, ...]]


def hidden_name(archive: str) -> str:
    """The name of the query behind an archive: one no user can give."""
    return f"^{archive.lower()}"


@dataclass
class LiveArchive:
    """An archive, what it is after the last tick, and the rows that wait for the next update."""

    definition: ArchiveDef
    index: ArchiveIndex
    state: ArchiveState | None = None
    waiting: tuple[RunRef, ...] = ()
    wish: tuple[ArchiveLayout, bool] | None = None  # a layout that someone wants, and whether gradually
    asked: int = 0  # questions since the layout was last thought over
    updates: int = 0
    error: WindrowError | None = None  # why it has no more updates
    anew: bool = False  # what it is is of a query that has failed, and gives way to that of the next tick

    @property
    def key(self) -> str:
        return self.definition.name.lower()

    def first_layout(self) -> ArchiveLayout:
        """The layout that was written, or the one for few rows and few questions."""
        return self.definition.layout or self.suited(advised(0, 0))

    def suited(self, layout: ArchiveLayout) -> ArchiveLayout:
        """A layout with the way of updating that was written, if one was."""
        rebuild = self.definition.rebuild
        return layout if rebuild is None else replace(layout, rebuild=rebuild)


@dataclass
class Prepared:
    """What archives will be once the manifest is in place."""

    states: dict[str, tuple[ArchiveState | None, tuple[RunRef, ...]]] = field(default_factory=dict)
    slots: Slots = field(default_factory=dict)
    marks: dict[str, ArchiveMark] = field(default_factory=dict)
    failed: dict[str, WindrowError] = field(default_factory=dict)


class Archives:
    """All archives of an engine."""

    def __init__(self, store: StateStore, live: dict[str, LiveArchive]) -> None:
        self.store, self.live = store, live
        self._place: Place | None = store.place if isinstance(store, Store) else None
        self._tick = 0
        self._guard = threading.Lock()
        self._readers = 0
        self._garbage: set[str] = set()  # files of an engine without a home that no state names any more

    # declaring

    def made(self, definition: ArchiveDef, manifest: Manifest, known: bool) -> LiveArchive:
        """An archive as a manifest knows it, or a new one.

        `known`: its query goes on where it was. One that has failed begins anew, and so does its archive, with the
        first tick that its query answers: rows are missing before.
        """
        if self._place is None:
            self._place = Place.temporary()
        key = definition.name.lower()
        index = ArchiveIndex(
            self._place, pa.schema(list(definition.columns.items())), definition.keys, every=definition.every,
            lifetime=definition.lifetime, name=lambda _: pack_name((STAGE, key), self._tick),
            sync=isinstance(self.store, Store),
        )  # fmt: skip
        state, waiting = stored(manifest, key)
        anew = not known and bool(waiting or (state is not None and any(i.parts for i in state.indices)))
        return LiveArchive(definition, index, state, waiting, anew=anew)

    # ticks

    def prepare(
        self, tick: int, frontier: int, rows: Mapping[str, Elements], failed: Mapping[str, WindrowError]
    ) -> Prepared:
        """What a tick makes of the archives: new files, which only its manifest makes real.

        `failed`: queries that have, now or before. An archive whose query did stays as of its last update.
        """
        self._tick, found = tick, Prepared()
        for key, live in self.live.items():
            live.error = failed.get(hidden_name(key))
            found.states[key] = (live.state, live.waiting)
            try:
                if live.error is None:
                    found.states[key] = self._advanced(live, frontier, rows.get(hidden_name(key)))
            except UnsupportedError as error:  # rows that this archive cannot take: the others go on
                found.failed[hidden_name(key)] = live.error = error
            state, waiting = found.states[key]
            found.slots |= slots_of(key, state, waiting)
            if state is not None:
                found.marks[key] = ArchiveMark(state.slot, tuple(astuple(i.layout) for i in state.indices))
        reach("after archive")
        return found

    def accept(self, prepared: Prepared) -> None:
        """The manifest is in place."""
        for key, (state, waiting) in prepared.states.items():
            live = self.live.get(key)
            if live is None:
                continue
            if live.state is not None and state is not None and state.slot > live.state.slot:
                live.updates += 1
                self._review(live, state)
            if not isinstance(self.store, Store):
                before = live.state.files() if live.state is not None else set()
                self._garbage |= before - (state.files() if state is not None else set())
            live.state, live.waiting = state, waiting
            live.anew = live.anew and live.error is not None
        self._sweep()

    def _advanced(
        self, live: LiveArchive, frontier: int, new: Elements | None
    ) -> tuple[ArchiveState | None, tuple[RunRef, ...]]:
        """An archive at a frontier: updated if it is time, and what waits."""
        index, table = live.index, self._table(live, new)
        state, waiting = (None, ()) if live.anew else (live.state, live.waiting)
        if state is None:
            state = index.empty(live.first_layout(), (index.slot(frontier) - 1) * index.every)
        if live.wish is not None:
            layout, gradually = live.wish
            live.wish = None
            if layout != state.layout:
                state = index.migrate(state, layout, gradually=gradually).state
        slot = index.slot(frontier)
        if slot <= state.slot:
            return state, (*waiting, *self._written(live, table))
        with as_written(STATE, f'of archive "{live.definition.name}" in {self.store.runs.uri}'):
            waited = [self.store.runs.read(ref).table.select(table.column_names).cast(table.schema) for ref in waiting]
        everything = pa.concat_tables([*waited, table])
        due = everything.column("_ts").to_numpy() <= slot * index.every
        state = index.update(state, everything.filter(pa.array(due)), slot).state
        return state, self._written(live, everything.filter(pa.array(~due)))

    def _table(self, live: LiveArchive, new: Elements | None) -> pa.Table:
        schema, plan = live.index.shelf.schema, live.definition.plan
        if new is None or not len(new):
            return schema.empty_table()
        columns = {shown: new.columns[internal] for shown, internal in plan.output}
        return pa.table({**columns, "_ts": new.ts, "_exp": np.asarray(new.exp)}).cast(schema)

    def _written(self, live: LiveArchive, table: pa.Table) -> tuple[RunRef, ...]:
        if not table.num_rows:
            return ()
        return self.store.runs.write((STAGE, live.key), self._tick, [Run(table.combine_chunks())])

    def _review(self, live: LiveArchive, state: ArchiveState) -> None:
        """Think a layout over that nobody chose."""
        if live.definition.layout is not None or live.updates % REVIEW or len(state.indices) > 1:
            return
        layout = live.suited(advised(sum(i.size for i in state.indices), live.asked / REVIEW))
        live.asked = 0
        if layout != state.layout:
            live.wish = (layout, True)

    def _sweep(self) -> None:
        with self._guard:
            if self._readers or not self._garbage or self._place is None:
                return
            gone, self._garbage = self._garbage, set()
        for name in gone:
            self._place.delete(name)

    # reading

    @contextmanager
    def reading(self, key: str) -> Iterator[tuple[LiveArchive, ArchiveState]]:
        """An archive and its state after the newest tick, whose files stay while the block reads them."""
        live = self.live[key]
        with self._guard:
            self._readers += 1
        try:
            with self.store.snapshot() as manifest:
                state = None if manifest is None else stored(manifest, key)[0]
                if state is None:
                    raise StateError(
                        f'archive "{live.definition.name}" has had no update yet',
                        hint="it shows the first multiple of EVERY that time has reached",
                    )
                live.asked += 1
                yield live, state
        finally:
            with self._guard:
                self._readers -= 1

    def probe(self, key: str, value: Any = OPEN, low: Any = OPEN, high: Any = OPEN) -> tuple[int, pa.Table]:
        """The instant of the last update, and the rows of a key or of a range of keys."""
        with self.reading(key) as (live, state):
            return live.index.as_of(state), live.index.probe(state, value, low=low, high=high)

    def scan(self, key: str) -> tuple[int, pa.Table]:
        """The instant of the last update, and all rows."""
        with self.reading(key) as (live, state):
            return live.index.as_of(state), live.index.scan(state)

    def ranges(
        self, key: str, ends: Sequence[tuple[Any, Any]] | None, check: Callable[[], None]
    ) -> tuple[int, pa.Table]:
        """The rows of some ranges of keys, apart from each other, all of one update; None: all rows.

        Given up when `check` raises, which is called before each sub-index is read.
        """
        with self.reading(key) as (live, state):
            empty = pa.schema(list(live.definition.columns.items())).empty_table()
            spans = [(OPEN, OPEN)] if ends is None else ends
            parts = [live.index.probe(state, low=low, high=high, check=check) for low, high in spans]
            return live.index.as_of(state), pa.concat_tables([empty, *parts])

    def status(self) -> dict[str, Any]:
        """A line for each archive."""
        return {live.definition.name: _status(live) for live in self.live.values()}

    def layouts(self, key: str) -> list[dict[str, Any]]:
        """The layout that new rows go to, then those that run empty, with what every sub-index holds, row by row."""
        state = self.live[key].state
        return [] if state is None else [_layout(index) for index in state.indices]


def _status(live: LiveArchive) -> dict[str, Any]:
    state, error = live.state, None if live.error is None else str(live.error)
    if state is None:
        none = {"as_of": None, "rows": 0, "bytes": 0, "waiting": 0}
        return {**none, "layout": str(live.first_layout()), "updates": 0, "error": error}
    return {
        "as_of": live.index.as_of(state),
        "rows": sum(i.rows for i in state.indices),
        "bytes": sum(i.size for i in state.indices),
        "waiting": sum(ref.rows for ref in live.waiting),
        "layout": str(state.layout),
        "updates": live.updates,
        "error": error,
    }


def _layout(index: SubIndices) -> dict[str, Any]:
    layout, parts = index.layout, [index.parts.get(n) for n in range(index.layout.count)]
    return {
        "layout": str(layout),
        "insertions": layout.insertions,
        "expirations": layout.expirations,
        "rows": [part.rows if part else 0 for part in parts],
        "bytes": [part.size if part else 0 for part in parts],
    }


def slots_of(key: str, state: ArchiveState | None, waiting: tuple[RunRef, ...]) -> Slots:
    """How a manifest names an archive: a directory first, then the other files that its blocks lie in."""
    owner = hidden_name(key)
    found: Slots = {(STAGE, 0, owner, WAITING): waiting} if waiting else {}
    for i, index in enumerate(state.indices if state is not None else ()):
        for number, part in index.parts.items():
            directory = RunRef(f"{part.path}#", part.path, part.rows, part.bytes, part.checksum, part.offset)
            files = (RunRef(f"{name}#", name, 0, size, 0, 0) for name, size in part.files.items())
            found[STAGE, number, owner, str(i)] = (directory, *files)
    return found


def part_of(refs: tuple[RunRef, ...]) -> SubIndex:
    """A sub-index as a manifest names it."""
    first, *files = refs
    return SubIndex(first.path, first.offset, first.bytes, first.checksum, first.rows, {f.path: f.bytes for f in files})


def stored(manifest: Manifest, key: str) -> tuple[ArchiveState | None, tuple[RunRef, ...]]:
    """An archive as a manifest names it."""
    owner = hidden_name(key)
    waiting: tuple[RunRef, ...] = ()
    parts: dict[int, dict[int, SubIndex]] = {}
    for (stage, number, of, slot), refs in manifest.runs.items():
        if stage != STAGE or of != owner:
            continue
        if slot == WAITING:
            waiting = refs
            continue
        parts.setdefault(int(slot), {})[number] = part_of(refs)
    mark = manifest.archives.get(key)
    if mark is None:
        return None, waiting
    layouts = [ArchiveLayout(*plain) for plain in mark.layouts]
    indices = tuple(SubIndices(layout, parts.get(i, {})) for i, layout in enumerate(layouts))
    return ArchiveState(mark.slot, indices), waiting
