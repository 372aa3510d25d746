"""A query as every engine can be told it, and as windrow's own text.

Expressions are SQL as DuckDB reads it, over plain or qualified column names; each engine gets them translated
(`dialect`). Ranges and slides count microseconds, or ticks when the time column is an integer (`ticks=True`).

A `WindowJoin` gives each result once, when its newest row arrives. windrow says that with ISTREAM, which is a
difference of bags: if the SELECT list does not tell the rows apart, a result that appears when an equal one expires is
no change. Select what identifies the rows (an id, or their times) and the two are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

SECOND = 1_000_000


@dataclass(frozen=True)
class Lookup:
    """A static table joined to the stream; `on` maps columns of the stream to columns of the table.

    Without `on` every row of the stream meets every row of the table, which a `Selection` alone may ask for.
    """

    table: str
    on: Mapping[str, str]


@dataclass(frozen=True)
class Window:
    """A time window on a stream, known by `alias` (the stream's name when empty)."""

    stream: str
    range: int
    alias: str = ""

    @property
    def name(self) -> str:
        return self.alias or self.stream


@dataclass(frozen=True)
class SlidingAggregate:
    """Aggregates over `(t - range, t]` at every multiple t of the slide: `_ts`, the keys, the aggregates."""

    name: str
    stream: str
    range: int
    slide: int
    aggregates: Mapping[str, str]
    where: str = ""
    keys: Sequence[str] = ()
    tables: Sequence[Lookup] = ()
    time: str = "ts"
    ticks: bool = False

    @property
    def streams(self) -> dict[str, str]:
        """Alias to stream."""
        return {self.stream: self.stream}

    def cql(self) -> str:
        """The query in windrow's language.

        >>> print(SlidingAggregate("q", "s", 60 * SECOND, 10 * SECOND, {"n": "COUNT(*)"}, "size > 5", ["k"]).cql())
        SELECT k, COUNT(*) AS n FROM s [RANGE 60000000 MICROSECONDS SLIDE 10000000 MICROSECONDS] WHERE (size > 5)
        GROUP BY k
        """
        unit = _unit(self.ticks)
        items = [*self.keys, *(f"{sql} AS {name}" for name, sql in self.aggregates.items())]
        parts = [f"{self.stream} [RANGE {self.range}{unit} SLIDE {self.slide}{unit}]", *(t.table for t in self.tables)]
        tests = [f"{self.stream}.{a} = {t.table}.{b}" for t in self.tables for a, b in t.on.items()]
        group = f" GROUP BY {', '.join(self.keys)}" if self.keys else ""
        return f"SELECT {', '.join(items)} FROM {', '.join(parts)}{_where(tests, self.where)}{group}"


@dataclass(frozen=True)
class Selection:
    """Rows that pass a test, each when it arrives: `_ts` and the selected expressions."""

    name: str
    stream: str
    select: Mapping[str, str]
    where: str = ""
    tables: Sequence[Lookup] = ()
    time: str = "ts"
    ticks: bool = False

    @property
    def streams(self) -> dict[str, str]:
        """Alias to stream."""
        return {self.stream: self.stream}

    def cql(self) -> str:
        """The query in windrow's language.

        >>> print(Selection("q", "s", {"k": "k", "v": "2 * v"}, "v > 5").cql())
        SELECT ISTREAM(k AS k, 2 * v AS v) FROM s [NOW] WHERE (v > 5)
        """
        items = ", ".join(f"{sql} AS {name}" for name, sql in self.select.items())
        parts = ", ".join([f"{self.stream} [NOW]", *(t.table for t in self.tables)])
        tests = [f"{self.stream}.{a} = {t.table}.{b}" for t in self.tables for a, b in t.on.items()]
        return f"SELECT ISTREAM({items}) FROM {parts}{_where(tests, self.where)}"


@dataclass(frozen=True)
class WindowJoin:
    """Rows of two or more windows with equal `key`: `_ts` (of the newest row) and the selected expressions."""

    name: str
    windows: Sequence[Window]
    key: str
    select: Mapping[str, str]
    where: str = ""
    time: str = "ts"
    ticks: bool = False
    tables: Sequence[Lookup] = field(default=(), init=False)

    @property
    def streams(self) -> dict[str, str]:
        """Alias to stream."""
        return {w.name: w.stream for w in self.windows}

    def cql(self) -> str:
        """The query in windrow's language.

        >>> print(WindowJoin("q", [Window("l", 5), Window("r", 7)], "k", {"a": "l.id", "b": "r.id"}, ticks=True).cql())
        SELECT ISTREAM(l.id AS a, r.id AS b) FROM l [RANGE 5] AS l, r [RANGE 7] AS r WHERE l.k = r.k
        """
        unit = _unit(self.ticks)
        items = ", ".join(f"{sql} AS {name}" for name, sql in self.select.items())
        parts = ", ".join(f"{w.stream} [RANGE {w.range}{unit}] AS {w.name}" for w in self.windows)
        first, *others = self.windows
        tests = [f"{first.name}.{self.key} = {other.name}.{self.key}" for other in others]
        return f"SELECT ISTREAM({items}) FROM {parts}{_where(tests, self.where)}"


PeerQuery = SlidingAggregate | Selection | WindowJoin


def _unit(ticks: bool) -> str:
    return "" if ticks else " MICROSECONDS"


def _where(tests: Sequence[str], extra: str) -> str:
    every = [*tests, *([f"({extra})"] if extra else [])]
    return f" WHERE {' AND '.join(every)}" if every else ""
