"""Expressions that Arrow's kernels compute, to the value that DuckDB gives.

DuckDB binds an expression anew for every batch, which takes a millisecond; a kernel takes microseconds. So what is
common (comparisons, arithmetic, logic, null tests, CASE, COALESCE, casts to wider numbers, IN, BETWEEN) is translated
once: DuckDB's own parser gives the tree (`expression_parts.py`), DuckDB says the type of every part, and DuckDB
computes the constants. What is not on this page stays with DuckDB.

Law: for every batch, the values are those of DuckDB or `Inexact` is raised, and then DuckDB is asked. That is where the
two differ, which the data say: NaN is a number like others to DuckDB, overflow is its error, division by zero its null.

Cost: some milliseconds to translate; then 2 to 3 microseconds for each operator, and the vectorised work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.operators.expression_parts import COMPARED, COMPUTED, ExpressionPart, Unknown, parsed
from windrow.scalar_engine import project, quote

if TYPE_CHECKING:
    import duckdb

Columns = Mapping[str, pa.Array]
Datum: TypeAlias = "pa.Array | pa.Scalar"
Kernel = Callable[[Columns], Datum]

REPEATED = 3
"""An expression is translated when it is evaluated for this time: once or twice is not worth it."""
MOST_TEXTS, MOST_VARIANTS = 4096, 4
"""How many texts are remembered, and for how many schemas each."""

_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_DOUBLE, _BOOL, _TEXT = pa.float64(), pa.bool_(), pa.string()
_NAMES = {
    pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INTEGER", pa.int64(): "BIGINT", _DOUBLE: "DOUBLE",
    _BOOL: "BOOLEAN", _TEXT: "VARCHAR", pa.date32(): "DATE", pa.timestamp("us"): "TIMESTAMP",
}  # fmt: skip
"""The types that are known here."""


class Inexact(Exception):
    """Kernels and DuckDB may differ on these values."""


@dataclass(frozen=True)
class ArrowExpression:
    """An expression translated for columns of these types."""

    kernel: Kernel

    def values(self, columns: Columns, length: int) -> pa.Array:
        """What DuckDB gives for every row, or `Inexact`."""
        try:
            found = self.kernel(columns)
        except pa.ArrowException as error:  # an overflow, or a value that the wider type does not hold
            raise Inexact from error
        return pa.repeat(found, length) if isinstance(found, pa.Scalar) else found


class Translations:
    """The expressions of a process, translated when they are asked for again: all that are evaluated together, or none.

    Texts may be asked about columns of several types, and have a translation for each.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], list[_Translated]] = {}

    def values(
        self, connection: Callable[[], duckdb.DuckDBPyConnection], texts: tuple[str, ...], columns: Columns, length: int
    ) -> list[pa.Array] | None:
        """What DuckDB gives for every row, one array per expression, or None if it must be asked."""
        known = self._find(texts, columns)
        if known is None or known.uses < REPEATED:
            return None
        if known.uses == REPEATED:
            found = [translated(connection(), sql, dict(known.reads)) for sql in texts]
            known.kernels = None if None in found else [e.values for e in found if e is not None]
            known.uses += 1
        if known.kernels is None:
            return None
        try:
            return [values(columns, length) for values in known.kernels]
        except Inexact:
            return None

    def _find(self, texts: tuple[str, ...], columns: Columns) -> _Translated | None:
        """What is known of texts over columns of these types; it counts as a use."""
        variants = self._known.get(texts)
        if variants is None:
            if len(self._known) >= MOST_TEXTS:
                self._known = {}
            variants = self._known.setdefault(texts, [])
        for known in variants:
            if all(name in columns and columns[name].type == type_ for name, type_ in known.reads):
                known.uses += known.uses < REPEATED
                return known
        if len(variants) < MOST_VARIANTS:
            variants.append(_Translated(tuple((n, c.type) for n, c in columns.items())))
        return None


@dataclass
class _Translated:
    """What is known of expressions over columns of these types."""

    reads: tuple[tuple[str, pa.DataType], ...]
    uses: int = 1
    kernels: list[Callable[[Columns, int], pa.Array]] | None = None


def translated(
    connection: duckdb.DuckDBPyConnection, sql: str, types: Mapping[str, pa.DataType]
) -> ArrowExpression | None:
    """An expression over columns of these types, or None if it stays with DuckDB."""
    import duckdb

    try:
        whole = parsed(connection, sql)
        reads = {p.does: types[p.does] for p in whole.all() if p.text == quote(p.does)}
        return ArrowExpression(_Translation(connection, whole, reads).whole())
    except (Unknown, KeyError, RecursionError, duckdb.Error, pa.ArrowException):
        return None


