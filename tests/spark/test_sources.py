"""From a declaration to a streaming DataFrame, or to a message that says what does not fit."""

import re
import time

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.errors import StreamingQueryException

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.spark.sources import columns_of, conform, infer, kafka_options, open_stream
from windrow.spark.unwrap import unwrap

COLUMNS = {"ts": pa.timestamp("us"), "auction": pa.int64(), "price": pa.float64()}
ROWS = pa.table(
    {"ts": pa.array([0, 1_500_000, 2_000_000], pa.timestamp("us")), "auction": [1, 2, 3], "price": [0.5, None, 2.5]}
)


def stream(columns=COLUMNS, time="ts", **options):
    return StreamDef("bid", columns, time, options=options)


def drain(frame, folder, batches=None):
    """All rows of a stream until it is exhausted, through foreachBatch, with the ids of the batches."""
    seen = []

    def take(batch, batch_id):
        seen.append((batch_id, batch.toArrow()))

    query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(folder)).start()
    try:
        query.processAllAvailable() if batches is None else _wait(query, seen, batches)
    finally:
        query.stop()
    return seen


def _wait(query, seen, enough):
    end = time.monotonic() + 60
    while time.monotonic() < end and query.isActive and not enough(seen):
        time.sleep(0.05)
    if query.exception() is not None:
        raise query.exception()


def rows_of(seen):
    return [row for _, table in seen for row in table.to_pylist()]


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_directory(spark, tmp_path, kind):
    """Files of a directory become rows with the declared columns and types."""
    folder = tmp_path / "in"
    folder.mkdir()
    if kind == "parquet":
        parquet.write_table(ROWS, folder / "a.parquet")
    elif kind == "csv":
        (folder / "a.csv").write_text(
            "ts,auction,price\n1970-01-01 00:00:00,1,0.5\n1970-01-01 00:00:01.5,2,\n1970-01-01 00:00:02,3,2.5\n"
        )
    else:
        (folder / "a.json").write_text(
            '{"ts": "1970-01-01 00:00:00", "auction": 1, "price": 0.5}\n{"ts": "1970-01-01 00:00:01.5", "auction": 2}\n'
            '{"ts": "1970-01-01 00:00:02", "auction": 3, "price": 2.5}\n'
        )
    frame = open_stream(spark, stream(source=kind, path=str(folder)))
    assert columns_of(frame) == COLUMNS
    assert rows_of(drain(frame, tmp_path / "cp")) == ROWS.to_pylist()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "ts,auction,price\n1970-01-01 00:00:00,many,0.5\n", "[Mm]alformed"),
        ("a.csv", "ts,auction,cost\n1970-01-01 00:00:00,1,0.5\n", "CSV header does not conform"),
        ("a.json", '{"ts": "1970-01-01 00:00:00", "auction": \n', "[Mm]alformed"),
        ("a.parquet", "this is not parquet", "a.parquet"),
    ],
)
def test_corrupt_files(spark, tmp_path, name, content, message):
    """A corrupt or changed input file stops the stream with a source error, not with nulls."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / name).write_text(content)
    frame = open_stream(spark, stream(source=name.partition(".")[2], path=str(folder)))
    with pytest.raises(StreamingQueryException) as caught:
        drain(frame, tmp_path / "cp")
    made = unwrap(caught.value)
    assert isinstance(made, SourceError), made
    assert re.search(message, str(made)), str(made)
    assert "org.apache" not in str(made)
    assert "\tat " not in str(made)


@pytest.mark.spark
def test_parquet_that_changes_type(spark, tmp_path):
    """A file whose column has another type midway is a source error."""
    folder = tmp_path / "in"
    folder.mkdir()
    parquet.write_table(ROWS.set_column(1, "auction", pa.array(["x", "y", "z"])), folder / "a.parquet")
    with pytest.raises(StreamingQueryException) as caught:
        drain(open_stream(spark, stream(source="parquet", path=str(folder))), tmp_path / "cp")
    assert isinstance(unwrap(caught.value), SourceError), unwrap(caught.value)


@pytest.mark.spark
def test_missing_directory(spark, tmp_path):
    """A directory that is not there is named."""
    with pytest.raises(SourceError, match="nowhere"):
        open_stream(spark, stream(source="csv", path=str(tmp_path / "nowhere")))


@pytest.mark.spark
def test_rate(spark):
    """Spark's rate source has its two columns."""
    columns = {"timestamp": pa.timestamp("us", "UTC"), "value": pa.int64()}
    frame = open_stream(spark, stream(columns, "timestamp", source="rate", rows_per_second="100"))
    assert frame.isStreaming
    assert columns_of(frame) == columns


@pytest.mark.spark
@pytest.mark.parametrize(
    ("columns", "time", "message"),
    [
        ({"at": pa.timestamp("us"), "value": pa.int64()}, "at", 'no time column "at"'),
        ({"timestamp": pa.timestamp("us"), "price": pa.float64()}, "timestamp", 'no column "price"'),
        (
            {"timestamp": pa.timestamp("us"), "value": pa.string()},
            "timestamp",
            "declared string, but the source has int64",
        ),
        ({"timestamp": pa.timestamp("us"), "value": pa.int32()}, "timestamp", "declared int32"),
    ],
)
def test_schema_mismatch(spark, columns, time, message):
    """Columns that are missing or do not fit are named before anything starts."""
    frame = spark.readStream.format("rate").load()
    with pytest.raises(SourceError, match=message) as caught:
        conform(frame, stream(columns, time))
    assert caught.value.hint


