"""The engine on Spark: queries and streams that come and go, restarts, and what bad input gets."""

from __future__ import annotations

import json
import os
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.waiting import until

import windrow
from windrow.errors import SourceError, StateError, WindrowError
from windrow.testing import assert_same

pytestmark = pytest.mark.spark

COLUMNS = "(k BIGINT, v DOUBLE, ts BIGINT)"


def rows(number, size=50):
    """The rows of file `number`: ten ticks of time."""
    rng = np.random.default_rng(number)
    ts = np.sort(rng.integers(10 * number, 10 * (number + 1), size))
    return pa.table({"k": rng.integers(0, 4, size), "v": rng.integers(0, 40, size) / 4, "ts": ts})


def put(folder, number, table=None):
    """A file appears whole, as sources want it."""
    os.makedirs(folder, exist_ok=True)
    pq.write_table(rows(number) if table is None else table, f"{folder}/.{number}")
    # Spark takes files by their time of change, in milliseconds: two of one millisecond have no order
    os.utime(f"{folder}/.{number}", (1_700_000_000 + number, 1_700_000_000 + number))
    os.rename(f"{folder}/.{number}", f"{folder}/{number:03d}.parquet")


def source(folder):
    """The source clause of a directory."""
    os.makedirs(folder, exist_ok=True)
    return f"FROM parquet (path => '{folder}', maxFilesPerTrigger => 1)"


def local(query, tables, frontier, retain=""):
    """The local answer of a query over stream s, up to a frontier."""
    script = f"CREATE STREAM s {COLUMNS} TIMESTAMP BY ts {retain}; CREATE QUERY q AS {query}"
    return windrow.run(script, {"s": pa.concat_tables(tables)}, runtime="local", until=frontier)["q"]


@pytest.fixture
def open_engine(spark, tmp_path):
    """Opens engines on one home, the one before stopped."""
    opened = []

    def open_(home="home", **options):
        for engine in opened:
            engine.stop()
        opened.append(windrow.Engine(home=str(tmp_path / home), spark=spark, **options))
        return opened[-1]

    yield open_
    for engine in opened:
        engine.stop()


def test_queries_and_streams_come_and_go(open_engine, tmp_path):
    """A query made while running has its history at once; dropped things leave; a restart goes on."""
    data = f"{tmp_path}/s"
    query = "SELECT k, COUNT(*) AS n FROM s [RANGE 15] GROUP BY k"
    engine = open_engine()
    engine.execute(f"CREATE STREAM s {COLUMNS} TIMESTAMP BY ts RETAIN 20 {source(data)}; CREATE QUERY early AS {query}")
    engine.sink("early", "parquet", path=f"{tmp_path}/out")
    put(data, 0)
    put(data, 1)
    engine.start()
    engine.drain()
    engine.execute(
        f"CREATE QUERY later AS {query}; CREATE STREAM other {COLUMNS} TIMESTAMP BY ts {source(f'{tmp_path}/o')}"
    )
    put(f"{tmp_path}/o", 2)
    put(data, 2)
    engine.drain()
    assert engine["later"].snapshot().sort_by("k") == engine["early"].snapshot().sort_by("k")
    assert engine.ask(query).sort_by("k") == engine["early"].snapshot().sort_by("k")
    status = json.loads(json.dumps(engine.status()))
    assert status["streams"]["s"]["rows"] == 150
    assert status["queries"]["early"]["state_bytes"] > 0
    engine.execute("DROP QUERY later; DROP STREAM other")
    assert set(engine.status()["streams"]) == {"s"}

    engine = open_engine()
    assert list(engine.catalog.queries) == ["early"]
    engine.sink("early", "parquet", path=f"{tmp_path}/out")
    put(data, 3)
    engine.start()
    engine.drain()
    frontier = engine.status()["frontier"]
    want = local(query, [rows(i) for i in range(4)], frontier)
    assert_same(pq.read_table(f"{tmp_path}/out/early").sort_by("_ts"), want)


def test_a_dataframe_is_attached_again_after_a_restart(open_engine, spark, tmp_path):
    """The stream goes on from its checkpoint; without its source the engine says what is missing."""
    data = f"{tmp_path}/s"
    put(data, 0)

    def frame():
        return spark.readStream.schema("k long, v double, ts long").option("maxFilesPerTrigger", 1).parquet(data)

    engine = open_engine()
    engine.stream("s", frame(), timestamp="ts", slack=0)
    engine.table("names", pa.table({"k": [0, 1], "name": ["zero", "one"]}))
    query = "SELECT s.k, n.name FROM s [ROWS 4], names n WHERE s.k = n.k"
    engine.execute(f"CREATE QUERY q AS {query}")
    engine.sink("q", "parquet", path=f"{tmp_path}/out")
    engine.start()
    engine.drain()
    engine = open_engine()
    with pytest.raises(SourceError, match="no source"):
        engine.start()
    engine.stream("s", frame(), timestamp="ts", slack=0)
    engine.sink("q", "parquet", path=f"{tmp_path}/out")
    put(data, 1)
    engine.start()
    engine.drain()
    got = pq.read_table(f"{tmp_path}/out/q").sort_by("_ts")
    script = f"CREATE STREAM s {COLUMNS} TIMESTAMP BY ts; CREATE QUERY q AS {query}"
    tables = {"names": pa.table({"k": [0, 1], "name": ["zero", "one"]})}
    inputs = {"s": pa.concat_tables([rows(0), rows(1)])}
    assert_same(got, windrow.run(script, inputs, tables, runtime="local", until=engine.status()["frontier"])["q"])


