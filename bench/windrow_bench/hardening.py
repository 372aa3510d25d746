"""What hardening costs: the same work with what guards it, and with that left out.

Guards are what a text or a row meets on its way for safety alone: connections of the scalar engine that reach nothing
and have a bound on their memory, the watch on the time of every call, the bound on how large values may become, and the
count of rows before they are made. Here they are taken out by name; closed lists of functions and types are how texts
are read, and cannot be. Both sides take turns in one process, in an order that changes, each with a connection of the
same age, and what is compared is the time of the processor, by the quickest of the rounds: whatever else a machine does
only adds to it. How memory happens to lie makes a process faster or slower on one side by a few percent for all its
rounds, so several processes measure, and the median of them counts. Even so a shared machine has shown ratios from
0.94 to 1.07 where the guards themselves take a thousandth of the time: look at both figures. The side
with guards is run twice in every round: how far those two are apart is what a process cannot tell. Engines and ticks
have a bound on it; planning is shown beside them. So is the time that passes within guards, by a watch on each: it does
not depend on what is compared with what, but does not see what a connection's settings cost.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import windrow
from windrow import scalar_engine
from windrow.cql import expressions, select_items, types
from windrow.operators import row_limit, scalar

if TYPE_CHECKING:
    import duckdb

PROCESSES = 5
"""That measure, one after the other."""
STREAM = "CREATE STREAM s (g BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts;"
SCRIPTS = {
    "grouped sums": "SELECT g, SUM(v) AS n FROM s [RANGE 50] WHERE v * 2 > g GROUP BY g",
    "shared periods": "SELECT COUNT(*) AS n, AVG(v + 1) AS a FROM s [RANGE 100 SLIDE 10] WHERE v % 3 = 0;"
    "SELECT g, MAX(v - g) AS m FROM s [RANGE 60 SLIDE 10] GROUP BY g",
    "join": "SELECT a.g, b.v + a.v AS n FROM s [RANGE 3] a, s [RANGE 3] b WHERE a.g = b.g AND a.v > b.v * 5",
}
LIVE = "".join(
    f"CREATE QUERY q{i} AS SELECT g, COUNT(*) AS n, SUM(v * {i + 1}) AS m FROM s [RANGE 20] WHERE v > {i} GROUP BY g;"
    for i in range(6)
)


@contextlib.contextmanager
def sides(guarded: bool) -> Iterator[None]:
    """Work with a connection that is as new on either side; without what only guards, if so asked."""
    known = getattr(scalar._local, "connection", None)
    with contextlib.ExitStack() as undo:
        for place, name, value in () if guarded else _GUARDS:
            undo.callback(setattr, place, name, getattr(place, name))
            setattr(place, name, value)
        scalar._local.connection = scalar_engine.connect() if guarded else _plain()
        try:
            yield
        finally:
            scalar._local.connection.close()
            if known is None:
                del scalar._local.connection
            else:
                scalar._local.connection = known


def _plain() -> duckdb.DuckDBPyConnection:
    import duckdb

    plain = duckdb.connect(":memory:", config={"threads": 1})
    for setting in scalar_engine._BEFORE_USE:
        plain.execute(f"SET {setting}")
    return plain


def _unbounded(connection: object, rows: int = 0) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


@dataclass(frozen=True)
class Cost:
    """The time with guards over the time without, and over that of other rounds with guards; the share within them."""

    ratio: float
    spread: float
    within: float


def measured(rows: int, rounds: int, seed: int, said: Callable[[str], None]) -> dict[str, Cost]:
    """What guards cost, by workload: medians of the processes."""
    found = {}
    for name in _works(_rows(rows, seed)):
        each = []
        for number in range(PROCESSES):
            said(f"{name}, process {number + 1} of {PROCESSES}")
            with ProcessPoolExecutor(1, get_context("spawn")) as process:
                each.append(process.submit(_compared, name, rows, rounds, seed).result())
        found[name] = Cost(*(statistics.median(numbers) for numbers in zip(*map(astuple, each), strict=True)))
    return found


def _compared(name: str, rows: int, rounds: int, seed: int) -> Cost:
    work = _works(_rows(rows, seed))[name]
    _seconds(work, True)  # compiled and cached
    took: dict[str, list[float]] = {"guarded": [], "bare": [], "again": []}
    for number in range(rounds):
        for side in np.roll(list(took), number):
            took[side].append(_seconds(work, side != "bare"))
    guarded, bare, again = (min(took[side]) for side in ("guarded", "bare", "again"))
    return Cost((guarded + again) / 2 / bare, max(guarded, again) / min(guarded, again), _within(work))


def _within(work: Callable[[], object]) -> float:
    """The share of the time that passes within guards."""
    spent = 0

    def watched(guard: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            nonlocal spent
            begin = time.perf_counter_ns()
            try:
                return guard(*arguments)
            finally:
                spent += time.perf_counter_ns() - begin

        return timed

    with contextlib.ExitStack() as undo:
        ends = [(scalar_engine._Watch, "enter"), (scalar_engine._Watch, "leave")]  # of what is bounded
        for place, name in [*ends, *((place, name) for place, name, _ in _GUARDS if name != "bounded")]:
            undo.callback(setattr, place, name, getattr(place, name))
            setattr(place, name, watched(getattr(place, name)))
        took = _seconds(work, True)
    return spent / 1e9 / took


def _works(table: pa.Table) -> dict[str, Callable[[], object]]:
    def replay(script: str) -> Callable[[], object]:
        part = table if "s a" not in script and "] a" not in script else table.slice(0, table.num_rows // 10)
        return lambda: windrow.run(
            STREAM + script, {"s": part}, runtime="local", batch_rows=max(1, part.num_rows // 50)
        )

    return {
        **{name: replay(script) for name, script in SCRIPTS.items()},
        "live ticks": lambda: _live(table),
        "planning": _planned,
    }


def _live(table: pa.Table) -> None:
    """Forty ticks in this process, with a home."""
    with tempfile.TemporaryDirectory(prefix="windrow-cost-") as home, windrow.Engine("local", home=home) as engine:
        engine.execute(STREAM + LIVE)
        engine.start()
        step = max(1, min(2000, table.num_rows // 40))
        for begin in range(0, 40 * step, step):
            engine.push("s", table.slice(begin, step))


def _planned() -> None:
    """Queries that have nothing in common but their stream."""
    with windrow.Engine("local") as engine:
        engine.execute(STREAM)
        for i in range(20):
            terms = " + ".join(f"abs(v - {k}) * g" for k in range(i % 5 + 1))
            columns = ", ".join(f"SUM(v % {k + 2} + {i}) AS s{k}" for k in range(i % 4 + 1))
            engine.execute(
                f"CREATE QUERY q{i} AS SELECT g, {columns} FROM s [RANGE {i + 1}] WHERE {terms} > 3 GROUP BY g"
            )


def _rows(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    ts = np.arange(rows) // max(1, rows // 2000)
    return pa.table({"g": rng.integers(0, 50, rows), "v": rng.integers(0, 100, rows), "ts": ts})


def _seconds(work: Callable[[], object], guarded: bool) -> float:
    with sides(guarded):
        gc.collect()
        begin = time.process_time()
        work()
        return time.process_time() - begin


_GUARDS: tuple[tuple[Any, str, object], ...] = (
    (scalar_engine, "bounded", _unbounded),
    (scalar, "bounded", _unbounded),
    (types, "bounded", _unbounded),
    (expressions, "check_value_sizes", lambda tree, sizes: 1),
    (select_items, "check_value_sizes", lambda tree, sizes: 1),
    (row_limit.RowLimit, "check", lambda self, rows: None),
)
