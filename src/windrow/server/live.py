"""The engine as the server sees it: what many ask for is looked up once.

Status is at most `FRESH` seconds old, whoever asks how often, and has a line for those queries alone that somebody
looks at. Everything here is called from worker threads and never from the event loop.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Collection
from typing import Any

import pyarrow as pa

from windrow.catalog import ArchiveDef, StreamDef, TableDef, ViewDef
from windrow.engine import Engine
from windrow.engine.listing import shown_options
from windrow.plan.nodes import QueryPlan
from windrow.runtime.archives import hidden_name
from windrow.scalar_engine import quote

FRESH = 0.25
"""Seconds for which a look at the engine serves everybody."""


class Live:
    """An engine, and what was last seen of it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, ...] | None, tuple[float, dict[str, Any]]] = {}

    def status(self, queries: Collection[str] | None = ()) -> dict[str, Any]:
        """`engine.status()`, a moment ago at most; with a line for each of the queries of these keys, or for all."""
        key = None if queries is None else tuple(queries)
        with self._lock:  # one looks, the others wait for what it finds
            then, status = self._seen.get(key, (0.0, {}))
            if not status or time.monotonic() - then > FRESH:
                status = self.engine.status(key) | {"now_us": time.time_ns() // 1000, "memory_bytes": memory_bytes()}
                now = time.monotonic()
                self._seen = {k: (t, s) for k, (t, s) in self._seen.items() if now - t <= FRESH} | {key: (now, status)}
            return status

    def forget(self) -> None:
        """Something has changed: whoever asks next looks anew."""
        with self._lock:
            self._seen = {}

    def overview(self) -> dict[str, Any]:
        """The status without a line per query."""
        status = self.status()
        return {k: v for k, v in status.items() if k != "queries"} | {
            "counts": {
                "queries": len(self.engine.catalog.queries),
                "streams": len(self.engine.catalog.streams),
                "tables": len(self.engine.catalog.tables),
                "archives": len(self.engine.catalog.archives),
            },
            "answers": self.engine.runtime.figures.answers(self.engine.runtime),
            "failed": status.get("failed", {}),
        }

    def views(self) -> list[dict[str, Any]]:
        """A line per view."""
        found = self.engine.catalog.views.values()
        return [{"name": v.name, "text": v.plan.text, "columns": _columns(v)} for v in found]

    def query(self, name: str) -> dict[str, Any]:
        """All about one query."""
        query = self.engine[name]
        plan = query.plan
        explained = json.loads(query.explain("json"))
        status = self.status([query.key])
        return {
            "name": plan.name,
            "text": plan.text,
            "relation": plan.has_op,
            "pattern": explained["pattern"],
            "columns": explained["output"],
            "streams": list(plan.streams),
            "tables": list(plan.tables),
            "explain": query.explain("text"),
            "plan": explained,
            "sharing": explained.get("sharing"),
            "quality": query.quality(),
            "failed": status.get("failed", {}).get(plan.name.lower()),
            "status": status.get("queries", {}).get(plan.name, {}),
        }

    def streams(self, private: bool) -> list[dict[str, Any]]:
        """A line per stream; `private`: with the options of its source."""
        figures = self.status().get("streams", {})
        return [_stream(s, private) | {"status": figures.get(s.name, {})} for s in self._streams()]

    def _streams(self) -> list[StreamDef]:
        return list(dict(self.engine.catalog.streams).values())

    def tables(self, private: bool) -> list[dict[str, Any]]:
        """A line per table."""
        figures = self.status().get("tables", {})
        return [
            {
                "name": t.name,
                "columns": _columns(t),
                "retroactive": t.retroactive,
                "valid": list(t.valid) if t.valid else None,
                "key": list(t.keys),
                "changes": None if t.changes is None else t.changes.text(),
                "rows": figures.get(t.name, {}).get("rows"),
                "source": _source(t, private),
                "status": figures.get(t.name, {}),
            }
            for t in dict(self.engine.catalog.tables).values()
        ]

    def archives(self) -> list[dict[str, Any]]:
        """A line per archive."""
        figures = self.status().get("archives", {})
        return [
            {
                "name": a.name,
                "text": a.plan.text,
                "columns": _columns(a),
                "keys": list(a.keys),
                "clock": self.clock(a.plan),
                "every": a.every,
                "lifetime": a.lifetime,
                "status": figures.get(a.name, {}),
                "layouts": self.engine.archive(a.name).layouts,
                "failed": self.status().get("failed", {}).get(hidden_name(a.name)),
            }
            for a in dict(self.engine.catalog.archives).values()
        ]

    def clock(self, plan: QueryPlan) -> str:
        """What the time of a query's streams counts."""
        return _clock(self.engine.catalog.streams[plan.streams[0].lower()])

    def table_rows(self, name: str) -> pa.Table:
        """What a table holds."""
        return self.engine.ask(f"SELECT * FROM {quote(name)}")

    def newest(self, name: str, count: int) -> pa.Table:
        """At least `count` of the newest rows that a stream keeps, or all: ever longer windows until they suffice."""
        stream = self.engine.catalog.streams[name.lower()]
        retain, unit = stream.retain or 0, "" if pa.types.is_integer(stream.time_type) else "MICROSECONDS"
        length = max(1, retain >> 12)
        while True:
            length = min(length, retain)
            rows = self.engine.ask(f"SELECT * FROM {quote(name)} [RANGE {length} {unit}]")
            if rows.num_rows >= count or length >= retain:
                return rows.sort_by(stream.time)
            length *= 4


def memory_bytes() -> int | None:
    """The memory that this process has now; None where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def _stream(stream: StreamDef, private: bool) -> dict[str, Any]:
    return {
        "name": stream.name,
        "columns": _columns(stream),
        "time": stream.time,
        "clock": _clock(stream),
        "slack": stream.slack,
        "idle_after": stream.idle_after,
        "retain": stream.retain,
        "source": _source(stream, private),
    }


def _clock(stream: StreamDef) -> str:
    """What a stream's time counts."""
    return "tick" if pa.types.is_integer(stream.time_type) else "microsecond"


def _columns(declared: ArchiveDef | StreamDef | TableDef | ViewDef) -> list[dict[str, str]]:
    return [{"name": n, "type": str(t)} for n, t in declared.columns.items()]


def _source(declared: StreamDef | TableDef, private: bool) -> dict[str, str] | None:
    """Where rows come from. Addresses are the operator's business; secrets are nobody's."""
    options = {k: str(v) for k, v in declared.options.items()}
    if not options:
        return None
    kind = options.get("source", "")
    if not private:
        return {"source": kind}
    return shown_options(options)
