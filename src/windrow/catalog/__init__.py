"""What has been declared: streams, tables, queries, archives and user functions.

Invariant: every name is unique among streams, tables, queries and archives (case-insensitively), and nothing is
half-registered: a catalog is a value that statements replace, not a place they mutate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pyarrow as pa

from windrow.archive.layout import ArchiveLayout
from windrow.catalog.names import Names
from windrow.errors import BindingError
from windrow.plan.nodes import QueryPlan

T = TypeVar("T")


@dataclass(frozen=True)
class StreamDef:
    """A stream: its columns, the time column, and how far out of order it may be (ticks of its clock)."""

    name: str
    columns: Mapping[str, pa.DataType]
    time: str
    slack: int = 0
    within: bool = False  # WITHIN is said: a replay takes rows as they arrived and judges which are late
    idle_after: int | None = None  # microseconds of wall time
    ahead: int | None = None  # microseconds that a row may be ahead of the stream and of the wall
    retain: int | None = None  # ticks of history kept for queries that come later
    options: Mapping[str, str] = field(default_factory=dict)  # FROM SOURCE (...) options, uninterpreted

    @property
    def time_type(self) -> pa.DataType:
        return self.columns[self.time]


@dataclass(frozen=True)
class TableDef:
    """A table: its columns, whether updates reach back, and the columns of its active interval."""

    name: str
    columns: Mapping[str, pa.DataType]
    retroactive: bool = False
    valid: tuple[str, str] | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ArchiveDef:
    """An archive: the query whose rows it keeps on disk, by `keys`, updated `every` so many units of the clock.

    `lifetime`: the greatest of its rows. `layout` None: chosen by size and use; `rebuild` None: with the layout.
    """

    name: str
    plan: QueryPlan
    columns: Mapping[str, pa.DataType]
    keys: tuple[str, ...]
    every: int
    lifetime: int
    layout: ArchiveLayout | None = None
    rebuild: bool | None = None


@dataclass(frozen=True)
class FunctionDef:
    """A user's vectorised function: Arrow arrays in, an array-like of `returns` out."""

    name: str
    fn: Callable[..., object]
    returns: pa.DataType


@dataclass(frozen=True)
class Catalog:
    """All declarations; lower-case names are the keys."""

    streams: Mapping[str, StreamDef] = field(default_factory=Names)
    tables: Mapping[str, TableDef] = field(default_factory=Names)
    queries: Mapping[str, QueryPlan] = field(default_factory=Names)
    functions: Mapping[str, FunctionDef] = field(default_factory=Names)
    archives: Mapping[str, ArchiveDef] = field(default_factory=Names)

    def kinds(self) -> dict[str, Mapping[str, StreamDef | TableDef | QueryPlan | ArchiveDef]]:
        """What is declared, by kind."""
        return {"stream": self.streams, "table": self.tables, "query": self.queries, "archive": self.archives}

    def readers(self, name: str) -> list[str]:
        """The queries and archives that read a stream or table."""
        plans = [*self.queries.values(), *(a.plan for a in self.archives.values())]
        return [q.name for q in plans if name.lower() in {r.lower() for r in q.streams + q.tables}]

    def add(self, item: StreamDef | TableDef | QueryPlan | ArchiveDef) -> Catalog:
        """The catalog with one more declaration; a taken name is an error."""
        key = item.name.lower()
        for kind, names in self.kinds().items():
            if key in names:
                raise BindingError(
                    f'{kind} "{item.name}" already exists',
                    hint=f"DROP {kind.upper()} {item.name} first, or choose another name",
                )
        match item:
            case StreamDef():
                return replace(self, streams=Names.of(self.streams).put(key, item))
            case TableDef():
                return replace(self, tables=Names.of(self.tables).put(key, item))
            case QueryPlan():
                return replace(self, queries=Names.of(self.queries).put(key, item))
            case ArchiveDef():
                return replace(self, archives=Names.of(self.archives).put(key, item))

    def drop(self, kind: str, name: str, if_exists: bool = False) -> Catalog:
        """The catalog without one declaration; a stream or table that a query reads stays."""
        key = name.lower()
        names = self.kinds()[kind]
        if key not in names:
            if if_exists:
                return self
            raise BindingError(f'{kind} "{name}" does not exist', hint=_known(kind, names))
        if kind in ("stream", "table"):
            readers = self.readers(key)
            if readers:
                raise BindingError(
                    f'{kind} "{name}" is in use',
                    detail=f"read by {', '.join(readers)}",
                    hint="drop those queries first",
                )
        match kind:
            case "stream":
                return replace(self, streams=_without(self.streams, key))
            case "table":
                return replace(self, tables=_without(self.tables, key))
            case "archive":
                return replace(self, archives=_without(self.archives, key))
            case _:
                return replace(self, queries=_without(self.queries, key))


def _without(names: Mapping[str, T], key: str) -> Names[T]:
    return Names.of(names).without(key)


def _known(kind: str, names: Mapping[str, object]) -> str:
    plural = {"query": "queries"}.get(kind, f"{kind}s")
    return f"known {plural}: {', '.join(names)}" if names else f"there are no {plural}"
