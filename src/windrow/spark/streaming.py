"""A stream as the driver sees it: a StreamingQuery whose batches are handed over, one at a time.

The callback of a batch waits until the tick that took it is committed; when it returns, Spark commits the batch's
offsets. A crash before that brings the same batch again, and if the manifest already names it, it is skipped. Each
declaration has a checkpoint of its own, so a stream that is dropped and declared anew begins anew.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from windrow.catalog import StreamDef
from windrow.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

LOG = logging.getLogger("windrow.engine")


@dataclass(eq=False)
class Batch:
    """A stream's rows, handed over and waiting."""

    reader: Reader
    number: int
    frame: DataFrame
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None

    @property
    def stream(self) -> str:
        return self.reader.key


@dataclass(eq=False)
class Reader:
    """One declared stream: its source, its StreamingQuery while it runs, and what has come."""

    definition: StreamDef
    frame: DataFrame | None
    checkpoint: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    query: StreamingQuery | None = None
    seen: float = field(default_factory=time.time)  # when rows last came, by the wall
    rows: int = 0
    late: int = 0

    @property
    def key(self) -> str:
        return self.definition.name.lower()

    def start(
        self, home: str, inbox: queue.Queue[Batch], taken: Callable[[str], int], stopping: threading.Event
    ) -> None:
        """Begin reading; batches go to `inbox`, except those up to `taken(stream)`, which the manifest names."""
        if self.frame is None:
            raise SourceError(
                f'stream "{self.definition.name}" has no source',
                hint=f"attach one: engine.stream('{self.definition.name}', df)",
            )

        def hand_over(frame: DataFrame, number: int) -> None:
            if number <= taken(self.key):
                LOG.info("stream %s: batch %d is in the manifest already", self.definition.name, number)
                return
            batch = Batch(self, number, frame)
            inbox.put(batch)
            while not batch.done.wait(0.5):
                if stopping.is_set():
                    raise RuntimeError("windrow is stopping; this batch comes again")
            if batch.error is not None:
                raise batch.error

        writer = self.frame.writeStream.foreachBatch(hand_over).queryName(f"windrow {self.definition.name}")
        path = f"{home}/checkpoints/{self.key}-{self.checkpoint}"
        self.query = writer.option("checkpointLocation", path).start()
        self.seen = time.time()

    def stop(self) -> None:
        """Stop reading."""
        if self.query is None:
            return
        try:
            self.query.stop()
        except Exception as error:  # it may have failed, which is known by other ways
            LOG.debug("stopping stream %s: %s", self.definition.name, error)
        self.query = None

    def failure(self) -> BaseException | None:
        """What ended the StreamingQuery, if something did."""
        return self.query.exception() if self.query is not None else None

    def coming(self) -> bool:
        """Whether Spark has found rows that it has not handed over yet."""
        try:
            return self.query is not None and bool(self.query.status["isDataAvailable"])
        except Exception:  # a stream that has ended is the loop's to report
            return False

    def idle(self) -> bool:
        """Whether the stream has been silent for longer than it may hold time back."""
        after = self.definition.idle_after
        return after is not None and time.time() - self.seen > after / 1e6


def gather(
    inbox: queue.Queue[Batch], readers: Collection[Reader], nap: float, linger: float, patience: float
) -> list[Batch]:
    """One batch of each stream that has one: wait `nap` seconds for the first, then `linger` for the others.

    A stream that is about to hand over its rows is waited for a little longer, up to `patience`: rows of one time that
    come in two ticks cost two jobs.
    """
    found: list[Batch] = []
    begin = time.monotonic()
    deadline = begin + nap
    while len(found) < max(1, len(readers)):
        try:
            found.append(inbox.get(timeout=max(0.001, deadline - time.monotonic())))
        except queue.Empty:
            here = {b.reader.key for b in found}
            if (
                not found
                or time.monotonic() > begin + patience
                or not any(r.coming() for r in readers if r.key not in here)
            ):
                break
            deadline = time.monotonic() + 0.01
            continue
        if len(found) == 1:
            begin = time.monotonic()
            deadline = begin + linger
    return found
