"""Tokens of text, each read at its position in a block of bytes: integers, numbers, dates and times, quoted text.

Law: a newline is part of no token, so that a block which ends with one is never left. Functions return what is behind
the token, and -1 if there is none of the kind: then a parser with more patience may find one, or say what is wrong.

A double whose digits and power of ten are doubles themselves is one exact multiplication or division away (Clinger
1990); any other is only told where it ends.
"""

from __future__ import annotations

import numpy as np

from windrow.operators.borrowing import borrowing

POWERS = np.array([10.0**i for i in range(23)])
EXACT = 1 << 53  # integers up to here are doubles


@borrowing
def space(data: np.ndarray, at: int) -> int:
    """What is behind blanks."""
    while data[at] == 32 or data[at] == 9 or data[at] == 13:
        at += 1
    return at


@borrowing
def quoted(data: np.ndarray, at: int, most: int) -> int:
    """What is behind text in quotes, without escapes, of bytes up to `most`."""
    if data[at] != 34:
        return -1
    at += 1
    while data[at] != 34:
        if data[at] < 32 or data[at] == 92 or data[at] > most:
            return -1
        at += 1
    return at + 1


@borrowing
def word(data: np.ndarray, at: int, a: int, b: int, c: int, d: int) -> int:
    """What is behind a word of four letters."""
    if data[at] == a and data[at + 1] == b and data[at + 2] == c and data[at + 3] == d:
        return at + 4
    return -1


@borrowing
def truth(data: np.ndarray, at: int) -> int:
    """What is behind true or false."""
    if data[at] == 102:
        return word(data, at + 1, 97, 108, 115, 101)
    return word(data, at, 116, 114, 117, 101)


@borrowing
def integer(data: np.ndarray, at: int) -> tuple[int, int]:
    """An integer of up to 18 digits, and what is behind it."""
    negative = data[at] == 45
    at += 1 if negative else 0
    begin, value = at, 0
    while 48 <= data[at] <= 57:
        value = value * 10 + (data[at] - 48)
        at += 1
    digits = at - begin
    if digits == 0 or digits > 18 or (digits > 1 and data[begin] == 48):
        return 0, -1
    return -value if negative else value, at


@borrowing
def double(data: np.ndarray, at: int) -> tuple[float, int, bool]:
    """A number, what is behind it, and whether it is that exactly."""
    negative = data[at] == 45
    at += 1 if negative else 0
    begin, value, power = at, 0, 0
    while 48 <= data[at] <= 57:
        value = value * 10 + (data[at] - 48)
        at += 1
    digits = at - begin
    if digits == 0 or (digits > 1 and data[begin] == 48):
        return 0.0, -1, True
    if data[at] == 46:
        at += 1
        begin = at
        while 48 <= data[at] <= 57:
            value = value * 10 + (data[at] - 48)
            at += 1
        power = begin - at
        if power == 0:
            return 0.0, -1, True
        digits -= power
    if data[at] == 101 or data[at] == 69:
        minus = data[at + 1] == 45
        at += 2 if minus or data[at + 1] == 43 else 1
        begin, more = at, 0
        while 48 <= data[at] <= 57:
            more = more * 10 + (data[at] - 48)
            at += 1
        if at == begin:
            return 0.0, -1, True
        if at - begin > 9:
            return 0.0, at, False
        power += -more if minus else more
    if negative and value == 0 and digits == 1 and power == 0:
        return 0.0, -1, True  # -0: parsers disagree on whether an integer zero has a sign
    if digits > 18 or value > EXACT or power < -22 or power > 22:
        return 0.0, at, False
    number = value / POWERS[-power] if power < 0 else value * POWERS[power]
    return -number if negative else number, at, True


@borrowing
def moment(data: np.ndarray, at: int, timed: bool, zoned: bool) -> tuple[int, int]:
    """A date in days, or a time in microseconds, if zoned with a Z; and what is behind it."""
    century, at = _two(data, at, 0, 99)
    if at < 0:
        return 0, -1
    year, at = _two(data, at, 0, 99)
    year += 100 * century
    month, at = _after(data, at, 45, 1, 12)
    day, at = _after(data, at, 45, 1, 31)
    if at < 0 or year < 1 or day > _days(year, month):
        return 0, -1
    value = _civil(year, month, day)
    if timed:
        if data[at] != 32 and data[at] != 84:  # T
            return 0, -1
        hour, at = _two(data, at + 1, 0, 23)
        minute, at = _after(data, at, 58, 0, 59)
        second, at = _after(data, at, 58, 0, 59)
        if at < 0:
            return 0, -1
        value = ((value * 24 + hour) * 60 + minute) * 60 + second
        unit = 1_000_000
        if data[at] == 46:
            at += 1
            begin = at
            while 48 <= data[at] <= 57 and at < begin + 6:
                value = value * 10 + (data[at] - 48)
                unit //= 10
                at += 1
            if at == begin:
                return 0, -1
        value *= unit
        if zoned:
            if data[at] != 90:  # Z
                return 0, -1
            at += 1
    return value, at


@borrowing
def _after(data: np.ndarray, at: int, sign: int, least: int, most: int) -> tuple[int, int]:
    """A number of two digits behind a sign."""
    if at < 0 or data[at] != sign:
        return 0, -1
    return _two(data, at + 1, least, most)


@borrowing
def _two(data: np.ndarray, at: int, least: int, most: int) -> tuple[int, int]:
    """A number of two digits."""
    if at < 0 or not 48 <= data[at] <= 57 or not 48 <= data[at + 1] <= 57:
        return 0, -1
    value = 10 * (data[at] - 48) + (data[at + 1] - 48)
    return value, at + 2 if least <= value <= most else -1


@borrowing
def _days(year: int, month: int) -> int:
    """The number of days of a month."""
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


@borrowing
def _civil(year: int, month: int, day: int) -> int:
    """Days since 1970 by the Gregorian calendar; years are counted from March on, so that a leap day comes last."""
    year -= 1 if month <= 2 else 0
    turned = month - 3 if month > 2 else month + 9
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * turned + 2) // 5 + day - 719469
