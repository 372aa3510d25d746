"""Answers as messages of a topic, each tick once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.kafka import MockKafka, confluent_kafka

import windrow
from windrow.errors import SourceError, StateError
from windrow.sinks.kafka import KafkaSink
from windrow_bench.peers import broker as real


@pytest.fixture(scope="module")
def mock() -> MockKafka:
    return MockKafka()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A real broker, where one is in the cache."""
    if real.jars(fetch=False) is None:
        pytest.skip("no Kafka in the cache: scripts/kafka .venv/bin fetches it")
    with real.broker() as address:
        yield address


def read(servers: str, topic: str, count: int) -> list[Any]:
    """The first so many messages of a topic, and what comes within a moment after them."""
    settings = {"bootstrap.servers": servers, "group.id": f"reader of {topic}", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, "isolation.level": "read_committed", "log_level": 0})
    consumer.subscribe([topic])
    found: list[Any] = []
    while len(found) < count:
        found += [m for m in consumer.consume(100, 0.2) if m.error() is None]
    found += [m for m in consumer.consume(100, 0.5) if m.error() is None]
    consumer.close()
    return found


def table(*keys: str) -> pa.Table:
    return pa.table({"_ts": pa.array([1] * len(keys), pa.timestamp("us")), "k": list(keys), "x": [0.5] * len(keys)})


def places(messages: list[Any]) -> list[tuple[str, int, int]]:
    """Home, tick and row of messages, by their headers."""
    found = [{k: v.decode() for k, v in m.headers()} for m in messages]
    return [(f["windrow-home"], int(f["windrow-tick"]), int(f["windrow-row"])) for f in found]


def check(servers: str, topic: str, once: bool) -> None:
    """Ticks, some of them written again and by another sink of the same home, are in the topic once. `once`: the broker
    remembers transactions; else a new sink writes its last ticks again, and the headers say so."""
    settings = {"bootstrap.servers": servers}
    first = KafkaSink(settings, topic, key=["k"], owner="home")
    for tick in (1, 2, 2, 4):
        first.write("q", tick, table("a", f"b {tick}"))
    second = KafkaSink(settings, topic, key=["k"], owner="home")
    for tick in (2, 4, 5):
        second.write("q", tick, table("c"))
    KafkaSink(settings, topic, owner="other").write("q", 4, table("d"))
    messages = read(servers, topic, 8)
    wanted = {*(("home", tick, row) for tick in (1, 2, 4) for row in (0, 1)), ("home", 5, 0), ("other", 4, 0)}
    assert set(places(messages)) == wanted
    assert len(messages) == 8 if once else len(messages) <= 10
    first_row = messages[places(messages).index(("home", 1, 0))]
    assert json.loads(first_row.value()) == {"_ts": "1970-01-01T00:00:00.000001", "k": "a", "x": 0.5}
    assert {m.key() for m in messages} == {b'{"k":"a"}', *(b'{"k":"b %d"}' % t for t in (1, 2, 4)), b'{"k":"c"}', None}
    for sink in (first, second):
        sink.close()


def test_each_tick_once(mock: MockKafka) -> None:
    check(mock.servers, "once", once=False)


def test_each_tick_once_on_a_broker(servers: str) -> None:
    check(servers, "once", once=True)


def test_without_transactions(mock: MockKafka) -> None:
    """A tick may come twice, and says which it is."""
    sink = KafkaSink({"bootstrap.servers": mock.servers}, "plain", owner="home", transactions=False)
    for _ in range(2):
        sink.write("q", 7, table("a"))
    assert [dict(m.headers())["windrow-tick"] for m in read(mock.servers, "plain", 2)] == [b"7", b"7"]


def test_a_long_answer_is_sent_piece_by_piece(mock: MockKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row once, numbered through, however many are messages at a time."""
    monkeypatch.setattr("windrow.sinks.kafka.TOGETHER", 3)
    sink = KafkaSink({"bootstrap.servers": mock.servers}, "long", key=["k"], owner="home")
    sink.write("q", 1, table(*"abcdefgh"))
    messages = read(mock.servers, "long", 8)
    rows = {place[2]: json.loads(m.value())["k"] for place, m in zip(places(messages), messages, strict=True)}
    assert rows == dict(enumerate("abcdefgh"))
    sink.close()


def through(servers: str, tmp_path: Any) -> list[tuple[tuple[str, int, int], int]]:
    """Rows in from one topic, answers out to another, across a restart of the engine."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "log_level": 0})
    for life in range(2):
        sent = [b'{"ts": %d, "k": "k%d"}' % (i, i % 2) for i in range(10 * life, 10 * life + 10)]
        for value in sent:
            producer.produce("in", value, partition=0)
        producer.flush(30)
        with windrow.Engine(runtime="local", home=str(tmp_path / "home")) as engine:
            if not life:
                engine.execute(
                    "CREATE STREAM s (ts BIGINT, k VARCHAR) TIMESTAMP BY ts"
                    f" FROM kafka (servers => '{servers}', topic => 'in');"
                    "CREATE QUERY q AS SELECT ISTREAM(k, ts) FROM s [RANGE 5] WHERE k = 'k1';"
                )
            engine.sink("q", "kafka", servers=servers, topic="out", key="k")
            engine.start()
            engine.drain()
    messages = read(servers, "out", 9)
    instants = [int(dict(m.headers())["windrow-as-of"]) for m in messages]
    assert all(json.loads(m.value())["_ts"] <= t < 20 for m, t in zip(messages, instants, strict=True))
    return [(p, json.loads(m.value())["ts"]) for p, m in zip(places(messages), messages, strict=True)]


def test_from_topic_to_topic(mock: MockKafka, tmp_path: Any) -> None:
    """A consumer that drops what it has seen, by home, tick and row, has every answer once."""
    found = dict(through(mock.servers, tmp_path))
    assert sorted(found.values()) == list(range(1, 18, 2))  # time has passed 18


def test_from_topic_to_topic_on_a_broker(servers: str, tmp_path: Any) -> None:
    """With transactions there is nothing to drop."""
    assert sorted(ts for _, ts in through(servers, tmp_path)) == list(range(1, 18, 2))


def test_refusals(mock: MockKafka) -> None:
    with windrow.Engine(runtime="local") as engine:
        engine.execute("CREATE STREAM s (ts BIGINT) TIMESTAMP BY ts; CREATE QUERY q AS SELECT ts FROM s [RANGE 5]")
        for options, message in (({"topic": "t"}, "needs the option servers"), ({"servers": "x"}, "the option topic")):
            with pytest.raises(SourceError, match=message):
                engine.sink("q", "kafka", **options)
    with pytest.raises(SourceError, match='no column "nobody"'):
        KafkaSink({"bootstrap.servers": mock.servers}, "t", key=["nobody"]).write("q", 1, table("a"))
    with pytest.raises(StateError, match="could not be written to the Kafka topic t"):
        KafkaSink({"bootstrap.servers": "127.0.0.1:1"}, "t", patience=0.5).write("q", 1, table("a"))
