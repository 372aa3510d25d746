"""Shedding when time is short: the controller by simulation, the choice of rows, and the scaling of aggregates."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scaled import scaled_average, scaled_count, scaled_sum, shares

from windrow.operators.keys import mix
from windrow.operators.quality import Quality
from windrow.runtime.controller import Controller, TimeUse, choose


def simulate(
    loads: list[int], time: Callable[[int], float], budget: float = 2.0, reading: float = 0.0
) -> tuple[list[float], list[float], Controller]:
    """Tick times and shares kept for so many rows per tick; `time` says how long a tick of kept rows takes, `reading`
    how long each row that comes takes, kept or not."""
    controller = Controller(budget)
    times, kept_shares = [], []
    for rows in loads:
        share = controller.keep(rows)
        kept = round(share * rows)
        kernels = time(kept)
        seconds = kernels + reading * rows
        controller.observe(rows, kept, seconds, kernels)
        times.append(seconds)
        kept_shares.append(share)
    return times, kept_shares, controller


@pytest.mark.parametrize("fixed", [0.0, 0.3, 1.0])
def test_overload_settles_within_the_budget(fixed: float) -> None:
    """At three times what fits, every tick after the first five takes at most 1.2 budgets, and most of the budget is
    used."""
    fits = 100_000
    cost = (2.0 - fixed) / fits
    times, kept, _ = simulate([3 * fits] * 60, lambda n: fixed + cost * n)
    assert all(t <= 1.2 * 2.0 for t in times[5:])
    assert all(t >= 0.7 * 2.0 for t in times[10:])
    assert all(0.2 < k < 0.4 for k in kept[10:])


def test_time_that_shedding_does_not_change_is_left_alone() -> None:
    """When reading every row takes most of the budget, the kernels get what is left, and not nothing."""
    times, kept, _ = simulate([100_000] * 40, lambda n: 0.05 + 4e-5 * n, reading=1.2e-5)
    assert all(t <= 1.2 * 2.0 for t in times[5:])
    assert all(0.05 < k < 0.2 for k in kept[10:])
    _, kept, _ = simulate([200_000] * 40, lambda n: 4e-5 * n, reading=1.2e-5)
    assert all(k * 200_000 * 4e-5 == pytest.approx(0.2) for k in kept[10:])


def test_one_odd_tick_is_soon_forgotten() -> None:
    """After a single tick that takes ten times as long, most of what fits is kept again within six ticks."""
    odd = iter([1.0] * 20 + [10.0] + [1.0] * 20)
    _, kept, _ = simulate([300_000] * 41, lambda n: (0.1 + 1.7e-5 * n) * next(odd))
    assert min(kept[27:]) > 0.7 * kept[19]


def live(
    hold: float,
    *,
    window: float,
    period: float,
    alone: float = 0.0,
    pairs: float = 1.0,
    noise: float = 0.1,
    seed: int = 0,
) -> list[tuple[float, float, float, int]]:
    """A stream that lives, a file each second: half of `hold` rows a second, three times that for a minute, half again.

    A tick takes what has come meanwhile and works on what an evaluation has passed; rows cost alone and in pairs with
    what windows hold, so that at `hold` it takes about the budget of two seconds. (Begin, seconds, rows, kept) of each.
    """
    rng = np.random.default_rng(seed)
    loads = [hold / 2] * 18 + [3 * hold] * 60 + [hold / 2] * 20
    controller, kept_rows, ticks = Controller(2.0), [], []
    now, taken, done, ended = 0.0, 0, 0.0, 0.0
    while taken < len(loads):
        available = min(len(loads), int(now))
        if available <= taken:
            now = taken + 1.05
            continue
        rows = sum(loads[taken:available])
        share = controller.keep(round(rows))
        kept_rows += [share * n for n in loads[taken:available]]
        taken = available
        until = max(done, (taken - 1e-6) // period * period if period else taken)
        due = range(int(done), int(until))
        met = sum(kept_rows[i] * (sum(kept_rows[max(0, i - round(window)) : i]) + kept_rows[i] / 2) for i in due)
        work = alone * sum(kept_rows[i] for i in due) / (1.6 * hold) + pairs * met / (1.6 * hold * hold * window)
        kernels = (0.15 + 1.4 * work) * rng.uniform(1 - noise, 1 + noise)
        seconds = kernels + 0.45 * rng.uniform(1 - noise, 1 + noise) + 2e-6 * rows
        begin, now, done = now, now + seconds, until
        shape = TimeUse(window * 1e6, round(period * 1e6) or 1)
        controller.observe(round(rows), round(share * rows), seconds, kernels, taken * 1e6 - 1, now - ended, shape)
        ended = now
        ticks.append((begin, seconds, rows, round(share * rows)))
    return ticks


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    "what",
    [
        {"window": 3, "period": 1},
        {"window": 3, "period": 0},
        {"window": 1, "period": 1},
        {"window": 10, "period": 1},
        {"window": 30, "period": 1},
        {"window": 3, "period": 1, "alone": 0.7, "pairs": 0.0},
        {"window": 3, "period": 1, "alone": 0.4, "pairs": 0.5},
    ],
)
def test_a_live_stream_settles(what: dict[str, float], seed: int) -> None:
    """Work that comes a tick late, windows that fill and batches that grow with the ticks before: all but the first
    ticks keep to the budget, the time is used, and when the load has passed all rows are kept at once."""
    ticks = live(5000, seed=seed, **what)  # type: ignore[arg-type]
    loaded = [t for t in ticks if 18 <= t[0] <= 79][6:]
    assert max(seconds for _, seconds, _, _ in loaded) <= 1.2 * 2.0
    assert sum(seconds for _, seconds, _, _ in loaded) >= 0.8 * (loaded[-1][0] - loaded[0][0])
    assert sum(kept for *_, kept in loaded) >= 0.12 * sum(rows for _, _, rows, _ in loaded)
    assert all(kept == round(rows) for _, _, rows, kept in [t for t in ticks if t[0] > 79][5:])


@pytest.mark.parametrize("seed", range(5))
def test_a_noisy_machine(seed: int) -> None:
    """With times that vary by a fifth, ticks still keep to the budget."""
    ticks = live(5000, window=10, period=1, seed=seed, noise=0.2)
    assert max(seconds for _, seconds, _, _ in [t for t in ticks if 18 <= t[0] <= 79][6:]) <= 1.2 * 2.0


def test_a_cold_start_does_not_close_the_gate() -> None:
    """A first tick of few rows that took very long is followed by what fits within five ticks."""
    took = iter([8.0] + [0.0] * 20)
    _, kept, _ = simulate([10, *[50_000] * 10], lambda n: 0.2 + 1.7e-5 * n + next(took))
    assert all(k == 1.0 for k in kept[5:])


def test_noise_does_not_break_it() -> None:
    """With tick times that vary by a fifth, the mean stays below the budget."""
    rng = np.random.default_rng(4)
    times, _, _ = simulate([300_000] * 200, lambda n: (0.3 + 1.7e-5 * n) * rng.uniform(0.9, 1.1))
    assert np.mean(times[5:]) <= 2.0
    assert max(times[5:]) <= 1.2 * 2.0


def test_it_goes_back_to_keeping_everything() -> None:
    """Within five ticks of the load's end nothing is shed any more."""
    loads = [300_000] * 30 + [50_000] * 10
    _, kept, controller = simulate(loads, lambda n: 0.3 + 1.7e-5 * n)
    assert all(k == 1.0 for k in kept[35:])
    assert not controller.shedding


