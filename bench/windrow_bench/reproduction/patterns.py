"""Chapter 3 of the thesis: update patterns (figures 3.8 to 3.15)."""

from __future__ import annotations

from collections.abc import Callable

from windrow_bench.reproduction.claims import Claim, Reason, Record, Seen, Source
from windrow_bench.reproduction.looks import (
    ALIKE,
    FAR,
    SLIGHTLY,
    Look,
    alike,
    because,
    order,
    times,
    trend,
)

PRINTED = (
    "Java, Pentium 4 at 1.8 GHz; wide-area TCP connections of LBL, split into links by destination; windows of 2,000 to "
    "200,000 time units, one tuple a unit and link; a tuple at a time, of some operators lazily by a twentieth of the "
    "window; calendar queues of 10 days; milliseconds for 1,000 tuples"
)
HERE = (
    "flows that are generated, the same windows and rate; batches of 500 time units, and in brackets of a hundredth of the "
    "window; calendars of 16 days; the windows are filled first, a batch counts with its least time"
)
LARGEST, SMALLEST = 200_000, 2_000
WINDOWS = (2_000, 10_000, 50_000, 200_000)
FIXED, GROWING = "fixed", "window / 100"
EVERY, LARGE, SMALL = "every window", f"window {LARGEST:,}", f"window {SMALLEST:,}"
FEW, MANY, SOURCES, PAIRS, PREMATURE = "1 few", "1 many", "2 sources", "2 pairs", "3 premature"
UP, DOWN = "4 negation up", "4 negation down"


def _cost(record: Record, query: str, strategy: str, window: int = LARGEST, batch: str = FIXED) -> float:
    return record.one("ms_per_1000", query=query, strategy=strategy, window=window, batch=batch)


def _ratio(record: Record, query: str, over: str, under: str, window: int = LARGEST, batch: str = FIXED) -> float:
    return _cost(record, query, over, window, batch) / _cost(record, query, under, window, batch)


def _faster(query: str, strategy: str, others: tuple[str, ...], about: float | None = None,
            least: float | None = None, window: int = LARGEST) -> Look:  # fmt: skip
    """A strategy against the best of others at one window."""

    def look(record: Record) -> Seen:
        ratio = {
            b: min(_ratio(record, query, other, strategy, window, b) for other in others) for b in (FIXED, GROWING)
        }
        words = f"{' or '.join(others)} / {strategy} {times(ratio[FIXED])} ({times(ratio[GROWING])})"
        return order(record, [ratio[FIXED]], words, about, least)

    return look


def _everywhere(query: str, strategy: str, other: str, least: float | None = None) -> Look:
    def look(record: Record) -> Seen:
        ratios = [_ratio(record, query, other, strategy, w) for w in WINDOWS]
        return order(record, ratios, f"{other} / {strategy} {', '.join(map(times, ratios))}", least=least)

    return look


def _grows(query: str, strategy: str) -> Look:
    def look(record: Record) -> Seen:
        line = record.line("window", "ms_per_1000", query=query, strategy=strategy, batch=FIXED)
        return trend(record, line, f"{strategy}, ms for 1,000 tuples:")

    return look


def _smaller(query: str, about: float | None = None, least: float | None = None) -> Look:
    def look(record: Record) -> Seen:
        space = {
            s: record.one("state_bytes", query=query, strategy=s, window=LARGEST, batch=FIXED)
            for s in ("upa", "negative", "direct")
        }
        ratio = min(space["negative"], space["direct"]) / space["upa"]
        return order(record, [ratio], f"bytes, the smaller of negative and direct / upa {times(ratio)}", about, least)

    return look


def _ten_days(record: Record) -> Seen:
    ratio = _ratio(record, MANY, "upa(10)", "upa(50)")
    return order(record, [ratio], f"upa(10) / upa(50) {times(ratio)}", least=FAR)


