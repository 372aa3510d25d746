"""The oracle on cases small enough to work out by hand from the definition of a query."""

from __future__ import annotations

import datetime
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from windrow.testing import oracle

NAN = float("nan")

# Rows of S: (a, ts). The window [RANGE 3] holds a row on [ts, ts + 3).
S = pa.table({"a": [1, 2, 1], "ts": [1, 2, 5]})
T = pa.table({"a": [1, 2], "y": [10, 20], "ts": [2, 6]})


def answer(
    query: str,
    streams: dict[str, pa.Table] | None = None,
    tables: dict[str, pa.Table] | None = None,
    until: Any = None,
    **options: Any,
) -> list[tuple[Any, ...]]:
    """The rows of a script's last query."""
    found = oracle(query, streams or {"S": S, "T": T}, tables, until, **options)
    table = list(found.values())[-1]
    return [tuple(row.values()) for row in table.to_pylist()]


def test_range_window_is_a_change_log() -> None:
    """A row appears at ts and disappears at ts + T."""
    # 1 lives on [1, 4), 2 on [2, 5), the second 1 on [5, 8).
    assert answer("SELECT a FROM S [RANGE 3]", {"S": S}, until=9) == [
        (1, 1, 1), (2, 1, 2), (4, -1, 1), (5, -1, 2), (5, 1, 1), (8, -1, 1),
    ]  # fmt: skip


def test_change_log_is_consolidated() -> None:
    """A row that leaves and an equal one that enters in one instant cancel."""
    # 1 lives on [1, 5) and again on [5, 9): nothing happens at 5 but the end of nothing.
    assert answer("SELECT a FROM S [RANGE 4] WHERE a = 1", {"S": S}, until=9) == [(1, 1, 1), (9, -1, 1)]


def test_columns_come_after_the_instant_and_the_sign() -> None:
    """`_ts` is first, `_op` second for relations, and streams have no `_op`."""
    found = oracle("SELECT a FROM S [RANGE 3]; SELECT ISTREAM(a) FROM S [RANGE 3]", {"S": S})
    assert found["q1"].column_names == ["_ts", "_op", "a"]
    assert found["q2"].column_names == ["_ts", "a"]


def test_stream_operators() -> None:
    """ISTREAM, DSTREAM and RSTREAM are differences and copies of consecutive answers."""
    # Answers of [RANGE 3]: {1} at 1, {1, 2} at 2, {2} at 4, {1} at 5.
    assert answer("SELECT ISTREAM(a) FROM S [RANGE 3]", {"S": S}) == [(1, 1), (2, 2), (5, 1)]
    assert answer("SELECT DSTREAM(a) FROM S [RANGE 3]", {"S": S}) == [(4, 1), (5, 2)]
    assert answer("SELECT Rstream(a) FROM S [RANGE 3]", {"S": S}) == [(1, 1), (2, 1), (2, 2), (4, 2), (5, 1)]


def test_the_clock_ends_with_the_replay() -> None:
    """Without `until` the clock ends at the last row of any stream; rows after `until` are ignored."""
    assert answer("SELECT DSTREAM(a) FROM S [RANGE 1]") == [(2, 1), (3, 2), (6, 1)]  # T's last row is at 6
    assert answer("SELECT a FROM S [RANGE 3]", {"S": S}, until=2) == [(1, 1, 1), (2, 1, 2)]
    assert answer("SELECT COUNT(*) AS n FROM S [RANGE 3]", {"S": S}, until=0) == []  # it ends before it starts


def test_global_aggregate_of_nothing_is_a_row() -> None:
    """An aggregate without GROUP BY has a row over an empty window, from the start of the clock."""
    # Windows of T [RANGE 1]: nothing until 2, {10} at 2, nothing from 3, {20} at 6. The clock starts with S at 1.
    query = (
        "SELECT COUNT(q.y) AS n, SUM(q.y) AS t FROM T [RANGE 1] AS q WHERE EXISTS (SELECT 1 FROM S WHERE S.ts <= q.ts)"
    )
    assert answer(query) == [
        (1, 1, 0, None), (2, -1, 0, None), (2, 1, 1, 10), (3, -1, 1, 10), (3, 1, 0, None),
        (6, -1, 0, None), (6, 1, 1, 20),
    ]  # fmt: skip


