"""The cost model of the multi-way join gives the papers' figures, and the orders found by it are good."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from windrow.operators.statistics import Observed
from windrow.optimize.order_joins import (
    best_orders,
    heuristic_order,
    paper_order,
    plan_orders,
    respects,
    selective_order,
)
from windrow.plan.join_cost import JoinModel, WindowStatistics
from windrow_bench.join_yardsticks import (
    PaperModel,
    best_lazy_orders,
    exhaustive_order,
    naive_cost,
    on_one_attribute,
)

TABLE_5 = [(10, 100, 500), (1, 100, 50), (1, 200, 40), (3, 100, 5)]
TABLE_6 = [(100, 100, 200), (1, 100, 200), (1, 100, 20), (3, 100, 2)]
TABLE_7 = [(11, 100, 200), (10, 100, 100), (1, 100, 65), (1, 100, 20)]
THESIS_5_5 = [(10, 100, 40), (1, 100, 100), (1, 100, 8), (1, 100, 5)]  # printed with rate 100, computed with 10


def numbered(order: tuple[int, ...]) -> str:
    """An order as the papers write it."""
    return "".join(str(i + 1) for i in order)


@pytest.mark.parametrize(
    ("table", "order", "cost"),
    [
        (TABLE_5, "1234", 16000), (TABLE_5, "2134", 19600),
        (TABLE_6, "2134", 80400), (TABLE_6, "2314", 123150), (TABLE_6, "2341", 248450), (TABLE_6, "1234", 120000),
        (TABLE_7, "3142", 47977), (TABLE_7, "3412", 49542), (TABLE_7, "3124", 51954), (TABLE_7, "1234", 68200),
        (TABLE_7, "2134", 79000),
        (THESIS_5_5, "2134", 16200), (THESIS_5_5, "2341", 42600), (THESIS_5_5, "1234", 21000),
    ],
)  # fmt: skip
def test_printed_costs(table: list[tuple[float, float, float]], order: str, cost: int) -> None:
    """Every printed cost of a global order, to the digit."""
    model = PaperModel(on_one_attribute(table))
    assert round(model.global_cost([int(c) - 1 for c in order])) == cost


@pytest.mark.parametrize(
    ("table", "best", "worst"),
    [(TABLE_5, 16000, 86850), (TABLE_6, 80400, 646050), (TABLE_7, 47977, 79000), (THESIS_5_5, 16200, 135150)],
)
def test_best_and_worst(table: list[tuple[float, float, float]], best: int, worst: int) -> None:
    """The best and the worst of all orders cost what is printed, and the papers' heuristic finds the best."""
    model = PaperModel(on_one_attribute(table))
    costs = [model.global_cost(o) for o in permutations(range(4))]
    assert (round(min(costs)), round(max(costs))) == (best, worst)
    assert round(model.global_cost(paper_order(model))) == best
    assert round(model.global_cost(heuristic_order(model))) == best
    assert round(model.global_cost(exhaustive_order(model))) == best


def test_mean_of_table_7() -> None:
    """All orders of table 7 cost 63362 on average."""
    model = PaperModel(on_one_attribute(TABLE_7))
    assert round(np.mean([model.global_cost(o) for o in permutations(range(4))])) == 63362


def test_selectivity_alone() -> None:
    """Ordering by binary selectivity alone chooses what the papers say."""
    orders = [numbered(selective_order(PaperModel(on_one_attribute(t)))) for t in (TABLE_6, TABLE_7, THESIS_5_5)]
    assert orders == ["2341", "3412", "2341"]


def test_appendix_b() -> None:
    """The worked example: sizes of intermediate joins, and the cost of each input's new tuples."""
    model = PaperModel(on_one_attribute(TABLE_5))
    sizes = {s: model.phi([int(c) - 1 for c in s]) for s in ("12", "13", "14", "23", "24", "34", "123", "124")}
    assert sizes == {"12": 200, "13": 400, "14": 600, "23": 400, "24": 600, "34": 1500, "123": 800, "124": 1200}
    paths = [(0, 1, 2, 3), (1, 0, 2, 3), (2, 0, 1, 3), (3, 0, 1, 2)]
    assert [model.path_cost(i, p) for i, p in enumerate(paths)] == [3800, 3800, 2400, 6000]


def test_lazy_windows_are_longer() -> None:
    """Lazy evaluation costs what eager evaluation would with every window longer by the interval (appendix A)."""
    lazy = PaperModel(on_one_attribute(TABLE_5), interval=10)
    longer = PaperModel(on_one_attribute([(r, t + 10, v) for r, t, v in TABLE_5]))
    assert lazy.global_cost((0, 1, 2, 3)) == pytest.approx(longer.global_cost((0, 1, 2, 3)))


