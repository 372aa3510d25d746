"""Multi-way joins: TR CS-2003-01 of Golab and Özsu (tables 3 and 5 to 8, figures 2 to 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from windrow_bench.reproduction.claims import Claim, Reason, Record, Seen, Source
from windrow_bench.reproduction.looks import (
    COMPUTED,
    COUNTED,
    FAR,
    Look,
    alike,
    because,
    exact,
    never_above,
    order,
    spread,
    times,
    trend,
)

PRINTED = (
    "Java 1.3, AMD at 1.2 GHz; windows as linked lists, hash tables of a fixed number of buckets; results are counted; ten runs; "
    "one tuple a unit and stream unless the table says otherwise; the highest rate that is borne, in tuples a second"
)
HERE = (
    "the join operator over generated streams of the same parameters, all results materialised; a unit has as many tuples as the "
    "rates add up to; nested loops is the join without its keys; hash tables grow with the windows, so that there is no number of "
    "buckets; eager is an evaluation for every tuple"
)
MODEL = "the cost model that orders running joins; no clock"
BUCKETS = "hash tables grow with the windows, to at least a bucket for every element, so that a fast stream has more of them by itself"
METHODS = {"nested": "nested loops", "hash": "hash"}


def costs(case: str) -> Look:
    """Every printed cost of a table's orders, by the model."""

    def look(record: Record) -> Seen:
        found = record.where(part="costs", case=case)
        return exact(len(found), sum(r["printed"] != r["predicted"] for r in found), "costs")

    return look


def _correct_rows(record: Record) -> Seen:
    found = {(r["s1"], r["s2"], r["s3"]) for r in record.where(part="table 3")}
    return Seen(", ".join(map(str, sorted(found))), found == {(100, 150, 195), (100, 180, 195)})


def _scales(record: Record) -> Seen:
    line = [(float(r["windows"]), float(r["naive"]) / float(r["multi-way"])) for r in record.where(part="figure 2")]
    words = f"naive / multi-way {', '.join(f'{times(y)} with {x:g}' for x, y in line)}"
    return order(record, [line[-1][1] / line[0][1]], words, least=FAR, scatter=COMPUTED)


Curves = Callable[[Record], Mapping[str, Mapping[float, float]]]
"""Costs of the naive, the lazy and the general lazy join, by interval."""


def _by_model(part: str) -> Curves:
    return lambda record: {
        join: dict(record.line("interval", join, part=part)) for join in ("naive", "lazy", "general")
    }


def _by_pairs(method: str) -> Curves:
    return lambda record: {
        join: dict(record.line("evaluated every", "pairs_per_unit", part="figure 3b", method=method, join=join))
        for join in ("naive", "lazy", "general")
    }


def _over(
    curves: Curves,
    over: str,
    under: str,
    at: Callable[[list[float]], list[float]],
    scatter: float,
    about: float | None = None,
    same: bool = False,
) -> Look:
    """One join over another at some of the intervals."""

    def look(record: Record) -> Seen:
        found = curves(record)
        taken = at(sorted(found[over]))
        ratios = [found[over][i] / found[under][i] for i in taken]
        words = f"{over} / {under} {', '.join(f'{times(r)} at {i:g}' for r, i in zip(ratios, taken, strict=True))}"
        return alike(record, ratios, words) if same else order(record, ratios, words, about, scatter=scatter)

    return look


def _never_worse(curves: Curves, scatter: float) -> Look:
    def look(record: Record) -> Seen:
        found = curves(record)
        ratios = [found["general"][i] / min(found["naive"][i], found["lazy"][i]) for i in sorted(found["general"])]
        return never_above(record, ratios, f"general / the better of the others at most {times(max(ratios))}", scatter)

    return look


def _rises(curves: Curves, over: str, under: str | None = None, falls: bool = False) -> Look:
    def look(record: Record) -> Seen:
        found = curves(record)
        line = [(i, found[over][i] / (found[under][i] if under else 1)) for i in sorted(found[over])]
        return trend(record, line, f"{over}{f' / {under}' if under else ''}", falls, COMPUTED)

    return look


def _all(found: list[float]) -> list[float]:
    return found


def _first(found: list[float]) -> list[float]:
    return found[:1]


def _last(found: list[float]) -> list[float]:
    return found[-1:]


# -- joins that run --------------------------------------------------------------------------------------------------


def _rate(record: Record, method: str, every: float, plan: str = "1234") -> float:
    return record.one("tuples_per_s", part="table 8", method=method, evaluated_every=every, order=plan)


