"""Names in scope, and resolving columns to internal names.

A resolved tree has every column replaced by one whose only name is the internal one. Resolution is the only
step that looks at the names the user wrote; after it a tree can be compared, moved and rendered freely.
Names match without regard to case; an exact match wins over the others.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from windrow.cql.source import ScriptText
from windrow.cql.types import instant_type, is_string, sql_name
from windrow.cql.walks import copied, find_all, has, nodes
from windrow.errors import BindingError, Span, UnsupportedError

ALIASES = 100
INSTANT = "_ts"
"""The time of a row of a stream, whatever the stream calls it."""


@dataclass(frozen=True)
class ScopeColumn:
    """A column that can be named: what the user calls it and what the plan calls it.

    `also`: the thesis refers to a subquery's unnamed SUM(a) as `a`; that name is used when no other has it.
    """

    name: str
    internal: str
    type: pa.DataType
    also: str | None = None


@dataclass(frozen=True)
class Entry:
    """A stream, table or subquery in FROM. `time`: the internal time column of a stream."""

    alias: str
    columns: tuple[ScopeColumn, ...]
    time: str | None = None
    valid: tuple[str, str] | None = None
    is_table: bool = False
    nullable: bool = False  # padded with nulls by an outer join
    ends: str | None = None  # of sessions: the column with the instant at which rows are seen
    session: tuple[str, ...] = ()  # the columns that tell sessions apart

    def named(self, name: str) -> bool:
        return name.lower() == self.alias.lower()

    def find(self, name: str) -> list[ScopeColumn]:
        """The columns of that name: the exact ones, else those equal but for case."""
        exact = [c for c in self.columns if c.name == name]
        loose = exact or [c for c in self.columns if c.name.lower() == name.lower()]
        return loose or [c for c in self.columns if c.also is not None and c.also.lower() == name.lower()]

    @property
    def internals(self) -> frozenset[str]:
        return frozenset(c.internal for c in self.columns)


@dataclass
class Scope:
    """The entries of one FROM, in order; `outer` is the enclosing query's for a correlated subquery.

    `merged` holds the columns that USING made one. `aliases` are the select list's own names, the last resort.
    `bounds` are window_start and window_end of a periodic query, where no column has these names.
    """

    source: ScriptText
    entries: list[Entry] = field(default_factory=list)
    outer: Scope | None = None
    merged: dict[str, ScopeColumn] = field(default_factory=dict)
    aliases: Mapping[str, exp.Expr] = field(default_factory=dict)
    bounds: tuple[ScopeColumn, ...] = ()

    def span(self, node: exp.Expr) -> Span | None:
        return span_of(node, self.source)

    def column(self, node: exp.Column) -> ScopeColumn | None:
        """The column a name means; None when nothing has that name; an error when two have."""
        name, table = node.name, node.table
        if not table and name.lower() in self.merged:
            return self.merged[name.lower()]
        found = [(e, c) for e in self.entries if not table or e.named(table) for c in e.find(name)]
        if len({c.internal for _, c in found}) > 1:
            raise self._ambiguous(node, found)
        if found:
            return found[0][1]
        bound = next((b for b in self.bounds if not table and b.name == name.lower()), None)
        if bound is not None:
            return bound
        return self.outer.column(node) if self.outer is not None else None

    def times(self, alias: str) -> list[tuple[Entry, ScopeColumn]]:
        """The time columns of the streams of this FROM, or of the one of that alias."""
        entries = [e for e in self.entries if not alias or e.named(alias)]
        return [(e, c) for e in entries for c in e.columns if c.internal == e.time]

    def _ambiguous(self, node: exp.Column, found: list[tuple[Entry, ScopeColumn]]) -> BindingError:
        choices = list(dict.fromkeys(f"{e.alias}.{c.name}" for e, c in found))
        hint = f"write {' or '.join(choices)}"
        if len(choices) == 1:
            hint = "give the subquery's columns different names with AS"
        return BindingError(f'ambiguous column "{node.name}"', hint=hint, span=self.span(node))

    def entry(self, alias: str) -> Entry | None:
        """The entry of that alias, here or outside."""
        return next((e for e in self.everything() if e.named(alias)), None)

    def column_names(self, entry: Entry | None = None) -> list[str]:
        """The columns of an entry, or of all that can be seen from here, as they were written."""
        return [c.name for e in ([entry] if entry else self.everything()) for c in e.columns]

    def unknown(self, node: exp.Column) -> BindingError:
        """The error for a name that means nothing."""
        table = node.table
        if table and self.entry(table) is None:
            aliases = [e.alias for e in self.everything()]
            return BindingError(
                f'unknown stream or alias "{table}"',
                hint=did_you_mean(table, aliases) or f"FROM has {', '.join(aliases)}",
                span=self.span(node),
            )
        if not table and node.name.lower() in ("window_start", "window_end"):
            return BindingError(
                f"{node.name} needs windows that all have a RANGE, and a SLIDE",
                hint="write s [RANGE 10 MINUTES SLIDE 1 MINUTE] or TUMBLE(s, ts, '10 min')",
                span=self.span(node),
            )
        if node.name.lower() == INSTANT:
            return BindingError(
                f'"{table or "this FROM"}" has no {INSTANT}: it is the time of a row of a stream',
                hint="select it in the subquery, under another name: SELECT _ts AS t, ...",
                span=self.span(node),
            )
        choices = self.column_names(self.entry(table) if table else None)
        shown = f"{table}.{node.name}" if table else node.name
        return BindingError(
            f'unknown column "{shown}"',
            hint=did_you_mean(node.name, choices) or f"columns are {', '.join(dict.fromkeys(choices))}",
            span=self.span(node),
        )

    def everything(self) -> Iterator[Entry]:
        yield from self.entries
        if self.outer is not None:
            yield from self.outer.everything()


def resolve(tree: exp.Expr, scope: Scope, using_aliases: bool = True, over: bool = False) -> exp.Expr:
    """A copy of the tree with every column resolved; `over`: functions OVER a partition may stand in it."""
    if isinstance(tree, exp.Column) and (column := _known(tree, scope)) is not None:
        return column
    there = nodes(tree)
    if (inner := next((node for node in there if isinstance(node, exp.Query)), None)) is not None:
        raise UnsupportedError(
            "a subquery inside an expression",
            hint="join with the subquery in FROM; EXISTS and IN stand alone between the ANDs of WHERE",
            span=span_of(inner, scope.source),
        )
    resolver = _Resolver(scope, using_aliases)
    made = resolver.visit(tree)
    written = resolver.expanded or any(isinstance(node, exp.Window) for node in there)
    if not over and written and (windows := find_all(made, exp.Window)):
        raise BindingError(
            "a function OVER stands in the select list, in QUALIFY or in ORDER BY",
            hint="filter its value with QUALIFY: ... FROM s [ROWS 100] QUALIFY ROW_NUMBER() OVER (ORDER BY a) <= 10",
            span=span_of(windows[0], scope.source),
        )
    return made


def _known(node: exp.Column, scope: Scope) -> exp.Column | None:
    """A column of FROM, resolved."""
    if is_resolved(node) or isinstance(node.this, exp.Star):
        return None
    found = scope.column(node)
    return None if found is None else resolved(found.internal, node)


class _Resolver:
    def __init__(self, scope: Scope, using_aliases: bool) -> None:
        self.scope = scope
        self.using_aliases = using_aliases
        self.expanding: set[str] = set()
        self.expanded = 0
        self.made: dict[int, exp.Expr] = {}  # by the identity of a column as it was written

    def visit(self, tree: exp.Expr) -> exp.Expr:
        """A copy with columns resolved; the first that is unknown is told."""
        return copied(tree, lambda node: self._resolved(node, tree) if isinstance(node, exp.Column) else node)

    def _resolved(self, node: exp.Column, top: exp.Expr) -> exp.Expr:
        if is_resolved(node) or isinstance(node.this, exp.Star):
            return node
        found = _known(node, self.scope) or self._other(node, None if node is top else node.parent)
        self.made[id(node)] = found
        return found

    def _other(self, node: exp.Column, parent: exp.Expr | None) -> exp.Expr:
        known = self._field(node) or self._alias(node) or self._time(node)
        return known or self._string(node, parent) or self._fail(node)

    def _time(self, node: exp.Column) -> exp.Expr | None:
        """`_ts`, where no column has that name: the time of a stream's row, in windrow's clock."""
        if node.name.lower() != INSTANT:
            return None
        found = self.scope.times(node.table)
        if not found and self.scope.outer is not None:
            found = self.scope.outer.times(node.table)
        if len(found) > 1:
            choices = " or ".join(f"{e.alias}.{INSTANT}" for e, _ in found)
            raise BindingError(f'ambiguous column "{INSTANT}"', hint=f"write {choices}", span=self.scope.span(node))
        if not found:
            return None
        time = found[0][1]
        column, wanted = resolved(time.internal, node), instant_type(time.type)
        return (
            column if wanted == time.type else exp.Cast(this=column, to=exp.DataType.build(sql_name(wanted), "duckdb"))
        )

    def _field(self, node: exp.Column) -> exp.Expr | None:
        """`s.f` where s is a struct column; `t.s.f` where t is an alias."""
        parts = list(node.parts)
        for depth in (2, 1):
            if len(parts) <= depth:
                continue
            head = exp.Column(this=parts[depth - 1].copy(), table=parts[depth - 2].copy() if depth == 2 else None)
            base = self.scope.column(head)
            if base is not None and pa.types.is_struct(base.type):
                tree: exp.Expr = resolved(base.internal, node)
                for part in parts[depth:]:
                    tree = exp.Dot(this=tree, expression=part.copy())
                return tree
        return None

    def _alias(self, node: exp.Column) -> exp.Expr | None:
        key = node.name.lower()
        if node.table or not self.using_aliases or key not in self.scope.aliases or key in self.expanding:
            return None
        self.expanded += 1
        if self.expanded > ALIASES:
            raise UnsupportedError(
                f"names of the select list used more than {ALIASES} times in one expression",
                detail="each use stands for the whole expression it names",
                hint="compute them in a subquery in FROM",
                span=self.scope.span(node),
            )
        self.expanding.add(key)
        try:
            return operand(self.visit(self.scope.aliases[key]))
        finally:
            self.expanding.discard(key)

    def _string(self, node: exp.Column, parent: exp.Expr | None) -> exp.Expr | None:
        """The papers write "VT" and protocol = ftp for strings: a quoted name that means nothing is a string,
        and so is a bare one compared with a string column; not one that looks like a column's name misspelled."""
        if node.table or not (node.this.args.get("quoted") or self._beside_text(node, parent)):
            return None
        if near := did_you_mean(node.name, self.scope.column_names(), MISSPELLED):
            error = self.scope.unknown(node)
            error.hint = f"{near} A text is written in single quotes: {_literal(node).sql()}"
            raise error
        return _literal(node)

    def _beside_text(self, node: exp.Column, parent: exp.Expr | None) -> bool:
        """Whether a name is what a string column is compared with."""
        if not isinstance(parent, (exp.EQ, exp.NEQ)) or node.arg_key != "expression":
            return False
        column = self._column_of(self.made.get(id(parent.this), parent.this))
        return column is not None and is_string(column.type)

    def _column_of(self, node: exp.Expr) -> ScopeColumn | None:
        if not isinstance(node, exp.Column):
            return None
        if not is_resolved(node):
            return self.scope.column(node)
        return next((c for e in self.scope.everything() for c in e.columns if c.internal == node.name), None)

    def _fail(self, node: exp.Column) -> exp.Expr:
        raise self.scope.unknown(node)


