"""What DuckDB raises on: by cast and function, for the types that it binds them with.

Comparisons, logic, null tests, CASE and COALESCE raise for no value; of functions and casts those do not that stand on
this page, for the types that are said there. Exact numbers lie between bounds, which follow from types:

    k % 100 + 1        is of at most four digits and fits a BIGINT: it cannot raise
    k + 1              may be 2 ** 63: it may raise
    d * 2.5            of a DECIMAL(10, 2) is below 10 ** 9, and fits the DECIMAL(12, 3) that DuckDB makes of it

Division by zero is NULL, and floats overflow to infinity, since connections are set so (`scalar_engine.py`). What is
not on this page is taken to raise; `tests/plan/test_totality.py` holds the page against the extremes of all types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil, floor

from windrow.plan.bound_parts import BoundPart, BoundType
from windrow.scalar_engine import binding, literal, select


class MayRaise(Exception):
    """A part that may have no value on some row."""


Bounds = tuple[Fraction, Fraction]
"""Between which values an exact number lies."""
Inner = Sequence[Bounds | None]
Rule = Callable[[BoundPart, Inner], Bounds | None]
"""The bounds of what a part makes (None: no exact number) by those of its own parts."""


def may_raise(part: BoundPart) -> bool:
    """Whether a part may have no value on some row."""
    try:
        _bounds(part)
    except MayRaise:
        return True
    return False


def tells_zeros_apart(part: BoundPart) -> bool:
    """Whether a part may differ for 0.0 and -0.0."""
    return any(
        p.does not in _BLIND or (p.does in ("cast", "try_cast") and p.type.name == "VARCHAR")
        for p in part.all()
        if p.parts and any(q.type.name in _FLOATS for q in p.parts)
    )


def _bounds(part: BoundPart) -> Bounds | None:
    if part.does in ("column", "try"):
        return _of(part.type)
    inner = [_bounds(p) for p in part.parts]
    if part.does not in _RULES:
        raise MayRaise
    return _RULES[part.does](part, inner)


# -- types and their bounds --------------------------------------------------------------------------------------------

_FLOATS = frozenset(("FLOAT", "DOUBLE"))
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}
_RANGES = {name: (Fraction(-(2 ** (n - 1))), Fraction(2 ** (n - 1) - 1)) for name, n in _BITS.items()}
_RANGES |= {f"U{name}": (Fraction(0), Fraction(2**n - 1)) for name, n in _BITS.items()}
_RANGES["BOOLEAN"] = Fraction(0), Fraction(1)


def _of(type_: BoundType) -> Bounds | None:
    if type_.width:
        most = Fraction(10**type_.width - 1, 10**type_.scale)
        return -most, most
    return _RANGES.get(type_.name)


def _fitting(type_: BoundType, bounds: Bounds) -> Bounds:
    """The bounds, which must be within those of the type."""
    known = _of(type_)
    if known is None or bounds[0] < known[0] or bounds[1] > known[1]:
        raise MayRaise
    return bounds


def _hull(bounds: Inner) -> Bounds | None:
    known = [b for b in bounds if b is not None]
    return (min(b[0] for b in known), max(b[1] for b in known)) if len(known) == len(bounds) and known else None


def _rounded(bounds: Bounds, scale: int) -> Bounds:
    """The bounds with so many decimals, whichever way is rounded."""
    unit = 10**scale
    return Fraction(floor(bounds[0] * unit), unit), Fraction(ceil(bounds[1] * unit), unit)


def _within(bounds: Bounds | None, low: int, high: int) -> bool:
    return bounds is not None and low <= bounds[0] and bounds[1] <= high


# -- constants and casts -----------------------------------------------------------------------------------------------

_WIDER = {
    "FLOAT": ("DOUBLE", "VARCHAR", "BOOLEAN"), "DOUBLE": ("VARCHAR", "BOOLEAN"), "DATE": ("VARCHAR",),
    "TIME": ("VARCHAR",), "TIMESTAMP": ("DATE",), "TIMESTAMP_NS": ("TIMESTAMP", "DATE"),
}  # fmt: skip
"""To what types all values of a type can be cast, besides exact numbers; times of other units or zones may not fit."""


def _constant(part: BoundPart, inner: Inner) -> Bounds | None:
    """A number of as many digits: plans that differ in constants of a class only are one (`plan/parametric.py`)."""
    known = _of(part.type)
    if known is None or not isinstance(part.value, int):  # a HUGEINT is told in halves
        return known
    most = known[1] if part.type.width or part.type.name == "BOOLEAN" else Fraction(10 ** len(str(abs(part.value))) - 1)
    return (-most, Fraction(0)) if part.value < 0 else (Fraction(0), most)


def _cast(part: BoundPart, inner: Inner) -> Bounds | None:
    (of,), to = part.parts, part.type
    if of.type in (to, _NULL):
        return inner[0] if of.type == to else _of(to)
    if inner[0] is not None and to.name not in ("VARCHAR", "BOOLEAN", *_FLOATS):
        return _fitting(to, _rounded(inner[0], to.scale))
    if inner[0] is None and to.name not in _WIDER.get(of.type.name, ()) and not _folds(part):
        raise MayRaise
    return _of(to)


_NULL = BoundType("NULL")


def _folds(part: BoundPart) -> bool:
    """Whether a cast of a text that is written has a value: then it has it on every row."""
    written, to = part, list[str]()
    while written.does == "cast":
        to.append(str(written.type))
        (written,) = written.parts
    if written.does != "constant" or not isinstance(written.value, str):
        return False
    shown = literal(written.value)
    for name in reversed(to):
        shown = f"CAST({shown} AS {name})"
    try:
        with binding() as connection:
            select(connection, f"SELECT {shown}").to_arrow_table()  # Python values want modules that may be missing
    except Exception:  # DuckDB's errors share no narrower public base across versions
        return False
    return True


# -- functions ---------------------------------------------------------------------------------------------------------


def _always(part: BoundPart, inner: Inner) -> Bounds | None:
    return _of(part.type)


def _one_of_all(part: BoundPart, inner: Inner) -> Bounds | None:
    return _hull(inner)


def _one_of_cases(part: BoundPart, inner: Inner) -> Bounds | None:
    return _hull([*inner[1::2], inner[-1]])


def _given(*names: str, least: int | None = None, most: int | None = None) -> Rule:
    """A function of arguments of these types; `least` and `most`: of what it makes."""

    def rule(part: BoundPart, inner: Inner) -> Bounds | None:
        if not all(p.type.name in names for p in part.parts):
            raise MayRaise
        return _of(part.type) if least is None or most is None else (Fraction(least), Fraction(most))

    return rule


_of_floats, _of_texts = _given(*_FLOATS), _given("VARCHAR")


def _exact(compute: Callable[[Sequence[Bounds]], Bounds]) -> Rule:
    """A function that is exact of exact numbers, and has a value for all floats."""

    def rule(part: BoundPart, inner: Inner) -> Bounds | None:
        known = [b for b in inner if b is not None]
        if len(known) < len(inner):
            return _of_floats(part, inner)
        return _fitting(part.type, compute(known))

    return rule


def _sum(of: Sequence[Bounds]) -> Bounds:
    return sum((b[0] for b in of), Fraction(0)), sum((b[1] for b in of), Fraction(0))


def _difference(of: Sequence[Bounds]) -> Bounds:
    low, high = of[-1]
    return (-high, -low) if len(of) == 1 else (of[0][0] - high, of[0][1] - low)


def _product(of: Sequence[Bounds]) -> Bounds:
    ends = [a * b for a in of[0] for b in of[-1]]
    return min(ends), max(ends)


def _size(of: Sequence[Bounds]) -> Bounds:
    ((low, high),) = of
    return max(low, -high, Fraction(0)), max(-low, high)


def _divided(part: BoundPart, inner: Inner) -> Bounds | None:
    """`//` and `%` of integers, which raise where the quotient is one too many: the least number by -1."""
    if None in inner or any(p.type.width for p in part.parts):
        return _of_floats(part, inner)
    (least, most), (low, high) = (b for b in inner if b is not None)
    if low <= -1 <= high:
        _fitting(part.type, _difference([(least, most)]))
    largest = max(-least, most, Fraction(0))
    if part.does in ("%", "mod"):
        largest = min(largest, max(-low, high, Fraction(1)) - 1)
    return -largest if least < 0 or low < 0 else Fraction(0), largest


def _to_decimals(part: BoundPart, inner: Inner) -> Bounds | None:
    """Rounding, of floats to any number of decimals; of exact numbers to some that are written."""
    if inner[0] is None:
        return _of_floats(BoundPart(part.does, part.type, part.parts[:1]), inner[:1])
    written = part.parts[1:]
    if any(p.does != "constant" or not isinstance(p.value, int) or p.value < 0 for p in written):
        raise MayRaise
    return _fitting(part.type, _rounded(inner[0], part.type.scale))


def _cut(part: BoundPart, inner: Inner) -> Bounds | None:
    """Pieces of texts, at places that 32 bits say."""
    text = ["VARCHAR" for p, b in zip(part.parts, inner, strict=True) if b is None and p.type.name == "VARCHAR"]
    if len(text) + sum(_within(b, -(2**31), 2**31) for b in inner) < len(inner):
        raise MayRaise
    return _of(part.type)


def _searched(part: BoundPart, inner: Inner) -> Bounds | None:
    """A regular expression that is written in the part of the language that cannot be written wrongly unnoticed."""
    text, *pattern = part.parts
    if text.type.name != "VARCHAR" or len(pattern) != 1 or pattern[0].does != "constant":
        raise MayRaise
    written = str(pattern[0].value)
    if not re.fullmatch(r"[\w .,:;@#%&=<>!~/^$|()\[\]*+?-]*", written) or _ODD.search(written):
        raise MayRaise
    try:
        re.compile(written)
    except re.error:
        raise MayRaise from None
    return _of(part.type)


_ODD = re.compile(r"[*+?][*+]|\(\?|\[[^\]]*\[")


def _part_of_time(part: BoundPart, inner: Inner) -> Bounds | None:
    """`date_part('hour', t)` is `hour(t)`; `date_trunc` of what is at most a day."""
    written, time = part.parts
    name = str(written.value).lower()
    if written.does != "constant":
        raise MayRaise
    if part.does in ("date_trunc", "datetrunc"):
        if name.removesuffix("s") not in _CLOCK or time.type.name not in ("TIMESTAMP", "TIMESTAMP_NS"):
            raise MayRaise
        return None
    rule = _TIMES.get(name)
    if rule is None:
        raise MayRaise
    rule(BoundPart(name, part.type, (time,)), inner[1:])
    return _of(part.type)


_CLOCK = ("day", "hour", "minute", "second", "millisecond", "microsecond")


def _named(words: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(words.split(), rule)


_TIMED = ("TIMESTAMP", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE")
_DATED = (*_TIMED, "DATE")
_TIMES = {
    **_named("hour", _given(*_DATED, "TIME", least=0, most=23)),
    **_named("minute second", _given(*_DATED, "TIME", least=0, most=59)),
    **_named("day month quarter dayofmonth dayofweek dayofyear isodow weekday", _given(*_DATED, least=0, most=366)),
    **_named("year decade century millennium", _given(*_DATED, least=-(10**7), most=10**7)),
    **_named("dayname monthname era julian millisecond microsecond epoch", _given(*_DATED)),
    **_named(
        "week weekofyear isoyear yearweek last_day epoch_us", _given(*_TIMED)
    ),  # a year may begin before all dates
}
_TESTED = "contains starts_with ^@ prefix suffix ends_with ~~ !~~ ~~* !~~* ~~~"
_MADE = "lower lcase upper ucase trim ltrim rtrim reverse || concat replace translate strip_accents nfc_normalize"
_MEASURED = "length len strlen char_length character_length length_grapheme octet_length bit_length"
_ALIKE = "levenshtein damerau_levenshtein editdist3 jaro_similarity jaro_winkler_similarity"
_CURVES = "sqrt cbrt exp ln log log2 log10 sin cos tan asin acos atan atan2 sinh cosh tanh degrees radians"
_RULES: dict[str, Rule] = {
    "constant": _constant,
    "cast": _cast,
    "case": _one_of_cases,
    **_named("test try_cast typeof hash", _always),
    **_named("coalesce greatest least", _one_of_all),
    **_named("+ add", _exact(_sum)),
    **_named("- subtract", _exact(_difference)),
    **_named("* multiply", _exact(_product)),
    **_named("// % mod", _divided),
    **_named("abs @", _exact(_size)),
    "sign": _exact(lambda of: (Fraction(-1), Fraction(1))),
    **_named("round ceil ceiling floor trunc", _to_decimals),
    **_named(f"/ fdiv fmod pow power ^ ** isnan isinf isfinite signbit {_CURVES}", _of_floats),
    **_named("& | xor ~ bit_count", _given(*(name for name in _RANGES if name != "BOOLEAN"))),
    **_named(f"{_TESTED} {_MADE} {_ALIKE} ascii ord unicode md5 sha1 sha256", _of_texts),
    **_named(f"{_MEASURED} strpos instr position", _given("VARCHAR", least=0, most=2**35)),
    **_named("left right substring substr array_extract split_part", _cut),
    **_named("regexp_matches regexp_full_match", _searched),
    **_named("date_part datepart date_trunc datetrunc", _part_of_time),
    **_TIMES,
}
"""By what a part does: when it cannot raise, and what it makes then."""

_BLIND = {
    *("cast", "try_cast", "try", "test", "case", "coalesce", "greatest", "least", "+", "add", "-", "subtract", "*"),
    *("multiply", "abs", "@", "sign", "round", "ceil", "ceiling", "floor", "trunc", "isnan", "isinf", "isfinite"),
}
"""What makes the same of 0.0 and -0.0, or zeros again."""
