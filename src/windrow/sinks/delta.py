"""Answers in a Delta table (`sinks/lake.py`): a tick's number is an application transaction (`txn`) of its commit,
and its frontier is in the commit's own metadata, where `history()` shows it.

A long answer that is appended is files that tasks write and one commit adds; an upsert is a merge. Cost: one commit a
tick; an upsert rewrites the files that hold a changed key.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import parquet

from windrow.scalar_engine import quote
from windrow.sinks.lake import GONE, LakeAppend, LakeRelation, LakeTable, storable
from windrow.sources.delta import delta_library
from windrow.store.place import Place

if TYPE_CHECKING:
    import deltalake


class DeltaTicks(LakeTable):
    """A Delta table by its path."""

    kind = "Delta"

    def _commit(self, query: str, tick: int, table: pa.Table, *, replacing: bool = False) -> None:
        with self._refused(query, tick):
            delta_library().write_deltalake(
                self._name, storable(table), mode="overwrite" if replacing else "append",
                commit_properties=self._numbered(query, tick, table.schema),
                schema_mode="overwrite" if replacing else None,
            )  # fmt: skip

    def _last(self, query: str) -> int | None:
        delta = delta_library()
        if not delta.DeltaTable.is_deltatable(self._name):
            return None
        last: int | None = delta.DeltaTable(self._name).transaction_version(self._application(query))
        return last

    def _numbered(self, query: str, tick: int, schema: pa.Schema) -> deltalake.CommitProperties:
        delta = delta_library()
        number = delta.Transaction(self._application(query), tick)
        return delta.CommitProperties(app_transactions=[number], custom_metadata=self._said(schema))


class DeltaSink(DeltaTicks, LakeAppend):
    """Appends the answer of one query to the table at a path, which is made when absent."""

    def write_part(self, query: str, tick: int, number: int, part: pa.Table) -> object:
        """Write a file that no commit names yet: its name, its bytes and its rows."""
        sink = pa.BufferOutputStream()
        parquet.write_table(storable(part), sink)
        name, data = self._part(query, tick, number), sink.getvalue()
        Place.of(self._name).write(name, data)
        return name, data.size, part.num_rows

    def publish(self, query: str, tick: int, parts: Sequence[object]) -> None:
        """Commit the files of a tick, with the tick's number; a table that asks more of its writers gets their rows."""
        if self._has(query, tick):
            return
        place, delta = Place.of(self._name), delta_library()
        files: list[tuple[str, int, int]] = list(parts)  # type: ignore[arg-type]
        schema = parquet.read_schema(pa.BufferReader(place.read(files[0][0])))
        with self._refused(query, tick):
            if not delta.DeltaTable.is_deltatable(self._name):
                delta.DeltaTable.create(self._name, schema=schema)
            found = delta.DeltaTable(self._name)
        if not _plain_table(found, schema):
            tables = [parquet.read_table(place.path(n), filesystem=place.filesystem) for n, _, _ in files]
            self._commit(query, tick, pa.concat_tables(tables))
            for name, _, _ in files:
                place.delete(name)
            return
        from deltalake.transaction import AddAction

        now = int(time.time() * 1000)
        added = [AddAction(n, size, {}, now, True, json.dumps({"numRecords": rows})) for n, size, rows in files]
        with self._refused(query, tick):
            found.create_write_transaction(
                added, "append", found.schema(), commit_properties=self._numbered(query, tick, schema)
            )


class DeltaRelationSink(DeltaTicks, LakeRelation):
    """Keeps the table at a path equal to the relation of one query."""

    def _merge(self, query: str, tick: int, changes: pa.Table) -> None:
        names = [n for n in changes.column_names if n != GONE]
        same = " AND ".join(f"t.{quote(k)} IS NOT DISTINCT FROM s.{quote(k)}" for k in self._key)
        values = {quote(n): f"s.{quote(n)}" for n in names}
        with self._refused(query, tick):
            merge = delta_library().DeltaTable(self._name).merge(
                storable(changes), same, source_alias="s", target_alias="t",
                commit_properties=self._numbered(query, tick, changes.schema),
            )  # fmt: skip
            (
                merge.when_matched_delete(f"s.{GONE}")
                .when_matched_update(values)
                .when_not_matched_insert(values, predicate=f"NOT s.{GONE}")
                .execute()
            )


_PLAIN_FEATURES = {"appendOnly", "invariants", "timestampNtz"}
"""Of a table's writers, what files of Parquet as they are satisfy."""


def _plain_table(table: deltalake.DeltaTable, schema: pa.Schema) -> bool:
    """Whether files of this schema may be added to a table as they are."""
    protocol, held = table.protocol(), table.schema()
    features = set(protocol.writer_features or ())
    plain = protocol.min_writer_version <= 2 or (protocol.min_writer_version == 7 and features <= _PLAIN_FEATURES)
    if not plain or table.metadata().partition_columns or any(f.metadata for f in held.fields):
        return False
    return all(f.nullable for f in held.fields) and pa.schema(held).equals(schema)
