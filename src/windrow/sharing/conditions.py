"""Predicates as the index has them: unions of boxes over attributes.

An attribute is an expression over a row. A box is a set of values for some attributes (`spans.ValueSet`), so a row lies
in it when every one of them has such a value; a condition holds where the row lies in one of its boxes. Negations are
pushed down to the tests, where they are complements, so three-valued logic needs no thought above them: a row for
which a test is NULL lies neither in the box of the test nor in that of its negation.

    sym = 3 AND (price > 5 OR NOT ok)      {sym: [3, 4), price: [6, inf)}  {sym: [3, 4), ok: [false]}

What cannot be told apart is a bit: a boolean attribute of its own. So is a conjunct that would be too many boxes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, reduce
from math import prod
from typing import Any

import pyarrow as pa

from windrow.plan.expr import Always, And, Atom, Bit, Comparison, Expr, IsNull, Not, OneOf, Or, Predicate, StartsWith
from windrow.sharing.spans import ALL, NULL, Cut, Doubtful, Span, ValueSet, compared, prefixed, united

MOST_BOXES = 64
"""A condition of more boxes is not taken apart further."""


@dataclass(frozen=True)
class Attribute:
    """What is tested: an expression as SQL over columns. `why`: for a bit, what made it one."""

    sql: str
    type: pa.DataType
    reads: tuple[str, ...]
    why: str = field(default="", compare=False)

    def __hash__(self) -> int:
        return hash(self.sql)

    @property
    def is_text(self) -> bool:
        return bool(pa.types.is_string(self.type) or pa.types.is_large_string(self.type))


Box = tuple[tuple[Attribute, ValueSet], ...]
"""Attributes with the values they may have, in the order of their SQL; the empty box holds every row."""


@dataclass(frozen=True)
class Condition:
    """Where a row lies in one of the boxes. Its hash is remembered, since every index looks conditions up."""

    boxes: tuple[Box, ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.boxes)

    def __len__(self) -> int:
        return 1  # beside many as columns

    def __getstate__(self) -> dict[str, object]:
        return {"boxes": self.boxes}  # hashes of text differ from process to process

    @property
    def attributes(self) -> dict[str, Attribute]:
        """The attributes tested, by their SQL."""
        return {a.sql: a for box in self.boxes for a, _ in box}

    @property
    def tested(self) -> frozenset[str]:
        """The SQL of the attributes tested."""
        return _one_set(tuple([a.sql for box in self.boxes for a, _ in box]))


@lru_cache(maxsize=4096)
def _one_set(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(names)


EVERYTHING = Condition(((),))
NOTHING = Condition(())


def within(attribute: Attribute, *spans: Span, null: bool = False) -> Condition:
    """The condition that one attribute's values lie in spans.

    >>> within(Attribute('"a"', pa.int64(), ("a",)), (3, 7)).boxes[0][0][1].spans
    ((3, 7),)
    """
    return Condition((((attribute, ValueSet(spans, null)),),))


def both(a: Condition, b: Condition) -> Condition:
    """Where both hold."""
    return _simple(m for x in a.boxes for y in b.boxes if (m := _met(x, y)) is not None)


def either(a: Condition, b: Condition) -> Condition:
    """Where one of them holds."""
    return _simple((*a.boxes, *b.boxes))


def _met(a: Box, b: Box) -> Box | None:
    found = dict(a)
    for attribute, values in b:
        found[attribute] = found[attribute] & values if attribute in found else values
        if not found[attribute]:
            return None
    return tuple(sorted(found.items(), key=lambda kv: kv[0].sql))


def _simple(boxes: Iterable[Box]) -> Condition:
    """The same union with equal boxes once, and boxes that differ in the values of one attribute made one."""
    found: list[Box] = []
    for box in dict.fromkeys(boxes):
        if not box:
            return EVERYTHING
        for i, known in enumerate(found):
            merged = _merged(known, box)
            if merged is not None:
                found[i] = merged
                break
        else:
            found.append(box)
    return Condition(tuple(found))


def _merged(a: Box, b: Box) -> Box | None:
    if len(a) != len(b) or any(x[0] != y[0] for x, y in zip(a, b, strict=True)):
        return None
    different = [i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x[1] != y[1]]
    if len(different) != 1:
        return None
    i = different[0]
    return (*a[:i], (a[i][0], a[i][1] | b[i][1]), *a[i + 1 :])


# -- from conditions of a plan -----------------------------------------------------------------------------------------


def condition(conjuncts: Sequence[Expr]) -> Condition:
    """Where all conjuncts are true; those that would make too many boxes are bits."""
    found = [_of_conjunct(e) for e in conjuncts]
    return _all(found, lambda most: bit(conjuncts[most], "too many alternatives"))


def where_all(predicates: Sequence[Predicate]) -> Condition | None:
    """Where all predicates are true; None if one of them is too much to take apart."""
    try:
        found = [_holds(p, True) for p in predicates]
    except _TooMany:
        return None
    return None if prod(max(len(c.boxes), 1) for c in found) > MOST_BOXES else _all(found, None)


def _all(found: list[Condition], instead: Callable[[int], Condition] | None) -> Condition:
    """Where all conditions hold; `instead`: what to take for one of them while they are too many boxes."""
    if all(len(c.boxes) == 1 for c in found):  # nearly always: one box for all of them, if attributes differ
        together = [pair for c in found for pair in c.boxes[0]]
        if len({a.sql for a, _ in together}) == len(together):
            return Condition((tuple(sorted(together, key=lambda pair: pair[0].sql)),))
    while instead is not None and prod(max(len(c.boxes), 1) for c in found) > MOST_BOXES:
        most = max(range(len(found)), key=lambda i: len(found[i].boxes))
        found[most] = instead(most)
    return reduce(both, found, EVERYTHING)


def _of_conjunct(expr: Expr) -> Condition:
    if expr.predicate is None:
        return bit(expr, "not taken apart")
    try:
        return _holds(expr.predicate, True)
    except _TooMany:
        return bit(expr, "too many alternatives")


class _TooMany(Exception):
    """More boxes than are worth having."""


def bit(expr: Expr, why: str) -> Condition:
    """A boolean expression as it is."""
    return within(attribute_of(expr, why), (1, None))


@lru_cache(maxsize=4096)
def attribute_of(expr: Expr, why: str = "") -> Attribute:
    """What is tested by an expression."""
    return Attribute(expr.sql(), expr.type, tuple(sorted(expr.columns)), why)


def _holds(predicate: Predicate, wanted: bool) -> Condition:
    """Where a predicate is true; where it is false, if that is `wanted`."""
    match predicate:
        case Always(value):
            return EVERYTHING if value is wanted else NOTHING
        case Not((part,)):
            return _holds(part, not wanted)
        case And(parts) | Or(parts):
            found = [_holds(p, wanted) for p in parts]
            together = isinstance(predicate, And) is wanted
            size = prod(len(c.boxes) for c in found) if together else sum(len(c.boxes) for c in found)
            if size > MOST_BOXES:
                raise _TooMany
            return reduce(both, found, EVERYTHING) if together else reduce(either, found, NOTHING)
        case Bit(expr, why):
            return within(attribute_of(expr, why), (1, None) if wanted else (None, 1))
        case Atom():
            try:
                values = values_of(predicate)
            except Doubtful as why:
                return within(attribute_of(predicate.expr, str(why)), (1, None) if wanted else (None, 1))
            values = values if wanted else ALL if isinstance(predicate, IsNull) else values.complement()
            return Condition((((attribute_of(predicate.left), values),),)) if values else NOTHING
    raise NotImplementedError(type(predicate).__name__)


def values_of(atom: Atom) -> ValueSet:
    """The values for which a test is true."""
    type_ = atom.left.type
    match atom:
        case Comparison(operator=operator, constant=constant):
            return compared(operator, type_, constant)
        case OneOf(constants=constants):
            return ValueSet(united(s for c in constants for s in compared("=", type_, c).spans))
        case StartsWith(prefix=prefix):
            return prefixed(prefix)
        case IsNull():
            return NULL
    raise NotImplementedError(type(atom).__name__)


def bits(found: Condition) -> Mapping[str, str]:
    """What is a bit in a condition, and why."""
    return {a.sql: a.why for a in found.attributes.values() if a.why}


# -- as text -----------------------------------------------------------------------------------------------------------


def packed(conditions: Sequence[Condition]) -> bytes:
    """Conditions as JSON: attributes once, boxes by their numbers; bytes of text are hexadecimal.

    >>> one = within(Attribute('"s"', pa.string(), ("s",)), (b"a", None))
    >>> read(packed([one])) == [one]
    True
    """
    found: dict[str, Attribute] = {}
    for condition in conditions:
        found |= condition.attributes
    number = {sql: i for i, sql in enumerate(found)}
    schema = pa.schema([(str(i), a.type) for i, a in enumerate(found.values())])
    boxes = [
        [[(number[a.sql], [[_written(c) for c in s] for s in v.spans], v.null) for a, v in box] for box in c.boxes]
        for c in conditions
    ]
    about = [(a.sql, a.reads, a.why) for a in found.values()]
    return json.dumps([schema.serialize().to_pybytes().hex(), about, boxes]).encode()


def read(data: bytes) -> list[Condition]:
    """The conditions that `packed` wrote."""
    schema, about, boxes = json.loads(data)
    types = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(schema))).types
    known = [Attribute(sql, t, tuple(reads), why) for (sql, reads, why), t in zip(about, types, strict=True)]

    def values(spans: list[Any], null: bool) -> ValueSet:
        return ValueSet(tuple((_cut(low), _cut(high)) for low, high in spans), null)

    return [Condition(tuple(tuple((known[a], values(s, null)) for a, s, null in box) for box in c)) for c in boxes]


def _written(cut: Cut | None) -> int | str | None:
    return cut.hex() if isinstance(cut, bytes) else cut


def _cut(written: int | str | None) -> Cut | None:
    return bytes.fromhex(written) if isinstance(written, str) else written
