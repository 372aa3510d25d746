"""Hundreds of aggregate queries over one stream, shared and not: the workloads of Krishnamurthy, Wu and Franklin
(section 6).

One hour of trades (half of the volumes equal, few distinct ones, Zipf symbols, closing prices, membership in three
indexes), or the flows of a CTU-13 capture with --data. Queries sum the value of trades: (A) in windows of 600 to 900
seconds that slide by 300 to 600; (B) in one tumbling window, each for its own membership and value predicate; (C)
both, with sqrt(n) predicates and sqrt(n) windows (regular) or all different (low sharing).

Kernel times: rows are joined and their attributes computed beforehand, on both sides, as in the paper. "circuit" is
the unshared dataflow of windrow (selection, window, periodic aggregate); "paired" and "paned" are one family per
query, the paper's unshared slices. The ratios take the faster of the unshared sides. Final aggregations are counted
as the paper counts them. All are the mean over `--sets` sets of queries, ten as in the paper; aggregations of 1,000
queries, which the paper has not, are counted for the first set. "counters" holds those of running operators against its
formulas (`sharing_counters`).
"""

from __future__ import annotations

import gc
import random
import time
import tracemalloc
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import windrow
from windrow.engine.replay import BATCH_ROWS, Replay
from windrow.errors import SourceError
from windrow.operators.aggregates import Aggregation
from windrow.operators.elements import INF, Elements, Int64s
from windrow.operators.grid_aggregate import GridAggregate
from windrow.operators.linear import Formula, SelectOperator
from windrow.operators.quantise import QuantiseOperator, round_up
from windrow.operators.window import RangeWindow
from windrow.plan.expr import Comparison, Constant, Expr, Not, Ref, column
from windrow.runtime.job import LocalJob
from windrow.scalar_engine import quote
from windrow.sharing.conditions import condition
from windrow.sharing.family import Family, Kind, Member
from windrow.sharing.query_group import parts
from windrow.sharing.windows import PAIRED, PANED, SlideWindow, edges_between
from windrow.store.store import MemoryStore
from windrow_bench import sharing_counters, sharing_esper
from windrow_bench import sharing_ends as ends
from windrow_bench.harness import CLOCKS, Figure, Ratio, Result, best_of, parser, progress, report
from windrow_bench.sharing_costs import count_fragments, count_slices

SECOND = 1_000_000
NOON = 12 * 3600 * SECOND
TARGETS = {"A": 19.0, "B": 9.0, "C regular": 8.5, "C low sharing": 4.0}
USUAL = (16, 32, 64, 128, 256, 1000)
SIZES = {"C regular": (16, 36, 64, 144, 256, 1000)}
"""Queries of a set: the paper's sizes, and one that it has not."""
FIGURES = {"A": "13", "B": "14", "C regular": "15", "C low sharing": "16"}
MEMBERS = ("r3000", "r2000", "r1000")
VALUES = ("vol", "value", "change")

Row = Mapping[str, Any]


# -- data ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """FamilyMember rows in time order: memberships (booleans), the tested values, and `value`, which is summed."""

    ts: Int64s
    columns: dict[str, pa.Array]

    def __len__(self) -> int:
        return len(self.ts)

    @cached_property
    def spread(self) -> dict[str, tuple[float, float]]:
        """The range of each tested value, without the outermost fiftieths."""
        ends = {n: pc.quantile(self.columns[n], [0.02, 0.98]).to_pylist() for n in VALUES}
        return {n: (float(low), float(high)) for n, (low, high) in ends.items()}


