"""The items of a select list as written: the stream operator around them, `*` expanded, and a name for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from windrow.cql import types
from windrow.cql.chosen_columns import one_for_each
from windrow.cql.dialect import OPERATORS, TEXT, StreamItems
from windrow.cql.rendering import AGGREGATE_SYNTAX, Piece, Refused, render
from windrow.cql.scope import INSTANT, Scope, did_you_mean, resolve, resolved, span_of
from windrow.cql.source import ScriptText
from windrow.cql.value_sizes import check_value_sizes
from windrow.errors import BindingError
from windrow.plan.expr import sql_of
from windrow.plan.nodes import StreamOp
from windrow.scalar_engine import quote


@dataclass
class SelectList:
    """A select list as written, without its stream operator."""

    items: list[exp.Expr]
    op: StreamOp | None
    distinct: bool
    node: StreamItems | None


def select_list(select: exp.Select, source: ScriptText) -> SelectList:
    """The select list of a SELECT, and its stream operator."""
    items = select.expressions
    distinct = select.args.get("distinct")
    node = items[0] if len(items) == 1 and isinstance(items[0], StreamItems) else None
    if node is None:
        return SelectList(items, None, distinct is not None, None)
    either = distinct is not None or bool(node.args.get("distinct"))
    return SelectList(node.expressions, OPERATORS[node.this], either, node)


def expand(items: list[exp.Expr], scope: Scope) -> list[tuple[str, exp.Expr]]:
    """The select list with * expanded: (shown name, resolved tree)."""
    found: list[tuple[str, exp.Expr]] = []
    for item in _written_out(items, scope):
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            found.extend(_star(item, scope))
            continue
        tree = resolve(item.this if isinstance(item, exp.Alias) else item, scope, over=True)
        found.append((_name(item, tree, scope, len(found)), tree))
    return found


def _written_out(items: list[exp.Expr], scope: Scope) -> Iterator[exp.Expr]:
    """The items with every COLUMNS written out."""
    for item in items:
        made = one_for_each(item, scope, lambda star: _star(star, scope))
        yield from [item] if made is None else made


def _star(item: exp.Expr, scope: Scope) -> Iterator[tuple[str, exp.Expr]]:
    star = item if isinstance(item, exp.Star) else item.this
    left_out = {c.name.lower(): c for c in star.args.get("except_") or ()}
    other = {a.alias.lower(): a for a in star.args.get("replace") or ()}
    named = {a.this.name.lower(): a for a in star.args.get("rename") or ()}
    entries = scope.entries
    if isinstance(item, exp.Column):
        entry = next((e for e in scope.entries if e.named(item.table)), None)
        if entry is None:
            raise scope.unknown(item)
        entries = [entry]
    merged, seen = set[str](), set[str]()
    for entry in entries:
        for c in entry.columns:
            one = scope.merged.get(c.name.lower()) if isinstance(item, exp.Star) else None
            if one is not None and c.name.lower() in merged:
                continue
            merged.add(c.name.lower() if one is not None else "")
            seen.add(c.name.lower())
            if c.name.lower() in other:
                yield c.name, resolve(other[c.name.lower()].this, scope, over=True)
            elif c.name.lower() not in left_out:
                shown = named[c.name.lower()].alias if c.name.lower() in named else c.name
                yield str(shown), resolved(one.internal if one is not None else c.internal, item)
    for name, written in {**left_out, **other, **named}.items():
        if name not in seen:
            raise BindingError(
                f'unknown column "{name}" in EXCLUDE, REPLACE or RENAME',
                hint=did_you_mean(name, sorted(seen)) or f"columns are {', '.join(sorted(seen))}",
                span=span_of(written, scope.source),
            )


def _name(item: exp.Expr, tree: exp.Expr, scope: Scope, position: int) -> str:
    """The name of a select item: its own, its column's, or the one DuckDB would give it."""
    if isinstance(item, exp.Alias):
        return str(item.alias)
    if isinstance(item, exp.Column) and isinstance(tree, exp.Column):
        internal, written = tree.name, str(item.name)
        names = [c.name for e in scope.everything() for c in e.columns if c.internal == internal]
        return next((n for n in names if n.lower() == written.lower()), names[0] if names else written)
    if isinstance(item, exp.Column) and item.name.lower() == INSTANT and (time := scope.times(item.table)):
        return time[0][1].name  # _ts is the answer's own
    tables = {e.alias: {c.name: c.type for c in e.columns} for e in scope.entries}
    try:
        check_value_sizes(item, {})
        shown = types.shown_name(sql_of(render(item, _as_written, AGGREGATE_SYNTAX)), tables)
    except Refused:  # a user function, or what will be refused
        shown = None
    return shown or " ".join(str(item.meta.get(TEXT, "")).split()).lower() or f"column{position}"


def _as_written(column: exp.Expr) -> list[Piece]:
    """A column that is not resolved, by the names it was written with."""
    return [".".join(quote(p.name) for p in column.parts)]  # type: ignore[attr-defined]
