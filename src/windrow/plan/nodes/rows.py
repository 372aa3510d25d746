"""Nodes that look at each row by itself: a row of the output is made of one of the input, with its lifetime."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.operators.terms import QUERY, QUERY_TYPE, Router
from windrow.plan.expr import Expr
from windrow.plan.nodes.node import Unary

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Filter(Unary):
    """Keep rows for which `predicate` is true."""

    predicate: Expr = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Admit(Unary):
    """Keep rows that one of several queries wants."""

    router: Router = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Route(Unary):
    """Each row once for every query that wants it: the columns `keep`, and whose row it is (`operators/route.py`).

    `own`: those of them that every query shows, for as long as they share; None: all."""

    router: Router = None  # type: ignore[assignment]
    keep: tuple[str, ...] = ()
    own: tuple[str, ...] | None = None

    @property
    def schema(self) -> dict[str, pa.DataType]:
        types = self.input.schema
        return {**{c: types[c] for c in self.keep}, QUERY: QUERY_TYPE}


@dataclass(frozen=True)
class Stamp(Unary):
    """Each row with the instant at which it came, in the column `column`: a window may be cut shorter further on.

    `value`: a number that is the same for all rows of a tick, instead."""

    column: str = ""
    value: int | None = None

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return {**self.input.schema, self.column: pa.int64()}


@dataclass(frozen=True)
class Project(Unary):
    """Compute the output columns, each an expression over the input's."""

    outputs: tuple[tuple[str, Expr], ...] = ()

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return {name: e.type for name, e in self.outputs}


@dataclass(frozen=True)
class Call(Unary):
    """Add one column: a user's vectorised function applied to columns of the input."""

    output: str = ""
    function: str = ""
    arguments: tuple[str, ...] = ()
    type: pa.DataType = field(default_factory=pa.null)

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return {**self.input.schema, self.output: self.type}


@dataclass(frozen=True)
class Unnest(Unary):
    """One row for each place of some lists, side by side; a list that has ended is null there.

    `lists`: (output, column of lists, type of the elements).
    """

    lists: tuple[tuple[str, str, pa.DataType], ...] = ()

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return {**self.input.schema, **{output: type_ for output, _, type_ in self.lists}}
