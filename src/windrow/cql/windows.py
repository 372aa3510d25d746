"""Windows as written, and what they mean on a clock.

    [RANGE 12 MINUTES SLIDE '5 min' INTERNAL]   [WINDOW 10 min]   [RANGE UNBOUNDED]   [WINDOW UNTIL NOW]   [NOW]
    [ROWS 10 SLIDE 5]   [PARTITION BY a, b ROWS 1]   [RANGE 12 MINUTES SLIDE AT MOST 5 MINUTES]

A clause is pure syntax: amounts with their unit. `resolve` gives it a clock: microseconds when the
stream's time is a timestamp, plain ticks when it is an integer; the wrong kind of amount is an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from windrow.catalog.lengths import UNITS
from windrow.cql.source import Cursor, ScriptText
from windrow.errors import BindingError, CQLSyntaxError, UnsupportedError
from windrow.plan.nodes import WindowKind, WindowSpec

FORMS = "[RANGE 10 MINUTES SLIDE 1 MINUTE], [RANGE UNBOUNDED], [NOW], [ROWS 100] or [PARTITION BY a ROWS 100]"
OPENERS = ("RANGE", "WINDOW", "ROWS", "NOW", "PARTITION", "PARTITION BY", "INTERNAL", "UNBOUNDED")


class Clock(Enum):
    """What a stream's time counts."""

    TICKS = "ticks"
    MICROSECONDS = "microseconds"


@dataclass(frozen=True)
class Amount:
    """A length of time: microseconds when a unit was written, else plain ticks."""

    value: int
    has_unit: bool
    text: str
    offset: int

    def on(self, clock: Clock, source: ScriptText, what: str) -> int:
        """The length in units of the clock."""
        if self.has_unit and clock is Clock.TICKS:
            raise BindingError(
                f"{what} {self.text} has a unit, but the stream's time is an integer",
                hint=f"write a plain number of ticks, such as {what} 5, or declare its time as TIMESTAMP",
                span=source.span(self.offset),
            )
        if not self.has_unit and clock is Clock.MICROSECONDS:
            raise BindingError(
                f"{what} {self.text} has no unit, but the stream's time is a timestamp",
                hint=f"write a unit: {what} {self.text} SECONDS",
                span=source.span(self.offset),
            )
        return self.value


@dataclass(frozen=True)
class WindowClause:
    """A window as written. `size` and `slide` are rows for ROWS, amounts of time otherwise.

    `aligned`: TUMBLE, HOP or CUMULATE, `[start, end)` instead of `(t - size, t]`; `shift`: its offset; `time`: the time
    column that it names, with its place. `at_most`: the SLIDE is a deadline.
    """

    kind: WindowKind
    text: str
    offset: int
    size: int | Amount | None = None
    slide: int | Amount | None = None
    partition: tuple[tuple[str, int], ...] = ()  # (column, offset)
    internal: bool = False
    aligned: bool = False
    shift: Amount | None = None
    time: tuple[str, int] | None = None
    at_most: bool = False

    @property
    def period(self) -> Amount | None:
        """The SLIDE that makes a query periodic: that of a time window."""
        return self.slide if isinstance(self.slide, Amount) else None


def at_window(cursor: Cursor) -> bool:
    """Is the cursor at a `[` that opens a window?"""
    if cursor.word != "[":
        return False
    cursor.index += 1
    try:
        return cursor.word in OPENERS
    finally:
        cursor.index -= 1


def parse_window(cursor: Cursor) -> WindowClause:
    """Parse one bracketed window."""
    start = cursor.offset
    cursor.expect("[")
    parser = _WindowParser(cursor)
    clause = parser.parse(start)
    return clause


