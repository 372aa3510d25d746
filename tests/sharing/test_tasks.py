"""Sharing in the tasks of the Spark runtime, without a JVM: the unshared answers, whatever happens around them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from windrow.catalog import Catalog
from windrow.local.circuit import answer
from windrow.operators.elements import BEGINNING, Elements
from windrow.optimize import optimize
from windrow.replay import Replay, bind_script
from windrow.spark import stage, view
from windrow.spark.bounded import run_on
from windrow.spark.job import Feed
from windrow.spark.roster import SharedProgram
from windrow.spark.store import Store
from windrow.spark.tick import Ticker
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
        got = run_on(job, str(tmp_path / str(number)), replay, rows, "upa", partitions, sharing=sharing)
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
        self.ticker = Ticker(self.job, self.store, {}, self.partitions, self.sharing)
        self.ticker.streams["st"] = self.stream
        self.ticker.set_table("k", self.table)
        if self.saved is not None:
            self.ticker.sharing.take_up(self.saved)
        if self.stream.retain is not None:
            self.ticker.add_query(view.kept_plan(self.stream), "upa", retain=self.stream.retain)
        self.fresh = []
        for plan in self.plans.values():
            self.add(plan)
        self.ticker.sharing.settled()

    def crash(self) -> None:
        """Go on in a new process, which knows the home and what was saved with the last change."""
        assert self.store is not None
        self.store.close()
        stage._held.clear()
        self.open()

    def add(self, plan: Any) -> None:
        key, manifest = plan.name.lower(), self.ticker.manifest
        known = key in manifest.clocks or key in manifest.extra.get("firsts", {})
        self.ticker.add_query(plan, "upa", None if known else self.start(), standing=True, known=known)
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
            owners[query.family if isinstance(query, SharedProgram) else key] = True
        for owner in owners:
            kept = view.kept_rows(self.store, self.ticker.manifest, self.stream, waiting=True)
            if kept.num_rows and self.stream.retain is not None:
                feeds.append(Feed("st", kept, owner))
        tick = self.ticker.run(feeds)
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
