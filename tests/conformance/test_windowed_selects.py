"""Windows of time on views that only select and project, and PROCTIME(), mean what is written in place."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.errors import BindingError, UnsupportedError
from windrow.testing import assert_same, oracle

BID = "CREATE STREAM bid (bidder BIGINT, price BIGINT, at TIMESTAMP) TIMESTAMP BY at{};"
VIEWS = """
CREATE VIEW dear AS SELECT bidder AS who, price, at AS since FROM bid WHERE price > 10;
CREATE VIEW dearer AS SELECT *, price * 2 AS twice FROM dear WHERE price > 15;
"""


def bids() -> dict[str, pa.Table]:
    random, start = np.random.default_rng(7), dt.datetime(2024, 5, 1, 7, 59, 50)
    seconds = np.sort(random.integers(0, 60, 80))
    return {
        "bid": pa.table({
            "bidder": random.integers(0, 4, 80), "price": random.integers(1, 40, 80),
            "at": [start + dt.timedelta(seconds=int(s)) for s in seconds],
        })
    }  # fmt: skip


PAIRS = {
    "tumble over a view": (
        "SELECT who, COUNT(*) AS n, window_start, window_end FROM TUMBLE(dear, since, INTERVAL '10' SECOND) "
        "GROUP BY who, window_start, window_end",
        "SELECT bidder AS who, COUNT(*) AS n, window_start, window_end FROM TUMBLE(bid, at, INTERVAL '10' SECOND) "
        "WHERE price > 10 GROUP BY bidder, window_start, window_end",
    ),
    "hop over a view of a view, with an alias": (
        "SELECT d.who, SUM(d.twice) AS n FROM HOP(dearer, since, INTERVAL '5' SECOND, INTERVAL '10' SECOND) d "
        "GROUP BY d.who, d.window_start, d.window_end",
        "SELECT bidder AS who, SUM(price * 2) AS n FROM HOP(bid, at, INTERVAL '5' SECOND, INTERVAL '10' SECOND) "
        "WHERE price > 15 GROUP BY bidder, window_start, window_end",
    ),
    "without GROUP BY": (
        "SELECT COUNT(*) AS n FROM TUMBLE(dearer, since, INTERVAL '3' SECOND)",
        "SELECT COUNT(*) AS n FROM TUMBLE(bid, at, INTERVAL '3' SECOND) WHERE price > 15",
    ),
    "a window in GROUP BY over a subquery": (
        "SELECT b.who, COUNT(*) AS n, TUMBLE_START(b.t, INTERVAL '10' SECOND) AS since FROM "
        "(SELECT bidder AS who, at AS t FROM bid WHERE price > 10) b GROUP BY b.who, TUMBLE(b.t, INTERVAL '10' SECOND)",
        "SELECT bidder AS who, COUNT(*) AS n, window_start AS since FROM TUMBLE(bid, at, INTERVAL '10' SECOND) "
        "WHERE price > 10 GROUP BY bidder, window_start, window_end",
    ),
    "RANGE over a view": (
        "SELECT who, COUNT(*) AS n FROM dear [RANGE 5 SECONDS] GROUP BY who",
        "SELECT bidder AS who, COUNT(*) AS n FROM bid [RANGE 5 SECONDS] WHERE price > 10 GROUP BY bidder",
    ),
    "RANGE SLIDE over a subquery": (
        "SELECT MAX(x) AS m FROM (SELECT price + 1 AS x FROM bid WHERE bidder = 1) [RANGE 20 SECONDS SLIDE 5 SECONDS]",
        "SELECT MAX(price + 1) AS m FROM bid [RANGE 20 SECONDS SLIDE 5 SECONDS] WHERE bidder = 1",
    ),
    "a join of two windows on one view": (
        "SELECT a.who, b.price FROM dear [RANGE 4 SECONDS] a, dear [NOW] b WHERE a.who = b.who AND a.price < b.price",
        "SELECT a.bidder AS who, b.price FROM bid [RANGE 4 SECONDS] a, bid [NOW] b WHERE a.bidder = b.bidder "
        "AND a.price < b.price AND a.price > 10 AND b.price > 10",
    ),
    "a WITH of the query hides nothing in a view": (
        "WITH bid AS (SELECT 1 AS x FROM bid [NOW]) SELECT COUNT(*) AS n FROM TUMBLE(dear, since, INTERVAL '9' SECOND)",
        "SELECT COUNT(*) AS n FROM TUMBLE(bid, at, INTERVAL '9' SECOND) WHERE price > 10",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PAIRS)
def test_a_window_on_what_only_selects(case):
    """It is the window on the stream below, at once and by few rows."""
    over, written = PAIRS[case]
    given = bids()
    want = oracle(BID.format("") + written, given)["q1"]
    assert want.num_rows
    for way in ({}, {"batch_rows": 9}):
        assert_same(windrow.run(BID.format("") + VIEWS + over, given, runtime="local", **way)["q1"], want)


@pytest.mark.parametrize(
    "items", ["WSTREAM(price)[RANGE 8 SEC]", "WSTREAM(*)[NOW]", "SUM(WSTREAM(price)[RANGE 8 SEC]) AS t"]
)
@pytest.mark.parametrize("source", ["bid", "bid WHERE bidder < 3", "(SELECT * FROM bid) q"])
def test_a_window_on_a_wstream_is_none_on_the_stream_below(items, source):
    """What has been appended leaves the window on the output stream, and not that of the stream, which has none."""
    script = f"{BID.format('')} SELECT {items} FROM {source}"
    want = oracle(script, bids())["q1"]
    assert -1 in want["_op"].to_pylist()
    for way in ({}, {"batch_rows": 9}):
        assert_same(windrow.run(script, bids(), runtime="local", **way)["q1"], want)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT who FROM dear [ROWS 5]", "window on a subquery that is not a stream"),
        ("SELECT COUNT(*) FROM (SELECT DISTINCT bidder FROM bid) [RANGE 5 SECONDS]", "not a stream"),
        ("SELECT COUNT(*) FROM (SELECT MAX(price) AS p FROM bid) [RANGE 5 SECONDS]", "not a stream"),
        ("SELECT COUNT(*) FROM TUMBLE(dear, price, INTERVAL '5' SECOND)", "not a stream"),
    ],
)
def test_what_looks_at_more_than_a_row(query, message):
    """Windows of rows, and selections that are more than that, do not commute."""
    with pytest.raises(BindingError, match=message):
        windrow.run(BID.format("") + VIEWS + query, bids(), runtime="local")


PROC = BID.format(" AS PROCTIME()")


@pytest.mark.parametrize(
    "query",
    [
        "CREATE VIEW b AS SELECT *, PROCTIME() AS p_time FROM bid; SELECT bidder, COUNT(*) AS n, window_start, "
        "window_end FROM TABLE(TUMBLE(TABLE b, DESCRIPTOR(p_time), INTERVAL '10' SECOND)) "
        "GROUP BY bidder, window_start, window_end",
        "SELECT b.bidder, COUNT(*) AS n, TUMBLE_START(b.p, INTERVAL '10' SECOND) AS window_start, "
        "TUMBLE_END(b.p, INTERVAL '10' SECOND) AS window_end FROM (SELECT *, PROC_TIME() AS p FROM bid) b "
        "GROUP BY b.bidder, TUMBLE(b.p, INTERVAL '10' SECOND)",
        "SELECT bidder, COUNT(*) AS n, TUMBLE_START(PROCTIME(), INTERVAL '10' SECOND) AS window_start, "
        "TUMBLE_END(PROCTIME(), INTERVAL '10' SECOND) AS window_end FROM bid "
        "GROUP BY bidder, TUMBLE(PROCTIME(), INTERVAL '10' SECOND)",
        "SELECT b.bidder, COUNT(*) AS n, TUMBLE_START(b.p, INTERVAL '10' SECOND) AS window_start, "
        "TUMBLE_END(b.p, INTERVAL '10' SECOND) AS window_end FROM (SELECT *, NOW() AS p FROM bid) b "
        "GROUP BY b.bidder, TUMBLE(b.p, INTERVAL '10' SECOND)",
        "WITH b AS (SELECT bidder, CURRENT_TIMESTAMP AS p FROM bid), c AS (SELECT p AS q, bidder FROM b) "
        "SELECT bidder, COUNT(*) AS n, window_start, window_end FROM TUMBLE(c, q, INTERVAL '10' SECOND) "
        "GROUP BY bidder, window_start, window_end",
        "SELECT bidder, COUNT(*) AS n, TUMBLE_START(NOW(), INTERVAL '10' SECOND) AS window_start, "
        "TUMBLE_END(NOW(), INTERVAL '10' SECOND) AS window_end FROM bid "
        "GROUP BY bidder, TUMBLE(NOW(), INTERVAL '10' SECOND)",
    ],
)
def test_counts_by_processing_time(query):
    """Nexmark's query 12, with windows over PROCTIME() as in Flink or NOW() as in Feldera: the time of the rows."""
    want = oracle(
        BID.format("") + "SELECT bidder, COUNT(*) AS n, window_start, window_end FROM "
        "TUMBLE(bid, at, INTERVAL '10' SECOND) GROUP BY bidder, window_start, window_end",
        bids(),
    )["q1"]
    for way in ({}, {"batch_rows": 9}):
        assert_same(windrow.run(PROC + query, bids(), runtime="local", **way)["q1"], want)


