"""A query's answer on the terminal as it changes, with the recent past of its numbers as sparklines."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from windrow.engine.display import written
from windrow.errors import WindrowError

if TYPE_CHECKING:
    from windrow.cli.sessions import SqlSession

BARS = "▁▂▃▄▅▆▇█"
PAST = 30


def sparkline(values: list[float]) -> str:
    """Small bars, from the least value to the greatest.

    >>> sparkline([1, 2, 3, 2]), sparkline([5, 5]), sparkline([])
    ('▁▄█▄', '▁▁', '')
    """
    low, high = min(values, default=0.0), max(values, default=0.0)
    return "".join(BARS[int((v - low) / (high - low) * (len(BARS) - 1)) if high > low else 0] for v in values)


def is_number(type_: pa.DataType) -> bool:
    """Whether a column can be drawn."""
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


class WatchedAnswer:
    """The answers seen so far, by key: the columns that are no numbers."""

    def __init__(self, name: str, limit: int) -> None:
        self.name, self.limit = name, limit
        self._past: dict[tuple[Any, ...], deque[float]] = {}

    def draw(self, answer: pa.Table) -> Group:
        """The answer now."""
        rows = answer.slice(0, self.limit).to_pylist()
        names = [n for n in answer.column_names if n != "_ts"]
        numbers = [n for n in names if is_number(answer.schema.field(n).type)]
        keys = [n for n in names if n not in numbers]
        count = f"{answer.num_rows:,} row{'' if answer.num_rows == 1 else 's'}"
        drawn = Table()
        for name in names:
            drawn.add_column(name, justify="right" if name in numbers else "left")
        if numbers:
            drawn.add_column(f"{numbers[-1]} lately", no_wrap=True)
        for row in sorted(rows, key=lambda r: [str(r[k]) for k in keys]):
            cells = [written(row[n]) for n in names]
            if numbers:
                past = self._past.setdefault(tuple(str(row[k]) for k in keys), deque(maxlen=PAST))
                past.append(float(row[numbers[-1]] or 0))
                cells.append(sparkline(list(past)))
            drawn.add_row(*(Text(c) for c in cells))
        return Group(Text(f"{self.name}: {count}, Ctrl-C ends"), drawn)


def watch(session: SqlSession, query: str, limit: int, console: Console | None = None) -> None:
    """Show a query's answer until Ctrl-C, or until the query goes."""
    watched = WatchedAnswer(query, limit)
    with Live(watched.draw(session.snapshot(query)), console=console, auto_refresh=False) as live:
        for _ in session.changed(query):
            try:
                answer = session.snapshot(query)
            except WindrowError:
                if _runs(session, query):
                    raise
                break
            live.update(watched.draw(answer), refresh=True)
    if not _runs(session, query):
        (console or Console()).print(f"{query} was dropped", markup=False)


def _runs(session: SqlSession, query: str) -> bool:
    return query.lower() in {name.lower() for name in session.names()["queries"]}
