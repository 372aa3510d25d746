"""Schedulers of window movements and scans: algorithms 7 and 8 of the thesis, and the two they are compared with.

    SERIAL     a query locks its window: movements wait for it, and so do queries of higher priority
    SNAPSHOT   a query keeps the window it began with; overwritten sub-windows stay for as long as someone may read them
    LATEST     algorithm 7: movements run at once, and whoever has read what left its window begins again

The order of reads makes algorithm 7 into algorithm 8: `youngest_first` reads what will be overwritten last (the
greatest time to update, TTU). Law (theorem 7.4): for any interleaving of movements and reads, no order of reads gets
further without an abort. Two limits that the thesis does not print, found by trying every order: counting the aborts
of all restarts, whoever fails early has a head start and now and then wins (n = 3: read, move, move, read, move, read,
read, move, move, and then reads; the oldest first until the first abort is aborted once, TTU twice); and without
aborts, TTU scans the fewest sub-windows again if taking back costs no turn of its own.

Without aborts (`take_back`, 7.4.2): what has left the window stays readable a while; the query scans it again to take
it back, and goes on. Weak inputs (7.4.3): the window is a calendar of parts by expiration, and a movement may insert
into any part; rows for parts that a query has read already are handed to it as they come.

A sub-window is known by its version: version v lies in place `v mod n`, and T_j puts version j - L out of the window
of a query over L sub-windows (the place `(j + n - L) mod n` of the listing). Cost: a movement looks at each running
query once; a read costs at most n.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from windrow.errors import WindrowError
from windrow_bench.isolation_model.histories import History, Operation

Order = Callable[["Execution", Sequence[int]], int]
"""Which of its unread versions (ascending) an execution reads next."""

Rows = tuple[object, ...]


class Isolation(Enum):
    """What a query sees of movements that run meanwhile."""

    SERIAL = "serial"
    SNAPSHOT = "snapshot"
    LATEST = "latest"


@dataclass(eq=False)
class Execution:
    """One execution of a query: a read-only transaction over the `length` youngest sub-windows."""

    name: str
    length: int
    priority: int = 0
    read: dict[int, Rows] = field(default_factory=dict)  # the rows of each version that it has read
    window: Mapping[int, Rows] | None = None  # the sub-windows it began with, under SNAPSHOT
    as_of: int = -1  # the newest version in what it reads
    aborts: int = 0
    taken_back: int = 0
    committed: bool = False

    @property
    def query(self) -> str:
        """Its name in the history: a restart is a transaction of its own."""
        return f"{self.name}_{self.aborts}" if self.aborts else self.name

    def rows(self) -> list[object]:
        """All that it has read, or been handed."""
        return [row for rows in self.read.values() for row in rows]


def youngest_first(execution: Execution, unread: Sequence[int]) -> int:
    """Algorithm 8: the sub-window with the greatest time to update."""
    return unread[-1]


def oldest_first(execution: Execution, unread: Sequence[int]) -> int:
    """The sub-window that is overwritten next."""
    return unread[0]


def ring_order(n: int) -> Order:
    """By place: sub-window 0 first, whatever its age; as algorithm 7 reads in the thesis's experiments."""

    def first(execution: Execution, unread: Sequence[int]) -> int:
        turn = bisect_left(unread, -(-unread[0] // n) * n)  # where places begin again
        return unread[turn] if turn < len(unread) else unread[0]

    return first


class Scheduler:
    """A window that slides and the queries that scan it, one operation at a time."""

    def __init__(
        self,
        n: int,
        isolation: Isolation = Isolation.LATEST,
        order: Order = youngest_first,
        *,
        take_back: bool = False,
        fill: Mapping[int, Rows] | None = None,
    ) -> None:
        if n < 1:
            raise WindrowError("a window has at least one sub-window")
        self.n, self.isolation, self.order, self.take_back = n, isolation, order, take_back
        self.newest = n - 1
        self.window: dict[int, Rows] = {v: (fill or {}).get(v, ()) for v in range(n)}
        self.running: list[Execution] = []
        self.waiting: list[Mapping[int, Rows]] = []  # movements that a lock holds up
        self.operations: list[Operation] = []
        self._lengths: dict[str, int] = {}

    def history(self) -> History:
        """All that has happened."""
        return History(self.n, tuple(self.operations), dict(self._lengths))

    def ttu(self, place: int) -> int:
        """Movements until the sub-window in a place is overwritten."""
        return self.n - (self.newest - place) % self.n

    def begin(self, name: str, length: int | None = None, priority: int = 0) -> Execution:
        """Let a query in, under a name that it has not used before."""
        length = self.n if length is None else length
        if not 1 <= length <= self.n:
            raise WindrowError(f"a window of {self.n} sub-windows has no {length} youngest")
        if name in self._lengths:
            raise WindrowError(f'"{name}" has been executed before', hint="give each execution a name of its own")
        execution = Execution(name, length, priority)
        self._restart(execution)
        self.running.append(execution)
        return execution

    def _restart(self, execution: Execution) -> None:
        self._lengths[execution.query] = execution.length
        execution.read = {}
        execution.as_of = self.newest
        if self.isolation is Isolation.SNAPSHOT:
            execution.window = dict(self.window)

    def move(self, inserted: Mapping[int, Rows] | None = None) -> list[Execution]:
        """The next movement, with the rows that come into each version; returns the executions that it aborted."""
        inserted = {} if inserted is None else inserted
        if self.isolation is Isolation.SERIAL and any(e.read for e in self.running):
            self.waiting.append(inserted)
            return []
        return self._move(inserted)

    def _move(self, inserted: Mapping[int, Rows]) -> list[Execution]:
        self.newest += 1
        self.operations += [Operation("w", self.newest, self.newest % self.n), Operation("c", self.newest)]
        self.window.pop(self.newest - self.n)
        self.window[self.newest] = ()
        for version, rows in inserted.items():
            if version not in self.window:
                raise WindrowError(f"T{self.newest} inserts into version {version}, which is not in the window")
            self.window[version] = (*self.window[version], *rows)
        if self.isolation is Isolation.SERIAL:  # whoever runs has not begun to read
            for execution in self.running:
                execution.as_of = self.newest
        return self._resolve(inserted) if self.isolation is Isolation.LATEST else []

    def _resolve(self, inserted: Mapping[int, Rows]) -> list[Execution]:
        """Lines 4 to 8 of algorithm 7: whoever has read what left its window begins again, or takes it back."""
        aborted = []
        for execution in self.running:
            gone = self.newest - execution.length
            if gone not in execution.read:
                execution.as_of = self.newest
            elif self.take_back:
                del execution.read[gone]
                self.operations.append(Operation("u", execution.query, gone % self.n, gone))
                execution.taken_back += 1
                execution.as_of = self.newest
            else:
                self.operations.append(Operation("a", execution.query))
                execution.aborts += 1
                aborted.append(execution)
                self._restart(execution)
            for version, rows in inserted.items():
                if version in execution.read:
                    execution.read[version] = (*execution.read[version], *rows)
        return aborted

    def unread(self, execution: Execution) -> list[int]:
        """The versions that an execution has still to read, oldest first."""
        return [
            v for v in range(execution.as_of - execution.length + 1, execution.as_of + 1) if v not in execution.read
        ]

    def choose(self) -> Execution | None:
        """Whose turn it is: the highest priority, of equal ones the first; a lock is kept until it is let go."""
        if self.isolation is Isolation.SERIAL:
            locked = next((e for e in self.running if e.read), None)
            if locked is not None:
                return locked
        return max(self.running, key=lambda e: e.priority, default=None)

    def step(self, execution: Execution | None = None) -> tuple[Execution, int] | None:
        """One read, of the given execution or of the one whose turn it is; (who, version), None if nobody runs."""
        execution = execution or self.choose()
        if execution is None:
            return None
        version = self.order(execution, self.unread(execution))
        window = self.window if execution.window is None else execution.window
        execution.read[version] = window[version]
        self.operations.append(Operation("r", execution.query, version % self.n, version))
        if len(execution.read) == execution.length:
            self._commit(execution)
        return execution, version

    def _commit(self, execution: Execution) -> None:
        self.operations.append(Operation("c", execution.query))
        execution.committed = True
        self.running.remove(execution)
        while self.waiting and not any(e.read for e in self.running):
            self._move(self.waiting.pop(0))
