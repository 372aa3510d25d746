"""A claim of a paper, how it is looked for in a record, and what came of it.

A look reads rows of a record and says what it saw; the verdict follows from that by one rule for all claims (`looks`).
Why a claim turned out otherwise is written by hand, but each such reason rests on something measured: it is shown only
where the record still bears it out, with the figure that does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]


STEADY = 0.02
"""Repetitions that differ by less may do so by luck."""


@dataclass(frozen=True)
class Record:
    """What an experiment left: its rows, the commit that was measured, what it was run with.

    `read` holds the rows that a look has read, so that a verdict can name their commits and their scatter.
    """

    name: str
    commit: str
    rows: Sequence[Row]
    parameters: Mapping[str, Any]
    read: list[Row] = field(default_factory=list, compare=False)

    def where(self, **wanted: Any) -> list[Row]:
        """Rows with these values, at least one; an underscore in a name stands for a blank if there is no such column."""
        found = [r for r in self.rows if all(_value(r, n) == v for n, v in wanted.items())]
        if not found:
            raise LookupError(f"no row has {_said(wanted)}")
        self.read.extend(found)
        return found

    def one(self, what: str, **wanted: Any) -> float:
        """A number of the only row with these values."""
        found = self.where(**wanted)
        if len(found) != 1:
            raise LookupError(f"{len(found)} rows have {_said(wanted)}")
        if found[0].get(what) is None:
            raise LookupError(f"no {what} where {_said(wanted)}")
        return float(found[0][what])

    def line(self, x: str, y: str, **wanted: Any) -> list[tuple[float, float]]:
        """Points in the order of x; a row without a value has none."""
        found = self.where(**wanted)
        return sorted((float(_value(r, x)), float(r[y])) for r in found if r.get(y) is not None)

    def commits(self) -> list[str]:
        """The commits that the rows that were read were measured at; a row that does not say is of the record's."""
        return list(dict.fromkeys(str(r.get("commit") or self.commit) for r in self.read)) or [self.commit]

    def scatter(self, otherwise: float) -> float:
        """By how much repetitions of what was read differ, as a share; `otherwise` where a row does not say."""
        told = (max(STEADY, float(r["scatter"])) if r.get("scatter") is not None else otherwise for r in self.read)
        return max(told, default=otherwise)


def _value(row: Row, name: str) -> Any:
    return row.get(name, row.get(name.replace("_", " ")))


def _said(wanted: Mapping[str, Any]) -> str:
    return ", ".join(f"{n} {v}" for n, v in wanted.items())


@dataclass(frozen=True)
class Seen:
    """What a look gave: the figure in words, whether the printed shape holds in it, and whether the printed size does.

    `shape` is None where all differences are within the scatter, `size` where print gives none.
    """

    figure: str
    shape: bool | None
    size: bool | None = None


@dataclass(frozen=True)
class Reason:
    """Why a claim turned out otherwise, and the figure of the record that it rests on; None: it does not hold there."""

    words: str
    rests: Callable[[Record], str | None]


@dataclass(frozen=True)
class Claim:
    """One statement of a paper about one of its figures or tables.

    `printed` and `here` are what is special to its setting, beside that of the chapter. A claim without a look is not
    applicable, and `never` says why.
    """

    figure: str
    says: str
    record: str | None = None
    look: Callable[[Record], Seen] | None = None
    printed: str = ""
    here: str = ""
    reasons: tuple[Reason, ...] = ()
    never: str = ""


SAME, OTHER_SIZE, DIFFERENT = "same", "same shape, other size", "different"
UNDECIDED, UNMEASURED, NEVER = "undecided", "not measured", "not applicable"
WORDS = (SAME, OTHER_SIZE, DIFFERENT, UNDECIDED, UNMEASURED, NEVER)


@dataclass(frozen=True)
class Verdict:
    """A claim and what became of it."""

    claim: Claim
    word: str
    figure: str = ""
    commits: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Source:
    """A paper, or a chapter, with the setting of all its figures there and here, and its claims in their order."""

    title: str
    printed: str
    here: str
    claims: Sequence[Claim]


def records(directory: Path) -> dict[str, Record]:
    """Every record that was kept, by name."""
    found = {}
    for path in sorted(directory.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        found[path.stem] = Record(path.stem, str(document["commit"]), document["rows"], document["parameters"])
    return found


def judged(claim: Claim, kept: Mapping[str, Record]) -> Verdict:
    """Look for a claim in its record."""
    if claim.look is None:
        return Verdict(claim, NEVER, why=claim.never)
    record = kept.get(claim.record or "")
    if record is None:
        return Verdict(claim, UNMEASURED, why="there is no record")
    record = replace(record, read=[])
    try:
        seen = claim.look(record)
    except (LookupError, ValueError) as missing:
        return Verdict(claim, UNMEASURED, why=f"the record lacks it: {missing}")
    word = _word(seen)
    why = "; ".join(_borne_out(claim, record)) if word in (OTHER_SIZE, DIFFERENT, UNDECIDED) else ""
    return Verdict(claim, word, seen.figure, tuple(record.commits()), why)


def _word(seen: Seen) -> str:
    if seen.shape is None:
        return UNDECIDED
    if not seen.shape:
        return DIFFERENT
    return OTHER_SIZE if seen.size is False else SAME


def _borne_out(claim: Claim, record: Record) -> list[str]:
    """The reasons that rest on something in the record."""
    found = []
    for reason in claim.reasons:
        try:
            figure = reason.rests(replace(record, read=[]))
        except (LookupError, ValueError):
            continue
        if figure is not None:
            found.append(f"{reason.words} ({figure})" if figure else reason.words)
    return found


__all__ = [
    "DIFFERENT", "NEVER", "OTHER_SIZE", "SAME", "UNDECIDED", "UNMEASURED", "WORDS", "Claim", "Reason", "Record", "Row",
    "Seen", "Source", "Verdict", "judged", "records",
]  # fmt: skip
