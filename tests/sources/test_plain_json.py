"""Plain lines of JSON: the compiled pass gives the rows, and the malformed rows, that are given without it."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.sources import kafka_read, read_json
from windrow.sources.lines import FileLines
from windrow.sources.options import SourceOptions
from windrow.sources.plain_json import read_plain
from windrow.sources.read_json import JsonFormat, JsonRows

TYPES = {
    "ts": pa.timestamp("us"), "i": pa.int64(), "n": pa.int32(), "u": pa.uint8(), "d": pa.float64(), "s": pa.string(),
    "b": pa.bool_(), "z": pa.timestamp("us", "UTC"), "day": pa.date32(),
}  # fmt: skip
STREAM = StreamDef("s", TYPES, "ts")


class Lines(FileLines):
    """The lines of a block that is a whole file."""

    _before = 0

    def __init__(self, block):
        super().__init__(File, 0, block)


class File:
    path = "file"


def rows_of(block, plain, types=TYPES, form=None):
    """The rows as text (a zero has a sign), and what is malformed."""
    found = []
    with patch.object(read_json, "PLAIN_BYTES", 0 if plain else 1 << 40):
        batch = JsonRows(STREAM, form or JsonFormat(), types, found.append)(block, Lines(block))
    assert batch.schema == pa.schema(list(types.items()))
    batch.validate(full=True)
    return shown(batch), [(r.where, r.why, r.text) for r in found]


def shown(batch):
    """Rows as text: a zero has a sign, and a time may be one that Python has not."""
    bits = {n: pa.int32() if pa.types.is_date(t) else pa.int64() for n, t in TYPES.items() if pa.types.is_temporal(t)}
    columns = {n: batch[n].cast(bits.get(n, batch[n].type)) for n in batch.schema.names}
    return [repr(r) for r in pa.table(columns).to_pylist()]


def same(block, types=TYPES):
    fast, slow = rows_of(block, True, types), rows_of(block, False, types)
    assert fast[0] == slow[0]
    assert fast[1] == slow[1]


ENDS = "0 -0 7 -12 255 256 2147483648 -9223372036854775808 111111111111111111 9999999999999999999"
DIGITS = st.sampled_from(ENDS.split())
ODD_NUMBERS = (
    "1.5 -0.0 1e5 1E-7 0.1e+22 1e23 1e400 1e-400 4.35 123456789.123456789 9007199254740993 9007199254740993.0 1. .5 01 "
    "- 1e +1 NaN 1e0000000001 0.000000000000000000000000000001 179769313486231580793728971405301e276"
)
NUMBERS = st.one_of(
    DIGITS,
    st.sampled_from(ODD_NUMBERS.split()),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**20), 10**20).map(str),
)
STAMPS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))
ODD_MOMENTS = (
    "2023-02-29 00:00:00|2024-02-29T23:59:59.5|1900-02-29 00:00:00|2024-01-01 24:00:00|2024-01-01 00:00|2024-04-31|"
    "2024-01-01 00:00:60|2024-1-1 00:00:00|0000-01-01 00:00:00|2024-01-01 00:00:00.|2024-01-01 00:00:00.1234567||"
    "2024-01-01T00:00:00+02:00|2024-01-01 00:00:00 |1700-03-01|12024-01-01 00:00:00"
)
MOMENTS = st.one_of(
    STAMPS.map(str),
    STAMPS.map(datetime.isoformat),
    STAMPS.map(lambda t: t.isoformat() + "Z"),
    STAMPS.map(lambda t: t.isoformat(timespec="milliseconds")),
    STAMPS.map(lambda t: str(t.date())),
    st.sampled_from(ODD_MOMENTS.split("|")),
)
TEXTS = st.one_of(
    st.text("abc 7\u00e9\U0001f600,:{}[]", max_size=6).map(lambda t: f'"{t}"'),
    st.text(max_size=4).map(json.dumps),
    st.sampled_from(['"a\\nb"', '"\\u00e9"', '"\\ud83d"', '"tab\there"', '""', '"\\""', "'a'", '"\x7f"']),
)
VALUES = st.one_of(
    NUMBERS,
    TEXTS,
    MOMENTS.map(lambda t: f'"{t}"'),
    st.sampled_from(["true", "false", "null", "nul", "True", "[1]", "{}"]),
)
FITTING = {
    "ts": STAMPS.map(lambda t: f'"{t}"'), "i": DIGITS, "n": st.integers(-(2**31), 2**31 - 1).map(str),
    "u": st.integers(0, 255).map(str), "d": NUMBERS, "s": TEXTS, "b": st.sampled_from(["true", "false"]),
    "z": STAMPS.map(lambda t: f'"{t.isoformat()}Z"'), "day": STAMPS.map(lambda t: f'"{t.date()}"'),
}  # fmt: skip
KEYS = st.permutations(list(TYPES)).flatmap(lambda keys: st.integers(1, len(keys)).map(lambda n: keys[:n]))
OTHERS = st.sampled_from(["x", "I", "long name", "\u00e9", "ss", "d "])


@st.composite
def lines(draw):
    """An object, mostly of the declared columns and their types, as a line; now and then with a byte gone wrong."""
    order = draw(KEYS)
    if draw(st.booleans()) and "ts" not in order:
        order = ["ts", *order]
    pairs = []
    for key in order:
        odd = draw(st.integers(0, 19))
        value = draw(VALUES) if odd == 0 else "null" if odd == 1 else draw(FITTING[key])
        pairs.append((key, value))
    if draw(st.integers(0, 3)) == 0:
        pairs.insert(draw(st.integers(0, len(pairs))), (draw(OTHERS), draw(VALUES)))
    if draw(st.integers(0, 9)) == 0:
        pairs.append(draw(st.sampled_from(pairs)))
    comma, colon = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " : ")]))
    line = "{" + comma.join(f'"{k}"{colon}{v}' for k, v in pairs) + "}"
    return line.encode("utf-8", "replace")


@st.composite
def blocks(draw):
    found = draw(st.lists(lines(), min_size=1, max_size=6))
    if draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(0, len(found) - 1))
        line = bytearray(found[at])
        place = draw(st.integers(0, len(line) - 1))
        change = draw(
            st.sampled_from([b"", b'"', b"\\", b"{", b"}", b",", b"\xff", b"\x00", b"\x0b", b" ", b"\n", b"0"])
        )
        line[place : place + draw(st.integers(0, 1))] = change
        found[at] = bytes(line)
    between = draw(st.sampled_from([b"\n", b"\r\n", b"\n\n", b" \n\t\n"]))
    return between.join(found) + draw(st.sampled_from([b"", b"\n", b" "]))


STAMP = b'"2024-01-01 00:00:00"'


WITHOUT_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)  # an example takes 20 ms, and is short


@settings(max_examples=100, deadline=None, phases=WITHOUT_SHRINKING)
@given(blocks())
@example(b'{"x":[{}\n{"ts":' + STAMP + b"}\n]}")
@example(b'{"ts":' + STAMP + b'} {"ts":' + STAMP + b'}\n{"ts":' + STAMP + b"}")
@example(b'{"TS":' + STAMP + b'}\n{"ts":' + STAMP + b'}\n{"TS":' + STAMP + b',"i":"7"}')
@example(b'{"ts":' + STAMP + b',"s":"\xc3"}')
@example(b'{"ts":' + STAMP + b',"x":"\xc3"}\n{"ts":5}')
@example(b'{"ts":' + STAMP + b',"d":1e999}')
@example(b'{"ts":' + STAMP + b',"i":1,"i":2}\n{"ts":' + STAMP + b',"x":1,"x":2}')
@example(b'\x0b\n{"ts":' + STAMP + b"}")
@example(b'\xef\xbb\xbf{"ts":' + STAMP + b"}")
@example(b'{"ts":' + STAMP + b',"d":-0}\n{"ts":5}')
@example(b'{"ts":null}\n{"i":1}\n{}\n')
def test_rows_and_malformed_rows_are_the_same(block):
    """With and without the compiled pass, whatever is written."""
    same(block)


def plain_lines(count, seed=1):
    drawn, made = random.Random(seed), []
    for _ in range(count):
        stamp = datetime.fromtimestamp(drawn.random() * 2e9, UTC).replace(tzinfo=None)
        number = drawn.random() * 10 ** drawn.randrange(-9, 9)
        text = drawn.choice(["ab", "\u00e9", ""])
        made.append({"ts": str(stamp), "i": drawn.randrange(-99, 99), "d": number, "s": text, "b": True})
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in made)


def test_plain_lines_need_no_other_parser():
    """And are what they are known to be."""
    block = plain_lines(2000)
    with (
        patch.object(read_json.arrow_json, "read_json", side_effect=AssertionError),
        patch.object(read_json, "cursor", side_effect=AssertionError),
    ):
        found, malformed = rows_of(block, True)
    assert not malformed
    assert found == rows_of(block, False)[0]
    want = [json.loads(line) for line in block.splitlines()]
    types = {n: TYPES[n] for n in ("i", "d", "s", "b")}
    batch = read_plain(block, types, list(types), list(types), "ts").rows
    assert batch.to_pylist() == [{n: w[n] for n in types} for w in want]


def test_few_odd_lines_cost_no_block():
    """Lines with escapes are read apart, and come where they were; one that is malformed is named by its number."""
    written = plain_lines(1000).splitlines()
    written[10] = b'{"ts":"2024-01-01 00:00:00","s":"\\u00e9"}'
    written[500] = b'{"ts":"2024-01-01 00:00:00","s":"\\n"}'
    same(b"\n".join(written))
    written[600] = b'{"ts":"yesterday"}'
    same(b"\n".join(written))
    found, malformed = rows_of(b"\n".join(written), True)
    assert len(found) == 999
    assert malformed == [("file, line 601", "column \"ts\": 'yesterday' is not TIMESTAMP", '{"ts":"yesterday"}')]
    with pytest.raises(SourceError, match="line 601"), patch.object(read_json, "PLAIN_BYTES", 0):
        JsonRows(STREAM, JsonFormat(), TYPES, None)(b"\n".join(written), Lines(b"\n".join(written)))


def test_mostly_odd_lines_are_left_to_others():
    """After a block with many of them the compiled pass is not tried again."""
    block = b'{"ts":"2024-01-01 00:00:00","s":"\\n"}\n' * 100
    with patch.object(read_json, "PLAIN_BYTES", 0):
        parser = JsonRows(STREAM, JsonFormat(), TYPES, None)
        assert len(parser(block, Lines(block))) == 100
    assert not parser.plain


def test_types_that_are_never_plain():
    """Columns of other types, and formats of times, are as before."""
    block = b'{"ts":"2024-01-01 00:00:00","l":[1,2]}\n'
    same(block, {"ts": TYPES["ts"], "l": pa.list_(pa.int64())})
    assert read_plain(block, {"l": pa.list_(pa.int64())}, ["l"], [], "ts") is None
    form = JsonFormat(times="%d.%m.%Y")
    assert rows_of(b'{"ts":"02.01.2024"}', True, {"ts": TYPES["ts"]}, form) == (
        ["{'ts': 1704153600000000}"],
        [],
    )


class Message:
    """A message of a topic."""

    def __init__(self, value, offset):
        self.value, self.offset = lambda: value, lambda: offset
        self.topic, self.partition = lambda: "t", lambda: 0


@settings(max_examples=50, deadline=None, phases=WITHOUT_SHRINKING)
@given(st.lists(st.one_of(lines(), blocks(), st.none()), min_size=1, max_size=5))
@example([b'{"ts":' + STAMP + b'}\n{"ts":' + STAMP + b"}", b'{"ts":5}'])
@example([b'{"ts":' + STAMP + b'}\n{"ts":' + STAMP + b',"d":-0}'])
@example([b'{"ts":' + STAMP + b'}\n{"ts":5}', b'{"ts":' + STAMP + b"}"])
@example([b'{"ts":' + STAMP + b'}\n{"ts":null}'])
def test_messages_are_the_same(values):
    """With and without the compiled pass, and so are those that are malformed."""
    types = {**TYPES, "_offset": pa.int64()}
    stream = StreamDef("s", types, "ts", options={"source": "kafka"})
    form = kafka_read.message_format(SourceOptions(stream))
    results = []
    for least in (0, 1 << 40):
        found = []
        with patch.object(read_json, "PLAIN_BYTES", least):
            decode = kafka_read._decoder(stream, form, types, found.append)
            batch = decode([Message(v, i) for i, v in enumerate(values)])
        results.append((shown(batch), [(r.where, r.why, r.text) for r in found]))
    assert results[0] == results[1]
