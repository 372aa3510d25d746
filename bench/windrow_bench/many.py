"""One to a hundred thousand queries of one shape, from a template: time and memory, answers compared.

Shapes: alerts per entity (periodic, with and without GROUP BY), and, followed at every instant, selections, HAVING
alerts, aggregates of selections, window joins and absences that differ in constants, and aggregates that differ in
nothing but their windows. Rules are a table; `CREATE QUERIES ... USING TABLE rules` makes a query of each. Every run
has a process of its own, so that its memory is its own (on Spark, the driver's). Beside them, what users of other
engines do: the table of rules joined with the streams, by DuckDB over all rows at once and, with `--runtime spark`, as
a broadcast table in Structured Streaming (alerts and selections). Alarms are answers, of alerts those that count
something; their number, instants, counts and values are compared with those of the join, run by run.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from windrow_bench.harness import CLOCKS, Ratio, Result, parser, progress, report
from windrow_bench.many_yardsticks import SLIDE, SPAN, TEXTS, Row, figures, joined, same

KEYS = 10_000
CREATED = 20
"""Queries that are created while others run."""
CONTINUOUS = {"filters": 2.0, "having": 3.0, "aggregates": 3.0, "windows": 3.0, "joins": 3.0, "absence": 4.0}
"""Shapes that are followed at every instant, and what 64 of them may cost against one."""
DECLARED = """
CREATE STREAM trade (sym BIGINT, price DOUBLE, ts BIGINT) TIMESTAMP BY ts;
CREATE STREAM quote (sym BIGINT, ts BIGINT) TIMESTAMP BY ts;
CREATE TABLE rules (s BIGINT, lim DOUBLE, w BIGINT, length BIGINT);
"""
SHAPES = {
    "alerts": (
        "s BIGINT, lim DOUBLE, w BIGINT",
        "SELECT COUNT(*) AS n, MAX(price) AS m FROM trade [RANGE $w SLIDE 60] WHERE sym = $s AND price > $lim",
    ),
    "grouped": (
        "s BIGINT, lim DOUBLE, w BIGINT",
        "SELECT sym, COUNT(*) AS n FROM trade [RANGE $w SLIDE 60] WHERE sym = $s AND price > $lim GROUP BY sym",
    ),
    "filters": ("lim DOUBLE", "SELECT ISTREAM(sym, price) FROM trade [NOW] WHERE price > $lim"),
    "having": (
        "lim DOUBLE",
        "SELECT ISTREAM(sym, COUNT(*) AS n) FROM trade [RANGE 60] GROUP BY sym "
        "HAVING SUM(price) > $lim AND COUNT(*) > 4",
    ),
    "aggregates": (
        "lim DOUBLE",
        "SELECT ISTREAM(sym, COUNT(*) AS n) FROM trade [RANGE 60] WHERE price > $lim GROUP BY sym HAVING COUNT(*) > 1",
    ),
    "windows": (
        "length BIGINT",
        "SELECT ISTREAM(sym, COUNT(*) AS n) FROM trade [RANGE $length] GROUP BY sym HAVING SUM(price) > 1000",
    ),
    "joins": (
        "lim DOUBLE",
        "SELECT ISTREAM(t.sym, price) FROM trade [RANGE 60] t, quote [RANGE 60] q WHERE t.sym = q.sym AND price > $lim",
    ),
    "absence": (
        "lim DOUBLE",
        "SELECT ISTREAM(sym, price) FROM trade [RANGE 60] t WHERE price > $lim "
        "AND NOT EXISTS (SELECT 1 FROM quote [RANGE 60] q WHERE q.sym = t.sym)",
    ),
}
PLANNED = {"grouped": 30_000, "filters": 100_000, "aggregates": 100_000, "joins": 100_000, "absence": 100_000}
"""How many instances of other shapes are planned, to say what one takes; they see few rows."""
BESIDE = {"alerts": (256, 100_000), "filters": (64, 256)}
"""How many rules Structured Streaming is given."""
MOST_LENGTHS = 64
"""So many windows are compared with a join: it has every row once for each."""
FEW = (64, 2_000)
"""Queries and rows that run before a run is timed."""
CREATE = "CREATE QUERY"
"""The shape of the run in which queries are created while others run."""


def data(rows: int, seed: int) -> dict[str, pa.Table]:
    """Trades of many symbols, and quotes of some."""
    rng = np.random.default_rng(seed)
    trade = {"sym": rng.integers(0, KEYS, rows), "price": rng.gamma(2.0, 50.0, rows)}
    quotes = max(rows // 20, 1)
    return {
        "trade": pa.table({**trade, "ts": np.sort(rng.integers(0, SPAN, rows))}),
        "quote": pa.table({"sym": rng.integers(0, KEYS, quotes), "ts": np.sort(rng.integers(0, SPAN, quotes))}),
    }


def rules(count: int, seed: int) -> pa.Table:
    """Rules of which no two are equal, and which hold for few rows."""
    rng, number = np.random.default_rng(seed + 1), np.arange(count)
    limits = np.round(np.round(250 + rng.gamma(2.0, 50.0, count), 2) + number * 1e-7, 7)
    spans = {"w": SLIDE * (1 + number % 4), "length": SLIDE + number}
    return pa.table({"s": number % KEYS, "lim": limits, **spans})


def script(shape: str) -> str:
    """The queries, as an engine gets them."""
    parameters, text = SHAPES[shape]
    return f"{DECLARED} CREATE TEMPLATE t ({parameters}) AS {text}; CREATE QUERIES q FROM TEMPLATE t USING TABLE rules"


# -- one run, in a process of its own ----------------------------------------------------------------------------------


def one(shape: str, count: int, rows: int, seed: int, runtime: str, clock: str) -> Row:
    """Plan and run queries; a few of them have run over a few rows before, so that compiled loops are there."""
    from windrow.engine.replay import BATCH_ROWS, Replay
    from windrow.runtime.job import LocalJob
    from windrow.store.store import MemoryStore, Store

    now, spark = CLOCKS[clock], None
    if runtime == "spark":
        from windrow.spark.job import SparkJob
        from windrow.spark.session import session

        spark = session(None)

    def run(count: int, rows: int) -> tuple[float, float, pa.Table]:
        streams, given = data(rows, seed), rules(count, seed)
        with tempfile.TemporaryDirectory(prefix="windrow-many-") as home:
            job: Any = LocalJob() if spark is None else SparkJob(spark)
            store: Any = MemoryStore() if spark is None else Store.open(home)
            begin = now()
            replay = Replay.of(script(shape), streams, {"rules": given})
            ticker = replay.registered(job, store, "upa")
            planned = now()
            if (count, rows) != FEW:
                run(*FEW)
            started = now()
            answers = replay.play(ticker, job, BATCH_ROWS[runtime])["q"]
            done = now()
            store.close()
        return planned - begin, done - started, answers

    planning, running, answers = run(count, rows)
    return {
        "plan_s": planning, "run_s": running, "answers": answers.num_rows,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, **figures(answers),
    }  # fmt: skip


def creating(count: int, seed: int, runtime: str, clock: str) -> Row:
    """CREATE QUERY while so many run: the median and the worst of some, each durable when it returns."""
    from windrow import Engine

    now, given = CLOCKS[clock], rules(count, seed).select(["s", "lim", "w"])
    values = ", ".join(f"({s}, {lim}, {w})" for s, lim, w in zip(*(c.to_pylist() for c in given.columns), strict=True))
    parameters, text = SHAPES["alerts"]
    with tempfile.TemporaryDirectory(prefix="windrow-many-", ignore_cleanup_errors=True) as home:
        engine = Engine(runtime=runtime, home=home)
        begin = now()
        engine.execute(f"{DECLARED} CREATE TEMPLATE t ({parameters}) AS {text}")
        engine.execute(f"CREATE QUERIES q FROM TEMPLATE t VALUES {values}")
        planned = now()
        engine.start()
        times = []
        for number in range(CREATED):
            engine.push("trade", data(1000, seed + number)["trade"].set_column(2, "ts", pa.array([number] * 1000)))
            engine.drain()
            before = now()
            engine.execute(
                f"CREATE QUERY c{number} AS SELECT COUNT(*) AS n FROM trade [RANGE 60 SLIDE 60] "
                f"WHERE sym = {number} AND price > {number}.5"
            )
            times.append(now() - before)
        engine.stop()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return {
        "plan_s": planned - begin, "run_s": sorted(times)[len(times) // 2], "worst_s": max(times), "answers": 0,
        "memory_mb": memory,
    }  # fmt: skip


def broadcast(shape: str, count: int, rows: int, seed: int, runtime: str, clock: str) -> Row:
    """The same answers by a join with a table of rules."""
    return joined(shape, data(rows, seed), rules(count, seed), runtime, clock)


# -- all runs ----------------------------------------------------------------------------------------------------------


def apart(arguments: Mapping[str, Any], repeat: int) -> Row:
    """The best of some runs, each in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    found: list[Row] = []
    for _ in range(repeat):
        command = [sys.executable, "-m", "windrow_bench.many", "--one", json.dumps(dict(arguments))]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
        found.append(json.loads(done.stdout.strip().splitlines()[-1]))
    return min(found, key=lambda r: r["run_s"])


