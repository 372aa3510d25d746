"""The constructs of SQL at their own cost: ASOF JOIN, top-n per group, SESSION and HOP beside what computes them once.

    asof      2 x 500,000 rows, 1,000 keys                       beside DuckDB's ASOF JOIN over the same rows
    top-n     1 M rows, 1,000 groups, n = 10, as a change log    beside DuckDB's QUALIFY over the same rows once
    session   1 M rows, 10,000 keys                              beside one group_by of pyarrow
    hop       64 queries HOP over 200,000 rows                   beside 64 [RANGE .. SLIDE ..] of the same lengths

DuckDB and pyarrow have one thread. Both sides take turns and the best of several repetitions counts, after one that
compiles. Answers are compared: pairs, the last top-n, and the number of rows in sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import windrow
from windrow.scalar_engine import connect
from windrow_bench.harness import Ratio, Result, best_of, parser, progress, report

DECLARED = "CREATE STREAM {} (ts TIMESTAMP, k BIGINT, p DOUBLE) TIMESTAMP BY ts;"
ASOF = "SELECT t.k, t.ts AS at, t.p AS a, q.p AS b FROM t ASOF JOIN q ON t.k = q.k AND t.ts >= q.ts"
TOP = "SELECT k, p FROM t{} QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY p DESC) <= 10"
SESSION = "SELECT k, COUNT(*) AS n, SUM(p) AS s FROM SESSION(t PARTITION BY k, ts, '{gap} seconds') GROUP BY ALL"
TARGETS = {"asof": 4.0, "top-n": 4.0, "top-n, one hour": None, "session": 6.0, "hop": 1.2}
SPAN = 10_000  # seconds

Side = Callable[[], object]


def rows(count: int, keys: int, rng: np.random.Generator) -> pa.Table:
    """Rows of some keys over `SPAN`, in the order of time."""
    times = np.sort(rng.integers(0, SPAN * 1_000_000, count))
    values = {"k": rng.integers(0, keys, count), "p": rng.random(count)}
    return pa.table({"ts": pa.array(times).cast(pa.timestamp("us")), **values})


def ran(query: str, **streams: pa.Table) -> dict[str, pa.Table]:
    """Answers of the engine in this process."""
    declared = "".join(DECLARED.format(name) for name in streams)
    return dict(windrow.run(declared + query, streams, runtime="local"))


def asked(query: str, **tables: pa.Table) -> Side:
    """DuckDB over tables of its own, with one thread."""
    connection = connect()
    for name, table in tables.items():
        connection.register("given", table)
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
    return lambda: connection.sql(query).to_arrow_table()


def asof(size: int, rng: np.random.Generator) -> tuple[dict[str, Side], bool]:
    """Trades and quotes."""
    given = {"t": rows(size // 2, 1000, rng), "q": rows(size // 2, 1000, rng)}
    sides = {"windrow": lambda: ran(ASOF, **given)["q1"], "DuckDB": asked(ASOF, **given)}
    names = ("k", "at", "a", "b")
    mine, other = (side().select(names).sort_by([(n, "ascending") for n in names]) for side in sides.values())
    return sides, bool(mine.equals(other))


def top_n(size: int, rng: np.random.Generator, window: str = "") -> tuple[dict[str, Side], bool]:
    """The ten greatest values of each key, followed."""
    given = {"t": rows(size, 1000, rng)}
    sides = {"windrow": lambda: ran(TOP.format(window), **given)["q1"], "DuckDB": asked(TOP.format(""), **given)}
    log = sides["windrow"]()
    last = log.group_by(["k", "p"]).aggregate([("_op", "sum")])
    shown = last.filter(pc.greater(last["_op_sum"], 0)).select(["k", "p"])
    if window:
        return sides, True
    order = [("k", "ascending"), ("p", "ascending")]
    return sides, bool(shown.sort_by(order).equals(sides["DuckDB"]().sort_by(order)))


def session(size: int, rng: np.random.Generator) -> tuple[dict[str, Side], bool]:
    """Sessions with a gap of which some are longer, against one grouping by key."""
    given = {"t": rows(size, 10_000, rng)}
    text = SESSION.format(gap=min(1000, 150_000_000 // size))
    sums = [("p", "sum"), ("p", "count")]
    sides = {
        "windrow": lambda: ran(text, **given)["q1"],
        "pyarrow": lambda: given["t"].group_by("k", use_threads=False).aggregate(sums),
    }
    counted = pc.sum(sides["windrow"]()["n"]).as_py()
    return sides, 0 < counted <= size


def hop(size: int, rng: np.random.Generator) -> tuple[dict[str, Side], bool]:
    """Counts and sums over windows of 16 lengths and four slides."""
    given = {"t": rows(size, 100, rng)}
    shapes = [(60 * slide, 60 * slide * times) for slide in (1, 2, 3, 4) for times in range(1, 17)]
    made = "SELECT k, COUNT(*) AS n, SUM(p) AS s FROM {} GROUP BY k"
    hops = ";".join(made.format(f"HOP(t, ts, '{a} seconds', '{b} seconds')") for a, b in shapes)
    twins = ";".join(made.format(f"t [RANGE {b} SECONDS SLIDE {a} SECONDS]") for a, b in shapes)
    sides: dict[str, Side] = {"windrow": lambda: ran(hops, **given), "RANGE .. SLIDE": lambda: ran(twins, **given)}
    return sides, len(ran(hops, **given)) == len(ran(twins, **given)) == 64


CASES: Mapping[str, tuple[Callable[..., tuple[dict[str, Side], bool]], int, Mapping[str, Any]]] = {
    "asof": (asof, 1_000_000, {}),
    "top-n": (top_n, 1_000_000, {}),
    "top-n, one hour": (top_n, 1_000_000, {"window": " [RANGE 1 HOUR]"}),
    "session": (session, 1_000_000, {}),
    "hop": (hop, 200_000, {}),
}


def main(argv: Sequence[str]) -> int:
    """Run the experiment."""
    accepts = parser("sql", __doc__ or "")
    accepts.add_argument("--cases", nargs="+", choices=tuple(CASES), default=tuple(CASES), help="(default: all)")
    options = accepts.parse_args(list(argv))
    found, ratios, agreed = [], [], {}
    with progress() as shown:
        task = shown.add_task("cases", total=len(options.cases))
        for name in options.cases:
            shown.update(task, description=name)
            case, size, more = CASES[name]
            size = size // 100 if options.quick else size
            sides, agreed[name] = case(size, np.random.default_rng(options.seed), **more)
            best = best_of(options.repeat, sides, options.clock)
            (_, mine), (other, theirs) = best.items()
            found.append({"case": name, "rows": size, "windrow s": mine, "beside": other, "beside s": theirs})
            ratios.append(Ratio(f"{name}: windrow to {other}", mine / theirs, TARGETS[name]))
            shown.advance(task)
    parameters = {"clock": options.clock, "repetitions": options.repeat, "answers agree": all(agreed.values())}
    about = (__doc__ or "").splitlines()[0]
    return report(Result("sql", about, options.seed, parameters, found, ratios), options)
