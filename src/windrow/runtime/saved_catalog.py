"""The catalog on disk: what an engine needs to know to go on after a restart.

Streams and tables are kept as their declarations, queries as their text: binding it again gives the same plan, because
a home belongs to one choice of strategy and rules, and has a tick budget for all queries or
none, which are kept with it. DataFrames and Python functions are not kept; their owner attaches them again before the
start.

    manifest 41   catalog 3                      home/catalog/00000003.json: all declarations
    manifest 42   catalog 3, changes a           a: the declarations dropped and added since, the places that moved
    manifest 43   catalog 3, changes a, b
    manifest 44   catalog 4                      home/catalog/00000004.json: all of them again

A change is written in the manifest that puts it in force: one file, one rename, so a crash leaves the catalog before
or the one after. When changes have grown to `FOLD` declarations the whole catalog is written first. Law: applying the
changes of a manifest to its catalog gives what writing the whole would have written. Cost: what is new, not what there
is; a manifest grows by less than `FOLD` declarations.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.catalog import KINDS as catalog_kinds
from windrow.catalog import ArchiveDef, Catalog, Declared, QueriesDef, SinkDef, StreamDef, TableDef
from windrow.catalog.change_columns import ChangeColumns
from windrow.catalog.instances import InstanceTable, positions
from windrow.catalog.names import Names
from windrow.errors import StateError
from windrow.plan.nodes import QueryPlan
from windrow.runtime.column_places import ColumnPlace, LeftColumns, packed_rows, read_rows
from windrow.runtime.settings import Settings
from windrow.store.failpoints import reach
from windrow.store.manifest import Manifest
from windrow.store.sealed import as_written
from windrow.store.store import Store

FOLD = 64
"""Declarations in the changes of one manifest, at which the whole catalog is written instead."""

KINDS = tuple(names for names, _ in catalog_kinds.values())
"""What is declared, by the field of a catalog that has it."""

Content = Mapping[str, Any]


@dataclass(frozen=True)
class StoredCatalog:
    """A catalog as a manifest names it, and what it was made of."""

    version: int
    changes: tuple[Content, ...]
    catalog: Catalog
    shared: Content


class SavedCatalog:
    """Writes catalogs; a manifest says which one is in force."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store, self.optimizer = store, settings.optimizer
        self._decide = {  # the layout of state
            "strategy": settings.optimizer.strategy, "tick budget": "none" if settings.budget_us is None else "set",
        }  # fmt: skip
        self.kept: StoredCatalog | None = None  # what is in force
        self._anew = False  # blocks of members are others than those on disk: the next catalog is written whole

    def write(self, catalog: Catalog, shared: Content) -> StoredCatalog:
        """What the next manifest must name; `shared`: who shares with whom. In force once it is `kept`."""
        now = self.kept
        if now is not None and not self._anew:
            change = between((now.catalog, now.shared), (catalog, shared))
            changes = (*now.changes, change) if change else now.changes
            if sum(map(_size, changes)) < FOLD:
                return StoredCatalog(now.version, changes, catalog, shared)
        version = (0 if now is None else now.version) + 1
        self.store.write_catalog(version, self._whole(catalog, shared))
        reach("after catalog")
        self._anew = False
        return StoredCatalog(version, (), catalog, shared)

    def _whole(self, catalog: Catalog, shared: Content) -> dict[str, Any]:
        return {
            **self._decide,
            **{kind: [_PLAIN[kind](d) for d in getattr(catalog, kind).values()] for kind in KINDS},
            "sharing": shared["technique"],
            "shared": {
                **shared,
                "queries": dict(shared["queries"]),
                "columns": {block: place.plain() for block, place in shared["columns"].items()},
            },
        }

    def load(self, manifest: Manifest, catalog: Catalog, sharing: str) -> tuple[Catalog, Content | None]:
        """The catalog in force, with the functions of `catalog`, and who shares."""
        if not manifest.catalog:
            return catalog, None
        with as_written("windrow-catalog", self.store.place.path(f"catalog/{manifest.catalog:08d}.json")):
            return self._load(manifest, catalog, sharing)

    def _load(self, manifest: Manifest, catalog: Catalog, sharing: str) -> tuple[Catalog, Content | None]:
        content = in_force(self.store, manifest)
        for what, now in {**self._decide, "sharing": sharing}.items():
            if content.get(what, "none") != now:
                raise StateError(
                    f"this home was written with {what} {content.get(what, 'none')}, and this is {now}",
                    hint="open it as it was written, or start with a new home",
                )
        if self.store.format < 3 and content["shared"]["queries"]:
            names = ", ".join(content["shared"]["queries"])
            raise StateError(
                "this home was written by an older version of windrow, whose state of queries that share is not read",
                detail=f"they are {names}; nothing has been changed",
                hint="drop them with the version that wrote the home, and create them again with this one",
            )
        for kind, type_ in (("streams", StreamDef), ("tables", TableDef)):
            for plain in content[kind]:
                catalog = catalog.add(_read(type_, plain))
        for kind, plain in _in_order(content):
            found = _bound(kind, plain, catalog)
            if isinstance(found, QueryPlan):
                found = self.optimizer.as_kept(bool(plain.get("by_key"))).best(found, catalog)
            elif isinstance(found, ArchiveDef):
                found = replace(found, plan=self.optimizer.archived(found.plan, catalog))
            catalog = catalog.add(found)
        for plain in content.get("groups", ()):
            catalog = catalog.add(_group_of(plain))
        for plain in content.get("sinks", ()):
            sink = SinkDef(**plain)
            if not {sink.query.lower()} & (catalog.queries.keys() | catalog.groups.keys()):
                raise ValueError(f"sink {sink.name} is for {sink.query}, which there is not")
            catalog = catalog.add(sink)
        shared = {k: _tuples(v) if k in ("families", "queries") else v for k, v in content["shared"].items()}
        shared["queries"] = Names(shared["queries"])
        left = tuple(map(LeftColumns.of, shared.get("columns", {}).values()))
        shared["columns"] = Names()  # as none runs yet
        self._anew = bool(left)
        self.kept = StoredCatalog(manifest.catalog, manifest.changes, catalog, shared)
        return catalog, {**shared, "left": left}


