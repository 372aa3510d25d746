"""Chapter 3 of the thesis: update patterns (figures 3.8 to 3.15)."""

from __future__ import annotations

from collections.abc import Callable

from windrow_bench.reproduction.claims import Claim, Record, Seen, times

PRINTED = (
    "Java, Pentium 4 at 1.8 GHz; wide-area TCP connections of LBL; windows of 2,000 to 200,000 time units; a tuple at a "
    "time; calendar queues of 10 days"
)
HERE = "generated flows, the same windows; batches of 500 time units (beside it: of a hundredth of the window)"
SORTED = "; calendars of 16 days, and of 10 and 50 beside them"
LARGEST, SMALLEST = 200_000, 2_000
FIXED, GROWING = "fixed", "window / 100"
Look = Callable[[Record], Seen]


def _cost(record: Record, query: str, strategy: str, window: int = LARGEST, batch: str = FIXED) -> float:
    return record.one("ms_per_1000", query=query, strategy=strategy, window=window, batch=batch)


def _faster(query: str, strategy: str, other: str, at_least: float) -> Look:
    """At the largest window a strategy is so many times as fast as another."""

    def look(record: Record) -> Seen:
        ratio = {
            b: _cost(record, query, other, batch=b) / _cost(record, query, strategy, batch=b) for b in (FIXED, GROWING)
        }
        words = f"{other} / {strategy} at the largest window {times(ratio[FIXED])} ({times(ratio[GROWING])})"
        return Seen(words, ratio[FIXED] >= at_least)

    return look


def _smaller(query: str, at_least: float) -> Look:
    def look(record: Record) -> Seen:
        space = {
            s: record.one("state_bytes", query=query, strategy=s, window=LARGEST, batch=FIXED)
            for s in ("upa", "negative", "direct")
        }
        ratio = min(space["negative"], space["direct"]) / space["upa"]
        return Seen(f"the smaller of the others / upa {times(ratio)}", ratio >= at_least)

    return look


def _slower_as_it_grows(query: str, strategy: str) -> Look:
    def look(record: Record) -> Seen:
        line = record.line("window", "ms_per_1000", query=query, strategy=strategy, batch=FIXED)
        return Seen(f"ms per 1,000 tuples: {line[0][1]:.3g} to {line[-1][1]:.3g}", line[-1][1] > line[0][1])

    return look


def _days(record: Record) -> Seen:
    """Fifty days against ten, where results are many."""
    ten, fifty, other = (_cost(record, "1 many", s) for s in ("upa(10)", "upa(50)", "negative"))
    words = f"10 days / 50 days {times(ten / fifty)}, negative tuples / 50 days {times(other / fifty)}"
    return Seen(words, ten >= 1.5 * fifty)


def _crossing(record: Record) -> Seen:
    ratio = {w: _cost(record, "3", "negative", w) / _cost(record, "3", "upa", w) for w in (SMALLEST, LARGEST)}
    words = ", ".join(f"{times(r)} at {w:,}" for w, r in ratio.items())
    return Seen(
        f"negative / upa {words}, where {_ends(record, '3'):.0%} end early (in print 40%)",
        ratio[SMALLEST] > 1 > ratio[LARGEST],
    )


def _ends(record: Record, query: str, window: int = LARGEST) -> float:
    """The share of a query's results that end early."""
    return record.one("early", query=query, strategy="upa", window=window, batch=FIXED)


def _early(record: Record) -> Seen:
    """By key against by calendar at the largest window, where few results end early and where most do."""
    ratio = {q: _cost(record, q, "negative") / _cost(record, q, "upa") for q in ("3", "3 early")}
    words = ", ".join(f"{times(r)} where {_ends(record, q):.0%} end early" for q, r in ratio.items())
    return Seen(f"by key / by calendar {words}", ratio["3"] > 1 > ratio["3 early"])


def _pulled_up(record: Record) -> Seen:
    other = min(_cost(record, q, "negative") for q in ("4 negation up", "4 negation down"))
    ratio = other / _cost(record, "4 negation up", "upa")
    return Seen(f"the better negative plan / upa with negation up {times(ratio)} at the largest window", ratio > 1)


def _pushed_down(record: Record) -> Seen:
    ratio = _cost(record, "4 negation up", "negative") / _cost(record, "4 negation down", "negative")
    return Seen(f"negation up / negation down, both by negative tuples {times(ratio)}", ratio > 1)


def _claim(figure: str, says: str, look: Look, otherwise: str = "", here: str = HERE) -> Claim:
    return Claim(figure, PRINTED, here, says, "patterns", look, otherwise)


FEW, MANY, SOURCES, PAIRS = "1 few", "1 many", "2 sources", "2 pairs"
VECTORS = (
    "a batch takes tuples back in one vectorised step, so negative tuples cost what positive ones do, and with few results "
    "all strategies spend their time on the same windows"
)
DAYS = (
    "in print a day is searched from end to end for what is due; here the rows of a day are in order, so that the number of "
    "days changes what is cut, not what is searched"
)
CLAIMS = [
    _claim("3.8", "join with few results: upa nearly twice as fast as the others", _faster(FEW, "upa", "negative", 1.5), VECTORS),
    _claim("3.8", "join with few results: direct faster than negative tuples", _faster(FEW, "direct", "negative", 1)),
    _claim("3.9", "join with many results: direct by far the slowest", _faster(MANY, "upa", "direct", 3), here=HERE + SORTED),
    _claim("3.9", "join with many results: upa, with days enough, up to ten times as fast as negative tuples",
           _faster(MANY, "upa", "negative", 2), VECTORS, HERE + SORTED),
    _claim("3.9", "calendars of 10 days become very slow as windows grow, those of 50 do not", _days, DAYS, HERE + SORTED),
    _claim("3.9", "direct gets slower as windows grow", _slower_as_it_grows(MANY, "direct"), here=HERE + SORTED),
    _claim("3.10", "distinct sources: upa ten times as fast as negative tuples", _faster(SOURCES, "upa", "negative", 5)),
    _claim("3.10", "distinct sources: upa ten times as fast as direct", _faster(SOURCES, "upa", "direct", 5)),
    _claim("3.11", "distinct pairs: upa about twice as fast as negative tuples", _faster(PAIRS, "upa", "negative", 2)),
    _claim("3.11", "distinct pairs: direct poor, since the result is large", _faster(PAIRS, "upa", "direct", 2)),
    _claim("3.12", "distinct sources: upa up to a hundred times as small", _smaller(SOURCES, 50)),
    _claim("3.13", "distinct pairs: upa significantly smaller", _smaller(PAIRS, 2)),
    _claim("3.14", "negation: upa slightly faster for small windows, slower than negative tuples for large ones", _crossing,
           "in print a result that ends early is looked for in the whole result; here its negative waits beside it, so the "
           "turn comes when far more end early than do here (next line)"),
    _claim("3.5.2", "results are better kept by calendar when few end early, and by key when most do", _early,
           here=HERE + "; partners that count as long as results, and for 1,000 time units"),
    _claim("3.15", "negation and join: upa with negation pulled up is the fastest for large windows", _pulled_up),
    _claim("3.15", "by negative tuples the plan with negation pushed down is faster than that with it pulled up", _pushed_down),
]  # fmt: skip
