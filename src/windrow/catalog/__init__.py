"""What has been declared: streams, tables, views, queries, archives, templates with their queries, and functions.

Invariant: every name is unique among all of these but functions (case-insensitively), and nothing is
half-registered: a catalog is a value that statements replace, not a place they mutate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa

from windrow.archive.layout import ArchiveLayout
from windrow.catalog.change_columns import ChangeColumns
from windrow.catalog.dependents import dependents
from windrow.catalog.instances import InstanceTable
from windrow.catalog.names import Names
from windrow.errors import BindingError
from windrow.plan.nodes import QueryPlan


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

    @property
    def what(self) -> str:
        """What errors about its rows call it."""
        return f'stream "{self.name}"'


class TableRows(StreamDef):
    """What a table is read from, as a stream is: its rows, which have no time (""), or its changes."""

    @property
    def what(self) -> str:
        return f'table "{self.name}"'


@dataclass(frozen=True)
class TableDef:
    """A table: its columns, whether updates reach back, and the columns of its active interval.

    With `changes` its source does not say what the table holds but what happens to it, by `keys`. `recall`: it changes
    while queries run, so joins remember whom rows have met of it; not in a replay, nor in homes from before they did.
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
    recall: bool = False

    @property
    def rows(self) -> TableRows:
        """The rows of its source, which says what the table holds."""
        return TableRows(self.name, self.columns, "", options=self.options, added=self.added)

    @property
    def change_stream(self) -> TableRows:
        """The rows of its source as a stream of changes, in order of arrival; a row must have an operation."""
        assert self.changes is not None
        options = dict(self.options)
        if options.get("source", "").lower() == "kafka":
            options.setdefault("tombstones", "skip")  # what compaction wants behind a deletion says nothing new
        columns = self.changes.read(self.columns)
        return TableRows(
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

KINDS: Mapping[str, tuple[str, type]] = {
    "stream": ("streams", StreamDef), "table": ("tables", TableDef), "view": ("views", ViewDef),
    "query": ("queries", QueryPlan), "archive": ("archives", ArchiveDef), "template": ("templates", TemplateDef),
    "queries": ("groups", QueriesDef), "sink": ("sinks", SinkDef), "function": ("macros", SqlFunctionDef),
}  # fmt: skip
"""Kinds of declarations: the field of a catalog that has them, and their type."""


_AGAIN = {
    **{
        kind: f"write CREATE {kind.upper()} IF NOT EXISTS {{name}} in a script that runs again, "
        for kind in ("stream", "table")
    },
    **{kind: f"write CREATE OR REPLACE {kind.upper()} {{name}}, " for kind in ("query", "view", "function")},
}
"""What may be written of a name that is taken, beside the one that is always there."""


def kind_of(item: Declared) -> str:
    """The kind of a declaration.

    >>> kind_of(SinkDef("out", "hot", "parquet"))
    'sink'
    """
    return next(kind for kind, (_, type_) in KINDS.items() if isinstance(item, type_))


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
        return {kind: getattr(self, names) for kind, (names, _) in KINDS.items()}

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
        self.check_name(item)
        return self._with(item)

    def check_name(self, item: Declared) -> None:
        """Refuse a declaration whose name is taken."""
        key = item.name.lower()
        if isinstance(item, QueriesDef) and key in self.groups:
            return
        for kind, (names, _) in KINDS.items():
            if key in getattr(self, names) and (kind == "function") == isinstance(item, SqlFunctionDef):
                again = _AGAIN.get(kind, "") if kind == kind_of(item) else ""
                raise BindingError(
                    f'{kind} "{item.name}" already exists',
                    hint=f"{again.format(name=item.name)}DROP {kind.upper()} {item.name} first, or choose another name",
                )

    def _with(self, item: Declared) -> Catalog:
        """The catalog with a declaration, in the place of the one of its name."""
        names = KINDS[kind_of(item)][0]
        changed: dict[str, Any] = {names: Names.of(getattr(self, names)).put(item.name.lower(), item)}
        return replace(self, **changed)

    def altered(self, item: Declared) -> Catalog:
        """The catalog with another stream, table, query or sink in the place of the one of its name."""
        same = self.kinds()[kind_of(item)][item.name.lower()] == item
        return self if same else self._with(item)

    def replaced(self, item: QueryPlan | ViewDef | SqlFunctionDef) -> Catalog:
        """The catalog with a query, view or function in SQL, in the place of the one of its name, if there is one.

        One that means the same stays as it is but for its text; another is refused while somebody reads or calls it.
        """
        kind = kind_of(item)
        old: Any = self.kinds()[kind].get(item.name.lower())
        if old is None:
            return self.add(item)
        if not _same_meaning(old, item):
            return self.drop(kind, item.name).add(item)
        return self if _said(old) == _said(item) else self._with(item)

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
        changed: dict[str, Any] = {KINDS[kind][0]: Names.of(names).without(key)}
        return replace(self, **changed)

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


def _same_meaning(old: Any, new: QueryPlan | ViewDef | SqlFunctionDef) -> bool:
    if isinstance(new, SqlFunctionDef):
        return (old.parameters, old.body) == (new.parameters, new.body)
    return bool(old.same_answer(new) if isinstance(new, QueryPlan) else old.plan.same_answer(new.plan))


def _said(item: QueryPlan | ViewDef | SqlFunctionDef) -> tuple[object, ...]:
    """What may differ in declarations that mean the same."""
    if isinstance(item, QueryPlan):
        return item.text, item.keep
    return (item.plan.text if isinstance(item, ViewDef) else item.text,)


def _known(kind: str, names: Mapping[str, object]) -> str:
    plural = {"query": "queries", "queries": "queries from templates"}.get(kind, f"{kind}s")
    return f"known {plural}: {', '.join(names)}" if names else f"there are no {plural}"
