"""Answers in a PostgreSQL table, exactly once.

The rows of a tick and the tick's number go in one transaction: `windrow_ticks` holds, for each home and query, the
last tick whose rows are in, and the frontier for which they are exact (`as_of`). A tick that is written again, even one
whose commit was sent but not confirmed, finds its number and changes nothing. Two homes never take each other's ticks
for their own, because `owner` is part of the key.

A tick that a server does not take is the engine's to try again; nothing of it has happened.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.errors import SourceError, StateError, WindrowError
from windrow.sinks.pg import Postgres, column_type, driver, render, unreachable
from windrow.sinks.protocol import as_of

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql


def copy_in(cursor: psycopg.Cursor, target: object, table: pa.Table) -> None:
    """Add rows to a table."""
    from psycopg import sql

    names = sql.SQL(", ").join(sql.Identifier(n) for n in table.column_names)
    with cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(target, names)) as copy:
        copy.write(memoryview(render(table)))


class PostgresSink:
    """Writes each query to the table `table`, or to one of the query's name; the table is made when absent."""

    def __init__(self, dsn: str, table: str | None = None, *, owner: str = "") -> None:
        self._postgres = Postgres(dsn)
        self._table = table
        self._owner = owner
        self._connection: psycopg.Connection | None = None
        self._ready: set[str] = set()

    def write(self, query: str, tick: int, table: pa.Table) -> None:
        """Write a tick's rows and its number in one transaction."""
        if table.num_rows:
            with self._explained(query, tick):
                self._write(query, tick, table)

    @contextlib.contextmanager
    def _explained(self, query: str, tick: int) -> Iterator[None]:
        try:
            yield
        except driver().Error as error:
            self._disconnect()
            raise (_away if unreachable(error) else _refused)(query, tick, error) from error

    def close(self) -> None:
        """Close the connection."""
        self._disconnect()

    def _write(self, query: str, tick: int, table: pa.Table) -> None:
        connection, target = self._connected(), self._target(query)
        with connection.transaction(), connection.cursor() as cursor:
            if query not in self._ready:
                self._prepare(cursor, target, table.schema)
            cursor.execute(
                "SELECT tick FROM windrow_ticks WHERE owner = %s AND query = %s FOR UPDATE",
                (self._owner, self._key(query)),
            )
            last = cursor.fetchone()
            if last is None or last[0] < tick:
                self._take(cursor, target, table)
                self._note(cursor, query, tick, as_of(table.schema))
        self._ready.add(query)

    def _connected(self) -> psycopg.Connection:
        if self._connection is None:
            self._connection = self._postgres.connect()
        return self._connection

    def _target(self, query: str) -> sql.Identifier:
        from psycopg import sql

        return sql.Identifier(*(self._table or query).split("."))

    def _key(self, query: str) -> str:
        """Under which its ticks are noted: a query may go to several tables."""
        return query if self._table is None else f"{query} > {self._table}"

    def _take(self, cursor: psycopg.Cursor, target: object, table: pa.Table) -> None:
        """The rows of one tick."""
        copy_in(cursor, target, table)

    def _note(self, cursor: psycopg.Cursor, query: str, tick: int, frontier: str | None) -> None:
        cursor.execute(
            "INSERT INTO windrow_ticks (owner, query, tick, as_of) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT (owner, query) DO UPDATE SET tick = EXCLUDED.tick, as_of = EXCLUDED.as_of, written = now()",
            (self._owner, self._key(query), tick, None if frontier is None else int(frontier)),
        )

    def _prepare(self, cursor: psycopg.Cursor, target: object, schema: pa.Schema) -> None:
        from psycopg import sql

        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtext('windrow'))"
        )  # CREATE IF NOT EXISTS is not safe against itself
        cursor.execute("SET LOCAL client_min_messages TO warning")
        cursor.execute(
            "CREATE TABLE IF NOT EXISTS windrow_ticks (owner text, query text, tick bigint NOT NULL,"
            " written timestamptz NOT NULL DEFAULT now(), as_of bigint, PRIMARY KEY (owner, query))"
        )
        cursor.execute("ALTER TABLE windrow_ticks ADD COLUMN IF NOT EXISTS as_of bigint")  # one made without it
        columns = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(f.name), sql.SQL(column_type(f.type))) for f in schema
        )
        cursor.execute(sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(target, columns))

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
        self._connection = None
        self._ready.clear()


def _away(query: str, tick: int, error: Exception) -> WindrowError:
    return StateError(
        f'the answer of query "{query}" at tick {tick} could not be written: PostgreSQL is away',
        detail=str(error).strip().split("\n")[0],
    )


def _refused(query: str, tick: int, error: Exception) -> WindrowError:
    return SourceError(
        f'PostgreSQL refused the answer of query "{query}" at tick {tick}: {str(error).strip().splitlines()[0]}',
        hint="make the table fit the query's columns, or let windrow make it: name a table that does not exist",
    )
