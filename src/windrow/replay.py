"""Replay: bounded input, complete answers.

All streams are merged by time and cut into batches; after each batch the frontier is just below the next row's time, so
an instant is never evaluated before all its rows are there. Where the cuts fall changes nothing but speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.catalog import Catalog, FunctionDef, StreamDef, TableDef
from windrow.errors import BindingError, SourceError, WindrowError
from windrow.operators.elements import Int64s, one
from windrow.plan.nodes import QueryPlan
from windrow.sources.intake import Arrivals, arrivals
from windrow.sources.tabular import to_table

BATCH_ROWS = 1 << 17
"""Rows per batch when the caller does not say: large enough to be columnar, small enough to show progress."""

Progress = Callable[[int, int], None]


class Answers(dict[str, pa.Table]):
    """The answer of each query by name; `late` holds each stream's late rows."""

    def __init__(self, answers: Mapping[str, pa.Table], late: Mapping[str, pa.Table]) -> None:
        super().__init__(answers)
        self.late = dict(late)


def run(
    script: str,
    streams: Mapping[str, Any] | None = None,
    tables: Mapping[str, Any] | None = None,
    runtime: str = "spark",
    batch_rows: int | None = None,
    until: Any = None,
    *,
    strategy: str = "upa",
    sharing: str = "auto",
    without: Iterable[str] = (),
    functions: Mapping[str, FunctionDef] | None = None,
    progress: Progress | None = None,
    spark: Any = None,
) -> Answers:
    """Run every query of `script` over bounded input and return the complete answers.

    `batch_rows`, `strategy` ("upa", "negative" or "direct") and `sharing` ("auto", "off", "slices", "fragments" or
    "shards") never change an answer, nor do optimizer rules, which `without` switches off by name. `until` advances
    time past the last row. `progress` is called with rows done and rows in all.
    """
    _check_options(runtime, strategy, batch_rows)
    replay = Replay.of(
        script, streams or {}, tables or {}, until, without=without, strategy=strategy, functions=functions
    )
    if runtime == "spark":
        from windrow.runtime.bounded import run_on_spark

        return run_on_spark(
            replay, batch_rows=batch_rows, strategy=strategy, progress=progress, spark=spark, sharing=sharing
        )
    return replay.run_local(batch_rows, strategy, progress, sharing)


def _check_options(runtime: str, strategy: str, batch_rows: int | None) -> None:
    for what, given, allowed in (
        ("runtime", runtime, ("spark", "local")),
        ("strategy", strategy, ("upa", "negative", "direct")),
    ):
        if given not in allowed:
            raise WindrowError(f"unknown {what} {given!r}", hint=f"use one of {', '.join(allowed)}")
    if batch_rows is not None and batch_rows < 1:
        raise WindrowError(
            f"batch_rows is {batch_rows}", hint="a batch has at least one row; leave it out to let windrow choose"
        )


