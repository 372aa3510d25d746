"""An event loop that lets ticks go first.

A tick that computes in this process and the loop that serves share one interpreter: every time the tick lets go of it
for an instant, to compute in Arrow, the loop takes it for as long as it has something to do. So the loop stands still
while a tick computes, requests wait in their sockets, and whatever a tick has changed is told when it is over:

    ticks   ───███████─────────────███████────
    loop    ██─       ██─█───█─██──       ███─

But whoever waits gets an answer however long ticks are: a loop that has waited for `PATIENCE` goes on beside the tick,
and waits again only for as long as it has gone on since. Half of the time is the loop's at least.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable

from windrow.runtime.ask import PATIENCE


class TicksFirst(selectors.DefaultSelector):
    """Tells a loop what is ready, when no tick computes.

    `tick_runs`: whether one computes in this process; `let_tick_pass`: waits for its end, at most so many seconds.
    """

    def __init__(
        self,
        tick_runs: Callable[[], bool],
        let_tick_pass: Callable[[float], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._tick_runs, self._let_tick_pass, self._clock = tick_runs, let_tick_pass, clock
        self._waited, self._since = 0.0, clock()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready."""
        ready = super().select(timeout)
        if self._tick_runs():
            now = self._clock()
            self._waited = max(0.0, self._waited - (now - self._since))
            if self._waited < PATIENCE:
                self._let_tick_pass(PATIENCE - self._waited)
            self._since = self._clock()
            self._waited += self._since - now
        return ready
