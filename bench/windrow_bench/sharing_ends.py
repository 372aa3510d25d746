"""Hundreds of aggregate queries from files to answers on Spark, and on other engines over the same files.

The workloads of `windrow bench sharing` (A, B, C regular, C low sharing) as queries in text: query 4 of Krishnamurthy,
Wu and Franklin over trades, the closing prices and index memberships, or the same shape over the flows of a capture.
windrow runs them live: one stream of Parquet files, one Spark job per tick, shared (and, for few queries, not shared).
"seconds" is the time from handing over the script to the last answer, with parsing and planning; "replay" is
`windrow.run` over the same files, "local" the same without Spark. "registration" is the median of CREATE QUERY calls
while 1,000 run: between ticks, and while rows arrive and ticks follow one another. Structured Streaming runs one
streaming query for each; Flink SQL runs one statement set. The start of a session or cluster is in no figure. What an
engine fails at is continued from fewer queries, and says so. All answers are compared.
"""

from __future__ import annotations

import contextlib
import gc
import random
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import windrow
from windrow.errors import WindrowError
from windrow_bench.harness import Figure, Ratio, progress
from windrow_bench.peers import (
    SECOND,
    Flink,
    Lookup,
    Peer,
    SlidingAggregate,
    StructuredStreaming,
    compare,
    extrapolate,
    write_streams,
)

PEERS = ("structured", "flink")
TARGETS = {"structured": 50.0, "flink": 10.0}
MEMBERS = ("r3000", "r2000", "r1000")
Row = dict[str, Any]


@dataclass(frozen=True)
class Data:
    """A stream as a table, the static tables, what is summed, and the tests that predicates are made of."""

    stream: str
    rows: pa.Table
    tables: Mapping[str, pa.Table]
    total: str
    members: tuple[str, ...]
    values: Mapping[str, tuple[float, float]]  # expression -> range of its constants
    lookups: tuple[Lookup, ...] = ()

    def predicate(self, r: random.Random) -> str:
        """A membership, or not, and a value above or below a constant."""
        member = r.choice(self.members)
        value = r.choice(list(self.values))
        low, high = self.values[value]
        belongs = f"NOT ({member})" if r.random() < 0.5 else member
        return f"{belongs} AND {value} {r.choice('<>')} {r.uniform(low, high):.5f}"


def of_trades(tables: Mapping[str, pa.Table]) -> Data:
    """Query 4 over generated trades."""
    values = {"trades.vol": (50, 10_000), "trades.price * trades.vol": (500, 200_000),
              "abs(trades.price - close.cp) / close.cp": (0, 0.03)}  # fmt: skip
    lookups = (Lookup("close", {"symbol": "symbol"}), Lookup("membership", {"symbol": "symbol"}))
    held = {n: t for n, t in tables.items() if n != "trades"}
    members = tuple(f"membership.{m}" for m in MEMBERS)
    return Data("trades", tables["trades"], held, "trades.price * trades.vol", members, values, lookups)


def of_flows(path: Path) -> Data:
    """The same shape over a capture: protocols for memberships; packets, bytes and duration for values."""
    from pyarrow import csv

    wanted = ["StartTime", "Dur", "Proto", "TotPkts", "TotBytes"]
    typed = csv.ConvertOptions(include_columns=wanted, column_types={"StartTime": pa.string()})
    table = csv.read_csv(path, convert_options=typed)
    ts = pc.replace_substring(table["StartTime"], "/", "-").cast(pa.timestamp("us"))
    rows = pa.table({"ts": ts, "proto": table["Proto"], "pkts": table["TotPkts"], "bytes": table["TotBytes"],
                     "dur": table["Dur"]}).sort_by("ts").combine_chunks()  # fmt: skip
    members = tuple(f"flows.proto = '{p}'" for p in ("tcp", "udp", "icmp"))
    values = {"flows.pkts": (1.0, 60.0), "flows.bytes": (60.0, 20_000.0), "flows.dur": (0.0, 900.0)}
    return Data("flows", rows, {}, "flows.bytes * 1.0", members, values)


