"""Hints that once led the wrong way: each says what to write, or is needed no more."""

from __future__ import annotations

import datetime as dt
import re

import pytest

import windrow
from windrow.engine.replay import LateRowsWarning
from windrow.errors import WindrowError

S = {"ts": [1, 2, 3], "a": [1, 2, 0], "l": [[1], [2, 3], []], "b": ["x", "y", "z"]}


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT list_transform(l, x -> x + 1) AS c FROM s", 3),  # was: unknown column "x"
        ("SELECT list_filter(l, lambda x: x > a) AS c FROM s", 3),
        ("SELECT a, b, COUNT(*) AS n FROM s GROUP BY ROLLUP (a, b)", 11),  # was: CAST one side
        ("SELECT a FROM s ORDER BY a DESC LIMIT 2", 2),  # was: [ROWS 10]
        ("SELECT SUM(a) // COUNT(*) AS c FROM s [RANGE 1]", 5),  # an empty window ended the replay
    ],
)
def test_needed_no_more(query: str, rows: int) -> None:
    """What was refused is answered."""
    assert windrow.run(query, {"s": S}, runtime="local")["q1"].num_rows == rows


@pytest.mark.parametrize(
    ("query", "says", "hint"),
    [
        ("SELECT list_transform(l, x -> y + 1) AS c FROM s", 'unknown column "y"', "columns are"),
        ("SELECT a, b FROM s GROUP BY a, b WITH ROLLUP", "WITH ROLLUP", r"ROLLUP \(a, b\)"),
        ("SELECT a FROM s ORDER BY a", "ORDER BY without LIMIT", "LIMIT 10"),
        ("SELECT TOP a FROM s", 'unknown column "TOP"', "columns are"),
        ("SELECT RANK(2) WITHIN GROUP (ORDER BY a) AS c FROM s", "RANK WITHIN GROUP", "ARG_MAX"),
        ("SELECT PERCENTILE_CONT(0.1) WITHIN GROUP (ORDER BY a DESC) AS c FROM s", "descending", "1 - p"),
        ("SELECT MODE(a) WITHIN GROUP (ORDER BY a) AS c FROM s", "one column", r"MODE\(\) WITHIN GROUP"),
        ("SELECT SUM(a ORDER BY z) AS c FROM s", 'unknown column "z"', "columns are"),
        ("SELECT to_chars(a) AS c FROM s", "unknown function", '"to_char"'),
        ("SELECT to_char(a, '999') AS c FROM s", "of a number", "printf"),
        ("SELECT prev(1, a) AS c FROM s", "unknown function", r"LAG\(a\) OVER"),
        ("SELECT nth(a, 2) AS c FROM s", "unknown function", "NTH_VALUE"),
        ("SELECT b, window(a) AS c FROM s GROUP BY b", "unknown function", r"LIST\(a\)"),
        ("SELECT a FROM s OUTPUT LAST EVERY 30 SECONDS", "syntax error", "SLIDE 30 SECONDS"),
        ("SELECT date_formats(a) AS c FROM s", "unknown function", '"date_format"'),
    ],
)
def test_what_to_write(query: str, says: str, hint: str) -> None:
    """The hint is of the thing that was meant."""
    with pytest.raises(WindrowError, match=says) as caught:
        windrow.run(query, {"s": S}, runtime="local")
    assert caught.value.hint is not None
    assert re.search(hint, caught.value.hint)


def test_until_in_the_wrong_unit() -> None:
    """A date for streams that count ticks."""
    with pytest.raises(WindrowError, match="the streams count ticks"):
        windrow.run("SELECT a FROM s", {"s": S}, runtime="local", until=dt.datetime(2024, 1, 1))


def test_rows_that_were_late_are_told() -> None:
    """By a warning that says where they are."""
    script = "CREATE STREAM s (ts BIGINT, a BIGINT) TIMESTAMP BY ts WITHIN 1; SELECT a FROM s"
    with pytest.warns(LateRowsWarning, match="came too late"):
        windrow.run(script, {"s": {"ts": [5, 1], "a": [1, 2]}}, runtime="local")


@pytest.mark.parametrize(
    ("script", "says", "hint"),
    [
        ("CREATE TABLE s (a INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)", "WATERMARK among", "WITHIN 5 SECONDS"),
        ("CREATE STREAM s (a VARCHAR KEY, ts TIMESTAMP) TIMESTAMP BY ts", "KEY on a column", "remove it"),
        ("CREATE STREAM s (ts BIGINT) TIMESTAMP BY to_timestamp(ts / 1000)", "TIMESTAMP BY an expr", "epoch_ms"),
        ("CREATE STREAM s (a STRUCT<x: INT>, ts TIMESTAMP)", 'type "STRUCT<x: INT>"', r"STRUCT\(a INTEGER"),
        ("CREATE STREAM s (a INT, ts TIMESTAMP_LTZ(3))", "unknown type", "write TIMESTAMPTZ"),
    ],
)
def test_declarations_of_other_systems(script: str, says: str, hint: str) -> None:
    """Declarations that are Flink's, ksql's or Spark's say what to write here."""
    with pytest.raises(WindrowError, match=says) as caught:
        windrow.Engine(runtime="local").execute(script)
    assert re.search(hint, caught.value.hint or "")


def test_a_name_that_nothing_has_beside_those_that_are_known() -> None:
    """Who gives rows under one name and asks for another sees the first."""
    with pytest.raises(WindrowError, match="unknown stream") as caught:
        windrow.run("SELECT a FROM readings", {"s": S}, runtime="local")
    assert caught.value.detail == "known are s"
