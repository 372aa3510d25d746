"""The experiment of aggregation joins: plans agree, and the model names what the paper says."""

from __future__ import annotations

from windrow_bench import aggjoin


def test_the_model_names_the_plans_of_figure_6() -> None:
    """By nested loops, as in print, the cheapest plan of the model is the printed one in all four cases."""
    found = {r["groups"]: r["named"] for r in aggjoin.named(1) if r["method"] == aggjoin.LOOPS}
    assert found == {"5, 5": "EAP11", "5, 1000": "EAP10", "1000, 5": "EAP01", "1000, 1000": "LAP"}


def test_min_is_the_same_by_value_and_by_group() -> None:
    """Three ways of MIN over a join are compared in their answers, and each is timed."""
    found = aggjoin.extremes(aggjoin.Setting("extremes", window=(500, 500)), 0.4, 1, "cpu")
    assert set(found) == {"late", "by value", "by group"} and min(found.values()) > 0
