"""Where a query's answers go: the most recent ones in memory (bounded), subscribers, and sinks."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from windrow.sinks import Sink

LOG = logging.getLogger("windrow.engine")

RECENT_ROWS = 100_000
"""Rows of a query's answer kept in memory; older ones are in the sinks, or gone."""


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
