"""No compiled kernel reads or writes out of bounds: random cases in a process where every index is checked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_kernels_stay_within_their_arrays(pytestconfig):
    """Answers equal the oracle's with bounds checked, and every public kernel has been called."""
    kept = pytestconfig.cache.mkdir("kernels-with-bounds-checks")  # compiled otherwise, so kept elsewhere
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "bounds.py")],
        env={
            **os.environ,
            "NUMBA_BOUNDSCHECK": "1",
            "NUMBA_CACHE_DIR": str(kept),
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stdout.split(), "kernels that no case calls"
