"""What statements ask for, checked against a catalog."""

from __future__ import annotations

from dataclasses import dataclass

from windrow.catalog import (
    ArchiveDef,
    Declared,
    QueriesDef,
    SinkDef,
    SqlFunctionDef,
    StreamDef,
    TableDef,
    TemplateDef,
    ViewDef,
)
from windrow.plan.nodes import QueryPlan


@dataclass(frozen=True)
class CreateStream:
    """Declare a stream."""

    definition: StreamDef


@dataclass(frozen=True)
class CreateTable:
    """Declare a table."""

    definition: TableDef


@dataclass(frozen=True)
class CreateQuery:
    """Register a query."""

    plan: QueryPlan


@dataclass(frozen=True)
class CreateArchive:
    """Keep the rows of a query on disk, by key."""

    definition: ArchiveDef


@dataclass(frozen=True)
class CreateTemplate:
    """Declare a template."""

    definition: TemplateDef


@dataclass(frozen=True)
class CreateQueries:
    """Register queries from a template, or more of them."""

    definition: QueriesDef


@dataclass(frozen=True)
class CreateSink:
    """Declare where the answers of a query go."""

    definition: SinkDef


@dataclass(frozen=True)
class ReplaceQuery:
    """Register a query in the place of the one of its name; one with the same plan goes on."""

    plan: QueryPlan


@dataclass(frozen=True)
class CreateView:
    """Declare a view; `replaces`: in the place of the one of its name."""

    definition: ViewDef
    replaces: bool = False


@dataclass(frozen=True)
class CreateFunction:
    """Declare a function in SQL; `replaces`: in the place of the one of its name."""

    definition: SqlFunctionDef
    replaces: bool = False


@dataclass(frozen=True)
class Alter:
    """Let a declaration be another from now on, while what it has goes on."""

    kind: str
    definition: Declared


@dataclass(frozen=True)
class Drop:
    """Remove a declaration of some kind. `name` is as the catalog has it; `first`: what must go before it."""

    kind: str
    name: str
    if_exists: bool
    first: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Explain:
    """Show a plan; `format` is text, json, dot or svg. `replaces`: it would take the place of the query of its name."""

    plan: QueryPlan
    format: str
    replaces: bool = False


@dataclass(frozen=True)
class Unchanged:
    """IF NOT EXISTS, and it does."""

    kind: str
    name: str


@dataclass(frozen=True)
class Show:
    """List what is declared of a kind, by names like a pattern."""

    kind: str
    like: str | None = None


@dataclass(frozen=True)
class Describe:
    """Show what is known of one declaration. `name` is as the catalog has it."""

    kind: str
    name: str


Bound = (
    Unchanged
    | CreateStream
    | CreateTable
    | CreateQuery
    | ReplaceQuery
    | CreateView
    | Alter
    | CreateFunction
    | CreateArchive
    | CreateTemplate
    | CreateQueries
    | CreateSink
    | Drop
    | Explain
    | Show
    | Describe
)
