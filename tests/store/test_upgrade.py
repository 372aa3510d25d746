"""Homes of an older format: kept as they were written, opened by this version, or refused with the way out."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests import kept_home

import windrow
from windrow.errors import StateError
from windrow.operators.state.run import Run
from windrow.store.sealed import FORMAT
from windrow.store.store import Store
from windrow.testing import assert_same

FIXTURES = Path(__file__).parents[1] / "fixtures"
QUERIES = {
    "joined": "SELECT a.k, b.v FROM s [RANGE 15] a, s [RANGE 15] b WHERE a.k = b.k AND a.v < b.v",
    "unique_keys": "SELECT DISTINCT k, names.name FROM s [RANGE 30], names WHERE s.k = names.id",
    "newest": "SELECT k, v FROM s [PARTITION BY k ROWS 3]",
}


LATER = {
    "joined": QUERIES["joined"],
    "minutes": "SELECT k, COUNT(*) AS n, SUM(v) AS total FROM s [RANGE 30 SLIDE 10] GROUP BY k",
    "hours": "SELECT COUNT(*) AS n, MAX(v) AS most FROM s [RANGE 60 SLIDE 20] WHERE k > 1",
    "newest": QUERIES["newest"],
}
DECLARED = "CREATE STREAM s (k BIGINT, v DOUBLE, ts BIGINT) TIMESTAMP BY ts WITHIN 2;"


def rows(number: int) -> pa.Table:
    """The rows of a file, as those of the kept home were made."""
    rng = np.random.default_rng(number)
    ts = np.sort(rng.integers(number * 50, (number + 1) * 50, 40))
    k, v = rng.integers(0, 4, 40), rng.integers(0, 100, 40).astype(float)
    return pa.table({"k": k, "v": v, "ts": ts})


def arrive(numbers: tuple[int, ...]) -> None:
    """Let files with the rows of these numbers appear."""
    for number in numbers:
        pq.write_table(rows(number), f"landing/.{number}")
        Path(f"landing/.{number}").rename(f"landing/{number:03d}.parquet")


def unpacked(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kept home, in a directory that is the current one."""
    with zipfile.ZipFile(FIXTURES / name) as archive:
        archive.extractall(folder)
    monkeypatch.chdir(folder)


