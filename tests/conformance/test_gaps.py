"""Gaps in time: fifty years without a row cost what the rows around them cost, for every shape of query."""

from __future__ import annotations

import sys
import tracemalloc
from functools import cache

import pyarrow as pa
import pytest

import windrow
from windrow.engine.replay import Replay
from windrow.errors import RuntimeFailure
from windrow.operators import grid_aggregate, sample
from windrow.operators.aggregates import stretches
from windrow.sharing import family
from windrow.sharing.joins import readers
from windrow.store.store import Store
from windrow.testing import assert_same, oracle

SHORT, LONG = 36, 50 * 365 * 86_400  # seconds; multiples of all slides
TIMES = (1, 1, 2, 3, 5, 8)
MOST_BYTES = 32 << 20
POOLS: list[pa.MemoryPool] = []  # a pool must outlive the arrays that it holds

HEAD = """
CREATE STREAM s (ts BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY ts;
CREATE STREAM r (ts BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY ts;
CREATE TABLE t (k BIGINT, w BIGINT);
"""
W = "[RANGE 4 SLIDE 1]"

# Nothing is in the answer while the windows are empty.
SILENT = {
    "grouped": f"SELECT k, COUNT(*) AS n, SUM(v) AS m FROM s {W} GROUP BY k",
    "greatest": f"SELECT k, MAX(v) AS n FROM s {W} GROUP BY k",
    "different values": f"SELECT k, COUNT(DISTINCT v) AS n, MEDIAN(v) AS m FROM s {W} GROUP BY k",
    "lists": f"SELECT k, LIST(v ORDER BY v) AS n FROM s {W} GROUP BY k",
    "having": f"SELECT COUNT(*) AS n FROM s {W} HAVING COUNT(*) > 1",
    "having of groups": f"SELECT k, COUNT(*) AS n FROM s {W} GROUP BY k HAVING COUNT(*) > 1",
    "plain": f"SELECT k, v FROM s {W}",
    "distinct": f"SELECT DISTINCT k FROM s {W}",
    "bounds": f"SELECT k, window_start AS opens, window_end AS closes FROM s {W}",
    "bounds of groups": f"SELECT k, window_end AS closes, COUNT(*) AS n FROM s {W} GROUP BY k",
    "entering": f"SELECT ISTREAM(k, v) FROM s {W}",
    "counts that change": f"SELECT ISTREAM(COUNT(*) AS n) FROM s {W}",
    "counts that were": f"SELECT DSTREAM(COUNT(*) AS n) FROM s {W}",
    "groups that change": f"SELECT ISTREAM(k, COUNT(*) AS n) FROM s {W} GROUP BY k",
    "unbounded": "SELECT ISTREAM(k, COUNT(*) AS n) FROM s [RANGE UNBOUNDED SLIDE 1] GROUP BY k",
    "now": "SELECT k, COUNT(*) AS n FROM s [NOW SLIDE 1] GROUP BY k",
    "continuous": "SELECT k, COUNT(*) AS n FROM s [RANGE 4] GROUP BY k",
    "continuous count": "SELECT COUNT(*) AS n FROM s [RANGE 4]",
    "snapshots": "SELECT RSTREAM(k, v) FROM s [RANGE 4]",
    "count window": "SELECT k, COUNT(*) AS n FROM s [ROWS 3] GROUP BY k",
    "restored": f"SELECT ISTREAM_RESTORE(k, v) FROM s {W}",
    "all restored": f"SELECT RSTREAM_RESTORE(k, v) FROM s {W}",
    "join": f"SELECT s.k, r.v FROM s {W}, r {W} WHERE s.k = r.k",
    "aggregate of a join": f"SELECT s.k, SUM(r.v) AS n FROM s {W}, r {W} WHERE s.k = r.k GROUP BY s.k",
    "left join": f"SELECT s.v, r.v AS w FROM s {W} LEFT JOIN r {W} ON s.k = r.k AND r.v > 2",
    "join of three": f"SELECT s.k, r.v, u.v AS w FROM s {W}, r {W}, s AS u {W} WHERE s.k = r.k AND r.k = u.k",
    "table": f"SELECT t.w, COUNT(*) AS n FROM s {W}, t WHERE s.k = t.k GROUP BY t.w",
    "except": f"SELECT k FROM s {W} EXCEPT SELECT k FROM r {W} WHERE v > 3",
    "union": f"SELECT k FROM s {W} UNION ALL SELECT v FROM r {W}",
    "exists": f"SELECT k, v FROM s {W} WHERE NOT EXISTS (SELECT 1 FROM r {W} WHERE r.v > s.v)",
    "tumble": "SELECT COUNT(*) AS n FROM TUMBLE(s, ts, 2)",
    "tumble with offset": "SELECT SUM(v) AS n FROM TUMBLE(s, ts, 3, 1)",
    "tumble of groups": "SELECT k, COUNT(*) AS n FROM TUMBLE(s, ts, 2) GROUP BY k, window_start, window_end",
    "hop": "SELECT MAX(v) AS n FROM HOP(s, ts, 1, 3)",
    "hop of rows": "SELECT v, window_end FROM HOP(s, ts, 1, 3)",
    "hop join": "SELECT a.v, b.v AS w FROM HOP(s, ts, 1, 3) a, HOP(r, ts, 1, 3) b WHERE a.k = b.k",
    "session": "SELECT k, COUNT(*) AS n FROM SESSION(s PARTITION BY k, ts, 3) GROUP BY k",
    "top": f"SELECT k, COUNT(*) AS n FROM s {W} GROUP BY k ORDER BY n DESC, k LIMIT 1",
    "top rows": f"SELECT k, v FROM s {W} ORDER BY v DESC LIMIT 2",
    "over": f"SELECT k, v, SUM(v) OVER (PARTITION BY k ORDER BY v) AS n FROM s {W}",
    "qualify": f"SELECT k, v FROM s {W} QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) = 1",
    "scalar subquery": f"SELECT k, v FROM s {W} WHERE v > (SELECT AVG(v) FROM s {W})",
    "stream of answers": f"SELECT ISTREAM(COUNT(*) AS n) FROM (SELECT k, COUNT(*) AS n FROM s {W} GROUP BY k) [ROWS 5]",
    "answers in a window": f"SELECT WSTREAM(k)[RANGE 3] FROM s {W}",
    "frequent": f"SELECT k, FREQUENT(v, 2) AS n FROM s {W} GROUP BY k",
    "frequent of all": f"SELECT ISTREAM(FREQUENT(v, 2) AS n) FROM s {W}",
    "frequent having": f"SELECT FREQUENT(v, 2) AS n, COUNT(*) AS c FROM s {W} HAVING COUNT(*) > 0",
    "approximate": f"SELECT k, APPROX_COUNT_DISTINCT(v) AS n FROM s {W} GROUP BY k",
    "approximate of all": f"SELECT ISTREAM(APPROX_QUANTILE(v, 0.5) AS n) FROM s {W}",
    "frequent in a tumble": "SELECT FREQUENT(v, 2) AS n FROM TUMBLE(s, ts, 2)",
    "at most": "SELECT k, COUNT(*) AS n FROM s [RANGE 4 SLIDE AT MOST 1] GROUP BY k",
}
# By definition every instant has rows.
REPEATED = {
    "count": f"SELECT COUNT(*) AS n, SUM(v) AS m FROM s {W}",
    "bounds of counts": f"SELECT window_end AS closes, COUNT(*) AS n FROM s {W}",
    "greatest of all": f"SELECT MAX(v) AS n, COUNT(DISTINCT k) AS d FROM s {W}",
    "median": f"SELECT MEDIAN(v) AS n FROM s {W}",
    "list": f"SELECT LIST(v ORDER BY v) AS n FROM s {W}",
    "aggregate of a join of all": f"SELECT SUM(r.v) AS n FROM s {W}, r {W} WHERE s.k = r.k",
    "unbounded groups": "SELECT k, COUNT(*) AS n FROM s [RANGE UNBOUNDED SLIDE 1] GROUP BY k",
    "unbounded rows": "SELECT k, v FROM s [RANGE UNBOUNDED SLIDE 1]",
    "frequent, every instant": f"SELECT FREQUENT(v, 2) AS n FROM s {W}",
    "approximate, every instant": f"SELECT APPROX_COUNT_DISTINCT(v) AS n FROM s {W}",
    "outer join": f"SELECT COUNT(*) AS n FROM t LEFT JOIN s {W} ON s.k = t.k",
    "nobody": f"SELECT t.w FROM t WHERE NOT EXISTS (SELECT 1 FROM s {W} WHERE s.k = t.k)",
    "count of nobody": f"SELECT COUNT(*) AS n FROM t WHERE NOT EXISTS (SELECT 1 FROM s {W} WHERE s.k = t.k)",
    "groups of groups": f"SELECT COUNT(*) AS n FROM (SELECT k, COUNT(*) AS n FROM s {W} GROUP BY k) WHERE n = 2",
    "rollup": f"SELECT k, COUNT(*) AS n FROM s {W} GROUP BY ROLLUP (k)",
    "at most, all": "SELECT COUNT(*) AS n FROM s [RANGE 4 SLIDE AT MOST 1]",
}
# Several queries that share; each of those above is alone.
SHARED = {
    "groups": [
        f"SELECT k, COUNT(*) AS n FROM s {W} GROUP BY k",
        "SELECT k, SUM(v) AS n FROM s [RANGE 6 SLIDE 2] WHERE v > 0 GROUP BY k",
        "SELECT k, COUNT(DISTINCT v) AS n FROM s [RANGE 6 SLIDE 3] GROUP BY k",
        "SELECT k, MAX(v) AS n FROM s [RANGE 12 SLIDE 1] GROUP BY k",
    ],
    "entering": [
        f"SELECT ISTREAM(COUNT(*) AS n) FROM s {W}",
        "SELECT ISTREAM(SUM(v) AS n) FROM s [RANGE 6 SLIDE 2] WHERE k > 0",
        "SELECT DSTREAM(MAX(v) AS n) FROM s [RANGE 6 SLIDE 3]",
        "SELECT DISTINCT MIN(v) AS n FROM s [RANGE 6 SLIDE 3] HAVING MIN(v) > 0",
    ],
    "summaries": [
        f"SELECT k, FREQUENT(v, 2) AS n FROM s {W} GROUP BY k",
        "SELECT k, FREQUENT(v, 3) AS n FROM s [RANGE 6 SLIDE 2] WHERE v > 0 GROUP BY k",
        "SELECT ISTREAM(APPROX_COUNT_DISTINCT(v) AS n) FROM s [RANGE 6 SLIDE 3]",
        "SELECT FREQUENT(v, 2) AS n, COUNT(*) AS c FROM s [RANGE 6 SLIDE 2] HAVING COUNT(*) > 0",
    ],
    "having": [
        f"SELECT COUNT(*) AS n FROM s {W} HAVING COUNT(*) > 0",
        "SELECT MAX(v) AS n FROM s [RANGE 6 SLIDE 2] HAVING MAX(v) IS NOT NULL",
        "SELECT SUM(v) + 1 AS n FROM TUMBLE(s, ts, 3)",
    ],
    "joins": [
        f"SELECT s.k, SUM(r.v) AS n FROM s {W}, r {W} WHERE s.k = r.k GROUP BY s.k",
        "SELECT s.k, COUNT(*) AS n FROM s [RANGE 6 SLIDE 2], r [RANGE 3 SLIDE 2] WHERE s.k = r.k GROUP BY s.k",
        "SELECT SUM(r.v) AS n FROM s [RANGE 6 SLIDE 1], r [RANGE 3 SLIDE 1] WHERE s.k = r.k HAVING COUNT(*) > 0",
        "SELECT ISTREAM(COUNT(*) AS n) FROM s [RANGE 6 SLIDE 3], r [RANGE 6 SLIDE 3] WHERE s.k = r.k",
    ],
}
TEMPLATE = [
    f"CREATE TEMPLATE of (x BIGINT) AS SELECT k, COUNT(*) AS n FROM s {W} WHERE v > $x GROUP BY k",
    "CREATE QUERIES q FROM TEMPLATE of VALUES (0), (1), (2)",
]
ALL = {
    "summaries": [
        f"SELECT FREQUENT(v, 2) AS n FROM s {W}",
        "SELECT APPROX_QUANTILE(v, 0.5) AS n FROM s [RANGE 6 SLIDE 2]",
    ],
    "counts": [f"SELECT COUNT(*) AS n FROM s {W}", "SELECT SUM(v) AS n, window_end AS closes FROM s [RANGE 6 SLIDE 2]"],
    "joins": [
        f"SELECT SUM(r.v) AS n FROM s {W}, r {W} WHERE s.k = r.k",
        "SELECT COUNT(DISTINCT s.v) AS n FROM s [RANGE 6 SLIDE 2], r [RANGE 3 SLIDE 2] WHERE s.k = r.k",
    ],
}


