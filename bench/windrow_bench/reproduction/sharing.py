"""On-the-fly sharing (Krishnamurthy, Wu, Franklin): tables 2 to 5, figures 4, 10 and 13 to 16."""

from __future__ import annotations

from windrow_bench.reproduction.claims import Claim, Reason, Record, Row, Seen, Source
from windrow_bench.reproduction.looks import (
    COMPUTED,
    COUNTED,
    FAR,
    Look,
    because,
    exact,
    order,
    times,
)

PRINTED = (
    "Java; trades of NYSE and NASDAQ, 12:00 to 13:00 of 2004-12-01, 1.14 M rows, joined with two tables beforehand; sets of 16, 32, "
    "64, 128 and 256 queries (C regular: 16, 36, 64, 144 and 256), ten sets of each; seconds of aggregation and what goes with it"
)
HERE = "generated trades of the same number and shape; kernels alone, as in print"
PRINTED_SECONDS = {"A": (50.48, 2.63), "B": (27.25, 3.01), "C regular": (31.19, 3.67), "C low sharing": (34.56, 17.73)}
PRINTED_COUNTS = {
    "A": (291_490_816 + 6813, 1_138_636 + 1_462_391), "B": (116_101_112, 7_771_956),
    "C regular": (100_909_915, 3_395_132), "C low sharing": (120_679_022, 65_278_107),
}  # fmt: skip
"""Aggregations, unshared and shared, with 256 queries."""
FIGURES = {"A": "figure 13", "B": "figure 14", "C regular": "figure 15", "C low sharing": "figure 16"}
MOST = 256


def _rows(record: Record, workload: str) -> list[Row]:
    """The sizes that print has, by the number of queries."""
    rows = [r for r in record.where(workload=workload) if int(r["queries"]) <= MOST and r.get("ratio") is not None]
    return sorted(rows, key=lambda r: int(r["queries"]))


def _last(record: Record, workload: str) -> Row:
    return _rows(record, workload)[-1]


def _sets(rows: list[Row]) -> str:
    sets = int(rows[0].get("sets", 1))
    return f"means of {sets} query sets" if sets > 1 else "one query set"


def _by_size(rows: list[Row], ratios: list[float]) -> str:
    return ", ".join(f"{times(x)} at {r['queries']}" for r, x in zip(rows, ratios, strict=True))


def _always(workload: str) -> Look:
    def look(record: Record) -> Seen:
        rows = _rows(record, workload)
        ratios = [float(r["ratio"]) for r in rows]
        return order(record, ratios, f"unshared / shared {_by_size(rows, ratios)}; {_sets(rows)}")

    return look


def _saves(workload: str) -> Look:
    apart, shared = PRINTED_SECONDS[workload]

    def look(record: Record) -> Seen:
        rows = _rows(record, workload)
        ratio = float(rows[-1]["ratio"])
        return order(record, [ratio], f"unshared / shared {times(ratio)}; {_sets(rows)}", about=apart / shared)

    return look


def _counts(row: Row) -> tuple[float, float]:
    """Aggregations of the unshared and of the shared plan."""
    return float(row["unshared partial"] + row["unshared final"]), float(row["shared partial"] + row["shared final"])


def _fewer(workload: str) -> Look:
    apart, shared = PRINTED_COUNTS[workload]

    def look(record: Record) -> Seen:
        found = _counts(_last(record, workload))
        words = f"{found[0] / 1e6:.1f} M and {found[1] / 1e6:.2f} M: {times(found[0] / found[1])}"
        return order(record, [found[0] / found[1]], words, about=apart / shared, scatter=COUNTED)

    return look


def _overheads(workload: str) -> Look:
    """Aggregations saved against time saved."""

    def look(record: Record) -> Seen:
        row = _last(record, workload)
        counts = _counts(row)
        saved = counts[0] / counts[1]
        words = f"{times(saved)} in aggregations, {times(float(row['ratio']))} in time"
        return order(record, [saved / float(row["ratio"])], words)

    return look


def _slicings(side: str) -> Look:
    """Panes over pairs at every size."""

    def look(record: Record) -> Seen:
        rows = _rows(record, "A")
        ratios = [float(r[f"{side} paned s"]) / float(r[f"{side} paired s"]) for r in rows]
        return order(record, ratios, f"paned / paired {_by_size(rows, ratios)}; {_sets(rows)}")

    return look


