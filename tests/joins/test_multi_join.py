"""The multi-way join finds exactly the combinations that live together, in any order, in parts, by key or by band."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from windrow.operators import join as join_module
from windrow.operators import join_steps
from windrow.operators.elements import INF, Elements, concat
from windrow.operators.join import JoinOperator
from windrow.operators.join_steps import Part
from windrow.operators.linear import Formula
from windrow.operators.state.bands import Band, codes_of, range_of
from windrow.operators.state.pairs import Pairs
from windrow.optimize.order_joins import best_orders, model_of
from windrow_bench.one_join import Chooser

Row = tuple[object, ...]


def stream(name: str, n: int, span: int, window: int, seed: int, **columns: Sequence[object]) -> Elements:
    """Random arrivals with a window; each column draws from the given values."""
    rng = np.random.default_rng(seed)
    ts = np.sort(rng.integers(0, span, n))
    drawn = {
        f"{name}.{c}": pa.array([values[k] for k in rng.integers(0, len(values), n)]) for c, values in columns.items()
    }
    return Elements.positive(ts, ts + window, drawn)


def parts_of(streams: Sequence[Elements], **flags: bool) -> list[Part]:
    return [Part({n: a.type for n, a in s.columns.items()}, **flags) for s in streams]


def run(
    join: JoinOperator | Chooser,
    streams: Sequence[Elements],
    step: int,
    reorder: Sequence[Sequence[Sequence[int]]] = (),
) -> Elements:
    """Drive the join in batches of `step` ticks; after batch k, follow `reorder[k]`."""
    last, outputs = -1, []
    end = max(int(s.ts.max()) for s in streams)
    for k, frontier in enumerate(range(step - 1, end + step, step)):
        outputs.append(join.advance([s.filter((s.ts > last) & (s.ts <= frontier)) for s in streams], frontier))
        if k < len(reorder):
            join.follow(reorder[k])
        last = frontier
    return concat(outputs)


def bag(elements: Elements) -> Counter[Row]:
    """Elements as a bag of (ts, exp, row) with signs."""
    rows: Counter[Row] = Counter()
    columns = [elements.columns[c].to_pylist() for c in sorted(elements.columns)]
    for ts, exp, sign, *row in zip(elements.ts, elements.exp, elements.sign, *columns, strict=True):
        rows[int(ts), int(exp), repr(row)] += int(sign)
    return rows


KEYED = [
    stream("a", 60, 50, 9, 1, k=[1, 2, 3, None], x=[1.5, 2.5, float("nan")]),
    stream("b", 60, 50, 5, 2, k=[1, 2, 3, None], j=["u", "v"]),
    stream("c", 60, 50, 12, 3, j=["u", "v", None], x=[1, 2, 3, 4]),
]
EQUALITIES = [("a.k", "b.k", False), ("b.j", "c.j", False)]
BEFORE = Formula('"a.x" < "c.x"', pa.bool_(), ("a.x", "c.x"))


@pytest.mark.parametrize("stretch", [8, 16, 2048])
@pytest.mark.parametrize("step", [1, 7, 100])
def test_orders_change_no_answer(step: int, stretch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever orders are followed, and however they change on the way, the result is the same; as it is when what
    comes at once is taken in stretches."""
    parts = parts_of(KEYED)
    want = bag(run(JoinOperator(parts, EQUALITIES, [BEFORE]), KEYED, 100))
    assert len(want) > 50
    monkeypatch.setattr(join_steps, "STRETCH", stretch)
    assert len(list(join_steps.stretches(KEYED, [False] * 3, 100))) == {8: 10, 16: 10, 2048: 1}[stretch]
    back = [[2, 1, 0]] * 3
    forth = [[0, 1, 2], [1, 0, 2], [2, 0, 1]]
    assert bag(run(JoinOperator(parts, EQUALITIES, [BEFORE], orders=back), KEYED, step)) == want
    assert bag(run(JoinOperator(parts, EQUALITIES, [BEFORE]), KEYED, step, [back, forth, back])) == want


