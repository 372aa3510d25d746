"""Star joins short of memory (Towne et al., figures 4 to 6): offline optimum, online heuristics, larger settings.

Stream R is Zipf(1.0), stream S uniform, facts are uniform pairs, and importance is uncorrelated: rare values matter
more. The paper does not say how many values there are, how great importance is, nor DGL's constants. For figure 4, 95
values and importance 1 to 8 give about what its text prints at memory 4 (2184 results of importance 4107). Figure 6 is
judged with 80 values, importance 1 to 3, alpha 200 and beta 0.1, which has the paper's order of curves; two others show
how it moves. It also shows the optimum of a join that, like the online operator, matches before it evicts. Figure 5
runs the paper's dynamic program over the streams of one seed. Figures 4 and 6 are means over seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.operators.elements import INF, Elements
from windrow.operators.star_join import FactTable, Policy, StarJoinOperator, StarStream
from windrow.operators.star_memory import HEURISTICS
from windrow_bench.harness import CLOCKS, Figure, Ratio, Result, parser, progress, report
from windrow_bench.optimum import Optimum, optimal

VALUES, TOP = 95, 8
PRINTED = {"OSSJ results": 2184, "OSSJ importance": 4107, "SJA-S results": 2221, "SJA-S importance": 3797}
KEYS = {"r": "a", "s": "b"}


@dataclass(frozen=True)
class Data:
    """Two streams and the facts that link them."""

    streams: Mapping[str, pa.Table]
    facts: pa.Table


def generate(seed: int, rows: int, facts: int = 250, values: int = VALUES, top: int = TOP) -> Data:
    """The paper's data (section 4.1): one row of each stream per instant."""
    rng = np.random.default_rng(seed)
    weight = 1.0 / np.arange(1, values + 1)
    drawn = {
        "r": rng.permutation(values)[rng.choice(values, rows, p=weight / weight.sum())],
        "s": rng.integers(0, values, rows),
    }
    pairs = rng.choice(values * values, facts, replace=False)
    streams = {
        name: pa.table({"ts": np.arange(rows), KEYS[name]: v, "imp": _importance(v, values, top)})
        for name, v in drawn.items()
    }
    return Data(streams, pa.table({"a": pairs // values, "b": pairs % values}))


def _importance(drawn: np.ndarray, values: int, top: int) -> np.ndarray:
    """1 to `top`, less for values that occur more often."""
    count = np.bincount(drawn, minlength=values)
    rank = np.argsort(np.argsort(-count, kind="stable"), kind="stable")
    return np.ceil(top * (rank + 1) / values)[drawn]


def online(data: Data, lifetime: int, policy: Policy, batch: int = 50_000) -> tuple[float, int]:
    """Total importance and number of the results of the online operator."""
    parts = [StarStream(n, {f"{n}.k": pa.int64(), f"{n}.imp": pa.float64()}, (f"{n}.k",), f"{n}.imp") for n in KEYS]
    columns = {"f.a": pa.int64(), "f.b": pa.int64()}
    join = StarJoinOperator(parts, FactTable("f", columns, (("f.a",), ("f.b",))), policy)
    rows = data.streams["r"].num_rows
    facts = Elements.positive(np.full(data.facts.num_rows, -1), INF, {f"f.{c}": _array(data.facts, c) for c in "ab"})
    importance, size = 0.0, 0
    for begin in range(0, rows, batch):
        inputs = [_elements(n, t.slice(begin, batch), lifetime) for n, t in data.streams.items()]
        out = join.advance([*inputs, facts if begin == 0 else Elements.empty(columns)], begin + batch - 1)
        size += len(out)
        importance += float(np.minimum(*(out.columns[f"{n}.imp"].to_numpy() for n in KEYS)).sum())
    return importance, size


def _elements(name: str, table: pa.Table, lifetime: int) -> Elements:
    ts = table["ts"].to_numpy()
    return Elements.positive(
        ts, ts + lifetime, {f"{name}.k": _array(table, KEYS[name]), f"{name}.imp": _array(table, "imp")}
    )


def _array(table: pa.Table, column: str) -> pa.Array:
    chunks = table.column(column).chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def best(data: Data, lifetime: int, memory: int, **options: Any) -> Optimum:
    """The offline optimum."""
    return optimal(dict(data.streams), data.facts, lifetime=lifetime, memory=memory, **options)


# -- the figures -----------------------------------------------------------------------------------------


def figure4(seeds: Sequence[int], rows: int) -> tuple[list[dict[str, Any]], Figure]:
    """Importance by memory, offline: lifetime 10, 250 facts."""
    found = []
    for memory in (2, 4, 6, 8, 10, 12, 14, 16, 18, 20):
        row: dict[str, Any] = {"figure": "4", "memory": memory}
        totals = []
        for seed in seeds:
            data = generate(seed, rows)
            ossj, sja = best(data, 10, memory), best(data, 10, memory, objective="size")
            rand, _ = online(data, 10, Policy("RANDOM", (memory // 2,) * 2, seed=seed, evict_first=True))
            totals.append((ossj.importance, sja.importance, rand, best(data, 10, 20).importance, ossj.size, sja.size))
        names = ("OSSJ", "SJA-S", "RAND-S", "EXACT", "OSSJ results", "SJA-S results")
        row |= {n: round(float(v), 1) for n, v in zip(names, np.mean(totals, axis=0), strict=True)}
        row["ordered"] = all(a >= b >= c for a, b, c, *_ in totals)
        found.append(row)
    lines = {n: [(r["memory"], r[n]) for r in found] for n in ("EXACT", "OSSJ", "SJA-S", "RAND-S")}
    return found, Figure(
        "figure4", "Offline: total importance by memory (lifetime 10)", "memory, rows", "importance", lines
    )


def figure5(seed: int, rows: int, clock: str) -> tuple[list[dict[str, Any]], Figure]:
    """Time of the dynamic program with and without pre-filtering by the size of the fact table: memory and lifetime
    10; the mean of three runs."""
    found = []
    now = CLOCKS[clock]
    ways: dict[str, dict[str, Any]] = {
        "with pre-filtering": {"method": "states"},
        "without pre-filtering": {"method": "states", "prefilter": False},
        "flow": {},
    }
    for options in ways.values():
        best(generate(seed, 60, 25), 10, 10, **options)  # compiled and in the caches before anything is measured
    for facts in (25, 50, 100, 250, 500, 1000):
        data = generate(seed, rows, facts)
        row: dict[str, Any] = {"figure": "5", "facts": facts}
        apart = []
        for name, options in ways.items():
            spent = []
            for _ in range(3):
                begin = now()
                best(data, 10, 10, **options)
                spent.append(now() - begin)
            row[name] = round(sum(spent) / 3, 4)
            apart += [sorted(spent)[1] / min(spent) - 1] if name != "flow" else []
        found.append({**row, "scatter": round(max(apart), 3)})
    lines = {n: [(r["facts"], r[n]) for r in found] for n in ("without pre-filtering", "with pre-filtering", "flow")}
    return found, Figure("figure5", f"Time of the offline optimum, {rows} rows", "facts", "seconds", lines)


@dataclass(frozen=True)
class Setting:
    """What the paper leaves open for figure 6: values, range of importance, and DGL's constants."""

    name: str
    values: int
    top: int
    alpha: float
    beta: float


JUDGED = Setting("80 values, importance 1 to 3, alpha 200, beta 0.1", 80, 3, 200.0, 0.1)
OTHERS = (
    Setting("95 values, importance 1 to 8, alpha 10, beta 1", VALUES, TOP, 10.0, 1.0),
    Setting("50 values, importance 1 to 8, alpha 100, beta 1", 50, TOP, 100.0, 1.0),
)
ONLINE = ("DGL", "DIMPPROB", "SIMPPROB", "SIMP", "RANDOM", "FIFO")
"""What figure 6 compares, in the order of its curves; FIFO is ours."""


def figure6(
    seeds: Sequence[int], rows: int, setting: Setting, memories: Sequence[int]
) -> tuple[list[dict[str, Any]], Figure]:
    """Importance by memory, online: lifetime 50, 250 facts; the optimum of the same order of events beside it."""
    found = []
    for memory in memories:
        totals: dict[str, list[float]] = {n: [] for n in (*ONLINE, "OPTIMUM", "EXACT")}
        for seed in seeds:
            data = generate(seed, rows, values=setting.values, top=setting.top)
            for name in ONLINE:
                policy = Policy(name, (memory // 2,) * 2, alpha=setting.alpha, beta=setting.beta, seed=seed)
                totals[name].append(online(data, 50, policy)[0])
            totals["OPTIMUM"].append(best(data, 50, memory, evict_first=False).importance)
            totals["EXACT"].append(best(data, 50, 100, evict_first=False).importance)
        row: dict[str, Any] = {"figure": "6", "setting": setting.name, "values": setting.values, "memory": memory}
        row |= {n: round(float(np.mean(v)), 1) for n, v in totals.items()}
        row |= _orders(totals)
        row["rows that match on arrival"] = round(matching(seeds[0], rows, setting, memory), 3)
        found.append(row)
    lines = {n: [(r["memory"], r[n]) for r in found] for n in ("EXACT", "OPTIMUM", *ONLINE)}
    caption = f"Online: total importance by memory (lifetime 50, {setting.name})"
    return found, Figure(f"figure6-{setting.values}", caption, "memory, rows", "importance", lines, log=False)


def held_out(seeds: Sequence[int], rows: int, setting: Setting, memories: Sequence[int]) -> list[dict[str, Any]]:
    """The same order on seeds that had no part in finding the setting."""
    found = []
    for memory in memories:
        totals: dict[str, list[float]] = {n: [] for n in ONLINE}
        for seed in seeds:
            data = generate(seed, rows, values=setting.values, top=setting.top)
            for name in ONLINE:
                policy = Policy(name, (memory // 2,) * 2, alpha=setting.alpha, beta=setting.beta, seed=seed)
                totals[name].append(online(data, 50, policy)[0])
        found.append({"figure": "6, other seeds", "setting": setting.name, "memory": memory, **_orders(totals)})
    return found


def _orders(totals: Mapping[str, Sequence[float]]) -> dict[str, str]:
    """On how many seeds each step of the paper's order holds, and all of it."""
    columns = {n: np.asarray(v) for n, v in totals.items()}
    better, worse = (
        np.maximum(columns["SIMPPROB"], columns["DIMPPROB"]),
        np.minimum(columns["SIMPPROB"], columns["DIMPPROB"]),
    )
    steps = {
        "DGL first": columns["DGL"] >= better,
        "the better PROB over SIMP": better >= columns["SIMP"],
        "both PROB over SIMP": worse >= columns["SIMP"],
        "SIMP over RANDOM": columns["SIMP"] > columns["RANDOM"],
    }
    whole = steps["DGL first"] & steps["both PROB over SIMP"] & steps["SIMP over RANDOM"]
    shown = {name: int(held.sum()) for name, held in {**steps, "whole order": whole}.items()}
    return {name: f"{held}/{len(whole)}" for name, held in shown.items()}


def matching(seed: int, rows: int, setting: Setting, memory: int) -> float:
    """Why the middle of figure 6's order moves: the share of rows that match anything in a random memory of this size
    when they arrive.

    Where it is small, mn is 0 for most rows, their priorities tie at 0, and SIMPPROB and DIMPPROB know little more
    than SIMP.
    """
    values = setting.values
    data = generate(seed, rows, values=values, top=setting.top)
    linked = np.zeros((values, values), np.bool_)
    linked[data.facts["a"].to_numpy(), data.facts["b"].to_numpy()] = True
    r, s = data.streams["r"]["a"].to_numpy(), data.streams["s"]["b"].to_numpy()
    rng = np.random.default_rng(seed)
    at = rng.integers(50, rows, 2000)
    held = at[:, None] - rng.integers(1, 50, (2000, memory // 2))
    return float(linked[r[at][:, None], s[held]].any(axis=1).mean())


def large(seed: int, rows: int, facts: int, memory: int, lifetime: int, clock: str) -> list[dict[str, Any]]:
    """The operator's speed at larger settings: 300 values, with the figures' 250 facts or as dense as there (2500)."""
    data, warm = generate(seed, rows, facts, values=300), generate(seed, 200, facts, values=300)
    found = []
    now = CLOCKS[clock]
    for name in HEURISTICS:
        policy = Policy(name, (memory // 2,) * 2, seed=seed)
        online(warm, lifetime, policy)
        begin = now()
        importance, size = online(data, lifetime, policy)
        spent = now() - begin
        found.append(
            {"figure": "large", "heuristic": name, "rows": 2 * rows, "facts": facts, "memory": memory,
             "lifetime": lifetime, "seconds": round(spent, 2), "rows/s": round(2 * rows / spent), "results": size,
             "importance": importance}
        )  # fmt: skip
    return found


def grown(seed: int, rows: int, lifetime: int, memories: Sequence[int]) -> tuple[list[dict[str, Any]], Figure]:
    """Figure 6 grown: 300 values, 2500 facts, longer lifetimes and larger memories; the optimum of the same order of
    events beside the heuristics."""
    data = generate(seed, rows, 2500, values=300)
    found = []
    for memory in memories:
        row: dict[str, Any] = {"figure": "6, grown", "rows": rows, "lifetime": lifetime, "memory": memory}
        for name in ONLINE:
            policy = Policy(name, (memory // 2,) * 2, alpha=JUDGED.alpha * lifetime / 50, beta=JUDGED.beta, seed=seed)
            row[name] = online(data, lifetime, policy)[0]
        row["OPTIMUM"] = best(data, lifetime, memory, evict_first=False).importance
        found.append(row)
    lines = {n: [(r["memory"], r[n]) for r in found] for n in ("OPTIMUM", *ONLINE)}
    caption = f"Online: total importance by memory (lifetime {lifetime:,}, {rows:,} rows per stream)"
    return found, Figure("figure6-grown", caption, "memory, rows", "importance", lines, log=False)


def optimum_time(seed: int, rows: int, memory: int, lifetime: int, clock: str) -> dict[str, Any]:
    """The time of the polynomial optimum, where the dynamic program cannot start."""
    data = generate(seed, rows)
    best(generate(seed, 100), 10, 4)
    begin = CLOCKS[clock]()
    found = best(data, lifetime, memory)
    spent = CLOCKS[clock]() - begin
    return {"figure": "optimum", "rows": rows, "memory": memory, "lifetime": lifetime, "seconds": round(spent, 2),
            "results": found.size, "importance": found.importance}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiment."""
    made = parser("star", __doc__ or "")
    made.add_argument("--seeds", type=int, default=10, help="seeds for figures 4 and 6 (default: 10)")
    made.add_argument("--overload", action="store_true", help="instead: three times what a pipeline on Spark can hold")
    options = made.parse_args(argv)
    if options.overload:
        from windrow_bench.overload import measure

        return measure(options)
    quick = options.quick
    seeds = range(options.seed, options.seed + (2 if quick else options.seeds))
    rows = 1000 if quick else 5000
    memories = (4, 20) if quick else (4, 10, 20, 30, 40, 60, 80, 100)
    found: list[dict[str, Any]] = []
    figures: list[Figure] = []
    with progress() as shown:
        task = shown.add_task("figure 4", total=None)
        four, figure = figure4(seeds[:2] if quick else seeds, rows)
        found, figures = found + four, [*figures, figure]
        shown.update(task, description="figure 5")
        five, figure = figure5(options.seed, 60 if quick else rows, options.clock)
        found, figures = found + five, [*figures, figure]
        six: list[dict[str, Any]] = []
        for setting in (JUDGED, *OTHERS):
            shown.update(task, description=f"figure 6, {setting.name}")
            part, figure = figure6(seeds, rows, setting, memories)
            six, figures = six + part, [*figures, figure]
        found += six + held_out(range(1000, 1000 + 2 * len(seeds)), rows, JUDGED, memories[:3])
        shown.update(task, description="larger settings")
        speed = large(options.seed, 5_000 if quick else 1_000_000, 250, 1000, 10_000, "cpu")
        dense = large(options.seed, 5_000 if quick else 200_000, 2500, 1000, 10_000, "cpu")
        sizes = (10, 100) if quick else (10, 30, 100, 300, 1000)
        wider, figure = grown(options.seed, 2_000 if quick else 20_000, 1000, sizes)
        figures = [*figures, figure]
        offline = optimum_time(options.seed, 5_000 if quick else 100_000, 1000, 1000, options.clock)
    rates = {r["heuristic"]: r["rows/s"] for r in speed}
    denser = {r["heuristic"]: r["rows/s"] for r in dense}
    share = sum(r["ordered"] for r in four) / len(four)
    filtering = five[0]["without pre-filtering"] / five[0]["with pre-filtering"]
    small = [r for r in six if r["setting"] == JUDGED.name and r["memory"] <= 20]
    ratios = [
        Ratio("figure 4: memory sizes with OSSJ >= SJA-S >= RAND-S on every seed", share, 1, least=True),
        Ratio("figure 5: time without / with pre-filtering at the fewest facts", filtering, 1.5, least=True),
        *(
            Ratio(f"figure 6, memory {r['memory']}: share of seeds with {step}", _fraction(r[step]), 0.9, least=True)
            for r in small
            for step in ("DGL first", "both PROB over SIMP", "SIMP over RANDOM", "whole order")
        ),
        Ratio("optimum: seconds", offline["seconds"], 60),
        Ratio("SIMP: rows/s per core", rates["SIMP"], 200_000, least=True),
        Ratio("DGL: rows/s per core", rates["DGL"], 50_000, least=True),
        Ratio("SIMP, 2500 facts: rows/s per core", denser["SIMP"], 200_000, least=True),
        Ratio("DGL, 2500 facts: rows/s per core", denser["DGL"], 50_000, least=True),
    ]  # fmt: skip
    parameters = {
        "rows": rows,
        "values": VALUES,
        "top importance": TOP,
        "facts": 250,
        "seeds": len(seeds),
        "printed for figure 4": PRINTED,
    }
    measured = [_shown(row) for row in (*found, *wider, *speed, *dense, offline)]
    result = Result("star", __doc__ or "", options.seed, parameters, measured, ratios, figures)
    return report(result, options)


AT = ("setting", "memory", "facts", "lifetime", "heuristic", "rows")


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as where it was measured, and what."""
    measured = {k: v for k, v in row.items() if k not in (*AT, "figure", "values")}
    return {"figure": row["figure"], "at": ", ".join(f"{k} {row[k]}" for k in AT if k in row), **measured}


def _fraction(text: str) -> float:
    held, of = text.split("/")
    return int(held) / int(of)