class _WindowParser:
    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.kind: WindowKind | None = None
        self.size: int | Amount | None = None
        self.slide: int | Amount | None = None
        self.partition: tuple[tuple[str, int], ...] = ()
        self.internal = False
        self.at_most = False

    def parse(self, start: int) -> WindowClause:
        while not self.cursor.accept("]"):
            self._clause()
        if self.kind is None:
            raise CQLSyntaxError("this window has no size", hint=f"write {FORMS}", span=self.cursor.source.span(start))
        if self.partition and self.kind is not WindowKind.ROWS:
            raise CQLSyntaxError(
                "PARTITION BY needs ROWS", hint="write [PARTITION BY a ROWS 100]", span=self.cursor.source.span(start)
            )
        text = self.cursor.source.text[start : self.cursor.tokens[self.cursor.index - 1].end + 1]
        return WindowClause(
            self.kind, text, start, self.size, self.slide, self.partition, self.internal, at_most=self.at_most
        )

    def _clause(self) -> None:
        cursor = self.cursor
        if cursor.accept("INTERNAL"):
            self.internal = True
        elif cursor.word in ("PARTITION", "PARTITION BY"):
            self._partition()
        elif self.kind is not None and cursor.accept("SLIDE"):
            self._slide()
        elif self.kind is None and cursor.accept("ROWS"):
            self.kind, self.size = WindowKind.ROWS, self._rows("ROWS")
        elif self.kind is None and cursor.word in ("RANGE", "WINDOW", "NOW", "UNBOUNDED"):
            self._time_window()
        elif self.kind in (WindowKind.RANGE, WindowKind.NOW, WindowKind.UNBOUNDED):
            units = "; units are us, ms, sec, min, hour, day" if cursor.kind == "VAR" else ""
            raise cursor.unexpected("SLIDE, INTERNAL or ]", hint=f"write {FORMS}{units}")
        else:
            raise cursor.unexpected("a window", hint=f"write {FORMS}")

    def _slide(self) -> None:
        offset = self.cursor.offset
        self.at_most = self.cursor.accept("AT", "MOST")
        if self.at_most and self.kind is WindowKind.ROWS:
            raise UnsupportedError(
                "SLIDE AT MOST on a window of rows",
                detail="a deadline is a time, and rows come when they come",
                hint="write [RANGE 10 MINUTES SLIDE AT MOST 1 MINUTE], or [ROWS 100 SLIDE 10]",
                span=self.cursor.source.span(offset),
            )
        self.slide = self._rows("SLIDE") if self.kind is WindowKind.ROWS else self._amount("SLIDE")

    def _time_window(self) -> None:
        cursor = self.cursor
        opener = str(cursor.take().text).upper()
        if opener == "NOW":
            self.kind = WindowKind.NOW
        elif opener == "UNBOUNDED" or cursor.accept("UNBOUNDED") or cursor.accept("UNTIL", "NOW"):
            self.kind = WindowKind.UNBOUNDED
        elif cursor.accept("NOW"):
            self.kind = WindowKind.NOW
        else:
            self.kind, self.size = WindowKind.RANGE, self._amount(opener)

    def _partition(self) -> None:
        cursor = self.cursor
        if not cursor.accept("PARTITION BY"):
            cursor.expect("PARTITION")
            cursor.expect("BY")
        columns = []
        while True:
            offset = cursor.offset
            name = cursor.name("a column to partition by")
            if cursor.accept("."):  # the alias before the dot can only be this stream's
                name = cursor.name("a column to partition by")
            columns.append((name, offset))
            if not cursor.accept(","):
                break
        self.partition = tuple(columns)

    def _rows(self, what: str) -> int:
        offset = self.cursor.offset
        negative = self.cursor.accept("-")
        text = str(self.cursor.current.text) if self.cursor.kind == "NUMBER" else ""  # type: ignore[union-attr]
        if not text.isdigit():
            raise self.cursor.unexpected(f"a whole number of rows after {what}", hint="write [ROWS 100 SLIDE 10]")
        self.cursor.take()
        rows = -int(text) if negative else int(text)
        if rows >= 2**63:
            raise BindingError(
                f"{what} {rows} is more than a window can hold",
                hint="write [RANGE UNBOUNDED]",
                span=self.cursor.source.span(offset),
            )
        return _positive(rows, what, str(rows), self.cursor, offset)

    def _amount(self, what: str) -> Amount:
        amount = parse_amount(self.cursor, what)
        _positive(amount.value, what, amount.text, self.cursor, amount.offset)
        return amount


