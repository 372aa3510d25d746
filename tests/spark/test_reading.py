"""Tasks of Spark read sources themselves: files cut into pieces, topics, and rows that nobody can read."""

import time

import pyarrow as pa
import pytest
from pyarrow import parquet

import windrow
from windrow.errors import SourceError
from windrow.sources import read_parquet

pytestmark = pytest.mark.spark


def engine_on(spark, home, script):
    engine = windrow.Engine(home=str(home), spark=spark)
    engine.execute(script)
    return engine


def test_one_file_many_row_groups(spark, tmp_path, monkeypatch):
    """A file's row groups are dealt over tasks, and its rows counted once; a restart reads nothing again."""
    monkeypatch.setattr(read_parquet, "PIECE_BYTES", 1)
    (tmp_path / "in").mkdir()
    ts = list(range(20_000))
    table = pa.table({"ts": ts, "k": [t % 5 for t in ts], "s": [f"s{t}" for t in ts]})
    parquet.write_table(table, tmp_path / "in" / "a.parquet", row_group_size=1000)
    script = (
        f"CREATE STREAM a (ts BIGINT, k BIGINT, s VARCHAR) TIMESTAMP BY ts FROM parquet (path => '{tmp_path / 'in'}');"
        "CREATE QUERY n AS SELECT k, COUNT(*) AS n FROM a [RANGE 100 SLIDE 100] GROUP BY k"
    )
    engine = engine_on(spark, tmp_path / "home", script)
    engine.start()
    engine.drain()
    found = engine["n"].results()
    assert found.num_rows == 1 + 5 * 199  # one row at instant 0, then whole windows
    assert sum(found.column("n").to_pylist()) == 19_901  # a window begins behind its first instant, the last is open
    engine.stop()
    again = windrow.Engine(home=str(tmp_path / "home"), spark=spark)
    again.start()
    again.drain()
    assert again.status()["streams"]["a"]["rows"] == 0
    again.stop()


def test_a_malformed_row_is_named(spark, tmp_path):
    """What a task cannot read stops the engine with stream, file and line, and without a Java stack."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("ts,k\n1,2\n2,many\n")
    script = f"CREATE STREAM a (ts BIGINT, k BIGINT) TIMESTAMP BY ts FROM csv (path => '{tmp_path / 'in'}')"
    engine = engine_on(spark, tmp_path / "home", script)
    engine.execute("CREATE QUERY n AS SELECT COUNT(*) AS n FROM a [RANGE 5]")
    engine.start()
    with pytest.raises(SourceError, match=r'stream "a": malformed row in .*a\.csv, line 3') as caught:
        engine.drain()
        engine.wait(30)
    assert "'many' is not BIGINT" in str(caught.value)
    assert "org.apache" not in str(caught.value)
    engine.stop()


def test_a_topic(spark, tmp_path):
    """Messages are fetched and decoded by tasks."""
    from tests.kafka import MockKafka

    broker = MockKafka()
    broker.send("live", [b'{"ts": %d, "k": %d}' % (i, i % 3) for i in range(300)])
    script = (
        "CREATE STREAM a (ts BIGINT, k BIGINT, _offset BIGINT) TIMESTAMP BY ts "
        f"FROM kafka (servers => '{broker.servers}', topic => 'live');"
        "CREATE QUERY n AS SELECT MAX(_offset) AS last, COUNT(*) AS n FROM a [RANGE 10 SLIDE 10]"
    )
    engine = engine_on(spark, tmp_path / "home", script)
    engine.start()
    deadline = time.monotonic() + 60
    while engine["n"].results().num_rows < 30 and time.monotonic() < deadline:
        engine.wait(0.1)
    rows = engine["n"].results().to_pylist()
    assert rows[1] == {"_ts": 10, "last": 10, "n": 10}
    assert rows[-1] == {"_ts": 290, "last": 290, "n": 10}
    engine.stop()