def test_no_load_no_shedding() -> None:
    """While ticks fit, every row is kept."""
    _, kept, controller = simulate([50_000] * 20 + [0] * 5, lambda n: 0.3 + 1.7e-5 * n)
    assert set(kept) == {1.0}
    assert controller.capacity is None


def test_rising_load_is_followed() -> None:
    """A load that rises slowly beyond the budget never takes much longer than it."""
    loads = list(range(50_000, 400_000, 5_000))
    times, _, _ = simulate(loads, lambda n: 0.3 + 1.7e-5 * n)
    assert max(times) <= 1.2 * 2.0


def test_the_least_important_rows_go_first() -> None:
    """At a third of the rows, at least 1.5 times the importance that random dropping would keep."""
    rng = np.random.default_rng(1)
    importance = rng.integers(1, 11, 30_000).astype(float)
    codes = mix(np.arange(30_000, dtype=np.uint64))
    chosen = choose(codes, 10_000, importance)
    assert len(chosen.rows) == 10_000
    assert chosen.importance_kept / chosen.importance_seen >= 1.5 / 3
    again = choose(codes, 10_000, importance)
    assert (again.rows == chosen.rows).all()
    assert (np.diff(chosen.rows) > 0).all()


@pytest.mark.parametrize("weighted", [True, False])
def test_scaled_aggregates_are_right_on_average(weighted: bool) -> None:
    """COUNT, SUM and AVG over shed rows have no bias, and the truth lies within the bound as often as promised."""
    rng = np.random.default_rng(2)
    values = rng.gamma(2.0, 10.0, 5_000)
    importance = rng.integers(1, 6, len(values)).astype(float) if weighted else None
    inside, sums, averages = 0, [], []
    for tick in range(300):
        codes = mix(np.arange(len(values), dtype=np.uint64) + np.uint64(tick << 20))
        chosen = choose(codes, round(0.3 * len(values)), importance)
        total = scaled_sum(values[chosen.rows], chosen.probability)
        average = scaled_average(values[chosen.rows], chosen.probability)
        assert average is not None
        assert scaled_count(chosen.probability).value == pytest.approx(len(values))
        inside += total.interval[0] <= values.sum() <= total.interval[1]
        sums.append(total.value)
        averages.append(average.value)
    assert np.mean(sums) == pytest.approx(values.sum(), rel=0.02)
    assert np.mean(averages) == pytest.approx(values.mean(), rel=0.02)
    assert inside >= 0.9 * 300


def test_nothing_shed_is_exact() -> None:
    """With all rows kept the estimates are the values, with no error."""
    chosen = choose(np.arange(5, dtype=np.uint64), 5)
    total = scaled_sum(np.arange(5.0), chosen.probability)
    assert (total.value, total.bound, total.exact) == (10.0, 0.0, True)
    assert scaled_average(np.empty(0), np.empty(0)) is None
    assert shares([4, 0], [1, 0]).tolist() == [0.25, 1.0]


def test_quality_of_nothing_and_of_half() -> None:
    """Quality is 1 when nothing came, and the kept share otherwise."""
    assert Quality().importance_kept == 1.0
    half = Quality(10, 2, 4, 7, importance_seen=8.0, importance_shed=4.0, life_seen=80.0, life_shed=20.0)
    assert (half.importance_kept, half.recall, half.exact) == (0.5, 0.75, False)
    assert half.as_dict()["estimated_recall"] == 0.75
