"""Sharing on Spark itself: the oracle's answers, and a live engine whose queries come, fail and survive a restart."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windrow
from windrow.testing import assert_same, oracle

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("seed", "sharing"), [(500, "shards"), (501, "auto"), (502, "slices")])
def test_replays_equal_the_oracle(make_case: Callable[[int], Any], seed: int, sharing: str, spark: Any) -> None:
    """Random query sets through the public door."""
    case = make_case(seed)
    want = oracle(case.script, {"st": case.stream}, {"k": case.table})
    got = windrow.run(case.script, {"st": case.stream}, {"k": case.table}, sharing=sharing, spark=spark, batch_rows=25)
    for name in want:
        assert_same(got[name], want[name])


def part(number: int) -> pa.Table:
    """Ten ticks of rows."""
    r = np.random.default_rng(number)
    ts = np.sort(r.integers(10 * number, 10 * number + 10, 40))
    text = pa.array([str(n) for n in r.integers(0, 99, 40)])
    return pa.table({"ts": ts, "a": r.integers(0, 5, 40), "x": r.random(40), "s": text})


class Folder:
    """A directory of files, one batch each."""

    def __init__(self, path: Path) -> None:
        self.path, self.parts = path, list[pa.Table]()
        path.mkdir()

    def put(self, table: pa.Table | None = None) -> None:
        number = len(self.parts)
        self.parts.append(part(number) if table is None else table)
        pq.write_table(self.parts[-1], self.path / f".{number}")
        os.utime(self.path / f".{number}", (1_700_000_000 + number,) * 2)
        os.rename(self.path / f".{number}", self.path / f"{number:03d}.parquet")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Where the stream's files are."""
    return Folder(tmp_path / "rows")


@pytest.fixture
def engine(spark: Any, tmp_path: Path, folder: Folder) -> Iterator[Callable[[], windrow.Engine]]:
    """Opens engines on one home, the one before stopped."""
    opened: list[windrow.Engine] = []

    def opened_again() -> windrow.Engine:
        for old in opened:
            old.stop()
        opened.append(windrow.Engine(home=str(tmp_path / "home"), spark=spark))
        if "st" not in opened[-1].catalog.streams:
            opened[-1].execute(
                "CREATE STREAM st (ts BIGINT, a BIGINT, x DOUBLE, s VARCHAR) TIMESTAMP BY ts RETAIN 40 "
                f"FROM parquet (path => '{folder.path}', maxFilesPerTrigger => 1)"
            )
        return opened[-1]

    yield opened_again
    for old in opened:
        old.stop()


def after(table: pa.Table, ts: int) -> pa.Table:
    """The rows of an answer after an instant."""
    return table.filter(pa.compute.greater(table["_ts"], ts))


def test_queries_come_fail_and_go_on(engine: Callable[[], windrow.Engine], folder: Folder) -> None:
    """A query that joins later is right at once over kept rows; one that raises stops alone; a restart goes on."""
    texts = {
        "total": "SELECT sum(x) AS t, count(*) AS n FROM st [RANGE 18 SLIDE 5] WHERE a < 3",
        "late": "SELECT a, max(x) AS m FROM st [RANGE 30 SLIDE 6] WHERE x > 0.3 GROUP BY a",
        "short": "SELECT count(*) AS n FROM st [RANGE 12 SLIDE 4] WHERE a = 2 OR x > 0.9",
    }
    live = engine()
    live.execute(f"CREATE QUERY total AS {texts['total']}")
    live.start()
    for _ in range(3):
        folder.put()
    live.drain()
    for name in ("late", "short"):
        live.execute(f"CREATE QUERY {name} AS {texts[name]}")
    live.execute("CREATE QUERY cast_ AS SELECT sum(CAST(s AS BIGINT)) AS c FROM st [RANGE 10 SLIDE 5]")
    folder.put()
    live.drain()
    assert live["cast_"].results().num_rows
    folder.put(part(4).set_column(3, "s", pa.array(["x"] * 40)))
    live.drain()
    assert list(live.status()["failed"]) == ["cast_"]
    assert live.status()["queries"]["late"]["shared_with"] == 2
    assert "3 queries over st" in live["late"].explain()
    before = {n: live[n].results() for n in texts}
    live.execute("DROP QUERY cast_; DROP QUERY short")

    live = engine()
    live.start()
    folder.put()
    folder.put()
    live.drain()
    frontier = live.status()["frontier"]
    rows = pa.concat_tables(folder.parts)
    for name in ("total", "late"):
        want = windrow.run(texts[name], {"st": rows}, runtime="local", until=frontier)["q1"]
        got = pa.concat_tables([before[name], live[name].results()])
        assert_same(got, want if name == "total" else after(want, int(np.max(folder.parts[2]["ts"])) - 2))
        assert live[name].results().num_rows
