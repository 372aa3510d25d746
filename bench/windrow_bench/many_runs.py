"""The runs of `many`, each in a process of its own, so that its memory is its own.

`python -m windrow_bench.many_runs JSON` does one, and prints its figures as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import mean, median
from typing import Any

import pyarrow as pa

from windrow_bench import many_shapes as shapes
from windrow_bench.harness import CLOCKS
from windrow_bench.many_shapes import KEYS, SHAPES
from windrow_bench.many_yardsticks import Row, digest, joined

FEW = (64, 2_000)
"""Queries and rows that run before a run is timed, so that compiled loops are there."""
WARM = 20
"""Pushes, or statements, that are not counted."""
ALONE = {
    **{name: shape for name, shape in SHAPES.items() if name not in ("alerts", "grouped")},
    "periodic": shapes.Shape("w BIGINT", "SELECT COUNT(*) AS n, SUM(price) AS v FROM trade [RANGE $w SLIDE 60]"),
    "periodic by key": shapes.Shape(
        "w BIGINT", "SELECT sym, COUNT(*) AS n, MAX(price) AS m FROM trade [RANGE $w SLIDE 60] GROUP BY sym"
    ),
    "periodic join": shapes.Shape(
        "w BIGINT",
        "SELECT COUNT(*) AS n FROM trade [RANGE $w SLIDE 60] t, quote [RANGE $w SLIDE 60] q WHERE t.sym = q.sym",
    ),
}  # fmt: skip
"""Queries that are measured alone."""


def apart(arguments: Mapping[str, Any], repeat: int = 1) -> Row:
    """The best of some runs, each in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    found: list[Row] = []
    for _ in range(repeat):
        command = [sys.executable, "-m", "windrow_bench.many_runs", json.dumps(dict(arguments))]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
        if done.returncode:
            raise SystemExit(f"a run did not come to its end: {dict(arguments)}")
        found.append(json.loads(done.stdout.strip().splitlines()[-1]))
    return min(found, key=lambda r: r["run_s"])


@contextlib.contextmanager
def _scratch() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="windrow-many-", ignore_cleanup_errors=True) as place:
        yield place


def memory(spark: bool) -> Row:
    """Megabytes of this process at most, and on Spark those that its workers share with nobody."""
    from windrow_bench.pipes import private

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return {"memory_mb": most, **({"workers_mb": private("workers") / 1e6} if spark else {})}


# -- many queries over rows that are there -----------------------------------------------------------------------------


def windrow(
    shape: str, count: int, rows: int, seed: int, runtime: str, clock: str, how: str = "template", floor: float = 250.0
) -> Row:
    """Plan and run queries; a few of them have run over a few rows before. `how`: template, or plain texts."""
    from windrow.engine.replay import BATCH_ROWS, Replay
    from windrow.runtime.job import LocalJob
    from windrow.store.store import MemoryStore, Store

    now, spark = CLOCKS[clock], None
    if runtime == "spark":
        from windrow.spark.job import SparkJob
        from windrow.spark.session import session

        spark = session(None)

    def run(count: int, rows: int) -> tuple[float, float, pa.Table]:
        streams, given = shapes.data(rows, seed), shapes.rules(count, seed, floor)
        with _scratch() as home:
            job: Any = LocalJob() if spark is None else SparkJob(spark)
            store: Any = MemoryStore() if spark is None else Store.open(home)
            texts = _script(shape, given, how)
            begin = now()
            replay = Replay.of(texts, streams, {"rules": given} if how == "template" else {})
            ticker = replay.registered(job, store, "upa")
            planned = now()
            if (count, rows) != FEW:
                run(*FEW)
            started = now()
            answers = replay.play(ticker, job, BATCH_ROWS[runtime])
            done = now()
            store.close()
        return planned - begin, done - started, _together(shape, given, answers, how)

    planning, running, answers = run(count, rows)
    used = memory(spark is not None)  # before answers are looked at
    return {"plan_s": planning, "run_s": running, "answers": answers.num_rows, **used, **digest(answers)}


