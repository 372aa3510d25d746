"""The door to DuckDB, which gives every scalar its meaning: connections that can compute and do nothing else.

A connection comes with no file system, network, extension, secret, temporary file or Python variable within its reach,
in UTC, with a bound on its memory; its settings are locked before anyone gets it, so no text can change them. Names and
texts enter SQL through `quote` and `literal` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

MEMORY = "4GB"
"""What DuckDB may hold for one connection: sorts and hash tables."""

_AT_BIRTH: dict[str, str | int] = {
    "memory_limit": MEMORY,
    "temp_directory": "",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    "python_scan_all_frames": "false",
    "threads": 1,
}
_BEFORE_USE = ("GLOBAL TimeZone = 'UTC'", "GLOBAL Calendar = 'gregorian'", "enable_progress_bar = false")
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


def connect() -> duckdb.DuckDBPyConnection:
    """A connection with a catalog of its own that reaches nothing outside."""
    import duckdb

    connection = duckdb.connect(":memory:", config=_AT_BIRTH)
    for setting in (*_BEFORE_USE, *_LAST):
        connection.execute(f"SET {setting}")
    return connection
