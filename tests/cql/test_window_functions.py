"""TUMBLE and HOP: half-open windows of the SQL standard, their bounds, and the spellings of other engines."""

from __future__ import annotations

from datetime import datetime, timedelta

import pyarrow as pa
import pytest

import windrow
from windrow.errors import BindingError, CQLSyntaxError, UnsupportedError
from windrow.plan.nodes import Aggregate, Emit, Quantise, WindowBounds, walk
from windrow.testing import assert_same, oracle

ROWS = {"ts": [0, 9, 10, 10, 25, 31], "k": ["a", "b", "a", "a", "b", "a"], "x": [1, 2, 3, 4, 5, 6]}


def answer(query, **more):
    """The rows of a query's answer, in order."""
    got = windrow.run(query, streams={"s": ROWS}, runtime="local", **more)["q1"]
    return sorted(tuple(row.values()) for row in got.to_pylist())


def test_a_row_at_the_edge_belongs_to_the_window_that_starts_there():
    """`[0, 10)` and `[10, 20)` for TUMBLE; windrow's own windows are `(0, 10]` and `(10, 20]`."""
    assert answer("SELECT SUM(x) AS t FROM TUMBLE(s, ts, 10)") == [(10, 3), (20, 7), (30, 5)]
    assert answer("SELECT SUM(x) AS t FROM s [RANGE 10 SLIDE 10]") == [(0, 1), (10, 9), (20, None), (30, 5)]


def test_windows_without_rows_say_nothing_and_open_ones_are_silent():
    """Nothing at 20 where WHERE leaves nothing; the window that ends at 40 is not reached."""
    assert answer("SELECT COUNT(*) AS n FROM TUMBLE(s, ts, 10) WHERE k = 'b'") == [(10, 1), (30, 1)]
    assert answer("SELECT COUNT(*) AS n FROM TUMBLE(s, ts, 10) WHERE k = 'a'", until=40) == [(10, 1), (20, 2), (40, 1)]
    assert answer("SELECT COUNT(*) AS n FROM TUMBLE(s, ts, 10) WHERE k = 'a'", until=39) == [(10, 1), (20, 2)]


def test_bounds_and_offset():
    """Every row gets the window; the offset moves all windows."""
    assert answer("SELECT k, window_start, window_end FROM HOP(s, ts, 10, 20, 5) WHERE x = 2") == [
        (15, "b", -5, 15),
        (25, "b", 5, 25),
    ]
    lengths = answer(
        "SELECT k, window_end - window_start AS length, COUNT(*) AS n FROM TUMBLE(s, ts, 10, 5) GROUP BY k"
    )
    assert lengths == [(5, "a", 10, 1), (15, "a", 10, 2), (15, "b", 10, 1)]


SAME = "SELECT k, window_start, window_end, COUNT(*) AS n FROM HOP(s, ts, 10, 20) GROUP BY k, window_start, window_end"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, window_start, window_end, COUNT(*) AS n FROM TABLE(HOP(TABLE s, DESCRIPTOR(ts), 10, 20)) "
        "GROUP BY k, window_start, window_end",
        "SELECT k, window_start, window_end, COUNT(*) AS n FROM TABLE(HOP(DATA => TABLE s, SLIDE => 10, SIZE => 20, "
        "TIMECOL => DESCRIPTOR(`ts`))) GROUP BY 1, 2, 3",
        "SELECT k, window.start AS window_start, window.end AS window_end, COUNT(*) AS n FROM s "
        "GROUP BY k, window(ts, 20, 10)",
        "SELECT k, HOP_START(ts, 10, 20) AS window_start, HOP_END(ts, 10, 20) AS window_end, COUNT(*) AS n FROM s "
        "GROUP BY HOP(ts, 10, 20), k",
        "SELECT k, window_start, window_end, n FROM (SELECT k, window_start, window_end, COUNT(*) AS n "
        "FROM HOP(s, ts, 10, 20) GROUP BY ALL) q",
        "SELECT k, window_start, window_end, COUNT(*) AS n FROM HOP(s, ts, 10, 20) GROUP BY k",
    ],
)
def test_spellings_of_other_engines_mean_the_same(query):
    """Flink's table functions, with names or not, Spark's window(), older Flink's groups, and less."""
    want = windrow.run(SAME, streams={"s": ROWS}, runtime="local")["q1"]
    assert_same(windrow.run(query, streams={"s": ROWS}, runtime="local")["q1"], want)