def test_no_rows_no_clock() -> None:
    """An empty stream gives an empty answer, even of a global aggregate."""
    assert answer("SELECT COUNT(*) AS n FROM S [RANGE 3]", {"S": S.slice(0, 0)}) == []


def test_periodic_evaluates_at_multiples() -> None:
    """SLIDE looks at t = ..., 0, s, 2s, ... inside the clock and reports all of Q(t)."""
    # At 2 the window (-1, 2] holds 1 and 2; at 4 (1, 4] holds 2; at 6 (3, 6] holds the last 1.
    query = "SELECT a, COUNT(*) AS n FROM S [RANGE 3 SLIDE 2] GROUP BY a"
    assert answer(query, {"S": S}, until=7) == [(2, 1, 1), (2, 2, 1), (4, 2, 1), (6, 1, 1)]
    assert answer("SELECT ISTREAM(a) FROM S [RANGE 3 SLIDE 2]", {"S": S}, until=8) == [(2, 1), (2, 2), (6, 1)]
    assert answer("SELECT DSTREAM(a) FROM S [RANGE 3 SLIDE 2]", {"S": S}, until=8) == [(4, 1), (6, 2), (8, 1)]


def test_periodic_negative_time_and_hopping() -> None:
    """Negative multiples count, and with SLIDE above RANGE rows between the windows are never seen."""
    data = pa.table({"a": [1, 2, 3], "ts": [-5, -4, -1]})
    # Instants -4 and 0: (-5, -4] holds 2 (not 1: -5 is outside), (-1, 0] holds nothing.
    assert answer("SELECT a FROM S [RANGE 1 SLIDE 4]", {"S": data}, until=0) == [(-4, 2)]


def test_rows_window() -> None:
    """ROWS n holds the newest n rows; ties in time are ordered by arrival and an instant is seen whole."""
    data = pa.table({"a": [1, 2, 3, 4], "ts": [1, 2, 2, 3]})
    # After 1: {1}; after 2 (rows 2 and 3): {2, 3}; after 3: {3, 4}.
    assert answer("SELECT a FROM S [ROWS 2]", {"S": data}) == [
        (1, 1, 1), (2, -1, 1), (2, 1, 2), (2, 1, 3), (3, -1, 2), (3, 1, 4),
    ]  # fmt: skip
    # With one row kept, row 2 comes and goes inside instant 2.
    assert answer("SELECT ISTREAM(a) FROM S [ROWS 1]", {"S": data}) == [(1, 1), (2, 3), (3, 4)]


def test_rows_window_with_slide() -> None:
    """ROWS n SLIDE k moves after every k rows and then holds the newest n."""
    data = pa.table({"a": [1, 2, 3, 4, 5], "ts": [1, 2, 3, 4, 5]})
    # Moves after rows 2 and 4: {1, 2} with n = 3, then {2, 3, 4}; row 5 waits.
    assert answer("SELECT a FROM S [ROWS 3 SLIDE 2]", {"S": data}) == [
        (2, 1, 1),
        (2, 1, 2),
        (4, -1, 1),
        (4, 1, 3),
        (4, 1, 4),
    ]
    # n = 1, k = 2: only every second row is ever seen.
    assert answer("SELECT ISTREAM(a) FROM S [ROWS 1 SLIDE 2]", {"S": data}) == [(2, 2), (4, 4)]


def test_partitioned_window() -> None:
    """PARTITION BY keeps the newest rows of each group; null is a group."""
    data = pa.table({"g": ["p", "q", "p", None, None], "a": [1, 2, 3, 4, 5], "ts": [1, 2, 3, 4, 5]})
    assert answer("SELECT a FROM S [PARTITION BY g ROWS 1]", {"S": data}) == [
        (1, 1, 1), (2, 1, 2), (3, -1, 1), (3, 1, 3), (4, 1, 4), (5, -1, 4), (5, 1, 5),
    ]  # fmt: skip


def test_now_and_unbounded() -> None:
    """NOW holds the rows of this instant; a landmark or absent window keeps everything."""
    assert answer("SELECT a FROM S [NOW]", {"S": S}, until=3) == [(1, 1, 1), (2, -1, 1), (2, 1, 2), (3, -1, 2)]
    for window in ("[RANGE UNBOUNDED]", "[WINDOW UNTIL NOW]", ""):
        assert answer(f"SELECT COUNT(*) AS n FROM S {window}", {"S": S}) == [
            (1, 1, 1), (2, -1, 1), (2, 1, 2), (5, -1, 2), (5, 1, 3),
        ]  # fmt: skip


