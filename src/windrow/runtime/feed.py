"""Stage 0: the new rows of one stream, checked, selected, projected and routed for every query that reads it.

A row is late when its time is at or before the frontier that earlier ticks have answered, so rows of one tick never
make each other late. A row from further ahead than its stream allows is set aside like a late one. Rows of one tick
arrive in the order of the tasks that read them.

Stage 0 runs only stateless operators, so their results need no run, no clock and no frontier. A query whose expressions
raise fails alone. What cannot be read as declared is set aside (ON ERROR QUARANTINE), or fails the stream.

Only columns that somebody reads are read, and no row groups that nobody wants; late rows, which are kept whole, are
read again with all of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.errors import SourceError, StateError, WindrowError, as_failure
from windrow.operators.elements import BEGINNING, INF, Elements, Int64s, one
from windrow.operators.state.zones import Zones
from windrow.plan.nodes import Scan
from windrow.runtime.admission import Columns, admit, unweighed
from windrow.runtime.exchange import fewer, route
from windrow.runtime.idle_memory import touched
from windrow.runtime.messages import (
    Envelope,
    ExchangedRows,
    HistoryStart,
    LateRows,
    QueryFailed,
    SetAside,
    Shed,
    StreamFailed,
    StreamMark,
)
from windrow.runtime.program import Program, QueryProgram
from windrow.runtime.pruning import may_hold
from windrow.runtime.shared_joins import sides
from windrow.runtime.shared_reduction import reduced
from windrow.sources.footers import said_by_folders
from windrow.sources.intake import times
from windrow.sources.lines import LinePiece
from windrow.sources.protocol import Piece, Report
from windrow.sources.quarantined_rows import QuarantinedRows, timed_rows
from windrow.sources.read_arrow import ArrowPiece
from windrow.sources.read_parquet import ParquetPiece

Reader = Callable[[Sequence[str] | None, Report | None], Iterable[pa.Table | pa.RecordBatch]]
"""Reads the rows of a task: these columns, or all; one that has them anyway may give more. It can be called again.

