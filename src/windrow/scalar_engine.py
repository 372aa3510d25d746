"""The door to DuckDB, which gives every scalar its meaning: connections that can compute and do nothing else.

A connection comes with no file system, network, extension, secret, temporary file or Python variable within its reach,
in UTC, with a bound on its memory; its settings are locked before anyone gets it. Text is put to it as
one SELECT (`select`) or as expressions over an Arrow table (`project`), so there is no second statement, and its
catalog stays the one DuckDB came with. Names and texts enter SQL through `quote` and `literal` alone.

Cost: 25 ms for a connection, so they are kept (`cursor`: nothing); two microseconds to bound the time of a call.
"""

from __future__ import annotations

import atexit
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb

MEMORY = "4GB"
"""What DuckDB may hold for one connection: sorts and hash tables. Values in flight are bounded by `cql.value_sizes`."""
SECONDS, SECONDS_PER_ROW = 30.0, 1e-4
"""The time a call may take, with what each of its rows adds."""
IN_FLIGHT = 4_000_000
"""The characters and elements that one call may have in flight, if one row alone does not make more."""

_AT_BIRTH = {
    "memory_limit": MEMORY,
    "temp_directory": "",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_extension_repositories": "forbidden",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    "python_scan_all_frames": "false",
}
_BEFORE_USE = (
    "GLOBAL TimeZone = 'UTC'",
    "GLOBAL Calendar = 'gregorian'",
    "enable_progress_bar = false",
    "GLOBAL error_on_division_by_zero = false",  # null: one empty window is no reason to end a query
)
_NOTED = re.compile(r"/\*\+ (\d{1,12}) \*/ ")
_LAST = ("enable_external_access = false", "lock_configuration = true")


