"""Random cases through the compiled kernels, for a process with NUMBA_BOUNDSCHECK=1; see test_bounds.py.

Prints the kernels that were never called.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import tempfile
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from numba.core.registry import CPUDispatcher

import windrow
import windrow_bench.optimum
from windrow.sharing.synopses import SynopsisKind
from windrow.sources import tokens
from windrow.sources.plain_json import read_plain
from windrow.testing import assert_same, oracle, seeded_case

SHARED = """
SELECT k, SUM(x) AS s, COUNT(y) AS n FROM S [RANGE 40 SLIDE 2] WHERE x > 0.5 AND t <> 'b' GROUP BY k;
SELECT k, AVG(x) AS s, MIN(y) AS n FROM S [RANGE 6 SLIDE 4] WHERE x < 2 OR f GROUP BY k;
SELECT k, VARIANCE(y) AS s, MAX(x) AS n FROM S [RANGE 3 SLIDE 3] WHERE y IS NULL OR y > 1 GROUP BY k;
SELECT SUM(y) AS s, COUNT(DISTINCT t) AS n FROM S [RANGE 6 SLIDE 3] WHERE t >= 'a';
SELECT SUM(k) AS s, MEDIAN(x) AS n FROM S [RANGE 60 SLIDE 1] WHERE NOT f;
SELECT SUM(k) AS s, MIN(x) AS n FROM S [RANGE 8 SLIDE 4] WHERE x > 0.5;
SELECT SUM(y) AS s, MAX(x) AS n FROM S [RANGE 9 SLIDE 3] WHERE x > 0.25 OR t = 'a';
SELECT COUNT(*) AS s, MAX(k) AS n FROM S [RANGE 12 SLIDE 4] WHERE t = 'b';
"""
SHARED += ";".join(f"SELECT SUM(k) AS s FROM S [RANGE 8 SLIDE 8] WHERE x > {-c / 8}" for c in range(9))
NESTED = ";".join(
    f"SELECT SUM(y) AS s, MAX(x) AS m FROM S [RANGE {4 + c % 3 * 4} SLIDE 4] WHERE k = {c % 5} AND x > {c / 8}"
    for c in range(60)
)
PAIRED = ";".join(
    f"SELECT {keys}COUNT(*) AS n, SUM(b.x) AS s, MIN(a.x) AS m FROM S [RANGE {size} SLIDE {slide}] a, "
    f"T [RANGE {size} SLIDE {slide}] b WHERE a.k = b.k{more}"
    for size, slide in ((4, 2), (6, 3), (20, 2), (32, 4))
    for keys, more in (("", ""), ("", " AND a.x > 0.5"))
)
PAIRED += ";" + PAIRED.replace("SELECT ", "SELECT a.t, ").replace(";", " GROUP BY a.t;") + " GROUP BY a.t"
ALONE = """
SELECT TOP_K(k, 2) AS a, VARIANCE(k * 10000000000) AS b FROM S [RANGE 9];
SELECT [x, y] AS l, COUNT(*) AS n FROM S [RANGE 5 SLIDE 2] GROUP BY [x, y];
SELECT DISTINCT {a: k, b: t} AS d FROM S [ROWS 9];
SELECT l.x, r.y FROM S [RANGE 9] l ASOF LEFT JOIN S [RANGE 4] r ON l.k = r.k AND l.ts > r.ts;
SELECT a.t, SUM(b.x) AS s, COUNT(*) AS n FROM S [ROWS 9] a, S [RANGE 5] b WHERE a.k = b.k GROUP BY a.t;
"""
SELECTED = ";".join(
    f"SELECT k, SUM(y) AS s, AVG(x) AS m FROM S [RANGE 9] WHERE x > {c / 8} GROUP BY k HAVING COUNT(*) > {c % 3}"
    for c in range(12)
)
SELECTED += ";" + ";".join(
    f"SELECT k, SUM(y) AS s, AVG(x) AS m FROM S [RANGE {c % 5 + 1}] WHERE x > {c / 8} GROUP BY k" for c in range(12)
)
FIRST = """
SELECT k, x FROM S [RANGE 9] ORDER BY x DESC, k LIMIT 3;
SELECT k, COUNT(*) AS n, SUM(x) AS s, VARIANCE(y) AS v FROM SESSION(S PARTITION BY k, ts, 3)
GROUP BY k, window_start, window_end;
"""


def stream(rows: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    null = random.random((5, rows)) < 0.2
    columns = {
        "k": random.integers(0, 5, rows),
        "x": random.integers(-4, 9, rows) / 4,
        "y": np.ldexp(random.random(rows), random.integers(-900, 300, rows)),
        "t": np.array(["a", "b", "cc"])[random.integers(0, 3, rows)],
        "f": random.random(rows) < 0.5,
    }
    times = np.sort(random.integers(0, rows // 2, rows))
    return pa.table({"ts": times} | {n: pa.array(v, mask=null[i]) for i, (n, v) in enumerate(columns.items())})


def check(script: str, streams, tables, until, **way) -> None:  # type: ignore[no-untyped-def]
    want = oracle(script, streams, tables, until)
    got = windrow.run(script, streams, tables, runtime="local", until=until, **way)
    for name in want:
        assert_same(got[name], want[name])


def random_cases() -> None:
    for seed in range(120):
        strategy = ("upa", "negative", "direct")[seed % 3]
        check(*seeded_case(seed), batch_rows=(None, 3)[seed % 2], strategy=strategy)


def shared() -> None:
    for seed, rows in enumerate((30, 200)):
        for sharing, batch in (("auto", None), ("auto", 7), ("off", 50)):
            check(SHARED, {"S": stream(rows, seed)}, {}, None, sharing=sharing, batch_rows=batch)
            check(NESTED, {"S": stream(rows, seed)}, {}, None, sharing=sharing, batch_rows=batch)
    for batch in (None, 30):
        both = {"S": stream(120, 7), "T": stream(120, 8)}
        check(PAIRED, both, {}, None, sharing="shards", batch_rows=batch)


def other_ways() -> None:
    """What larger sets of queries would choose: boxes instead of cells, looking up instead of tables, each synopsis."""
    with patch.multiple("windrow.sharing.cells", RUNS_PER_BOX=-5000, DENSE=0, MOST_ADDITIONS=0):
        for script in (SHARED, NESTED):
            check(script, {"S": stream(60, 4)}, {}, None, sharing="shards", batch_rows=20)
    with patch.multiple("windrow.sharing.cells", DENSE=0, MOST_ADDITIONS=0):
        check(NESTED, {"S": stream(60, 4)}, {}, None, sharing="shards", batch_rows=20)
    sums = PAIRED.replace(", MIN(a.x) AS m", "")
    both = {"S": stream(60, 7), "T": stream(60, 8)}
    for kind, script in ((SynopsisKind.INTERVAL_JOIN, PAIRED), (SynopsisKind.RUNNING_JOIN, sums)):
        with patch("windrow.sharing.joins.synopsis.cheapest", lambda *_, kind=kind, **__: kind):
            check(script, both, {}, None, sharing="shards", batch_rows=20)


def alone() -> None:
    given = stream(200, 5)
    for batch in (None, 20):
        for script in (ALONE, SELECTED, FIRST):
            check(script, {"S": given}, {}, None, batch_rows=batch)
    stamped = given.set_column(0, "ts", given["ts"].cast(pa.timestamp("us")))
    check("SELECT AVG(ts) AS m FROM S [RANGE 9 US]", {"S": stamped}, {}, None)


def kept() -> None:
    """State that a home is given, and goes on with."""
    given = stream(60, 6)
    columns = "ts BIGINT, k BIGINT, x DOUBLE, y DOUBLE, t VARCHAR, f BOOLEAN"
    with tempfile.TemporaryDirectory() as home:
        for life in range(2):
            with windrow.Engine(runtime="local", home=home) as engine:
                if not life:
                    engine.execute(f"CREATE STREAM S ({columns}) TIMESTAMP BY ts")
                    for number, query in enumerate(SELECTED.split(";")):
                        engine.execute(f"CREATE QUERY q{number} AS {query}")
                engine.start()
                engine.push("S", given.slice(30 * life, 30))


def extremes() -> None:
    """Heads and piles: more values of one group than are kept at hand, taken back again."""
    rows = 9000
    given = {"S": pa.table({"ts": np.arange(rows), "v": np.random.default_rng(1).permutation(rows)})}
    windrow.run("SELECT MIN(v) AS m FROM S [ROWS 6000]", given, runtime="local", batch_rows=1500)


def shed() -> None:
    rows = stream(300, 3)
    for heuristic in ("SIMP", "SIMPPROB", "DIMPPROB", "DGL", "RANDOM", "FIFO"):
        query = f"SELECT r.x FROM r [RANGE 9], s [RANGE 9] WHERE r.k = s.k SHED BY {heuristic} KEEP 20 ROWS"
        windrow.run(query, {"r": rows, "s": rows}, runtime="local", batch_rows=40)


def offline() -> None:
    """The greatest answer that a memory allows, with and without facts."""
    streams = {n: stream(80, seed).select(["ts", "k"]).drop_null() for n, seed in (("r", 1), ("s", 2))}
    facts = pa.table({"k": [1, 2, 3, 3], "begin": [None, 3, 0, 9], "end": [20, None, 9, 30]})
    for relation in (facts, None):
        for divide in ("evenly", "need"):
            windrow_bench.optimum.optimal(streams, relation, lifetime=6, memory=6, divide=divide)


def plain_json() -> None:
    """Lines of JSON cut off anywhere, with any byte replaced, and each token by itself."""
    types = {"ts": pa.timestamp("us"), "z": pa.timestamp("us", "UTC"), "i": pa.int32(), "d": pa.float64(),
             "s": pa.string(), "b": pa.bool_(), "day": pa.date32()}  # fmt: skip
    whole = (
        b'{"ts":"2024-02-29T23:59:59.123456","z":"2024-01-01 00:00:00Z","i":-12,"d":1.25e-3,"s":"ab","b":false,'
        b'"day":"1969-12-31","x":null,"y":0.30000000000000004,"d2":"\xc3\xa9"}'
    )
    random = np.random.default_rng(1)
    for size in range(len(whole) + 1):
        line = bytearray(whole[:size])
        for change in (None, 10, 34, 48, 92, 125, 255):
            if change is not None and line:
                line[random.integers(len(line))] = change
            with contextlib.suppress(pa.ArrowInvalid):
                read_plain(bytes(line), types, list(types), [*types, "x"], "ts")
        data = np.frombuffer(whole[size:] + b"\n", np.uint8)
        for token in (tokens.space, tokens.truth, tokens.integer, tokens.double):
            token(data, 0)
        tokens.moment(data, 0, True, True), tokens.quoted(data, 0, 255), tokens.word(data, 0, 110, 117, 108, 108)


def never_called() -> list[str]:
    """The public kernels that no case calls, neither alone nor as parts of others, which come whole from the cache."""
    product = pkgutil.walk_packages(windrow.__path__, "windrow.")
    modules = [m for m in product if m.name.startswith(("windrow.operators", "windrow.sharing", "windrow.sources"))]
    modules += pkgutil.iter_modules(windrow_bench.optimum.__path__, "windrow_bench.optimum.")
    kernels = {
        f"{module.name}.{name}": value
        for module in modules
        for name, value in vars(importlib.import_module(module.name)).items()
        if isinstance(value, CPUDispatcher) and value.py_func.__module__ == module.name
    }
    called = [kernel for kernel in kernels.values() if kernel.signatures]
    reached = set(map(id, called))
    for kernel in called:  # grows
        parts = [kernel.py_func.__globals__.get(n) for n in kernel.py_func.__code__.co_names]
        for part in parts:
            if isinstance(part, CPUDispatcher) and id(part) not in reached:
                reached.add(id(part))
                called.append(part)
    return [
        name for name, kernel in kernels.items()
        if id(kernel) not in reached and not name.rpartition(".")[2].startswith("_")
    ]  # fmt: skip


if __name__ == "__main__":
    random_cases()
    shared()
    other_ways()
    alone()
    kept()
    offline()
    extremes()
    shed()
    plain_json()
    print(*never_called(), sep="\n")