def test_a_struct_of_bounds_as_spark_has_it():
    """`window` itself is a struct of start and end."""
    assert answer("SELECT window, COUNT(*) AS n FROM s GROUP BY window(ts, 10)")[0] == (10, {"start": 0, "end": 10}, 2)


CUMULATED = [
    "SELECT k, window_start, window_end, COUNT(*) AS n, MAX(x) AS m FROM CUMULATE(s, ts, 5, 20) "
    "GROUP BY k, window_start, window_end",
    "SELECT window_start, window_end, SUM(x) AS t FROM TABLE(CUMULATE(TABLE s, DESCRIPTOR(ts), 5, 10, 3)) "
    "GROUP BY window_start, window_end",
    "SELECT COUNT(*) AS n FROM CUMULATE(s, ts, 2, 10) WHERE k = 'b'",
    "SELECT * FROM CUMULATE(s, ts, 5, 20, 13)",
    "SELECT window_end, k, x FROM CUMULATE(s, ts, 5, 20) QUALIFY ROW_NUMBER() OVER (PARTITION BY window_start, "
    "window_end ORDER BY x DESC) = 1",
    "SELECT l.window_start, l.x, r.x AS y FROM CUMULATE(s, ts, 5, 20) l JOIN CUMULATE(s, ts, 5, 20) r ON l.k = r.k "
    "AND l.window_start = r.window_start AND l.window_end = r.window_end",
    "SELECT c.x, h.x AS y FROM CUMULATE(s, ts, 5, 20) c JOIN HOP(s, ts, 5, 10) h ON c.k = h.k",
]


@pytest.mark.parametrize("query", CUMULATED)
def test_cumulating_windows_are_what_they_are_defined_as(query):
    """CUMULATE: at every step the rows since the last multiple of the size, before the epoch too."""
    rows = {"ts": [-21, -1, *ROWS["ts"]], "k": ["a", "b", *ROWS["k"]], "x": [7, 8, *ROWS["x"]]}
    given = {"streams": {"s": pa.table(rows)}, "until": 60}
    want = oracle(query, **given)["q1"]
    for batch_rows in (1, None):
        assert_same(windrow.run(query, runtime="local", batch_rows=batch_rows, **given)["q1"], want)


def test_cumulating_windows_begin_at_midnight_whatever_the_zone_of_the_machine():
    """The visitors of a day so far, every six hours; the last window is the whole day."""
    at = [datetime(2024, 3, 30, 23), datetime(2024, 3, 31, 0), datetime(2024, 3, 31, 7), datetime(2024, 3, 31, 13)]
    query = """SELECT window_start, window_end, COUNT(*) AS n
        FROM TABLE(CUMULATE(TABLE s, DESCRIPTOR(ts), INTERVAL '6' HOUR, INTERVAL '1' DAY))
        GROUP BY window_start, window_end"""
    given = {"streams": {"s": pa.table({"ts": at})}, "until": datetime(2024, 4, 1)}
    got = windrow.run(query, runtime="local", **given)["q1"]
    first, day = datetime(2024, 3, 30), datetime(2024, 3, 31)
    wanted = [(first, day, 1), *((day, day + timedelta(hours=h), n) for h, n in ((6, 1), (12, 2), (18, 3), (24, 3)))]
    assert [tuple(row.values())[1:] for row in got.to_pylist()] == wanted
    assert_same(got, oracle(query, **given)["q1"])


