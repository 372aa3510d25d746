"""Aggregation joins (Tran and Lee, figures 5 and 6): the four plans, and the one that the cost model chooses.

A two-way window join with a grouped SUM. Windows are filled first; then every plan goes on from that state (it is
carried over), tick by tick, and counts with its least time per second of stream. Partners are found in two ways. "by
key", as windrow finds them: the grid is the paper's, with rates and windows scaled up together by `--scale`, because at
the paper's own sizes (300 tuples per second) a tick costs its fixed part whatever the plan. "nested loops", as the
paper has them: the join without its keys, every change against every entry (figure 5: scaled up by 2 at most).

"chosen" is the plan that the running operator takes by what it measures; it leaves the plan in use only for one that
is clearly cheaper. "named" is the plan that the cost model prices lowest, without that; for figure 6 also at the
paper's own sizes, where no clock is needed. The default setting scaled 10x is measured apart, and so is MIN in place of
SUM ("extremes"): aggregated early with an entry for each value, and as groups below the join with one each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.operators.aggregate import ContinuousAggregate
from windrow.operators.aggregates import Aggregation
from windrow.operators.early_extremes import EarlyExtremes
from windrow.operators.elements import Elements
from windrow.operators.join import JoinOperator
from windrow.operators.join_steps import Part
from windrow.operators.linear import Formula
from windrow.plan.aggregate_join_cost import plans
from windrow_bench.harness import CLOCKS, Figure, Ratio, Result, parser, progress, report
from windrow_bench.one_join import AggregateJoin, Chooser
from windrow_bench.switches import between, flows

KEYED, LOOPS = "by key", "nested loops"
NAMES = {"00": "LAP", "01": "EAP01", "10": "EAP10", "11": "EAP11"}
TICK = 200  # milliseconds
SUM = Aggregation("sum", "s1.a", "total", pa.decimal128(38, 0))
LEAST = Aggregation("min", "s1.a", "least", pa.int64())
TYPES = {"j": pa.string(), "g": pa.string(), "a": pa.int64()}


@dataclass(frozen=True)
class Setting:
    """Rates per second, windows in milliseconds, groups and join selectivity factors of two streams."""

    figure: str
    rate: tuple[float, float] = (300, 300)
    window: tuple[int, int] = (5000, 5000)
    groups: tuple[int, int] = (150, 1)
    selectivity: tuple[float, float] = (0.1, 0.1)

    def scaled(self, by: float) -> Setting:
        """Rates and windows so many times greater."""
        return replace(
            self,
            rate=(self.rate[0] * by, self.rate[1] * by),
            window=(int(self.window[0] * by), int(self.window[1] * by)),
        )


def grid() -> list[Setting]:
    """The settings of figure 5 (one parameter varied in each part) and of the showcases of figure 6."""
    settings = [Setting("5a", window=(w, 2000)) for w in (500, 1000, 2000, 3000, 4000, 5000)]
    settings += [Setting("5b", groups=(3**k, 1)) for k in range(9)]
    settings += [Setting("5c", rate=(r, 500)) for r in (100, 200, 300, 400, 500, 700, 1000)]
    settings += [Setting("5d", selectivity=(s, s)) for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)]
    low, high = 5, 1000
    small = {"window": (1000, 1000), "selectivity": (0.02, 0.02)}
    settings += [Setting("6", groups=(a, b), **small) for a in (low, high) for b in (low, high)]  # type: ignore[arg-type]
    return [*settings, Setting("6, wide", groups=(high, high))]


Stream = tuple[np.ndarray, dict[str, pa.Array]]


def generate(setting: Setting, seconds: float, seed: int) -> list[Stream]:
    """Both streams, from a window before time 0 on: text join and grouping attributes, integers to sum, all uniform."""
    rng = np.random.default_rng(seed)
    streams = []
    for i in (0, 1):
        n = int(setting.rate[i] * (setting.window[i] / 1000 + seconds))
        ts = np.sort(rng.integers(1 - setting.window[i], int(seconds * 1000), n))
        keys = np.array([f"key {k}" for k in range(max(1, round(1 / setting.selectivity[i])))])
        groups = np.array([f"group {k}" for k in range(setting.groups[i])])
        columns = {
            f"s{i + 1}.j": pa.array(rng.choice(keys, n)),
            f"s{i + 1}.g": pa.array(rng.choice(groups, n)),
            f"s{i + 1}.a": pa.array(rng.integers(0, 1000, n)),
        }
        streams.append((ts, columns))
    return streams


def elements(streams: Sequence[Stream], setting: Setting, begin: int, end: int) -> list[Elements]:
    """The rows of `[begin, end)` in their windows."""
    found = []
    for (ts, columns), window in zip(streams, setting.window, strict=True):
        low, high = np.searchsorted(ts, (begin, end))
        cut = {n: a.slice(low, high - low) for n, a in columns.items()}
        found.append(Elements.positive(ts[low:high], ts[low:high] + window, cut))
    return found


def grouping(setting: Setting) -> list[str]:
    """A stream without groups has no grouping attribute in the query."""
    return [f"s{i + 1}.g" for i in (0, 1) if setting.groups[i] > 1]


def full(streams: Sequence[Stream], setting: Setting) -> list[Elements]:
    """What fills the windows: all rows come at one instant, which makes one answer; they end when they should."""
    rows = elements(streams, setting, -max(setting.window), 0)
    return [e.with_lifetimes(np.full(len(e), -1), e.exp) for e in rows]


def filled(setting: Setting, streams: Sequence[Stream], method: str) -> AggregateJoin:
    """The operator with full windows, aggregating early."""
    parts = [Part({f"s{i}.{c}": t for c, t in TYPES.items()}) for i in (1, 2)]
    equalities = [("s1.j", "s2.j", False)] if method == KEYED else []
    same = [] if method == KEYED else [Formula('"s1.j" = "s2.j"', pa.bool_(), ("s1.j", "s2.j"))]
    operator = AggregateJoin(parts, equalities, same, grouping(setting), [SUM], measures=True)
    operator.start(-1)
    operator.advance(full(streams, setting), -1)
    return operator


def choice(setting: Setting, streams: Sequence[Stream], method: str) -> tuple[str, Mapping[str, float]]:
    """The plan that full windows let it choose, and what each would cost."""
    operator = filled(setting, streams, method)
    chooser = Chooser(operator)
    chooser.choose()
    return operator.plan, chooser.describe()["costs"]


@dataclass(frozen=True)
class Measured:
    """Seconds of work per second of stream for each plan; the plan chosen, and the one that the model names."""

    times: Mapping[str, float]
    chosen: str
    named: str
    scatter: float = 0.0


def measure(
    setting: Setting, seconds: float, seed: int, clock: str, most: float = 5.0, method: str = KEYED, repeat: int = 1
) -> Measured:
    """Run every plan, several times; one that takes `most` seconds is stopped, and run once."""
    streams = generate(setting, seconds, seed)
    now = CLOCKS[clock]
    times, answers = {}, {}
    chosen, costs = choice(setting, streams, method)
    scatter = 0.0
    for plan in plans(2):
        runs: list[float] = []
        while len(runs) < repeat:
            operator = filled(setting, streams, method)
            operator.measures = False
            operator.follow(plan)
            ticks: list[float] = []
            rows = []
            for t in range(0, int(seconds * 1000), TICK):
                new = elements(streams, setting, t, t + TICK)
                begin = now()
                rows.append(operator.advance(new, t + TICK - 1))
                ticks.append(now() - begin)
                if sum(ticks) > most:
                    break
            runs.append(min(ticks))
            if sum(ticks) > most:
                break
        times[plan] = min(runs) / (TICK / 1000)
        scatter = max(scatter, sorted(runs)[1] / min(runs) - 1) if len(runs) > 1 else scatter
        answers[plan] = _sorted(rows[0])
    if any(not a.equals(answers["11"]) for a in answers.values()):
        raise AssertionError(f"the plans disagree at {setting}")
    return Measured(times, chosen, min(costs, key=lambda p: (costs[p], p)), scatter)


def named(seed: int) -> list[dict[str, Any]]:
    """The plans that the cost model prices lowest in the cases of figure 6, at the paper's own sizes."""
    found = []
    for method, setting in ((m, s) for m in (LOOPS, KEYED) for s in grid() if s.figure == "6"):
        _, costs = choice(setting, generate(setting, 0, seed), method)
        case = {"figure": "6, named", "method": method, "groups": f"{setting.groups[0]}, {setting.groups[1]}"}
        found.append({**case, "named": NAMES[min(costs, key=lambda p: (costs[p], p))]})
    return found


