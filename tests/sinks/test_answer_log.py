"""The change log of a query lasts: exact after merging, crashes and rewriting, by time and as of any instant."""

from __future__ import annotations

from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windrow.errors import StateError
from windrow.sinks import answer_log
from windrow.sinks.answer_log import AnswerLog, present
from windrow.store.place import Place

TICKS = pa.schema([("_ts", pa.int64()), ("_op", pa.int8()), ("k", pa.int64()), ("v", pa.float64())])
TIMES = TICKS.set(0, pa.field("_ts", pa.timestamp("us")))
DAY = 86_400_000_000


def changes(seed, ticks, step, schema=TICKS):
    """A change log, tick by tick: rows come, and some of those that are there leave."""
    rng, there = np.random.default_rng(seed), []
    for tick in range(1, ticks + 1):
        rows = []
        for ts in sorted(rng.integers((tick - 1) * step, tick * step, rng.integers(0, 6)).tolist()):
            if there and rng.random() < 0.4:
                rows.append((ts, -1, *there.pop(int(rng.integers(len(there))))))
            else:
                there.append((int(rng.integers(3)), float(rng.choice([0.5, np.nan, -0.0]))))
                rows.append((ts, 1, *there[-1]))
        columns = list(zip(*rows, strict=True)) or [()] * 4
        yield tick, pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def shown(table):
    return Counter(map(repr, (tuple(r.values()) for r in table.to_pylist())))


def relation(parts, instant):
    """The rows at an instant, from the definition."""
    found = Counter()
    for part in parts:
        for r in part.to_pylist():
            if r["_ts"] <= instant:
                found[repr((r["k"], 0.0 if r["v"] == 0 else r["v"]))] += r["_op"]
    return +found


def as_of(log, instant):
    rows = log.as_of(instant).to_pylist()
    return Counter(repr((r["k"], 0.0 if r["v"] == 0 else r["v"])) for r in rows)


@given(seed=st.integers(0, 1000), ticks=st.integers(1, 60), fanout=st.sampled_from([4, 16]), again=st.integers(0, 60))
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_is_the_change_log(tmp_path_factory, monkeypatch, seed, ticks, fanout, again):
    """Merged or not, with ticks that are written twice: the same rows in any stretch of time, and any relation."""
    monkeypatch.setattr(answer_log, "FANOUT", fanout)
    log = AnswerLog(Place.of(tmp_path_factory.mktemp("log")), "q", TICKS, 800, relation=True, sync=False)
    parts = []
    for tick, table in changes(seed, ticks, 7):
        log.write("q", tick, table)
        parts.append(table)
    if again < len(parts):  # after a crash the last tick is handed over again; any may be
        log.settle()
        log.write("q", again + 1, parts[again])
    log.settle()
    everything = pa.concat_tables(parts)
    assert shown(log.results()) == shown(everything)
    for since, until in ((10, 100), (None, 50), (33, None)):
        ts = everything.column("_ts").to_numpy()
        mask = (ts >= (since or 0)) & (ts < (until or 10**9))
        assert shown(log.results(since, until)) == shown(everything.filter(pa.array(mask)))
    first = everything.column("_ts").to_numpy().min(initial=10**9)
    for instant in range(int(first), 7 * ticks, 37):
        assert as_of(log, instant) == relation(parts, instant)
    log.close()


def test_files_are_few_and_readable_by_others(tmp_path):
    """A full day is one file, and what DuckDB reads from the directory is the log."""
    log, parts = AnswerLog(Place.of(tmp_path), "q", TIMES, 30 * DAY, relation=True, sync=False), []
    for tick, table in changes(3, 100, DAY // 30, TIMES):
        log.write("q", tick, table)
        parts.append(table)
    log.settle()
    files = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("ticks-*.parquet"))
    assert [f.split("/")[2] for f in files[:3]] == ["date=1970-01-01", "date=1970-01-02", "date=1970-01-03"]
    assert len(files) <= 3 + 16
    found = duckdb.sql(f"SELECT _ts, _op, k, v FROM '{tmp_path}/answers/q/date=*/*.parquet'").to_arrow_table()
    assert shown(found.cast(TIMES)) == shown(pa.concat_tables(parts))
    log.close()


