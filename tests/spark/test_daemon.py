"""Workers keep the memory of one tick for the next, and the operators."""

import os
import platform
import subprocess
import sys

import pyarrow as pa
import pytest

import windrow

SCRIPT = """
import resource
import numpy as np
import pyarrow as pa
from windrow.spark.daemon import keep_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        np.ones(6_000_000), pa.array(np.ones(6_000_000)).take(pa.array(np.arange(6_000_000)))
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

without = min(faults() for _ in range(6))
keep_memory()
print(without, min(faults() for _ in range(6)))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have their own ways")
def test_freed_memory_is_not_cleared_again():
    """The same arrays again and again soon touch no new pages."""
    path = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env={**os.environ, **path}, check=True
    )
    without, kept = map(int, done.stdout.split())
    assert kept < 1000 < without


IDLE = """
import numpy as np
from windrow.runtime.idle_memory import _private, give_back
from windrow.spark.daemon import keep_memory

def megabytes():
    give_back()
    return _private() >> 20

keep_memory()
before = megabytes()
used = [np.ones(1 << 17) for _ in range(150)]  # a megabyte each
more = [np.ones(1 << 17) for _ in range(66)]
again = [np.ones(1 << 17) for _ in range(66)]
end = np.ones(1 << 10)  # nothing is at the end of the heap, which shrinks by itself
del more
kept = megabytes()
del again
half = megabytes()
del used[:100]
print(kept - before, half - before, megabytes() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have their own ways")
def test_more_idle_than_half_of_what_is_used_is_given_back():
    """Half as much as is used may lie idle for the next tick; what a larger one has left goes back to the system."""
    path = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", IDLE], capture_output=True, text=True, env={**os.environ, **path}, check=True
    )
    kept, half, left = map(int, done.stdout.split())
    assert kept > 270
    assert half < 170
    assert left < 70


@pytest.mark.spark
def test_operators_stay_in_their_workers(spark, tmp_path):
    """What a worker ran in one tick is there in the next: only partitions that moved are read back."""
    home = str(tmp_path / "home")

    def remembered(_):
        from windrow.spark.tasks import memory

        return [key[0] for key in memory.attempts]

    with windrow.Engine(spark=spark, home=home, partitions=2) as engine:
        engine.execute("""
            CREATE STREAM s (ts BIGINT, k BIGINT) TIMESTAMP BY ts;
            CREATE QUERY q AS SELECT k, COUNT(*) AS n FROM s [RANGE 9] GROUP BY k;
        """)
        engine.start()
        for ts in range(3):
            engine.push("s", pa.table({"ts": [ts] * 4, "k": [0, 1, 2, 3]}))
        engine.drain(60)
        assert any(home in homes for homes in engine.runtime.job.map(remembered, range(8)))
