"""Streaming DataFrames that a program brings, as sources: a StreamingQuery hands its batches over, one at a time.

The callback of a batch waits until the tick that took it is committed; when it returns, Spark commits the batch's
offsets. A crash before that brings the same batch again, and if the manifest already names it, it is skipped. Each
declaration has a checkpoint of its own, so a stream that is dropped and declared anew begins anew.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.errors import SourceError, StateError
from windrow.runtime.tables import TableSource
from windrow.sources.checkpoint import checkpoint_id
from windrow.sources.protocol import Available, FrameRows, Offset
from windrow.spark.sources import columns_of, conform
from windrow.store.place import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

LOG = logging.getLogger("windrow.engine")


@dataclass(frozen=True)
class FrameBatch(Available):
    """A batch of a streaming DataFrame."""

    frame: FrameRows = field(kw_only=True)

    @property
    def given(self) -> FrameRows:
        """The DataFrame of the batch."""
        return self.frame


@dataclass(eq=False)
class _WaitingBatch:
    number: int
    frame: DataFrame
    done: threading.Event = field(default_factory=threading.Event)


class FrameSource:
    """The batches of one streaming DataFrame; reading begins with the first poll."""

    def __init__(self, frame: DataFrame, stream: StreamDef, checkpoint: str) -> None:
        self.frame, self.stream, self.checkpoint = conform(frame, stream), stream, checkpoint
        self.query: StreamingQuery | None = None
        self._taken = -1  # the last batch that a manifest names
        self._waiting: _WaitingBatch | None = None
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._draining: threading.Thread | None = None

    def poll(self, offset: Offset | None) -> FrameBatch | None:
        """The batch that waits, if one does."""
        self._taken = max(self._taken, -1 if offset is None else int(offset["batch"]))
        if self.query is None:
            self._recognise(offset)
            self._start()
        assert self.query is not None
        failure = self.query.exception()
        if failure is not None and not self._stopped.is_set():
            raise failure
        with self._lock:
            waiting = self._waiting
        if waiting is None or waiting.number <= self._taken:
            return None
        return FrameBatch({"batch": waiting.number, "checkpoint": str(self.query.id)}, (), frame=waiting.frame)

    def _start(self) -> None:
        self._stopped.clear()
        writer = self.frame.writeStream.foreachBatch(self._hand_over).queryName(f"windrow {self.stream.name}")
        self.query = writer.option("checkpointLocation", self.checkpoint).start()

    def _recognise(self, offset: Offset | None) -> None:
        """Refuse a checkpoint that is not the one the manifest knows: its numbers mean other batches."""
        known = None if offset is None else offset.get("checkpoint")
        found = None if known is None else checkpoint_id(Place.of(self.checkpoint))
        if known != found:
            raise StateError(
                f'the checkpoint of stream "{self.stream.name}" is not the one that was read before',
                detail=f"the manifest names batch {self._taken} of {known}; at {self.checkpoint} is {found or 'none'}",
                hint="restore it from a backup, or look what can be saved: windrow state HOME --repair",
            )

    def _hand_over(self, frame: DataFrame, number: int) -> None:
        if number <= self._taken:
            LOG.info("stream %s: batch %d is in the manifest already", self.stream.name, number)
            return
        mine = _WaitingBatch(number, frame)
        with self._lock:
            self._waiting = mine
        while not mine.done.wait(0.5):
            if self._stopped.is_set():
                raise RuntimeError("windrow is stopping; this batch comes again")

    def committed(self, offset: Offset) -> None:
        """Let the callback of a batch return."""
        self._taken = max(self._taken, int(offset["batch"]))
        with self._lock:
            waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.done.set()

    def drained(self, offset: Offset | None) -> bool:
        """Whether Spark has handed over all it had when this was first asked."""
        if self.query is None:
            return False
        if self._draining is None:
            self._draining = threading.Thread(target=self._all_available, daemon=True)
            self._draining.start()
        if self._draining.is_alive():
            return False
        self._draining = None
        return True

    def _all_available(self) -> None:
        with contextlib.suppress(Exception):  # a failed stream is the loop's to report
            if self.query is not None:
                self.query.processAllAvailable()

    def close(self) -> None:
        """Stop reading."""
        self._stopped.set()
        query, self.query = self.query, None
        if query is not None:
            try:
                query.stop()
            except Exception as error:  # it may have failed, which is known by other ways
                LOG.debug("stopping stream %s: %s", self.stream.name, error)
        with self._lock:
            self._waiting = None


class FrameTable(TableSource):
    """A Spark DataFrame, collected as Arrow."""

    def __init__(self, frame: DataFrame) -> None:
        if frame.isStreaming:
            raise SourceError(
                "a table cannot be a streaming DataFrame", hint="declare it as a stream: engine.stream(name, df, ...)"
            )
        self._frame = frame

    def read(self) -> pa.Table:
        """All rows."""
        return self._frame.toArrow()


class SparkFrames:
    """What a runtime on Spark knows of DataFrames."""

    def knows(self, data: object) -> bool:
        """Whether this is a Spark DataFrame."""
        return hasattr(data, "sparkSession")

    def columns(self, frame: DataFrame) -> dict[str, pa.DataType]:
        """Its columns as Arrow types."""
        return columns_of(frame)

    def source(self, frame: DataFrame, stream: StreamDef, checkpoint: str) -> FrameSource:
        """A streaming DataFrame as the source of a stream."""
        return FrameSource(frame, stream, checkpoint)

    def table(self, frame: DataFrame) -> FrameTable:
        """A DataFrame as the content of a table."""
        return FrameTable(frame)
