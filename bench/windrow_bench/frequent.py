"""Frequent values of sliding windows (thesis 6.3, figure 6.3): how much the summaries of basic windows find, and cost.

Items are source addresses of flows; a window has N = 100,000 of them, cut into basic windows of b = 20, 100 and 500, of
which the k = 1..10 most frequent values are kept. At random starting points the answer is compared with brute force.
Generated flows come in bursts, as traffic does: on stationary draws smaller basic windows find less, because with 20
rows the k-th count is a tie of ones. The thesis's trace is not at hand; real flows are CTU-13 scenario 6 (Garcia et
al., Computers & Security 45, 2014). Baselines: all counters of every basic window (exact), and a Count-Min sketch per
basic window, merged over the window, asked for every value there is, of as many bytes as the summaries and of ten times
as many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.basic_windows import SummaryQueue
from windrow.operators.aggregates.call import frequent_type
from windrow.operators.aggregates.counts import SliceCounts, counted
from windrow.operators.elements import INF, Elements
from windrow.operators.summary_aggregate import RowsSummary
from windrow_bench.harness import CLOCKS, Figure, Ratio, Result, parser, progress, report

SOURCES = 1647
WINDOW = 100_000
BASIC = (20, 100, 500)
MOST = 10
BATCH = 100_000
RANDOM_WINDOWS = 10_000
Row = Mapping[str, Any]
Int64s = NDArray[np.int64]


def bursts(rows: int, seed: int, sources: int = SOURCES, length: float = 12.0) -> Int64s:
    """Sources with weights 1/rank, each for a burst of so many rows on average, several bursts at a time."""
    random = np.random.default_rng(seed)
    weight = 1 / np.arange(1, sources + 1)
    count = int(3 * rows / length) + 10
    lasting = random.geometric(1 / length, count)
    source = np.repeat(random.choice(sources, count, p=weight / weight.sum()), lasting)
    begin = np.repeat(np.cumsum(lasting) - lasting, lasting)
    within = np.arange(len(source)) - begin
    at = begin + within * random.integers(1, 4, count).repeat(lasting)  # bursts overlap
    return source[np.argsort(at, kind="stable")][:rows].astype(np.int64)


def sources_of(path: str | None, rows: int, seed: int) -> Int64s:
    """The source addresses of real flows, numbered, in the order of the capture; or generated ones."""
    if path is None:
        return bursts(rows, seed)
    from pyarrow import csv

    flows = csv.read_csv(path, convert_options=csv.ConvertOptions(include_columns=["SrcAddr"]))
    encoded = flows.column("SrcAddr").combine_chunks().dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64)


class Summarised:
    """FREQUENT and its delta of one window for every k, from one count of its values."""

    def __init__(self, most: Sequence[int]) -> None:
        calls = [
            Aggregation(kind, "x", f"{kind} {k}", type_, parameters=(k,))
            for k in most
            for kind, type_ in (("frequent", frequent_type(pa.int64())), ("frequent_delta", pa.int64()))
        ]
        self.most, self.queue = most, SummaryQueue(calls, {"x": pa.int64()})

    def answers(self, counts: SliceCounts, last: int) -> Iterator[tuple[int, dict[int, tuple[int, int]], int, int]]:
        """k, the bounds of every value that is reported, delta, and the pairs kept."""
        self.queue.runs = []
        self.queue.add([counts])
        _, _, found = self.queue.answers(np.array([last]), keyed=False)
        (run,) = self.queue.runs
        for k in self.most:
            items = found[f"frequent {k}"][0].as_py()
            kept = run.table.column(f"{k} most frequent x").combine_chunks().flatten()
            pairs = len(kept) + len(kept.field("value").unique())
            bounds = {i["value"]: (i["at_least"], i["at_most"]) for i in items}
            yield k, bounds, found[f"frequent_delta {k}"][0].as_py(), pairs


def slices(values: Int64s, basic: int) -> tuple[SliceCounts, int]:
    """The exact counts of a window cut into basic windows, and the number of the last."""
    number = np.arange(len(values)) // basic
    return counted(number, np.full(len(values), INF), None, {"x": pa.array(values)}), int(number[-1])


def figure_6_3(items: Int64s, basic: int, starts: Int64s, window: int) -> Iterator[Row]:
    """The six parts of the figure for one b, averaged over starting points."""
    found: dict[int, list[dict[str, float]]] = {}
    summarised = Summarised(range(1, MOST + 1))
    for start in starts.tolist():
        values = items[start : start + window]
        counts, last = slices(values, basic)
        true = np.bincount(values)
        for k, bounds, delta, pairs in summarised.answers(counts, last):
            over = int((true > delta).sum())
            error = [(true[v] - low) / true[v] for v, (low, _) in bounds.items()]
            held = all(low <= true[v] <= high for v, (low, high) in bounds.items())
            found.setdefault(k, []).append({
                "delta_share": delta / window, "over_delta": over, "reported": len(bounds),
                "share_found": len(bounds) / over if over else 1.0, "pairs": pairs,
                "relative_error": float(np.mean(error)) if error else np.nan,
                "false": sum(int(true[v]) <= delta for v in bounds), "bounds_broken": int(not held),
                "exact_pairs": counts.values["x"].num_rows,
            })  # fmt: skip
    for k, rows in found.items():
        mean: dict[str, float | None] = {n: float(np.mean([r[n] for r in rows])) for n in rows[0]}
        errors = [r["relative_error"] for r in rows if r["reported"]]  # nothing reported is no estimate
        mean["relative_error"] = float(np.mean(errors)) if errors else None
        mean |= {name: sum(r[name] for r in rows) for name in ("false", "bounds_broken")}
        yield {"part": "figure 6.3", "b": basic, "k": k, **mean}


def random_windows(count: int, seed: int) -> Row:
    """Windows of all kinds of data, lengths and k: what is reported and is not frequent, or lies outside its bounds."""
    random = np.random.default_rng(seed)
    false = broken = reported = missed = 0
    for i in range(count):
        rows, basic, k = int(random.integers(10, 1500)), int(random.integers(1, 200)), int(random.integers(1, 12))
        distinct = int(random.integers(1, 300))
        match i % 3:
            case 0:
                values = random.integers(0, distinct, rows)
            case 1:
                values = random.zipf(1.1 + random.random(), rows) % distinct
            case _:
                values = bursts(rows, int(random.integers(1 << 30)), distinct, 1 + 20 * random.random())
        values = values.astype(np.int64)
        counts, last = slices(values, basic)
        true = np.bincount(values)
        ((_, bounds, delta, _),) = Summarised([k]).answers(counts, last)
        false += sum(int(true[v]) <= delta for v in bounds)
        broken += sum(not low <= true[v] <= high for v, (low, high) in bounds.items())
        reported += len(bounds)
        missed += int((true > delta).sum()) - len(bounds)
    return {
        "part": "random",
        "windows": count,
        "reported": reported,
        "missed": missed,
        "false": false,
        "outside": broken,
    }


def speed(items: Int64s, clock: str, repeat: int) -> float:
    """Rows per second of one query over [ROWS 100000 SLIDE 500], k = 10, in one process: the best of some runs."""
    calls = [Aggregation("frequent", "x", "f", frequent_type(pa.int64()), parameters=(MOST,))]
    now, best = CLOCKS[clock], float("inf")
    batches = [
        Elements.positive(np.arange(i, i + len(part)), INF, {"x": pa.array(part)})
        for i in range(0, len(items), BATCH)
        for part in (items[i : i + BATCH],)
    ]
    for _ in range(repeat + 1):  # the first run compiles
        operator = RowsSummary((), calls, {"x": pa.int64()}, WINDOW, 500)
        begin = now()
        for batch in batches:
            operator.advance([batch], int(batch.ts[-1]))
        best = min(best, now() - begin)
    return len(items) / best


def count_min(items: Int64s, starts: Int64s, window: int, scale: int) -> Row:
    """A Count-Min sketch per basic window of 500, of `scale` times the bytes of ten pairs."""
    from datasketches import count_min_sketch

    buckets = max(3, MOST * 16 * scale // (8 * 2))
    wrong, over_all, errors = 0, 0, []
    for start in starts.tolist():
        values = items[start : start + window]
        counts, last = slices(values, 500)
        ((_, _, delta, _),) = Summarised([MOST]).answers(counts, last)
        merged = count_min_sketch(2, buckets, 1)
        for basic in np.split(values, range(500, len(values), 500)):
            sketch = count_min_sketch(2, buckets, 1)
            for value, weight in zip(*np.unique(basic, return_counts=True), strict=True):
                sketch.update(int(value), float(weight))
            merged.merge(sketch)
        true = np.bincount(values)
        there = np.flatnonzero(true)
        estimate = np.array([merged.get_estimate(int(v)) for v in there])
        wrong += int(((estimate > delta) & (true[there] <= delta)).sum())
        over = true[there] > delta
        over_all += int(over.sum())
        errors += ((estimate - true[there]) / true[there])[over].tolist()
    return {
        "part": "Count-Min per basic window", "bytes_per_basic_window": buckets * 16, "over_delta": over_all,
        "false": wrong, "relative_error": float(np.mean(errors)) if errors else 0.0,
    }  # fmt: skip


def ratios(rows: Sequence[Row], random: Row, rate: float, real: bool) -> list[Ratio]:
    """The bars of the chapter; how much is found depends on the data, so those bars are for real flows."""
    shown = {(r["b"], r["k"]): r for r in rows}

    def at(b: int, k: int, name: str) -> float:
        return float(shown[b, k][name])

    falls = sum(at(b, k + 1, "delta_share") > at(b, k, "delta_share") for b in BASIC for k in range(1, MOST))
    most = max(r["pairs"] / (2 * r["k"] * WINDOW / r["b"]) for r in rows)
    return [
        Ratio("values reported in random windows that are not frequent", random["false"], 0),
        Ratio("bounds broken in random windows", random["outside"], 0),
        Ratio("figure 6.3: values reported that are not frequent, or outside their bounds",
              sum(r["false"] + r["bounds_broken"] for r in rows), 0),
        Ratio("a: times that delta does not fall with k", falls, 0),
        Ratio("a: delta / N at k = 5, b = 100", at(100, 5, "delta_share"), 0.06 if real else None),
        Ratio("d: share found at k = 8, b = 20", at(20, 8, "share_found"), 0.9 if real else None, least=True),
        Ratio("d: share found at k = 3, b = 500", at(500, 3, "share_found"), 0.8 if real else None, least=True),
        Ratio("e: pairs and counters / (k N / b, twice)", most, 1),
        Ratio("f: relative error at k = 10, b = 20", at(20, MOST, "relative_error"), 0.02 if real else None),
        Ratio("rows per second, b = 500, k = 10, in millions", rate / 1e6, 5, least=True),
    ]  # fmt: skip


def figures(rows: Sequence[Row]) -> list[Figure]:
    """The six plots."""
    parts = {
        "a": ("delta_share", "delta / N"), "b": ("over_delta", "values over delta"), "c": ("reported", "reported"),
        "d": ("share_found", "share found"), "e": ("pairs", "pairs and counters"), "f": ("relative_error", "error"),
    }  # fmt: skip
    made = []
    for part, (name, y) in parts.items():
        lines = {f"b = {b}": [(r["k"], r[name]) for r in rows if r["b"] == b and r[name] is not None] for b in BASIC}
        made.append(Figure(f"6.3{part}", f"Figure 6.3{part}: {y} by k and b", "k", y, lines, log=False))
    return made


def main(argv: Sequence[str]) -> int:
    """Run the experiment."""
    accepts = parser("frequent", __doc__ or "")
    accepts.add_argument("--data", metavar="FILE", help="real flows: a CTU-13 capture as csv (default: generated)")
    accepts.add_argument("--starts", type=int, help="random starting points (default: 100)")
    options = accepts.parse_args(list(argv))
    count = options.starts or (3 if options.quick else 100)
    items = sources_of(options.data, 500_000, options.seed)
    starts = np.random.default_rng(options.seed).integers(0, len(items) - WINDOW, count)
    rows: list[Row] = []
    with progress() as shown:
        task = shown.add_task("random windows", total=None)
        random = random_windows(200 if options.quick else RANDOM_WINDOWS, options.seed)
        for basic in BASIC:
            shown.update(task, description=f"figure 6.3, b = {basic}")
            rows += figure_6_3(items, basic, starts, WINDOW)
        shown.update(task, description="Count-Min")
        sketches = [count_min(items, starts[:3], WINDOW, scale) for scale in (1, 10)]
        shown.update(task, description="speed")
        rate = speed(np.concatenate([items] * 4), options.clock, options.repeat)
    parameters = {
        "items": f"{len(np.unique(items)):,} sources in {len(items):,} flows"
        + (" of CTU-13 scenario 6" if options.data else ", generated in bursts"),
        "window": WINDOW, "starting points": count, "clock": options.clock,
    }  # fmt: skip
    name = "frequent-ctu13" if options.data else "frequent"
    about = " ".join((__doc__ or "").split())
    result = Result(name, about, options.seed, parameters, [*rows, random, *sketches],
                    ratios(rows, random, rate, bool(options.data)), figures(rows))  # fmt: skip
    return report(result, options)