def test_the_size_of_cumulating_windows_is_a_multiple_of_their_step():
    """Else the last window would end after the next ones begin."""
    with pytest.raises(BindingError, match="SIZE 10 is not a multiple of STEP 3") as failure:
        answer("SELECT COUNT(*) AS n FROM CUMULATE(s, ts, 3, 10)")
    assert "CUMULATE(s, ts, '2 min', '10 min')" in str(failure.value.hint)


def test_two_calls_join_within_equal_windows():
    """Rows meet if their windows are the same, whether that is written or not."""
    want = [(10, "a", 1, 1), (10, "b", 2, 2), (30, "b", 5, 5)] + [(20, "a", i, j) for i in (3, 4) for j in (3, 4)]
    plain = "SELECT l.k, l.x, r.x AS y FROM TUMBLE(s, ts, 10) l JOIN TUMBLE(s, ts, 10) r ON l.k = r.k"
    assert answer(plain) == sorted(want)
    assert answer(f"{plain} AND l.window_start = r.window_start AND l.window_end = r.window_end") == sorted(want)
    alone = "SELECT COUNT(*) AS n FROM TUMBLE(s, ts, 10) l JOIN TUMBLE(s, ts, 10) r ON l.window_end = r.window_end"
    assert answer(alone) == [(10, 4), (20, 4), (30, 1)]


def test_bounds_cost_nothing_below_the_aggregate():
    """Grouping by the window adds no key, and its bounds are computed from answers, not from rows."""
    from windrow import cql
    from windrow.catalog import Catalog, StreamDef

    catalog = Catalog().add(StreamDef("s", {"ts": pa.int64(), "k": pa.string(), "x": pa.int64()}, "ts"))
    plan = cql.compile_select(SAME, catalog, "q")
    (aggregate,) = [n for n in walk(plan.root) if isinstance(n, Aggregate)]
    assert aggregate.keys == ("s.k",)
    assert not any(isinstance(n, WindowBounds) for n in walk(aggregate))
    (quantise,) = [n for n in walk(plan.root) if isinstance(n, Quantise)]
    assert quantise.before
    assert isinstance(plan.root, Emit)
    assert (plan.root.period, plan.root.offset) == (10, 0)


@pytest.mark.parametrize(
    ("query", "error", "says"),
    [
        ("SELECT * FROM TUMBLE(s, x, 10)", BindingError, "not the time of stream"),
        ("SELECT * FROM TUMBLE(s, ts)", CQLSyntaxError, "TUMBLE has no SIZE"),
        ("SELECT * FROM HOP(s, ts, 10)", CQLSyntaxError, "HOP has no SIZE"),
        ("SELECT * FROM TUMBLE(s, ts, 0)", BindingError, "not positive"),
        ("SELECT * FROM TUMBLE(s, ts, '10 min')", BindingError, "has a unit"),
        ("SELECT * FROM TUMBLE(s PARTITION BY k, ts, 10)", CQLSyntaxError, "PARTITION BY in TUMBLE"),
        ("SELECT * FROM TUMBLE(s, ts, 10) a, TUMBLE(s, ts, 5) b WHERE a.k = b.k", BindingError, "differs from SLIDE"),
        (
            "SELECT * FROM TUMBLE(s, ts, 10, 1) a, TUMBLE(s, ts, 10) b WHERE a.k = b.k",
            BindingError,
            "different offsets",
        ),
        ("SELECT RSTREAM_RESTORE(k) FROM TUMBLE(s, ts, 10)", UnsupportedError, "RESTORE over TUMBLE"),
        ("SELECT window_end FROM s [ROWS 3]", BindingError, "window_end needs windows"),
        ("SELECT window_end FROM s [RANGE UNBOUNDED SLIDE 5]", BindingError, "window_end needs windows"),
        ("SELECT COUNT(*) FROM s GROUP BY window(x, 10)", BindingError, "not the time of a stream"),
        ("SELECT COUNT(*) FROM s GROUP BY window(ts, '10 parsecs')", BindingError, "not a length of time"),
    ],
)
def test_what_is_refused(query, error, says):
    """Errors name what is wrong with a window function."""
    with pytest.raises(error, match=says):
        answer(query)
