"""`windrow demo`: what it shows, how it ends, what it says then."""

from __future__ import annotations

import argparse
import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from windrow.cli import main
from windrow.cli.monitor import Monitor, brief
from windrow.cli.trades import monitors, trades

SOURCE = Path(__file__).parents[2] / "src"
TRACE = re.compile(r"Traceback|Exception in thread|\tat |Py4J|WARN|ERROR")


def start(*words: str) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    code = f"import sys; from windrow.cli import main; sys.exit(main({['demo', *words]!r}))"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def interrupt(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Press Ctrl-C once there is something to see; what was printed."""
    seen = ""
    for line in process.stdout:
        seen += line
        if "rows/s" in line:
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=90)
    return seen + out, err


def answers_in(text: str) -> int:
    """How many answer rows the last line tells of."""
    return int(re.findall(r"([\d,]+) answer rows", text)[-1].replace(",", ""))


def registered_in(text: str) -> int:
    """How many queries the last line tells of."""
    return int(re.findall(r"(\d+) queries, [\d,]+ answer rows", text)[-1])


def test_demo_in_process(capsys: pytest.CaptureFixture[str]) -> None:
    """The demo ends by itself; queries have joined while it ran, and there are answers and three commands to try."""
    assert main(["demo", "--runtime", "local", "--seconds", "8", "--queries", "12", "--rate", "500", "--plain"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"\d rows/s .* lag .* of 12 queries", out)
    assert 8 < registered_in(out) <= 12
    assert answers_in(out) > 0
    assert "overload: 6 x rate" in out and "the overload is over" in out and "console: http://127.0.0.1:" in out
    assert len([line for line in out.splitlines() if line.startswith("  ") and "windrow " in line]) == 3


def test_the_overload_waits_for_the_first_tick(tmp_path: Path) -> None:
    """However long the first tick takes, the overload comes when there is something to see."""
    from windrow.cli.demo import Demo

    demo = Demo(argparse.Namespace(queries=4, seconds=0.001, rate=10, burst=6, runtime="local"), tmp_path)
    assert not demo._bursts


def test_ctrl_c_ends_it_well() -> None:
    """Ctrl-C stops the engine, exits with 0 and still says what to try."""
    process = start("--runtime", "local", "--queries", "4", "--rate", "500", "--plain")
    out, err = interrupt(process)
    assert process.returncode == 0
    assert "done:" in out
    assert "Try next:" in out
    assert err == ""


def test_failure_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An engine that failed makes the demo fail, with its message and without advice."""
    from windrow.runtime.runtime import Runtime

    healthy = Runtime.status
    monkeypatch.setattr(Runtime, "status", lambda self, *which: healthy(self, *which) | {"error": "the disk is full"})
    assert main(["demo", "--runtime", "local", "--seconds", "3", "--queries", "2", "--plain"]) == 1
    said = capsys.readouterr()
    assert said.err == "error: the engine stopped: the disk is full\n"
    assert "Try next" not in said.out


def test_view() -> None:
    """The view on a terminal has the figures of the status and the newest answers."""
    options = argparse.Namespace(plain=False, seconds=60, runtime="spark")
    console = Console(file=io.StringIO(), force_terminal=True, width=140, color_system=None)
    monitor = Monitor(options, monitors(64), ("volume", "heavy"), console)
    status = {
        "ticks": 41,
        "frontier": 10_000_000,
        "tick_ms": {"total": 320.0, "job": 300.0, "task.advance": 99.0},
        "state": {"runs": 17, "bytes": 2_500_000},
        "streams": {"trade": {"rows": 8_000, "late": 3}},
        "queries": {"volume": {"answers": 500}},
    }
    monitor.show(0.0, status | {"streams": {"trade": {"rows": 0, "late": 0}}}, 10_500_000, 8, {})
    newest = {"volume": pa.table({"_ts": [1, 1], "symbol": ["ACME", "WONKA"], "shares": [10, 2000]})}
    monitor.show(2.0, status, 11_250_000, 20, newest)
    monitor.close()
    shown = console.file.getvalue()
    for text in (
        "4,000 rows/s",
        "320 ms",
        "1.2 s",
        "2.5 MB",
        "17 runs",
        "20 of 64",
        "500 rows",
        "3 late",
        "WONKA 2,000",
    ):
        assert text in shown, text


def test_brief_shows_the_newest_instant() -> None:
    """Of a change log, what appeared at its newest instant; else the rows of that instant."""
    log = pa.table({"_ts": [1, 2, 2], "_op": [1, -1, 1], "symbol": ["A", "A", "A"], "n": [1, 1, 2]})
    assert brief(log, 3) == "A 2"
    assert brief(log.slice(0, 0), 3) == ""
    assert brief(pa.table({"_ts": [5] * 4, "price": [1.5, 2.25, 0.5, 9.0]}), 2) == "9.00, 2.25 and 2 more"


def test_queries_differ_and_bind() -> None:
    """Two hundred and fifty-six queries, all different, all correct."""
    from windrow.engine.replay import run

    texts = monitors(256)
    assert len(set(texts.values())) == len(texts) == 256
    script = ";".join(f"CREATE QUERY {n} AS {t}" for n, t in list(texts.items())[:40])
    found = run(script, {"trade": trades(200, 0, 3_000_000, seed=1)}, runtime="local")
    assert len(found) == 40
    assert any(t.num_rows for t in found.values())


@pytest.mark.spark
@pytest.mark.slow
def test_demo_on_spark(tmp_path: Path) -> None:
    """On Spark, for ten seconds: queries join as fast as ticks allow, answers come, nothing of Java is to be seen."""
    keep = tmp_path / "kept"
    process = start("--seconds", "10", "--queries", "12", "--rate", "1000", "--keep", str(keep))
    out, err = process.communicate(timeout=180)
    assert (process.returncode, err) == (0, "")
    assert not TRACE.search(out)
    assert 8 <= registered_in(out) <= 12
    assert answers_in(out) > 0
    assert f"windrow state {keep}/home" in out
    assert (keep / "demo.cql").read_text().count("CREATE QUERY") == 12
    assert main(["state", str(keep / "home")]) == 0


@pytest.mark.spark
@pytest.mark.slow
def test_ctrl_c_on_spark() -> None:
    """Ctrl-C ends the tick that is running, not in the middle of it."""
    process = start("--queries", "4", "--rate", "1000")
    out, err = interrupt(process)
    assert (process.returncode, err) == (0, "")
    assert "done:" in out
    assert not TRACE.search(out)
