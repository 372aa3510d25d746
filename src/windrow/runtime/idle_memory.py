"""Memory that nothing uses any more goes back to the system at the end of a tick, where more lies idle than is needed.

Allocators keep what a tick has freed for the next one: what is handed back must be found again and cleared, page by
page, a third of the processor time of ticks that are all alike. But a tick that catches up can be many times as large
as those behind it.

Law: between ticks no more lies idle than half of what is used, or than a tick like the last one would touch (`TIMES`
what it read and wrote, at most `MUCH`), or than `LITTLE`. Cost: two looks at counters; where something is given back,
what finding it again takes.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

LITTLE = 64 << 20
"""Bytes that may lie idle whatever is used."""


TIMES = 8
"""A tick has up to so many times what it reads and writes in memory at once (five for a shared aggregate, seven with
100,000 groups)."""

MUCH = 512 << 20
"""Bytes that may lie idle whatever the last tick was."""

_touched = 0


def touched(size: int) -> None:
    """So many bytes were read or written by the tick that is computed."""
    global _touched
    _touched += size


@dataclass
class Allocator:
    """What the C library says and does; `elsewhere`: bytes of this process that are not the allocator's, when that was
    last known."""

    told: Callable[[], tuple[int, int]]  # bytes that are used, and that are free
    trim: Callable[[], object]
    elsewhere: int = 0

    def idle(self) -> tuple[int, int]:
        """Bytes that are used, and that lie idle in memory: of what is free, much may have been given back before."""
        used, free = self.told()
        return used, min(free, _private() - used - self.elsewhere)

    def give_back(self) -> None:
        """Give back all that lies idle."""
        pa.default_memory_pool().release_unused()
        self.trim()
        self.elsewhere = max(0, _private() - self.told()[0])


def give_back() -> None:
    """Return memory to the system at the end of a tick, if much of it is idle."""
    global _touched
    again, _touched = min(MUCH, TIMES * _touched), 0
    allocator = _allocator()
    if allocator is not None:
        used, idle = allocator.idle()
        if idle > max(LITTLE, used // 2, again):
            allocator.give_back()


@functools.cache
def _allocator() -> Allocator | None:
    """That of glibc, where it is, under Linux."""
    try:
        libc, _ = ctypes.CDLL(None), _private()
        new = hasattr(libc, "mallinfo2")
        ask, trim = libc.mallinfo2 if new else libc.mallinfo, libc.malloc_trim
    except (OSError, AttributeError):
        return None
    ask.restype = _MallInfo2 if new else _MallInfo

    def told() -> tuple[int, int]:
        found = ask()
        return found.used + found.mapped, found.free

    return Allocator(told, lambda: trim(0))


def _private() -> int:
    """Bytes in memory that are no file's."""
    with open("/proc/self/statm", "rb") as file:
        _, resident, of_files, *_ = map(int, file.read().split())
    return (resident - of_files) * os.sysconf("SC_PAGESIZE")


def _fields(of: type[ctypes._SimpleCData[int]]) -> list[tuple[str, type[ctypes._SimpleCData[int]]]]:
    names = ("arena", "pieces", "fast_pieces", "mappings", "mapped", "unused", "fast", "used", "free", "top")
    return [(name, of) for name in names]


class _MallInfo2(ctypes.Structure):
    _fields_ = _fields(ctypes.c_size_t)


class _MallInfo(ctypes.Structure):
    """Of older versions; beyond 4 GB it tells too little."""

    _fields_ = _fields(ctypes.c_uint)