def test_join() -> None:
    """A result lives while all its parts do."""
    # S's 1 lives on [1, 4), T's (1, 10) on [2, 7): together [2, 4). S's last 1 on [5, 8): together [5, 7).
    # S's 2 lives on [2, 5), T's (2, 20) from 6: never together.
    query = "SELECT S.a, T.y FROM S [RANGE 3], T [RANGE 5] WHERE S.a = T.a"
    assert answer(query, until=9) == [(2, 1, 1, 10), (4, -1, 1, 10), (5, 1, 1, 10), (7, -1, 1, 10)]


def test_internal_windows_append() -> None:
    """With every window INTERNAL the answer is the ISTREAM, kept for ever."""
    query = "SELECT S.a, T.y FROM S [RANGE 3 INTERNAL], T [RANGE 5 INTERNAL] WHERE S.a = T.a"
    assert answer(query, until=9) == [(2, 1, 1, 10), (5, 1, 1, 10)]
    assert answer(query.replace("SELECT S.a, T.y", "SELECT DSTREAM(S.a, T.y)"), until=9) == []
    # Kept for ever: at the second change both results are there.
    assert answer(query.replace("SELECT S.a, T.y", "SELECT RSTREAM(T.y)"), until=9) == [(2, 10), (5, 10), (5, 10)]


def test_mixed_internal_windows() -> None:
    """A result appears with its newest part and disappears with the first part that is not INTERNAL."""
    query = "SELECT S.a, T.y FROM S [RANGE 3 INTERNAL], T [RANGE 5] WHERE S.a = T.a"
    # Both results end with T's row, at 7.
    assert answer(query, until=9) == [(2, 1, 1, 10), (5, 1, 1, 10), (7, -1, 1, 10), (7, -1, 1, 10)]
    # S's 2 has left its window [2, 5) when T's 2 arrives at 6: no result.


def test_wstream() -> None:
    """WSTREAM windows the output stream, whose rows never expire from the input windows."""
    # Output stream of [RANGE 3]: 1 at 1, 2 at 2, 1 at 5. Its newest two rows:
    assert answer("SELECT WSTREAM(a)[ROWS 2] FROM S [RANGE 3]", {"S": S}, until=9) == [(1, 1, 1), (2, 1, 2)]
    assert answer("SELECT WSTREAM(*)[RANGE 1] FROM S [RANGE 3]", {"S": S}, until=3) == [
        (1, 1, 1, 1), (2, -1, 1, 1), (2, 1, 2, 2), (3, -1, 2, 2),
    ]  # fmt: skip


def test_wstream_inside_an_aggregate() -> None:
    """`SUM(WSTREAM(SUM(a))[ROWS 2])` adds up the newest sums; so does the nested query it abbreviates."""
    # Sums over (t - 2, t]: 3 at 2, null at 4 (nothing in (2, 4]), 1 at 6. Newest two: {3}, {3, null}, {null, 1}.
    want = [(1, 1, None), (2, -1, None), (2, 1, 3), (6, -1, 3), (6, 1, 1)]
    assert answer("SELECT SUM(WSTREAM(SUM(a))[ROWS 2]) AS t FROM S [RANGE 2 SLIDE 2]", {"S": S}, until=6) == want
    nested = "SELECT SUM(q.m) AS t FROM (SELECT SUM(a) AS m FROM S [RANGE 2 SLIDE 2 INTERNAL]) AS q [ROWS 2]"
    assert answer(nested, {"S": S}, until=6) == want


def test_rows_of_one_instant_on_an_output_stream_are_ordered_by_value() -> None:
    """A ROWS window on an output stream orders equal times by value, nulls last."""
    data = pa.table({"a": [None, 3, 1, 2], "ts": [1, 1, 1, 1]})
    assert answer("SELECT WSTREAM(a)[ROWS 2] FROM S [RANGE 3]", {"S": data}) == [(1, 1, 3), (1, 1, None)]