@pytest.mark.parametrize("partitions", [None, 1, 3])
def test_a_home_of_format_2_goes_on(partitions: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written by Spark in two partitions, opened in process: no row is read twice or lost, windows are full."""
    unpacked("home-format-2.zip", tmp_path, monkeypatch)
    with windrow.Engine("local", home="home", partitions=partitions) as engine:
        assert engine.status()["partitions"] == (partitions or 2)
        assert set(engine.catalog.queries) == set(QUERIES)
        for query in QUERIES:
            engine.sink(query, "parquet", path="out")
        engine.start()
        engine.drain()
        arrive((3, 4))
        engine.drain()
        frontier = engine.status()["frontier"]
    streams = {"s": pa.concat_tables([rows(n) for n in range(5)])}
    script = DECLARED + ";".join(f"CREATE QUERY {n} AS {q}" for n, q in QUERIES.items())
    tables = {"names": pa.table({"id": [0, 1, 2], "name": ["a", "b", "c"]})}
    want = windrow.run(script, streams, tables, "local", until=frontier)
    for query in QUERIES:
        before = pq.read_table(f"answers/{query}.parquet")
        after = [pq.read_table(f"out/{query}")] if Path(f"out/{query}").exists() else []
        assert after or query == "unique_keys"
        assert_same(pa.concat_tables([before, *(t.cast(before.schema) for t in after)]).sort_by("_ts"), want[query])
    with windrow.Engine("local", home="home") as engine:  # now it is a home of this format
        assert engine.runtime.store.format == FORMAT


@pytest.mark.parametrize("partitions", [None, 3])
def test_a_home_of_format_3_goes_on(partitions: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left by an earlier version between two files, with aggregates that share: what follows fits what was answered."""
    unpacked("home-format-3.zip", tmp_path, monkeypatch)
    with windrow.Engine("local", home="home", partitions=partitions) as engine:
        for query in LATER:
            engine.sink(query, "parquet", path="home-answers")
        engine.start()
        arrive((3, 4))
        engine.drain()
        frontier = engine.status()["frontier"]
        assert engine.runtime.store.format == FORMAT  # an older version refuses it from now on
    assert json.loads(Path("home/format.json").read_text())["format"] == FORMAT
    streams = {"s": pa.concat_tables([rows(n) for n in range(5)])}
    script = DECLARED + ";".join(f"CREATE QUERY {n} AS {q}" for n, q in LATER.items())
    want = windrow.run(script, streams, runtime="local", until=frontier)
    for query in LATER:
        assert_same(pq.read_table(f"home-answers/{query}").sort_by("_ts"), want[query])


@pytest.mark.parametrize(
    ("runtime", "partitions"),
    [("local", None), ("local", 1), ("local", 3), pytest.param("spark", None, marks=pytest.mark.spark)],
)
@pytest.mark.parametrize("home", kept_home.HOMES)
def test_a_home_of_format_4_goes_on(
    home: str,
    runtime: str,
    partitions: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """Some of everything, closed after two parts: what follows is what a home that was never closed answers."""
    spark = request.getfixturevalue("spark") if runtime == "spark" else None
    unpacked("home-format-4.zip", tmp_path / "kept", monkeypatch)
    with kept_home.opened(home, runtime, spark=spark, partitions=partitions) as engine:
        left = engine.status()["frontier"]
        engine.start()
        got = gone_on(engine, home, left)
    (tmp_path / "whole").mkdir()
    monkeypatch.chdir(tmp_path / "whole")
    with kept_home.opened(home) as engine:
        kept_home.declare(engine, home)
        for part in range(kept_home.PARTS):
            kept_home.bring(engine, home, part)
        assert engine.status()["frontier"] == left
        want = gone_on(engine, home, left)
    for sink in ("sums/sums", "away/named") if home == "home" else ():  # one of them had got nothing
        got[sink], want[sink] = (pq.read_table(tmp_path / each / sink) for each in ("kept", "whole"))
    for name, table in want.items():
        assert table.num_rows, name
        if "_op" in table.column_names:
            assert_same(got[name], table)
        else:
            assert _sorted(got[name]) == _sorted(table), name


def gone_on(engine: windrow.Engine, home: str, left: int) -> dict[str, pa.Table]:
    """What a home answers to two parts more, and what else can be read of it."""
    for part in range(kept_home.PARTS, kept_home.PARTS + 2):
        kept_home.bring(engine, home, part)
    groups = [] if home == "in-time" else ["alerts", "watched", "ruled"]
    answers = {name: engine[name].results() for name in [*engine.catalog.queries, *groups]}
    found = {name: table.filter(pc.field("_ts") > left) for name, table in answers.items()}
    found["late"] = engine.late("s")
    if home == "home":
        found["malformed"] = engine.quarantine("f").select(["position", "reason", "text"])
        found["archived"] = engine.archive("recent").scan()
        found["retained"] = engine.ask("SELECT k, COUNT(*) AS n FROM f [RANGE 55] GROUP BY k")
        found["kept"] = engine["chained"].results(since=0)
        found["tables"] = engine.ask("SELECT id, name, band FROM names, bands WHERE id = k")
    return found


@pytest.mark.parametrize(
    ("kept", "names"),
    [
        pytest.param("home-format-2-shared.zip", "alert", id="aggregates that shared in format 2"),
        pytest.param("home-format-3.zip", "alert0, alert1, alert2", id="continuous queries that shared before shapes"),
    ],
)
def test_what_cannot_be_read_is_refused_untouched(
    kept: str, names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of queries that shared is not read: the message names them, and nothing is written."""
    unpacked(kept, tmp_path, monkeypatch)
    before = {p: p.read_bytes() for p in Path("shared").rglob("*") if p.is_file()}
    with pytest.raises(StateError, match="older version") as caught:
        windrow.Engine("local", home="shared")
    assert names in str(caught.value) and "create them again" in str(caught.value)
    assert {p: p.read_bytes() for p in Path("shared").rglob("*") if p.is_file() and p.name != "lock"} == before


def test_members_of_shared_plans_go_on(tmp_path: Path) -> None:
    """A home whose manifests named the members of shared plans, and a clock for each: all of them go on together."""
    filters = {f"f{i}": f"SELECT k, v FROM s [RANGE 15] WHERE v > {10 * i}" for i in range(4)}
    counts = {f"g{i}": f"SELECT k, COUNT(*) AS n FROM s [RANGE 20] GROUP BY k HAVING COUNT(*) > {i}" for i in range(3)}
    with zipfile.ZipFile(FIXTURES / "home-format-3-plans.zip") as archive:
        archive.extractall(tmp_path)
    for number in (2, 3):  # as it was left, and as this version leaves it
        with windrow.Engine("local", home=tmp_path / "home") as engine:
            engine.start()
            engine.push("s", rows(number))
            engine.drain()
            manifest = engine.runtime.ticker.manifest
            assert sorted(manifest.clocks) == ["*1", "*2"]
            assert not any("members" in plan for plan in manifest.plans.values() if isinstance(plan, dict))
            found = {q: engine[q].snapshot() for q in (*filters, *counts, "f4")}
    queries = filters | counts | {"f4": "SELECT k, v FROM s [RANGE 15] WHERE v > 45"}
    with windrow.Engine("local", sharing="off") as alone:
        alone.execute("CREATE STREAM s (k BIGINT, v DOUBLE, ts BIGINT) TIMESTAMP BY ts")
        alone.execute(";".join(f"CREATE QUERY {n} AS {q}" for n, q in queries.items()))
        alone.start()
        for number in range(4):
            alone.push("s", rows(number))
        alone.drain()
        for query, snapshot in found.items():
            order = [(c, "ascending") for c in snapshot.column_names]
            assert snapshot.sort_by(order).equals(alone[query].snapshot().sort_by(order)), query


@pytest.mark.parametrize("runtime", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_nothing_is_deleted_of_a_home_that_is_refused(
    runtime: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Not even what no manifest names: that goes when the home has been opened."""
    spark = request.getfixturevalue("spark") if runtime == "spark" else None
    home = tmp_path / "home"
    with windrow.Engine(runtime, home=home, spark=spark) as engine:
        engine.execute(f"{DECLARED} CREATE QUERY q AS SELECT k FROM s [RANGE 30]")
        engine.start()
        engine.push("s", rows(0))
        engine.drain()
    with Store.open(home) as store:
        newest = store.latest()
        assert newest is not None
        (orphan,) = store.runs.write(("gone", 0), newest.tick, [Run(rows(1))])
    left = _files(home)
    with pytest.raises(StateError, match="strategy"):
        windrow.Engine(runtime, home=home, spark=spark, strategy="negative")
    assert orphan.path in left and _files(home) == left
    windrow.Engine(runtime, home=home, spark=spark).stop()
    assert orphan.path not in _files(home)


def _sorted(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


def _files(home: Path) -> dict[str, bytes]:
    found = {str(p.relative_to(home)): p.read_bytes() for p in home.rglob("*") if p.is_file()}
    return {name: data for name, data in found.items() if name != "lock"}