def market(rows: int, seed: int, symbols: int = 5000) -> dict[str, pa.Table]:
    """One hour of trades from noon, with the tables `close` and `membership`."""
    rng = np.random.default_rng(seed)
    ts = np.sort(rng.integers(NOON, NOON + 3600 * SECOND, rows))
    symbol = rng.zipf(1.2, rows) % symbols
    base = np.round(rng.lognormal(3, 0.8, symbols) + 1, 2)
    price = np.round(base[symbol] * (1 + rng.normal(0, 0.01, rows)), 2)
    vol = np.where(rng.random(rows) < 0.5, 100, rng.choice([200, 300, 400, 500, 1000, 2000, 5000, 10_000], rows))
    names = pa.array([f"S{k:04d}" for k in range(symbols)])
    trades = pa.table(
        {"ts": pa.array(ts, pa.timestamp("us")), "symbol": names.take(pa.array(symbol)), "price": price, "vol": vol}
    )
    rank = rng.permutation(symbols)
    within = {m: rank < share * symbols for m, share in zip(MEMBERS, (0.9, 0.6, 0.3), strict=True)}
    return {
        "trades": trades,
        "close": pa.table({"symbol": names, "cp": base}),
        "membership": pa.table({"symbol": names, **within}),
    }


def joined(tables: Mapping[str, pa.Table]) -> Rows:
    """Trades with their symbol's tables, and the attributes that predicates test."""
    trades = tables["trades"]
    at = pc.index_in(trades["symbol"], tables["close"]["symbol"]).combine_chunks()
    cp = tables["close"]["cp"].take(at).to_numpy()
    price, vol = trades["price"].to_numpy(), trades["vol"].to_numpy()
    columns = {m: tables["membership"][m].take(at).combine_chunks() for m in MEMBERS}
    computed = {"vol": vol, "value": price * vol, "change": np.abs(price - cp) / cp}
    columns |= {n: pa.array(v) for n, v in computed.items()}
    return Rows(trades["ts"].cast(pa.int64()).to_numpy(), columns)


def flows(path: Path) -> Rows:
    """A capture's flows: protocols for memberships, packets, bytes and duration for values; bytes are summed."""
    from pyarrow import csv

    wanted = ["StartTime", "Dur", "Proto", "TotPkts", "TotBytes"]
    table = csv.read_csv(
        path, convert_options=csv.ConvertOptions(include_columns=wanted, column_types={"StartTime": pa.string()})
    )
    stamps = pc.replace_substring(table["StartTime"], "/", "-").cast(pa.timestamp("us"))
    table = table.append_column("ts", stamps.cast(pa.int64())).sort_by("ts").combine_chunks()
    columns = {
        m: pc.equal(table["Proto"], p).combine_chunks() for m, p in zip(MEMBERS, ("tcp", "udp", "icmp"), strict=True)
    }
    columns |= {"vol": table["TotPkts"].combine_chunks(), "change": table["Dur"].combine_chunks()}
    columns["value"] = table["TotBytes"].cast(pa.float64()).combine_chunks()
    return Rows(table["ts"].to_numpy(), columns)


# -- queries ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Query:
    """A window and the conjuncts of a predicate."""

    window: SlideWindow
    tests: tuple[Expr, ...] = ()


def window(r: random.Random) -> SlideWindow:
    """Range 600 to 900 seconds, slide 300 to 600."""
    return SlideWindow(r.randint(600, 900) * SECOND, r.randint(300, 600) * SECOND)


def tests(r: random.Random, rows: Rows) -> tuple[Expr, ...]:
    """A membership, or not, and a value above or below a constant from its range."""
    member, name = r.choice(MEMBERS), r.choice(VALUES)
    low, high = rows.spread[name]
    constant = (
        f"{r.randint(int(low), max(int(high), int(low) + 500))}" if name == "vol" else f"{r.uniform(low, high):.6f}"
    )
    flag = column(member, pa.bool_())
    is_one = Comparison(flag, flag, "=", Constant(True, pa.bool_()))
    belongs = replace(flag, predicate=is_one)
    if r.random() < 0.5:
        belongs = Expr(("(NOT ", Ref(member), ")"), pa.bool_(), predicate=Not((is_one,)))
    left, operator = column(name, rows.columns[name].type), r.choice("<>")
    test = Expr(("(", Ref(name), f" {operator} {constant})"), pa.bool_())
    value = Decimal(constant)
    known = Constant(int(value) if value == int(value) else value, pa.decimal128(18, 6))
    return belongs, replace(test, predicate=Comparison(test, left, operator, known))


