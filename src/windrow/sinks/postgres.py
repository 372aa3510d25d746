"""Answers in a PostgreSQL table, exactly once.

The rows of a tick and the tick's number go in one transaction: `windrow_ticks` holds, for each home and query, the
last tick whose rows are in. A tick that is written again, even one whose commit was sent but not confirmed, finds its
number and changes nothing. Two homes never take each other's ticks for their own, because `owner` is part of the key.

A server that is away is waited for, up to `patience` seconds; then the engine stops, and goes on from this tick when
started again.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.errors import SourceError, StateError
from windrow.sinks.pg import Postgres, column_type, driver, render, unreachable

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

_LOG = logging.getLogger("windrow.sinks")
FIRST_RETRY, LAST_RETRY = 0.5, 15.0


def copy_in(cursor: psycopg.Cursor, target: object, table: pa.Table) -> None:
    """Add rows to a table."""
    from psycopg import sql

    names = sql.SQL(", ").join(sql.Identifier(n) for n in table.column_names)
    with cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(target, names)) as copy:
        copy.write(memoryview(render(table)))


class PostgresSink:
    """Writes each query to the table `table`, or to one of the query's name; the table is made when absent."""

    def __init__(
        self,
        dsn: str,
        table: str | None = None,
        *,
        owner: str = "",
        patience: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._postgres = Postgres(dsn)
        self._table = table
        self._owner = owner
        self._patience = patience
        self._clock = clock
        self._sleep = sleep
        self._connection: psycopg.Connection | None = None
        self._ready: set[str] = set()

    def write(self, query: str, tick: int, table: pa.Table) -> None:
        """Write a tick's rows and its number in one transaction, waiting for a server that is away."""
        if table.num_rows:
            self._retried(query, tick, lambda: self._write(query, tick, table))

    def _retried(self, query: str, tick: int, work: Callable[[], None]) -> None:
        psycopg = driver()
        started, delay = self._clock(), FIRST_RETRY
        while True:
            try:
                work()
                return
            except psycopg.Error as error:
                self._disconnect()
                if not unreachable(error):
                    raise self._refused(query, tick, error) from error
                if self._clock() - started + delay > self._patience:
                    raise self._away(query, tick, error) from error
                _LOG.warning('query "%s", tick %d: PostgreSQL is away, trying again in %.1f s', query, tick, delay)
            self._sleep(delay)
            delay = min(2 * delay, LAST_RETRY)

    def close(self) -> None:
        """Close the connection."""
        self._disconnect()

    def _write(self, query: str, tick: int, table: pa.Table) -> None:
        connection, target = self._connected(), self._target(query)
        with connection.transaction(), connection.cursor() as cursor:
            if query not in self._ready:
                self._prepare(cursor, target, table.schema)
            cursor.execute(
                "SELECT tick FROM windrow_ticks WHERE owner = %s AND query = %s FOR UPDATE", (self._owner, query)
            )
            last = cursor.fetchone()
            if last is None or last[0] < tick:
                self._take(cursor, target, table)
                self._note(cursor, query, tick)
        self._ready.add(query)

    def _connected(self) -> psycopg.Connection:
        if self._connection is None:
            self._connection = self._postgres.connect()
        return self._connection

    def _target(self, query: str) -> sql.Identifier:
        from psycopg import sql

        return sql.Identifier(*(self._table or query).split("."))

    def _take(self, cursor: psycopg.Cursor, target: object, table: pa.Table) -> None:
        """The rows of one tick."""
        copy_in(cursor, target, table)

    def _note(self, cursor: psycopg.Cursor, query: str, tick: int) -> None:
        cursor.execute(
            "INSERT INTO windrow_ticks (owner, query, tick) VALUES (%s, %s, %s)"
            " ON CONFLICT (owner, query) DO UPDATE SET tick = EXCLUDED.tick, written = now()",
            (self._owner, query, tick),
        )

    def _prepare(self, cursor: psycopg.Cursor, target: object, schema: pa.Schema) -> None:
        from psycopg import sql

        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtext('windrow'))"
        )  # CREATE IF NOT EXISTS is not safe against itself
        cursor.execute("SET LOCAL client_min_messages TO warning")
        cursor.execute(
            "CREATE TABLE IF NOT EXISTS windrow_ticks (owner text, query text, tick bigint NOT NULL,"
            " written timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (owner, query))"
        )
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

    def _away(self, query: str, tick: int, error: Exception) -> StateError:
        return StateError(
            f'the answer of query "{query}" at tick {tick} could not be written: PostgreSQL is away',
            detail=str(error).strip().split("\n")[0],
            hint=f"tried for {self._patience:g} seconds; start again when the server is back, nothing is lost",
        )

    def _refused(self, query: str, tick: int, error: Exception) -> SourceError:
        return SourceError(
            f'PostgreSQL refused the answer of query "{query}" at tick {tick}: {str(error).strip().splitlines()[0]}',
            hint="make the table fit the query's columns, or let windrow make it: name a table that does not exist",
        )