class _Translation:
    """The kernels of one expression."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, whole: ExpressionPart, reads: Mapping[str, pa.DataType]
    ) -> None:
        self.part, self._reads = whole, reads
        texts = list(dict.fromkeys(p.text for p in whole.all()))
        none = pa.table({n: pa.array([], t) for n, t in reads.items()} or {"_row": pa.array([], pa.int8())})
        items = ", ".join(f"{text} AS c{i}" for i, text in enumerate(texts))
        self._types = dict(zip(texts, project(connection, none, items).schema.types, strict=True))
        self._wanted: dict[str, pa.Scalar | None] = {}  # constants of a type, as text
        self._connection = connection

    def whole(self) -> Kernel:
        """The kernel of the expression; then its constants are known."""
        kernel = self._kernel(self.part, self._type(self.part))
        if self._wanted:
            items = ", ".join(f"{text} AS c{i}" for i, text in enumerate(self._wanted))
            row = project(self._connection, pa.table({"_row": pa.array([0], pa.int8())}), items)
            for text, column in zip(self._wanted, row.itercolumns(), strict=True):
                self._wanted[text] = column[0]
                if column.type == _DOUBLE and column[0].is_valid and not np.isfinite(column[0].as_py()):
                    raise Unknown
        return kernel

    def _type(self, part: ExpressionPart) -> pa.DataType:
        """What DuckDB says."""
        found = self._types[part.text]
        if found not in _NAMES:
            raise Unknown
        return found

    def _kernel(self, part: ExpressionPart, type_: pa.DataType) -> Kernel:
        """What gives a part as values of a type: its own, or one that holds all of its values."""
        if part.constant:
            return self._constant(part, type_)
        own = self._type(part)
        kernel = self._own(part, own)
        if own == type_:
            return kernel
        if own not in _INTEGERS or type_ not in (*_INTEGERS, _DOUBLE) or own == _wider(own, type_):
            raise Unknown
        return lambda columns: kernel(columns).cast(type_)  # fails beyond 2 ** 53, where doubles have gaps

    def _constant(self, part: ExpressionPart, type_: pa.DataType) -> Kernel:
        text, wanted = f"CAST({part.text} AS {_NAMES[type_]})", self._wanted
        wanted[text] = None
        return lambda columns: wanted[text]

    def _own(self, part: ExpressionPart, type_: pa.DataType) -> Kernel:
        if not part.parts:
            name = part.does
            return lambda columns: columns[name]
        if part.does in _COMPARED_BY:
            left, right = self._alike(part.parts)
            return _two(part.does, left, right)
        if part.does in _TRANSLATED:
            return _TRANSLATED[part.does](self, part, type_)
        if part.does in ("is_null", "is_valid"):
            return _one(part.does, self._kernel(part.parts[0], self._type(part.parts[0])))
        parts = [self._kernel(p, _BOOL) for p in part.parts]  # of AND, OR and NOT
        if type_ != _BOOL:
            raise Unknown
        return _one(part.does, parts[0]) if part.does == "invert" else _chain(part.does, parts)

    def _alike(self, parts: Sequence[ExpressionPart]) -> list[Kernel]:
        """Parts as values of the type by which DuckDB compares them."""
        if any(p.does == "NULL" for p in parts):
            raise Unknown
        type_ = reduce(_wider, (self._compared_as(p) for p in parts))
        kernels = [self._kernel(p, type_) for p in parts]
        return [_ordinary(k) for k in kernels] if type_ == _DOUBLE else kernels

    def _compared_as(self, part: ExpressionPart) -> pa.DataType:
        found = self._types[part.text]
        if part.constant and pa.types.is_decimal(found):
            return _DECIMAL
        return self._type(part)

    def _computed(self, part: ExpressionPart, type_: pa.DataType) -> Kernel:
        if type_ not in (*_INTEGERS, _DOUBLE):
            raise Unknown
        left, right = (self._kernel(p, type_) for p in part.parts)
        kernel = _two(COMPUTED[part.does], left, right)
        return _finite(kernel) if type_ == _DOUBLE else kernel

    def _negated(self, part: ExpressionPart, type_: pa.DataType) -> Kernel:
        if type_ not in (*_INTEGERS, _DOUBLE):
            raise Unknown
        return _one("negate_checked", self._kernel(part.parts[0], type_))

    def _divided(self, part: ExpressionPart, type_: pa.DataType) -> Kernel:
        if type_ != _DOUBLE:
            raise Unknown
        left, right = (self._kernel(p, _DOUBLE) for p in part.parts)
        return _finite(_two("divide", left, right))  # by zero: not finite

    def _remainder(self, part: ExpressionPart, type_: pa.DataType) -> Kernel:
        """Of integers, by a constant above zero: with the sign of what is divided."""
        if type_ not in _INTEGERS or not part.parts[1].constant or part.parts[1].parts:
            raise Unknown
        if int(part.parts[1].text) <= 0:
            raise Unknown
        left, right = (self._kernel(p, type_) for p in part.parts)
        divide, multiply, subtract = (pc.get_function(n) for n in ("divide", "multiply", "subtract"))

        def kernel(columns: Columns) -> Datum:
            a, b = left(columns), right(columns)
            return subtract.call([a, multiply.call([divide.call([a, b]), b])])

        return kernel

    def _cast(self, part: ExpressionPart, type_: pa.DataType) -> Kernel:
        return self._kernel(part.parts[0], type_)

    def _coalesced(self, part: ExpressionPart, type_: pa.DataType) -> Kernel:
        return _chain("coalesce", [self._kernel(p, type_) for p in part.parts])

    def _cases(self, part: ExpressionPart, type_: pa.DataType) -> Kernel:
        *branches, other = part.parts
        kernel = self._kernel(other, type_)
        pairs = list(zip(branches[::2], branches[1::2], strict=True))
        for when, then in reversed(pairs):
            if when.constant:
                raise Unknown
            kernel = _choice(self._kernel(when, _BOOL), self._kernel(then, type_), kernel)
        return kernel

    def _between(self, part: ExpressionPart, type_: pa.DataType) -> Kernel:
        value, low, high = self._alike(part.parts)
        return _two("and_kleene", _two("greater_equal", value, low), _two("less_equal", value, high))

    def _among(self, part: ExpressionPart, type_: pa.DataType) -> Kernel:
        value, *others = self._alike(part.parts)
        kernel = _chain("or_kleene", [_two("equal", value, other) for other in others])
        return _one("invert", kernel) if part.does == "NOT IN" else kernel


_COMPARED_BY = {does for _, does in COMPARED.values()}
_TRANSLATED: Mapping[str, Callable[[_Translation, ExpressionPart, pa.DataType], Kernel]] = {
    "+": _Translation._computed, "-": _Translation._computed, "*": _Translation._computed,
    "negate": _Translation._negated, "/": _Translation._divided, "%": _Translation._remainder,
    "cast": _Translation._cast, "coalesce": _Translation._coalesced, "case": _Translation._cases,
    "between": _Translation._between, "IN": _Translation._among, "NOT IN": _Translation._among,
}  # fmt: skip
_DECIMAL = pa.decimal128(38, 0)
"""Any constant with a decimal point: it is compared with doubles as one, and not compared here with anything else."""


def _wider(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The type by which DuckDB compares two, as far as it is known here."""
    if a == b:
        return a
    if a in _INTEGERS and b in _INTEGERS:
        return max(a, b, key=_INTEGERS.index)
    if _DOUBLE in (a, b) and all(t in (*_INTEGERS, _DOUBLE, _DECIMAL) for t in (a, b)):
        return _DOUBLE
    raise Unknown