def script(*queries: str) -> str:
    made = [q if q.startswith("CREATE") else f"CREATE QUERY q{i} AS {q}" for i, q in enumerate(queries)]
    return ";".join([HEAD.strip().rstrip(";"), *made])


def streams(gap: int) -> dict[str, pa.Table]:
    ts = [*TIMES, *(t + gap for t in TIMES)]
    found = {}
    for name, shift in (("s", 0), ("r", 1)):
        k = [(i + shift) % 3 for i in range(len(ts))]
        v = [(i * (2 + shift)) % 7 for i in range(len(ts))]
        found[name] = pa.table({"ts": ts, "k": k, "v": v})
    return found


TABLES = {"t": pa.table({"k": [0, 1, 7], "w": [5, 6, 7]})}


@cache
def definition(text: str, gap: int = SHORT) -> dict[str, pa.Table]:
    return dict(oracle(text, streams(gap), TABLES))


def moved(table: pa.Table, by: int) -> pa.Table:
    """An answer whose instants after the middle of the short gap come so much later, bounds of windows among them."""
    middle = SHORT // 2 + max(TIMES)
    for name in {"_ts", "opens", "closes", "window_start", "window_end"} & set(table.column_names):
        times = [t + by if t > middle else t for t in table[name].to_pylist()]
        table = table.set_column(table.column_names.index(name), name, pa.array(times, pa.int64()))
    return table