def test_appendix_a_formulas() -> None:
    """New tuples in the third and fourth place cost G_3, G_4, H_3 and H_4 as derived."""
    rates, lengths, v = zip(*TABLE_5, strict=True)
    size = [r * t for r, t in zip(rates, lengths, strict=True)]
    model = PaperModel(on_one_attribute(TABLE_5))
    phi12, phi123, order = 200, 800, (0, 1, 2, 3)
    least = max(min(v[0], v[1]), v[2])
    g3 = rates[2] * (size[0] * size[1] + phi12 + phi12 * size[3] / least)
    g4 = rates[3] * (size[0] * size[1] + phi12 * size[2] + phi123)
    assert [model.path_cost(2, order), model.path_cost(3, order)] == [g3, g4]
    tau = 10
    lazy = PaperModel(model.inputs, interval=tau)
    held = [r * (t + tau) for r, t in zip(rates, lengths, strict=True)]
    hat12 = held[0] * held[1] / 500
    hat123 = hat12 * held[2] / 50
    h3 = held[0] * held[1] / tau + hat12 * rates[2] + hat12 * rates[2] * held[3] / least
    h4 = held[0] * held[1] / tau + hat12 * held[2] / tau + hat123 * rates[3]
    assert [lazy.path_cost(2, order), lazy.path_cost(3, order)] == [pytest.approx(h3), pytest.approx(h4)]


def test_general_join_is_never_dearer() -> None:
    """An order for each input, anywhere, costs no more than one global order, nor than the naive join (figure 3)."""
    fast = on_one_attribute([(1, 100, 50)] * 3 + [(10, 100, 50)])
    for tau in (1, 10, 50):
        model = PaperModel(fast, interval=tau)
        general = model.general_cost(best_lazy_orders(model))
        orders = list(permutations(range(4)))
        assert general <= min(model.global_cost(o) for o in orders) * (1 + 1e-9)
        assert general <= min(naive_cost(model, o) for o in orders) * (1 + 1e-9)
    # with many new tuples of a fast stream at once, that stream goes last
    assert best_lazy_orders(PaperModel(fast, interval=50))[3][-1] == 3


def test_equal_buckets_change_no_order() -> None:
    """Hash tables of one size divide every cost alike."""
    plain, hashed = (
        PaperModel(on_one_attribute(TABLE_6)),
        PaperModel(on_one_attribute(TABLE_6), method="hash", buckets=10),
    )
    for order in permutations(range(4)):
        assert hashed.global_cost(order) == pytest.approx(plain.global_cost(order) / 10)


def random_models(count: int, seed: int) -> list[JoinModel]:
    """Joins of 3 to 6 streams; rates, windows and distinct values over two or three powers of ten."""
    rng = np.random.default_rng(seed)

    def spread(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    return [
        PaperModel(
            on_one_attribute(
                [(spread(1, 100), spread(10, 1000), np.ceil(spread(1, 1000))) for _ in range(rng.integers(3, 7))]
            )
        )
        for _ in range(count)
    ]


@pytest.mark.slow
def test_heuristic_is_near_the_optimum() -> None:
    """On 1,000 random parameter sets the heuristic is within 10% of the optimum on average and never over 2x."""
    ratios = [m.global_cost(heuristic_order(m)) / m.global_cost(exhaustive_order(m)) for m in random_models(1000, 5)]
    assert np.mean(ratios) <= 1.10
    assert max(ratios) <= 2.0


def test_orders_respect_the_graph() -> None:
    """In a chain no order makes a product where it need not."""
    chain = (
        WindowStatistics(1, 100, {"x": 10}),
        WindowStatistics(50, 100, {"x": 10, "y": 500}),
        WindowStatistics(2, 10, {"y": 500, "z": 3}),
        WindowStatistics(1, 50, {"z": 3}),
    )
    model = JoinModel(chain)
    orders = best_orders(model)
    assert all(respects(model, o) for o in (*orders, heuristic_order(model), exhaustive_order(model)))
    assert [o[0] for o in orders] == [0, 1, 2, 3]
    assert orders[0] == (0, 1, 2, 3)


def test_best_orders_are_best() -> None:
    """Dynamic programming over subsets finds what trying all orders finds."""
    for model in (m for given in random_models(20, 8) for m in (given, JoinModel(given.inputs))):
        n = len(model.inputs)
        for i, order in enumerate(best_orders(model)):
            every = ((i, *rest) for rest in permutations([j for j in range(n) if j != i]))
            assert model.path_cost(i, order) == pytest.approx(min(model.path_cost(i, o) for o in every))


def test_near_ties_keep_the_order() -> None:
    """A running join stays with its orders unless others are clearly cheaper."""
    same = [Observed(1.0, 100.0, {"a": 10.0})] * 3
    current = ((0, 1, 2), (1, 0, 2), (2, 0, 1))
    assert plan_orders(same, current).orders == current
    skewed = [Observed(1.0, 100.0, {"a": 10.0}), Observed(50.0, 5000.0, {"a": 10.0}), Observed(1.0, 2.0, {"a": 10.0})]
    choice = plan_orders(skewed, current)
    assert choice.orders[0] == (0, 2, 1)
    assert choice.cost < choice.alternatives["in use"][1]
