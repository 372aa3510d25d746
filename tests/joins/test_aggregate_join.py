"""Every plan of an aggregation join answers as the aggregate over the join does, even when plans change on the way."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.operators.aggregate_join import AggregateDeltas
from windrow.operators.aggregate_join_figures import SideFigures, figures
from windrow.operators.aggregates import Aggregation
from windrow.operators.elements import INF, Elements
from windrow.operators.join_steps import Part
from windrow.plan import dataflow as circuit
from windrow.plan.aggregate_join_cost import choose_plan, plan_cost, plans
from windrow.plan.lower import Tuning
from windrow.testing import assert_same, oracle
from windrow_bench.one_join import AggregateJoin, Chooser

WINDOWS = ["[RANGE 7]", "[RANGE 3]", "[ROWS 4]", "[PARTITION BY k ROWS 2]", "[RANGE UNBOUNDED]", "[NOW]"]
PERIODIC = ["[RANGE 9 SLIDE 3]", "[RANGE 3 SLIDE 3]", "[RANGE UNBOUNDED SLIDE 3]"]
CALLS = [
    "COUNT(*)", "COUNT({0}.x)", "SUM({0}.x)", "SUM({0}.n)", "AVG({0}.x)", "MIN({0}.x)", "MAX({0}.n)", "MIN({0}.k)",
    "STDDEV({0}.n)", "COUNT(DISTINCT {0}.n)", "SUM(DISTINCT {0}.n)", "MEDIAN({0}.n)", "SUM({0}.n + 1)",
    "COUNT(*) FILTER (WHERE {0}.n > 1)",
]  # fmt: skip


FLOATS = [0.5, 0.25, 1024.0, math.nan, 3.0]
AWKWARD = [0.1, 0.2, 1e17, -1e17, 1e-300, 3.0]


def data(seed: int, rows: int = 25, floats: list[float] = FLOATS) -> tuple[dict[str, pa.Table], dict[str, pa.Table]]:
    """Three streams and a table; keys repeat and everything may be null."""
    rng = np.random.default_rng(seed)

    def some(values: list[object], n: int) -> list[object]:
        return [None if rng.random() < 0.08 else values[k] for k in rng.integers(0, len(values), n)]

    def table(n: int) -> dict[str, object]:
        return {
            "k": pa.array(some(["a", "b", "c"], n), pa.string()),
            "j": pa.array(some([1, 2], n), pa.int64()),
            "n": pa.array(some([0, 1, 2, 10**12], n), pa.int64()),
            "x": pa.array(some(list(floats), n), pa.float64()),
        }

    streams = {s: pa.table({"ts": np.sort(rng.integers(0, 30, rows)), **table(rows)}) for s in "STU"}
    return streams, {"P": pa.table(table(6))}


def script(seed: int) -> str:
    """A random aggregate over a random join."""
    rng = np.random.default_rng(seed)

    def pick(values: list[str]) -> str:
        return values[int(rng.integers(len(values)))]

    periodic = rng.random() < 0.4
    sources = ["S", "T"] + (["U"] if rng.random() < 0.3 else []) + (["P"] if rng.random() < 0.3 else [])
    parts = [s if s == "P" else f"{s} {pick(PERIODIC if periodic else WINDOWS)}" for s in sources]
    where = ["S.k = T.k"]
    if rng.random() < 0.3:
        where.append("S.j = T.j")
    for other in sources[2:]:
        where.append(pick([f"T.k = {other}.k", f"T.j = {other}.j"]))
    if rng.random() < 0.3:
        where.append(pick(["S.n <= T.n", "S.n + T.j < 5", "T.n > 0"]))
    keys = [f"{s}.{c}" for s in sources for c in ("k", "j") if rng.random() < 0.25]
    calls = [pick(CALLS).format(pick(sources)) for _ in range(rng.integers(1, 4))]
    items = ", ".join([*keys, *(f"{c} AS c{i}" for i, c in enumerate(calls))])
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {items} FROM {', '.join(parts)} WHERE {' AND '.join(where)}{group}"


@pytest.mark.parametrize("seed", range(12))
def test_plans_equal_the_definition(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For random queries every plan, and the adaptive one, answers as the oracle does, whatever the batches."""
    text = script(seed)
    streams, tables = data(seed)
    used = {"P": tables["P"]} if " P" in text else {}
    want = oracle(text, streams, used, None)["q1"]
    inputs = text[: text.index("WHERE")].count("[") + len(used)
    for plan in ["auto", "late", *("".join(bits) for bits in product("01", repeat=inputs))]:
        monkeypatch.setattr("windrow.runtime.program.MEASURING", Tuning(measures=True, aggregation=plan))
        for batch_rows in (None, 7):
            got = windrow.run(text, streams, used, runtime="local", batch_rows=batch_rows)["q1"]
            try:
                assert_same(got, want)
            except AssertionError as error:
                raise AssertionError(f"{plan} in batches of {batch_rows}: {text}\n{error}") from error


