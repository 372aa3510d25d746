"""Aggregation joins (Tran, Lee): figures 5 and 6."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windrow_bench.reproduction.claims import Claim, Reason, Record, Row, Seen, Source
from windrow_bench.reproduction.looks import ALIKE, TIMED, Line, Look, alike, because, order, spread, times, trend

PRINTED = (
    'Java, Pentium 4 at 1.6 GHz; nested loops (hash joins "show the same trends"); 300 tuples/s, windows of 5,000 ms, 150 and 1 '
    "groups, selectivity 0.1 unless the figure varies them; seconds for a second of stream, three runs"
)
HERE = (
    "the same streams in ticks of 200 ms, rates and windows scaled up together: nested loops twice (figure 6: three times), which is "
    "the join without its keys, every change against every entry; by key three times, since a tick costs its fixed part at the "
    "paper's own sizes"
)
METHODS = ("nested loops", "by key")
PLANS = ("LAP", "EAP01", "EAP10", "EAP11")
TICKS = 5
"""Of a second of stream."""
VARIED = {"5a": ("window", "w1"), "5b": ("groups", "g1"), "5c": ("rate", "rate"), "5d": ("selectivity", "selectivity")}
CASES = {"a": ("5, 5", "EAP11"), "b": ("5, 1000", "EAP10"), "c": ("1000, 5", "EAP01"), "d": ("1000, 1000", "LAP")}


def _line(record: Record, figure: str, method: str, plan: str) -> Line:
    """Seconds of a plan over what a part of figure 5 varies, of the first stream."""
    column = VARIED[figure][0]
    return [(float(str(r[column]).split(",")[0]), float(r[plan])) for r in record.where(figure=figure, method=method)]


def _rises(figure: str, method: str, plan: str, first: float = 0.0, last: float = 1e9, falls: bool = False) -> Look:
    def look(record: Record) -> Seen:
        line = [(x, y) for x, y in _line(record, figure, method, plan) if first <= x <= last]
        return trend(record, line, f"{plan}, s:", falls)

    return look


def _stays(figure: str, method: str, plan: str, first: float) -> Look:
    def look(record: Record) -> Seen:
        line = [(x, y) for x, y in _line(record, figure, method, plan) if x >= first]
        ratios = [y / line[0][1] for _, y in line]
        return alike(record, ratios, f"{plan} against that at {first:g}: {', '.join(map(times, ratios))}")

    return look


def _early_wins(method: str) -> Look:
    def look(record: Record) -> Seen:
        late = _line(record, "5a", method, "LAP")
        ratios = [y / s for p in PLANS[1:] for (_, y), (_, s) in zip(late, _line(record, "5a", method, p), strict=True)]
        return order(record, ratios, f"LAP / an early plan {spread(ratios)}")

    return look


def _approaches(method: str, plan: str, other: str) -> Look:
    """With more groups one plan comes up to another."""

    def look(record: Record) -> Seen:
        pairs = zip(_line(record, "5b", method, plan), _line(record, "5b", method, other), strict=True)
        ratios = [(x, a / b) for (x, a), (_, b) in pairs]
        last = alike(record, [ratios[-1][1]], "")
        nearer = ratios[-1][1] > ratios[0][1] * (1 + TIMED)
        return Seen(f"{plan} / {other} {times(ratios[0][1])} to {times(ratios[-1][1])}", bool(last.shape) and nearer)

    return look


def _slope(record: Record, method: str, plan: str) -> float:
    line = _line(record, "5c", method, plan)
    return line[-1][1] - line[0][1]


def _faster(method: str, plan: str, other: str) -> Look:
    """By how much each grows over the whole range of rates, which is what a straight line's slope is."""

    def look(record: Record) -> Seen:
        slopes = [max(_slope(record, method, p), 1e-9) for p in (plan, other)]
        words = f"by {slopes[0]:.3f} s and {slopes[1]:.3f} s"
        return order(record, [slopes[0] / slopes[1]], words)

    return look


def _best(case: str, method: str, figure: str = "6") -> Look:
    groups, plan = CASES[case]

    def look(record: Record) -> Seen:
        (row,) = record.where(figure=figure, method=method, groups=groups)
        rest = min(float(row[p]) for p in PLANS if p != plan)
        words = ", ".join(f"{p} {1000 * float(row[p]):.3g}" for p in PLANS)
        return order(
            record, [rest / float(row[plan])], f"ms for a second of stream: {words}; the model names {row['named']}"
        )

    return look


def _named(case: str, method: str) -> Look:
    """Figure 6 as the cost model sees it, without the hysteresis of a running plan."""
    groups, plan = CASES[case]

    def look(record: Record) -> Seen:
        (row,) = record.where(figure="6, named", method=method, groups=groups)
        return Seen(f"{row['named']}", row["named"] == plan)

    return look


