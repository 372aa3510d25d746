"""Time as an engine sees it: late rows, rows from the future, silence, and the same answers live and replayed."""

from __future__ import annotations

import random
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import windrow
from windrow.engine.replay import LateRowsWarning
from windrow.errors import UnsupportedError
from windrow.operators.elements import BEGINNING
from windrow.testing import assert_same, oracle, seeded_case
from windrow.testing.strategies import Case

SECOND = 1_000_000


class Clocked:
    """A local engine whose wall the test moves."""

    def __init__(self, script: str, now: float = 1000.0, home: str | None = None, **options: object) -> None:
        self.now = now
        self.engine = windrow.Engine("local", home, **options)  # type: ignore[arg-type]
        self.engine.runtime._clock, self.engine.runtime._last_tick = lambda: self.now, now
        if script:
            self.engine.execute(script)
        self.engine.start()

    def push(self, *seconds: float, stream: str = "s") -> None:
        ts = pa.array([int(s * SECOND) for s in seconds], pa.timestamp("us"))
        self.engine.push(stream, pa.table({"ts": ts, "a": list(range(len(seconds)))}))

    def wait(self, seconds: float) -> None:
        """Time passes, and the runtime looks at the clock."""
        self.now += seconds
        self.engine.runtime._turn()

    def times(self, query: str = "q") -> list[float]:
        return [t / SECOND for t in self.engine[query].results()["_ts"].cast(pa.int64()).to_pylist()]


STREAM = "CREATE STREAM s (ts TIMESTAMP, a BIGINT) TIMESTAMP BY ts"
COUNTED = "CREATE QUERY q AS SELECT COUNT(*) AS n FROM s [RANGE 10 S SLIDE 10 S]"
IDLE = f"{STREAM} IDLE AFTER 5 SECONDS; {COUNTED}"


def test_absence_is_answered_live() -> None:
    """A silent stream follows the wall: periodic answers go on, and count nothing."""
    at = Clocked(IDLE)
    at.push(1000, 1004)
    at.wait(3)
    assert at.times() == [1000.0]
    at.wait(30)
    found = at.engine["q"].results()
    assert at.times() == [1000.0, 1010.0, 1020.0, 1030.0]
    assert found["n"].to_pylist() == [1, 1, 0, 0]
    at.push(1020)
    assert at.engine.late("s").num_rows == 1


def test_a_restart_repeats_no_time(tmp_path: object) -> None:
    """The frontier that silence reached is in the manifest."""
    home = str(tmp_path)
    at = Clocked(IDLE, home=home)
    at.push(1000, 1004)
    at.wait(40)
    reached = at.engine.status()["frontier"]
    at.engine.stop()
    again = Clocked("", now=at.now, home=home)
    assert again.engine.status()["frontier"] == reached
    again.wait(60)
    assert min(again.times()) * SECOND > reached
    again.engine.stop()


def test_silence_of_ticks_steps_aside() -> None:
    """A clock of ticks cannot follow the wall: the others decide."""
    declared = "CREATE STREAM {0} (ts BIGINT, a BIGINT) TIMESTAMP BY ts {1}"
    at = Clocked(
        f"{declared.format('s', '')}; {declared.format('t', 'IDLE AFTER 5 SECONDS')};"
        "CREATE QUERY q AS SELECT s.a FROM s [RANGE 9], t [RANGE 9] WHERE s.a = t.a"
    )
    at.engine.push("t", {"ts": [1], "a": [0]})
    at.engine.push("s", {"ts": [50], "a": [0]})
    assert at.engine.status()["frontier"] == 0
    at.wait(10)
    assert at.engine.status()["frontier"] == 49


def test_a_stream_that_speaks_again_is_not_silent() -> None:
    """In the tick that brings its rows it holds time back as ever, and its rows are answered then, not a tick later."""
    declared = "CREATE STREAM {0} (ts BIGINT, a BIGINT) TIMESTAMP BY ts {1}"
    at = Clocked(
        f"{declared.format('s', 'IDLE AFTER 5 SECONDS')}; {declared.format('t', '')};"
        "CREATE QUERY q AS SELECT ISTREAM(a) FROM s [RANGE 9]"
    )
    at.engine.push("t", {"ts": [50], "a": [0]})
    at.wait(10)
    assert at.engine.status()["frontier"] == 49
    at.engine.push("s", {"ts": [60, 70], "a": [1, 2]})
    at.engine.push("t", {"ts": [90], "a": [0]})
    assert at.engine.status()["frontier"] == 69
    at.wait(10)
    with at.engine.runtime._ticking:  # one tick with rows of both
        at.engine.runtime.declared.streams["t"].source.push(pa.table({"ts": [99], "a": [0]}), spooled=False)  # type: ignore[attr-defined]
        at.engine.push("s", {"ts": [80], "a": [3]})
    assert at.engine.status()["frontier"] == 89
    alone = Clocked(f"{declared.format('s', 'IDLE AFTER 5 SECONDS')}; CREATE QUERY q AS SELECT a FROM s [NOW]")
    for ts in (10, 20):
        alone.wait(30)
        alone.engine.push("s", {"ts": [ts], "a": [0]})
        assert alone.engine.status()["frontier"] == ts - 1