def _script(shape: str, given: pa.Table, how: str) -> str:
    if how == "template":
        return shapes.script(shape)
    return shapes.STREAMS + ";".join(
        f"CREATE QUERY q{i} AS {text}" for i, text in enumerate(shapes.plain(shape, given))
    )


def _together(shape: str, given: pa.Table, answers: Mapping[str, pa.Table], how: str) -> pa.Table:
    """The answers of all queries, each row with its rule."""
    if how == "template":
        return answers["q"]
    return with_rules([answers[f"q{i}"] for i in range(given.num_rows)], given.select(SHAPES[shape].names))


def with_rules(answers: list[pa.Table], given: pa.Table) -> pa.Table:
    """The answers of queries, one for each rule, as one table."""
    found = []
    for table, rule in zip(answers, given.to_pylist(), strict=True):
        for name, value in rule.items():
            table = table.append_column(name, pa.array([value] * table.num_rows, given.schema.field(name).type))
        found.append(table)
    return pa.concat_tables(found)


def rules_joined(shape: str, count: int, rows: int, seed: int, clock: str, floor: float = 250.0) -> Row:
    """The same answers by a join with a table of rules."""
    return joined(shape, shapes.data(rows, seed), shapes.rules(count, seed, floor), clock)


# -- statements --------------------------------------------------------------------------------------------------------


def create(texts: str, others: str, count: int, number: int, seed: int, runtime: str, clock: str, home: bool) -> Row:
    """CREATE QUERY, each by itself, while so many queries run and rows come: `texts` of one "form", or "different".

    `others`: what runs: "nothing", "instances" of a template, or "plain" continuous queries.
    """
    from windrow import Engine

    now, given = CLOCKS[clock], shapes.rules(count, seed)
    with _scratch() as place:
        engine = Engine(runtime=runtime, home=place if home else None)
        engine.execute(shapes.WIDE)
        begin = now()
        for statement in _others(others, given):
            engine.execute(statement)
        planned = now()
        engine.start()
        times, at = [], 0
        for i, text in enumerate(_texts(texts, number + WARM, seed)):
            if i % WARM == 0:
                at += 1
                for stream, rows in shapes.wide(1000 if count else 10, seed + i, at).items():
                    engine.push(stream, rows)
                engine.drain(600.0)
            before = now()
            engine.execute(f"CREATE QUERY c{i} AS {text}")
            times.append(now() - before)
        engine.stop()
    times = times[WARM:]
    return {
        "plan_s": planned - begin, "run_s": median(times), "mean_s": mean(times), "worst_s": max(times),
        **memory(runtime == "spark"),
    }  # fmt: skip


def _others(others: str, given: pa.Table) -> Iterator[str]:
    if others == "instances":
        made = SHAPES["alerts"]
        yield f"CREATE TEMPLATE t ({made.parameters}) AS {made.text}"
        values = ", ".join(f"({', '.join(map(repr, r.values()))})" for r in given.select(made.names).to_pylist())
        yield f"CREATE QUERIES q FROM TEMPLATE t VALUES {values}"
    elif others == "plain":
        yield ";".join(f"CREATE QUERY q{i} AS {text}" for i, text in enumerate(shapes.plain("filters", given)))


def _texts(kind: str, number: int, seed: int) -> list[str]:
    if kind == "different":
        return shapes.texts(number, seed)
    form = "SELECT COUNT(*) AS n FROM trade [RANGE 60 SLIDE 60] WHERE sym = {0} AND price > {0}.5"
    return [form.format(i) for i in range(number)]


# -- one row, and one query --------------------------------------------------------------------------------------------


