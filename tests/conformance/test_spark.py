"""The product equals the definition: random cases on Spark against the local answer and the oracle.

A tick costs the same however many queries it serves, so many cases, each with streams and tables of its own names,
share one replay.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

import windrow
from windrow.engine.replay import Replay
from windrow.spark.job import SparkJob
from windrow.testing import assert_same, oracle, seeded_case
from windrow.testing.strategies import TICKS, TIMESTAMPS

pytestmark = pytest.mark.spark

GROUP, GROUPS = 20, 3
WAYS = ((1, 150, "upa"), (2, None, "upa"), (3, 110, "upa"))
"""(partitions, rows per batch, strategy), none of which may change an answer."""


def combined(seeds, clock):
    """Cases as one script over one set of data; the clock of each runs on its own streams."""
    script, streams, tables = [], {}, {}
    for seed in seeds:
        case = seeded_case(seed, clock)
        *declared, query = case.script.split(";\n")
        script += [re.sub(r"\b([STUPV])\b", rf"\g<1>{seed}", d) for d in declared]
        script.append(f"CREATE QUERY q{seed} AS " + re.sub(r"\b([STUPV])\b", rf"\g<1>{seed}", query).rstrip(";"))
        streams |= {f"{n}{seed}": t for n, t in case.streams.items()}
        tables |= {f"{n}{seed}": t for n, t in case.tables.items()}
    return ";\n".join(script), streams, tables


@pytest.mark.parametrize("group", range(GROUPS))
def test_random_cases_equal_the_local_answer(group, spark, tmp_path):
    """Three numbers of partitions and three splits into batches, with exchanges and in one task: one answer."""
    first = 9000 + group * GROUP
    script, streams, tables = combined(range(first, first + GROUP), TIMESTAMPS if group % 3 == 2 else TICKS)
    want = windrow.run(script, streams, tables, runtime="local")
    if group == 0:
        for name, answer in oracle(script, streams, tables).items():
            assert_same(want[name], answer)
    for number, (partitions, rows, strategy) in enumerate(WAYS):
        replay = Replay.of(script, streams, tables, strategy=strategy)
        job = SparkJob(spark)
        job.small_in_one = (group + number) % 2 == 0
        got = replay.in_home(str(tmp_path / str(number)), job, rows, strategy, partitions=partitions)
        for name in want:
            try:
                assert_same(got[name], want[name])
            except AssertionError as error:
                raise AssertionError(f"{name}, {partitions} partitions, batches of {rows}: {error}") from error


def test_every_arrow_type_survives(spark):
    """Columns come back as they went in, though Spark has no type for some of them."""
    types = {
        "small": pa.array([1, 2, None], pa.uint8()),
        "big": pa.array([1, 2**63 + 1, None], pa.uint64()),
        "exact": pa.array([1, None, -3], pa.decimal128(38, 4)),
        "day": pa.array([0, 1, None], pa.date32()),
        "clock": pa.array([0, 1, None], pa.time64("us")),
        "list": pa.array([[1, 2], None, []], pa.list_(pa.int32())),
        "bytes": pa.array([b"a", None, b""], pa.binary()),
    }
    rows = pa.table({**types, "ts": [1, 2, 3]})
    script = f"SELECT {', '.join(types)} FROM S [RANGE 2]"
    want = windrow.run(script, {"S": rows}, runtime="local")["q1"]
    got = windrow.run(script, {"S": rows}, runtime="spark", spark=spark)["q1"]
    assert_same(got, want)
    assert got.schema.types == want.schema.types


def test_functions_with_closures_reach_the_workers(spark):
    """A function that is defined in a test, with a value from around it, runs in another process."""
    limit = 2
    windrow.function("above", lambda a: pa.compute.greater(a, limit), returns="boolean")
    rows = {"S": pa.table({"a": [1, 2, 3, 4], "ts": [1, 2, 3, 4]})}
    script = "SELECT COUNT(*) AS n FROM S [RANGE 3] WHERE above(a)"
    assert_same(windrow.run(script, rows, spark=spark)["q1"], windrow.run(script, rows, runtime="local")["q1"])


def test_an_empty_stream_has_an_empty_answer(spark):
    """No rows, no clock: nothing runs, and the answer has its columns."""
    rows = {"S": pa.table({"a": pa.array([], pa.int64()), "ts": pa.array([], pa.int64())})}
    got = windrow.run("SELECT COUNT(*) AS n FROM S [RANGE 3]", rows, spark=spark)["q1"]
    assert got.num_rows == 0
    assert got.column_names == ["_ts", "_op", "n"]
