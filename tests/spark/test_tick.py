"""Ticks over a store, their tasks run in this process: clocks, late rows, changes, restarts and faults."""

from __future__ import annotations

import errno
import os

import pyarrow as pa
import pytest
from windrow_tests_in_process import JobTicker

import windrow
from windrow.catalog import Catalog
from windrow.engine.script import bind_script
from windrow.errors import StateError
from windrow.runtime.job import Feed
from windrow.store.store import Store
from windrow.testing import assert_same

DECLARED = """
CREATE STREAM s (a BIGINT, ts BIGINT) TIMESTAMP BY ts WITHIN 2;
CREATE STREAM t (a BIGINT, ts BIGINT) TIMESTAMP BY ts;
CREATE TABLE p (k BIGINT, v VARCHAR);
CREATE TABLE r (k BIGINT, v VARCHAR) RETROACTIVE;
"""


def plan(query, name="q"):
    """The plan of one query over the streams and tables above."""
    return bind_script(f"{DECLARED} CREATE QUERY {name} AS {query}", Catalog()).queries[name]


@pytest.fixture
def ticker(in_process_job, tmp_path):
    """Opens tickers on one home, the one before closed, as a restart does."""
    opened = []

    def open_ticker(*queries, streams=("s",), partitions=2, start=None, chaos=3):
        for store in opened:
            store.close()
        opened.append(Store.open(tmp_path / "home"))
        found = JobTicker(in_process_job(2, chaos=chaos), opened[-1], {}, partitions)
        declared = bind_script(DECLARED, Catalog()).streams
        for s in streams:
            found.add_stream(declared[s])
        for query in queries:
            found.add_query(query, "upa", start)
        return found

    yield open_ticker
    for store in opened:
        store.close()


def rows(values, times):
    """Rows of a stream."""
    return pa.table({"a": pa.array(values, pa.int64()), "ts": pa.array(times, pa.int64())})


def tick(ticker, **streams):
    """One committed tick over new rows of streams."""
    done = ticker.tick([Feed(name, table) for name, table in streams.items()])
    ticker.commit(done)
    return done


def log(answer):
    """A change log as tuples."""
    return sorted(zip(*(c.to_pylist() for c in answer.columns), strict=True)) if answer is not None else []


def test_the_frontier_is_one_below_what_may_still_come(ticker):
    """Rows wait until no earlier one can come."""
    at = ticker(plan("SELECT a FROM s [RANGE 100]"))
    assert log(tick(at, s=rows([1, 2], [10, 14])).answers["q"]) == [(10, 1, 1)]
    assert at.frontier == 11
    assert log(tick(at, s=rows([3, 4], [12, 20])).answers["q"]) == [(12, 1, 3), (14, 1, 2)]


def test_a_clock_that_is_not_reached_starts_at_the_earliest_row(ticker):
    """Rows that wait from earlier ticks count for the start, in this process and after a restart."""
    query = plan("SELECT COUNT(*) AS n FROM s [RANGE 5]")
    at = ticker(query)
    tick(at, s=rows([1, 1], [10, 10]))
    at = ticker(query)
    tick(at, s=rows([1], [9]))
    at = ticker(query)
    assert log(tick(at, s=rows([1], [40])).answers["q"])[0] == (9, 1, 1)


def test_rows_are_late_by_what_was_answered(ticker):
    """A row is late when time has been answered beyond it; rows of one tick never make each other late."""
    at = ticker(plan("SELECT s.a FROM s [RANGE 9], t [RANGE 9] WHERE s.a = t.a"), streams=("s", "t"))
    assert tick(at, s=rows([1], [50]), t=rows([1], [10])).late == {}
    assert tick(at, s=rows([7, 8], [47, 48])).late == {}  # t holds time back
    assert tick(at, t=rows([1, 1], [60, 20])).late == {}
    assert at.frontier == 47
    done = tick(at, s=rows([7, 8], [47, 48]))
    assert done.late["s"]["a"].to_pylist() == [7]
    assert (done.counters["rows.s"], done.counters["late.s"]) == (2, 1)


def test_a_query_made_anew_under_the_same_name_starts_anew(ticker):
    """The state of a dropped query is not picked up, whether workers still hold it or the manifest did."""
    at = ticker(plan("SELECT COUNT(*) AS n FROM s [RANGE UNBOUNDED]"), chaos=None)
    tick(at, s=rows([1, 2, 3], [1, 2, 9]))
    at.drop_query("q")
    at.add_query(plan("SELECT COUNT(*) AS n FROM s [RANGE UNBOUNDED]"), "upa", at.frontier)
    assert log(tick(at, s=rows([4], [20])).answers["q"]) == [(6, 1, 0)]


def test_a_dropped_stream_leaves_nothing(ticker):
    """Its marks no longer hold time back."""
    at = ticker(plan("SELECT a FROM s [RANGE 9]"), streams=("s", "t"))
    tick(at, s=rows([1], [50]), t=rows([1], [1]))
    assert at.frontier == 0
    at.drop_stream("t")
    tick(at, s=rows([1], [60]))
    assert at.frontier == 57


