"""Other engines give windrow's answers to the same queries over the same files.

Structured Streaming needs Java; Flink needs its own interpreter (WINDROW_FLINK_PYTHON, or the cached environment),
Esper its jars, and both are skipped without: a test installs nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.errors import BindingError, RuntimeFailure, UnsupportedError
from windrow_bench.peers import (
    SECOND,
    Esper,
    Flink,
    Lookup,
    Peer,
    PeerQuery,
    PeerResult,
    Selection,
    SlidingAggregate,
    StructuredStreaming,
    Window,
    WindowJoin,
    compare,
    environment,
    esper,
    write_streams,
)
from windrow_bench.peers.dialect import translate

START = 1_700_000_000 * SECOND
SYMBOLS = ("A", "B", "C", "D", "E")


def trades(rows: int = 2000, seed: int = 1, seconds: int = 300) -> pa.Table:
    """Trades with microseconds, some of them on the edges of windows, some at equal times, a few nulls."""
    rng = np.random.default_rng(seed)
    ts = rng.integers(START, START + seconds * SECOND, rows)
    ts[::7] -= ts[::7] % (5 * SECOND)
    ts = np.sort(np.maximum(ts, START))
    volume = rng.integers(1, 50, rows) * 100
    return pa.table(
        {
            "ts": pa.array(ts, pa.timestamp("us")),
            "symbol": pa.array(np.array(SYMBOLS)[rng.integers(0, len(SYMBOLS), rows)], pa.string()),
            "price": np.round(rng.uniform(10, 20, rows), 2),
            "volume": pa.array(volume, mask=rng.random(rows) < 0.02),
            "id": np.arange(rows),
        }
    )


TABLES = {
    "close": pa.table({"symbol": list("ABCD"), "price": [12.0, 14.0, 16.0, 18.0]}),
    "index": pa.table({"symbol": list("AABCE"), "name": ["R1", "R3", "R3", "R1", "R3"]}),
}

EVERY = {
    "total": "SUM(price * volume)",
    "shares": "SUM(volume)",
    "n": "COUNT(*)",
    "known": "COUNT(volume)",
    "mean": "AVG(volume)",
    "low": "MIN(price)",
    "high": "MAX(price)",
}


def aggregates() -> list[SlidingAggregate]:
    """All aggregates; ranges of whole slides, of others, shorter than one; tables with one row per key and more."""
    close, index = Lookup("close", {"symbol": "symbol"}), Lookup("index", {"symbol": "symbol"})
    rise = "100 * (trades.price - close.price) / close.price > 2"
    return [
        SlidingAggregate("multiple", "trades", 60 * SECOND, 5 * SECOND, EVERY, keys=["symbol"]),
        SlidingAggregate("odd", "trades", 70 * SECOND, 30 * SECOND, EVERY, where="volume > 2500", keys=["symbol"]),
        SlidingAggregate("gaps", "trades", 5 * SECOND, 20 * SECOND, EVERY, keys=["symbol"]),
        SlidingAggregate("all", "trades", 35 * SECOND, 10 * SECOND, EVERY),
        SlidingAggregate("rare", "trades", SECOND, SECOND, EVERY, where="symbol = 'A' AND price BETWEEN 11 AND 11.5"),
        SlidingAggregate("rise", "trades", 60 * SECOND, 30 * SECOND, {"n": "COUNT(*)"}, where=rise, tables=[close]),
        SlidingAggregate(
            "members", "trades", 45 * SECOND, 30 * SECOND, {"total": "SUM(trades.price * volume)"}, keys=["index.name"],
            where=f"index.name IN ('R1', 'R3') AND {rise}", tables=[close, index],
        ),
    ]  # fmt: skip


def joins() -> list[WindowJoin]:
    """Two and four windows of different lengths, and a stream with itself."""
    four = [Window(n, r * SECOND) for n, r in zip("abcd", (4, 6, 5, 3), strict=True)]
    ids = {f"{n}_id": f"{n}.id" for n in "abcd"}
    return [
        WindowJoin("two", [Window("a", 10 * SECOND), Window("b", 20 * SECOND)], "symbol", {"i": "a.id", "j": "b.id"}),
        WindowJoin("four", four, "symbol", ids, where="a.volume > 1000"),
        WindowJoin(
            "itself", [Window("a", 7 * SECOND, "x"), Window("a", 2 * SECOND, "y")], "symbol",
            {"left": "x.id", "right": "y.id", "gain": "y.price - x.price"}, where="x.price < y.price",
        ),
    ]  # fmt: skip


def ours(
    queries: Sequence[PeerQuery], streams: dict[str, pa.Table], tables: dict[str, pa.Table] | None = None
) -> dict[str, pa.Table]:
    """windrow's answers."""
    script = "; ".join(f"CREATE QUERY {q.name} AS {q.cql()}" for q in queries)
    return windrow.run(script, streams=streams, tables=tables or {}, runtime="local")


