"""Joins at the papers' own intervals: TR CS-2003-01 table 8, thesis figures 5.2 to 5.4; and predicates that are dear.

Eager is an evaluation for every tuple; "eager, lazy expiry" is eager with expiration every 10 units. "lazy" evaluates
every so often and restores what came and went in between, as the operator does; "lazy, no restore" is the same operator
over rows that begin when it is evaluated.
"""

from __future__ import annotations

import argparse
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.operators.elements import INF, Elements
from windrow.operators.join import JoinOperator
from windrow.operators.join_steps import Part
from windrow.operators.linear import Formula
from windrow_bench.harness import CLOCKS, Figure, Ratio
from windrow_bench.join_yardsticks import PaperModel, on_one_attribute
from windrow_bench.joins_run import Parameters, Streams, best

Row = dict[str, Any]
TUPLES, BATCHES = {"nested": 2000, "hash": 6000}, {"nested": 40, "hash": 100}
"""Tuples for which an eager join is measured, batches for which a lazy one is."""
METHODS = ("nested", "hash")
MODES = {"eager": (0, 0), "eager, lazy expiry": (0, 10), "lazy, no restore": (10, 0), "lazy": (10, 0)}
"""Evaluation and expiration intervals of figure 5.2."""


class Runs:
    """Runs of the papers' cases, each over streams as long as it needs."""

    def __init__(self, tables: dict[str, Parameters], options: argparse.Namespace) -> None:
        self.tables, self.options = tables, options
        self._part = 10 if options.quick else 1

    def __call__(
        self, case: str, order: str, method: str, every: float, expiration: float = 0, restore: bool = True
    ) -> Row:
        """The fastest of several runs."""
        empty = Streams(self.tables[case], 0, self.options.seed)
        step = max(1, int(every * empty.unit))
        tuples = max(TUPLES[method], step * BATCHES[method]) // self._part
        streams = Streams(self.tables[case], empty.longest + tuples, self.options.seed)
        clock, repeat = self.options.clock, self.options.repeat
        return best(repeat, streams, order, method, every, clock, expiration=expiration, restore=restore)


def table8(run: Runs) -> list[Row]:
    """The best and the worst plan of table 5, eager and lazy."""
    return [
        {"part": "table 8", "case": "table 5", "method": m, "order": o, "evaluated every": e, **run("table 5", o, m, e)}
        for m in METHODS
        for e in (0, 5, 10)
        for o in ("1234", "4321")
    ]


def figure52(run: Runs) -> list[Row]:
    """Four orders by eight algorithms."""
    model, rows = PaperModel(on_one_attribute(run.tables["thesis 5.5"])), []
    ranked = sorted(permutations(range(4)), key=model.global_cost)
    for method in METHODS:
        for mode, (every, expiration) in MODES.items():
            first = 0.0
            for order in (ranked[k] for k in (0, 4, 12, 23)):
                name = "".join(str(i + 1) for i in order)
                found = run("thesis 5.5", name, method, every, expiration, restore=mode != "lazy, no restore")
                first = first or found["tuples_per_s"]
                case = {"part": "figure 5.2", "method": method, "mode": mode, "order": name}
                slower = {"slower": first / found["tuples_per_s"], "predicted": round(model.global_cost(order))}
                rows.append({**case, **found, **slower})
    return rows


def figures53(run: Runs) -> tuple[list[Row], Figure]:
    """The best order by interval, which is that of expiration for the eager join and of evaluation for the others."""
    rows: list[Row] = []
    lines: dict[str, list[tuple[float, float]]] = {}
    for method in METHODS:
        for mode in ("eager", "lazy, no restore", "lazy"):
            for delta in (0, 5, 10, 20, 30) if mode == "eager" else (5, 10, 20, 30):
                every, expiration = (0, delta) if mode == "eager" else (delta, 0)
                found = run("thesis 5.5", "2134", method, every, expiration, restore=mode != "lazy, no restore")
                cost = {"ms_per_1000": 1e6 / found["tuples_per_s"]}
                kept: Row = {name: found[name] for name in ("results", "scatter") if name in found}
                rows.append({"part": "figures 5.3, 5.4", "case": "thesis 5.5", "method": method, "mode": mode,
                             "delta": delta, **cost, **kept})  # fmt: skip
                lines.setdefault(f"{method}, {mode}", []).append((delta, cost["ms_per_1000"]))
    caption = "Time of 1,000 tuples by interval (figures 5.3 and 5.4)"
    return rows, Figure("5.3", caption, "interval", "ms per 1,000 tuples", lines, log=False)


# -- dear predicates -------------------------------------------------------------------------------------------------

CHEAP = Formula('("a.k" = 3)', pa.bool_(), ("a.k",), total=True)
DEAR = {
    "a regular expression": Formula("regexp_matches(\"a.s\", 'x.*y.*z')", pa.bool_(), ("a.s",), total=True),
    "a distance of texts": Formula('(levenshtein("a.s", "b.s") < 3)', pa.bool_(), ("a.s", "b.s"), total=True),
}


def dear(options: argparse.Namespace) -> list[Row]:
    """A product of two windows under a cheap and a dear predicate: by their ranks, and both asked of all pairs."""
    rng, rows = np.random.default_rng(options.seed), []
    n = 80 if options.quick else 800
    texts = ["".join(rng.choice(list("uvwxyz"), 12)) for _ in range(n)]
    columns = {"k": pa.array(rng.integers(0, 10, n)), "s": pa.array(texts)}
    inputs = [Elements.positive(np.arange(n), INF, {f"{p}.{c}": a for c, a in columns.items()}) for p in "ab"]
    parts = [Part({c: a.type for c, a in e.columns.items()}) for e in inputs]
    for case, predicate in DEAR.items():
        spent: dict[str, list[float]] = {"ranked": [], "together": []}
        found: dict[str, int] = {}
        for _ in range(max(2, options.repeat)):
            for name, seconds in spent.items():
                free = name == "ranked"
                asked = [Formula(f.sql, f.type, f.reads, total=free) for f in (predicate, CHEAP)]
                join, begin = JoinOperator(parts, residual=asked), CLOCKS[options.clock]()
                found[name] = len(join.advance(inputs, n))
                seconds.append(CLOCKS[options.clock]() - begin)
        if found["ranked"] != found["together"]:
            raise AssertionError(f"the order of predicates changed the answer: {found}")
        cost = {f"{name}_ms": 1000 * min(seconds) for name, seconds in spent.items()}
        rows.append({"part": "dear predicates", "case": case, "pairs": n * n, "results": found["ranked"], **cost})
    return rows


def papers(tables: dict[str, Parameters], options: argparse.Namespace) -> tuple[list[Row], list[Ratio], list[Figure]]:
    """All of it."""
    run = Runs(tables, options)
    rows, figure = figures53(run)
    asked = dear(options)
    ratios = [
        Ratio(f"dear predicates: {r['case']}, together / by rank", r["together_ms"] / r["ranked_ms"], 1, least=True)
        for r in asked
    ]
    return [*table8(run), *figure52(run), *rows, *asked], ratios, [figure]
