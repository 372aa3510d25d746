"""Executors in processes of their own, with nothing in common with the driver but `home` on a shared path."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from windrow_bench import lost_executors

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = """
import sys, pyarrow as pa, windrow
from windrow.spark.session import session
from windrow.testing import assert_same
spark = session(master="local-cluster[2,1,1024]")
limit = 3
windrow.function("small", lambda k: pa.compute.less(k, limit), returns="boolean")
rows = {"s": pa.table({"k": [i % 5 for i in range(200)], "ts": [i // 4 for i in range(200)]})}
script = '''
CREATE QUERY a AS SELECT k, COUNT(*) AS n FROM s [RANGE 5] WHERE small(k) GROUP BY k;
CREATE QUERY b AS SELECT x.k, y.ts FROM s [RANGE 3] x, s [ROWS 5] y WHERE x.k = y.k;
'''
want = windrow.run(script, rows, runtime="local")
got = windrow.run(script, rows, spark=spark, batch_rows=70)
for name in want:
    assert_same(got[name], want[name])
spark.stop()
print("same")
"""


def test_replay_on_a_local_cluster():
    """Two executors, three ticks, joins and aggregates: the local answer."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=400
    )
    assert done.stdout.strip().endswith("same"), done.stderr[-3000:]


@pytest.mark.parametrize("what", ["executors", "machines"])
def test_what_a_cluster_loses_is_not_missed(what):
    """An executor is killed while a tick is computed, or a machine with all that runs on it: answers of a replay."""
    assert lost_executors.killed(what, 1, 7, lambda text: None) == 1
