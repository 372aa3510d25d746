"""Times have no machine: a script gives the same answer whatever the zone, the language and the number of cores."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "machine.py"


def answers(cores: int | None = None, **environment: str) -> str:
    """What the script says in a process of its own."""
    some = sorted(os.sched_getaffinity(0))[:cores]
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        preexec_fn=lambda: os.sched_setaffinity(0, some),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def in_utc() -> str:
    return answers(TZ="UTC", LC_ALL="C.UTF-8")


@pytest.mark.parametrize(
    "machine",
    [
        {"TZ": "America/New_York", "LC_ALL": "de_DE.UTF-8"},
        {"TZ": "Asia/Kolkata", "LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR"},
        {"TZ": "Pacific/Apia", "cores": 1, "OMP_NUM_THREADS": "1"},
    ],
    ids=lambda m: m["TZ"],
)
def test_the_machine_changes_no_answer(machine, in_utc):
    """Functions of times with and without a zone, windows, groups, joins, texts and files."""
    assert answers(**machine) == in_utc
