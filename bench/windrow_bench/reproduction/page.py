"""docs/reproduction.md: the rule, the count, and a row for every claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windrow_bench.reproduction import looks
from windrow_bench.reproduction.claims import (
    DIFFERENT,
    NEVER,
    OTHER_SIZE,
    SAME,
    WORDS,
    Record,
    Source,
    Verdict,
    judged,
)

HEAD = """# The papers' figures, and ours

Every figure and table of the five papers that windrow is built from: what was printed, what was measured here, and
whether the claim holds. A verdict is computed from the record of an experiment ([results](results/)); what is written
by hand is the claim and both settings, and reasons, each of which stands here only as long as the record bears it out
by the figure in brackets. `windrow bench report` writes this page; machines, data and seeds are on the pages of the
experiments, and a page that other code lies under says so. Absolute times are not compared: the papers' machines are
twenty years older, and their programs handled one tuple at a time.

**The rule**, the same for all:
"""


def page(sources: Sequence[Source], kept: Mapping[str, Record]) -> str:
    """The page as Markdown."""
    verdicts = [(source, [judged(c, kept) for c in source.claims]) for source in sources]
    lines = [HEAD, *_rule(), "", *_summary(verdicts)]
    for source, found in verdicts:
        lines += ["", f"## {source.title}", "", f"In print: {source.printed}.", "", f"Here: {source.here}.", ""]
        lines += _table(found)
    return "\n".join(lines) + "\n"


def _rule() -> list[str]:
    """The list in the docstring of the looks, so that the page says what the code does."""
    text = (looks.__doc__ or "").partition("\n\n")[2].strip()
    return text.splitlines()


def _summary(verdicts: Sequence[tuple[Source, Sequence[Verdict]]]) -> list[str]:
    rows = [(source.title, [v.word for v in found]) for source, found in verdicts]
    everything = [word for _, found in rows for word in found]
    there = [w for w in WORDS if w in everything]
    lines = [f"| | claims | {' | '.join(there)} |", "| --- |" + " --- |" * (len(there) + 1)]
    for title, found in [*rows, ("all", everything)]:
        lines.append(f"| {title} | {len(found)} | {' | '.join(str(found.count(w) or '') for w in there)} |")
    held = everything.count(SAME) + everything.count(OTHER_SIZE)
    said = held + everything.count(DIFFERENT)
    share = f"{held} of the {said} that the records decide hold ({held / said:.0%})" if said else "none is decided"
    size = f"{everything.count(OTHER_SIZE)} of them in another size than printed"
    return [*lines, "", f"Of {len(everything)} claims, {share}, {size}."]


def _table(found: Sequence[Verdict]) -> list[str]:
    lines = [
        "| figure | claim | set in print | set here | measured | verdict |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for verdict in found:
        claim = verdict.claim
        at = f" ([{claim.record}](results/{claim.record}.md), {_commits(verdict)})" if verdict.figure else ""
        because = ", because" if verdict.word in (NEVER, DIFFERENT) and verdict.why else ":" if verdict.why else ""
        said = f"{verdict.word}{because} {verdict.why}".strip()
        cells = (claim.figure, claim.says, claim.printed, claim.here, verdict.figure + at, said)
        lines.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    return lines


def _commits(verdict: Verdict) -> str:
    return ", ".join(f"{c[:-1]} with changes that no commit has" if c.endswith("+") else c for c in verdict.commits)


__all__ = ["page"]