@pytest.mark.spark
def test_time_of_the_wrong_type(spark):
    """A time column that is no time is refused."""
    frame = spark.readStream.format("rate").load().selectExpr("cast(value as string) ts", "value")
    with pytest.raises(SourceError, match='time column "ts" of stream "bid" has type string'):
        conform(frame, stream({"ts": pa.string()}))


@pytest.mark.spark
def test_users_frame(spark):
    """A user's streaming DataFrame is cut to the declared columns, in order; a fixed one is refused."""
    frame = (
        spark.readStream.format("rate")
        .load()
        .selectExpr("value as Auction", "'x' as junk", "timestamp as TS", "1 as small")
    )
    wanted = {"ts": pa.timestamp("us", "UTC"), "auction": pa.int64(), "small": pa.int64()}
    assert columns_of(conform(frame, stream(wanted))) == wanted
    with pytest.raises(SourceError, match="not a streaming one"):
        conform(spark.range(3), stream())


@pytest.mark.spark
def test_unknown_source(spark):
    """A source nobody knows is refused with those we know."""
    with pytest.raises(SourceError, match='"pulsar"') as caught:
        open_stream(spark, stream(source="pulsar"))
    assert "kafka" in caught.value.hint


@pytest.mark.spark
def test_infer(spark, tmp_path):
    """A stream declared without columns takes those of the files."""
    parquet.write_table(ROWS, tmp_path / "a.parquet")
    assert infer(spark, {"source": "parquet", "path": str(tmp_path)}) == COLUMNS
    assert infer(spark, {"source": "replay", "path": str(tmp_path / "a.parquet")}) == COLUMNS
    with pytest.raises(SourceError, match="must declare its columns"):
        infer(spark, {"source": "kafka"})


def test_kafka_options():
    """Our names become the connector's; its own pass; nothing is lost silently."""
    made = kafka_options({"servers": "a:1,b:2", "topic": "t", "max_rows": "500", "kafka.security.protocol": "SSL"})
    assert made == {
        "kafka.bootstrap.servers": "a:1,b:2",
        "subscribe": "t",
        "startingoffsets": "earliest",
        "failondataloss": "true",
        "maxoffsetspertrigger": "500",
        "kafka.security.protocol": "SSL",
    }
    assert kafka_options({"servers": "a", "pattern": "t.*", "starting": "latest"})["subscribepattern"] == "t.*"


@pytest.mark.parametrize("options", [{"topic": "t"}, {"servers": "a"}, {"servers": "a", "topic": "t", "pattern": "u"}])
def test_kafka_options_missing(options):
    """Servers and exactly one subscription are needed."""
    with pytest.raises(SourceError, match="FROM kafka needs"):
        kafka_options(options)


@pytest.mark.spark
def test_kafka_without_the_connector(spark):
    """Without the connector the message says which package to add, for this Spark."""
    with pytest.raises(SourceError, match="Kafka connector is not on the class path") as caught:
        open_stream(spark, stream(source="kafka", servers="127.0.0.1:9", topic="t"))
    assert f"spark-sql-kafka-0-10_2.13:{spark.version}" in caught.value.hint


@pytest.mark.spark
def test_replay_across_restart(spark, tmp_path):
    """A replay delivers every row once, in order, across a restart, even when the file has changed meanwhile."""
    path = tmp_path / "bids.csv"
    path.write_text("ts,auction,price\n" + "".join(f"1970-01-01 00:00:{i % 60:02d},{i},{i / 2}\n" for i in range(3000)))
    declared = stream(source="replay", path=str(path), rows_per_second="1e6", max_rows="300")

    def opened():
        return open_stream(spark, declared, spool=str(tmp_path / "spool"))

    first = drain(opened(), tmp_path / "cp", lambda seen: any(t.num_rows for _, t in seen))
    assert sum(t.num_rows for _, t in first) < 3000
    path.write_text("gone")
    second = drain(opened(), tmp_path / "cp", lambda seen: sum(t.num_rows for _, t in first + seen) >= 3000)
    # A batch that was stopped before its offsets were committed comes again under its own id.
    by_id = dict(first + second)
    assert [r["auction"] for i in sorted(by_id) for r in by_id[i].to_pylist()] == list(range(3000))


@pytest.mark.spark
def test_replay_of_bad_input(spark, tmp_path):
    """A missing file, a missing column and a rate of zero are named."""
    path = tmp_path / "a.csv"
    path.write_text("ts,auction\n1970-01-01 00:00:00,1\n")
    with pytest.raises(SourceError, match="price"):
        open_stream(spark, stream(source="replay", path=str(path)), spool=str(tmp_path / "s"))
    with pytest.raises(SourceError, match="no such file"):
        open_stream(spark, stream(source="replay", path=str(tmp_path / "b.csv")))
    with pytest.raises(SourceError, match="rows_per_second"):
        open_stream(spark, stream(source="replay", path=str(path), rows_per_second="0"))
    with pytest.raises(SourceError, match="needs the option path"):
        open_stream(spark, stream(source="replay"))
