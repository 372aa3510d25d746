"""Scalar expressions as text with holes, and conditions as trees.

An expression is SQL text for the scalar engine (DuckDB) in which every column is a `Ref`. That is all
the plan needs: which columns it reads, its type, and how to put other expressions in their place.
Nothing here parses or interprets SQL.

A condition (of WHERE, ON or HAVING) also carries what the binder understood of it, as a `Predicate`: a tree of tests of
expressions against constants. Whoever shares work between queries reads that tree and never the text.

Invariants: a rendered expression is a complete operand (parenthesised where it must be), so it can stand in any hole;
an expression's predicate holds exactly where its text is true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from windrow.scalar_engine import quote


@dataclass(frozen=True, slots=True)
class Ref:
    """A hole: the value of a column, by its internal name."""

    name: str


Part = str | Ref


@dataclass(frozen=True)
class Expr:
    """Text with holes, its Arrow type, and the user functions it calls.

    >>> e = Expr(("(", Ref("s.a"), " + 1)"), pa.int64())
    >>> e.sql(), sorted(e.columns)
    ('("s.a" + 1)', ['s.a'])
    """

    parts: tuple[Part, ...]
    type: pa.DataType
    functions: tuple[str, ...] = ()
    predicate: Predicate | None = field(default=None, compare=False, repr=False)

    @property
    def columns(self) -> frozenset[str]:
        """Internal names of the columns read."""
        return frozenset(p.name for p in self.parts if isinstance(p, Ref))

    @property
    def column(self) -> str | None:
        """The column's name when the expression is nothing but that column."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Ref):
            return self.parts[0].name
        return None

    def sql(self, name: Callable[[str], str] | None = None) -> str:
        """Render, with column names quoted (or mapped by `name`)."""
        return sql_of(self.parts, name or quote)

    def substitute(self, replacements: Mapping[str, Expr]) -> Expr:
        """Put other expressions into the holes named by `replacements`."""
        parts: list[Part] = []
        functions = list(self.functions)
        for part in self.parts:
            if isinstance(part, Ref) and part.name in replacements:
                other = replacements[part.name]
                parts.extend(other.parts)
                functions.extend(f for f in other.functions if f not in functions)
            else:
                parts.append(part)
        predicate = None if self.predicate is None else self.predicate.substitute(replacements)
        return Expr(tuple(parts), self.type, tuple(functions), predicate)


def sql_of(parts: Iterable[Part], name: Callable[[str], str] = quote) -> str:
    """The text of parts, with the names of columns quoted (or mapped by `name`)."""
    return "".join(name(p.name) if isinstance(p, Ref) else p for p in parts)


def column(name: str, type_: pa.DataType) -> Expr:
    """The expression that reads one column."""
    return Expr((Ref(name),), type_)


# -- conditions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Constant:
    """A value as the scalar engine folds it, with its type; times are integers in the type's unit, NULL is None."""

    value: Any
    type: pa.DataType


@dataclass(frozen=True)
class Predicate:
    """A condition with SQL's three values: true, false or NULL for every row."""

    def substitute(self, replacements: Mapping[str, Expr]) -> Predicate:
        """Put other expressions in the place of columns."""
        raise NotImplementedError


@dataclass(frozen=True)
class Bit(Predicate):
    """A boolean expression that is not taken apart, and why."""

    expr: Expr
    why: str = ""

    def substitute(self, replacements: Mapping[str, Expr]) -> Predicate:
        return replace(self, expr=self.expr.substitute(replacements))


@dataclass(frozen=True)
class Atom(Predicate):
    """A test of one expression, `left`; `expr` is the test itself."""

    expr: Expr
    left: Expr

    def substitute(self, replacements: Mapping[str, Expr]) -> Predicate:
        return replace(self, expr=self.expr.substitute(replacements), left=self.left.substitute(replacements))


@dataclass(frozen=True)
class Comparison(Atom):
    """`left operator constant`; the operator is one of `= < <= > >=`."""

    operator: str
    constant: Constant


@dataclass(frozen=True)
class OneOf(Atom):
    """`left IN (constants)`."""

    constants: tuple[Constant, ...]


@dataclass(frozen=True)
class StartsWith(Atom):
    """`left LIKE 'prefix%'`."""

    prefix: str


@dataclass(frozen=True)
class IsNull(Atom):
    """`left IS NULL`."""


@dataclass(frozen=True)
class Always(Predicate):
    """The same for every row."""

    value: bool | None

    def substitute(self, replacements: Mapping[str, Expr]) -> Predicate:
        return self


@dataclass(frozen=True)
class Compound(Predicate):
    """Made of other predicates."""

    parts: tuple[Predicate, ...]

    def substitute(self, replacements: Mapping[str, Expr]) -> Predicate:
        return type(self)(tuple(p.substitute(replacements) for p in self.parts))


@dataclass(frozen=True)
class And(Compound):
    """True where all parts are."""


@dataclass(frozen=True)
class Or(Compound):
    """True where some part is."""


@dataclass(frozen=True)
class Not(Compound):
    """True where its one part is false."""
