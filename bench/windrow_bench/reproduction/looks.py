"""The rule by which every claim is judged, and words for numbers.

* An order ("A costs more than B") holds where no point turns it round by more than the scatter and most points show it
  by more than that. If none turns it round but too few show it, the claim is undecided, unless print gives a size.
* A trend ("A rises with x") holds where its ends differ by more than the scatter and its steps back are, taken together,
  less than a quarter of its steps forward.
* What is said to be alike, constant or close holds within a tenth.
* A printed size holds where that by which one exceeds the other is within a factor of two of what is printed: ten times
  is 5.5 to 19 times, twice is 1.5 to 3 times, 20 % is 10 to 40 %. "At least", "over" and "up to" are bounds. Where
  print has words for numbers, "far", "much" and "significantly" are at least twice, "slightly" is at most a quarter. A
  printed value of no ratio holds within a factor of two.
* The scatter is what repetitions of the rows differ by, where the record says it, and 2 % at least; else 5 % of a time,
  and 2 % of what was counted over random data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from windrow_bench.reproduction.claims import Reason, Record, Seen

Look = Callable[[Record], Seen]
TIMED, COUNTED, COMPUTED = 0.05, 0.02, 1e-9
"""What differences are worth nothing where a record does not say: of times, of counts over random data, of formulas."""
ALIKE, FAR, SLIGHTLY = 0.1, 2.0, 1.25
Line = Sequence[tuple[float, float]]


def order(
    record: Record,
    ratios: Iterable[float],
    words: str,
    about: float | tuple[float, float] | None = None,
    least: float | None = None,
    most: float | None = None,
    scatter: float = TIMED,
) -> Seen:
    """Whether ratios are above one, and of the printed size: `about` so much, or at least, or at most."""
    found = list(ratios)
    margin = record.scatter(scatter)
    clear = sum(r > 1 + margin for r in found)
    turned = any(r < 1 / (1 + margin) for r in found)
    shape = False if turned else True if 2 * clear > len(found) else None
    size = _sized(found, about, least, most)
    if shape is None and size is False and most is None:  # a printed size is more than the scatter
        shape = False
    return Seen(words, shape, size)


def _sized(
    found: Sequence[float], about: float | tuple[float, float] | None, least: float | None, most: float | None
) -> bool | None:
    held = []
    if about is not None:
        low, high = about if isinstance(about, tuple) else (about, about)
        held.append(all((low - 1) / 2 <= r - 1 <= 2 * (high - 1) for r in found))
    if least is not None:
        held.append(min(found) >= least)
    if most is not None:
        held.append(max(found) <= most)
    return all(held) if held else None


def never_above(record: Record, ratios: Iterable[float], words: str, scatter: float = TIMED) -> Seen:
    """Whether no ratio is above one by more than the scatter: what is printed as "never worse" or "at most"."""
    return Seen(words, max(ratios) <= 1 + record.scatter(scatter))


def alike(record: Record, ratios: Iterable[float], words: str, within: float = ALIKE) -> Seen:
    """Whether ratios are one within a tenth."""
    return Seen(words, all(1 / (1 + within) <= r <= 1 + within for r in ratios))


def near(value: float, printed: float, words: str) -> Seen:
    """Whether a value is within a factor of two of the printed one."""
    return Seen(words, printed / 2 <= value <= 2 * printed)


def bound(value: float, words: str, least: float | None = None, most: float | None = None) -> Seen:
    """Whether a number is within what print bounds it by."""
    return Seen(words, (least is None or value >= least) and (most is None or value <= most))


def trend(
    record: Record,
    lines: Mapping[str, Line] | Line,
    words: str = "",
    falls: bool = False,
    scatter: float = TIMED,
) -> Seen:
    """Whether all lines rise (or fall) from end to end, and hardly go back on the way."""
    named = lines if isinstance(lines, Mapping) else {"": lines}
    margin = record.scatter(scatter)
    shapes = [_rises([y for _, y in (reversed(line) if falls else line)], margin) for line in named.values()]
    shape = False if False in shapes else None if None in shapes else True
    said = "; ".join(f"{ends(line)}{f' {name}' if name else ''}" for name, line in named.items())
    return Seen(f"{words} {said}".strip(), shape)


def _rises(values: Sequence[float], margin: float) -> bool | None:
    steps = [b - a for a, b in pairwise(values)]
    forward, back = sum(s for s in steps if s > 0), -sum(s for s in steps if s < 0)
    if max(values) <= min(values) * (1 + margin):
        return None
    return values[-1] > values[0] * (1 + margin) and back < forward / 4


def both(first: Seen, second: Seen) -> Seen:
    """Two looks at one claim, of which each must hold."""
    shapes, sizes = (first.shape, second.shape), (first.size, second.size)
    shape = False if False in shapes else None if None in shapes else True
    size = False if False in sizes else None if sizes == (None, None) else True
    return Seen(f"{first.figure}; {second.figure}", shape, size)


def exact(count: int, wrong: int, what: str) -> Seen:
    """Whether all of what was computed is what is printed."""
    if not count:
        raise LookupError(f"no {what}")
    return Seen(f"{count} {what}, {wrong or 'none'} differ{'s' if wrong in (0, 1) else ''}", not wrong)


def because(words: str, rests: Callable[[Record], str | None]) -> Reason:
    """A reason and what it rests on."""
    return Reason(words, rests)


# -- words for numbers -----------------------------------------------------------------------------------------------


def times(ratio: float) -> str:
    """A ratio in words, as exact as it needs to be to tell it from one.

    >>> times(1.024), times(2.345), times(13.72), times(137.2)
    ('1.02x', '2.3x', '13.7x', '137x')
    """
    return f"{ratio:.0f}x" if ratio >= 100 else f"{ratio:.1f}x" if ratio >= 2 else f"{ratio:.2f}x"


def spread(ratios: Iterable[float]) -> str:
    """The least and the greatest of some ratios.

    >>> spread([3.0, 1.5]), spread([2.0])
    ('1.50x to 3.0x', '2.0x')
    """
    found = sorted(ratios)
    return times(found[0]) if times(found[0]) == times(found[-1]) else f"{times(found[0])} to {times(found[-1])}"


def ends(line: Line) -> str:
    """A line from its first point to its last, by where it turns.

    >>> ends([(1, 5.0), (2, 7.0), (3, 9.0)]), ends([(1, 5.0), (2, 9.0), (3, 7.0)])
    ('5 at 1 to 9 at 3', '5 at 1, 9 at 2, 7 at 3')
    """
    turns = [b for a, b, c in zip(line, line[1:], line[2:], strict=False) if (b[1] - a[1]) * (c[1] - b[1]) < 0]
    kept = [line[0], *turns, line[-1]]
    steps = [f"{y:,.3g} at {x:,g}" if abs(y) < 1000 else f"{y:,.0f} at {x:,g}" for x, y in kept]
    return ", ".join(steps) if turns else f"{steps[0]} to {steps[-1]}"


__all__ = [
    "ALIKE", "COMPUTED", "COUNTED", "FAR", "SLIGHTLY", "TIMED", "Line", "Look", "alike", "because", "both", "bound",
    "ends", "exact", "near", "never_above", "order", "spread", "times", "trend",
]  # fmt: skip