@pytest.fixture(scope="module")
def structured(spark: object) -> Peer:
    """Structured Streaming on the tests' session."""
    return StructuredStreaming(spark)


@pytest.fixture(scope="module")
def flink() -> Peer:
    """Flink, where it is installed."""
    made = environment.cache() / f"flink-{environment.VERSION}" / environment.MARK
    if not (os.environ.get(environment.OVERRIDE) or made.exists()) or not shutil.which("java"):
        pytest.skip(f"no Flink here: set {environment.OVERRIDE}, or run an experiment with --peers once")
    return Flink()


@pytest.fixture(scope="module")
def esper_peer() -> Peer:
    """Esper, where its jars are."""
    if not environment.jars(f"esper-{esper.VERSION}", esper.ARTIFACTS, fetch=False) or not shutil.which("java"):
        pytest.skip("no Esper here: run an experiment with --peers esper once")
    return Esper(heap="1g")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("structured", marks=pytest.mark.spark),
        pytest.param("flink", marks=pytest.mark.slow),
        "esper_peer",
    ],
)
def peer(request: pytest.FixtureRequest) -> Peer:
    """Each peer in turn."""
    return request.getfixturevalue(request.param)


TRADES = {"trades": trades()}
SIDES = {name: trades(400, seed, 120) for seed, name in enumerate("abcd")}


