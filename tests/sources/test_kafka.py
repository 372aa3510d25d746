"""Topics as descriptors: offsets in the manifest, ranges read anywhere, values decoded in batches."""

import io
import json
import pickle
import time

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.kafka import MockKafka

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.sources import kafka
from windrow.sources.protocol import open_source
from windrow.store.place import Place

COLUMNS = {"ts": pa.int64(), "name": pa.string()}


@pytest.fixture(scope="module")
def broker():
    return MockKafka()


@pytest.fixture
def topic(request):
    return f"t{time.monotonic_ns()}"


def declared(broker, name, columns=COLUMNS, **options):
    return StreamDef(
        "trade", columns, "ts", options={"source": "kafka", "servers": broker.servers, "topic": name, **options}
    )


def poll(source, offset, seconds=10.0):
    """What is new, once the brokers have answered."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (found := source.poll(offset)) is not None:
            return found
        if source.drained(offset):
            return None
    raise AssertionError("no answer")


def read(found, stream, columns=None, report=None):
    batches = [b for p in found.pieces for b in pickle.loads(pickle.dumps(p)).read(stream, columns, report)]
    return pa.Table.from_batches(batches, schema=None if batches else pa.schema(list(stream.columns.items())))


def read_all(stream, tmp_path, report=None):
    source, offset, tables = open_source(stream, Place.of(tmp_path)), None, []
    while (found := poll(source, offset)) is not None:
        offset = json.loads(json.dumps(found.offset))
        if found.pieces:
            tables.append(read(found, stream, None, report))
    source.close()
    return pa.concat_tables(tables) if tables else pa.schema(list(stream.columns.items())).empty_table()


def rows(low, high):
    return [b'{"ts": %d, "name": "n%d"}' % (i, i) for i in range(low, high)]


def test_each_message_once(broker, topic, tmp_path, monkeypatch):
    """Messages of every partition come once and in order, in pieces, across restarts with the offset as JSON."""
    monkeypatch.setattr(kafka, "PIECE_ROWS", 7)
    for partition in range(3):
        broker.send(topic, rows(100 * partition, 100 * partition + 20), partition)
    stream = declared(broker, topic, max_rows="25")
    seen, offset = [], None
    for _ in range(4):
        source = open_source(stream, Place.of(tmp_path))
        while (found := poll(source, offset)) is not None:
            assert all(p.stop - p.start <= 7 for p in found.pieces)
            offset = json.loads(json.dumps(found.offset))
            if found.pieces:
                seen += read(found, stream).column("ts").to_pylist()
        source.close()
        broker.send(topic, rows(1000 + len(seen), 1003 + len(seen)), 1)
    assert [t for t in seen if t < 1000] != []
    for partition in range(3):
        own = [t for t in seen if t // 100 == partition]
        assert own == list(range(100 * partition, 100 * partition + 20))
    assert len(seen) == len(set(seen)) == 69


SENT = []


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=st.lists(st.one_of(st.integers(1, 12), st.sampled_from(["poll", "commit", "crash"])), max_size=14))
def test_any_way_of_polling_and_crashing(broker, tmp_path, actions):
    """Polls from the last offset, commits and crashes in any order read each message exactly once."""
    begin = written = len(SENT)  # one topic for all examples: making one takes a second
    broker.send("any", rows(written, written + 1))
    written += 1
    stream = declared(broker, "any", max_rows="10", starting=json.dumps({"any": {"0": begin}}))
    manifest, committed, flight = None, [], []
    source = open_source(stream, Place.of(tmp_path))
    for action in [*actions, "crash"]:
        if isinstance(action, int):
            broker.send("any", rows(written, written + action))
            written += action
        elif action == "crash":
            source.close()
            source, flight = open_source(stream, Place.of(tmp_path)), []
        elif action == "commit" and flight:
            manifest, taken = flight.pop(0)
            committed += taken
        elif action == "poll":
            found = source.poll(flight[-1][0] if flight else manifest)
            if found is not None:
                flight.append((found.offset, read(found, stream).column("ts").to_pylist() if found.pieces else []))
    while (found := poll(source, manifest)) is not None:
        manifest = found.offset
        committed += read(found, stream).column("ts").to_pylist() if found.pieces else []
    source.close()
    SENT.extend(range(begin, written))
    assert committed == list(range(begin, written))


def test_what_kafka_knows(broker, topic, tmp_path):
    """Keys, headers, times and places of messages are columns."""
    broker.send(topic, rows(1, 3), 2, key=b"k", headers=[("a", b"1"), ("b", b"2")], timestamp=5000)
    columns = {
        "_key": pa.string(), "ts": pa.int64(), "_timestamp": pa.timestamp("us", "UTC"), "_partition": pa.int64(),
        "_offset": pa.int64(), "_topic": pa.string(), "_headers": pa.map_(pa.string(), pa.string()),
    }  # fmt: skip
    found = read_all(declared(broker, topic, columns), tmp_path).to_pylist()
    assert [r["ts"] for r in found] == [1, 2]
    first = found[0]
    assert (first["_key"], first["_partition"], first["_offset"], first["_topic"]) == ("k", 2, 0, topic)
    assert first["_timestamp"].timestamp() == 5
    assert first["_headers"] == [("a", "1"), ("b", "2")]


def test_starting(broker, topic, tmp_path):
    """Where to start is settled by the first poll, before there is a row to take."""
    broker.send(topic, rows(0, 5))
    for starting, expected in (
        ("latest", [9]),
        ("earliest", [0, 1, 2, 3, 4, 9]),
        (json.dumps({topic: {"0": 3}}), [3, 4, 9]),
    ):
        source = open_source(declared(broker, topic, starting=starting), Place.of(tmp_path))
        first = source.poll(None)
        assert (first.pieces, first.rows) == ((), 0)
        if starting == "latest":
            broker.send(topic, rows(9, 10))
        assert read(poll(source, first.offset), source.stream).column("ts").to_pylist() == expected
        source.close()


def test_csv_and_avro(broker, topic, tmp_path):
    """Lines and Avro records are decoded to the declared columns."""
    fastavro = pytest.importorskip("fastavro")
    broker.send(topic, [b'1,"a,b"', b"2,"])
    assert read_all(declared(broker, topic, format="csv"), tmp_path).to_pylist() == [
        {"ts": 1, "name": "a,b"},
        {"ts": 2, "name": None},
    ]
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "ts", "type": "long"}, {"name": "name", "type": "string"}],
    }
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, {"ts": 7, "name": "x"})
    broker.send(topic + "a", [b"\0\0\0\0\1" + out.getvalue(), b"\0"])
    stream = declared(
        broker, topic + "a", format="avro", schema=json.dumps(schema), framing="confluent", mode="DROPMALFORMED"
    )
    assert read_all(stream, tmp_path).to_pylist() == [{"ts": 7, "name": "x"}]


def test_malformed_messages(broker, topic, tmp_path):
    """A message that is no row is named by topic, partition and offset; reported, the rest goes on."""
    bad = [b"", b"5", b'{"ts": "x"}', b'{"ts": 1}{"ts": 2}', b'{"ts": ', b"\xff", b'{"ts":\n3}', None]
    broker.send(topic, [*rows(0, 2), *bad, *rows(7, 8)])
    columns = {**COLUMNS, "_offset": pa.int64()}
    with pytest.raises(SourceError, match=f'stream "trade": malformed row in topic {topic}, partition 0, offset 2'):
        read_all(declared(broker, topic, columns), tmp_path)
    reported = []
    found = read_all(declared(broker, topic, columns), tmp_path, reported.append).to_pylist()
    assert [(r["ts"], r["_offset"]) for r in found] == [(0, 0), (1, 1), (3, 8), (7, 10)]
    assert sorted(int(r.where.rpartition(" ")[2]) for r in reported) == [2, 3, 4, 5, 6, 7, 9]
    lines = [b"1,a", b"", b"2,b\n3,c", b'4,"d', b"x,e", b"5,f,g", b"6,h"]
    broker.send(topic + "c", lines)
    stream = declared(broker, topic + "c", columns, format="csv", mode="DROPMALFORMED")
    assert [(r["ts"], r["_offset"]) for r in read_all(stream, tmp_path).to_pylist()] == [(1, 0), (6, 6)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"servers": ""}, "needs the option servers"),
        ({"topic": ""}, "no topic"),
        ({"pattern": "u"}, "exactly one of"),
        ({"starting": "soon"}, "starting"),
        ({"format": "protobuf"}, "format"),
        ({"format": "avro"}, "schema"),
        ({"kafka.no.such": "1"}, "no.such"),
        ({"topic": "nowhere"}, 'no topic "nowhere"'),
    ],
)
def test_bad_options(broker, topic, tmp_path, options, message):
    """Options that are missing, senseless or unknown are named."""
    broker.send(topic, rows(0, 1))
    with pytest.raises(SourceError, match=message):
        open_source(declared(broker, topic, **options), Place.of(tmp_path))


def test_dropped_rows(broker, topic, tmp_path):
    """An offset that the brokers no longer have is an error, not a gap."""
    broker.send(topic, rows(0, 3))
    stream = declared(broker, topic)
    found = poll(open_source(stream, Place.of(tmp_path)), {topic: {str(p): 0 for p in range(4)}})
    piece = found.pieces[0]
    gone = type(piece)(piece.settings, piece.format, piece.topic, piece.partition, 50, 60)
    with pytest.raises(SourceError, match=f"cannot read topic {topic}, partition 0, offset 50"):
        list(gone.read(stream, None))


def test_no_brokers(tmp_path, monkeypatch):
    """Servers that do not answer are named."""
    monkeypatch.setattr(kafka, "CONNECT_SECONDS", 0.5)
    stream = StreamDef("trade", COLUMNS, "ts", options={"source": "kafka", "servers": "127.0.0.1:9", "topic": "t"})
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:9 does not answer"):
        open_source(stream, Place.of(tmp_path))
