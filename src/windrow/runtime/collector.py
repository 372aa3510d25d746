"""The garbage collector, while much is made that stays: it would look at all of that again and again.

It looks for cycles alone, and trees of texts are full of them: they are dead when their script is done, and cheap to
find while they are young.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

SWEPT = 64
"""After so many statements their trees are looked for."""

T = TypeVar("T")


@contextmanager
def without_collector() -> Iterator[None]:
    """Make many objects that stay, without the garbage collector looking at all of them again and again."""
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


def swept(items: Iterable[T]) -> Iterator[T]:
    """The items, while the collector is paused: what is young and dead goes after every few of them."""
    for number, item in enumerate(items, start=1):
        yield item
        if number % SWEPT == 0:
            gc.collect(0)
