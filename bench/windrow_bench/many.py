"""One to a hundred thousand queries of one shape: time and memory, planning, one row, one statement; answers compared.

rows: queries of one shape over rows that are there, from a template and as texts of their own: alerts per entity
(periodic, with and without GROUP BY), and, followed at every instant, selections, HAVING alerts, aggregates of
selections, DISTINCT, UNION, window joins, outer joins and absences that differ in constants, and aggregates that differ
in nothing but their windows. Beside them the table of rules joined with the streams, by DuckDB over all rows at once.
alone: one query with sharing and without, in turns. push: one row to 256 queries of each shape, with a home and
without. create: CREATE QUERY of texts of one form and of different ones, beside 10,000 queries. tick, on Spark: 40,000
rows with 256 queries beside the bare micro-batch. peers, on Spark: what users of other engines do, separate queries and
a table of rules that is joined with the stream, on Structured Streaming and, where it is, Flink SQL. Every run has a
process of its own, so that its memory is its own (on Spark, the driver's, and the workers'). Alarms are answers, of
alerts those that count something. All answers are compared row by row.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from windrow_bench import many_peers as peers
from windrow_bench import many_runs as runs
from windrow_bench.harness import Ratio, Result, beside, parser, progress, report, saved_in
from windrow_bench.many_shapes import CONTINUOUS, FLOOR, KEYS, SHAPES
from windrow_bench.many_yardsticks import TEXTS, Row, same

PARTS = {"local": ("rows", "alone", "push", "create"), "spark": ("rows", "create", "tick", "peers")}
PLANNED = {"grouped": 30_000, "filters": 100_000, "aggregates": 100_000, "joins": 100_000, "absence": 100_000}
"""How many instances of other shapes are planned, to say what one takes, and run."""
HIGH = 500.0
"""Below the limits of so many: a price is above it once in 2,000 rows."""
MOST_LENGTHS = 64
"""So many windows are compared with a join: it has every row once for each."""
PUSH_MS, ALONE_MOST, CREATE_MS, WHILE_MS = 10.0, 1.05, 1.0, 20.0
"""A push of one row to 256 queries, one query with sharing / without, CREATE QUERY, and on Spark while 10,000 run."""


class Case(NamedTuple):
    """Queries over rows that are there."""

    shape: str
    queries: int
    rows: int
    how: str = "template"
    floor: float = FLOOR


def cases(quick: bool, runtime: str) -> Iterator[Case]:
    """In the order in which they are run."""
    alerts = [1, 100, 256, 1000, 10_000, 100_000] if runtime == "local" else [256, 10_000, 100_000]
    rows = 20_000 if quick else 1_140_000 if runtime == "spark" else 2_000_000
    for count in [1, 100] if quick else alerts:
        yield Case("alerts", count, rows)
    for shape in CONTINUOUS:
        for count in (1, 4) if quick else (1, 64, 256):
            yield Case(shape, count, 2_000 if quick else 200_000)
        for count in (4,) if quick else (1, 64):
            yield Case(shape, count, 2_000 if quick else 200_000, "plain")
        if shape != "windows" and not quick:
            yield Case(shape, 10_000, 10_000)
    for shape, count in PLANNED.items() if runtime == "local" and not quick else ():
        yield Case(shape, count, 500 if shape == "grouped" else 20_000, floor=HIGH)


@dataclass
class Many:
    """One run of the experiment."""

    options: argparse.Namespace
    rows: list[Row] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)

    def run(self, kind: str, times: int | None = None, **arguments: Any) -> Row:
        """A run in a process of its own; for a quick look, in this one."""
        if self.options.quick:
            return runs.KINDS[kind](**arguments)
        return runs.apart({"kind": kind, **arguments}, times or self.options.repeat)

    def target(self, part: str, name: str, value: float, most: float) -> None:
        """Note a ratio."""
        self.ratios.append(Ratio(f"{part}: {name}", value, most))

    @property
    def _common(self) -> dict[str, Any]:
        return {"seed": self.options.seed, "clock": self.options.clock}

    # -- parts

    def part_rows(self) -> Iterator[str]:
        """Many queries over rows that are there."""
        options = self.options
        for case in cases(options.quick, options.runtime):
            if case.queries > options.most or case.shape not in options.shapes:
                continue
            yield f"{case.queries:,} {case.shape}, {case.how}"
            given = {"shape": case.shape, "count": case.queries, "rows": case.rows, "floor": case.floor, **self._common}
            mine = self.run("windrow", runtime=options.runtime, how=case.how, **given)
            self.rows.append(_row(case, "windrow", mine))
            if case.shape in TEXTS and (case.shape != "windows" or case.queries <= MOST_LENGTHS):
                other = self.run("rules joined", 1, **given)
                self.rows.append(_row(case, "DuckDB, join with rules", other))
                same(f"{case.queries:,} {case.shape}, {case.how}", mine, other)
        self._ratios_of_rows()

    def _ratios_of_rows(self) -> None:
        mine = {
            (r["shape"], r["queries"], r["how"]): r for r in self.rows if r["part"] == "rows" and r["by"] == "windrow"
        }
        for shape, most in CONTINUOUS.items():
            for how in ("template", "plain"):
                if (shape, 64, how) in mine and (shape, 1, how) in mine:
                    many = mine[shape, 64, how]
                    beyond = max(0.0, many["run s"] - 1e-6 * many["answers"])
                    text = f"64 {shape} ({how}) / one, beyond planning and rows"
                    self.target("rows", text, beyond / mine[shape, 1, how]["run s"], most)
        alerts = {count: row for (shape, count, _), row in mine.items() if shape == "alerts"}
        if 100_000 in alerts and self.options.runtime == "spark":
            whole = {count: row["run s"] + row["plan s"] for count, row in alerts.items()}
            self.target("rows", "100,000 alerts / 256, planning included", whole[100_000] / whole[256], 3.0)
        elif 100_000 in alerts:
            for count, most in ((10_000, 4.0), (100_000, 20.0)):
                text = f"{count:,} alerts / 100, beyond planning"
                self.target("rows", text, alerts[count]["run s"] / alerts[100]["run s"], most)
            self.target("rows", "memory with 100,000 alerts, GB", alerts[100_000]["memory MB"] / 1000, 4.0)
        for (shape, count, _), row in mine.items():
            if count == {"alerts": 100_000, **PLANNED}.get(shape):
                text = f"milliseconds to plan and register one of {count:,} {shape}"
                self.target("rows", text, row["ms to plan one"], 0.1)

    def part_alone(self) -> Iterator[str]:
        """One query, with sharing and without."""
        rows, ticks = (2_000, 30) if self.options.quick else (200_000, 400)
        for shape in (s for s in runs.ALONE if s in self.options.shapes):
            yield f"one {shape}"
            found = self.run("alone", shape=shape, rows=rows, ticks=ticks, **self._common)
            whole, tick = found["run_s"] / found["off_s"], found["tick_s"] / found["tick_off_s"]
            self.rows.append({
                "part": "alone", "shape": shape, "rows": rows, "run s": _s(found["run_s"]), "off s": _s(found["off_s"]),
                "tick ms": _ms(found["tick_s"]), "off ms": _ms(found["tick_off_s"]), "answers": found["answers"],
            })  # fmt: skip
            if not self.options.quick:
                self.target("alone", f"one {shape} with sharing / without, rows that are there", whole, ALONE_MOST)
                self.target("alone", f"one {shape} with sharing / without, tick by tick", tick, ALONE_MOST)

    def part_push(self) -> Iterator[str]:
        """One row to many queries."""
        count, number = (8, 5) if self.options.quick else (256, 100)
        for shape in (s for s in CONTINUOUS if s in self.options.shapes):
            for home in (False, True):
                where = "in a home" if home else "without a home"
                yield f"a push to {count} {shape} {where}"
                found = self.run("push", shape=shape, count=count, number=number, home=home, **self._common)
                self.rows.append({
                    "part": "push", "shape": shape, "queries": count, "home": home, "ms": _ms(found["run_s"]),
                    "mean ms": _ms(found["mean_s"]), "worst ms": _ms(found["worst_s"]), "answers": found["answers"],
                    "memory MB": round(found["memory_mb"]),
                })  # fmt: skip
                if not self.options.quick:
                    text = f"milliseconds of a push of one row to {count} {shape} {where}"
                    self.target("push", text, 1000 * found["run_s"], PUSH_MS)

    def part_create(self) -> Iterator[str]:
        """Statements, one by one."""
        options, spark = self.options, self.options.runtime == "spark"
        count, number = (100, 20) if options.quick else (10_000, 500)
        others = [("nothing", spark), ("instances", spark), ("plain", spark), *([] if spark else [("plain", True)])]
        for texts in ("form", "different"):
            for what, home in others:
                many = 0 if what == "nothing" else count
                yield f"CREATE QUERY, {texts}, beside {many:,} {what}"
                found = self.run(
                    "create", texts=texts, others=what, count=many, number=number, runtime=options.runtime, home=home,
                    **self._common,
                )  # fmt: skip
                self.rows.append({
                    "part": "create", "texts": texts, "beside": what, "queries": many, "home": home,
                    "ms": _ms(found["run_s"]), "mean ms": _ms(found["mean_s"]), "worst ms": _ms(found["worst_s"]),
                    "plan s": _s(found["plan_s"]), "memory MB": round(found["memory_mb"]), **_workers(found),
                })  # fmt: skip
                if options.quick or (home and not spark):
                    continue
                text = f"milliseconds of CREATE QUERY, texts {'of one form' if texts == 'form' else 'that differ'}"
                text += f", beside {many:,} {what}" if many else ""
                self.target("create", text, 1000 * found["run_s"], WHILE_MS if spark else CREATE_MS)

    def part_tick(self) -> Iterator[str]:
        """A tick of many rows on Spark."""
        count = 16 if self.options.quick else 256
        yield f"ticks with {count} queries"
        found = self.run("tick", 1, count=count, seed=self.options.seed, repeat=self.options.repeat)
        self.rows.append({
            "part": "tick", "rows": 40_000, "queries": count, "ms": _ms(found["run_s"]),
            "bare ms": _ms(found["bare_s"]), "memory MB": round(found["memory_mb"]), **_workers(found),
        })  # fmt: skip
        if not self.options.quick:
            text = f"tick of 40,000 rows, {count} queries / bare micro-batch"
            self.target("tick", text, found["run_s"] / found["bare_s"], 1.3)

    def part_peers(self) -> Iterator[str]:
        """The same on other engines, as far as they bear."""
        quick = self.options.quick
        rows = 2_000 if quick else 200_000
        counts = {
            ("filters", "separate"): (2,) if quick else (1, 16, 64),
            ("filters", "table of rules"): (4,) if quick else (64, 256),  # every rule meets every row there
            ("alerts", "separate"): (2,) if quick else (1, 16, 64),
            ("alerts", "table of rules"): (2_000,) if quick else (64, 256, 10_000),
        }
        for shape in ("filters", "alerts"):
            for how in peers.HOW:
                for count in counts[shape, how]:
                    if count > self.options.most:
                        continue
                    yield f"{count:,} {shape} on peers, {how}"
                    self._peers(shape, how, count, rows)

    def _peers(self, shape: str, how: str, count: int, rows: int) -> None:
        given = {"shape": shape, "count": count, "rows": rows, "seed": self.options.seed}
        ours = "plain" if how == "separate" else "template"
        mine = self.run("windrow", runtime=self.options.runtime, how=ours, clock="wall", **given)
        found = {"windrow": mine}
        for engine in self.options.peers:
            found[peers.ENGINES[engine]] = self.run("peer", 1, engine=engine, how=how, **given)
            same(f"{count:,} {shape} on {engine}, {how}", mine, found[peers.ENGINES[engine]])
        for by, run in found.items():
            self.rows.append({
                "part": "peers", "shape": shape, "queries": count, "rows": rows, "how": how, "by": by,
                "s": _s(run["plan_s"] + run["run_s"]), "answers": run["answers"], "alarms": run["found"],
                "memory MB": round(run["memory_mb"]), **_workers(run),
            })  # fmt: skip


def _row(case: Case, by: str, run: Row) -> Row:
    return {
        "part": "rows", "shape": case.shape, "queries": case.queries, "how": case.how, "rows": case.rows, "by": by,
        "plan s": _s(run["plan_s"]), "ms to plan one": round(1000 * run["plan_s"] / case.queries, 3),
        "run s": _s(run["run_s"]), "answers": run["answers"], "alarms": run["found"],
        "memory MB": round(run["memory_mb"]), **_workers(run),
    }  # fmt: skip


def _workers(run: Row) -> dict[str, int]:
    return {"workers MB": round(run["workers_mb"])} if "workers_mb" in run else {}


def _s(seconds: float) -> float:
    return round(seconds, 4)


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)


def main(argv: Sequence[str]) -> int:
    """Run the experiment."""
    accepts = parser("many", __doc__ or "")
    accepts.set_defaults(repeat=1)
    accepts.add_argument("--runtime", choices=("local", "spark"), default="local", help="where (default: local)")
    every = tuple(dict.fromkeys(p for parts in PARTS.values() for p in parts))
    accepts.add_argument("--parts", nargs="+", choices=every, help="which alone (default: all of the runtime)")
    listed = tuple(dict.fromkeys((*SHAPES, *runs.ALONE)))
    accepts.add_argument("--shapes", nargs="+", choices=listed, default=listed, help="(default: all)")
    accepts.add_argument("--most", type=int, default=100_000, help="the most queries (default: 100,000)")
    accepts.add_argument(
        "--peers", nargs="*", choices=tuple(peers.ENGINES),
        help="of part peers; what is not there is fetched (default: those that are there; without a name, both)",
    )  # fmt: skip
    options = accepts.parse_args(list(argv))
    options.peers = [e for e in peers.ENGINES if peers.there(e)] if options.peers is None else options.peers
    options.peers = options.peers or list(peers.ENGINES)
    parts = PARTS[options.runtime]
    chosen = [p for p in parts if p in (options.parts or parts)]
    many = Many(options)
    with progress() as shown:
        task = shown.add_task("runs", total=None)
        for part in chosen:
            for what in getattr(many, f"part_{part}")():
                shown.update(task, description=f"{part}: {what}")
    name = "many" if options.runtime == "local" else "many-spark"
    parameters: Mapping[str, Any] = {
        "runtime": options.runtime, "keys": KEYS, "clock": options.clock, "repetitions": options.repeat,
    }  # fmt: skip
    rows, ratios = beside(name, saved_in(options), parts, chosen, many.rows, many.ratios)
    about = " ".join((__doc__ or "").split())
    return report(Result(name, about, options.seed, parameters, rows, ratios), options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
