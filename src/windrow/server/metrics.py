"""Prometheus metrics: what `engine.status()` says, under names that stay, and what the server itself does.

Computed when scraped. Names end in the unit; counters in `_total`. A line per stream, table and query.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from windrow.server.changes import ChangeStreams
from windrow.server.live import Live

STREAM = {
    "rows": ("counter", "windrow_stream_rows", "rows taken in"),
    "late": ("counter", "windrow_stream_late_rows", "rows that came too late"),
    "quarantined": ("counter", "windrow_stream_quarantined_rows", "rows set aside because they could not be read"),
    "lag": ("gauge", "windrow_stream_lag", "how far the frontier is behind the greatest time, in units of the clock"),
    "kept_bytes": ("gauge", "windrow_stream_kept_bytes", "bytes kept by RETAIN"),
    "stopped": ("gauge", "windrow_stream_stopped", "whether the stream stands still because it cannot be read"),
    "source_lag": ("gauge", "windrow_stream_source_lag_rows", "rows that the source has and nobody has read"),
}
SINK = {
    "failing": ("gauge", "windrow_sink_failing", "whether the newest attempt to hand answers on failed"),
    "waiting_ticks": ("gauge", "windrow_sink_waiting_ticks", "ticks whose answers wait to be handed on"),
    "waiting_bytes": ("gauge", "windrow_sink_waiting_bytes", "bytes of answers that wait to be handed on"),
}
QUERY = {
    "answers": ("counter", "windrow_query_answer_rows", "rows answered"),
    "state_bytes": ("gauge", "windrow_query_state_bytes", "bytes of state"),
}


class EngineCollector:
    """The engine's figures."""

    def __init__(self, live: Live, changes: ChangeStreams) -> None:
        self._live, self._changes = live, changes

    def collect(self) -> Iterator[Metric]:
        """All metrics, as they are now."""
        status = self._live.status(None)
        yield _one("windrow_up", "whether ticks go on", float(bool(status.get("running")) and not status.get("error")))
        yield _one("windrow_ticks_total", "ticks so far", status.get("ticks"), counter=True)
        frontier = status.get("frontier")
        yield _one("windrow_frontier", "how far answers are complete, in units of the clock", frontier)
        yield _one("windrow_rows_per_second", "rows of all streams, lately", status.get("rows_per_second"))
        state = status.get("state") or {}
        yield _one("windrow_state_bytes", "bytes of live run files", state.get("bytes"))
        yield _one("windrow_state_runs", "live run files", state.get("runs"))
        yield _one("windrow_failed_queries", "queries that stopped because they raised", len(status.get("failed", {})))
        yield _one("windrow_event_streams", "readers of changes", self._changes.readers)
        phases = GaugeMetricFamily("windrow_tick_milliseconds", "mean of the newest ticks, by phase", labels=["phase"])
        for phase, ms in status.get("tick_ms", {}).items():
            phases.add_metric([phase], ms)
        yield phases
        yield _one("windrow_memory_bytes", "memory of this process", status.get("memory_bytes"))
        streams = status.get("streams", {}).items()
        yield from _each(STREAM, ("stream",), {(n,): s | {"stopped": bool(s.get("error"))} for n, s in streams})
        yield from _each(QUERY, ("query",), {(n,): q for n, q in status.get("queries", {}).items()})
        sinks = [(q, n, s) for q, each in status.get("sinks", {}).items() for n, s in each.items()]
        yield from _each(SINK, ("query", "sink"), {(q, n): s | {"failing": failing(s)} for q, n, s in sinks})


def _one(name: str, help_: str, value: float | None, counter: bool = False) -> Metric:
    family = (CounterMetricFamily if counter else GaugeMetricFamily)(name, help_)
    if value is not None:
        family.add_metric([], value)
    return family


def failing(sink: dict[str, Any]) -> bool:
    """Whether answers do not get where a sink should hand them."""
    return any(sink.get(key) for key in ("error", "hanging_since", "missing"))


def _each(
    names: dict[str, tuple[str, str, str]], labels: tuple[str, ...], figures: dict[tuple[str, ...], dict[str, Any]]
) -> Iterator[Metric]:
    for key, (kind, name, help_) in names.items():
        family = (CounterMetricFamily if kind == "counter" else GaugeMetricFamily)(name, help_, labels=labels)
        for item, values in figures.items():
            if values.get(key) is not None:
                family.add_metric(item, values[key])
        yield family


def exposition(live: Live, changes: ChangeStreams) -> bytes:
    """The text that Prometheus scrapes."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(EngineCollector(live, changes))
    return generate_latest(registry)
