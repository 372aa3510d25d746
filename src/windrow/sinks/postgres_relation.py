"""A PostgreSQL table that always equals the relation of a query (`mode => 'upsert'`).

Each tick's changes are applied in the transaction that notes its number: rows that go are deleted, as often as they go,
rows that come are inserted; whoever reads the table sees the relation after some tick, whole. When the sink is
attached, the table is filled with the relation as it is then, so it does not matter since when the query runs or what
the table held. Rows are compared as values, nulls equal to nulls; a relation may hold a row several times.

Cost: a tick reads the table once if rows go, and so suits relations of up to some hundred thousand rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.errors import StateError
from windrow.sinks.postgres import PostgresSink, copy_in
from windrow.sinks.protocol import as_of

if TYPE_CHECKING:
    import psycopg


class PostgresRelationSink(PostgresSink):
    """Keeps a table equal to a relation."""

    def check(self, query: str, columns: Sequence[str]) -> None:
        """Any relation will do."""

    def fill(self, query: str, tick: int, relation: pa.Table) -> None:
        """Make the table what the relation is after a tick; later ticks go on from there."""
        with self._explained(query, tick):
            self._fill(query, tick, relation)

    def _fill(self, query: str, tick: int, relation: pa.Table) -> None:
        from psycopg import sql

        connection = self._connected()
        target = self._target(query)
        with connection.transaction(), connection.cursor() as cursor:
            self._prepare(cursor, target, relation.schema)
            cursor.execute(sql.SQL("DELETE FROM {}").format(target))
            if relation.num_rows:
                copy_in(cursor, target, relation)
            self._note(cursor, query, tick, as_of(relation.schema))

    def _prepare(self, cursor: psycopg.Cursor, target: object, schema: pa.Schema) -> None:
        super()._prepare(cursor, target, pa.schema([f for f in schema if f.name not in ("_ts", "_op")]))

    def _take(self, cursor: psycopg.Cursor, target: object, table: pa.Table) -> None:
        from psycopg import sql

        changes = table.drop_columns(["_ts"])
        columns = [sql.Identifier(n) for n in changes.column_names if n != "_op"]
        names = sql.SQL(", ").join(columns)
        parts: dict[str, Any] = {"target": target, "names": names, "row": _row("c", columns), "own": _row("t", columns)}
        cursor.execute("SET LOCAL client_min_messages TO warning")
        cursor.execute("DROP TABLE IF EXISTS pg_temp.windrow_change")
        cursor.execute(
            sql.SQL(
                "CREATE TEMP TABLE windrow_change ON COMMIT DROP AS"
                " SELECT 0::smallint AS _op, {names} FROM {target} LIMIT 0"
            ).format(**parts)
        )
        copy_in(cursor, sql.Identifier("pg_temp", "windrow_change"), changes)
        net = sql.SQL("(SELECT {names}, sum(_op) AS _n FROM windrow_change GROUP BY {names} HAVING sum(_op) {sign} 0)")
        gone, come = (net.format(**parts, sign=sql.SQL(sign)) for sign in ("<", ">"))
        cursor.execute(sql.SQL("SELECT coalesce(-sum(_n), 0) FROM {} c").format(gone))
        expected = (cursor.fetchone() or (0,))[0]
        if expected:
            # as texts, nulls are equal and the join can hash; ctid tells equal rows apart
            cursor.execute(
                sql.SQL(
                    "DELETE FROM {target} WHERE ctid IN (SELECT place FROM (SELECT t.ctid AS place, c._n,"
                    " row_number() OVER (PARTITION BY {own}) AS nth FROM {target} t JOIN {gone} c ON {own} = {row}) f"
                    " WHERE nth <= -_n)"
                ).format(**parts, gone=gone)
            )
            if cursor.rowcount != expected:
                raise StateError(
                    f"the table differs from the relation: {expected} rows go, and it had {cursor.rowcount} of them",
                    hint="something else writes to it; attach the sink again to fill it anew",
                )
        cursor.execute(
            sql.SQL(
                "INSERT INTO {target} ({names}) SELECT {names} FROM {come} c, generate_series(1, c._n::bigint)"
            ).format(**parts, come=come)
        )


def _row(alias: str, columns: list[Any]) -> Any:
    from psycopg import sql

    cells = sql.SQL(", ").join(sql.SQL("{}.{}").format(sql.Identifier(alias), c) for c in columns)
    return sql.SQL("ROW({})::text").format(cells)