def test_restore_reports_what_lived_and_died() -> None:
    """RESTORE adds to an evaluation the results that came and went since the one before."""
    # [RANGE 1]: 1 lives on [1, 2), 2 on [2, 3), 1 on [5, 6). Evaluations at 4 and 8 see nothing alive.
    assert answer("SELECT ISTREAM_RESTORE(a) FROM S [RANGE 1 SLIDE 4]", {"S": S}, until=8) == [(4, 1), (4, 2), (8, 1)]
    # [RANGE 4]: 1 lives on [1, 5) and [5, 9), 2 on [2, 6). At 4 both are alive; at 8 the death of 2 is no news.
    assert answer("SELECT Rstream-restore(a) FROM S [RANGE 4 SLIDE 4]", {"S": S}, until=8) == [(4, 1), (4, 2), (8, 1)]
    assert answer("SELECT Istream-restore(a) FROM S [RANGE 4 SLIDE 4]", {"S": S}, until=8) == [(4, 1), (4, 2)]


def test_distinct_group_by_and_having() -> None:
    """SQL's clauses mean what they mean, at every instant."""
    data = pa.table({"a": [1, 1, 2], "x": [0.5, NAN, None], "ts": [1, 2, 3]})
    assert answer("SELECT DISTINCT a FROM S [RANGE 2]", {"S": data}, until=5) == [
        (1, 1, 1), (3, 1, 2), (4, -1, 1), (5, -1, 2),
    ]  # fmt: skip
    assert answer("SELECT a FROM S [RANGE 2] GROUP BY a HAVING COUNT(*) > 1", {"S": data}, until=5) == [
        (2, 1, 1),
        (3, -1, 1),
    ]


def test_set_operations() -> None:
    """UNION ALL merges bags, EXCEPT ALL subtracts them."""
    both = "SELECT a FROM S [RANGE UNBOUNDED] {} SELECT a FROM T [RANGE UNBOUNDED]"
    assert answer(both.format("UNION ALL")) == [(1, 1, 1), (2, 1, 1), (2, 1, 2), (5, 1, 1), (6, 1, 2)]
    # {1}; {1, 2} - {1} = {2}; {1, 2, 1} - {1} = {1, 2}; minus {1, 2} = {1}.
    assert answer(both.format("EXCEPT ALL")) == [(1, 1, 1), (2, -1, 1), (2, 1, 2), (5, 1, 1), (6, -1, 2)]


def test_exists_and_not_exists() -> None:
    """NOT EXISTS is an anti-join: a match hides every copy. An operator inside says nothing."""
    inner = "(SELECT Rstream(*) FROM T [RANGE 2] WHERE T.a = S.a)"
    # T's 1 lives on [2, 4), its 2 on [6, 8). S's rows stay.
    assert answer(f"SELECT a FROM S WHERE NOT EXISTS {inner}", until=8) == [
        (1, 1, 1), (2, -1, 1), (2, 1, 2), (4, 1, 1), (5, 1, 1), (6, -1, 2), (8, 1, 2),
    ]  # fmt: skip
    assert answer(f"SELECT a FROM S WHERE EXISTS {inner}", until=5) == [(2, 1, 1), (4, -1, 1)]


def test_left_join() -> None:
    """LEFT JOIN pads a left row with nulls while nothing matches it."""
    query = "SELECT S.a, T.y FROM S [RANGE UNBOUNDED] LEFT JOIN T [RANGE 2] ON S.a = T.a WHERE S.a = 1"
    assert answer(query, until=4) == [(1, 1, 1, None), (2, -1, 1, None), (2, 1, 1, 10), (4, -1, 1, 10), (4, 1, 1, None)]


def test_subquery_relation_and_stream() -> None:
    """A relation in FROM is looked at as it is; a stream in FROM is windowed, or kept for ever."""
    counts = "SELECT a AS a, COUNT(*) AS n FROM S [RANGE UNBOUNDED] GROUP BY a"
    assert answer(f"SELECT q.a FROM ({counts}) AS q WHERE q.n > 1", {"S": S}) == [(5, 1, 1)]
    gone = "SELECT DSTREAM(a) FROM S [RANGE 3]"  # 1 at 4, 2 at 5
    assert answer(f"SELECT q.a FROM ({gone}) [RANGE 1] AS q", {"S": S}) == [(4, 1, 1), (5, -1, 1), (5, 1, 2)]
    assert answer(f"SELECT COUNT(*) AS n FROM ({gone}) AS q", {"S": S}) == [
        (1, 1, 0), (4, -1, 0), (4, 1, 1), (5, -1, 1), (5, 1, 2),
    ]  # fmt: skip


