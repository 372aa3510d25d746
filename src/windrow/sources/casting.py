"""Columns to the types a schema declares, and text columns to the types their values show.

Law: a cast of input data loses nothing that the reader would miss. Text becomes what DuckDB says it is, except that a
fraction is not an integer; other values are cast safely. The first value that does not fit is named by column, row and
value. Cost: one vectorised pass per column; naming a value that does not fit costs a logarithmic number more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from windrow.errors import SourceError
from windrow.scalar_engine import cursor, literal, project, quote, type_name

INTEGER = r"\s*[+-]?\d+\s*"
EPOCHS = {"epoch_s": "1000000", "epoch_ms": "1000", "epoch_us": "1", "epoch_ns": "0.001"}
"""Formats of times that are numbers, by the microseconds of one: since 1970, in UTC."""
OFFSET = r".*\d\d:\d\d.*(Z|UTC|[+-]\d\d(:?\d\d)?)\s*"


NUMBERS = "a source reads numbers as times with timestampFormat => 'epoch_ms' (or epoch_s, epoch_us, epoch_ns)"
OTHER_TIMES = "a source reads others with timestampFormat => 'dd.MM.yyyy HH:mm'"


def conform(table: pa.Table, what: str, schema: Mapping[str, pa.DataType], added: Collection[str] = ()) -> pa.Table:
    """The declared columns of `table`, in the declared order, cast to the declared types; others are left out.

    Those that were `added` to the declaration are null where they are missing.
    """
    exact = set(table.column_names)
    folded = {n.lower(): n for n in reversed(table.column_names)}
    columns = []
    for name, type_ in schema.items():
        source = name if name in exact else folded.get(name.lower())
        if source is None and name in added:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, type_)]))
            continue
        if source is None:
            found = ", ".join(table.column_names) or "none"
            raise SourceError(f'{what}: the data has no column "{name}"', detail=f"its columns are: {found}")
        columns.append(cast_column(table.column(source), type_, name, what))
    return pa.table(columns, names=list(schema))


def cast_column(column: pa.ChunkedArray, type_: pa.DataType, name: str, what: str) -> pa.ChunkedArray:
    """Cast one column, or raise a SourceError that names the first row (from 1) whose value does not fit."""
    if column.type.equals(type_):
        return column
    if pa.types.is_null(column.type):
        return pa.chunked_array([pa.nulls(len(column), type_)], type_)
    _check_meaning(column.type, type_, name, what)
    if pa.types.is_string(column.type) and not pa.types.is_string(type_):
        cast = _parse(column, type_)
        unfit = pc.and_(pc.is_valid(column), pc.is_null(cast))
        row = pc.index(unfit, True).as_py()
        if row < 0:
            return cast
        raise _unfit(column, row, type_, name, what)
    options = _options(column.type, type_)
    try:
        return column.cast(options=options)
    except pa.ArrowInvalid:
        raise _unfit(column, _first_unfit(column, options), type_, name, what) from None
    except pa.ArrowNotImplementedError as error:
        raise SourceError(
            f'{what}: column "{name}" is {told_apart(column.type, type_)}, not {sql_name(type_)}', detail=str(error)
        ) from None


def try_parse(column: pa.ChunkedArray, type_: pa.DataType, form: str | None = None) -> pa.ChunkedArray:
    """Text to a type, null where it does not fit; `form` is a strptime format for times and dates, or of `EPOCHS`.

    >>> try_parse(pa.chunked_array([["1.5", "-1", "x"]]), pa.timestamp("us"), "epoch_s").cast(pa.int64()).to_pylist()
    [1500000, -1000000, None]
    """
    if column.type.equals(type_):
        return column
    if form is None:
        return _parse(column, type_)
    if form in EPOCHS:
        micros = f"TRY_CAST(floor(TRY_CAST(v AS DECIMAL(30, 6)) * {EPOCHS[form]}) AS BIGINT) AS v"
        with cursor() as engine:
            return project(engine, pa.table({"v": column}), micros).column("v").cast(pa.timestamp("us")).cast(type_)
    with cursor() as engine:
        items = f"try_strptime(v, {literal(form)}) AS v"
        parsed = project(engine, pa.table({"v": column}), items).column("v")
    return parsed.cast(pa.timestamp("us", getattr(type_, "tz", None))).cast(type_, safe=False)


def fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of `found` is a value of `wanted`: the same kind, and not narrower.

    >>> fits(pa.int32(), pa.int64()), fits(pa.int64(), pa.int32()), fits(pa.string(), pa.int64())
    (True, False, False)
    """
    kinds = pa.types
    if found == wanted or kinds.is_null(found):
        return True
    if kinds.is_integer(wanted):
        if kinds.is_unsigned_integer(found) == kinds.is_unsigned_integer(wanted):
            return kinds.is_integer(found) and bool(found.bit_width <= wanted.bit_width)
        return kinds.is_unsigned_integer(found) and bool(found.bit_width < wanted.bit_width)
    if kinds.is_floating(wanted):
        return kinds.is_floating(found) and bool(found.bit_width <= wanted.bit_width)
    if kinds.is_decimal(wanted):
        whole = wanted.precision - wanted.scale
        if kinds.is_integer(found):
            long = 20 if kinds.is_unsigned_integer(found) else 19
            return bool(whole >= {8: 3, 16: 5, 32: 10, 64: long}[found.bit_width])
        return kinds.is_decimal(found) and bool(found.scale <= wanted.scale and found.precision - found.scale <= whole)
    if kinds.is_time32(found):
        return bool(kinds.is_time(wanted))
    same = (kinds.is_timestamp, kinds.is_date, is_text, is_bytes, kinds.is_nested)
    return any(check(found) and check(wanted) for check in same)


