"""Rows by the clock: a file at a steady rate, and a counter."""

import json
import pickle

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.sources.intake import times
from windrow.sources.protocol import open_source
from windrow.sources.rate import RateCurve, RateSource
from windrow.store.place import Place

BIDS = {"ts": pa.timestamp("us"), "auction": pa.int64(), "price": pa.float64()}
PULSE = {"timestamp": pa.timestamp("us", "UTC"), "value": pa.int64()}


def read(found, declared, columns=None):
    pieces = [pickle.loads(pickle.dumps(p)) for p in found.pieces]
    return pa.Table.from_batches([b for p in pieces for b in p.read(declared, columns)])


def replay(path, **options):
    return StreamDef("bid", BIDS, "ts", options={"source": "replay", "path": str(path), **options})


@pytest.fixture
def bids(tmp_path):
    path = tmp_path / "bids.csv"
    path.write_text("ts,auction,price\n" + "".join(f"1970-01-01 00:00:{i % 60:02d},{i},{i / 2}\n" for i in range(3000)))
    return path


def test_replay_across_restarts(tmp_path, bids):
    """Every row comes once and in order, across restarts, even when the file has changed meanwhile."""
    declared = replay(bids, rows_per_second="1e9", max_rows="300")
    offset, rows = None, []
    for restart in range(4):
        source = open_source(declared, Place.of(tmp_path / "spool"))
        source.poll(offset)  # starts the clock
        for _ in range(3):
            if (found := source.poll(offset)) is not None:
                taken = read(found, declared)
                assert found.rows == taken.num_rows
                assert found.bounds == (min(times(declared, taken)), max(times(declared, taken)))
                rows += taken.column("auction").to_pylist()
                offset = json.loads(json.dumps(found.offset))
        if restart == 0:
            bids.write_text("gone")
    assert rows == list(range(3000))
    assert source.drained(offset)


def test_replay_follows_the_clock(tmp_path, bids):
    """After t seconds rate * t rows are due; at most max_rows come at once."""
    now = [100.0]
    declared = replay(bids, rows_per_second="100", max_rows="250")
    source = open_source(declared, Place.of(tmp_path / "spool"))
    source._clock = lambda: now[0]
    assert source.poll(None) is None
    now[0] += 2
    assert source.poll(None).offset == {"row": 200}
    now[0] += 8
    assert source.poll({"row": 200}).offset == {"row": 450}
    assert not source.drained({"row": 450})
    assert source.drained({"row": 1000})
    assert read(source.poll({"row": 200}), declared, ["price"]).column_names == ["price"]


def test_replay_of_bad_input(tmp_path, bids):
    """A missing file, a missing column and a rate of zero are named."""
    spool = Place.of(tmp_path / "s")
    with pytest.raises(SourceError, match="no such file"):
        open_source(replay(tmp_path / "b.csv"), spool)
    with pytest.raises(SourceError, match="rows_per_second"):
        open_source(replay(bids, rows_per_second="0"), spool)
    with pytest.raises(SourceError, match="needs the option path"):
        open_source(replay(""), spool)
    bids.write_text("ts,auction\n1970-01-01 00:00:00,1\n")
    with pytest.raises(SourceError, match="price"):
        open_source(replay(bids), spool)


@settings(max_examples=50, deadline=None)
@given(rate=st.floats(0.5, 1e5), ramp=st.sampled_from([0.0, 0.5, 3.0]), steps=st.lists(st.floats(0, 3), max_size=6))
def test_rate_is_a_function_of_the_clock(rate, ramp, steps):
    """However polls fall, values count up without a gap and each row is stamped when it was due."""
    now = [1_000_000.0]
    declared = StreamDef("pulse", PULSE, "timestamp", options={"source": "rate"})
    source = RateSource(declared, RateCurve(rate, ramp), 50_000, lambda: now[0])
    offset, values, stamps = None, [], []
    for step in steps:
        now[0] += step
        if (found := source.poll(offset)) is not None:
            offset = json.loads(json.dumps(found.offset))
            rows = read(found, declared)
            assert (found.rows, found.bounds) == (rows.num_rows, (times(declared, rows)[0], times(declared, rows)[-1]))
            values += rows.column("value").to_pylist()
            stamps += times(declared, rows).tolist()
    assert values == list(range(len(values)))
    assert stamps == sorted(stamps)
    assert all(s <= now[0] * 1e6 + 1 for s in stamps)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({**PULSE, "price": pa.float64()}, 'no column "price"'),
        ({**PULSE, "value": pa.string()}, "declared VARCHAR, but the source has BIGINT"),
        ({**PULSE, "value": pa.int32()}, "declared INTEGER"),
    ],
)
def test_rate_columns(tmp_path, columns, message):
    """Columns that are missing or do not fit are named."""
    with pytest.raises(SourceError, match=message):
        open_source(StreamDef("pulse", columns, "timestamp", options={"source": "rate"}), Place.of(tmp_path))


def test_unknown_source(tmp_path):
    """A source nobody knows is refused with those we know."""
    with pytest.raises(SourceError, match='"pulsar"') as caught:
        open_source(StreamDef("s", PULSE, "timestamp", options={"source": "pulsar"}), Place.of(tmp_path))
    assert "kafka" in caught.value.hint
