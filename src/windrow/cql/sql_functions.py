"""Functions in SQL: an expression over parameters, which stands in the place of every call before a query is bound.

    CREATE FUNCTION spread(bid DOUBLE, ask DOUBLE) AS (ask - bid) / ask;
    CREATE FUNCTION spread(bid DOUBLE, ask DOUBLE) RETURNS DOUBLE LANGUAGE SQL AS $$SELECT (ask - bid) / ask$$;
    SELECT spread(b, a) FROM quote     ->     SELECT (CAST(a AS DOUBLE) - CAST(b AS DOUBLE)) / CAST(a AS DOUBLE) ...

Law: the plan is that of the text with the expression in place, so everything that may stand there may stand in a
function, aggregates too, and nothing else. An argument is cast to the type of its parameter, or is what it is where the
parameter has none. Functions may call others that exist; so none calls itself. `NODES` bounds what a text grows to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp
from sqlglot.errors import TokenError

from windrow.catalog import Catalog, SqlFunctionDef
from windrow.cql import types
from windrow.cql.ddl import type_text
from windrow.cql.dialect import TEXT, StreamItems, parse_query, parse_type, tokenize
from windrow.cql.nesting import check_chains
from windrow.cql.scope import did_you_mean, span_of
from windrow.cql.source import Cursor, ScriptText
from windrow.cql.type_names import UnknownType, type_name
from windrow.errors import BindingError, Span, UnsupportedError

NODES = 20_000
"""Parts of a query that calls functions, once their expressions stand in the place of the calls."""
LEVELS = 60
"""Expressions inside each other, once they stand there: each is a frame or more in every pass over the tree."""
_FORM = "write CREATE FUNCTION f(a BIGINT, b BIGINT) AS a + b"
_HEAD = "SELECT "
_SELECT = re.compile(r"^\s*SELECT\b|[\s;]+$", re.IGNORECASE)


@dataclass(frozen=True)
class FunctionSyntax:
    """A function as written: parameters with the texts of their types, and the text of the expression."""

    name: str
    parameters: tuple[tuple[str, str | None], ...]
    returns: str | None
    body: str


def parse_function(cursor: Cursor) -> FunctionSyntax:
    """Parse what follows CREATE FUNCTION."""
    name = cursor.name("the name of the function", hint=_FORM)
    cursor.expect("(", hint=_FORM)
    parameters: list[tuple[str, str | None]] = []
    while not cursor.accept(")"):
        parameter = cursor.name("a parameter", hint=_FORM)
        typed = cursor.word not in (",", ")")
        parameters.append((parameter, type_text(cursor, parameter)[0] if typed else None))
        if not cursor.accept(","):
            cursor.expect(")", hint=_FORM)
            break
    returns = None
    if cursor.accept("RETURNS"):
        begin = end = cursor.offset
        while cursor.current is not None and cursor.word not in ("AS", "LANGUAGE"):
            end = int(cursor.take().end) + 1
        returns = cursor.source.text[begin:end]
    _accept_language(cursor)
    cursor.expect("AS", hint=_FORM)
    if cursor.current is None:
        raise cursor.unexpected("an expression", hint=_FORM)
    body = cursor.source.text[cursor.offset : int(cursor.tokens[cursor.end - 1].end) + 1]
    if cursor.kind == "HEREDOC_STRING":  # $$SELECT a + b$$, as PostgreSQL has them
        body = _SELECT.sub("", cursor.take().text)
        _accept_language(cursor)
        if cursor.current is not None:
            raise cursor.unexpected("the end of the function", hint=_FORM)
    return FunctionSyntax(name, tuple(parameters), returns, body)


def _accept_language(cursor: Cursor) -> None:
    if cursor.accept("LANGUAGE") and not cursor.accept("SQL"):
        raise cursor.unexpected("SQL", hint="a function in another language is registered with windrow.function")


def bind_function(syntax: FunctionSyntax, text: str, catalog: Catalog) -> SqlFunctionDef:
    """The definition of a function, checked as far as it can be without a call."""
    if syntax.name.lower() in catalog.functions or types.functions().get(syntax.name.lower()) is not None:
        raise BindingError(f'"{syntax.name}" is a function already', hint="choose another name")
    named = [n.lower() for n, _ in syntax.parameters]
    if len(set(named)) < len(named):
        raise BindingError(f'the parameters of "{syntax.name}" have one name twice', hint="choose another name")
    given = {n: None if t is None else _type(t) for n, t in syntax.parameters}
    body = syntax.body if syntax.returns is None else f"CAST({syntax.body} AS {_type(syntax.returns)})"
    tree = expression(body)
    _check_body(tree, syntax.name, named)
    calls = _calls(tree, catalog)
    return SqlFunctionDef(syntax.name, given, body, text, calls)


def _type(text: str) -> str:
    tree = parse_type(text)
    try:
        if tree is not None:
            name = type_name(tree)
            types.kept_type(name)
            return name
    except (UnknownType, types.DuckDBRefusal):  # DECIMAL(99), for one
        pass
    raise BindingError(f'unknown type "{text}"', hint="write a SQL type: BIGINT")


@lru_cache(maxsize=1024)
def expression(body: str) -> exp.Expr:
    """The tree of an expression; whoever wants to change it copies it."""
    text = _HEAD + body
    try:
        tokens = tokenize(text)
    except TokenError:
        raise BindingError("the text of a function is not closed", hint=_FORM) from None
    query = parse_query(ScriptText(text), tokens)
    items = query.expressions
    others = [k for k, v in query.args.items() if v and k not in ("expressions", "kind")]
    if not isinstance(query, exp.Select) or len(items) != 1 or others or isinstance(items[0], exp.Alias | StreamItems):
        raise BindingError("a function is one expression", hint=_FORM)
    found: exp.Expr = items[0]
    return found


def _check_body(tree: exp.Expr, name: str, parameters: list[str]) -> None:
    if tree.find(exp.Query) is not None:
        raise UnsupportedError("a subquery in a function", hint="a function computes from its parameters")
    inside = {p.name.lower() for node in tree.find_all(exp.Lambda) for p in node.expressions}
    if taken := inside & set(parameters):
        raise BindingError(f'"{min(taken)}" is a parameter of "{name}" and of a lambda in it', hint="rename one")
    for column in tree.find_all(exp.Column):
        if isinstance(column.this, exp.Star):
            raise BindingError(f'* in the function "{name}"', hint="name its parameters")
        if column.table or column.name.lower() not in parameters:
            written = ".".join(p.name for p in column.parts)
            hint = did_you_mean(written, parameters) or f"its parameters are {', '.join(parameters) or 'none'}"
            raise BindingError(f'"{written}" is no parameter of "{name}"', hint=hint)
    for call in tree.find_all(exp.Anonymous):
        if call.name.lower() == name.lower():
            raise BindingError(f'"{name}" calls itself')


def _calls(tree: exp.Expr, catalog: Catalog) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for call in tree.find_all(exp.Anonymous):
        if (function := catalog.macros.get(call.name.lower())) is not None:
            found |= dict.fromkeys((*function.calls, function.name.lower()))
    return tuple(found)


def inlined(tree: exp.Expr, catalog: Catalog, source: ScriptText) -> tuple[str, ...]:
    """Put expressions in the place of calls, in the tree itself; the functions that are called, at any depth."""
    called = _calls(tree, catalog) if catalog.macros else ()
    if not called:
        return ()
    _name_items(tree, catalog.macros)
    calls = [c for c in tree.find_all(exp.Anonymous) if c.name.lower() in catalog.macros]
    size = sum(1 for _ in tree.walk())
    while calls:
        call = calls.pop()  # the innermost of those above each other is the last that was found
        put = in_place(call, catalog.macros[call.name.lower()], source)
        size += sum(1 for _ in put.walk())
        if size > NODES:
            raise UnsupportedError(
                f"a query of more than {NODES:,} parts once its functions are written out",
                hint="compute parts of it in a subquery",
                span=span_of(call, source),
            )
        calls += [c for c in put.find_all(exp.Anonymous) if c.name.lower() in catalog.macros]
        call.replace(put)
    check_chains(tree, source)
    _check_levels(tree, source)
    return called


def _name_items(tree: exp.Expr, macros: Mapping[str, SqlFunctionDef]) -> None:
    """Items of select lists that have no name are called what was written."""
    for select in tree.find_all(exp.Select):
        first = select.expressions[0] if select.expressions else None
        holder = first if isinstance(first, StreamItems) else select
        for item in list(holder.expressions):
            calls = item.find_all(exp.Anonymous)
            if not isinstance(item, exp.Alias) and any(c.name.lower() in macros for c in calls):
                written = " ".join(str(item.meta.get(TEXT, "")).split()).lower()
                item.replace(exp.alias_(item.copy(), written, quoted=True))


def in_place(call: exp.Anonymous, function: SqlFunctionDef, source: ScriptText) -> exp.Expr:
    """The expression of a function with the arguments of a call."""
    span, given = span_of(call, source), call.expressions
    if isinstance(call.parent, exp.Window | exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        raise UnsupportedError(
            f"OVER or FILTER on the function {function.name}", hint="write it inside the function", span=span
        )
    if any(isinstance(a, exp.Distinct | exp.Star | exp.PropertyEQ | exp.Kwarg | exp.Lambda | exp.Order) for a in given):
        raise UnsupportedError(f"this argument of {function.name}", hint="an argument is an expression", span=span)
    if len(given) != len(function.parameters):
        wanted = ", ".join(function.parameters)
        raise BindingError(
            f"{function.name}({wanted}) is called with {len(given)} argument{'' if len(given) == 1 else 's'}", span=span
        )
    types_ = function.parameters.values()
    arguments = [_argument(a, t) for a, t in zip(given, types_, strict=True)]
    values = dict(zip((p.lower() for p in function.parameters), arguments, strict=True))
    body = expression(function.body).copy()
    _check_capture(body, given, function.name, span)
    for node in body.walk():
        node.meta.pop(TEXT, None)
        if "start" in node.meta:
            node.meta["start"] = call.meta.get("start", node.meta["start"])
    whole = exp.Paren(this=body)
    for column in list(whole.find_all(exp.Column)):
        column.replace(values[column.name.lower()].copy())
    return whole


def _argument(argument: exp.Expr, type_: str | None) -> exp.Expr:
    value = argument.copy()
    if not isinstance(value, exp.Column | exp.Literal):
        value = exp.Paren(this=value)
    return value if type_ is None else exp.Cast(this=value, to=parse_type(type_))


def _check_capture(body: exp.Expr, arguments: list[exp.Expr], name: str, span: Span | None) -> None:
    """Refuse an argument whose column a lambda of the function would take for its own parameter."""
    inside = {p.name.lower() for node in body.find_all(exp.Lambda) for p in node.expressions}
    named = {c.parts[0].name.lower() for a in arguments for c in a.find_all(exp.Column)}
    if taken := inside & named:
        raise BindingError(
            f'"{min(taken)}" is a parameter of a lambda in {name}',
            hint="write the column with its table: s.x",
            span=span,
        )


def _check_levels(tree: exp.Expr, source: ScriptText) -> None:
    level, depth = [tree], 0
    while level:
        depth += 1
        level = [c for node in level for c in node.iter_expressions()]
    if depth > 2 * LEVELS:
        raise UnsupportedError(
            "functions that call functions too deeply", hint="compute parts in a subquery", span=span_of(tree, source)
        )
