"""The page of the papers' figures says what the records say, and leaves no figure out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from windrow_bench.report import MARK, SOURCES, mark
from windrow_bench.reproduction.claims import Claim, Record, Seen, judged, page, records

DOCS = Path(__file__).parents[2] / "docs"
THESIS = (
    *(f"3.{n}" for n in range(8, 16)),
    *(f"4.{n}" for n in range(4, 12)),
    *(f"5.{n}" for n in range(2, 5)),
    "6.3",
    *(f"7.{n}" for n in range(8, 15)),
    *(f"8.{n}" for n in range(7, 11)),
)
PAPERS = {
    "Golab, Özsu": ("table 3", *(f"table {n}" for n in range(5, 9)), *(f"figure {n}" for n in (2, 3, 4))),
    "Krishnamurthy": (*(f"table {n}" for n in (2, 3, 5)), *(f"figure {n}" for n in (4, 10, 13, 14, 15, 16))),
    "Tran, Lee": ("figure 5", "figure 6"),
    "Towne": ("figure 4", "figure 5", "figure 6"),
}


def test_the_page_is_what_the_records_give() -> None:
    written = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    assert written == page(SOURCES, records(DOCS / "results")), "run `windrow bench report --pages`"


def test_every_figure_of_the_thesis_has_a_row() -> None:
    claims = [c.figure for s in SOURCES if s.title.startswith(("Golab, *Sliding", "The same")) for c in s.claims]
    assert [f for f in THESIS if not any(f in (c, c.split(" ")[0], *c.split(", ")) for c in claims)] == []


@pytest.mark.parametrize("paper", PAPERS)
def test_every_figure_of_the_papers_has_a_row(paper: str) -> None:
    claims = [c.figure for s in SOURCES if s.title.startswith(paper) for c in s.claims]
    assert [f for f in PAPERS[paper] if not any(c.startswith(f) for c in claims)] == []


def test_a_verdict_follows_the_record() -> None:
    claim = Claim(
        "1", "there", "here", "x is large", "r", lambda r: Seen(f"{r.one('x', k=1):g}", r.one("x", k=1) > 5), "why"
    )
    record = Record("r", "abc", [{"k": 1, "x": 7}], {})
    assert judged(claim, {"r": record}).word == "same"
    assert judged(claim, {"r": replace(record, rows=[{"k": 1, "x": 3}])}).word == "different"
    assert judged(claim, {"r": replace(record, rows=[])}).word == "not measured"
    assert judged(claim, {}).word == "not measured"


def test_what_differs_says_why() -> None:
    kept = records(DOCS / "results")
    found = [judged(c, kept) for s in SOURCES for c in s.claims]
    assert [v.claim.says for v in found if v.word in ("different", "not applicable") and not v.claim.otherwise] == []


def test_pages_of_stale_records_say_so(tmp_path: Path) -> None:
    """A page is marked below its title while its record is stale, once however often it is looked at."""
    written = "# patterns\n\nText.\n\n| a |\n"
    (tmp_path / "patterns.md").write_text(written)
    assert [p.name for p in mark(tmp_path, {"patterns": "3 commits changed what it ran", "joins": "no page"})]
    marked = (tmp_path / "patterns.md").read_text()
    assert marked.splitlines()[:5] == ["# patterns", "", MARK, "", "Text."]
    assert mark(tmp_path, {"patterns": "4 commits changed what it ran"}) == []
    assert mark(tmp_path, {"patterns": None}) and (tmp_path / "patterns.md").read_text() == written
