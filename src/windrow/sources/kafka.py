"""Topics of Kafka: offsets of partitions in the manifest, ranges of them read in tasks.

    offset  {"topic": {"0": next offset, "1": ...}, ...}

The driver only asks how far each partition reaches. That question is never waited for: a poll takes its answer when it
is here, and asks again ASK_SECONDS after it asked last. What `starting` meant is settled once, at the first poll, and
committed; partitions that appear later are read from their beginning. Rows that Kafka dropped before they were read are
an error.

Cost: at most one request per ASK_SECONDS and broker; a range is cut into pieces of PIECE_ROWS messages.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.sources.kafka_read import KafkaPiece, MessageFormat, message_format
from windrow.sources.options import SourceOptions
from windrow.sources.protocol import Available, Offset
from windrow.store.place import Place

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

PIECE_ROWS = 100_000
MAX_ROWS = 5_000_000
PATIENCE_SECONDS = 60.0
CONNECT_SECONDS = 10.0
TOPICS_SECONDS = 5.0
ASK_SECONDS = 0.01

Partition = tuple[str, int]
Ends = Mapping[Partition, int]
Starting = str | dict[str, dict[str, int]]


@dataclass(frozen=True)
class KafkaOptions:
    """What can be said of topics; `settings` are librdkafka's."""

    settings: dict[str, str]
    chosen: Callable[[str], bool]
    starting: Starting
    most: int
    form: MessageFormat


def read_options(stream: StreamDef, *, may_write: bool = False) -> KafkaOptions:
    """The options of a declaration; anything else is refused."""
    options = SourceOptions(stream)
    settings = {"bootstrap.servers": options.need("servers", "kafka.bootstrap.servers")}
    found = KafkaOptions(
        settings,
        chosen=_topics(options),
        starting=_starting(options),
        most=options.number("max_rows", MAX_ROWS, "maxOffsetsPerTrigger"),
        form=message_format(options),
    )
    settings |= options.starting_with("kafka.")
    options.finish()
    return found


def open_source(stream: StreamDef, spool: Place, *, may_write: bool = False) -> KafkaSource:
    """The topics that a declaration names."""
    options = read_options(stream)
    try:
        from confluent_kafka.admin import AdminClient
    except ImportError as error:
        raise SourceError(
            f"{stream.what} reads Kafka, and confluent-kafka is not installed",
            hint='pip install "windrow[kafka]"',
        ) from error
    try:
        client = AdminClient({**options.settings, "log_level": 0})
    except Exception as error:  # KafkaException: a setting that librdkafka does not know
        raise SourceOptions(stream).refusal(str(error), "kafka.* are settings of librdkafka") from error
    return KafkaSource(stream, client, options)


def _topics(options: SourceOptions) -> Callable[[str], bool]:
    """Whether a topic is one of those that were asked for."""
    listed = options.text("topic", None, "topics", "subscribe")
    pattern = options.text("pattern", None, "subscribePattern")
    if (listed is None) == (pattern is None):
        raise SourceError(
            "FROM kafka needs exactly one of topic, topics, pattern",
            hint="FROM kafka (servers => '...', topic => '...')",
        )
    if pattern is not None:
        compiled = re.compile(pattern)
        return lambda topic: compiled.fullmatch(topic) is not None
    names = {name.strip() for name in (listed or "").split(",")}
    return NamedTopics(names)