@pytest.fixture
def narrow(monkeypatch):
    """Closed forms are used from a few instants on."""
    for module in (stretches, family, readers):
        monkeypatch.setattr(module, "WIDE", 4)
    for name in ("_ROOM", "_MOST"):
        monkeypatch.setattr(grid_aggregate, name, 0)
    monkeypatch.setattr(sample, "_ROOM", -1_000_000)


def calls_and_bytes(text: str, gap: int) -> tuple[windrow.Answers, int, int]:
    """The answers, how many functions were called for them, and the most memory that was held."""
    count = 0

    def profile(frame, event, arg):
        nonlocal count
        count += event in ("call", "c_call")

    usual = pa.default_memory_pool()
    POOLS.append(pa.proxy_memory_pool(usual))  # its own peak, whatever this process has held before
    pa.set_memory_pool(POOLS[-1])
    tracemalloc.start()
    sys.setprofile(profile)
    try:
        found = windrow.run(text, streams(gap), TABLES, runtime="local")
    finally:
        sys.setprofile(None)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        pa.set_memory_pool(usual)
    return found, count, most + POOLS[-1].max_memory()


def test_the_oracle_knows_no_gaps_but_short_ones_have_the_same_rules():
    """What `moved` does to a short gap is what a longer one does."""
    text = script(*SILENT.values())
    short, longer = (definition(text, g) for g in (SHORT, 2 * SHORT))
    for name, answer in short.items():
        assert_same(moved(answer, SHORT), longer[name])