def quote(name: str) -> str:
    """An identifier in SQL.

    >>> quote('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text in SQL.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def connect(
    *, directory: str | None = None, file: str | None = None, threads: int | None = 1
) -> duckdb.DuckDBPyConnection:
    """A connection with a catalog of its own; it reaches `directory` and `file`, if given, and nothing else.

    `threads`: None for as many as there are cores, where no task competes for them.
    """
    import duckdb

    connection = duckdb.connect(":memory:", config=_AT_BIRTH if threads is None else {**_AT_BIRTH, "threads": threads})
    reach = []
    if directory is not None:
        reach.append(f"allowed_directories = [{literal(os.path.join(directory, ''))}]")
    if file is not None:
        reach.append(f"allowed_paths = [{literal(file)}]")
    for setting in (*_BEFORE_USE, *reach, *_LAST):
        connection.execute(f"SET {setting}")
    return connection


def cursor() -> duckdb.DuckDBPyConnection:
    """A connection for statements of our own, on a database that this process keeps for them, with all its cores."""
    return _shared(os.getpid()).cursor()


@lru_cache(maxsize=1)
def _shared(process: int) -> duckdb.DuckDBPyConnection:
    return connect(threads=None)  # after a fork the threads of the parent's database are gone


@contextmanager
def binding() -> Iterator[duckdb.DuckDBPyConnection]:
    """The connection that this process asks what expressions mean, for one thread at a time."""
    with _BINDING:
        connection = _binder(os.getpid())
        with bounded(connection):
            yield connection


_BINDING = threading.RLock()


@lru_cache(maxsize=1)
def _binder(process: int) -> duckdb.DuckDBPyConnection:
    return connect()


@lru_cache(maxsize=512)
def type_name(type_: pa.DataType) -> str | None:
    """DuckDB's name of an Arrow type; None for a type that it does not have.

    >>> type_name(pa.int64()), type_name(pa.null()), type_name(pa.float16())
    ('BIGINT', '"NULL"', None)
    """
    import duckdb

    try:
        with binding() as connection:
            return str(connection.from_arrow(pa.table({"c": pa.nulls(1, type_)})).types[0])
    except (duckdb.Error, pa.ArrowException):
        return None


def select(connection: duckdb.DuckDBPyConnection, text: str) -> duckdb.DuckDBPyRelation:
    """The relation of one SELECT; any other statement, or a second one, is refused."""
    import duckdb

    statements = connection.extract_statements(text)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise duckdb.ParserException("expected one SELECT")
    return connection.sql(text)


def noted(made: int) -> str:
    """What an expression begins with whose parts make much of one row: how much, in a comment."""
    return f"/*+ {made} */ "


def made(sql: str) -> int:
    """How much is made of one row by the expressions in a text that say so.

    >>> made(f"{noted(90000)}REPEAT(n, 900), {noted(5000)}f(n)")
    95000
    """
    return sum(int(n) for n in _NOTED.findall(sql)) if "/*+" in sql else 0


def shown(sql: str) -> str:
    """An expression as it is shown: without what it says to whoever evaluates it."""
    return _NOTED.sub("", sql)


def project(connection: duckdb.DuckDBPyConnection, source: pa.Table, items: str) -> pa.Table:
    """A list of expressions over the rows of a table, in their order."""
    if much := made(items):
        source = pa.Table.from_batches(source.to_batches(max_chunksize=max(1, IN_FLIGHT // much)), source.schema)
    # a projection is bound once; a query by name is parsed and bound twice
    with bounded(connection, source.num_rows):
        return connection.from_arrow(source).project(items).to_arrow_table()


def reason(error: BaseException | str) -> str:
    """What DuckDB says in one line, without its kind and without advice on settings that nobody can change.

    >>> reason("Binder Error: No function matches the given name and argument types 'sum(VARCHAR)'. You might\\nx")
    "no function matches the given name and argument types 'sum(VARCHAR)'"
    >>> reason("INTERRUPT Error: Interrupted!")
    'it took too long'
    """
    line = re.sub(r"^[\w ]+ Error: ", "", str(error).strip()).split("\n", 1)[0]
    line = re.split(r"(?<=[\w')\"!])\. ", line, maxsplit=1)[0].rstrip(".!")
    if line == "Interrupted":
        return "it took too long"
    line = line.replace("INTEGER_LITERAL", "INTEGER").replace("STRING_LITERAL", "VARCHAR")
    return line[:1].lower() + line[1:]


def way_out(said: str) -> str | None:
    """What to write instead of an expression that fails on some rows.

    >>> way_out("overflow in addition of INT64")
    'CAST to a wider type such as HUGEINT or DOUBLE before computing, or write TRY(...) for null'
    """
    if "overflow" in said or "out of range" in said:
        return "CAST to a wider type such as HUGEINT or DOUBLE before computing, or write TRY(...) for null"
    if "onver" in said or "cast" in said or "could not parse" in said:
        return "write TRY_CAST(... AS type) for null where a value does not fit"
    return None


@contextmanager
def bounded(connection: duckdb.DuckDBPyConnection, rows: int = 0) -> Iterator[None]:
    """Interrupt what the connection does when it takes longer than a call with so many rows may."""
    key = _watch.enter(connection, SECONDS + SECONDS_PER_ROW * rows)
    try:
        yield
    finally:
        _watch.leave(key)


class _Watch:
    """One thread per process that looks every second for calls past their time. It starts with the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[int, tuple[duckdb.DuckDBPyConnection, float]] = {}
        self._next = 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def enter(self, connection: duckdb.DuckDBPyConnection, seconds: float) -> int:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="windrow-scalar-time", daemon=True)
                self._thread.start()
            self._next += 1
            self._running[self._next] = (connection, time.monotonic() + seconds)
            return self._next

    def leave(self, key: int) -> None:
        with self._lock:  # so that no interrupt reaches the call after this one
            self._running.pop(key, None)

    def end(self) -> None:
        """Let the thread go before the process takes its modules apart: its frame would keep connections alive."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(1):
            self._interrupt(time.monotonic())  # a call of its own: between looks no connection is held

    def _interrupt(self, now: float) -> None:
        with self._lock:
            for connection, end in self._running.values():
                if now > end:
                    connection.interrupt()


_watch = _Watch()
atexit.register(lambda: _watch.end())
atexit.register(_shared.cache_clear)  # a connection that modules end with is reported as leaked
atexit.register(_binder.cache_clear)
os.register_at_fork(after_in_child=lambda: _watch.__init__())  # type: ignore[misc]  # threads do not survive a fork