def workload(name: str, n: int, rows: Rows, seed: int) -> list[Query]:
    """The n queries of a workload."""
    r = random.Random(f"{name} {n} {seed}")
    tumbling = SlideWindow(600 * SECOND, 600 * SECOND)
    match name:
        case "A":
            return [Query(window(r)) for _ in range(n)]
        case "B":
            return [Query(tumbling, tests(r, rows)) for _ in range(n)]
        case "C regular":
            k = round(n**0.5)
            windows, predicates = [window(r) for _ in range(k)], [tests(r, rows) for _ in range(k)]
            return [Query(w, p) for p in predicates for w in windows][:n]
    return [Query(window(r), tests(r, rows)) for _ in range(n)]


SUM = Aggregation("sum", '"value"', "total", pa.float64())


def member(number: int, query: Query) -> Member:
    """The query as a family takes it."""
    whole = condition(query.tests)
    formulas = {a.sql: Formula(a.sql, a.type, a.reads, a.reads[0]) for a in whole.attributes.values()}
    formulas['"value"'] = Formula('"value"', pa.float64(), ("value",), "value")
    return Member(f"q{number}", query.window, whole, Kind.of((), (SUM,), formulas))


# -- the two sides ---------------------------------------------------------------------------------------------------


class Bench:
    """Rows, and the ways to answer queries over them."""

    def __init__(self, rows: Rows, clock: str) -> None:
        self.rows, self.now = rows, CLOCKS[clock]
        self.types = {n: c.type for n, c in rows.columns.items()}
        self.end = int(rows.ts[-1])

    def members(self, queries: Sequence[Query]) -> list[Member]:
        return [member(i, q) for i, q in enumerate(queries)]

    def shared(self, members: Sequence[Member], slicing: str = PAIRED) -> tuple[dict[str, Elements], Family, float]:
        """All queries in one family: answers, the family, and the seconds of final aggregation."""
        family = Family(technique=slicing)
        for m in members:
            family.join(m)
        family.take(self.rows.ts, self.rows.columns)
        begin = self.now()
        answers = family.finish(self.end)
        return parts(answers), family, self.now() - begin

    def apart(self, members: Sequence[Member], slicing: str = PAIRED) -> dict[str, Elements]:
        """Every query in a family of its own."""
        found: dict[str, Elements] = {}
        for m in members:
            found |= self.shared([m], slicing)[0]
        return found

    def circuits(self, queries: Sequence[Query]) -> dict[str, Elements]:
        """Every query by windrow's unshared operators."""
        return {f"q{i}": self.circuit(q) for i, q in enumerate(queries)}

    def circuit(self, query: Query) -> Elements:
        rows = Elements.positive(self.rows.ts, INF, {**self.rows.columns, '"value"': self.rows.columns["value"]})
        if query.tests:
            rows = SelectOperator([Formula(e.sql(), e.type, tuple(e.columns)) for e in query.tests]).advance(
                [rows], self.end
            )
        rows = rows.with_columns({'"value"': rows.columns["value"]})
        slide = query.window.slide
        rows = QuantiseOperator(slide).advance([RangeWindow(query.window.range).advance([rows], self.end)], self.end)
        aggregate = GridAggregate((), [SUM], {'"value"': pa.float64()}, slide)
        aggregate.start(int(round_up(self.rows.ts[:1], slide)[0]))
        return aggregate.advance([rows], self.end)

    def counters(self, name: str, queries: Sequence[Query], slicing: str = PAIRED) -> dict[str, int]:
        """Partial and final aggregations of the shared and the unshared plan, as the paper counts them."""
        windows = [q.window for q in queries]
        begin, n = int(self.rows.ts[0]) - 1, len(self.rows)
        if name == "A":
            shared = count_slices(windows, begin, self.end, True, slicing)
            apart = count_slices(windows, begin, self.end, False, slicing)
            return {
                "shared partial": n,
                "shared final": shared,
                "unshared partial": len(queries) * n,
                "unshared final": apart,
            }
        edges = edges_between(windows, begin, self.end, slicing)
        first = np.concatenate(([0], np.searchsorted(self.rows.ts, edges, "right"), [n])).astype(np.int64)
        plain = {quote(c): a for c, a in self.rows.columns.items()}
        found = count_fragments([condition(q.tests) for q in queries], plain, n, first)
        return {
            "shared partial": found.rows, "shared final": found.fragment_queries,
            "unshared partial": found.row_queries,
            "unshared final": count_slices(windows, begin, self.end, False, slicing),
        }  # fmt: skip

    def compared(self, seed: int) -> list[sharing_counters.Counted]:
        """Aggregations of running operators beside the paper's formulas; predicates are those of workload B."""
        queries = workload("B", 64, self.rows, seed)
        tests = [(condition(q.tests), [e.sql() for e in q.tests]) for q in queries]
        return sharing_counters.compared(50_000, self.rows.columns, self.rows.ts, tests, seed)


