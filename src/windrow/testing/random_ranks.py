"""Random queries that look at the order of rows: ORDER BY with LIMIT, and functions OVER a partition."""

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


def over(w: Writer) -> str:
    """Functions over partitions of a selection, a join or a grouping, with QUALIFY, bounded ranks and frames."""
    op, period = w.operator(), w.block_period()
    kind = w.pick("values", "values", "values", "qualify", "qualify", "ranked", "grouped", "join", "tumble", "counted")
    source = w.stream(w.windows(1, period)[0], "q") if kind != "tumble" else f"TUMBLE(S, ts, {w.time(w.period())}) q"
    if kind == "grouped":
        order = sort_terms(w, ["COUNT(*)", "MAX(q.b)", "q.a"])
        call = w.pick("RANK()", "ROW_NUMBER()", "LAG(COUNT(*))", "SUM(COUNT(*))", "MAX(MAX(q.b))")
        items = f"q.a AS g, COUNT(*) AS n, {call} OVER ({w.pick('', 'PARTITION BY MAX(q.f) ')}ORDER BY {order}) AS r"
        qualify = w.pick("", f" QUALIFY {call} OVER (ORDER BY {order}) > 1")
        return f"{w.select(op, items)} FROM {source} GROUP BY q.a{qualify}"
    if kind == "join":
        aliases, text, conditions = w.joined(period, parts=2)
        items = f"{w.items(aliases)}, {_call(w, 'l', 'r')} AS r"
        return f"{w.select(op, items)} FROM {text}{w.where(aliases, *conditions)}"
    rank = f"{w.pick('ROW_NUMBER', 'RANK', 'DENSE_RANK')}() OVER ({_window(w, 'q')})"
    bound = w.pick("<= 2", "= 1", "= 2", "< 3", "BETWEEN 2 AND 3", "<= 2 OR q.f", "> 1")
    if kind == "qualify":
        items = f"q.a AS c0, q.s AS c1{w.pick('', f', {rank} AS r')}"
        return f"{w.select(op, items)} FROM {source}{w.where(['q'])} QUALIFY {rank} {bound}"
    if kind == "ranked":
        inner = f"SELECT q.a AS a, q.x AS x, q.f AS f, {rank} AS r FROM {source}{w.where(['q'])}"
        items = w.pick("q.a AS c0, q.x AS c1", "q.a AS c0, q.x AS c1, q.r AS c2", "COUNT(*) AS n, MAX(q.x) AS m")
        return f"{w.select(op, items)} FROM ({inner}) AS q WHERE q.r {bound}"
    if kind == "counted":
        inner = f"SELECT q.a AS a, {_call(w, 'q', 'q')} AS r FROM {source}{w.where(['q'])}"
        return f"{w.select(op, 'q.a AS c0, COUNT(q.r) AS n')} FROM ({inner}) AS q GROUP BY q.a"
    calls = f"{_call(w, 'q', 'q')} AS r"
    if w.chance(3):  # one window: equal rows are numbered alike by functions that share it
        window = _window(w, "q")
        calls = f"LAG(q.b) OVER ({window}) AS r, ROW_NUMBER() OVER ({window}) AS n, SUM(q.a) OVER ({window}) AS t"
    return f"{w.select(op, w.items(['q']) + ', ' + calls)} FROM {source}{w.where(['q'])}"


def _window(w: Writer, alias: str, frames: bool = False) -> str:
    """A partition, an order and perhaps a frame."""
    partition = w.pick(
        "", f"PARTITION BY {alias}.a ", f"PARTITION BY {alias}.a, {alias}.f ", f"PARTITION BY {alias}.s "
    )
    terms = sort_terms(w, [f"{alias}.{c}" for c in ("a", "x", "s", "ts", "b", "f")])
    if not frames:
        return f"{partition}ORDER BY {terms}"
    frame = w.pick(
        "", "", "ROWS 1 PRECEDING", "ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING",
        "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
        "RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING", "GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW",
        "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW",
    )  # fmt: skip
    ordered = frame.startswith("GROUPS") or not w.chance(3)
    return f"{partition}{f'ORDER BY {terms} ' if ordered else ''}{frame}"


def _call(w: Writer, alias: str, other: str) -> str:
    """A function OVER something of a source."""
    value = w.pick(f"{other}.b", f"{other}.x", f"{other}.s", f"{other}.a + 1", f"{other}.ts")
    if w.chance(2):
        call = w.pick(
            "ROW_NUMBER()", "RANK()", "DENSE_RANK()", "PERCENT_RANK()", "CUME_DIST()", "NTILE(2)", f"LAG({value})",
            f"LEAD({value}, 2)", f"LAG({other}.a, 1, -1)",
        )  # fmt: skip
        return f"{call} OVER ({_window(w, alias)})"
    number = w.pick(f"{other}.a", f"{other}.{w.measure}") if not w.extremes else f"{other}.a"
    call = w.pick(
        f"FIRST_VALUE({value})", f"LAST_VALUE({value})", f"NTH_VALUE({value}, 2)", f"SUM({number})", f"AVG({number})",
        f"COUNT({value})", "COUNT(*)", f"MIN({value})", f"MAX({value})", f"SUM({other}.a) FILTER (WHERE {other}.f)",
    )  # fmt: skip
    return f"{call} OVER ({_window(w, alias, frames=True)})"
