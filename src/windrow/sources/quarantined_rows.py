"""What is set aside of a stream that is declared ON ERROR QUARANTINE: rows and files that cannot be read, and why."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.sources.intake import too_far
from windrow.sources.protocol import MalformedRow

SCHEMA = pa.schema([("file", pa.string()), ("position", pa.string()), ("reason", pa.string()), ("text", pa.string())])
NOTHING = SCHEMA.empty_table()
"""No rows, made once: to make it costs as much as a tenth of a push."""

MOST = 100_000
"""Malformed rows in one task and tick beyond which this is not the declared format, and the stream stops."""

_POSITION = re.compile(r"(?P<file>.*), (?P<position>(?:line|row|offset|byte|message)s? \d.*)", re.S)


class QuarantinedRows:
    """Collects what a task cannot read."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self.rows: list[MalformedRow] = []

    def __call__(self, row: MalformedRow) -> None:
        if len(self.rows) >= MOST:
            raise _too_many(self._stream, f"{row.where}: {row.why}")
        self.rows.append(row)

    def table(self) -> pa.Table:
        """What was collected."""
        return quarantined(self.rows)


def check_few(stream: str, rows: pa.Table) -> None:
    """Refuse more rows of one file than a task sets aside, whatever tasks have read of it."""
    counts = rows.group_by("file").aggregate([([], "count_all")]).column("count_all")
    if rows.num_rows > MOST and pc.max(counts).as_py() > MOST:
        last = rows.slice(rows.num_rows - 1).to_pylist()[0]
        raise _too_many(stream, f"{last['file']}: {last['reason']}")


def _too_many(stream: str, last: str) -> SourceError:
    return SourceError(
        f'stream "{stream}": more than {MOST:,} rows of one tick cannot be read',
        detail=f"the last one: {last}",
        hint="this does not look like the declared format; declare the stream as it is, or remove the file",
    )


def quarantined(rows: Sequence[MalformedRow]) -> pa.Table:
    """Malformed rows as a table.

    >>> quarantined([MalformedRow("a.csv, line 3", "not a number", "1;x")]).to_pylist()
    [{'file': 'a.csv', 'position': 'line 3', 'reason': 'not a number', 'text': '1;x'}]
    """
    split = [_POSITION.fullmatch(row.where) for row in rows]
    columns = [
        [found["file"] if found else row.where for row, found in zip(rows, split, strict=True)],
        [found["position"] if found else None for found in split],
        [row.why for row in rows],
        [row.text or None for row in rows],
    ]
    return pa.table(columns, schema=SCHEMA)


def quarantine_summary(rows: pa.Table, name: str) -> str:
    """How much of a stream, or of a table's changes, was set aside, and why the first of it was.

    >>> quarantine_summary(quarantined([MalformedRow("a.csv, line 3", "not a number", "1;x")]), "s")
    '1 row of s cannot be read; a.csv, line 3: not a number'
    """
    first = rows.slice(0, 1).to_pylist()[0]
    where = ", ".join(part for part in (first["file"], first["position"]) if part)
    why = f"{where}: {first['reason']}" if where else first["reason"]
    return f"{rows.num_rows} row{'s' if rows.num_rows > 1 else ''} of {name} cannot be read; {why}"


def timed_rows(definition: StreamDef, table: pa.Table, aside: QuarantinedRows | None) -> pa.Table:
    """The rows that have a time that can be; others are set aside by whoever knows no place of theirs."""
    if aside is None or not _is_clock(definition.time_type):  # changes of a table have an operation instead
        return table
    if table.column(definition.time).null_count:
        without = table.column(definition.time).is_null()
        table = _set_aside(table, without, f"column {definition.time} is NULL", aside)
    far = too_far(definition, table)
    return (
        _set_aside(table, pa.array(far), f"column {definition.time} is too far from zero", aside)
        if far.any()
        else table
    )


def _is_clock(type_: pa.DataType) -> bool:
    return pa.types.is_integer(type_) or pa.types.is_timestamp(type_) or pa.types.is_date(type_)


def _set_aside(table: pa.Table, which: pa.Array | pa.ChunkedArray, why: str, aside: QuarantinedRows) -> pa.Table:
    for row in table.filter(which).to_pylist():
        aside(MalformedRow("", why, json.dumps(row, default=str)))
    return table.filter(pc.invert(which))