def resolved(internal: str, at: exp.Expr | None = None) -> exp.Column:
    """A column that needs no more resolving, placed where `at` was written."""
    column = exp.Column(this=exp.Identifier(this=internal, quoted=True))
    meta = column.meta
    meta["resolved"] = True
    start = offset_of(at) if at is not None else None
    if start is not None:
        meta["start"] = start
    if at is not None and isinstance(at, exp.Column):
        meta["written"] = ".".join(p.name for p in at.parts) if at.args.get("table") else at.name
    return column


def is_resolved(node: exp.Expr) -> bool:
    return bool(node.meta_get("resolved"))


def columns_of(tree: exp.Expr) -> frozenset[str]:
    """Internal names of the columns a resolved tree reads."""
    found = [tree] if isinstance(tree, exp.Column) else find_all(tree, exp.Column)
    return frozenset(c.name for c in found if is_resolved(c))


def operand(tree: exp.Expr) -> exp.Expr:
    """The tree in parentheses, if it needs them to stand inside another."""
    if isinstance(tree, (exp.Column, exp.Literal, exp.Anonymous, exp.Cast, exp.Paren, exp.Null, exp.Boolean)):
        return tree
    wrapped = exp.Paren(this=tree)
    if (start := offset_of(tree)) is not None:
        wrapped.meta["start"] = start
    return wrapped


