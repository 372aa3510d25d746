"""Messages of one partition in a range of offsets, decoded in batches.

Values are JSON objects, CSV lines or Avro records of the declared columns. Columns that begin with an underscore are
what Kafka knows about a message: `_key`, `_topic`, `_partition`, `_offset`, `_timestamp`, `_headers`.

A range may have fewer messages than numbers (compaction, transactions): it ends when a message behind it comes, or the
end of the partition. Clients are kept for the next range.
Cost: the library hands over one object per message; everything behind that is done for a batch.
"""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.operators.elements import one
from windrow.sources.casting import cast_column
from windrow.sources.data_file import declared, refuse
from windrow.sources.options import SourceOptions
from windrow.sources.protocol import MalformedRow, Report
from windrow.sources.read_csv import CsvFormat, CsvRows
from windrow.sources.read_json import JsonFormat, JsonRows
from windrow.sources.row_text import RowOrigin, RowParser

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

BATCH_ROWS = 20_000
MESSAGE_BYTES = 200  # a guess, to deal pieces
SILENCE_SECONDS = 60.0
METADATA = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers")


@dataclass(frozen=True)
class MessageFormat:
    """How values are written: json, csv or avro."""

    kind: str
    csv: CsvFormat
    json: JsonFormat
    schema: str | None = None  # Avro's, of the writer
    framed: bool = False  # five bytes before each Avro value, as registries want it
    tombstones: bool = True  # messages without a value are rows, and malformed


def message_format(options: SourceOptions) -> MessageFormat:
    """The format that a declaration's options describe."""
    kind = options.choice("format", ("json", "csv", "avro"), "json")
    drop = options.drops_malformed()
    times, dates = options.time_format("timestampFormat"), options.time_format("dateFormat")
    csv = CsvFormat(
        delimiter=options.letter("sep", ",", "delimiter"),
        quote=options.letter("quote", '"'),
        header=False,
        null=options.text("nullValue", "") or "",
        drop=drop,
        times=times,
        dates=dates,
    )
    schema = options.text("schema")
    framed = options.choice("framing", ("none", "confluent"), "none") == "confluent"
    if (kind == "avro") != (schema is not None):
        raise options.refusal("format avro and schema belong together", 'schema => \'{"type": "record", ...}\'')
    if kind == "avro":
        _check_avro(options, schema or "")
    tombstones = options.choice("tombstones", ("refuse", "skip"), "refuse") == "refuse"
    return MessageFormat(kind, csv, JsonFormat(drop=drop, times=times, dates=dates), schema, framed, tombstones)


def _check_avro(options: SourceOptions, schema: str) -> None:
    try:
        import fastavro

        fastavro.parse_schema(json.loads(schema))
    except ImportError as error:
        raise options.refusal("fastavro is not installed", 'pip install "windrow[kafka]"') from error
    except Exception as error:
        raise options.refusal("the Avro schema cannot be read", str(error)) from error


