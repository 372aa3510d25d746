"""`_ts` of a row, the end of a replay, divisions by zero, and times in JSON: what a script may count on."""

from __future__ import annotations

import datetime
import json

import pyarrow as pa
import pytest

import windrow
from windrow.cli.answers import print_rows
from windrow.engine.replay import LateRowsWarning
from windrow.errors import BindingError, WindrowError
from windrow.testing import assert_same, oracle

ROWS = {"s": pa.table({"a": [1, 0, 3], "ts": [1, 2, 5]})}


def run(script, data=ROWS, **more):
    return windrow.run(script, data, runtime="local", **more)


def test_the_time_of_a_row_has_one_name():
    """`_ts` is the time column of the stream, in windrow's clock, wherever a column may stand."""
    for query, same in (
        ("SELECT _ts, a FROM s [RANGE 2]", "SELECT ts, a FROM s [RANGE 2]"),
        ("SELECT MAX(s._ts) AS m FROM s [RANGE 2] WHERE _ts > 1", "SELECT MAX(ts) AS m FROM s [RANGE 2] WHERE ts > 1"),
        ("SELECT x._ts AS t FROM s [RANGE 2] x JOIN s [RANGE 3] y ON x._ts = y._ts",
         "SELECT x.ts AS t FROM s [RANGE 2] x JOIN s [RANGE 3] y ON x.ts = y.ts"),
        ("SELECT COUNT(*) AS n FROM TUMBLE(s, _ts, 2)", "SELECT COUNT(*) AS n FROM TUMBLE(s, ts, 2)"),
    ):  # fmt: skip
        assert_same(run(query)["q1"], oracle(same, ROWS)["q1"])


def test_the_time_of_a_row_is_an_instant():
    """Its type is that of the answer's `_ts`, whatever the column's."""
    data = {"s": pa.table({"at": pa.array([1500], pa.timestamp("ms"))})}
    answer = run("CREATE STREAM s (at TIMESTAMP_MS) TIMESTAMP BY at; SELECT _ts AS t FROM s", data)["q1"]
    assert answer.schema.field("t").type == pa.timestamp("us")
    assert answer["t"].to_pylist() == [datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000)]


def test_what_has_no_time():
    """Two streams have two; a subquery and a table have none; a column of that name comes first."""
    with pytest.raises(BindingError, match="ambiguous") as error:
        run("SELECT _ts FROM s [RANGE 2] x JOIN s [RANGE 3] y ON x.a = y.a")
    assert "x._ts or y._ts" in error.value.hint
    with pytest.raises(BindingError, match='"x" has no _ts'):
        run("SELECT x._ts AS t FROM (SELECT ISTREAM(a) FROM s [RANGE 2]) x [RANGE 3]")
    named = {"s": pa.table({"_ts": [7], "ts": [1]})}
    assert run("SELECT _ts + 0 AS t FROM s", named)["q1"]["t"].to_pylist() == [7]


def test_division_by_zero_is_null():
    """One empty window does not end a replay; the oracle's DuckDB says the same."""
    script = "SELECT 10 // SUM(a) AS x, COUNT(a) // COUNT(*) AS y, 7 % COUNT(*) AS z FROM s [RANGE 1 SLIDE 1]"
    answer = run(script, until=8)["q1"]
    assert_same(answer, oracle(script, ROWS, until=8)["q1"])
    assert answer["y"].to_pylist() == [1, 1, None, None, 1, None, None, None]
    assert run("SELECT 1 // a AS x, 1 % a AS y FROM s [NOW]")["q1"]["x"].null_count == 2  # comes and goes


@pytest.mark.parametrize("until", [datetime.datetime(2020, 1, 1), "2020-01-01", 3.5])
def test_an_end_that_is_no_tick(until):
    """A stream that counts ticks ends at a tick."""
    with pytest.raises(WindrowError, match="the streams count ticks"):
        run("SELECT a FROM s", until=until)


def test_a_late_row_is_a_warning():
    """Whoever runs a script hears of rows that took no part."""
    script = "CREATE STREAM s (a BIGINT, ts BIGINT) TIMESTAMP BY ts WITHIN 1; SELECT a FROM s"
    with pytest.warns(LateRowsWarning, match='stream "s": 2 of its rows'):
        run(script, {"s": {"a": [1, 2, 3], "ts": [9, 1, 3]}})


def test_json_has_iso_times(capsys):
    """On the command line as from the server and the sinks, in lists and structs too."""
    at = datetime.datetime(2020, 1, 2, 3, 4, 5, 6)
    zoned = pa.array([0], pa.timestamp("s", "UTC"))
    print_rows(pa.table({"t": [at], "z": zoned, "l": [[at]], "s": [{"t": at}]}), "json")
    iso = "2020-01-02T03:04:05.000006"
    assert json.loads(capsys.readouterr().out) == {
        "t": iso, "z": "1970-01-01T00:00:00.000000Z", "l": [iso], "s": {"t": iso},
    }  # fmt: skip