class LeastJoin:
    """MIN in place of SUM; `grouped`: by group below the join."""

    def __init__(self, setting: Setting, plan: str, grouped: bool) -> None:
        self.columns = [["s1.j", "s1.g", "s1.a"], ["s2.j", *(["s2.g"] if setting.groups[1] > 1 else [])]]
        types = [{c: TYPES[c[3:]] for c in own} for own in self.columns]
        calls: tuple[list[Aggregation], ...] = ([replace(LEAST, output="s1.a")], [])
        keys = [[c for c in own if c != "s1.a"] for own in self.columns]
        self.below = [EarlyExtremes(*given) for given in zip(keys, calls, types, strict=True)] if grouped else []
        parts = [Part(t, grouped) for t in types]
        self.join = AggregateJoin(parts, [("s1.j", "s2.j", False)], [], grouping(setting), [LEAST], plan=plan)
        self.join.start(-1)
        for operator in self.below:
            operator.start(-1)

    def advance(self, rows: Sequence[Elements], frontier: int) -> Elements:
        """What MIN over the join sends."""
        given = [e.with_columns({c: e.columns[c] for c in own}) for e, own in zip(rows, self.columns, strict=True)]
        if self.below:
            given = [b.advance([e], frontier) for b, e in zip(self.below, given, strict=True)]
        return self.join.advance(given, frontier)


