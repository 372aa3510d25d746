"""Answers in a Delta table, exactly once.

Every commit carries the tick as an application transaction (`txn`: the home and the query, and the tick's number), so
whether a tick is in is read from the table itself: one that is written again changes nothing, whoever crashed when.

    append   the rows of each tick, as `results()` has them; a long answer as files that tasks write and one commit adds
    upsert   the relation itself, by key: rows that go are deleted, others inserted or updated, in one commit; the sink
             begins with the relation as it is, whatever the table held

Delta has no unsigned integers and no times of day: the former are widened, the latter written as text. Cost: one commit
a tick; an upsert rewrites the files that hold a changed key.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from windrow.errors import SourceError, StateError, WindrowError
from windrow.scalar_engine import connect, quote
from windrow.sources.delta import delta_library
from windrow.store.place import Place

if TYPE_CHECKING:
    import deltalake

MODES = ("append", "upsert")
GONE = "_gone"
_WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}


class _TickedTable:
    """A Delta table whose commits carry the numbers of ticks."""

    def __init__(self, path: str, *, owner: str = "") -> None:
        self._library = delta_library()
        self._path, self._owner = path, owner

    def close(self) -> None:
        """Nothing to let go of."""

    def _append(self, query: str, tick: int, table: pa.Table, mode: str = "append") -> None:
        delta = self._library
        with _Refused(query, tick, self._path):
            delta.write_deltalake(
                self._path, storable(table), mode=mode, commit_properties=self._numbered(query, tick),
                schema_mode="overwrite" if mode == "overwrite" else None,
            )  # fmt: skip

    def _has(self, query: str, tick: int) -> bool:
        """Whether the table holds a tick."""
        with _Refused(query, tick, self._path):
            if not self._library.DeltaTable.is_deltatable(self._path):
                return False
            last = self._library.DeltaTable(self._path).transaction_version(self._application(query))
        return last is not None and last >= tick

    def _application(self, query: str) -> str:
        return f"windrow/{self._owner}/{query.lower()}"

    def _numbered(self, query: str, tick: int) -> deltalake.CommitProperties:
        transaction = self._library.Transaction(self._application(query), tick)
        return self._library.CommitProperties(app_transactions=[transaction])


class DeltaSink(_TickedTable):
    """Appends the answer of one query to the table at `path`, which is made when absent."""

    def write(self, query: str, tick: int, table: pa.Table) -> None:
        """Commit a tick's rows, with the tick's number."""
        if table.num_rows and not self._has(query, tick):
            self._append(query, tick, table)

    def write_part(self, query: str, tick: int, number: int, part: pa.Table) -> object:
        """Write a file that no commit names yet: its name, its bytes and its rows."""
        sink = pa.BufferOutputStream()
        parquet.write_table(storable(part), sink)
        whose = hashlib.sha256(self._application(query).encode()).hexdigest()[:16]
        name = f"windrow-{whose}-{tick:010d}-{number:04d}.parquet"
        Place.of(self._path).write(name, data := sink.getvalue())
        return name, data.size, part.num_rows

    def publish(self, query: str, tick: int, parts: Sequence[object]) -> None:
        """Commit the files of a tick, with the tick's number; a table that asks more of its writers gets their rows."""
        if self._has(query, tick):
            return
        place, delta = Place.of(self._path), self._library
        files: list[tuple[str, int, int]] = list(parts)  # type: ignore[arg-type]
        schema = parquet.read_schema(pa.BufferReader(place.read(files[0][0])))
        with _Refused(query, tick, self._path):
            if not delta.DeltaTable.is_deltatable(self._path):
                delta.DeltaTable.create(self._path, schema=schema)
            found = delta.DeltaTable(self._path)
        if not _plain_table(found, schema):
            self._append(
                query,
                tick,
                pa.concat_tables([parquet.read_table(place.path(n), filesystem=place.filesystem) for n, _, _ in files]),
            )
            for name, _, _ in files:
                place.delete(name)
            return
        from deltalake.transaction import AddAction

        now = int(time.time() * 1000)
        added = [AddAction(n, size, {}, now, True, json.dumps({"numRecords": rows})) for n, size, rows in files]
        with _Refused(query, tick, self._path):
            found.create_write_transaction(
                added, "append", found.schema(), commit_properties=self._numbered(query, tick)
            )