def in_force(store: Store, manifest: Manifest) -> Content:
    """All declarations that a manifest puts in force."""
    content = store.read_catalog(manifest.catalog)
    for change in manifest.changes:
        content = applied(content, change)
    return content


def between(before: tuple[Catalog, Content], after: tuple[Catalog, Content]) -> dict[str, Any]:
    """What leads from one catalog, and who shares in it, to another; empty when nothing does."""
    (old, places_before), (new, places) = before, after
    change: dict[str, Any] = {}
    for kind in KINDS:
        # a declaration is a value that is never made twice
        come, gone = Names.of(getattr(new, kind)).since(getattr(old, kind))
        if kind == "groups":
            edited = [k for k in come if k in gone]
            change |= {"edit groups": [_edit(gone.pop(k), come.pop(k)) for k in edited]} if edited else {}
        change |= {f"drop {kind}": [d.name for d in gone.values()]} if gone else {}
        change |= {f"add {kind}": [_PLAIN[kind](d) for d in come.values()]} if come else {}
    come, gone = Names.of(places["queries"]).since(places_before["queries"])
    moved = {n: s for n, s in come.items() if gone.get(n) != s}
    left = [n for n in gone if n not in come]
    columns = _columns_between(places_before["columns"], places["columns"])
    if moved or left or columns or any(places_before[k] != places[k] for k in ("next", "families")):
        change |= {"next": places["next"], "families": places["families"], "seats": moved, "unseat": left, **columns}
    return change


def _columns_between(before: Names[ColumnPlace], after: Names[ColumnPlace]) -> dict[str, Any]:
    """Blocks of members that came and went, and who left those that stayed."""
    come, gone = after.since(before)
    new = [place.plain() for block, place in come.items() if block not in gone]
    over = [block for block in gone if block not in come]
    fewer = {b: np.setdiff1d(come[b].left, gone[b].left).tolist() for b in come.keys() & gone.keys()}
    found = {"add columns": new, "drop columns": over, "leave columns": fewer}
    return {what: each for what, each in found.items() if each}


def applied(content: Content, change: Content) -> Content:
    """All declarations after a change."""
    found = dict(content)
    for kind in KINDS:
        gone = set(change.get(f"drop {kind}", ()))
        found[kind] = [d for d in content.get(kind, ()) if d["name"] not in gone] + list(change.get(f"add {kind}", ()))
    for edit in change.get("edit groups", ()):
        found["groups"] = [
            {**g, "steps": [*g["steps"], *edit["steps"]]} if g["name"] == edit["name"] else g for g in found["groups"]
        ]
    if "seats" in change:
        left = set(change["unseat"])
        queries = {n: s for n, s in content["shared"]["queries"].items() if n not in left} | change["seats"]
        moved = {"next": change["next"], "families": change["families"], "queries": queries}
        moved["columns"] = _columns_after(content["shared"].get("columns", {}), change)
        found["shared"] = {**content["shared"], **moved}
    return found


def _columns_after(columns: Content, change: Content) -> dict[str, Any]:
    over, fewer = set(change.get("drop columns", ())), change.get("leave columns", {})
    kept = {b: {**c, "left": sorted((*c["left"], *fewer.get(b, ())))} for b, c in columns.items() if b not in over}
    return kept | {c["block"]: c for c in change.get("add columns", ())}


def _tuples(found: Mapping[str, list[Any]]) -> dict[str, tuple[Any, ...]]:
    """What JSON makes lists of, as `saved` has it."""
    return {name: tuple(value) for name, value in found.items()}


