"""What a replay is given for streams and tables, as rows; what is malformed is set aside where they say so.

Data in memory are taken as `Engine.push` takes them, paths as a live source reads its files (`sources/bounded`).
Invariant: a declaration means the same here as live, and is refused here if it is there. Cost: one pass over the data;
with `staging` tasks read paths.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from windrow.catalog import StreamDef, TableDef
from windrow.errors import SourceError, WindrowError
from windrow.plan.nodes import QueryPlan, Scan, walk
from windrow.plan.weights import gate_of
from windrow.runtime.pruning import may_hold, row_boxes
from windrow.runtime.tables import check_table
from windrow.runtime.wanted_rows import wanted_rows
from windrow.sharing.conditions import EVERYTHING
from windrow.sources.bounded import SourceNow, check_options, rows_given
from windrow.sources.intake import Arrivals, arrivals
from windrow.sources.parts import parts_of_source
from windrow.sources.quarantined_rows import QuarantinedRows, timed_rows
from windrow.sources.staging import StagedRows, Staging, Wish
from windrow.sources.table_changes import changed
from windrow.store.place import Place

Given = Mapping[str, tuple[str, Any]]
"""Data by lower-case name, with the name as it was given."""


@contextlib.contextmanager
def working_place(home: str | os.PathLike[str] | None, master: str) -> Iterator[Place]:
    """A new folder for copies of rows and for state, which goes at the end: below `home`, or of this machine.

    `master`: where tasks run; those of a cluster do not reach a folder of this machine.
    """
    if home is None:
        if not master.startswith("local"):
            raise WindrowError(
                f"a replay on {master} needs a folder that the driver and all executors reach",
                detail="copies of rows, and state, lie there while it runs",
                hint="run(..., home='/mnt/shared/tmp'), or a path on hdfs://, s3://, gs:// or abfs://",
            )
        with tempfile.TemporaryDirectory(prefix="windrow-replay-", ignore_cleanup_errors=True) as folder:
            yield Place.of(folder)
        return
    place = Place.of(home).below(f"replay-{uuid.uuid4().hex[:12]}")
    place.make()
    try:
        yield place
    finally:
        with contextlib.suppress(OSError):
            place.filesystem.delete_dir(place.path(""))


def wish_of(stream: StreamDef, plans: Iterable[QueryPlan], templates: Iterable[QueryPlan]) -> Wish:
    """What queries read of a stream; `templates`: plans whose constants stand for others."""
    key, read = stream.name.lower(), [*plans, *templates]
    read = [p for p in read if key in (s.lower() for s in p.streams)]
    if any(gate_of(p) is not None for p in read):  # what a gate keeps depends on whole rows
        return Wish()
    scans = [s for p in read for s in walk(p.root) if isinstance(s, Scan) and s.stream.lower() == key]
    columns = tuple({c.lower() for scan in scans for _, c, _ in scan.columns})
    if any(p in read for p in templates):
        return Wish(columns)
    boxes = row_boxes((c for p in read for c in wanted_rows(p).get(key, (EVERYTHING,))), stream.columns)
    return Wish(columns, None if boxes is None else partial(may_hold, boxes))


def stream_rows(
    stream: StreamDef, data: Given, until: int | None, staging: Staging | None, wish: Wish
) -> Arrivals | StagedRows:
    """The rows of a stream, and what is set aside; `wish`: what is read of it."""
    if stream.name.lower() not in data:
        raise SourceError(
            f'stream "{stream.name}" has no data',
            hint=f"pass it to run: streams={{'{stream.name}': table or path}}; by command, --stream {stream.name}=PATH",
        )
    given = data[stream.name.lower()][1]
    check_options(stream)
    if staging is not None and isinstance(given, str | os.PathLike):
        return staging.path(stream, os.fspath(given), until, wish)
    if staging is not None and isinstance(given, SourceNow):
        return staging.parts(stream, parts_of_source(stream, given.pieces), until, wish)
    table, unread = rows_given(stream, given)
    aside = QuarantinedRows(stream.name)
    table = timed_rows(stream, table, aside if stream.quarantine else None)
    found = replace(arrivals(stream, table, until), aside=pa.concat_tables([unread, aside.table()]))
    return found if staging is None else staging.table(stream, found, wish)


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
    aside = QuarantinedRows(table.name)
    rows = changed(table, empty, changes, aside if table.quarantine else None)
    return rows, pa.concat_tables([unread, aside.table()])
