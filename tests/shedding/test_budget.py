"""Tick budgets: what is shed under load, what answers say of it, and that they are exact before and after."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from scaled import scaled_average, scaled_count, scaled_sum

import windrow
from windrow.catalog import Catalog
from windrow.engine.replay import Replay
from windrow.engine.script import bind_script
from windrow.errors import WindrowError
from windrow.optimize import optimize
from windrow.plan.nodes import QueryPlan, TickBudget
from windrow.plan.weights import WEIGHT, gate_of, reach, weighed
from windrow.runtime.admission import admit
from windrow.runtime.budget import Budgets
from windrow.runtime.messages import Shed, TaskReport
from windrow.testing import assert_same, seeded_case

DECLARE = """
CREATE STREAM s (k BIGINT, v BIGINT, imp DOUBLE, ts BIGINT) TIMESTAMP BY ts;
CREATE STREAM r (k BIGINT, v BIGINT, imp DOUBLE, ts BIGINT) TIMESTAMP BY ts;
CREATE TABLE f (k BIGINT, name VARCHAR);
"""
SHED = "SHED WHEN TICK OVER '1 second' IMPORTANCE imp"
GROUPED = "SELECT k, COUNT(*) AS n, SUM(v) AS s, AVG(v) AS a, MAX(v) AS m FROM s [RANGE 100 SLIDE 50] GROUP BY k"
PICKED = "SELECT ISTREAM(v, ts AS at) FROM s [RANGE 60] WHERE v > 20"


def plan(query: str) -> QueryPlan:
    catalog = bind_script(f"{DECLARE} CREATE QUERY q AS {query}", Catalog())
    return optimize(catalog.queries["q"], catalog)


def batch(rng: np.random.Generator, number: int, rows: int) -> pa.Table:
    """Rows of fifty ticks of time."""
    ts = np.sort(rng.integers(50 * number, 50 * number + 50, rows))
    columns = {"k": rng.integers(0, 3, rows), "v": rng.integers(0, 100, rows), "imp": rng.exponential(1.0, rows) + 0.01}
    return pa.table({**columns, "ts": ts})


class Loaded:
    """A local engine on a clock on which every row that passes takes a millisecond."""

    def __init__(self, *queries: str, **options: object) -> None:
        self.engine = windrow.Engine("local", **options)  # type: ignore[arg-type]
        self.now, self.kept, self.took = 0.0, [], []
        self.engine.runtime.measure_by(lambda: self.now)
        run = self.engine.runtime.job.run

        def timed(*given):  # type: ignore[no-untyped-def]
            sent = run(*given)
            gates = {e.message.admission.gate: e.message.admission.kept for e in sent if isinstance(e.message, Shed)}
            self.kept.append(next(iter(gates.values()), 0))
            self.took.append(0.001 * self.kept[-1])
            self.now += self.took[-1]
            phases = {"advance": self.took[-1]}
            reports = {i: e for i, e in enumerate(sent) if isinstance(e.message, TaskReport)}
            for i, e in reports.items():
                sent[i] = replace(e, message=replace(e.message, seconds=phases))
            return sent

        self.engine.runtime.job.run = timed
        self.engine.execute(DECLARE.split("CREATE STREAM r")[0] + ";".join(queries))
        self.engine.start()

    def push(self, loads: list[int], seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        for number, rows in enumerate(loads):
            self.engine.push("s", batch(rng, number, rows))


LOADS = [500] * 5 + [3000] * 15 + [500] * 10


def rows_of(table: pa.Table, *names: str) -> list[tuple]:
    return sorted(zip(*(table.column(n).to_pylist() for n in names), strict=True))


def test_load_is_shed_and_answers_say_so(caplog: pytest.LogCaptureFixture) -> None:
    """Ticks stay within the budget; approximate lines are marked; before and after, every line is exact."""
    caplog.set_level(logging.INFO, "windrow.engine")
    loaded = Loaded(
        f"CREATE QUERY q AS {GROUPED} {SHED}", f"CREATE QUERY p AS {PICKED} {SHED}", f"CREATE QUERY exact AS {GROUPED}",
        f"CREATE QUERY all_picked AS {PICKED}",
    )  # fmt: skip
    loaded.push(LOADS)
    assert all(t <= 1.2 for t in loaded.took[7:])
    assert min(loaded.kept[-5:]) > 450
    shed, exact = loaded.engine["q"].results(), loaded.engine["exact"].results()
    marked = np.array(shed["_approximate"])
    ts = np.array(shed["_ts"])
    assert marked.any() and not marked[ts < 250].any() and not marked[ts >= 1150].any()
    names = ("_ts", "k", "n", "s", "a", "m")
    want = set(rows_of(exact, *names))
    assert set(rows_of(shed.filter(pa.array(~marked)), *names)) <= want
    assert set(rows_of(shed.filter(pa.array(ts >= 1150)), *names)) == {r for r in want if r[0] >= 1150}
    assert {*shed.filter(pa.array(~marked))["_error_n"].to_pylist()} == {0.0}
    picked, every = loaded.engine["p"].results(), loaded.engine["all_picked"].results()
    assert set(rows_of(picked, "_ts", "v", "at")) <= set(rows_of(every, "_ts", "v", "at"))
    quality = loaded.engine["q"].quality()["time"]
    assert quality["exact"] and quality["rows_shed"] > 10_000 and not quality["shedding"]
    assert quality["importance_kept"] > 1.5 * quality["estimated_recall"]
    assert loaded.engine["exact"].quality() is None
    assert json.loads(picked.schema.metadata[b"windrow.quality"])["time"]["rows_shed"] == quality["rows_shed"]
    status = loaded.engine.status()
    assert status["queries"]["q"]["quality"]["time"] == quality
    assert status["shedding"]["gates"][0]["queries"] == ["p", "q"]
    said = caplog.text
    assert "rows, importance kept" in said and "all rows are kept again" in said and "exact again from" in said


def test_estimates_are_near_the_truth() -> None:
    """Scaled sums and counts are right on average, and mostly within their bounds."""
    query = "SELECT COUNT(*) AS n, SUM(v) AS s, AVG(v) AS a FROM s [RANGE 100 SLIDE 50]"
    inside, ratio = [], []
    for seed in range(8):
        loaded = Loaded(f"CREATE QUERY q AS {query} SHED WHEN TICK OVER '1 second'", f"CREATE QUERY x AS {query}")
        loaded.push(LOADS, seed)
        got, want = loaded.engine["q"].results().to_pylist(), loaded.engine["x"].results().to_pylist()
        for g, w in zip(got, want, strict=True):
            if g["_approximate"] and g["_error_n"] > 0:
                ratio.append(g["n"] / w["n"])
                inside += [abs(float(g[c]) - float(w[c])) <= g[f"_error_{c}"] for c in "nsa"]
    assert len(ratio) > 50
    assert np.mean(ratio) == pytest.approx(1.0, abs=0.02)
    assert np.mean(inside) > 0.85


def test_a_budget_for_all_queries() -> None:
    """The engine's setting sheds for queries that name no budget, by the importance they name for SHED BY."""
    loaded = Loaded(f"CREATE QUERY q AS {GROUPED}", tick_budget="1 second")
    loaded.push(LOADS)
    assert all(t <= 1.2 for t in loaded.took[7:])
    assert loaded.engine["q"].quality()["time"]["rows_shed"] > 10_000
    assert loaded.engine.status()["shedding"]["default_seconds"] == 1.0
    budgets = Budgets(5_000_000)
    joined = "SELECT r.v FROM r [RANGE 9], s [RANGE 9] WHERE r.k = s.k SHED BY SIMP KEEP 10 ROWS IMPORTANCE imp"
    assert gate_of(budgets.add(plan(joined))) == '[5000000, ["r", "\\"imp\\""], ["s", "\\"imp\\""]]'
    for bad in ("soon", 0, -1, float("nan"), "5"):
        with pytest.raises(WindrowError, match="tick_budget"):
            windrow.Engine("local", tick_budget=bad)