def _twice(record: Record) -> Seen:
    row = _last(record, "A")
    ratio = float(row["shared paned s"]) / float(row["shared paired s"])
    return order(record, [ratio], f"paned / paired {times(ratio)} with {row['queries']} queries", least=2)


def _paned_finals(record: Record) -> tuple[float, float, int]:
    """Final aggregations of the shared plan, by panes and by pairs: of A with 256 queries, or of windows like them."""
    row = _last(record, "A")
    if "shared paned final" in row:
        return float(row["shared paned final"]), float(row["shared final"]), MOST
    paned, paired = (record.one("final", workload=f"counters, windows of A, shared {t}") for t in ("paned", "paired"))
    return paned, paired, 64


def _more_finals(record: Record) -> Seen:
    paned, paired, queries = _paned_finals(record)
    words = f"paned {paned:,.0f}, paired {paired:,.0f}, with {queries} queries: {times(paned / paired)}"
    return order(record, [paned / paired], words, about=2_340_842 / 1_462_391, scatter=COUNTED)


def _less_saved(record: Record) -> Seen:
    ratios = {w: float(_last(record, w)["ratio"]) for w in ("C regular", "C low sharing")}
    words = ", ".join(f"{w} {times(r)}" for w, r in ratios.items())
    return order(record, [ratios["C regular"] / ratios["C low sharing"]], words)


def _counters(table: str) -> Look:
    def look(record: Record) -> Seen:
        rows = [r for r in record.rows if str(r["workload"]).startswith(f"counters, {table}")]
        record.read.extend(rows)
        wrong = sum((r["partial"], r["final"]) != (r["formula partial"], r["formula final"]) for r in rows)
        return exact(len(rows), wrong, "running plans")

    return look


def _rate(record: Record) -> Seen:
    rows = record.where(part="figure 4", tuples_per_s=375.0)
    ratios = [float(r["unshared"]) / float(r["shared"]) for r in rows]
    words = f"unshared / shared {times(ratios[0])} with {rows[0]['queries']} queries to {times(ratios[-1])} with {rows[-1]['queries']}"
    return order(record, ratios, words, scatter=COMPUTED)


def _turn(record: Record, rate: float) -> int:
    """From how many queries on not sharing is better."""
    return min(
        int(r["queries"]) for r in record.where(part="figure 4", tuples_per_s=rate) if r["unshared"] < r["shared"]
    )


def _from_83(record: Record) -> Seen:
    first = _turn(record, 0.0005)
    return Seen(f"from {first} queries on", abs(first - 83) <= 5)


def _fragments(record: Record) -> Seen:
    at = record.where(part="figure 10", fragments=12_068)[0]
    ratio = float(at["unshared"]) / float(at["shared"])
    return order(record, [ratio], f"unshared / shared {times(ratio)}", least=FAR, scatter=COMPUTED)


def _all_apart(record: Record) -> Seen:
    last = record.where(part="figure 10", fragments=189_445)[0]
    ratio = float(last["shared"]) / float(last["unshared"])
    return order(record, [ratio], f"shared / unshared {times(ratio)}", scatter=COMPUTED)


# -- why, where it is not so -----------------------------------------------------------------------------------------


def _other_rate(record: Record) -> str | None:
    first = _turn(record, 0.5)
    return f"from {first} queries on at 0.5 tuples/s" if abs(first - 83) <= 5 else None


def _additions(record: Record) -> str | None:
    """How little of the time is final aggregation."""
    row, (paned, paired, queries) = _last(record, "A"), _paned_finals(record)
    share = float(row["final s"]) / float(row["shared paired s"])
    if share > 0.4:
        return None
    return f"final aggregation is {share:.0%} of the time with {row['queries']} queries; with {queries} there are {paned:,.0f} against {paired:,.0f} of them"


def _per_aggregation(workload: str) -> Reason:
    """What an aggregation costs on each side."""

    def rests(record: Record) -> str | None:
        row = _last(record, workload)
        apart, shared = _counts(row)
        slow = min(float(v) for k, v in row.items() if k.startswith("unshared") and k.endswith(" s"))
        each = 1e9 * slow / apart, 1e9 * float(row["shared paired s"]) / shared
        return f"{each[0]:.0f} ns an aggregation apart, {each[1]:.0f} ns shared" if each[0] > each[1] else None

    return because(
        "the shared plan adds partial results in vectorised passes, so that an aggregation costs it less than it costs the queries apart",
        rests,
    )


