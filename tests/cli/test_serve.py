"""`windrow serve` that cannot start: one message, and nothing else."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from windrow.cli import main
from windrow.errors import SourceError
from windrow.server.process import Address, listening

Line = socket.socket

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


def test_a_port_that_is_taken_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket that could not be bound is closed, for those who go on with another port."""
    made: list[socket.socket] = []
    monkeypatch.setattr("windrow.server.process.socket.socket", lambda *given: made.append(Line(*given)) or made[-1])
    with Line() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(SourceError, match="cannot listen"):
            listening(Address(port=taken.getsockname()[1]))
    assert [line.fileno() for line in made] == [-1]


def test_a_port_has_one_server_from_the_start() -> None:
    """Whoever is told an address has it: another that asks a moment later is refused, not both let in."""
    with listening(Address(port=0)) as first, pytest.raises(SourceError, match="cannot listen"):
        listening(Address(port=first.getsockname()[1]))


@pytest.mark.parametrize("rights, told", [(0o644, True), (0o640, False), (0o600, False)])
def test_who_can_read_the_tokens(
    rights: int, told: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token file that everybody on the machine can read is told."""
    monkeypatch.setattr("windrow.server.process.Server.run_until_signal", lambda server: server._socket.close())
    tokens = tmp_path / "tokens"
    tokens.write_text("admin the-administrator-s-token\n")
    tokens.chmod(rights)
    assert main(["serve", "--runtime", "local", "--port", "0", "--token-file", str(tokens)]) == 0
    warning = f"warning: everybody on this machine can read the tokens: chmod 600 {tokens}\n"
    assert capsys.readouterr().err == (warning if told else "")


@pytest.mark.parametrize("port", ["99999", "http", "-1"])
def test_a_port_that_is_none(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A number beyond the last port is refused: it used to be taken modulo 65536."""
    with pytest.raises(SystemExit):
        main(["serve", "--runtime", "local", f"--port={port}"])
    assert f"'{port}' is not a port: a whole number up to 65535" in capsys.readouterr().err
