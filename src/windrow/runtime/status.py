"""Figures about a run: recent rates, phases of the last ticks, state, and a line per stream, table and query."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windrow.runtime import view
from windrow.runtime.budget import Budgets
from windrow.runtime.membership import SharedProgram
from windrow.runtime.outlet import Outlet
from windrow.runtime.tables import LiveTable
from windrow.runtime.tick import Tick, Ticker
from windrow.spark.streaming import Reader
from windrow.store.manifest import Manifest

RECENT_SECONDS = 30.0
RECENT_TICKS = 20


class Figures:
    """What recent ticks were like; ticks are added by one thread and read by others."""

    def __init__(self) -> None:
        self._ticks: deque[Tick] = deque(maxlen=1000)
        self._began = time.time()

    def add(self, tick: Tick) -> None:
        """Remember a tick's figures, not its rows."""
        self._ticks.append(replace(tick, answers={}, late={}, admitted=[]))

    @property
    def ticks(self) -> list[Tick]:
        """The ticks remembered, oldest first."""
        return list(self._ticks)

    def phases(self, last: int) -> dict[str, float]:
        """Mean milliseconds of each phase of the last ticks."""
        ticks = self.ticks[-last:]
        names = dict.fromkeys(p for t in ticks for p in t.seconds)
        return {p: round(1000 * sum(t.seconds.get(p, 0.0) for t in ticks) / len(ticks), 1) for p in names}

    def status(
        self,
        ticker: Ticker,
        readers: Mapping[str, Reader],
        tables: Mapping[str, LiveTable],
        outlets: Mapping[str, Outlet],
        budgets: Budgets,
    ) -> dict[str, Any]:
        """Everything but whether the engine runs."""
        manifest, ticks = ticker.manifest, self.ticks
        state = _state(manifest)
        return {
            "ticks": manifest.tick,
            "frontier": manifest.frontier,
            "partitions": ticker.partitions,
            "rows_per_second": self._rate(ticks, "rows."),
            "tick_ms": self.phases(RECENT_TICKS),
            "state": {"runs": sum(r for r, _ in state.values()), "bytes": sum(b for _, b in state.values())},
            "streams": {
                r.definition.name: self._stream(r, manifest, ticks, state.get(f"~{k}", (0, 0)))
                for k, r in readers.items()
            },
            "tables": {t.definition.name: _table(t) for t in tables.values()},
            "shedding": budgets.status(),
            "queries": {
                ticker.queries[k].plan.name: self._query(k, o, manifest, ticks, state.get(k, (0, 0)))
                | _shared(ticker, k, state)
                | {"quality": self.quality(ticker, budgets, k)}
                for k, o in dict(outlets).items()
                if k in ticker.queries
            },
        }

    def quality(self, ticker: Ticker, budgets: Budgets, key: str) -> dict[str, Any] | None:
        """What a query lost to the tick budget and to the memory of its joins; None when it can lose nothing."""
        query = ticker.queries[key]
        memory = None if isinstance(query, SharedProgram) else view.star_quality(ticker.store, query)
        parts = {"time": budgets.quality(key), "memory": None if memory is None else memory.as_dict()}
        found = {what: figures for what, figures in parts.items() if figures is not None}
        return found or None

    def _rate(self, ticks: list[Tick], counter: str) -> float:
        """Rows per second over the recent past."""
        now = time.time()
        since = max(now - RECENT_SECONDS, self._began)
        rows = sum(n for t in ticks if t.ended >= since for c, n in t.counters.items() if c.startswith(counter))
        return round(rows / max(now - since, 1e-3), 1)

    def _stream(self, reader: Reader, manifest: Manifest, ticks: list[Tick], kept: tuple[int, int]) -> dict[str, Any]:
        mark = manifest.marks.get(reader.key)
        lag = None if mark is None or manifest.frontier is None else max(0, mark - manifest.frontier)
        return {
            "rows": reader.rows,
            "rows_per_second": self._rate(ticks, f"rows.{reader.key}"),
            "late": reader.late,
            "batch": manifest.batches.get(reader.key),
            "greatest": mark,
            "lag": lag,
            "idle": reader.idle(),
            "kept_bytes": kept[1],
        }

    def _query(
        self, key: str, outlet: Outlet, manifest: Manifest, ticks: list[Tick], state: tuple[int, int]
    ) -> dict[str, Any]:
        return {
            "answers": outlet.recent.rows,
            "answers_per_second": self._rate(ticks, f"answers.{key}"),
            "clock": manifest.clocks.get(key),
            "runs": state[0],
            "state_bytes": state[1],
            "sinks": len(outlet.sinks),
        }


def _state(manifest: Manifest) -> dict[str, tuple[int, int]]:
    """Runs and bytes by query."""
    found: dict[str, tuple[int, int]] = {}
    for (_, _, query, _), refs in manifest.runs.items():
        runs, size = found.get(query, (0, 0))
        found[query] = (runs + len(refs), size + sum(r.bytes for r in refs))
    return found


def _shared(ticker: Ticker, key: str, state: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """With how many others a query shares; the state is the family's."""
    query = ticker.queries[key]
    if not isinstance(query, SharedProgram):
        return {}
    runs, size = state.get(query.family, (0, 0))
    return {
        "shared_with": len(ticker.sharing.served[query.plan.name].family) - 1,
        "runs": runs,
        "state_bytes": size,
        "family": query.family,
    }


def _table(table: LiveTable) -> dict[str, Any]:
    reading = table.reading
    return {
        "rows": reading.table.num_rows,
        "version_us": reading.version_us,
        "failing_since_us": reading.failing_since_us,
        "error": reading.error,
    }
