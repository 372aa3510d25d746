"""`run` on Spark: rows of paths and tables reach tasks by files, and the answers are those of this process."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import windrow
from windrow import cql
from windrow.catalog import Catalog, FunctionDef
from windrow.engine.replay import Replay
from windrow.engine.replay_input import working_place
from windrow.errors import SourceError, WindrowError
from windrow.sources.bounded import SourceNow
from windrow.spark import job
from windrow.spark.job import SparkJob

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

SCRIPT = """
CREATE STREAM s (ts BIGINT, k BIGINT, x DOUBLE) TIMESTAMP BY ts WITHIN 5;
CREATE QUERY sums AS SELECT k, SUM(x) AS total FROM s [RANGE 20 SLIDE 10] GROUP BY k;
CREATE QUERY pairs AS SELECT ISTREAM(a.x, b.y) FROM s [RANGE 3] a, r [RANGE 3] b WHERE a.k = b.k
"""


def streams() -> dict[str, pa.Table]:
    rng = np.random.default_rng(7)
    ts = np.arange(3000) // 3 + rng.integers(-4, 4, 3000)  # some of them are late
    s = pa.table({"ts": ts, "k": rng.integers(0, 9, 3000), "x": rng.integers(0, 50, 3000) / 2})
    r = pa.table({"ts": np.sort(rng.integers(0, 1000, 500)), "k": rng.integers(0, 9, 500), "y": np.arange(500)})
    return {"s": s, "r": r}


def same(got: Any, want: Any) -> None:
    for name in want:
        order = [(c, "ascending") for c in want[name].column_names]
        assert got[name].sort_by(order).equals(want[name].sort_by(order)), name
    assert {k: t.to_pylist() for k, t in got.late.items()} == {k: t.to_pylist() for k, t in want.late.items()}


@pytest.mark.filterwarnings("ignore::windrow.engine.replay.LateRowsWarning")
def test_paths_and_tables_reach_tasks_by_files(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that tasks read, a table that they map: no rows are packed for the JVM."""
    monkeypatch.setattr(job, "encode_table", lambda table: pytest.fail("rows went through the driver"))
    rows = streams()
    want = windrow.run(SCRIPT, rows, runtime="local")
    assert sum(t.num_rows for t in want.late.values())
    same(windrow.run(SCRIPT, rows, spark=spark, batch_rows=1100), want)
    for form in ("parquet", "csv"):
        (tmp_path / form).mkdir()
        for n in range(3):
            part = rows["s"].slice(n * 1000, 1000)
            if form == "parquet":
                parquet.write_table(part, tmp_path / form / f"{n}.parquet", row_group_size=300)
            else:
                csv.write_csv(part, tmp_path / form / f"{n}.csv")
        same(windrow.run(SCRIPT, {"s": str(tmp_path / form), "r": rows["r"]}, spark=spark, batch_rows=1100), want)


@pytest.mark.filterwarnings("ignore::windrow.engine.replay.LateRowsWarning")
def test_ticks_of_the_driver_and_of_tasks_go_on_from_each_other(spark: Any, tmp_path: Path) -> None:
    """State moves between a process that has all partitions and those that have one each."""

    class TurnsJob(SparkJob):
        small_in_one, turns = True, 0

        def in_one(self, feeds: Any, program: Any) -> bool:
            self.turns += 1
            return super().in_one(feeds, program) and self.turns % 3 != 0

    rows = streams()
    turning = TurnsJob(spark)
    got = Replay.of(SCRIPT, rows, {}).in_home(str(tmp_path), turning, 500)
    assert turning.turns > 4
    same(got, windrow.run(SCRIPT, rows, runtime="local"))


