"""Which expressions can never raise.

DuckDB raises on casts that fail, on overflow of integers and decimals, on times out of range. A predicate that may
raise must not see rows it did not see before, so rules move it less; and it is asked of all rows that reach it,
whatever other conjuncts say, so that whether it raises does not depend on their order.

A condition is judged test by test, as the binder understood it, and an expression as DuckDB binds it
(`bound_parts.py`), by what is known of its functions and casts (`raising.py`).

Law: what is total raises for no value of its columns' types.
Cost: one question to DuckDB for all tests that compare the same types with numbers of as many digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache

import pyarrow as pa

from windrow.plan.bound_parts import bound, question
from windrow.plan.expr import (
    Always,
    Atom,
    Bit,
    Comparison,
    Compound,
    Constant,
    Expr,
    IsNull,
    OneOf,
    Part,
    Predicate,
    StartsWith,
)
from windrow.plan.raising import may_raise, tells_zeros_apart


def total(e: Expr, types: Mapping[str, pa.DataType]) -> bool:
    """Whether the expression has a value on every row, whatever its columns hold.

    >>> from windrow.plan.expr import Ref
    >>> types = {"a": pa.int64(), "x": pa.float64()}
    >>> total(Expr((Ref("a"), " > 3"), pa.bool_()), types), total(Expr((Ref("a"), " + 1 > 3"), pa.bool_()), types)
    (True, False)
    """
    return e.column is not None or (not e.functions and all(_total(test, types) for test in _tests(e)))


def _total(parts: Sequence[Part], types: Mapping[str, pa.DataType]) -> bool:
    if len(parts) == 1 and not isinstance(parts[0], str):
        return True
    asked = question(parts, types)
    return asked is not None and _never_raises(asked)


@lru_cache(maxsize=8192)  # each rule that moves an expression asks, and so does whoever runs it
def _never_raises(asked: str) -> bool:
    part = bound(asked)
    return part is not None and not may_raise(part)


def key_safe(e: Expr, types: Mapping[str, pa.DataType]) -> bool:
    """Whether the expression is the same for all values that count as equal.

    0.0 and -0.0 are one value to a key; comparisons agree, but a cast to text or a division does not.
    """
    if not any(_has_float(types[c]) for c in e.columns):
        return True
    asked = question(e.parts, types)
    return asked is not None and not e.functions and _agrees(asked)


@lru_cache(maxsize=8192)
def _agrees(asked: str) -> bool:
    part = bound(asked)
    return part is not None and not tells_zeros_apart(part)


def _has_float(t: pa.DataType) -> bool:
    return pa.types.is_floating(t) or pa.types.is_nested(t)


# -- what is computed --------------------------------------------------------------------------------------------------


def _tests(e: Expr) -> Iterator[Sequence[Part]]:
    """What an expression computes: of a condition each test, so that tests which are alike are asked about once."""
    found = [None] if e.predicate is None else list(_of_tree(e.predicate))
    for parts in found:
        yield e.parts if parts is None else parts


def _of_tree(predicate: Predicate) -> Iterator[Sequence[Part] | None]:
    """The tests of a condition; None where it does not say all that its text computes."""
    match predicate:
        case Compound(parts):
            for part in parts:
                yield from _of_tree(part)
        case Bit(expr):
            yield expr.parts
        case IsNull(left=left) | StartsWith(left=left):
            yield left.parts
        case Comparison(constant=constant):
            yield _compared(predicate, (constant,))
        case OneOf(constants=constants):
            yield _compared(predicate, constants)
        case Always(bool()):
            return
        case _:  # what is compared with NULL is not said
            yield None


def _compared(test: Atom, constants: Sequence[Constant]) -> Sequence[Part]:
    """A comparison with constants, numbers being those of as many digits."""
    if all(c.type == test.left.type for c in constants):
        return test.left.parts
    if any(pa.types.is_temporal(c.type) or not isinstance(c.value, int | float | Decimal) for c in constants):
        return test.expr.parts
    alike = sorted({_like(c.value) for c in constants})
    return (*test.left.parts, f" IN ({', '.join(alike)})")


def _like(number: int | float | Decimal) -> str:
    """A number that DuckDB gives the same type, which its digits say."""
    if isinstance(number, bool | float):
        return str(number) if isinstance(number, bool) else "1e0"
    shown = str(number) if isinstance(number, int) else format(number, "f")
    return re.sub("[0-9]", "1", shown) if len(shown) < 10 else shown
