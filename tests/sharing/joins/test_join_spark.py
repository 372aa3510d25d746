"""Shared joins on Spark give the answers of this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import windrow
from windrow.testing import assert_same


@pytest.mark.spark
def test_shared_joins_on_spark(make_join_case: Callable[[int], Any], spark: Any) -> None:
    """The same replay in tasks of a Spark job, over several partitions and ticks."""
    case = make_join_case(4)
    want = windrow.run(case.script, case.streams, runtime="local", sharing="off")
    got = windrow.run(case.script, case.streams, runtime="spark", spark=spark, sharing="shards", batch_rows=40)
    for name in want:
        assert_same(got[name], want[name])