def _positive(value: int, what: str, text: str, cursor: Cursor, offset: int) -> int:
    if value <= 0:
        raise BindingError(
            f"{what} {text} is not positive",
            hint=f"write {what} with a length greater than zero",
            span=cursor.source.span(offset),
        )
    return value


def parse_amount(cursor: Cursor, what: str) -> Amount:
    """Parse a length of time: `12 MINUTES`, `'12 min'`, `INTERVAL '1' HOUR`, or a bare number of ticks."""
    offset = cursor.offset
    cursor.accept("INTERVAL")
    if cursor.kind == "STRING":
        words = str(cursor.take().text)
        if re.fullmatch(r"\s*[+-]?\d+(\.\d+)?\s*", words) and cursor.word.lower() in UNITS:
            words += " " + cursor.take().text
        text = f"'{words}'"
    else:
        sign = "-" if cursor.accept("-") else ""
        if cursor.kind != "NUMBER":
            raise cursor.unexpected(f"a length of time after {what}", hint=f"write {what} 10 SECONDS or {what} 10")
        words = sign + str(cursor.take().text)
        if cursor.word.lower() in UNITS:
            words += " " + str(cursor.take().text)
        text = words
    return Amount(*_measure(words, cursor, offset, what), text, offset)


LONGEST = 2**61
"""The longest time that can be said, so that RANGE, SLIDE and an instant add up to one: 73,000 years, or ticks."""


_AMOUNT = re.compile(r"([+-]?\d+(?:\.\d+)?(?:[eE]\d{1,3})?)\s*([^\W\d]*)")


def _measure(words: str, cursor: Cursor, offset: int, what: str) -> tuple[int, bool]:
    """The length in microseconds (with a unit) or ticks (without)."""
    pairs = _AMOUNT.findall(words)
    rest = _AMOUNT.sub("", words).strip(" ,")
    units = [unit.lower() for _, unit in pairs]
    bare = units == [""]
    if not pairs or rest or (not bare and any(u not in UNITS for u in units)):
        raise CQLSyntaxError(
            f"'{words}' is not a length of time",
            hint=f"write {what} 10 SECONDS; units are us, ms, sec, min, hour, day",
            span=cursor.source.span(offset),
        )
    numbers = [int(number) if number.isdigit() else Fraction(number) for number, _ in pairs]
    total = sum(number * (1 if bare else UNITS[unit]) for number, unit in zip(numbers, units, strict=True))
    if total.denominator != 1:
        raise CQLSyntaxError(
            f"'{words}' is not a whole number of {'ticks' if bare else 'microseconds'}", span=cursor.source.span(offset)
        )
    if total > LONGEST:
        raise BindingError(
            f"'{words}' is too long a time", hint="write [RANGE UNBOUNDED]", span=cursor.source.span(offset)
        )
    return int(total), not bare


def resolve(clause: WindowClause, clock: Clock, source: ScriptText, partition: tuple[str, ...]) -> WindowSpec:
    """The window on a clock; `partition` are the internal names of its partition columns."""
    return WindowSpec(
        clause.kind,
        _on(clause.size, clock, source, "RANGE"),
        _on(clause.slide, clock, source, "SLIDE"),
        partition,
        clause.internal,
        clause.text,
        clause.shift.value if clause.shift is not None and clause.kind is WindowKind.CUMULATE else 0,
    )


def _on(length: int | Amount | None, clock: Clock, source: ScriptText, what: str) -> int | None:
    return length.on(clock, source, what) if isinstance(length, Amount) else length
