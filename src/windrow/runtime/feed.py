"""Stage 0: the new rows of one stream, checked, selected, projected and routed for every query that reads it.

A row is late when its time is below the greatest time of the batches before its own, less the slack, or when time has
passed it (its stream was idle). So what is late depends on the stream's own batches, not on which other streams'
batches they met in a tick. Rows of one batch arrive together: in the order of its partitions.

Stage 0 runs only stateless operators, so their results need no run, no clock and no frontier.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.operators.elements import INF, Elements, Int64s, one
from windrow.plan.nodes import Scan
from windrow.runtime.admission import Columns, admit, unweighed
from windrow.runtime.exchange import Envelope, decode_table, encode, encode_table, pack, route
from windrow.runtime.program import Program, QueryProgram
from windrow.runtime.shared_aggregation import reduced
from windrow.sources.intake import times

BLOBS = pa.schema([("stream", pa.string()), ("only", pa.string()), ("rows", pa.binary())])
"""Rows of several streams as Arrow streams: what the driver has, as it goes through the JVM."""


def feed(program: Program, stream: str, batches: Iterator[pa.RecordBatch], sender: int) -> Iterator[pa.RecordBatch]:
    """The envelopes of one task that reads a stream."""
    yield from pack(_feed(program, stream, [pa.Table.from_batches([b]) for b in batches], sender), sender)


def feed_blobs(program: Program, batches: Iterator[pa.RecordBatch], sender: int) -> Iterator[pa.RecordBatch]:
    """The envelopes of one task that reads blobs."""
    tables: dict[tuple[str, str | None], list[pa.Table]] = {}
    for batch in batches:
        for i, (stream, only) in enumerate(zip(batch["stream"].to_pylist(), batch["only"].to_pylist(), strict=True)):
            tables.setdefault((stream, only), []).append(decode_table(batch["rows"][i].as_buffer()))
    yield from pack([e for (s, only), parts in tables.items() for e in _feed(program, s, parts, sender, only)], sender)


def blobs(feeds: Sequence[tuple[str, str | None, pa.Table]], pieces: int) -> pa.Table:
    """Rows of (stream, only, table) in a few pieces each, the first of all streams first, as a table of BLOBS."""
    cut = []
    for stream, only, table in feeds:
        step = max(1, -(-table.num_rows // pieces))
        cut += [
            (at // step, stream, only, encode_table(table.slice(at, step))) for at in range(0, table.num_rows, step)
        ]
    cut.sort(key=lambda piece: piece[0])
    return pa.Table.from_arrays([pa.array([c[i] for c in cut], f.type) for i, f in enumerate(BLOBS, 1)], schema=BLOBS)


def _feed(
    program: Program, stream: str, tables: Sequence[pa.Table], sender: int, only: str | None = None
) -> list[Envelope]:
    """Envelopes for the rows of one stream; `only`: they are history, for one new query."""
    parts = program.parts
    if stream not in parts.streams or not any(t.num_rows for t in tables):
        return []
    definition = parts.streams[stream]
    table = _declared(definition, tables)
    ts = times(definition, table)
    out: list[Envelope] = []
    if only:
        out += [(p, sender, "first", only, json.dumps(int(ts.min())).encode()) for p in range(program.partitions)]
    else:
        table, ts = _punctual(program, definition, stream, table, ts, sender, out)
    columns = {n: one(table.column(n)) for n in table.column_names}
    readers = {n: q for n, q in parts.queries.items() if only in (None, n) and stream in q.streams} if len(ts) else {}
    passed: dict[str | None, tuple[Int64s, Columns]] = {None: (ts, columns)}
    for name, query in readers.items():
        if query.gate not in passed:
            passed[query.gate] = _admitted(program, query, stream, ts, columns, sender, only, out)
        out += _leaves(program, name, query, stream, *passed[query.gate], sender)
    if len(ts) and parts.families:
        out += reduced(program, stream, ts, columns, sender, only)
    return out


def _admitted(
    program: Program,
    query: QueryProgram,
    stream: str,
    ts: Int64s,
    columns: Columns,
    sender: int,
    only: str | None,
    out: list[Envelope],
) -> tuple[Int64s, Columns]:
    """The rows that pass a query's gate; what was seen and kept is reported. History and replays pass whole."""
    if only is not None or program.until is not None:
        return ts, unweighed(len(ts), columns)
    gate, budget = query.gate, query.plan.budget
    assert gate is not None and budget is not None
    quota = program.quotas.get(gate, {}).get(stream)
    ts, columns, report = admit(gate, budget, stream, ts, columns, quota)
    out.append((0, sender, "shed", stream, report.encode()))
    return ts, columns


def _declared(definition: StreamDef, tables: Sequence[pa.Table]) -> pa.Table:
    """All rows, with the declared types (Spark lacks some of Arrow's)."""
    schema = pa.schema(list(definition.columns.items()))
    found = pa.concat_tables([t.select(schema.names) for t in tables])
    return (found if found.schema.types == schema.types else found.cast(schema)).combine_chunks()


def _punctual(
    program: Program, definition: StreamDef, stream: str, table: pa.Table, ts: Int64s, sender: int, out: list[Envelope]
) -> tuple[pa.Table, Int64s]:
    """The rows that are not late; what was seen is reported."""
    late = ts <= program.previous
    if stream in program.marks and program.until is None:
        late |= ts < program.marks[stream] - definition.slack
    if late.any():
        out.append((0, sender, "late", stream, encode_table(table.filter(pa.array(late)))))
        table, ts = table.filter(pa.array(~late)), ts[~late]
    low, high = (int(ts.min()), int(ts.max())) if len(ts) else (None, None)
    mark = json.dumps([low, high, len(late), int(late.sum())]).encode()
    out += [(p, sender, "mark", stream, mark) for p in range(program.partitions)]
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
                picked = {internal: columns[c] for internal, c, _ in step.node.columns}
                values[i] = Elements.positive(ts, INF, picked)
        elif any(s in values for s in step.inputs):
            inputs = [values.get(s, Elements.empty(steps[s].schema)) for s in step.inputs]
            values[i] = step.operator.advance(inputs, INF)
    for number, exchange in enumerate(query.layout.exchanges):
        if exchange.source in values:
            heavy = program.heavy_keys(name, exchange.spread)
            for to, part in route(values[exchange.source], exchange.spread, program.partitions, sender, heavy):
                yield to, sender, "rows", f"{exchange.stage}:{number}:{name}", encode(part)
