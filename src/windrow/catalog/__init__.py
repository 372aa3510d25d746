"""What has been declared: streams, tables, queries and user functions.

Invariant: every name is unique among streams, tables and queries (case-insensitively), and nothing is half-registered:
a catalog is a value that statements replace, not a place they mutate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

import pyarrow as pa

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
class FunctionDef:
    """A user's vectorised function: Arrow arrays in, an array-like of `returns` out."""

    name: str
    fn: Callable[..., object]
    returns: pa.DataType


@dataclass(frozen=True)
class Catalog:
    """All declarations; lower-case names are the keys."""

    streams: Mapping[str, StreamDef] = field(default_factory=lambda: MappingProxyType({}))
    tables: Mapping[str, TableDef] = field(default_factory=lambda: MappingProxyType({}))
    queries: Mapping[str, QueryPlan] = field(default_factory=lambda: MappingProxyType({}))
    functions: Mapping[str, FunctionDef] = field(default_factory=lambda: MappingProxyType({}))

    def add(self, item: StreamDef | TableDef | QueryPlan) -> Catalog:
        """The catalog with one more declaration; a taken name is an error."""
        key = item.name.lower()
        for kind, names in (("stream", self.streams), ("table", self.tables), ("query", self.queries)):
            if key in names:
                raise BindingError(
                    f'{kind} "{item.name}" already exists',
                    hint=f"DROP {kind.upper()} {item.name} first, or choose another name",
                )
        match item:
            case StreamDef():
                return replace(self, streams=MappingProxyType({**self.streams, key: item}))
            case TableDef():
                return replace(self, tables=MappingProxyType({**self.tables, key: item}))
            case QueryPlan():
                return replace(self, queries=MappingProxyType({**self.queries, key: item}))

    def drop(self, kind: str, name: str, if_exists: bool = False) -> Catalog:
        """The catalog without one declaration; a stream or table that a query reads stays."""
        key = name.lower()
        names = {"stream": self.streams, "table": self.tables, "query": self.queries}[kind]
        if key not in names:
            if if_exists:
                return self
            raise BindingError(f'{kind} "{name}" does not exist', hint=_known(kind, names))
        if kind != "query":
            readers = [q.name for q in self.queries.values() if key in {r.lower() for r in q.streams + q.tables}]
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
            case _:
                return replace(self, queries=_without(self.queries, key))


def _without(names: Mapping[str, T], key: str) -> Mapping[str, T]:
    return MappingProxyType({k: v for k, v in names.items() if k != key})


def _known(kind: str, names: Mapping[str, object]) -> str:
    plural = {"stream": "streams", "table": "tables", "query": "queries"}[kind]
    return f"known {plural}: {', '.join(names)}" if names else f"there are no {plural}"
