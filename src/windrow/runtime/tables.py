"""Tables that live elsewhere: read, kept, and read again.

A reading is an Arrow table and the time at which its content was first seen; reading the same content again is the
same version, so nothing downstream is disturbed. A server that goes away takes nothing with it: the last reading
stays in force, `failing_since` says how long, and reading is tried again after 1, 2, 4, ... seconds, at most a minute
apart. So it is with content that queries refuse, such as rows that make two equal instances of a template. Only the
first reading must succeed.

    FROM parquet | csv | json (path => 'f', every => '30 seconds')
    FROM postgres (dsn => '...', table => 'person', every => '30 seconds')      or query => 'SELECT ...'
    FROM postgres (dsn => '...', notify => 'person_changed')                    read again when the server says so

With `notify` a connection listens on a channel. It begins to listen before the table is read, and reading follows
whenever it was lost: so no change goes unseen, whatever falls between. To look whether something was told asks the
server nothing; a look costs a system call.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import pyarrow as pa

from windrow.catalog import TableDef
from windrow.catalog.lengths import seconds
from windrow.errors import SourceError, WindrowError
from windrow.sinks.pg import Listener, Postgres
from windrow.sources.bounded import ANY, read_formats, rows_given
from windrow.sources.casting import conform
from windrow.sources.numbered_rows import row_count, whole
from windrow.sources.options import SourceOptions
from windrow.sources.table_changes import KeyedTable, TableChange

FIRST_RETRY, LAST_RETRY = 1.0, 60.0
FILES, SERVERS = frozenset({"csv", "json", "parquet", ANY}), frozenset({"postgres", "postgresql"})


class TableSource(Protocol):
    """Something that can be read whole."""

    def read(self) -> pa.Table | None:
        """All rows, or None when nothing can have changed since the last read."""

    def changed(self) -> bool:
        """Whether the source itself says that it should be read again; most say nothing."""
        return False

    def close(self) -> None:
        """Let go of what is open; reading opens it again."""
        return None


@dataclass(frozen=True)
class Reading:
    """What a table holds, in runs (`sources/numbered_rows`), when this content was first seen, and since when reading
    it again fails."""

    parts: tuple[pa.Table, ...]
    version_us: int
    failing_since_us: int | None = None
    error: str | None = None

    @cached_property
    def table(self) -> pa.Table:
        """All rows."""
        return whole(self.parts)

    @property
    def rows(self) -> int:
        """How many there are."""
        return row_count(self.parts)


class LiveTable:
    """A table's newest known content; `current` reads again when the period has passed.

    `last`: what it held when it was last known, which stands in when the first reading fails.
    """

    def __init__(
        self,
        definition: TableDef,
        source: TableSource,
        every: float | None = None,
        clock: Callable[[], float] = time.time,
        last: pa.Table | None = None,
    ) -> None:
        self.definition = definition
        self.every = every
        self._source = source
        self._clock = clock
        self._failures = 0
        self._refused: pa.Table | None = None
        self._keyed: KeyedTable | None = None
        if last is None:
            found = self._read()  # without rows it still has columns
            empty = pa.schema(list(definition.columns.items())).empty_table()
            self.reading = Reading((empty if found is None else found,), self._now())
            self._schedule()
        else:
            self.reading = Reading((last,), self._now())
            self.refresh()

    def current(self) -> Reading:
        """The reading in force, after reading again if that is due or the source says so."""
        return self.refresh() if self._clock() >= self._due or self._source.changed() else self.reading

    def close(self) -> None:
        """Let go of what the source has open."""
        self._source.close()

    def refresh(self) -> Reading:
        """Read now; when that fails, the last reading stays in force and says since when."""
        try:
            table = self._read()
        except WindrowError as error:
            return self._failed(self.reading, error)
        if self._refused is None:
            self._failures = 0
        elif table is None:  # what was refused may be accepted by now
            table = self._refused
        self._refused = None
        same = table is None or table.equals(self.reading.table)
        kept = self.reading.version_us if same else self._now()
        self.reading = Reading(self.reading.parts if same else (table,), kept)
        self._schedule()
        return self.reading

    def refuse(self, before: Reading, error: WindrowError) -> None:
        """Let the reading before stay in force, since queries do not accept this one."""
        self._refused = self.reading.table
        self._failed(before, error)

    def _failed(self, before: Reading, error: WindrowError) -> Reading:
        self._failures += 1
        since = before.failing_since_us or self._now()
        self.reading = replace(before, failing_since_us=since, error=error.primary)
        self._due = self._clock() + min(LAST_RETRY, FIRST_RETRY * 2 ** (self._failures - 1))
        return self.reading

    def keyed(self) -> KeyedTable:
        """The rows by their keys, of a table that is told by its changes."""
        if self._keyed is None:
            self._keyed = KeyedTable(self.definition, self.reading.parts)
        return self._keyed

    def change(self, change: TableChange) -> None:
        """Let the table be what a change makes of it, from now on."""
        change.keep()
        self.reading = Reading(change.table.parts, self._now())

    def _read(self) -> pa.Table | None:
        try:
            found = self._source.read()
        except WindrowError:
            raise
        except Exception as error:
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise SourceError(f'cannot read table "{self.definition.name}": {said}') from error
        definition = self.definition
        return None if found is None else conform(
            found, f'table "{definition.name}"', definition.columns, definition.added
        )  # fmt: skip

    def _schedule(self) -> None:
        self._due = float("inf") if self.every is None else self._clock() + self.every

    def _now(self) -> int:
        return int(self._clock() * 1_000_000)


class FixedTable(TableSource):
    """Rows given once."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def read(self) -> pa.Table:
        return self._table