def test_rows_from_the_future_are_set_aside() -> None:
    """One bad row does not stop time for all; a row that is ahead of the wall but not of its stream is in time."""
    at = Clocked(f"{STREAM} AHEAD 1 HOUR; CREATE QUERY q AS SELECT ISTREAM(a) FROM s [RANGE 10 S]", now=1000.0)
    at.push(1000, 900_000, 1001)
    assert at.engine.late("s").num_rows == 1
    assert at.engine.status()["frontier"] == 1001 * SECOND - 1
    at.push(4500)
    at.push(8000)  # an hour ahead of its own time, if not of the wall
    assert at.engine.late("s").num_rows == 1
    assert at.times() == [1000.0, 1001.0, 4500.0]


def test_a_default_for_all_streams() -> None:
    """`Engine(ahead=...)` stands in for AHEAD; ticks have no wall."""
    at = Clocked(STREAM, ahead="1 hour")
    at.push(900_000)
    assert at.engine.late("s").num_rows == 1
    with pytest.raises(UnsupportedError, match="AHEAD on a clock of ticks"):
        at.engine.execute("CREATE STREAM t (ts BIGINT) TIMESTAMP BY ts AHEAD 1 HOUR")


def test_a_replay_takes_rows_in_time_order_unless_within_is_said() -> None:
    """Without WITHIN all rows are known; with it they are judged as they came, and `run` warns."""
    rows = {"ts": [5, 3, 9, 4], "a": [1, 2, 3, 4]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = windrow.run("SELECT ISTREAM(a) FROM s [RANGE 3]", {"s": rows}, runtime="local")
    assert got["q1"]["a"].to_pylist() == [2, 4, 1, 3]
    declared = "CREATE STREAM s (ts BIGINT, a BIGINT) TIMESTAMP BY ts WITHIN 2;"
    with pytest.warns(LateRowsWarning, match="1 of its rows"):
        got = windrow.run(f"{declared} SELECT ISTREAM(a) FROM s [RANGE 3]", {"s": rows}, runtime="local")
    assert got["q1"]["a"].to_pylist() == [2, 1, 3]
    with warnings.catch_warnings():  # what comes after the end judges nobody
        warnings.simplefilter("error")
        got = windrow.run(f"{declared} SELECT ISTREAM(a) FROM s [RANGE 3]", {"s": rows}, runtime="local", until=5)
    assert got["q1"]["a"].to_pylist() == [2, 4, 1]


@pytest.mark.parametrize("first", range(0, 60, 12))
def test_live_answers_equal_replayed_ones(first: int) -> None:
    """Random cases pushed in random pieces, late rows too: an engine answers what a replay of the rows in time does."""
    for seed in range(first, first + 12):
        compare(seed, seeded_case(seed))


@pytest.mark.spark
@pytest.mark.parametrize("seed", [5, 17, 29, 41])
def test_live_answers_on_spark_equal_replayed_ones(seed: int, spark: object) -> None:
    """The same on Spark, where ticks take whatever has been pushed by then."""
    compare(seed, seeded_case(seed, max_rows=12), runtime="spark", spark=spark)


def test_rows_that_come_one_by_one_are_late_as_in_a_replay() -> None:
    """Where one stream has one row in each tick, `run` and an engine judge alike: the same late rows and answers."""
    late = 0
    cases = {seed: seeded_case(seed, "ticks", max_rows=20) for seed in range(3000, 3040)}
    alone = {seed: case for seed, case in cases.items() if len(case.streams) == 1}
    for seed, (script, streams, tables, _) in alone.items():
        *declared, query = script.split("\n")
        ((name, rows),) = streams.items()
        declared = [d for d in declared if d.startswith(("CREATE TABLE", f"CREATE STREAM {name} "))]
        declared = [re.sub(r"BY ts( WITHIN \d+)?", f"BY ts WITHIN {seed % 4}", d) for d in declared]
        rows = rows.take(pa.array(random.Random(seed).sample(range(rows.num_rows), rows.num_rows), pa.int64()))
        case = ("\n".join([*declared, query]), {name: rows}, tables)
        got, missed, _ = pushed(random.Random(seed), *case, None, most=1)
        want = windrow.run(*case, "local")
        assert repr(missed[name].to_pylist()) == repr(want.late[name].to_pylist()), case[0]
        assert_same(got["q1"], want["q1"])
        late += missed[name].num_rows
    assert len(alone) > 15 and late > 60


def compare(seed: int, case: Case, **options: object) -> None:
    """What an engine answers to rows pushed in pieces, and a replay of those that were not late."""
    script, streams, tables, until = case
    got, late, end = pushed(random.Random(seed), script, streams, tables, until, **options)
    kept = {name: without(rows, late[name]) for name, rows in streams.items()}
    want = windrow.run(re.sub(r" WITHIN \d+( SECONDS)?", "", script), kept, tables, "local", until=end)
    for name, table in want.items():
        try:
            assert_same(got[name], table)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {name}: {script}\n{error}") from error


def without(rows: pa.Table, some: pa.Table) -> pa.Table:
    """A stream's rows without some of them."""
    left = Counter(map(repr, some.to_pylist()))
    keep = []
    for row in map(repr, rows.to_pylist()):
        keep.append(left[row] == 0)
        left[row] -= left[row] > 0
    assert not left.total()
    return rows.filter(pa.array(keep, pa.bool_()))


def pushed(
    choose: random.Random, script: str, streams: dict, tables: dict, until: int | None, most: int = 7, **options: object
) -> tuple[dict, dict, int]:
    """The answers of a live engine to rows pushed in pieces, its late rows, and how far time came."""
    sharing = choose.choice(["auto", "off", "shards"])
    engine = windrow.Engine(**{"runtime": "local", "sharing": sharing, **options})  # type: ignore[arg-type]
    declared, _, queries = script.rpartition("\n")
    engine.execute(declared)
    for name, table in tables.items():
        if engine.catalog.tables[name.lower()].changes is not None:
            engine.push(name, table)
        else:
            engine.table(name, table)
    engine.execute(queries)
    engine.start()
    given = {n: t for n, t in streams.items() if n.lower() in engine.catalog.streams}
    at = dict.fromkeys(given, 0)
    while any(at[n] < given[n].num_rows for n in given):
        name = choose.choice([n for n in given if at[n] < given[n].num_rows])
        size = choose.randint(1, most)
        engine.push(name, given[name].slice(at[name], size))
        at[name] += size
    engine.drain()
    last = max((m for m in engine.runtime.ticker.manifest.marks.values()), default=BEGINNING)
    end = max(until if until is not None else last, engine.runtime.ticker.frontier)
    if end != BEGINNING:
        engine.advance(end)
    found = {engine.catalog.queries[key].name: engine[key].results() for key in engine.catalog.queries}
    late = {name: engine.late(name) for name in given}
    engine.stop()
    return found, late, end


def test_results_of_internal_windows_are_all_there() -> None:
    """An equal row that leaves takes no new result with it."""
    rows = {"S": pa.table({"ts": [1, 4, 7], "a": [1, 1, 1]})}
    got = windrow.run("SELECT a FROM S [RANGE 3 INTERNAL]", rows, runtime="local")["q1"]
    assert got["_ts"].to_pylist() == [1, 4, 7]
    assert_same(got, oracle("SELECT a FROM S [RANGE 3 INTERNAL]", rows)["q1"])


def test_who_holds_time_back() -> None:
    """Status names the streams whose rows time waits for: those without any, then the one that is least far."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute("""
            CREATE STREAM a (ts BIGINT) TIMESTAMP BY ts;
            CREATE STREAM b (ts BIGINT) TIMESTAMP BY ts WITHIN 5;
            CREATE STREAM c (ts BIGINT) TIMESTAMP BY ts;
            CREATE QUERY n AS SELECT COUNT(*) AS n FROM a [RANGE 10];
        """)
        engine.start()

        def after(**rows: int) -> object:
            for stream, ts in rows.items():
                engine.push(stream, {"ts": [ts]})
            engine.drain()
            return engine.status()["held_back_by"]

        assert engine.status()["held_back_by"] == []
        assert after(a=10) == ["b", "c"]
        assert after(b=12) == ["c"]
        assert after(c=20) == ["b"]
        assert after(b=15) == ["a", "b"]
        assert after(a=20, b=25, c=20) == []


@pytest.mark.parametrize(
    ("query", "want"),
    [
        ("SELECT COUNT(*) AS n FROM s [RANGE 3]", [(10, 1, 1)]),
        ("SELECT COUNT(*) AS n FROM s [RANGE 4 SLIDE 2]", [(10, 1)]),
        ("SELECT COUNT(WSTREAM(k)[RANGE 6]) AS n FROM s [RANGE 1]", [(10, 1, 1)]),
        ("SELECT COUNT(*) AS n FROM s [RANGE 3], r [RANGE 3] WHERE s.k = r.k", [(10, 1, 0)]),
    ],
)
def test_a_query_waits_for_its_first_row_over_a_restart(tmp_path: Path, query: str, want: list[Any]) -> None:
    """Time that others have reached, or that was told, does not start its clock, nor that of one that comes then."""
    with windrow.Engine(runtime="local", home=tmp_path) as engine:
        for stream in "srt":
            engine.execute(f"CREATE STREAM {stream} (k BIGINT, ts BIGINT) TIMESTAMP BY ts")
        engine.execute(f"CREATE QUERY before AS {query}")
        engine.start()
        engine.push("t", {"k": [1], "ts": [20]})
        engine.advance(3)
        engine.execute(f"CREATE QUERY later AS {query}")
    with windrow.Engine(runtime="local", home=tmp_path, partitions=2) as engine:
        engine.start()
        engine.push("s", {"k": [1], "ts": [10]})
        engine.advance(11)
        for name in ("before", "later"):
            assert [tuple(row.values()) for row in engine[name].results().to_pylist()] == want