def check(got: Mapping[str, Elements], want: Mapping[str, Elements]) -> None:
    """Both sides answered the same."""
    for name, elements in want.items():
        same = got[name].ts.tolist() == elements.ts.tolist()
        if not (same and got[name].columns["total"].equals(elements.columns["total"])):
            raise AssertionError(f"shared and unshared answers of {name} differ")


# -- experiments -----------------------------------------------------------------------------------------------------


def measure(bench: Bench, name: str, n: int, seed: int, repeat: int, clock: str, apart: bool, counted: bool) -> Row:
    """One workload at one size; `apart`: unshared, too; `counted`: with aggregations, as the paper counts them."""
    queries = workload(name, n, bench.rows, seed)
    members = bench.members(queries)
    answers, family, final = bench.shared(members)
    sides: dict[str, Callable[[], object]] = {"shared paired": partial(bench.shared, members)}
    if name == "A":
        sides["shared paned"] = partial(bench.shared, members, PANED)
    best = best_of(repeat, sides, clock)
    if apart:
        check(answers, bench.circuits(queries[:8]))
        slow: dict[str, Callable[[], object]] = {
            "unshared circuit": partial(bench.circuits, queries), "unshared paired": partial(bench.apart, members)
        }  # fmt: skip
        if name == "A":
            slow["unshared paned"] = partial(bench.apart, members, PANED)
        best |= best_of(1, slow, clock)
    row: dict[str, Any] = {"workload": name, "queries": len(queries), **{f"{k} s": v for k, v in best.items()}}
    row |= {"final s": final, "plots": len(family.index.spaces), "cells": sum(p.cells for p in family.index.spaces)}
    row["partials"] = family.counters.partials
    row |= bench.counters(name, queries) if counted else {}
    if name == "A" and counted:
        row["shared paned final"] = bench.counters(name, queries, PANED)["shared final"]
    if apart:
        row["ratio"] = min(v for k, v in best.items() if k.startswith("unshared")) / best["shared paired"]
    return row


def averaged(rows: Sequence[Row]) -> Row:
    """The mean of several query sets of one workload and size, as the paper takes it; ratios are those of the means.

    What only some of the sets have, the first among them, is the mean over those.

    >>> a_set = {"workload": "A", "queries": 2, "shared paired s": 1.0}
    >>> averaged([{**a_set, "shared final": 6}, a_set])["shared final"]
    6.0
    >>> averaged([{"workload": "A", "queries": 2, "shared paired s": s, "unshared paired s": 4.0} for s in (1.0, 3.0)])[
    ...     "shared paired s"
    ... ]
    2.0
    """
    first, *_ = rows
    found: dict[str, Any] = {k: first[k] for k in ("workload", "queries")} | {"sets": len(rows)}
    for k in (k for k in first if k not in ("workload", "queries", "ratio")):
        having = [float(r[k]) for r in rows if k in r]
        found[k] = sum(having) / len(having)
    slow = [v for k, v in found.items() if k.startswith("unshared") and k.endswith(" s")]
    if slow:
        found["ratio"] = min(slow) / found["shared paired s"]
    return found


