"""Chapter 7 of the thesis: queries that scan a window while it slides (figures 7.8 to 7.14)."""

from __future__ import annotations

from collections.abc import Sequence

from windrow_bench.reproduction.claims import Claim, Reason, Record, Seen, Source
from windrow_bench.reproduction.looks import (
    COUNTED,
    FAR,
    SLIGHTLY,
    Look,
    alike,
    because,
    bound,
    order,
    spread,
    times,
    trend,
)

PRINTED = (
    "Java, Pentium 4 at 3 GHz; 10 to 100 sub-windows of t = 1 s with 40 periodic queries and of t = 5 s with 100, groups of "
    "five share a scan; a packet a millisecond; five streams of each kind; one-time queries, where there are any, at t = 5 s, one a second"
)
HERE = (
    "the same workload, 20 streams of each kind, on a simulated clock, moved on by costs that were measured here; a second is set to be one mean scan of "
    "100 sub-windows of 1 s, because there, print says, nearly every scan meets a movement: how often scans are aborted is "
    "that choice, and how schedulers compare is not"
)
SIZES = (10, 25, 50, 75, 100)
BOTH, MIXED = (1.0, 5.0), (5.0,)
SCHEDULERS = ("Serial", "WS", "LWS", "TTU")
STALE, AGAIN, DONE = "staleness_s", "inter_execution_s", "transactions_per_s"
RESPONSE, ONE_STALE = "one_time_response_s", "one_time_staleness_s"


def _ratios(record: Record, what: str, over: str, under: str, part: str, ts: Sequence[float]) -> list[float]:
    """One scheduler over another at every number of sub-windows."""
    return [
        record.one(what, part=part, t=t, n=n, scheduler=over) / record.one(what, part=part, t=t, n=n, scheduler=under)
        for t in ts
        for n in SIZES
    ]


def _over(
    what: str, over: str, under: str, part: str = "periodic", ts: Sequence[float] = BOTH, most: float | None = None
) -> Look:
    def look(record: Record) -> Seen:
        ratios = _ratios(record, what, over, under, part, ts)
        said = f"{over} / {under} {', '.join(map(times, ratios))}"
        return order(record, ratios, said, most=most, scatter=COUNTED)

    return look


def _alike(what: str, over: str, under: str, part: str = "periodic", ts: Sequence[float] = BOTH) -> Look:
    def look(record: Record) -> Seen:
        ratios = _ratios(record, what, over, under, part, ts)
        return alike(record, ratios, f"{over} / {under} {spread(ratios)}")

    return look


def _by_n(
    what: str, part: str = "periodic", ts: Sequence[float] = BOTH, falls: bool = False, of: Sequence[str] = SCHEDULERS
) -> Look:
    def look(record: Record) -> Seen:
        lines = {
            f"{s}{f' at {t:g} s' if len(ts) > 1 else ''}": record.line("n", what, part=part, t=t, scheduler=s)
            for s in of
            for t in ts
        }
        return trend(record, lines, falls=falls, scatter=COUNTED)

    return look


def _by_t(what: str, falls: bool = False) -> Look:
    """What the longer sub-windows make of it, at every n and by every scheduler."""

    def look(record: Record) -> Seen:
        ratios = [
            record.one(what, part="periodic", t=5.0, n=n, scheduler=s)
            / record.one(what, part="periodic", t=1.0, n=n, scheduler=s)
            for s in SCHEDULERS
            for n in SIZES
        ]
        if falls:
            ratios = [1 / r for r in ratios]
        said = "t = 1 s / t = 5 s" if falls else "t = 5 s / t = 1 s"
        return order(record, ratios, f"{said} {spread(ratios)}", scatter=COUNTED)

    return look


def _none(part: str) -> Look:
    def look(record: Record) -> Seen:
        worst = max(float(r["aborted_percent"]) for r in record.where(scheduler="TTU", part=part))
        return bound(worst, f"at most {worst:.3g}%", most=0)

    return look


def _more_often(record: Record) -> Seen:
    ratios = [
        record.one("aborted_percent", part="periodic", t=1.0, n=n, scheduler="LWS")
        / record.one("aborted_percent", part="periodic", t=5.0, n=n, scheduler="LWS")
        for n in SIZES
    ]
    return order(record, ratios, f"1 s / 5 s {', '.join(map(times, ratios))}", scatter=COUNTED)


def _half(record: Record) -> Seen:
    worst = record.one("aborted_percent", part="periodic", t=1.0, n=100, scheduler="LWS")
    return bound(worst, f"{worst:.0f}%", least=50)


def _penalty(most: float, mean: bool) -> Look:
    def look(record: Record) -> Seen:
        lost = [1 - 1 / r for r in _ratios(record, DONE, "Serial", "TTU", "periodic", BOTH)]
        value = sum(lost) / len(lost) if mean else max(lost)
        return bound(value, f"{'on average' if mean else 'at most'} {value:.1%}", most=most)

    return look