def test_a_home_keeps_its_number_of_partitions(ticker):
    """State lies by partition, so a restart with another number goes on with the first."""
    query = plan("SELECT a, COUNT(*) AS n FROM s [RANGE UNBOUNDED] GROUP BY a")
    at = ticker(query, partitions=3)
    tick(at, s=rows([1, 2, 3], [1, 2, 9]))
    at = ticker(query, partitions=2)
    assert at.partitions == 3
    assert log(tick(at, s=rows([3], [20])).answers["q"]) == [(9, 1, 3, 1)]


def test_a_table_that_does_not_reach_back_touches_only_new_rows(ticker):
    """Results of rows that came before an update stay as they were."""
    at = ticker()
    at.set_table("p", pa.table({"k": [1], "v": ["old"]}))
    at.add_query(plan("SELECT s.a, p.v FROM s [RANGE 100], p WHERE s.a = p.k"), "upa")
    assert log(tick(at, s=rows([1, 0], [5, 9])).answers["q"]) == [(5, 1, 1, "old")]
    at.set_table("p", pa.table({"k": [1], "v": ["new"]}))
    assert log(tick(at, s=rows([1, 0], [10, 20])).answers["q"]) == [(10, 1, 1, "new")]


def test_a_retroactive_table_changes_past_results(ticker):
    """An update ends the results of the old version and makes those of the new one, from the first instant on that no
    row has reached."""
    at = ticker()
    at.set_table("r", pa.table({"k": [1], "v": ["old"]}))
    at.add_query(plan("SELECT s.a, r.v FROM s [RANGE 100], r WHERE s.a = r.k"), "upa")
    tick(at, s=rows([1, 0], [5, 9]))
    at.set_table("r", pa.table({"k": [1], "v": ["new"]}))
    assert log(tick(at, s=rows([0], [20])).answers["q"]) == [(10, -1, 1, "old"), (10, 1, 1, "new")]


def test_a_tick_that_does_not_move_time_changes_no_table(ticker):
    """A new version waits for the next instant, and is not lost."""
    at = ticker()
    at.set_table("r", pa.table({"k": [1], "v": ["old"]}))
    at.add_query(plan("SELECT s.a, r.v FROM s [RANGE 100], r WHERE s.a = r.k"), "upa")
    tick(at, s=rows([1, 0], [5, 9]))
    at.set_table("r", pa.table({"k": [1], "v": ["new"]}))
    assert tick(at, s=rows([0], [8])).answers == {}
    assert len(log(tick(at, s=rows([0], [20])).answers["q"])) == 2


def test_unchanged_state_is_not_written_again(ticker):
    """A tick in which nothing happens to a query names the files of the tick before."""
    query = plan("SELECT DISTINCT a FROM s [RANGE 1000]")
    at = ticker(query, chaos=None)
    tick(at, s=rows([1, 2, 3], [1, 2, 9]))
    tick(at, s=rows([1], [100]))
    before = {k: [r.path for r in refs] for k, refs in at.manifest.runs.items() if "waiting" not in k[3]}
    tick(at, s=rows([1], [101]))
    after = {k: [r.path for r in refs] for k, refs in at.manifest.runs.items() if "waiting" not in k[3]}
    assert after == before


def test_a_disk_that_fills_stops_the_tick_and_loses_nothing(ticker, monkeypatch):
    """The error says so; with room again the same rows give the same answer."""
    query = plan("SELECT a, COUNT(*) AS n FROM s [RANGE 5] GROUP BY a")
    data = [rows([1, 2, 1], [1, 4, 9]), rows([2, 1, 2], [12, 15, 19]), rows([1], [40])]
    at = ticker(query)
    found = [tick(at, s=data[0]).answers.get("q")]
    real = os.fsync
    calls = iter(range(100))

    def full(descriptor):
        if next(calls) >= 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StateError, match="the disk is full") as raised:
        tick(at, s=data[1])
    assert "free some space" in raised.value.hint
    monkeypatch.undo()
    at = ticker(query)
    found += [tick(at, s=d).answers.get("q") for d in data[1:]]
    script = f"{DECLARED} CREATE QUERY q AS SELECT a, COUNT(*) AS n FROM s [RANGE 5] GROUP BY a"
    want = windrow.run(script, {"s": pa.concat_tables(data), "t": rows([], [])}, runtime="local", until=at.frontier)[
        "q"
    ]
    assert_same(pa.concat_tables([f for f in found if f is not None]), want)


def test_orphans_of_attempts_that_did_not_count_are_swept(ticker):
    """Repeated tasks leave files that no manifest names; the next start removes them."""
    query = plan("SELECT a, COUNT(*) AS n FROM s [RANGE 5] GROUP BY a")
    at = ticker(query)
    for i in range(5):
        tick(at, s=rows([i, i + 1], [10 * i, 10 * i + 5]))
    at = ticker(query)
    at.store.sweep(orphans=True)
    named = {path for m in at.store._manifests.values() for path in m.paths()}
    assert set(at.store.place.names("runs", recursive=True)) == named
    assert len(at.store.place.names("programs")) <= 2
