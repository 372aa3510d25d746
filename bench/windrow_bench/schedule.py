"""Periodic queries on time: what schedules cost, and throughput and lateness of seven techniques (thesis 8.4, 8.5).

Part `costs` recomputes the example of 8.4.3 and 8.4.4. Part `simulated` draws the workloads of 8.5 and runs them on a
simulated clock: eight groups of top-k lists and quantiles of bandwidth by source, destination, pair, protocol, port
and protocol-port (the thesis lists six for its eight; the first two are here twice), windows of 20 to 100 updates,
periods of 1 to half a window. Each group has one basic interval synopsis of counters. Reading it costs a unit per
counter merged (a hash look-up), finishing an answer a quarter of a unit per counter in the window (a pass that
selects). The machine's speed is one for all points: the one at which the best plan for 240 queries at 1500 tuples per
second just keeps up, so 3000 tuples per second, with twice the values, are twice the bearable load.

Part `engine` runs the same workloads as live queries with SLIDE AT MOST by the six techniques of the thesis, at a
quarter of its tuples. A tick is an update; its budget is the processor time that the ticks of 240 queries took at the
lower rate by the default technique without a limit. Throughput is executions per update, lateness is in updates.

Part `spellings` has the 240 queries in two engines without a budget, with SLIDE AT MOST and with SLIDE, in turns.

Part `joins` runs 64 aggregates of different windows and periods over one join of two streams, and the one of them with
the longest window of those that are evaluated most often; what is compared is the processor time of all ticks.

A part that is run alone takes the place of that part in the record; every row has the commit that it was measured at.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windrow.schedule.technique import Forming
from windrow_bench import schedule_engine, schedule_joins, schedule_spellings
from windrow_bench.harness import Figure, Ratio, Result, commit, parser, progress, recorded, report, saved_in
from windrow_bench.schedule_model.cost import cost_per_update
from windrow_bench.schedule_model.hybrid import hybrid_periods
from windrow_bench.schedule_model.tasks import PeriodicQuery, SubGroup, Task, sub_groups
from windrow_bench.schedule_model.technique import HYBRID, TECHNIQUES, Technique
from windrow_bench.schedule_simulation import Simulated, shortened, simulate

EXAMPLE = ((10, 2), (5, 2), (6, 2), (15, 3), (12, 3), (20, 5), (30, 5))
SCHEDULES = (
    ("conservative", (2, 3, 5), "11.63", "11.93"),
    ("G12 at 2", (2, 2, 5), "11.4", "11.4"),
    ("both at 2", (2, 2, 2), "14.5", "14.5"),
    ("G13 at 3", (2, 3, 3), "12.67", "12.67"),
    ("G13 at 2", (2, 3, 2), "16.83", "16.83"),
    ("G12 at 2, G13 at 4", (2, 2, 4), "", "10.75"),
)
"""Name, periods of the sub-groups, the printed cost per minute, the recomputed one."""

Row = Mapping[str, Any]
RATES = (1500, 3000)
PER_GROUP = (5, 10, 20, 30)
MERGE, FINISH, UPDATE = 1.0, 0.25, 0.02
"""Cost units per counter merged and per counter of the answer; seconds per update of all synopses."""


def main(argv: Sequence[str]) -> int:
    """Run the experiment; return the exit code."""
    options = parser("schedule", __doc__ or "")
    options.add_argument("--updates", type=int, help="simulated seconds (default: 600)")
    options.add_argument("--engine-updates", type=int, default=120, help="ticks of the engine (default: 120)")
    options.add_argument("--rounds", type=int, default=12, help="of SLIDE AT MOST beside SLIDE (default: 12)")
    options.add_argument("--part", choices=tuple(PARTS), help="this part alone (default: all; quick: not engine)")
    given = options.parse_args(argv)
    chosen = [given.part] if given.part else [p for p in PARTS if not (given.quick and p == "engine")]
    measured = commit()  # what is loaded: a run is long, and files may change
    with progress() as bar:
        bar.add_task("costs of the example")
        new = {part: [{**row, "commit": measured} for row in PARTS[part](given, bar)] for part in chosen}
    before, _ = recorded("schedule", saved_in(given))
    rows = {part: new.get(part) or [r for r in before if r["part"] == part] for part in PARTS}
    parameters = {
        "updates": _updates(given), "seeds": len(_seeds(given)), "groups": len(groups(RATES[0])),
        "engine_updates": given.engine_updates, "rows_joined": schedule_joins.ROWS, "join_keys": schedule_joins.KEYS,
        "finish_units_per_counter": FINISH,
    }  # fmt: skip
    about = (__doc__ or "").split("\n", 1)[1].strip()
    found = Result(
        "schedule", about, given.seed, parameters, [row for mine in rows.values() for row in mine],
        [ratio for part, mine in rows.items() if mine for ratio in TARGETS[part](mine)],
        [*figures(rows["simulated"]), *schedule_engine.figures(rows["engine"])],
    )  # fmt: skip
    return report(found, given)


def _updates(given: argparse.Namespace) -> int:
    return int(given.updates or (60 if given.quick else 600))


def _seeds(given: argparse.Namespace) -> range:
    return range(given.seed, given.seed + (1 if given.quick else 5))


# -- the example -----------------------------------------------------------------------------------------------------


def costs() -> Iterator[Row]:
    """The schedules of 8.4.4 and what hybrid scheduling chooses."""
    parts = sub_groups(PeriodicQuery(f"q{i}", "g1", s, {"max": w - 1}) for i, (w, s) in enumerate(EXAMPLE, 1))
    chosen = [
        (f"chosen {how}", tuple(hybrid_periods(parts, borrowed)), "", true)
        for how, borrowed, true in (("as the thesis searches", True, "11.4"), ("over all periods", False, "10.75"))
    ]
    for name, periods, printed, true in (*SCHEDULES, *chosen):
        cost = f"{cost_per_update(parts, periods):.2f}".rstrip("0").rstrip(".")
        yield {"part": "costs", "schedule": name, "periods": ", ".join(map(str, periods)), "printed": printed,
               "recomputed": true, "cost_per_minute": cost}  # fmt: skip


def _wrong_costs(rows: Sequence[Row]) -> list[Ratio]:
    wrong = sum(r["cost_per_minute"] != r["recomputed"] for r in rows)
    return [Ratio("costs of 8.4.4 that differ from the recomputed", wrong, 0)]


# -- the workloads ---------------------------------------------------------------------------------------------------


def groups(rate: int) -> list[int]:
    """How many values each group's counters may have, at a rate: twice as many at 3000 as at 1500."""
    hosts, kinds = 1000 * rate // 1500, 100 * rate // 1500
    return [hosts, hosts, hosts * hosts, kinds, kinds, kinds * kinds, hosts, hosts]


