"""The page of the papers' figures says what the records say, by one rule, and leaves no figure out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from windrow_bench.report import MARK, SOURCES, mark
from windrow_bench.reproduction import looks
from windrow_bench.reproduction.claims import (
    DIFFERENT,
    NEVER,
    OTHER_SIZE,
    SAME,
    UNDECIDED,
    UNMEASURED,
    Claim,
    Record,
    Seen,
    Source,
    judged,
    records,
)
from windrow_bench.reproduction.page import page

DOCS = Path(__file__).parents[2] / "docs"
THESIS = (
    *(f"3.{n}" for n in range(8, 16)),
    *(f"4.{n}" for n in range(4, 12)),
    *(f"5.{n}" for n in range(2, 5)),
    *(f"6.3 ({part})" for part in "abcdef"),
    *(f"7.{n}" for n in range(8, 15)),
    *(f"8.{n}" for n in range(7, 11)),
)
PAPERS = {
    "Golab, Özsu": (
        "table 3", *(f"table {n}" for n in range(5, 9)), *(f"figure {n}" for n in ("2", "3a", "3b", "4a", "4b")),
    ),
    "Krishnamurthy": (*(f"table {n}" for n in range(2, 6)), *(f"figure {n}" for n in (4, 10, 13, 14, 15, 16))),
    "Tran, Lee": (*(f"figure 5{part}" for part in "abcd"), *(f"figure 6{part}" for part in "abcd")),
    "Towne": ("figure 4", "figure 5", "figure 6"),
}  # fmt: skip
RECORD = Record("r", "abc", [{"k": 1, "a": 7.0, "b": 5.0}], {})


def record(**values: object) -> Record:
    """A record of one row."""
    return replace(RECORD, rows=[{"k": 1, **values}], read=[])


def compare(given: Record, **size: float) -> Seen:
    """Whether a is above b."""
    return looks.order(given, [given.one("a", k=1) / given.one("b", k=1)], "a / b", **size)


def word(given: Record, **size: float) -> str:
    """The verdict on a claim that a is above b."""
    claim = Claim("1", "a is above b", "r", lambda r: compare(r, **size))
    return judged(claim, {"r": given}).word


def test_the_page_is_what_the_records_give() -> None:
    """The page in the repository is the one that the records make."""
    written = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    assert written == page(SOURCES, records(DOCS / "results")), "run `windrow bench report --pages`"


def test_every_figure_of_the_thesis_has_a_row() -> None:
    """No figure of the thesis's experiments is left out."""
    claims = [
        f
        for s in SOURCES
        if s.title.startswith(("Golab, *Sliding", "The same"))
        for c in s.claims
        for f in c.figure.split(", ")
    ]
    assert [f for f in THESIS if f not in claims] == []


@pytest.mark.parametrize("paper", PAPERS)
def test_every_figure_of_the_papers_has_a_row(paper: str) -> None:
    """No figure or table of the papers' experiments is left out."""
    claims = [c.figure for s in SOURCES if s.title.startswith(paper) for c in s.claims]
    assert [f for f in PAPERS[paper] if f not in claims] == []


def test_an_order_holds_beyond_the_scatter() -> None:
    """A difference that repetitions have as well decides nothing, and a row may say how much that is."""
    assert word(record(a=7.0, b=5.0)) == SAME
    assert word(record(a=5.1, b=5.0)) == UNDECIDED
    assert word(record(a=4.0, b=5.0)) == DIFFERENT
    assert word(record(a=7.0, b=5.0, scatter=0.5)) == UNDECIDED
    assert word(record(a=5.2, b=5.0)) == UNDECIDED
    assert word(record(a=5.2, b=5.0, scatter=0.01)) == SAME
    assert word(record(a=5.05, b=5.0, scatter=0.001)) == UNDECIDED
    assert judged(Claim("1", "", "r", compare), {"r": record(c=1)}).word == UNMEASURED
    assert judged(Claim("1", "", "r", compare), {}).word == UNMEASURED


