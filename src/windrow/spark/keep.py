"""The catalog on disk: what an engine needs to know to go on after a restart.

Streams and tables are kept as their declarations, queries as their text: binding it again gives the same plan, because
a home belongs to one version of windrow, one choice of strategy and rules, and has a tick budget for all queries or
none, which are kept with it. DataFrames and
Python functions are not kept; their owner attaches them again before the start.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

import windrow
from windrow.catalog import Catalog, StreamDef, TableDef
from windrow.errors import StateError
from windrow.spark.manifest import Manifest
from windrow.spark.store import Store


class Keeper:
    """Writes versions of the catalog; a manifest says which one is in force."""

    def __init__(self, store: Store, strategy: str, budget: str = "none") -> None:
        self.store, self.strategy, self.budget = store, strategy, budget
        self.version = (store.latest() or Manifest(version=-1, tick=0)).catalog

    def write(self, catalog: Catalog, shared: Mapping[str, Any]) -> int:
        """Write the next version, and return its number; `shared`: who shares with whom."""
        self.version += 1
        self.store.write_catalog(
            self.version,
            {
                "windrow": windrow.__version__,
                "strategy": self.strategy,
                "tick budget": self.budget,
                "streams": [_stream(s) for s in catalog.streams.values()],
                "tables": [_table(t) for t in catalog.tables.values()],
                "queries": [{"name": q.name, "text": q.text} for q in catalog.queries.values()],
                "sharing": shared["technique"],
                "shared": dict(shared),
            },
        )
        return self.version

    def load(
        self, manifest: Manifest, catalog: Catalog, without: frozenset[str], sharing: str
    ) -> tuple[Catalog, Mapping[str, Any] | None]:
        """The catalog in force, with the functions of `catalog`, and who shares; `without`: rules that are off."""
        if not manifest.catalog:
            return catalog, None
        content = self.store.read_catalog(manifest.catalog)
        made = {
            "windrow": windrow.__version__, "strategy": self.strategy, "sharing": sharing, "tick budget": self.budget,
        }  # fmt: skip
        for what, now in made.items():  # what decides the layout of state
            if content.get(what, "none") != now:
                raise StateError(
                    f"this home was written with {what} {content.get(what, 'none')}, and this is {now}",
                    hint="open it as it was written, or start with a new home",
                )
        for plain in content["streams"]:
            catalog = catalog.add(StreamDef(**{**plain, "columns": _columns(plain["columns"])}))
        for plain in content["tables"]:
            valid = plain["valid"]
            catalog = catalog.add(
                TableDef(**{**plain, "columns": _columns(plain["columns"]), "valid": tuple(valid) if valid else None})
            )
        from windrow import cql
        from windrow.optimize import optimize

        for plain in content["queries"]:
            plan = cql.compile_select(plain["text"], catalog, plain["name"])
            catalog = catalog.add(optimize(plan, catalog, off=without, strategy=self.strategy))
        return catalog, content["shared"]


def _stream(s: StreamDef) -> dict[str, Any]:
    return {
        "name": s.name, "columns": _schema(s.columns), "time": s.time, "slack": s.slack, "idle_after": s.idle_after,
        "retain": s.retain, "options": dict(s.options),
    }  # fmt: skip


def _table(t: TableDef) -> dict[str, Any]:
    return {
        "name": t.name, "columns": _schema(t.columns), "retroactive": t.retroactive,
        "valid": list(t.valid) if t.valid else None, "options": dict(t.options),
    }  # fmt: skip


def _schema(columns: Mapping[str, pa.DataType]) -> str:
    return base64.b64encode(pa.schema(list(columns.items())).serialize()).decode()


def _columns(text: str) -> dict[str, pa.DataType]:
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
    return dict(zip(schema.names, schema.types, strict=True))
