"""Sinks take an answer once, however often it is written."""

import io
import json
import os

import pyarrow as pa
import pytest
from pyarrow import parquet
from rich.console import Console

from windrow.errors import RuntimeFailure, SourceError
from windrow.sinks import parse_sink
from windrow.sinks.directory import DirectorySink
from windrow.sinks.memory import CallbackSink, MemorySink
from windrow.sinks.terminal import TerminalSink


def answer(*values, start=0):
    return pa.table({"_ts": pa.array(range(start, start + len(values)), pa.timestamp("us", "UTC")), "v": list(values)})


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_directory_writes_a_tick_once(tmp_path, kind):
    """A tick written again replaces its own file and nothing else."""
    sink = parse_sink({"sink": kind, "path": str(tmp_path)})
    sink.write("hot/1", 3, answer(1.5, 2.5))
    sink.write("hot/1", 4, answer(3.5))
    sink.write("hot/1", 3, answer(1.5, 2.5))
    sink.write("hot/1", 5, answer())
    assert sorted(os.listdir(tmp_path / "hot%2F1")) == [f"tick-0000000003.{kind}", f"tick-0000000004.{kind}"]


def test_parquet_roundtrip(tmp_path):
    """A parquet answer comes back with its types."""
    sink = DirectorySink(tmp_path)
    sink.write("q", 1, answer(1, None))
    assert parquet.ParquetFile(tmp_path / sink.name("q", 1)).read().equals(answer(1, None))


def test_json_lines(tmp_path):
    """A JSON answer is one object per row; NaN is null, times are ISO 8601, nested values stay nested."""
    sink = DirectorySink(tmp_path, "json")
    table = pa.table(
        {"_ts": pa.array([0], pa.timestamp("us", "UTC")), "f": [float("nan")], "l": [[1, 2]], "s": ['a"b\n']}
    )
    sink.write("q", 1, table)
    (line,) = (tmp_path / sink.name("q", 1)).read_text().splitlines()
    row = json.loads(line)
    assert (row["f"], row["l"], row["s"]) == (None, [1, 2], 'a"b\n')
    assert row["_ts"] == "1970-01-01T00:00:00.000000Z"


def test_memory_in_order_of_ticks():
    """Memory keeps each tick once, in order; a query without rows still has its columns."""
    sink = MemorySink()
    sink.write("q", 2, answer("b"))
    sink.write("q", 1, answer("a"))
    sink.write("q", 2, answer("b"))
    assert sink.results("q")["v"].to_pylist() == ["a", "b"]
    sink.write("empty", 1, answer(*[1]).slice(1))
    assert sink.results("empty").num_rows == 0
    assert sink.results("unknown") is None


def test_memory_is_bounded():
    """With a limit the oldest ticks go."""
    sink = parse_sink({"sink": "memory", "rows": "3"})
    for tick in range(10):
        sink.write("q", tick, answer(tick, tick))
    assert sink.results("q")["v"].to_pylist() == [9, 9]


def test_callback_once():
    """A callback gets each tick once, and only those with rows."""
    seen = []
    sink = CallbackSink(lambda query, tick, table: seen.append((query, tick, table.num_rows)))
    for tick, table in [(1, answer(1)), (1, answer(1)), (2, answer()), (3, answer(1, 2))]:
        sink.write("q", tick, table)
    assert seen == [("q", 1, 1), ("q", 3, 2)]


def test_callback_that_raises():
    """A callback that raises is named with its query and tick, and the tick is not taken."""

    def alert(query, tick, table):
        raise ValueError("no pager")

    sink = CallbackSink(alert)
    for _ in range(2):
        with pytest.raises(RuntimeFailure, match='callback "alert" of query "q" raised ValueError: no pager'):
            sink.write("q", 7, answer(1))


def test_terminal():
    """The terminal shows the last rows and says how many there are; markup in values is text."""
    out = io.StringIO()
    sink = TerminalSink(2, Console(file=out, width=100))
    sink.write("hot", 4, answer("a", "b", "[red]c"))
    sink.write("hot", 4, answer("z"))
    text = out.getvalue()
    assert "hot, tick 4, last 2 of 3 rows" in text
    assert "[red]c" in text
    assert "z" not in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sink": "kinesis"}, 'no sink "kinesis"'),
        ({}, "name no sink"),
        ({"sink": "parquet"}, "needs the option path"),
        ({"sink": "postgres"}, "needs the option dsn"),
        ({"sink": "memory", "rows": "many"}, 'rows is "many"'),
    ],
)
def test_bad_options(options, message):
    """Options that describe no sink are refused with the fix."""
    with pytest.raises(SourceError, match=message) as caught:
        parse_sink(options)
    assert caught.value.hint