class Pipe:
    """Queries over the joined stream, from rows to answers: what the local runtime does between two frontiers."""

    def __init__(self, tables: Mapping[str, pa.Table], queries: Sequence[str]) -> None:
        script = ";".join(f"CREATE QUERY q{i} AS {text}" for i, text in enumerate(queries))
        held = {n: t for n, t in tables.items() if n != "trades"}
        self.replay = Replay.of(script, {"trades": tables["trades"]}, held)
        self.plans = list(self.replay.catalog.queries.values())

    def run(self, now: Callable[[], float]) -> float:
        """Seconds from the first row to the last answer; registering is not counted."""
        job = LocalJob()
        ticker = self.replay.registered(job, MemoryStore(), "upa", sharing="shards")
        assert len(ticker.sharing.served) == len(self.plans)
        begin = now()
        answers = self.replay.play(ticker, job, BATCH_ROWS["local"])
        assert all(answers[p.name].num_rows for p in self.plans)
        return now() - begin


def sql(window_: SlideWindow, where: str = "") -> str:
    """The paper's query 4."""
    return (
        f"SELECT sum(t.price * t.vol) AS total FROM trades t [RANGE {window_.range // SECOND} SECONDS "
        f"SLIDE {window_.slide // SECOND} SECONDS], close c, membership x "
        f"WHERE t.symbol = c.symbol AND t.symbol = x.symbol{where}"
    )


def predicate(r: random.Random) -> str:
    """Query 4's restriction."""
    member, op = r.choice(("x.", "NOT x.")) + r.choice(MEMBERS), r.choice("<>")
    value = r.choice(
        (f"t.vol {op} {r.randint(50, 10_000)}", f"t.price * t.vol {op} {r.randint(500, 200_000)}",
         f"abs(t.price - c.cp) / c.cp {op} {r.uniform(0, 0.03):.5f}")
    )  # fmt: skip
    return f" AND {member} AND {value}"


def throughput(
    tables: Mapping[str, pa.Table], repeat: int, clock: str, seed: int, quick: bool
) -> list[tuple[Row, Ratio]]:
    """What many windows, short slides and many predicates leave of the throughput with one, from rows to answers."""
    r = random.Random(seed)
    spread = [sql(window(r)) for _ in range(100 if quick else 1000)]
    tumbling = SlideWindow(600 * SECOND, 600 * SECOND)
    predicates = [sql(tumbling, predicate(r)) for _ in range(32 if quick else 256)]
    short = [sql(SlideWindow(600 * SECOND, 5 * SECOND))]
    pairs = [
        (f"{len(spread):,} windows", spread, spread[:1], 0.9),
        ("SLIDE = RANGE / 120", short, [sql(tumbling)], 0.9),
        (f"{len(predicates)} predicates", predicates, predicates[:1], 0.5),
    ]
    found: list[tuple[Row, Ratio]] = []
    for label, many, one, target in pairs:
        pipes = {"many": Pipe(tables, many), "one": Pipe(tables, one)}
        best = dict.fromkeys(pipes, float("inf"))
        for _ in range(repeat):
            for name, pipe in pipes.items():
                best[name] = min(best[name], pipe.run(CLOCKS[clock]))
        rates = {f"{k} rows/s": tables["trades"].num_rows / v for k, v in best.items()}
        ratio = Ratio(f"throughput: {label}", best["one"] / best["many"], target, True)
        found.append(({"workload": label, "queries": len(many), **rates}, ratio))
    return found


def registration(bench: Bench, seed: int) -> tuple[Row, list[Ratio]]:
    """What a query that joins 1,000 others costs: analysing its predicate, joining, and the index for its rows."""
    queries = workload("C low sharing", 1041, bench.rows, seed)
    tracemalloc.start()
    family = _running(bench, queries[:1000])
    before, _ = tracemalloc.get_traced_memory()
    for i in range(1000, 1020):
        _joins(bench, family, i, queries[i])
    kb = (tracemalloc.get_traced_memory()[0] - before) / 20 / 1e3
    tracemalloc.stop()
    took = []
    for i in range(1020, 1041):
        begin = bench.now()
        _joins(bench, family, i, queries[i])
        took.append(bench.now() - begin)
    ms = float(np.median(took)) * 1e3
    row = {"workload": "registration", "queries": 1000, "join ms": ms, "join kB": kb}
    return row, [Ratio("registration, ms", ms, 20.0), Ratio("registration, kB", kb, 100.0)]


