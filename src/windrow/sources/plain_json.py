"""Lines of JSON as programs write them, parsed by one pass over their bytes.

    {"ts":"2024-01-02 03:04:05.678","k":17,"v":3.25,"who":"ann"}

A line is plain if it is one flat object: keys and text without escapes, no key of a column twice, integers of up to 18
digits, times in ISO's form down to the microsecond, keys in any order, of which columns may lack theirs (null). Every
other line is told by its number, for a parser that takes it or names what is wrong with it.

Law: a plain line has the values that Arrow's parser gives; doubles that are not exact at once are cast by Arrow.
Cost: about a nanosecond a byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.operators.borrowing import borrowing
from windrow.operators.elements import Int64s
from windrow.sources.tokens import double, integer, moment, quoted, space, truth, word

SKIP, INTEGER, DOUBLE, TEXT, TRUTH, DATE, TIME, ZONED = range(8)
"""What a key's value is read as; a zoned time ends in Z."""

ABSENT, NULL, VALUE, LATER = range(4)
"""What a row has of a column; later: a double to be cast from its text."""

MOST_ODD = 8  # one line of so many may be read twice


@dataclass(frozen=True)
class PlainRows:
    """The plain lines of a block as rows, and the numbers of the `odd` ones among its `lines`; blank ones are none."""

    rows: pa.RecordBatch
    odd: Int64s
    lines: int


