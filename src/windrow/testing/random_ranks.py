"""Random queries that look at the order of rows: ORDER BY with LIMIT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow.testing.random_queries import Writer


def sort_terms(w: Writer, columns: Sequence[str]) -> str:
    """One or two terms of ORDER BY."""
    chosen = [w.pick(*columns) for _ in range(w.pick(1, 1, 2))]
    return ", ".join(f"{c}{w.pick('', '', ' ASC', ' DESC', ' DESC NULLS FIRST', ' NULLS FIRST')}" for c in chosen)


def limited(w: Writer) -> str:
    """The first rows of a selection, a join, a grouping or a set operation."""
    op, period = w.operator(), w.block_period()
    limit = f" LIMIT {w.number(1, 4)}{w.pick('', '', '', ' OFFSET 1', ' OFFSET 2')}"
    kind = w.pick("values", "values", "values", "grouped", "join", "distinct", "nested", "union", "tumble")
    if kind == "union":
        text = f"SELECT q.a AS c0, q.b AS c1 FROM {w.stream(w.window(), 'q')}"
        other = f"SELECT q.b AS c0, q.a AS c1 FROM {w.stream(w.window(), 'q')}"
        return f"{text} {w.pick('UNION ALL', 'EXCEPT ALL')} {other} ORDER BY {sort_terms(w, ['c0', 'c1', '2'])}{limit}"
    if kind == "join":
        aliases, text, conditions = w.joined(period, parts=2)
        where = w.where(aliases, *conditions)
        return f"{w.select(op, w.items(aliases))} FROM {text}{where} ORDER BY {sort_terms(w, ['l.b', 'r.x'])}{limit}"
    source = (
        w.stream(w.windows(1, period)[0], "q")
        if kind != "tumble"
        else f"TUMBLE({w.pick('S', 'T')}, ts, {w.time(w.period())}) q"
    )
    if kind == "grouped":
        order = sort_terms(w, ["n", "COUNT(*)", "MAX(q.b)", "q.a"])
        items = "q.a AS g, COUNT(*) AS n, SUM(q.b) AS t" if not w.extremes else "q.a AS g, COUNT(*) AS n"
        return f"{w.select(op, items)} FROM {source} GROUP BY q.a ORDER BY {order}{limit}"
    if kind == "distinct":
        return (
            f"{w.select(op, 'q.a AS c0, q.s AS c1', True)} FROM {source} ORDER BY {sort_terms(w, ['c1', '1'])}{limit}"
        )
    order = "" if w.chance(6) else f" ORDER BY {sort_terms(w, ['q.a', 'q.x', 'q.s', 'q.ts', 'q.b', 'q.f', '1'])}"
    if kind == "nested":
        inner = f"SELECT q.a AS a, q.b AS b, q.s AS s FROM {source}{w.where(['q'])}{order}{limit}"
        if w.chance(2):
            return f"{w.select(op, 'COUNT(*) AS n, MAX(i.a) AS m')} FROM ({inner}) AS i"
        return f"{w.select(op, 'i.a AS c0, i.s AS c1')} FROM ({inner}) AS i WHERE i.b > 0"
    return f"{w.select(op, w.items(['q']))} FROM {source}{w.where(['q'])}{order}{limit}"
