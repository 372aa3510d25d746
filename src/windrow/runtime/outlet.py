"""Where a query's answers go: the most recent ones in memory (bounded), subscribers, and sinks.

What is remembered is a log by tick: whoever has everything up to a tick can ask what came after it, and is told when
some of that is gone.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile

import pyarrow as pa

from windrow.sinks import Sink
from windrow.sinks.answer_log import AnswerLog

LOG = logging.getLogger("windrow.engine")

RECENT_ROWS = 100_000
"""Rows of a query's answer kept in memory; older ones are in the sinks, or gone."""


class Recent:
    """The newest answers of one query, and those who want each as it comes."""

    def __init__(self, empty: pa.Table, begun: int = 0, limit: int = RECENT_ROWS) -> None:
        """`begun`: the newest tick when the query was registered, or its home opened."""
        self._empty, self._limit = empty, limit
        self._ticks: deque[tuple[int, pa.Table]] = deque()
        self._held, self._gone = 0, begun
        self._lock = threading.Lock()
        self.rows = 0
        self.subscribers: list[Callable[[pa.Table], None]] = []

    @property
    def schema(self) -> pa.Schema:
        """The columns of the answer."""
        return self._empty.schema

    def add(self, tick: int, table: pa.Table) -> None:
        """Remember the answer of a tick and tell the subscribers."""
        with self._lock:
            self._ticks.append((tick, table))
            self._held += table.num_rows
            self.rows += table.num_rows
            while self._held > self._limit and len(self._ticks) > 1:
                self._gone, oldest = self._ticks.popleft()
                self._held -= oldest.num_rows
        for callback in list(self.subscribers):
            try:
                callback(table)
            except Exception:  # the answer is committed: a subscriber's fault must not stop the queries
                LOG.exception("a subscriber failed")

    def after(self, tick: int) -> list[tuple[int, pa.Table]] | None:
        """What came after a tick, by tick; None if some of it is gone."""
        with self._lock:
            if tick < self._gone:
                return None
            newer = takewhile(lambda entry: entry[0] > tick, reversed(self._ticks))
            return list(newer)[::-1]

    def table(self) -> pa.Table:
        """What is remembered, in order."""
        return self.up_to()[1]

    def up_to(self) -> tuple[int, pa.Table]:
        """What is remembered, in order, and the tick up to which that is all there was."""
        with self._lock:
            tables = [table for _, table in self._ticks]
            tick = self._ticks[-1][0] if self._ticks else self._gone
        return tick, pa.concat_tables([self._empty, *tables]).combine_chunks()


@dataclass
class Outlet:
    """Where one query's answers go; `log`: one of the sinks, where they last."""

    recent: Recent
    sinks: list[Sink] = field(default_factory=list)
    log: AnswerLog | None = None

    def close(self) -> None:
        """Let go of the sinks."""
        for sink in self.sinks:
            sink.close()

    def drop(self) -> None:
        """Let go of the sinks, and delete what was kept of the answers."""
        self.close()
        if self.log is not None:
            self.log.drop()