@dataclass(frozen=True)
class KafkaPiece:
    """Offsets `[start, stop)` of a partition."""

    settings: Mapping[str, str] = field(repr=False)  # may hold a password
    format: MessageFormat
    topic: str
    partition: int
    start: int
    stop: int

    @property
    def weight(self) -> int:
        """Bytes, by a guess."""
        return MESSAGE_BYTES * (self.stop - self.start)

    def read(
        self, stream: StreamDef, columns: Sequence[str] | None, report: Report | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The messages as rows.

        All declared columns are decoded: whether a message is malformed must not depend on who reads it.
        """
        wanted = list(declared(stream, columns))
        rows = _leave_out if report is None and self.format.json.drop else report
        decode = _decoder(stream, self.format, stream.columns, rows)
        for messages in self._messages(stream):
            if not self.format.tombstones:
                messages = [m for m in messages if m.value() is not None]
            batch = decode(messages)
            if batch.num_rows:
                yield batch.select(wanted)

    def _messages(self, stream: StreamDef) -> Iterator[list[Message]]:
        client = _client(self.settings)
        client.seek(self.topic, self.partition, self.start)
        heard = time.monotonic()
        while client.position < self.stop:
            try:
                found = client.take(self.stop)
            except Exception as error:
                _clients().pop(_key(self.settings), None)
                where = f"topic {self.topic}, partition {self.partition}, offset {client.position}"
                raise SourceError(f"{stream.what}: cannot read {where}", detail=str(error)) from error
            if found:
                heard = time.monotonic()
                yield found
            elif client.position < self.stop and time.monotonic() > heard + SILENCE_SECONDS:
                where = f"topic {self.topic}, partition {self.partition}, offset {client.position}"
                raise SourceError(f"{stream.what}: Kafka is silent at {where}")
        client.rest()


class PartitionClient:
    """A consumer of one partition at a time, kept from range to range."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        from confluent_kafka import Consumer

        self._consumer: Consumer = Consumer(
            {
                "group.id": "windrow",  # asked for, not used: nothing is committed there
                "queued.max.messages.kbytes": "32768",
                "fetch.wait.max.ms": "10",  # a fetch at the end of a partition holds up the next range
                "log_level": 0,
                **settings,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",  # rows that were dropped must not go missing unsaid
                "enable.partition.eof": True,
            }
        )
        self.position = -1

    def seek(self, topic: str, partition: int, start: int) -> None:
        """Stand at an offset, and let messages come."""
        from confluent_kafka import TopicPartition

        self.position = start
        self._consumer.assign([TopicPartition(topic, partition, start)])

    def rest(self) -> None:
        """Let no more messages come."""
        self._consumer.unassign()

    def take(self, stop: int) -> list[Message]:
        """Some messages before `stop`, in order; `position` moves behind them."""
        from confluent_kafka import KafkaError, KafkaException

        found = self._consumer.consume(min(BATCH_ROWS, stop - self.position), 0.1)
        errors = [m for m in found if m.error() is not None]
        for message in errors:
            if message.error().code() != KafkaError._PARTITION_EOF:
                raise KafkaException(message.error())
        messages = [m for m in found if m.error() is None] if errors else found
        last = messages[-1].offset() if messages else self.position - 1
        self.position = max(self.position, last + 1, *(m.offset() for m in errors))
        return messages if last < stop else [m for m in messages if m.offset() < stop]


_local = threading.local()


def _clients() -> dict[tuple[tuple[str, str], ...], PartitionClient]:
    """The clients of this thread."""
    if not hasattr(_local, "clients"):
        _local.clients = {}
    found: dict[tuple[tuple[str, str], ...], PartitionClient] = _local.clients
    return found


def _key(settings: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(settings.items()))


def _client(settings: Mapping[str, str]) -> PartitionClient:
    clients = _clients()
    key = _key(settings)
    if key not in clients:
        clients[key] = PartitionClient(settings)
    return clients[key]


@dataclass
class MessageRows:
    """The messages of a batch as the origin of rows; `refused` are those that are malformed."""

    messages: Sequence[Message]
    values: Sequence[bytes]
    refused: set[int] = field(default_factory=set)

    def malformed(self, row: int, why: str) -> MalformedRow:
        """The message of that index; while one may hold several objects, about."""
        self.refused.add(row)
        row = min(row, len(self.messages) - 1)
        found = self.messages[row]
        where = f"topic {found.topic()}, partition {found.partition()}, offset {found.offset()}"
        return MalformedRow(where, why, self.values[row].decode("utf-8", "replace"))

    def texts(self) -> Sequence[bytes]:
        """The values."""
        return self.values


Decode = Callable[[Sequence["Message"]], pa.RecordBatch]


def _decoder(
    stream: StreamDef, form: MessageFormat, wanted: Mapping[str, pa.DataType], report: Report | None
) -> Decode:
    """From messages to rows of the wanted columns."""
    inside = {n: t for n, t in wanted.items() if n.lower() not in METADATA}
    known = {n: t for n, t in wanted.items() if n.lower() in METADATA}
    names = [n for n in stream.columns if n.lower() not in METADATA]
    parser: RowParser
    if form.kind == "csv":
        parser = CsvRows(stream, form.csv, names, {n: n for n in inside}, inside, report)
    elif form.kind == "json":
        parser = JsonRows(stream, form.json, inside, report)
    else:
        parser = AvroRows(stream, form.schema or "", form.framed, inside, report)
    checks = {"json": _check_objects, "csv": _check_lines}.get(form.kind)

    def decode(messages: Sequence[Message]) -> pa.RecordBatch:
        values = [m.value() or b"" for m in messages]
        whole = MessageRows(messages, values)
        bad = _check_values(values) if checks is None else checks(values, form)
        for row, why in bad:
            refuse(stream, whole.malformed(row, why), report)
        if bad:
            gone = {row for row, _ in bad}
            messages = [m for i, m in enumerate(messages) if i not in gone]
            values = [v for i, v in enumerate(values) if i not in gone]
        origin = MessageRows(messages, values)
        rows = parser(b"\n".join(values), origin) if inside else None
        if rows is not None and rows.num_rows != len(values) - len(origin.refused):  # several objects in a message
            careful = JsonRows(stream, form.json, inside, report, careful=True, plain=False)
            rows = careful(b"", origin := MessageRows(messages, values))
        kept = [m for i, m in enumerate(messages) if i not in origin.refused] if origin.refused else messages
        arrays = [
            rows.column(n) if n in inside and rows is not None else _metadata(n, known[n], kept, stream) for n in wanted
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(wanted.items())))

    return decode