# -- why, where it is not so -----------------------------------------------------------------------------------------


def _held_up(record: Record) -> str | None:
    """One-time queries come so fast at the largest window that a scan is held up for longer than a sub-window."""
    response = record.one(RESPONSE, part="mixed", t=5.0, n=100, scheduler="TTU")
    return f"a one-time query waits {response:.1f} s at n = 100" if response > 5 else None


def _restarts(record: Record) -> str | None:
    """What is aborted and started again at the largest window takes more than is left."""
    found = {s: record.one(RESPONSE, part="mixed", t=5.0, n=100, scheduler=s) for s in SCHEDULERS}
    aborted = record.one("aborted_percent", part="mixed", t=5.0, n=100, scheduler="LWS")
    if found["LWS"] <= found["Serial"]:
        return None
    return (
        f"at n = 100 LWS aborts {aborted:.0f}% and responds in {found['LWS']:.1f} s, Serial in {found['Serial']:.1f} s"
    )


def _equal_costs(record: Record) -> str | None:
    """Serial against WS in what they get done: the print's difference is the cost of a scheduler."""
    ratios = _ratios(record, DONE, "Serial", "WS", "periodic", BOTH)
    mean = sum(ratios) / len(ratios)
    return f"transactions a second, Serial / WS {times(mean)} on average" if abs(mean - 1) < COUNTED else None


def _one_cost_off(record: Record) -> str | None:
    """A scheduler's own cost is measured for every n; one that came out too high shows in the reads of that point."""
    found = [
        (max(reads) / min(reads), n)
        for n in SIZES
        for reads in [
            [record.one("reads_per_s", part="periodic", t=1.0, n=n, scheduler=s) for s in ("Serial", "WS", "TTU")]
        ]
    ]
    worst, n = max(found)
    return f"sub-windows read a second at n = {n} differ {times(worst)} between schedulers" if worst > 1.05 else None


def _overloaded(record: Record) -> str | None:
    """Where one-time queries alone fill the machine, how often one is restarted says less than how many wait."""
    ratio = record.one(ONE_STALE, part="mixed", t=5.0, n=25, scheduler="LWS") / record.one(
        ONE_STALE, part="mixed", t=5.0, n=25, scheduler="TTU"
    )
    aborted = record.one("aborted_percent", part="mixed", t=5.0, n=25, scheduler="LWS")
    return f"{aborted:.0f}% at n = 25, where LWS / TTU is {times(ratio)}" if aborted < 5 else None


def _little_slower(record: Record) -> str | None:
    ratios = _ratios(record, RESPONSE, "LWS", "TTU", "mixed", MIXED)
    shares = [record.one("aborted_percent", part="mixed", t=5.0, n=n, scheduler="LWS") for n in SIZES]
    return (
        f"{', '.join(times(r) for r in ratios)} where {', '.join(f'{s:.0f}%' for s in shares)} is aborted"
        if min(shares) < 5
        else None
    )


def _flat(record: Record) -> str | None:
    grown = {
        s: record.one(STALE, part="periodic", t=1.0, n=100, scheduler=s)
        / record.one(STALE, part="periodic", t=1.0, n=10, scheduler=s)
        for s in ("Serial", "TTU")
    }
    said = ", ".join(f"{s} {times(g)}" for s, g in grown.items())
    return f"from n = 10 to 100 at 1 s {said}" if grown["TTU"] < 1.1 and grown["Serial"] > FAR else None


def _by_speed(record: Record) -> str | None:
    """The same point on slower machines: a little slower, and most scans are aborted."""
    line = record.line("slower", "aborted_percent", part="speed")
    return ", ".join(f"{y:.0f}% if a scan takes {x:g} times as long" for x, y in line) if line[-1][1] > 50 else None


def _wasted(record: Record) -> str | None:
    aborted = {t: record.one("aborted_percent", part="periodic", t=t, n=100, scheduler="LWS") for t in BOTH}
    return ", ".join(f"{a:.0f}% at {t:g} s" for t, a in aborted.items()) if aborted[1.0] > 40 else None


SPEED = because(
    "print does not say how fast the machine is beside the stream, and the share turns where a scan takes as long as a second",
    _by_speed,
)
WASTED = because("at 1 s and 100 sub-windows LWS loses more by aborting than longer scans would cost", _wasted)
FLAT = because("LWS and TTU read what is newest last, so that the length of a scan hardly shows", _flat)
HELD_UP = because(
    'a scan that one-time queries hold up for longer than a sub-window can meet two movements; print allows for it ("unless suspended for a long time")',
    _held_up,
)
RESTARTS = because(
    "the one-time queries alone nearly fill the clock of the largest window, where what is aborted comes on top",
    _restarts,
)
MICROSECONDS = because(
    "what WS does beside a scan is microseconds here, so that the two get as much done", _equal_costs
)
OUTLIER = because("the cost of one scheduler at one n was measured too high", _one_cost_off)
FEW_ABORTS = because("few one-time queries are aborted where windows are short", _overloaded)
IN_SHARE = because("what LWS adds follows from the share that it aborts", _little_slower)