def test_tables_and_active_intervals() -> None:
    """A row of a VALID table matches the stream rows whose time lies in its interval, however long they stay."""
    declared = "CREATE TABLE P (k BIGINT, v VARCHAR, since BIGINT, til BIGINT) VALID FROM since TO til;"
    table = pa.table({"k": [1, 1, 2], "v": ["old", "new", "two"], "since": [None, 5, 3], "til": [5, None, None]})
    # S's 1 at 1 meets old, the 1 at 5 meets new (5 is outside [.., 5)), the 2 at 2 comes before 3.
    query = declared + "SELECT S.a, P.v FROM S [RANGE 10], P WHERE S.a = P.k"
    assert answer(query, {"S": S}, {"P": table}) == [(1, 1, 1, "old"), (5, 1, 1, "new")]
    outer = declared + "SELECT S.a, P.v FROM S [RANGE 10] LEFT JOIN P ON S.a = P.k"
    assert answer(outer, {"S": S}, {"P": table}) == [(1, 1, 1, "old"), (2, 1, 2, None), (5, 1, 1, "new")]
    plain = "SELECT S.a, P.v FROM S [RANGE 10], P WHERE S.a = P.k AND S.ts = 2"
    assert answer(plain, {"S": S}, {"P": table}) == [(2, 1, 2, "two")]


def test_star_join_needs_every_linked_stream_inside_the_interval() -> None:
    """A VALID row that links two streams must be active at the times of both."""
    declared = "CREATE TABLE P (k BIGINT, j BIGINT, since BIGINT, til BIGINT) VALID FROM since TO til;"
    table = pa.table({"k": [1, 1], "j": [1, 1], "since": [0, 2], "til": [2, 9]})
    # S's 1 at 1 is in [0, 2) only; T's 1 at 2 is in [2, 9) only; S's 1 at 5 and T's 1 share [2, 9).
    star = declared + "SELECT ISTREAM(S.ts AS t) FROM S [RANGE 10], T [RANGE 10], P WHERE S.a = P.k AND T.a = P.j"
    assert answer(star, tables={"P": table}) == [(5, 5)]
    # Linked to S alone, T's time does not matter.
    chain = declared + "SELECT ISTREAM(S.ts AS t) FROM S [RANGE 10], T [RANGE 10], P WHERE S.a = P.k AND T.a = S.a"
    assert answer(chain, tables={"P": table}) == [(2, 1), (5, 5)]


def test_late_rows_take_no_part() -> None:
    """A row further behind than the slack is left out; one within it is put where it belongs."""
    data = pa.table({"a": [1, 2, 3, 4], "ts": [5, 9, 7, 6]})
    declared = "CREATE STREAM S (a BIGINT, ts BIGINT) TIMESTAMP BY ts{};"
    query = "SELECT ISTREAM(a) FROM S [RANGE 1]"
    assert answer(declared.format(" WITHIN 0") + query, {"S": data}) == [(5, 1), (9, 2)]
    assert answer(declared.format("") + query, {"S": data}) == [(5, 1), (6, 4), (7, 3), (9, 2)]
    assert answer(declared.format(" WITHIN 2") + query, {"S": data}) == [(5, 1), (7, 3), (9, 2)]
    assert answer(declared.format(" WITHIN 3") + query, {"S": data}) == [(5, 1), (6, 4), (7, 3), (9, 2)]


def test_timestamps() -> None:
    """On a timestamp clock windows have units, and `_ts` has the type of the time column."""
    noon = datetime.datetime(2024, 5, 1, 12)
    second = datetime.timedelta(seconds=1)
    data = pa.table({"a": [1, 2], "at": pa.array([noon, noon + 90 * second], pa.timestamp("ms"))})
    found = oracle("SELECT a FROM S [RANGE '1 min']", {"S": data})["q1"]
    assert found.schema.field("_ts").type == pa.timestamp("us")
    assert found.to_pylist() == [
        {"_ts": noon, "_op": 1, "a": 1},
        {"_ts": noon + 60 * second, "_op": -1, "a": 1},
        {"_ts": noon + 90 * second, "_op": 1, "a": 2},
    ]
    assert answer("SELECT COUNT(*) AS n FROM S [RANGE 2 MINUTES SLIDE 1 MINUTE]", {"S": data}) == [
        (noon, 1),
        (noon + 60 * second, 1),
    ]
    assert len(answer("SELECT a FROM S [RANGE 60 sec]", {"S": data}, until=noon + 200 * second)) == 4


