"""What the demo shows: the figures of `engine.status()` and a few answers, redrawn in place or as plain lines.

Rates are differences of counters between two looks, so they say what happens now and not on average since the start.
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

if TYPE_CHECKING:
    from rich.console import RenderableType

EVERY = 3.0
"""Seconds between two plain lines."""

BARS = "▁▂▃▄▅▆▇█"
PHASES = ("plan", "job", "collect", "commit", "sinks", "sweep")


class Monitor:
    """A view on a terminal, or a line every few seconds when nobody is there to see it move."""

    def __init__(
        self,
        options: argparse.Namespace,
        queries: Mapping[str, str],
        spotlights: Sequence[str],
        console: Console | None = None,
    ) -> None:
        self.options, self.queries, self.spotlights = options, queries, spotlights
        self.console = console or Console()
        self.plain = options.plain or not self.console.is_terminal
        self.link: str | None = None
        self.overload = 1
        self._live: Live | None = None
        self._looks: deque[tuple[float, int]] = deque(maxlen=30)
        self._rates: deque[float] = deque(maxlen=60)
        self._ticks: deque[float] = deque(maxlen=60)
        self._seen = -1
        self._said = -EVERY
        self._last: dict[str, Any] = {}
        self._answers = 0

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Say what is being waited for."""
        if self.plain:
            self.console.print(f"{what} ...")
            yield
        else:
            with self.console.status(what):
                yield

    def announce(self, overload: int) -> None:
        """Say when rows begin to come so many times as fast, and when that is over."""
        if overload != self.overload and self.plain:
            over = f"overload: {overload} x rate; watch tick and lag" if overload > 1 else "the overload is over"
            self.console.print(over, highlight=False)
        self.overload = overload

    def show(
        self, past: float, status: Mapping[str, Any], now_us: int, registered: int, newest: Mapping[str, pa.Table]
    ) -> None:
        """Show the present."""
        figures = self._figures(past, status, now_us, registered)
        if self.plain:
            if past - self._said >= EVERY:
                self._said = past
                self.console.print(self._line(figures, newest), soft_wrap=True, highlight=False)
            return
        if self._live is None:
            self._live = Live(console=self.console, refresh_per_second=4, transient=False)
            self._live.start()
        self._live.update(self.draw(figures, newest))

    def _figures(self, past: float, status: Mapping[str, Any], now_us: int, registered: int) -> dict[str, Any]:
        stream = next(iter(status["streams"].values()), {"rows": 0, "late": 0})
        self._looks.append((past, stream["rows"]))
        before, rows = self._looks[0]
        rate = (stream["rows"] - rows) / (past - before) if past - before > 0.5 else 0.0
        phases = status.get("tick_ms", {})
        tick = phases.get("total", 0.0)
        if status["ticks"] != self._seen:
            self._seen = status["ticks"]
            self._rates.append(rate)
            self._ticks.append(tick)
        self._answers = sum(q["answers"] for q in status["queries"].values())
        state = status.get("state") or {"bytes": sum(q.get("state_bytes", 0) for q in status["queries"].values())}
        self._last = {
            "past": past,
            "rows": stream["rows"],
            "late": stream["late"],
            "rate": rate,
            "ticks": status["ticks"],
            "tick_ms": tick,
            "phases": {p: phases[p] for p in PHASES if p in phases},
            "lag": None if status["frontier"] is None else (now_us - status["frontier"]) / 1e6,
            "bytes": state["bytes"],
            "runs": state.get("runs"),
            "registered": registered,
            "answers": self._answers,
            "error": status.get("error"),
        }
        return self._last

    def _line(self, f: Mapping[str, Any], newest: Mapping[str, pa.Table]) -> str:
        runs = f" in {f['runs']:,} runs" if f["runs"] is not None else ""
        job = f" (job {f['phases']['job']:,.0f})" if "job" in f["phases"] else ""
        timed = f", {f['tick_ms']:,.0f} ms{job}" if f["tick_ms"] else ""
        line = (
            f"{f['past']:5.1f} s  {f['rate']:,.0f} rows/s  tick {f['ticks']}{timed}  lag {_seconds(f['lag'])}  "
            f"state {_bytes(f['bytes'])}{runs}  {f['registered']} of {len(self.queries)} queries  "
            f"{f['answers']:,} answers"
        )
        rows = newest.get("volume")
        return escape(line if rows is None else f"{line}  volume: {brief(rows, 3)}")

    def draw(self, f: Mapping[str, Any], newest: Mapping[str, pa.Table]) -> RenderableType:
        """The whole view."""
        left = max(0.0, self.options.seconds - f["past"])
        figures = Table.grid(padding=(0, 2))
        figures.add_column(style="dim")
        figures.add_column(justify="right", min_width=16)
        figures.add_column(no_wrap=True)
        figures.add_row("trades", f"{f['rate']:,.0f} rows/s", _bars(self._rates))
        phases = "  ".join(f"{name} {ms:,.0f}" for name, ms in f["phases"].items())
        figures.add_row("tick", f"{f['tick_ms']:,.0f} ms" if f["tick_ms"] else f"{f['ticks']:,}", _bars(self._ticks))
        if phases:
            figures.add_row("", "", f"[dim]{phases}[/]")
        figures.add_row("frontier lag", _seconds(f["lag"]), "[dim]answers are this far behind the wall clock[/]")
        runs = f"[dim]{f['runs']:,} runs[/]" if f["runs"] is not None else ""
        figures.add_row("state", _bytes(f["bytes"]), runs)
        done = round(30 * f["registered"] / max(1, len(self.queries)))
        figures.add_row(
            "queries", f"{f['registered']} of {len(self.queries)}", f"[green]{'━' * done}[/][dim]{'━' * (30 - done)}[/]"
        )
        figures.add_row("answers", f"{f['answers']:,} rows", f"[dim]{f['rows']:,} trades so far, {f['late']:,} late[/]")
        if self.overload > 1:
            figures.add_row("overload", f"{self.overload} x rate", "[dim]watch tick and lag, and how they recover[/]")
        title = f"windrow demo, {self.options.runtime} runtime: {left:,.0f} s left, Ctrl-C ends it"
        link = f"console: {escape(self.link)}" if self.link else None
        panel = Panel(figures, title=title, title_align="left", subtitle=link, subtitle_align="left")
        return Group(panel, self._answers_table(newest))

    def _answers_table(self, newest: Mapping[str, pa.Table]) -> Table:
        table = Table(expand=True, title_justify="left", show_edge=False)
        table.add_column("query", no_wrap=True)
        table.add_column("asks", ratio=1, style="dim", no_wrap=True, overflow="ellipsis")
        table.add_column("newest answer", ratio=1, no_wrap=True, overflow="ellipsis")
        for name in self.spotlights:
            if name in self.queries:
                rows = newest.get(name)
                said = "" if rows is None else escape(brief(rows, 4))
                table.add_row(name, escape(self.queries[name]), said)
        return table

    def close(self) -> None:
        """Leave the last view on the screen."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def farewell(self, registered: int) -> int:
        """Say how it went; the exit code."""
        f = self._last
        if f.get("error"):
            print(f"error: the engine stopped: {f['error']}", file=sys.stderr)
            return 1
        if f:
            self.console.print(
                f"done: {f['rows']:,} trades in {f['ticks']:,} ticks, {registered} queries, "
                f"{f['answers']:,} answer rows" + (f", {f['late']:,} late rows" if f["late"] else ""),
                highlight=False,
            )
        return 0


def brief(rows: pa.Table, most: int) -> str:
    """The rows of an answer's newest instant in one line, greatest number first.

    >>> brief(pa.table({"_ts": [1, 2, 2], "symbol": ["A", "B", "C"], "n": [9, 1, 7]}), 2)
    'C 7, B 1'
    """
    if not rows.num_rows:
        return ""
    ts = rows.column("_ts")
    newest = rows.filter(pc.equal(ts, ts[rows.num_rows - 1]))
    if "_op" in newest.column_names:  # a change log: what appeared
        appeared = newest.filter(pc.greater(newest.column("_op"), 0))
        newest = (appeared if appeared.num_rows else newest).drop_columns(["_op"])
    newest = newest.drop_columns(["_ts"])
    numbers = [c for c in newest.column_names if not pa.types.is_string(newest.schema.field(c).type)]
    if numbers:
        newest = newest.sort_by([(numbers[-1], "descending")])
    shown = [" ".join(_value(v) for v in row.values()) for row in newest.slice(0, most).to_pylist()]
    return ", ".join(shown) + (f" and {newest.num_rows - most} more" if newest.num_rows > most else "")


def _value(value: object) -> str:
    return (
        f"{value:,.2f}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int | Decimal)
        else str(value)
    )


def _bars(values: Sequence[float] | deque[float]) -> str:
    top = max(values, default=0.0)
    if top <= 0:
        return ""
    return "[cyan]" + "".join(BARS[min(len(BARS) - 1, int(v / top * (len(BARS) - 1)))] for v in values) + "[/]"


def _seconds(lag: float | None) -> str:
    return "none yet" if lag is None else f"{lag:,.1f} s"


def _bytes(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"