def _best_plan(method: str, every: float, printed: tuple[float, float]) -> Look:
    def look(record: Record) -> Seen:
        best, worst = _rate(record, method, every), _rate(record, method, every, "4321")
        words = f"{best:,.0f} and {worst:,.0f} tuples/s: {times(best / worst)}"
        return order(record, [best / worst], words, about=printed[0] / printed[1])

    return look


def _hash_over_nested(every: float, printed: tuple[float, float]) -> Look:
    def look(record: Record) -> Seen:
        hashed, nested = _rate(record, "hash", every), _rate(record, "nested", every)
        words = f"{hashed:,.0f} and {nested:,.0f} tuples/s: {times(hashed / nested)}"
        return order(record, [hashed / nested], words, about=printed[0] / printed[1])

    return look


def _longer_interval(method: str, every: tuple[float, float], printed: tuple[float, float]) -> Look:
    def look(record: Record) -> Seen:
        rates = [_rate(record, method, e) for e in every]
        words = ", ".join(f"{r:,.0f} tuples/s at {e:g}" for r, e in zip(rates, every, strict=True))
        return order(record, [rates[0] / rates[1]], words, about=printed[0] / printed[1])

    return look


def _of_intervals(record: Record) -> dict[str, dict[float, float]]:
    """Tuples a second by re-evaluation interval, by both methods."""
    return {m: dict(record.line("evaluated every", "tuples_per_s", part="intervals", method=m)) for m in METHODS}


def _methods(record: Record) -> Seen:
    found = _of_intervals(record)
    ratios = [found["hash"][e] / found["nested"][e] for e in sorted(found["nested"])]
    return order(record, ratios, f"hash / nested loops {spread(ratios)}")


def _frequent_is_slow(method: str) -> Look:
    def look(record: Record) -> Seen:
        line = sorted(_of_intervals(record)[method].items())
        best = max(line, key=lambda p: p[1])
        words = f"{line[0][1]:,.0f} tuples/s at {line[0][0]:g}, at best {best[1]:,.0f} at {best[0]:g}"
        return order(record, [best[1] / line[0][1]], words)

    return look


def _drops_off(method: str) -> Look:
    def look(record: Record) -> Seen:
        line = sorted(_of_intervals(record)[method].items())
        best = max(line[:-1], key=lambda p: p[1])
        words = f"{best[1]:,.0f} tuples/s at {best[0]:g}, {line[-1][1]:,.0f} at {line[-1][0]:g}"
        return order(record, [best[1] / line[-1][1]], words)

    return look


def _dear_first(record: Record) -> Seen:
    """Dear predicates asked by their ranks, against all asked of all pairs."""
    rows = record.where(part="dear predicates")
    ratios = [float(r["together_ms"]) / float(r["ranked_ms"]) for r in rows]
    words = ", ".join(f"{r['case']} {times(x)}" for r, x in zip(rows, ratios, strict=True))
    return order(record, ratios, f"all asked of all pairs / by rank: {words}")


def _best_rate(record: Record) -> Seen:
    """The best plan by hash at every interval that was measured, against the printed eager one."""
    rates = dict(record.line("evaluated every", "tuples_per_s", part="throughput", method="hash"))
    eager = _rate(record, "hash", 0)
    others = ", ".join(f"{times(r / PRINTED_RATE)} at {e:g}" for e, r in sorted(rates.items()) if e)
    words = f"{eager:,.0f} tuples/s eagerly, which is {times(eager / PRINTED_RATE)}; every so many units {others}"
    return Seen(words, eager >= PRINTED_RATE)


# -- why, where it is not so -----------------------------------------------------------------------------------------


def per_evaluation(record: Record, method: str, case: str = "table 5") -> tuple[float, float, int]:
    """Milliseconds of an evaluation for one tuple and for ten units of them, and how many those are."""
    units = 10 * {"table 5": 15, "thesis 5.5": 13}[case]
    return 1e3 / _rate(record, method, 0), 1e3 * units / _rate(record, method, 10), units


def _fixed_cost(method: str) -> Callable[[Record], str | None]:
    """An evaluation costs far less than in proportion to its tuples."""

    def rests(record: Record) -> str | None:
        one, many, tuples = per_evaluation(record, method)
        return f"{one:.2g} ms for one tuple, {many:.2g} ms for {tuples}" if many < one * tuples / FAR else None

    return rests


def _pairs_alone(every: float) -> Callable[[Record], str | None]:
    """Looking at pairs is the lesser part: many times as many do not cost as many times as much."""

    def rests(record: Record) -> str | None:
        pairs = [
            record.one("pairs_per_unit", part="table 8", method="nested", evaluated_every=every, order=o)
            for o in ("1234", "4321")
        ]
        rates = [_rate(record, "nested", every, o) for o in ("1234", "4321")]
        if pairs[1] / pairs[0] < FAR * rates[0] / rates[1]:
            return None
        return f"{times(pairs[1] / pairs[0])} as many pairs in {times(rates[0] / rates[1])} the time"

    return rests


