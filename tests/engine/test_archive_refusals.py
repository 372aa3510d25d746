"""Archives and bad input, on both runtimes: a clear error, nothing lost, and ticks go on undisturbed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.archive.subindex import Shelf
from windrow.cli.state import main
from windrow.errors import BindingError, RuntimeFailure, StateError, UnsupportedError, WindrowError
from windrow.store.store import Store
from windrow.testing import oracle

STREAM = "CREATE STREAM s (ts BIGINT, k BIGINT, v BIGINT, t VARCHAR, l BIGINT[]) TIMESTAMP BY ts RETAIN 200;"
ARCHIVED = "SELECT k, v FROM s [RANGE 40]"
SCRIPT = f"""{STREAM}
    CREATE STREAM u (ts BIGINT, k BIGINT, v BIGINT, t VARCHAR, l BIGINT[]) TIMESTAMP BY ts;
    CREATE ARCHIVE a AS {ARCHIVED} KEY k EVERY 10 PARTITIONS 3 x 3;
    CREATE QUERY beside AS SELECT k, COUNT(*) AS n FROM s [RANGE 30] GROUP BY k;
"""


def batch(n: int, text: str = "7") -> pa.Table:
    rng = np.random.default_rng(n)
    ts = np.sort(rng.integers(8 * n, 8 * n + 8, 15))
    lists = pa.array([[i] for i in range(15)], pa.list_(pa.int64()))
    return pa.table({"ts": ts, "k": rng.integers(0, 5, 15), "v": rng.integers(0, 99, 15), "t": [text] * 15, "l": lists})


def bag(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(r.values()) for r in table.to_pylist())


class Live:
    """An engine with an archive, and all that was pushed to it."""

    def __init__(self, engine: windrow.Engine) -> None:
        self.engine, self.pushed = engine, list[pa.Table]()

    def push(self, ticks: int = 1, text: str = "7") -> None:
        for _ in range(ticks):
            self.pushed.append(batch(len(self.pushed), text))
            for stream in "su":
                self.engine.push(stream, self.pushed[-1])
            self.engine.drain(240)

    def relation(self, query: str, instant: int) -> Counter[tuple[Any, ...]]:
        """A query's relation at an instant, from the definition."""
        log = oracle(f"{STREAM} CREATE QUERY q AS {query}", {"s": pa.concat_tables(self.pushed)}, until=instant)["q"]
        found: Counter[tuple[Any, ...]] = Counter()
        for row in log.to_pylist():
            found[tuple(v for n, v in row.items() if n not in ("_ts", "_op"))] += row["_op"]
        return +found

    def check(self) -> None:
        """Ticks have gone on: the archive and the query beside it are as they should be."""
        frontier = self.engine.runtime.ticker.frontier
        found = self.engine.archive("a").scan()
        as_of = int(found.schema.metadata[b"windrow.as_of"])
        assert as_of == frontier // 10 * 10 and bag(found) == self.relation(ARCHIVED, as_of) != {}
        beside = self.engine["beside"].snapshot()
        assert bag(beside) == self.relation("SELECT k, COUNT(*) AS n FROM s [RANGE 30] GROUP BY k", frontier)


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def given(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """An engine's arguments."""
    more = {"spark": request.getfixturevalue("spark"), "partitions": 2} if request.param == "spark" else {}
    return {"runtime": request.param, "home": tmp_path / "home", **more}


@pytest.fixture
def live(given: dict[str, Any]) -> Iterator[Live]:
    with windrow.Engine(**given) as engine:
        engine.execute(SCRIPT)
        engine.start()
        yield Live(engine)


REFUSED = {
    "SELECT k, COUNT(*) AS n FROM s [RANGE 5] GROUP BY k KEY k EVERY 5": (UnsupportedError, "cannot be archived"),
    "SELECT k FROM s [ROWS 5] KEY k EVERY 5": (UnsupportedError, "cannot be archived"),
    "SELECT k, v FROM s [UNBOUNDED] KEY k EVERY 5": (UnsupportedError, "never end"),
    "SELECT ISTREAM(k) FROM s [RANGE 5] KEY k EVERY 5": (UnsupportedError, "keeps a relation"),
    "SELECT l, v FROM s [RANGE 5] KEY l EVERY 5": (BindingError, "has no order"),
    "SELECT k, v FROM s [RANGE 5] KEY w EVERY 5": (BindingError, '"w"'),
    "SELECT k, v FROM s [RANGE 5] KEY k EVERY 0": (WindrowError, "EVERY"),
    "SELECT k, v FROM s [RANGE 5] KEY k EVERY 5 PARTITIONS 7": (BindingError, "not a square"),
}


def test_what_cannot_be_archived(live: Live) -> None:
    """Strict queries, rows without an end, keys without an order: refused with a hint, and nothing has changed."""
    live.push(2)
    for text, (kind, said) in REFUSED.items():
        with pytest.raises(kind, match=said) as raised:
            live.engine.execute(f"CREATE ARCHIVE b AS {text}")
        assert raised.value.hint
    assert list(live.engine.catalog.archives) == ["a"]
    live.push(2)
    live.check()


def test_a_row_that_lives_too_long_stops_its_archive_alone(live: Live, given: dict[str, Any]) -> None:
    """The archive stays as of its last update and says why; others go on. A new start begins it anew."""
    live.engine.execute(f"CREATE ARCHIVE short AS {ARCHIVED} KEY k EVERY 10")
    live.push(3)
    archives = live.engine.runtime.declared.archives
    archives.live["short"].index.lifetime = 39
    before = live.engine.archive("short").scan()
    live.push(4)
    live.check()
    status = live.engine.status()
    assert "lives longer than its archive" in status["archives"]["short"]["error"]
    assert "lives longer than its archive" in status["failed"]["^short"] and status["archives"]["a"]["error"] is None
    found = live.engine.archive("short").scan()
    assert found.schema.metadata == before.schema.metadata and bag(found) == bag(before) != {}
    live.engine.execute("DROP ARCHIVE short")
    live.push(1)
    live.check()


def test_an_archive_whose_query_fails_has_no_gap(live: Live, given: dict[str, Any]) -> None:
    """It stays as of the update before. After a restart its query begins anew, and so does it; if that fails again,
    over rows that the stream has kept, it is as before."""
    for name, stream in (("numbers", "u"), ("kept", "s")):
        query = f"SELECT k, CAST(t AS BIGINT) AS t FROM {stream} [RANGE 40]"
        live.engine.execute(f"CREATE ARCHIVE {name} AS {query} KEY k EVERY 10")
    live.push(3)
    before = {name: live.engine.archive(name).scan() for name in ("numbers", "kept")}
    live.push(1, text="seven")
    live.push(3)
    live.check()
    for name, was in before.items():
        found = live.engine.archive(name).scan()
        assert found.schema.metadata == was.schema.metadata and bag(found) == bag(was) != {}
        assert "seven" in live.engine.status()["archives"][name]["error"]
    live.engine.stop()
    with windrow.Engine(**given) as engine:
        engine.start()
        again = Live(engine)
        again.pushed = live.pushed
        again.push(5)
        again.check()
        found = engine.archive("numbers").scan()
        as_of = int(found.schema.metadata[b"windrow.as_of"])
        assert as_of == engine.runtime.ticker.frontier // 10 * 10
        assert engine.status()["archives"]["numbers"]["error"] is None
        assert bag(found) == Counter({(k, 7): n for k, n in _by_key(again.pushed[-5:], as_of).items()})
        found = engine.archive("kept").scan()
        assert found.schema.metadata == before["kept"].schema.metadata and bag(found) == bag(before["kept"])
        assert "seven" in engine.status()["archives"]["kept"]["error"]


def _by_key(pushed: list[pa.Table], instant: int) -> Counter[int]:
    rows = pa.concat_tables(pushed).to_pylist()
    return Counter(r["k"] for r in rows if instant - 40 < r["ts"] <= instant)


def test_questions_that_exceed_their_limits(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too long, or cancelled: the question is given up, the archive and the ticks are as before."""
    live.push(4)
    cancelled = threading.Event()
    cancelled.set()
    for text in ("SELECT * FROM a", "SELECT a.k FROM a, s [RANGE 100] WHERE a.k = s.k"):
        with pytest.raises(RuntimeFailure, match="took longer than 1e-09 s"):
            live.engine.ask(text, timeout=1e-9)
        with pytest.raises(RuntimeFailure, match="cancelled"):
            live.engine.ask(text, cancel=cancelled)
    midway, read = threading.Event(), list[object]()
    shelf = live.engine.runtime.declared.archives.live["a"].index.shelf

    def blocks(*given: Any) -> Any:
        read.append(given)
        midway.set()
        return Shelf.blocks(shelf, *given)

    with monkeypatch.context() as patch, pytest.raises(RuntimeFailure, match="cancelled"):
        patch.setattr(shelf, "blocks", blocks)
        live.engine.ask("SELECT * FROM a WHERE k < 4", cancel=midway)
    assert len(read) == 1  # of nine
    with pytest.raises(BindingError, match="is no value of the key"):
        live.engine.archive("a").probe("three")
    with pytest.raises(BindingError, match="1 columns, and 2 values"):
        live.engine.archive("a").probe((1, 2))
    live.push(2)
    live.check()


def test_readers_during_a_migration(live: Live) -> None:
    """Whoever reads while layouts change sees one update or the next, whole."""
    live.push(4)
    found: list[pa.Table] = []
    errors: list[BaseException] = []
    stopped = threading.Event()

    def read() -> None:
        archive = live.engine.archive("a")
        try:
            while not stopped.is_set():
                found.append(archive.scan())
                found.append(live.engine.ask("SELECT * FROM a WHERE k IN (0, 1, 2, 3, 4)"))
        except BaseException as error:
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for n, partitions in enumerate(("2 x 2", "4 x 4", "1 x 1", "3 x 3")):
            live.engine.archive("a").migrate(partitions, rebuild=n % 2 == 0, gradually=n % 2 == 1)
            live.push(2)
            seen = len(found)
            while len(found) < seen + 3 and reader.is_alive():  # one at least that began behind this
                time.sleep(0.01)
    finally:
        stopped.set()
        reader.join()
    assert not errors
    wanted: dict[int, Counter[tuple[Any, ...]]] = {}
    for table in found:
        as_of = int(table.schema.metadata[b"windrow.as_of"])
        if as_of not in wanted:
            wanted[as_of] = live.relation(ARCHIVED, as_of)
        assert bag(table) == wanted[as_of]
    assert len(wanted) > 2
    live.check()
    assert live.engine.archive("a").status["layout"] == "3 x 3 no rebuild"


def test_a_home_that_is_repaired(live: Live, given: dict[str, Any]) -> None:
    """A repair of a home that an engine has is refused, and so is an engine in a home that is repaired."""
    live.push(4)
    home = str(given["home"])
    with pytest.raises(StateError, match="in use by another engine"):
        Store.open(home, lenient=True)  # as a repair does
    live.push(1)
    live.check()
    live.engine.stop()
    with Store.open(home, lenient=True), pytest.raises(StateError, match="in use by another engine") as raised:
        windrow.Engine(**given)
    assert raised.value.hint
    assert main([home, "--repair"]) == 0  # nothing is damaged
    with windrow.Engine(**given) as engine:
        engine.start()
        again = Live(engine)
        again.pushed = live.pushed
        again.check()
        again.push(2)
        again.check()
