"""Random queries over TUMBLE, HOP, CUMULATE and SESSION, and with the bounds of windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow.testing.random_queries import Writer

STREAMS = ("S", "T", "U")


def window_call(w: Writer, alias: str, period: int, offset: int = 0, session: bool = False) -> str:
    """A window function over a stream; all calls of a query have one slide and one offset."""
    name, shift = w.pick(*STREAMS), f", {w.time(offset)}" if offset else ""
    if session:
        call = f"SESSION({name}{w.pick('', ' PARTITION BY a', ' PARTITION BY a, s')}, ts, {w.time(period)})"
    elif w.chance(2):
        call = f"TUMBLE({name}, ts, {w.time(period)}{shift})"
    elif w.chance(3):
        call = f"CUMULATE({name}, ts, {w.time(period)}, {w.time(period * w.pick(1, 2, 3))}{shift})"
    else:
        size = w.pick(period, 2 * period, w.number(1, 9))
        call = f"HOP({name}, ts, {w.time(period)}, {w.time(size)}{shift})"
    if w.chance(4):
        call = f"TABLE({call.replace('(', '(TABLE ', 1).replace(' ts,', ' DESCRIPTOR(ts),')})"
    return f"{call} {w.pick('AS ', '')}{alias}"


def window_function(w: Writer, session: bool = False) -> str:
    """Windows of the SQL standard: values, groups, subqueries, joins within equal windows, tables."""
    period, offset = w.period(), w.pick(0, 0, 0, 1, 2)
    op = "" if session else w.operator()
    source = window_call(w, "q", period, offset, session)
    bounds = w.pick("", ", q.window_end AS e", ", q.window_start AS f, q.window_end AS e")
    kind = w.pick("values", "grouped", "grouped", "grouped", "nested", "join", "distinct", "table")
    if kind == "grouped":
        items, clauses = w.grouped(["q"])
        return f"{w.select(op, items + bounds)} FROM {source}{w.where(['q'])}{_by_window(w, clauses, bounds)}"
    if kind == "nested":
        inner = f"SELECT q.a AS a, COUNT(*) AS n, MAX(q.x) AS m{bounds} FROM {source}{w.where(['q'])}"
        inner += f" GROUP BY q.a{', q.window_start, q.window_end' if bounds else ''}"
        if w.chance(2) and not session:
            return f"{w.select(op, 'MAX(i.n) AS c0, COUNT(*) AS c1')} FROM ({inner}) AS i"
        return f"{w.select(op, 'i.*')} FROM ({inner}) AS i WHERE i.n > 1"
    if kind == "join":
        other = window_call(w, "r", period, offset, session)
        on = "q.a = r.a AND q.window_end = r.window_end" if w.chance(2) else "q.a = r.a"
        items = f"q.a AS c0, q.x AS c1, r.b AS c2{bounds}"
        return f"{w.select(op, items)} FROM {source} JOIN {other} ON {on}{w.where(['q'])}"
    if kind == "table":
        return f"{w.select(op, f'q.a AS c0, p.v AS c1{bounds}')} FROM {source}, P AS p WHERE q.a = p.k"
    return f"{w.select(op, w.items(['q']) + bounds, kind == 'distinct')} FROM {source}{w.where(['q'])}"


def _by_window(w: Writer, clauses: str, bounds: str) -> str:
    """The clauses with the window among the keys, where it must be and sometimes where it need not."""
    if not bounds and not w.chance(3):
        return clauses
    keys, having, condition = clauses.removeprefix(" GROUP BY").partition(" HAVING")
    listed = f"q.window_start, q.window_end{',' if keys.strip() else ''}{keys}"
    return f" GROUP BY {listed}{having}{condition}"


def window_bounds(w: Writer) -> str:
    """window_start and window_end of a periodic query, in select lists, groups and conditions."""
    op = w.operator()
    source = w.stream(f"[RANGE {w.time(w.number(1, 9))} SLIDE {w.time(w.period())}]", "q")
    bound = w.pick("window_end", "window_start")
    kind = w.pick("values", "global", "grouped", "where")
    if kind == "global":
        return f"{w.select(op, f'{bound} AS e, COUNT(*) AS n, SUM(q.a) AS t')} FROM {source}"
    if kind == "grouped":
        keys = w.pick("q.a, window_start, window_end", "window_end", "window_end, q.s")
        items = f"{bound} AS e, COUNT(*) AS n, MAX(q.x) AS m"
        return f"{w.select(op, items)} FROM {source} GROUP BY {keys}, {bound}"
    if kind == "where":
        items = w.pick(f"q.a AS c0, q.ts = {bound} AS c1", "q.a AS c0")
        return f"{w.select(op, items)} FROM {source} WHERE q.ts {w.pick('<', '>=')} window_end"
    return f"{w.select(op, w.items(['q']) + f', {bound} AS e')} FROM {source}{w.where(['q'])}"