def is_text(type_: pa.DataType) -> bool:
    """Whether values are strings, however they are laid out."""
    return pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_)


def is_bytes(type_: pa.DataType) -> bool:
    """Whether values are byte strings, however they are laid out."""
    binary = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    return any(check(type_) for check in binary)


def infer_types(table: pa.Table) -> pa.Table:
    """Type a table of text columns: integer, double, boolean, date or timestamp where every value is one.

    >>> infer_types(pa.table({"a": ["1", "2"], "b": ["1", "2.5"], "c": ["x", None]})).schema.types
    [DataType(int64), DataType(double), DataType(string)]
    """
    return pa.table([_infer(c) for c in table.itercolumns()], names=table.column_names) if table.num_columns else table


def _infer(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if column.null_count == len(column):
        return column
    counts = _count_fits(column)
    values = len(column) - column.null_count
    for type_ in (pa.int64(), pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("us", "UTC")):
        if counts[str(type_)] == values:
            if pa.types.is_timestamp(type_) and not counts["offset"]:
                type_ = pa.timestamp("us")
            return _parse(column, type_)
    return column


def _count_fits(column: pa.ChunkedArray) -> dict[str, int]:
    """How many values read as each candidate type."""
    fits = {
        pa.int64(): f"TRY_CAST(v AS BIGINT) IS NOT NULL AND regexp_full_match(v, {literal(INTEGER)})",
        pa.float64(): "TRY_CAST(v AS DOUBLE) IS NOT NULL",
        pa.bool_(): "lower(v) IN ('true', 'false')",
        pa.date32(): "regexp_full_match(v, '\\d{4}-\\d\\d-\\d\\d') AND TRY_CAST(v AS DATE) IS NOT NULL",
        pa.timestamp("us", "UTC"): "TRY_CAST(v AS TIMESTAMPTZ) IS NOT NULL",
    }
    counts = [f"count(*) FILTER (WHERE {p}) AS {quote(str(t))}" for t, p in fits.items()]
    counts.append(f'count(*) FILTER (WHERE regexp_full_match(v, {literal(OFFSET)})) AS "offset"')
    with cursor() as engine:
        found = engine.from_arrow(pa.table({"v": column})).aggregate(", ".join(counts)).to_arrow_table()
    row: dict[str, int] = found.to_pylist()[0]
    return row


def _parse(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Text to `type_` as DuckDB reads it, null where it does not."""
    # A plain TIMESTAMP cast would drop the offset that a text carries; through TIMESTAMPTZ it counts.
    via = pa.timestamp("us", "UTC") if pa.types.is_timestamp(type_) else type_
    value = f"CASE WHEN regexp_full_match(v, {literal(INTEGER)}) THEN v END" if pa.types.is_integer(type_) else "v"
    with cursor() as engine:
        target = engine.from_arrow(pa.table({"v": pa.array([], via)})).types[0]
        parsed = project(engine, pa.table({"v": column}), f"TRY_CAST({value} AS {target}) AS v").column("v")
    return parsed.cast(type_)


def _check_meaning(source: pa.DataType, type_: pa.DataType, name: str, what: str) -> None:
    """Refuse casts that have no one meaning: a number as a time has no unit."""
    if pa.types.is_temporal(type_) and (pa.types.is_integer(source) or pa.types.is_floating(source)):
        raise SourceError(
            f'{what}: column "{name}" holds numbers ({sql_name(source)}), and is declared {sql_name(type_)}',
            hint=f"declare it BIGINT to use plain ticks, or convert it to timestamps first; {NUMBERS}",
        )


def _options(source: pa.DataType, type_: pa.DataType) -> pc.CastOptions:
    """Safe, but an integer may become the nearest float, and time may lose what is finer than its unit."""
    return pc.CastOptions(
        type_,
        allow_time_truncate=pa.types.is_timestamp(source),
        allow_float_truncate=pa.types.is_integer(source) and pa.types.is_floating(type_),
    )


def _first_unfit(column: pa.ChunkedArray, options: pc.CastOptions) -> int:
    """The index of the first value that cannot be cast, by bisection."""
    low, high = 0, len(column)  # casting column[:low] works, casting column[:high] does not
    while high - low > 1:
        middle = (low + high) // 2
        try:
            column.slice(low, middle - low).cast(options=options)
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low


def _unfit(column: pa.ChunkedArray, row: int, type_: pa.DataType, name: str, what: str) -> SourceError:
    value = column[row].as_py()
    hint = f'fix the value, or declare "{name}" with a type that holds it'
    if pa.types.is_timestamp(type_):
        digits = isinstance(value, str) and value.strip().lstrip("-").isdecimal()
        hint = NUMBERS if digits else f"times are ISO 8601 (2024-01-31 12:00:00); {OTHER_TIMES}"
    return SourceError(f'{what}: column "{name}", row {row + 1}: {value!r} is not {sql_name(type_)}', hint=hint)


def told_apart(found: pa.DataType, wanted: pa.DataType) -> str:
    """The name of a type that is not the wanted one: Arrow's if SQL has one name for both.

    >>> told_apart(pa.duration("us"), pa.month_day_nano_interval())
    'duration[us]'
    """
    name = sql_name(found)
    return name if name != sql_name(wanted) else str(found)


@cache
def sql_name(type_: pa.DataType) -> str:
    """The name by which one declares a type, where it has one.

    >>> sql_name(pa.timestamp("us")), sql_name(pa.float64()), sql_name(pa.null())
    ('TIMESTAMP', 'DOUBLE', 'NULL')
    """
    return "NULL" if pa.types.is_null(type_) else type_name(type_) or str(type_)