def _few_hashed(every: float) -> Callable[[Record], str | None]:
    def rests(record: Record) -> str | None:
        nested, hashed = (
            record.one("pairs_per_unit", part="table 8", method=m, evaluated_every=every, order="1234") for m in METHODS
        )
        return f"{hashed:,.0f} pairs a unit, nested loops {nested:,.0f}" if nested > 10 * hashed else None

    return rests


def _any_reason(*tests: Callable[[Record], str | None]) -> Callable[[Record], str | None]:
    def rests(record: Record) -> str | None:
        return next((said for said in (test(record) for test in tests) if said), None)

    return rests


def _pairs_are_cheap(every: float) -> Callable[[Record], str | None]:
    """Many times as many pairs cost nested loops a few times as much."""

    def rests(record: Record) -> str | None:
        pairs = [
            record.one("pairs_per_unit", part="table 8", method=m, evaluated_every=every, order="1234") for m in METHODS
        ]
        ratio = _rate(record, "hash", every) / _rate(record, "nested", every)
        printed = TABLE_8["hash", int(every)][0] / TABLE_8["nested", int(every)][0]
        return f"{times(pairs[0] / pairs[1])} the pairs in {times(ratio)} the time" if ratio < printed else None

    return rests


def _hash_gain(record: Record) -> str | None:
    found = _of_intervals(record)
    if any(found["hash"][e] < 6 * found["nested"][e] for e in (5, 10)):
        return None
    pairs = [record.one("pairs_per_unit", part="intervals", method=m, evaluated_every=5) for m in METHODS]
    return (
        f"{pairs[0]:,.0f} pairs a unit by nested loops, {pairs[1]:,.0f} by hash" if pairs[0] > 10 * pairs[1] else None
    )


def _interval_line(record: Record) -> str | None:
    found = _of_intervals(record)
    if any(b < a for line in found.values() for (_, a), (_, b) in pairwise(sorted(line.items()))):
        return None
    return "; ".join(
        f"{METHODS[m]} {min(line.values()):,.0f} to {max(line.values()):,.0f} tuples/s" for m, line in found.items()
    )


BATCHED = "an evaluation has a fixed cost here, which long intervals share among more tuples; in print a tuple at a time costs nothing extra, and long intervals only lengthen the windows"
SHARED = {m: because(BATCHED, _fixed_cost(m)) for m in METHODS}
SHORT_OF = because(
    "pairs are looked at a hundred thousand at a time, so that orders, which differ in pairs, differ less in time",
    _pairs_alone(10),
)
BY_KEY = because("the hash join finds partners by key whatever the order, and is left with few pairs", _few_hashed(10))
ALL_BUCKETS = because("hash tables have a bucket for every element instead of five for a window", _hash_gain)
NO_OPTIMUM = because(f"{BATCHED}: up to a whole window it goes on getting faster", _interval_line)
PRINTED_RATE = 11_540
TABLE_8 = {
    ("nested", 0): (1614, 333), ("nested", 5): (1446, 296), ("nested", 10): (1332, 274),
    ("hash", 0): (11_540, 2524), ("hash", 5): (8420, 2041), ("hash", 10): (7947, 1848),
}  # fmt: skip
"""Highest rates of the best and the worst plan."""
EAGERNESS = {0: "eager", 5: "every 5 units", 10: "every 10 units"}


def _claim(
    figure: str, says: str, record: str, look: Look, here: str = "", *reasons: Reason, printed: str = ""
) -> Claim:
    return Claim(figure, says, record, look, printed, here, reasons)


def _of_3b(curves: Curves, record: str, here: str, scatter: float) -> list[Claim]:
    printed = "four windows, the fourth stream ten times as fast"
    return [
        _claim("figure 3b", "general lazy has the lowest cost at every interval", record, _never_worse(curves, scatter), here, printed=printed),
        _claim("figure 3b", "lazy works as well as general lazy at small intervals", record, _over(curves, "lazy", "general", _first, scatter, same=True), here),
        _claim("figure 3b", "at large ones it is outperformed by general lazy", record, _over(curves, "lazy", "general", _last, scatter), here),
        _claim("figure 3b", "and by naive", record, _over(curves, "lazy", "naive", _last, scatter), here),
        _claim("figure 3b", "naive is the dearest at small intervals", record, _over(curves, "naive", "lazy", _first, scatter), here),
        _claim("figure 3b", "and nearly as good as general lazy at large ones", record, _over(curves, "naive", "general", _last, scatter, same=True), here),
    ]  # fmt: skip


