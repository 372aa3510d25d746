"""MIN and MAX below a join: the same answers from fewer entries, in any mix of groups and rows."""

from __future__ import annotations

from itertools import product

import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.errors import StateError
from windrow.operators import early_extremes
from windrow.operators.aggregates import Aggregation
from windrow.operators.early_extremes import EarlyExtremes
from windrow.operators.elements import Elements
from windrow.plan.aggregate_join_cost import early_extremes_pay
from windrow.plan.lower import Tuning
from windrow.testing import assert_same, oracle

WINDOWS = ["[RANGE 7]", "[RANGE 3]", "[ROWS 4]", "[PARTITION BY k ROWS 2]", "[RANGE UNBOUNDED]", "[NOW]"]
PERIODIC = ["[RANGE 9 SLIDE 3]", "[RANGE 3 SLIDE 3]", "[RANGE UNBOUNDED SLIDE 3]"]
CALLS = ["MIN({0}.x)", "MAX({0}.x)", "MAX({0}.n)", "MIN({0}.k)", "MIN({0}.n + 1)", "COUNT(DISTINCT {0}.n)"]
TYPES = {"k": pa.int64(), "x": pa.int64()}
LEAST = Aggregation("min", "x", "x", pa.int64())


def streams(seed: int, rows: int = 25) -> dict[str, pa.Table]:
    """Three streams; keys repeat and everything may be null."""
    rng = np.random.default_rng(seed)

    def some(values: list[object]) -> list[object]:
        return [None if rng.random() < 0.08 else values[k] for k in rng.integers(0, len(values), rows)]

    return {
        s: pa.table({
            "ts": np.sort(rng.integers(0, 30, rows)), "k": pa.array(some(["a", "b", "c"]), pa.string()),
            "n": pa.array(some([0, 1, 2, 10**12]), pa.int64()),
            "x": pa.array(some([0.5, 0.0, -0.0, float("nan"), 3.0]), pa.float64()),
        })
        for s in "STU"
    }  # fmt: skip


def script(seed: int) -> str:
    """A random join under aggregates to which repetitions are nothing."""
    rng = np.random.default_rng(seed)

    def pick(values: list[str]) -> str:
        return values[int(rng.integers(len(values)))]

    windows = PERIODIC if rng.random() < 0.4 else WINDOWS
    sources = ["S", "T", "U"][: 2 + (rng.random() < 0.3)]
    where = [f"S.k = {other}.k" for other in sources[1:]] + (["S.n <= T.n"] if rng.random() < 0.3 else [])
    keys = [f"{s}.{c}" for s in sources for c in ("k", "n") if rng.random() < 0.25]
    calls = [f"{pick(CALLS).format(pick(sources))} AS c{i}" for i in range(rng.integers(1, 4))]
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    parts = ", ".join(f"{s} {pick(windows)}" for s in sources)
    return f"SELECT {', '.join([*keys, *calls])} FROM {parts} WHERE {' AND '.join(where)}{group}"


