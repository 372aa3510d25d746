"""Partial aggregation below exchanges: processor time and bytes between tasks, with rows reduced and without.

Tasks run in this process as they do on Spark: several partitions, all messages encoded. An aggregate with few groups
over a stream (COUNT, SUM, AVG; MAX), one with as many groups as rows, which is not worth reducing, and two over the
join of two streams by another key than they are grouped by. Bytes are those of all messages, answers included; the
answers with and without are compared.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from windrow.engine.replay import Replay
from windrow.runtime import exchange
from windrow.runtime.wire import pack
from windrow_bench import in_process
from windrow_bench.harness import CLOCKS, Ratio, Result, parser, progress, report
from windrow_bench.in_process import InProcessJob

SPAN, PARTITIONS, BATCH = 1000, 4, 50_000
JOINED = "FROM s [{window}] a, r [{window}] b WHERE a.j = b.j GROUP BY a.k"
CASES = {
    "stream, sums": (400_000, 20, 0, "SELECT k, COUNT(*) AS n, SUM(v) AS t, AVG(f) AS m FROM s [RANGE 60] GROUP BY k"),
    "stream, max": (400_000, 20, 0, "SELECT k, MAX(v) AS m FROM s [RANGE 60] GROUP BY k"),
    "stream, many groups": (400_000, 100_000, 0, "SELECT k, COUNT(*) AS n, SUM(v) AS t FROM s [RANGE 60] GROUP BY k"),
    "join, periodic": (
        100_000, 20, 200, "SELECT a.k, COUNT(*) AS n, SUM(a.v * b.v) AS t " + JOINED.format(window="RANGE 60 SLIDE 20")
    ),
    "join, continuous": (
        60_000, 20, 20, "SELECT a.k, COUNT(*) AS n, SUM(a.v * b.v) AS t " + JOINED.format(window="RANGE 30")
    ),
}  # fmt: skip
"""By name: rows, groups, keys of the join (0: there is none), and the query."""


def data(rows: int, groups: int, keys: int, span: int, seed: int) -> dict[str, pa.Table]:
    """A stream, and another of a quarter of its rows if they are joined."""
    rng = np.random.default_rng(seed)

    def stream(count: int) -> pa.Table:
        return pa.table({
            "k": rng.integers(0, groups, count), "j": rng.integers(0, max(keys, 1), count),
            "v": rng.integers(0, 1000, count), "f": rng.random(count), "ts": np.sort(rng.integers(0, span, count)),
        })  # fmt: skip

    return {"s": stream(rows), **({"r": stream(rows // 4)} if keys else {})}


def run(query: str, streams: dict[str, pa.Table], reducing: bool, now: Callable[[], float]) -> tuple[float, int, Any]:
    """Seconds, bytes of all messages, and the answer."""
    sent = 0

    def counted(*given: Any) -> Iterator[pa.RecordBatch]:
        nonlocal sent
        for batch in pack(*given):
            sent += batch.nbytes
            yield batch

    worth = exchange.worth_reducing if reducing else lambda *_: None
    with (
        tempfile.TemporaryDirectory(prefix="windrow-reduced-") as home,
        mock.patch.object(in_process, "pack", counted),
        mock.patch.object(exchange, "worth_reducing", worth),
    ):
        begin = now()
        (answer,) = Replay.of(query, streams, {}).in_home(home, InProcessJob(2), BATCH, partitions=PARTITIONS).values()
        return now() - begin, sent, answer


def measured(name: str, scale: float, repeat: int, seed: int, now: Callable[[], float]) -> dict[str, Any]:
    """One case, with and without in turns, each at its best."""
    rows, groups, keys, query = CASES[name]
    streams = data(int(rows * scale), groups, keys, int(SPAN * scale), seed)
    found = [run(query, streams, reducing, now) for _ in range(repeat) for reducing in (False, True)]
    without, reduced = min(found[::2], key=lambda f: f[0]), min(found[1::2], key=lambda f: f[0])
    order = [(c, "ascending") for c in reduced[2].column_names]
    if not reduced[2].sort_by(order).equals(without[2].sort_by(order)):
        raise SystemExit(f"the answers of {name} differ with rows reduced")
    return {
        "case": name, "rows": sum(t.num_rows for t in streams.values()), "groups": groups,
        "s": round(without[0], 3), "s reduced": round(reduced[0], 3),
        "MB": round(without[1] / 1e6, 2), "MB reduced": round(reduced[1] / 1e6, 2),
    }  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """Run the experiment."""
    options = parser("reduced", __doc__ or "").parse_args(list(argv))
    rows, scale = [], 0.02 if options.quick else 1.0
    with progress() as shown:
        task = shown.add_task("cases", total=len(CASES))
        for name in CASES:
            shown.update(task, description=name)
            rows.append(measured(name, scale, options.repeat, options.seed, CLOCKS[options.clock]))
            shown.advance(task)
    ratios = [Ratio(f"{r['case']}: bytes reduced / not", r["MB reduced"] / r["MB"], None) for r in rows]
    ratios += [Ratio(f"{r['case']}: time reduced / not", r["s reduced"] / r["s"], None) for r in rows]
    about = {"partitions": PARTITIONS, "rows a tick": BATCH, "clock": options.clock, "repetitions": options.repeat}
    return report(Result("reduced", " ".join((__doc__ or "").split()), options.seed, about, rows, ratios), options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
