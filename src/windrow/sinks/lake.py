"""Answers in the tables of a lake, exactly once: what Delta and Iceberg have in common.

A commit carries the number of its tick, by home and query, in the table itself: one that is written again changes
nothing, whoever crashed when. It also says for which frontier the answer is exact (`windrow.as_of`).

    append   the rows of each tick, as `results()` has them
    upsert   the relation itself, by key: rows that go are deleted, others inserted or updated, in one commit; the sink
             begins with the relation as it is, whatever the table held

Lakes have no unsigned integers, and not all of them times of day: the former are widened, the latter written as text.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from windrow.errors import SourceError, StateError, WindrowError
from windrow.scalar_engine import connect, quote
from windrow.sinks.protocol import AS_OF, as_of

MODES = ("append", "upsert")
GONE = "_gone"
_WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}


class LakeTable(ABC):
    """A table whose commits carry the numbers of ticks; `name` is what its catalog or its path calls it."""

    kind: ClassVar[str]

    def __init__(self, name: str, *, owner: str = "") -> None:
        self._name, self._owner = name, owner

    @abstractmethod
    def _last(self, query: str) -> int | None:
        """The newest tick of a query that the table holds."""

    @abstractmethod
    def _commit(self, query: str, tick: int, table: pa.Table, *, replacing: bool = False) -> None:
        """Add rows, or let the table hold them alone, with a tick's number; the table is made when absent."""

    def close(self) -> None:
        """Nothing to let go of."""
        return None

    def _has(self, query: str, tick: int) -> bool:
        with self._refused(query, tick):
            last = self._last(query)
        return last is not None and last >= tick

    def _application(self, query: str) -> str:
        return f"windrow/{self._owner}/{query.lower()}"

    def _said(self, schema: pa.Schema) -> dict[str, str]:
        """What a commit says of the rows it brings."""
        frontier = as_of(schema)
        return {} if frontier is None else {AS_OF: frontier}

    def _part(self, query: str, tick: int, number: int) -> str:
        """The name of a file that a task writes: the same when it is written again."""
        whose = hashlib.sha256(self._application(query).encode()).hexdigest()[:16]
        return f"windrow-{whose}-{tick:010d}-{number:04d}.parquet"

    def _refused(self, query: str, tick: int) -> LibraryErrors:
        said = f'the answer of query "{query}" at tick {tick} could not be written to the {self.kind} table'
        return LibraryErrors(f"{said} {self._name}")


class LakeAppend(LakeTable):
    """Appends the answer of one query."""

    def write(self, query: str, tick: int, table: pa.Table) -> None:
        """Commit a tick's rows, with the tick's number."""
        if table.num_rows and not self._has(query, tick):
            self._commit(query, tick, table)


class LakeRelation(LakeTable):
    """Keeps a table equal to the relation of one query, whose rows differ in `key`."""

    def __init__(self, name: str, key: Sequence[str], *, owner: str = "") -> None:
        super().__init__(name, owner=owner)
        self._key = list(key)

    @abstractmethod
    def _merge(self, query: str, tick: int, changes: pa.Table) -> None:
        """Commit changes, as `net_changes` has them, with a tick's number."""

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
        self._commit(query, tick, plain, replacing=True)

    def write(self, query: str, tick: int, table: pa.Table) -> None:
        """Commit a tick's changes, with the tick's number."""
        changes = net_changes(table, self._key).replace_schema_metadata(table.schema.metadata)
        if not changes.num_rows or self._has(query, tick):
            return
        self._check(query, changes.filter(pc.invert(changes[GONE])))
        self._merge(query, tick, changes)

    def _check(self, query: str, rows: pa.Table) -> None:
        """Refuse rows that the key does not tell apart."""
        counts = rows.select(self._key).group_by(self._key).aggregate([([], "count_all")])
        twice = counts.filter(pc.greater(counts["count_all"], 1))
        if twice.num_rows:
            shown = ", ".join(f"{k} = {twice[k][0].as_py()!r}" for k in self._key)
            raise StateError(
                f'the answer of query "{query}" has several rows with {shown}',
                detail=f"the {self.kind} table keeps one row for each {', '.join(self._key)}",
                hint="name a key that tells the rows apart, or use mode append",
            )


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
    """A table in types that lakes have.

    >>> storable(pa.table({"a": pa.array([255], pa.uint8())})).schema.field("a").type
    DataType(int16)
    """
    fields = []
    for field in table.schema:
        kind = field.type
        if pa.types.is_interval(kind) or pa.types.is_duration(kind) or pa.types.is_decimal256(kind):
            raise SourceError(
                f'a table of a lake cannot hold column "{field.name}"',
                detail=f"its type is {kind}",
                hint="CAST it to VARCHAR in the query",
            )
        fields.append(field.with_type(pa.string() if pa.types.is_time(kind) else _WIDER.get(kind, kind)))
    return table.cast(pa.schema(fields, table.schema.metadata))


class LibraryErrors:
    """Errors of a library as windrow's: which query, which tick, which table."""

    def __init__(self, said: str) -> None:
        self._said = said

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, WindrowError):
            raise StateError(self._said, detail=str(error).strip().split("\n")[0]) from error
