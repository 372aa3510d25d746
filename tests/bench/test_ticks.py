"""`windrow bench ticks`: it measures every part, and its tools measure what they say."""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from windrow.cli.trades import trades
from windrow_bench.pipes import Feed, disk, memory
from windrow_bench.ticks import PARTS, Sizes, main, run

TINY = Sizes(rows=(500, 40_000), queries=(1, 3), ticks=2, window=5_000, join_rows=500, churn=2, lengths=3)


def test_trades_join_up() -> None:
    """Trades of neighbouring stretches are in order, inside their stretch, and continue each other's prices."""
    first, second = trades(5000, 0, 1_000_000, 1), trades(5000, 1_000_000, 2_000_000, 2)
    both = pa.concat_tables([first, second])
    ts = both.column("ts").cast(pa.int64()).to_numpy()
    assert (ts[1:] >= ts[:-1]).all()
    assert ts[4999] < 1_000_000 <= ts[5000]
    acme = [t.filter(pa.compute.equal(t["symbol"], "ACME")).column("price").to_numpy().mean() for t in (first, second)]
    assert abs(acme[0] - acme[1]) < 0.01 * acme[0]


def test_feed_orders_files(tmp_path: Path) -> None:
    """Files appear whole, each with a later time of change than the one before."""
    feed = Feed(tmp_path / "in")
    for n in range(3):
        feed.put(pa.table({"n": [n]}))
    files = sorted((tmp_path / "in").iterdir(), key=lambda f: f.stat().st_mtime_ns)
    assert [parquet.read_table(f)["n"][0].as_py() for f in files] == [0, 1, 2]
    assert len({f.stat().st_mtime_ns // 1_000_000 for f in files}) == 3
    assert disk(tmp_path) == sum(f.stat().st_size for f in files)


def test_memory_sees_this_process() -> None:
    """The driver is this process; what is not there counts nothing."""
    used = memory()
    assert used["driver"] > 10_000_000


def test_help_names_the_parts(capsys: pytest.CaptureFixture[str]) -> None:
    """--help says what can be chosen."""
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    assert all(part in said for part in PARTS)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_all_parts() -> None:
    """Every part measures its points and gives the ratios that have a target."""
    options = argparse.Namespace(parts=["start", *PARTS], master="local[2]", quick=True, repeat=1, seed=1)
    found = run(options, TINY)
    assert {r["part"] for r in found.rows} == {"start", "recovery", *PARTS}
    assert all(r.get("tick_ms", 1) > 0 for r in found.rows)
    names = " | ".join(r.name for r in found.ratios)
    for part in ("first answer", "one aggregate / bare", "join tick", "added and dropped", "disk", "driver", "workers"):
        assert part in names
    assert all(r.value > 0 for r in found.ratios)
    assert {f.name for f in found.figures} == {"rows", "queries", "churn", "long"}
