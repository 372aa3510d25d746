"""ORDER BY, LIMIT, OFFSET and FETCH: the first rows of an answer, as a relation that changes.

Which rows are first is decided by the sort keys and, where they tie, by the values of the select list, so an answer
depends on the rows alone. ORDER BY without LIMIT orders nothing that is kept: a relation has no order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from windrow.cql.scope import Scope, resolve, span_of
from windrow.errors import BindingError, UnsupportedError
from windrow.operators.terms import SortKey
from windrow.plan.nodes import Node, TopN

if TYPE_CHECKING:
    from windrow.cql.select import Binder

_ALL = 1 << 62
"""As many rows as there can be: a larger LIMIT shows them all, too."""


@dataclass(frozen=True)
class Limit:
    """How many rows, after how many; `ties`: and those that rank with the last."""

    count: int
    offset: int = 0
    ties: bool = False


def limit_of(tree: exp.Expr, binder: Binder) -> Limit | None:
    """The LIMIT, OFFSET and FETCH of a query; None if it has no bound."""
    limit, offset = tree.args.get("limit"), tree.args.get("offset")
    if isinstance(limit, exp.Fetch):
        options = limit.args.get("limit_options")
        ties = bool(options is not None and options.args.get("with_ties"))
        count = _count(limit.args.get("count") or exp.Literal.number(1), "FETCH", binder)
    elif limit is not None:
        ties, count = False, _count(limit.expression, "LIMIT", binder)
    elif offset is not None:
        raise UnsupportedError(
            "OFFSET without LIMIT",
            hint="write LIMIT 10 OFFSET 5",
            span=span_of(offset, binder.context.source),
        )
    else:
        return None
    if not count:
        raise BindingError(
            "LIMIT 0 shows nothing", hint="write LIMIT 1 or more", span=span_of(limit, binder.context.source)
        )
    skipped = _count(offset.expression, "OFFSET", binder) if offset is not None else 0
    return Limit(count, skipped, ties)


def _count(tree: exp.Expr, clause: str, binder: Binder) -> int:
    if isinstance(tree, exp.Literal) and not tree.is_string and tree.name.isdigit():
        return min(int(tree.name), _ALL)
    raise BindingError(
        f"{clause} needs a whole number of rows",
        hint=f"write {clause} 10",
        span=span_of(tree, binder.context.source),
    )


def order_of(tree: exp.Expr) -> list[exp.Ordered]:
    """The terms of ORDER BY, as written."""
    order = tree.args.get("order")
    return list(order.expressions) if order is not None else []


def ordinal(term: exp.Ordered, count: int, binder: Binder) -> int | None:
    """The place in the select list that a term names by its number."""
    value = term.this
    if not isinstance(value, exp.Literal) or value.is_string:
        return None
    place = int(value.name) if value.name.isdigit() else 0
    if not 1 <= place <= count:
        raise BindingError(
            f"ORDER BY {value.name}: the select list has {count} items",
            hint="count from 1",
            span=span_of(term, binder.context.source),
        )
    return place - 1


def term_tree(
    term: exp.Ordered, items: list[tuple[str, exp.Expr]], aliases: dict[str, exp.Expr], scope: Scope, binder: Binder
) -> exp.Expr:
    """What a term sorts by: an item by its number or by its own name, or an expression over FROM."""
    place = ordinal(term, len(items), binder)
    if place is not None:
        return items[place][1]
    name = term.this.name.lower() if isinstance(term.this, exp.Column) and not term.this.table else ""
    return aliases[name] if name in aliases else resolve(term.this, scope, over=True)


def sort_key(term: exp.Ordered, column: str) -> SortKey:
    """A term over a column."""
    return SortKey(column, bool(term.args.get("desc")), bool(term.args.get("nulls_first")))


def first_rows(
    node: Node, order: list[SortKey], ties: tuple[str, ...], limit: Limit, partition: tuple[str, ...] = ()
) -> Node:
    """The rows that a limit leaves."""
    kind = "rank" if limit.ties else "row_number"
    return TopN(node, partition, tuple(order), ties, limit.count, limit.offset, kind)


def check_order(tree: exp.Expr, binder: Binder, top: bool) -> None:
    """Refuse ORDER BY without LIMIT where somebody would expect an order."""
    order = tree.args.get("order")
    if top and order is not None and limit_of(tree, binder) is None:
        raise UnsupportedError(
            "ORDER BY without LIMIT",
            detail="the answer of a query is a relation that changes: its rows have no order",
            hint="add LIMIT 10 for the first ten, or sort the answer where it is read",
            span=span_of(order, binder.context.source),
        )
