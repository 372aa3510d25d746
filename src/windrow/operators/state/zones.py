"""Zones: what is known of the rows of a run without reading them.

A run that is worth it is cut into blocks of `BLOCK` rows. Of each block and column: the least and the greatest code
(`aggregates.order`: int64, or UTF-8 bytes for text) and how many values are null. Of the whole run and each column that
may be a key: a sample of hashes that says how many values are distinct, and, if they are many, a filter that says
which are not there (Bloom: no value that is there is denied; one in a hundred that is not there is let through).

    run   = rows sorted by the stream's key, in blocks       zones travel in the metadata of the run's table,
    zones = | low high nulls | low high nulls | ...          and so in its file

Law: a row that has a code outside [low, high] of its block does not exist. Who reads by zones may read too much, never
too little. Cost: one pass per column when the run is made; 24 bytes for each block and column, 10 bits for each
distinct key.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from windrow.operators.aggregates.order import encode, has_fixed_codes
from windrow.operators.aggregates.vectors import Int64s, distinct_values, validity
from windrow.operators.elements import one
from windrow.operators.keys import hash_rows, mix
from windrow.operators.sketch import estimate, smallest
from windrow.operators.state.run import Run

BLOCK = 8192
"""Rows of a block."""

WORTH = 4096
"""Runs with fewer rows have no zones: reading them is as cheap."""

SAMPLE = 64
"""Hashes kept to estimate how many values are distinct."""

FEW = 256
"""With fewer distinct values every run has them all: a filter would say nothing."""

MOST_BITS = 1 << 19
KNOWN = 4096
"""Runs whose zones are remembered."""
_KEY, _FILTER, _SKETCH = b"windrow.zones", b"windrow.filter.", b"windrow.sketch."
_SORTED = b"windrow.sorted"
_SEED = np.uint64(0x9E3779B97F4A7C15)
_PROBES = 5
_TOP = np.iinfo(np.int64).max

Code = int | bytes


@dataclass(frozen=True)
class ColumnZones:
    """Of one column, block by block: least and greatest code (None: all null), and the number of nulls."""

    low: Sequence[Code | None]
    high: Sequence[Code | None]
    nulls: Int64s

    @cached_property
    def codes(self) -> tuple[Int64s, Int64s] | None:
        """The same as arrays, where all are numbers."""
        if not all(isinstance(c, int) for c in (*self.low, *self.high)):
            return None
        return np.array(self.low, np.int64), np.array(self.high, np.int64)

    @cached_property
    def ends(self) -> tuple[int, int]:
        """The least and greatest code of all blocks, of a column of numbers without nulls."""
        assert self.codes is not None
        return int(self.codes[0].min()), int(self.codes[1].max())


@dataclass(frozen=True)
class Zones:
    """What a run's metadata say of its rows."""

    begins: Int64s  # [blocks + 1]: block b is rows begins[b] to begins[b + 1]
    spans: Mapping[str, ColumnZones]
    filters: Mapping[str, bytes] = field(default_factory=dict)
    sketches: Mapping[str, np.ndarray] = field(default_factory=dict)
    sorted_by: str | None = None  # the column that rows are in the order of, nulls last
    size: int = 0  # bytes that looking at them reads
    of_bytes: int = 0  # bytes of the whole run

    @property
    def blocks(self) -> int:
        return len(self.begins) - 1

    def distinct(self, column: str) -> float | None:
        """About how many distinct values a column has; None: nobody counted."""
        sample = self.sketches.get(column)
        return None if sample is None else estimate(sample, SAMPLE)

    def may_have(self, column: str, code: Code) -> bool:
        """False when no row of the run has the value of this code in the column."""
        bits = self.filters.get(column)
        return bits is None or bool(_tests(np.frombuffer(bits, np.uint8), _hash_code(code)).all())