def push(shape: str, count: int, number: int, seed: int, clock: str, home: bool) -> Row:
    """A push of one row to so many queries, over a state of some rows: it is answered when it returns."""
    from windrow import Engine

    now, given = CLOCKS[clock], shapes.rules(count, seed)
    with _scratch() as place:
        engine = Engine(runtime="local", home=place if home else None)
        begin = now()
        engine.execute(_script(shape, given, "plain"))
        planned = now()
        engine.start()
        for stream, rows in shapes.data(2000, seed, span=shapes.LENGTH).items():
            engine.push(stream, rows)
        times = []
        for i in range(WARM + number):
            row = shapes.data(1, seed + i, begin=shapes.LENGTH + i, span=1)["trade"]
            before = now()
            engine.push("trade", row)
            times.append(now() - before)
        answers = sum(q["answers"] for q in engine.status()["queries"].values())
        engine.stop()
    times = times[WARM:]
    return {
        "plan_s": planned - begin, "run_s": median(times), "mean_s": mean(times), "worst_s": max(times),
        "answers": answers, **memory(False),
    }  # fmt: skip


def alone(shape: str, rows: int, ticks: int, seed: int, clock: str) -> Row:
    """One query with sharing and without, in turns: over rows that are there, and tick by tick in two engines."""
    from windrow import Engine, run

    now, text = CLOCKS[clock], _first(ALONE[shape], seed)
    script, streams = f"{shapes.STREAMS} CREATE QUERY q AS {text}", shapes.data(rows, seed)
    sides = ("auto", "off")
    whole: dict[str, list[float]] = {side: [] for side in sides}
    found = {}
    for i in range(6):
        for side in sides if i % 2 else sides[::-1]:
            begin = now()
            found[side] = run(script, streams=streams, runtime="local", sharing=side)["q"]
            whole[side].append(now() - begin)
    if digest(found["auto"]) != digest(found["off"]):
        raise SystemExit(f"the answers of one {shape} depend on sharing")
    engines = {side: Engine(runtime="local", sharing=side) for side in sides}
    for engine in engines.values():
        engine.execute(script)
        engine.start()
    each: dict[str, list[float]] = {side: [] for side in sides}
    for i in range(WARM + ticks):
        batch = shapes.data(100, seed + i, begin=10 * i, span=10)
        for side in sides if i % 2 else sides[::-1]:
            begin = now()
            for stream, table in batch.items():
                engines[side].push(stream, table)
            each[side].append(now() - begin)
    for engine in engines.values():
        engine.stop()
    tick = {side: sum(sorted(times[WARM:])[: ticks * 9 // 10]) / (ticks * 9 // 10) for side, times in each.items()}
    return {
        "run_s": min(whole["auto"][1:]), "off_s": min(whole["off"][1:]), "tick_s": tick["auto"],
        "tick_off_s": tick["off"], "answers": found["auto"].num_rows,
    }  # fmt: skip


def _first(shape: shapes.Shape, seed: int) -> str:
    """The query of the first rule."""
    text = shape.text
    for name, value in sorted(shapes.rules(1, seed).to_pylist()[0].items(), key=lambda kv: -len(kv[0])):
        text = text.replace(f"${name}", repr(value))
    return text


# -- a tick on Spark ---------------------------------------------------------------------------------------------------


def tick(count: int, seed: int, repeat: int) -> Row:
    """A tick of 40,000 rows with so many queries beside the bare micro-batch, as `windrow bench ticks` has it."""
    from windrow.spark.session import session
    from windrow_bench.ticks import Bench, Found, Sizes

    with _scratch() as place:
        found = Found()
        sizes = Sizes(queries=(count,), ticks=4 if count <= 16 else 8)
        Bench(session(None), Path(place), sizes, repeat, seed, found).queries_per_tick()
    last = found.rows[-1]
    return {"run_s": last["tick_ms"] / 1e3, "bare_s": last["bare_ms"] / 1e3, **memory(True)}


def peer(**arguments: Any) -> Row:
    """Another engine."""
    from windrow_bench.many_peers import run

    return run(**arguments)


KINDS: dict[str, Callable[..., Row]] = {
    "windrow": windrow, "rules joined": rules_joined, "create": create, "push": push, "alone": alone, "tick": tick,
    "peer": peer,
}  # fmt: skip


def one_run(given: dict[str, Any]) -> Row:
    """What a run of this kind measures."""
    return KINDS[given.pop("kind")](**given)


if __name__ == "__main__":
    print(json.dumps(one_run(json.loads(sys.argv[1]))))

__all__ = ["ALONE", "KEYS", "KINDS", "apart", "with_rules"]
