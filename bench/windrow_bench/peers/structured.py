"""Native Structured Streaming: one StreamingQuery for each query, all started together, until the files are read.

A windowed aggregate is `window(range, slide)` and a groupBy in append mode under a watermark; a row is copied
range/slide times, and every query reads the files and keeps its state for itself. A join of n windows is a chain of
stream-stream joins with a time range for each pair. Both are what Spark's guide tells a user to write.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from windrow.spark.session import session, unwrap
from windrow_bench.peers.answers import PeerResult, settle
from windrow_bench.peers.dialect import flat, names, translate
from windrow_bench.peers.feed import TICK_US, Feed, Stream, instants, write_file, write_streams
from windrow_bench.peers.queries import PeerQuery, Selection, SlidingAggregate, Window, WindowJoin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DELAY = "1 millisecond"  # a row at the watermark itself is late to a join, and equal times may cross files
TICKS_FROM_US = 10**15  # when tick 0 is: Spark's first watermark is 1970, and what comes not after it is late
FAR_US = 10**15  # thirty years after the last row: passes every window


class StructuredStreaming:
    """Spark's own engine, on `spark` or the session windrow would start."""

    name = "Structured Streaming"

    def __init__(self, spark: SparkSession | None = None, files_per_trigger: int | None = None) -> None:
        self.spark = session(spark)
        self.files_per_trigger = files_per_trigger
        self._warm = False

    def run(
        self, queries: Sequence[PeerQuery], files: str | Path, tables: Mapping[str, pa.Table] | None = None
    ) -> PeerResult:
        """Run the queries together over the streams that `write_streams` put into `files`."""
        if not self._warm:
            self._warm = True
            self._warm_up()
        feed = Feed.of(files, tables or {}, queries[0].time)
        with tempfile.TemporaryDirectory(prefix="windrow-structured-") as place:
            staged = Staged(feed, Path(place))
            with self._in_utc():
                begin = time.perf_counter()
                answers = self._answers(queries, staged)
                seconds = time.perf_counter() - begin
        settled = {q.name: settle(_with_instants(answers[q.name], q.ticks), q, feed) for q in queries}
        about = {
            "spark": self.spark.version,
            "master": self.spark.sparkContext.master,
            "files_per_trigger": self.files_per_trigger,
        }
        return PeerResult(seconds, settled, {}, about)

    def _answers(self, queries: Sequence[PeerQuery], staged: Staged) -> dict[str, pa.Table]:
        collected: dict[str, list[pa.Table]] = {q.name: [] for q in queries}
        running: list[Any] = []
        try:
            for number, query in enumerate(queries):
                frame = Plan(self.spark, staged, query, self.files_per_trigger).frame()
                writer = frame.writeStream.outputMode("append").trigger(availableNow=True)
                writer = writer.option("checkpointLocation", str(staged.place / f"checkpoint-{number}"))
                running.append(writer.foreachBatch(_keep(collected[query.name])).start())
            for started in running:
                started.awaitTermination()
        except Exception as error:
            raise unwrap(error) from error
        finally:
            for started in running:
                started.stop()
        return {name: pa.concat_tables(parts) for name, parts in collected.items()}

    @contextmanager
    def _in_utc(self) -> Iterator[None]:
        """Times without a zone are read as UTC, whatever the session's owner set."""
        before = self.spark.conf.get("spark.sql.session.timeZone")
        self.spark.conf.set("spark.sql.session.timeZone", "UTC")
        try:
            yield
        finally:
            self.spark.conf.set("spark.sql.session.timeZone", before or "UTC")

    def _warm_up(self) -> None:
        table = pa.table({"ts": pa.array([0, 1], pa.timestamp("us")), "k": [1, 2]})
        with tempfile.TemporaryDirectory(prefix="windrow-structured-") as place:
            write_streams(place, {"s": table})
            self.run([SlidingAggregate("warm", "s", 2, 1, {"n": "COUNT(*)"}, keys=["k"])], place)


def _keep(into: list[pa.Table]) -> Any:
    def keep(batch: DataFrame, _: int) -> None:
        into.append(batch.toArrow())

    return keep


