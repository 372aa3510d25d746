"""Answers as messages of a Kafka topic: one per row, JSON, with the tick in its headers.

    value    {"_ts": ..., "_op": ..., <the SELECT list>}          key   JSON of the key columns, if some are named
    headers  windrow-home, windrow-query, windrow-tick, windrow-row (from 0 within the tick),
             windrow-as-of (the frontier up to which all was answered when the tick was)

A tick is one transaction, which also commits the tick's number as an offset of the consumer group named after home and
query; whether a tick is in the topic is read from there, so one that is written again changes nothing, and consumers
that read committed messages see every tick once and whole. A broker without transactions (`transactions => 'false'`)
gets a tick at least once, in order; consumers drop what they have seen by home, query, tick and row.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.errors import SourceError, StateError
from windrow.sinks.json_text import row_objects
from windrow.sinks.protocol import as_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

PATIENCE_SECONDS = 60.0
TOGETHER = 10_000
"""Rows that are messages at the same time: a long answer is read, written as JSON and sent piece by piece."""


class KafkaSink:
    """Writes the answers of one query to a topic."""

    def __init__(
        self,
        settings: Mapping[str, str],
        topic: str,
        *,
        key: Sequence[str] = (),
        owner: str = "",
        transactions: bool = True,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._kafka = _library()
        self._settings, self._topic, self._key = {**settings, "log_level": "0"}, topic, list(key)
        self._owner, self._transactions, self._patience = owner, transactions, patience
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None
        self._last: int | None = None  # the last tick that is in the topic, once it is known
        self._errors: list[str] = []

    def write(self, query: str, tick: int, table: pa.Table) -> None:
        """Send a tick's rows, in one transaction with its number."""
        if not table.num_rows:
            return
        self._check_key(query, table)
        messages = self._messages(query, tick, table)
        with self._explained(query, tick):
            producer = self._opened(query)
            if not self._transactions:
                self._send(producer, messages)
                return
            if self._last is None:
                self._last = self._committed()
            if self._last >= tick:
                return
            producer.begin_transaction()
            self._send(producer, messages)
            place = self._kafka.TopicPartition(self._topic, 0, tick)
            assert self._consumer is not None
            producer.send_offsets_to_transaction([place], self._consumer.consumer_group_metadata(), self._patience)
            producer.commit_transaction(self._patience)
            self._last = tick

    def close(self) -> None:
        """Close the connections; a transaction that is open is given up."""
        if self._consumer is not None:
            self._consumer.close()
        self._producer = self._consumer = self._last = None

    def _check_key(self, query: str, table: pa.Table) -> None:
        missing = [k for k in self._key if k not in table.column_names]
        if missing:
            raise SourceError(
                f'the answer of query "{query}" has no column "{missing[0]}"',
                hint=f"its columns are {', '.join(table.column_names)}",
            )

    def _messages(self, query: str, tick: int, table: pa.Table) -> Iterator[dict[str, Any]]:
        said = [("windrow-home", self._owner), ("windrow-query", query), ("windrow-tick", str(tick))]
        frontier = as_of(table.schema)
        said += [] if frontier is None else [("windrow-as-of", frontier)]
        for begin in range(0, table.num_rows, TOGETHER):
            part = table.slice(begin, TOGETHER)
            values = row_objects(part).to_pylist()
            keys = row_objects(part.select(self._key)).to_pylist() if self._key else [None] * len(values)
            for row, (key, value) in enumerate(zip(keys, values, strict=True), begin):
                headers = [(k, v.encode()) for k, v in (*said, ("windrow-row", str(row)))]
                yield {"key": None if key is None else key.encode(), "value": value.encode(), "headers": headers}

    def _send(self, producer: Producer, messages: Iterable[Mapping[str, Any]]) -> None:
        self._errors.clear()
        for message in messages:
            while True:
                try:
                    producer.produce(self._topic, on_delivery=self._delivered, **message)
                    break
                except BufferError:  # more than the library holds: let it send some
                    producer.poll(0.1)
        left = producer.flush(self._patience)
        if left or self._errors:
            raise self._kafka.KafkaException(self._errors[0] if self._errors else f"{left} messages were not taken")

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self._errors.append(str(error))

    def _opened(self, query: str) -> Producer:
        """The producer; the first time it fences off whoever wrote for this home and query before."""
        if self._producer is None:
            name = f"windrow-{self._owner}-{query.lower()}"
            settings = {**self._settings, "enable.idempotence": "true"}
            if self._transactions:
                self._producer = self._kafka.Producer({**settings, "transactional.id": name})
                self._producer.init_transactions(self._patience)
                self._consumer = self._kafka.Consumer(
                    {**self._settings, "group.id": name, "enable.auto.commit": "false"}
                )
            else:
                self._producer = self._kafka.Producer(settings)
        return self._producer

    def _committed(self) -> int:
        """The last tick that is in the topic; a negative number before the first."""
        assert self._consumer is not None
        place, until = self._kafka.TopicPartition(self._topic, 0), time.monotonic() + self._patience
        while True:
            try:
                found = self._consumer.committed([place], self._patience)[0]
                if found.error is None:
                    return int(found.offset)
                raise self._kafka.KafkaException(found.error)
            except self._kafka.KafkaException as error:
                if error.args[0].code() == self._kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:  # no message was ever sent
                    return -1
                if not _passes(error.args[0]) or time.monotonic() > until:
                    raise
            time.sleep(0.1)

    @contextmanager
    def _explained(self, query: str, tick: int) -> Iterator[None]:
        try:
            yield
        except self._kafka.KafkaException as error:
            producer, self._producer = self._producer, None  # the next try begins anew
            if self._transactions and producer is not None:
                _give_up(producer, self._kafka.KafkaException)
            self.close()
            raise StateError(
                f'the answer of query "{query}" at tick {tick} could not be written to the Kafka topic {self._topic}',
                detail=str(error.args[0] if error.args else error),
            ) from error


def _passes(error: Any) -> bool:
    """Whether an error is one of a broker that is starting, or of a group that moves to another one."""
    return error.retriable() or error.name() in ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "_WAIT_COORD")


def _give_up(producer: Producer, failure: type[Exception]) -> None:
    try:
        producer.abort_transaction(5)
    except failure:  # it ends by itself when the next producer of its name comes
        return


def _library() -> Any:
    try:
        import confluent_kafka
    except ImportError:
        raise SourceError("the kafka sink needs confluent-kafka", hint='pip install "windrow[kafka]"') from None
    return confluent_kafka
