"""`windrow serve` that cannot start: one message, and nothing else."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from windrow.cli import main

SCRIPT = """
    CREATE STREAM bid (ts BIGINT, price BIGINT) TIMESTAMP BY ts;
    CREATE QUERY top AS SELECT MAX(price) AS price FROM bid [RANGE 5];
"""


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    """Says which one and what to do, and the process ends without a report of leaks."""
    script = tmp_path / "top.cql"
    script.write_text(SCRIPT)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "windrow.cli", "serve", str(script), "--runtime", "local", "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f"error: cannot listen at 127.0.0.1, port {port}",
        "detail: Address already in use",
        "hint: choose another one with --port (0: any that is free)",
    ]


@pytest.mark.parametrize("port", ["99999", "http", "-1"])
def test_a_port_that_is_none(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A number beyond the last port is refused: it used to be taken modulo 65536."""
    with pytest.raises(SystemExit):
        main(["serve", "--runtime", "local", f"--port={port}"])
    assert f"'{port}' is not a port: a whole number up to 65535" in capsys.readouterr().err