# -- why, where it is not so -----------------------------------------------------------------------------------------


def _row(record: Record, figure: str, method: str, last: bool) -> Row:
    return record.where(figure=figure, method=method)[-1 if last else 0]


def _spread_of(record: Record, method: str, groups: str, figure: str) -> str | None:
    """By how little plans differ where all groups are many."""
    (row,) = record.where(figure=figure, method=method, groups=groups)
    worst, best = max(float(row[p]) for p in PLANS), min(float(row[p]) for p in PLANS)
    return f"the dearest plan {times(worst / best)} the cheapest" if worst / best < 2 else None


def _cheap_sets(groups: str, method: str, figure: str = "6") -> Reason:
    return because("an aggregation set is kept by a vectorised merge that costs little even when groups are many, so that early aggregation never costs much",
                   lambda record: _spread_of(record, method, groups, figure))  # fmt: skip


def _filling(record: Record) -> str | None:
    """Aggregation sets go on growing beyond 2,000 ms, with the groups that a window holds."""
    line = dict(_line(record, "5a", "nested loops", "EAP11"))
    late = dict(_line(record, "5a", "nested loops", "LAP"))
    grown, rows = line[5000] / line[2000], late[5000] / late[2000]
    return f"from 2,000 to 5,000 ms EAP11 grows {times(grown)}, LAP {times(rows)}" if grown < rows else None


