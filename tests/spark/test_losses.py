"""Python workers that are killed: the tick is computed again, and if that does not help, what happened is said."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import windrow
from windrow.errors import RuntimeFailure, WindrowError
from windrow.spark import collecting
from windrow.testing import assert_same

pytestmark = pytest.mark.spark

SCRIPT = """
    CREATE STREAM s (ts BIGINT, k BIGINT) TIMESTAMP BY ts RETAIN 100;
    CREATE QUERY q AS SELECT k, COUNT(*) AS n FROM s [RANGE 5] WHERE perilous(k) GROUP BY k;
    CREATE QUERY calm AS SELECT k FROM s [RANGE 5];
"""
ROWS = pa.table({"ts": list(range(1, 40)), "k": [i % 4 for i in range(1, 40)]})


def perilous(folder: Path, times: int) -> None:
    """Register a function that ends its worker, as a machine short of memory would, so many times."""
    marks = str(folder)

    def fn(k: pa.Array) -> pa.Array:
        import os
        import signal

        import pyarrow as pa

        if os.getpid() != driver and len(os.listdir(marks)) < times:
            open(f"{marks}/{os.getpid()}-{len(os.listdir(marks))}", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return pa.compute.greater(k, 0)

    driver = os.getpid()
    windrow.function("perilous", fn, returns="boolean")


def test_a_tick_whose_workers_are_killed_is_computed_again(spark: Any, tmp_path: Path) -> None:
    """Answers are those of a replay."""
    (tmp_path / "marks").mkdir()
    perilous(tmp_path / "marks", 2)
    with windrow.Engine(home=tmp_path / "home", spark=spark) as engine:
        engine.execute(SCRIPT)
        engine.start()
        engine.push("s", ROWS)
        engine.drain()
        assert len(os.listdir(tmp_path / "marks")) == 2
        frontier = engine.status()["frontier"]
        want = windrow.run(SCRIPT, {"s": ROWS}, runtime="local", until=frontier)
        for query in ("q", "calm"):
            assert_same(engine[query].results(), want[query])


def test_workers_that_always_end_are_explained(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine stops with a reason; what is there can be read and dropped, and it goes on without the query."""
    monkeypatch.setattr(collecting, "ATTEMPTS", 2)
    (tmp_path / "marks").mkdir()
    perilous(tmp_path / "marks", 0)
    with windrow.Engine(home=tmp_path / "home", spark=spark) as engine:
        engine.execute(SCRIPT)
        engine.start()
        engine.push("s", ROWS)
        engine.drain()
        perilous(tmp_path / "marks", 1000)
        engine.execute("DROP QUERY q; CREATE QUERY q AS SELECT k FROM s [RANGE 5] WHERE perilous(k)")
        engine.push("s", {"ts": [50], "k": [1]})
        with pytest.raises(RuntimeFailure, match="the workers of Spark went away 2 times") as raised:
            engine.drain()
        assert "Stream closed" not in str(raised.value) and "py4j" not in str(raised.value)
        assert "went away" in engine.status()["error"]
        assert engine.ask("SELECT COUNT(*) AS n FROM s [RANGE 50]").to_pylist() == [{"n": 38}]
        assert engine["calm"].snapshot().num_rows == 5
        with pytest.raises(WindrowError, match="went away"):
            engine.execute("CREATE QUERY more AS SELECT k FROM s [RANGE 5]")
        engine.execute("DROP QUERY q")
    with windrow.Engine(home=tmp_path / "home", spark=spark) as engine:
        engine.start()
        engine.drain()
        assert "q" not in engine and engine.status()["running"]
        engine.push("s", {"ts": [60], "k": [1]})
        engine.drain()
        assert engine["calm"].snapshot().to_pylist() == []
