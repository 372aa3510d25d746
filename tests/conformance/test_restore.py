"""State is enough: stopping anywhere and going on from the runs changes no answer."""

from __future__ import annotations

import pytest

from windrow.testing import assert_same, oracle, seeded_case

CASES = 120
GROUPS = 20


@pytest.mark.parametrize("first", range(0, CASES, GROUPS))
def test_restarts_change_nothing(first, run_with_restarts):
    """Random cases with a restart before every batch, under each strategy in turn."""
    for seed in range(first, first + GROUPS):
        script, streams, tables, until = seeded_case(seed)
        strategy = ("upa", "negative", "direct")[seed % 3]
        want = oracle(script, streams, tables, until)
        got = run_with_restarts(script, streams, tables, until, 4, strategy)
        for name, table in got.items():
            if table is not None:
                try:
                    assert_same(table, want[name])
                except AssertionError as error:
                    raise AssertionError(f"seed {seed}, {strategy}: {script}\n{error}") from error
