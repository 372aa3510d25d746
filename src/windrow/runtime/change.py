"""A change of what is declared: a value that is put in force between two ticks, all of it or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from windrow.catalog import (
    KINDS,
    ArchiveDef,
    Catalog,
    Declared,
    QueriesDef,
    SinkDef,
    StreamDef,
    TableDef,
    TemplateDef,
    kind_of,
)
from windrow.catalog.instances import InstanceTable
from windrow.operators.aggregates.vectors import Int64s
from windrow.plan.nodes import QueryPlan
from windrow.runtime.column_places import LeftColumns
from windrow.runtime.plan_members import LeftInstances
from windrow.runtime.tables import TableSource
from windrow.sharing.condition_columns import ConditionColumns
from windrow.sharing.plans.form_columns import FormColumns
from windrow.sharing.recognise import Recognised
from windrow.sources.protocol import Source

Functions = Mapping[str, Callable[..., object]]


class Frames(Protocol):
    """What a runtime knows of the DataFrames that a program hands in."""

    def knows(self, data: object) -> bool:
        """Whether this is a DataFrame."""

    def columns(self, frame: Any) -> dict[str, pa.DataType]:
        """Its columns as Arrow types."""

    def source(self, frame: Any, stream: StreamDef, checkpoint: str) -> Source:
        """A streaming DataFrame as the source of a stream."""

    def table(self, frame: Any) -> TableSource:
        """A DataFrame as the content of a table."""


RUNNING = {kind: names for kind, (names, _) in KINDS.items() if kind not in ("view", "function")}
"""Kinds of what runs somewhere, and the field of a change that has those that come."""


@dataclass(frozen=True, eq=False)
class InstanceColumns:
    """Instances that differ in conditions only: their places among some rows, what all are, and the conditions."""

    places: Int64s
    query: Recognised | FormColumns
    conditions: ConditionColumns | None = None  # of periodic ones

    @property
    def grouped(self) -> bool:
        """Whether each is a member by itself, since its groups are kept for all queries together."""
        return isinstance(self.query, Recognised) and self.query.member.kind.shards is not None


@dataclass(frozen=True)
class PlannedInstances:
    """The plans of some rows of instances: in columns, or by name, with the row of each."""

    columns: tuple[InstanceColumns, ...]
    plans: Mapping[str, QueryPlan]
    places: Mapping[str, int]


class InstancePlanner(Protocol):
    """Who plans the instances of templates."""

    def planned(
        self, queries: QueriesDef, template: TemplateDef, rows: pa.Table, catalog: Catalog, few: int | None
    ) -> PlannedInstances:
        """The plans of instances; `few`: how many are too few for columns, None: all."""

    def plan(
        self, queries: QueriesDef, template: TemplateDef, rows: pa.Table, place: int, catalog: Catalog
    ) -> QueryPlan:
        """The plan of one instance."""

    def like(self, template: TemplateDef, catalog: Catalog) -> QueryPlan:
        """The plan of some instance."""

    def wanted(self, queries: QueriesDef, template: TemplateDef, table: Callable[[str], pa.Table]) -> InstanceTable:
        """The instances that are named, or that the rows of a table ask for."""


@dataclass
class Change:
    """What one script changes: declarations that come and names that go; `data`: what the program hands in with them.

    A name may be in both: it is dropped and declared anew.
    """

    catalog: Catalog
    functions: Functions
    streams: dict[str, StreamDef] = field(default_factory=dict)
    tables: dict[str, TableDef] = field(default_factory=dict)
    queries: dict[str, QueryPlan] = field(default_factory=dict)
    archives: dict[str, ArchiveDef] = field(default_factory=dict)
    templates: dict[str, TemplateDef] = field(default_factory=dict)
    groups: dict[str, QueriesDef] = field(default_factory=dict)
    sinks: dict[str, SinkDef] = field(default_factory=dict)
    dropped: dict[str, set[str]] = field(default_factory=lambda: {kind: set() for kind in RUNNING})
    altered: dict[tuple[str, str], Declared] = field(default_factory=dict)  # by kind and name; they go on
    data: dict[str, Any] = field(default_factory=dict)

    def add(self, item: Declared) -> None:
        """Declare something."""
        getattr(self, RUNNING[kind_of(item)])[item.name.lower()] = item

    def drop(self, kind: str, name: str) -> None:
        """Drop something; what this change has declared is only forgotten, and views and functions run nowhere."""
        if kind not in RUNNING:
            return
        self.altered.pop((kind, name.lower()), None)
        if getattr(self, RUNNING[kind]).pop(name.lower(), None) is None:
            self.dropped[kind].add(name.lower())

    def alter(self, item: Declared) -> None:
        """Let something be another; what this change has declared is declared so at once, and a table is read again."""
        kind, key = kind_of(item), item.name.lower()
        declared = getattr(self, RUNNING[kind])
        if key in declared or kind == "table":
            declared[key] = item
        else:
            self.altered[kind, key] = item

    @property
    def only_drops(self) -> bool:
        """Whether nothing comes."""
        return not self.altered and not any(getattr(self, plural) for plural in RUNNING.values())

    @property
    def only_queries_come(self) -> bool:
        """Whether it need not wait for the end of a tick."""
        budgets = any(q.budget is not None for q in self.queries.values())
        others = self.altered or self.streams or self.tables or self.archives or self.groups or self.sinks
        return not (others or any(self.dropped.values()) or budgets)


@dataclass(frozen=True)
class ComingInstances:
    """Instances that come, with their plans; `left`: the places that they had when the home was left."""

    rows: pa.Table
    planned: PlannedInstances
    left: LeftColumns | LeftInstances | None = None


@dataclass(frozen=True)
class InstanceChange:
    """A change of the instances of a group: those that go, and those that come."""

    queries: QueriesDef
    template: TemplateDef
    like: QueryPlan
    gone: pa.Table
    come: tuple[ComingInstances, ...]
