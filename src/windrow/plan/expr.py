"""Scalar expressions as text with holes.

An expression is SQL text for the scalar engine (DuckDB) in which every column is a `Ref`. That is all
the plan needs: which columns it reads, its type, and how to put other expressions in their place.
Nothing here parses or interprets SQL.

Invariant: a rendered expression is a complete operand (parenthesised where it must be), so it can stand in any hole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Ref:
    """A hole: the value of a column, by its internal name."""

    name: str


@dataclass(frozen=True)
class Expr:
    """Text with holes, its Arrow type, and the user functions it calls.

    >>> e = Expr(("(", Ref("s.a"), " + 1)"), pa.int64())
    >>> e.sql(), sorted(e.columns)
    ('("s.a" + 1)', ['s.a'])
    """

    parts: tuple[str | Ref, ...]
    type: pa.DataType
    functions: tuple[str, ...] = ()

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
        show = name or quote
        return "".join(show(p.name) if isinstance(p, Ref) else p for p in self.parts)

    def substitute(self, replacements: Mapping[str, Expr]) -> Expr:
        """Put other expressions into the holes named by `replacements`."""
        parts: list[str | Ref] = []
        functions = list(self.functions)
        for part in self.parts:
            if isinstance(part, Ref) and part.name in replacements:
                other = replacements[part.name]
                parts.extend(other.parts)
                functions.extend(f for f in other.functions if f not in functions)
            else:
                parts.append(part)
        return Expr(tuple(parts), self.type, tuple(functions))


def quote(name: str) -> str:
    """Quote an identifier.

    >>> quote('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def column(name: str, type_: pa.DataType) -> Expr:
    """The expression that reads one column."""
    return Expr((Ref(name),), type_)
