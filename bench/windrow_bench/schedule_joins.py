"""Many aggregates over one join of two streams: what 64 of them cost beside one of them (rules SS3, CS4 and CS5).

Windows and periods all differ; the pairs are formed once, and every synopsis is read once for all windows of an
instant. One query over a join runs by itself, in the way that is cheapest for one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

import windrow
from windrow_bench.harness import Ratio

ROWS, KEYS, INSTANTS, STEP = 50_000, 1_000, 2_000, 100
"""Rows of each stream, keys of the join, instants of the clock, and instants of a tick."""
QUERIES, PERIODS = 64, (2, 4, 8, 20)
STREAMS = """
    CREATE STREAM r (ts BIGINT, k BIGINT, a BIGINT) TIMESTAMP BY ts;
    CREATE STREAM s (ts BIGINT, k BIGINT, b BIGINT) TIMESTAMP BY ts;
"""
LISTS = {"sum and count": "sum(a) AS x, count(*) AS n", "max": "max(b) AS x", "avg": "avg(a) AS x"}


def script(what: str, windows: Sequence[tuple[int, int]]) -> str:
    """Queries with these windows and periods."""
    return STREAMS + ";".join(
        f"CREATE QUERY q{i} AS SELECT {what} FROM r [RANGE {w} SLIDE {s}], s [RANGE {w} SLIDE {s}] WHERE r.k = s.k"
        for i, (w, s) in enumerate(windows)
    )


def windows(count: int) -> list[tuple[int, int]]:
    """As many different windows."""
    return [(40 + 4 * i, PERIODS[i % len(PERIODS)]) for i in range(count)]


def rows(seed: int, count: int) -> list[tuple[str, pa.Table]]:
    """What is pushed, tick by tick."""
    rng = np.random.default_rng(seed)
    found: dict[str, pa.Table] = {}
    for stream, column in (("r", "a"), ("s", "b")):
        ts = np.sort(rng.integers(0, INSTANTS, count))
        found[stream] = pa.table({"ts": ts, "k": rng.integers(0, KEYS, count), column: rng.integers(0, 100, count)})
    ticks = range(0, INSTANTS, STEP)
    return [(s, t.filter(_within(t, first))) for first in ticks for s, t in found.items()]


def _within(table: pa.Table, first: int) -> pa.Array:
    ts = table["ts"].to_numpy()
    return pa.array((ts >= first) & (ts < first + STEP))


class _Side:
    """Queries whose ticks are run again and again, each time by a new engine."""

    def __init__(self, text: str, pushes: Sequence[tuple[str, pa.Table]]) -> None:
        self.text, self.pushes, self.seconds = text, pushes, 0.0

    def __call__(self) -> None:
        engine = windrow.Engine(runtime="local")
        engine.execute(self.text)
        engine.start()
        begin = time.process_time()
        for stream, table in self.pushes:
            engine.push(stream, table)
        self.seconds = time.process_time() - begin
        engine.stop()


def measured(repeat: int, seed: int, quick: bool, bar: Any = None) -> Iterator[dict[str, Any]]:
    """A row for each list of aggregates."""
    count, all_of = (2_000, 8) if quick else (ROWS, QUERIES)
    pushes = rows(seed, count)
    chosen = windows(all_of)
    one = max(w for w in chosen if w[1] == min(PERIODS))
    for name, what in LISTS.items():
        if bar is not None:
            bar.update(bar.task_ids[0], description=f"{all_of} queries over a join, {name}")
        sides = {"one": _Side(script(what, [one]), pushes), "all": _Side(script(what, chosen), pushes)}
        yield _row(name, all_of, sides, repeat)


def _row(name: str, queries: int, sides: Mapping[str, _Side], repeat: int) -> dict[str, Any]:
    best = dict.fromkeys(sides, float("inf"))
    for side in sides.values():  # compiled, and cached, before anything counts
        side()
    for _ in range(max(1, repeat)):
        for key, side in sides.items():
            side()
            best[key] = min(best[key], side.seconds)
    return {
        "part": "joins", "aggregates": name, "queries": queries, "one_s": best["one"], "all_s": best["all"],
        "ratio": best["all"] / best["one"],
    }  # fmt: skip


def targets(found: Sequence[Mapping[str, Any]]) -> list[Ratio]:
    """The dearest of the lists."""
    worst = max(r["ratio"] for r in found)
    return [Ratio(f"{found[0]['queries']} aggregates of different windows over one join, beside one of them", worst, 2)]