class Replay:
    """A script bound to its data: what both runtimes run."""

    def __init__(
        self, catalog: Catalog, data: Mapping[str, Arrivals], tables: Mapping[str, pa.Table], until: int | None
    ) -> None:
        self.catalog, self.data, self.tables = catalog, data, tables
        last = max((int(a.ts[-1]) for a in data.values() if len(a.ts)), default=None)
        self.until = until if until is not None else last

    @classmethod
    def of(
        cls,
        script: str,
        streams: Mapping[str, Any],
        tables: Mapping[str, Any],
        until: Any = None,
        *,
        without: Iterable[str] = (),
        strategy: str = "upa",
        functions: Mapping[str, FunctionDef] | None = None,
    ) -> Replay:
        """Parse, bind and optimise the script; read and check the data."""
        from windrow.functions import registered

        raw_streams = {k.lower(): (k, v) for k, v in streams.items()}
        raw_tables = {k.lower(): (k, v) for k, v in tables.items()}
        catalog = Catalog(functions={**registered(), **(functions or {})})
        catalog = bind_script(script, catalog, raw_streams, raw_tables)
        catalog = _optimised(catalog, without, strategy)
        read = {name.lower() for q in catalog.queries.values() for name in q.streams + q.tables}
        data = {k: _arrivals(d, raw_streams) for k, d in catalog.streams.items() if k in read | raw_streams.keys()}
        held = {k: _table(d, raw_tables) for k, d in catalog.tables.items() if k in read}
        return cls(catalog, data, held, _instant(until, catalog))

    def starts(self, plan: QueryPlan) -> int | None:
        """Where a query's clock starts: the earliest row of the streams it reads."""
        firsts = [int(self.data[s.lower()].ts[0]) for s in plan.streams if len(self.data[s.lower()].ts)]
        return min(firsts, default=None)

    def frontiers(self, batch_rows: int | None) -> Iterator[tuple[int, int]]:
        """(rows done, frontier) after each batch; the last frontier is `until`."""
        if self.until is None:
            return
        ts = np.sort(np.concatenate([a.ts for a in self.data.values()]), kind="stable")
        ts = ts[ts <= self.until]
        step = batch_rows or BATCH_ROWS
        previous = None
        for done in range(step, len(ts), step):
            frontier = int(ts[done]) - 1
            if previous is None or frontier > previous:
                yield done, frontier
                previous = frontier
        yield len(ts), self.until

    def run_local(
        self, batch_rows: int | None, strategy: str, progress: Progress | None, sharing: str = "auto"
    ) -> Answers:
        """All queries, in this process: those that share in one group, the others each in a circuit."""
        from windrow.plan.dataflow import Circuit
        from windrow.sharing.cohort import Batch, gathered
        from windrow.sharing.group import share

        calls = {name: f.fn for name, f in self.catalog.functions.items()}
        plans = self.catalog.queries.values()
        group, alone = share(plans, calls, self.tables, sharing if strategy == "upa" else "off", rate=self.rate)
        circuits = [Circuit(p, calls, self.tables, strategy) for p in alone]
        parts: dict[str, list[pa.Table]] = {p.name: [] for p in alone}
        shared: list[Batch] = []
        begin = dict.fromkeys(self.data, 0)
        total = sum(len(a.ts) for a in self.data.values())
        for done, frontier in self.frontiers(batch_rows):
            new = {k: self._slice(k, begin, frontier) for k in self.data}
            shared += group.advance(new.__getitem__, frontier, self.starts)
            for failure in group.failures.values():
                raise failure
            for circuit in circuits:
                start = self.starts(circuit.plan)
                if start is None or start > frontier:
                    continue
                if not circuit.started:
                    circuit.start(start)
                elements = circuit.advance(new.__getitem__, frontier)
                if len(elements):
                    parts[circuit.plan.name].append(circuit.answer(elements))
            if progress is not None:
                progress(done, total)
        answers = {c.plan.name: _concat(c, parts[c.plan.name]) for c in circuits}
        answers |= {name: group.empty(name) for name in group.served}
        answers |= group.shown(gathered(shared))
        return Answers({p.name: answers[p.name] for p in plans}, self.late())

    def rate(self, stream: str) -> float:
        """Rows per tick of a stream's clock."""
        ts = self.data[stream].ts
        return len(ts) / (int(ts[-1]) - int(ts[0]) + 1) if len(ts) else 0.0

    def late(self) -> dict[str, pa.Table]:
        """Late rows by stream name."""
        return {self.catalog.streams[k].name: a.late for k, a in self.data.items()}

    def _slice(self, stream: str, begin: dict[str, int], frontier: int) -> tuple[Int64s, Mapping[str, pa.Array]]:
        data = self.data[stream]
        low, high = begin[stream], int(np.searchsorted(data.ts, frontier, "right"))
        begin[stream] = high
        part = data.rows.slice(low, high - low)
        return data.ts[low:high], {name: one(part.column(name)) for name in part.column_names}


