"""The data of a replay as the oracle holds it: rows in order of time, late ones gone, and a DuckDB to ask.

A stream without WITHIN is taken in the order of its times. With it, a row is late when its time is more than the slack
behind the greatest time that arrived before it on its stream; rows after the end judge nobody.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb
import pyarrow as pa

from windrow.testing.aggregates import TOP_K, VARIANCES
from windrow.testing.blocks import quote
from windrow.testing.lifetimes import FOREVER
from windrow.testing.script import OracleDeclaration
from windrow.testing.summaries import FREQUENT
from windrow.testing.summaries import FUNCTIONS as SUMMARIES

Row = tuple[Any, ...]
Functions = Mapping[str, tuple[Callable[..., Any], str]]
Version = tuple[int, pa.Table]
"""A table from an instant on."""

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

_kept: list[duckdb.DuckDBPyConnection] = []
_lock = threading.Lock()


@contextmanager
def connected(functions: Functions) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB with nothing left of an earlier call: opening one costs more than a small replay, so one is kept."""
    with _lock:
        connection = _kept.pop() if _kept and not functions else _connect()
        try:
            for name, (function, returns) in functions.items():
                connection.create_function(
                    name, _arrays(function), None, returns, type="arrow", null_handling="special"
                )
            # Not a transaction that is rolled back: a statement that fails to bind would end it, and one may.
            connection.execute("CREATE SCHEMA scratch; USE scratch")
            yield connection
            connection.execute("USE main; DROP SCHEMA scratch CASCADE")
        except BaseException:
            connection.close()
            raise
        if functions or _kept:
            connection.close()
        else:
            _kept.append(connection)


def _connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")  # a time without a zone is in UTC, whatever the machine
    connection.execute("SET error_on_division_by_zero = false")  # an integer divided by zero is null
    connection.execute("SET lambda_syntax = 'ENABLE_SINGLE_ARROW'")  # x -> x + 1, as well as lambda x: x + 1
    connection.execute("PRAGMA disable_optimizer")  # planning is most of the cost of a small query
    connection.execute(TOP_K)
    for name, function in VARIANCES.items():
        connection.create_function(
            name, function, ["DOUBLE[]"], "DOUBLE", type="arrow", null_handling="special"
        )  # fmt: skip
    for name, (summary, returns) in SUMMARIES.items():
        connection.create_function(name, summary, None, returns, type="arrow", null_handling="special")
    connection.execute(FREQUENT)
    return connection


def rows_of(table: pa.Table) -> list[Row]:
    """The rows, through Arrow: among DuckDB's own Python values intervals have lost their months."""
    return list(zip(*(c.to_pylist() for c in table.columns), strict=True))


def _arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as DuckDB calls it: chunked arrays in, one array out."""

    def call(*columns: pa.ChunkedArray) -> pa.Array:
        result = function(*(pa.concat_arrays(c.chunks) if isinstance(c, pa.ChunkedArray) else c for c in columns))
        return result if isinstance(result, pa.Array | pa.ChunkedArray) else pa.array(result)

    return call


@dataclass
class GivenStream:
    """A stream's rows that take part (late ones are gone), in order of time and arrival, and their times."""

    names: list[str]
    types: list[str]
    rows: list[Row]
    times: list[int]
    time: str | None = None
    time_type: pa.DataType = field(default_factory=pa.int64)
    append_only: bool = False  # a relation all the same: what INTERNAL windows give

    def up_to(self, until: int | None) -> GivenStream:
        """The stream without the rows after `until`."""
        kept = sum(until is not None and t <= until for t in self.times)
        return replace(self, rows=self.rows[:kept], times=self.times[:kept])


def _conform(
    connection: duckdb.DuckDBPyConnection, declared: OracleDeclaration | None, data: pa.Table | None
) -> pa.Table:
    """The data with the declared columns and types."""
    if declared is None:
        assert data is not None
        return data
    if data is None:
        columns = ", ".join(f"CAST(NULL AS {type_}) AS {quote(name)}" for name, type_ in declared.columns.items())
        return connection.sql(f"SELECT {columns} LIMIT 0").to_arrow_table()
    connection.register("__given", data)
    columns = ", ".join(f"CAST({quote(n)} AS {t}) AS {quote(n)}" for n, t in declared.columns.items())
    return connection.sql(f"SELECT {columns} FROM __given").to_arrow_table()


def _time_column(declared: OracleDeclaration | None, schema: pa.Schema, stream: str) -> str:
    if declared is not None and declared.time is not None:
        return next(n for n in schema.names if n.lower() == (declared.time or "").lower())
    named = [n for n in schema.names if n.lower() == "ts"]
    stamps = [f.name for f in schema if pa.types.is_timestamp(f.type)]
    if named or len(stamps) == 1:
        return (named or stamps)[0]
    raise ValueError(f"stream {stream} has no time column")