def test_results_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product far larger than a part is made of small pieces, bounded by a row's candidates."""
    one = [stream(n, 80, 10, 100, i, k=[7]) for i, n in enumerate("abc")]
    equalities = [("a.k", "b.k", False), ("b.k", "c.k", False)]
    want = bag(run(JoinOperator(parts_of(one), equalities), one, 100))
    monkeypatch.setattr(join_module, "PART_ROWS", 500)
    join = JoinOperator(parts_of(one), equalities)
    pieces = list(join.parts_of(one, 100))
    assert max(len(p) for p in pieces) <= 500 + 80
    assert sum(len(p) for p in pieces) == 80**3
    assert bag(concat(pieces)) == want


@pytest.mark.parametrize("interval", [0, 3, 1000])
@pytest.mark.parametrize("eager", [False, True])
def test_expiration_changes_no_answer(interval: int, eager: bool) -> None:
    """Ended elements meet nobody, whether or not they are still in memory."""
    want = bag(run(JoinOperator(parts_of(KEYED), EQUALITIES), KEYED, 100))
    assert bag(run(JoinOperator(parts_of(KEYED), EQUALITIES, eager=eager, interval=interval), KEYED, 2)) == want


def test_null_and_nan_keys() -> None:
    """Null keys match nothing; NaN matches NaN; -0.0 matches 0.0."""
    left = Elements.positive(np.zeros(4, np.int64), INF, {"a.k": pa.array([None, float("nan"), -0.0, 5.0])})
    right = Elements.positive(np.zeros(4, np.int64), INF, {"b.k": pa.array([None, float("nan"), 0.0, 6.0])})
    found = run(JoinOperator(parts_of([left, right]), [("a.k", "b.k", False)]), [left, right], 10)
    assert len(found) == 2


def test_long_strings() -> None:
    """Keys longer than a page, equal but for their last character, are told apart."""
    keys = ["x" * 100_000 + c for c in "abcd"]
    left = Elements.positive(np.zeros(4, np.int64), INF, {"a.k": pa.array(keys)})
    right = Elements.positive(np.zeros(2, np.int64), INF, {"b.k": pa.array(keys[1:3])})
    found = run(JoinOperator(parts_of([left, right]), [("a.k", "b.k", False)]), [left, right], 10)
    assert sorted(v[-1] for v in found.columns["a.k"].to_pylist()) == ["b", "c"]


BANDS = [(-2.0, 3.0), (float("-inf"), 0.0), (1.5, float("inf"))]


@pytest.mark.parametrize(("low", "high"), BANDS)
@pytest.mark.parametrize("keyed", [False, True])
def test_bands_find_what_products_find(low: float, high: float, keyed: bool) -> None:
    """A sorted probe, with or without an equality beside it, gives the answer of the filtered product."""
    numbers = [1, 2, 3, 5, 8, 13, -4, None]
    streams = [
        stream("a", 70, 40, 8, 4, k=[1, 2], x=numbers),
        stream("b", 70, 40, 6, 5, k=[1, 2], x=[0.5, 2.0, float("nan"), 7.25, None, float("inf")]),
    ]
    text = [f'"a.x" >= "b.x" + {low}'] * (low > float("-inf")) + [f'"a.x" <= "b.x" + {high}'] * (high < float("inf"))
    residual = [Formula(f"({t})", pa.bool_(), ("a.x", "b.x")) for t in text]
    equalities = [("a.k", "b.k", False)] if keyed else []
    want = bag(run(JoinOperator(parts_of(streams), equalities, residual), streams, 100))
    band = JoinOperator(parts_of(streams), equalities, residual, bands=[Band("a.x", "b.x", low, high)])
    assert bag(run(band, streams, 3)) == want
    assert len(want) > 20