@pytest.mark.parametrize("seed", range(10))
def test_plans_equal_the_definition(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For random queries every plan answers as the oracle does, whatever the batches and wherever rows pass."""
    text, given = script(seed), streams(seed)
    used = {name: rows for name, rows in given.items() if f"{name} [" in text}
    want = oracle(text, used, {}, None)["q1"]
    monkeypatch.setattr(early_extremes, "LEAST", 2)
    monkeypatch.setattr(early_extremes, "LOOK", 0)
    monkeypatch.setattr(early_extremes, "PASS", 1)
    for plan in ["auto", *("".join(bits) for bits in product("01", repeat=len(used)))]:
        monkeypatch.setattr("windrow.runtime.program.MEASURING", Tuning(measures=True, aggregation=plan))
        for batch_rows in (None, 3):
            got = windrow.run(text, used, {}, runtime="local", batch_rows=batch_rows)["q1"]
            try:
                assert_same(got, want)
            except AssertionError as error:
                raise AssertionError(f"{plan} in batches of {batch_rows}: {text}\n{error}") from error


def rows_of(seed: int, keys: int, rows: int = 400) -> Elements:
    """Rows in a window of 20 ticks."""
    rng = np.random.default_rng(seed)
    ts = np.sort(rng.integers(0, 200, rows))
    columns = {"k": pa.array(rng.integers(0, keys, rows)), "x": pa.array(rng.integers(0, 50, rows))}
    return Elements.positive(ts, ts + 20, columns)


def least(parts: list[Elements], t: int) -> dict[int, int]:
    """The least value of each key among what is there at an instant."""
    bag: dict[tuple[int, int], int] = {}
    for e in parts:
        alive = np.flatnonzero((e.ts <= t) & (t < e.exp))
        values = (e.columns[c].take(pa.array(alive)).to_pylist() for c in "kx")
        for sign, k, x in zip(e.sign[alive].tolist(), *values, strict=True):
            bag[k, x] = bag.get((k, x), 0) + sign
    assert min(bag.values(), default=0) >= 0
    found: dict[int, int] = {}
    for (k, x), count in bag.items():
        if count:
            found[k] = min(x, found.get(k, x))
    return found


@pytest.mark.parametrize("restarts", [False, True])
def test_any_mix_of_groups_and_rows_has_the_same_extremes(restarts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that pass and groups that are kept go on side by side, over restarts too."""
    monkeypatch.setattr(early_extremes, "LEAST", 30)
    monkeypatch.setattr(early_extremes, "LOOK", 1)
    monkeypatch.setattr(early_extremes, "PASS", 1)

    def made() -> EarlyExtremes:
        operator = EarlyExtremes(["k"], [LEAST], TYPES, pays=lambda changing: False)
        operator.start(0)
        return operator

    rows, operator, sent = rows_of(3, 5), made(), []
    for t in range(9, 240, 10):
        sent.append(operator.advance([rows.filter((rows.ts > t - 10) & (rows.ts <= t))], t))
        if restarts:
            state, operator = operator.state(), made()
            operator.restore(state, t)
    assert any((e.exp - e.ts == 20).sum() > 5 for e in sent)  # some passed as they were
    assert any((e.sign < 0).any() for e in sent)  # some did not
    for t in range(240):
        assert least(sent, t) == least([rows], t)


def test_rows_pass_where_every_row_is_a_group() -> None:
    """The cost model lets groups be kept where they shrink, and rows pass where they do not."""
    changes = {}
    for keys in (4, 10**9):
        operator = EarlyExtremes(["k"], [LEAST], TYPES, pays=early_extremes_pay)
        operator.start(0)
        rows, found = rows_of(1, keys, 40_000), 0
        for t in range(9, 200, 10):
            found += len(operator.advance([rows.filter((rows.ts > t - 10) & (rows.ts <= t))], t))
        changes[keys] = found
    assert changes[4] < 40_000 / 10
    assert 40_000 < changes[10**9] < 1.7 * 40_000  # aggregated, all of them would come to 80,000


def test_explain_says_what_is_kept_below_the_join() -> None:
    """A running query names the extremes below its join; with COUNT beside them there are none."""
    text = "SELECT S.k, MIN(T.x) AS low, MAX(T.x) AS high FROM S [RANGE 5], T [RANGE 5] WHERE S.k = T.k GROUP BY S.k"
    with windrow.Engine(runtime="local") as engine:
        engine.execute(
            "CREATE STREAM S (k VARCHAR, ts BIGINT) TIMESTAMP BY ts; CREATE STREAM T (k VARCHAR, x DOUBLE, ts BIGINT)"
            f" TIMESTAMP BY ts; CREATE QUERY q AS {text}; CREATE QUERY p AS {text.replace('MAX(T.x)', 'COUNT(*)')}"
        )
        engine.start()
        for stream in "ST":
            engine.push(
                stream, [{"k": "a", "x": 1.0, "ts": t} if stream == "T" else {"k": "a", "ts": t} for t in (1, 2)]
            )
        engine.drain()
        shown = engine["q"].explain()
        assert "below the join: MIN(T.x), MAX(T.x) by T.k" in shown
        assert "below the join: distinct by S.k" in shown
        assert "below the join" not in engine["p"].explain()


def test_state_of_another_layout_is_refused() -> None:
    """State that was written without extremes below the join is refused with what to do."""
    operator = EarlyExtremes(["k"], [LEAST], TYPES)
    state = {slot: runs for slot, runs in operator.state().items() if slot != "figures"}
    with pytest.raises(StateError, match="older version"):
        operator.restore(state)
