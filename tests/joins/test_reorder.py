"""A running join follows the rates: after a change it is near the best order within five ticks."""

from __future__ import annotations

import pytest

from windrow.store.store import Store
from windrow_bench.reorder import LocalJoin, SpreadJoin, settled


@pytest.mark.parametrize("seed", range(3))
def test_a_join_in_one_process_follows_the_rates(seed: int) -> None:
    """Another order becomes three times cheaper; within five ticks the join costs at most a fifth more than it."""
    cheaper, late, ratios = settled(6, 10, seed, LocalJoin())
    assert cheaper >= 3
    assert late <= 5, ratios


@pytest.mark.parametrize("seed", range(2))
def test_a_join_over_partitions_follows_the_rates(seed: int, in_process_job, tmp_path) -> None:
    """The same where the driver chooses, by what the tasks of three partitions tell."""
    with Store.open(str(tmp_path)) as store:
        cheaper, late, ratios = settled(6, 10, seed, SpreadJoin(in_process_job(2), store, 3))
    assert cheaper >= 3
    assert late <= 5, ratios
