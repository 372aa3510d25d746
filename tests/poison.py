"""Arrays whose null slots hold the worst that Arrow allows: equal to what they were made from, in other memory.

Under a null lie NaN, signalling NaN, infinities, the ends of integers, random bytes; text and lists under a null are
not empty; what a null struct or list consists of is poisoned too. The array is a slice of a longer one with garbage at
both ends.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_PATTERNS = {
    "zero": b"\x00" * 16,
    "ones": b"\xff" * 16,  # -1, a NaN
    "infinity": np.array([np.inf, -np.inf]).tobytes(),
    "infinity32": np.array([np.inf, -np.inf] * 2, np.float32).tobytes(),
    "signalling": np.array([0x7FF0000000000001, 0xFFF0000000000001], np.uint64).tobytes(),
    "signalling32": np.array([0x7F800001, 0xFF800001] * 2, np.uint32).tobytes(),
    "least": np.array([-(2**63)] * 2, np.int64).tobytes(),
    "greatest": np.array([2**63 - 1] * 2, np.int64).tobytes(),
    "huge": np.array([1.7e308, -1.7e308]).tobytes(),
}
PATTERNS = (*_PATTERNS, "random")


def poisoned(array: pa.Array, pattern: str, seed: int = 0) -> pa.Array:
    """An equal array with garbage under its nulls and around it."""
    random = np.random.default_rng(seed)
    padded = pa.concat_arrays([pa.nulls(3, array.type), array, pa.nulls(2, array.type)])
    found = _poisoned(padded, pattern, random).slice(3, len(array))
    found.validate(full=True)
    assert repr(found.to_pylist()) == repr(array.to_pylist())
    return found


def poisoned_table(table: pa.Table, pattern: str, seed: int = 0) -> pa.Table:
    """A table of such arrays."""
    columns = [poisoned(pa.concat_arrays(c.chunks or [pa.array([], c.type)]), pattern, seed) for c in table.columns]
    return pa.table(columns, schema=table.schema)


def _poisoned(array: pa.Array, pattern: str, random: np.random.Generator) -> pa.Array:
    if array.offset:  # buffers are read from their beginning
        array = array.take(pa.array(np.arange(len(array))))
    null = np.asarray(array.is_null()) if len(array) else np.zeros(0, np.bool_)
    t, type_ = pa.types, array.type
    if t.is_struct(type_):
        children = [_hidden(array.field(i), null, pattern, random) for i in range(type_.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=pa.array(null))
    if t.is_fixed_size_list(type_):
        inner = np.repeat(null, type_.list_size)
        values = _hidden(array.values, inner, pattern, random)
        return pa.FixedSizeListArray.from_arrays(values, type=type_, mask=pa.array(null))
    if t.is_list(type_) or t.is_map(type_):
        return _poisoned_lists(array, null, pattern, random)
    if t.is_string(type_) or t.is_binary(type_):
        return _poisoned_text(array, null, random)
    if t.is_null(type_) or t.is_dictionary(type_) or not len(array):
        return array
    return _poisoned_values(array, null, pattern, random)


def _hidden(values: pa.Array, under: np.ndarray, pattern: str, random: np.random.Generator) -> pa.Array:
    """The parts of nested values, with nulls that hide garbage where the whole is null."""
    if len(values):
        values = pa.compute.if_else(pa.array(under), pa.scalar(None, values.type), values)
    shown = _poisoned(values, pattern, random)
    if random.random() < 0.5 or not under.any() or not (pa.types.is_primitive(values.type)):
        return shown
    # the parts of a null need not be null themselves
    bitmap = np.packbits(under | np.asarray(values.is_valid()), bitorder="little")
    return pa.Array.from_buffers(shown.type, len(shown), [pa.py_buffer(bitmap), *shown.buffers()[1:]])


def _poisoned_values(array: pa.Array, null: np.ndarray, pattern: str, random: np.random.Generator) -> pa.Array:
    validity, data = array.buffers()
    if pa.types.is_boolean(array.type):
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")[: len(array)]
        bits[null] = random.integers(0, 2, null.sum()) if pattern == "random" else 1
        return pa.Array.from_buffers(
            array.type, len(array), [validity, pa.py_buffer(np.packbits(bits, bitorder="little"))]
        )
    width = array.type.bit_width // 8
    cells = np.frombuffer(data, np.uint8)[: width * len(array)].reshape(-1, width).copy()
    if pattern == "random":
        cells[null] = random.integers(0, 256, (null.sum(), width), np.uint8)
    else:
        whole = np.frombuffer(_PATTERNS[pattern], np.uint8)
        cells[null] = whole[:width] if width < 16 else whole
    return pa.Array.from_buffers(array.type, len(array), [validity, pa.py_buffer(cells)])


def _poisoned_text(array: pa.Array, null: np.ndarray, random: np.random.Generator) -> pa.Array:
    validity, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int32)[: len(array) + 1] if len(array) else np.zeros(1, np.int32)
    text = data.to_pybytes() if data is not None else b""
    parts = [
        bytes(random.integers(97, 122, int(random.integers(0, 5)), np.uint8))
        if gone
        else text[bounds[i] : bounds[i + 1]]
        for i, gone in enumerate(null)
    ]
    ends = np.cumsum([0, *map(len, parts)]).astype(np.int32)
    return pa.Array.from_buffers(array.type, len(array), [validity, pa.py_buffer(ends), pa.py_buffer(b"".join(parts))])


def _poisoned_lists(array: pa.Array, null: np.ndarray, pattern: str, random: np.random.Generator) -> pa.Array:
    bounds = array.offsets.to_numpy()
    inner = array.keys if pa.types.is_map(array.type) else array.values
    picks, ends, under = [], [0], []
    for i, gone in enumerate(null):
        own = list(range(bounds[i], bounds[i + 1]))
        if gone and len(inner):
            own = [int(random.integers(0, len(inner))) for _ in range(int(random.integers(0, 3)))]
        picks += own
        under += [bool(gone)] * len(own)
        ends.append(len(picks))
    chosen, hidden = pa.array(picks, pa.int64()), np.array(under, np.bool_)
    offsets = pa.array(np.array(ends, np.int32))
    if pa.types.is_map(array.type):
        keys, items = array.keys.take(chosen), _hidden(array.items.take(chosen), hidden, pattern, random)
        made = pa.MapArray.from_arrays(offsets, keys, items, array.type)
    else:
        made = pa.ListArray.from_arrays(offsets, _hidden(inner.take(chosen), hidden, pattern, random), array.type)
    validity = pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(
        array.type,
        len(array),
        [validity, made.buffers()[1]],
        children=[made.values if not pa.types.is_map(array.type) else _entries(made)],
    )


def _entries(array: pa.MapArray) -> pa.Array:
    return pa.StructArray.from_arrays([array.keys, array.items], fields=[array.type.key_field, array.type.item_field])
