"""A file that a task reads: where it is, and how big it was when it was listed.

A file must not change once it is there. One that has another size when it is read is refused: rows that were cut off,
or that came after the listing, would otherwise be lost unsaid.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote

import duckdb
import numpy as np
import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.operators.elements import one
from windrow.sources.casting import cast_column, fits, sql_name, told_apart
from windrow.sources.files import check_repeated, reason
from windrow.sources.protocol import MalformedRow, Report
from windrow.sources.tabular import plain_type
from windrow.store.place import Place

LOG = logging.getLogger("windrow.sources")

Given = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class DataFile:
    """A file of a place; `name` is relative to it, `given` are columns whose values its path says (k=v/)."""

    place: Place
    name: str
    size: int
    given: Given = ()

    @property
    def path(self) -> str:
        """The full path, for people and for the file system."""
        return self.place.path(self.name)

    def less_given(self, names: Iterable[str]) -> DataFile:
        """The file, whose path says only what it does not say itself; `names`: its columns."""
        own = {n.lower() for n in names}
        given = tuple((n, text) for n, text in self.given if n.lower() not in own)
        return self if given == self.given else replace(self, given=given)

    def open(self) -> pa.NativeFile:
        """The file for random access; not memory-mapped: a foreign file that is cut short would end the process."""
        file = self.place.filesystem.open_input_file(self.path)
        size = file.size()
        if size != self.size:
            file.close()
            raise SourceError(
                f"{self.path} changed after it was listed",
                detail=f"it had {self.size} bytes, and has {size} now",
                hint="let files appear whole: write under a name that begins with a dot, then rename",
            )
        return file


def given_by(name: str) -> Given:
    """The columns that the folders of a name say.

    >>> given_by("day=2024-01-02/kind=a%20b/x.csv")
    (('day', '2024-01-02'), ('kind', 'a b'))
    """
    folders = [s.partition("=") for s in name.split("/")[:-1] if "=" in s]
    return tuple((k, None if v == "__HIVE_DEFAULT_PARTITION__" else unquote(v)) for k, _, v in folders)


@contextlib.contextmanager
def reading(stream: StreamDef, path: str, where: str = "", report: Report | None = None) -> Iterator[None]:
    """Turn what libraries say about a file into a SourceError that names stream, file and position.

    With `report` it goes there, and what is left of the file is left out.
    """
    try:
        yield
    except (SourceError, pa.ArrowException, duckdb.Error, OSError, UnicodeDecodeError, EOFError) as error:
        failure = _failure(stream, path, f"{path}, {where}" if where else path, error)
        if report is None or isinstance(error, PermissionError | ConnectionError | TimeoutError):  # it may go better
            if failure is error:
                del failure  # an error that its own frames hold on to keeps all that they hold until the process ends
                raise
            raise failure from error
        report(MalformedRow(path, f"{failure.primary}: {failure.detail}" if failure.detail else failure.primary, ""))


def _failure(stream: StreamDef, path: str, at: str, error: BaseException) -> SourceError:
    if isinstance(error, SourceError):
        if error.primary.startswith(stream.what):
            return error
        return SourceError(f"{stream.what}: {error.primary}", detail=error.detail, hint=error.hint)
    if isinstance(error, FileNotFoundError):
        return SourceError(
            f"{stream.what}: {path} is gone",
            detail="it was listed, and removed before it was read",
            hint="keep files until the engine has taken them",
        )
    return SourceError(f"{stream.what}: cannot read {at}", detail=reason(error))


def malformed(stream: StreamDef, row: MalformedRow) -> SourceError:
    """The error for a row that nobody wants reported."""
    shown = row.text if len(row.text) <= 200 else row.text[:200] + "..."
    return SourceError(
        f"{stream.what}: malformed row in {row.where}",
        detail=f"{row.why}: {shown}" if shown else row.why,
        hint=_advice(stream, row),
    )


def _advice(stream: StreamDef, row: MalformedRow) -> str:
    """What to write: most often an option of the format is missing, else one row is wrong."""
    options = {k.lower(): str(v) for k, v in stream.options.items()}
    kind = options.get("source", "").lower()
    fix = "fix the row, or let the stream set such rows aside: ON ERROR QUARANTINE"
    if not stream.time:  # rows that a table holds
        fix = "fix the row, or leave such rows out: mode => 'DROPMALFORMED'"
    if kind == "csv" and re.search(r"'-?\d+,\d+' is not (DOUBLE|FLOAT|DECIMAL)", row.why):
        return "if commas are decimal points, say decimal => ','"
    if kind == "json" and row.text.lstrip().startswith("["):
        return "if the file is an array of objects, say multiLine => 'true'"
    if kind in ("csv", "json") and re.search(r"is not TIMESTAMP\b", row.why) and "timestampformat" not in options:
        return f"if times are written so, say timestampFormat => 'dd.MM.yyyy HH:mm:ss' (or 'epoch_ms'); else {fix}"
    return fix


def refuse(stream: StreamDef, row: MalformedRow, report: Report | None) -> None:
    """Hand a malformed row to whoever wants it, or raise."""
    if report is None:
        raise malformed(stream, row)
    report(row)


def no_rows(stream: StreamDef, file: DataFile, report: Report | None) -> None:
    """Say that a file has no rows."""
    LOG.warning('stream "%s": %s has no rows', stream.name, file.path)
    if report is not None:
        report(MalformedRow(file.path, "the file has no rows", ""))


@dataclass(frozen=True)
class FileWithoutRows:
    """What is to be read of a file whose footer says that there is nothing."""

    file: DataFile
    weight: int = 1

    def read(
        self, stream: StreamDef, columns: Sequence[str] | None, report: Report | None = None
    ) -> Iterator[pa.RecordBatch]:
        """No rows, and that is said."""
        no_rows(stream, self.file, report)
        return iter(())


def declared(stream: StreamDef, columns: Sequence[str] | None) -> dict[str, pa.DataType]:
    """The columns asked for, in the order of the declaration, with their types."""
    if columns is None:
        return dict(stream.columns)
    wanted = {c.lower() for c in columns}
    return {n: t for n, t in stream.columns.items() if n.lower() in wanted}


def find_columns(
    stream: StreamDef, path: str, given: Given, have: Sequence[str], wanted: Mapping[str, object]
) -> dict[str, str]:
    """For each wanted column that the path does not give its name in the file: as declared, or else but for case.

    A file that is older than a column that was added need not have it.
    """
    check_repeated(stream.what, path, have, wanted)
    exact, folded = set(have), {n.lower(): n for n in reversed(have)}
    said = {n.lower() for n in (*(n for n, _ in given), *stream.added)}
    found = {}
    for name in wanted:
        source = name if name in exact else folded.get(name.lower())
        if source is not None:
            found[name] = source
        elif name.lower() not in said:
            raise SourceError(
                f'{stream.what}: {path} has no column "{name}"',
                detail=f"its columns are: {', '.join(have) or 'none'}",
                hint="declare only columns that every file has",
            )
    return found


def check_types(stream: StreamDef, file: DataFile, have: Mapping[str, pa.DataType]) -> None:
    """Refuse a file whose typed columns are wider than declared, or of another kind."""
    for name, found in have.items():
        wanted = stream.columns[name]
        plain = _plain(found)
        if not fits(plain, wanted):
            raise SourceError(
                f'{stream.what}: column "{name}" is declared {sql_name(wanted)}, '
                f"but {file.path} has {told_apart(plain, wanted)}",
                hint="change the declaration, or write the files with the declared types",
            )


def _plain(type_: pa.DataType) -> pa.DataType:
    """The plain type of what a file has; nulls alone are of any."""
    return type_ if pa.types.is_null(type_) else plain_type(type_)


def shaped(
    stream: StreamDef, file: DataFile, rows: pa.RecordBatch, names: Mapping[str, str], wanted: Mapping[str, pa.DataType]
) -> pa.RecordBatch:
    """The wanted columns of a typed batch, cast to the declared types; columns that the path says are filled in."""
    arrays = []
    for name, type_ in wanted.items():
        if name in names:
            column = rows.column(names[name])
            if column.type.equals(type_):
                arrays.append(column)
                continue
            chunked = pa.chunked_array([column])
        else:
            chunked = said_by_path(file.given, name, rows.num_rows)
        plain = _plain(chunked.type)
        chunked = chunked if chunked.type.equals(plain) else chunked.cast(plain)
        arrays.append(one(cast_column(chunked, type_, name, f"{stream.what}: {file.path}")))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(wanted.items())))


def with_times(
    stream: StreamDef, path: str, first: int, batch: pa.RecordBatch, report: Report | None, within: str = ""
) -> pa.RecordBatch:
    """The rows of a batch that have a time; `first`: the number of its first row in the file, or `within` a part."""
    times = batch.column(stream.time) if stream.time in batch.schema.names else None
    if times is None or not times.null_count:
        return batch
    for index in np.flatnonzero(times.is_null().to_numpy(zero_copy_only=False)).tolist():
        text = json.dumps(batch.slice(index, 1).to_pylist()[0], default=str)
        where = f"{path}, row {first + index}{within}"
        refuse(stream, MalformedRow(where, f'column "{stream.time}" is NULL', text), report)
    return batch.filter(times.is_valid())


def said_by_path(given: Given, name: str, rows: int) -> pa.ChunkedArray:
    """The text that a path gives for a column, once for each row; null if it gives none."""
    text = next((v for n, v in given if n.lower() == name.lower()), None)
    return pa.chunked_array([pa.repeat(pa.scalar(text, pa.string()), rows)])