EVEN = _by_model("figure 3a")
CLAIMS = [
    _claim("table 3", "two results are right of the eight that the naive join returns", "analysis", _correct_rows, "the same six tuples, as a query"),
    _claim("figure 2", "the multi-way join scales considerably better with the number of windows than the naive one", "analysis", _scales, MODEL, printed="100 units, 50 values"),
    _claim("figure 3a", "lazy and general lazy cost the same", "analysis", _over(EVEN, "lazy", "general", _all, COMPUTED, same=True), MODEL, printed="four even windows"),
    _claim("figure 3a", "their cost rises with the interval", "analysis", _rises(EVEN, "lazy"), MODEL),
    _claim("figure 3a", "naive costs more", "analysis", _over(EVEN, "naive", "lazy", _all, COMPUTED), MODEL),
    _claim("figure 3a", "especially at small intervals", "analysis", _rises(EVEN, "naive", "lazy", falls=True), MODEL),
    *_of_3b(_by_model("figure 3b"), "analysis", MODEL, COMPUTED),
    *(c for m, name in METHODS.items() for c in _of_3b(_by_pairs(m), "joins", f"running joins, {name}, with the orders that the model chooses; pairs that were looked at; intervals of 5 to 100 units", COUNTED)),
    *(_claim(t, "costs of global orders", "joins", costs(t), MODEL) for t in ("table 5", "table 6", "table 7")),
    *(_claim("table 8", f"{METHODS[m]}, {EAGERNESS[e]}: the best plan by the model is the faster, {best:,} against {worst:,} tuples/s", "joins", _best_plan(m, e, (best, worst)), "streams of table 5",
             SHORT_OF if m == "nested" else BY_KEY, SHARED[m], printed="streams of table 5, hash tables of five buckets") for (m, e), (best, worst) in TABLE_8.items()),
    *(_claim("table 8", f"{name}: hash supports {times(TABLE_8['hash', e][0] / TABLE_8['nested', e][0])} the rate of nested loops", "joins",
             _hash_over_nested(e, (TABLE_8["hash", e][0], TABLE_8["nested", e][0])), "streams of table 5", ALL_BUCKETS, because("nested loops look at pairs in compiled loops, so that a hash table, which leaves few, saves less", _pairs_are_cheap(e)), printed="five buckets") for e, name in EAGERNESS.items()),
    *(_claim("table 8", f"{METHODS[m]}: evaluating {EAGERNESS[b]} supports lower rates than {'eager evaluation' if not a else EAGERNESS[a]}", "joins",
             _longer_interval(m, (a, b), (TABLE_8[m, a][0], TABLE_8[m, b][0])), "streams of table 5", SHARED[m]) for m in METHODS for a, b in ((0, 5), (5, 10))),
    _claim("figure 4a", "nested loops is the slowest at every interval", "joins", _methods, "intervals of up to a window", printed="2, 10 and 30 buckets"),
    *(_claim("figure 4a", f"{name}: very frequent evaluation is inefficient", "joins", _frequent_is_slow(m), "intervals of up to a window") for m, name in METHODS.items()),
    *(_claim("figure 4a", f"{name}: rates drop off when intervals are large", "joins", _drops_off(m), "intervals of up to a window", NO_OPTIMUM) for m, name in METHODS.items()),
    Claim("figure 4a", "more buckets support higher rates, by less and less, and longer intervals suit them", printed="2, 10 and 30 buckets", never=BUCKETS),
    Claim("figure 4b", "larger hash tables for fast streams support higher rates than equal ones", printed="the fourth stream fifty times as fast", never=BUCKETS),
    Claim("figure 4b", "tables that are too large hurt where evaluation is frequent", printed="evaluated every 5 units", never=BUCKETS),
    _claim("table 8", "the best plan bears 11,540 tuples/s, eagerly", "joins", _best_rate, "streams of table 5; results materialised",
           because("an evaluation for every tuple has a fixed cost", _fixed_cost("hash")), printed="hash tables of five buckets"),
    _claim("5.4", "it matters where dear predicates stand", "joins", _dear_first,
           "a cheap and a dear predicate of one join: each is asked of the rows that those of better rank leave; functions of the user come last, since they may raise", printed="near the top of the tree; said, not measured"),
]  # fmt: skip
SOURCE = Source("Golab, Özsu, *Processing Sliding Window Multi-Joins*", PRINTED, HERE, CLAIMS)

__all__ = ["METHODS", "SOURCE", "costs"]
