"""Random queries with ASOF JOIN: of streams, queries and tables, by their times and by other values."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow.testing.random_queries import Writer


def asof(w: Writer) -> str:
    """An ASOF JOIN, inner or left, of windows of any kind."""
    op, period = w.operator(), w.block_period()
    windows = w.windows(2, period)
    left, right = (w.stream(window, alias) for window, alias in zip(windows, "lr", strict=True))
    equal = w.pick("l.a = r.a", "l.a = r.a", "l.s = r.s", "l.a = r.b", "")
    kind, items = w.pick("times", "times", "times", "values", "query", "query", "table"), "lr"
    before = w.pick("l.ts >= r.ts", "l.ts >= r.ts", "l.ts > r.ts", "r.ts <= l.ts")
    kind = "values" if kind == "table" and not w.tables_in_time else kind
    if kind == "values":
        before = w.pick("l.b >= r.b", "l.b > r.a", "l.x >= r.x", f"l.a >= r.{w.measure}")
    elif kind == "table":
        before = w.pick("l.a >= r.k", "l.b > r.k", f"l.{w.measure} >= r.w")
        left = w.stream(w.periodic_window(period) if period is not None else w.time_window(), "l")
        right, equal, items = "P AS r", w.pick("l.a = r.k", ""), "l"
    elif kind == "query":
        body = w.pick(
            f"SELECT i.ts AS ts, i.a AS a, i.b AS b FROM {w.stream(windows[1], 'i')}{w.where(['i'])}",
            f"SELECT MAX(i.ts) AS ts, i.a AS a, COUNT(*) AS b FROM {w.stream(windows[1], 'i')} GROUP BY i.a",
        )
        right, equal = f"({body}) AS r", w.pick("l.a = r.a", "")
    on = f"{equal} AND {before}" if equal else before
    shown = w.items(items) if kind != "query" else w.items("l") + ", r.ts AS c8, r.b AS c9"
    if kind == "table":
        shown += ", r.k AS c7, r.v AS c8, r.w AS c9"
    join = w.pick("ASOF JOIN", "ASOF LEFT JOIN")
    text = f"{left} {join} {right} ON {on}{w.where(['l'], one_in=4)}"
    if w.chance(4) and kind != "query":
        counted = "r.v" if kind == "table" else "r.b"
        return f"{w.select(op, f'l.a AS g, COUNT(*) AS n, COUNT({counted}) AS m')} FROM {text} GROUP BY l.a"
    return f"{w.select(op, shown)} FROM {text}"
