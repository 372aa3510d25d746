"""A home opened with another number of partitions, or spread by its first large tick: everything in it goes on, and no
answer changes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import windrow
from windrow.errors import StateError, WindrowError
from windrow.runtime import moved_state
from windrow.runtime.job import Feed, LocalJob
from windrow.runtime.program import Program
from windrow.runtime.runtime import Runtime
from windrow.runtime.tick import Ticker
from windrow.store.store import Store
from windrow.testing import assert_same, oracle

STREAMS = """
CREATE STREAM s (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts WITHIN 2 RETAIN 30;
CREATE STREAM t (k BIGINT, w BIGINT, ts BIGINT) TIMESTAMP BY ts WITHIN 2;
"""
SHARED = """
CREATE QUERY g1 AS SELECT RSTREAM(k, COUNT(*) AS n, SUM(v) AS x) FROM s [RANGE 12 SLIDE 4] GROUP BY k;
CREATE QUERY g2 AS SELECT k, COUNT(*) AS n FROM s [RANGE 8 SLIDE 4] WHERE v > 2 GROUP BY k;
CREATE QUERY g3 AS SELECT k, COUNT(DISTINCT v) AS d, MEDIAN(v) AS m FROM s [RANGE 12 SLIDE 4] GROUP BY k;
CREATE QUERY g4 AS SELECT ISTREAM(k, v, MAX(v) AS m) FROM s [RANGE 12 SLIDE 4] GROUP BY k, v;
CREATE QUERY g5 AS SELECT DISTINCT COUNT(*) AS n FROM s [RANGE 12 SLIDE 4] GROUP BY k;
CREATE QUERY g6 AS SELECT RSTREAM(k, FREQUENT(v, 2) AS f) FROM s [RANGE 12 SLIDE 4] GROUP BY k;
CREATE QUERY u1 AS SELECT COUNT(*) AS n, AVG(v) AS a FROM s [RANGE 12 SLIDE 4];
CREATE QUERY u2 AS SELECT RSTREAM(MAX(v) AS m) FROM s [RANGE 8 SLIDE 4] WHERE k = 1;
CREATE QUERY j1 AS SELECT RSTREAM(s.k, COUNT(*) AS n) FROM s [RANGE 8 SLIDE 4], t [RANGE 8 SLIDE 4]
    WHERE s.k = t.k GROUP BY s.k;
CREATE QUERY j2 AS SELECT t.w, s.v, SUM(s.v) AS x FROM s [RANGE 8 SLIDE 4], t [RANGE 4 SLIDE 4]
    WHERE s.k = t.k GROUP BY t.w, s.v;
CREATE QUERY j3 AS SELECT DISTINCT COUNT(*) AS n FROM s [RANGE 8 SLIDE 4], t [RANGE 8 SLIDE 4]
    WHERE s.k = t.k GROUP BY s.k;
CREATE QUERY c1 AS SELECT k, v FROM s [RANGE 6] WHERE v > 1;
CREATE QUERY c2 AS SELECT k, v FROM s [RANGE 6] WHERE v > 3;
CREATE QUERY c4 AS SELECT k, COUNT(*) AS n, SUM(v) AS x FROM s [RANGE 6] WHERE v > 1 GROUP BY k;
CREATE QUERY c5 AS SELECT k, COUNT(*) AS n, SUM(v) AS x FROM s [RANGE 6] WHERE v > 3 AND k <> 2 GROUP BY k;
CREATE QUERY c6 AS SELECT k, COUNT(*) AS n, SUM(v) AS x FROM s [RANGE 6] WHERE v < 4 GROUP BY k;
CREATE QUERY c3 AS SELECT k, COUNT(*) AS n FROM s [ROWS 7] GROUP BY k;
"""


def rows(seed: int, step: int) -> dict[str, pa.Table]:
    """The rows of a step, a little out of order."""
    rng = random.Random(f"{seed} {step}")
    found = {}
    for name, value in (("s", "v"), ("t", "w")):
        times = [5 * step + rng.randrange(5) for _ in range(8)]
        times.sort(key=lambda ts: ts + rng.choice((0, 1)))
        found[name] = pa.table({"k": [rng.randrange(4) for _ in times], value: [rng.randrange(6) for _ in times],
                                "ts": times})  # fmt: skip
    return found


def lived(home: Path, numbers: list[int], seed: int, script: str, **engine: Any) -> tuple[dict[str, pa.Table], int]:
    """The answers over several lives, each on another number of partitions, and where time is."""
    parts: dict[str, list[pa.Table]] = {}
    for life, partitions in enumerate(numbers):
        with windrow.Engine(runtime="local", home=home, partitions=partitions, **engine) as made:
            if life == 0:
                made.execute(STREAMS + script)
            assert made.status()["partitions"] == partitions
            for name in made.catalog.queries:
                made[name].subscribe(parts.setdefault(name, []).append)
            made.start()
            for step in range(4 * life, 4 * life + 4):
                for stream, table in rows(seed, step).items():
                    made.push(stream, table)
            made.drain()
            frontier = made.status()["frontier"]
            kept = made.ask("SELECT k, v, ts FROM s [RANGE 30]")
    brought = pa.concat_tables([rows(seed, step)["s"] for step in range(4 * len(numbers))])
    alive = [r for r in brought.to_pylist() if frontier - 30 < r["ts"] <= frontier]
    assert sorted(map(str, kept.to_pylist())) == sorted(map(str, alive))
    return {name: pa.concat_tables(found) for name, found in parts.items()}, frontier


def defined(seed: int, lives: int, frontier: int, script: str) -> dict[str, pa.Table]:
    """The answers by the definition."""
    steps = [rows(seed, step) for step in range(4 * lives)]
    streams = {name: pa.concat_tables([s[name] for s in steps]) for name in ("s", "t")}
    return oracle(STREAMS + script, streams, {}, until=frontier)


@pytest.mark.parametrize(
    ("sharing", "numbers"),
    [("shards", (1, 3, 2)), ("shards", (3, 1, 4)), ("slices", (2, 5, 1)), ("shards", (1, 2, 1)), ("off", (1, 3, 1))],
)
def test_queries_that_share_go_on(sharing: str, numbers: tuple[int, ...], tmp_path: Path) -> None:
    """Families, summaries, shared joins and plans, and what stands above them."""
    seed = sum(numbers)
    got, frontier = lived(tmp_path, list(numbers), seed, SHARED, sharing=sharing)
    for name, want in defined(seed, len(numbers), frontier, SHARED).items():
        try:
            assert_same(got[name], want)
        except AssertionError as error:
            raise AssertionError(f"{name}, {sharing}, {numbers}: {error}") from error


def test_a_crash_in_the_middle_leaves_the_old_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has happened before the manifest; who does not say a number goes on with the one that is there."""
    home = tmp_path / "home"
    lived(home, [2], 1, SHARED, sharing="shards")
    with Store.open(home, read_only=True) as store:
        before = store.latest()
    with monkeypatch.context() as patch:
        patch.setattr(Store, "commit", lambda *_: (_ for _ in ()).throw(StateError("the disk is full")))
        with pytest.raises(StateError, match="disk is full"):
            windrow.Engine(runtime="local", home=home, partitions=3, sharing="shards")
    with windrow.Engine(runtime="local", home=home, sharing="shards") as engine:
        assert engine.status()["partitions"] == 2
        assert engine.runtime.ticker.manifest == before
        engine.runtime.store.sweep(orphans=True)
        names = set(engine.runtime.store.place.names("runs", recursive=True))
        assert names <= {path for m in engine.runtime.store._manifests.values() for path in m.paths()}
    with windrow.Engine(runtime="local", home=home, partitions=3, sharing="shards") as engine:
        assert engine.status()["partitions"] == 3


def test_answers_that_last_archives_and_templates_go_on(tmp_path: Path) -> None:
    """KEEP, CREATE ARCHIVE, queries from a template and a table that changes, over three numbers."""
    script = """
        CREATE QUERY kept AS SELECT k, COUNT(*) AS n FROM s [RANGE 9] GROUP BY k KEEP 1000;
        CREATE ARCHIVE past AS SELECT k, v, ts FROM s [RANGE 1000] KEY k EVERY 5;
        CREATE TEMPLATE more (lim BIGINT) AS SELECT k, v FROM s [RANGE 9] WHERE v > $lim;
        CREATE QUERIES some FROM TEMPLATE more VALUES (1), (3);
    """
    found = []
    for numbers in ([2, 2, 2], [1, 3, 2]):
        home = tmp_path / str(numbers)
        lived(home, numbers, 5, script)
        with windrow.Engine(runtime="local", home=home) as engine:
            engine.start()
            found.append((engine.ask("SELECT * FROM kept"), engine.archive("past").scan(), engine["some"].snapshot()))
    for one, other in zip(*found, strict=True):
        assert one.num_rows
        assert sorted(map(str, one.to_pylist())) == sorted(map(str, other.to_pylist()))


@pytest.mark.spark
def test_a_home_grows_on_spark(spark: Any, tmp_path: Path) -> None:
    """One partition in this process, three on Spark, two in this process again."""
    home, parts = tmp_path / "home", dict[str, list[pa.Table]]()
    for life, (runtime, partitions) in enumerate([("local", 1), ("spark", 3), ("local", 2)]):
        given = {"spark": spark} if runtime == "spark" else {}
        with windrow.Engine(runtime=runtime, home=home, partitions=partitions, sharing="shards", **given) as engine:
            if life == 0:
                engine.execute(STREAMS + SHARED)
            for name in engine.catalog.queries:
                engine[name].subscribe(parts.setdefault(name, []).append)
            engine.start()
            for step in range(2 * life, 2 * life + 2):
                for stream, table in rows(7, step).items():
                    engine.push(stream, table)
            engine.drain()
            frontier = engine.status()["frontier"]
    streams = {n: pa.concat_tables([rows(7, step)[n] for step in range(6)]) for n in ("s", "t")}
    for name, want in oracle(STREAMS + SHARED, streams, {}, until=frontier).items():
        assert_same(pa.concat_tables(parts[name]), want)


def test_what_cannot_be_moved_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has happened, and the home opens with its own number."""
    lived(tmp_path, [2], 1, "CREATE QUERY g AS SELECT k, COUNT(*) AS n FROM s [RANGE 9] GROUP BY k;")
    with monkeypatch.context() as patch:
        patch.setattr(moved_state, "_has", lambda table, column: False)
        with pytest.raises(StateError, match='query "g" cannot be moved to 3 partitions') as raised:
            windrow.Engine(runtime="local", home=tmp_path, partitions=3)
        assert "it keeps its own" in str(raised.value)
    with windrow.Engine(runtime="local", home=tmp_path) as engine:
        assert engine.status()["partitions"] == 2


def test_a_number_below_one_is_refused(tmp_path: Path) -> None:
    """Before a home is made."""
    with pytest.raises(WindrowError, match="partitions is 0"):
        windrow.Engine(runtime="local", home=tmp_path / "home", partitions=0)
    assert not (tmp_path / "home").exists()


class SizedJob(LocalJob):
    """A job as one on Spark, whose ticks are small as told."""

    in_process, parallelism = False, 3

    def __init__(self) -> None:
        super().__init__()
        self.small = True
        self.ran: list[tuple[int, bool]] = []

    def in_one(self, feeds: Any, program: Program) -> bool:
        return self.small

    def run(self, feeds: list[Feed], program: Program, *rest: Any) -> Any:  # type: ignore[override]
        self.ran.append((program.partitions, program.direct))
        return super().run(feeds, program, *rest)


class SizedEngine(windrow.Engine):
    """An engine with such a job."""

    def _opened(self, runtime: str, home: Any, spark: Any, settings: Any) -> Runtime:
        self.job = SizedJob()
        return Runtime(self.job, Store.open(home), {}, settings)


def fed(engine: SizedEngine, parts: dict[str, list[pa.Table]], steps: range, small: bool) -> int:
    """Feed some steps as ticks, all small or all large; where time is then."""
    if not engine.job.ran:
        for name in engine.catalog.queries:
            engine[name].subscribe(parts.setdefault(name, []).append)
        engine.start()
    engine.job.small = small
    for step in steps:
        for stream, table in rows(7, step).items():
            engine.push(stream, table)
        engine.drain()
    return int(engine.status()["frontier"])


@pytest.mark.parametrize("sharing", ["shards", "off"])
def test_state_is_spread_before_the_first_large_tick(sharing: str, tmp_path: Path) -> None:
    """Answers are the definition's; small ticks take rows as they are, in one partition; a restart knows the rest."""
    parts: dict[str, list[pa.Table]] = {}
    with SizedEngine(home=tmp_path, sharing=sharing) as engine:
        engine.execute(STREAMS + SHARED)
        fed(engine, parts, range(3), small=True)
        assert set(engine.job.ran) == {(1, True)}
        assert engine.runtime.ticker.manifest.partitions == 1
    with SizedEngine(home=tmp_path, sharing=sharing) as engine:
        assert engine.status()["partitions"] == 3
        fed(engine, parts, range(3, 5), small=True)
        assert set(engine.job.ran) == {(1, True)}
        fed_to = fed(engine, parts, range(5, 9), small=False)
        assert set(engine.job.ran[-4:]) == {(3, False)}
        assert engine.runtime.ticker.manifest.partitions == 3
    with SizedEngine(home=tmp_path, sharing=sharing) as engine:
        fed_to = fed(engine, parts, range(9, 12), small=True)
        assert set(engine.job.ran) == {(3, False)}
    for name, want in defined(7, 3, fed_to, SHARED).items():
        assert_same(pa.concat_tables(parts[name]), want)


def test_state_is_gathered_behind_many_small_ticks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is small lies in one partition again, and is spread by the next large tick."""
    parts: dict[str, list[pa.Table]] = {}
    monkeypatch.setattr(Ticker, "quiet", 2)
    with SizedEngine(home=tmp_path) as engine:
        engine.execute(STREAMS + SHARED)
        fed(engine, parts, range(3), small=False)
        fed(engine, parts, range(3, 6), small=True)
        assert engine.job.ran[-1] == (1, True)
        assert engine.runtime.ticker.manifest.partitions == 1
        fed_to = fed(engine, parts, range(6, 8), small=False)
        assert engine.job.ran[-1] == (3, False)
    for name, want in defined(7, 2, fed_to, SHARED).items():
        assert_same(pa.concat_tables(parts[name]), want)


def test_without_state_nothing_is_written(tmp_path: Path) -> None:
    """A first tick that is large has one manifest, as over all partitions from the beginning."""
    with SizedEngine(home=tmp_path) as engine:
        engine.execute(STREAMS + SHARED)
        version = engine.runtime.ticker.manifest.version
        engine.runtime.ticker.lie_over(3)
        with Store.open(tmp_path, read_only=True) as store:
            latest = store.latest()
        assert latest is not None and (latest.version, latest.partitions) == (version, 1)
        fed(engine, {}, range(1), small=False)
        assert engine.job.ran[0] == (3, False)
        assert engine.runtime.ticker.manifest.partitions == 3


def test_state_that_cannot_be_moved_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large tick finds it in one partition, says so once, and answers the same."""
    parts, text = dict[str, list[pa.Table]](), "CREATE QUERY g AS SELECT k, COUNT(*) AS n FROM s [RANGE 9] GROUP BY k;"
    said: list[str] = []
    monkeypatch.setattr(
        "windrow.runtime.elastic_partitions.LOG.warning", lambda text, *given: said.append(text % given)
    )
    with SizedEngine(home=tmp_path) as engine:
        engine.execute(STREAMS + text)
        fed(engine, parts, range(2), small=True)
        monkeypatch.setattr(moved_state, "_has", lambda table, column: False)
        fed_to = fed(engine, parts, range(2, 6), small=False)
        assert engine.job.ran[-1] == (1, False)
    assert len(said) == 1 and 'query "g" cannot be moved to 3 partitions' in said[0]
    for name, want in defined(7, 2, fed_to, text).items():
        assert_same(pa.concat_tables(parts[name]), want)


def test_what_cannot_be_spread_goes_on_in_one_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One manifest makes it so; until it is there this engine and the next go on as before."""
    parts: dict[str, list[pa.Table]] = {}
    with SizedEngine(home=tmp_path) as engine:
        engine.execute(STREAMS + SHARED)
        fed(engine, parts, range(4), small=True)
        with monkeypatch.context() as patch:
            patch.setattr(Store, "commit", lambda *_: (_ for _ in ()).throw(StateError("the disk is full")))
            with pytest.raises(StateError, match="disk is full"):
                engine.runtime.ticker.lie_over(3)
        fed(engine, parts, range(4, 6), small=True)
        assert set(engine.job.ran) == {(1, True)}
        before = engine.runtime.ticker.manifest
    with Store.open(tmp_path, read_only=True) as store:
        assert store.latest() == before
    with SizedEngine(home=tmp_path) as engine:
        fed_to = fed(engine, parts, range(6, 8), small=False)
        assert set(engine.job.ran) == {(3, False)}
    for name, want in defined(7, 2, fed_to, SHARED).items():
        assert_same(pa.concat_tables(parts[name]), want)


def test_in_process_it_stays_where_it_lies(tmp_path: Path) -> None:
    """A home that has not been spread goes on in one partition in process, and is spread elsewhere later."""
    parts: dict[str, list[pa.Table]] = {}
    with SizedEngine(home=tmp_path) as engine:
        engine.execute(STREAMS + SHARED)
        fed(engine, parts, range(2), small=True)
    with windrow.Engine(runtime="local", home=tmp_path) as local:
        assert local.status()["partitions"] == 1
    with SizedEngine(home=tmp_path, partitions=2) as engine:
        assert engine.status()["partitions"] == 2
        fed_to = fed(engine, parts, range(2, 4), small=False)
        assert set(engine.job.ran) == {(2, False)}
    for name, want in defined(7, 1, fed_to, SHARED).items():
        assert_same(pa.concat_tables(parts[name]), want)
