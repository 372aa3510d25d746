"""Multi-way window joins (TR CS-2003-01 tables 5-8, figure 4; thesis figures 5.2-5.4): orders, methods, intervals.

Streams are generated as in the papers: one tuple after the other, from stream i with probability in proportion to its
rate, keys uniform among the stream's distinct values. All results are materialised. Nested loops is the join without
its keys (a product, filtered), hash is the join by key; evaluation is lazy, every so many units of time. Besides times,
the rows give the pairs looked at per unit of time, which can be held against the cost model without a clock. The
papers' own intervals are in `joins_intervals.py`. "scatter" is by how much the second best run is slower than the best.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from windrow.operators.elements import Elements
from windrow.operators.join import JoinOperator
from windrow.operators.join_steps import Part
from windrow.optimize.order_joins import heuristic_order, paper_order
from windrow_bench import joins_intervals
from windrow_bench.harness import CLOCKS, Figure, Ratio, Result, parser, progress, report
from windrow_bench.join_yardsticks import PaperModel, best_lazy_orders, exhaustive_order, naive_cost, on_one_attribute
from windrow_bench.joins_run import Parameters, Streams, best, measure
from windrow_bench.one_join import Chooser
from windrow_bench.reorder import LocalJoin, settled
from windrow_bench.switches import NAMES, between, flows

TABLES: dict[str, Parameters] = {
    "table 5": [(10, 100, 500), (1, 100, 50), (1, 200, 40), (3, 100, 5)],
    "table 6": [(100, 100, 200), (1, 100, 200), (1, 100, 20), (3, 100, 2)],
    "table 7": [(11, 100, 200), (10, 100, 100), (1, 100, 65), (1, 100, 20)],
    "thesis 5.5": [(10, 100, 40), (1, 100, 100), (1, 100, 8), (1, 100, 5)],
}
PRINTED = {
    ("table 5", "1234"): 16000, ("table 5", "2134"): 19600,
    ("table 6", "2134"): 80400, ("table 6", "2314"): 123150, ("table 6", "2341"): 248450, ("table 6", "1234"): 120000,
    ("table 7", "3142"): 47977, ("table 7", "3412"): 49542, ("table 7", "3124"): 51954, ("table 7", "1234"): 68200,
    ("table 7", "2134"): 79000,
    ("thesis 5.5", "2134"): 16200, ("thesis 5.5", "2341"): 42600, ("thesis 5.5", "1234"): 21000,
}  # fmt: skip
FAST: Parameters = [(1, 100, 50), (1, 100, 50), (1, 100, 50), (10, 100, 50)]
"""The streams of figure 3b."""
PAPER_RATE = 11_540
"""Tuples per second of the paper's best plan at table 5 (table 8, eager hash join)."""


def tables() -> list[dict[str, Any]]:
    """Every printed cost, computed."""
    rows = []
    for (name, order), printed in PRINTED.items():
        model = PaperModel(on_one_attribute(TABLES[name]))
        cost = model.global_cost([int(c) - 1 for c in order])
        rows.append({"part": "costs", "case": name, "order": order, "printed": printed, "predicted": round(cost)})
    return rows


def heuristic(sets: int, seed: int) -> tuple[list[dict[str, Any]], list[Ratio]]:
    """The heuristic, and the papers' own, against the best of all orders, on random parameters."""
    rng = np.random.default_rng(seed)
    ours, papers = [], []
    for _ in range(sets):
        n = int(rng.integers(3, 7))
        drawn = [np.exp(rng.uniform(np.log(a), np.log(b), n)) for a, b in ((1, 100), (10, 1000), (1, 1000))]
        model = PaperModel(on_one_attribute(zip(drawn[0], drawn[1], np.ceil(drawn[2]), strict=True)))
        optimum = model.global_cost(exhaustive_order(model))
        ours.append(model.global_cost(heuristic_order(model)) / optimum)
        papers.append(model.global_cost(paper_order(model)) / optimum)
    rows = [
        {"part": "heuristic", "case": name, "mean": float(np.mean(r)), "worst": float(max(r))}
        for name, r in (("as printed", papers), ("with local search", ours))
    ]
    ratios = [
        Ratio("heuristic / optimum, mean", float(np.mean(ours)), 1.1),
        Ratio("heuristic / optimum, worst", float(max(ours)), 2),
    ]
    return rows, ratios