@pytest.mark.parametrize("name", [*SILENT, *(f"shared {n}" for n in SHARED)])
def test_fifty_years_cost_what_a_minute_costs(name):
    """The same answer, as many calls, and little memory."""
    text = script(*(SHARED[name[7:]] if name.startswith("shared ") else [SILENT[name]]))
    want = definition(text)
    windrow.run(text, streams(SHORT), TABLES, runtime="local")  # compiled and cached
    _, calls, _ = calls_and_bytes(text, SHORT)
    got, more, held = calls_and_bytes(text, LONG)
    for query, answer in want.items():
        assert_same(got[query], moved(answer, LONG - SHORT))
    assert more < 2 * calls and held < MOST_BYTES


@pytest.mark.parametrize("name", [*REPEATED, *(f"shared {n}" for n in ALL)])
def test_an_answer_of_too_many_rows_is_refused_by_name(name):
    """Before it is made: refusing costs no memory."""
    text = script(*(ALL[name[7:]] if name.startswith("shared ") else [REPEATED[name]]))
    tracemalloc.start()
    with pytest.raises(RuntimeFailure, match=r'query "q0" would answer with \d{9,} rows at once'):
        windrow.run(text, streams(LONG), TABLES, runtime="local")
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert held < MOST_BYTES


@pytest.mark.parametrize(("partitions", "strategy"), [(1, "upa"), (3, "negative")])
def test_closed_forms_equal_the_definition(narrow, in_process_job, tmp_path, partitions, strategy):
    """All shapes at once, over a short gap, with nothing dense."""
    text = script(*SILENT.values(), *REPEATED.values())
    want = definition(text)
    replay = Replay.of(text, streams(SHORT), TABLES, None)
    with Store.open(str(tmp_path)) as store:
        got = replay.on(
            in_process_job(2, partitions=partitions), store, 5, strategy, partitions=partitions, sharing="off"
        )
    for query, answer in want.items():
        assert_same(got[query], answer)


