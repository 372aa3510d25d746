"""windrow in this process beside Esper: sliding aggregates from files to answers, and one row to its answer.

The queries are those of the workload C regular (`sharing_ends.py`); "seconds" is from handing over the queries to the
last answer, "plan s" Esper's compiler. A delay is that of handing over a row until its answer is there. All answers are
compared (`docs/results/peers.md`).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

import windrow
from windrow_bench.harness import Ratio
from windrow_bench.peers import Esper, Window, WindowJoin, write_streams
from windrow_bench.sharing_ends import Data, Row, different, queries


def in_process(data: Data, sizes: Sequence[int], seed: int) -> tuple[list[Row], list[Ratio]]:
    """Both engines at so many queries, and the delays of rows."""
    found: list[Row] = []
    ratios: list[Ratio] = []
    with tempfile.TemporaryDirectory(prefix="windrow-esper-") as place:
        files, esper = write_streams(place, {data.stream: data.rows}), Esper()
        for n in sizes:
            wanted = queries(data, "C regular", n, seed)
            script = ";\n".join(f"CREATE QUERY {q.name} AS {q.cql()}" for q in wanted)
            windrow.run(script, {data.stream: data.rows.slice(0, 1000)}, data.tables, runtime="local")  # as Esper's
            begin = time.perf_counter()
            ours = windrow.run(script, {data.stream: str(files / data.stream)}, data.tables, runtime="local")
            seconds = time.perf_counter() - begin
            theirs = esper.run(wanted, files, data.tables)
            different(ours, theirs.answers)
            case = {"workload": "C regular", "queries": n}
            found.append({"engine": "windrow in process", **case, "seconds": seconds})
            parts = {f"{k} s": v for k, v in theirs.parts.items()}
            found.append({"engine": esper.name, **case, "seconds": theirs.seconds, **parts})
            ratios.append(Ratio(f"C regular, {n} queries: Esper / windrow in process", theirs.seconds / seconds, None))
    return found + _delays(seed), ratios


def _delays(seed: int, rows: int = 1000) -> list[Row]:
    """A join of two windows, a row at a time: microseconds from handing over a row to having its answer."""
    rng, ts = np.random.default_rng(seed), np.arange(rows)
    streams = {n: pa.table({"ts": ts, "k": rng.integers(0, 50, rows), "id": ts}) for n in ("l", "r")}
    query = WindowJoin("joined", [Window(n, 100) for n in streams], "k", {"i": "l.id", "j": "r.id"}, ticks=True)
    with tempfile.TemporaryDirectory(prefix="windrow-esper-") as place:
        write_streams(place, streams)
        theirs = Esper().run([query], place)
    ours = []
    with windrow.Engine(runtime="local") as engine:
        engine.execute("".join(f"CREATE STREAM {n} (ts BIGINT, k BIGINT, id BIGINT) TIMESTAMP BY ts;" for n in streams))
        engine.execute(f"CREATE QUERY joined AS {query.cql()}")
        engine.start()
        pieces = [(n, t.slice(i, 1)) for i in range(rows) for n, t in streams.items()]
        for name, row in pieces:
            begin = time.perf_counter()
            engine.push(name, row)
            ours.append(1e6 * (time.perf_counter() - begin))
        engine.runtime.advance(rows)
        different({"joined": engine["joined"].results()}, theirs.answers)
    sides = {"windrow in process": ours, "Esper": theirs.about["delays_us"]}
    return [
        {"engine": name, "workload": "two windows, a row at a time", "queries": 1, "median us": float(np.median(d)),
         "99th us": float(np.percentile(d, 99))}
        for name, d in sides.items()
    ]  # fmt: skip