def test_a_printed_size_holds_within_a_factor_of_two() -> None:
    """The direction of a claim and its size are judged apart; what is within the scatter has no size to speak of."""
    assert [word(record(a=a, b=1.0), about=10.0) for a in (5.4, 5.6, 10.0, 18.9, 19.1)] == [
        OTHER_SIZE,
        SAME,
        SAME,
        SAME,
        OTHER_SIZE,
    ]
    assert [word(record(a=a, b=1.0), about=1.2) for a in (1.08, 1.2, 1.5)] == [OTHER_SIZE, SAME, OTHER_SIZE]
    assert word(record(a=1.02, b=1.0), about=2.0) == DIFFERENT
    assert word(record(a=3.0, b=1.0), least=2.0) == SAME
    assert word(record(a=1.5, b=1.0), least=2.0) == OTHER_SIZE
    assert word(record(a=1.5, b=1.0), most=1.25) == OTHER_SIZE


def test_a_trend_may_go_back_a_little() -> None:
    """A line that goes back on less than a quarter of its way still rises; a flat one decides nothing."""

    def shape(*values: float) -> bool | None:
        return looks.trend(RECORD, [(float(i), v) for i, v in enumerate(values)]).shape

    assert shape(1, 2, 4) is True
    assert shape(1, 4, 3.5, 8) is True
    assert shape(1, 4, 2, 4.5) is False
    assert shape(4, 2, 1) is False
    assert shape(1, 1.02, 1.01) is None


def test_a_reason_stands_as_long_as_the_record_bears_it_out() -> None:
    """A reason whose assumption the record no longer shows is not given."""
    reason = looks.because("b is dear", lambda r: f"b {r.one('b', k=1):g}" if r.one("b", k=1) > 6 else None)
    claim = Claim("1", "a is above b", "r", compare, reasons=(reason,))
    assert judged(claim, {"r": record(a=1.0, b=7.0)}).why == "b is dear (b 7)"
    assert judged(claim, {"r": record(a=1.0, b=5.0)}).why == ""
    assert judged(claim, {"r": record(a=9.0, b=7.0)}).why == ""
    assert judged(claim, {"r": record(a=9.0, b=7.0)}).word == SAME


def test_what_differs_says_why() -> None:
    """Every verdict that a claim does not hold has a reason that its record bears out, whatever was recorded last."""
    kept = records(DOCS / "results")
    found = [judged(c, kept) for s in SOURCES for c in s.claims]
    assert [(v.claim.figure, v.claim.says, v.figure) for v in found if v.word in (DIFFERENT, NEVER) and not v.why] == []


def test_verdicts_name_the_commits_of_their_rows() -> None:
    """A row that was measured at another commit than its record says so in the verdict."""
    rows = [{"k": 1, "a": 7.0, "b": 5.0, "commit": "old+"}, {"k": 2, "a": 7.0, "b": 5.0}]
    kept = {"r": Record("r", "new", rows, {})}
    both = Claim("1", "", "r", lambda r: Seen("", r.one("a", k=1) + r.one("a", k=2) > 0))
    assert judged(Claim("1", "", "r", compare), kept).commits == ("old+",)
    assert judged(both, kept).commits == ("old+", "new")
    one = Source("title", "there", "here", [Claim("1", "a is above b", "r", compare)])
    assert "old with changes that no commit has" in page([one], kept)


def test_the_count_follows_the_verdicts() -> None:
    """The sentence below the table counts what the rows say."""
    claims = [
        Claim("1", "", "r", compare),
        Claim("2", "", "r", lambda r: compare(r, about=10.0)),
        Claim("3", "", never="why"),
    ]
    text = page([Source("title", "there", "here", claims)], {"r": RECORD})
    assert (
        "Of 3 claims, 2 of the 2 that the records decide hold (100%), 1 of them in another size than printed." in text
    )
    assert text.count("\n* ") == (looks.__doc__ or "").count("\n* ")


def test_pages_of_stale_records_say_so(tmp_path: Path) -> None:
    """A page is marked below its title while its record is stale, once however often it is looked at."""
    written = "# patterns\n\nText.\n\n| a |\n"
    (tmp_path / "patterns.md").write_text(written)
    assert [p.name for p in mark(tmp_path, {"patterns": "3 commits changed what it ran", "joins": "no page"})]
    marked = (tmp_path / "patterns.md").read_text()
    assert marked.splitlines()[:5] == ["# patterns", "", MARK, "", "Text."]
    assert mark(tmp_path, {"patterns": "4 commits changed what it ran"}) == []
    assert mark(tmp_path, {"patterns": None}) and (tmp_path / "patterns.md").read_text() == written
