"""A join whose rates change while it runs: how soon it follows the order that is now best.

Three windows on one key. At first stream B is slow and C is fast, so new rows of A look into B first; then the two
change places, and looking into C first is many times cheaper. At every tick the orders in use are priced by the model
with the true figures (rates, and rows and keys that are really in the windows), against the cheapest orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.engine.replay import Replay
from windrow.operators.join_steps import Orders
from windrow.operators.statistics import Observed
from windrow.optimize.order_joins import best_orders, followed, model_of
from windrow.runtime.job import Feed, Job, LocalJob
from windrow.runtime.tick import Ticker
from windrow.store.store import MemoryStore, StateStore

NAMES = ("a", "b", "c")
WINDOW, TICK, KEYS = 2000, 1000, 400
BEFORE, AFTER = (1.0, 0.05, 4.0), (1.0, 4.0, 0.05)
"""Rows per unit of time."""


@dataclass(frozen=True)
class Ticked:
    """One tick: the rows of each stream, and what is true of the streams at its end."""

    rows: tuple[pa.Table, ...]
    truth: tuple[Observed, ...]
    changed: bool

    def cost_ratio(self, orders: Orders) -> float:
        """The cost of these orders over that of the best."""
        model = model_of(self.truth)
        taken = [followed(model, i, order) for i, order in enumerate(orders)]
        return model.general_cost(taken) / model.general_cost(best_orders(model))


def ticks(before: int, after: int, seed: int) -> Iterator[Ticked]:
    """Ticks before and after the rates change."""
    rng = np.random.default_rng(seed)
    held: list[list[np.ndarray]] = [[] for _ in NAMES]
    for number in range(before + after):
        rates = BEFORE if number < before else AFTER
        tables, truth = [], []
        for i, rate in enumerate(rates):
            size = int(rate * TICK)
            ts = np.sort(rng.integers(number * TICK, (number + 1) * TICK, size))
            keys = rng.integers(0, KEYS, size)
            tables.append(pa.table({"k": keys, "id": np.arange(size) + number * 10**6, "ts": ts}))
            held[i] = [*held[i], keys][-WINDOW // TICK :]
            alive = np.concatenate(held[i])
            truth.append(Observed(rate, float(len(alive)), {"a.k": float(len(np.unique(alive)))}))
        yield Ticked(tuple(tables), tuple(truth), number >= before)


def script() -> str:
    """The join."""
    parts = ", ".join(f"{n} [RANGE {WINDOW}]" for n in NAMES)
    return f"SELECT ISTREAM(a.id, b.id AS i, c.id AS j) FROM {parts} WHERE a.k = b.k AND b.k = c.k"


def settled(
    before: int, after: int, seed: int, run: Callable[[Sequence[pa.Table]], Orders], near: float = 1.2
) -> tuple[float, int, list[float]]:
    """How much cheaper another order became, ticks until the join is within `near` of the best for good, the ratios.

    `run` runs one tick and tells the orders that the next one follows.
    """
    ratios, cheaper = [], 1.0
    orders = stale = None
    for tick in ticks(before, after, seed):
        if tick.changed and orders is not None and stale is not None:
            ratios.append(tick.cost_ratio(orders))
            cheaper = max(cheaper, tick.cost_ratio(stale))
        orders = run(tick.rows)
        stale = stale if tick.changed else orders
    late = [i for i, ratio in enumerate(ratios) if ratio > near]
    return cheaper, late[-1] + 1 if late else 0, ratios


class SpreadJoin:
    """The join over partitions, by the ticks that serve live streams; `job` runs their tasks."""

    def __init__(self, job: Job, store: StateStore, partitions: int) -> None:
        replay = _replay()
        (plan,) = replay.catalog.queries.values()
        self.job, self.ticker, self.now = job, Ticker(store, {}, partitions), 0
        for stream in replay.catalog.streams.values():
            self.ticker.add_stream(stream)
        self.ticker.add_query(plan, "upa", 0)

    def __call__(self, tables: Sequence[pa.Table]) -> Orders:
        """Run a tick."""
        self.now += TICK
        feeds = [Feed(n, t) for n, t in zip(NAMES, tables, strict=True)]
        self.ticker.commit(self.ticker.run(self.job, feeds, self.now - 1))
        (steps,) = self.ticker.choices.chosen().values()
        (orders,) = steps.values()
        assert isinstance(orders, tuple)
        return orders


class LocalJoin(SpreadJoin):
    """The join in this process."""

    def __init__(self) -> None:
        super().__init__(LocalJob(), MemoryStore(), 1)


def _replay() -> Replay:
    empty = pa.schema([(c, pa.int64()) for c in ("k", "id", "ts")]).empty_table()
    return Replay.of(script(), dict.fromkeys(NAMES, empty), {})
