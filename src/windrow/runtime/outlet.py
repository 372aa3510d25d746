"""Where a query's answers go: the most recent ones in memory (bounded), subscribers, and sinks.

What is remembered is a log by tick: whoever has everything up to a tick can ask what came after it, and is told when
some of that is gone. Subscribers and sinks take answers in threads of their own (`delivery`). Long answers are
references (`kept_answers`), and read when somebody asks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import pyarrow as pa

from windrow.operators.at_exit import gate
from windrow.operators.elements import BEGINNING
from windrow.runtime.delivery import OUTBOX, Delivery
from windrow.runtime.kept_answers import BOUND, AnyAnswer, KeptAnswer, MapTasks, rows_of, write_by_tasks
from windrow.sinks import PartSink, RelationSink, Sink
from windrow.sinks.answer_log import AnswerLog
from windrow.store.failpoints import reach

RECENT_ROWS = 100_000
"""Rows of a query's answer kept in memory; older ones are in the sinks, or gone."""

HELD = 32 << 20
"""Bytes of answers that wait for a sink in memory; more is read back from the home when its turn comes."""


class Recent:
    """The newest answers of one query, and those who want each as it comes."""

    def __init__(self, empty: pa.Table, begun: int = 0, limit: int = RECENT_ROWS, *, since: int = BEGINNING) -> None:
        """`begun`, `since`: the newest tick, and its frontier, when the query was registered, or its home opened; later
        of the newest answer that is no longer remembered."""
        self._empty, self._limit, self.since = empty, limit, since
        self._ticks: deque[tuple[int, int, AnyAnswer]] = deque()  # tick, frontier, answer
        self._held, self._gone, self._as_of = 0, begun, since
        self._lock = threading.Lock()
        self.rows = 0
        self.subscribers: dict[Delivery, Callable[[pa.Table], object]] = {}

    @property
    def schema(self) -> pa.Schema:
        """The columns of the answer."""
        return self._empty.schema

    def subscribe(self, query: str, callback: Callable[[pa.Table], object]) -> Callable[[], None]:
        """Call `callback` with each answer, in a thread of its own, until what is returned is called."""
        name = getattr(callback, "__qualname__", type(callback).__name__)
        delivery = Delivery(f'subscriber {name} of query "{query}"', retried=False)
        self.subscribers[delivery] = callback

        def end() -> None:
            if self.subscribers.pop(delivery, None) is not None:
                delivery.stop(0)

        return end

    def add(self, tick: int, found: AnyAnswer, as_of: int = BEGINNING) -> None:
        """Remember the answer of a tick, up to its frontier, and tell the subscribers."""
        with self._lock:
            self._ticks.append((tick, as_of, found))
            self._as_of = max(self._as_of, as_of)
            self._held += found.num_rows
            self.rows += found.num_rows
            while self._held > self._limit and len(self._ticks) > 1:
                self._gone, self.since, oldest = self._ticks.popleft()
                self._held -= oldest.num_rows
        for delivery, callback in list(self.subscribers.items()):
            delivery.add(tick, found.nbytes, lambda call=callback: call(rows_of(found)))  # type: ignore[misc]

    def after(self, tick: int) -> list[tuple[int, pa.Table]] | None:
        """What came after a tick, by tick; None if some of it is gone."""
        with self._lock:
            if tick < self._gone:
                return None
            newer = takewhile(lambda entry: entry[0] > tick, reversed(self._ticks))
            found = list(newer)[::-1]
        return [(number, rows_of(each)) for number, _, each in found]

    def table(self) -> pa.Table:
        """What is remembered, in order."""
        return self.up_to()[2]

    def up_to(self) -> tuple[int, int, pa.Table]:
        """The tick, and its frontier, up to which that is all there was; and what is remembered, in order."""
        with self._lock:
            found = [each for _, _, each in self._ticks]
            tick, as_of = self._ticks[-1][0] if self._ticks else self._gone, self._as_of
        return tick, as_of, pa.concat_tables([self._empty, *map(rows_of, found)]).combine_chunks()


class AttachedSink:
    """A sink of a query, and what waits for it; at most about `bound` bytes may."""

    def __init__(
        self, query: str, name: str, sink: Sink, kind: str, bound: int = OUTBOX, tasks: MapTasks | None = None
    ) -> None:
        """`tasks`: runs a function over values in tasks."""
        self.query, self.name, self.sink, self.kind, self._tasks = query, name, sink, kind, tasks
        self.delivery = Delivery(f'sink {name} of query "{query}"', retried=True, bound=bound)

    def add(self, tick: int, found: AnyAnswer, kept: KeptAnswer | None) -> None:
        """Write the answer of a tick when its turn comes; `kept`: where it lies if it need not wait in memory."""
        size = found.nbytes if kept is None else kept.nbytes
        if kept is not None and (found is kept or self.delivery.bytes + size > HELD):
            self.add_kept(tick, kept)
        else:
            self.delivery.add(tick, size, lambda: self._write(tick, rows_of(found)))

    def add_kept(self, tick: int, kept: KeptAnswer) -> None:
        """Write an answer that lies in a home."""
        self.delivery.add(tick, kept.nbytes, lambda: self._write_kept(tick, kept))

    def _write_kept(self, tick: int, kept: KeptAnswer) -> None:
        """Write an answer from its files: by tasks, where the sink can take parts."""
        sink = self.sink
        if self._tasks is None or not isinstance(sink, PartSink) or (len(kept.refs) < 2 and kept.nbytes < BOUND):
            self._write(tick, kept.table())
            return
        with gate:
            write_by_tasks(sink, self.query, tick, kept, self._tasks)
        reach("after sinks")

    def fill(self, tick: int, relation: pa.Table) -> None:
        """Begin with a relation as it is after a tick."""
        sink = self.sink
        assert isinstance(sink, RelationSink)
        self.delivery.add(tick, relation.nbytes, lambda: sink.fill(self.query, tick, relation))

    def _write(self, tick: int, table: pa.Table) -> None:
        if self.kind == "callback":  # it may take as long as it likes: the end of the process does not wait for it
            self.sink.write(self.query, tick, table)
        else:
            with gate:
                self.sink.write(self.query, tick, table)
        reach("after sinks")

    def close(self) -> None:
        """Hand over nothing more, and let go of what the sink holds unless it is stuck."""
        if self.delivery.stop():
            self.sink.close()


@dataclass
class Outlet:
    """Where the answers of the query `name` go; `log`: where they last; `sinks` by their names."""

    name: str
    recent: Recent
    log: AnswerLog | None = None
    sinks: dict[str, AttachedSink] = field(default_factory=dict)

    @property
    def deliveries(self) -> list[Delivery]:
        """Everybody who takes answers."""
        return [*(s.delivery for s in self.sinks.values()), *self.recent.subscribers]

    @property
    def full(self) -> AttachedSink | None:
        """A sink for which more waits than may."""
        return next((s for s in self.sinks.values() if s.delivery.full), None)

    def status(self) -> dict[str, Any]:
        """Its sinks, by name."""
        return {name: {"kind": s.kind, **s.delivery.status()} for name, s in self.sinks.items()}

    def close(self) -> None:
        """Let go of the sinks."""
        for sink in self.sinks.values():
            sink.close()
        for subscriber in list(self.recent.subscribers):
            subscriber.stop(0)
        if self.log is not None:
            self.log.close()

    def resume(self) -> None:
        """Go on after `close`."""
        for delivery in self.deliveries:
            delivery.resume()

    def drop(self) -> None:
        """Let go of the sinks, and delete what was kept of the answers."""
        self.close()
        if self.log is not None:
            self.log.drop()