def _check_values(values: Sequence[bytes]) -> list[tuple[int, str]]:
    return [(i, "the message has no value") for i, v in enumerate(values) if not v]


def _check_objects(values: Sequence[bytes], form: MessageFormat) -> list[tuple[int, str]]:
    """Values that are no one object: joined with others they could be misread."""
    found = pa.array(values, pa.binary())
    good = pc.and_(pc.starts_with(found, b"{"), pc.ends_with(found, b"}"))
    if pc.all(good).as_py() is not False:
        return []
    return [
        (i, "not a JSON object" if values[i].strip() else "the message has no value")
        for i in np.flatnonzero(~good.to_numpy(zero_copy_only=False)).tolist()
        if not (values[i].strip().startswith(b"{") and values[i].strip().endswith(b"}"))
    ]


def _check_lines(values: Sequence[bytes], form: MessageFormat) -> list[tuple[int, str]]:
    """Values that are no one line."""
    quote = form.csv.quote.encode()
    bad = []
    joined = b"\n".join(values)
    if joined.count(b"\n") == len(values) - 1 and not (quote and quote in joined) and all(values):
        return []
    for index, value in enumerate(values):
        if not value.strip():
            bad.append((index, "the message has no value"))
        elif b"\n" in value.rstrip(b"\r\n") or (quote and value.count(quote) % 2):
            bad.append((index, "not one line"))
    return bad


def _metadata(name: str, type_: pa.DataType, messages: Sequence[Message], stream: StreamDef) -> pa.Array:
    """What Kafka knows about the messages."""
    made: dict[str, Callable[[], Any]] = {
        "_key": lambda: pa.array([m.key() for m in messages], pa.binary()),
        "_topic": lambda: pa.array([m.topic() for m in messages], pa.string()),
        "_partition": lambda: pa.array([m.partition() for m in messages], pa.int32()),
        "_offset": lambda: pa.array([m.offset() for m in messages], pa.int64()),
        "_timestamp": lambda: pa.array([_millis(m) for m in messages], pa.timestamp("ms", "UTC")),
        "_headers": lambda: pa.array([m.headers() for m in messages], pa.map_(pa.string(), pa.binary())),
    }
    column = made[name.lower()]()
    if pa.types.is_nested(type_):
        return column.cast(type_)
    return one(cast_column(pa.chunked_array([column]), type_, name, stream.what))


def _millis(message: Message) -> int | None:
    kind, millis = message.timestamp()
    return None if kind == 0 else int(millis)


@dataclass
class AvroRows:
    """Decodes Avro records, one by one in the library, a column at a time from there."""

    stream: StreamDef
    schema: str
    framed: bool
    wanted: Mapping[str, pa.DataType]
    report: Report | None

    def __call__(self, block: bytes, origin: RowOrigin) -> pa.RecordBatch:
        """The rows of a batch of messages."""
        import fastavro

        parsed = fastavro.parse_schema(json.loads(self.schema))
        records = []
        for row, value in enumerate(origin.texts()):
            try:
                records.append(
                    fastavro.schemaless_reader(io.BytesIO(value[5:] if self.framed else value), parsed, None)
                )
            except Exception as error:  # whatever the library says about bytes that are no record
                refuse(self.stream, origin.malformed(row, f"not an Avro record: {error}"), self.report)
        arrays = [self._column(n, t, records) for n, t in self.wanted.items()]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(self.wanted.items())))

    def _column(self, name: str, type_: pa.DataType, records: list[Any]) -> pa.Array:
        values = [r.get(name) for r in records]
        if pa.types.is_nested(type_):
            return pa.array(values, type_)
        column = pa.chunked_array([pa.array(values)])
        return one(cast_column(column, type_, name, self.stream.what)) if records else pa.array([], type_)


def _leave_out(row: MalformedRow) -> None:
    """Leave a malformed row out, as the declaration asks."""