def zoned(table: pa.Table, keys: Iterable[str] = (), sorted_by: str | None = None) -> pa.Table:
    """The table with its zones in its metadata; `keys`: the columns that have a sketch and a filter.

    `sorted_by`: the column that its rows are in the order of, nulls last.
    """
    table = table.combine_chunks()
    begins = np.arange(0, table.num_rows + BLOCK, BLOCK).clip(max=table.num_rows)
    begins = begins[: -(-table.num_rows // BLOCK) + 1]
    columns: dict[str, pa.Array] = {"begin": pa.array(begins[:-1])}
    metadata: dict[bytes, bytes] = {}
    for name in table.column_names:
        column = one(table.column(name))
        found = _span(column, begins)
        if found is not None:
            columns |= {f"low:{name}": found[0], f"high:{name}": found[1], f"nulls:{name}": found[2]}
    for name in keys:
        hashes = _hash_column(one(table.column(name)))
        sample = smallest(hashes.view(np.int64), SAMPLE)
        metadata[_SKETCH + name.encode()] = sample.tobytes()
        if FEW <= (distinct := estimate(sample, SAMPLE)) <= MOST_BITS / 10:
            metadata[_FILTER + name.encode()] = _filter(distinct_values(hashes), distinct).tobytes()
    if sorted_by is not None:
        metadata[_SORTED] = sorted_by.encode()
    metadata[_KEY] = _packed(pa.table(columns))
    return table.replace_schema_metadata(metadata)


def _unpacked(metadata: Mapping[bytes, bytes], rows: int, of_bytes: int) -> Zones:
    with ipc.open_stream(metadata[_KEY]) as stream:
        table = stream.read_all()
    names = [n.removeprefix("low:") for n in table.column_names if n.startswith("low:")]
    spans = {
        n: ColumnZones(
            table.column(f"low:{n}").to_pylist(),
            table.column(f"high:{n}").to_pylist(),
            table.column(f"nulls:{n}").to_numpy(),
        )
        for n in names
    }
    rest = metadata.items()
    filters = {k.removeprefix(_FILTER).decode(): v for k, v in rest if k.startswith(_FILTER)}
    sketches = {k.removeprefix(_SKETCH).decode(): np.frombuffer(v, np.uint64) for k, v in rest if k.startswith(_SKETCH)}
    sorted_by = metadata[_SORTED].decode() if _SORTED in metadata else None
    begins = np.append(table.column("begin").to_numpy(), rows)
    size = sum(len(v) for k, v in rest if k.startswith(b"windrow."))
    return Zones(begins, spans, filters, sketches, sorted_by, size, of_bytes)


_known: OrderedDict[tuple[str, int], Zones | None] = OrderedDict()
"""The zones of the runs that were looked at last: metadata are copied at every look."""
_lock = threading.Lock()


def zones_of(run: Run) -> Zones | None:
    """The zones of a run; None when it has none."""
    key = (run.uid, run.table.num_rows)
    with _lock:
        if key in _known:
            _known.move_to_end(key)
            return _known[key]
    metadata = run.table.schema.metadata or {}
    found = _unpacked(metadata, run.table.num_rows, run.nbytes) if _KEY in metadata else None
    with _lock:
        _known[key] = found
        while len(_known) > KNOWN:
            _known.popitem(last=False)
    return found


def is_key(type_: pa.DataType) -> bool:
    """Whether a column of this type may be a key: equality with a constant picks few of its rows."""
    return bool(has_fixed_codes(type_) and not pa.types.is_floating(type_) and not pa.types.is_boolean(type_)) or (
        pa.types.is_string(type_) or pa.types.is_large_string(type_)
    )


def _span(column: pa.Array, begins: Int64s) -> tuple[pa.Array, pa.Array, pa.Array] | None:
    """Low, high and nulls of each block; None for a type whose codes do not last."""
    valid = validity(column)
    nulls = np.zeros(len(begins) - 1, np.int64)
    if valid is not None:
        nulls = np.add.reduceat((~valid).astype(np.int64), begins[:-1])
    empty = nulls == np.diff(begins)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        raw = column.cast(pa.large_binary())
        pairs = [
            pc.min_max(raw.slice(b, e - b)) for b, e in zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True)
        ]
        low, high = ([p[side].as_py() for p in pairs] for side in ("min", "max"))
        return pa.array(low, pa.binary()), pa.array(high, pa.binary()), pa.array(nulls)
    if not has_fixed_codes(column.type) or pa.types.is_null(column.type):
        return None
    (codes,), _ = encode([column])
    codes = codes.astype(np.int64, copy=False)
    lows, highs = (codes, codes) if valid is None else (np.where(valid, codes, _TOP), np.where(valid, codes, ~_TOP))
    mask = empty if empty.any() else None
    return (
        pa.array(np.minimum.reduceat(lows, begins[:-1]), mask=mask),
        pa.array(np.maximum.reduceat(highs, begins[:-1]), mask=mask),
        pa.array(nulls),
    )


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


# -- filters ---------------------------------------------------------------------------------------------------------


def _hash_column(column: pa.Array) -> np.ndarray:
    """A hash of every value that is not null: of its code, or of its text."""
    column = column.drop_null()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return hash_rows([column], len(column)).view(np.uint64)
    (codes,), _ = encode([column])
    return mix(codes.astype(np.int64, copy=False).view(np.uint64))


def _hash_code(code: Code) -> np.ndarray:
    if isinstance(code, bytes):
        return hash_rows([pa.array([code], pa.binary()).cast(pa.string())], 1).view(np.uint64)
    return mix(np.array([code], np.int64).view(np.uint64))


def _places(hashes: np.ndarray, bits: int) -> np.ndarray:
    """The bits of each hash: a walk with a step of its own."""
    step = mix(hashes + _SEED) | np.uint64(1)
    steps = np.arange(_PROBES, dtype=np.uint64)
    return (hashes[:, None] + steps[None, :] * step[:, None]) & np.uint64(bits - 1)


def _filter(hashes: np.ndarray, distinct: float) -> np.ndarray:
    bits = 1 << max(10, int(np.ceil(np.log2(max(1.0, distinct) * 10))))
    there = np.zeros(bits, np.bool_)
    there[_places(hashes, bits).ravel()] = True
    return np.packbits(there)


def _tests(packed: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    places = _places(hashes, 8 * len(packed)).ravel()
    return (packed[places >> np.uint64(3)] >> (np.uint64(7) - (places & np.uint64(7))).astype(np.uint8)) & 1 == 1
