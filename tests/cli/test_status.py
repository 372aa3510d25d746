"""An engine's status on a terminal."""

from __future__ import annotations

import io

from rich.console import Console

from windrow.cli.status import render


def drawn(status):
    """The status as text."""
    console = Console(file=io.StringIO(), width=160)
    console.print(render(status))
    return console.file.getvalue()


def test_every_figure_is_shown():
    """Rates, phases, frontier and lag, late rows, state and counters have their places."""
    text = drawn(
        {
            "running": True, "ticks": 7, "frontier": 1_700_000_000_000_000, "rows_per_second": 4321.0, "error": None,
            "tick_ms": {"total": 250.0, "job": 200.0, "task.advance": 30.0},
            "state": {"runs": 12, "bytes": 2048},
            "streams": {"bid": {"rows": 10, "rows_per_second": 5, "late": 3, "greatest": 9, "lag": 1, "idle": True}},
            "tables": {"p": {"rows": 2, "version_us": 5, "failing_since_us": 7, "error": "server is away"}},
            "queries": {"hot": {"answers": 99, "answers_per_second": 1.0, "state_bytes": 1024, "runs": 2, "clock": 4}},
        }
    )  # fmt: skip
    for shown in (
        "running, tick 7",
        "4,321 rows/s",
        "2.0 KiB in 12 runs",
        "job 200",
        "idle",
        "server is away",
        "hot",
        "99",
    ):
        assert shown in text


def test_a_failure_and_a_bare_status_are_shown():
    """The local runtime says less, a stopped engine says why."""
    text = drawn({"running": False, "error": "the disk is full", "streams": {}, "queries": {}})
    assert "stopped" in text
    assert "the disk is full" in text
