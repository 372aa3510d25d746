"""Answers on the terminal, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.sinks.protocol import as_of

if TYPE_CHECKING:
    from rich.console import Console


class TerminalSink:
    """Prints the last `rows` rows of every answer that has some."""

    def __init__(self, rows: int = 20, console: Console | None = None) -> None:
        from rich.console import Console

        self.rows = rows
        self._console = console or Console()
        self._last: dict[str, int] = {}

    def write(self, query: str, tick: int, table: pa.Table) -> None:
        """Print an answer, once."""
        if tick <= self._last.get(query, -1):
            return
        self._last[query] = tick
        if not table.num_rows:
            return
        from rich.markup import escape
        from rich.table import Table

        shown = table.slice(max(0, table.num_rows - self.rows))
        frontier = as_of(table.schema)
        until = "" if frontier is None else f", as of {frontier}"
        more = f", last {shown.num_rows} of {table.num_rows} rows" if shown.num_rows < table.num_rows else ""
        drawn = Table(title=escape(f"{query}, tick {tick}{until}{more}"), title_justify="left")
        for column in table.schema:
            drawn.add_column(escape(column.name), justify="right" if pa.types.is_primitive(column.type) else "left")
        for row in zip(*(c.to_pylist() for c in shown.columns), strict=True):
            drawn.add_row(*("" if v is None else escape(str(v)) for v in row))
        self._console.print(drawn)

    def close(self) -> None:
        """Nothing to let go of."""
