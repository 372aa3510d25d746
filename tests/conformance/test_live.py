"""A live engine equals the definition: random ticks, late rows, silence, rows from the future, tables that change."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import windrow
from windrow.operators.elements import BEGINNING
from windrow.testing import assert_same, live_oracle, seeded_life
from windrow.testing.live import LiveAnswers, Moment
from windrow.testing.strategies import SHAPES, TICKS, TIMESTAMPS, Life, typed_life

GROUP = 20
TABLES = ("table join", "table join", "table first", "outer join", "exists", "asof")
"""Shapes that may read the table P."""


class Driven:
    """An engine whose ticks and wall are the test's."""

    def __init__(self, life: Life, **options: Any) -> None:
        self.life, self.options = life, options
        self.wall = life.moments[0].wall if life.moments else 0.0
        self.parts: dict[str, list[pa.Table]] = {}
        self.engine = self.opened()
        *declared, query = life.script.split(";\n")
        self.engine.execute(";\n".join(d for d in declared if "CREATE QUERY" not in d))
        for name, table in life.tables.items():
            self.change(name, table)
        queries = [d for d in declared if "CREATE QUERY" in d]
        self.engine.execute(";\n".join([*queries, query if queries else f"CREATE QUERY q1 AS {query}"]))
        self.engine.start()

    def opened(self) -> windrow.Engine:
        engine = windrow.Engine(**self.options)
        engine.runtime._clock, engine.runtime._last_tick = lambda: self.wall, self.wall
        return engine

    def change(self, name: str, table: pa.Table) -> None:
        """Let a table be this from the next tick on, or change so."""
        if self.engine.catalog.tables[name.lower()].changes is None:
            self.engine.table(name, table)
        else:
            self.hand_in(name, table)

    def hand_in(self, name: str, table: pa.Table) -> None:
        """Rows for the next tick: `push` takes one at once where it can."""
        source: Any = self.engine.runtime.declared.streams[name.lower()].source
        source.push(table, spooled=True)

    def play(self) -> LiveAnswers:
        """All moments, and time told at the end."""
        frontiers = []
        for moment in self.life.moments:
            if moment.restart:
                self.collect()
                self.engine.stop()
                self.wall = moment.wall
                self.engine = self.opened()
                self.engine.start()
            with self.engine.runtime._ticking:
                self.wall = moment.wall
                for name, table in moment.tables.items():
                    self.change(name, table)
                for name, table in moment.rows.items():
                    self.hand_in(name, table)
                self.engine.runtime._turn()
                frontiers.append(self.engine.runtime.ticker.frontier)
        if self.life.until is not None:
            self.engine.advance(self.life.until)
            frontiers.append(self.engine.runtime.ticker.frontier)
        self.collect()
        late = {name: self.engine.late(name) for name in self.engine.catalog.streams}
        self.engine.stop()
        answers = {name: pa.concat_tables(parts) for name, parts in self.parts.items()}
        return LiveAnswers(answers, late, {}, [None if f == BEGINNING else f for f in frontiers])

    def collect(self) -> None:
        assert self.engine.status()["failed"] == {}
        for name in self.engine.catalog.queries:
            self.parts.setdefault(name, []).append(self.engine[name].results())


def check(life: Life, **options: Any) -> None:
    """Play a life and compare it with the definition: answers, late rows, and how far time has come."""
    if "home" not in options:
        life = life._replace(moments=[replace(m, restart=False) for m in life.moments])
    want = live_oracle(*life)
    try:
        got = Driven(life, **options).play()
        assert got.frontiers == want.frontiers
        for name, rows in got.late.items():
            assert repr(rows.to_pylist()) == repr(want.late[name].to_pylist() if name in want.late else [])
        for name, table in want.answers.items():
            assert_same(got.answers[name], table)
    except AssertionError as error:
        raise AssertionError(f"{options}: {life.script}\n{error}") from error


@pytest.mark.parametrize("first", range(0, 160, GROUP))
def test_random_lives_equal_the_definition(first: int) -> None:
    """Rows within the slack, late, from the future and after a silence, in ticks of any size."""
    for seed in range(first, first + GROUP):
        check(seeded_life(seed), runtime="local", sharing=("auto", "off", "shards")[seed % 3])


@pytest.mark.parametrize("first", range(0, 40, GROUP))
def test_lives_with_columns_of_any_type_equal_the_definition(first: int) -> None:
    """What rows of a tick leave behind is of any type: state, shared state, rows that wait, tables that change."""
    for seed in range(first, first + GROUP):
        check(typed_life(seed), runtime="local", sharing=("auto", "off", "shards")[seed % 3])