def extremes(setting: Setting, seconds: float, seed: int, clock: str) -> dict[str, float]:
    """Seconds per second of stream of MIN in place of SUM: late, early with an entry for each value, and by group."""
    streams = generate(setting, seconds, seed)
    times, answers = {}, {}
    for name, plan in (("late", "00"), ("by value", "11"), ("by group", "11")):
        query = LeastJoin(setting, plan, grouped=name == "by group")
        query.advance(full(streams, setting), -1)
        ticks, found = [], []
        for t in range(0, int(seconds * 1000), TICK):
            new = elements(streams, setting, t, t + TICK)
            begin = CLOCKS[clock]()
            found.append(query.advance(new, t + TICK - 1))
            ticks.append(CLOCKS[clock]() - begin)
        times[name], answers[name] = min(ticks) / (TICK / 1000), _sorted(found[0])
    if any(not a.equals(answers["late"]) for a in answers.values()):
        raise AssertionError(f"the plans disagree about MIN at {setting}")
    return times


def _sorted(answer: Elements) -> pa.Table:
    """An answer in an order that does not depend on the plan."""
    table = pa.table({"ts": answer.ts, "exp": answer.exp, "sign": answer.sign, **answer.columns})
    return table.sort_by([(c, "ascending") for c in table.column_names])


def switches(directory: Path, clock: str) -> list[dict[str, Any]]:
    """Bytes per receiver at one switch, of flows whose sender another switch has seen: every plan over all flows."""
    given = [
        flows(directory, name, {f"s{i}.j": "sAddress", f"s{i}.g": "rAddress", f"s{i}.a": "sBytesSum"})
        for i, name in ((1, "bottom"), (2, "left"))
    ]
    parts = [Part({c: a.type for c, a in columns.items()}) for _, columns in given]
    start, end = min(int(ts[0]) for ts, _ in given), max(int(ts[-1]) for ts, _ in given)
    tuples, now, step = sum(len(ts) for ts, _ in given), CLOCKS[clock], 5_000_000
    found = []
    for window in (10, 60):
        spent, answers, chosen = {}, {}, ""
        for plan in ("chosen", *plans(2)):
            made = None if plan == "chosen" else plan
            operator = AggregateJoin(parts, [("s1.j", "s2.j", False)], [], ["s1.g"], [SUM], plan=made, measures=True)
            operator.start(start)
            run = operator if made is not None else Chooser(operator)
            seconds, answers[plan] = 0.0, 0
            for begin in range(start, end + 1, step):
                new = [
                    Elements.positive(ts, ts + window * 1_000_000, columns)
                    for ts, columns in between(given, begin, begin + step)
                ]
                before = now()
                answers[plan] += len(run.advance(new, begin + step - 1))
                seconds += now() - before
            spent[plan] = seconds
            chosen = operator.plan if plan == "chosen" else chosen
        if len(set(answers.values())) > 1:
            raise AssertionError(f"the plans disagree on the flows: {answers}")
        costs = {NAMES[p]: spent[p] for p in plans(2)}
        case = {"figure": "switches", "window": f"{window} s", "tuples": tuples, **costs}
        found.append({**case, "chosen": NAMES[chosen], "chosen / best": spent["chosen"] / min(costs.values())})
    return found


