"""Sharing in the tasks of the Spark runtime, without a JVM: the unshared answers, whatever happens around them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from windrow_tests_in_process import JobTicker

import windrow
from windrow.catalog import Catalog
from windrow.engine.replay import Replay
from windrow.engine.script import bind_script
from windrow.errors import WindrowError
from windrow.operators.elements import BEGINNING, Elements
from windrow.optimize import optimize
from windrow.plan.dataflow import answer
from windrow.runtime import state_reader
from windrow.runtime.family_programs import SharedQuery
from windrow.runtime.job import Feed
from windrow.runtime.messages import Envelope, SharedAnswer, TaskReport
from windrow.store.store import Store
from windrow.testing import assert_same, oracle

WAYS = ((1, None, "shards"), (2, 5, "shards"), (3, 3, "slices"), (2, 9, "fragments"), (3, 7, "auto"))
"""(partitions, rows per batch, technique), none of which may change an answer."""


@pytest.mark.parametrize("seed", range(400, 416))
def test_replays_equal_the_oracle(
    make_case: Callable[[int], Any], seed: int, in_process_job: Any, tmp_path: Path
) -> None:
    """Random query sets, partitions, batches and techniques; tasks repeated, workers forgetful."""
    case = make_case(seed)
    want = oracle(case.script, {"st": case.stream}, {"k": case.table})
    for number, (partitions, rows, sharing) in enumerate(WAYS):
        replay = Replay.of(case.script, {"st": case.stream}, {"k": case.table})
        job = in_process_job(2, chaos=seed + number)
        got = replay.in_home(str(tmp_path / str(number)), job, rows, "upa", partitions=partitions, sharing=sharing)
        for name in want:
            try:
                assert_same(got[name], want[name])
            except AssertionError as error:
                raise AssertionError(f"{case.queries[name]}\n{partitions}, {rows}, {sharing}: {error}") from error


class Pipeline:
    """Ticks over one stream with slack, in this process; queries come and go, and the process dies."""

    def __init__(self, case: Any, job: Any, home: Path, partitions: int, sharing: str, declared: str) -> None:
        self.job, self.home, self.partitions, self.sharing = job, home, partitions, sharing
        columns = "ts BIGINT, a BIGINT, x DOUBLE, s VARCHAR, b BOOLEAN"
        catalog = bind_script(f"CREATE STREAM st ({columns}) TIMESTAMP BY ts {declared}", Catalog())
        self.catalog = bind_script("CREATE TABLE k (s VARCHAR, w BIGINT, f BOOLEAN)", catalog)
        self.table, self.stream = case.table, self.catalog.streams["st"]
        self.plans: dict[str, Any] = {}
        self.answers: dict[str, list[pa.Table]] = {}
        self.fresh: list[str] = []
        self.saved: Any = None
        self.store: Store | None = None
        self.open()

    def open(self) -> None:
        self.store = Store.open(str(self.home))
        self.ticker = JobTicker(self.job, self.store, {}, self.partitions, self.sharing)
        self.ticker.add_stream(self.stream)
        self.ticker.set_table("k", self.table)
        if self.saved is not None:
            self.ticker.take_up(self.saved)
        if self.stream.retain is not None:
            self.ticker.add_query(state_reader.kept_plan(self.stream), "upa", retain=self.stream.retain)
        self.fresh = []
        for plan in self.plans.values():
            self.add(plan)
        self.ticker.sharing.settled()
        if self.ticker.sharing.readmitted:
            self.change()

    def crash(self) -> None:
        """Go on in a new process, which knows the home and what was saved with the last change."""
        assert self.store is not None
        self.store.close()
        self.job.memory.attempts.clear()
        self.open()

    def add(self, plan: Any) -> None:
        key, known = plan.name.lower(), self.ticker.has_begun(plan.name)
        self.ticker.add_query(plan, "upa", None if known else self.start(), materialized=True, known=known)
        if not known:
            self.fresh.append(key)

    def start(self) -> int | None:
        marks, frontier = self.ticker.manifest.marks, self.ticker.frontier
        missed = [marks["st"]] if "st" in marks and self.stream.retain is None else []
        return max([*missed, *([frontier] if frontier != BEGINNING else [])], default=None)

    def create(self, name: str, text: str) -> None:
        bound = bind_script(f"CREATE QUERY {name} AS {text}", self.catalog)
        plan = self.plans[name] = optimize(bound.queries[name.lower()], self.catalog)
        empty = answer(plan, Elements.empty(plan.root.schema))
        self.answers[name] = [empty]
        self.add(plan)
        self.change()

    def drop(self, name: str) -> None:
        self.ticker.drop_query(name)
        del self.plans[name]
        self.fresh = [f for f in self.fresh if f != name]
        self.change()

    def change(self) -> None:
        self.saved = self.ticker.sharing.saved()
        self.ticker.commit_catalog(self.ticker.manifest.catalog + 1, {})

    def tick(self, rows: pa.Table, commit: bool = True) -> None:
        feeds = [Feed("st", rows)] if rows.num_rows else []
        owners = {}
        for key in self.fresh:
            query = self.ticker.queries[key]
            owners[query.family if isinstance(query, SharedQuery) else key] = True
        for owner in owners:
            kept = state_reader.kept_rows(
                state_reader.StoredState(self.store.runs, self.ticker.manifest), self.stream, waiting=True
            )
            if kept.num_rows and self.stream.retain is not None:
                feeds.append(Feed("st", kept, owner))
        tick = self.ticker.tick(feeds)
        if not commit:
            return
        self.fresh = []
        self.ticker.commit(tick)
        for name, table in tick.answers.items():
            self.answers[name].append(table)

    def close(self) -> dict[str, pa.Table]:
        assert self.store is not None
        self.store.close()
        return {n: pa.concat_tables(parts) for n, parts in self.answers.items()}


def disordered(r: random.Random, table: pa.Table, slack: int) -> pa.Table:
    """The rows in an order of arrival in which none is late."""
    ts = table.column("ts").to_numpy()
    return table.take(pa.array(np.argsort(ts + np.array([r.randint(0, slack) for _ in ts]), kind="stable")))


def played(case: Any, seed: int, job: Any, home: Path, partitions: int, sharing: str, declared: str, slack: int) -> Any:
    r = random.Random(seed)
    line = Pipeline(case, job, home, partitions, sharing, declared)
    rows = disordered(r, case.stream, slack)
    waiting, here, at = list(case.queries.items()), list[str](), 0
    while at < rows.num_rows or waiting:
        for _ in range(r.choice([0, 1, 1, 2])):
            if waiting:
                name, text = waiting.pop()
                line.create(name, text)
                here.append(name)
        if here and r.random() < 0.2:
            line.drop(here.pop(r.randrange(len(here))))
        if r.random() < 0.2:
            line.crash()
        part = rows.slice(at, r.randint(0, 9))
        if r.random() < 0.2:
            line.tick(part, commit=False)  # the process dies before the manifest
            line.crash()
        line.tick(part)
        at += part.num_rows
    line.tick(pa.table({"ts": [200], **{c: pa.nulls(1, rows.schema.field(c).type) for c in rows.column_names[1:]}}))
    return line.close()


@pytest.mark.parametrize("retain", ["", "RETAIN 8", "RETAIN 80"])
@pytest.mark.parametrize("seed", range(430, 440))
def test_queries_join_and_leave(
    make_case: Callable[[int], Any], seed: int, retain: str, in_process_job: Any, tmp_path: Path
) -> None:
    """Rows out of order, queries that come and go, crashes before and after manifests: the answers of queries alone."""
    case = make_case(seed)
    slack = seed % 4 * 3
    declared = f"WITHIN {slack} {retain}" if slack else retain
    want = played(case, seed, in_process_job(2, chaos=seed), tmp_path / "off", 2, "off", declared, slack)
    for partitions, sharing in ((1, "shards"), (3, "shards"), (2, "slices")):
        home = tmp_path / f"{sharing}{partitions}"
        job = in_process_job(partitions, chaos=seed + partitions)
        got = played(case, seed, job, home, partitions, sharing, declared, slack)
        assert want.keys() == got.keys()
        for name in want:
            try:
                assert_same(got[name], want[name])
            except AssertionError as error:
                raise AssertionError(f"{name}: {case.queries[name]}\n{partitions}, {sharing}: {error}") from error


COLUMNS = {"a": pa.int64(), "x": pa.float64(), "s": pa.string(), "b": pa.bool_()}


def rows(ts: list[int], **columns: list[Any]) -> pa.Table:
    """Rows of the stream; columns that are not given are NULL."""
    given = {c: pa.array(columns.get(c, [None] * len(ts)), t) for c, t in COLUMNS.items()}
    return pa.table({"ts": pa.array(ts, pa.int64()), **given})


@pytest.fixture
def line(make_case: Callable[[int], Any], in_process_job: Any, tmp_path: Path) -> Any:
    """A pipeline of two partitions without queries."""
    return Pipeline(make_case(1), in_process_job(2, chaos=1), tmp_path / "home", 2, "shards", "")


def test_a_query_that_raises_stops_alone(line: Any) -> None:
    """In stage 0 or above the aggregate: it is named with its error, the others go on, and a restart tries it anew."""
    line.create("cast", "SELECT sum(CAST(s AS BIGINT)) AS c FROM st [RANGE 10 SLIDE 5]")
    line.create("high", "SELECT CAST(max(s) AS BIGINT) AS c FROM st [RANGE 10 SLIDE 5]")
    line.create("kept", "SELECT count(*) AS c FROM st [RANGE 10 SLIDE 5] WHERE s > ''")
    line.create("fine", "SELECT sum(a) + 1 AS c FROM st [RANGE 10 SLIDE 5]")
    line.tick(rows([1, 2, 7], a=[1, 2, 3], s=["1", "2", "3"]))
    failed = line.ticker.tick([Feed("st", rows([8, 12], a=[4, 5], s=["x", "5"]))])
    assert set(failed.failed) == {"cast", "high"}
    assert "x" in str(failed.failed["cast"])
    line.ticker.commit(failed)
    assert failed.answers["fine"].to_pydict() == {"_ts": [10], "c": [11]}
    assert failed.answers["kept"].to_pydict() == {"_ts": [10], "c": [4]}
    line.crash()
    assert {"cast", "high"} <= set(line.fresh)
    line.tick(rows([21], a=[6], s=["7"]))
    line.tick(rows([26], a=[6], s=["7"]))
    last = {n: pa.concat_tables(t).to_pylist()[-1] for n, t in line.answers.items()}
    assert last["cast"] == {"_ts": 25, "c": 7}  # from the rows after the restart
    assert last["fine"] == {"_ts": 25, "c": 7}
    line.close()


def test_seats_given_at_a_restart_survive_the_next(line: Any) -> None:
    """A query that had no tick before a crash is seated anew, and finds its entries after another crash."""
    line.create("all", "SELECT count(*) AS c FROM st [RANGE 20 SLIDE 10]")
    line.crash()
    line.tick(rows([1, 2, 3]))
    line.crash()
    line.tick(rows([11]))
    line.crash()
    line.tick(rows([21]))
    assert pa.concat_tables(line.answers["all"]).to_pydict() == {"_ts": [10, 20], "c": [3, 4]}
    line.close()


def test_values_at_the_edge_are_exact(line: Any) -> None:
    """Sums that overflow 64 bits, NaN, infinities, negative zero and NULLs, from several tasks."""
    big = 2**63 - 1
    line.create("total", "SELECT sum(a) AS c, avg(a) AS m FROM st [RANGE 10 SLIDE 10]")
    line.create("nan", "SELECT max(x) AS c, min(x) AS d FROM st [RANGE 10 SLIDE 10] WHERE x > 0 OR x IS NULL")
    line.create("none", "SELECT count(*) AS c, sum(a) AS d FROM st [RANGE 10 SLIDE 10] WHERE x > NULL")
    line.create("zero", "SELECT x, count(*) AS c FROM st [RANGE 10 SLIDE 10] WHERE x = 0 GROUP BY x")
    values = [float("nan"), None, float("inf"), -0.0, 0.0]
    line.tick(rows([1, 2, 3, 4, 5], a=[big, big, big, None, -1], x=values))
    line.tick(rows([11]))
    found = {n: t[1].to_pylist() for n, t in line.answers.items()}
    assert found["total"] == [{"_ts": 10, "c": 3 * big - 1, "m": float(3 * big - 1) / 4}]
    assert repr(found["nan"]) == repr([{"_ts": 10, "c": float("nan"), "d": float("inf")}])
    assert found["none"] == [{"_ts": 10, "c": 0, "d": None}]
    assert found["zero"] == [{"_ts": 10, "x": 0.0, "c": 2}]
    line.close()


def test_groups_stay_where_they_are(line: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100,000 groups only the answers come to the driver, and each from one partition."""
    line.create("many", "SELECT a, count(*) AS n, max(x) AS x FROM st [RANGE 20 SLIDE 10] GROUP BY a")
    line.create(
        "few", "SELECT a, count(*) AS n FROM st [RANGE 20 SLIDE 10] WHERE x > 0.5 GROUP BY a HAVING count(*) > 2"
    )
    kinds: list[list[Envelope]] = []
    run = line.job.run
    monkeypatch.setattr(line.job, "run", lambda *given: kinds.append(run(*given)) or kinds[-1])
    groups = 100_000
    key = np.arange(2 * groups) % groups
    x = np.random.default_rng(1).random(2 * groups)
    line.tick(rows((1 + np.arange(2 * groups) * 8 // (2 * groups)).tolist(), a=key.tolist(), x=x.tolist()))
    line.tick(rows([15], a=[7], x=[0.9]))
    answer = line.answers["many"][1]
    assert answer.num_rows == groups
    assert set(answer["n"].to_pylist()) == {2}
    best = np.maximum(x[:groups], x[groups:])
    assert np.array_equal(answer.sort_by("a")["x"].to_numpy(), best)
    assert line.answers["few"][1:] == []
    assert {type(e.message) for e in kinds[-1]} <= {SharedAnswer, TaskReport}
    line.close()


def test_changes_across_groups_run_alone(line: Any) -> None:
    """Differences that do not show the keys need all groups in one place; with the keys they share."""
    line.create("apart", "SELECT ISTREAM(count(*) AS n) FROM st [RANGE 20 SLIDE 10] GROUP BY a")
    line.create("shown", "SELECT ISTREAM(a, count(*) AS n) FROM st [RANGE 20 SLIDE 10] GROUP BY a")
    line.create("alike", "SELECT DISTINCT a % 2 AS n FROM st [RANGE 20 SLIDE 10] GROUP BY a")
    assert list(line.ticker.sharing.served) == ["shown"]
    assert line.ticker.sharing.reasons["apart"] == "what it does with its groups needs them in one place"
    line.tick(rows([1, 2, 3, 4], a=[1, 2, 3, 3]))
    line.tick(rows([11, 12], a=[1, 2]))
    line.tick(rows([21], a=[1]))
    found = {n: sorted(map(tuple, map(dict.values, pa.concat_tables(t).to_pylist()))) for n, t in line.answers.items()}
    assert found["apart"] == [(10, 1), (10, 1), (10, 2), (20, 2), (20, 2)]
    assert found["shown"] == [(10, 1, 1), (10, 2, 1), (10, 3, 2), (20, 1, 2), (20, 2, 2)]
    assert found["alike"] == [(10, 0), (10, 1), (20, 0), (20, 1)]
    line.close()


def test_a_change_that_fails_seats_everybody_as_before(line: Any) -> None:
    """Queries that joined are gone, those that left are back with their windows."""
    line.create("old", "SELECT count(*) AS c FROM st [RANGE 10 SLIDE 10]")
    line.tick(rows([1, 2]))
    token, queries = line.ticker.sharing.token("old"), dict(line.ticker.queries)
    manifest, plan = line.ticker.manifest, line.plans["old"]
    line.ticker.drop_query("old")
    line.ticker.add_query(plan, "upa", 1)
    line.ticker.sharing.remove("old")
    line.ticker.sharing.reinstate(token)
    line.ticker.queries, line.ticker.manifest = queries, manifest
    line.tick(rows([3, 11]))
    assert line.answers["old"][-1].to_pydict() == {"_ts": [10], "c": [3]}
    line.close()


@pytest.mark.spark
def test_another_technique_is_another_home(tmp_path: Path, spark: Any) -> None:
    """A home that was written with sharing is not opened without it."""
    home = str(tmp_path / "home")
    with windrow.Engine(home=home, spark=spark) as engine:
        engine.execute("CREATE STREAM st (ts BIGINT) TIMESTAMP BY ts")
    with pytest.raises(WindrowError, match="written with sharing auto"):
        windrow.Engine(home=home, spark=spark, sharing="off")
