"""An engine stops and starts again, fails and goes on; declared sinks are there in every life."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windrow
from windrow.errors import (
    BindingError,
    CQLSyntaxError,
    DrainTimeout,
    SourceError,
    StateError,
    UnsupportedError,
    WindrowError,
)
from windrow.testing import assert_same

STREAM = "CREATE STREAM s (ts BIGINT, k BIGINT) TIMESTAMP BY ts RETAIN 20;"
QUERY = "CREATE QUERY totals AS SELECT k, COUNT(*) AS n FROM s [RANGE 5] GROUP BY k;"
RUNTIMES = ["local", pytest.param("spark", marks=pytest.mark.spark)]


def rows(ts: int) -> dict[str, list[int]]:
    """A few rows of an instant."""
    return {"ts": [ts, ts], "k": [ts % 3, 7]}


def replayed(engine: windrow.Engine, last: int) -> pa.Table:
    """The answer of a replay up to where the engine is."""
    streams = {"s": pa.concat_tables([pa.table(rows(ts)) for ts in range(1, last + 1)])}
    return windrow.run(STREAM + QUERY, streams, runtime="local", until=engine.status()["frontier"])["totals"]


def test_what_is_pushed_before_a_start_is_not_lost(tmp_path: Path) -> None:
    """In any life: the tables of the next one are counted from where the last one was."""
    for life in range(1, 4):
        with windrow.Engine(runtime="local", home=tmp_path) as engine:
            engine.execute(STREAM.replace("STREAM s", "STREAM IF NOT EXISTS s"))
            engine.push("s", rows(life))
            engine.start()
            engine.advance(life)
            assert engine.ask("SELECT COUNT(*) AS n FROM s [RANGE 20]")["n"].to_pylist() == [2 * life]


@pytest.mark.parametrize("home", [True, False])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_one_engine_stops_and_starts(runtime: str, home: bool, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """It goes on as if nothing had been; sinks and subscribers stay."""
    spark = {"spark": request.getfixturevalue("spark")} if runtime == "spark" else {}
    if runtime == "spark" and not home:
        with windrow.Engine(runtime=runtime, **spark) as engine:
            engine.start()
            engine.stop()
            with pytest.raises(StateError, match="is gone"):
                engine.start()
        return
    heard: list[pa.Table] = []
    data = tmp_path / "in"
    data.mkdir()
    with windrow.Engine(runtime=runtime, home=tmp_path / "home" if home else None, **spark) as engine:
        engine.execute(STREAM + QUERY + f"CREATE STREAM f (ts BIGINT) TIMESTAMP BY ts FROM parquet (path => '{data}')")
        engine.sink("totals", "parquet", path=str(tmp_path / "out"))
        engine["totals"].subscribe(heard.append)
        for life in range(3):
            engine.start()
            engine.start()
            for ts in range(1 + 3 * life, 4 + 3 * life):
                engine.push("s", rows(ts))
                pq.write_table(pa.table({"ts": [ts]}), tmp_path / "made")
                (tmp_path / "made").rename(data / f"{ts}.parquet")
                engine.drain()
            engine.stop()
            assert not engine.status()["running"]
        assert_same(engine["totals"].results(), replayed(engine, 9))
        assert_same(pa.concat_tables(heard), replayed(engine, 9))
        assert_same(pq.read_table(tmp_path / "out" / "totals").sort_by("_ts"), replayed(engine, 9))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_drain_whose_time_is_up_says_who_was_not_done(
    runtime: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Streams that have more, and receivers that are at it; nothing is lost, and a longer drain waits for both."""
    spark = {"spark": request.getfixturevalue("spark")} if runtime == "spark" else {}
    go_on, heard = threading.Event(), list[pa.Table]()

    def slow(answer: pa.Table) -> None:
        go_on.wait()
        heard.append(answer)

    with windrow.Engine(runtime=runtime, home=tmp_path / "home", **spark) as engine:
        engine.execute(STREAM + QUERY)
        engine["totals"].subscribe(slow)
        engine.start()
        engine.push("s", rows(1))
        engine.push("s", rows(2))
        with engine.runtime.between_ticks(), mock.patch.object(
            engine.runtime.declared.streams["s"].source, "drained", return_value=False
        ):  # fmt: skip
            with pytest.raises(DrainTimeout, match='not drained in 0 seconds: stream "s"') as raised:
                engine.drain(0)
            assert isinstance(raised.value, TimeoutError) and "nothing is lost" in str(raised.value)
        while not any(d.status()["waiting_ticks"] for d in engine.runtime.deliveries()):
            engine.runtime.turn()
        with pytest.raises(DrainTimeout, match="totals"):
            engine.drain(0.5)
        go_on.set()
        engine.drain()
        assert_same(pa.concat_tables(heard), replayed(engine, 2))