def _advantage(record: Record) -> Seen:
    gain = {q: _ratio(record, q, "negative", "upa") for q in (SOURCES, PAIRS)}
    words = f"negative / upa {times(gain[SOURCES])} with few results, {times(gain[PAIRS])} with more"
    return order(record, [gain[SOURCES] / gain[PAIRS]], words)


def _share_early(record: Record, query: str, window: int = LARGEST) -> float:
    """The share of a query's results that end early."""
    return record.one("early", query=query, strategy="upa", window=window, batch=FIXED)


def _two_fifths(record: Record) -> Seen:
    shares = [_share_early(record, PREMATURE, w) for w in WINDOWS]
    said = ", ".join(f"{s:.0%}" for s in shares)
    return Seen(f"{said} end early", all(0.3 <= s <= 0.5 for s in shares))


def _small_windows(record: Record) -> Seen:
    ratio = _ratio(record, PREMATURE, "negative", "upa", SMALLEST)
    return order(record, [ratio], f"negative / upa {times(ratio)}", most=SLIGHTLY)


def _large_windows(record: Record) -> Seen:
    ratio = _ratio(record, PREMATURE, "upa", "negative")
    return order(record, [ratio], f"upa / negative {times(ratio)}")


def _kept_by_calendar(record: Record) -> Seen:
    ratio = _ratio(record, "3", "negative", "upa")
    return order(
        record, [ratio], f"by key / by calendar {times(ratio)} where {_share_early(record, '3'):.0%} end early"
    )


def _kept_by_key(record: Record) -> Seen:
    ratio, share = _ratio(record, "3 early", "upa", "negative"), _share_early(record, "3 early")
    return order(record, [ratio], f"by calendar / by key {times(ratio)} where {share:.0%} end early")


def _of_query_4(record: Record, window: int) -> dict[str, float]:
    """Milliseconds of the four plans, by the names that print has, and of upa with negation pushed down."""
    plans = {
        "NT": (UP, "negative"), "NT(join up)": (DOWN, "negative"), "UPA": (UP, "upa"), "UPA, negation down": (DOWN, "upa"),
    }  # fmt: skip
    return {name: _cost(record, query, strategy, window) for name, (query, strategy) in plans.items()}


def _listed(costs: dict[str, float]) -> str:
    return ", ".join(f"{name} {ms:.2f}" for name, ms in costs.items())


def _pushed_down(record: Record) -> Seen:
    costs = [_of_query_4(record, w) for w in WINDOWS]
    ratios = [c["NT"] / c["NT(join up)"] for c in costs]
    return order(record, ratios, f"NT / NT(join up) {', '.join(map(times, ratios))}")


def _pulled_up(record: Record) -> Seen:
    costs = _of_query_4(record, LARGEST)
    ratio = min(costs["NT"], costs["NT(join up)"]) / costs["UPA"]
    return order(record, [ratio], f"{_listed(costs)} ms: the better of NT / UPA {times(ratio)}")


def _join_up(record: Record) -> Seen:
    costs = _of_query_4(record, SMALLEST)
    ratio = min(costs["NT"], costs["UPA"]) / costs["NT(join up)"]
    return order(record, [ratio], f"{_listed(costs)} ms: the better of the others / NT(join up) {times(ratio)}")


def _equivalent(record: Record) -> Seen:
    ratios = [c["NT(join up)"] / c["UPA, negation down"] for c in (_of_query_4(record, w) for w in WINDOWS)]
    return alike(record, ratios, f"NT(join up) / UPA with negation down {', '.join(map(times, ratios))}")


# -- why, where it is not so -----------------------------------------------------------------------------------------


def _crossing_found(record: Record) -> str | None:
    """Where results end early far more often than in print, keeping them by key pays."""
    share, ratio = _share_early(record, "3 early"), _ratio(record, "3 early", "upa", "negative")
    return f"{times(ratio)} where {share:.0%} do" if ratio > 1 + ALIKE and share > 0.5 else None