def read_plain(
    block: bytes, types: Mapping[str, pa.DataType], keys: Sequence[str], order: Sequence[str], time: str
) -> PlainRows | None:
    """Parse a block to columns of these types and keys; None if too few lines are plain for that to pay.

    `order` are keys as they are expected; rows without `time` are not plain.
    """
    kinds = [kind for t in types.values() if (kind := kind_of(t)) is not None]
    if len(kinds) < len(types) or len(set(keys)) < len(keys) or not all(map(_plain_key, keys)) or len(block) >= 2**31:
        return None
    names = list(dict.fromkeys((*filter(_plain_key, order), *keys)))
    written = [name.encode() + b'"' for name in names]
    at = [names.index(key) for key in keys]  # [columns]
    fields = np.zeros((3, len(names)), np.int64)  # [kind, least and greatest integer; names]
    for i, kind, type_ in zip(at, kinds, types.values(), strict=True):
        fields[:, i] = kind, *_range(type_)
    data = np.frombuffer(block if block.endswith(b"\n") else block + b"\n", np.uint8)
    room = len(names), block.count(b"\n") + 1
    words, ends, states = np.empty(room, np.int64), np.empty(room, np.int32), np.empty(room, np.uint8)
    odd = np.empty(16 + room[1] // MOST_ODD, np.int64)
    rows, lines, count = parse_lines(
        data,
        np.frombuffer(b"".join(written), np.uint8),
        np.cumsum([0, *map(len, written)]),
        fields,
        at[list(types).index(time)] if time in types else -1,
        words,
        words.view(np.float64),
        ends,
        states,
        odd,
    )
    if count < 0:
        return None
    columns = [
        _column(data, type_, words[i, :rows], ends[i, :rows], states[i, :rows])
        for i, type_ in zip(at, types.values(), strict=True)
    ]
    return PlainRows(pa.RecordBatch.from_arrays(columns, schema=pa.schema(list(types.items()))), odd[:count], lines)


def _plain_key(key: str) -> bool:
    """Whether a key is written as it is."""
    return key.isprintable() and not {'"', "\\"} & set(key)


def kind_of(type_: pa.DataType) -> int | None:
    """How values of a type are read, or None if no line with them is plain."""
    kinds = pa.types
    if kinds.is_timestamp(type_):
        return None if type_.unit != "us" else TIME if type_.tz is None else ZONED
    known = {pa.float64(): DOUBLE, pa.string(): TEXT, pa.bool_(): TRUTH, pa.date32(): DATE}
    return INTEGER if kinds.is_integer(type_) else known.get(type_)


def _range(type_: pa.DataType) -> tuple[int, int]:
    """The integers of a type, of those that are read."""
    if not pa.types.is_integer(type_):
        return 0, 0
    numbers = np.iinfo(type_.to_pandas_dtype())
    return int(numbers.min), min(int(numbers.max), 2**63 - 1)


def _column(data: np.ndarray, type_: pa.DataType, words: Int64s, ends: np.ndarray, states: np.ndarray) -> pa.Array:
    """The cells of a column; `words` are values, or where text begins."""
    null = states < VALUE
    mask = null if null.any() else None
    if pa.types.is_string(type_):
        texts = _texts(data, words, np.where(null, 0, ends - words))
        missing = None if mask is None else pa.array(~mask).buffers()[1]
        made = pa.Array.from_buffers(type_, len(words), [missing, *texts.buffers()[1:]])
        made.validate(full=True)  # whether it is UTF-8
        return made
    if pa.types.is_float64(type_):
        values = words.view(np.float64)
        later = np.flatnonzero(states == LATER)
        if len(later):
            starts = words[later]
            values[later] = _texts(data, starts, ends[later] - starts).cast(type_).to_numpy()
        return pa.array(values, type_, mask=mask)
    if pa.types.is_boolean(type_):
        return pa.array(words != 0, type_, mask=mask)
    bits = np.int32 if pa.types.is_date(type_) else np.int64
    plain = words.astype(type_.to_pandas_dtype() if pa.types.is_integer(type_) else bits, copy=False)
    return pa.array(plain, mask=mask).view(type_)


def _texts(data: np.ndarray, starts: Int64s, sizes: np.ndarray) -> pa.Array:
    """The text at each start."""
    offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    out = np.empty(offsets[-1], np.uint8)
    gather(data, starts, offsets, out)
    return pa.Array.from_buffers(pa.string(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(out)])


# -- compiled: positions are bytes of the block, -1 for what is not plain; a newline ends the block, and every token ---


@borrowing
def gather(data: np.ndarray, starts: Int64s, offsets: np.ndarray, out: np.ndarray) -> None:
    """Copy what begins at each start, one behind the other."""
    for row in range(len(starts)):
        shift = starts[row] - offsets[row]
        for i in range(offsets[row], offsets[row + 1]):
            out[i] = data[i + shift]


@borrowing
def parse_lines(
    data: np.ndarray,
    keys: np.ndarray,  # each with its closing quote
    stops: Int64s,
    fields: np.ndarray,
    time: int,
    words: np.ndarray,  # [keys, rows] out
    floats: np.ndarray,  # the same memory
    ends: np.ndarray,
    states: np.ndarray,
    odd: Int64s,
) -> tuple[int, int, int]:
    """The number of rows, of lines, and of odd lines: -1 if there are more than there is room for."""
    at, row, line, count = 0, 0, 0, 0
    while at < len(data):
        at = space(data, at)
        if data[at] == 10:
            at += 1
            continue
        stop = _object(data, at, keys, stops, fields, words, floats, ends, states, row)
        if stop >= 0 and (time < 0 or states[time, row] >= VALUE):
            row += 1
            at = stop
        else:
            if count == len(odd):
                return row, line, -1
            odd[count] = line
            count += 1
            while data[at] != 10:
                at += 1
            at += 1
        line += 1
    return row, line, count


@borrowing
def _object(
    data: np.ndarray,
    at: int,
    keys: np.ndarray,
    stops: Int64s,
    fields: np.ndarray,
    words: np.ndarray,
    floats: np.ndarray,
    ends: np.ndarray,
    states: np.ndarray,
    row: int,
) -> int:
    """Parse an object into a row; the position of the next line."""
    if data[at] != 123:  # {
        return -1
    for i in range(fields.shape[1]):
        states[i, row] = ABSENT
    expected = 0
    while True:
        at = space(data, at + 1)
        if data[at] != 34:  # "
            return -1
        at += 1
        key, stop = _key(data, at, keys, stops, expected)
        if stop < 0:
            return -1
        at = space(data, stop)
        if data[at] != 58:  # :
            return -1
        at = space(data, at + 1)
        kind, state = SKIP, VALUE
        if key >= 0:
            expected = key + 1
            kind = fields[0, key]
            if kind != SKIP and states[key, row] != ABSENT:
                return -1
        if data[at] == 110:  # n
            at, state = word(data, at, 110, 117, 108, 108), NULL  # null
        elif kind == INTEGER:
            words[key, row], at = integer(data, at)
            if not fields[1, key] <= words[key, row] <= fields[2, key]:
                return -1
        elif kind == DOUBLE:
            begin = at
            floats[key, row], at, exact = double(data, at)
            if not exact:
                words[key, row], ends[key, row], state = begin, at, LATER
        elif kind == TEXT:
            stop = quoted(data, at, 255)
            words[key, row], ends[key, row], at = at + 1, stop - 1, stop
        elif kind == SKIP:
            at = _skipped(data, at)
        elif kind == TRUTH:
            words[key, row] = data[at] == 116
            at = truth(data, at)
        elif data[at] == 34:
            words[key, row], at = moment(data, at + 1, kind != DATE, kind == ZONED)
            at = at + 1 if at >= 0 and data[at] == 34 else -1
        else:
            return -1
        if at < 0:
            return -1
        if key >= 0:
            states[key, row] = state
        at = space(data, at)
        if data[at] == 125:  # }
            at = space(data, at + 1)
            return at + 1 if data[at] == 10 else -1
        if data[at] != 44:  # ,
            return -1


@borrowing
def _key(data: np.ndarray, at: int, keys: np.ndarray, stops: Int64s, expected: int) -> tuple[int, int]:
    """The number of a key, -1 for one that no column has, and what is behind it; the expected one is tried first."""
    count = len(stops) - 1
    for turn in range(count):
        key = expected + turn
        key -= count if key >= count else 0
        begin, size = stops[key], stops[key + 1] - stops[key]
        i = 0
        while i < size and data[at + i] == keys[begin + i]:  # no key has a newline: it ends before the block does
            i += 1
        if i == size:
            return key, at + size
    return -1, quoted(data, at - 1, 127)


@borrowing
def _skipped(data: np.ndarray, at: int) -> int:
    """What is behind a value that is no list and no object."""
    if data[at] == 34:
        return quoted(data, at, 127)
    if data[at] == 116 or data[at] == 102:
        return truth(data, at)
    return double(data, at)[1]