class NamedTopics:
    """Topics by name, which must be there."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def __call__(self, topic: str) -> bool:
        return topic in self.names


def _starting(options: SourceOptions) -> Starting:
    text = options.text("starting", "earliest", "startingOffsets") or ""
    if text in ("earliest", "latest"):
        return text
    try:
        found: dict[str, dict[str, int]] = {
            t: {str(p): int(o) for p, o in of.items()} for t, of in json.loads(text).items()
        }
        return found
    except (ValueError, AttributeError):
        raise options.refusal(f'starting is "{text}"', 'it is earliest, latest or {"topic": {"0": 17}}') from None


class KafkaSource:
    """Messages behind an offset of each partition."""

    def __init__(self, stream: StreamDef, client: AdminClient, options: KafkaOptions) -> None:
        self.stream = stream
        self._client, self._settings, self._chosen = client, options.settings, options.chosen
        self._starting, self._most, self._format = options.starting, options.most, options.form
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="windrow-kafka")
        self._partitions: list[Partition] = []
        self._asked: Future[list[Partition]] | None = None
        self._asked_at = 0.0
        self._ends: Ends = {}
        self._question: dict[TopicPartition, Future[Any]] = {}
        self._put = float("-inf")  # when it was asked
        self._heard = time.monotonic()  # when the brokers last answered
        self._list(wait=True)

    def poll(self, offset: Offset | None) -> Available | None:
        """What has come behind `offset`."""
        self._list(wait=False)
        self._ask()
        if offset is None:
            return self._first()
        starts = self._starts(offset)
        backlog = {p: self._ends[p] - starts[p] for p in starts if self._ends.get(p, -1) > starts[p]}
        if not backlog:
            return None
        stops = _share_out(starts, backlog, self._most)
        pieces = [
            KafkaPiece(
                self._settings, self._format, topic, partition, low, min(low + PIECE_ROWS, stops[topic, partition])
            )
            for topic, partition in sorted(stops)
            for low in range(starts[topic, partition], stops[topic, partition], PIECE_ROWS)
        ]
        return Available(_plain({**starts, **stops}), tuple(pieces))

    def committed(self, offset: Offset) -> None:
        """Nothing is kept."""

    def drained(self, offset: Offset | None) -> bool:
        """Whether every partition was read to its present end."""
        self._list(wait=True)
        self._question = {}
        self._ask(wait=True)
        if offset is None:
            return False
        starts = self._starts(offset)
        return all(starts.get(p, 0) >= end for p, end in self._ends.items())

    def close(self) -> None:
        """Stop asking."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _starts(self, offset: Offset) -> dict[Partition, int]:
        """The next offset of every partition; those that came later begin at their beginning."""
        known = {(topic, int(p)): int(o) for topic, of in offset.items() for p, o in of.items()}
        new = [p for p in self._partitions if p not in known]
        if new:
            known |= self._query(new, "earliest")
        return known

    def _first(self) -> Available | None:
        """Settle where to start, so that a restart starts there too."""
        if not self._partitions:
            return None
        if isinstance(self._starting, str):
            starts = self._query(self._partitions, self._starting)
        else:
            asked = {(t, int(p)): o for t, of in self._starting.items() for p, o in of.items()}
            ends = {
                end: self._query([p for p, o in asked.items() if o == n], end)
                for n, end in ((-2, "earliest"), (-1, "latest"))
            }
            starts = {**asked, **ends["earliest"], **ends["latest"]}
        return Available(_plain(starts), (), 0)

    def _list(self, *, wait: bool) -> None:
        """Look for topics and partitions, every few seconds."""
        if self._asked is None and (wait or time.monotonic() > self._asked_at + TOPICS_SECONDS):
            self._asked = self._pool.submit(self._topics)
        if self._asked is not None and (wait or self._asked.done()):
            asked, self._asked, self._asked_at = self._asked, None, time.monotonic()
            try:
                self._partitions = asked.result()
            except SourceError:
                raise
            except Exception as error:
                if wait or time.monotonic() > self._heard + PATIENCE_SECONDS:
                    raise self._away(error) from error

    def _topics(self) -> list[Partition]:
        found = self._client.list_topics(timeout=CONNECT_SECONDS)
        topics = {name: topic for name, topic in found.topics.items() if self._chosen(name) and topic.error is None}
        if isinstance(self._chosen, NamedTopics) and (missing := self._chosen.names - topics.keys()):
            servers = self._settings["bootstrap.servers"]
            raise SourceError(
                f'{self.stream.what}: there is no topic "{min(missing)}" at {servers}',
                hint="create it, or change the declaration",
            )
        return sorted((name, number) for name, topic in topics.items() for number in topic.partitions)

    def _ask(self, *, wait: bool = False) -> None:
        """Take the answer to the last question how far partitions reach, if it is here; ask again in time."""
        if not self._question and (wait or time.monotonic() >= self._put + ASK_SECONDS):
            self._put = time.monotonic()
            self._question = self._request(self._partitions, "latest")
        if not self._question:
            return
        if not wait and not all(f.done() for f in self._question.values()):
            if time.monotonic() > self._heard + PATIENCE_SECONDS:
                raise self._away(None)
            return
        question, self._question = self._question, {}
        try:
            self._ends = {(tp.topic, tp.partition): int(f.result().offset) for tp, f in question.items()}
            self._heard = time.monotonic()
        except Exception as error:
            if wait or time.monotonic() > self._heard + PATIENCE_SECONDS:
                raise self._away(error) from error

    def _query(self, partitions: list[Partition], end: str) -> dict[Partition, int]:
        question = self._request(partitions, end)
        try:
            return {(tp.topic, tp.partition): int(f.result().offset) for tp, f in question.items()}
        except Exception as error:
            raise self._away(error) from error

    def _request(self, partitions: list[Partition], end: str) -> dict[TopicPartition, Future[Any]]:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        if not partitions:
            return {}
        committed = self._settings.get("isolation.level", "read_committed") == "read_committed"
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        spec = OffsetSpec.earliest() if end == "earliest" else OffsetSpec.latest()
        asked = {TopicPartition(t, p): spec for t, p in partitions}
        found: dict[TopicPartition, Future[Any]] = self._client.list_offsets(
            asked, isolation_level=level, request_timeout=CONNECT_SECONDS
        )
        return found

    def _away(self, error: BaseException | None) -> SourceError:
        return SourceError(
            f"{self.stream.what}: Kafka at {self._settings['bootstrap.servers']} does not answer",
            detail=None if error is None else str(error),
            hint="check the servers and the kafka.* settings; a restart goes on from the last tick",
        )


def _share_out(starts: Mapping[Partition, int], backlog: Mapping[Partition, int], most: int) -> dict[Partition, int]:
    """Where to stop in each partition: all there is, or shares of `most` in proportion to what waits.

    >>> _share_out({("t", 0): 0, ("t", 1): 5}, {("t", 0): 30, ("t", 1): 10}, 20)
    {('t', 0): 15, ('t', 1): 10}
    """
    total = sum(backlog.values())
    if total <= most:
        return {p: starts[p] + n for p, n in backlog.items()}
    return {p: starts[p] + min(n, max(1, n * most // total)) for p, n in backlog.items()}


def _plain(offsets: Mapping[Partition, int]) -> Offset:
    made: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        made.setdefault(topic, {})[str(partition)] = offset
    return made