@pytest.mark.filterwarnings("ignore::windrow.engine.replay.LateRowsWarning")
@pytest.mark.parametrize("functions", [{}, {"half": FunctionDef("half", lambda x: x, pa.float64())}])
def test_small_ticks_are_no_jobs_unless_functions_are_called(
    spark: Any, tmp_path: Path, functions: dict[str, FunctionDef], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver does them; with functions of the program one task does."""
    monkeypatch.setattr("windrow.engine.functions._registered", {})
    jobs: list[bool] = []

    class SmallJob(SparkJob):
        small_in_one = True

        def _on_spark(self, feeds: Any, program: Any, stages: int) -> Any:
            jobs.append(program.in_one)
            return super()._on_spark(feeds, program, stages)

    rows = streams()
    got = Replay.of(SCRIPT, rows, {}, functions=functions).in_home(str(tmp_path), SmallJob(spark), 1500)
    assert bool(jobs) == bool(functions)
    assert all(jobs)
    same(got, windrow.run(SCRIPT, rows, runtime="local"))


def test_what_a_file_lacks_is_said_as_in_process(spark: Any, tmp_path: Path) -> None:
    """An error in a task names stream and column."""
    parquet.write_table(pa.table({"ts": [1], "k": ["a"], "x": [1.0]}), tmp_path / "s.parquet")
    script = "CREATE STREAM s (ts BIGINT, k BIGINT, x DOUBLE) TIMESTAMP BY ts; SELECT k FROM s"
    with pytest.raises(SourceError, match='stream "s": column "k", row 1'):
        windrow.run(script, {"s": str(tmp_path / "s.parquet")}, spark=spark)


def test_a_tick_whose_tasks_were_counted_has_as_many(spark: Any) -> None:
    """Whoever divides a quota between tasks finds that many; the next tick is one task again."""
    counting, program = SparkJob(spark), SimpleNamespace(state_bytes=0)
    counting.small_in_one = True
    assert counting.in_one([], program)  # type: ignore[arg-type]
    counting.tasks({})
    assert [counting.in_one([], program) for _ in range(2)] == [False, True]  # type: ignore[arg-type]


def test_a_replay_on_a_cluster_needs_a_folder(tmp_path: Path) -> None:
    """One that everybody reaches; what lies there is gone at the end, also of a replay that fails."""
    refused = pytest.raises(WindrowError, match="needs a folder that the driver and all executors reach")
    with refused as told, working_place(None, "spark://head:7077"):
        pass
    assert "home=" in (told.value.hint or "")
    for error in (None, ValueError()):
        with contextlib.suppress(ValueError), working_place(tmp_path, "yarn") as place:
            place.write("input/a", b"x")
            assert len(list(tmp_path.iterdir())) == 1
            if error is not None:
                raise error
        assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore::windrow.engine.replay.LateRowsWarning")
@pytest.mark.parametrize("form", ["parquet", "json"])
def test_what_a_source_has_now_is_read_by_tasks(spark: Any, tmp_path: Path, form: str) -> None:
    """As by this process, rows that come late and those that are malformed too; nothing is left in the given home."""
    rows = streams()["s"]
    (tmp_path / "in").mkdir()
    for n in range(3):
        path = tmp_path / "in" / f"{n}.{form}"
        if form == "parquet":
            parquet.write_table(rows.slice(n * 1000, 1000), path, row_group_size=100)
        else:
            told = (json.dumps(row) for row in rows.slice(n * 1000, 1000).to_pylist())
            path.write_text("\n".join([*told, '{"ts": "soon"}']))
        os.utime(path, (n, n))
    script = f"""
        CREATE STREAM s (ts BIGINT, k BIGINT, x DOUBLE) TIMESTAMP BY ts WITHIN 5 ON ERROR QUARANTINE
        FROM {form} (path => '{tmp_path}/in', max_files => 2);
        CREATE QUERY q AS SELECT k, COUNT(*) AS n FROM s [RANGE 20 SLIDE 10] WHERE k < 5 GROUP BY k
    """
    statement, _ = cql.parse(script)
    bound = cql.bind(statement, Catalog())
    assert isinstance(bound, cql.Create)
    given = {"s": SourceNow.of(bound.definition)}
    with pytest.warns(UserWarning) if form == "json" else contextlib.nullcontext():
        want = windrow.run(script, given, runtime="local")
        got = windrow.run(script, given, spark=spark, batch_rows=900, home=str(tmp_path / "home"))
    same(got, want)
    assert got.quarantine["s"].equals(want.quarantine["s"])
    assert len(want.late["s"]) and not list((tmp_path / "home").iterdir())


@pytest.mark.parametrize("partitions", [1, 2])
def test_stages_of_frames(spark: Any, monkeypatch: pytest.MonkeyPatch, partitions: int) -> None:
    """As on a cluster, by `repartitionById`: rows of one partition are exchanged once, others before every stage."""
    exchanged: list[int] = []
    stages: list[int] = []
    frame, by_frames = type(spark.range(1)), SparkJob._by_frames
    exchange = frame.repartitionById
    monkeypatch.setattr(job, "_ONE_MACHINE", re.compile("none"))
    monkeypatch.setattr(SparkJob, "small_in_one", False)
    monkeypatch.setattr(SparkJob, "wake", lambda job: None)
    monkeypatch.setattr(frame, "repartitionById", lambda *given: exchanged.append(given[1]) or exchange(*given))
    monkeypatch.setattr(SparkJob, "_by_frames", lambda *given: stages.append(given[-1]) or by_frames(*given))
    found = {}
    for name, given in (("local", {}), ("spark", {"spark": spark, "partitions": partitions})):
        with windrow.Engine(runtime=name, **given) as engine:
            engine.execute("CREATE STREAM r (ts BIGINT, k BIGINT, y BIGINT) TIMESTAMP BY ts;" + SCRIPT)
            engine.start()
            for stream, table in streams().items():
                engine.push(stream, table)
            engine.advance(2000)
            found[name] = {q: engine[q].results() for q in ("sums", "pairs")}
    for query, want in found["local"].items():
        order = [(c, "ascending") for c in want.column_names]
        assert found["spark"][query].sort_by(order) == want.sort_by(order)
    assert max(stages) > 1
    assert exchanged == [partitions] * (len(stages) if partitions == 1 else sum(stages))
