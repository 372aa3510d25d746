"""Whoever only plans does not wait for a compiler."""

from __future__ import annotations

import subprocess
import sys


def test_planning_loads_no_compiler() -> None:
    """Parsing, binding and optimising import no module that imports numba: half of the time of a small EXPLAIN."""
    code = "import sys, windrow.cql, windrow.plan.nodes, windrow.optimize; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
