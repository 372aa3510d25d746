"""KEY (id) CHANGES BY op [BEFORE before AFTER after]: a table that is told by what happens to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pyarrow as pa

from windrow.catalog.change_columns import ChangeColumns, Path
from windrow.cql.source import Cursor, ScriptText
from windrow.errors import BindingError, UnsupportedError

SOURCES = ("csv", "json", "parquet", "arrow", "delta", "iceberg", "kafka")
"""What can tell of changes, in order of arrival; others know the time of rows, or what a table holds."""

_HINT = "write KEY (id) CHANGES BY op"


@dataclass(frozen=True)
class WrittenChanges:
    """CHANGES BY as written, and where."""

    columns: ChangeColumns
    offset: int


def parse_key(cursor: Cursor) -> tuple[tuple[str, int], ...]:
    """Parse what follows KEY: names with their places."""
    cursor.expect("(", hint=_HINT)
    found = []
    while True:
        offset = cursor.offset
        found.append((cursor.name("a column of the key", hint=_HINT), offset))
        if not cursor.accept(","):
            break
    cursor.expect(")", hint=_HINT)
    return tuple(found)


def parse_changes(cursor: Cursor) -> WrittenChanges:
    """Parse what follows CHANGES."""
    offset = cursor.offset
    cursor.expect("BY", hint="write CHANGES BY op")
    op = _path(cursor)
    if not cursor.accept("BEFORE"):
        return WrittenChanges(ChangeColumns(op), offset)
    before = _path(cursor)
    cursor.expect("AFTER", hint="write CHANGES BY op BEFORE before AFTER after")
    return WrittenChanges(ChangeColumns(op, before, _path(cursor)), offset)


def _path(cursor: Cursor) -> Path:
    found = [cursor.name("a column of the changes", hint="write CHANGES BY op BEFORE before AFTER after")]
    while cursor.accept("."):
        found.append(cursor.name("a field"))
    return tuple(found)


def check_changes(
    written: WrittenChanges | None,
    said: Mapping[str, bool],
    keys: Collection[str],
    columns: Mapping[str, pa.DataType],
    options: Mapping[str, str],
    source: ScriptText,
    offset: int,
) -> None:
    """Refuse clauses that mean nothing without the others."""
    if written is None:
        for clause in (c for c, there in said.items() if there):
            raise BindingError(
                f"{clause} without CHANGES BY",
                detail="a table that is read whole has no use for it",
                hint=f"{_HINT}, or leave {clause} out",
                span=source.span(offset),
            )
        return
    span = source.span(written.offset)
    if not keys:
        raise BindingError(
            "CHANGES BY needs a KEY", detail="a change says which row it concerns", hint=_HINT, span=span
        )
    if len({k.lower() for k in keys}) < len(keys):
        raise BindingError("a column stands twice in KEY", hint="name it once", span=source.span(offset))
    paths = [p for p in (written.columns.op, written.columns.before, written.columns.after) if p is not None]
    if any(a != b and tuple(a[: len(b)]) == b for a in paths for b in paths) or len(set(paths)) < len(paths):
        raise BindingError("CHANGES BY names one field twice, or a part of another", hint=_HINT, span=span)
    own = {n.lower(): t for n, t in columns.items()}.get(written.columns.op[0].lower(), pa.string())
    if written.columns.after is None and (len(written.columns.op) > 1 or not pa.types.is_string(own)):
        raise BindingError(
            "the operation of a flat change is no text of its own column",
            hint="name a VARCHAR, or write CHANGES BY op BEFORE before AFTER after",
            span=span,
        )
    kind = options.get("source", "").lower()
    if (options and not kind) or (kind and kind not in SOURCES):
        raise UnsupportedError(
            f"changes of a table FROM {kind or 'nothing'}",
            detail=f"changes come from {', '.join(SOURCES)}, or are pushed by the program",
            hint="leave CHANGES BY out where the source says what the table holds",
            span=span,
        )
