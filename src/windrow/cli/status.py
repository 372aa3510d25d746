"""An engine's status as terminal tables: `render(engine.status())`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from windrow.cli.state import _bytes as size
from windrow.cli.state import _instant as instant

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

PHASES = ("total", "plan", "job", "collect", "commit", "sinks", "sweep")


def render(status: Mapping[str, Any]) -> RenderableType:
    """What an engine says of itself, for people."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(_headline(status))]
    if status.get("held_back_by"):
        parts.append(Text(f"time waits for rows of {', '.join(status['held_back_by'])}", style="yellow"))
    if status.get("error"):
        parts.append(Text(str(status["error"]), style="red"))
    if status.get("tick_ms"):
        parts.append(Text(_phases(status["tick_ms"])))
    parts.append(_streams(status.get("streams", {})))
    if status.get("tables"):
        parts.append(_tables(status["tables"]))
    parts.append(_queries(status.get("queries", {})))
    return Group(*parts)


def _headline(status: Mapping[str, Any]) -> str:
    words = ["running" if status.get("running") else "stopped", f"tick {status.get('ticks', 0)}"]
    words.append(f"frontier {instant(status.get('frontier'))}")
    if "rows_per_second" in status:
        words.append(f"{status['rows_per_second']:,.0f} rows/s")
    if "state" in status:
        words.append(f"state {size(status['state']['bytes'])} in {status['state']['runs']} runs")
    return ", ".join(words)


def _phases(tick_ms: Mapping[str, float]) -> str:
    """The phases of a tick, and those of its tasks.

    >>> _phases({"total": 250.0, "job": 200.0, "task.advance": 30.0})
    'ms per tick: total 250, job 200; in tasks: advance 30'
    """
    whole = [f"{p} {tick_ms[p]:.0f}" for p in PHASES if p in tick_ms]
    tasks = [f"{p.removeprefix('task.')} {ms:.0f}" for p, ms in tick_ms.items() if p.startswith("task.")]
    return f"ms per tick: {', '.join(whole)}" + (f"; in tasks: {', '.join(tasks)}" if tasks else "")


def _streams(streams: Mapping[str, Mapping[str, Any]]) -> Table:
    drawn = _table("streams", "stream", "rows", "rows/s", "late", "newest", "behind it", "")
    for name, s in streams.items():
        idle = "idle" if s.get("idle") else ""
        drawn.add_row(
            name, _count(s.get("rows")), _count(s.get("rows_per_second")), _count(s.get("late")),
            instant(s.get("greatest")), _lag(s.get("lag"), s.get("greatest")), idle,
        )  # fmt: skip
    return drawn


def _lag(ticks: int | None, newest: int | None) -> str:
    """How far time is behind the newest row: seconds where the clock counts microseconds.

    >>> _lag(5_000_001, 1_700_000_000_000_000), _lag(3, 40), _lag(None, None)
    ('5.0 s', '3', '-')
    """
    if ticks is None or newest is None or not 10**14 < abs(newest) < 10**16:
        return _count(ticks)
    return f"{ticks / 1e6:,.1f} s"


def _tables(tables: Mapping[str, Mapping[str, Any]]) -> Table:
    drawn = _table("tables", "table", "rows", "as of", "")
    for name, t in tables.items():
        trouble = f"failing since {instant(t['failing_since_us'])}: {t['error']}" if t.get("failing_since_us") else ""
        drawn.add_row(name, _count(t.get("rows")), instant(t.get("version_us")), trouble)
    return drawn


def _queries(queries: Mapping[str, Mapping[str, Any]]) -> Table:
    drawn = _table("queries", "query", "answers", "answers/s", "state", "runs", "clock since", "shed")
    for name, q in queries.items():
        drawn.add_row(
            name, _count(q.get("answers")), _count(q.get("answers_per_second")), size(q.get("state_bytes", 0)),
            _count(q.get("runs")), instant(q.get("clock")), _shed(q.get("quality")),
        )  # fmt: skip
    return drawn


def _shed(quality: Mapping[str, Mapping[str, Any]] | None) -> str:
    """What a query has lost.

    >>> _shed({"time": {"rows_seen": 200, "rows_shed": 50, "importance_kept": 0.9, "exact": False}})
    '25 % of rows, 10 % of importance, approximate'
    """
    said = []
    for found in (quality or {}).values():
        rows = 100 * found["rows_shed"] / found["rows_seen"] if found["rows_seen"] else 0.0
        state = "" if found["exact"] else ", approximate"
        said.append(f"{rows:.0f} % of rows, {100 * (1 - found['importance_kept']):.0f} % of importance{state}")
    return "; ".join(said)


def _table(title: str, first: str, *columns: str) -> Table:
    from rich.table import Table

    drawn = Table(title=title, title_justify="left")
    drawn.add_column(first)
    for column in columns:
        drawn.add_column(column, justify="right")
    return drawn


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
