"""Waiting for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Return as soon as a condition holds; fail when it does not in so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} seconds"
        time.sleep(0.005)
