"""The same source on a real broker: transactions, compacted gaps and dropped rows, which the mock does not have."""

import json
import time

import pyarrow as pa
import pytest
from tests.kafka import confluent_kafka

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.sources.protocol import open_source
from windrow.store.place import Place
from windrow_bench.peers import broker as real

pytestmark = pytest.mark.skipif(
    real.jars(fetch=False) is None, reason="no Kafka in the cache: scripts/kafka .venv/bin fetches it"
)

COLUMNS = {"ts": pa.int64(), "_offset": pa.int64()}


@pytest.fixture(scope="module")
def servers():
    with real.broker() as address:
        yield address


def read_all(servers, topic, tmp_path, offset=None):
    stream = StreamDef("s", COLUMNS, "ts", options={"source": "kafka", "servers": servers, "topic": topic})
    source, rows = open_source(stream, Place.of(tmp_path)), []
    while not source.drained(offset):
        if (found := source.poll(offset)) is not None:
            offset = json.loads(json.dumps(found.offset))
            rows += [r for p in found.pieces for b in p.read(stream, None) for r in b.to_pylist()]
        time.sleep(0.01)
    source.close()
    return [r["ts"] for r in rows], offset


def value(i):
    return b'{"ts": %d}' % i


def test_transactions(servers, tmp_path):
    """Rows of aborted transactions are not seen, and the gaps that transactions leave are no end."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": "t", "log_level": 0})
    producer.init_transactions(30)
    expected = []
    for round_ in range(6):
        producer.begin_transaction()
        for i in range(5):
            producer.produce("trans", value(10 * round_ + i), partition=0)
        if round_ % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            expected += [10 * round_ + i for i in range(5)]
        if round_ == 3:
            seen, offset = read_all(servers, "trans", tmp_path)
            assert seen == expected
    more, _ = read_all(servers, "trans", tmp_path, offset)
    assert seen + more == expected


def test_dropped_rows(servers, tmp_path):
    """Rows that the broker has dropped before they were read are an error."""
    from confluent_kafka.admin import AdminClient

    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "log_level": 0})
    for i in range(20):
        producer.produce("short", value(i), partition=0)
    producer.flush(30)
    seen, _ = read_all(servers, "short", tmp_path)
    assert seen == list(range(20))
    gone = confluent_kafka.TopicPartition("short", 0, 10)
    client = AdminClient({"bootstrap.servers": servers})
    for future in client.delete_records([gone]).values():
        future.result(30)
    assert read_all(servers, "short", tmp_path)[0] == list(range(10, 20))  # a new home starts at what there is
    with pytest.raises(SourceError, match="topic short, partition 0, offset 5"):
        read_all(servers, "short", tmp_path, {"short": {str(p): 5 if p == 0 else 0 for p in range(4)}})