def test_a_failed_script_changes_nothing_on_spark(open_engine, tmp_path):
    """The stream made before the statement that failed is not there, nor after a restart."""
    engine = open_engine()
    with pytest.raises(WindrowError):
        engine.execute(
            f"CREATE STREAM s {COLUMNS} TIMESTAMP BY ts {source(f'{tmp_path}/s')};"
            "CREATE TABLE p (k BIGINT) FROM parquet (path => '/nowhere/at/all.parquet')"
        )
    assert not engine.catalog.streams
    assert not engine.runtime.declared.streams
    assert not open_engine().catalog.streams


def test_a_function_that_raises_stops_its_query_alone(open_engine, tmp_path):
    """The message is the function's; with the function mended the same home goes on."""
    data = f"{tmp_path}/s"

    def bad(k):
        if max(k.to_pylist()) > 90:
            raise ValueError("cannot judge 99")
        return pa.compute.greater(k, 1)

    windrow.function("judge", bad, returns="boolean")
    query = "SELECT COUNT(*) AS n FROM s [RANGE 5] WHERE judge(k)"
    engine = open_engine()
    engine.execute(
        f"CREATE STREAM s {COLUMNS} TIMESTAMP BY ts {source(data)}; CREATE QUERY q AS {query};"
        f"CREATE QUERY fine AS SELECT COUNT(*) AS n FROM s [RANGE 5]"
    )
    engine.sink("fine", "parquet", path=f"{tmp_path}/out")
    put(data, 0)
    engine.start()
    engine.drain()
    poison = rows(1).set_column(0, "k", pa.array([99] * 50))
    put(data, 1, poison)
    engine.drain()
    status = engine.status()
    assert status["running"] is True
    assert status["failed"]["q"].startswith("function judge failed")
    assert "ValueError: cannot judge 99" in status["failed"]["q"]
    assert "at org.apache" not in status["failed"]["q"]
    want = local("SELECT COUNT(*) AS n FROM s [RANGE 5]", [rows(0), poison], status["frontier"])
    assert_same(pq.read_table(f"{tmp_path}/out/fine").sort_by("_ts"), want)

    windrow.function("judge", lambda k: pa.compute.greater(k, 1), returns="boolean")
    engine.execute(f"DROP QUERY q; CREATE QUERY q AS {query}")
    put(data, 2)
    engine.drain()
    assert "q" not in engine.status()["failed"]
    assert engine["q"].results().num_rows


@pytest.mark.parametrize("fault", ["corrupt", "schema"])
def test_a_bad_file_stops_the_engine_with_its_name(fault, open_engine, tmp_path):
    """A file that is no Parquet, and one whose time is a text: the message names it; taken away, the engine goes on."""
    data = f"{tmp_path}/s"
    engine = open_engine()
    engine.execute(
        f"CREATE STREAM s {COLUMNS} TIMESTAMP BY ts {source(data)}; CREATE QUERY q AS SELECT k FROM s [RANGE 5]"
    )
    put(data, 0)
    engine.start()
    engine.drain()
    if fault == "corrupt":
        (tmp_path / "s" / "001.parquet").write_bytes(b"this is not parquet" * 10)
    else:
        put(data, 1, pa.table({"k": [1], "v": [0.5], "ts": ["soon"]}))
    with pytest.raises(SourceError) as raised:
        engine.drain()
    assert "001.parquet" in str(raised.value)
    assert "at org.apache" not in str(raised.value)
    put(data, 1)  # mended, under the same name: the batch comes again
    engine = open_engine()
    engine.start()
    engine.drain()
    assert engine.status()["streams"]["s"]["greatest"] == int(rows(1)["ts"][-1].as_py())


def test_a_home_in_use_is_refused(open_engine, spark, tmp_path):
    """A second engine on one home gets a message, and the first goes on."""
    open_engine()
    with pytest.raises(StateError, match="in use"):
        windrow.Engine(home=str(tmp_path / "home"), spark=spark)


