"""The PostgreSQL sink and reader, against a real server."""

import datetime as dt
import decimal

import psycopg
import pyarrow as pa
import pytest

from windrow.errors import SourceError, StateError
from windrow.sinks import parse_sink
from windrow.sinks.pg import Postgres
from windrow.sinks.postgres import PostgresSink

pytestmark = pytest.mark.postgres

ANSWER = pa.table(
    {
        "_ts": pa.array([0, 1_000_001], pa.timestamp("us", "UTC")),
        "name": ['it\'s; "q"\n\\N', ""],
        "n": pa.array([1, None], pa.int64()),
        "total": pa.array([decimal.Decimal(10) ** 30, None], pa.decimal128(38, 0)),
        "f": [float("nan"), 1e-300],
        "ok": [True, None],
        "day": pa.array([dt.date(2024, 2, 29), None]),
        "raw": pa.array([b"\x00\xff", None]),
        "top": pa.array([[1, 2], None], pa.list_(pa.int64())),
    }
)


def rows(server, query):
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("SET TimeZone TO 'UTC'")
        return connection.execute(query).fetchall()


def test_every_type_arrives(postgres):
    """The table is made from the answer's columns, every value arrives as it was, null and empty text apart."""
    sink = parse_sink({"sink": "postgres", "dsn": postgres.dsn}, owner="home-1")
    sink.write("hot", 1, ANSWER)
    sink.close()
    first, second = rows(postgres, "SELECT * FROM hot ORDER BY _ts")
    assert first[0] == dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert first[1:4] == ('it\'s; "q"\n\\N', 1, decimal.Decimal(10) ** 30)
    assert first[4] != first[4]
    assert first[5:] == (True, dt.date(2024, 2, 29), b"\x00\xff", [1, 2])
    assert second[1] == ""
    assert second[4] == 1e-300
    assert second[2:4] + second[5:] == (None,) * 6


def test_a_tick_is_written_once(postgres):
    """A tick written again, by this sink or a new one, changes nothing; the next is added."""
    for _ in range(2):
        sink = PostgresSink(postgres.dsn, owner="h")
        sink.write("hot", 1, ANSWER)
        sink.write("hot", 1, ANSWER)
        sink.write("hot", 2, ANSWER.slice(1))
        sink.close()
    assert rows(postgres, "SELECT count(*) FROM hot") == [(3,)]
    assert rows(postgres, "SELECT owner, query, tick FROM windrow_ticks") == [("h", "hot", 2)]


def test_homes_do_not_share_ticks(postgres):
    """Two homes write the same query and tick to one table, both are kept."""
    for owner in ("a", "b"):
        sink = PostgresSink(postgres.dsn, "public.answers", owner=owner)
        sink.write("hot", 1, ANSWER)
        sink.close()
    assert rows(postgres, "SELECT count(*) FROM answers") == [(4,)]


def test_an_interrupted_write_leaves_nothing(postgres):
    """Rows that PostgreSQL refuses leave neither rows nor a tick, and the message says what was refused."""
    sink = PostgresSink(postgres.dsn, owner="h")
    sink.write("hot", 1, ANSWER.select(["_ts", "n"]))
    with pytest.raises(SourceError, match='refused the answer of query "hot" at tick 2') as caught:
        sink.write("hot", 2, ANSWER.select(["_ts", "name"]))
    assert 'column "name"' in caught.value.primary
    sink.write("hot", 2, ANSWER.select(["_ts", "n"]))
    sink.close()
    assert rows(postgres, "SELECT count(*) FROM hot") == [(4,)]


def test_server_away(postgres):
    """A server that is away is told as such, nothing of the tick has happened, and the sink goes on once it is back."""
    sink = PostgresSink(postgres.dsn, owner="h")
    sink.write("hot", 1, ANSWER)
    postgres.stop()
    for _ in range(2):
        with pytest.raises(StateError, match='query "hot" at tick 2 could not be written: PostgreSQL is away'):
            sink.write("hot", 2, ANSWER)
    postgres.start()
    sink.write("hot", 2, ANSWER)
    sink.close()
    assert rows(postgres, "SELECT count(*), max(tick) FROM hot, windrow_ticks") == [(4, 2)]


def test_two_tables_of_one_query(postgres):
    """Each table has every tick once."""
    for table in (None, "other"):
        sink = PostgresSink(postgres.dsn, table, owner="h")
        for tick in (1, 2, 2):
            sink.write("hot", tick, ANSWER)
        sink.close()
    assert rows(postgres, "SELECT (SELECT count(*) FROM hot), (SELECT count(*) FROM other)") == [(4, 4)]


def test_wrong_database(postgres):
    """A database that does not exist is refused by name."""
    sink = PostgresSink(postgres.dsn.replace("dbname=postgres", "dbname=nowhere"))
    with pytest.raises(SourceError, match="nowhere"):
        sink.write("hot", 1, ANSWER)


def test_read_has_the_servers_types(postgres):
    """Reading gives Arrow columns of the server's types; unknown types come as text."""
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE p (id int, name text, price numeric(10, 2), loose numeric,"
            " at timestamptz, tags text[], ok bool)"
        )
        connection.execute(
            "INSERT INTO p VALUES (1, '', 1.50, 1e3, '2024-01-01 12:00+02', '{a,b}', true),"
            " (2, NULL, NULL, NULL, NULL, NULL, NULL)"
        )
    table = Postgres(postgres.dsn).read("SELECT * FROM p ORDER BY id;")
    assert [str(t) for t in table.schema.types] == [
        "int32",
        "string",
        "decimal128(10, 2)",
        "double",
        "timestamp[us, tz=UTC]",
        "string",
        "bool",
    ]
    assert table.to_pylist()[0] == {
        "id": 1,
        "name": "",
        "price": decimal.Decimal("1.50"),
        "loose": 1000.0,
        "at": dt.datetime(2024, 1, 1, 10, tzinfo=dt.UTC),
        "tags": "{a,b}",
        "ok": True,
    }
    assert set(list(table.to_pylist()[1].values())[1:]) == {None}


def test_read_of_nothing_and_of_one_null_column(postgres):
    """A query without rows has its columns; rows of one null column are rows."""
    assert Postgres(postgres.dsn).read("SELECT 1 AS a WHERE false").column_names == ["a"]
    assert Postgres(postgres.dsn).read("SELECT NULL::int AS a FROM generate_series(1, 3)").num_rows == 3


def test_read_errors_are_clear(postgres):
    """A wrong query or string says what is wrong, without a stack."""
    with pytest.raises(SourceError, match='relation "nope" does not exist'):
        Postgres(postgres.dsn).read("SELECT * FROM nope")
    with pytest.raises(SourceError, match="connection string"):
        Postgres("this is = = not a dsn").read("SELECT 1")