def pairs_seen(parameters: Parameters, order: str, samples: int, options: argparse.Namespace) -> float:
    """Pairs per unit of time, nearly eager: a mean, since one filling of the windows may be off by 30%."""
    found = []
    for seed in range(options.seed, options.seed + samples):
        empty = Streams(parameters, 0, seed)
        streams = Streams(parameters, empty.longest + 60 * empty.unit, seed)
        found.append(float(measure(streams, order, "nested", 5, options.clock)["pairs_per_unit"]))
    return float(np.mean(found))


def orders(tuples: int, options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[Ratio], list[Figure]]:
    """Figure 5.2 and table 8: the orders of two parameter sets, by both methods, against the model."""
    rows: list[dict[str, Any]] = []
    ratios: list[Ratio] = []
    lines: dict[str, list[tuple[float, float]]] = {}
    for name in ("table 5", "thesis 5.5"):
        model = PaperModel(on_one_attribute(TABLES[name]))
        ranked = sorted(permutations(range(4)), key=model.global_cost)
        chosen = ["".join(str(i + 1) for i in ranked[k]) for k in (0, 4, 12, 23)]
        for method in ("nested", "hash"):
            size = tuples
            if method == "nested":  # quadratic: a short stretch is enough to tell the orders apart
                size = (350 if options.quick else 500) * int(sum(r for r, _, _ in TABLES[name]))
            streams = Streams(TABLES[name], size, options.seed)
            first: dict[str, Any] = {}
            for order in chosen:
                found = best(options.repeat, streams, order, method, 100, options.clock)
                first = first or found
                if found["results"] != first["results"]:
                    raise AssertionError(f"order {order} of {name} has another number of results")
                predicted = model.global_cost([int(c) - 1 for c in order])
                slower = first["tuples_per_s"] / found["tuples_per_s"]
                case = {"part": "orders", "case": name, "method": method, "order": order}
                rows.append({**case, "predicted": round(predicted), **found, "slower": slower})
                lines.setdefault(f"{name}, {method}", []).append((predicted / model.global_cost(ranked[0]), slower))
            if method == "nested":
                ratios.append(Ratio(f"worst / best order, {name}, nested loops", slower, 1.5, least=True))
        for order in (chosen[0], chosen[-1]):
            predicted = model.global_cost([int(c) - 1 for c in order])
            seen = pairs_seen(TABLES[name], order, 3 if options.quick else 12, options)
            case = {"part": "pairs", "case": name, "method": "nested", "order": order}
            rows.append({**case, "predicted": round(predicted), "pairs_per_unit": seen})
            ratios.append(
                Ratio(f"pairs looked at, {name}, order {order}: off the model", abs(seen / predicted - 1), 0.15)
            )
    streams = Streams(TABLES["table 5"], tuples, options.seed)
    for every in (0, 5, 10, 100, 500, 1000):
        found = best(options.repeat, streams, "1234", "hash", every, options.clock)
        rows.append(
            {
                "part": "throughput",
                "case": "table 5",
                "method": "hash",
                "order": "1234",
                "evaluated every": every,
                **found,
            }
        )
    fastest = max(float(r["tuples_per_s"]) for r in rows if r["part"] == "throughput")
    ratios.append(Ratio("four-way join at table 5 / the paper's best plan", fastest / PAPER_RATE, 50, least=True))
    figure = Figure(
        "5.2", "Time of an order against the best, by predicted cost (figure 5.2)", "predicted", "measured", lines
    )
    return rows, ratios, [figure]