def _one(name: str, inner: Kernel) -> Kernel:
    call = pc.get_function(name).call
    return lambda columns: call([inner(columns)])


def _two(name: str, left: Kernel, right: Kernel) -> Kernel:
    call = pc.get_function(name).call
    return lambda columns: call([left(columns), right(columns)])


def _chain(name: str, kernels: Sequence[Kernel]) -> Kernel:
    return reduce(lambda left, right: _two(name, left, right), kernels)


def _choice(when: Kernel, then: Kernel, other: Kernel) -> Kernel:
    choose, filled, no = pc.get_function("if_else").call, pc.get_function("coalesce").call, pa.scalar(False)

    def kernel(columns: Columns) -> Datum:
        found = when(columns)
        return choose([filled([found, no]) if found.null_count else found, then(columns), other(columns)])

    return kernel


def _ordinary(inner: Kernel) -> Kernel:
    """No NaN."""

    def kernel(columns: Columns) -> Datum:
        found = inner(columns)
        if isinstance(found, pa.Scalar):
            return found
        if pc.any(pc.is_nan(found)).as_py() if found.null_count else np.isnan(found.to_numpy()).any():
            raise Inexact
        return found

    return kernel


def _finite(inner: Kernel) -> Kernel:
    """Neither NaN nor infinite."""

    def kernel(columns: Columns) -> Datum:
        found = inner(columns)
        fine = pc.all(pc.is_finite(found)).as_py() if found.null_count else np.isfinite(found.to_numpy()).all()
        if fine is not None and not fine:  # None: all are null
            raise Inexact
        return found

    return kernel
