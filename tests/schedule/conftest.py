"""The thesis's example."""

from __future__ import annotations

import pytest

from windrow_bench.schedule_model.tasks import PeriodicQuery

EXAMPLE = ((10, 2), (5, 2), (6, 2), (15, 3), (12, 3), (20, 5), (30, 5))
"""(WINDOW, SLIDE) in minutes of section 8.4.3: MAX over a basic interval synopsis of minutes."""


@pytest.fixture
def example() -> list[PeriodicQuery]:
    return [PeriodicQuery(f"q{i}", "g1", s, {"max": w - 1}) for i, (w, s) in enumerate(EXAMPLE, 1)]