def test_a_drain_waits_for_the_end_of_a_tick(tmp_path: Path) -> None:
    """While one computes it does not look at sources again and again."""
    waiting = threading.Event()
    with windrow.Engine(runtime="local") as engine:
        engine.execute(f"CREATE STREAM f (ts BIGINT) TIMESTAMP BY ts FROM parquet (path => '{tmp_path}')")
        engine.execute("CREATE QUERY q AS SELECT ts FROM f")
        runtime = engine.runtime
        quiet, run = runtime._quiet.wait, runtime.job.run

        def held(*given: Any) -> Any:
            assert waiting.wait(60)
            return run(*given)

        def told(seconds: float) -> bool:
            if not runtime._quiet.is_set():
                waiting.set()
            return quiet(seconds)

        engine.start()
        with mock.patch.object(runtime.job, "run", held), mock.patch.object(runtime._quiet, "wait", told):
            pq.write_table(pa.table({"ts": [1, 2]}), tmp_path / ".made")
            (tmp_path / ".made").rename(tmp_path / "1.parquet")
            engine.drain()
        assert engine["q"].results()["ts"].to_pylist() == [1]


def test_a_home_that_another_engine_has_used_is_not_taken_up_again(tmp_path: Path) -> None:
    """The one that stopped says so."""
    first = windrow.Engine(runtime="local", home=tmp_path / "home")
    first.execute(STREAM + QUERY)
    first.start()
    first.stop()
    with windrow.Engine(runtime="local", home=tmp_path / "home") as second:
        second.start()
        with pytest.raises(StateError, match="in use"):
            first.start()
        second.push("s", rows(1))
    with pytest.raises(StateError, match="another engine has used home"):
        first.start()


def test_an_engine_that_failed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its state lasts; what was pushed is answered then, once."""
    with windrow.Engine(runtime="local", home=tmp_path / "home") as engine:
        engine.execute(STREAM + QUERY)
        engine.start()
        engine.push("s", rows(1))
        with monkeypatch.context() as patch:
            patch.setattr(engine.runtime.store, "commit", _full)
            with pytest.raises(StateError, match="disk is full"):
                engine.push("s", rows(2))
            assert "disk is full" in engine.status()["error"]
            assert engine["totals"].snapshot().num_rows >= 0
        engine.start()
        assert engine.status()["error"] is None
        engine.push("s", rows(3))
        assert_same(engine["totals"].results(), replayed(engine, 3))


def _full(_: Any) -> None:
    raise StateError("the disk is full")


def test_declared_sinks_are_there_after_a_restart(tmp_path: Path) -> None:
    """With what waits for them; dropped, they are gone."""
    out = tmp_path / "out"
    for life in range(3):
        with windrow.Engine(runtime="local", home=tmp_path / "home") as engine:
            if life == 0:
                engine.execute(STREAM + QUERY + f"CREATE SINK files FOR totals TO parquet (path => '{out}')")
            assert list(engine.status()["sinks"]["totals"]) == ["files"]
            engine.start()
            for ts in range(1 + 3 * life, 4 + 3 * life):
                engine.push("s", rows(ts))
            engine.drain()
            assert_same(pq.read_table(out / "totals").sort_by("_ts"), replayed(engine, 3 + 3 * life))
            if life == 2:
                engine.execute("DROP SINK files; DROP QUERY totals")
    with windrow.Engine(runtime="local", home=tmp_path / "home") as engine:
        assert engine.status()["sinks"] == {} and "files" not in engine.catalog.sinks


def test_a_declared_sink_has_the_history_of_its_query(tmp_path: Path) -> None:
    """Declared with its query, it gets the first answer too."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute(STREAM)
        engine.start()
        for ts in range(1, 8):
            engine.push("s", rows(ts))
        engine.execute(f"{QUERY} CREATE SINK files FOR totals TO parquet (path => '{tmp_path}')")
        engine.drain()
        assert_same(pq.read_table(tmp_path / "totals").sort_by("_ts"), engine["totals"].results())
        assert engine["totals"].results().num_rows


