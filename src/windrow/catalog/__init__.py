"""What has been declared: streams, tables, views, queries, archives, templates with their queries, and functions.

Invariant: every name is unique among all of these but functions (case-insensitively), and nothing is
half-registered: a catalog is a value that statements replace, not a place they mutate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from windrow.archive.layout import ArchiveLayout
from windrow.catalog.change_columns import ChangeColumns
from windrow.catalog.dependents import dependents
from windrow.catalog.instances import InstanceTable
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
    proctime: bool = False  # TIMESTAMP BY ts AS PROCTIME(): its time says when rows came
    options: Mapping[str, str] = field(default_factory=dict)  # FROM SOURCE (...) options, uninterpreted
    added: tuple[str, ...] = ()  # columns that came by ALTER: null in rows and files that do not have them

    @property
    def time_type(self) -> pa.DataType:
        return self.columns[self.time]


@dataclass(frozen=True)
class TableDef:
    """A table: its columns, whether updates reach back, and the columns of its active interval.

    With `changes` its source does not say what the table holds but what happens to it, by `keys`.
    """

    name: str
    columns: Mapping[str, pa.DataType]
    retroactive: bool = False
    valid: tuple[str, str] | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()  # the columns that tell rows apart, where changes are applied
    changes: ChangeColumns | None = None
    quarantine: bool = False  # changes that cannot be applied are set aside; else they stop the table
    added: tuple[str, ...] = ()  # as of a stream

    @property
    def change_stream(self) -> StreamDef:
        """The rows of its source as a stream of changes, in order of arrival; a row must have an operation."""
        assert self.changes is not None
        options = dict(self.options)
        if options.get("source", "").lower() == "kafka":
            options.setdefault("tombstones", "skip")  # what compaction wants behind a deletion says nothing new
        columns = self.changes.read(self.columns)
        return StreamDef(
            self.name, columns, self.changes.op[0], quarantine=self.quarantine, options=options, added=self.added
        )


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
    """A query of a template that is planned by itself: its name, and the values of the parameters as literals."""

    name: str
    literals: tuple[str, ...]


@dataclass(frozen=True)
class QueriesDef:
    """Queries from one template, whose answers are one: those of VALUES, or those that the rows of a `table` ask for,
    which come and go with it and are not listed here."""

    name: str
    template: str
    parameters: Mapping[str, pa.DataType]
    table: str | None
    instances: InstanceTable

    @staticmethod
    def of(template: TemplateDef, name: str, table: str | None = None) -> QueriesDef:
        """Queries from a template, of which there are none yet."""
        parameters = template.parameters
        return QueriesDef(name, template.name, parameters, table, InstanceTable.empty(parameters))


@dataclass(frozen=True)
class ViewDef:
    """A view: a SELECT with a name, which stands wherever the name does. It has no answer of its own."""

    name: str
    plan: QueryPlan

    @property
    def columns(self) -> dict[str, pa.DataType]:
        return {shown: self.plan.root.schema[column] for shown, column in self.plan.output}


@dataclass(frozen=True)
class SqlFunctionDef:
    """A function in SQL: an expression over its parameters, which stands in the place of every call.

    A parameter without a type (None) is the argument as it is written; else the argument is cast to the type.
    """

    name: str
    parameters: Mapping[str, str | None]
    body: str
    text: str  # the whole statement
    calls: tuple[str, ...] = ()  # other functions in SQL, those that these call included


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


Declared = StreamDef | TableDef | QueryPlan | ArchiveDef | TemplateDef | QueriesDef | SinkDef | ViewDef | SqlFunctionDef


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
    views: Mapping[str, ViewDef] = field(default_factory=Names)
    macros: Mapping[str, SqlFunctionDef] = field(default_factory=Names)  # functions in SQL

    def kinds(self) -> dict[str, Mapping[str, Declared]]:
        """What is declared, by kind."""
        return {
            "stream": self.streams, "table": self.tables, "view": self.views, "query": self.queries,
            "archive": self.archives, "template": self.templates, "queries": self.groups, "sink": self.sinks,
            "function": self.macros,
        }  # fmt: skip

    def readers(self, name: str) -> list[str]:
        """Who reads a stream, table, view or query: views, queries and archives, and templates that may."""
        return [reader for kind, reader in self.dependents("stream", name) if kind != "sink"]

    def sinks_of(self, query: str) -> list[str]:
        """The declared sinks of a query, or of queries from a template."""
        return [s.name for s in self.sinks.values() if s.query.lower() == query.lower()]

    def users(self, template: str) -> list[str]:
        """The queries from a template."""
        return [g.name for g in self.groups.values() if g.template.lower() == template.lower()]

    def dependents(self, kind: str, name: str) -> list[tuple[str, str]]:
        """What cannot be without a declaration, each with its kind."""
        return dependents(self, kind, name)

    def add(self, item: Declared) -> Catalog:
        """The catalog with one more declaration; a taken name is an error, but queries may get more instances."""
        key = item.name.lower()
        if isinstance(item, QueriesDef) and key in self.groups:
            return replace(self, groups=Names.of(self.groups).put(key, item))
        for kind, names in self.kinds().items():
            if key in names and (kind == "function") == isinstance(item, SqlFunctionDef):
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
            case ViewDef():
                return replace(self, views=Names.of(self.views).put(key, item))
            case SqlFunctionDef():
                return replace(self, macros=Names.of(self.macros).put(key, item))

    def with_view(self, view: ViewDef) -> Catalog:
        """The catalog with a view, in the place of the one of its name; one that is read keeps its meaning."""
        key = view.name.lower()
        old = self.views.get(key)
        if old is None:
            return self.add(view)
        if old.plan.same_answer(view.plan):
            return self if old.plan.text == view.plan.text else replace(self, views=Names.of(self.views).put(key, view))
        return self.drop("view", view.name).add(view)

    def altered(self, kind: str, item: Declared) -> Catalog:
        """The catalog with another stream, table, query or sink in the place of the one of its name."""
        field_ = {"stream": "streams", "table": "tables", "query": "queries", "sink": "sinks"}[kind]
        names: Mapping[str, Declared] = getattr(self, field_)
        if names[item.name.lower()] == item:
            return self
        changed: dict[str, Any] = {field_: Names.of(names).put(item.name.lower(), item)}
        return replace(self, **changed)

    def with_function(self, function: SqlFunctionDef) -> Catalog:
        """The catalog with a function in SQL, in the place of the one of its name; one that is called stays."""
        key = function.name.lower()
        old = self.macros.get(key)
        if old is None:
            return self.add(function)
        if (old.parameters, old.body) == (function.parameters, function.body):
            same = old.text == function.text
            return self if same else replace(self, macros=Names.of(self.macros).put(key, function))
        return self.drop("function", function.name).add(function)

    def replaced(self, plan: QueryPlan) -> Catalog:
        """The catalog with another query of the same name. One with the same plan stays as it is but for its text."""
        key = plan.name.lower()
        old = self.queries[key]
        if old.same_answer(plan):
            same = (old.text, old.keep) == (plan.text, plan.keep)
            return self if same else replace(self, queries=Names.of(self.queries).put(key, plan))
        return self.drop("query", plan.name).add(plan)

    def drop(self, kind: str, name: str, if_exists: bool = False) -> Catalog:
        """The catalog without one declaration; a stream or table that a query reads stays."""
        key = name.lower()
        names = self.kinds()[kind]
        if key not in names:
            if if_exists:
                return self
            raise BindingError(f'{kind} "{name}" does not exist', hint=_known(kind, names))
        if (refusal := self.refusal(kind, names[key].name)) is not None:
            raise refusal
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
            case "view":
                return replace(self, views=_without(self.views, key))
            case "function":
                return replace(self, macros=_without(self.macros, key))
            case _:
                return replace(self, queries=_without(self.queries, key))

    def refusal(self, kind: str, name: str) -> BindingError | None:
        """Why a declaration cannot go, if it cannot: who needs it, and what to drop first."""
        found = self.dependents(kind, name)
        if not found:
            return None
        first, needs = found[0]
        hint = f"DROP {first.upper()} {needs} first, or write DROP {kind.upper()} {name} CASCADE"
        readers = [n for k, n in found if k != "sink"]
        if not readers:
            return BindingError(f'{kind} "{name}" has the sink {needs}', hint=hint)
        verb = "called" if kind == "function" else "read"
        return BindingError(f'{kind} "{name}" is {verb} by {", ".join(readers)}', hint=hint)


def _without(names: Mapping[str, T], key: str) -> Names[T]:
    return Names.of(names).without(key)


def _known(kind: str, names: Mapping[str, object]) -> str:
    plural = {"query": "queries", "queries": "queries from templates"}.get(kind, f"{kind}s")
    return f"known {plural}: {', '.join(names)}" if names else f"there are no {plural}"