def bind_script(
    script: str,
    catalog: Catalog,
    streams: Mapping[str, tuple[str, Any]] | None = None,
    tables: Mapping[str, tuple[str, Any]] | None = None,
) -> Catalog:
    """The catalog after every statement of a script; data given but not declared is declared from its schema.

    DDL is bound first to last; undeclared data joins the catalog before the first query that could read it.
    """
    from windrow import cql

    statements = cql.parse(script)
    declared = {s.syntax.name.lower() for s in statements if isinstance(s, cql.Declaration)}
    for key, (name, data) in (streams or {}).items():
        if key not in declared and key not in catalog.streams:
            catalog = catalog.add(infer_stream(name, to_table(data, f'stream "{name}"')))
    for key, (name, data) in (tables or {}).items():
        if key not in declared and key not in catalog.tables:
            table = to_table(data, f'table "{name}"')
            catalog = catalog.add(TableDef(name, dict(zip(table.column_names, table.schema.types, strict=True))))
    for statement in statements:
        catalog = applied(cql.bind(statement, catalog), catalog)
    return catalog


def applied(bound: Any, catalog: Catalog) -> Catalog:
    """The catalog after a bound statement; EXPLAIN changes nothing."""
    from windrow import cql

    match bound:
        case cql.CreateStream(definition) | cql.CreateTable(definition):
            return catalog.add(definition)
        case cql.CreateQuery(plan):
            return catalog.add(plan)
        case cql.Drop(kind, name, if_exists):
            return catalog.drop(kind, name, if_exists)
    return catalog


def infer_stream(name: str, table: pa.Table) -> StreamDef:
    """Declare a stream from its data: the time is column `ts`, else the only timestamp column."""
    columns = dict(zip(table.column_names, table.schema.types, strict=True))
    named = [c for c in columns if c.lower() == "ts"]
    stamped = named or [c for c, t in columns.items() if pa.types.is_timestamp(t)]
    if len(stamped) != 1:
        raise BindingError(
            f'stream "{name}" has no time column',
            detail=f"its columns are {', '.join(columns)}",
            hint=f"declare it: CREATE STREAM {name} (...) TIMESTAMP BY <column>",
        )
    return StreamDef(name, columns, stamped[0])


def _optimised(catalog: Catalog, without: Iterable[str], strategy: str) -> Catalog:
    from windrow.optimize import optimize

    off = frozenset(without)
    return replace(
        catalog, queries={k: optimize(q, catalog, off=off, strategy=strategy) for k, q in catalog.queries.items()}
    )


def _arrivals(stream: StreamDef, data: Mapping[str, tuple[str, Any]]) -> Arrivals:
    if stream.name.lower() not in data:
        raise SourceError(
            f'stream "{stream.name}" has no data',
            hint=f"pass it to run: streams={{'{stream.name}': table or path}}",
        )
    table = to_table(data[stream.name.lower()][1], f'stream "{stream.name}"', schema=dict(stream.columns))
    return arrivals(stream, table)


def _table(table: TableDef, data: Mapping[str, tuple[str, Any]]) -> pa.Table:
    if table.name.lower() not in data:
        raise SourceError(
            f'table "{table.name}" has no data', hint=f"pass it to run: tables={{'{table.name}': table or path}}"
        )
    return to_table(data[table.name.lower()][1], f'table "{table.name}"', schema=dict(table.columns))


def _instant(until: Any, catalog: Catalog) -> int | None:
    """`until` in ticks of the clock: an integer, or a datetime for timestamp streams."""
    if until is None or isinstance(until, int | np.integer):
        return None if until is None else int(until)
    tz = next((t.tz for s in catalog.streams.values() if pa.types.is_timestamp(t := s.time_type)), None)
    try:
        return int(pa.scalar(until, pa.timestamp("us", tz)).cast(pa.int64()).as_py())
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError):
        pass
    try:
        return int(pa.array([str(until)]).cast(pa.timestamp("us")).cast(pa.int64())[0].as_py())
    except pa.ArrowInvalid as error:
        raise WindrowError(
            f"until is {until!r}", hint="give an integer (ticks or microseconds) or a datetime"
        ) from error


def _concat(circuit: Any, parts: list[pa.Table]) -> pa.Table:
    from windrow.operators.elements import Elements

    if parts:
        return pa.concat_tables(parts)
    last = circuit.flow.steps[-1]
    return circuit.answer(Elements.empty(last.schema))
