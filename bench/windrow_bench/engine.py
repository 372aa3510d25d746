"""What the in-process engine costs against doing the same work at once: pyarrow, DuckDB on one thread, and itself.

Each line compares two sides measured in one run, in turns, at their best. windrow's side is all of
`windrow.run(runtime="local")`: parsing, batches and the answer as a table. DuckDB's is one query that computes all
results to Arrow on one thread. Times of single advances are the median of many.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import windrow
from windrow.operators.delta_star import DeltaStar
from windrow.operators.join import JoinOperator
from windrow.operators.protocol import Operator
from windrow.plan.dataflow import Circuit
from windrow_bench.drive import advance, planned
from windrow_bench.harness import Ratio, Result, best_of, parser, progress, report

MINUTE_US = 60_000_000
SCRIPT = "CREATE STREAM s (g BIGINT, v DOUBLE, ts BIGINT); SELECT g, SUM(v) AS total FROM s [RANGE 10] GROUP BY g"


@dataclass
class Bench:
    """Sizes, and what was found so far."""

    rows: int
    seed: int
    repeat: int
    clock: str = "wall"
    found: list[dict[str, Any]] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)

    @property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    def compare(
        self,
        what: str,
        target: float | None,
        ours: Callable[[], object],
        theirs: Callable[[], object],
        least: bool = False,
    ) -> None:
        """Time both sides; the ratio is ours over theirs, or theirs over ours when it should be at least the target."""
        best = best_of(self.repeat, {"ours": ours, "theirs": theirs}, self.clock)
        ratio = best["theirs"] / best["ours"] if least else best["ours"] / best["theirs"]
        self.note(what, ratio, target, least, seconds=best["ours"], reference_seconds=best["theirs"])

    def note(self, what: str, value: float, target: float | None, least: bool = False, **more: Any) -> None:
        """Keep a measured value and its target."""
        self.found.append({"what": what, **more, "value": value})
        self.ratios.append(Ratio(what, value, target, least))


def run(script: str, streams: Mapping[str, pa.Table], batches: int) -> Callable[[], object]:
    """windrow's side: the whole replay in so many batches."""
    rows = sum(t.num_rows for t in streams.values())
    return lambda: windrow.run(script, streams, runtime="local", batch_rows=max(1, rows // batches))


def query(sql: str, **tables: pa.Table) -> Callable[[], object]:
    """DuckDB's side: one query on one thread, to Arrow."""
    connection = duckdb.connect(":memory:", config={"threads": 1})
    for name, table in tables.items():
        connection.register(name, table)
    return lambda: connection.sql(sql).to_arrow_table()


# -- the lines -------------------------------------------------------------------------------------------------------


def periodic_sums(bench: Bench) -> None:
    """A sliding sum by group against one group_by by minute and group."""
    rng, minutes = bench.rng, 100
    ts = np.sort(rng.integers(0, minutes * MINUTE_US, bench.rows))
    g = rng.integers(0, 1000, bench.rows)
    for type_, v in (("double", rng.random(bench.rows)), ("bigint", rng.integers(0, 1000, bench.rows))):
        stream = {"s": pa.table({"ts": pa.array(ts, pa.timestamp("us")), "g": g, "v": v})}
        panes = pa.table({"minute": ts // MINUTE_US, "g": g, "v": v})

        def once(panes: pa.Table = panes) -> object:
            return panes.group_by(["minute", "g"], use_threads=False).aggregate([("v", "sum")])

        script = "SELECT g, SUM(v) AS total FROM s [RANGE 10 MINUTES SLIDE 1 MINUTE] GROUP BY g"
        for batches, target in ((100, 10.0), (10, 4.0)):
            name = f"periodic SUM({type_}), {batches} batches / pyarrow group_by"
            bench.compare(name, target, run(script, stream, batches), once)
        fine, coarse = (script.replace("SLIDE 1 MINUTE", f"SLIDE {slide}") for slide in ("5 SECONDS", "10 MINUTES"))
        name = f"throughput of SUM({type_}) at SLIDE = RANGE/120 / at SLIDE = RANGE"
        bench.compare(name, 0.8, run(fine, stream, 100), run(coarse, stream, 100), least=True)


def window_join(bench: Bench) -> None:
    """A two-way join with about as many results as rows."""
    rng, n = bench.rng, bench.rows // 2
    size = keys = max(1, n // 10)  # each row meets 2 size / keys of the other stream
    a, b = ({"ts": np.arange(n), "k": rng.integers(0, keys, n), "v": rng.random(n)} for _ in range(2))
    streams = {"a": pa.table(a), "b": pa.table(b)}
    theirs = query(
        "SELECT a.ts, a.k, a.v, b.ts AS ts2, b.v AS v2 FROM a JOIN b "
        f"ON a.k = b.k AND a.ts < b.ts + {size} AND b.ts < a.ts + {size}",
        **streams,
    )
    items = "a.ts AS ts1, a.k, a.v, b.ts AS ts2, b.v AS v2"
    source = f"FROM a [RANGE {size}], b [RANGE {size}] WHERE a.k = b.k"
    appended = run(f"SELECT ISTREAM({items}) {source}", streams, 100)
    bench.compare("window join (ISTREAM), 100 batches / DuckDB", 4.0, appended, theirs)
    # beside it: twice the rows, and rows whose ends must be waited for
    log = run(f"SELECT {items} {source}", streams, 100)
    bench.compare("window join (change log, rows and their ends), 100 batches / DuckDB", 3.0, log, theirs)
    undated = run(f"SELECT ISTREAM(a.k, a.v, b.v AS v2) {source}", streams, 100)
    bench.compare("window join (ISTREAM of rows without their times), 100 batches / DuckDB", 3.0, undated, theirs)


def continuous_aggregates(bench: Bench) -> None:
    """Aggregates by group as a change log against a RANGE window function."""
    rng, n = bench.rng, bench.rows
    size = max(1, n // 10)
    table = pa.table({"ts": np.arange(n), "g": rng.integers(0, 1000, n), "v": rng.random(n)})
    for kinds, target in ((("SUM", "COUNT", "AVG"), 4.0), (("MIN", "MAX"), 8.0)):
        over = ", ".join(f"{k}(v) OVER w AS {k.lower()}_v" for k in kinds)
        frame = f"PARTITION BY g ORDER BY ts RANGE BETWEEN {size - 1} PRECEDING AND CURRENT ROW"
        theirs = query(f"SELECT ts, g, {over} FROM s WINDOW w AS ({frame})", s=table)
        items = ", ".join(f"{k}(v) AS {k.lower()}_v" for k in kinds)
        ours = run(f"SELECT g, {items} FROM s [RANGE {size}] GROUP BY g", {"s": table}, 10)
        bench.compare(f"continuous {'/'.join(kinds)} as a change log / DuckDB RANGE window", target, ours, theirs)


def standing_still(bench: Bench) -> None:
    """Advance full windows from which nothing expires, and weigh them."""
    rng, n = bench.rng, bench.rows
    half = n // 2
    left, right = ({"ts": np.arange(half), "k": rng.permutation(half), "v": rng.random(half)} for _ in range(2))
    one = {"ts": np.arange(n), "k": rng.permutation(n), "v": rng.random(n)}
    pair = {"a": pa.table(left), "b": pa.table(right)}
    single = {"s": pa.table(one)}
    window = f"[RANGE {100 * n}]"
    joined = f"SELECT a.k, a.v, b.v AS v2 FROM a {window}, b {window} WHERE a.k = b.k AND a.v < b.v - 0.9"
    texts = {
        "join": (joined, pair, 1),
        "fifo": (f"SELECT * FROM s {window}", single, 1),
        "calendar": (f"SELECT * FROM s {window} UNION ALL SELECT * FROM s [RANGE {50 * n}]", single, 2),
        "delta-star": (f"SELECT DISTINCT k, v FROM s {window}", single, 1),
        "aggregate": (f"SELECT k % 1000 AS g, SUM(v) AS total FROM s {window} GROUP BY k % 1000", single, 1),
    }
    for name, (text, streams, copies) in texts.items():
        circuit = Circuit(planned(text, streams), {}, {})
        circuit.start(0)
        for begin in range(0, n, max(1, n // 20)):
            advance(circuit, streams, begin, begin + max(1, n // 20))
        at, times = n, []
        for _ in range(20):
            started = time.perf_counter()
            advance(circuit, streams, at, at + 1)
            times.append(time.perf_counter() - started)
            at += 1
        live = copies * sum(table.nbytes for table in streams.values())
        kept = sum(_weight(s.operator) for s in circuit.flow.steps if s.operator is not None)
        milliseconds = 1000 * statistics.median(times)
        bench.note(f"ms per advance that expires nothing of {n:,} rows: {name}", milliseconds, 30.0)
        bench.note(f"state bytes / live rows' Arrow bytes: {name}", kept / live, 3.0, state_bytes=kept, live_bytes=live)


def _weight(operator: Operator) -> int:
    """Bytes that an operator holds: what it would write, and for a join the index over it."""
    if isinstance(operator, JoinOperator):
        return operator.nbytes
    return sum(r.nbytes for runs in operator.state().values() for r in runs)


def delta_star(bench: Bench) -> None:
    """Count what duplicate elimination keeps when every value comes four times."""
    n = bench.rows
    values = max(1, n // 4)
    streams = {"s": pa.table({"ts": np.arange(n), "k": bench.rng.permutation(n) % values})}
    circuit = Circuit(planned(f"SELECT DISTINCT k FROM s [RANGE {n}]", streams), {}, {})
    circuit.start(0)
    advance(circuit, streams, 0, n)
    (operator,) = (s.operator for s in circuit.flow.steps if isinstance(s.operator, DeltaStar))
    bench.note("delta-star ends kept / rows of its output", operator.size / values, 2.0)


def starting(bench: Bench) -> None:
    """Import, and explain a small script, each in a process of its own."""
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory) / "small.cql"
        script.write_text(SCRIPT, encoding="utf-8")
        explain = f"import sys; from windrow.cli import main; sys.exit(main(['explain', {str(script)!r}]))"
        empty = _process("pass")
        sides = {"empty": empty, "import": _process("import windrow"), "explain": _process(explain)}
        best = best_of(bench.repeat + 2, sides, "wall" if bench.clock == "wall" else "children")
    for what, target in (("import", 0.5), ("explain", 1.5)):
        name = {"import": "seconds of import windrow", "explain": "seconds of windrow explain, small script"}[what]
        bench.note(name, best[what] - (best["empty"] if what == "import" else 0.0), target, seconds=best[what])


def _process(code: str) -> Callable[[], object]:
    source = str(Path(windrow.__file__).parents[1])
    path = f"import sys; sys.path.insert(0, {source!r}); "
    return lambda: subprocess.run([sys.executable, "-c", path + code], check=True, capture_output=True)


LINES = {
    "periodic": periodic_sums,
    "join": window_join,
    "continuous": continuous_aggregates,
    "still": standing_still,
    "delta-star": delta_star,
    "start": starting,
}


def main(argv: Sequence[str]) -> int:
    """Run the experiment."""
    accepts = parser("engine", __doc__ or "")
    accepts.add_argument("--rows", type=int, help="rows of each line (default: 1,000,000; 20,000 when quick)")
    accepts.add_argument("--lines", nargs="+", choices=LINES, default=list(LINES), help="only these")
    options = accepts.parse_args(list(argv))
    bench = Bench(options.rows or (20_000 if options.quick else 1_000_000), options.seed, options.repeat, options.clock)
    with progress() as shown:
        task = shown.add_task("", total=None)
        for name in options.lines:
            shown.update(task, description=name)
            LINES[name](bench)
    parameters = {"rows": bench.rows, "repetitions": bench.repeat, "clock": bench.clock}
    about = " ".join((__doc__ or "").split())
    return report(Result("engine", about, bench.seed, parameters, bench.found, bench.ratios), options)