def queries(data: Data, name: str, n: int, seed: int) -> list[SlidingAggregate]:
    """The n queries of a workload."""
    r = random.Random(f"{name} {n} {seed}")

    def window() -> tuple[int, int]:
        return r.randint(600, 900) * SECOND, r.randint(300, 600) * SECOND

    tumbling = (600 * SECOND, 600 * SECOND)
    match name:
        case "A":
            made = [(window(), "") for _ in range(n)]
        case "B":
            made = [(tumbling, data.predicate(r)) for _ in range(n)]
        case "C regular":
            k = round(n**0.5)
            windows, tests = [window() for _ in range(k)], [data.predicate(r) for _ in range(k)]
            made = [(w, p) for p in tests for w in windows][:n]
        case _:
            made = [(window(), data.predicate(r)) for _ in range(n)]
    total = {"total": f"SUM({data.total})"}
    return [
        SlidingAggregate(f"q{i}", data.stream, *w, total, where, tables=data.lookups)
        for i, (w, where) in enumerate(made)
    ]


class Ends:
    """The files of a run, and the engines that read them."""

    def __init__(self, data: Data, place: Path, seed: int) -> None:
        from windrow.spark.session import session

        self.data, self.place, self.seed = data, place, seed
        self.files = write_streams(place / "rows", {data.stream: data.rows})
        ts = data.rows["ts"].cast(pa.int64())
        self.until = pc.max(ts).as_py()
        self._add_end()
        self.spark = session()

    def _add_end(self) -> None:
        """A directory for windrow: the same file, and a row a second later, so that time passes the last one."""
        import pyarrow.parquet as pq

        self.live = self.place / "live"
        self.live.mkdir()
        (found,) = (self.files / self.data.stream).glob("*.parquet")
        (self.live / "a.parquet").hardlink_to(found)
        schema = self.data.rows.schema
        late = {f.name: pa.nulls(1, f.type) for f in schema}
        late["ts"] = pa.array([self.until + SECOND], pa.timestamp("us"))
        pq.write_table(pa.table(late, schema=schema), self.live / "b.parquet")

    @contextlib.contextmanager
    def arriving(self, seconds: float = 0.2, rows: int = 1000) -> Iterator[None]:
        """A file of rows every so often, after all that there are, while the block runs."""
        import pyarrow.parquet as pq

        done = threading.Event()
        written: list[Path] = []
        at = self.data.rows.schema.get_field_index("ts")

        def write() -> None:
            while not done.wait(seconds):
                begin = self.until + (2 + len(written)) * SECOND
                ts = pa.array(begin + np.arange(rows), pa.timestamp("us"))
                path = self.live / f"c{len(written):05d}.parquet"
                pq.write_table(self.data.rows.slice(0, rows).set_column(at, "ts", ts), hidden := self.place / "next")
                written.append(hidden.rename(path))

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        try:
            yield
        finally:
            done.set()
            writer.join()
            for path in written:
                path.unlink()

    def script(self, wanted: Sequence[SlidingAggregate]) -> str:
        return ";\n".join(f"CREATE QUERY {q.name} AS {q.cql()}" for q in wanted)

    def declaration(self) -> str:
        """The stream of files, in windrow's language."""
        kinds = {"string": "VARCHAR", "double": "DOUBLE", "int64": "BIGINT", "timestamp[us]": "TIMESTAMP"}
        columns = ", ".join(f"{f.name} {kinds[str(f.type)]}" for f in self.data.rows.schema)
        return f"CREATE STREAM {self.data.stream} ({columns}) TIMESTAMP BY ts FROM parquet (path => '{self.live}')"

    def engine(self, sharing: str = "auto") -> windrow.Engine:
        """A live engine that knows the tables."""
        made = windrow.Engine(runtime="spark", spark=self.spark, sharing=sharing)
        for name, table in self.data.tables.items():
            made.table(name, table)
        return made

    def run_live(
        self, wanted: Sequence[SlidingAggregate], sharing: str = "auto"
    ) -> tuple[float, dict[str, pa.Table], dict[str, float]]:
        """Seconds, answers up to the last row, and milliseconds by phase of the ticks."""
        with self.engine(sharing) as engine:
            begin = time.perf_counter()
            engine.execute(self.declaration() + ";\n" + self.script(wanted))
            registered = time.perf_counter() - begin
            engine.start()
            engine.drain(600)
            seconds = time.perf_counter() - begin
            phases = {k: v for k, v in engine.status()["tick_ms"].items() if not k.startswith("task.")}
            until = pa.scalar(self.until, pa.timestamp("us"))
            tables = {q.name: engine[q.name].results() for q in wanted}
        answers = {n: t.filter(pc.less_equal(t["_ts"], until)) for n, t in tables.items()}
        return seconds, answers, {"register s": registered, **phases}

    def run_replay(self, wanted: Sequence[SlidingAggregate], runtime: str = "spark") -> tuple[float, Any]:
        """Seconds and answers of `windrow.run`."""
        begin = time.perf_counter()
        given = {self.data.stream: str(self.files / self.data.stream)}
        spark = self.spark if runtime == "spark" else None
        answers = windrow.run(self.script(wanted), given, self.data.tables, runtime=runtime, spark=spark)
        return time.perf_counter() - begin, answers


