"""DataFrames that a program hands in: conformed to the declaration, or a message that says what does not fit."""

import pyarrow as pa
import pytest

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.spark.sources import columns_of, conform

COLUMNS = {"ts": pa.timestamp("us"), "auction": pa.int64(), "price": pa.float64()}


def stream(columns=COLUMNS, time="ts", **options):
    """A stream that is declared so."""
    return StreamDef("bid", columns, time, options=options)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("columns", "time", "message"),
    [
        ({"at": pa.timestamp("us"), "value": pa.int64()}, "at", 'no time column "at"'),
        ({"timestamp": pa.timestamp("us"), "price": pa.float64()}, "timestamp", 'no column "price"'),
        (
            {"timestamp": pa.timestamp("us"), "value": pa.string()},
            "timestamp",
            "declared VARCHAR, but the source has BIGINT",
        ),
        ({"timestamp": pa.timestamp("us"), "value": pa.int32()}, "timestamp", "declared INTEGER"),
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
    with pytest.raises(SourceError, match='time column "ts" of stream "bid" has type VARCHAR'):
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
