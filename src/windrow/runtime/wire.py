"""Messages between processes: envelopes as Arrow record batches.

The body of a message is an Arrow IPC stream of many rows where there are rows, so the JVM handles a few fat rows
instead of every element. Fat, but not without bound: the JVM holds a row several times over on its way, so a long body
travels in pieces, numbered within the `serial` that the envelope has in the task that packed it (who need not be the
sender: what is for the driver is passed on), and is put together where it is read.

Between tasks of one machine a long body goes by a file that its reader maps (`Spool`): nothing is compressed, and the
JVM sees a name. Files are the job's: it removes them when it has what it wanted, and whoever mapped one keeps it.

What carries no rows is pickled: it is written and read by the tasks of one job and never kept.
"""

from __future__ import annotations

import json
import os
import pickle
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.errors import RuntimeFailure
from windrow.operators.elements import INF, Elements, one
from windrow.operators.state.run import ints
from windrow.runtime.messages import (
    Answer,
    Envelope,
    ExchangedRows,
    FamilyPartials,
    JoinRows,
    JoinSums,
    LateRows,
    Message,
    SetAside,
    SharedAnswer,
)
from windrow.sharing.member_columns import InstanceNames
from windrow.sharing.query_group import Batch

SCHEMA = pa.schema([
    ("to", pa.int32()), ("sender", pa.int32()), ("kind", pa.string()), ("address", pa.string()),
    ("task", pa.int32()), ("serial", pa.int32()), ("piece", pa.int32()), ("pieces", pa.int32()), ("body", pa.binary()),
])  # fmt: skip

PIECE = 4 << 20
"""Bytes of a body that travel in one row."""

BATCH = 4 * PIECE
"""Bytes of bodies that travel in one record batch."""

LONG = 1 << 20
"""Bytes from which on a body is compressed, or goes by a file."""

_FILED = "@"
"""Before the kind of a message whose body is the name of a file."""


