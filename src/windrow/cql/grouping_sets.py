"""ROLLUP, CUBE and GROUPING SETS: the sets of keys that one GROUP BY asks for.

Each set is an aggregate of its own over the same rows; the answer is their union, with nulls for the keys that a set
does not have. Elements of GROUP BY multiply: `a, ROLLUP (b, c)` is `(a, b, c)`, `(a, b)` and `(a)`.
"""

from __future__ import annotations

import math
from itertools import combinations, product

from sqlglot import exp

SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)
MOST = 64
"""More sets than anybody writes; CUBE doubles them with every key."""

Keys = tuple[exp.Expr, ...]


def has_sets(group: exp.Group) -> bool:
    """Whether a GROUP BY asks for several sets of keys."""
    return any(isinstance(e, SETS) for e in group.expressions)


def sets_of(group: exp.Group) -> list[Keys]:
    """The sets of keys, as written.

    >>> from sqlglot import parse_one
    >>> sets = sets_of(parse_one("SELECT 1 FROM s GROUP BY a, ROLLUP (b, c)", dialect="duckdb").args["group"])
    >>> [[k.sql() for k in keys] for keys in sets]
    [['a', 'b', 'c'], ['a', 'b'], ['a']]
    """
    return [sum(parts, ()) for parts in product(*(_choices(e) for e in group.expressions))]


def count_of(group: exp.Group) -> int:
    """How many sets of keys there are: CUBE doubles them with every key, so they are counted before they are made."""
    return math.prod(map(_count, group.expressions))


def _count(element: exp.Expr) -> int:
    if isinstance(element, exp.GroupingSets):
        return sum(map(_count, element.expressions))
    if isinstance(element, exp.Rollup):
        return len(element.expressions) + 1
    return 1 << len(element.expressions) if isinstance(element, exp.Cube) else 1


def _choices(element: exp.Expr) -> list[Keys]:
    if isinstance(element, exp.GroupingSets):
        return [keys for e in element.expressions for keys in _choices(e)]
    members = [_members(e) for e in element.expressions] if isinstance(element, SETS) else []
    if isinstance(element, exp.Rollup):
        return [sum(members[:n], ()) for n in range(len(members), -1, -1)]
    if isinstance(element, exp.Cube):
        sizes = range(len(members), -1, -1)
        return [sum(chosen, ()) for n in sizes for chosen in combinations(members, n)]
    return [_members(element)]


def _members(element: exp.Expr) -> Keys:
    """The keys of a parenthesis, or the one that stands alone."""
    if isinstance(element, exp.Tuple):
        return tuple(element.expressions)
    return (element.this,) if isinstance(element, exp.Paren) else (element,)
