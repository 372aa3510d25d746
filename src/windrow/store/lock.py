"""One engine per home.

On a local disk (or a shared mount) the lock is the kernel's: it goes with the process that held it, however that
process ended, so nothing is ever stale. The file also says who holds it, and since when it was last heard of: file
systems without such locks, and other machines on a mount that does not share them, go by that heartbeat.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from windrow.errors import StateError
from windrow.store import disk
from windrow.store.background import spawn
from windrow.store.place import Place, explained

NAME = "lock"
BEAT_SECONDS = 10.0
EXPIRES_SECONDS = 60.0


class Lock:
    """A held lock on a home; `release` gives it back."""

    def __init__(self, place: Place, clock: Callable[[], float] = time.time) -> None:
        self.place = place
        self.owner = {"uuid": uuid.uuid4().hex, "host": socket.gethostname(), "pid": os.getpid()}
        self._clock = clock
        self._file: disk.HeldFile | None = None  # locked, where the system has locks
        self._stopped = threading.Event()
        self._guard = threading.Lock()
        self._take()
        spawn(self._run, "windrow-lock")

    def beat(self) -> None:
        """Say that the holder is alive."""
        text = json.dumps({**self.owner, "heartbeat": self._clock()}).encode() + b"\n"
        with self._guard:
            if self._file is None:
                self.place.write(NAME, text)
                return
            # Written in place: a rename would put a new, unlocked file under the name.
            with explained("write", self.place.path(NAME)):
                self._file.write(text.ljust(256))

    def held(self) -> bool:
        """Whether the home is still ours (a machine that slept past its heartbeat may have lost it)."""
        with self._guard:
            return _holder(self.place).get("uuid") == self.owner["uuid"]

    def release(self) -> None:
        """Give the home back."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        if self.held():
            self.place.delete(NAME)
        if self._file is not None:
            self._file.close()
            self._file = None

    def _take(self) -> None:
        if self.place.local:
            self._lock_file()
        holder = _holder(self.place)
        if holder and not self._gone(holder):
            if self._file is not None:
                self._file.close()
            raise in_use(self.place, holder)
        self.beat()
        if not self.held():
            raise in_use(self.place, _holder(self.place))

    def _lock_file(self) -> None:
        path = self.place.path(NAME)
        try:
            with explained("lock", path):
                self._file = disk.current.lock(path)
        except StateError as error:
            if isinstance(error.__cause__, BlockingIOError):
                raise in_use(self.place, _holder(self.place)) from None
            raise

    def _gone(self, holder: dict[str, Any]) -> bool:
        if holder.get("host") == self.owner["host"]:
            return self._file is not None or not _alive(int(holder.get("pid", 0)))
        return self._clock() - float(holder.get("heartbeat", 0)) > EXPIRES_SECONDS

    def _run(self) -> None:
        while not self._stopped.wait(BEAT_SECONDS):
            with contextlib.suppress(StateError):  # a full disk shows at the next commit
                if not self._stopped.is_set():
                    self.beat()


def in_use(place: Place, holder: dict[str, Any]) -> StateError:
    """The refusal of a home that another engine has open."""
    who = f"process {holder['pid']} on {holder['host']}" if "pid" in holder else "another process"
    return StateError(
        f"home {place.uri} is in use by another engine",
        detail=f"{who} holds {place.path(NAME)}",
        hint="stop that engine first (if its machine is gone, wait a minute), or give this one its own home",
    )


def _holder(place: Place) -> dict[str, Any]:
    if not place.exists(NAME):
        return {}
    try:
        value = json.loads(bytes(place.read(NAME)))
    except (ValueError, StateError):  # just created, or being written
        return {}
    return value if isinstance(value, dict) else {}


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return pid > 0
