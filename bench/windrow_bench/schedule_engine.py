"""Schedules on the engine: the workloads of thesis 8.5 as live queries with SLIDE AT MOST, under one tick budget.

Every tick is one update of a second's packets. Windows and periods are those of the thesis, a second has a quarter of
its tuples (`RATES`): periods decide how many sub-groups there are and how often they meet, tuples only how much work is
between two updates. The budget of a tick is what the ticks of 240 queries took at the lower rate by the default
technique and without a limit, so twice the tuples, with twice the values, are twice the bearable load, and techniques
that share less are over it before. All seconds are processor time of this process: what else a machine does makes a
tick longer, but no evaluation dearer. Windows are filled first, ten updates to a tick, and then some updates pass until
the order of deadlines is what the technique makes it; neither is counted.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import windrow
from windrow.schedule.technique import BY_NAME
from windrow_bench.harness import Figure, Ratio

FULL, AT_ONCE, SETTLED = 100, 10, 30
"""Updates until the longest window is full, how many of them a tick has, and updates that are not counted then."""
STREAM = (
    "CREATE STREAM packets (ts BIGINT, source BIGINT, target BIGINT, protocol BIGINT, port BIGINT, bytes BIGINT) "
    "TIMESTAMP BY ts;"
)
GROUPS = (
    "top_k(source, 10)", "top_k(target, 10)", "top_k(source * 10000 + target, 10)", "top_k(protocol, 10)",
    "top_k(port, 10)", "top_k(protocol * 1000 + port, 10)", "median(bytes)", "quantile_cont(bytes, 0.9)",
)  # fmt: skip
RATES = (375, 750)
"""Tuples per second; the thesis has 1500 and 3000."""
PER_GROUP = (10, 30)


@dataclass(frozen=True)
class Engined:
    """One technique on the engine."""

    rate: int
    queries: int
    technique: str
    executions: float  # per update
    lateness: float  # mean updates after the deadline
    longest: float
    least: int  # executions of the query that ran least
    tick: float  # seconds
    over: float  # the mean tick in budgets
    shortened: float

    def row(self) -> dict[str, Any]:
        """The point for a table."""
        return {
            "part": "engine", "tuples_per_s": self.rate, "queries": self.queries, "schedule": self.technique,
            "executions_per_update": self.executions, "lateness_updates": self.lateness,
            "longest_wait": self.longest, "least_executions": self.least, "tick_s": self.tick,
            "tick_of_budget": self.over, "shortened": self.shortened,
        }  # fmt: skip


def queries(per_group: int, seed: int, at_most: bool = True) -> str:
    """The texts of a workload; the same windows and periods at every rate."""
    rng = random.Random(seed)
    texts = []
    for g, what in enumerate(GROUPS):
        for i in range(per_group):
            window = rng.randint(20, 100)
            period = rng.randint(1, window // 2)
            slide = f"AT MOST {period}" if at_most else period
            texts.append(f"CREATE QUERY g{g}q{i} AS SELECT {what} AS x FROM packets [RANGE {window} SLIDE {slide}]")
    return ";".join(texts)


def packets(rate: int, update: int, seed: int) -> pa.Table:
    """A second of packets."""
    rng = np.random.default_rng((seed, rate, update))
    twice = rate // RATES[0]
    return pa.table({
        "ts": np.full(rate, update), "source": rng.integers(0, 1000 * twice, rate),
        "target": rng.integers(0, 1000 * twice, rate), "protocol": rng.integers(0, 100 * twice, rate),
        "port": rng.integers(0, 100 * twice, rate), "bytes": rng.integers(0, 1500 * twice, rate),
    })  # fmt: skip


def run(rate: int, per_group: int, schedule: str, budget: float, updates: int, seed: int) -> Engined:
    """Run one workload by one technique."""
    engine = windrow.Engine(runtime="local", sharing="shards", tick_budget=budget, schedule=schedule)
    engine.runtime.measure_by(time.process_time)
    engine.execute(STREAM + queries(per_group, seed))
    engine.start()
    for first in range(1, FULL + 1, AT_ONCE):
        engine.push("packets", pa.concat_tables([packets(rate, first + k, seed) for k in range(AT_ONCE)]))
    before, seconds, longest = _deadlines(engine), [], 0
    for update in range(FULL + 1, FULL + SETTLED + updates + 1):
        engine.push("packets", packets(rate, update, seed))
        if update == FULL + SETTLED:
            before = _deadlines(engine)
        elif update > FULL + SETTLED:
            seconds.append(engine.runtime.figures.ticks[-1].seconds["total"])
            longest = max([longest, *(d["late"] for d in _deadlines(engine).values())])
    after = _deadlines(engine)
    engine.stop()
    ran = {n: a["evaluations"] - before[n]["evaluations"] for n, a in after.items()}
    late = [
        (a["late_sum"] - before[n]["late_sum"] + a["late"]) / max(1, ran[n] + (a["late"] > 0)) for n, a in after.items()
    ]
    tick = float(np.mean(seconds))
    return Engined(
        rate, per_group * len(GROUPS), schedule, sum(ran.values()) / updates, float(np.mean(late)) if late else 0.0,
        longest, min(ran.values(), default=0), tick, tick / budget,
        float(np.mean([a["period"] < a["asked"] for a in after.values()])) if after else 0.0,
    )  # fmt: skip


def _deadlines(engine: windrow.Engine) -> dict[str, dict[str, Any]]:
    return {n: q["deadline"] for n, q in engine.status()["queries"].items() if q["deadline"] is not None}


def measured(updates: int, seed: int, sizes: Sequence[int] = PER_GROUP, bar: Any = None) -> Iterator[Engined]:
    """All points."""
    budget = run(RATES[0], sizes[-1], "late-pending", 3600.0, updates, seed).tick / 0.8
    for rate in RATES:
        for per_group in sizes:
            for schedule in BY_NAME:
                if bar is not None:
                    bar.update(bar.task_ids[0], description=f"engine, {rate}/s, {per_group * 8} queries, {schedule}")
                yield run(rate, per_group, schedule, budget, updates, seed)


def figures(points: Sequence[Mapping[str, Any]]) -> Iterator[Figure]:
    """Figures 8.7 to 8.10."""
    for rate, first in zip(RATES, (7, 9), strict=True) if points else ():
        for k, what in enumerate(("throughput", "latency")):
            column = "lateness_updates" if k else "executions_per_update"
            mine = [p for p in points if p["tuples_per_s"] == rate]
            lines = {name: [(p["queries"], p[column]) for p in mine if p["schedule"] == name] for name in BY_NAME}
            unit = "updates after the deadline" if k else "executions per update"
            caption = f"Figure 8.{first + k} of the thesis: {what} on the engine, at {rate} tuples per second"
            yield Figure(f"8-{first + k}-engine", caption, "queries", unit, lines, log=False)


def targets(points: Sequence[Mapping[str, Any]]) -> list[Ratio]:
    """What the figures show, of the engine."""
    points = [p for p in points if p["schedule"] in BY_NAME]
    most = max(p["queries"] for p in points)
    at = {p["schedule"]: p for p in points if p["tuples_per_s"] == RATES[1] and p["queries"] == most}
    lp, hs, none = at["late-pending"], at["hybrid"], at["edf"]
    done, late = "executions_per_update", "lateness_updates"
    return [
        Ratio("engine, 8.9: late-pending over hybrid, throughput at twice the load", lp[done] / hs[done], 2,
              least=True),
        Ratio("engine, 8.10: late-pending over edf, lateness at twice the load", lp[late] / max(none[late], 1e-9), 0.1),
        Ratio("engine: executions of the query that ran least", min(p["least_executions"] for p in points), 1,
              least=True),
    ]  # fmt: skip
