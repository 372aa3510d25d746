"""Chapter 5 of the thesis: eager and lazy joins (figures 5.2 to 5.4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windrow_bench.reproduction.claims import Claim, Reason, Record, Seen, Source
from windrow_bench.reproduction.joins import METHODS, costs
from windrow_bench.reproduction.looks import FAR, Look, because, order, spread, times, trend

PRINTED = (
    "Java, Pentium 4 at 1.8 GHz; streams of table 5.5, a tuple at a time; hash tables of 2, 5 or 10 buckets; milliseconds for "
    "1,000 tuples, the mean of ten runs"
)
HERE = (
    "the join operator over generated streams of the same parameters; nested loops is the join without its keys; hash tables "
    "grow with the windows, so that there is no number of buckets; lazyR is the operator evaluated at intervals, lazy drops what "
    "came and went in between, as re-evaluation without restore does"
)
BUCKETS = (
    "hash tables grow with the windows, to at least a bucket for every element: there is no number of buckets to choose"
)
DELTAS = (5, 10, 20, 30)
MODES = ("eager", "eager, lazy expiry", "lazy", "lazyR")
RECORDED = {"lazy": "lazy, no restore", "lazyR": "lazy"}
"""What a record calls the papers' two kinds of lazy evaluation: ours restores unless it is said."""


# -- orders ----------------------------------------------------------------------------------------------------------


def _slower(record: Record, method: str, mode: str) -> list[tuple[float, float]]:
    """Predicted cost and time against the best order, by predicted cost."""
    rows = record.where(part="figure 5.2", method=method, mode=RECORDED.get(mode, mode))
    return sorted((float(r["predicted"]), float(r["slower"])) for r in rows)


def _ranked(method: str, mode: str) -> Look:
    """Whether measured orders rank as predicted."""

    def look(record: Record) -> Seen:
        line = _slower(record, method, mode)
        least = min(p for p, _ in line)
        return trend(record, [(p / least, s) for p, s in line], "measured at predicted:")

    return look


def _smaller_than_predicted(record: Record) -> Seen:
    lines = {(m, o): _slower(record, m, o) for m in METHODS for o in MODES}
    predicted = next(iter(lines.values()))[-1][0] / next(iter(lines.values()))[0][0]
    measured = {k: max(s for _, s in line) for k, line in lines.items()}
    said = ", ".join(f"{METHODS[m]} {o} {times(x)}" for (m, o), x in measured.items())
    return order(
        record, [predicted / x for x in measured.values()], f"worst / best: predicted {times(predicted)}; {said}"
    )


def _closest(record: Record) -> Seen:
    """Nested loops that expire lazily come nearest to what is predicted."""
    worst = {(m, o): max(s for _, s in _slower(record, m, o)) for m in METHODS for o in MODES}
    ours = worst.pop(("nested", "eager, lazy expiry"))
    return order(
        record, [ours / x for x in worst.values()], f"worst / best {times(ours)}, the others {spread(worst.values())}"
    )


def _reduced(first: tuple[str, str], second: tuple[str, str]) -> Look:
    def look(record: Record) -> Seen:
        worst = [max(s for _, s in _slower(record, *x)) for x in (first, second)]
        words = f"worst / best: {METHODS[first[0]]} {first[1]} {times(worst[0])}, {METHODS[second[0]]} {second[1]} {times(worst[1])}"
        return order(record, [worst[0] / worst[1]], words)

    return look


def _at_a_window(method: str) -> Look:
    """Orders at an interval as long as the windows: what is above the scatter ranks as predicted."""

    def look(record: Record) -> Seen:
        rows = sorted(
            record.where(part="orders", case="thesis 5.5", method=method), key=lambda r: float(r["predicted"])
        )
        line = [(float(r["predicted"]) / float(rows[0]["predicted"]), float(r["slower"])) for r in rows]
        return trend(record, line, "measured at predicted:")

    return look


def _of_a_window(record: Record, method: str, what: str) -> dict[str, float]:
    """A quantity by order, at an interval as long as the windows."""
    return {str(r["order"]): float(r[what]) for r in record.where(part="orders", case="thesis 5.5", method=method)}


def _reduced_at_a_window(record: Record) -> Seen:
    worst = {m: max(_of_a_window(record, m, "slower").values()) for m in METHODS}
    words = f"worst / best: nested loops {times(worst['nested'])}, hash {times(worst['hash'])}"
    return order(record, [worst["nested"] / worst["hash"]], words)


# -- intervals -------------------------------------------------------------------------------------------------------


def _cost(record: Record, method: str, mode: str, delta: float) -> float:
    return record.one("ms_per_1000", part="figures 5.3, 5.4", method=method, mode=RECORDED.get(mode, mode), delta=delta)


