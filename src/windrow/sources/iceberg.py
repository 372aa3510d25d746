"""Rows of an Iceberg table, as they are added (`sources/lake.py`); a version is a sequence number.

Every commit gives its snapshot the next sequence number of the table, so numbers stand for snapshots in the order in
which they were made, and one that is not among the ancestors of the present snapshot (a branch, a commit that was
rolled back) brings nothing. Snapshots that rewrite files (`replace`) bring nothing either. A poll reads the table's
metadata from its catalog; a new snapshot costs its own manifests.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.sources.data_file import DataFile
from windrow.sources.files import reason
from windrow.sources.lake import LakeOptions, LakeSource, lake_file
from windrow.sources.options import SourceOptions
from windrow.store.place import Place

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import ManifestEntry
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

CATALOG = ("catalog", "uri", "warehouse")
"""Options that say which catalog; `iceberg.x` is the catalog's own property x."""


def read_options(stream: StreamDef, *, may_write: bool = False) -> tuple[str, dict[str, str], LakeOptions]:
    """The table that a declaration names, what it says of the catalog, and its other options."""
    options = SourceOptions(stream)
    said = {name: text for name in CATALOG if (text := options.text(name)) is not None}
    said |= {name: options.need(name) for name in map(str.lower, stream.options) if name.startswith("iceberg.")}
    return options.need("table"), said, LakeOptions.of(options)


def open_source(stream: StreamDef, spool: Place, *, may_write: bool = False) -> IcebergSource:
    """The Iceberg table that a declaration names."""
    table, said, options = read_options(stream)
    return IcebergSource(stream, table, open_catalog(said), options)


class IcebergSource(LakeSource):
    """The files that snapshots have added."""

    def __init__(self, stream: StreamDef, name: str, catalog: Catalog, options: LakeOptions) -> None:
        super().__init__(stream, f"the Iceberg table {name}", options)
        self._name, self._catalog = name, catalog
        with self._reading():
            table = self._table()
        _check(stream, self._named, table)

    def _newest(self) -> int:
        snapshot = self._table().current_snapshot()
        return 0 if snapshot is None else snapshot.sequence_number or 0

    def _has(self, version: int) -> bool:
        return version <= self._newest()

    def _whole(self, version: int) -> list[DataFile]:
        if not version:  # nothing was ever written
            return []
        table = self._table()
        snapshot = self._snapshot(table, version)
        if snapshot is None:
            raise self._refusal(version, "is gone", "declare the stream anew")
        found = []
        for manifest in snapshot.manifests(table.io):
            if manifest.content:
                raise self._marks(version)
            found += manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        found.sort(key=lambda e: (e.sequence_number or 0, e.data_file.file_path))
        return [self._file(table, e) for e in found]

    def _added(self, version: int) -> list[DataFile]:
        table = self._table()
        snapshot = self._snapshot(table, version)
        if snapshot is None or (snapshot.summary and snapshot.summary.operation.value == "replace"):
            return []
        adds, gone = list[Any](), False
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            if manifest.content:
                raise self._marks(version)
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            own = [e for e in entries if e.snapshot_id == snapshot.snapshot_id]
            adds += [e for e in own if e.status.name == "ADDED"]
            gone |= any(e.status.name == "DELETED" for e in own)
        self._check_removed(version, gone, bool(adds))
        return [self._file(table, e) for e in adds]

    def _snapshot(self, table: Table, version: int) -> Snapshot | None:
        """The ancestor of the present snapshot with a sequence number; None if another has it."""
        at, known = table.current_snapshot(), {s.snapshot_id: s for s in table.snapshots()}
        while at is not None and (number := at.sequence_number or 0) > version:
            before = known.get(at.parent_snapshot_id or 0)
            if before is None and number > 1:  # the first snapshot of a table has the number 1
                raise self._refusal(version, "has expired", "declare the stream anew, and keep snapshots for longer")
            at = before
        return at if at is not None and at.sequence_number == version else None

    def _marks(self, version: int) -> SourceError:
        return self._refusal(version, "marks rows as deleted (merge on read)", "write the table with copy on write")

    def _file(self, table: Table, entry: ManifestEntry) -> DataFile:
        """A file by its place and name: partitions are part of the name, and are spelled as they are."""
        file, root = entry.data_file, f"{table.location().rstrip('/')}/"
        if file.file_format.value != "PARQUET":
            raise SourceError(f"{self._named} has files of {file.file_format.value}", hint="windrow reads Parquet")
        place, name = (root, file.file_path[len(root) :]) if file.file_path.startswith(root) else split(file.file_path)
        columns = [f.name for f in table.schema().fields]
        return lake_file(Place.of(place), name, file.file_size_in_bytes, columns, {})

    def _table(self) -> Table:
        return load_table(self._catalog, self._name)


def split(path: str) -> tuple[str, str]:
    """The folder and the name of a file."""
    folder, name = os.path.split(path)
    return folder, name


def _check(stream: StreamDef, named: str, table: Table) -> None:
    """Refuse a table whose files cannot be read by the names of its columns."""
    if table.format_version < 2:
        raise SourceError(
            f"{stream.what}: {named} has format version {table.format_version}",
            hint="its snapshots have no numbers; upgrade it to version 2",
        )
    names: dict[int, str] = {}
    for schema in table.schemas().values():
        for field in schema.fields:
            if names.setdefault(field.field_id, field.name) != field.name:
                raise SourceError(
                    f'{stream.what}: {named} has renamed column "{names[field.field_id]}"',
                    hint="older files have it under its old name; write the table anew",
                )


def open_catalog(options: Mapping[str, str]) -> Catalog:
    """The catalog that options, and the library's own configuration, name."""
    library = iceberg_library()
    properties = {k.removeprefix("iceberg."): v for k, v in options.items() if k != "catalog"}
    try:
        found: Catalog = library.load_catalog(options.get("catalog"), **properties)
    except Exception as error:
        raise SourceError(
            "cannot open the Iceberg catalog", detail=reason(error),
            hint="uri => 'sqlite:///catalog.db', warehouse => 'file:///lake', or a name in .pyiceberg.yaml",
        ) from error  # fmt: skip
    return found


def load_table(catalog: Catalog, name: str) -> Table:
    """A table as it is now."""
    try:
        return catalog.load_table(name)
    except Exception as error:
        raise SourceError(f"cannot open the Iceberg table {name}", detail=reason(error)) from error


def iceberg_library() -> Any:
    """The library that knows Iceberg's catalogs."""
    try:
        from pyiceberg import catalog
    except ImportError:
        raise SourceError("Iceberg tables need the library pyiceberg", hint="pip install 'windrow[iceberg]'") from None
    return catalog
