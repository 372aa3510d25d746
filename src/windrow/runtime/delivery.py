"""Handing answers over, apart from ticks: every receiver has a thread and a bounded queue of its own.

    tick ─ manifest ─► queue of a receiver ─► its thread: a sink, a subscriber, a listener

A receiver that is away, raises or hangs delays only itself. What a sink could not take is tried again, in order, after
0.5, 1, 2, ... seconds (at most 15 apart), for as long as it takes; with a home what waits is named by manifests, so it
is handed over after a restart too. Whoever does not keep what it is told (subscribers, listeners) is told once, and is
let go of when it is too far behind.

Cost: a lock and a wake-up per answer. A thread lives while there is something to do, and some seconds longer.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from windrow.errors import WindrowError
from windrow.store.background import spawn

LOG = logging.getLogger("windrow.engine")

FIRST_RETRY, LAST_RETRY = 0.5, 15.0
"""Seconds before a sink is tried again: at first, and at most."""

OUTBOX = 256 << 20
"""Bytes of answers that may wait for a receiver that has no bound of its own."""

PARCELS = 10_000
"""Ticks that may wait for a subscriber or a listener."""

HANGS = 30.0
"""Seconds in one call after which a receiver is said to hang, and nobody waits for it."""

LINGER = 10.0
"""Seconds that a thread without work waits for more."""


@dataclass(frozen=True)
class Parcel:
    """What one tick has for a receiver."""

    tick: int
    bytes: int
    hand_over: Callable[[], None]
    since: float = field(default_factory=time.time)


class Delivery:
    """Hands parcels to one receiver, in order. `retried`: until it takes them; otherwise once.

    `label` says in the log who it is.
    """

    def __init__(self, label: str, *, retried: bool, bound: int = OUTBOX) -> None:
        self.label, self.bound, self.retried = label, bound, retried
        self._parcels: deque[Parcel] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopped = self._nudged = False
        self.bytes = self._failures = 0  # bytes that wait
        self._began: float | None = None  # the call under way, by the wall
        self._failing: tuple[float, str] | None = None  # since when, and the last reason
        self.ended: str | None = None  # why nothing is handed over any more

    # the ticks' side

    def add(self, tick: int, size: int, hand_over: Callable[[], None]) -> None:
        """Hand something over when its turn comes; never waits."""
        with self._changed:
            if self.ended is not None:
                return
            if not self.retried and self._parcels and (self.full or len(self._parcels) >= PARCELS):
                self._end(f"it was {len(self._parcels)} ticks behind")
                return
            self._parcels.append(Parcel(tick, size, hand_over))
            self.bytes += size
            self._wake()

    @property
    def full(self) -> bool:
        """Whether more waits than may."""
        return self.bytes > self.bound

    @property
    def first_waiting(self) -> int | None:
        """The oldest tick that has not been taken."""
        with self._changed:
            return self._parcels[0].tick if self._parcels else None

    def status(self) -> dict[str, Any]:
        """How much waits and since when, and what is wrong."""
        with self._changed:
            failing, began = self._failing, self._began
            found: dict[str, Any] = {
                "waiting_ticks": len(self._parcels),
                "waiting_bytes": self.bytes,
                "waiting_since": self._parcels[0].since if self._parcels else None,
                "failing_since": failing[0] if failing else None,
                "error": failing[1] if failing else None,
                "failures": self._failures,
                "hanging_since": began if self._hangs() else None,
            }
            return found if self.ended is None else {**found, "ended": self.ended}

    # waiting, stopping

    def nudge(self) -> int:
        """Try now what failed; returns how often it has failed so far."""
        with self._changed:
            self._nudged = True
            self._changed.notify_all()
            return self._failures

    def settle(self, failures: int, until: float) -> bool:
        """Wait until everything is taken, or it has failed again, or hangs; at most until then, by the steady clock.

        False: time was up, and the receiver is still at it.
        """
        with self._changed:
            while self._parcels and self._thread is not None and self._failures == failures and not self._hangs():
                left = until - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(left, 0.2))
        return True

    def stop(self, seconds: float = 1.0) -> bool:
        """Hand over nothing more; False if the receiver does not come back from the call under way."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(seconds)
            return not thread.is_alive()
        return True

    def resume(self) -> None:
        """Go on after `stop`."""
        with self._changed:
            self._stopped = False
            if self._parcels:
                self._wake()

    def end(self, why: str) -> None:
        """Never hand over anything again."""
        with self._changed:
            self._end(why, logging.DEBUG)

    def _end(self, why: str, level: int = logging.WARNING) -> None:
        LOG.log(level, "%s is told no more: %s", self.label, why)
        self.ended = why
        self._parcels.clear()
        self.bytes = 0
        self._changed.notify_all()

    # the receiver's side

    def _wake(self) -> None:
        if self._thread is None and not self._stopped:
            self._thread = spawn(self._run, f"windrow to {self.label}")
        self._changed.notify_all()

    def _run(self) -> None:
        delay = FIRST_RETRY
        while (parcel := self._next()) is not None:
            if self._hand_over(parcel):
                delay = FIRST_RETRY
            else:
                self._pause(delay)
                delay = min(2 * delay, LAST_RETRY)

    def step(self) -> bool:
        """Hand over what is first, once, in the caller's thread; whether there was anything."""
        with self._changed:
            parcel = self._parcels[0] if self._parcels and not self._stopped else None
        if parcel is not None:
            self._hand_over(parcel)
        return parcel is not None

    def _hand_over(self, parcel: Parcel) -> bool:
        """Whether it has been taken, or is not tried again."""
        try:
            parcel.hand_over()
        except Exception as error:
            self._failed(parcel, error)
            if self.retried:
                return False
        else:
            self._succeeded(parcel)
        self._take(parcel)
        return True

    def _next(self) -> Parcel | None:
        with self._changed:
            self._began = None
            self._changed.wait_for(lambda: self._parcels or self._stopped, LINGER)
            if self._stopped or not self._parcels:
                self._thread = None
                self._changed.notify_all()
                return None
            self._began = time.time()
            return self._parcels[0]

    def _take(self, parcel: Parcel) -> None:
        with self._changed:
            self._began = None
            if self._parcels and self._parcels[0] is parcel:  # else it has been ended meanwhile
                self._parcels.popleft()
                self.bytes -= parcel.bytes
            self._changed.notify_all()

    def _failed(self, parcel: Parcel, error: Exception) -> None:
        said = str(error) if isinstance(error, WindrowError) else f"{type(error).__name__}: {error}"
        again = "; it is tried again" if self.retried else ""
        if self._failing is None or not self.retried:
            trace = None if isinstance(error, WindrowError) else error
            LOG.warning("%s failed at tick %d: %s%s", self.label, parcel.tick, said, again, exc_info=trace)
        with self._changed:
            self._failures += 1
            self._failing = (self._failing[0] if self._failing else time.time(), said)
            self._began, self._nudged = None, False
            self._changed.notify_all()

    def _succeeded(self, parcel: Parcel) -> None:
        if self._failing is not None:
            LOG.info("%s takes answers again, from tick %d on", self.label, parcel.tick)
            with self._changed:
                self._failing = None

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._nudged or self._stopped or self.ended is not None, seconds)
            self._nudged = False

    def _hangs(self) -> bool:
        return self._began is not None and time.time() - self._began > HANGS


def by_label(deliveries: Iterable[Delivery]) -> dict[str, dict[str, Any]]:
    """The status of each; those that are called alike are numbered."""
    found: dict[str, dict[str, Any]] = {}
    for each in deliveries:
        same = (f"{each.label} ({n})" for n in count(2))
        found[each.label if each.label not in found else next(name for name in same if name not in found)] = (
            each.status()
        )
    return found


def settle(deliveries: Iterable[Delivery], seconds: float) -> list[Delivery]:
    """Wait until receivers have taken what waits for them; not for those that fail once more, or hang.

    Returns those that need more time.
    """
    found = [(d, d.nudge()) for d in deliveries]
    until = time.monotonic() + seconds
    return [delivery for delivery, failures in found if not delivery.settle(failures, until)]
