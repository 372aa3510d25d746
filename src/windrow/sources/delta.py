"""Rows of a Delta table, as they are added: first what the table holds, then what each commit adds.

    offset  {"version": the version to take next, "files": how many of its files were taken, "first": whether it stands
             for all that the table held then, not for one commit}

A commit lists its files in its log entry, so a poll reads one small file per commit. Files that only arrange rows anew
(OPTIMIZE, `dataChange` false) bring nothing. A stream never takes a row back: a commit that removes rows is an error,
unless `ignoreDeletes` says to go on without them, or `ignoreChanges` to take files that were rewritten as new ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.sources.cuts import Share, available
from windrow.sources.data_file import DataFile, reading, reason
from windrow.sources.options import SourceOptions
from windrow.sources.protocol import Available, Offset
from windrow.sources.read_parquet import cut_parquet
from windrow.store.place import Place

if TYPE_CHECKING:
    import deltalake

MAX_FILES = 32
LOG = "_delta_log"


def open_source(stream: StreamDef, spool: Place, *, may_write: bool = False) -> DeltaSource:
    """The Delta table that a declaration names."""
    options = SourceOptions(stream)
    path = options.need("path")
    max_files = options.number("max_files", MAX_FILES, "maxFilesPerTrigger")
    start = options.text("startingVersion")
    changes = options.flag("ignoreChanges", False)
    deletes = options.flag("ignoreDeletes", False) or changes
    options.finish()
    if start is not None and start != "latest" and not start.isdecimal():
        raise options.refusal(f'startingVersion is "{start}"', "it is a whole number, or latest")
    return DeltaSource(stream, path, max_files, start, ignore_deletes=deletes, ignore_changes=changes)


@dataclass(frozen=True)
class _VersionPlace:
    """The version to take next, how many of its files were taken, and whether it stands for the whole table."""

    version: int
    files: int = 0
    first: bool = False

    def plain(self) -> Offset:
        return {"version": self.version, "files": self.files, "first": self.first}


class DeltaSource:
    """The files that versions behind an offset have added."""

    def __init__(
        self,
        stream: StreamDef,
        path: str,
        max_files: int,
        start: str | None,
        *,
        ignore_deletes: bool,
        ignore_changes: bool,
    ) -> None:
        self.stream, self._path, self._max, self._start = stream, path, max_files, start
        self._ignore_deletes, self._ignore_changes = ignore_deletes, ignore_changes
        self._place = Place.of(path)
        with self._reading():
            table = self._table()
        self._columns, self._partitions = _checked(stream, path, table)
        self._lists: dict[tuple[int, bool], list[DataFile]] = {}
        self._cuts: dict[str, list[Share]] = {}

    def poll(self, offset: Offset | None) -> Available | None:
        """Files of the next versions. The first poll may have none, but says where the stream begins."""
        at = self._position(offset)
        taken: list[DataFile] = []
        with self._reading():
            while len(taken) < self._max and self._is_there(at):
                files = self._files(at)
                more = files[at.files : at.files + self._max - len(taken)]
                taken += more
                whole = at.files + len(more) == len(files)
                at = _VersionPlace(at.version + 1) if whole else replace(at, files=at.files + len(more))
            if offset is not None and at == _VersionPlace(**offset):
                return None
            return available(at.plain(), [s for f in taken for s in self._cut(f)])

    def drained(self, offset: Offset | None) -> bool:
        """Whether every file of every version that is there now was taken."""
        with self._reading():
            return offset is not None and not self._is_there(_VersionPlace(**offset))

    def committed(self, offset: Offset) -> None:
        """Forget what earlier versions listed."""
        self._lists = {k: v for k, v in self._lists.items() if k[0] >= int(offset["version"])}
        self._cuts = {}

    def close(self) -> None:
        """Nothing is open."""

    def _position(self, offset: Offset | None) -> _VersionPlace:
        if offset is not None:
            return _VersionPlace(**offset)
        with self._reading():
            if self._start is None:
                return _VersionPlace(self._table().version(), 0, True)
            if self._start == "latest":
                return _VersionPlace(self._table().version() + 1)
        return _VersionPlace(int(self._start))

    def _files(self, at: _VersionPlace) -> list[DataFile]:
        key = (at.version, at.first)
        if key not in self._lists:
            self._lists[key] = self._whole(at.version) if at.first else self._added(at.version)
        return self._lists[key]

    def _whole(self, version: int) -> list[DataFile]:
        """The files of the table as of a version, in the order in which they came."""
        actions = pa.table(self._table(version).get_add_actions(flatten=False)).to_pylist()
        actions.sort(key=lambda a: (a["modification_time"], a["path"]))
        return [self._file(a["path"], a["size_bytes"], a.get("partition") or {}) for a in actions]

    def _added(self, version: int) -> list[DataFile]:
        """The files that a commit adds."""
        entry = self._place.filesystem.open_input_file(self._entry(version))
        with entry:
            actions = [json.loads(line) for line in entry.readall().splitlines() if line.strip()]
        for changed in (a["metaData"] for a in actions if "metaData" in a):
            names = [f["name"] for f in json.loads(changed["schemaString"])["fields"]]
            self._columns, self._partitions = frozenset(names), tuple(changed["partitionColumns"])
        gone = [a["remove"] for a in actions if "remove" in a and a["remove"].get("dataChange", True)]
        adds = [a["add"] for a in actions if "add" in a and a["add"].get("dataChange", True)]
        self._check_removed(version, bool(gone), bool(adds))
        if any(a.get("deletionVector") for a in adds):
            raise self._refusal(version, "marks rows as deleted (deletion vectors)", "write the table without them")
        return [self._file(a["path"], int(a["size"]), a.get("partitionValues") or {}) for a in adds]

    def _check_removed(self, version: int, gone: bool, added: bool) -> None:
        if gone and not (self._ignore_changes if added else self._ignore_deletes):
            what = "changes rows" if added else "deletes rows"
            way = "ignoreChanges => 'true' takes rewritten files as new ones" if added else "ignoreDeletes => 'true'"
            raise self._refusal(version, what, f"a stream only grows; {way}, or read it as a table")

    def _refusal(self, version: int, what: str, hint: str) -> SourceError:
        return SourceError(
            f'stream "{self.stream.name}": version {version} of the Delta table {self._path} {what}', hint=hint
        )

    def _file(self, path: str, size: int, partition: Mapping[str, Any]) -> DataFile:
        """A file; columns that it may lack, because they are younger than it, are null there."""
        said = {n: None if partition.get(n) is None else str(partition[n]) for n in self._partitions}
        young = {n: None for n in self._columns if n not in said}
        return DataFile(self._place, unquote(path), size, tuple({**young, **said}.items()))

    def _cut(self, file: DataFile) -> Sequence[Share]:
        if file.name not in self._cuts:
            self._cuts[file.name] = cut_parquet(file, self.stream, 0)
        return self._cuts[file.name]

    def _is_there(self, at: _VersionPlace) -> bool:
        """Whether a version exists; one whose log entry was cleaned up is noticed when it is read."""
        return at.first or self._place.filesystem.get_file_info(self._entry(at.version)).type == fs.FileType.File

    def _entry(self, version: int) -> str:
        return self._place.path(f"{LOG}/{version:020d}.json")

    def _table(self, version: int | None = None) -> deltalake.DeltaTable:
        library = delta_library()
        try:
            table: deltalake.DeltaTable = library.DeltaTable(self._path, version=version)
        except library.exceptions.DeltaError as error:
            raise SourceError(f"cannot open the Delta table {self._path}", detail=reason(error)) from error
        return table

    def _reading(self) -> AbstractContextManager[None]:
        return reading(self.stream, self._path)


def _checked(stream: StreamDef, path: str, table: deltalake.DeltaTable) -> tuple[frozenset[str], tuple[str, ...]]:
    """The columns of a table and those it is partitioned by; a table that cannot be read plainly is refused."""
    metadata = table.metadata()
    if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        raise SourceError(
            f'stream "{stream.name}": the Delta table {path} maps its columns to other names',
            hint="write it without delta.columnMapping.mode",
        )
    return frozenset(f.name for f in table.schema().fields), tuple(metadata.partition_columns)


def delta_library() -> Any:
    """The library that knows Delta's log."""
    try:
        import deltalake
    except ImportError:
        raise SourceError("Delta tables need the library deltalake", hint="pip install 'windrow[delta]'") from None
    return deltalake