def _line(record: Record, method: str, mode: str, deltas: Sequence[float] = DELTAS) -> list[tuple[float, float]]:
    return [(float(d), _cost(record, method, mode, d)) for d in deltas]


def _over(method: str, over: str, under: str, least: float | None = None) -> Look:
    """One way over another at every interval; eager expires at it, the others are evaluated at it."""

    def look(record: Record) -> Seen:
        ratios = [_cost(record, method, over, d) / _cost(record, method, under, d) for d in DELTAS]
        said = ", ".join(f"{times(r)} at {d}" for r, d in zip(ratios, DELTAS, strict=True))
        return order(record, ratios, f"{over} / {under} {said}", least=least)

    return look


def _by_delta(method: str, mode: str, falls: bool = False, deltas: Sequence[float] = DELTAS) -> Look:
    return lambda record: trend(record, _line(record, method, mode, deltas), f"{mode}, ms:", falls)


def _gain(method: str, mode: str) -> Look:
    def look(record: Record) -> Seen:
        line = [(float(d), _cost(record, method, "eager", d) / _cost(record, method, mode, d)) for d in DELTAS]
        return trend(record, line, f"eager / {mode}")

    return look


def _hash_cheaper(record: Record) -> Seen:
    ratios = [_cost(record, "nested", m, d) / _cost(record, "hash", m, d) for m in ("eager", "lazyR") for d in DELTAS]
    return order(record, ratios, f"nested loops / hash {spread(ratios)}", least=FAR)


def _improves_then_declines(record: Record) -> Seen:
    line = _line(record, "hash", "eager", (0, *DELTAS))
    first = order(record, [line[0][1] / line[1][1]], "")
    then = trend(record, line[1:], "eager, ms:")
    shapes = (first.shape, then.shape)
    shape = False if False in shapes else None if None in shapes else True
    return Seen(trend(record, line, "eager, ms:").figure, shape)


def _smaller_gain(record: Record) -> Seen:
    gain = {m: _cost(record, m, "eager", 30) / _cost(record, m, "lazyR", 30) for m in METHODS}
    words = f"eager / lazyR at 30: nested loops {times(gain['nested'])}, hash {times(gain['hash'])}"
    return order(record, [gain["nested"] / gain["hash"]], words, least=FAR)


# -- why, where it is not so -----------------------------------------------------------------------------------------


def _expiry_is_cheap(method: str) -> Callable[[Record], str | None]:
    def rests(record: Record) -> str | None:
        values = [y for _, y in _line(record, method, "eager", (0, *DELTAS))]
        ratio = max(values) / min(values)
        return f"dearest / cheapest interval {times(ratio)}" if ratio < 1.1 else None

    return rests


def _shared(method: str) -> Callable[[Record], str | None]:
    """What a batch costs, eager and at thirty units."""

    def rests(record: Record) -> str | None:
        one, many = _cost(record, method, "eager", 0) / 1e3, _cost(record, method, "lazyR", 30) / 1e3
        tuples = 30 * 13
        return f"{one:.2g} ms for one tuple, {many * tuples:.2g} ms for {tuples}" if one > FAR * many else None

    return rests


def _no_more_to_find(record: Record) -> str | None:
    ratios = [_cost(record, "nested", "lazyR", d) / _cost(record, "nested", "lazy", d) for d in DELTAS]
    return f"nested loops, lazyR / lazy {spread(ratios)}" if max(ratios) < 1.25 else None


def _other_pairs(record: Record) -> str | None:
    """The faster of two orders that the prediction has the other way round, by the pairs that the hash join sees."""
    slower, pairs = (_of_a_window(record, "hash", w) for w in ("slower", "pairs_per_unit"))
    best = min(slower, key=slower.__getitem__)
    first = next(iter(slower))
    return (
        f"{pairs[best]:,.0f} pairs a unit by {best}, {pairs[first]:,.0f} by {first}"
        if pairs[best] < pairs[first]
        else None
    )


def _by_pairs(method: str, *modes: str) -> Callable[[Record], str | None]:
    """Pairs looked at by the dearest and the cheapest order, beside the time that they take."""

    def rests(record: Record) -> str | None:
        said = []
        for mode in modes:
            rows = record.where(part="figure 5.2", method=method, mode=RECORDED.get(mode, mode))
            pairs = [float(r["pairs_per_unit"]) for r in rows]
            said.append(
                f"{mode}: pairs {times(max(pairs) / min(pairs))}, time {times(max(float(r['slower']) for r in rows))}"
            )
        return f"{METHODS[method]}, dearest / cheapest order, {'; '.join(said)}"

    return rests