Malformed rows are reported if somebody listens, and raised otherwise."""


def feed(
    program: Program,
    stream: str,
    read: Reader,
    sender: int,
    only: str | None = None,
    ts: Int64s | None = None,
    skipped: StreamMark | None = None,
    passing: Reader | None = None,
) -> list[Envelope]:
    """The messages of one task that reads rows of a stream; `only`: they are history, for one new query.

    `ts`: their times, if the caller knows them. `skipped`: rows that concern nobody but time; so do those of `passing`,
    which nobody has seen yet.
    """
    deployed = program.deployment
    definition = deployed.streams.get(stream)
    if definition is None:
        return []
    out = [] if skipped is None else [Envelope(p, sender, skipped) for p in range(program.partitions)]
    shown, columns = deployed.shown[stream], deployed.reads[stream]
    try:
        table, ts = _arrived(program, definition, read, columns, shown, sender, out, only, ts)
        if passing is not None:
            clock = pa.schema([(definition.time, definition.time_type)])
            _arrived(program, definition, passing, clock.names, clock, sender, out)
    except (StateError, MemoryError):
        raise
    except Exception as error:  # one stream must not stop the others
        return [Envelope(0, sender, StreamFailed(stream, _unreadable(error, definition)))]
    if len(ts):
        arrays = {n: one(table.column(n)) for n in table.column_names}
        out += _for_queries(program, stream, ts, arrays, sender, only)
        if deployed.families:
            out += reduced(program, stream, ts, arrays, sender, only)
        if deployed.joins and not only:
            out += sides(program, stream, ts, arrays, sender)
    return out


def _arrived(
    program: Program,
    definition: StreamDef,
    read: Reader,
    columns: Sequence[str] | None,
    shown: pa.Schema,
    sender: int,
    out: list[Envelope],
    only: str | None = None,
    ts: Int64s | None = None,
) -> tuple[pa.Table, Int64s]:
    """The rows that are in time, these columns of them, with their times; what was seen and set aside is reported."""
    stream, aside = definition.name.lower(), QuarantinedRows(definition.name) if definition.quarantine else None
    table = timed_rows(definition, _read(shown, read, columns, aside), aside)
    ts = times(definition, table) if ts is None else ts
    touched(table.get_total_buffer_size())
    if aside is not None and aside.rows:
        out.append(Envelope(0, sender, SetAside(stream, aside.table())))
    if not table.num_rows:
        return table, ts
    if only:
        start = HistoryStart(only, int(ts.min()))
        out += [Envelope(p, sender, start) for p in range(program.partitions)]
        return table, ts
    return _punctual(program, stream, table, ts, sender, out, lambda: _whole(definition, read))


@dataclass(frozen=True)
class Wanted:
    """What of some pieces is to be read: rows of `read`, only times of `passing`; and what is left out, for time."""

    read: list[Piece]
    passing: list[Piece]
    skipped: StreamMark | None


def wanted(program: Program, stream: str, pieces: Sequence[Piece]) -> Wanted:
    """What concerns somebody, as far as files and their folders say so of themselves.

    Rows that are late or too far ahead concern whoever looks at those, so they are never left out.
    """
    boxes = program.deployment.wants.get(stream)
    definition = program.deployment.streams.get(stream)
    if boxes is None or definition is None:
        return Wanted(list(pieces), [], None)
    tested = {c for box in boxes for c, _ in box}
    ahead = program.ahead.get(stream, INF)
    found = Wanted([], [], None)
    marks: list[tuple[int, int, int]] = []  # rows, least and greatest time
    for piece in pieces:
        if not isinstance(piece, ParquetPiece | ArrowPiece | LinePiece):
            found.read.append(piece)
            continue
        folders = said_by_folders(definition, piece.given(definition)) if boxes else {}
        foreign = not may_hold(boxes, Zones(np.arange(2), folders))[0]
        if not isinstance(piece, ParquetPiece):
            (found.passing if foreign else found.read).append(piece)
            continue
        if foreign and piece.known is not None and piece.known[1] > program.previous and piece.known[2] <= ahead:
            marks.append(piece.known)
            continue
        groups = piece.row_groups(definition, tested)
        if groups is not None:
            idle = (groups.low > program.previous) & (groups.high <= ahead) & ~may_hold(boxes, groups.zones)
            marks += zip(*(v[idle].tolist() for v in (groups.rows, groups.low, groups.high)), strict=True)
            piece = piece.without(groups.numbers[idle].tolist())
        if len(piece.skipped) < piece.stop - piece.first:
            (found.passing if foreign else found.read).append(piece)
    if not marks:
        return found
    rows, low, high = zip(*marks, strict=True)
    return replace(found, skipped=StreamMark(stream, min(low), max(high), sum(rows), 0))


def _for_queries(
    program: Program, stream: str, ts: Int64s, columns: Columns, sender: int, only: str | None
) -> Iterator[Envelope]:
    """What goes to the queries that run by themselves; those behind one gate see the same rows."""
    passed: dict[str | None, tuple[Int64s, Columns]] = {None: (ts, columns)}
    for name, query in program.deployment.queries.items():
        if only not in (None, name) or stream not in query.streams:
            continue
        try:
            if query.gate not in passed:
                admitted, shed = _admitted(program, query, stream, ts, columns, only)
                passed[query.gate] = admitted
                if shed is not None:
                    yield Envelope(0, sender, shed)
            yield from list(_leaves(program, name, query, stream, *passed[query.gate], sender))
        except (StateError, MemoryError):
            raise
        except Exception as error:  # one query must not stop the others
            yield Envelope(0, sender, QueryFailed(name, as_failure(error, query.plan.name)))


def _admitted(
    program: Program, query: QueryProgram, stream: str, ts: Int64s, columns: Columns, only: str | None
) -> tuple[tuple[Int64s, Columns], Shed | None]:
    """The rows that pass a query's gate, and what was seen and kept. History and replays pass whole."""
    if only is not None or program.until is not None:
        return (ts, unweighed(len(ts), columns)), None
    gate, budget = query.gate, query.plan.budget
    assert gate is not None and budget is not None
    quota = program.quotas.get(gate, {}).get(stream)
    ts, columns, admission = admit(gate, budget, stream, ts, columns, quota)
    return (ts, columns), Shed(admission)