def test_aggregates() -> None:
    """The aggregates that have a spelling or a meaning of their own."""
    data = pa.table({"a": [3, 1, 3, 1, 2, None], "x": [1.0, 2.0, 4.0, None, 2.0, 2.0], "ts": [1] * 6})
    one = "SELECT RSTREAM({}) FROM S [RANGE 1]"
    assert answer(one.format("TOP_K(a, 2) AS k, TOP_K(a, 9) AS l"), {"S": data}) == [(1, [1, 3], [1, 3, 2])]
    assert answer(one.format("TOP_K(a, 1) FILTER (WHERE x > 1) AS k"), {"S": data}) == [(1, [1])]
    # x: 1, 2, 4, 2, 2: mean 2.2, squares 1.44 + 0.04 + 3.24 + 0.04 + 0.04 = 4.8
    assert answer(one.format("VARIANCE(x) AS v, VAR_POP(x) AS p, MEDIAN(x) AS m, SUM(a) AS s"), {"S": data}) == [
        (1, pytest.approx(1.2), pytest.approx(0.96), 2.0, 10)
    ]
    assert answer(one.format("TOP_K(a, 2) AS k, STDDEV(a) AS d"), {"S": data.slice(5)}) == [(1, None, None)]


def test_user_functions() -> None:
    """A registered function is called with Arrow arrays, as the engine calls it."""
    functions = {
        "double": (lambda a: pc.multiply(a, 2), "BIGINT"),
        "odd": (lambda a: [v % 2 == 1 for v in a.to_pylist()], "BOOLEAN"),
    }
    assert answer("SELECT ISTREAM(double(a) AS d) FROM S [NOW] WHERE odd(a)", {"S": S}, functions=functions) == [
        (1, 2),
        (5, 2),
    ]


def test_the_papers_spellings() -> None:
    """Double quotes and bare words may stand for strings, aliases before or after the window."""
    data = pa.table({"protocol": ["ftp", "tcp"], "ts": [1, 2]})
    for test in ("protocol = ftp", 'L.protocol = "ftp"', "protocol = 'ftp'"):
        for source in ("L AS L [WINDOW 5]", "L [RANGE 5] AS L", "L[RANGE 5]"):
            assert answer(f"SELECT COUNT(L.*) AS n FROM {source} WHERE {test}", {"L": data}) == [(1, 1, 1)]


def test_sql_that_cannot_be_asked_for_all_instants_at_once() -> None:
    """Where DuckDB cannot take the instant as a column, each instant is asked by itself."""
    query = "SELECT ISTREAM(l.a AS c) FROM S AS l [RANGE 3] POSITIONAL JOIN S AS r [RANGE 3]"
    assert answer(query, {"S": S}) == [(1, 1), (2, 2), (5, 1)]


def test_a_query_that_fails_leaves_nothing_behind() -> None:
    """An error is DuckDB's own, and the next call starts clean."""
    with pytest.raises(duckdb.BinderException, match="nosuch"):
        oracle("SELECT nosuch FROM S [RANGE 3]", {"S": S}, {"P": S})
    with pytest.raises(duckdb.CatalogException):
        oracle("SELECT S.a FROM S [RANGE 3], P WHERE S.a = P.a", {"S": S})


def test_queries_are_named_by_position() -> None:
    """A bare SELECT is q1, q2, ... by its place among all queries."""
    found = oracle("SELECT a FROM S [NOW]; CREATE QUERY hot AS SELECT a FROM S; SELECT COUNT(*) AS n FROM S", {"S": S})
    assert list(found) == ["q1", "hot", "q3"]


def test_types_are_duckdbs() -> None:
    """Columns of an empty answer still have their types."""
    found = oracle("SELECT SUM(a) AS t, AVG(a) AS m FROM S [NOW] GROUP BY a", {"S": S.slice(0, 0)})["q1"]
    assert found.schema.types == [pa.int64(), pa.int8(), pa.decimal128(38, 0), pa.float64()]
