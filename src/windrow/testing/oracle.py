"""The answer of a query, recomputed from the definition.

At every instant t that matters the window contents are a set of DuckDB tables, and Q(t) is what DuckDB answers to the
ordinary SQL over them. Everything else (change log, ISTREAM, RESTORE, windows on output streams) is derived from
consecutive answers by the sentence that defines it. Nothing here is shared with the engine.

An answer can change only when a row enters or leaves a window, so those instants are enough (`every_instant=True`
looks at all of them, to check exactly that). Cost: one run of the SQL per instant; they are asked together, with the
instant as a lateral column, which is why a replay of a few hundred rows takes milliseconds.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace

import duckdb
import pyarrow as pa

from windrow.testing.bags import (
    Answers,
    Bag,
    Output,
    Row,
    changes,
    dstream,
    grouping_key,
    istream,
    restore,
    rstream,
    rstream_at_changes,
)
from windrow.testing.blocks import BOUNDS, NOW, FromItem, OracleBlock, distinct_names, quote
from windrow.testing.given import (
    Functions,
    GivenStream,
    Version,
    connected,
    end_of_clock,
    load_stream,
    load_table,
    rows_of,
    table_name,
)
from windrow.testing.lifetimes import FOREVER, OracleWindow, lifetimes
from windrow.testing.rewrite import combine, rewrite_query
from windrow.testing.script import Script, read_script
from windrow.testing.summaries import SLICE, slices
from windrow.testing.tokens import Tokens
from windrow.testing.window_functions import sessions, streams_read


def oracle(
    script: str,
    streams: Mapping[str, pa.Table],
    tables: Mapping[str, pa.Table] | None = None,
    until: int | datetime.datetime | None = None,
    *,
    functions: Functions | None = None,
    every_instant: bool = False,
) -> dict[str, pa.Table]:
    """Recompute the answer of every query of a script: `{query name: table}`, as `windrow.run` returns them.

    `functions` maps a name to the vectorised Python function and its SQL return type, as given to
    `windrow.function`. `every_instant` evaluates at each integer between the clock's ends, one query at a time.
    """
    versions = {name: [(-FOREVER, table)] for name, table in (tables or {}).items()}
    return answers(read_script(script), streams, versions, until, functions=functions, every_instant=every_instant)


def answers(
    declared: Script,
    streams: Mapping[str, pa.Table],
    tables: Mapping[str, Sequence[Version]],
    until: int | datetime.datetime | None = None,
    *,
    functions: Functions | None = None,
    every_instant: bool = False,
) -> dict[str, pa.Table]:
    """The answers to a script that has been read; each table with its versions, which change past results."""
    with connected(functions or {}) as connection:
        for macro in declared.functions:
            connection.execute(macro)
        given = {name.lower(): table for name, table in streams.items()}
        named = {token.name for tokens in declared.queries.values() for token in tokens}
        loaded = {
            name: load_stream(connection, declared.streams.get(name), name, given.get(name), end_of_clock(until, ()))
            for name in {**given, **declared.streams}
            if name in given or name in named
        }
        changing = {}
        for name, versions in tables.items():
            load_table(connection, declared.tables.get(name.lower()), name.lower(), versions)
            changing[name.lower()] = {since for since, _ in versions[1:]}
        end = end_of_clock(until, loaded.values())
        return {
            name: _Query(connection, declared, loaded, changing, end, tokens, every_instant).answer()
            for name, tokens in declared.queries.items()
        }


# One query ---------------------------------------------------------------------------------------------------------


class _Query:
    """The evaluation of one query; the `OracleContext` its text is rewritten in."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        script: Script,
        streams: Mapping[str, GivenStream],
        changing: Mapping[str, set[int]],
        until: int | None,
        tokens: Tokens,
        every_instant: bool,
    ) -> None:
        self.connection = connection
        self.script = script
        self.changing = changing
        self.tokens = tokens
        self.every_instant = every_instant
        self.windows = 0
        self.derived: dict[str, GivenStream] = {}
        read = [streams[n] for n in streams_read(tokens, streams)]
        if not read:
            raise ValueError("a query must read at least one stream")
        self.time_type = read[0].time_type
        self.streams = {n: s.up_to(until) for n, s in streams.items()}
        starts = [s.times[0] for s in (self.streams[n] for n in streams_read(tokens, streams)) if s.times]
        self.clock = (min(starts), until) if starts and until is not None else None

    def answer(self) -> pa.Table:
        """The query's table: `_ts`, `_op` when it is a relation, and its columns."""
        result = self.finish(rewrite_query(self.tokens, self))
        if isinstance(result, GivenStream):
            found = [(t, 1, row) for t, row in zip(result.times, result.rows, strict=True)]
            return self.table(result.names, result.types, found, with_op=result.append_only)
        names, types = self.describe(result.sql)
        log = [
            (t, op, row)
            for t, _, new, gone in changes(self.evaluate(result.sql, self.instants(result)))
            for op, bag in ((-1, gone), (1, new))
            for row in bag.rows()
        ]
        return self.table(names, types, log, with_op=True)

    def finish(self, parts: Sequence[tuple[str, OracleBlock]]) -> GivenStream | OracleBlock:
        """A query's blocks as what they are: a stream, or a relation (a block without operator or period)."""
        _settle(parts)
        if len(parts) == 1:
            return self.leave(parts[0][1])
        if all(b.op is None and not b.internal for _, b in parts):
            return self.leave(combine(parts))
        finished = [(operation, self.leave(block)) for operation, block in parts]
        branches = [branch for _, branch in finished if isinstance(branch, GivenStream)]
        if len(branches) == len(finished) and all(o in ("", "UNION ALL") for o, _ in finished):
            rows = sorted(((t, r) for s in branches for t, r in zip(s.times, s.rows, strict=True)), key=lambda p: p[0])
            append_only = all(s.append_only for s in branches)
            return replace(branches[0], rows=[r for _, r in rows], times=[t for t, _ in rows], append_only=append_only)
        return combine([(o, self.kept(b) if isinstance(b, GivenStream) else b) for o, b in finished])

    def kept(self, stream: GivenStream) -> OracleBlock:
        """A stream as the relation of all its rows so far."""
        source = FromItem("kept", stream.names, stream=True)
        self.derived[source.alias] = stream
        block = OracleBlock("")
        self.window_on(source, block, stream)
        block.sql = self.alive(source.table, source.columns)
        return block

    def leave(self, block: OracleBlock) -> GivenStream | OracleBlock:
        """Apply a block's stream operator and period."""
        if block.internal:
            appended = self.stream_of(block, self.appended(block))
            if block.op is None:
                return replace(appended, append_only=True)
            whole = self.kept(appended)
            whole.op = block.op
            return self.leave(whole)
        if block.ends is not None:
            start, end = self.clock or (0, -1)
            ends = sorted(t for t in block.ends if start <= t <= end)
            return self.stream_of(block, rstream(self.evaluate(block.sql, ends)))
        if block.period is not None:
            return self.stream_of(block, self.periodic(block, *block.period))
        if block.op is None:
            return block
        operators = {"ISTREAM": istream, "DSTREAM": dstream, "RSTREAM": rstream_at_changes}
        if block.op not in operators:
            raise ValueError(f"{block.op} needs a period")
        return self.stream_of(block, operators[block.op](self.evaluate(block.sql, self.instants(block))))

    def appended(self, block: OracleBlock) -> Output:
        """What INTERNAL windows append: results as they come into being, or with aggregates each new answer.

        A result comes into being with the newest of its rows: it is there at t, and was not among the rows that were
        there before t and still are.
        """
        instants = self.instants(block)
        now = self.evaluate(block.sql, instants)
        if not block.selects:
            return istream(now)
        older = self.evaluate(block.sql.replace(f"__from <= {NOW}", f"__from < {NOW}"), instants)
        return [(t, row) for (t, all_), (_, old) in zip(now, older, strict=True) for row in (all_ - old).rows()]

    def periodic(self, block: OracleBlock, period: int, offset: int) -> Output:
        """The output of a block that is evaluated at the multiples of its period."""
        if self.clock is None:
            return []
        start, end = self.clock
        multiples = list(range(-((offset - start) // period) * period + offset, end + 1, period))
        if block.op in ("ISTREAM_RESTORE", "RSTREAM_RESTORE"):
            instants = sorted({*self.instants(block), *multiples})
            return restore(self.evaluate(block.sql, instants), set(multiples), block.op)
        operators = {None: rstream, "RSTREAM": rstream, "ISTREAM": istream, "DSTREAM": dstream}
        return operators[block.op](self.evaluate(block.sql, multiples))

    # Evaluation

    def instants(self, block: OracleBlock) -> list[int]:
        """The instants inside the clock at which the block's answer can change, in order."""
        if self.clock is None:
            return []
        start, end = self.clock
        if self.every_instant:
            if end - start > 100_000:
                raise ValueError("too many instants to look at every one")
            return list(range(start, end + 1))
        return sorted({t for t in block.instants if start < t <= end} | {start})

    def evaluate(self, sql: str, instants: Sequence[int]) -> Answers:
        """Q(t) at each of the instants."""
        if not instants:
            return []
        if self.every_instant:
            return [(t, self.evaluate_at(sql, t)) for t in instants]
        clock = pa.table({"__n": list(range(len(instants))), "__t": pa.array(instants, pa.decimal128(38, 0))})
        self.connection.register("__given", clock)
        # names that no query has: an alias of a query is looked for among the columns around it, too
        self.connection.execute("CREATE OR REPLACE TABLE __clock AS SELECT __n, __t::HUGEINT AS __t FROM __given")
        text = f"SELECT __clock.__n, __q.* FROM __clock, LATERAL ({sql.replace(NOW, '__clock.__t')}) AS __q"
        try:
            found = rows_of(self.connection.sql(text).to_arrow_table())
        except (duckdb.BinderException, duckdb.NotImplementedException):
            return [(t, self.evaluate_at(sql, t)) for t in instants]  # some SQL cannot be correlated
        rows: list[list[Row]] = [[] for _ in instants]
        for n, *row in found:
            rows[n].append(tuple(row))
        return [(t, Bag(r)) for t, r in zip(instants, rows, strict=True)]

    def evaluate_at(self, sql: str, t: int) -> Bag:
        """Q(t), by itself."""
        return Bag(rows_of(self.connection.sql(sql.replace(NOW, f"CAST({t} AS HUGEINT)")).to_arrow_table()))

    def describe(self, sql: str) -> tuple[list[str], list[str]]:
        """Names and SQL types of a block's columns."""
        relation = self.connection.sql(sql.replace(NOW, "CAST(0 AS HUGEINT)"))
        return list(relation.columns), [str(t) for t in relation.types]

    def stream_of(self, block: OracleBlock, output: Output) -> GivenStream:
        """The output stream of a block."""
        names, types = self.describe(block.sql)
        return GivenStream(names, types, [row for _, row in output], [t for t, _ in output])

    def table(
        self, names: Sequence[str], types: Sequence[str], found: Sequence[tuple[int, int, Row]], with_op: bool
    ) -> pa.Table:
        """The answer as Arrow, in the types DuckDB gives its columns."""
        columns = [pa.array([t for t, _, _ in found], pa.int64()).cast(self.time_type)]
        if with_op:
            columns.append(pa.array([op for _, op, _ in found], pa.int8()))
        columns += [pa.array([row[i] for _, _, row in found], t) for i, t in enumerate(self.arrow(types))]
        return pa.Table.from_arrays(columns, names=["_ts", *(["_op"] if with_op else []), *names])

    # The Context of rewriting

    def source(self, name: str) -> FromItem:
        """The declared stream or table of this name, without a window."""
        if name in self.streams:
            stream = self.streams[name]
            return FromItem(name, list(stream.names), stream=True, time=stream.time, sql=name)
        table = table_name(name)
        columns = list(self.connection.sql(f"SELECT * EXCLUDE (__from, __to) FROM {table}").columns)
        declared = self.script.tables.get(name)
        changes = OracleBlock("", set(self.changing.get(name, ())))
        valid = declared.valid if declared else None
        return FromItem(name, columns, sql=f"({self.alive(table, columns)})", valid=valid, block=changes)

    def subquery(self, tokens: Tokens, scope: frozenset[str], windowed: bool) -> FromItem:
        """A subquery of a FROM clause: part of the query, unless an operator or a window makes it a stream."""
        parts = rewrite_query(tokens, self, scope)
        _settle(parts)
        alone = windowed or any(b.op is not None or b.internal for _, b in parts)
        result = self.finish(parts) if alone else combine(parts)
        self.windows += 1
        alias = f"__sub{self.windows}"
        if isinstance(result, GivenStream):
            self.derived[alias] = result
            return FromItem(alias, distinct_names(result.names), stream=True, sql=alias)
        return FromItem(alias, self.describe(result.sql)[0], sql=f"({result.sql})", block=result)

    def window_on(self, source: FromItem, block: OracleBlock, stream: GivenStream | None = None) -> None:
        """Give a stream source its table of lifetimes and note its instants in the block."""
        stream = stream or self.derived.get(source.sql) or self.streams[source.sql]
        self.windows += 1
        source.table = f"__w{self.windows}"
        keys = [i for i, n in enumerate(source.columns) if n.lower() in source.window.partition]
        groups = [tuple(grouping_key(row[i]) for i in keys) for row in stream.rows]
        if source.window.gap is not None:
            self.sessions_on(source, block, stream, sessions(source.window.gap, stream.times, groups))
            return
        if source.window.aligned:
            size, since = source.window.range or 0, source.window.since
            start = self.instant(size)
            if since is not None:  # the last k * size + since before now; `%` takes the sign of what is divided
                start = self.time_sql(f"({NOW} - (({NOW} - 1 - {since}) % {size} + {size}) % {size} - 1)")
            both = (start, self.instant(0))
            source.bounds = "".join(f", {sql} AS {name}" for sql, name in zip(both, BOUNDS, strict=True))
        ends = lifetimes(source.window, stream.times, groups)
        alive = [(row, a, b) for row, (a, b) in zip(stream.rows, ends, strict=True) if a < b]
        sliced = None
        if source.sliced:
            numbers = slices(source.window, block.period, groups, ends)
            sliced = [n for n, (a, b) in zip(numbers, ends, strict=True) if a < b]
        self.load(source.table, source.columns, stream.types, alive, sliced=sliced)
        block.instants |= {t for _, *both in alive for t in both}

    def sessions_on(
        self, source: FromItem, block: OracleBlock, stream: GivenStream, found: Sequence[tuple[int, int]]
    ) -> None:
        """Give a source the rows of its sessions, each at the session's end."""
        rows = [(row, end, end + 1) for row, (_, end) in zip(stream.rows, found, strict=True)]
        self.load(source.table, source.columns, stream.types, rows, [first for first, _ in found])
        source.bounds = ", window_start, window_end"
        block.join_ends({end for _, end in found})

    def instant(self, back: int) -> str:
        """SQL for the time of the evaluation less a length, as a value of the streams' time type."""
        return self.time_sql(f"({NOW} - {back})")

    def time_sql(self, sql: str) -> str:
        """SQL for an integer as a time."""
        whole = f"CAST({sql} AS BIGINT)"
        return f"make_timestamp({whole})" if pa.types.is_timestamp(self.time_type) else whole

    def load(
        self,
        table: str,
        names: Sequence[str],
        types: Sequence[str],
        rows: Sequence[tuple[Row, int, int]],
        firsts: Sequence[int] | None = None,
        sliced: Sequence[int] | None = None,
    ) -> None:
        """Create a table of rows with their lifetimes; `firsts`: of sessions, which begin there and end at `__from`.

        `sliced`: the slice of each row.
        """
        data = {f"c{i}": pa.array([row[i] for row, _, _ in rows], t) for i, t in enumerate(self.arrow(types))}
        data["__from"] = pa.array([a for _, a, _ in rows], pa.decimal128(38, 0))
        data["__to"] = pa.array([b for _, _, b in rows], pa.decimal128(38, 0))
        if sliced is not None:
            data[SLICE] = pa.array(sliced, pa.int64())
        self.connection.register("__given", pa.table(data))
        casts = [f"CAST(c{i} AS {t}) AS {quote(n)}" for i, (n, t) in enumerate(zip(names, types, strict=True))]
        ends = "__from::HUGEINT AS __from, __to::HUGEINT AS __to" + f", {SLICE}" * (sliced is not None)
        if firsts is not None:
            data["__first"] = pa.array(firsts, pa.int64())
            self.connection.register("__given", pa.table(data))
            ends += f", {self.time_sql('__first')} AS window_start, {self.time_sql('__from')} AS window_end"
        self.connection.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT {', '.join(casts)}, {ends} FROM __given")

    def arrow(self, types: Sequence[str]) -> list[pa.DataType]:
        """SQL types as Arrow types."""
        nothing = ", ".join(f"CAST(NULL AS {type_}) AS c{i}" for i, type_ in enumerate(types))
        return list(self.connection.sql(f"SELECT {nothing}").to_arrow_table().schema.types)

    def alive(self, table: str, columns: Sequence[str]) -> str:
        """SQL for the rows of a table of lifetimes that are alive now."""
        return f"SELECT {', '.join(quote(c) for c in columns)} FROM {table} WHERE __from <= {NOW} AND {NOW} < __to"

    def mixed(self, sql: str, block: OracleBlock) -> str:
        """Answer SQL that yields rows with their lifetimes; return SQL for the rows alive now."""
        self.windows += 1
        table = f"__w{self.windows}"
        self.connection.execute(f"CREATE OR REPLACE TABLE {table} AS {sql}")
        columns = [c for c in self.connection.sql(f"SELECT * FROM {table}").columns if not c.startswith("__")]
        for both in self.connection.execute(f"SELECT __from, __to FROM {table}").fetchall():
            block.instants |= set(both)
        return self.alive(table, columns)

    def wstream(self, block: OracleBlock, window: OracleWindow) -> tuple[str, list[str], OracleBlock]:
        """Window the output stream of a block: SQL for its contents now, its columns, and a block to absorb."""
        block.internal = block.period is None
        stream = self.leave(block)
        assert isinstance(stream, GivenStream)
        source = FromItem("w", distinct_names(stream.names), stream=True, window=window)
        depends = OracleBlock("")
        self.window_on(source, depends, stream)
        return self.alive(source.table, source.columns), source.columns, depends


def _settle(parts: Sequence[tuple[str, OracleBlock]]) -> None:
    """Where a SLIDE makes all blocks of a set operation periodic, INTERNAL changes nothing."""
    if all(block.op is None for _, block in parts) and any(block.period is not None for _, block in parts):
        for _, block in parts:
            block.internal = False
