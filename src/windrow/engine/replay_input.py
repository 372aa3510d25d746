"""What a replay is given for streams and tables, as rows; what is malformed is set aside where they say so.

Data in memory are taken as `Engine.push` takes them, paths as a live source reads its files (`sources/bounded`).
Invariant: a declaration means the same here as live, and is refused here if it is there. Cost: one pass over the data;
with `staging` tasks read paths.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from windrow.catalog import StreamDef, TableDef
from windrow.errors import SourceError
from windrow.runtime.tables import check_table
from windrow.sources.aside import Aside, timed_rows
from windrow.sources.bounded import check_options, rows_given
from windrow.sources.intake import Arrivals, arrivals
from windrow.sources.staging import StagedRows, Staging
from windrow.sources.table_changes import changed

Given = Mapping[str, tuple[str, Any]]
"""Data by lower-case name, with the name as it was given."""


def stream_rows(stream: StreamDef, data: Given, until: int | None, staging: Staging | None) -> Arrivals | StagedRows:
    """The rows of a stream, and what is set aside."""
    if stream.name.lower() not in data:
        raise SourceError(
            f'stream "{stream.name}" has no data',
            hint=f"pass it to run: streams={{'{stream.name}': table or path}}; by command, --stream {stream.name}=PATH",
        )
    given = data[stream.name.lower()][1]
    check_options(stream)
    if staging is not None and isinstance(given, str | os.PathLike):
        return staging.path(stream, os.fspath(given), until)
    table, unread = rows_given(stream, given)
    aside = Aside(stream.name)
    table = timed_rows(stream, table, aside if stream.quarantine else None)
    found = replace(arrivals(stream, table, until), aside=pa.concat_tables([unread, aside.table()]))
    return found if staging is None else staging.table(stream, found)


def table_rows(table: TableDef, data: Given) -> tuple[pa.Table, pa.Table]:
    """What a table holds, all changes of it applied, and those that are set aside."""
    if table.name.lower() not in data:
        raise SourceError(
            f'table "{table.name}" has no data',
            hint=f"pass it to run: tables={{'{table.name}': table or path}}; by command, --table {table.name}=PATH",
        )
    given = data[table.name.lower()][1]
    if table.changes is None:
        check_table(table)
        return rows_given(table.rows, given)
    check_options(table.change_stream)
    empty = pa.schema(list(table.columns.items())).empty_table()
    changes, unread = rows_given(table.change_stream, given)
    aside = Aside(table.name)
    rows = changed(table, empty, changes, aside if table.quarantine else None)
    return rows, pa.concat_tables([unread, aside.table()])
