"""Elements on the wire: whole batches as opaque blobs, routed by partition.

A shuffle moves envelopes: (to, sender, kind, name, body). The body is an Arrow IPC stream of many elements, so the JVM
handles a few fat rows instead of every element, and each batch is encoded once per (edge, partition). A shuffle
delivers in any order; `sender` numbers the sending tasks, so receivers put the parts of an edge in the order of arrival
at the sources. Fat, but not without bound: the JVM holds a row several times over on its way, so a long body travels in
pieces, numbered within the `serial` that the envelope has in the task that packed it (who need not be the sender: what
is for the driver is passed on), and is put together where it is read.

    kind     name                     body
    rows     stage:exchange:query     elements for an operator of that stage
    mark     stream                   least and greatest time a task saw, rows and late rows
    first    query                    least time of the history given to a new query
    control  -                        frontier and clocks, for the next stage
    answer   query                    elements of a query's last step
    state    -                        references of the runs a task wrote, its timings and counters
    late     stream                   rows that came too late
    part     family:slot              entries or partials of a family, or how many rows they are of
    answers  family                   answers of many queries that share
    failed   query                    why a query that shares cannot go on
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.errors import RuntimeFailure
from windrow.operators.aggregates.vectors import Bools
from windrow.operators.elements import Elements, Int64s, one
from windrow.operators.keys import hash_rows
from windrow.operators.state.run import ints
from windrow.runtime.partitioning import How, Spread

SCHEMA = pa.schema([
    ("to", pa.int32()), ("sender", pa.int32()), ("kind", pa.string()), ("name", pa.string()),
    ("task", pa.int32()), ("serial", pa.int32()), ("piece", pa.int32()), ("pieces", pa.int32()), ("body", pa.binary()),
])  # fmt: skip

PIECE = 4 << 20
"""Bytes of a body that travel in one row."""

BATCH = 4 * PIECE
"""Bytes of bodies that travel in one record batch."""

LONG = 1 << 20
"""Bytes from which on a body is compressed."""

Envelope = tuple[int, int, str, str, bytes | pa.Buffer]


def pack(envelopes: list[Envelope], task: int) -> Iterator[pa.RecordBatch]:
    """Envelopes as record batches; no other task that packs for the same readers has this number."""
    rows: list[tuple[Any, ...]] = []
    size = 0
    for serial, (to, sender, kind, name, body) in enumerate(envelopes):
        pieces = max(1, -(-len(body) // PIECE))
        for piece in range(pieces):
            part = body if pieces == 1 else memoryview(body)[piece * PIECE : (piece + 1) * PIECE]
            if rows and size + len(part) > BATCH:
                yield _batch(rows)
                rows, size = [], 0
            rows.append((to, sender, kind, name, task, serial, piece, pieces, part))
            size += len(part)
    if rows:
        yield _batch(rows)


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = [pa.array(list(c), f.type) for c, f in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[Envelope]:
    """The envelopes of record batches; a body in one piece is not copied."""
    begun: dict[tuple[int, int], dict[int, pa.Buffer]] = {}
    for batch in batches:
        *plain, body = batch.columns
        for i, row in enumerate(zip(*(c.to_pylist() for c in plain), strict=True)):
            to, sender, kind, name, task, serial, piece, pieces = row
            found = body[i].as_buffer()
            if pieces > 1:
                parts = begun.setdefault((task, serial), {})
                parts[piece] = found
                if len(parts) < pieces:
                    continue
                found = pa.py_buffer(b"".join(parts[n] for n in range(pieces)))
                del begun[task, serial]
            yield to, sender, kind, name, found
    if begun:
        raise RuntimeFailure(f"{len(begun)} messages between tasks arrived in part", hint="this is a fault in windrow")


def encode_table(table: pa.Table) -> bytes:
    """An Arrow IPC stream; a long one is compressed, which costs less than its way through the JVM."""
    options = pa.ipc.IpcWriteOptions(compression="zstd" if table.nbytes >= LONG else None, use_threads=False)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def decode_table(body: bytes | pa.Buffer) -> pa.Table:
    """The table of an Arrow IPC stream, without copying if it is short."""
    return pa.ipc.open_stream(body).read_all()


def encode(elements: Elements) -> bytes:
    """Elements as bytes. Columns are numbered: their names are the receiver's business."""
    columns = [pa.array(elements.ts), pa.array(elements.exp), pa.array(elements.sign), *elements.columns.values()]
    return encode_table(pa.table(columns, names=[str(i) for i in range(len(columns))]))


