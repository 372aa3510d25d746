"""Answers in Delta tables: every tick once, and a table that equals a relation."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import windrow
from windrow.errors import SourceError, StateError
from windrow.sinks.delta import DeltaRelationSink, DeltaSink
from windrow.sinks.lake import storable

deltalake = pytest.importorskip("deltalake", reason="the extra `delta` is not installed")

SCRIPT = """
    CREATE STREAM s (ts BIGINT, k VARCHAR, x DOUBLE, l BIGINT[]) TIMESTAMP BY ts;
    CREATE QUERY sums AS SELECT k, SUM(x) AS total, MAX(ts % 7)::UTINYINT AS w FROM s [RANGE 4] GROUP BY k;
    CREATE QUERY open AS SELECT k, x, l FROM s [RANGE 4];
    CREATE QUERY came AS SELECT ISTREAM(k, x) FROM s [RANGE 4];
"""


def held(path: Path) -> Counter[str]:
    """The rows of a table."""
    return Counter(str(r) for r in pa.table(deltalake.DeltaTable(str(path)).to_pyarrow_table()).to_pylist())


def plain(table: pa.Table) -> Counter[str]:
    """The rows of an answer, as Delta holds them."""
    return Counter(str(r) for r in storable(table).to_pylist())


def some(chance: random.Random, ts: int) -> dict[str, list[Any]]:
    """A few rows of an instant, with nulls and repetitions."""
    n = chance.randrange(1, 5)
    return {
        "ts": [ts] * n,
        "k": [chance.choice([None, "", "a", "it's"]) for _ in range(n)],
        "x": [chance.choice([None, 0.1, 2.0]) for _ in range(n)],
        "l": [chance.choice([None, [], [1, None]]) for _ in range(n)],
    }


@pytest.mark.parametrize("seed", range(2))
def test_tables_follow_the_answers(tmp_path: Path, seed: int) -> None:
    """After every tick: appended rows are the results, an upserted table is the relation; also after a restart."""
    chance, home = random.Random(seed), tmp_path / "home"
    for life in range(2):
        with windrow.Engine(runtime="local", home=str(home)) as engine:
            if not life:
                engine.execute(SCRIPT)
            engine.start()
            for query in ("came", "open"):
                engine.sink(query, "delta", path=str(tmp_path / query))
            if not life:
                engine.push("s", some(chance, 1))
            engine.sink("sums", "delta", path=str(tmp_path / "sums"), mode="upsert", key="k")
            for ts in range(2 + 10 * life, 12 + 10 * life):
                engine.push("s", some(chance, ts))
                engine.drain()
                assert held(tmp_path / "sums") == plain(engine["sums"].snapshot())
            if not life:
                came, opened = engine["came"].results(), engine["open"].results()
                assert held(tmp_path / "came") == plain(came)
                assert held(tmp_path / "open") == plain(opened)


def test_a_tick_is_written_once(tmp_path: Path) -> None:
    """By home and query: a tick that comes again changes nothing, one of another home is another."""
    rows = pa.table({"_ts": [1], "k": ["a"]})
    for owner, tick in (("one", 1), ("one", 1), ("one", 2), ("two", 1), ("one", 2)):
        DeltaSink(str(tmp_path / "t"), owner=owner).write("q", tick, rows)
    assert sum(held(tmp_path / "t").values()) == 3
    sink = DeltaRelationSink(str(tmp_path / "r"), ["k"], owner="one")
    sink.fill("q", 3, pa.table({"k": ["a"], "n": [1]}))
    change = pa.table({"_ts": [4, 4, 4], "_op": [-1, 1, 1], "k": ["a", "a", "b"], "n": [1, 2, 1]})
    for _ in range(2):
        sink.write("q", 4, change)
    assert held(tmp_path / "r") == Counter(["{'k': 'a', 'n': 2}", "{'k': 'b', 'n': 1}"])


def test_refusals(tmp_path: Path) -> None:
    """What cannot be held is told before or instead of a commit."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute(SCRIPT)
        engine.start()
        path = str(tmp_path / "t")
        for options, message in (
            ({}, "needs the option path"),
            ({"path": path, "mode": "merge"}, 'no mode "merge"'),
            ({"path": path, "mode": "upsert"}, "needs the option key"),
            ({"path": path, "mode": "upsert", "key": "nobody"}, 'no column "nobody"'),
        ):
            with pytest.raises(SourceError, match=message):
                engine.sink("sums", "delta", **options)
    sink = DeltaRelationSink(path, ["k"])
    with pytest.raises(StateError, match="several rows with k = 'a'"):
        sink.fill("q", 1, pa.table({"k": ["a", "a"], "n": [1, 2]}))
    with pytest.raises(SourceError, match='cannot hold column "i"'):
        DeltaSink(path).write("q", 1, pa.table({"i": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}))
    assert not (tmp_path / "t").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="could not be written to the Delta table"):
        DeltaSink(str(tmp_path / "file")).write("q", 1, pa.table({"k": ["a"]}))


@pytest.mark.parametrize("made", ["by nobody", "by an answer", "with partitions", "with other types"])
def test_parts_that_tasks_wrote_are_one_commit(tmp_path: Path, made: str) -> None:
    """Whatever table is there; writing them again changes nothing, and a lone file is nobody's row."""
    rows = pa.table({"_ts": pa.array([1, 2, 3], pa.timestamp("us")), "k": ["a", None, "c"], "n": [1, 2, None]})
    path, sink = str(tmp_path / "t"), DeltaSink(str(tmp_path / "t"), owner="home")
    if made == "by an answer":
        sink.write("q", 1, rows)
    elif made == "with partitions":
        deltalake.write_deltalake(path, rows, partition_by=["k"])
    elif made == "with other types":
        deltalake.write_deltalake(path, rows.set_column(2, "n", pa.array([1, 2, None], pa.int32())))
    before = held(tmp_path / "t") if made != "by nobody" else Counter[str]()
    parts = [sink.write_part("q", 7, i, rows.slice(i, 2)) for i in range(2)]
    assert (held(tmp_path / "t") if made != "by nobody" else before) == before
    sink.publish("q", 7, parts)
    version = deltalake.DeltaTable(path).version()
    again = [sink.write_part("q", 7, i, rows.slice(i, 2)) for i in range(2)]
    sink.publish("q", 7, again)
    assert deltalake.DeltaTable(path).version() == version
    assert held(tmp_path / "t") == before + plain(rows.slice(0, 2)) + plain(rows.slice(1, 2))
    sink.write("q", 8, rows)
    assert sum(held(tmp_path / "t").values()) == sum(before.values()) + 7
