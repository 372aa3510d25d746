"""Predicates as trees over attributes: what the index understands of a WHERE clause.

An attribute is an expression over a row, with values in a total order of codes: int64 codes for numbers, times and
booleans (`aggregates.order`), UTF-8 bytes for text. The order has a successor for every code (`code + 1`, `bytes +
b"\\0"`), so every comparison with a constant is membership in half-open spans, and a breakpoint is a single cut:

    x < 7   [-inf, 7)      x <= 7   [-inf, 8)      x = 7   [7, 8)      x BETWEEN 3 AND 5   [3, 6)

Logic is SQL's with three values: a span test of NULL is NULL. A predicate that cannot be brought into this form is an
attribute of its own, `Opaque`: one bit per row, computed by the scalar engine or the user's function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
C = TypeVar("C", bound="Condition")
Cut = int | bytes
Span = tuple[Cut | None, Cut | None]
"""`[low, high)`; None is without bound."""


@dataclass(frozen=True)
class Attribute:
    """What is tested: a column, or an expression as SQL over columns."""

    sql: str
    type: pa.DataType
    reads: tuple[str, ...]

    @property
    def is_text(self) -> bool:
        return bool(pa.types.is_string(self.type) or pa.types.is_large_string(self.type))


@dataclass(frozen=True)
class Condition:
    """A node of a predicate. Its hash is remembered, since every index looks predicates up."""

    @property
    def parts(self) -> tuple[Condition, ...]:
        return ()

    def __getstate__(self) -> dict[str, object]:
        # hashes of text differ from process to process
        return {k: v for k, v in self.__dict__.items() if k != "_hash"}


def _remembering(cls: type[C]) -> type[C]:
    """Compute an instance's hash once."""
    compute = cls.__hash__

    def remembered(self: C) -> int:
        known = self.__dict__.get("_hash")
        if known is None:
            known = compute(self)
            object.__setattr__(self, "_hash", known)
        return int(known)

    cls.__hash__ = remembered  # type: ignore[method-assign, assignment]
    return cls


@_remembering
@dataclass(frozen=True)
class Within(Condition):
    """The attribute lies in one of the spans (disjoint, in order)."""

    attribute: Attribute
    spans: tuple[Span, ...]


@_remembering
@dataclass(frozen=True)
class IsNull(Condition):
    """The attribute is NULL."""

    attribute: Attribute


@_remembering
@dataclass(frozen=True)
class Opaque(Condition):
    """A predicate that is not analysed; `why` says why, for EXPLAIN."""

    attribute: Attribute  # boolean
    why: str = ""


@_remembering
@dataclass(frozen=True)
class Constant(Condition):
    """Always the same: true, false or NULL."""

    value: bool | None


@_remembering
@dataclass(frozen=True)
class Not(Condition):
    part: Condition

    @property
    def parts(self) -> tuple[Condition, ...]:
        return (self.part,)


@_remembering
@dataclass(frozen=True)
class And(Condition):
    terms: tuple[Condition, ...]

    @property
    def parts(self) -> tuple[Condition, ...]:
        return self.terms


@_remembering
@dataclass(frozen=True)
class Or(Condition):
    terms: tuple[Condition, ...]

    @property
    def parts(self) -> tuple[Condition, ...]:
        return self.terms


def atoms(condition: Condition) -> Iterator[Within | IsNull | Opaque]:
    """The leaves that test an attribute."""
    if isinstance(condition, Within | IsNull | Opaque):
        yield condition
    for part in condition.parts:
        yield from atoms(part)


def attributes(condition: Condition) -> dict[str, Attribute]:
    """The attributes tested, by their SQL."""
    return {a.attribute.sql: a.attribute for a in atoms(condition)}


def cuts(atom: Within | IsNull | Opaque) -> set[Cut]:
    """The breakpoints of an atom on its attribute."""
    if isinstance(atom, Opaque):
        return {1}
    if isinstance(atom, IsNull):
        return set()
    return {c for span in atom.spans for c in span if c is not None}


@dataclass(frozen=True)
class Truth:
    """Where a condition is true and where it is false; it is NULL elsewhere."""

    true: Bools
    false: Bools

    def negated(self) -> Truth:
        return Truth(self.false, self.true)


def truth(condition: Condition, atom: Callable[[Within | IsNull | Opaque], Truth]) -> Truth:
    """Three-valued logic over arrays that broadcast; `atom` gives the leaves."""
    match condition:
        case Within() | IsNull() | Opaque():
            return atom(condition)
        case Constant(value):
            yes, no = np.array(value is True), np.array(value is False)
            return Truth(yes, no)
        case Not(part):
            return truth(part, atom).negated()
        case And(terms):
            found = [truth(t, atom) for t in terms]
            return Truth(_all([f.true for f in found]), _any([f.false for f in found]))
        case Or(terms):
            found = [truth(t, atom) for t in terms]
            return Truth(_any([f.true for f in found]), _all([f.false for f in found]))
    raise NotImplementedError(type(condition).__name__)


def _all(arrays: list[Bools]) -> Bools:
    result = arrays[0]
    for a in arrays[1:]:
        result = result & a
    return result


def _any(arrays: list[Bools]) -> Bools:
    result = arrays[0]
    for a in arrays[1:]:
        result = result | a
    return result


def simplify(condition: Condition) -> Condition:
    """The same condition with nested AND and OR of one kind flattened, and NOT of NOT gone.

    >>> simplify(And((And((Constant(True),)), Not(Not(Constant(False))))))
    And(terms=(Constant(value=True), Constant(value=False)))
    """
    match condition:
        case Not(Not(part)):
            return simplify(part)
        case Not(part):
            return Not(simplify(part))
        case And(terms) | Or(terms):
            kind = type(condition)
            flat: list[Condition] = []
            for term in map(simplify, terms):
                flat += term.parts if isinstance(term, kind) else (term,)
            return flat[0] if len(flat) == 1 else kind(tuple(flat))
    return condition
