"""How a notebook shows answers, plans, queries, engines and progress: plain HTML and SVG, no scripts.

Everything that comes from data or from users is escaped. A table shows at most `ROWS` rows, so the cost of a display
does not depend on the answer.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

import pyarrow as pa

ROWS = 20
_CELL = "padding:2px 10px;text-align:{}"


def table_html(table: pa.Table, title: str = "", rows: int = ROWS) -> str:
    """The newest rows of a table.

    >>> table_html(pa.table({"a": ["<b>"]})).endswith("&lt;b&gt;</td></tr></table>")
    True
    """
    shown = in_order(table.slice(max(0, table.num_rows - rows)))
    right = [pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t) for t in table.schema.types]
    styles = [_CELL.format("right" if r else "left") for r in right]
    head = "".join(f'<th style="{s}">{escape(n)}</th>' for n, s in zip(table.column_names, styles, strict=True))
    columns = [shown.column(i).to_pylist() for i in range(shown.num_columns)]
    body = "".join(
        "<tr>" + "".join(f'<td style="{s}">{_text(v)}</td>' for v, s in zip(row, styles, strict=True)) + "</tr>"
        for row in zip(*columns, strict=True)
    )
    of = f" of {table.num_rows:,}" if shown.num_rows < table.num_rows else ""
    caption = f"{escape(title)}{': ' if title else ''}{shown.num_rows:,}{of} row{'' if table.num_rows == 1 else 's'}"
    return f'<table><caption style="text-align:left">{caption}</caption><tr>{head}</tr>{body}</table>'


def in_order(table: pa.Table) -> pa.Table:
    """A change log in which what leaves at an instant stands before what comes: a replacement reads as one.

    >>> in_order(pa.table({"_ts": [1, 2, 2], "_op": [1, 1, -1], "k": [10, 20, 10]})).column("k").to_pylist()
    [10, 10, 20]
    """
    if table.column_names[:2] != ["_ts", "_op"]:
        return table
    return table.sort_by([("_ts", "ascending"), ("_op", "ascending")])


def written(value: Any) -> str:
    """A value as SQL writes it, also within lists, structs and maps.

    >>> from datetime import date
    >>> print(written([[True, None]]), written({"a": [date(2026, 3, 1)]}), written([("k", 1.5)]), written(b"A!"))
    [[true, null]] {'a': [2026-03-01]} {k=1.5} \\x41\\x21
    """
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case bytes():
            return "".join(f"\\x{byte:02X}" for byte in value)
        case [tuple(), *_]:  # a map
            return "{" + ", ".join(f"{written(k)}={written(v)}" for k, v in value) + "}"
        case list():
            return "[" + ", ".join(map(written, value)) + "]"
        case dict():
            return "{" + ", ".join(f"'{k}': {written(v)}" for k, v in value.items()) + "}"
    return str(value)


def _text(value: object) -> str:
    return "<i>null</i>" if value is None else escape(written(value))


def answers_html(answers: Mapping[str, pa.Table]) -> str:
    """The answers of a replay, one after the other."""
    return "".join(table_html(table, name) for name, table in answers.items())


def status_html(status: Mapping[str, Any]) -> str:
    """An engine's status."""
    said = "running" if status.get("running") else "not running"
    if status.get("error"):
        said = f"stopped: {escape(str(status['error']))}"
    rows = {"rows": [], "late": []} if not status.get("streams") else {
        "stream": list(status["streams"]),
        "rows": [s.get("rows") for s in status["streams"].values()],
        "rows a second": [s.get("rows_per_second") for s in status["streams"].values()],
        "late": [s.get("late") for s in status["streams"].values()],
    }  # fmt: skip
    queries = {
        "query": list(status.get("queries", {})),
        "answers": [q.get("answers") for q in status.get("queries", {}).values()],
        "answers a second": [q.get("answers_per_second") for q in status.get("queries", {}).values()],
    }
    figures = f"{status.get('ticks', 0):,} ticks, {len(queries['query']):,} queries"
    head = f"<p><b>windrow</b>, {escape(str(status.get('runtime')))}: {said}, {figures}</p>"
    if status.get("held_back_by"):
        head += f"<p>Time waits for rows of {escape(', '.join(status['held_back_by']))}.</p>"
    return head + table_html(pa.table(rows), "streams") + table_html(pa.table(queries), "queries")


class Explained(str):
    """What EXPLAIN says: a text, and in a notebook the plan as a drawing."""

    draw: Callable[[], str]

    def __new__(cls, text: str, draw: Callable[[], str]) -> Explained:
        made = super().__new__(cls, text)
        made.draw = draw
        return made

    def _repr_svg_(self) -> str:
        return self.draw()


def notebook_progress() -> Callable[[int, int], None] | None:
    """A bar for work on rows; None where nobody sees one, that is outside of notebooks."""
    library = sys.modules.get("IPython")
    shell = library.get_ipython() if library is not None else None
    return ProgressBar() if hasattr(shell, "kernel") else None


class ProgressBar:
    """Rows done of all rows, in a notebook, once the work has taken `patience` seconds."""

    def __init__(self, patience: float = 0.5) -> None:
        self._until = time.monotonic() + patience
        self._handle: Any = None

    def __call__(self, done: int, total: int) -> None:
        """So many rows are done."""
        if self._handle is None and (done >= total or time.monotonic() < self._until):
            return
        from IPython.display import HTML, display

        shown = HTML(f'<progress value="{done}" max="{total}"></progress> {done:,} of {total:,} rows')
        if self._handle is None:
            self._handle = display(shown, display_id=True)
        else:
            self._handle.update(shown)


class LiveView:
    """A display in a notebook that follows what it shows; `stop()` leaves it as it is."""

    def __init__(
        self,
        draw: Callable[[], str],
        subscribe: Callable[[Callable[..., None]], Callable[[], None]],
        every: float,
    ) -> None:
        """Show what `draw` gives, and show it anew when it changes, at most once in `every` seconds."""
        from IPython.display import HTML, display

        self._draw, self._html = draw, HTML
        self._handle = display(HTML(draw()), display_id=True)
        self._changed, self._ended = threading.Event(), threading.Event()
        self._unsubscribe = subscribe(lambda *_: self._changed.set())
        self._thread = threading.Thread(target=self._follow, args=(every,), name="windrow-live-view", daemon=True)
        self._thread.start()

    def _follow(self, every: float) -> None:
        while not self._ended.wait(every):
            if self._changed.is_set():
                self._changed.clear()
                self._show()

    def _show(self) -> None:
        self._handle.update(self._html(self._draw()))

    def stop(self) -> None:
        """Show the present once more, and follow no longer."""
        self._ended.set()
        self._unsubscribe()
        self._thread.join()
        self._show()  # whether or not word of the last change has come
