"""Text to values: the fast parsers and the law of casts agree, and what only the law takes is taken."""

import json
import math
from datetime import datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windrow.catalog import StreamDef
from windrow.sources.options import SourceOptions
from windrow.sources.read_csv import CsvFormat, CsvRows, csv_format
from windrow.sources.read_json import JsonFormat, JsonRows, json_format

TYPES = {
    "i": pa.int32(), "d": pa.float64(), "s": pa.string(), "b": pa.bool_(), "t": pa.timestamp("us"),
    "z": pa.timestamp("us", "UTC"), "day": pa.date32(), "n": pa.decimal128(10, 2), "l": pa.list_(pa.int64()),
}  # fmt: skip
STREAM = StreamDef("s", {**TYPES, "at": pa.int64()}, "at")  # of which rows may lack anything but their time


class Rows:
    """Rows without a file."""

    def __init__(self, texts):
        self.found = texts

    def malformed(self, row, why):
        raise AssertionError(f"row {row}: {why}")

    def texts(self):
        return self.found


PLAIN = CsvFormat(header=False)


def csv_rows(lines, types=TYPES, level=0, form=PLAIN):
    names = list(types)
    parser = CsvRows(STREAM, form, names, {n: n for n in names}, types, None, level=level)
    lines = [line.encode() for line in lines]
    return parser(b"\n".join(lines), Rows(lines)), parser


def json_rows(lines, types=TYPES, careful=False, form=None):
    parser = JsonRows(STREAM, form or JsonFormat(), types, None, careful=careful)
    lines = [line.encode() for line in lines]
    return parser(b"\n".join(lines), Rows(lines)), parser


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0", exclude_categories=["Cs"]), max_size=8)
ROW = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-(2**31), 2**31 - 1),
        "d": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "s": st.none() | TEXT,
        "b": st.none() | st.booleans(),
        "t": st.none() | st.datetimes(min_value=datetime(1700, 1, 1)).map(str),
        "n": st.none() | st.decimals(-9999, 9999, places=2).map(str),
    }
)


@settings(max_examples=30, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=6))
def test_json_by_both_ways(rows):
    """Arrow's parser and the careful way give equal rows."""
    types = {n: TYPES[n] for n in rows[0]}
    lines = [json.dumps(r) for r in rows]
    fast, parser = json_rows(lines, types)
    slow, _ = json_rows(lines, types, careful=True)
    assert fast.to_pylist() == slow.to_pylist()
    assert not parser.careful
    assert [r["s"] for r in fast.to_pylist()] == [r["s"] for r in rows]


@settings(max_examples=30, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=6))
def test_csv_by_both_ways(rows):
    """Arrow's parser and the careful way give equal rows; quoted values come back as they were."""
    types = {n: TYPES[n] for n in rows[0]}

    def cell(value):
        if isinstance(value, str):
            return '"' + value.replace('"', '""') + '"'
        return "" if value is None else repr(value)

    lines = [",".join(cell(r[n]) for n in types) for r in rows]
    fast, parser = csv_rows(lines, types)
    slow, _ = csv_rows(lines, types, level=2)
    assert fast.to_pylist() == slow.to_pylist()
    assert parser.level == 0
    assert [r["s"] for r in fast.to_pylist()] == [r["s"] for r in rows]


def test_what_only_the_law_takes():
    """Offsets where no zone is declared, words for truth, numbers as text: taken, with one meaning everywhere."""
    found, parser = csv_rows(["2024-01-01T02:00:00+02:00", "2024-01-01T00:00:00Z"], {"t": TYPES["t"]})
    assert [str(v) for v in found.column(0).to_pylist()] == ["2024-01-01 00:00:00"] * 2
    assert parser.level == 1
    mixed, _ = csv_rows(["2024-01-01T02:00:00+02:00", "2024-01-01 00:00:00"], {"t": TYPES["t"]})
    assert mixed == found
    zoned, _ = csv_rows(["2024-01-01T02:00:00+02:00", "2024-01-01 00:00:00"], {"z": TYPES["z"]})
    assert zoned.column(0).cast(pa.int64()) == found.column(0).cast(pa.int64())
    assert csv_rows(["yes", "f", "1"], {"b": pa.bool_()})[0].to_pydict() == {"b": [True, False, True]}
    lines = ['{"s": 5, "i": "7", "l": [1, 2], "day": "2024-01-02"}', '{"s": {"a": [1]}, "l": null, "d": "1.5"}']
    assert [{k: str(v) for k, v in r.items() if v is not None} for r in json_rows(lines)[0].to_pylist()] == [
        {"s": "5", "i": "7", "l": "[1, 2]", "day": "2024-01-02"},
        {"s": '{"a":[1]}', "d": "1.5"},
    ]
    assert json_rows(['{"T": "2024-01-01T02:00:00+02:00"}'], {"t": TYPES["t"]})[0].column(0) == found.column(0)[:1]


