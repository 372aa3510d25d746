"""The newest manifest of a home, and what of it is replaced between two ticks: sources, sinks, versions of tables.

What is forgotten is gone from the manifest as soon as the next one is put.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from windrow.operators.elements import BEGINNING
from windrow.operators.state.run import Run
from windrow.runtime.table_versions import TABLES, Chain, TableVersion, Versions, shortened, updated
from windrow.runtime.undo_log import LoggedDict, UndoLog
from windrow.sources.numbered_rows import merged, whole
from windrow.store.manifest import Manifest
from windrow.store.runs import RunRef, RunStore
from windrow.store.store import StateStore


class NewestManifest:
    """A store with the manifest that is in force; an empty one over so many partitions where there is none yet.

    `spread`: over how many its state will lie.
    """

    def __init__(self, store: StateStore, partitions: int, spread: int) -> None:
        self.store, self.undo = store, UndoLog()
        self.manifest = store.latest() or Manifest(version=-1, tick=0, partitions=partitions, spread=spread)
        if isinstance(store.runs, RunStore):
            store.runs = store.runs.trusting(self.manifest.tick + 1)
        self.tables: LoggedDict[str, Versions] = LoggedDict(self.undo, _tables(self.manifest))

    @property
    def frontier(self) -> int:
        """How far everything has been answered."""
        return BEGINNING if self.manifest.frontier is None else self.manifest.frontier

    def put(self, manifest: Manifest) -> None:
        """Let a manifest be the newest, durably."""
        self.store.commit(manifest)
        self.manifest = manifest

    def forget_sink(self, query: str, name: str) -> None:
        """Keep nothing for a sink any more, durably."""
        sinks = dict(self.manifest.sinks)
        sinks[query] = {n: r for n, r in sinks.get(query, {}).items() if n != name}
        self.put(replace(self.manifest, version=self.manifest.version + 1, sinks=sinks))

    def forget_outputs(self, query: str) -> None:
        """Keep no answers of a query for its sinks."""
        outputs = {k: refs for k, refs in self.manifest.outputs.items() if k[0] != query}
        sinks = {q: each for q, each in self.manifest.sinks.items() if q != query}
        self.manifest = replace(self.manifest, outputs=outputs, sinks=sinks)

    def forget_source(self, name: str) -> None:
        """Forget where the source of a stream, or of a table's changes, was."""
        manifest = self.manifest
        self.manifest = replace(
            manifest,
            marks={s: m for s, m in manifest.marks.items() if s != name},
            offsets={s: o for s, o in manifest.offsets.items() if s != name},
            declared={s: d for s, d in manifest.declared.items() if s != name},
        )

    def set_table(self, name: str, table: pa.Table) -> bool:
        """Let rows meet this version of a table from the first instant that none has reached yet; the same content is
        the same version."""
        known = self.tables.get(name, ())
        if known and self.table(known[-1]).equals(table):
            return False
        self.tables[name] = updated(known, (self._written(name, table),), self._reached)
        return True

    def change_table(self, name: str, run: pa.Table) -> None:
        """Let rows meet what a run of changes makes of a table, from the first instant that none has reached yet."""
        known = shortened(self.tables[name], lambda runs: self._written(name, merged(self._read(runs))))
        refs = (*known[-1].refs, self._written(name, run))
        self.tables[name] = updated(known, refs, self._reached)

    def table(self, version: TableVersion) -> pa.Table:
        """What a version of a table holds."""
        return whole(self.table_runs(version))

    def table_runs(self, version: TableVersion) -> list[pa.Table]:
        """The runs of a version of a table, whose rows have numbers that later runs go on from."""
        return self._read(version.refs)

    @property
    def _reached(self) -> int:
        return max(self.frontier, *self.manifest.marks.values(), BEGINNING)

    def _read(self, refs: Chain) -> list[pa.Table]:
        return [self.store.runs.read(ref).table for ref in refs]

    def _written(self, name: str, table: pa.Table) -> RunRef:
        (ref,) = self.store.runs.write((TABLES, name), self.manifest.tick + 1, [Run(table)])
        return ref


def _tables(manifest: Manifest) -> dict[str, Versions]:
    """The versions of tables that a manifest names: a slot each; in older homes all in one, a run each."""
    chains: dict[str, dict[int, Chain]] = {}
    for (stage, number, _, table), refs in manifest.runs.items():
        if stage == TABLES:
            chains.setdefault(table, {})[number] = refs
    found = {}
    for table, slots in chains.items():
        instants = manifest.tables.get(table, (BEGINNING,))
        each = [slots[n] for n in sorted(slots)]
        each = [(ref,) for ref in each[0]] if len(each) < len(instants) else each
        found[table] = tuple(map(TableVersion, each, instants))
    return found


def last_evaluated(manifest: Manifest, key: str, clock: str, slide: int) -> int | None:
    """The instant for which a query with a deadline was evaluated last; without a budget, the newest multiple."""
    kept = manifest.deadlines.get(key)
    if kept is not None:
        return kept.done
    if manifest.frontier is None or clock not in manifest.clocks:
        return None
    return manifest.frontier // slide * slide


def with_clocks_of_epochs(manifest: Manifest, left: Mapping[str, str]) -> Manifest:
    """The manifest of a home in which each of some queries may have a clock of its own, with those of their epochs."""
    clocks, firsts, lapsed = dict(manifest.clocks), dict(manifest.firsts), set(manifest.lapsed)
    if not left.keys() & (clocks.keys() | firsts.keys()):
        return manifest
    lapsed |= {q for q in left if q not in clocks and q not in firsts}
    for known in (clocks, firsts):
        known |= {left[q]: ts for q, ts in known.items() if q in left}
    clocks, firsts = ({q: ts for q, ts in known.items() if q not in left} for known in (clocks, firsts))
    return replace(manifest, clocks=clocks, firsts=firsts, lapsed=tuple(sorted(lapsed)))
