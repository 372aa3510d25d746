"""Workers keep the memory of one tick for the next."""

import os
import platform
import subprocess
import sys

import pytest

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
