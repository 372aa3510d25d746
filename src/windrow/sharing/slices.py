"""The slice manager: the edges of all registered windows, one by one, without composing them.

A priority queue holds, for every window, its next edges (algorithm 1 of the paper). Whoever drives a stream asks for
the next edge, cuts there, and advances. Windows join and leave at any time: joining adds two edges, leaving marks the
window gone and its edges are dropped when they surface, so neither looks at the other windows.

Cost: O(log windows) per edge. Equal windows are kept once, with a count.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from windrow.sharing.windows import PAIRED, Sliced, Window, sliced


class SliceManager:
    """Edges of paired (or paned) windows in time order.

    >>> manager = SliceManager()
    >>> manager.add(Window(18, 15), 0)
    >>> [manager.advance() for _ in range(4)]
    [12, 15, 27, 30]
    """

    def __init__(self, technique: str = PAIRED) -> None:
        self.technique = technique
        self._queue: list[tuple[int, Window, bool, int]] = []  # (edge, window, last of its period, generation)
        self._users: dict[Window, int] = {}
        self._generation: dict[Window, int] = {}

    def __len__(self) -> int:
        return len(self._users)

    def add(self, window: Window, now: int) -> None:
        """A query with this window joins at `now`: its edges beyond `now` count."""
        self._users[window] = self._users.get(window, 0) + 1
        if self._users[window] > 1:
            return
        self._generation[window] = self._generation.get(window, 0) + 1
        period = now // window.slide * window.slide
        self._add_edges(window, period, now)

    def _add_edges(self, window: Window, period: int, after: int) -> None:
        """Enqueue the edges of the period that begins at `period`, those beyond `after`."""
        cuts: Sliced = sliced(window, self.technique)
        for edge in cuts.edges:
            if period + edge > after:
                last = edge == cuts.period
                heapq.heappush(self._queue, (period + edge, window, last, self._generation[window]))

    def remove(self, window: Window) -> None:
        """A query with this window leaves."""
        left = self._users[window] - 1
        if left:
            self._users[window] = left
        else:
            del self._users[window]

    def _drop_gone(self) -> None:
        while self._queue and not self._current(self._queue[0]):
            heapq.heappop(self._queue)

    def _current(self, entry: tuple[int, Window, bool, int]) -> bool:
        return entry[1] in self._users and entry[3] == self._generation[entry[1]]

    def peek(self) -> int | None:
        """The next edge; None when there are no windows."""
        self._drop_gone()
        return self._queue[0][0] if self._queue else None

    def advance(self) -> int | None:
        """Take the next edge, with all edges at the same time, and enqueue the periods that follow."""
        now = self.peek()
        while now is not None and self._queue and self._queue[0][0] == now:
            entry = heapq.heappop(self._queue)
            if self._current(entry) and entry[2]:
                self._add_edges(entry[1], now, now)
        return now

    def until(self, frontier: int) -> Iterator[int]:
        """Take all edges up to `frontier`."""
        while (edge := self.peek()) is not None and edge <= frontier:
            self.advance()
            yield edge
