"""A claim of a paper, how it is looked for in a record, and the page that says what came of all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Record:
    """What an experiment left: its rows, the commit that was measured, what it was run with."""

    name: str
    commit: str
    rows: Sequence[Row]
    parameters: Mapping[str, Any]

    def where(self, **wanted: Any) -> list[Row]:
        """Rows with these values; an underscore in a name stands for a blank if there is no such column."""
        return [r for r in self.rows if all(_value(r, n) == v for n, v in wanted.items())]

    def one(self, what: str, **wanted: Any) -> float:
        """A number of the only row with these values."""
        found = self.where(**wanted)
        if len(found) != 1:
            raise LookupError(f"{self.name}: {len(found)} rows have {wanted}")
        return float(found[0][what])

    def line(self, x: str, y: str, **wanted: Any) -> list[tuple[float, float]]:
        """Points in the order of x; a row without a value has none."""
        return sorted((float(r[x]), float(r[y])) for r in self.where(**wanted) if r[y] is not None)


def _value(row: Row, name: str) -> Any:
    return row.get(name, row.get(name.replace("_", " ")))


@dataclass(frozen=True)
class Seen:
    """What a look at a record gave: the figure in words, and whether the claim holds in it."""

    figure: str
    holds: bool


@dataclass(frozen=True)
class Claim:
    """One statement of a paper about one of its figures or tables.

    `otherwise` says why it does not hold here, for when it does not; without a `look`, why there is nothing to hold.
    """

    figure: str
    printed: str
    here: str
    says: str
    record: str | None = None
    look: Callable[[Record], Seen] | None = None
    otherwise: str = ""


@dataclass(frozen=True)
class Verdict:
    """A claim and what became of it: same, different, not applicable, or not measured."""

    claim: Claim
    word: str
    figure: str
    commit: str


@dataclass(frozen=True)
class Source:
    """A paper and its claims, in the order of its figures."""

    title: str
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
        return Verdict(claim, "not applicable", "", "")
    record = kept.get(claim.record or "")
    if record is None:
        return Verdict(claim, "not measured", "", "")
    try:
        seen = claim.look(record)
    except (LookupError, ValueError) as missing:
        return Verdict(claim, "not measured", f"the record lacks it: {missing}", record.commit)
    return Verdict(claim, "same" if seen.holds else "different", seen.figure, record.commit)


# -- the page --------------------------------------------------------------------------------------------------------

HEAD = """# The papers' figures, and ours

Every figure and table of the five papers that windrow is built from: what was printed, what was measured here, and
whether the claim holds. A verdict is computed from the record of an experiment ([results](results/)); what is written
by hand is the claim, both settings, and the reason where the verdict is not *same*. `windrow bench report` writes this
page; machines, data and seeds are on the pages of the experiments. Absolute times are not compared: the papers' machines
are twenty years older, and their programs handled one tuple at a time.
"""


def page(sources: Sequence[Source], kept: Mapping[str, Record]) -> str:
    """The page as Markdown."""
    verdicts = [(source, [judged(c, kept) for c in source.claims]) for source in sources]
    lines = [HEAD, *_summary([v for _, found in verdicts for v in found])]
    for source, found in verdicts:
        lines += ["", f"## {source.title}"]
        for (printed, here), group in groupby(found, key=lambda v: (v.claim.printed, v.claim.here)):
            lines += ["", f"In print: {printed}. Here: {here}.", "", *_table(group)]
    return "\n".join(lines) + "\n"


def _summary(found: Sequence[Verdict]) -> list[str]:
    counts = {w: sum(v.word == w for v in found) for w in ("same", "different", "not measured", "not applicable")}
    held = counts["same"] + counts["different"]
    words = ", ".join(f"{n} {w}" for w, n in counts.items() if n)
    return [f"Of {len(found)} claims: {words}. {counts['same']} of the {held} that were looked at hold."]


def _table(found: Iterable[Verdict]) -> list[str]:
    lines = ["| figure | claim | measured | verdict |", "| --- | --- | --- | --- |"]
    for verdict in found:
        claim = verdict.claim
        source = f" ([{claim.record}](results/{claim.record}.md), {verdict.commit})" if verdict.commit else ""
        why = f": {claim.otherwise}" if verdict.word in ("different", "not applicable") and claim.otherwise else ""
        cells = (claim.figure, claim.says, verdict.figure + source, verdict.word + why)
        lines.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    return lines


# -- words for numbers -----------------------------------------------------------------------------------------------


def times(ratio: float) -> str:
    """A ratio in words.

    >>> times(2.345), times(137.2)
    ('2.3x', '137x')
    """
    return f"{ratio:.0f}x" if ratio >= 100 else f"{ratio:.2g}x" if ratio < 10 else f"{ratio:.3g}x"


def spread(ratios: Iterable[float]) -> str:
    """The least and the greatest of some ratios."""
    found = sorted(ratios)
    return times(found[0]) if times(found[0]) == times(found[-1]) else f"{times(found[0])} to {times(found[-1])}"


def grows(points: Sequence[tuple[float, float]], slack: float = 1.0) -> bool:
    """Whether a line rises from its first point to its last by more than a factor."""
    return points[-1][1] > points[0][1] * slack


__all__ = ["Claim", "Record", "Seen", "Source", "Verdict", "grows", "judged", "page", "records", "spread", "times"]
