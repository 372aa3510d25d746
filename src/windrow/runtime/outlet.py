"""What an engine needs of a runtime, and what both runtimes share: recent answers and views.

A runtime moves queries from frontier to frontier; the engine in front of it speaks CQL. Both runtimes keep, for every
query, the most recent answers in memory (bounded), the sinks it writes to, and counters.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from windrow.catalog import Catalog, StreamDef, TableDef
from windrow.plan.nodes import QueryPlan
from windrow.sinks import Sink

LOG = logging.getLogger("windrow.engine")

RECENT_ROWS = 100_000
"""Rows of a query's answer kept in memory; older ones are in the sinks, or gone."""


@dataclass(frozen=True)
class View:
    """One consistent moment: the frontier, each stream's kept rows, and each relation's rows."""

    frontier: int
    history: Callable[[str], pa.Table]
    snapshot: Callable[[str], pa.Table]
    reach: Callable[[str], int]  # how far back a stream's kept rows go, in ticks of its clock


class Runtime(Protocol):
    """Runs queries. Declarations are made within `changing`; every other method may be called at any time."""

    outlets: dict[str, Outlet]

    def changing(self, adding: bool = False) -> AbstractContextManager[None]:
        """Make changes between two ticks: all of them or none."""

    def keep(self, catalog: Catalog, functions: Mapping[str, Callable[..., object]]) -> None:
        """The catalog and the user functions that the changes lead to."""

    def add_stream(self, stream: StreamDef, source: Any = None) -> None:
        """Read a stream, from `source` or as its declaration says."""

    def attach(self, name: str, source: Any) -> bool:
        """Give a declared stream that has no source one; False when it has one."""

    def describe(self, name: str, source: Any) -> StreamDef:
        """A definition of a stream from its data."""

    def drop_stream(self, name: str) -> None:
        """Stop reading a stream."""

    def add_table(self, table: TableDef, source: Any = None) -> None:
        """Know a table, or what it holds from now on."""

    def columns(self, source: Any) -> dict[str, pa.DataType]:
        """The columns of a table's data."""

    def drop_table(self, name: str) -> None:
        """Forget a table."""

    def refresh(self, name: str) -> None:
        """Read a table again now."""

    def joins(self, query: str) -> list[dict[str, Any]]:
        """What the joins of a running query do, and why: orders, costs, alternatives and statistics."""

    def tables(self) -> Mapping[str, pa.Table]:
        """What each table holds now."""

    def add_query(self, plan: QueryPlan) -> None:
        """Run a query from the next tick on."""

    def drop_query(self, name: str) -> None:
        """Stop a query."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End; everything so far is kept."""

    def view(self) -> AbstractContextManager[View]:
        """The present, for one-time queries."""

    def late(self, stream: str) -> pa.Table:
        """Rows of a stream that came too late."""

    def status(self) -> dict[str, Any]:
        """Figures about the run, as plain JSON."""

    def quality(self, query: str) -> dict[str, Any] | None:
        """What was shed before a query and in its joins; None when it never sheds."""


class Recent:
    """The newest answers of one query, and those who want each as it comes."""

    def __init__(self, empty: pa.Table, limit: int = RECENT_ROWS) -> None:
        self._empty, self._limit = empty, limit
        self._tables: deque[pa.Table] = deque()
        self._held = 0
        self._lock = threading.Lock()
        self.rows = 0
        self.subscribers: list[Callable[[pa.Table], None]] = []

    def add(self, table: pa.Table) -> None:
        """Remember an answer and tell the subscribers."""
        with self._lock:
            self._tables.append(table)
            self._held += table.num_rows
            self.rows += table.num_rows
            while self._held > self._limit and len(self._tables) > 1:
                self._held -= self._tables.popleft().num_rows
        for callback in list(self.subscribers):
            try:
                callback(table)
            except Exception:  # the answer is committed: a subscriber's fault must not stop the queries
                LOG.exception("a subscriber failed")

    def table(self) -> pa.Table:
        """What is remembered, in order."""
        with self._lock:
            return pa.concat_tables([self._empty, *self._tables]).combine_chunks()


@dataclass
class Outlet:
    """Where one query's answers go."""

    recent: Recent
    sinks: list[Sink] = field(default_factory=list)

    def close(self) -> None:
        """Let go of the sinks."""
        for sink in self.sinks:
            sink.close()