def test_options_of_csv():
    """Spark's names for how a file is written mean what they mean there."""
    options = {
        "sep": ";",
        "nullValue": "-",
        "timestampFormat": "dd.MM.yyyy HH:mm",
        "quote": "'",
        "dateFormat": "yyyy/MM/dd",
    }
    form = csv_format(
        SourceOptions(StreamDef("s", TYPES, "t", options={"source": "csv", "header": "false", **options}))
    )
    types = {n: TYPES[n] for n in ("t", "s", "i", "day")}
    found, _ = csv_rows(["02.01.2024 03:04;'a;b';-;2024/01/05", "-;-;3;-"], types, form=form)
    assert [[str(v) for v in r.values()] for r in found.to_pylist()] == [
        ["2024-01-02 03:04:00", "a;b", "None", "2024-01-05"],
        ["None", "None", "3", "None"],
    ]


@pytest.mark.parametrize(
    ("unit", "texts"),
    [
        ("epoch_s", ["1704067200", "1704067200.5", "-1.5"]),
        ("epoch_ms", ["1704067200000", "1704067200500", "-1500"]),
        ("epoch_us", ["1704067200000000", "1704067200500000", "-1500000"]),
        ("epoch_ns", ["1704067200000000000", "1704067200500000999", "-1500000000"]),
    ],
)
def test_times_as_numbers(unit, texts):
    """Numbers are times where timestampFormat says what they count, in csv and in json; other text is malformed."""
    options = {"source": "csv", "header": "false", "timestampFormat": unit}
    wanted = {n: TYPES[n] for n in ("t", "z")}
    expected = [1704067200_000000, 1704067200_500000, -1_500000]
    options = SourceOptions(StreamDef("s", wanted, "t", options=options))
    found, _ = csv_rows([f"{v},{v}" for v in texts], wanted, form=csv_format(options))
    objects, _ = json_rows([f'{{"t": {v}, "z": "{v}"}}' for v in texts], wanted, form=json_format(options))
    for table in (found, objects):
        for name in wanted:
            assert table.column(name).cast(pa.int64()).to_pylist() == expected, name
    with pytest.raises(AssertionError, match="'2024-01-01' is not TIMESTAMP"):
        csv_rows(["2024-01-01,1"], wanted, form=csv_format(options))


def test_floats_survive():
    """Infinities and NaN are read from csv as they are written there."""
    values = csv_rows(["inf", "-inf", "nan", "1e308"], {"d": pa.float64()})[0].column(0).to_pylist()
    assert values[:2] == [math.inf, -math.inf]
    assert math.isnan(values[2])


@pytest.mark.parametrize("number", ["0x1F", "0X1f", "-0x1", " 0x1"])
@pytest.mark.parametrize("beside", ["1", "yes"])
def test_hexadecimal_numbers_are_malformed(number, beside):
    """Whatever stands in other rows and columns; as text they are fine, and cost integers beside them no care."""
    types = {"i": pa.int64(), "b": pa.bool_(), "s": pa.string()}
    with pytest.raises(AssertionError, match=r"row 0: .* is not BIGINT"):
        csv_rows([f"{number},{beside},a", "2,1,b"], types)
    found, _ = csv_rows([f"1,1,{number}", ",0,0x", " 3,1,"], types)
    assert found.column("i").to_pylist() == [1, None, 3]
    assert csv_rows([f"1,1,{number}"], types)[1].level == 0