def through_engine(seed: int) -> tuple[Row, list[Ratio]]:
    """The same through the door of a live engine: parsing, binding, planning, joining and the catalog's changes."""
    r = random.Random(seed)
    engine = windrow.Engine(runtime="local")
    tables = market(20_000, seed)
    for name in ("close", "membership"):
        engine.table(name, tables[name])
    engine.execute("CREATE STREAM trades (ts TIMESTAMP, symbol VARCHAR, price DOUBLE, vol BIGINT) TIMESTAMP BY ts")
    made = [sql(window(r), predicate(r)) for _ in range(1041)]
    engine.start()
    engine.execute("; ".join(f"CREATE QUERY q{i} AS {text}" for i, text in enumerate(made[:1000])))
    engine.push("trades", tables["trades"])
    took = []
    for i in range(1000, 1021):
        begin = time.perf_counter()
        engine.execute(f"CREATE QUERY q{i} AS {made[i]}")
        took.append(time.perf_counter() - begin)
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for i in range(1021, 1041):
        engine.execute(f"CREATE QUERY q{i} AS {made[i]}")
    gc.collect()
    kb = (tracemalloc.get_traced_memory()[0] - before) / 20 / 1e3
    tracemalloc.stop()
    ms = float(np.median(took)) * 1e3
    row = {"workload": "registration, CREATE QUERY", "queries": 1000, "join ms": ms, "join kB": kb}
    return row, [Ratio("CREATE QUERY, ms", ms, 20.0), Ratio("CREATE QUERY, kB", kb, 100.0)]


def _running(bench: Bench, queries: Sequence[Query]) -> Family:
    family, half = Family(), len(bench.rows) // 2
    for m in bench.members(queries):
        family.join(m)
    frontier = int(bench.rows.ts[half]) - 1
    rows = int(np.searchsorted(bench.rows.ts, frontier, "right"))
    family.advance(bench.rows.ts[:rows], {n: c.slice(0, rows) for n, c in bench.rows.columns.items()}, frontier)
    return family


def _joins(bench: Bench, family: Family, number: int, query: Query) -> None:
    family.join(member(number, query))
    family.prepare(0.0)


PARTS = ("kernel", "counters", "throughput", "registration", "spark")
APART = ("esper",)
"""Parts that run only when they are asked for."""


def main(argv: Sequence[str]) -> int:
    """Run the experiment; return the exit code."""
    options = parser("sharing", __doc__ or "")
    options.add_argument("--rows", type=int, help="trades in the hour (default: 1,140,000)")
    options.add_argument("--queries", type=int, nargs="+", help="sizes (default: those of the paper, and 1000)")
    options.add_argument("--sets", type=int, help="query sets that times are the mean of (default: 10, as in print)")
    options.add_argument("--workloads", nargs="+", choices=sorted(TARGETS), default=list(TARGETS))
    options.add_argument("--data", type=Path, help="flows of a CTU-13 capture (file or directory) instead of trades")
    options.add_argument(
        "--parts", nargs="+", choices=(*PARTS, *APART), default=list(PARTS), help="default: all but esper"
    )
    options.add_argument("--peers", nargs="*", choices=ends.PEERS, help="also on these engines (default: both)")
    options.add_argument("--peer-queries", type=int, nargs="+", default=[16, 64], help="for peers (default: 16 64)")
    given = options.parse_args(argv)
    given.sets = given.sets or (1 if given.quick else 10)
    given.peers = list(ends.PEERS) if given.peers == [] else given.peers or []
    capture = _capture(given.data) if given.data else None
    tables = {} if capture else market(given.rows or (100_000 if given.quick else 1_140_000), given.seed)
    label = "sharing-ctu13" if capture else "sharing"
    about = {"data": capture.name if capture else "generated trades", "clock": given.clock}
    codes = []
    if "esper" in given.parts:
        data = ends.of_trades(tables) if capture is None else ends.of_flows(capture)
        rows, found = sharing_esper.in_process(data, given.peer_queries, given.seed)
        parameters = {**about, "rows": len(data.rows)}
        codes.append(
            report(Result(f"{label}-esper", sharing_esper.__doc__ or "", given.seed, parameters, rows, found), given)
        )
    if set(given.parts) - {"spark", "esper"}:
        codes.append(report(_in_process(given, tables, capture, label, about), given))
    if "spark" in given.parts:
        codes.append(report(_on_spark(given, tables, capture, label, about), given))
    return max(codes)