def _data(workload: str) -> Reason:
    """How far the generated data and predicates are from print in what can be counted."""

    def rests(record: Record) -> str | None:
        (apart, shared), (printed_apart, printed_shared) = _counts(_last(record, workload)), PRINTED_COUNTS[workload]
        return f"{apart / 1e6:.0f} M and {shared / 1e6:.1f} M, in print {printed_apart / 1e6:.0f} M and {printed_shared / 1e6:.1f} M"

    return because("data and predicates are generated: aggregations, unshared and shared", rests)


CROSSING = because(
    "by the printed formulas it is better from two queries on at that rate; the printed crossing belongs to a rate a thousand times as high, which is 1,800 tuples an hour",
    _other_rate,
)
IN_CACHE = because(
    "final aggregations are additions in cache, in one vectorised pass over running sums, so that panes, which make more of them, hardly cost more",
    _additions,
)


def _claim(
    figure: str, says: str, look: Look, here: str = "", *reasons: Reason, printed: str = "", record: str = "sharing"
) -> Claim:
    return Claim(figure, says, record, look, printed, here, reasons)


def _of_workload(name: str, kind: str) -> list[Claim]:
    figure, (apart, shared), counts = FIGURES[name], PRINTED_SECONDS[name], PRINTED_COUNTS[name]
    return [
        _claim(figure, f"{name} ({kind}): sharing is faster at every size", _always(name)),
        _claim(figure, f"{name}: {times(apart / shared)} with 256 queries, {apart} s against {shared} s", _saves(name), "256 queries", _per_aggregation(name)),
        _claim(figure, f"{name}: {times(counts[0] / counts[1])} fewer aggregations, {counts[0] / 1e6:.0f} M against {counts[1] / 1e6:.1f} M", _fewer(name), "256 queries", _data(name)),
    ]  # fmt: skip


CLAIMS = [
    Claim("table 2", "paired windows never have more slices than paned ones (W[18, 15]: 2 against 5)", printed="formulas", never=
          "there is no figure to hold: tests/sharing show it for random windows"),
    _claim("table 3", "aggregations of shared and unshared slices are those of the formulas", _counters("table 3"), "counters of running operators over one hour", printed="formulas"),
    Claim("table 4", "symbols of the analysis: n, T, T', k, B, alpha, beta", printed="a list", never="it names symbols and claims nothing"),
    _claim("table 5", "aggregations of shared and unshared fragments are those of the formulas", _counters("table 5"), "counters of running operators over 50,000 rows", printed="formulas"),
    _claim("figure 4", "at 375 tuples/s sharing is better with any number of queries", _rate, "computed; ten query sets", printed="computed; 375 tuples/s", record="analysis"),
    _claim("figure 4", "at 0.0005 tuples/s (1.8 an hour) not sharing is better from 83 queries on", _from_83, "computed; ten query sets", CROSSING, printed="computed; 0.0005 tuples/s", record="analysis"),
    _claim("figure 10", "sharing is far cheaper at the 12,068 fragments found", _fragments, "computed", printed="computed; 189,445 tuples, 76 queries a tuple", record="analysis"),
    _claim("figure 10", "it is dearer when nearly every tuple is a fragment of its own", _all_apart, "computed", printed="computed", record="analysis"),
    *_of_workload("A", "different windows"),
    _claim("figure 13", "A: shared, paired is faster than paned at every size", _slicings("shared"), "", IN_CACHE),
    _claim("figure 13", "A: unshared, paired is faster than paned at every size", _slicings("unshared")),
    _claim("figure 13", "A: shared paned costs more than twice what shared paired costs, 6.90 s against 2.63 s", _twice, "256 queries", IN_CACHE),
    _claim("figure 13", "A: because it has far more final aggregations, 2.34 M against 1.46 M", _more_finals, "counted", printed="256 queries"),
    *_of_workload("B", "different predicates"),
    _claim("figure 14", "B: it saves less time than aggregations, since hash tables and bit masks cost as well", _overheads("B"), "256 queries", _per_aggregation("B")),
    *_of_workload("C regular", "sqrt(n) windows and predicates"),
    _claim("figure 15", "C regular: it saves less time than aggregations", _overheads("C regular"), "256 queries", _per_aggregation("C regular")),
    *_of_workload("C low sharing", "all different"),
    _claim("figure 16", "C low sharing saves less than C regular", _less_saved, "256 queries"),
]  # fmt: skip
SOURCE = Source("Krishnamurthy, Wu, Franklin, *On-the-Fly Sharing for Streamed Aggregation*", PRINTED, HERE, CLAIMS)

__all__ = ["SOURCE"]