def different(ours: Mapping[str, pa.Table], theirs: Mapping[str, pa.Table]) -> int:
    """How many queries have other answers; a difference stops the run, because nothing else would count."""
    found = compare(ours, theirs)
    for name, said in found.items():
        raise AssertionError(f"{name}: {said}")
    return len(found)


def measure(
    data: Data, sizes: Sequence[int], workloads: Sequence[str], peers: Sequence[str], peer_sizes: Sequence[int],
    seed: int, repeat: int, apart: int,
) -> tuple[list[Row], list[Ratio], list[Figure]]:  # fmt: skip
    """windrow at all sizes, then each peer, over one set of files."""
    found: list[Row] = []
    largest = max(n for n in sizes if n <= 256)
    with tempfile.TemporaryDirectory(prefix="windrow-sharing-") as place, progress() as bar:
        task = bar.add_task("starting Spark")
        ends = Ends(data, Path(place), seed)
        ends.run_live(queries(data, "C regular", 4, 0))  # loads what every engine loads once
        ours: dict[int, float] = {}
        for name in workloads:
            for n in sizes:
                bar.update(task, description=f"windrow on Spark, {name}, {n} queries")
                row = _windrow(ends, name, n, seed, repeat)
                found.append(row)
                if name == "C regular":
                    ours[n] = row["seconds"]
        if apart:
            bar.update(task, description=f"windrow on Spark, not shared, {apart} queries")
            wanted = queries(data, "C regular", apart, seed)
            seconds, answers, _ = ends.run_live(wanted, "off")
            different(answers, ends.run_live(wanted)[1])
            found.append(
                {"engine": "windrow, sharing off", "workload": "C regular", "queries": apart, "seconds": seconds}
            )
        ratios: list[Ratio] = []
        if not peers and max(sizes) >= 1000:
            bar.update(task, description="registration on Spark")
            rows, ratios = _registration(ends, seed)
            found += rows
        for peer in peers:
            bar.update(task, description=f"{peer}")
            engine: Peer = StructuredStreaming(ends.spark) if peer == "structured" else Flink()
            rows = on_peer(ends, engine, sorted({*peer_sizes, largest}), seed)
            found += rows
            times = {r["queries"]: r["seconds"] for r in rows if "seconds" in r}
            theirs, how = times.get(largest), ""
            if theirs is None:
                low, high = sorted(times)[-2:]
                theirs, how = extrapolate(times, largest), f", continued from {low} and {high}"
                found.append({"engine": rows[0]["engine"] + " (continued)", "workload": "C regular",
                              "queries": largest, "seconds": theirs})  # fmt: skip
            label = f"C regular, {largest} queries: {rows[0]['engine']} / windrow{how}"
            ratios.append(Ratio(label, theirs / ours[largest], TARGETS[peer] if largest == 256 else None, True))
    return found, ratios, [_figure(found)]