def test_a_band_looks_only_at_its_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """A narrow band over many rows makes few candidates."""
    n = 20_000
    value = np.random.default_rng(1).permutation(n)
    streams = [Elements.positive(np.zeros(n, np.int64), INF, {f"{s}.x": pa.array(value)}) for s in "ab"]
    seen = []
    matching = JoinOperator._matching

    def counting(self: JoinOperator, step: object, found: Elements, met: Pairs) -> Pairs:
        seen.append(len(met))
        return matching(self, step, found, met)  # type: ignore[arg-type]

    monkeypatch.setattr(JoinOperator, "_matching", counting)
    near = Formula('("a.x" BETWEEN "b.x" - 1 AND "b.x" + 1)', pa.bool_(), ("a.x", "b.x"))
    found = run(JoinOperator(parts_of(streams), [], [near], bands=[Band("a.x", "b.x", -1, 1)]), streams, 10)
    assert len(found) == 3 * n - 2
    assert sum(seen) < 4 * n


def test_codes_keep_order() -> None:
    """Codes ascend with values, NaN last; ranges hold every partner, even for integers beyond the doubles."""
    codes = codes_of(pa.array([float("-inf"), -1.5, -0.0, 0.0, 2.0, float("inf"), float("nan")]))
    assert (np.diff(codes) >= 0).all()
    assert codes[2] == codes[3]
    great = pa.array([2**62 + 1])
    low, high = range_of(great, -1, 1)
    assert low[0] <= codes_of(pa.array([2**62]))[0] <= high[0]


def test_reorders_after_a_rate_change() -> None:
    """When rates turn so that another order is 3x cheaper, the join is within 20% of the best order in 5 ticks."""
    rng = np.random.default_rng(3)
    join = JoinOperator(
        [Part({f"{s}.k": pa.int64()}) for s in "abc"],
        [("a.k", "b.k", False), ("b.k", "c.k", False)],
        measures=True,
    )
    chooser = Chooser(join)
    before, after, window = {"a": 200, "b": 400, "c": 4}, {"a": 200, "b": 4, "c": 400}, 10

    def tick(t: int, rates: dict[str, int]) -> None:
        inputs = []
        for s, rate in rates.items():
            ts = np.sort(rng.integers(10 * t, 10 * t + 10, rate))
            inputs.append(Elements.positive(ts, ts + window, {f"{s}.k": pa.array(rng.integers(0, 40, rate))}))
        chooser.advance(inputs, 10 * t + 9)

    for t in range(10):
        tick(t, before)
    assert join.orders[0] == (0, 2, 1)
    for t in range(10, 15):
        tick(t, after)
    model = model_of([s.observed for s in join.measured().inputs])
    assert model.general_cost([(0, 2, 1), (1, 2, 0), (2, 0, 1)]) > 3 * model.general_cost(best_orders(model))
    cost = model.general_cost([join.orders[i] for i in range(3)])
    assert cost <= 1.2 * model.general_cost(best_orders(model))
    assert join.orders[0] == (0, 1, 2)
    assert chooser.describe()["statistics"]["c"]["rate"] == pytest.approx(40, rel=0.2)


def test_state_survives_other_orders() -> None:
    """A join restored from the state of other orders goes on with the same answer."""
    parts = parts_of(KEYED)
    first = [s.filter(s.ts < 25) for s in KEYED]
    second = [s.filter(s.ts >= 25) for s in KEYED]
    whole = JoinOperator(parts, EQUALITIES)
    whole.advance(first, 24)
    want = bag(whole.advance(second, 60))
    before = JoinOperator(parts, EQUALITIES, orders=[[2, 1, 0]] * 3)
    before.advance(first, 24)
    after = JoinOperator(parts, EQUALITIES)
    after.restore(before.state(), 24)
    assert bag(after.advance(second, 60)) == want


def test_describe_names_everything() -> None:
    """EXPLAIN's material: orders and methods by input name."""
    band = Band("a.x", "c.x", float("-inf"), 0)
    join = Chooser(JoinOperator(parts_of(KEYED), EQUALITIES, [BEFORE], bands=[band], measures=True))
    run(join, KEYED, 10)
    described = join.describe()
    assert described["orders"]["a"] == ["b", "c"]
    assert described["methods"]["a"] == ["b.k = a.k", "c.j = b.j and c.x near a.x"]
    assert {"cost", "alternatives", "statistics", "matches per probe"} <= described.keys()