def test_a_home_that_cannot_be_made_is_refused(spark, tmp_path):
    """Before anything starts."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="cannot create"):
        windrow.Engine(home=str(tmp_path / "file" / "home"), spark=spark)


@pytest.mark.postgres
def test_postgres_may_go_away_for_a_while(open_engine, postgres, tmp_path):
    """The sink waits for its server, the table keeps its last reading; then everything is there, once."""
    import psycopg

    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE names (k bigint, name text)")
        connection.execute("INSERT INTO names VALUES (0, 'zero'), (1, 'one'), (2, 'two'), (3, 'three')")
    query = "SELECT n.name, COUNT(*) AS c FROM s [RANGE 5 SLIDE 5], names n WHERE s.k = n.k GROUP BY n.name"
    data = f"{tmp_path}/s"
    engine = open_engine()
    engine.execute(
        f"CREATE STREAM s {COLUMNS} TIMESTAMP BY ts {source(data)};"
        f"CREATE TABLE names (k BIGINT, name VARCHAR) FROM postgres (dsn => '{postgres.dsn}', every => '1 second');"
        f"CREATE QUERY q AS {query}"
    )
    engine.sink("q", "postgres", dsn=postgres.dsn, table="answers")
    put(data, 0)
    engine.start()
    engine.drain()
    postgres.stop()
    put(data, 1)
    until(lambda: engine.status()["sinks"]["q"]["postgres"]["failing_since"])
    until(lambda: engine.status()["tables"]["names"]["error"])
    assert engine.status()["running"]
    postgres.start()
    engine.drain()
    frontier = engine.status()["frontier"]
    with psycopg.connect(postgres.dsn) as connection:
        found = connection.execute('SELECT "_ts", name, c FROM answers').fetchall()
    script = f"CREATE STREAM s {COLUMNS} TIMESTAMP BY ts; CREATE QUERY q AS {query}"
    tables = {"names": pa.table({"k": [0, 1, 2, 3], "name": ["zero", "one", "two", "three"]})}
    inputs = {"s": pa.concat_tables([rows(0), rows(1)])}
    want = windrow.run(script, inputs, tables, runtime="local", until=frontier)["q"]
    assert sorted(found) == sorted(zip(*(c.to_pylist() for c in want.columns), strict=True))


def test_a_silent_stream_does_not_stop_time(open_engine, tmp_path):
    """With IDLE AFTER, the other streams' queries go on."""
    data = f"{tmp_path}/s"
    engine = open_engine()
    engine.execute(
        f"CREATE STREAM s {COLUMNS} TIMESTAMP BY ts {source(data)};"
        f"CREATE STREAM silent {COLUMNS} TIMESTAMP BY ts IDLE AFTER 1 SECOND {source(f'{tmp_path}/silent')};"
        "CREATE QUERY q AS SELECT k FROM s [RANGE 5]"
    )
    put(data, 0)
    engine.start()
    engine.drain()
    until(lambda: engine.status()["frontier"] is not None)
    assert engine.status()["frontier"] == int(rows(0)["ts"][-1].as_py()) - 1
    assert engine["q"].results().num_rows


@pytest.mark.parametrize("retain", ["", "RETAIN 20"])
def test_a_query_comes_while_a_job_runs(retain, open_engine, tmp_path):
    """It need not wait for the tick, and answers as one that comes when the tick has ended; a DROP waits."""
    data, flag = f"{tmp_path}/s", tmp_path / "go on"

    def wait(k):
        for _ in range(400):
            if flag.exists():
                break
            time.sleep(0.05)
        return pa.compute.greater(k, 0)

    windrow.function("wait", wait, returns="boolean")
    queries = {
        "shared": "SELECT COUNT(*) AS n, SUM(v) AS s FROM s [RANGE 10 SLIDE 5] WHERE v > 2",
        "alone": "SELECT k, COUNT(*) AS n FROM s [RANGE 15] GROUP BY k",
    }
    engine = open_engine()
    engine.execute(f"CREATE STREAM s {COLUMNS} TIMESTAMP BY ts {retain} {source(data)}")
    engine.execute(f"CREATE QUERY slow AS SELECT COUNT(*) AS n FROM s [RANGE 5] WHERE wait(k); "
                   f"CREATE QUERY before AS {queries['shared']}")  # fmt: skip
    put(data, 0)
    engine.start()
    until(lambda: engine.runtime.declared._job_runs)
    engine.execute("; ".join(f"CREATE QUERY {name} AS {text}" for name, text in queries.items()))
    assert engine.runtime.declared._job_runs
    assert engine.runtime.store.latest().tick == 0
    drop = threading.Thread(target=engine.execute, args=("DROP QUERY slow",))
    drop.start()
    drop.join(0.2)
    assert drop.is_alive()
    flag.touch()
    engine.drain()
    drop.join(30)
    assert "slow" not in engine and set(engine.catalog.queries) == {"before", "shared", "alone"}
    engine.execute("; ".join(f"CREATE QUERY {name}_after AS {text}" for name, text in queries.items()))
    for number in (1, 2, 3):
        put(data, number)
    engine.drain()
    for name in queries:
        got, want = engine[name].results(), engine[f"{name}_after"].results()
        assert want.num_rows
        assert_same(got, want)
    whole = local(queries["shared"], [rows(i) for i in range(4)], engine.status()["frontier"])
    assert_same(engine["before"].results(), whole)
    engine = open_engine()
    assert {"before", "shared", "alone"} < set(engine.catalog.queries)