@pytest.mark.parametrize("first", range(0, 60, 12))
def test_weights_of_one_change_nothing(first: int, in_process_job, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """With nothing shed, the plan that can scale gives the answer of the plan that cannot."""
    for seed in range(first, first + 12):
        case = seeded_case(seed)
        replay = Replay.of(case.script, case.streams, case.tables, case.until)
        budget = TickBudget(1_000_000)
        queries = {n: weighed(replace(p, budget=budget)) for n, p in replay.catalog.queries.items()}
        replay.catalog = replace(replay.catalog, queries=queries)
        want = windrow.run(case.script, case.streams, case.tables, runtime="local", until=case.until)
        got = replay.in_home(str(tmp_path / str(seed)), in_process_job(2, chaos=seed), 6, "upa", partitions=2)
        for name, table in want.items():
            errors = [c for c in got[name].column_names if c.startswith("_error_")]
            assert all(set(got[name][c].to_pylist()) <= {0.0} for c in errors)
            assert_same(got[name].drop_columns(errors), table)


def test_scaling_is_horvitz_thompson() -> None:
    """An aggregate over weighted rows is what the estimators say, with their bounds."""
    from windrow.plan.dataflow import Circuit

    made = weighed(replace(plan("SELECT COUNT(*) AS n, COUNT(v) AS c, SUM(v) AS s, AVG(v) AS a FROM s [RANGE 100]")))
    rng = np.random.default_rng(5)
    ts, probability = np.zeros(40, np.int64), rng.choice([0.1, 0.5, 1.0], 40)
    v = rng.integers(-20, 90, 40).astype(float)
    columns = {"v": pa.array([None, *v[1:].astype(int).tolist()], pa.int64()), WEIGHT: pa.array(1 / probability)}
    circuit = Circuit(made, {}, {})
    circuit.start(0)
    (row,) = circuit.answer(circuit.advance(lambda _: (ts, columns), 0)).to_pylist()
    rest, kept = v[1:], probability[1:]
    count, some = scaled_count(probability), scaled_count(kept)
    total, mean = scaled_sum(rest, kept), scaled_average(rest, kept)
    assert mean is not None
    assert (row["n"], row["c"], row["s"]) == (round(count.value), round(some.value), round(total.value))
    assert row["a"] == pytest.approx(mean.value)
    for name, estimate in (("n", count), ("c", some), ("s", total), ("a", mean)):
        assert row[f"_error_{name}"] == pytest.approx(estimate.bound)


@pytest.mark.parametrize(
    ("query", "length"),
    [
        ("SELECT v FROM s [RANGE 60]", 61),
        ("SELECT ISTREAM(v) FROM s", 1),
        ("SELECT v FROM s", None),
        ("SELECT COUNT(*) AS n FROM s [RANGE 60 SLIDE 20]", 60),
        ("SELECT COUNT(*) AS n FROM s [ROWS 5]", None),
        ("SELECT r.v FROM s [RANGE 10], r [RANGE 60] WHERE s.k = r.k", 61),
        ("SELECT r.v FROM s, r [RANGE 60] WHERE s.k = r.k", None),
        ("SELECT s.v FROM s [NOW], f WHERE s.k = f.k", 2),
    ],
)
def test_how_long_a_shed_row_matters(query: str, length: int | None) -> None:
    """The reach of a row is the longest window above it, and one evaluation more where answers are compared."""
    assert reach(plan(query)) == length


def test_joins_scale_without_a_bound_and_other_aggregates_do_not() -> None:
    """A sum over a join multiplies weights and promises no bound; MIN and DISTINCT are those of the kept rows."""
    from windrow.plan.dataflow import Circuit

    query = (
        "SELECT COUNT(*) AS n, MIN(s.v) AS low, COUNT(DISTINCT s.v) AS d FROM s [RANGE 9], r [RANGE 9] WHERE s.k = r.k"
    )
    circuit = Circuit(weighed(plan(query)), {}, {})
    circuit.start(0)
    columns = {"k": pa.array([1, 1]), "v": pa.array([7, 7]), WEIGHT: pa.array([2.0, 1.0])}
    ts = np.zeros(2, np.int64)
    (row,) = circuit.answer(circuit.advance(lambda _: (ts, columns), 0)).to_pylist()
    assert (row["n"], row["low"], row["d"], row["_error_n"]) == (9, 7, 1, None)
    assert "_error_low" not in row


def test_the_same_rows_pass_again() -> None:
    """What a gate keeps depends on the rows and the quota alone."""
    rows = batch(np.random.default_rng(3), 0, 900)
    budget = plan(f"{GROUPED} {SHED}").budget
    assert budget is not None
    columns = {n: rows[n].chunk(0) for n in rows.column_names}
    ts = rows["ts"].to_numpy()
    first = admit("g", budget, "s", ts, columns, 100)
    again = admit("g", budget, "s", ts, columns, 100)
    assert all(first[1][n].equals(again[1][n]) for n in first[1])
    assert first[2] == again[2] and (first[2].seen, first[2].kept) == (900, 100)
    assert len(admit("g", budget, "s", ts, columns, None)[0]) == 900


@pytest.mark.parametrize("bad", [0.0, -1.0, None, float("inf"), float("nan")])
def test_bad_importance_is_refused(bad: float | None) -> None:
    """Importance must be a finite number above zero, under load or not."""
    loaded = Loaded(f"CREATE QUERY q AS {GROUPED} {SHED}")
    rows = {"k": [1, 1], "v": [1, 1], "imp": pa.array([1.0, bad], pa.float64()), "ts": [1, 2]}
    loaded.engine.push("s", pa.table(rows))
    loaded.engine.advance(10)
    assert "importance" in loaded.engine.status()["failed"]["q"]


def test_what_was_shed_is_remembered() -> None:
    """Budgets go on from what was kept with the state: capacity, counts, and until when answers are approximate."""
    query = plan(f"{GROUPED} {SHED}")
    budgets = Budgets()
    budgets.add(query)
    assert query.budget is not None
    rows = batch(np.random.default_rng(3), 0, 900)
    columns = {n: rows[n].chunk(0) for n in rows.column_names}
    key = gate_of(query)
    assert key is not None
    for quota in (None, 100):
        _, _, report = admit(key, query.budget, "s", rows["ts"].to_numpy(), columns, quota)
        budgets.record([report])
        budgets.observe(1, 5.0, 10)
    assert budgets.quality("q")["shedding"]
    budgets.record([])  # a tick without rows
    assert budgets.quality("q")["shedding"] and budgets.gates[key].shedding and budgets.gates[key].ticks == 1
    after = Budgets()
    after.load(json.loads(json.dumps(budgets.dump())))
    after.add(query)
    assert after.quotas() == budgets.quotas() != {}
    assert after.spans == budgets.spans and after.spans["q"][0][1] == 49 + 100
    assert after.quality("q")["rows_shed"] == 800
    after.drop("q")
    assert not after.gates and after.quality("q") is None


def test_importance_must_be_known_before_anything_is_computed() -> None:
    """Rows are shed before subqueries and user functions run, so these cannot say what matters."""
    windrow.function("weigh", lambda a: a, returns="bigint")
    for query, message in (
        ("SELECT COUNT(*) AS n FROM s [RANGE 9] SHED WHEN TICK OVER '1 s' IMPORTANCE weigh(v)", "a user function"),
        (
            "SELECT COUNT(*) AS n FROM (SELECT ISTREAM(v * 2 AS w) FROM s) [RANGE 9] d "
            "SHED WHEN TICK OVER '1 s' IMPORTANCE d.w",
            "a subquery computes",
        ),
    ):
        engine = windrow.Engine("local")
        engine.execute(DECLARE.split("CREATE STREAM r")[0])
        with pytest.raises(WindrowError, match=message):
            engine.execute(f"CREATE QUERY q AS {query}")


def test_instances_of_a_template_under_a_budget_say_what_queries_under_it_say() -> None:
    """Half widths and marks are columns of their one answer, too."""
    loaded = Loaded(
        "CREATE TEMPLATE t (key BIGINT)"
        " AS SELECT COUNT(*) AS n, SUM(v) AS s FROM s [RANGE 100 SLIDE 50] WHERE k = $key",
        "CREATE QUERIES many FROM TEMPLATE t VALUES (0), (1)",
        "CREATE QUERY one AS SELECT COUNT(*) AS n, SUM(v) AS s FROM s [RANGE 100 SLIDE 50] WHERE k = 1",
        tick_budget="1 second",
    )
    rng = np.random.default_rng(1)
    for number in range(6):
        loaded.engine.push("s", batch(rng, number, 3000))
    many, one = loaded.engine["many"].results(), loaded.engine["one"].results()
    assert many.column_names == ["_ts", "key", *one.column_names[1:]]
    assert any(one["_approximate"].to_pylist())
    assert many.filter(pa.compute.equal(many["key"], 1)).drop_columns(["key"]).to_pylist() == one.to_pylist()
    assert loaded.engine["many"].snapshot().column_names == many.column_names
    loaded.engine.stop()