def _whole(definition: StreamDef, read: Reader) -> pa.Table:
    """All columns of the rows that were read before; what is malformed has been reported."""
    quiet = QuarantinedRows(definition.name) if definition.quarantine else None
    return timed_rows(definition, _read(pa.schema(list(definition.columns.items())), read, None, quiet), quiet)


def _unreadable(error: Exception, definition: StreamDef) -> WindrowError:
    """What stops one stream."""
    if isinstance(error, WindrowError):
        return error
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return SourceError(f'stream "{definition.name}" cannot be read: {said}')


def _read(
    schema: pa.Schema, read: Reader, columns: Sequence[str] | None, aside: QuarantinedRows | None = None
) -> pa.Table:
    """All rows, with the declared types (Spark lacks some of Arrow's): these columns, or all."""
    tables = [t if isinstance(t, pa.Table) else pa.Table.from_batches([t]) for t in read(columns, aside)]
    if not tables:
        return schema.empty_table()
    if len(tables) == 1:
        only = tables[0]
        if only.schema.names != schema.names and set(schema.names) <= set(only.column_names):
            only = only.select(schema.names)
        alike = only.schema.equals(schema) or (only.schema.names, only.schema.types) == (schema.names, schema.types)
        if alike and all(c.num_chunks == 1 for c in only.itercolumns()):
            return only
    found = pa.concat_tables([t if t.column_names == schema.names else t.select(schema.names) for t in tables])
    return (found if found.schema.types == schema.types else found.cast(schema)).combine_chunks()


def _punctual(
    program: Program,
    stream: str,
    table: pa.Table,
    ts: Int64s,
    sender: int,
    out: list[Envelope],
    whole: Callable[[], pa.Table],
) -> tuple[pa.Table, Int64s]:
    """The rows that are in time; what was seen is reported. `whole`: all columns of all rows."""
    seen, ahead = len(ts), program.ahead.get(stream, INF)
    low, high = int(ts.min()), int(ts.max())
    if low <= program.previous or high > ahead:
        kept = (ts > program.previous) & (ts <= ahead)
        out.append(Envelope(0, sender, LateRows(stream, whole().filter(pa.array(~kept)))))
        table, ts = table.filter(pa.array(kept)), ts[kept]
        low, high = int(ts.min(initial=INF)), int(ts.max(initial=BEGINNING))
    some = len(ts) > 0
    mark = StreamMark(stream, low if some else None, high if some else None, seen, seen - len(ts))
    out += [Envelope(p, sender, mark) for p in range(program.partitions)]
    return table, ts


def _leaves(
    program: Program,
    name: str,
    query: QueryProgram,
    stream: str,
    ts: Int64s,
    columns: Mapping[str, pa.Array],
    sender: int,
) -> Iterator[Envelope]:
    """Run the query's steps of stage 0 over the rows, and route what leaves it."""
    steps, placement = query.layout.flow.steps, query.layout.placement
    values: dict[int, Elements] = {}
    for i, step in enumerate(steps):
        if placement.stages[i] != 0 or i in placement.tables:
            continue
        if step.operator is None:
            assert isinstance(step.node, Scan)
            if step.node.stream.lower() == stream:
                # a plan still has columns that were dropped, which only those of its queries read that have left
                scanned = step.node.columns
                picked = {n: columns[c] if c in columns else pa.nulls(len(ts), t) for n, c, t in scanned}
                values[i] = Elements.positive(ts, INF, picked)
        elif any(s in values for s in step.inputs):
            inputs = [values[s] if s in values else Elements.empty(steps[s].schema) for s in step.inputs]
            values[i] = step.operator.advance(inputs, INF)
    for number, exchange in enumerate(query.layout.exchanges):
        if exchange.source in values:
            heavy = program.heavy_keys(name, exchange.partitioning)
            rows, were = values[exchange.source], None
            if not program.direct and number in query.layout.reductions:
                rows, were = fewer(rows, query.layout.reductions[number]), len(rows)
            for to, part in route(rows, exchange.partitioning, program.partitions, sender, heavy):
                yield Envelope(to, sender, ExchangedRows(exchange.stage, number, name, part, were))
                were = 0 if were else were
