"""What rewriting passes around: the sources of a FROM clause, and a block of SQL with a hole for the instant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from windrow.testing.lifetimes import OracleWindow
from windrow.testing.tokens import Tokens

BOUNDS = ("window_start", "window_end")
NOW = "\x00now\x00"
"""The hole in a block's SQL where the instant goes."""


def quote(name: str) -> str:
    """A name as SQL, whatever it contains."""
    return name if name.startswith('"') else '"' + name.replace('"', '""') + '"'


def distinct_names(names: Sequence[str]) -> list[str]:
    """Names with repeated ones numbered, as DuckDB does."""
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        found.append(f"{name}_{seen[name.lower()]}" if seen[name.lower()] else name)
        seen[name.lower()] += 1
    return found


@dataclass
class FromItem:
    """One item of a FROM clause: a stream or derived stream (it has a `table` of lifetimes), a table, or a relation."""

    alias: str
    columns: list[str]
    sql: str = ""  # a relation's or a table's SQL
    stream: bool = False
    window: OracleWindow = field(default_factory=OracleWindow)
    windowed: bool = False  # a window is written
    table: str = ""  # of lifetimes, when a stream
    time: str | None = None
    valid: tuple[str, str] | None = None
    renamed: str = ""  # (x, y) after the alias
    block: OracleBlock | None = None  # of a relation: what it depends on, and so the query around it
    bounds: str = ""  # SQL of window_start and window_end, for TUMBLE and HOP
    sliced: bool = False  # rows say which slice they lie in


@dataclass
class OracleBlock:
    """A query as SQL with the hole NOW, what can change its answer and when, and how it leaves as a stream."""

    sql: str
    instants: set[int] = field(default_factory=set)
    period: tuple[int, int] | None = None  # and offset
    op: str | None = None
    internal: bool = False
    selects: bool = False  # it only selects, projects and joins
    per_window: bool = False  # TUMBLE, HOP or SESSION: windows without rows give nothing
    size: int | None = 0  # the longest RANGE; None if there are other windows
    ends: set[int] | None = None  # of sessions: when the block is evaluated

    def absorb(self, other: OracleBlock) -> None:
        """Take over what a block inside this one depends on."""
        self.instants |= other.instants
        self.per_window |= other.per_window
        self.join_period(other.period)
        self.join_size(other.size)
        self.join_ends(other.ends)

    def join_size(self, size: int | None) -> None:
        """Take over the RANGE of a window, or that it has none."""
        self.size = None if size is None or self.size is None else max(size, self.size)

    def join_ends(self, ends: set[int] | None) -> None:
        """Be evaluated at the ends of sessions, too."""
        if ends is not None:
            self.ends = (self.ends or set()) | ends

    def join_period(self, period: tuple[int, int] | None) -> None:
        """Evaluate at multiples of `period`, if it is one."""
        if period is not None and self.period not in (None, period):
            raise ValueError("all SLIDEs of a block must be equal")
        self.period = period if period is not None else self.period


class OracleContext(Protocol):
    """What rewriting asks of the oracle."""

    def source(self, name: str) -> FromItem:
        """The declared stream or table of this name, without a window."""
        ...

    def subquery(self, tokens: Tokens, scope: frozenset[str], windowed: bool) -> FromItem:
        """A subquery of a FROM clause, with a window on it or not: a relation's SQL, or a derived stream."""
        ...

    def window_on(self, source: FromItem, block: OracleBlock) -> None:
        """Give a stream source its table of lifetimes and note its instants in the block."""
        ...

    def describe(self, sql: str) -> tuple[list[str], list[str]]:
        """Names and SQL types of the columns of a query."""
        ...

    def instant(self, back: int) -> str:
        """SQL for the time of the evaluation less a length, as a value of the streams' time type."""
        ...

    def mixed(self, sql: str, block: OracleBlock) -> str:
        """Answer SQL that yields rows with their lifetimes; return SQL for the rows alive now."""
        ...

    def wstream(self, block: OracleBlock, window: OracleWindow) -> tuple[str, list[str], OracleBlock]:
        """Window the output stream of a block: SQL for its contents now, its columns, and a block to absorb."""
        ...
