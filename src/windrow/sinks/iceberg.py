"""Answers in an Iceberg table (`sinks/lake.py`): a tick's number is a property of the table, set by its own commit.

A commit of Iceberg changes all of a table's metadata at once: rows and property come together, or neither does, and
the number outlives the snapshots that expire. Two writers at a time: the second is refused by the catalog, and begins
again on what the first has made. A long answer that is appended is files that tasks write and one commit adds. An
upsert takes the rows that have, in one column of the key, the value of a changed row, and puts what they are now in
their place. Cost: one commit a tick; an upsert rewrites the files that hold one of those rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import parquet

from windrow.scalar_engine import connect, quote
from windrow.sinks.lake import GONE, LakeAppend, LakeRelation, LakeTable, storable
from windrow.sources.iceberg import load_table, open_catalog

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table


class IcebergTicks(LakeTable):
    """An Iceberg table by its name in a catalog."""

    kind = "Iceberg"
    _catalog: Catalog
    _options: Mapping[str, str]

    def _open(self, catalog: Mapping[str, str]) -> None:
        self._options, self._catalog = dict(catalog), open_catalog(catalog)

    def __getstate__(self) -> dict[str, Any]:
        """To a task goes how to open the catalog, not its connections."""
        return {k: v for k, v in self.__dict__.items() if k != "_catalog"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open(self._options)

    def _commit(self, query: str, tick: int, table: pa.Table, *, replacing: bool = False) -> None:
        rows = storable(table)
        with self._refused(query, tick):
            made = self._made(rows.schema)
            self._change(made, query, tick, _everything() if replacing and made.scan().count() else None, rows)

    def _change(self, table: Table, query: str, tick: int, gone: BooleanExpression | None, rows: pa.Table) -> None:
        """One commit: rows that go, rows that come, and the tick's number."""
        said = self._said(rows.schema)
        with table.transaction() as transaction:
            if gone is not None:
                transaction.delete(gone, snapshot_properties=said)
            if rows.num_rows:
                transaction.append(rows, snapshot_properties=said)
            transaction.set_properties({self._application(query): str(tick)})

    def _last(self, query: str) -> int | None:
        if not self._catalog.table_exists(self._name):
            return None
        last = load_table(self._catalog, self._name).properties.get(self._application(query))
        return None if last is None else int(last)

    def _made(self, schema: pa.Schema) -> Table:
        if not self._catalog.table_exists(self._name):
            self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
            self._catalog.create_table_if_not_exists(self._name, schema)
        return load_table(self._catalog, self._name)


class IcebergSink(IcebergTicks, LakeAppend):
    """Appends the answer of one query to a table, which is made when absent."""

    def __init__(self, name: str, catalog: Mapping[str, str], *, owner: str = "") -> None:
        super().__init__(name, owner=owner)
        self._open(catalog)

    def write_part(self, query: str, tick: int, number: int, part: pa.Table) -> object:
        """Write a file that no commit names yet: its path."""
        rows = storable(part)
        with self._refused(query, tick):
            table = self._made(rows.schema)
            path = f"{table.location().rstrip('/')}/data/{self._part(query, tick, number)}"
            with table.io.new_output(path).create(overwrite=True) as file:
                parquet.write_table(rows, file)
        return path

    def publish(self, query: str, tick: int, parts: Sequence[object]) -> None:
        """Commit the files of a tick, with the tick's number; a table of other types, or with partitions, gets their
        rows."""
        if self._has(query, tick):
            return
        paths = [str(path) for path in parts]
        with self._refused(query, tick):
            table = load_table(self._catalog, self._name)
            if _as_written(table, paths[0]):
                said = self._said(parquet.read_schema(table.io.new_input(paths[0]).open()))
                with table.transaction() as transaction:
                    transaction.add_files(paths, said, check_duplicate_files=False)  # the tick's number tells
                    transaction.set_properties({self._application(query): str(tick)})
                return
            tables = [parquet.read_table(table.io.new_input(path).open()) for path in paths]
            self._commit(query, tick, pa.concat_tables(tables))
            for path in paths:
                table.io.delete(path)


class IcebergRelationSink(IcebergTicks, LakeRelation):
    """Keeps a table equal to the relation of one query."""

    def __init__(self, name: str, key: Sequence[str], catalog: Mapping[str, str], *, owner: str = "") -> None:
        super().__init__(name, key, owner=owner)
        self._open(catalog)

    def _merge(self, query: str, tick: int, changes: pa.Table) -> None:
        changes = storable(changes)
        with self._refused(query, tick):
            table = load_table(self._catalog, self._name)
            near = _near(changes, self._key)
            before = table.scan(row_filter=near).to_arrow()
            after = merged(before, changes, self._key).replace_schema_metadata(changes.schema.metadata)
            self._change(table, query, tick, near if before.num_rows else None, after)


def _as_written(table: Table, path: str) -> bool:
    """Whether files like this one may be added to a table as they are."""
    from pyiceberg.io.pyarrow import pyarrow_to_schema

    schema, held = parquet.read_schema(table.io.new_input(path).open()), table.schema()
    if not table.spec().is_unpartitioned() or set(schema.names) != {f.name for f in held.fields}:
        return False
    brought = pyarrow_to_schema(schema, held.name_mapping)
    return all(f.field_type == held.find_type(f.name) and not held.find_field(f.name).required for f in brought.fields)


def _everything() -> BooleanExpression:
    from pyiceberg.expressions import AlwaysTrue

    return AlwaysTrue()


def _near(changes: pa.Table, key: Sequence[str]) -> BooleanExpression:
    """A condition that every row with a key of the changes satisfies.

    It tests the first column of the key that is no float: deleting by one, pyiceberg 0.12 drops NaN from mixed files.
    """
    import pyiceberg.expressions

    column = next((k for k in key if not pa.types.is_floating(changes[k].type)), None)
    if column is None:
        return _everything()
    language: Any = pyiceberg.expressions  # its types know no names of columns
    values = changes[column]
    null = language.IsNull(column) if values.null_count else language.AlwaysFalse()
    found: BooleanExpression = language.Or(null, language.In(column, values.drop_null().unique().to_pylist()))
    return found


def merged(before: pa.Table, changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Rows after changes: those of other keys, and those that come.

    >>> changes = pa.table({"k": ["a", "b"], "n": [2, 5], "_gone": [False, True]})
    >>> merged(pa.table({"k": ["a", "b", "c"], "n": [1, 5, 7]}), changes, ["k"]).sort_by("k").to_pylist()
    [{'k': 'a', 'n': 2}, {'k': 'c', 'n': 7}]
    """
    schema = pa.schema([f for f in changes.schema if f.name != GONE])
    shown = ", ".join(quote(n) for n in schema.names)
    same = " AND ".join(f"b.{quote(k)} IS NOT DISTINCT FROM c.{quote(k)}" for k in key)
    with connect() as connection:
        connection.register("before", before)
        connection.register("changes", changes)
        return (
            connection.sql(
                f"SELECT {shown} FROM before b WHERE NOT EXISTS (FROM changes c WHERE {same})"
                f" UNION ALL SELECT {shown} FROM changes WHERE NOT {GONE}"
            )
            .to_arrow_table()
            .cast(schema)
        )