def cases(quick: bool, runtime: str) -> Iterator[tuple[str, int, int]]:
    """(shape, queries, rows)."""
    alerts = [1, 100, 256, 1000, 10_000, 100_000] if runtime == "local" else [256, 10_000, 100_000]
    alerts = [1, 100, 1000] if quick else alerts
    rows = 20_000 if quick else 1_140_000 if runtime == "spark" else 2_000_000
    for count in alerts:
        yield "alerts", count, rows
    for shape in CONTINUOUS:
        for count in (1, 4) if quick else (1, 64, 256):
            yield shape, count, 2_000 if quick else 200_000
        if shape != "windows" and not quick:
            yield shape, 10_000, 10_000
    for shape, count in PLANNED.items() if runtime == "local" and not quick else ():
        yield shape, count, 500
    yield CREATE, 100 if quick else 10_000, 0


def beside(shape: str, count: int, runtime: str) -> Iterator[tuple[str, str]]:
    """By what answers are compared, and where that runs."""
    if shape in TEXTS and (shape != "windows" or count <= MOST_LENGTHS):
        yield "DuckDB, join with rules", "local"
    if runtime == "spark" and count in BESIDE.get(shape, ()):
        yield "Structured Streaming, broadcast table", "spark"


def ratios(rows: Sequence[Row], runtime: str) -> list[Ratio]:
    """What many queries cost against few."""
    run = {(r["shape"], r["queries"]): r["run s"] for r in rows if r["by"] == "windrow"}
    whole = {(r["shape"], r["queries"]): r["run s"] + r["plan s"] for r in rows if r["by"] == "windrow"}
    found = []
    answers = {(r["shape"], r["queries"]): r["answers"] for r in rows if r["by"] == "windrow"}
    for shape, most in CONTINUOUS.items():
        if (shape, 64) in run:
            beyond = max(0.0, run[shape, 64] - 1e-6 * answers[shape, 64])
            found.append(Ratio(f"64 {shape} / one, beyond planning and rows", beyond / run[shape, 1], most))
    if (CREATE, 10_000) in run:
        found.append(Ratio("milliseconds of CREATE QUERY while 10,000 run", 1000 * run[CREATE, 10_000], 20.0))
        worst = next(r["worst s"] for r in rows if r["shape"] == CREATE and r["queries"] == 10_000)
        found.append(Ratio("the worst of 20", 1000 * worst, 20.0))
    if runtime == "spark" and ("alerts", 100_000) in run:
        value = whole["alerts", 100_000] / whole["alerts", 256]
        found.append(Ratio("100,000 alerts / 256, planning included", value, 3.0))
    elif ("alerts", 100_000) in run:
        found.append(Ratio("10,000 alerts / 100, beyond planning", run["alerts", 10_000] / run["alerts", 100], 4.0))
        found.append(Ratio("100,000 alerts / 100, beyond planning", run["alerts", 100_000] / run["alerts", 100], 20.0))
        alerts = [r for r in rows if r["shape"] == "alerts" and r["queries"] == 100_000 and r["by"] == "windrow"]
        memory = alerts[0]["memory MB"]
        found.append(Ratio("memory with 100,000 alerts, GB", memory / 1000, 4.0))
        each = alerts[0]["ms to plan one"]
        found.append(Ratio("milliseconds to plan and register an instance", each, 0.1))
    for r in rows:
        if r["queries"] == PLANNED.get(r["shape"]):
            found.append(Ratio(f"milliseconds to plan and register one of {r['shape']}", r["ms to plan one"], 0.1))
    return found


