"""The star join in bounded memory: the paper's heuristics, against a row-by-row account of them."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from reference import Fact, Reference, Row

from windrow.errors import SourceError
from windrow.operators.elements import INF, Elements
from windrow.operators.star_join import FactTable, Policy, StarJoinOperator, StarStream
from windrow.operators.star_memory import HEURISTICS

NAMES = "rsq"
FOREVER = 10**6


class Case:
    """Random streams, facts and a policy, for both the engine and the reference."""

    def __init__(self, seed: int, heuristic: str, streams: int = 2, plain: bool = False) -> None:
        rng = random.Random(seed)
        self.streams, self.plain = streams, plain
        domain, length = rng.choice([2, 3, 5]), rng.choice([4, 7, 12])
        dense = rng.random() < 0.5
        self.rows: list[Row] = []
        for s in range(streams):
            ts, n = 0, rng.randint(0, 30 if streams == 2 else 14)
            for number in range(n):
                ts += 1 if dense else rng.choice([0, 0, 1, 2, 5])
                key = None if rng.random() < 0.05 else rng.randrange(domain)
                self.rows.append(Row(s, ts, key, float(rng.choice([1, 1, 2, 3, 5])), number, ts + length))
        self.facts: list[Fact] = []
        if plain:
            self.facts = [Fact((k,) * streams, -FOREVER, FOREVER, k) for k in range(domain)]
        else:
            for number in range(rng.randint(0, 8)):
                begin = rng.choice([-FOREVER, -FOREVER, rng.randint(0, 20)])
                end = rng.choice([FOREVER, FOREVER, max(begin, 0) + rng.randint(0, 15)])
                self.facts.append(Fact(tuple(rng.randrange(domain) for _ in range(streams)), begin, end, number))
        shared = rng.random() < 0.3
        keep = [rng.randint(1, 4) for _ in range(streams)]
        self.policy = Policy(
            heuristic,
            tuple([sum(keep)] * streams if shared else keep),
            shared,
            alpha=rng.choice([1.0, 10.0]),
            beta=rng.choice([0.0, 0.5, 1.0]),
            seed=rng.randint(0, 9),
            evict_first=rng.random() < 0.3,
        )

    def expected(self, policy: Policy | None = None) -> Reference:
        p = policy or self.policy
        reference = Reference(
            self.facts, self.streams, p.heuristic, list(p.keep), p.shared, p.alpha, p.beta, p.seed, p.evict_first
        )
        rows = [Row(r.stream, r.ts, r.key, r.imp, r.number, r.exp) for r in self.rows]
        reference.run(rows)
        return reference

    def operator(self, policy: Policy | None = None) -> StarJoinOperator:
        parts = [
            StarStream(
                NAMES[s],
                {f"{NAMES[s]}.k": pa.int64(), f"{NAMES[s]}.imp": pa.float64(), f"{NAMES[s]}.n": pa.int64()},
                (f"{NAMES[s]}.k",), f"{NAMES[s]}.imp",
            )
            for s in range(self.streams)
        ]  # fmt: skip
        table = None
        if not self.plain:
            keys = tuple((f"f.{NAMES[s]}",) for s in range(self.streams))
            columns = {
                **{k[0]: pa.int64() for k in keys},
                "f.begin": pa.int64(),
                "f.end": pa.int64(),
                "f.n": pa.int64(),
            }
            table = FactTable("f", columns, keys, ("f.begin", "f.end"))
        return StarJoinOperator(parts, table, policy or self.policy)

    def inputs(self, low: int, high: int) -> list[Elements]:
        """The rows with low < ts <= high; the facts come with the first batch."""
        batches = []
        for s in range(self.streams):
            mine = [r for r in self.rows if r.stream == s and low < r.ts <= high]
            columns = {
                f"{NAMES[s]}.k": pa.array([r.key for r in mine], pa.int64()),
                f"{NAMES[s]}.imp": pa.array([r.imp for r in mine], pa.float64()),
                f"{NAMES[s]}.n": pa.array([r.number for r in mine], pa.int64()),
            }
            ts = np.array([r.ts for r in mine], np.int64)
            batches.append(Elements.positive(ts, np.array([r.exp for r in mine], np.int64), columns))
        if not self.plain:
            facts = self.facts if low < 0 else []
            columns = {f"f.{NAMES[s]}": pa.array([f.keys[s] for f in facts], pa.int64()) for s in range(self.streams)}
            columns["f.begin"] = pa.array([None if f.begin == -FOREVER else f.begin for f in facts], pa.int64())
            columns["f.end"] = pa.array([None if f.end == FOREVER else f.end for f in facts], pa.int64())
            columns["f.n"] = pa.array([f.number for f in facts], pa.int64())
            batches.append(Elements.positive(np.full(len(facts), -1), INF, columns))
        return batches

    def run(
        self, cuts: list[int], policy: Policy | None = None, restart: bool = False
    ) -> tuple[Counter, StarJoinOperator]:
        """Results as a bag of (row numbers..., fact number), advancing to each cut and then to the end."""
        operator = self.operator(policy)
        found: Counter = Counter()
        previous = -1
        for frontier in [*cuts, 10**4]:
            out = operator.advance(self.inputs(previous, frontier), frontier)
            names = [f"{NAMES[s]}.n" for s in range(self.streams)]
            last = out.columns[f"{NAMES[0]}.k"] if self.plain else out.columns["f.n"]
            found.update(zip(*(out.columns[n].to_pylist() for n in names), last.to_pylist(), strict=True))
            if restart:
                again = self.operator(policy)
                again.restore(operator.state(), frontier)
                operator = again
            previous = frontier
        return found, operator


@pytest.mark.parametrize("heuristic", HEURISTICS)
@pytest.mark.parametrize(("streams", "plain"), [(2, False), (2, True), (3, False)])
def test_every_heuristic_keeps_what_the_paper_says(heuristic: str, streams: int, plain: bool) -> None:
    """Results and memory are those of the row-by-row account, ties and order of events included."""
    for seed in range(60):
        case = Case(seed, heuristic, streams, plain)
        expected = case.expected()
        found, _ = case.run([])
        assert found == Counter(expected.results), (seed, case.policy)


@pytest.mark.parametrize("heuristic", HEURISTICS)
def test_batches_and_restarts_change_nothing(heuristic: str) -> None:
    """One row at a time, and a restore after each batch, give the same results."""
    for seed in range(15):
        case = Case(seed, heuristic)
        whole, _ = case.run([])
        assert case.run(list(range(160)))[0] == whole
        assert case.run([5, 11, 30], restart=True)[0] == whole


@pytest.mark.parametrize("heuristic", HEURISTICS)
def test_a_shed_answer_is_part_of_the_exact_one(heuristic: str) -> None:
    """Each result set is a sub-bag of the exact one, and equal to it when memory is large enough."""
    for seed in range(30):
        case = Case(seed, heuristic)
        exact, whole = case.run([], Policy("FIFO", (10**6,) * 2))
        assert whole.quality.exact
        assert whole.quality.recall == 1.0
        assert case.run([])[0] <= exact
        assert case.run([], Policy(heuristic, (10**6,) * 2))[0] == exact


def test_quality_counts_what_was_shed() -> None:
    """Rows seen, filtered and shed add up, and importance kept lies between 0 and 1."""
    case = Case(3, "SIMP")
    _, operator = case.run([], Policy("SIMP", (1, 1)))
    quality = operator.quality
    assert quality.rows_seen == len(case.rows)
    assert quality.rows_filtered + quality.rows_shed <= quality.rows_seen
    assert 0 <= quality.importance_kept <= 1
    assert 0 <= quality.recall <= 1
    assert quality.exact == (quality.rows_shed == 0)


def test_facts_come_and_go() -> None:
    """A fact inserted at t meets rows from t on; deleted at t it meets none from t on."""
    case = Case(0, "FIFO")
    case.rows = [Row(0, t, 1, 1.0, t, t + 100) for t in range(6)] + [Row(1, t, 1, 1.0, t, t + 100) for t in range(6)]
    case.facts = []
    operator = case.operator(Policy("FIFO", (100, 100)))
    fact = {"f.r": pa.array([1]), "f.s": pa.array([1]), "f.begin": pa.nulls(1, pa.int64()),
            "f.end": pa.nulls(1, pa.int64()), "f.n": pa.array([0])}  # fmt: skip
    found: set[tuple[int, int]] = set()
    for t in range(6):
        batch = case.inputs(t - 1, t)
        if t == 2:
            batch[-1] = Elements.positive(np.array([2]), INF, fact)
        if t == 4:
            batch[-1] = Elements.positive(np.array([4]), INF, fact).negated()
        out = operator.advance(batch, t)
        found |= set(zip(out.columns["r.n"].to_pylist(), out.columns["s.n"].to_pylist(), strict=True))
    assert found == {(a, b) for a in (2, 3) for b in (2, 3)}


@pytest.mark.parametrize("bad", [0.0, -1.0, float("inf"), float("nan"), None])
def test_importance_must_be_a_positive_number(bad: float | None) -> None:
    """A null, zero, negative or infinite importance is refused with the row's stream and time."""
    case = Case(0, "SIMP")
    case.rows = [Row(0, 7, 1, 1.0, 0, 9)]
    batch = case.inputs(-1, 10)
    batch[0].columns["r.imp"] = pa.array([bad], pa.float64())
    with pytest.raises(SourceError, match='stream "r"') as error:
        case.operator().advance(batch, 10)
    assert "time 7" in str(error.value)
    assert "greater than 0" in str(error.value)


def test_a_fact_that_ends_before_it_begins_is_refused() -> None:
    """A reversed interval is an error; an empty one is a fact that is never active."""
    case = Case(0, "SIMP")
    case.rows = [Row(0, 5, 1, 1.0, 0, 9), Row(1, 5, 1, 1.0, 0, 9)]
    case.facts = [Fact((1, 1), 5, 5, 0)]
    assert not case.run([])[0]
    case.facts = [Fact((1, 1), 6, 5, 0)]
    with pytest.raises(SourceError, match="ends before it begins"):
        case.run([])
