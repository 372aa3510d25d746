"""Leaves and windows: where rows come from, and from when to when they are there.

A scan's rows have no end; a window gives every row a lifetime, and what follows knows lifetimes only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.operators.elements import INF
from windrow.plan.nodes.node import Leaf, Unary

if TYPE_CHECKING:
    pass


class WindowKind(Enum):
    """How a window chooses the rows it holds."""

    RANGE = "range"  # rows with t - size < ts <= t
    ROWS = "rows"  # the newest `size` rows (of each partition)
    UNBOUNDED = "unbounded"  # all rows so far
    NOW = "now"  # rows of this instant
    SESSION = "session"  # rows of one session, when it ends
    CUMULATE = "cumulate"  # rows since the last multiple of `size`


@dataclass(frozen=True)
class WindowSpec:
    """A window: `size` and `slide` in ticks of the clock (RANGE) or in rows (ROWS); `shift`: where CUMULATE begins."""

    kind: WindowKind
    size: int | None = None
    slide: int | None = None
    partition: tuple[str, ...] = ()  # internal column names
    internal: bool = False
    text: str = ""  # as the user wrote it, for EXPLAIN
    shift: int = 0

    @property
    def longest(self) -> int | None:
        """How long rows live at most; None if that is not known when they come, or without end."""
        if self.kind is WindowKind.NOW:
            return 1
        timed = self.kind in (WindowKind.RANGE, WindowKind.CUMULATE)
        return self.size if timed and self.size != INF else None


@dataclass(frozen=True)
class Scan(Leaf):
    """Rows of a stream as they arrive: append-only. Columns are named `alias.column`."""

    stream: str
    alias: str
    columns: tuple[tuple[str, str, pa.DataType], ...]  # (internal name, stream column, type)
    time: str  # the stream's time column (stream column name)

    @cached_property
    def _schema(self) -> dict[str, pa.DataType]:
        return {internal: type_ for internal, _, type_ in self.columns}

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return self._schema


@dataclass(frozen=True)
class TableScan(Leaf):
    """Rows of a table. `valid` names the internal columns of its active interval `[from, to)`, if declared.

    The binder turns `valid` into predicates on the stream rows the table is linked to, so the operators
    see a plain input whose rows are always alive. A retroactive table's updates are signed elements; of another one,
    joins remember whom their rows have met, if they are to `recall` it.
    """

    table: str
    alias: str
    columns: tuple[tuple[str, str, pa.DataType], ...]
    retroactive: bool = False
    valid: tuple[str, str] | None = None
    recall: bool = False

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return {internal: type_ for internal, _, type_ in self.columns}


@dataclass(frozen=True)
class Window(Unary):
    """A window over an append-only input. `derived`: the input is a query's output stream, whose rows of
    one instant have no arrival order and are ordered by their values instead."""

    spec: WindowSpec = field(default_factory=lambda: WindowSpec(WindowKind.UNBOUNDED))
    derived: bool = False
    number: str | None = None  # a column in which a ROWS window tells the number of every row
    together: tuple[int, ...] | None = (
        None  # places of partition columns: rows alike in these are numbered as they come
    )

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return self.input.schema if self.number is None else {**self.input.schema, self.number: pa.int64()}


@dataclass(frozen=True)
class Quantise(Unary):
    """Move both ends of every lifetime up to the next `k * period + offset`: what a periodic query sees.

    `before`: what is seen at an instant is what was there just before it, for TUMBLE and HOP hold `[end - size, end)`.
    """

    period: int = 1
    offset: int = 0
    before: bool = False


@dataclass(frozen=True)
class WindowBounds(Unary):
    """Each row once at every evaluation at which it is there, with instants of the window: `(name, back)` is the
    evaluation's time minus `back`."""

    period: int = 1
    offset: int = 0
    bounds: tuple[tuple[str, int], ...] = ()
    type: pa.DataType = field(default_factory=pa.int64)

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return {**self.input.schema, **{name: self.type for name, _ in self.bounds}}


@dataclass(frozen=True)
class Session(Unary):
    """Rows of a stream by session: those of one of `keys` that follow each other by less than `gap`.

    A row lives for one instant, the end of its session, whose bounds are the columns `start` and `end`.
    """

    keys: tuple[str, ...] = ()
    gap: int = 1
    start: str = ""
    end: str = ""
    type: pa.DataType = field(default_factory=pa.int64)
    text: str = ""  # as the user wrote it, for EXPLAIN

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return {**self.input.schema, self.start: self.type, self.end: self.type}
