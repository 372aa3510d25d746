"""What is rewritten in a query before anything is bound: forms of SQL as others, in this order.

Each rewrite names what it looks for: kinds of nodes, and functions that are called. A tree that has none of it is as it
was, so the rewrite is left out; one that was rewritten is looked at again.

Cost: a walk, and one more for each rewrite that has something to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlglot import exp

from windrow.cql import forms, group_windows, proctime, temporal_filters, wstream
from windrow.cql.decorrelate import decorrelate
from windrow.cql.expressions import find_aggregate
from windrow.cql.nesting import common_table, link_common_tables
from windrow.cql.pivots import expand_pivots
from windrow.cql.sampled import expand_samples
from windrow.cql.sampled_syntax import MARK
from windrow.cql.spellings import first_of_each
from windrow.cql.walks import calls, kinds_of, nodes
from windrow.cql.windowed_selects import push_windows

if TYPE_CHECKING:
    from windrow.cql.select import Binder

Wanted = frozenset[type | str]
"""Kinds of nodes, and names of functions."""


def _decorrelate(tree: exp.Expr, binder: Binder) -> None:
    decorrelate(tree, lambda item: find_aggregate(item, binder.catalog) is not None)


_REWRITES: tuple[tuple[Wanted, Callable[[exp.Expr, Binder], exp.Expr | None]], ...] = (
    (wstream.WANTED, lambda tree, binder: wstream.expand_all(tree, binder.context.source)),
    (forms.WANTED, lambda tree, _: forms.respell_forms(tree)),
    (frozenset({exp.Pivot}), lambda tree, binder: expand_pivots(tree, binder.catalog)),
    (frozenset({exp.Subquery, exp.Lateral}), _decorrelate),
    (frozenset({exp.With}), lambda tree, _: link_common_tables(tree)),
    (frozenset({exp.Distinct}), lambda tree, _: first_of_each(tree)),
    (proctime.WANTED, lambda tree, binder: proctime.place_proctime(tree, binder.catalog, binder.context.source)),
    (proctime.CLOCKS, temporal_filters.place_temporal_filters),
    (frozenset({exp.Subquery, exp.With}), lambda tree, binder: push_windows(tree, binder.catalog)),
    (frozenset({MARK}), expand_samples),
    (group_windows.WANTED, group_windows.expand_group_windows),
    (frozenset({exp.With}), lambda tree, _: link_common_tables(tree)),
)


def rewritten(tree: exp.Expr, binder: Binder) -> exp.Expr:
    """The query in the forms that are bound; the binder is told what is there in it."""
    there = _there(tree)
    for wanted, rewrite in _REWRITES:
        if not wanted.isdisjoint(there):
            tree = rewrite(tree, binder) or tree
            there = _there(tree)
    binder.there = there
    return tree


def _there(tree: exp.Expr) -> set[type | str]:
    """The kinds of nodes in a tree, and the functions that are called; a table that WITH names counts for one."""
    found = nodes(tree)
    there: set[type | str] = {*kinds_of(found), *calls(found)}
    if any(common_table(node) is not None for node in found if type(node) is exp.Table):
        there.add(exp.With)
    return there
