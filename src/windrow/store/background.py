"""Work that goes on beside ticks in threads of its own: deliveries, heartbeats, the loop of a runtime.

All of it is started here, so that a simulation, in which a seed decides what happens when, can hold it back and do the
work step by step.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

_held = False


def spawn(target: Callable[[], None], name: str) -> threading.Thread | None:
    """Run something in a thread that ends with the process; None while all such work is held back."""
    if _held:
        return None
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Start no thread meanwhile."""
    global _held
    before, _held = _held, True
    try:
        yield
    finally:
        _held = before