def _days_alike(record: Record) -> str | None:
    ratio = _ratio(record, MANY, "upa(10)", "upa(50)")
    return f"10 days / 50 days {times(ratio)}" if 1 / (1 + ALIKE) <= ratio <= 1 + ALIKE else None


def _upa_down_wins(record: Record) -> str | None:
    costs = _of_query_4(record, LARGEST)
    ratio = costs["NT(join up)"] / costs["UPA, negation down"]
    return f"{times(ratio)} against NT(join up)" if ratio > 1 + ALIKE else None


def _no_small_penalty(record: Record) -> str | None:
    costs = _of_query_4(record, SMALLEST)
    order_, ratio = costs["NT"] / costs["NT(join up)"], costs["NT(join up)"] / costs["UPA"]
    return f"NT / NT(join up) {times(order_)}, NT(join up) / UPA {times(ratio)}" if order_ < ratio else None


def _written(query: str, strategy: str, window: int) -> Callable[[Record], str | None]:
    """What of upa's time the change log is, which negative tuples have to write as well."""

    def rests(record: Record) -> str | None:
        share, changes = (
            record.one(what, query=query, strategy=strategy, window=window, batch=FIXED)
            for what in ("writing", "changes_per_1000")
        )
        return f"{share:.0%} of upa's time, for {changes:,.0f} changes of 1,000 tuples" if share > 0.3 else None

    return rests


def _second_results(record: Record) -> str | None:
    """Negative tuples against the rest of the work: what they cost falls as results of a batch grow in number."""
    gain = {w: _ratio(record, MANY, "negative", "upa", w) for w in (SMALLEST, LARGEST)}
    changes = {w: record.one("changes_per_1000", query=MANY, strategy="upa", window=w, batch=FIXED) for w in gain}
    if not (gain[SMALLEST] > gain[LARGEST] and changes[LARGEST] > changes[SMALLEST]):
        return None
    return ", ".join(f"{times(gain[w])} at {changes[w]:,.0f} changes of 1,000 tuples" for w in gain)


def _join_selects(record: Record) -> str | None:
    alone, all_ = (
        record.one("changes_per_1000", query=q, strategy="upa", window=SMALLEST, batch=FIXED) for q in ("3", UP)
    )
    return f"{alone:,.0f} results of the negation alone, {all_:,.0f} of both" if alone > FAR * all_ else None


IN_ORDER = because(
    "in print a day is searched from end to end for what is due; here the rows of a day are in order, so that the number of "
    "days changes what is cut, not what is searched", _days_alike)  # fmt: skip
WAITING = because(
    "in print a result that ends early is looked for in the whole result; here its negative waits beside it and meets it "
    "when it is due, so the turn comes when far more end early", _crossing_found)  # fmt: skip
DIRECT_ABOVE = because(
    "here a join above a negation goes on keeping its inputs by their ends, and takes negatives only for what ended early: "
    "with negation pushed down upa is another plan than NT, and the fastest", _upa_down_wins)  # fmt: skip
FULL_PRICE = because(
    "a negative tuple costs here as much as the order of operators saves: at small windows both are fixed costs of a batch",
    _no_small_penalty)  # fmt: skip
WRITTEN_TWICE = (
    "both write each result twice into the answer, when it comes and when it goes, and that is most of what upa does"
)
LOGGED = because(WRITTEN_TWICE, _written(MANY, "upa(50)", LARGEST))
LOGGED_EARLY = because(WRITTEN_TWICE, _written(PREMATURE, "upa", SMALLEST))
ONE_STEP = because(
    "what negative tuples cost beside that, looking partners up again, is done for all that ends in a batch at once, and weighs less the more results there are",
    _second_results,
)
SELECTIVE = because("at small windows the join is the more selective of the two", _join_selects)
BOTH_DAYS = "calendars of 10 and of 50 days"


def _claim(figure: str, says: str, look: Look, here: str, printed: str = "", *reasons: Reason) -> Claim:
    return Claim(figure, says, "patterns", look, printed, here, reasons)


