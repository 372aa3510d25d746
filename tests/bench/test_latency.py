"""`windrow bench latency`: all engines answer, and are timed."""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from windrow.errors import RuntimeFailure
from windrow_bench.latency import PEERS, run
from windrow_bench.latency_flink import Running
from windrow_bench.many_peers import ENGINES, there


@pytest.mark.spark
@pytest.mark.slow
def test_files(spark: object) -> None:
    """Files that appear are answered by all; the topic's part needs a session of its own, with Spark's connector."""
    peers = [name for name in ENGINES if there(name)]
    names = [name for peer in peers for name in PEERS[peer]]
    options = argparse.Namespace(parts=["files"], peers=peers, quick=True, repeat=1, queries=3, rows=100, seed=1)
    rows, ratios = run(options)
    assert [(r["engine"], r["queries"]) for r in rows] == [("windrow", 3), *((name, 1) for name in names)]
    assert all(0 < r["least"] <= r["seconds"] <= r["most"] for r in rows)
    assert len(ratios) == len(names) and all(r.value > 0 for r in ratios)


def test_an_answer_counts_once_for_its_second(tmp_path: Path) -> None:
    """What Flink still says of a second that was answered is not heard; when it ends, its reason is given."""
    (tmp_path / "log").write_text("x\nCaused by: java.lang.IllegalStateException: no rows\n", encoding="utf-8")
    program = (
        "import sys; print('start', flush=True)\nfor line in sys.stdin: print(f'+I[{line.strip()}, A, 5]', flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        heard, seen = threading.Event(), []
        running = Running(process, heard, tmp_path / "log")
        for said in ("1\n", "1\n1\n2\n"):
            process.stdin.write(said)
            process.stdin.flush()
            assert heard.wait(30)
            seen.append(running.newest)
            heard.clear()
        assert seen == [1, 2]
        running.look()
        process.stdin.close()
        process.wait(30)
    with pytest.raises(RuntimeFailure, match="Flink stopped") as raised:
        running.look()
    assert raised.value.detail == "no rows"