@dataclass(frozen=True)
class Spool:
    """A folder of this machine for long bodies."""

    folder: str

    def put(self, table: pa.Table) -> bytes:
        """Write rows to a file of their own; its name."""
        name = uuid.uuid4().hex
        with pa.OSFile(os.path.join(self.folder, name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return name.encode()

    def map(self, name: str) -> pa.Buffer:
        """The bytes of a file."""
        with pa.memory_map(os.path.join(self.folder, name)) as mapped:
            return mapped.read_buffer()

    def clear(self) -> None:
        """Remove all files."""
        for name in os.listdir(self.folder):
            os.unlink(os.path.join(self.folder, name))


_Lifetimes = ("_ts", "_exp", "_sign")

_WITH_ROWS = (ExchangedRows, Answer, FamilyPartials, JoinRows, JoinSums, LateRows, SetAside)
"""Messages of which one field is rows, a table or elements; the others are their address."""

_ANSWERS = SharedAnswer.__name__


Row = tuple[int, int, str, str, int, int, int, int, bytes]
"""A body, or a piece of one, with all that `SCHEMA` says of it."""


def rows(envelopes: Iterable[Envelope], task: int, spool: Spool | None = None) -> Iterator[Row]:
    """Envelopes as rows; no other task that packs for the same readers has this number."""
    for serial, envelope in enumerate(envelopes):
        kind, address, body = encode(envelope.message, spool)
        pieces = max(1, -(-len(body) // PIECE))
        for piece in range(pieces):
            part = body if pieces == 1 else body[piece * PIECE : (piece + 1) * PIECE]
            yield envelope.to, envelope.sender, kind, address, task, serial, piece, pieces, part


def pack(envelopes: Iterable[Envelope], task: int, spool: Spool | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of envelopes as record batches."""
    packed: list[Row] = []
    size = 0
    for row in rows(envelopes, task, spool):
        if packed and size + len(row[-1]) > BATCH:
            yield _batch(packed)
            packed, size = [], 0
        packed.append(row)
        size += len(row[-1])
    if packed:
        yield _batch(packed)


def _batch(packed: list[Row]) -> pa.RecordBatch:
    columns = [pa.array(list(c), f.type) for c, f in zip(zip(*packed, strict=True), SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def unpack(batches: Iterable[pa.RecordBatch], spool: Spool | None = None) -> Iterator[Envelope]:
    """The envelopes of record batches; a body in one piece is not copied."""
    return put_together(_unpacked(batches), spool)


def _unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        *plain, body = batch.columns
        for i, row in enumerate(zip(*(c.to_pylist() for c in plain), strict=True)):
            yield *row, body[i].as_buffer()


def put_together(packed: Iterable[tuple[Any, ...]], spool: Spool | None = None) -> Iterator[Envelope]:
    """The envelopes of rows, in any order; a body is bytes or a buffer."""
    begun: dict[tuple[int, int], dict[int, Any]] = {}
    for to, sender, kind, address, task, serial, piece, pieces, body in packed:
        found = body
        if pieces > 1:
            parts = begun.setdefault((task, serial), {})
            parts[piece] = body
            if len(parts) < pieces:
                continue
            found = b"".join(parts[n] for n in range(pieces))
            del begun[task, serial]
        kind, found = unfiled(kind, pa.py_buffer(found), spool)
        yield Envelope(to, sender, decode(kind, address, found))
    if begun:
        raise RuntimeFailure(f"{len(begun)} messages between tasks arrived in part", hint="this is a fault in windrow")


def unfiled(kind: str, body: pa.Buffer, spool: Spool | None) -> tuple[str, pa.Buffer]:
    """The kind of a message and its body, which may be in a file."""
    if not kind.startswith(_FILED):
        return kind, body
    assert spool is not None
    return kind.removeprefix(_FILED), spool.map(body.to_pybytes().decode())


def encode(message: Message, spool: Spool | None = None) -> tuple[str, str, bytes]:
    """The kind of a message, its address, and its body."""
    found = _rows(message)
    if found is None:
        return "plain", "", pickle.dumps(message)
    kind, address, table = found
    if spool is not None and table.nbytes >= LONG:
        return f"{_FILED}{kind}", address, spool.put(table)
    return kind, address, encode_table(table)


def _rows(message: Message) -> tuple[str, str, pa.Table] | None:
    """The kind of a message that carries rows, its address, and the rows."""
    if isinstance(message, SharedAnswer):
        return _ANSWERS, "", _batch_table(message.batch)
    if not isinstance(message, _WITH_ROWS):
        return None
    found = {f.name: getattr(message, f.name) for f in fields(message)}
    rows = _element_table(found.pop("elements")) if "elements" in found else found.pop("table")
    return type(message).__name__, json.dumps(found), rows


def decode(kind: str, address: str, body: pa.Buffer) -> Message:
    """The message that `encode` made these of."""
    if kind == _ANSWERS:
        return SharedAnswer(_decode_batch(body))
    for type_ in _WITH_ROWS:
        if kind == type_.__name__:
            elements = type_ in (ExchangedRows, Answer)
            rows = {"elements": decode_elements(body)} if elements else {"table": decode_table(body)}
            return type_(**json.loads(address), **rows)
    message: Message = pickle.loads(memoryview(body))
    return message


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


def _element_table(elements: Elements) -> pa.Table:
    arrays = [pa.array(elements.ts), pa.array(elements.exp), pa.array(elements.sign), *elements.columns.values()]
    return pa.Table.from_arrays(arrays, names=[*_Lifetimes, *elements.columns])


def decode_elements(body: bytes | pa.Buffer) -> Elements:
    """Elements from bytes."""
    table = decode_table(body)
    names = table.column_names[len(_Lifetimes) :]
    columns = {n: one(table.column(i)) for i, n in enumerate(names, len(_Lifetimes))}
    ts, exp, sign = (ints(table, i) for i in range(len(_Lifetimes)))
    return Elements(ts, exp, sign, columns)


def _batch_table(batch: Batch) -> pa.Table:
    """Times, columns, and whose they are."""
    rows = batch.rows
    table = pa.Table.from_arrays([pa.array(rows.ts), *rows.columns.values()], names=["_ts", *rows.columns])
    some = np.flatnonzero(batch.counts)
    numbers, whose = batch.numbers[some], {b"counts": batch.counts[some].astype(np.int64).tobytes()}
    if isinstance(batch.names, InstanceNames):
        whose |= {b"block": batch.names.block.encode(), b"members": numbers.astype(np.int64).tobytes()}
    else:
        whose |= {b"queries": json.dumps([batch.names[i] for i in numbers.tolist()]).encode()}
    return table.replace_schema_metadata(whose)


def _decode_batch(body: pa.Buffer) -> Batch:
    table = decode_table(body)
    about = table.schema.metadata
    counts = np.frombuffer(about[b"counts"], np.int64)
    columns = {n: one(table.column(i)) for i, n in enumerate(table.column_names) if i}
    rows = Elements.positive(ints(table, 0), INF, columns)
    if b"block" in about:  # the driver knows the rows of values
        names = InstanceNames(about[b"block"].decode(), "", pa.table({}))
        return Batch(names, counts, rows, np.frombuffer(about[b"members"], np.int64))
    return Batch(json.loads(about[b"queries"]), counts, rows)