def _capture(path: Path) -> Path:
    if path.is_file():
        return path
    found = sorted(p for p in path.iterdir() if p.name.endswith((".binetflow.csv.gz", ".binetflow.csv")))
    if not found:
        raise SourceError(
            f"no flows in {path}", hint="a CTU-13 capture is a file *.binetflow.csv or *.binetflow.csv.gz"
        )
    return found[0]


def _in_process(
    given: Namespace, tables: Mapping[str, pa.Table], capture: Path | None, label: str, about: Mapping[str, Any]
) -> Result:
    """Kernel times, throughput and registration, in this process."""
    rows = joined(tables) if capture is None else flows(capture)
    bench = Bench(rows, given.clock)
    found: list[Row] = []
    ratios: list[Ratio] = []
    with progress() as bar:
        task = bar.add_task("warming up")
        bench.apart(bench.members(workload("C low sharing", 2, rows, 0)))
        for name in given.workloads if "kernel" in given.parts else ():
            for n in given.queries or ((16, 64) if given.quick else SIZES.get(name, USUAL)):
                sets = []
                for k in range(given.sets):
                    bar.update(task, description=f"{name}, {n} queries, set {k + 1} of {given.sets}")
                    apart = n <= 256
                    sets.append(
                        measure(bench, name, n, given.seed + k, given.repeat, given.clock, apart, apart or not k)
                    )
                found.append(averaged(sets))
            both = [r for r in found if r["workload"] == name and "ratio" in r]
            if both:
                ratios.append(Ratio(f"{name}, {both[-1]['queries']} queries", both[-1]["ratio"], TARGETS[name], True))
        if "counters" in given.parts:
            bar.update(task, description="counters")
            counted = bench.compared(given.seed)
            found += [c.row() for c in counted]
            ratios.append(sharing_counters.target(counted))
        if "throughput" in given.parts and tables:
            bar.update(task, description="throughput")
            for row, ratio in throughput(tables, max(given.repeat, 5), given.clock, given.seed, given.quick):
                found.append(row)
                ratios.append(ratio)
        if "registration" in given.parts:
            bar.update(task, description="registration")
            for row, limits in (registration(bench, given.seed), through_engine(given.seed)):
                found.append(row)
                ratios += limits
    return Result(label, __doc__ or "", given.seed, {**about, "rows": len(rows)}, found, ratios, figures(found))


def _on_spark(
    given: Namespace, tables: Mapping[str, pa.Table], capture: Path | None, label: str, about: Mapping[str, Any]
) -> Result:
    """From files to answers, on Spark and on peers."""
    data = ends.of_trades(tables) if capture is None else ends.of_flows(capture)
    sizes = given.queries or ((16, 64) if given.quick else (16, 64, 256, 1000))
    repeat = min(given.repeat, 2)
    found, ratios, drawn = ends.measure(
        data, sizes, given.workloads, given.peers, given.peer_queries, given.seed, repeat, 0 if given.quick else 16
    )
    name = "-".join([label, *(given.peers or ["spark"])])
    return Result(name, ends.__doc__ or "", given.seed, {**about, "rows": len(data.rows)}, found, ratios, drawn)


def figures(rows: Sequence[Row]) -> list[Figure]:
    """The paper's figures 13 to 16, with our times."""
    found = []
    for name, number in FIGURES.items():
        mine = [r for r in rows if r["workload"] == name]
        sides = [
            k
            for k in dict.fromkeys(k for r in mine for k in r)
            if k.endswith(" s") and k.startswith(("shared", "unshared"))
        ]
        lines = {k[:-2]: [(float(r["queries"]), float(r[k])) for r in mine if k in r] for k in sides}
        if mine:
            found.append(
                Figure(
                    name.lower().replace(" ", "-"),
                    f"{name} (figure {number} of the paper)",
                    "queries",
                    "seconds",
                    lines,
                )
            )
    return found