def distinct(values: int, rows: float) -> float:
    """How many of so many equally likely values occur in so many rows."""
    return float(values * (1 - (1 - 1 / values) ** rows))


def workload(per_group: int, rate: int, seed: int) -> list[PeriodicQuery]:
    """Random queries; the same windows and periods at every rate."""
    rng = random.Random(seed)
    found = []
    for g, values in enumerate(groups(rate)):
        per_update = distinct(values, rate)
        for i in range(per_group):
            window = rng.randint(20, 100)
            reads: dict[Hashable, float] = {g: MERGE * window * per_update}
            finish = FINISH * distinct(values, rate * window)
            found.append(PeriodicQuery(f"g{g}q{i}", g, rng.randint(1, window // 2), reads, finish))
    return found


@dataclass(frozen=True)
class Planned(Technique):
    """A technique that plans a workload once, with the others that form tasks as it does."""

    plans: dict[tuple[Forming, int], list[Task]] = field(default_factory=dict, compare=False)

    def tasks(self, queries: Sequence[PeriodicQuery]) -> list[Task]:  # type: ignore[override]
        key = self.forming, id(queries)
        if key not in self.plans:
            self.plans[key] = super().tasks(queries)
        return self.plans[key]


@dataclass(frozen=True)
class Point:
    """One technique on the workloads of one size and rate: means over the seeds."""

    rate: int
    queries: int
    technique: str
    throughput: float
    latency: float
    longest: int
    least_runs: int
    tasks: float
    shortened: float  # the share of sub-groups whose period is shorter than asked for

    def row(self) -> dict[str, Any]:
        """The point for a table."""
        return {
            "part": "simulated", "tuples_per_s": self.rate, "queries": self.queries, "technique": self.technique,
            "executions_per_s": self.throughput, "latency_updates": self.latency,
            "longest_wait": self.longest, "least_executions": self.least_runs, "tasks": self.tasks,
            "shortened": self.shortened,
        }  # fmt: skip


def simulated(updates: int, seeds: Sequence[int], bar: Any = None) -> Iterator[Point]:
    """All points, rate by rate."""
    loads = {s: workload(PER_GROUP[-1], RATES[0], s) for s in seeds}
    speeds = {s: bearable(load) for s, load in loads.items()}
    for rate in RATES:
        for per_group in PER_GROUP:
            queries = {s: workload(per_group, rate, s) for s in seeds}
            known: dict[tuple[Forming, int], list[Task]] = {}
            for technique in TECHNIQUES:
                if bar is not None:
                    bar.update(bar.task_ids[0], description=f"{rate}/s, {per_group * 8} queries, {technique.name}")
                planned = Planned(technique.name, technique.forming, technique.joint, technique.in_step, known)
                outcomes = [
                    simulate(queries[s], planned, updates=updates, update=UPDATE, speed=speeds[s]) for s in seeds
                ]
                plans = [planned.tasks(queries[s]) for s in seeds]
                yield _point(rate, per_group * 8, technique, outcomes, plans)


def bearable(queries: Sequence[PeriodicQuery]) -> float:
    """The speed at which the best plan just keeps up: cost units per second."""
    tasks = HYBRID.tasks(queries)
    parts: list[SubGroup] = [p for t in tasks for p in t.parts]
    return cost_per_update(parts, [t.period for t in tasks for _ in t.parts]) / (1 - UPDATE)


def _point(
    rate: int, queries: int, technique: Technique, outcomes: Sequence[Simulated], plans: Sequence[Sequence[Task]]
) -> Point:
    n = len(outcomes)
    parts = sum(len(t.parts) for tasks in plans for t in tasks)
    return Point(
        rate, queries, technique.name,
        sum(o.throughput for o in outcomes) / n,
        sum(o.latency for o in outcomes) / n,
        max(o.longest for o in outcomes),
        min(min(o.executions.values()) for o in outcomes),
        sum(map(len, plans)) / n,
        sum(shortened(t) for tasks in plans for t in tasks) / parts,
    )  # fmt: skip


# -- what must show --------------------------------------------------------------------------------------------------


DONE, LATE = "executions_per_s", "latency_updates"


def targets(points: Sequence[Row]) -> list[Ratio]:
    """What the thesis's figures show, and what the issue of overload asks for."""
    at = {(p["tuples_per_s"], p["queries"], p["technique"]): p for p in points}
    low, high = ({t.name: at[rate, 240, t.name] for t in TECHNIQUES} for rate in RATES)
    late, of_conservative = (max(low[name][LATE], 1e-9) for name in ("HS", "CS"))
    return [
        Ratio("8.7: CS over No-S, throughput at 240", low["CS"][DONE] / low["No-S"][DONE], 1, least=True),
        Ratio("8.7: HS over CS, throughput at 240", low["HS"][DONE] / low["CS"][DONE], 1, least=True),
        Ratio("8.8: HS over CS, latency at 240", late / of_conservative, 1),
        Ratio("8.8: H-LP over HS, latency at 240", low["H-LP"][LATE] / late, 1),
        Ratio("8.8: H-LP+ over CS, latency at 240", low["H-LP+"][LATE] / of_conservative, 0.1),
        Ratio("8.9: H-LP over HS, throughput at 240", high["H-LP"][DONE] / high["HS"][DONE], 2, least=True),
        Ratio("8.10: H-LP over No-S, latency at 240", high["H-LP"][LATE] / high["No-S"][LATE], 0.1),
        Ratio("8.10: H-LP+ over the lowest latency of the six at 240",
              high["H-LP+"][LATE] / min(p[LATE] for n, p in high.items() if n != "H-LP+"), 1),
        Ratio("executions of the query that ran least", min(p["least_executions"] for p in points), 1, least=True),
        Ratio("sub-groups whose period hybrid shortens, 240 queries", low["HS"]["shortened"], 0.5, least=True),
    ]  # fmt: skip


def figures(points: Sequence[Row]) -> Iterator[Figure]:
    """Figures 8.7 to 8.10."""
    for rate, first in zip(RATES, (7, 9), strict=True) if points else ():
        mine = [p for p in points if p["tuples_per_s"] == rate]
        for k, what, unit in ((0, "throughput", "executions per second"), (1, "latency", "updates beyond the period")):
            lines = {
                t.name: [(p["queries"], p[LATE if k else DONE]) for p in mine if p["technique"] == t.name]
                for t in TECHNIQUES
            }
            caption = f"Figure 8.{first + k} of the thesis: {what} at {rate} tuples per second, simulated clock"
            yield Figure(f"8-{first + k}", caption, "queries", unit, lines, log=False)


# -- parts -------------------------------------------------------------------------------------------------------------


def _spelled(given: argparse.Namespace, bar: Any) -> Iterable[Row]:
    rounds, updates, per_group = (1, 5, 2) if given.quick else (given.rounds, given.engine_updates // 6, 30)
    return schedule_spellings.measured(rounds, updates, given.seed, per_group, bar)


PARTS: Mapping[str, Callable[[argparse.Namespace, Any], Iterable[Row]]] = {
    "costs": lambda given, bar: costs(),
    "simulated": lambda given, bar: (p.row() for p in simulated(_updates(given), _seeds(given), bar)),
    "spellings": _spelled,
    "engine": lambda given, bar: (p.row() for p in schedule_engine.measured(given.engine_updates, given.seed, bar=bar)),
    "joins": lambda given, bar: schedule_joins.measured(given.repeat, given.seed, given.quick, bar),
}
TARGETS: Mapping[str, Callable[[Sequence[Row]], list[Ratio]]] = {
    "costs": _wrong_costs,
    "simulated": targets,
    "spellings": schedule_spellings.targets,
    "engine": schedule_engine.targets,
    "joins": schedule_joins.targets,
}

if __name__ == "__main__":
    raise SystemExit(main(()))
