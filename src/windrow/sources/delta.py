"""Rows of a Delta table, as they are added (`sources/lake.py`); a version is a commit of its log.

A commit lists its files in its log entry, so a poll reads one small file per commit. Files that only arrange rows anew
(OPTIMIZE, `dataChange` false) bring nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.sources.data_file import DataFile
from windrow.sources.files import reason
from windrow.sources.lake import LakeOptions, LakeSource, lake_file
from windrow.sources.options import SourceOptions
from windrow.store.place import Place

if TYPE_CHECKING:
    import deltalake

LOG = "_delta_log"


def read_options(stream: StreamDef, *, may_write: bool = False) -> tuple[str, LakeOptions]:
    """The path that a declaration names, and its other options."""
    options = SourceOptions(stream)
    return options.need("path"), LakeOptions.of(options)


def open_source(stream: StreamDef, spool: Place, *, may_write: bool = False) -> DeltaSource:
    """The Delta table that a declaration names."""
    return DeltaSource(stream, *read_options(stream))


class DeltaSource(LakeSource):
    """The files that commits have added."""

    def __init__(self, stream: StreamDef, path: str, options: LakeOptions) -> None:
        super().__init__(stream, f"the Delta table {path}", options)
        self._path, self._place = path, Place.of(path)
        with self._reading():
            table = self._table()
        self._columns, self._partitions = _checked(stream, path, table)

    def _newest(self) -> int:
        return int(self._table().version())

    def _has(self, version: int) -> bool:
        return bool(self._place.filesystem.get_file_info(self._entry(version)).type == fs.FileType.File)

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

    def _file(self, path: str, size: int, partition: Mapping[str, Any]) -> DataFile:
        said = {n: None if partition.get(n) is None else str(partition[n]) for n in self._partitions}
        return lake_file(self._place, unquote(path), size, self._columns, said)

    def _entry(self, version: int) -> str:
        return self._place.path(f"{LOG}/{version:020d}.json")

    def _table(self, version: int | None = None) -> deltalake.DeltaTable:
        library = delta_library()
        try:
            table: deltalake.DeltaTable = library.DeltaTable(self._path, version=version)
        except library.exceptions.DeltaError as error:
            raise SourceError(f"cannot open the Delta table {self._path}", detail=reason(error)) from error
        return table


def _checked(stream: StreamDef, path: str, table: deltalake.DeltaTable) -> tuple[frozenset[str], tuple[str, ...]]:
    """The columns of a table and those it is partitioned by; a table that cannot be read plainly is refused."""
    metadata = table.metadata()
    if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        raise SourceError(
            f"{stream.what}: the Delta table {path} maps its columns to other names",
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