def decode(body: bytes | pa.Buffer, names: list[str]) -> Elements:
    """Elements from bytes, with the receiver's column names."""
    table = decode_table(body)
    columns = {n: one(table.column(str(i + 3))) for i, n in enumerate(names)}
    return Elements(ints(table, "0"), ints(table, "1"), ints(table, "2"), columns)


def route(
    elements: Elements, spread: Spread, partitions: int, here: int, heavy: Int64s | None = None
) -> Iterator[tuple[int, Elements]]:
    """The elements for each partition that gets any; their order is kept. `heavy`: hashes of keys that lie apart."""
    if not len(elements):
        return
    if spread.how is How.ONE or partitions == 1:
        yield 0, elements
        return
    row, to = _targets(elements, spread, partitions, here, heavy)
    order = np.argsort(to, kind="stable")
    bounds = np.searchsorted(to[order], np.arange(partitions + 1))
    for p in range(partitions):
        if bounds[p] < bounds[p + 1]:
            picked = order[bounds[p] : bounds[p + 1]]
            yield p, elements.take(picked if row is None else row[picked])


def share(elements: Elements, spread: Spread, partitions: int, here: int) -> Elements:
    """The part of rows that every partition has, which `here` is to count: each row in one partition only."""
    if spread.how is not How.COLUMNS:
        return elements if here == 0 else elements.take(np.zeros(0, np.int64))
    return elements.filter(_by_hash(_hashes(elements, spread.columns), partitions) == here)


def belonging(elements: Elements, spread: Spread, partitions: int, here: int, heavy: Int64s) -> tuple[Bools, Bools]:
    """Which elements have one of the `heavy` keys, and which of these lie `here`."""
    assert spread.split is not None
    heavies = np.isin(_hashes(elements, spread.split.key if spread.how is How.TOGETHER else spread.columns), heavy)
    lies = np.zeros(len(elements), np.bool_)
    at = np.flatnonzero(heavies)
    if len(at):
        lies[at] = (spread.split.grid.cells(elements.take(at), partitions) == here).any(axis=1)
    return heavies, lies


def _targets(
    elements: Elements, spread: Spread, partitions: int, here: int, heavy: Int64s | None
) -> tuple[Int64s | None, Int64s]:
    """Pairs (element, partition), in the order of the elements; no elements are named when each has one partition."""
    if spread.how is How.ANY:
        return None, (np.arange(len(elements)) + here) % partitions
    if spread.how is How.GRID:
        assert spread.grid is not None
        cells = spread.grid.cells(elements, partitions)
        return np.repeat(np.arange(len(elements)), cells.shape[1]), cells.ravel()
    hashes = _hashes(elements, spread.columns)
    to = _by_hash(hashes, partitions)
    if spread.split is None or heavy is None or not len(heavy):
        return None, to
    heavies = np.isin(hashes, heavy)
    if not heavies.any():
        return None, to
    light, split = np.flatnonzero(~heavies), np.flatnonzero(heavies)
    cells = spread.split.grid.cells(elements.take(split), partitions)
    row = np.concatenate((light, np.repeat(split, cells.shape[1])))
    order = np.argsort(row, kind="stable")
    return row[order], np.concatenate((to[light], cells.ravel()))[order]


def _hashes(elements: Elements, columns: Sequence[str]) -> Int64s:
    return hash_rows([elements.columns[c] for c in columns], len(elements))


def _by_hash(hashes: Int64s, partitions: int) -> Int64s:
    return (hashes.view(np.uint64) % np.uint64(partitions)).astype(np.int64)