def test_old_answers_go(tmp_path):
    """Partitions older than KEEP are dropped; later instants are as before, earlier ones are refused."""
    log, parts = AnswerLog(Place.of(tmp_path), "q", TICKS, 80, relation=True, sync=False), []
    for tick, table in changes(5, 60, 10):
        log.write("q", tick, table)
        parts.append(table)
        log.settle()
    assert log.results().column("_ts").to_numpy().min() >= 500
    for instant in range(520, 600, 7):
        assert as_of(log, instant) == relation(parts, instant)
    with pytest.raises(StateError, match="not kept for so long"):
        log.as_of(100)
    log.drop()
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_crash_while_merging(tmp_path, monkeypatch):
    """Files that a merge has replaced and not deleted are not read twice, and go with the next merge."""
    monkeypatch.setattr(answer_log, "FANOUT", 4)
    log, parts = AnswerLog(Place.of(tmp_path), "q", TICKS, 10**6, relation=True, sync=False), []
    monkeypatch.setattr(Place, "delete", lambda self, name: None)  # the power is gone before anything is deleted
    for tick, table in changes(8, 40, 5):
        log.write("q", tick, table)
        log.settle()
        parts.append(table)
    assert shown(log.results()) == shown(pa.concat_tables(parts))
    monkeypatch.undo()
    monkeypatch.setattr(answer_log, "FANOUT", 4)
    before = len(list(tmp_path.rglob("ticks-*.parquet")))
    again = AnswerLog(Place.of(tmp_path), "q", TICKS, 10**6, relation=True, sync=False)
    again.write("q", 41, pa.table([[210], [1], [1], [1.0]], schema=TICKS))
    again.settle()
    assert len(list(tmp_path.rglob("ticks-*.parquet"))) < before / 2
    assert again.results().num_rows == pa.concat_tables(parts).num_rows + 1


def test_a_stream_of_answers(tmp_path):
    """Without a relation, an instant shows the last answer up to then."""
    schema = pa.schema([("_ts", pa.int64()), ("n", pa.int64())])
    log = AnswerLog(Place.of(tmp_path), "q", schema, 1000, relation=False, sync=False)
    log.write("q", 1, pa.table([[10, 10, 20], [1, 2, 3]], schema=schema))
    assert log.as_of(15).to_pylist() == [{"n": 1}, {"n": 2}]
    assert log.as_of(99).to_pylist() == [{"n": 3}]
    log.close()


def test_a_damaged_file_is_named(tmp_path):
    """Answers that cannot be read are refused by name."""
    log = AnswerLog(Place.of(tmp_path), "q", TICKS, 1000, relation=True, sync=False)
    log.write("q", 1, pa.table([[1], [1], [1], [1.0]], schema=TICKS))
    log.settle()
    (file,) = tmp_path.rglob("ticks-*.parquet")
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(StateError, match=r"corrupt answers .*ticks-0000000001-0000000001\.parquet"):
        log.results()


def test_a_file_in_the_place_of_another_is_named(tmp_path):
    """Answers of another query, or of other ticks, that somebody has put there are refused, not read."""
    logs = [AnswerLog(Place.of(tmp_path), q, TICKS, 1000, relation=True, sync=False) for q in ("q", "r")]
    for log, k in zip(logs, (1, 2), strict=True):
        log.write("", 1, pa.table([[1], [1], [k], [1.0]], schema=TICKS))
        log.settle()
    mine, other = sorted(tmp_path.rglob("ticks-*.parquet"))
    mine.write_bytes(other.read_bytes())
    with pytest.raises(StateError, match=r"corrupt answers .*\n.*it was written as answers/r"):
        logs[0].results()
    assert logs[1].results()["k"].to_pylist() == [2]


def test_present_cancels():
    """Rows that left take an equal one with them, NULL and NaN included."""
    nan = float("nan")
    log = pa.table({"_ts": [1, 1, 2, 3], "_op": pa.array([1, 1, -1, 1], pa.int8()), "a": [nan, None, nan, None]})
    assert present(log).column("a").to_pylist() == [None, None]
