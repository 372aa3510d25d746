"""Lengths of time as they are written: in clauses of a script, options of a source and settings of an engine."""

from __future__ import annotations

import re
from fractions import Fraction

_SECOND = 1_000_000
UNITS: dict[str, int] = {
    unit: size
    for size, units in (
        (1, "us usec usecs microsecond microseconds"),
        (1_000, "ms msec msecs millisecond milliseconds"),
        (_SECOND, "s sec secs second seconds"),
        (60 * _SECOND, "m min mins minute minutes"),
        (3600 * _SECOND, "h hr hrs hour hours"),
        (86400 * _SECOND, "d day days"),
        (7 * 86400 * _SECOND, "w week weeks"),
    )
    for unit in units.split()
}
"""Microseconds of a unit, by every name it has."""

_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([^\W\d]+)")


def microseconds(text: str) -> int:
    """A length of time with a unit; ValueError if it is none.

    >>> microseconds("2 seconds"), microseconds("1 min 30 s")
    (2000000, 90000000)
    """
    pairs = _PART.findall(text)
    rest = _PART.sub("", text).strip(" ,")
    if not pairs or rest or any(unit.lower() not in UNITS for _, unit in pairs):
        raise ValueError(f"{text!r} is not a length of time")
    return round(sum(Fraction(number) * UNITS[unit.lower()] for number, unit in pairs))


def seconds(text: str) -> float:
    """The same in seconds, which is the unit of a number by itself.

    >>> seconds("30 seconds"), seconds("5 min"), seconds("2"), seconds("5s")
    (30.0, 300.0, 2.0, 5.0)
    """
    if re.fullmatch(r"\s*\d+(\.\d+)?\s*", text):
        return float(text)
    return microseconds(text) / _SECOND