def _pairs_told(method: str, *modes: str) -> Reason:
    words = {
        "nested": "pairs are looked at in compiled loops, so that beside the fixed cost of an evaluation they weigh little where it is for one tuple, and all where it is for many",
        "hash": "predicted are the pairs that nested loops compare: of those a hash join looks at few, in another order",
    }
    return because(words[method], _by_pairs(method, *modes))


OTHERS_RANK = because("predicted are the costs of nested loops; the pairs that share a key are others", _other_pairs)
CUT = "ended tuples are cut off the windows by their ends before a predicate is computed, so that it does not matter how often they are removed for good"
SHARED = {
    m: because("an evaluation has a fixed cost, which more tuples share, by hash as by nested loops", _shared(m))
    for m in METHODS
}
EXPIRY = {m: because(CUT, _expiry_is_cheap(m)) for m in METHODS}
RESTORED = because(
    "every result carries the instants at which it comes and goes, so that what came and went in between is found in the same pass",
    _no_more_to_find,
)


def _claim(figure: str, says: str, look: Look, here: str = "", *reasons: Reason, printed: str = "") -> Claim:
    return Claim(figure, says, "joins", look, printed, here, reasons)


AT_A_WINDOW = "lazyR, evaluated every 100 units"
TEN = "evaluated or expired every 10 units"
CLAIMS = [
    _claim("5.2", "costs of table 5.5", costs("thesis 5.5"), "computed, for a first rate of 10: the printed costs are not those of the printed 100"),
    *(_claim("5.2", f"{name}, {mode}: measured orders rank as predicted", _ranked(m, mode), TEN, _pairs_told(m, mode), printed="ten buckets" if m == "hash" else "") for m, name in METHODS.items() for mode in MODES),
    _claim("5.2", "all differ less than predicted", _smaller_than_predicted, TEN, _pairs_told("nested", *MODES)),
    _claim("5.2", "nested loops that expire lazily match the prediction best", _closest, TEN, _pairs_told("nested", *MODES)),
    _claim("5.2", "nested loops: orders differ less by lazy than by eager evaluation", _reduced(("nested", "eager"), ("nested", "lazy")), TEN, _pairs_told("nested", "eager", "lazy")),
    *(_claim("5.2", f"{mode}: orders differ less by hash than by nested loops", _reduced(("nested", mode), ("hash", mode)), TEN, _pairs_told("nested", mode)) for mode in MODES),
    _claim("5.2", "nested loops: measured orders rank as predicted", _at_a_window("nested"), AT_A_WINDOW, printed="not drawn"),
    _claim("5.2", "hash: measured orders rank as predicted", _at_a_window("hash"), AT_A_WINDOW, OTHERS_RANK, printed="not drawn"),
    _claim("5.2", "orders differ less by hash than by nested loops", _reduced_at_a_window, AT_A_WINDOW, printed="not drawn"),
    _claim("5.3", "nested loops: lazy evaluation is more efficient than eager", _over("nested", "eager", "lazy")),
    _claim("5.3", "nested loops: so is lazyR", _over("nested", "eager", "lazyR")),
    _claim("5.3", "nested loops: restoring has a noticeable penalty", _over("nested", "lazyR", "lazy"), "", RESTORED),
    _claim("5.3", "nested loops, eager: rarer expiration makes it dearer", _by_delta("nested", "eager", deltas=(0, *DELTAS)), "", EXPIRY["nested"]),
    *(_claim("5.3", f"nested loops: {mode} gets cheaper as the interval grows", _by_delta("nested", mode, falls=True)) for mode in ("lazy", "lazyR")),
    *(_claim("5.3", f"nested loops: and so relative to eager evaluation, {mode}", _gain("nested", mode)) for mode in ("lazy", "lazyR")),
    _claim("5.4", "the hash join is faster to execute than nested loops", _hash_cheaper),
    _claim("5.4", "two buckets: lazyR gets dearer with the interval while it is small", _by_delta("hash", "lazyR", deltas=(5, 10)), "no buckets", SHARED["hash"], printed="two buckets"),
    *(_claim("5.4", f"hash: {mode} gets slightly cheaper as the interval grows", _by_delta("hash", mode, falls=True), "no buckets", printed="five buckets") for mode in ("lazy", "lazyR")),
    _claim("5.4", "hash: eager evaluation gets cheaper as expiration goes from 0 to 5 units and dearer from there on", _improves_then_declines, "no buckets", EXPIRY["hash"], printed="five buckets"),
    _claim("5.4", "hash: the gain of lazy evaluation is far smaller than with nested loops", _smaller_gain, "no buckets", SHARED["hash"], printed="five buckets"),
    Claim("5.4", "five buckets cost less than two", printed="two and five buckets", never=BUCKETS),
]  # fmt: skip
SOURCE = Source("The same, chapter 5", PRINTED, HERE, CLAIMS)

__all__ = ["SOURCE"]
