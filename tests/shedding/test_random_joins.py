"""Random joins that shed: a part of the exact answer, all of it where memory is roomy, the same however it is made."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import windrow
from windrow.engine.replay import Replay
from windrow.testing import assert_same, oracle, seeded_case, typed_case
from windrow.testing.bags import grouping_key
from windrow.testing.random_shed import SHED_BY
from windrow.testing.strategies import Case

GROUP = 20


def answered(case: Case, **way: Any) -> pa.Table:
    return windrow.run(case.script, case.streams, case.tables, runtime="local", until=case.until, **way)["q1"]


def roomy(case: Case) -> Case:
    """The case with memory for all rows there are."""
    script = re.sub(r"KEEP \d+ ROWS( EACH| BY NEED)?", "KEEP 1000 ROWS EACH", case.script)
    return case._replace(script=script)


def contents(log: pa.Table) -> dict[int, Counter[Any]]:
    """What a relation is from each instant of its log on."""
    found: dict[int, Counter[Any]] = {}
    now: Counter[Any] = Counter()
    instants = log["_ts"].cast(pa.int64()).to_pylist()
    for ts, op, *row in zip(instants, *(c.to_pylist() for c in log.columns[1:]), strict=True):
        now[grouping_key(tuple(row))] += op
        found[ts] = Counter(now)
    return found


def part_of(less: pa.Table, more: pa.Table) -> bool:
    """Whether a relation is at every instant a part of another."""
    ours, theirs = contents(less), contents(more)
    some, every = Counter[Any](), Counter[Any]()
    for ts in sorted({*ours, *theirs}):
        some, every = ours.get(ts, some), theirs.get(ts, every)
        if not some <= every:
            return False
    return True


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("first", range(0, 40, GROUP))
def test_a_join_that_sheds_keeps_its_promises(first: int, typed: bool) -> None:
    """A relation is a part of the exact one at every instant; nothing is missing where all rows have room."""
    shed = 0
    for seed in range(first, first + GROUP):
        case = (typed_case if typed else seeded_case)(seed, shapes=("shed",))
        want = oracle(*case._replace(script=case.script.partition(SHED_BY)[0]))["q1"]
        got = answered(case)
        assert "_op" not in want.column_names or part_of(got, want), case.script
        assert_same(answered(roomy(case)), want)
        assert_same(answered(case, batch_rows=1 + seed % 5), got)
        shed += got.num_rows < want.num_rows
    assert shed


def test_where_a_join_that_sheds_runs_makes_no_difference(in_process_job: Any, tmp_path: Path) -> None:
    """Its memory is one, in whatever partition and process, and over restarts."""
    for seed in range(60, 72):
        case = seeded_case(seed, shapes=("shed",))
        replay = Replay.of(case.script, case.streams, case.tables, case.until, strategy="upa")
        home, job = str(tmp_path / str(seed)), in_process_job(2, chaos=seed)
        assert_same(replay.in_home(home, job, 5, "upa", partitions=1 + seed % 3)["q1"], answered(case))