def _with_instants(raw: pa.Table, ticks: bool) -> pa.Table:
    ts = instants(raw["_ts"])
    return raw.set_column(0, "_ts", pc.divide(pc.subtract(ts, TICKS_FROM_US), TICK_US) if ticks else ts)


class Staged:
    """The files as Spark will find them: modified in order of time, as Spark reads them, and a last row far ahead."""

    def __init__(self, feed: Feed, place: Path) -> None:
        self.feed, self.place = feed, place
        for stream in feed.streams.values():
            target = self.directory(stream.name)
            target.mkdir(parents=True)
            copies = [Path(shutil.copyfile(p, target / p.name)) for p in stream.paths]
            copies.append(target / f"z-last.{stream.form}")
            write_file(_far_row(stream, feed.until), copies[-1])
            for number, path in enumerate(copies):
                os.utime(path, (number, number))
        for name, table in feed.tables.items():
            pq.write_table(table, place / f"{name}.parquet")

    def directory(self, stream: str) -> Path:
        return self.place / "streams" / stream

    def table(self, name: str) -> Path:
        return self.place / f"{name}.parquet"


def _far_row(stream: Stream, until: int) -> pa.Table:
    columns = {f.name: pa.nulls(1, f.type) for f in stream.schema}
    kind = stream.schema.field(stream.time).type
    far = pa.array([until + FAR_US], pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else pa.int64())
    return pa.table(columns | {stream.time: far.cast(kind, safe=False)}, schema=stream.schema)