@pytest.mark.parametrize(("partitions", "sharing"), [(1, "shards"), (1, "slices"), (3, "shards")])
def test_shared_closed_forms_equal_the_definition(narrow, in_process_job, tmp_path, partitions, sharing):
    """Families and shared joins over a short gap, whole and in batches."""
    text = script(*(q for shared in (SHARED, ALL) for queries in shared.values() for q in queries))
    want = definition(text)
    replay = Replay.of(text, streams(SHORT), TABLES, None)
    for rows in (100, 4):
        with Store.open(str(tmp_path / str(rows))) as store:
            job = in_process_job(2, chaos=rows, partitions=partitions)
            got = replay.on(job, store, rows, partitions=partitions, sharing=sharing)
        for query, answer in want.items():
            assert_same(got[query], answer)


def test_templates_over_a_gap():
    """An answer with parameters is as long as the same with constants."""
    found = windrow.run(script(*TEMPLATE), streams(LONG), TABLES, runtime="local")["q"]
    short = windrow.run(script(*TEMPLATE), streams(SHORT), TABLES, runtime="local")["q"]
    assert_same(found, moved(short, LONG - SHORT))


def test_the_limit_is_the_callers():
    """As many rows as are allowed are answered, and not one more."""
    text = script(REPEATED["count"])
    rows = windrow.run(text, streams(1000), runtime="local", max_rows=10_000)["q0"].num_rows
    assert windrow.run(text, streams(1000), runtime="local", max_rows=rows)["q0"].num_rows == rows
    with pytest.raises(RuntimeFailure, match=f"{rows} rows at once"):
        windrow.run(text, streams(1000), runtime="local", max_rows=rows - 1)


def test_a_live_query_that_would_have_too_many_rows_stops_alone():
    """The others go on over the gap; status says why one does not."""
    engine = windrow.Engine("local", max_rows=1000)
    engine.execute(script(REPEATED["count"], SILENT["grouped"]))
    engine.start()
    for gap in (0, LONG):
        for stream, rows in streams(gap).items():
            engine.push(stream, rows.slice(0 if gap == 0 else len(TIMES), len(TIMES)))
    assert 'query "q0" would answer with' in engine.status()["failed"]["q0"]
    assert max(engine["q1"].results()["_ts"].to_pylist()) > LONG
    engine.stop()


@pytest.mark.spark
def test_fifty_years_on_spark(spark):
    """The same on Spark, where tasks see some of the rows each."""
    text = script(*(SILENT[n] for n in ("grouped", "plain", "tumble", "join", "top", "session")), *SHARED["groups"])
    want = definition(text)
    got = windrow.run(text, streams(LONG), TABLES, spark=spark)
    for query, answer in want.items():
        assert_same(got[query], moved(answer, LONG - SHORT))
    with pytest.raises(RuntimeFailure, match="rows at once"):
        windrow.run(script(REPEATED["count"]), streams(LONG), TABLES, spark=spark)
