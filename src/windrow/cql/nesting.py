"""How deep a query may nest, and trees in the one shape that the binder sees.

Methods are functions, tables that a WITH names know its query, and ANDs and ORs are balanced.

The parser, the binder and the optimizer recurse into parentheses and subqueries, with up to 25 Python frames a level,
and Python stops at 1,000. So `DEPTH` levels are allowed, wherever the caller's own stack stands, and more are refused
with their place. Chains are not nesting: operators in a row are walked, and the depth of ANDs and ORs is the logarithm
of their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from windrow.cql.source import ScriptText
from windrow.cql.walks import find_all, has, nodes, preorder
from windrow.errors import Span, UnsupportedError

DEPTH = 30
CHAIN = 200
"""Operators in a row. DuckDB plans a row of 500 for seconds, and ends at 1,000."""
PLAN = 150
"""Operators of a plan above each other."""
FILTERS = 64
"""Conditions of one WHERE that are filters of their own; more are taken together."""
_OPEN = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE)
_CLOSE = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END)
_SETS = (exp.SetOperation, exp.Union, exp.Except, exp.Intersect)
_COMMON = "common table"  # meta key: the CommonTable
_PREFIX = (TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE)

Q = TypeVar("Q", bound=exp.Expr)


def too_deep(span: Span | None) -> UnsupportedError:
    """The error for a query that nests deeper than `DEPTH`."""
    return UnsupportedError(
        f"more than {DEPTH} levels of nesting",
        detail="parentheses, brackets, CASE and subqueries each count as a level",
        hint="write it flatter; a condition on many values is a IN (1, 2, 3)",
        span=span,
    )


def too_long(span: Span | None) -> UnsupportedError:
    """The error for a chain of operators that DuckDB would plan for too long."""
    return UnsupportedError(
        f"more than {CHAIN} operators in a row",
        hint="compute parts of it in a subquery; a sum of many values is list_sum([a, b, c])",
        span=span,
    )


def check_chains(tree: exp.Expr, source: ScriptText) -> None:
    """Refuse chains of operators, casts, calls or set operations that are too long; ANDs and ORs may be."""
    lengths: dict[int, int] = {}
    for node in reversed(preorder(tree)):  # what hangs from a node comes before it
        below = node.args.get("this")
        length = 1 + (lengths[id(below)] if isinstance(below, exp.Expr) else 0)
        if isinstance(node, exp.Anonymous) and node.expressions:  # a method's value is its first argument
            length = 1 + lengths[id(node.expressions[0])]
        lengths[id(node)] = length
        if isinstance(node, exp.SetOperation) and length > DEPTH:
            raise too_deep(_place(node, source))
        if length > CHAIN:
            raise too_long(_place(node, source))


def _place(tree: exp.Expr, source: ScriptText) -> Span:
    return source.span(min((int(n.meta["start"]) for n in tree.walk() if "start" in n.meta), default=0))


def taken_together(conditions: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Conditions in the same order, ANDed so that no more than `FILTERS` are left."""
    size = -(-len(conditions) // FILTERS)
    groups = [list(conditions[i : i + size]) for i in range(0, len(conditions), size)] if size else []
    return [exp.Paren(this=_paired(exp.And, g)) if len(g) > 1 else g[0] for g in groups]


def check_nesting(tokens: Sequence[Token], source: ScriptText) -> None:
    """Refuse tokens that open more than `DEPTH` levels."""
    there = [token.token_type for token in tokens]
    if sum(map(there.count, (*_OPEN, *_PREFIX))) <= DEPTH:
        return
    depth = signs = 0
    for token in tokens:
        signs = signs + 1 if token.token_type in _PREFIX else 0
        depth += (token.token_type in _OPEN) - (token.token_type in _CLOSE)
        if depth + signs > DEPTH:
            raise too_deep(source.span(int(token.start)))


def normalised(tree: Q, source: ScriptText) -> Q:
    """The tree with methods as functions, `x.f(y)` as `f(x, y)`, with tables of WITH and with balanced ANDs and ORs."""
    levels: dict[int, int] = {}
    found = nodes(tree)
    there = {type(node) for node in found}
    for with_ in list(tree.find_all(exp.With)) if exp.With in there else ():
        for cte in with_.expressions:
            read = [_find_common_table(t) for t in cte.find_all(exp.Table)]
            levels[id(cte.this)] = 1 + max((levels.get(id(r), 0) for r in read), default=0)
            if levels[id(cte.this)] > DEPTH:
                raise too_deep(_place(cte, source))
    for table in tree.find_all(exp.Table) if exp.With in there else ():
        _find_common_table(table)
    for dot in reversed(list(tree.find_all(exp.Dot))) if exp.Dot in there else ():
        if isinstance(dot.expression, exp.Anonymous):
            _method(dot)
    for kind in (k for k in (exp.And, exp.Or) if k in there):
        for top in find_all(tree, kind):
            if not isinstance(top.parent, kind):
                _balance(top, kind)
    if len(found) > CHAIN or not there.isdisjoint(_SETS):  # of fewer nodes there is no chain that long
        check_chains(tree, source)
    return tree


class CommonTable:
    """A query of WITH, where it is read. Copies of a tree share it, or each copy would copy all that it reads."""

    def __init__(self, query: exp.Expr) -> None:
        self.query = query

    def __deepcopy__(self, memo: object) -> CommonTable:
        return self


def common_table(source: exp.Expr) -> exp.Expr | None:
    """The query that WITH gives to the name of a table."""
    found = source.meta.get(_COMMON) if isinstance(source, exp.Table) else None
    return found.query if found is not None else None


def link_common_tables(tree: exp.Expr) -> None:
    """Let every name that WITH gives mean the query as it is now: rewriting one puts another in its place."""
    if has(tree, exp.With):
        for table in find_all(tree, exp.Table):
            _find_common_table(table)


def put_common_table(table: exp.Table, found: CommonTable) -> None:
    """Give the name of a table a query."""
    table.meta[_COMMON] = found


def _find_common_table(table: exp.Table) -> exp.Expr | None:
    """A query of WITH sees those that stand before it, the query below sees all, and the nearest one counts."""
    node: exp.Expr = table
    while (above := node.parent) is not None:
        if isinstance(above, exp.With):
            visible = above.expressions[: node.index]
        else:
            with_ = above.args.get("with_")
            visible = with_.expressions if with_ is not None and with_ is not node else []
        for cte in reversed(visible):
            if cte.alias.lower() == table.name.lower() and not table.args.get("db"):
                table.meta[_COMMON] = CommonTable(cte.this)
                return cte.this
        node = above
    return None


def _method(dot: exp.Dot) -> None:
    call = dot.expression
    call.set("expressions", [_value(dot.this), *call.expressions])
    dot.replace(call)


def _value(tree: exp.Expr) -> exp.Expr:
    """What stands before a method: names are a column, unless they are the parameter of a lambda."""
    parts = []
    node = tree
    while isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        parts.append(node.expression)
        node = node.this
    if not isinstance(node, exp.Identifier) or _is_parameter(node):
        return tree
    names = [node, *reversed(parts)]
    column = exp.Column(
        **dict(zip(("this", "table", "db", "catalog"), (p.copy() for p in reversed(names)), strict=False))
    )
    if "start" in node.meta:
        column.meta["start"] = node.meta["start"]
    return column


def _is_parameter(name: exp.Identifier) -> bool:
    above = name.parent
    while above is not None:
        if isinstance(above, exp.Lambda) and any(p.name.lower() == name.name.lower() for p in above.expressions):
            return True
        above = above.parent
    return False


def _balance(top: exp.Connector, kind: type[exp.Connector]) -> None:
    operands: list[exp.Expr] = []
    stack: list[exp.Expr] = [top]
    while stack:
        node = stack.pop()
        if type(node) is kind:
            stack += [node.expression, node.this]
        else:
            operands.append(node)
    if len(operands) > 3:
        half = len(operands) // 2
        top.set("this", _paired(kind, operands[:half]))
        top.set("expression", _paired(kind, operands[half:]))


def _paired(kind: type[exp.Connector], operands: list[exp.Expr]) -> exp.Expr:
    """The operands in a balanced tree."""
    while len(operands) > 1:
        paired: list[exp.Expr] = [
            kind(this=a, expression=b) for a, b in zip(operands[::2], operands[1::2], strict=False)
        ]
        operands = paired + operands[len(paired) * 2 :]
    return operands[0]