@pytest.fixture(scope="module")
def together(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> PeerResult:
    """What a peer says to the queries over trades, in one job: most of a small job is the start of its engine."""
    files = tmp_path_factory.mktemp("streams")
    write_streams(files, TRADES, files=3)
    write_streams(files, SIDES, files=2)
    return peer.run([*aggregates(), *joins()], files, TABLES)


def answers(result: PeerResult, queries: Sequence[PeerQuery]) -> dict[str, pa.Table]:
    """Those of some of the queries."""
    return {q.name: result.answers[q.name] for q in queries}


def test_sliding_aggregates_agree(together: PeerResult) -> None:
    """Every sliding aggregate, filter, grouping and table join has one answer."""
    theirs = answers(together, aggregates())
    assert compare(ours(aggregates(), TRADES, TABLES), theirs) == {}
    assert together.seconds > 0
    assert all(len(a) for a in theirs.values())


def test_window_joins_agree(together: PeerResult) -> None:
    """Joins of two and of four windows have one answer."""
    theirs = answers(together, joins())
    assert compare(ours(joins(), SIDES), theirs) == {}
    assert all(len(a) for a in theirs.values())


def test_tick_streams_agree(peer: Peer, tmp_path: Path) -> None:
    """Streams whose time is a plain number, from zero, have one answer too."""
    rng = np.random.default_rng(3)
    streams = {
        n: pa.table({"ts": np.arange(300), "k": rng.integers(0, 9, 300), "id": np.arange(300)}) for n in ("l", "r")
    }
    write_streams(tmp_path, streams, form="csv")
    queries: list[PeerQuery] = [
        SlidingAggregate("counted", "l", 20, 7, {"n": "COUNT(*)"}, keys=["k"], ticks=True),
        SlidingAggregate("tumbling", "l", 10, 10, {"s": "SUM(k)"}, ticks=True),
        WindowJoin("both", [Window("l", 5), Window("r", 9)], "k", {"a": "l.id", "b": "r.id"}, ticks=True),
    ]
    tables = {"rules": pa.table({"s": [2, 5, 5], "lim": [7, 250, 290]})}
    if not isinstance(peer, Esper):  # which is given none
        listed = {"id": "id", "lim": "lim"}
        queries += [
            Selection("some", "l", {"id": "id", "twice": "2 * k"}, "k > 3", ticks=True),
            Selection("every", "l", listed, "id > lim", [Lookup("rules", {})], ticks=True),
            Selection("equal", "l", listed, "id > lim", [Lookup("rules", {"k": "s"})], ticks=True),
        ]
    theirs = peer.run(queries, tmp_path, tables).answers
    assert compare(ours(queries, streams, tables), theirs) == {}
    assert all(len(a) for a in theirs.values())


@pytest.mark.spark
def test_small_batches_change_nothing(spark: object, tmp_path: Path) -> None:
    """One file at a time, Structured Streaming gives the same answers."""
    streams = {"a": trades(300, 1, 120), "b": trades(300, 2, 120)}
    write_streams(tmp_path, streams, files=3)
    queries: list[PeerQuery] = [
        SlidingAggregate("sums", "a", 30 * SECOND, 10 * SECOND, EVERY, keys=["symbol"]),
        joins()[0],
    ]
    result = StructuredStreaming(spark, files_per_trigger=1).run(queries, tmp_path)
    assert compare(ours(queries, streams), result.answers) == {}


def test_difference_is_readable() -> None:
    """A comparison names the first instant, both rows and the sizes."""
    one = pa.table({"_ts": [10, 20], "n": [1, 2]})
    other = pa.table({"_ts": [10, 20], "n": [1, 3]})
    said = compare({"q": one, "mine": one}, {"q": other})
    assert "answers differ first at _ts = 20 (ours 2 rows, theirs 2)" in said["q"]
    assert "(2,)" in said["q"] and "(3,)" in said["q"]
    assert said["mine"] == "no answer of theirs"


def test_nearly_equal_floats_in_another_order_are_equal() -> None:
    """Rows that differ in last bits alone may be sorted differently."""
    one = pa.table({"_ts": [1, 1, 2], "x": [0.3, 0.1 + 0.2, 5.0], "y": [1.0, 2.0, 0.0]})
    other = pa.table({"_ts": [1, 1, 2], "x": [0.3, 0.1 + 0.2, 5.0], "y": [2.0, 1.0, 0.0]})
    assert compare({"q": one}, {"q": other}) == {}
    assert compare({"q": one}, {"q": other.slice(0, 2)}) != {}


def test_unknown_and_ambiguous_columns_are_refused() -> None:
    """A name must be in exactly one relation."""
    columns = {"trades": ["price"], "close": ["price"]}
    assert translate("close.price > 1", columns, "flink") == "`close__price` > 1"
    for sql in ("price > 1", "volume > 1"):
        with pytest.raises(BindingError, match="column"):
            translate(sql, columns, "spark")


def test_flink_refuses_what_it_cannot_express(tmp_path: Path) -> None:
    """A window that is not of whole milliseconds is an error, not a wrong answer."""
    from windrow_bench.peers.feed import Feed
    from windrow_bench.peers.flink import Job

    write_streams(tmp_path / "in", {"trades": trades(10)})
    query = SlidingAggregate("q", "trades", 1500, 500, {"n": "COUNT(*)"})
    with pytest.raises(UnsupportedError, match="500 microseconds"):
        Job([query], Feed.of(tmp_path / "in", {}, "ts"), tmp_path / "out", 2)


def test_failed_install_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When Flink cannot be installed the error says so and what else can be done, and nothing counts as made."""
    monkeypatch.delenv(environment.OVERRIDE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(RuntimeFailure, match="could not be installed") as caught:
        environment.interpreter()
    assert environment.OVERRIDE in str(caught.value)
    made: list[Path] = []
    monkeypatch.setattr(environment, "_make", made.append)
    environment.interpreter()
    assert made and (made[0] / "bin" / "python").exists()  # the environment is there, and is made again
