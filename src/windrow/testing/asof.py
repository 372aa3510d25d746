"""ASOF JOIN by its definition: for each left row the first of the right rows that satisfy the condition, newest first.

Rows of one value are ordered by arrival where a stream's times are compared with a stream's times or a count window
numbers its rows, else by their time and their columns; the last of them is meant.
"""

from __future__ import annotations

from collections.abc import Sequence

from windrow.testing.blocks import FromItem, quote
from windrow.testing.tokens import Tokens, render, top_level

_INEQUALITIES = (">=", ">", "<=", "<")


def asof_sql(source: FromItem, rows: str, on: str, conjuncts: Sequence[Tokens], sources: Sequence[FromItem]) -> str:
    """The right side of an ASOF JOIN as a lateral subquery; `rows`: its contents, with `__seq`, under its alias."""
    mine, other = _sides(source, conjuncts)
    name = quote(source.alias)
    columns = ", ".join(f"{name}.{quote(c)}" for c in source.columns)
    bounds = "".join(f", {name}.{b.split()[-1]}" for b in source.bounds.split(", ") if b)
    times = {f"{s.alias}.{s.time}".lower() for s in sources if s.stream and s.time}
    plain = f"{source.alias}.{source.time}".lower() == _text(mine) and (_text(other) in times)
    if plain or source.window.rows is not None:
        ties = ["__seq DESC"]
    else:
        own = [source.time] if source.time else []
        ties = [f"{name}.{quote(c)} DESC NULLS FIRST" for c in (*own, *source.columns)]
    order = ", ".join([f"({render(mine)}) DESC NULLS LAST", *ties])
    return f"LATERAL (SELECT {columns}{bounds} FROM {rows} WHERE {on} ORDER BY {order} LIMIT 1) AS {name} ON TRUE"


def _text(tokens: Tokens) -> str:
    return "".join(t.text for t in tokens).replace('"', "").lower()


def _sides(source: FromItem, conjuncts: Sequence[Tokens]) -> tuple[Tokens, Tokens]:
    """The two values of the inequality: that of the source, and the other."""
    for part in conjuncts:
        at = next((i for i in top_level(part) if part[i].text in _INEQUALITIES), None)
        if at is not None:
            left, right = part[:at], part[at + 1 :]
            ours = any(t.name == source.alias.lower() for t in right)
            return (right, left) if ours else (left, right)
    raise ValueError("an ASOF JOIN without an inequality")