def _windrow(ends: Ends, name: str, n: int, seed: int, repeat: int) -> Row:
    wanted = queries(ends.data, name, n, seed)
    best: Row = {}
    for _ in range(repeat if name == "C regular" else 1):
        seconds, answers, phases = ends.run_live(wanted)
        if not best or seconds < best["seconds"]:
            best = {"engine": "windrow", "workload": name, "queries": len(wanted), "seconds": seconds}
            best |= {"register s": phases["register s"], "job ms": phases.get("job")}
    if name == "C regular":
        best["replay s"], again = ends.run_replay(wanted)
        different(answers, again)
    best["local s"], local = ends.run_replay(wanted, "local")
    different(answers, local)
    return best


def _registration(ends: Ends, seed: int) -> tuple[list[Row], list[Ratio]]:
    """CREATE QUERY while 1,000 run: parsing, planning, joining, and the change made durable in the home.

    The median of 21 calls between ticks and, with rows arriving all the time, of 21 more: those share the processors
    with a tick's tasks, and may wait for the driver's part of a tick.
    """
    wanted = queries(ends.data, "C low sharing", 1062, seed)
    script = [f"CREATE QUERY {q.name} AS {q.cql()}" for q in wanted]
    with ends.engine() as engine:

        def create(texts: Sequence[str], pause: float) -> list[float]:
            took = []
            for text in texts:
                begin = time.perf_counter()
                engine.execute(text)
                took.append(time.perf_counter() - begin)
                time.sleep(pause)
            return sorted(took)

        engine.execute(ends.declaration() + ";\n" + ";\n".join(script[:1000]))
        engine.start()
        engine.drain(600)
        between = create(script[1000:1021], 1.0)
        with engine.runtime.declared.busy:  # between two ticks, which remember figures of their own
            gc.collect()
            tracemalloc.start()
            before, _ = tracemalloc.get_traced_memory()
            for text in script[1021:1041]:
                engine.execute(text)
            gc.collect()
            kb = (tracemalloc.get_traced_memory()[0] - before) / 20 / 1e3
            tracemalloc.stop()
        ticks = engine.status()["ticks"]
        with ends.arriving():
            during = create(script[1041:], 0.37)
        ticks = engine.status()["ticks"] - ticks
    found: list[Row] = [
        {"engine": "windrow", "workload": f"registration, {label}", "queries": 1000, "seconds": took[len(took) // 2],
         "longest s": took[-1], **more}
        for label, took, more in (("between ticks", between, {"join kB": kb}),
                                  ("rows arriving", during, {"ticks": ticks}))
    ]  # fmt: skip
    ms = between[len(between) // 2] * 1e3
    return found, [Ratio("CREATE QUERY on Spark, ms", ms, 20.0), Ratio("CREATE QUERY on Spark, kB", kb, 100.0)]


def on_peer(ends: Ends, engine: Peer, sizes: Sequence[int], seed: int) -> list[Row]:
    """Seconds at every size, small ones first; one that it fails at is the last, if two before it can be continued."""
    rows: list[Row] = []
    for n in sizes:
        wanted, case = queries(ends.data, "C regular", n, seed), {"workload": "C regular", "queries": n}
        try:
            result = engine.run(wanted, ends.files, ends.data.tables)
        except WindrowError as error:
            if len(rows) < 2:
                raise
            return [*rows, {"engine": f"{engine.name} (failed)", **case, "error": error.primary}]
        different(ends.run_live(wanted)[1], result.answers)
        parts = {f"{k} s": v for k, v in result.parts.items()}
        rows.append({"engine": engine.name, **case, "seconds": result.seconds, **parts})
    return rows


def _figure(rows: Sequence[Row]) -> Figure:
    lines: dict[str, list[tuple[float, float]]] = {}
    for r in rows:
        if r["workload"] == "C regular" and "seconds" in r:
            lines.setdefault(r["engine"], []).append((float(r["queries"]), float(r["seconds"])))
    return Figure("engines", "C regular from files to answers", "queries", "seconds", lines)


__all__ = ["PEERS", "Data", "Ends", "different", "measure", "of_flows", "of_trades", "on_peer", "queries"]