def _size(change: Content) -> int:
    """How many declarations and instances a change is about; a place comes with its query, or is one of many."""
    sized = ("edit groups", "add groups", "add columns")
    rows = sum(each.get("size", 0) for what in sized for each in change.get(what, ()))
    rows += sum(map(len, change.get("leave columns", {}).values()))
    declared = sum(len(change.get(f"{act} {kind}", ())) for act in ("drop", "add") for kind in KINDS)
    return declared + max(rows, len(change.get("seats", ())) - declared) + 1


def _plain(item: StreamDef | TableDef) -> dict[str, Any]:
    """A stream or table as JSON has it; what older versions did not know is left out where it is not said."""
    found = {f.name: getattr(item, f.name) for f in fields(item)}
    found |= {"columns": _schema(item.columns), "options": dict(item.options)}
    found |= {name: list(value) for name, value in found.items() if isinstance(value, tuple)}
    if isinstance(item, TableDef) and item.changes is not None:
        found["changes"] = item.changes.plain()
    return {name: value for name, value in found.items() if value or name not in ("proctime", "added")}


def _read(kind: type[StreamDef | TableDef], plain: Content) -> StreamDef | TableDef:
    """What `_plain` made, now or in a version that knew less."""
    found: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in plain.items()}
    if plain.get("changes"):
        found["changes"] = ChangeColumns.of_plain(plain["changes"])
    return kind(**{**found, "columns": columns_of_text(plain["columns"])})


def _text(name: str, text: str, needs: tuple[str, ...] = ()) -> dict[str, Any]:
    """What is kept of a declaration that is bound again from its text, behind what it needs."""
    return {"name": name, "text": text, **({"needs": list(needs)} if needs else {})}


def _in_order(content: Content) -> Iterator[tuple[str, Content]]:
    """Functions, then views and queries, each behind what it needs, then archives and templates."""
    for kinds in (("macros",), ("views", "queries"), ("archives",), ("templates",)):
        waiting = {d["name"].lower(): (kind, d) for kind in kinds for d in content.get(kind, ())}
        while waiting:
            ready = [n for n, (_, d) in waiting.items() if not any(m.lower() in waiting for m in d.get("needs", ()))]
            if not ready:
                raise StateError(f"{', '.join(waiting)} in the catalog of this home need each other")
            yield from (waiting.pop(n) for n in ready)


def _bound(kind: str, plain: Content, catalog: Catalog) -> Declared:
    """A declaration from its text."""
    from windrow import cql

    if kind == "queries":
        return cql.compile_select(plain["text"], catalog, plain["name"])
    (statement,) = cql.parse(plain["text"])
    bound = cql.bind(statement, catalog)
    assert isinstance(bound, cql.Create)
    return bound.definition


def _group(g: QueriesDef) -> dict[str, Any]:
    """Queries from a template; `steps`: the instances that came and went, by their values, in order."""
    steps = [["come", packed_rows(g.instances.rows)]] if len(g.instances) else []
    return {
        "name": g.name, "template": g.template, "parameters": _schema(g.parameters), "table": g.table, "steps": steps,
        "size": len(g.instances),
    }  # fmt: skip


def _edit(before: QueriesDef, after: QueriesDef) -> dict[str, Any]:
    come, gone = after.instances.since(before.instances)
    steps = [[what, packed_rows(rows)] for what, rows in (("go", gone), ("come", come)) if rows.num_rows]
    return {"name": after.name, "size": come.num_rows + gone.num_rows, "steps": steps}


def _group_of(plain: Content) -> QueriesDef:
    from windrow.cql.templates import instances, with_rows

    parameters = columns_of_text(plain["parameters"])
    rows = InstanceTable.empty(parameters)
    found = QueriesDef(plain["name"], plain["template"], parameters, plain["table"], rows)
    for step, what in plain["steps"]:
        if step == "come":
            found = with_rows(found, read_rows(what))
            continue
        rows = found.instances.rows
        gone = np.zeros(rows.num_rows, np.bool_)
        if step == "go":
            gone[positions(read_rows(what), rows)] = True
        else:  # as older versions wrote it: their names
            names = set(what)
            gone |= [i.name in names for i in instances(found.name, rows)]
        found = replace(found, instances=found.instances.without(gone))
    return found


_PLAIN: Mapping[str, Any] = {
    "streams": _plain,
    "tables": _plain,
    "queries": lambda q: _text(q.name, q.text, q.over) | ({"by_key": True} if q.by_key else {}),
    "views": lambda v: _text(v.name, v.plan.text, v.plan.over),
    "macros": lambda f: _text(f.name, f.text, f.calls),
    "archives": lambda a: _text(a.name, a.plan.text),
    "templates": lambda t: _text(t.name, t.text),
    "groups": _group,
    "sinks": lambda s: {"name": s.name, "query": s.query, "kind": s.kind, "options": dict(s.options)},
}


def _schema(columns: Mapping[str, pa.DataType]) -> str:
    return base64.b64encode(pa.schema(list(columns.items())).serialize()).decode()


def columns_of_text(text: str) -> dict[str, pa.DataType]:
    """The columns of a declaration as it is kept."""
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
    return dict(zip(schema.names, schema.types, strict=True))