class Plan:
    """One query as a streaming DataFrame, whose first column is `_ts`."""

    def __init__(self, spark: SparkSession, staged: Staged, query: PeerQuery, files_per_trigger: int | None) -> None:
        self.spark, self.staged, self.query = spark, staged, query
        self.files_per_trigger = files_per_trigger
        self.columns = staged.feed.columns(query)
        self.unit_us, self.base_us = (TICK_US, TICKS_FROM_US) if query.ticks else (1, 0)

    def frame(self) -> DataFrame:
        if isinstance(self.query, SlidingAggregate):
            return self._aggregate(self.query)
        return self._selection(self.query) if isinstance(self.query, Selection) else self._join(self.query)

    def _expression(self, sql: str) -> str:
        return translate(sql, self.columns, "spark")

    def _stream(self, alias: str, name: str, shift_us: int) -> DataFrame:
        """The flattened columns, with the event time `_time` under a watermark."""
        from pyspark.sql import functions as F

        stream = self.staged.feed.streams[name.lower()]
        directory = str(self.staged.directory(stream.name))
        reader = self.spark.readStream.format(stream.form).schema(self._schema(stream)).option("header", "true")
        if self.files_per_trigger:
            reader = reader.option("maxFilesPerTrigger", str(self.files_per_trigger))
        read = reader.load(directory)
        ts = read[stream.time]
        if self.query.ticks:
            ts = F.timestamp_micros(ts * self.unit_us + self.base_us)
        used = [F.col(c).alias(flat(alias, c)) for c in read.columns]
        ts = ts.cast("timestamp")  # a watermark wants the type with a time zone
        shifted = (ts - F.expr(f"INTERVAL '{shift_us}' MICROSECOND")) if shift_us else ts
        return read.select(*used, shifted.alias(f"_time_{alias.lower()}")).withWatermark(
            f"_time_{alias.lower()}", DELAY
        )

    def _schema(self, stream: Stream) -> Any:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(stream.schema, prefer_timestamp_ntz=True)

    def _aggregate(self, query: SlidingAggregate) -> DataFrame:
        from pyspark.sql import functions as F

        frame = self._stream(query.stream, query.stream, self.unit_us)
        event = f"_time_{query.stream.lower()}"
        tests = [self._expression(query.where)] if query.where else []
        for lookup in query.tables:
            frame = self._with_table(frame, query.stream, lookup.table, lookup.on)
        range_us, slide_us = query.range * self.unit_us, query.slide * self.unit_us
        if slide_us > range_us:
            tests.append(f"(unix_micros(`{event}`) - {self.base_us}) % {slide_us} >= {slide_us - range_us}")
            range_us = slide_us
        # Spark moves a filter below the watermark unless it reads the event time, and then the last row is not seen.
        barrier = f"`{event}` > timestamp_micros({self.staged.feed.until * self.unit_us + self.base_us})"
        for test in tests:
            frame = frame.where(f"({test}) OR {barrier}")
        # Windows begin at multiples of the slide plus this; ours end at multiples.
        begin_us = (self.base_us - range_us) % slide_us
        window = F.window(event, *(f"{us} microseconds" for us in (range_us, slide_us, begin_us)))
        keys = [F.expr(self._expression(k)).alias(k.rpartition(".")[2]) for k in query.keys]
        made = [F.expr(self._expression(sql)).alias(name) for name, sql in query.aggregates.items()]
        grouped = frame.groupBy(window.alias("_window"), *keys).agg(*made)
        return grouped.select(F.col("_window.end").alias("_ts"), *grouped.columns[1:])

    def _selection(self, query: Selection) -> DataFrame:
        from pyspark.sql import functions as F

        frame = self._stream(query.stream, query.stream, 0)
        for lookup in query.tables:
            frame = self._with_table(frame, query.stream, lookup.table, lookup.on)
        if query.where:
            frame = frame.where(self._expression(query.where))
        made = [F.expr(self._expression(sql)).alias(name) for name, sql in query.select.items()]
        return frame.select(F.col(f"_time_{query.stream.lower()}").alias("_ts"), *made)

    def _with_table(self, frame: DataFrame, stream: str, table: str, on: Mapping[str, str]) -> DataFrame:
        from pyspark.sql import functions as F

        static = self.spark.read.parquet(str(self.staged.table(table.lower())))
        static = static.select(*(F.col(c).alias(flat(table, c)) for c in static.columns))
        tests = [F.col(flat(stream, a)) == F.col(flat(table, b)) for a, b in on.items()]
        if not tests:
            return frame.crossJoin(F.broadcast(static))
        return frame.join(F.broadcast(static), reduce(lambda x, y: x & y, tests))

    def _join(self, query: WindowJoin) -> DataFrame:
        from pyspark.sql import functions as F

        needed, first = self._needed(query), query.windows[0]
        joined = self._window(first, needed)
        for number, window in enumerate(query.windows[1:], 1):
            tests = [f"`{flat(first.name, query.key)}` = `{flat(window.name, query.key)}`", self._near(first, window)]
            for other in query.windows[1:number]:
                mine, then = _us(window), _us(other)
                tests.append(f"{mine} - {then} < {other.range * self.unit_us}")
                tests.append(f"{then} - {mine} < {window.range * self.unit_us}")
            joined = joined.join(self._window(window, needed), F.expr(" AND ".join(tests))).drop(_event(window))
        if query.where:
            joined = joined.where(self._expression(query.where))
        newest = F.greatest(*(F.col(_us(w)) for w in query.windows))
        made = [F.expr(self._expression(sql)).alias(name) for name, sql in query.select.items()]
        return joined.select(newest.alias("_ts"), *made)

    def _window(self, window: Window, needed: Mapping[str, list[str]]) -> DataFrame:
        """A stream with its event time, of which a joined stream may have only one, and the same as a plain number."""
        from pyspark.sql import functions as F

        frame = self._stream(window.name, window.stream, 0)
        return frame.select(
            *needed[window.name.lower()], _event(window), F.unix_micros(_event(window)).alias(_us(window))
        )

    def _near(self, first: Window, window: Window) -> str:
        """The time range from which Spark knows how long to keep rows."""
        forward = f"{_event(window)} < {_event(first)} + INTERVAL '{first.range * self.unit_us}' MICROSECOND"
        return (
            f"{forward} AND {_event(first)} < {_event(window)} + INTERVAL '{window.range * self.unit_us}' MICROSECOND"
        )

    def _needed(self, query: WindowJoin) -> dict[str, list[str]]:
        read = {(w.name.lower(), query.key.lower()) for w in query.windows}
        for sql in [*query.select.values(), *([query.where] if query.where else [])]:
            read |= names(sql, self.columns)
        return {w.name.lower(): sorted(flat(a, c) for a, c in read if a == w.name.lower()) for w in query.windows}


def _event(window: Window) -> str:
    return f"_time_{window.name.lower()}"


def _us(window: Window) -> str:
    return f"_us_{window.name.lower()}"