def join_then_aggregate(setting: Setting, seed: int, clock: str, tick: int = 20) -> float:
    """Seconds per second of stream of the plain join under a plain aggregate: late aggregation with nothing in common.

    The windows are full but the aggregate starts empty, so results that end are not paid for: a lower bound.
    """
    streams = generate(setting, 4 * tick / 1000, seed)
    parts = [Part({f"s{i}.{c}": t for c, t in TYPES.items()}) for i in (1, 2)]
    join = JoinOperator(parts, [("s1.j", "s2.j", False)])
    for index, rows in zip(
        join._indexes.values(), elements(streams, setting, -max(setting.window), 0)[::-1], strict=True
    ):
        index.insert(rows, -1)
    total = ContinuousAggregate(grouping(setting), [SUM], {c: t for p in parts for c, t in p.columns.items()})
    total.start(0)
    now, ticks = CLOCKS[clock], []
    for t in range(0, 4 * tick, tick):
        new = elements(streams, setting, t, t + tick)
        begin = now()
        total.advance([join.advance(new, t + tick - 1)], t + tick - 1)
        ticks.append(now() - begin)
    return min(ticks) / (tick / 1000)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiment."""
    made = parser("aggjoin", __doc__ or "")
    made.add_argument("--scale", type=float, default=3.0, help="rates and windows of the grid, against the paper's")
    made.add_argument("--data", type=Path, metavar="DIR", help="only the flows of the switches in this directory")
    options = made.parse_args(argv)
    if options.data:
        rows = switches(options.data, options.clock)
        about = {"clock": options.clock, "data": "flows of two switches"}
        return report(Result("aggjoin-switches", __doc__ or "", options.seed, about, rows, []), options)
    seconds = 0.6
    rows = []
    with progress() as shown:
        task = shown.add_task("", total=None)
        settings = grid()[:: 4 if options.quick else 1]
        for k, (method, setting) in enumerate((m, x) for m in (KEYED, LOOPS) for x in settings):
            shown.update(task, description=f"{method}, figure {setting.figure}: {k + 1} of {2 * len(settings)}")
            scale = 1 if options.quick else options.scale
            if method == LOOPS and setting.figure != "6":  # windows of five seconds: pairs grow with the cube
                scale = min(scale, 2)
            found = measure(
                setting.scaled(scale), seconds, options.seed, options.clock, method=method, repeat=options.repeat
            )
            rows.append(_row(setting, method, found))
        shown.update(task, description="what the model names")
        rows += named(options.seed)
        shown.update(task, description="default setting, 10x")
        scaled = Setting("default").scaled(3 if options.quick else 10)
        tenfold = measure(scaled, 0.6, options.seed, options.clock, 1.0)
        plain = join_then_aggregate(scaled, options.seed, options.clock)
        shown.update(task, description="MIN in place of SUM")
        scaled = Setting("extremes").scaled(1 if options.quick else options.scale)
        least = extremes(scaled, seconds, options.seed, options.clock)
    best = tenfold.times[tenfold.chosen]
    default = _row(Setting("default, 10x"), KEYED, tenfold)
    by_key = [r for r in rows if r["method"] == KEYED and "chosen" in r]
    near = sum(r["chosen / best"] <= 1.2 for r in by_key) / len(by_key)
    ratios = [
        Ratio("late aggregation / chosen plan, default setting 10x", tenfold.times["00"] / best, 10, least=True),
        Ratio("plain join, then aggregate / chosen plan, default setting 10x", plain / best, 10, least=True),
        Ratio("share of the grid where the chosen plan is within 20% of the best", near, 0.9, least=True),
        Ratio("MIN by value / by group below the join", least["by value"] / least["by group"], 5, least=True),
    ]
    parameters = {"scale": options.scale, "tick_ms": TICK, "clock": options.clock}
    rows += [default, *({"figure": "extremes", "method": name, "seconds": spent} for name, spent in least.items())]
    result = Result("aggjoin", __doc__ or "", options.seed, parameters, rows, ratios, _figures(by_key))
    return report(result, options)


def _row(setting: Setting, method: str, found: Measured) -> dict[str, Any]:
    varied = {
        "rate": f"{setting.rate[0]:g}, {setting.rate[1]:g}",
        "window": f"{setting.window[0]}, {setting.window[1]}",
        "groups": f"{setting.groups[0]}, {setting.groups[1]}",
        "selectivity": f"{setting.selectivity[0]:g}",
    }
    best = min(found.times.values())
    costs: dict[str, Any] = {NAMES[p]: found.times[p] for p in found.times}
    for what, plan in (("chosen", found.chosen), ("named", found.named)):
        costs |= {what: NAMES[plan], f"{what} / best": found.times[plan] / best}
    return {"figure": setting.figure, "method": method, **varied, **costs, "scatter": round(found.scatter, 3)}


def _figures(rows: Sequence[Mapping[str, Any]]) -> list[Figure]:
    parts = {
        "5a": ("window", "window of stream 1 (ms, before scaling)"),
        "5b": ("groups", "groups of stream 1"),
        "5c": ("rate", "rate of stream 1 (per second, before scaling)"),
        "5d": ("selectivity", "join selectivity factor"),
    }
    figures = []
    for figure, (column, axis) in parts.items():
        mine = [r for r in rows if r["figure"] == figure]
        lines = {n: [(float(str(r[column]).split(",")[0]), float(r[n])) for r in mine] for n in NAMES.values()}
        figures.append(Figure(figure, f"As figure {figure} of the paper", axis, "seconds per second of stream", lines))
    mine = [r for r in rows if r["figure"] == "6"]
    cases = "groups: 1 few and few, 2 few and many, 3 many and few, 4 many and many"
    bars = {n: [(float(k + 1), float(r[n])) for k, r in enumerate(mine)] for n in NAMES.values()}
    figures.append(Figure("6", "As figure 6 of the paper", cases, "seconds per second of stream", bars))
    return figures
