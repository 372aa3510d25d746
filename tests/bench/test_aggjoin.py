"""The experiment of aggregation joins: plans agree, and the model names what the paper says."""

from __future__ import annotations

import pytest

from windrow_bench import aggjoin


@pytest.mark.parametrize(
    ("groups", "plan"), [((5, 5), "11"), ((5, 1000), "10"), ((1000, 5), "01"), ((1000, 1000), "00")]
)
def test_the_model_names_the_plans_of_figure_6(groups: tuple[int, int], plan: str) -> None:
    """By nested loops, as in print, the cheapest plan of the model is the printed one in all four cases."""
    (setting,) = [s for s in aggjoin.grid() if s.figure == "6" and s.groups == groups]
    assert aggjoin.measure(setting, 0.2, 1, "cpu", method=aggjoin.LOOPS).named == plan


def test_min_is_the_same_by_value_and_by_group() -> None:
    """Three ways of MIN over a join are compared in their answers, and each is timed."""
    found = aggjoin.extremes(aggjoin.Setting("extremes", window=(500, 500)), 0.4, 1, "cpu")
    assert set(found) == {"late", "by value", "by group"} and min(found.values()) > 0