PARTNERS = "as many sources as the window has ticks, partners count a third as long, so that two fifths end early; "
CLAIMS = [
    _claim("3.8", "join, few results: upa nearly twice as fast as the other two", _faster(FEW, "upa", ("negative", "direct"), about=2), LARGE),
    _claim("3.8", "join, few results: direct outperforms negative tuples", _everywhere(FEW, "direct", "negative"), EVERY),
    _claim("3.8", "join, few results: direct gets slower as windows grow", _grows(FEW, "direct"), EVERY),
    _claim("3.9", "join, many results: direct by far the slowest", _faster(MANY, "negative", ("direct",), least=FAR), LARGE, "ten times the results of 3.8"),
    _claim("3.9", "join, many results: upa with 10 days performs well at first", _faster(MANY, "upa(10)", ("negative", "direct"), window=SMALLEST), SMALL),
    _claim("3.9", "join, many results: upa with 10 days gets slower as windows grow", _grows(MANY, "upa(10)"), EVERY),
    _claim("3.9", "join, many results: upa with 10 days is very slow at large windows beside 50 days", _ten_days, f"{LARGE}; {BOTH_DAYS}", "", IN_ORDER),
    _claim("3.9", "join, many results: upa with 50 days up to ten times as fast as negative tuples at large windows", _faster(MANY, "upa(50)", ("negative",), about=10), LARGE, "", LOGGED, ONE_STEP),
    _claim("3.10", "distinct sources: upa ten times as fast as negative tuples", _faster(SOURCES, "upa", ("negative",), about=10), LARGE, "about 2,000 sources"),
    _claim("3.10", "distinct sources: upa ten times as fast as direct", _faster(SOURCES, "upa", ("direct",), about=10), LARGE, "about 2,000 sources"),
    _claim("3.11", "distinct pairs: upa about twice as fast as negative tuples", _faster(PAIRS, "upa", ("negative",), about=2), LARGE, "ten times the results of 3.10"),
    _claim("3.11", "distinct pairs: direct performs poorly, since the result is large", _faster(PAIRS, "upa", ("direct",), least=FAR), LARGE),
    _claim("3.10, 3.11", "upa's advantage is greater where the result is small", _advantage, LARGE),
    _claim("3.12", "distinct sources: upa up to a hundred times as small", _smaller(SOURCES, about=100), LARGE),
    _claim("3.13", "distinct pairs: upa significantly smaller", _smaller(PAIRS, least=FAR), LARGE),
    _claim("3.14", "negation: about two fifths of the results end early", _two_fifths, PARTNERS + EVERY),
    _claim("3.14", "negation: upa slightly faster than negative tuples at small windows", _small_windows, PARTNERS + SMALL, "up to about 500 KB", LOGGED_EARLY),
    _claim("3.14", "negation: upa slower than negative tuples at large windows", _large_windows, PARTNERS + LARGE, "", WAITING),
    _claim("3.5.2", "results are better kept by calendar where few end early", _kept_by_calendar, f"partners count as long as results; {LARGE}", "said, not drawn"),
    _claim("3.5.2", "and by key where most do", _kept_by_key, f"partners count for 1,000 time units; {LARGE}", "said, not drawn"),
    _claim("3.15", "negation and join: NT(join up), with negation pushed down, outperforms NT", _pushed_down, EVERY, "", SELECTIVE),
    _claim("3.15", "negation and join: UPA, with negation pulled up, is best at large windows", _pulled_up, LARGE, "", DIRECT_ABOVE),
    _claim("3.15", "negation and join: NT(join up) is best at small windows", _join_up, SMALL, "", FULL_PRICE),
    _claim("3.15", "negation and join: with negation pushed down UPA is equivalent to NT(join up)", _equivalent, EVERY, "said, not drawn", DIRECT_ABOVE),
]  # fmt: skip
SOURCE = Source("Golab, *Sliding Window Query Processing over Data Streams*, chapter 3", PRINTED, HERE, CLAIMS)
__all__ = ["SOURCE"]
