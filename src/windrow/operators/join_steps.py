"""The steps of a join: in which order new rows of an input meet the others, by which index, and what was seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from windrow.operators.elements import INF, Elements
from windrow.operators.linear import Formula
from windrow.operators.statistics import Seen

SINCE, LEAST = "~since", "~least"
"""Of a result under way, once a table has changed: since when its table rows are there, and its oldest stream row,
which an input may say of its rows itself."""


PROBES = 10_000
"""Probes after which older ones begin to be forgotten."""


Orders = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Part:
    """One input of a join: its columns; whether negatives come; whether its window bounds matching but not results;
    whether it only ever meets rows that come after its own (a table that does not reach back)."""

    columns: dict[str, pa.DataType]
    strict: bool = False
    internal: bool = False
    static: bool = False

    @property
    def name(self) -> str:
        """How the input is called in explanations: what stands before the dot of its columns."""
        return next(iter(self.columns), "?").split(".")[0]


@dataclass(frozen=True)
class JoinStep:
    """Bind input `part`: its columns `keys` equal the already bound columns `bound`; then `residual` can be checked.

    `band`: the part's column, the bound column, and the least and greatest difference between them.
    """

    part: int
    keys: tuple[str, ...]
    bound: tuple[str, ...]
    null_safe: tuple[bool, ...]
    residual: tuple[Formula, ...]
    band: tuple[str, str, float, float] | None = None

    @property
    def index(self) -> tuple[int, tuple[str, ...], str | None]:
        """Which index of the part it looks into."""
        return self.part, self.keys, self.band[0] if self.band else None


@dataclass(frozen=True)
class JoinOrders:
    """Orders, one for each input; their cost per tick; and what else was priced, by name."""

    orders: Orders
    cost: float
    alternatives: Mapping[str, tuple[Orders, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Probes:
    """Steps as observed: combinations that looked for partners, partners found, and all pairs there were."""

    probes: float = 0.0
    matches: float = 0.0
    pairs: float = 0.0

    def __add__(self, other: Probes) -> Probes:
        return Probes(self.probes + other.probes, self.matches + other.matches, self.pairs + other.pairs)

    def faded(self) -> Probes:
        """The same with less weight, once there are enough: selectivities follow the data."""
        fade = 0.5 if self.probes > PROBES else 1.0
        return Probes(fade * self.probes, fade * self.matches, fade * self.pairs)


Matches = Mapping[tuple[frozenset[int], int], Probes]
"""What was observed of the join of some inputs with another."""


@dataclass(frozen=True)
class JoinReport:
    """What one partition measured of a join: each input, and the steps."""

    inputs: tuple[Seen, ...]
    probes: Matches


def touched(found: Elements) -> Elements:
    return found.filter(found.columns[SINCE].to_numpy() <= found.columns[LEAST].to_numpy())


def index_slot(which: tuple[int, tuple[str, ...], str | None]) -> str:
    part, keys, band = which
    return f"{part}:{','.join(keys)}" + (f"~{band}" if band else "")


def method(step: JoinStep) -> str:
    how = [f"{k} = {b}" for k, b in zip(step.keys, step.bound, strict=True)]
    if step.band is not None:
        how.append(f"{step.band[0]} near {step.band[1]}")
    return " and ".join(how) or "every row"


def classes(equalities: Sequence[tuple[str, str, bool]]) -> list[tuple[list[str], bool]]:
    """Columns that must all be equal, by transitivity; null-safe equalities form classes of their own.

    >>> classes([("a.k", "b.k", False), ("b.k", "c.k", False)])
    [(['a.k', 'b.k', 'c.k'], False)]
    """
    classes: list[tuple[list[str], bool]] = []
    for left, right, safe in equalities:
        touched = [c for c in classes if c[1] == safe and (left in c[0] or right in c[0])]
        merged = list(dict.fromkeys([x for c in touched for x in c[0]] + [left, right]))
        classes = [c for c in classes if c not in touched] + [(merged, safe)]
    return classes


STRETCH = 1 << 11
"""Rows that are worth a stretch of their own."""


def stretches(
    inputs: Sequence[Elements], static: Sequence[bool], frontier: int
) -> Iterator[tuple[Sequence[Elements], int]]:
    """What comes in one advance, cut into stretches about as long as rows live, and where each of them ends.

    >>> rows = Elements.positive(np.arange(8192), np.arange(8192) + 2048, {"a": pa.array(range(8192))})
    >>> [(len(rows), until) for [rows], until in stretches([rows], [False], 9000)]
    [(2048, 2047), (2048, 4095), (2048, 6143), (2048, 9000)]
    """
    comes = [e for e, table in zip(inputs, static, strict=True) if len(e) and not table]
    count = sum(map(len, comes)) // STRETCH
    if count > 1 and all((e.ts[1:] >= e.ts[:-1]).all() for e in inputs):
        first, last = min(int(e.ts[0]) for e in comes), max(int(e.ts[-1]) for e in comes)
        lives = [int((e.exp[:: STRETCH // 8] - e.ts[:: STRETCH // 8]).min()) for e in comes if e.exp.max() < INF]
        count = min(count, (last - first + 1) // max(1, min(lives, default=last - first + 1)))
        for k in range(1, count):
            until = first + (last - first + 1) * k // count - 1
            cuts = [int(np.searchsorted(e.ts, until, "right")) for e in inputs]
            yield [e.slice(0, cut) for e, cut in zip(inputs, cuts, strict=True)], until
            inputs = [e.slice(cut) for e, cut in zip(inputs, cuts, strict=True)]
    yield inputs, frontier