def test_sums_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums that cancel to the last bit are the same, bit by bit, in every plan and in the aggregate over the join."""
    streams, _ = data(124, floats=AWKWARD)
    text = "SELECT S.k, SUM(T.x) AS t, AVG(S.x) AS s FROM S [RANGE 7], T [RANGE UNBOUNDED] WHERE S.k = T.k GROUP BY S.k"
    answers = {}
    for plan in ("late", *plans(2)):
        monkeypatch.setattr("windrow.runtime.program.MEASURING", Tuning(measures=True, aggregation=plan))
        answer = windrow.run(text, streams, {}, runtime="local", batch_rows=4)["q1"]
        answers[plan] = answer.sort_by([(c, "ascending") for c in answer.column_names])
    assert answers["late"].num_rows > 50
    assert all(a.equals(answers["late"]) for a in answers.values())


def two_sides(seed: int = 0) -> tuple[list[Part], list[Elements]]:
    """Two streams in sliding windows, one of them with negatives."""
    rng = np.random.default_rng(seed)
    streams = []
    for i, window in enumerate((9, INF)):
        ts = np.sort(rng.integers(0, 40, 60))
        columns = {f"s{i}.{c}": pa.array(rng.integers(0, top, 60)) for c, top in (("k", 4), ("g", 3), ("a", 1000))}
        new = Elements.positive(ts, ts + window if window != INF else INF, columns)
        streams.append(new)
    early = streams[1].take(np.flatnonzero(rng.random(60) < 0.6))
    gone = Elements(early.ts + 5, early.exp, np.full(len(early), -1, np.int8), early.columns)
    both = [np.concatenate((streams[1].ts, gone.ts)), np.concatenate((streams[1].exp, gone.exp))]
    sign = np.concatenate((streams[1].sign, gone.sign))
    columns = {c: pa.concat_arrays([a, gone.columns[c]]) for c, a in streams[1].columns.items()}
    streams[1] = Elements(both[0], both[1], sign, columns)
    parts = [Part({c: a.type for c, a in s.columns.items()}, bool((s.sign < 0).any())) for s in streams]
    return parts, streams


def operator(parts: list[Part], plan: str | None = None) -> AggregateJoin:
    calls = [
        Aggregation("sum", "s0.a", "x", pa.decimal128(38, 0)),
        Aggregation("sum", "s1.a", "y", pa.decimal128(38, 0)),
        Aggregation("min", "s0.a", "m", pa.int64()),
    ]
    made = AggregateJoin(parts, [("s0.k", "s1.k", False)], [], ["s0.g", "s1.g"], calls, plan=plan)
    made.start(0)
    return made


def answers(outputs: list[Elements]) -> list[dict[str, int]]:
    """The relation at every instant."""
    at = []
    for t in range(60):
        rows: dict[str, int] = {}
        for e in outputs:
            alive = np.flatnonzero((e.ts <= t) & (t < e.exp))
            columns = [a.take(pa.array(alive)).to_pylist() for a in e.columns.values()]
            for sign, *row in zip(e.sign[alive], *columns, strict=True):
                rows[repr(row)] = rows.get(repr(row), 0) + int(sign)
        at.append({r: n for r, n in rows.items() if n})
    return at


def test_state_is_carried_over() -> None:
    """Changing the plan at every tick, or going on from a snapshot, changes no answer."""
    parts, streams = two_sides()

    def advance(op: AggregateJoin, t: int) -> Elements:
        return op.advance([s.filter((s.ts > t - 5) & (s.ts <= t)) for s in streams], t)

    steady = operator(parts, "11")
    want = answers([advance(steady, t) for t in range(4, 60, 5)])
    assert sum(len(a) for a in want) > 200
    moving, outputs = operator(parts, "00"), []
    for k, t in enumerate(range(4, 60, 5)):
        outputs.append(advance(moving, t))
        moving.follow(plans(2)[k % 4])
    assert answers(outputs) == want
    resumed, outputs = operator(parts, "10"), []
    for t in range(4, 60, 5):
        outputs.append(advance(resumed, t))
        fresh = operator(parts, "10")
        fresh.restore(resumed.state(), t)
        resumed = fresh
    assert answers(outputs) == want


def test_entries_die() -> None:
    """Values that come once and go leave nothing behind."""
    part = [Part({f"s{i}.k": pa.int64(), f"s{i}.g": pa.int64(), f"s{i}.a": pa.int64()}) for i in (0, 1)]
    for plan in plans(2):
        op = operator(part, plan)
        for t in range(0, 60_000, 1000):
            ts = np.arange(t, t + 1000)
            op.advance(
                [Elements.positive(ts, ts + 10, {f"s{i}.{c}": pa.array(ts) for c in "kga"}) for i in (0, 1)], t + 999
            )
        assert max(len(s.table) for s in op.sets) < 5000
        assert max(len(t) for t in op._tables.values()) < 40_000


def test_early_aggregation_wins_where_the_paper_says() -> None:
    """Early aggregation is chosen where groups are few, late where every row is a group (figure 6)."""

    def side(groups: float) -> SideFigures:
        return SideFigures(300, 1500, min(1500, 50 * groups), {"j": 50})

    few, many = side(5), side(3000)
    assert choose_plan([few, few], "00").plan == "11"
    assert choose_plan([few, many], "00").plan == "10"
    assert choose_plan([many, few], "00").plan == "01"
    assert choose_plan([many, many], "00").plan == "00"
    assert plan_cost("11", [few, few], period=1000) < plan_cost("11", [few, few])


def test_the_plan_follows_the_data() -> None:
    """Late aggregation is left as soon as many rows share an entry, and the figures it rests on outlive the change."""
    rng = np.random.default_rng(2)
    part = [Part({f"s{i}.k": pa.int64(), f"s{i}.g": pa.int64(), f"s{i}.a": pa.int64()}) for i in (0, 1)]
    op = AggregateJoin(
        part,
        [("s0.k", "s1.k", False)],
        [],
        ["s0.g"],
        [Aggregation("sum", "s1.a", "y", pa.decimal128(38, 0))],
        measures=True,
    )
    op.start(0)
    op.follow("00")
    chooser = Chooser(op)
    for t in range(0, 50, 10):
        ts = np.sort(rng.integers(t, t + 10, 200))
        chooser.advance(
            [
                Elements.positive(ts, ts + 30, {f"s{i}.{c}": pa.array(rng.integers(0, 5, 200)) for c in "kga"})
                for i in (0, 1)
            ],
            t + 9,
        )
    assert op.plan == "11"
    entries = [f.entries for f in figures(op.measured())]
    op.follow("00")
    assert [f.entries for f in figures(op.measured())] == entries
    described = chooser.describe()
    assert described["plan"] == "11"
    assert described["costs"]["11"] < described["costs"]["00"]


def test_rows_that_join_a_table_are_measured_under_every_plan() -> None:
    """What is counted of the entries that late aggregation would have is counted where one side is a table, too."""
    parts = [Part({f"s{i}.k": pa.int64(), f"s{i}.a": pa.int64()}, static=i == 1) for i in (0, 1)]
    calls = [Aggregation("sum", "s0.a", "x", pa.decimal128(38, 0)), Aggregation("min", "s1.a", "m", pa.int64())]
    found = []
    for plan in plans(2):
        op = AggregateJoin(parts, [("s0.k", "s1.k", False)], [], ["s0.k"], calls, measures=True)
        op.start(0)
        op.follow(plan)
        outputs = []
        for t in range(0, 60, 5):
            ts = np.arange(t, t + 5)
            columns = [{f"s{i}.k": pa.array(ts % 3), f"s{i}.a": pa.array(ts % 7)} for i in (0, 1)]
            changes = Elements.positive(ts[:1], INF, {c: a[:1] for c, a in columns[1].items()})
            rows = Elements.positive(ts, ts + 9, columns[0])
            outputs.append(op.advance([rows, changes if t % 20 == 0 else changes.slice(0, 0)], t + 4))
        assert all(f.entries > 0 for f in figures(op.measured()))
        found.append(answers(outputs))
    assert sum(map(len, found[0])) > 50
    assert all(each == found[0] for each in found)


def test_forced_plans_must_fit() -> None:
    """A plan has one bit per input."""
    parts, _ = two_sides()
    with pytest.raises(ValueError, match="2 inputs"):
        operator(parts, "011")


def test_lowering_uses_aggregation_sets() -> None:
    """An aggregate over a join becomes one operator; one over an expression of several inputs does not."""
    from windrow.engine.replay import Replay

    streams, _ = data(1)
    for text, expected in (
        (
            "SELECT S.k, SUM(T.n * 2) AS v FROM S [RANGE 5], T [RANGE 5] WHERE S.k = T.k AND S.n < T.n GROUP BY S.k",
            True,
        ),
        ("SELECT S.k, SUM(T.n * S.n) AS v FROM S [RANGE 5], T [RANGE 5] WHERE S.k = T.k GROUP BY S.k", False),
    ):
        (plan,) = Replay.of(text, streams, {}).catalog.queries.values()
        steps = circuit.Circuit(plan, {}, {}, tuning=Tuning(aggregation="auto")).flow.steps
        assert any(isinstance(s.operator, AggregateDeltas) for s in steps) is expected
