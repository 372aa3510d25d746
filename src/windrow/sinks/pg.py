"""Arrow and PostgreSQL, both ways, by COPY: whole columns are rendered and parsed, never rows.

Arrow types become the PostgreSQL types that hold all their values (a nested one becomes jsonb); PostgreSQL types
become Arrow types that do, or text. Times are read and written in UTC.
"""

from __future__ import annotations

import re
import selectors
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.errors import SourceError
from windrow.scalar_engine import connect, project
from windrow.sources.casting import conform

if TYPE_CHECKING:
    import psycopg

_PATIENCE: Mapping[str, Any] = {
    "connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}  # fmt: skip
"""How long to wait for a server, and for the network to it; seconds, and milliseconds."""

_FIXED: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint", pa.int16(): "smallint", pa.int32(): "integer", pa.int64(): "bigint",
    pa.uint8(): "smallint", pa.uint16(): "integer", pa.uint32(): "bigint", pa.uint64(): "numeric(20, 0)",
    pa.float16(): "real", pa.float32(): "real", pa.float64(): "double precision",
    pa.date32(): "date", pa.date64(): "date",
    pa.string(): "text", pa.large_string(): "text", pa.string_view(): "text", pa.null(): "text",
    pa.binary(): "bytea", pa.large_binary(): "bytea",
}  # fmt: skip

_BY_OID: Mapping[int, pa.DataType] = {
    16: pa.bool_(), 21: pa.int16(), 23: pa.int32(), 20: pa.int64(), 26: pa.int64(),
    700: pa.float32(), 701: pa.float64(),
    1082: pa.date32(), 1114: pa.timestamp("us"), 1184: pa.timestamp("us", "UTC"),
}  # fmt: skip
_NUMERIC_OID = 1700


class Postgres:
    """A server, by its connection string."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    def connect(self) -> psycopg.Connection:
        """A new connection, in UTC."""
        psycopg = driver()
        try:
            connection = psycopg.connect(self.dsn, **_PATIENCE, autocommit=True)
        except psycopg.ProgrammingError as error:  # the string itself does not parse
            raise SourceError("the PostgreSQL connection string is not valid", detail=_first(error)) from None
        connection.execute("SET TimeZone TO 'UTC'")
        connection.execute("SET DateStyle TO 'ISO, YMD'")
        return connection

    def read(self, query: str) -> pa.Table:
        """All rows of a query, as of one instant."""
        psycopg = driver()
        body = query.strip().rstrip(";")
        try:
            with self.connect() as connection, connection.cursor() as cursor:
                cursor.execute(f"SELECT * FROM ({body}) AS windrow_read LIMIT 0")
                names = [column.name for column in cursor.description or ()]
                types = [_arrow(column) for column in cursor.description or ()]
                with cursor.copy(f"COPY ({body}) TO STDOUT (FORMAT csv)") as copy:
                    data = b"".join(bytes(block) for block in copy)
        except psycopg.Error as error:
            raise SourceError(
                f"cannot read from PostgreSQL: {_first(error)}",
                detail=f"query: {body}",
                hint="check the connection string and that the server is up" if unreachable(error) else None,
            ) from None
        return conform(_parse(data, names), "PostgreSQL", dict(zip(names, types, strict=True)))

    def listen(self, channel: str) -> Listener:
        """Hear what is told on a channel from now on."""
        psycopg = driver()
        try:
            connection = self.connect()
            connection.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(channel)))
        except psycopg.Error as error:
            raise SourceError(
                f"cannot listen to PostgreSQL: {_first(error)}",
                hint="check the connection string and that the server is up" if unreachable(error) else None,
            ) from None
        return Listener(connection)


class Listener:
    """A connection that hears what is told on a channel."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def told(self) -> bool | None:
        """Whether something was told since the last look; None: the connection is lost."""
        found = False
        try:
            while _readable(self._connection.fileno()):  # a farewell, then the end
                found |= bool(list(self._connection.notifies(timeout=0)))
        except driver().Error:
            return None
        return found

    def close(self) -> None:
        """Hear no more."""
        self._connection.close()


def _readable(descriptor: int) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        return bool(selector.select(0))


def driver() -> Any:
    """The psycopg module; a clear error when it is not installed."""
    try:
        import psycopg
        import psycopg.sql
    except ImportError as error:
        raise SourceError(
            "PostgreSQL needs the psycopg package", detail=str(error), hint='pip install "windrow[postgres]"'
        ) from error
    return psycopg


def unreachable(error: BaseException) -> bool:
    """Whether trying again later may help: the server is away, busy or full; it did not refuse what was asked."""
    psycopg = driver()
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    return not re.search(r"authentication failed|no password|(database|role) .* does not exist", str(error))


def column_type(type_: pa.DataType) -> str:
    """The PostgreSQL type for a column.

    >>> column_type(pa.decimal128(38, 0)), column_type(pa.list_(pa.int64()))
    ('numeric(38, 0)', 'jsonb')
    """
    if type_ in _FIXED:
        return _FIXED[type_]
    if pa.types.is_decimal(type_):
        return f"numeric({type_.precision}, {type_.scale})"
    if pa.types.is_timestamp(type_):
        return "timestamp" if type_.tz is None else "timestamptz"
    if pa.types.is_time(type_):
        return "time"
    if pa.types.is_dictionary(type_):
        return column_type(type_.value_type)
    if pa.types.is_fixed_size_binary(type_):
        return "bytea"
    return "jsonb" if pa.types.is_nested(type_) else "text"


def render(table: pa.Table) -> pa.Buffer:
    """The rows of a table as the CSV that COPY reads: null is nothing, an empty text is ""."""
    from pyarrow import csv

    sink = pa.BufferOutputStream()
    plain = pa.table([_text(column) for column in table.columns], names=[str(i) for i in range(table.num_columns)])
    csv.write_csv(plain, sink, csv.WriteOptions(include_header=False, quoting_style="all_valid"))
    return sink.getvalue()


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in a form that CSV can carry and PostgreSQL reads."""
    type_ = column.type
    if pa.types.is_dictionary(type_):
        return _text(column.cast(type_.value_type))
    if pa.types.is_timestamp(type_):
        return column.cast(pa.timestamp("us", type_.tz), safe=False)
    if pa.types.is_nested(type_):
        return _scalar("CAST(to_json(v) AS VARCHAR)", column)
    if column_type(type_) == "bytea":
        return _scalar("'\\x' || hex(v)", column.cast(pa.binary()))
    if column_type(type_) == "text" and not pa.types.is_string(type_):
        return _scalar("CAST(v AS VARCHAR)", column)
    return column


def _scalar(expression: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    with connect() as connection:
        return project(connection, pa.table({"v": column}), f"{expression} AS v").column("v")


def _parse(data: bytes, names: list[str]) -> pa.Table:
    from pyarrow import csv

    if not data or not names:
        return pa.table({n: pa.array([], pa.string()) for n in names})
    convert = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parse = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=len(names) > 1)
    return csv.read_csv(
        pa.BufferReader(data), csv.ReadOptions(column_names=names), parse_options=parse, convert_options=convert
    )


def _arrow(column: psycopg.Column) -> pa.DataType:
    if column.type_code == _NUMERIC_OID:
        bounded = (
            column.precision is not None and column.precision <= 38 and 0 <= (column.scale or 0) <= column.precision
        )
        return pa.decimal128(column.precision, column.scale or 0) if bounded else pa.float64()
    return _BY_OID.get(column.type_code, pa.string())


def _first(error: BaseException) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__