def _one_off(record: Record) -> str | None:
    """All points but one are alike."""
    values = [y for x, y in _line(record, "5a", "by key", "EAP10") if x >= 2000]
    middle = sorted(values)[len(values) // 2]
    away = [v for v in values if not 1 / (1 + ALIKE) <= v / middle <= 1 + ALIKE]
    return f"{1000 * away[0]:.0f} ms, the others about {1000 * middle:.0f}" if len(away) == 1 else None


def _few_values(method: str) -> Callable[[Record], str | None]:
    """How flat a plan with its sets on both sides is."""

    def rests(record: Record) -> str | None:
        line = [y for _, y in _line(record, "5c", method, "EAP11")]
        grown = max(line) / min(line)
        return f"dearest / cheapest rate {times(grown)}" if grown < 1.5 else None

    return rests


def _not_there(method: str) -> Callable[[Record], str | None]:
    """The set is smaller than the window even with the most groups."""

    def rests(record: Record) -> str | None:
        row = _row(record, "5b", method, last=True)
        return (
            f"LAP {1000 * float(row['LAP']):.0f} ms, EAP10 {1000 * float(row['EAP10']):.0f} ms at {row['groups']} groups"
            if float(row["EAP10"]) < float(row["LAP"])
            else None
        )

    return rests


def _fixed_part(figure: str, plan: str, method: str) -> Callable[[Record], str | None]:
    """A plan whose ticks cost a few milliseconds whatever there is to do."""

    def rests(record: Record) -> str | None:
        line = [1000 * y / TICKS for _, y in _line(record, figure, method, plan)]
        return f"{min(line):.1f} to {max(line):.1f} ms a tick" if max(line) < 10 else None

    return rests


def _full_early(method: str) -> Callable[[Record], str | None]:
    """How many rows the smallest window of figure 5a has for the entries that there can be."""

    def rests(record: Record) -> str | None:
        scale = float(record.parameters["scale"]) if method == "by key" else 2
        rows = 300 * 0.5 * scale**2
        return f"{rows:,.0f} rows for at most 1,500 entries in the smallest window" if rows > 1200 else None

    return rests


def _model_by_key(record: Record) -> str | None:
    found = {g: str(record.where(figure="6, named", method="by key", groups=g)[0]["named"]) for g, _ in CASES.values()}
    return ", ".join(f"{g}: {p}" for g, p in found.items())


FILLED = because(
    "in the smaller windows nearly every row is a group of its own, and entries grow until windows hold all groups",
    _filling,
)
ODD = because("one measurement stands apart", _one_off)
FILLING = {"nested loops": (FILLED,), "by key": (ODD,)}
SETS_MEET = {
    m: because(
        "with sets on both sides what meets is entries, whose number is bounded by values and groups, and rows of a tick are merged into a set at once",
        _few_values(m),
    )
    for m in METHODS
}
NOT_YET = {
    m: because("with the most groups a set is still cheaper to keep than the rows of the window", _not_there(m))
    for m in METHODS
}
MODEL_BY_KEY = because(
    "by key there are no loops that early aggregation would shorten: at the printed sizes the model weighs what is found by key against keeping a set",
    _model_by_key,
)


FULL_EARLY = {
    m: because(
        "rates and windows are scaled up together, so that aggregation sets are full from the smallest window on",
        _full_early(m),
    )
    for m in METHODS
}


def _floor(figure: str, plan: str, method: str) -> Reason:
    return because("a tick of the plan costs little more than its fixed part", _fixed_part(figure, plan, method))


def _claim(
    figure: str, says: str, look: Look, method: str, *reasons: Reason, printed: str = "", here: str = ""
) -> Claim:
    return Claim(f"figure {figure}", says, "aggjoin", look, printed, f"{method}{here}", reasons)


SIX = "; windows of 1,000 ms, selectivity 0.02, 5 and 1,000 groups"
WIDE = "windows, groups and selectivity not printed; larger windows and selectivity than 6a to 6c"


def _of_method(m: str) -> list[Claim]:
    """Everything that figures 5 and 6 are said to show."""
    varied: Sequence[tuple[str, str]] = (("LAP", "EAP01"), ("LAP", "EAP11"), ("EAP10", "EAP01"), ("EAP10", "EAP11"))
    return [
        *(_claim("5a", f"{p} grows with the first window", _rises("5a", m, p), m, printed="w1 varies, w2 = 2,000") for p in ("LAP", "EAP01")),
        *(_claim("5a", f"{p} grows with it at first", _rises("5a", m, p, last=2000), m, FULL_EARLY[m]) for p in ("EAP10", "EAP11")),
        *(_claim("5a", f"{p} stays constant once it exceeds 2,000", _stays("5a", m, p, 2000), m, *FILLING[m]) for p in ("EAP10", "EAP11")),
        _claim("5a", "early aggregation is always better than late", _early_wins(m), m),
        *(_claim("5b", f"{p} grows with the groups of the first stream", _rises("5b", m, p), m, printed="g1 = 1 to 6,561") for p in ("EAP10", "EAP11")),
        _claim("5b", "EAP10 approaches LAP", _approaches(m, "EAP10", "LAP"), m, NOT_YET[m]),
        _claim("5b", "EAP11 approaches EAP01", _approaches(m, "EAP11", "EAP01"), m, NOT_YET[m]),
        *(_claim("5c", f"{p} grows with the first rate", _rises("5c", m, p), m, SETS_MEET[m], printed="first rate varies, second 500") for p in PLANS),
        *(_claim("5c", f"{a} grows faster than {b}", _faster(m, a, b), m, because("by key a row finds its partners without a search that a smaller set would shorten, so that what grows with the rate is results, and a set on the first stream makes fewer of them", _slopes(m))) for a, b in varied),
        *(_claim("5d", f"{p} grows with selectivity", _rises("5d", m, p), m, because("loops compare every entry with every change whatever joins; and with fewer values to join by there are fewer entries", _entries(m)), printed="both selectivities vary") for p in PLANS[:3]),
        _claim("5d", "EAP11 gets cheaper", _rises("5d", m, "EAP11", falls=True), m, _floor("5d", "EAP11", m)),
        *(_claim(f"6{c}", f"groups {'few' if g.startswith('5,') else 'many'} and {'few' if g.endswith(' 5') else 'many'}: {p} is best", _best(c, m), m, _cheap_sets(g, m), printed=WIDE if c == "d" else "values not printed", here=SIX)
          for c, (g, p) in CASES.items()),
        _claim("6d", "and with larger windows and a higher selectivity: LAP is best", _best("d", m, "6, wide"), m, _cheap_sets("1000, 1000", m, "6, wide"), printed=WIDE, here="; windows of 5,000 ms, selectivity 0.1, 1,000 groups"),
        *(_claim(f"6{c}", f"what the cost model names: {p}", _named(c, m), m, MODEL_BY_KEY, printed="as above", here="; unscaled, by the model alone") for c, (_, p) in CASES.items()),
    ]  # fmt: skip


def _slopes(method: str) -> Callable[[Record], str | None]:
    def rests(record: Record) -> str | None:
        return ", ".join(f"{p} {_slope(record, method, p):.3f} s" for p in PLANS)

    return rests


def _entries(method: str) -> Callable[[Record], str | None]:
    def rests(record: Record) -> str | None:
        first, last = (float(_row(record, "5d", method, x)["EAP11"]) for x in (False, True))
        return (
            f"EAP11, which is entries alone, falls from {1000 * first:.0f} to {1000 * last:.0f} ms"
            if last < first
            else None
        )

    return rests


CLAIMS = [claim for method in METHODS for claim in _of_method(method)]
SOURCE = Source("Tran, Lee, *Transformation of Continuous Aggregation Join Queries*", PRINTED, HERE, CLAIMS)

__all__ = ["SOURCE"]