def offset_of(node: exp.Expr) -> int | None:
    """Where a tree was written: the least offset of its parts."""
    named = type(node) is exp.Column and isinstance(node.this, exp.Identifier)
    there = (node, *filter(None, node.args.values())) if named else nodes(node)
    starts = [int(start) for n in there if (start := n.meta_get("start")) is not None]
    return min(starts) if starts else None


def span_of(node: exp.Expr, source: ScriptText) -> Span | None:
    offset = offset_of(node)
    return source.span(offset) if offset is not None else None


MISSPELLED = 0.75
"""How like a name a text is that is rather that name misspelled."""


def did_you_mean(name: str, choices: Iterable[str], cutoff: float = 0.6) -> str | None:
    """A hint with the nearest name, if one is near.

    >>> did_you_mean("symbl", ["symbol", "price"])
    'did you mean "symbol"?'
    """
    by_lower = {c.lower(): c for c in choices}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return f'did you mean "{by_lower[near[0]]}"?' if near else None


def has_subquery(tree: exp.Expr) -> bool:
    """Whether a subquery stands in an expression."""
    return not isinstance(tree, exp.Column) and has(tree, exp.Query)


def conjuncts(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The operands of the top-level ANDs.

    >>> [c.sql() for c in conjuncts(exp.condition("a = 1").and_("(b = 2 AND c = 3)"))]
    ['a = 1', 'b = 2', 'c = 3']
    """
    while isinstance(tree, exp.Paren):
        tree = tree.this
    if isinstance(tree, exp.And):
        yield from conjuncts(tree.this)
        yield from conjuncts(tree.expression)
    else:
        yield tree


def _literal(node: exp.Column) -> exp.Literal:
    literal = exp.Literal.string(node.name)
    if (start := offset_of(node)) is not None:
        literal.meta["start"] = start
    return literal
