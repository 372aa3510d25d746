"""In which order a multi-way join visits its inputs (TR CS-2003-01 section 5, thesis 5.3.2).

Two ways, from the papers' to the best:

* `heuristic_order`: one global order. Inputs in descending order of binary join selectivity, then the fast streams
  moved up to every place (the augmentation, `paper_order`; of the order of n**f orders for f fast streams), then, past
  the papers, single inputs moved while that helps. Each candidate is priced by the model.
* `best_orders`: an order for each input (the general join), exact by dynamic programming over subsets, because the size
  of an intermediate join depends on its set of inputs alone. 2**n * n steps per input; greedy beyond `EXACT` inputs.

`plan_orders` is asked for a running join when its statistics have drifted.

All orders respect the join graph: an input that shares a column with those before it goes before one that does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from windrow.operators.join_steps import JoinOrders, Matches, Orders
from windrow.operators.statistics import Observed
from windrow.plan.join_cost import JoinModel, WindowStatistics

EXACT = 10
FAST = 2.0
"""A stream is fast when it is at least so many times faster than the median stream."""

GAIN = 0.9
"""A running join changes its orders when the new ones cost less than this share of the old."""

Order = tuple[int, ...]


def respects(model: JoinModel, order: Sequence[int]) -> bool:
    """Whether no step of a global order makes a product that another order of its rest would avoid."""
    for k in range(1, len(order)):
        bound, rest = order[:k], order[k:]
        if not model.linked(bound, rest[0]) and any(model.linked(bound, j) for j in rest):
            return False
    return True


def selective_order(model: JoinModel) -> Order:
    """Descending order of binary join selectivity: the most selective pair, then the most selective next input."""
    n = len(model.inputs)
    if n < 2:
        return tuple(range(n))
    pairs = [(model.phi((i, j)), i, j) for i in range(n) for j in range(n) if i != j]
    linked = [p for p in pairs if model.linked((p[1],), p[2])]
    _, first, second = min(linked or pairs, key=lambda p: (p[0], model.inputs[p[1]].size, p[1]))
    order = [first, second]
    while len(order) < n:
        rest = [j for j in range(n) if j not in order]
        near = [j for j in rest if model.linked(order, j)] or rest
        # the result with the smallest pair, as the papers choose; the whole prefix decides ties
        order.append(min(near, key=lambda j: (min(_pairs(model, order, j)), model.phi([*order, j]))))
    return tuple(order)


def _pairs(model: JoinModel, bound: Sequence[int], j: int) -> list[float]:
    return [model.phi((i, j)) for i in bound if model.linked((i,), j)] or [model.phi((bound[-1], j))]


def fast_streams(model: JoinModel) -> list[int]:
    """Inputs much faster than the median."""
    rates = sorted(i.rate for i in model.inputs)
    median = rates[(len(rates) - 1) // 2]
    return [i for i, given in enumerate(model.inputs) if given.rate >= FAST * max(median, 1e-300)]


def augmented(model: JoinModel, order: Order) -> set[Order]:
    """The order, and all with some fast streams moved up."""
    found = {order}
    for stream in sorted(fast_streams(model), key=order.index):
        for known in list(found):
            found |= {m for m in _moved(known, stream, range(known.index(stream))) if respects(model, m)}
    return found


def _moved(order: Order, which: int, places: Iterable[int]) -> set[Order]:
    rest = [j for j in order if j != which]
    return {(*rest[:p], which, *rest[p:]) for p in places}


def paper_order(model: JoinModel) -> Order:
    """The papers' heuristic with its augmentation, and nothing more."""
    return min(sorted(augmented(model, selective_order(model))), key=model.global_cost)


def heuristic_order(model: JoinModel) -> Order:
    """A cheap global order without looking at all of them."""
    best = paper_order(model)
    price = model.global_cost(best)
    while True:
        moves = {m for j in best for m in _moved(best, j, range(len(best))) if m != best and respects(model, m)}
        nearby = min(sorted(moves), key=model.global_cost, default=best)
        cost = model.global_cost(nearby)
        if cost >= price:
            return best
        best, price = nearby, cost


def best_orders(model: JoinModel) -> tuple[Order, ...]:
    """The cheapest order of each input, whose new tuples come first."""
    n = len(model.inputs)
    if n > EXACT:
        first = heuristic_order(model)
        return tuple((i, *(j for j in first if j != i)) for i in range(n))
    return tuple(best_path(model, i, [i]) for i in range(n))


def best_path(model: JoinModel, i: int, starts: Iterable[int]) -> Order:
    """The cheapest order of input i that begins with one of `starts`: dynamic programming over what is bound so far."""
    n = len(model.inputs)
    sizes = model.sizes(i)
    paths: dict[frozenset[int], tuple[float, Order]] = {frozenset((s,)): (0.0, (s,)) for s in starts}
    for _ in range(n - 1):
        longer: dict[frozenset[int], tuple[float, Order]] = {}
        for bound, (cost, order) in paths.items():
            rest = [j for j in range(n) if j not in bound]
            near = [j for j in rest if model.linked(order, j)] or rest
            held = model.phi(order, sizes)
            for j in near:
                total = cost + held * model.scanned(order, j, sizes)
                key = bound | {j}
                if key not in longer or (total, (*order, j)) < longer[key]:
                    longer[key] = (total, (*order, j))
        paths = longer
    return next(iter(paths.values()))[1]


def model_of(observed: Sequence[Observed], matches: Matches | None = None) -> JoinModel:
    """The cost model of a running join, whose windows are found by key.

    Where steps have been observed, the join of the inputs they bring together has the size that was seen, not the one
    that independent, uniform keys would give: residual predicates, skew and correlation are in it.
    """
    inputs = tuple(WindowStatistics(o.rate, o.rows / max(o.rate, 1e-9), o.values, rows=o.rows) for o in observed)
    seen: dict[frozenset[int], float] = {}
    for (bound, part), found in sorted((matches or {}).items(), key=lambda m: (len(m[0][0]), -m[1].pairs)):
        whole = bound | {part}
        if whole in seen or not found.pairs:
            continue
        model = JoinModel(inputs, seen)
        expected = model.phi(whole) / max(model.phi(bound) * model.phi((part,)), 1e-300)
        if expected > 0:
            seen[whole] = max(found.matches, 0.5) / found.pairs / expected
    return JoinModel(inputs, seen)


def plan_orders(observed: Sequence[Observed], current: Orders, matches: Matches | None = None) -> JoinOrders:
    """The orders a running join should follow; those it follows unless others are clearly cheaper."""
    model = model_of(observed, matches)
    n = len(observed)
    best = best_orders(model)
    whole = heuristic_order(model)
    candidates: dict[str, Orders] = {
        "an order for each input": best,
        "one global order": tuple((i, *(j for j in whole if j != i)) for i in range(n)),
        "in use": tuple(followed(model, i, o) for i, o in enumerate(current)),
    }
    priced = {name: (orders, model.general_cost(orders)) for name, orders in candidates.items()}
    cost = priced["an order for each input"][1]
    if cost < GAIN * priced["in use"][1]:
        return JoinOrders(best, cost, priced)
    return JoinOrders(current, priced["in use"][1], priced)


def followed(model: JoinModel, first: int, order: Sequence[int]) -> Order:
    """The order that a join really takes: its own input first, then along the join graph."""
    done, rest = [first], [j for j in order if j != first]
    while rest:
        near = [j for j in rest if model.linked(done, j)] or rest
        done.append(near[0])
        rest.remove(near[0])
    return tuple(done)
