"""Aggregation joins (Tran and Lee, figures 5 and 6): the four plans, and the one that the cost model chooses.

A two-way window join with a grouped SUM. Windows are filled first; then every plan goes on from that state (it is
carried over), tick by tick, and counts with its least time per second of stream. The grid is the paper's, with rates
and windows scaled up together by `--scale`, because at the paper's own sizes (300 tuples per second) a tick costs its
fixed part whatever the plan. The chosen plan is picked by what the running operator measures. The default setting
scaled 10x is measured apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.operators.aggregate import ContinuousAggregate
from windrow.operators.aggregate_join import AggregateJoin
from windrow.operators.aggregates import Aggregation
from windrow.operators.elements import Elements
from windrow.operators.join import JoinOperator
from windrow.operators.join_steps import Part
from windrow.plan.aggregate_join_cost import choose_plan, plans
from windrow_bench.harness import CLOCKS, Figure, Ratio, Result, parser, progress, report
from windrow_bench.switches import between, flows

NAMES = {"00": "LAP", "01": "EAP01", "10": "EAP10", "11": "EAP11"}
TICK = 200  # milliseconds
SUM = Aggregation("sum", "s1.a", "total", pa.decimal128(38, 0))


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
    return settings


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


def filled(setting: Setting, streams: Sequence[Stream]) -> AggregateJoin:
    """The operator with full windows, aggregating early."""
    types = {"j": pa.string(), "g": pa.string(), "a": pa.int64()}
    parts = [Part({f"s{i}.{c}": t for c, t in types.items()}) for i in (1, 2)]
    # a stream without groups has no grouping attribute in the query
    keys = [f"s{i + 1}.g" for i in (0, 1) if setting.groups[i] > 1]
    operator = AggregateJoin(parts, [("s1.j", "s2.j", False)], [], keys, [SUM], planner=choose_plan)
    operator.start(-1)
    # all rows of the filling come at one instant, which makes one answer; they end when they should
    rows = elements(streams, setting, -max(setting.window), 0)
    operator.advance([e.with_lifetimes(np.full(len(e), -1), e.exp) for e in rows], -1)
    return operator


def measure(setting: Setting, seconds: float, seed: int, clock: str, most: float = 5.0) -> tuple[dict[str, float], str]:
    """Seconds of work per second of stream, for each plan, and the plan chosen; a plan stops after `most` seconds."""
    streams = generate(setting, seconds, seed)
    now = CLOCKS[clock]
    times, answers = {}, {}
    chosen = filled(setting, streams)
    chosen._reconsider()
    for plan in plans(2):
        operator = filled(setting, streams)
        operator.planner = None
        operator.switch(plan)
        ticks: list[float] = []
        rows = []
        for t in range(0, int(seconds * 1000), TICK):
            new = elements(streams, setting, t, t + TICK)
            begin = now()
            rows.append(operator.advance(new, t + TICK - 1))
            ticks.append(now() - begin)
            if sum(ticks) > most:
                break
        times[plan] = min(ticks) / (TICK / 1000)
        answers[plan] = _sorted(rows[0])
    if any(not a.equals(answers["11"]) for a in answers.values()):
        raise AssertionError(f"the plans disagree at {setting}")
    return times, chosen.plan


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
            operator = AggregateJoin(
                parts, [("s1.j", "s2.j", False)], [], ["s1.g"], [SUM], plan=made, planner=choose_plan
            )
            operator.start(start)
            seconds, answers[plan] = 0.0, 0
            for begin in range(start, end + 1, step):
                new = [
                    Elements.positive(ts, ts + window * 1_000_000, columns)
                    for ts, columns in between(given, begin, begin + step)
                ]
                before = now()
                answers[plan] += len(operator.advance(new, begin + step - 1))
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
    types = {"j": pa.string(), "g": pa.string(), "a": pa.int64()}
    parts = [Part({f"s{i}.{c}": t for c, t in types.items()}) for i in (1, 2)]
    join = JoinOperator(parts, [("s1.j", "s2.j", False)])
    for index, rows in zip(
        join._indexes.values(), elements(streams, setting, -max(setting.window), 0)[::-1], strict=True
    ):
        index.insert(rows, -1)
    keys = [f"s{i + 1}.g" for i in (0, 1) if setting.groups[i] > 1]
    total = ContinuousAggregate(keys, [SUM], {c: t for p in parts for c, t in p.columns.items()})
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
        for k, setting in enumerate(settings):
            shown.update(task, description=f"figure {setting.figure}: {k + 1} of {len(settings)}")
            scaled = setting.scaled(1 if options.quick else options.scale)
            rows.append(_row(setting, *measure(scaled, seconds, options.seed, options.clock)))
        shown.update(task, description="default setting, 10x")
        scaled = Setting("default").scaled(3 if options.quick else 10)
        tenfold, plan = measure(scaled, 0.6, options.seed, options.clock, 1.0)
        plain = join_then_aggregate(scaled, options.seed, options.clock)
    default = _row(Setting("default, 10x"), tenfold, plan)
    near = sum(r["chosen / best"] <= 1.2 for r in rows) / len(rows)
    ratios = [
        Ratio("late aggregation / chosen plan, default setting 10x", tenfold["00"] / tenfold[plan], 10, least=True),
        Ratio("plain join, then aggregate / chosen plan, default setting 10x", plain / tenfold[plan], 10, least=True),
        Ratio("share of the grid where the chosen plan is within 20% of the best", near, 0.9, least=True),
    ]
    parameters = {"scale": options.scale, "tick_ms": TICK, "clock": options.clock}
    result = Result("aggjoin", __doc__ or "", options.seed, parameters, [*rows, default], ratios, _figures(rows))
    return report(result, options)


def _row(setting: Setting, times: Mapping[str, float], chosen: str) -> dict[str, Any]:
    varied = {
        "rate": f"{setting.rate[0]:g}, {setting.rate[1]:g}",
        "window": f"{setting.window[0]}, {setting.window[1]}",
        "groups": f"{setting.groups[0]}, {setting.groups[1]}",
        "selectivity": f"{setting.selectivity[0]:g}",
    }
    best = min(times.values())
    costs = {NAMES[p]: times[p] for p in times}
    return {"figure": setting.figure, **varied, **costs, "chosen": NAMES[chosen], "chosen / best": times[chosen] / best}


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