def load_stream(
    connection: duckdb.DuckDBPyConnection,
    declared: OracleDeclaration | None,
    name: str,
    data: pa.Table | None,
    until: int | None,
) -> GivenStream:
    table = _conform(connection, declared, data)
    time, time_type, times = row_times(declared, name, table)
    connection.register("__given", table)
    relation = connection.sql("SELECT * FROM __given")
    rows = rows_of(relation.to_arrow_table())
    slack = declared.slack if declared is not None else None
    kept, greatest = [], -FOREVER
    for position, ts in enumerate(times):
        if until is not None and ts > until:  # it is not seen, and judges nobody
            continue
        if slack is None or ts >= greatest - slack:
            kept.append(position)
        greatest = max(greatest, ts)
    kept.sort(key=lambda position: times[position])  # stable: equal times keep their arrival order
    types = [str(t) for t in relation.types]
    return GivenStream(
        list(table.schema.names), types, [rows[p] for p in kept], [times[p] for p in kept], time, time_type
    )


def row_times(declared: OracleDeclaration | None, name: str, table: pa.Table) -> tuple[str, pa.DataType, list[int]]:
    """A stream's time column, the type it is answered in, and its times in ticks or microseconds."""
    time = _time_column(declared, table.schema, name)
    time_type = table.schema.field(time).type
    is_time = pa.types.is_timestamp(time_type)
    time_type = pa.timestamp("us", time_type.tz) if is_time else pa.int64()
    times = table[time].cast(time_type).cast(pa.int64()).to_pylist()
    if None in times:
        raise ValueError(f"row {times.index(None)} of stream {name} has no time")
    return time, time_type, times


def load_table(
    connection: duckdb.DuckDBPyConnection, declared: OracleDeclaration | None, name: str, versions: Sequence[Version]
) -> None:
    """A table, with the instants from and up to which each of its versions is there."""
    ends = [*(since for since, _ in versions[1:]), FOREVER]
    for i, ((since, data), end) in enumerate(zip(versions, ends, strict=True)):
        if declared is not None and declared.changes:
            data = _after_changes(connection, declared, data)
        connection.register("__given", _conform(connection, declared, data))
        put = f"INSERT INTO {table_name(name)}" if i else f"CREATE TABLE {table_name(name)} AS"
        connection.execute(f"{put} SELECT *, {since}::HUGEINT AS __from, {end}::HUGEINT AS __to FROM __given")


def table_name(name: str) -> str:
    """Where a table's rows are."""
    return quote("__table_" + name)


_TAKEN = "('d', 'delete', '-d', '-u')"
_EMPTIED = "('t', 'truncate')"


def _after_changes(connection: duckdb.DuckDBPyConnection, declared: OracleDeclaration, changes: pa.Table) -> pa.Table:
    """What a table holds after changes: of every key the last row that was put and not taken away again."""
    connection.register("__given", changes.append_column("__at", pa.array(range(changes.num_rows), pa.int64())))
    op, images = f"lower(trim({declared.changes[0]}))", declared.changes[1:]
    events = f"""
        SELECT {", ".join(map(quote, declared.columns))}, __at, {op} IN {_TAKEN} AS __gone
        FROM __given WHERE {op} NOT IN {_EMPTIED}"""
    if images:
        before, after = (", ".join(f"{i}.{quote(n)} AS {quote(n)}" for n in declared.columns) for i in images)
        there = " AND ".join(f"{images[0]}.{quote(k)} IS NOT NULL" for k in declared.key)
        events = f"""
            SELECT {before}, 2 * __at AS __at, TRUE AS __gone FROM __given WHERE {op} NOT IN {_EMPTIED} AND {there}
            UNION ALL
            SELECT {after}, 2 * __at + 1, FALSE FROM __given WHERE {op} NOT IN {_EMPTIED} AND {op} NOT IN {_TAKEN}"""
    each = 2 if images else 1
    return connection.sql(f"""
        SELECT * EXCLUDE (__at, __gone) FROM (
            SELECT * FROM ({events})
            WHERE __at > coalesce((SELECT {each} * max(__at) FROM __given WHERE {op} IN {_EMPTIED}), -1)
            QUALIFY row_number() OVER (PARTITION BY {", ".join(map(quote, declared.key))} ORDER BY __at DESC) = 1
        ) WHERE NOT __gone ORDER BY __at""").to_arrow_table()


def end_of_clock(until: int | datetime.datetime | None, streams: Iterable[GivenStream]) -> int | None:
    if isinstance(until, datetime.datetime):
        moment = until if until.tzinfo else until.replace(tzinfo=datetime.UTC)
        return (moment - EPOCH) // datetime.timedelta(microseconds=1)
    if until is not None:
        return int(until)
    return max((s.times[-1] for s in streams if s.times), default=None)
