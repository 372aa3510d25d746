"""Random queries for the frequent values of windows, and over sketches."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow.testing.random_queries import Writer


def frequent(w: Writer) -> str:
    """FREQUENT over windows of time and of rows, by groups or not, alone or beside other aggregates."""
    period = w.period()
    kind = w.pick("range", "range", "range", "rows", "rows", "hop")
    if kind == "rows":
        slide = w.number(1, 4)
        source = w.stream(f"[ROWS {slide * w.number(1, 4)} SLIDE {slide}]", "q")
    elif kind == "hop":
        source = f"HOP({w.pick('S', 'T')}, ts, {w.time(period)}, {w.time(period * w.number(1, 3))}) AS q"
    else:
        source = w.stream(f"[RANGE {w.time(period * w.number(1, 4))} SLIDE {w.time(period)}]", "q")
    op = w.operator()
    keys = [f"q.{k}" for k in w.pick("", "", "a", "s", "a s").split()]
    calls = [_call(w) for _ in range(w.number(1, 2))]
    if w.chance(3):
        calls.append(w.pick("APPROX_COUNT_DISTINCT(q.s)", "APPROX_TOP_K(q.a, 2)", "APPROX_TOP_K(q.s, 1)"))
        calls += ["APPROX_QUANTILE(q.b, 0.5)"] if kind == "range" and not w.extremes else []
    if w.chance(3):
        calls.append(w.pick("COUNT(*)", "MAX(q.b)", "COUNT(q.x)", "COUNT(DISTINCT q.s)"))
    items = ", ".join(f"{v} AS c{i}" for i, v in enumerate([*keys, *calls]))
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    if w.chance(4):
        return (
            f"{w.select(op, items)} FROM {source}, P AS p WHERE q.a = p.k{group}"
            if kind != "rows"
            else (f"{w.select(op, items)} FROM {source} WHERE q.b > 0{group} HAVING FREQUENT_DELTA(q.a, 2) < 2")
        )
    return f"{w.select(op, items)} FROM {source}{w.where(['q'])}{group}"


def _call(w: Writer) -> str:
    column = w.pick("q.a", "q.s", "q.x", "q.b % 3", "q.f")
    if w.chance(4):
        return f"FREQUENT_DELTA({column}, {w.number(1, 3)})"
    threshold = w.pick("", "", f", {w.number(0, 2)}", f", {w.pick(0.2, 0.5)}")
    call = f"FREQUENT({column}, {w.number(1, 3)}{threshold})"
    return f"{call} FILTER (WHERE q.b > 0)" if w.chance(5) else call
