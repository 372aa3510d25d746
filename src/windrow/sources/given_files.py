"""The files of a path that is given to a replay, to a push, or as what a table holds.

A stream that declares a source of files takes those that the source would take, in its order: that of their times of
change. For others they are in order of name; a plain path is then a file of this machine, or the files that lie in a
folder, and any other is listed as a source lists it (`listing`): on another file system, with patterns, or with folders
named `column=value`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import ipc, parquet

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.sources.data_file import DataFile, given_by
from windrow.sources.files import check_repeated, files_of, reason, typed
from windrow.sources.listing import ListedFile, Listing, has_patterns, is_hidden, listing_of
from windrow.sources.options import SourceOptions
from windrow.sources.protocol import KINDS
from windrow.store.place import Place


def files_given(path: str, stream: StreamDef) -> list[DataFile]:
    """The files of a path that is given for a stream, in order of arrival; for what a table holds, of name."""
    options, there = SourceOptions(stream), Path(path)
    if KINDS.get(options.kind) != "directory" or not stream.time or not (is_listed(path) or there.is_dir()):
        return _in_order_of_name(path, stream.what)
    listing = listing_of(path, stream.what, options.flag("recursiveFileLookup", False), options.text("pathGlobFilter"))
    return _found(listing, path, stream.what, lambda file: file)


def _in_order_of_name(path: str, what: str) -> list[DataFile]:
    if not is_listed(path):
        return [_plain(file) for file in files_of(path, what)]
    listing = listing_of(path, what)
    return _found(listing, path, what, lambda file: file.name)


def _found(listing: Listing, path: str, what: str, order: Callable[[ListedFile], Any]) -> list[DataFile]:
    try:
        found = sorted(listing.look(list, force=True), key=order)
    except SourceError as error:
        raise SourceError(f"{what}: {error.primary}", detail=error.detail, hint=error.hint) from None
    except OSError as error:
        raise SourceError(f"{what}: cannot read {path}", detail=reason(error)) from error
    if not found:
        raise SourceError(f"{what}: no files in {path}")
    return [DataFile(listing.place, f.name, f.size, given_by(f.name)) for f in found]


def is_plain(file: DataFile) -> bool:
    """Whether a file is one of a plain path."""
    return file.place.local and "/" not in file.name


def is_listed(path: str) -> bool:
    """Whether the files of a path must be listed."""
    local = Path(path)
    if "://" in path or (has_patterns(path) and not local.exists()):
        return True
    if not local.is_dir():
        return False
    with os.scandir(local) as inside:
        return any("=" in e.name and not is_hidden(e.name) and e.is_dir() for e in inside)


def columns_of_files(path: str, what: str) -> pa.Table:
    """No rows, with the columns that files of types and their folders have."""
    schemas = []
    for file in _in_order_of_name(path, what):
        kind = typed(Path(file.name))
        if kind is None:
            raise SourceError(
                f"{what}: {file.path} does not say the types of its columns",
                hint="declare them: CREATE STREAM s (..., ts TIMESTAMP) TIMESTAMP BY ts",
            )
        try:
            with file.open() as handle:
                schema = parquet.read_schema(handle) if kind == "parquet" else _arrow_schema(handle)
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"{what}: cannot read {file.path}", detail=reason(error)) from error
        check_repeated(what, file.path, schema.names, schema.names)
        folders = [pa.field(n, pa.string()) for n, _ in file.less_given(schema.names).given]
        schemas.append(pa.schema([*schema.remove_metadata(), *folders]))
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").empty_table()
    except pa.ArrowException as error:
        raise SourceError(f"{what}: the files of {path} differ in their columns", detail=reason(error)) from error


def _arrow_schema(handle: pa.NativeFile) -> pa.Schema:
    try:
        return ipc.open_file(handle).schema
    except pa.ArrowInvalid:
        handle.seek(0)
        return ipc.open_stream(handle).schema


def _plain(path: Path) -> DataFile:
    return DataFile(Place.of(str(path.absolute().parent)), path.name, path.stat().st_size)