def main(argv: Sequence[str]) -> int:
    """Run the experiment."""
    accepts = parser("many", __doc__ or "")
    accepts.add_argument("--runtime", choices=("local", "spark"), default="local", help="where (default: local)")
    accepts.add_argument("--one", help="one run, given as JSON; prints its figures as JSON")
    accepts.add_argument(
        "--shapes", nargs="+", choices=(*SHAPES, CREATE), default=(*SHAPES, CREATE), help="(default: all)"
    )
    accepts.add_argument("--most", type=int, default=100_000, help="the most queries (default: 100,000)")
    options = accepts.parse_args(list(argv))
    if options.one:
        given = json.loads(options.one)
        kind = given.pop("kind")
        kinds: dict[str, Callable[..., Row]] = {"windrow": one, "create": creating, "broadcast": broadcast}
        print(json.dumps(kinds[kind](**given)))
        return 0
    found: list[Row] = []
    begin = time.monotonic()
    with progress() as shown:
        listed = [c for c in cases(options.quick, options.runtime) if c[1] <= options.most and c[0] in options.shapes]
        task = shown.add_task("runs", total=len(listed))
        for shape, count, rows in listed:
            shown.update(task, description=f"{count:,} {shape}")
            common = {
                "count": count,
                "rows": rows,
                "seed": options.seed,
                "runtime": options.runtime,
                "clock": options.clock,
            }
            if shape == CREATE:
                made = {k: v for k, v in common.items() if k != "rows"}
                found.append(_row(shape, count, rows, "windrow", apart({"kind": "create", **made}, options.repeat)))
                shown.advance(task)
                continue
            mine = apart({"kind": "windrow", "shape": shape, **common}, options.repeat)
            found.append(_row(shape, count, rows, "windrow", mine))
            for name, runtime in beside(shape, count, options.runtime):
                other = apart({"kind": "broadcast", "shape": shape, **common, "runtime": runtime}, 1)
                found.append(_row(shape, count, rows, name, other))
                same(f"{count:,} {shape}", mine, other)
            shown.advance(task)
    parameters = {
        "runtime": options.runtime, "keys": KEYS, "clock": options.clock, "repetitions": options.repeat,
        "minutes": round((time.monotonic() - begin) / 60, 1),
    }  # fmt: skip
    name = "many" if options.runtime == "local" else "many-spark"
    about = " ".join((__doc__ or "").split())
    return report(Result(name, about, options.seed, parameters, found, ratios(found, options.runtime)), options)


def _row(shape: str, count: int, rows: int, by: str, run: Row) -> Row:
    return {
        "shape": shape, "queries": count, "rows": rows, "by": by, "plan s": round(run["plan_s"], 3),
        "ms to plan one": round(1000 * run["plan_s"] / count, 3), "run s": round(run["run_s"], 3),
        "answers": run["answers"], "alarms": run.get("found", ""), "memory MB": round(run["memory_mb"]),
        "worst s": round(run["worst_s"], 3) if "worst_s" in run else "",
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