class FileTable(TableSource):
    """A file or a directory of files; read again only when a name, size or time of change differs."""

    def __init__(self, path: str, definition: TableDef) -> None:
        self._path, self._definition = path, definition
        self._seen: object = None

    def read(self) -> pa.Table | None:
        seen = _fingerprint(self._path)
        if seen == self._seen:
            return None
        table, _ = rows_given(self._definition.rows, self._path)
        self._seen = seen
        return table


class PostgresTable(TableSource):
    """A table or a query of a PostgreSQL server, which tells of changes on a channel if one is given."""

    def __init__(self, dsn: str, query: str, channel: str | None = None) -> None:
        self._postgres = Postgres(dsn)
        self._query, self._channel = query, channel
        self._listener: Listener | None = None
        self._missed = False  # nobody listened for a while

    def read(self) -> pa.Table:
        if self._channel is not None and self._listener is None:
            self._listener = self._postgres.listen(self._channel)  # first: what changes while we read is told
        try:
            return self._postgres.read(self._query)
        except BaseException:
            self.close()
            raise
        finally:
            self._missed = False  # whoever fails is tried again by the clock

    def changed(self) -> bool:
        told = self._missed if self._listener is None else self._listener.told()
        if told is None:
            self.close()
        return told is not False

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener, self._missed = None, True


def open_table(
    definition: TableDef,
    source: TableSource | None = None,
    clock: Callable[[], float] = time.time,
    last: pa.Table | None = None,
) -> LiveTable:
    """The live table of a declaration, read once; with `last`, what it held stands in for a source that is away."""
    if last is None:  # what is declared already goes on as it was
        check_table(definition)
    options = {k.lower(): str(v) for k, v in definition.options.items()}
    every = _period(options["every"]) if "every" in options else None
    return LiveTable(definition, source or _source(definition, options), every, clock, last)


def check_table(definition: TableDef) -> None:
    """Refuse options that the source of a table does not have."""
    options = SourceOptions(definition.rows)
    every = options.text("every")
    if every is not None:
        _period(every)
    if options.kind in FILES:
        options.need("path")
        read_formats(options)
    elif options.kind in SERVERS:
        options.need("dsn")
        for name in ("table", "query", "notify"):
            options.text(name)
    elif definition.options:
        raise _unknown_source(definition)
    options.finish()


def fixed(definition: TableDef, table: pa.Table) -> LiveTable:
    """A table whose rows were given, and change when others are given."""
    return LiveTable(definition, FixedTable(table))


def told(definition: TableDef, runs: Sequence[pa.Table]) -> LiveTable:
    """A table told by its changes that holds these runs: changes to come end rows by the numbers that they have here.

    One of other columns than the runs have begins with its rows anew.
    """
    rows = whole(runs)
    made = fixed(definition, rows)
    if made.reading.table.schema.equals(rows.schema):
        made.reading = replace(made.reading, parts=tuple(runs))
    return made


def _source(definition: TableDef, options: Mapping[str, str]) -> TableSource:
    kind = options.get("source", "").lower()
    if kind in FILES and options.get("path"):
        return FileTable(options["path"], definition)
    if kind in SERVERS and options.get("dsn"):
        from psycopg import sql

        table = options.get("table", definition.name)
        query = options.get("query") or sql.SQL("SELECT * FROM {}").format(sql.Identifier(*table.split("."))).as_string(
            None
        )
        return PostgresTable(options["dsn"], query, options.get("notify"))
    raise _unknown_source(definition)


def _unknown_source(definition: TableDef) -> SourceError:
    kind = definition.options.get("source", "")
    return SourceError(
        f'table "{definition.name}" has no source that windrow knows' + (f': "{kind}"' if kind else ""),
        hint="write FROM parquet (path => '...'), FROM postgres (dsn => '...', table => '...'), or give a DataFrame",
    )


def _period(text: str) -> float:
    """Seconds between two readings."""
    try:
        found = seconds(text)
    except ValueError:
        found = 0.0
    if found <= 0:
        raise SourceError(f"'{text}' is no period", hint="write for example '30 seconds' or '5 minutes'")
    return found


def _fingerprint(path: str) -> object:
    try:
        if os.path.isdir(path):
            entries = sorted(os.scandir(path), key=lambda e: e.name)
            return [(e.name, e.stat().st_size, e.stat().st_mtime_ns) for e in entries]
        found = os.stat(path)
        return (found.st_size, found.st_mtime_ns, found.st_ino)
    except OSError as error:
        raise SourceError(f"cannot read {path}", detail=str(error)) from error
