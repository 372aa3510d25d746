"""Answers kept in this process, and answers handed to a Python function."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa

from windrow.errors import RuntimeFailure


class MemorySink:
    """Keeps answers by query and tick; with `rows`, the oldest ticks go when a query has more rows than that."""

    def __init__(self, rows: int | None = None) -> None:
        self.rows = rows
        self._ticks: dict[str, dict[int, pa.Table]] = {}
        self._lock = threading.Lock()

    def write(self, query: str, tick: int, table: pa.Table) -> None:
        """Keep an answer; the first of a query is kept even when empty, for its columns."""
        with self._lock:
            kept = self._ticks.setdefault(query, {})
            if table.num_rows or not kept:
                kept[tick] = table
            if self.rows is not None:
                held = sum(t.num_rows for t in kept.values())
                while held > self.rows and len(kept) > 1:
                    held -= kept.pop(next(iter(kept))).num_rows

    def results(self, query: str) -> pa.Table | None:
        """All kept answers of a query in order of ticks; None before its first."""
        with self._lock:
            kept = dict(self._ticks.get(query, {}))
        return pa.concat_tables([kept[t] for t in sorted(kept)]) if kept else None

    def drop(self, query: str) -> None:
        """Forget a query."""
        with self._lock:
            self._ticks.pop(query, None)

    def close(self) -> None:
        """Nothing to let go of."""


class CallbackSink:
    """Calls `fn(query, tick, table)` for every answer that has rows.

    A callback cannot be undone, so within a process each tick is handed over once, and after a crash the last ticks may
    come again, with the same ids: `tick` is there for the receiver to tell.
    """

    def __init__(self, fn: Callable[[str, int, pa.Table], object]) -> None:
        self._fn = fn
        self._last: dict[str, int] = {}

    def write(self, query: str, tick: int, table: pa.Table) -> None:
        """Hand an answer over, once."""
        if tick <= self._last.get(query, -1):
            return
        if table.num_rows:
            try:
                self._fn(query, tick, table)
            except Exception as error:
                name = getattr(self._fn, "__name__", "callback")
                raise RuntimeFailure(
                    f'callback "{name}" of query "{query}" raised {type(error).__name__}: {error}',
                    detail=f"at tick {tick}, with {table.num_rows} rows",
                ) from error
        self._last[query] = tick

    def close(self) -> None:
        """Nothing to let go of."""