def test_now_elsewhere_is_not_the_time_of_the_row():
    """Beside a window by NOW(), NOW() is what it always is; a condition on one is no window of rows."""
    part = PROC + "WITH b AS (SELECT price, NOW() AS p FROM bid) "
    counted = "SELECT COUNT(*) AS n FROM TUMBLE(b, p, INTERVAL '10' SECOND)"
    assert windrow.run(part + counted, bids(), runtime="local")["q1"].num_rows
    for query in (
        "SELECT MAX(p) FROM b",
        "SELECT COUNT(*) FROM b WHERE p > NOW() - INTERVAL '5 seconds'",
        "SELECT COUNT(*), NOW() FROM TUMBLE(b, p, INTERVAL '10' SECOND)",
        f"SELECT x.n FROM ({counted}) x, (SELECT MAX(p) AS p FROM b) y",
    ):
        with pytest.raises(UnsupportedError, match="changes by itself"):
            windrow.run(part + query, bids(), runtime="local")


def test_the_last_instant_of_a_window():
    """TUMBLE_ROWTIME and its like are a millisecond before the end, as Flink has them."""
    call = "(b.at, INTERVAL '5' SECOND, INTERVAL '10' SECOND)"
    want = oracle(
        BID.format("") + "SELECT COUNT(*) AS n, window_end - INTERVAL '1 millisecond' AS last FROM "
        "HOP(bid, at, INTERVAL '5' SECOND, INTERVAL '10' SECOND) GROUP BY window_end",
        bids(),
    )["q1"]  # fmt: skip
    query = f"SELECT COUNT(*) AS n, HOP_ROWTIME{call} AS last FROM bid b GROUP BY HOP{call}"
    assert_same(windrow.run(BID.format("") + query, bids(), runtime="local")["q1"], want)


