"""Queries that are one dataflow, in tasks: their rows cross exchanges with those of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import windrow
from windrow.testing import assert_same

pytestmark = pytest.mark.spark


@pytest.mark.filterwarnings("ignore::windrow.engine.replay.LateRowsWarning")
@pytest.mark.parametrize("seed", [3, 8])
def test_sets_on_spark(make_set: Callable[[int], Any], spark: Any, seed: int) -> None:
    """What tasks answer together is what this process answers one by one."""
    declared, queries, streams, tables, until = make_set(seed)
    script = ";".join([declared, *(f"CREATE QUERY {name} AS {text}" for name, text in queries.items())])
    want = windrow.run(script, streams, tables, runtime="local", until=until, sharing="off")
    got = windrow.run(script, streams, tables, runtime="spark", until=until, spark=spark)
    for name, text in queries.items():
        try:
            assert_same(got[name], want[name])
        except AssertionError as error:
            raise AssertionError(f"{text}: {error}") from error