class DeltaRelationSink(_TickedTable):
    """Keeps the table at `path` equal to the relation of one query, whose rows differ in `key`."""

    def __init__(self, path: str, key: Sequence[str], *, owner: str = "") -> None:
        super().__init__(path, owner=owner)
        self._key = list(key)

    def check(self, query: str, columns: Sequence[str]) -> None:
        """Refuse a relation that lacks a column of the key."""
        missing = [k for k in self._key if k not in columns]
        if missing:
            raise SourceError(
                f'the answer of query "{query}" has no column "{missing[0]}"',
                hint=f"its columns are {', '.join(columns)}",
            )

    def fill(self, query: str, tick: int, relation: pa.Table) -> None:
        """Make the table what the relation is after a tick; later ticks go on from there."""
        plain = relation.drop_columns([c for c in ("_ts", "_op") if c in relation.column_names])
        self.check(query, plain.column_names)
        self._check(query, plain)
        self._append(query, tick, plain, "overwrite")

    def write(self, query: str, tick: int, table: pa.Table) -> None:
        """Commit a tick's changes, with the tick's number."""
        changes = net_changes(table, self._key)
        if not changes.num_rows or self._has(query, tick):
            return
        self._check(query, changes.filter(pc.invert(changes[GONE])))
        names = [n for n in changes.column_names if n != GONE]
        same = " AND ".join(f"t.{quote(k)} IS NOT DISTINCT FROM s.{quote(k)}" for k in self._key)
        values = {quote(n): f"s.{quote(n)}" for n in names}
        with _Refused(query, tick, self._path):
            merge = self._library.DeltaTable(self._path).merge(
                storable(changes), same, source_alias="s", target_alias="t",
                commit_properties=self._numbered(query, tick),
            )  # fmt: skip
            (
                merge.when_matched_delete(f"s.{GONE}")
                .when_matched_update(values)
                .when_not_matched_insert(values, predicate=f"NOT s.{GONE}")
                .execute()
            )

    def _check(self, query: str, rows: pa.Table) -> None:
        """Refuse rows that the key does not tell apart."""
        counts = rows.select(self._key).group_by(self._key).aggregate([([], "count_all")])
        twice = counts.filter(pc.greater(counts["count_all"], 1))
        if twice.num_rows:
            shown = ", ".join(f"{k} = {twice[k][0].as_py()!r}" for k in self._key)
            raise StateError(
                f'the answer of query "{query}" has several rows with {shown}',
                detail=f"the delta sink keeps one row for each {', '.join(self._key)}",
                hint="name a key that tells the rows apart, or use mode append",
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


def net_changes(table: pa.Table, key: Sequence[str]) -> pa.Table:
    """What a tick's change log changes in the end: rows that come, as often as they do, and for each key of which only
    rows go, one of them, marked.

    >>> log = pa.table({"_ts": [1, 2, 2, 2], "_op": [1, -1, 1, -1], "k": ["a", "a", "b", "c"], "n": [1, 1, 5, 7]})
    >>> sorted(net_changes(log, ["k"]).to_pylist(), key=str)
    [{'k': 'b', 'n': 5, '_gone': False}, {'k': 'c', 'n': 7, '_gone': True}]
    """
    shown = [quote(n) for n in table.column_names if n not in ("_ts", "_op")]
    keys = ", ".join(quote(k) for k in key)
    with connect() as connection:
        connection.register("changes", table)
        return connection.sql(
            f"WITH net AS (SELECT {', '.join(shown)}, sum(_op) AS times FROM changes GROUP BY {', '.join(shown)}),"
            f" come AS (SELECT *, max(times) OVER (PARTITION BY {keys}) AS most,"
            f" row_number() OVER (PARTITION BY {keys} ORDER BY times) AS nth FROM net WHERE times <> 0)"
            f" SELECT {', '.join(shown)}, times < 0 AS {GONE}"
            " FROM come, generate_series(1, greatest(times, 1)::BIGINT) WHERE times > 0 OR (most < 0 AND nth = 1)"
        ).to_arrow_table()


def storable(table: pa.Table) -> pa.Table:
    """A table in types that Delta has.

    >>> storable(pa.table({"a": pa.array([255], pa.uint8())})).schema.field("a").type
    DataType(int16)
    """
    fields = []
    for field in table.schema:
        kind = field.type
        if pa.types.is_interval(kind) or pa.types.is_duration(kind) or pa.types.is_decimal256(kind):
            raise SourceError(
                f'a Delta table cannot hold column "{field.name}"',
                detail=f"its type is {kind}",
                hint="CAST it to VARCHAR in the query",
            )
        fields.append(field.with_type(pa.string() if pa.types.is_time(kind) else _WIDER.get(kind, kind)))
    return table.cast(pa.schema(fields))


class _Refused:
    """Errors of the library as windrow's: which query, which tick, which table."""

    def __init__(self, query: str, tick: int, path: str) -> None:
        self._what = f'the answer of query "{query}" at tick {tick} could not be written to the Delta table {path}'

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, WindrowError):
            raise StateError(self._what, detail=str(error).strip().split("\n")[0]) from error
