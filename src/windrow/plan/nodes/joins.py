"""Nodes in which rows of several inputs meet: joins, exact and in bounded memory, and semi-joins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.plan.expr import Expr
from windrow.plan.nodes.node import Binary, Nary

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Equality:
    """`left = right` between columns of two inputs; `null_safe` also matches null with null."""

    left: str
    right: str
    null_safe: bool = False


@dataclass(frozen=True)
class Join(Nary):
    """The n-way join: equalities between columns of different inputs, then residual predicates.

    `internal[i]`: input i's window bounds matching but not the result's lifetime. An input pair with no
    path of equalities between them is a product filtered by `residual`.
    """

    equalities: tuple[Equality, ...] = ()
    residual: tuple[Expr, ...] = ()
    internal: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Shedding:
    """How a join sheds rows when memory is short. `keep`: rows for each stream, or in all when `shared`."""

    heuristic: str  # a name of shedding.memory.HEURISTICS
    keep: tuple[int, ...]
    shared: bool = False
    alpha: float = 10.0
    beta: float = 1.0
    seed: int = 0
    text: str = ""  # as the user wrote it, for EXPLAIN


@dataclass(frozen=True)
class StarJoin(Nary):
    """A join in bounded memory: streams meet through the rows of a fact table, or through equal keys.

    `parts`: the streams, then the fact table if there is one. `keys[i]`: the key columns of stream i; `facts[i]`: the
    table's columns that equal them (empty without a table, where the streams' keys equal each other). `importance[i]`:
    the column of stream i's importance, None for 1 each. No rule may move a filter through it: which rows are shed
    depends on the rows that come.
    """

    keys: tuple[tuple[str, ...], ...]
    facts: tuple[tuple[str, ...], ...]
    importance: tuple[str | None, ...]
    shedding: Shedding
    valid: tuple[str, str] | None = None
    residual: tuple[Expr, ...] = ()

    @property
    def equalities(self) -> tuple[Equality, ...]:
        """What the exact join would equate."""
        if self.facts:
            return tuple(
                Equality(*p) for k, f in zip(self.keys, self.facts, strict=True) for p in zip(k, f, strict=True)
            )
        first = self.keys[0]
        return tuple(Equality(*p) for k in self.keys[1:] for p in zip(first, k, strict=True))


@dataclass(frozen=True)
class Semi(Binary):
    """EXISTS (or NOT EXISTS when `anti`): left rows that have (no) matching right row."""

    equalities: tuple[Equality, ...] = ()
    residual: tuple[Expr, ...] = ()
    anti: bool = False


@dataclass(frozen=True)
class LeftJoin(Binary):
    """Inner join results, and left rows without a match padded with nulls."""

    equalities: tuple[Equality, ...] = ()
    residual: tuple[Expr, ...] = ()

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return {**self.left.schema, **self.right.schema}


@dataclass(frozen=True)
class AsofJoin(Binary):
    """Each left row with the newest right row whose time is at or before its own (before, if `strict`).

    `times`: the two columns. The right side is a window of time over a stream, by that stream's time, or a table that
    does not reach back; the left time is one of a stream, so what a left row may meet is known when it comes.
    `derived`: right rows of one time have no order of arrival and are ordered by their values.
    """

    equalities: tuple[Equality, ...] = ()
    times: tuple[str, str] = ("", "")
    strict: bool = False
    pad: bool = False
    derived: bool = False

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return {**self.left.schema, **self.right.schema}