def test_proctime_is_the_time_of_the_row():
    """As a value, in conditions, beside a table, and by its own name in the answer."""
    given = {"bid": bids()["bid"].slice(0, 5)}
    found = windrow.run(
        PROC + "SELECT ISTREAM(PROCTIME(), PROCTIME() = at AS same) FROM bid [NOW] b WHERE PROCTIME() < b.at + "
        "INTERVAL 1 SECOND", given, runtime="local",
    )["q1"]  # fmt: skip
    assert found.column_names == ["_ts", "proctime", "same"]
    assert found["proctime"].to_pylist() == given["bid"]["at"].to_pylist()
    assert found["same"].to_pylist() == [True] * 5


@pytest.mark.parametrize(
    ("script", "message", "hint"),
    [
        (BID.format("") + "SELECT PROCTIME() FROM bid", "whose time is that of its events", "AS PROCTIME"),
        (PROC + "SELECT PROCTIME() FROM bid a, bid b WHERE a.price = b.price", "several streams", "time column"),
        (PROC + "SELECT PROCTIME() FROM (SELECT price FROM bid)", "no stream is read", "has the stream in its FROM"),
        (PROC + "SELECT NOW() FROM bid", "changes by itself", "time column"),
        (
            BID.format("") + "SELECT COUNT(*) FROM bid GROUP BY HOP(NOW(), INTERVAL 1 SECOND, INTERVAL 2 SECOND)",
            "NOW() of the stream",
            "AS PROCTIME",
        ),
    ],
)
def test_nothing_looks_at_the_clock(script, message, hint):
    """Where a row's time is not when it came, or nobody knows whose is meant, it says what to write."""
    with pytest.raises(UnsupportedError) as error:
        windrow.run(script, bids(), runtime="local")
    assert message in str(error.value) and hint in str(error.value)


def test_the_declaration_lasts(tmp_path):
    """A home remembers that the time of a stream is processing time, and SHOW writes it."""
    home = str(tmp_path / "home")
    with windrow.Engine(runtime="local", home=home) as engine:
        engine.execute(PROC)
    with windrow.Engine(runtime="local", home=home) as engine:
        (shown,) = engine.execute("SHOW STREAMS")
        assert shown["text"].to_pylist()[0].endswith("TIMESTAMP BY at AS PROCTIME()")
        engine.execute("CREATE QUERY q AS SELECT PROCTIME() AS p FROM bid")