def intervals(tuples: int, options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[Ratio], list[Figure]]:
    """Figures 4, 5.3 and 5.4: methods and intervals; four windows of 100 units, one tuple per unit each, 50 values."""
    even: Parameters = [(1, 100, 50)] * 4
    rows = []
    lines: dict[str, list[tuple[float, float]]] = {}
    for method, every in ((m, e) for m in ("nested", "hash") for e in (1, 5, 10, 25, 50, 100)):
        size = max(tuples // (50 if method == "nested" else 10), 4 * 100 + 4 * every * 6)
        streams = Streams(even, size, options.seed)
        found = best(options.repeat, streams, "1234", method, every, options.clock)
        rows.append({"part": "intervals", "method": method, "evaluated every": every, **found})
        lines.setdefault(method, []).append((every, float(found["tuples_per_s"])))
    streams = Streams(even, max(tuples // 10, 10_000), options.seed)
    for expiration in (0, 5, 50, 500):
        found = best(options.repeat, streams, "1234", "hash", 5, options.clock, expiration=expiration)
        rows.append(
            {"part": "expiration", "method": "hash", "evaluated every": 5, "expired every": expiration, **found}
        )
    worst = min(h / n for (_, n), (_, h) in zip(lines["nested"], lines["hash"], strict=True))
    ratios = [Ratio("hash / nested loops, at every interval", worst, 1, least=True)]
    return (
        rows,
        ratios,
        [
            Figure(
                "4", "Tuples per second by re-evaluation interval (figure 4a)", "interval", "tuples per second", lines
            )
        ],
    )


def general(tuples: int, options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[Ratio], list[Figure]]:
    """Figure 3b on running joins: the best orders of the naive, the lazy and the general lazy join."""
    rows: list[dict[str, Any]] = []
    for every in (5, 50) if options.quick else (5, 10, 25, 50, 100):
        model = PaperModel(on_one_attribute(FAST), interval=every)
        everyone = list(permutations(range(4)))
        one, first = min(everyone, key=lambda o: naive_cost(model, o)), min(everyone, key=model.global_cost)
        plans: dict[str, tuple[tuple[int, ...], ...]] = {
            "naive": (one,) * 4,
            "lazy": tuple((i, *(j for j in first if j != i)) for i in range(4)),
            "general": best_lazy_orders(model),
        }
        empty = Streams(FAST, 0, options.seed)
        streams = Streams(FAST, empty.longest + 8 * every * empty.unit, options.seed)
        for method, (name, orders) in ((m, p) for m in ("nested", "hash") for p in plans.items()):
            found = best(options.repeat, streams, orders, method, every, options.clock)
            case = {"part": "figure 3b", "method": method, "join": name, "evaluated every": every}
            shown = ", ".join("".join(str(j + 1) for j in o) for o in orders)
            rows.append({**case, "order": shown, "predicted": model.general_cost(orders), **found})
        if len({r["results"] for r in rows if r["evaluated every"] == every}) != 1:
            raise AssertionError(f"joins evaluated every {every} differ in their results")
    return rows, [], []


def papers(tuples: int, options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[Ratio], list[Figure]]:
    """The papers' own intervals, and dear predicates."""
    return joins_intervals.papers(TABLES, options)


def switches(directory: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The flows of three switches, joined on their two addresses; the join orders itself."""
    streams = [flows(directory, n, {f"{n}.{c}": c for c in ("sAddress", "rAddress")}) for n in NAMES]
    parts = [Part({c: a.type for c, a in columns.items()}) for _, columns in streams]
    equalities = [
        (f"{a}.{c}", f"{b}.{c}", False)
        for a, b in (("bottom", "left"), ("left", "right"))
        for c in ("sAddress", "rAddress")
    ]
    start, end = min(int(ts[0]) for ts, _ in streams), max(int(ts[-1]) for ts, _ in streams)
    rows = []
    for window, tick in ((1, 1), (10, 1), (10, 60)):
        join = Chooser(JoinOperator(parts, equalities, measures=True))
        now, spent, results = CLOCKS[options.clock], 0.0, 0
        ticks = range(start, end + 1, tick * 1_000_000)
        for begin in ticks:
            parts_now = between(streams, begin, begin + tick * 1_000_000)
            new = [Elements.positive(ts, ts + window * 1_000_000, columns) for ts, columns in parts_now]
            before = now()
            results += len(join.advance(new, begin + tick * 1_000_000 - 1))
            spent += now() - before
        tuples = sum(len(ts) for ts, _ in streams)
        orders = "; ".join(f"{n}: {', '.join(o)}" for n, o in join.describe()["orders"].items())
        rows.append(
            {
                "part": "switches",
                "case": f"window {window} s, a tick every {tick} s",
                "order": orders,
                "tuples": tuples,
                "ms per tick": 1000 * spent / len(ticks),
                "times real time": (end - start) / 1e6 / spent,
                "results": results,
            }
        )
    return rows


def reordering(tuples: int, options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[Ratio], list[Figure]]:
    """Ticks until a running join is within 20% of the best order, after its rates changed."""
    cheaper, late, ratios = settled(6, 8, options.seed, LocalJoin())
    case = {"part": "reorder", "case": "in this process", "another order is cheaper by": cheaper, "ticks": late}
    target = Ratio("ticks to the best order after the rates change", float(late), 5)
    gain = Ratio("another order is cheaper by", cheaper, 3, least=True)
    line = [(float(i + 1), ratio) for i, ratio in enumerate(ratios)]
    caption = "Cost of the orders in use against the best, after the rates change"
    figure = Figure("reorder", caption, "tick", "cost / best", {"join": line}, log=False)
    return [{**case, "cost / best at the end": ratios[-1]}], [target, gain], [figure]


PARTS = ("local", "spark", "switches")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiment."""
    made = parser("joins", __doc__ or "")
    made.add_argument("--part", choices=PARTS, help="local: tables 5-8, figures 4 and 5.2-5.4, re-ordering; spark: "
                      "heavy keys, expiry, re-ordering; switches: recorded flows (default: local)")  # fmt: skip
    made.add_argument("--data", type=Path, metavar="DIR", help="the directory of the flows of three switches")
    made.add_argument("--peers", action="store_true", help="also run Structured Streaming and Flink SQL (part spark)")
    options = made.parse_args(argv)
    part = options.part or ("spark" if options.peers else "switches" if options.data else "local")
    if part == "switches" and not options.data:
        made.error("--part switches needs --data DIR")
    tuples = 60_000 if options.quick else 300_000
    rows: list[dict[str, Any]] = []
    ratios: list[Ratio] = []
    figures: list[Figure] = []
    with progress() as shown:
        task = shown.add_task(part, total=None)
        if part == "local":
            rows = tables()
            ratios = [Ratio("printed costs that differ", float(sum(r["printed"] != r["predicted"] for r in rows)), 0)]
            more, found = heuristic(50 if options.quick else 1000, options.seed)
            rows, ratios = rows + more, ratios + found
            for name, run in (
                ("orders", orders),
                ("intervals", intervals),
                ("general", general),
                ("papers", papers),
                ("reorder", reordering),
            ):
                shown.update(task, description=name)
                more, found, drawn = run(tuples, options)
                rows, ratios, figures = rows + more, ratios + found, figures + drawn
        elif part == "switches":
            rows = switches(options.data, options)
        else:
            rows, ratios = _on_spark(options, lambda name: shown.update(task, description=name))
    name = "joins" if part == "local" else f"joins-{part}"
    return report(
        Result(name, __doc__ or "", options.seed, {"tuples": tuples, "clock": options.clock}, rows, ratios, figures),
        options,
    )


def _on_spark(options: argparse.Namespace, say: Callable[[str], None]) -> tuple[list[dict[str, Any]], list[Ratio]]:
    from windrow.spark.session import session
    from windrow_bench import joins_spark

    spark = session(None)
    rows: list[dict[str, Any]] = []
    ratios: list[Ratio] = []
    parts: dict[str, Callable[[], tuple[list[dict[str, Any]], list[Ratio]]]] = {
        "two-way and four-way": lambda: joins_spark.peers(
            spark, options.quick, options.repeat, options.seed, options.peers, options.peers
        ),
        "heavy keys": lambda: joins_spark.skew(spark, options.quick, options.seed),
        "expiry": lambda: joins_spark.expiry(spark, options.quick, options.seed),
        "re-ordering": lambda: joins_spark.reordering(spark, options.quick, options.seed),
    }
    for name, run in parts.items():
        say(name)
        more, found = run()
        rows, ratios = rows + more, ratios + found
    return rows, ratios
