"""One scenario on both runtimes: everything an engine can do, word for word the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windrow
from windrow.testing import assert_same

SCRIPT = """
CREATE STREAM bid (auction BIGINT, price DOUBLE, ts BIGINT) TIMESTAMP BY ts WITHIN 3 RETAIN 100
    FROM parquet (path => '{folder}/bids', max_files => 2);
CREATE STREAM click (auction BIGINT, ts BIGINT) TIMESTAMP BY ts;
CREATE TABLE item (auction BIGINT, name VARCHAR);
CREATE QUERY hot AS SELECT auction, COUNT(*) AS n, AVG(price) AS price FROM bid [RANGE 40 SLIDE 10] GROUP BY auction;
CREATE QUERY top AS SELECT i.name, MAX(b.price) AS price FROM bid [RANGE 30] b, item i
    WHERE b.auction = i.auction GROUP BY i.name;
CREATE QUERY both AS SELECT ISTREAM(b.auction, b.price) FROM bid [RANGE 20] b, click [RANGE 20] c
    WHERE b.auction = c.auction;
CREATE QUERY only AS SELECT auction FROM bid [RANGE 9] b
    WHERE NOT EXISTS (SELECT * FROM click [RANGE 9] c WHERE c.auction = b.auction);
"""
LATER = "CREATE QUERY later AS SELECT COUNT(*) AS n, SUM(price) AS s FROM bid [RANGE 100]"
NAMES = pa.table({"auction": [0, 1, 2], "name": ["vase", "lamp", "chair"]})


def bids(number: int) -> pa.Table:
    """The rows of a file."""
    rng = np.random.default_rng(number)
    ts = np.sort(rng.integers(number * 40, number * 40 + 40, 60))
    return pa.table({"auction": rng.integers(0, 4, 60), "price": rng.integers(1, 99, 60) / 4.0, "ts": ts})


def clicks(number: int) -> pa.Table:
    """Rows that the program pushes."""
    rng = np.random.default_rng(100 + number)
    ts = np.sort(rng.integers(number * 40, number * 40 + 40, 12))
    return pa.table({"auction": rng.integers(0, 4, 12), "ts": ts})


def put(folder: Path, number: int) -> None:
    """A file appears whole."""
    pq.write_table(bids(number), folder / f".{number}")
    (folder / f".{number}").rename(folder / "bids" / f"{number:03d}.parquet")


def played(folder: Path, **engine: Any) -> dict[str, Any]:
    """Files appear, rows are pushed, queries come and go, a table changes, and the engine is stopped and goes on."""
    (folder / "bids").mkdir(parents=True)
    home, out = folder / "home", str(folder / "out")
    found: dict[str, Any] = {}

    def opened() -> windrow.Engine:
        made = windrow.Engine(home=home, **engine)
        for query in made.catalog.queries:
            made.sink(query, "parquet", path=out)
        return made

    with opened() as first:
        first.execute(SCRIPT.format(folder=folder))
        first.table("item", NAMES)
        for query in first.catalog.queries:
            first.sink(query, "parquet", path=out)
        put(folder, 0)
        first.start()
        first.push("click", clicks(0))
        first.drain()
        put(folder, 1)
        first.push("click", clicks(1))
        first.drain()
        first.execute(LATER)
        first.sink("later", "parquet", path=out)
        first.execute("DROP QUERY only")
        found["snapshot"] = first["top"].snapshot()
        found["asked"] = first.ask("SELECT auction, COUNT(*) AS n FROM bid [RANGE 50] GROUP BY auction")
        found["frontiers"] = [first.status()["frontier"]]
        first.push("click", pa.table({"auction": [1], "ts": [3]}))
        first.drain()
        found["late"] = first.late("click")
        assert first.status()["streams"]["click"]["late"] == 1
        first.wait(0.01)
    with opened() as second:
        second.start()
        second.table("item", pa.table({"auction": [0, 1, 3], "name": ["vase", "stool", "clock"]}))
        put(folder, 2)
        second.push("click", clicks(2))
        second.drain()
        found["frontiers"].append(second.status()["frontier"])
        assert second.status()["running"] and not second.status()["failed"]
        assert set(second.catalog.queries) == {"hot", "top", "both", "later"}
    found["answers"] = {q.name: pq.read_table(q).sort_by("_ts") for q in sorted(Path(out).iterdir())}
    return found


def check(got: dict[str, Any], want: dict[str, Any]) -> None:
    """The same in everything."""
    assert got["frontiers"] == want["frontiers"]
    assert set(got["answers"]) == set(want["answers"]) == {"hot", "top", "both", "only", "later"}
    for name, table in want["answers"].items():
        if name != "later":  # when a new query begins depends on when ticks end
            assert_same(got["answers"][name], table)
    for what in ("snapshot", "asked", "late"):
        order = [(c, "ascending") for c in want[what].column_names]
        assert got[what].sort_by(order).equals(want[what].sort_by(order))


def test_a_local_engine_with_a_home_equals_replays(tmp_path: Path) -> None:
    """What the scenario answers is what a replay of the same rows answers, where no table changes."""
    got = played(tmp_path / "live", runtime="local")
    streams = {
        "bid": pa.concat_tables([bids(i) for i in range(3)]),
        "click": pa.concat_tables([clicks(i) for i in range(3)]),
    }
    script = "CREATE STREAM bid (auction BIGINT, price DOUBLE, ts BIGINT) TIMESTAMP BY ts WITHIN 3;" + "".join(
        f"{part};" for part in SCRIPT.split(";") if "QUERY hot" in part or "QUERY both" in part
    )
    want = windrow.run(script, streams, runtime="local", until=got["frontiers"][-1])
    for name, table in want.items():
        assert_same(got["answers"][name], table)


def test_partitions_change_nothing(tmp_path: Path) -> None:
    """The same scenario over three partitions in this process."""
    check(played(tmp_path / "three", runtime="local", partitions=3), played(tmp_path / "one", runtime="local"))


@pytest.mark.spark
def test_spark_does_the_same(spark: Any, tmp_path: Path) -> None:
    """The same scenario on Spark: answers, snapshots, one-time queries, late rows, frontiers."""
    check(played(tmp_path / "spark", runtime="spark", spark=spark), played(tmp_path / "local", runtime="local"))


@pytest.mark.spark
def test_a_home_moves_between_runtimes(spark: Any, tmp_path: Path) -> None:
    """A home that Spark wrote goes on in this process, and the other way round."""
    home, folder = tmp_path / "home", tmp_path
    (folder / "bids").mkdir()
    query = "CREATE QUERY q AS SELECT auction, COUNT(*) AS n FROM bid [RANGE 30] GROUP BY auction"
    stream = SCRIPT.split(";")[0].format(folder=folder)
    for number, options in enumerate([{"runtime": "spark", "spark": spark}, {"runtime": "local"}] * 2):
        with windrow.Engine(home=home, **options) as engine:
            if number == 0:
                engine.execute(f"{stream}; {query}")
            engine.sink("q", "parquet", path=str(folder / "out"))
            put(folder, number)
            engine.start()
            engine.drain()
            frontier = engine.status()["frontier"]
    declared = "CREATE STREAM bid (auction BIGINT, price DOUBLE, ts BIGINT) TIMESTAMP BY ts WITHIN 3"
    streams = {"bid": pa.concat_tables([bids(i) for i in range(4)])}
    want = windrow.run(f"{declared}; {query}", streams, runtime="local", until=frontier)
    assert_same(pq.read_table(folder / "out" / "q").sort_by("_ts"), want["q"])
