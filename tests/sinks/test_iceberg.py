"""Answers in Iceberg tables: every tick once, and a table that equals a relation."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import windrow
from windrow.errors import SourceError, StateError
from windrow.sinks.iceberg import IcebergRelationSink, IcebergSink
from windrow.sinks.lake import storable

pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")

from pyiceberg.catalog import load_catalog

SCRIPT = """
    CREATE STREAM s (ts BIGINT, k VARCHAR, f DOUBLE, x DOUBLE, l BIGINT[]) TIMESTAMP BY ts;
    CREATE QUERY sums AS SELECT f, k, SUM(x) AS total, MAX(ts % 7)::UTINYINT AS w FROM s [RANGE 4] GROUP BY f, k;
    CREATE QUERY open AS SELECT k, x, l FROM s [RANGE 4];
"""


def lake(path: Path) -> dict[str, str]:
    """The options of a catalog in a folder."""
    return {"uri": f"sqlite:///{path / 'catalog.db'}", "warehouse": f"file://{path / 'lake'}"}


def opened(options: Mapping[str, str], name: str) -> Any:
    """A table as others see it."""
    return load_catalog("default", **options).load_table(name)


def held(options: Mapping[str, str], name: str) -> Counter[str]:
    """The rows of a table."""
    return Counter(str(r) for r in opened(options, name).scan().to_arrow().to_pylist())


def plain(table: pa.Table) -> Counter[str]:
    """The rows of an answer, as a lake holds them."""
    return Counter(str(r) for r in storable(table).to_pylist())


def some(chance: random.Random, ts: int) -> dict[str, list[Any]]:
    """A few rows of an instant, with nulls, numbers that are none, and repetitions."""
    n = chance.randrange(1, 5)
    return {
        "ts": [ts] * n,
        "k": [chance.choice([None, "", "a", "it's"]) for _ in range(n)],
        "f": [chance.choice([None, float("nan"), float("inf"), 0.5]) for _ in range(n)],
        "x": [chance.choice([None, 0.1, 2.0]) for _ in range(n)],
        "l": [chance.choice([None, [], [1, None]]) for _ in range(n)],
    }


def test_tables_follow_the_answers(tmp_path: Path) -> None:
    """After every tick: appended rows are the results, an upserted table is the relation; also after a restart."""
    chance, home, at = random.Random(1), str(tmp_path / "home"), lake(tmp_path)
    for life in range(2):
        with windrow.Engine(runtime="local", home=home) as engine:
            if not life:
                engine.execute(SCRIPT)
            engine.start()
            engine.sink("open", "iceberg", table="live.opened", **at)
            if not life:
                engine.push("s", some(chance, 1))
            engine.sink("sums", "iceberg", table="live.sums", mode="upsert", key="f, k", **at)
            for ts in range(2 + 8 * life, 10 + 8 * life):
                engine.push("s", some(chance, ts))
                engine.drain()
                assert held(at, "live.sums") == plain(engine["sums"].snapshot())
            if not life:
                assert held(at, "live.opened") == plain(engine["open"].results())


def test_a_tick_is_written_once(tmp_path: Path) -> None:
    """By home and query: a tick that comes again changes nothing, one of another home is another."""
    rows, at = pa.table({"_ts": [1], "k": ["a"]}), lake(tmp_path)
    for owner, tick in (("one", 1), ("one", 1), ("one", 2), ("two", 1), ("one", 2)):
        IcebergSink("a.t", at, owner=owner).write("q", tick, rows)
    assert sum(held(at, "a.t").values()) == 3 and len(opened(at, "a.t").snapshots()) == 3
    sink = IcebergRelationSink("a.r", ["k"], at, owner="one")
    sink.fill("q", 3, pa.table({"k": ["a"], "n": [1]}))
    change = pa.table({"_ts": [4, 4, 4], "_op": [-1, 1, 1], "k": ["a", "a", "b"], "n": [1, 2, 1]})
    for _ in range(2):
        sink.write("q", 4, change)
    assert held(at, "a.r") == Counter(["{'k': 'a', 'n': 2}", "{'k': 'b', 'n': 1}"])


@pytest.mark.parametrize("made", ["by nobody", "by an answer", "with partitions", "with other types"])
def test_parts_that_tasks_wrote_are_one_commit(tmp_path: Path, made: str) -> None:
    """Whatever table is there; writing them again changes nothing, and a lone file is nobody's row."""
    rows = pa.table({"_ts": pa.array([1, 2, 3], pa.timestamp("us")), "k": ["a", None, "c"], "n": [1, 2, None]})
    at = lake(tmp_path)
    sink = IcebergSink("a.t", at, owner="home")
    if made == "by an answer":
        sink.write("q", 1, rows)
    elif made != "by nobody":
        sink.write("other", 1, rows)
    if made == "with partitions":
        with opened(at, "a.t").update_spec() as spec:
            spec.add_identity("k")
    elif made == "with other types":  # the table's are wider
        rows = rows.set_column(2, "n", pa.array([1, 2, None], pa.int32()))
    before = held(at, "a.t") if made != "by nobody" else Counter[str]()
    for crashed in (False, True):  # as tasks have it, by pickle; and again
        parts = [pickle.loads(pickle.dumps(sink)).write_part("q", 7, i, rows.slice(i, 2)) for i in range(2)]
        if not crashed:
            assert held(at, "a.t") == before
        sink.publish("q", 7, parts)
        snapshots = len(opened(at, "a.t").snapshots())
        assert snapshots == (1 if made == "by nobody" else 2)
    assert held(at, "a.t") == before + plain(rows.slice(0, 2)) + plain(rows.slice(1, 2))
    sink.write("q", 8, rows)
    assert sum(held(at, "a.t").values()) == sum(before.values()) + 7


def test_of_two_writers_none_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit between looking and committing is kept, and ours goes on top of it, once."""
    at, rows = lake(tmp_path), pa.table({"_ts": [1], "k": ["a"]})
    mine, other = (IcebergSink("a.t", at, owner=o) for o in ("mine", "other"))
    mine.write("q", 1, rows)
    stale = opened(at, "a.t")
    other.write("q", 1, rows)
    monkeypatch.setattr(mine, "_made", lambda _: stale)
    for _ in range(2):
        mine.write("q", 2, rows)
    assert sum(held(at, "a.t").values()) == 3


def test_refusals(tmp_path: Path) -> None:
    """What cannot be held or found is told before or instead of a commit."""
    at = lake(tmp_path)
    with windrow.Engine(runtime="local") as engine:
        engine.execute(SCRIPT)
        engine.start()
        for options, message in (
            (at, "needs the option table"),
            ({"table": "a.t", "mode": "merge", **at}, 'no mode "merge"'),
            ({"table": "a.t", "mode": "upsert", **at}, "needs the option key"),
            ({"table": "a.t", "path": "x", **at}, 'no option "path"'),
            ({"table": "a.t", "mode": "upsert", "key": "nobody", **at}, 'no column "nobody"'),
            ({"table": "a.t", "catalog": "nobody"}, "cannot open the Iceberg catalog"),
        ):
            with pytest.raises(SourceError, match=message):
                engine.sink("sums", "iceberg", **options)
    with pytest.raises(StateError, match="several rows with k = 'a'"):
        IcebergRelationSink("a.t", ["k"], at).fill("q", 1, pa.table({"k": ["a", "a"], "n": [1, 2]}))
    with pytest.raises(SourceError, match='cannot hold column "i"'):
        IcebergSink("a.t", at).write("q", 1, pa.table({"i": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}))
    assert not load_catalog("default", **at).table_exists("a.t")
