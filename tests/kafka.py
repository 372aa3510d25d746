"""A Kafka cluster for tests: librdkafka's own mock, on loopback, in this process."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

confluent_kafka = pytest.importorskip("confluent_kafka")


class MockKafka:
    """Brokers that live as long as the producer that started them."""

    def __init__(self, brokers: int = 1) -> None:
        settings = {"test.mock.num.brokers": brokers, "bootstrap.servers": "ignored:1", "log_level": 0}
        self.producer = confluent_kafka.Producer(settings)
        found = self.producer.list_topics(timeout=10).brokers.values()
        self.servers = ",".join(f"{b.host}:{b.port}" for b in found)

    def send(self, topic: str, values: Iterable[bytes | None], partition: int = 0, **about: object) -> None:
        """Append messages to a partition."""
        for value in values:
            self.producer.produce(topic, value=value, partition=partition, **about)
            self.producer.poll(0)
        assert self.producer.flush(30) == 0