@pytest.mark.postgres
def test_a_declared_table_equals_the_relation_though_the_server_was_away(postgres: Any, tmp_path: Path) -> None:
    """A start does not wait for it, and it is filled when it is back."""
    sink = f"CREATE SINK now FOR totals TO postgres (dsn => '{postgres.dsn}', mode => 'upsert', outbox => '1 MB')"
    with windrow.Engine(runtime="local", home=tmp_path / "home") as engine:
        engine.execute(STREAM + QUERY + sink)
        engine.start()
        engine.push("s", rows(1))
        engine.push("s", rows(2))
    postgres.stop()
    with windrow.Engine(runtime="local", home=tmp_path / "home") as engine:
        engine.start()
        engine.push("s", rows(3))
        engine.drain()
        assert "PostgreSQL is away" in engine.status()["sinks"]["totals"]["now"]["error"]
        postgres.start()
        engine.drain()
        with psycopg.connect(postgres.dsn) as connection:
            found = connection.execute("SELECT k, n FROM totals").fetchall()
        assert sorted(found) == sorted(tuple(r.values()) for r in engine["totals"].snapshot().to_pylist())


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("CREATE SINK x FOR nobody TO parquet (path => 'p')", BindingError, 'query "nobody"'),
        ("CREATE SINK totals FOR totals TO parquet (path => 'p')", BindingError, "already exists"),
        ("CREATE SINK x FOR totals TO parquet", SourceError, "needs the option path"),
        ("CREATE SINK x FOR totals TO parquet (path => 'p', colour => 'red')", SourceError, 'no option "colour"'),
        ("CREATE SINK x FOR totals TO parquet (path => 'p', outbox => 'much')", SourceError, "outbox"),
        ("CREATE SINK x FOR totals TO pigeons", SourceError, 'no sink "pigeons"'),
        ("CREATE SINK x TO parquet", CQLSyntaxError, "FOR"),
        ("CREATE SINK a FOR totals TO parquet (path => 'p'); DROP QUERY totals", BindingError, "has the sink a"),
        ("DROP SINK nothing", BindingError, "nothing"),
    ],
)
def test_sinks_that_are_refused(text: str, error: type[Exception], message: str) -> None:
    """Before anything is changed."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute(STREAM + QUERY)
        with pytest.raises(error, match=message):
            engine.execute(text)
        assert not engine.catalog.sinks and not engine.status()["sinks"]


def test_a_replay_has_no_sinks() -> None:
    """It returns its answers."""
    with pytest.raises(UnsupportedError, match="CREATE SINK in a replay"):
        windrow.run(f"{STREAM}{QUERY} CREATE SINK x FOR totals TO parquet (path => 'p')", {"s": pa.table(rows(1))})


def test_sources_that_clean_up_need_leave(tmp_path: Path) -> None:
    """Files that were taken are deleted where the owner allows it, and only there."""
    data = tmp_path / "in"
    data.mkdir()
    declared = f"CREATE STREAM f (ts BIGINT) TIMESTAMP BY ts FROM parquet (path => '{data}', cleanSource => 'delete')"
    with (
        windrow.Engine(runtime="local") as engine,
        pytest.raises(SourceError, match="the owner of this engine has not allowed"),
    ):
        engine.execute(declared)
    with pytest.raises(WindrowError, match='allow has "everything"'):
        windrow.Engine(runtime="local", allow=["everything"])
    with windrow.Engine(runtime="local", allow=["cleanSource"]) as engine:
        engine.execute(declared)
        pq.write_table(pa.table({"ts": [1]}), data / "a.parquet")
        engine.start()
        engine.drain()
        assert engine.status()["streams"]["f"]["rows"] == 1
        assert not (data / "a.parquet").exists()