def _claim(figure: str, says: str, look: Look, *reasons: Reason, here: str = "", printed: str = "") -> Claim:
    return Claim(figure, says, "isolation", look, printed, here, reasons)


NEXT = "t = 5 s, with one-time queries"
CLAIMS = [
    _claim("7.8", "algorithm 8 (TTU) aborts no transaction", _none("periodic")),
    _claim("7.8", "and none with one-time queries beside", _none("mixed"), HELD_UP, here=NEXT, printed="said, not drawn"),
    _claim("7.8", "algorithm 7 (LWS) aborts more with shorter sub-windows", _more_often),
    _claim("7.8", "algorithm 7 aborts more with more sub-windows", _by_n("aborted_percent", of=("LWS",))),
    _claim("7.8", "algorithm 7 aborts over half at 1 s and 100 sub-windows", _half, SPEED, here="set by what a second is"),
    *(_claim("7.9", f"{a} is less stale than {b}", _over(STALE, b, a), *why) for a, b, why in (
        ("TTU", "Serial", ()), ("TTU", "WS", ()), ("LWS", "Serial", ()), ("LWS", "WS", ()), ("TTU", "LWS", ()))),
    _claim("7.9", "Serial is slightly less stale than WS", _over(STALE, "WS", "Serial", most=SLIGHTLY), MICROSECONDS, OUTLIER),
    _claim("7.9", "all are staler with longer sub-windows", _by_t(STALE)),
    _claim("7.9", "all are generally staler with more sub-windows", _by_n(STALE), FLAT),
    *(_claim("7.10", f"Serial executes queries more often than {s}", _over(AGAIN, s, "Serial"), MICROSECONDS, OUTLIER) for s in ("WS", "TTU")),
    *(_claim("7.10", f"{s} follows Serial very closely", _alike(AGAIN, s, "Serial"), OUTLIER) for s in ("WS", "TTU")),
    *(_claim("7.10", f"LWS executes queries less often than {s}", _over(AGAIN, "LWS", s), OUTLIER) for s in ("Serial", "WS", "TTU")),
    _claim("7.10", "all execute less often with longer sub-windows", _by_t(AGAIN)),
    _claim("7.10", "all execute less often with more sub-windows", _by_n(AGAIN)),
    _claim("7.11", "TTU loses at most 4% of Serial's throughput", _penalty(0.04, False)),
    _claim("7.11", "and typically below 2%", _penalty(0.02, True)),
    _claim("7.11", "throughput of LWS is lower than TTU's in all cases", _over(DONE, "TTU", "LWS")),
    _claim("7.11", "throughput falls with longer sub-windows", _by_t(DONE, falls=True), WASTED),
    _claim("7.11", "throughput falls with more sub-windows", _by_n(DONE, falls=True)),
    _claim("7.12", "one-time queries: TTU and WS respond nearly alike", _alike(RESPONSE, "WS", "TTU", "mixed", MIXED), here=NEXT),
    _claim("7.12", "one-time queries: LWS responds noticeably later than TTU", _over(RESPONSE, "LWS", "TTU", "mixed", MIXED), IN_SHARE, here=NEXT),
    *(_claim("7.12", f"one-time queries: Serial responds later than {s}", _over(RESPONSE, "Serial", s, "mixed", MIXED), RESTARTS, here=NEXT) for s in ("WS", "LWS", "TTU")),
    _claim("7.12", "one-time queries: all respond later with more sub-windows", _by_n(RESPONSE, "mixed", MIXED), here=NEXT),
    *(_claim("7.13", f"one-time queries: TTU is less stale than {s}", _over(ONE_STALE, s, "TTU", "mixed", MIXED), here=NEXT) for s in ("WS", "Serial")),
    _claim("7.13", "one-time queries: LWS is somewhat staler than TTU", _over(ONE_STALE, "LWS", "TTU", "mixed", MIXED, SLIGHTLY), FEW_ABORTS, here=NEXT),
    *(_claim("7.13", f"one-time queries: LWS is less stale than {s}", _over(ONE_STALE, s, "LWS", "mixed", MIXED), here=NEXT) for s in ("WS", "Serial")),
    *(_claim("7.14", f"periodic queries beside one-time ones: TTU is less stale than {s}", _over(STALE, s, "TTU", "mixed", MIXED), here=NEXT) for s in ("Serial", "WS", "LWS")),
]  # fmt: skip

SOURCE = Source("The same, chapter 7", PRINTED, HERE, CLAIMS)

__all__ = ["SOURCE"]