@pytest.mark.parametrize("first", range(500, 560, GROUP))
def test_tables_that_reach_back_equal_the_definition(first: int) -> None:
    """A RETROACTIVE table changes, at an instant, what was answered from rows of the past; one or more partitions."""
    for seed in range(first, first + GROUP):
        check(seeded_life(seed, shapes=TABLES), runtime="local", partitions=(None, 3)[seed % 2])


@pytest.mark.parametrize("op", ["ISTREAM", "DSTREAM", "RSTREAM"])
@pytest.mark.parametrize("home", [True, False])
def test_tables_change_past_results_at_evaluations_only(op: str, home: bool, tmp_path: Path) -> None:
    """What a RETROACTIVE table changes between two evaluations of a periodic query is seen at the later one."""
    script = f"""CREATE STREAM S (a BIGINT, ts BIGINT) TIMESTAMP BY ts;
CREATE TABLE P (k BIGINT, v VARCHAR) RETROACTIVE;
SELECT {op}(v, COUNT(*) AS n) FROM S [RANGE 6 SLIDE 5] JOIN P ON a = k GROUP BY v"""
    tables = [pa.table({"k": [1, 2], "v": v}) for v in (["x", "y"], ["x", "z"], ["w", "z"])]
    rows = [pa.table({"a": a, "ts": ts}) for a, ts in (([1, 2], [4, 6]), ([2], [8]), ([1], [9]), ([1], [30]))]
    came = [({"S": rows[0]}, {}), ({}, {"P": tables[1]}), ({"S": rows[1]}, {"P": tables[2]}), ({"S": rows[2]}, {})]
    moments = [Moment(i, r, t, restart=i % 2 == 1) for i, (r, t) in enumerate([*came, ({"S": rows[3]}, {})])]
    life = Life(script, moments, {"P": tables[0]}, 30)
    assert {t % 5 for t in live_oracle(*life).answers["q1"]["_ts"].to_pylist()} == {0}
    check(life, runtime="local", **({"home": tmp_path} if home else {}))


@pytest.mark.parametrize("seed", range(900, 924))
def test_lives_over_restarts_equal_the_definition(seed: int, tmp_path: Path) -> None:
    """What had come, how far time was and which tables were in force is kept; silence begins anew."""
    life = seeded_life(seed, shapes=TABLES) if seed % 3 == 0 else seeded_life(seed)
    check(life, runtime="local", home=tmp_path, partitions=1 + seed % 3)


@pytest.mark.spark
@pytest.mark.parametrize(("first", "clock"), [(70, TIMESTAMPS), (82, TICKS)])
def test_lives_on_spark_equal_the_definition(first: int, clock: str, spark: object) -> None:
    """Many lives in one engine on Spark, late rows, silence and changing tables included."""
    check(together(range(first, first + 12), clock), runtime="spark", spark=spark)


def together(seeds: Sequence[int], clock: str, ticks: int = 7) -> Life:
    """Lives side by side, each on its own streams, in a few ticks."""
    script, tables, moments, queries = [], {}, [Moment(0.0)] * ticks, []
    ends = []
    for seed in seeds:
        life = seeded_life(seed, clock, (SHAPES, TABLES)[seed % 2], 12)
        *declared, query = life.script.split(";\n")
        own = {n: f"{n}{seed}" for n in "STUPV"}
        script += [re.sub(r"\b([STUPV])\b", rf"\g<1>{seed}", d) for d in declared]
        queries.append(f"CREATE QUERY q{seed} AS " + re.sub(r"\b([STUPV])\b", rf"\g<1>{seed}", query))
        tables |= {own[n]: t for n, t in life.tables.items()}
        ends.append(life.until)
        for i, moment in enumerate(life.moments):
            at = i * ticks // len(life.moments)
            moments[at] = _both(moments[at], moment, own)
    moments = [replace(m, wall=max(n.wall for n in moments[: i + 1])) for i, m in enumerate(moments)]
    return Life(";\n".join([*script, *queries]), moments, tables, max(e for e in ends if e is not None))


def _both(one: Moment, other: Moment, own: dict[str, str]) -> Moment:
    """Two moments as one: rows of both, and tables as they are then."""
    rows = dict(one.rows)
    for name, table in other.rows.items():
        rows[own[name]] = pa.concat_tables([rows[own[name]], table]) if own[name] in rows else table
    tables = dict(one.tables) | {own[n]: t for n, t in other.tables.items()}
    return Moment(max(one.wall, other.wall), rows, tables)
