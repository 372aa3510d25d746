"""Tables of a PostgreSQL server that tells of its changes (`notify => 'channel'`)."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from windrow.engine import Engine
from windrow.errors import SourceError
from windrow.runtime.tables import PostgresTable

pytestmark = pytest.mark.postgres

SCRIPT = """
    CREATE STREAM bid (ts BIGINT, who BIGINT) TIMESTAMP BY ts;
    CREATE TABLE person (id BIGINT, name VARCHAR) FROM postgres (dsn => '{}', notify => 'people');
    CREATE QUERY named AS SELECT ISTREAM(p.name) FROM bid [NOW] b, person p WHERE b.who = p.id;
"""
TELLING = """
    CREATE TABLE person (id bigint, name text);
    INSERT INTO person VALUES (1, 'ann');
    CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql
        AS 'BEGIN PERFORM pg_notify(''people'', ''''); RETURN NULL; END';
    CREATE TRIGGER told AFTER INSERT OR UPDATE OR DELETE ON person FOR EACH STATEMENT EXECUTE FUNCTION tell();
"""


def change(postgres: Any, statement: str) -> None:
    """Run a statement as somebody else would."""
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(statement)


@pytest.fixture
def people(postgres: Any) -> Any:
    """A server with a table whose changes are told."""
    change(postgres, TELLING)
    return postgres


class Bids:
    """Bids, one tick after the other."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._ts = engine, 1

    def named(self, who: int) -> list[str]:
        """The names that a bid is given."""
        before = self._engine["named"].results().num_rows
        self._engine.push("bid", {"ts": [self._ts, self._ts + 1], "who": [who, -1]})
        self._ts += 2
        found: list[str] = self._engine["named"].results().column("name").to_pylist()[before:]
        return found

    def told(self, who: int, name: str) -> bool:
        """Whether a bid is given a name in the end: the server tells us when it has told whoever changed something."""
        return any(self.named(who) == [name] for _ in range(3000))


def test_a_change_is_seen_from_the_next_tick_on(people: Any) -> None:
    """What was told before a tick is in its answers; what was not told is not read."""
    with Engine(runtime="local") as engine:
        engine.execute(SCRIPT.format(people.dsn))
        engine.start()
        bids = Bids(engine)
        assert bids.named(1) == ["ann"] and bids.named(2) == []
        change(people, "INSERT INTO person VALUES (2, 'bob')")
        assert bids.told(2, "bob")
        version = engine.status()["tables"]["person"]["version_us"]
        change(people, "ALTER TABLE person DISABLE TRIGGER told; UPDATE person SET name = 'eve' WHERE id = 2")
        assert bids.named(2) == ["bob"]
        assert engine.status()["tables"]["person"]["version_us"] == version
        change(people, "NOTIFY people")
        assert bids.told(2, "eve")


def test_a_server_that_was_away_is_read_again(people: Any) -> None:
    """A change that nobody could hear is seen when the server is back; until then the last reading holds."""
    with Engine(runtime="local") as engine:
        engine.execute(SCRIPT.format(people.dsn))
        engine.start()
        bids = Bids(engine)
        assert bids.named(1) == ["ann"]
        people.stop()
        assert any(bids.named(1) == ["ann"] and engine.status()["tables"]["person"]["error"] for _ in range(3000))
        people.start()
        change(people, "UPDATE person SET name = 'ada'")
        engine.refresh("person")  # as the clock would, a second later
        assert bids.named(1) == ["ada"]
        change(people, "UPDATE person SET name = 'zoe'")
        assert bids.told(1, "zoe")  # it listens again


def test_an_engine_that_was_stopped_reads_again(people: Any, tmp_path: Any) -> None:
    """Nobody listens while an engine is stopped: it reads when it goes on, as the same object or another."""
    with Engine(runtime="local", home=tmp_path) as engine:
        engine.execute(SCRIPT.format(people.dsn))
        engine.start()
        bids = Bids(engine)
        assert bids.named(1) == ["ann"]
        engine.stop()
        change(people, "UPDATE person SET name = 'ada'")
        engine.start()
        assert bids.named(1) == ["ada"]
    change(people, "UPDATE person SET name = 'zoe'")
    with Engine(runtime="local", home=tmp_path) as engine:
        engine.start()
        engine.push("bid", {"ts": [5, 6], "who": [1, -1]})
        assert engine["named"].results().column("name").to_pylist()[-1] == "zoe"
        engine.execute("DROP QUERY named; DROP TABLE person")
    with psycopg.connect(people.dsn) as connection:
        listening = "SELECT COUNT(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
        assert connection.execute(listening).fetchone() == (0,)


def test_nothing_is_left_open_by_a_table_that_cannot_be_read(postgres: Any) -> None:
    """A table that is not there is told, and nobody listens for it."""
    source = PostgresTable(postgres.dsn, "SELECT * FROM nothing", "people")
    with pytest.raises(SourceError, match="nothing"):
        source.read()
    assert not source.changed()
    with pytest.raises(SourceError, match="cannot listen"):
        PostgresTable(postgres.dsn.replace("dbname=postgres", "dbname=nowhere"), "SELECT 1", "people").read()
