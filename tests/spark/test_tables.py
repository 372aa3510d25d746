"""Tables that live elsewhere: read, kept while the server is away, read again."""

import os

import psycopg
import pyarrow as pa
import pytest

from windrow.catalog import TableDef
from windrow.errors import SourceError
from windrow.runtime.tables import LiveTable, check_table, open_table
from windrow.spark.streaming import FrameTable

COLUMNS = {"id": pa.int64(), "name": pa.string()}


class Scripted:
    """A source that gives, or raises, what it is told to."""

    def __init__(self, *steps):
        self.steps = list(steps)

    def read(self):
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    def changed(self):
        return False


def people(*names):
    return pa.table({"id": pa.array(range(len(names)), pa.int64()), "name": pa.array(names, pa.string())})


def live(*steps, every=30.0):
    now = [1000.0]
    return LiveTable(TableDef("person", COLUMNS), Scripted(*steps), every, lambda: now[0]), now


def test_read_again_on_the_period():
    """A table is read again when its period has passed, not before."""
    table, now = live(people("a"), people("a", "b"))
    now[0] += 29
    assert table.current().table.num_rows == 1
    now[0] += 1
    reading = table.current()
    assert reading.table.num_rows == 2
    assert reading.version_us == 1_030_000_000


def test_same_content_same_version():
    """Reading equal rows again is the same version and the same table."""
    table, now = live(people("a"), people("a"))
    first = table.current()
    now[0] += 30
    second = table.current()
    assert second.version_us == first.version_us
    assert second.table is first.table


def test_without_a_period_only_on_demand():
    """Without a period nothing is read until asked."""
    table, now = live(people("a"), people("b"), every=None)
    now[0] += 10**6
    assert table.current().table["name"].to_pylist() == ["a"]
    assert table.refresh().table["name"].to_pylist() == ["b"]


def test_keeps_the_last_known():
    """While reading fails the last reading stays, says since when, and is tried again with growing pauses."""
    away = SourceError("server away")
    table, now = live(people("a"), away, away, away, people("b"))
    now[0] = 1030
    reading = table.current()
    assert reading.table["name"].to_pylist() == ["a"]
    assert (reading.failing_since_us, reading.error) == (1_030_000_000, "server away")
    now[0] = 1030.5
    table.current()
    now[0] = 1031
    table.current()
    now[0] = 1033
    assert table.current().failing_since_us == 1_030_000_000
    now[0] = 1036.9
    assert table.current().error == "server away"
    now[0] = 1037
    back = table.current()
    assert (back.table["name"].to_pylist(), back.failing_since_us, back.error) == (["b"], None, None)


def test_first_reading_must_succeed():
    """A table that cannot be read at all is an error."""
    with pytest.raises(SourceError, match="away"):
        live(SourceError("server away"))
    with pytest.raises(SourceError, match='no column "name"'):
        live(pa.table({"id": [1]}))


def test_file_table(tmp_path):
    """A file is read again when it changed, and its types are the declared ones."""
    path = tmp_path / "p.csv"
    path.write_text("id,name\n1,a\n")
    now = [0.0]
    options = {"source": "csv", "path": str(path), "every": "1 second"}
    table = open_table(TableDef("person", COLUMNS, options=options), clock=lambda: now[0])
    first = table.current()
    assert first.table.equals(pa.table({"id": [1], "name": ["a"]}))
    now[0] = 1
    assert table.current().table is first.table
    path.write_text("id,name\n1,a\n2,b\n")
    os.utime(path, (1, 1))
    now[0] = 2
    assert table.current().table.num_rows == 2
    path.unlink()
    now[0] = 3
    assert table.current().error is not None
    assert table.current().table.num_rows == 2


@pytest.mark.postgres
def test_postgres_table_survives_its_server(postgres):
    """A PostgreSQL table is read by declaration; while its server is away the last rows stay."""
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE person (id int, name text, more text)")
        connection.execute("INSERT INTO person VALUES (1, 'a', 'x'), (2, NULL, 'y')")
    now = [0.0]
    options = {"source": "postgres", "dsn": postgres.dsn, "every": "30 seconds"}
    table = open_table(TableDef("person", COLUMNS, options=options), clock=lambda: now[0])
    assert table.current().table.to_pylist() == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    postgres.stop()
    now[0] = 30
    assert table.current().error.startswith("cannot read from PostgreSQL")
    assert table.current().table.num_rows == 2
    postgres.start()
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM person WHERE id = 1")
    now[0] = 60
    assert table.current().table.num_rows == 1
    assert table.current().failing_since_us is None


@pytest.mark.spark
def test_frame_table(spark):
    """A DataFrame is a table; a streaming one is not."""
    frame = spark.createDataFrame([(1, "a")], "id int, name string")
    assert open_table(TableDef("person", COLUMNS), FrameTable(frame)).current().table.to_pylist() == [
        {"id": 1, "name": "a"}
    ]
    with pytest.raises(SourceError, match="streaming"):
        FrameTable(spark.readStream.format("rate").load())


@pytest.mark.parametrize("text", ["", "soon", "0 seconds", "-1 s", "5 fortnights"])
def test_no_period(text):
    """What is no period is refused with an example."""
    options = {"source": "csv", "path": "p.csv", "every": text}
    with pytest.raises(SourceError, match="no period"):
        check_table(TableDef("person", COLUMNS, options=options))


def test_no_source():
    """A table without a source it can be read from is refused."""
    with pytest.raises(SourceError, match='table "person" has no source'):
        open_table(TableDef("person", COLUMNS))
