"""What has been declared: streams, tables, queries, archives, templates with their queries, and user functions.

Invariant: every name is unique among all of these but functions (case-insensitively), and nothing is
half-registered: a catalog is a value that statements replace, not a place they mutate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

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
    quarantine: bool = False  # ON ERROR QUARANTINE: what cannot be read is set aside; else it stops the stream
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
class TemplateDef:
    """A template: a SELECT in which `$name` stands for the value of a parameter.

    `typed`: where a value is computed with, it is cast to the type of its parameter.
    """

    name: str
    parameters: Mapping[str, pa.DataType]
    body: str
    text: str  # the whole statement
    typed: bool = True


class Instance(NamedTuple):
    """A query of a template: what it is called, and the values of the parameters, as they are and as literals."""

    name: str
    values: tuple[Any, ...]
    literals: tuple[str, ...]


@dataclass(frozen=True)
class QueriesDef:
    """Queries from one template, whose answers are one: those of VALUES, or those that the rows of a `table` ask for,
    which come and go with it and are not listed here."""

    name: str
    template: str
    parameters: Mapping[str, pa.DataType]
    table: str | None = None
    instances: Names[Instance] = field(default_factory=Names)

    def rows(self, instances: Iterable[Instance]) -> pa.Table:
        """The values of instances, a row for each."""
        columns = list(zip(*(i.values for i in instances), strict=True)) or [()] * len(self.parameters)
        arrays = [pa.array(list(c), t) for c, t in zip(columns, self.parameters.values(), strict=True)]
        return pa.Table.from_arrays(arrays, names=list(self.parameters))


@dataclass(frozen=True)
class SinkDef:
    """A sink of a query: where its answers go, attached again at every start."""

    name: str
    query: str
    kind: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FunctionDef:
    """A user's vectorised function: Arrow arrays in, an array-like of `returns` out."""

    name: str
    fn: Callable[..., object]
    returns: pa.DataType


Declared = StreamDef | TableDef | QueryPlan | ArchiveDef | TemplateDef | QueriesDef | SinkDef


@dataclass(frozen=True)
class Catalog:
    """All declarations; lower-case names are the keys."""

    streams: Mapping[str, StreamDef] = field(default_factory=Names)
    tables: Mapping[str, TableDef] = field(default_factory=Names)
    queries: Mapping[str, QueryPlan] = field(default_factory=Names)
    functions: Mapping[str, FunctionDef] = field(default_factory=Names)
    archives: Mapping[str, ArchiveDef] = field(default_factory=Names)
    templates: Mapping[str, TemplateDef] = field(default_factory=Names)
    groups: Mapping[str, QueriesDef] = field(default_factory=Names)  # queries from templates
    sinks: Mapping[str, SinkDef] = field(default_factory=Names)

    def kinds(self) -> dict[str, Mapping[str, Declared]]:
        """What is declared, by kind."""
        return {
            "stream": self.streams, "table": self.tables, "query": self.queries, "archive": self.archives,
            "template": self.templates, "queries": self.groups, "sink": self.sinks,
        }  # fmt: skip

    def readers(self, name: str) -> list[str]:
        """The queries and archives that read a stream or table, and the queries from templates that may."""
        plans = [*self.queries.values(), *(a.plan for a in self.archives.values())]
        found = [q.name for q in plans if name.lower() in {r.lower() for r in q.streams + q.tables}]
        word = re.compile(rf"\b{re.escape(name)}\b", re.IGNORECASE)
        templates = [t.name for t in self.templates.values() if word.search(t.body)]
        return found + templates + [g.name for g in self.groups.values() if (g.table or "").lower() == name.lower()]

    def sinks_of(self, query: str) -> list[str]:
        """The declared sinks of a query, or of queries from a template."""
        return [s.name for s in self.sinks.values() if s.query.lower() == query.lower()]

    def users(self, template: str) -> list[str]:
        """The queries from a template."""
        return [g.name for g in self.groups.values() if g.template.lower() == template.lower()]

    def add(self, item: Declared) -> Catalog:
        """The catalog with one more declaration; a taken name is an error, but queries may get more instances."""
        key = item.name.lower()
        if isinstance(item, QueriesDef) and key in self.groups:
            return replace(self, groups=Names.of(self.groups).put(key, item))
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
            case TemplateDef():
                return replace(self, templates=Names.of(self.templates).put(key, item))
            case QueriesDef():
                return replace(self, groups=Names.of(self.groups).put(key, item))
            case SinkDef():
                return replace(self, sinks=Names.of(self.sinks).put(key, item))

    def drop(self, kind: str, name: str, if_exists: bool = False) -> Catalog:
        """The catalog without one declaration; a stream or table that a query reads stays."""
        key = name.lower()
        names = self.kinds()[kind]
        if key not in names:
            if if_exists:
                return self
            raise BindingError(f'{kind} "{name}" does not exist', hint=_known(kind, names))
        if kind in ("query", "queries") and self.sinks_of(key):
            raise BindingError(
                f'{kind} "{name}" has the sink {self.sinks_of(key)[0]}', hint=f"DROP SINK {self.sinks_of(key)[0]} first"
            )
        if kind in ("stream", "table", "template"):
            readers = self.users(key) if kind == "template" else self.readers(key)
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
            case "template":
                return replace(self, templates=_without(self.templates, key))
            case "queries":
                return replace(self, groups=_without(self.groups, key))
            case "sink":
                return replace(self, sinks=_without(self.sinks, key))
            case _:
                return replace(self, queries=_without(self.queries, key))


def _without(names: Mapping[str, T], key: str) -> Names[T]:
    return Names.of(names).without(key)


def _known(kind: str, names: Mapping[str, object]) -> str:
    plural = {"query": "queries", "queries": "queries from templates"}.get(kind, f"{kind}s")
    return f"known {plural}: {', '.join(names)}" if names else f"there are no {plural}"
