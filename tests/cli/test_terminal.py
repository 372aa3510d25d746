"""The shell as a person has it: typed at on a pseudo terminal, in front of a server."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("prompt_toolkit", reason="the extra `shell` is not installed")

from windrow.engine import Engine
from windrow.server.access import Right, Tokens
from windrow.server.process import Address, Server

TOKEN = "a-token-for-the-terminal"
SCRIPT = """
    CREATE STREAM bid (ts BIGINT, auction VARCHAR, price BIGINT) TIMESTAMP BY ts RETAIN 100;
    CREATE QUERY top AS SELECT auction, MAX(price) AS price FROM bid [RANGE 50] GROUP BY auction;
"""
SHELL = """
import os, signal, sys
os.close(os.open(os.ttyname(0), os.O_RDWR))  # a session's first terminal is the one whose Ctrl-C it gets
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background of a shell
from windrow.cli import main
sys.exit(main(sys.argv[1:]))
"""
DRAWING = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>()][0B]?|[╭╮╰╯│┃━─┏┓┗┛┡┩└┘┴┬┼├┤╇┳]")


class Terminal:
    """A shell on a pseudo terminal, and what it has shown since it was last read."""

    def __init__(self, arguments: list[str], state: Path) -> None:
        self._side, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        environment = {**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "XDG_STATE_HOME": str(state)}
        command = [sys.executable, "-c", SHELL, "sql", *arguments]
        self.process = subprocess.Popen(
            command, stdin=inside, stdout=inside, stderr=inside, env=environment, start_new_session=True
        )
        os.close(inside)
        self._seen = ""

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._side, keys.encode())

    def until(self, text: str, seconds: float = 60) -> str:
        """Everything that is shown until a text is; what comes after it waits."""
        end = time.monotonic() + seconds
        while text not in (shown := " ".join(DRAWING.sub("", self._seen).split(" "))):
            ready, _, _ = select.select([self._side], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{text!r} did not come; there was {shown!r}"
            self._seen += os.read(self._side, 65536).decode(errors="replace")
        self._seen = shown.partition(text)[2]
        return shown.partition(text)[0] + text

    def close(self) -> None:
        """Take the terminal away."""
        self.process.kill()
        self.process.wait()
        os.close(self._side)


@pytest.fixture
def engine() -> Iterator[Engine]:
    """An engine with some bids."""
    with Engine(runtime="local") as made:
        made.execute(SCRIPT)
        made.start()
        made.push("bid", {"ts": [1, 2, 4], "auction": ["a", "b", "a"], "price": [10, 20, 30]})
        yield made


@pytest.fixture
def terminal(engine: Engine, tmp_path: Path) -> Iterator[Terminal]:
    """A shell in front of a server with that engine."""
    with Server(engine, Tokens({TOKEN: Right.ADMIN}), Address(port=0)) as server:
        made = Terminal(["--server", f"{server.url}/?token={TOKEN}"], tmp_path)
        yield made
        made.close()


def test_a_conversation(terminal: Terminal, engine: Engine, tmp_path: Path) -> None:
    """Words are completed, a statement goes over lines until its `;`, an error stands under its column, an answer is
    watched as it changes until Ctrl-C, and what was typed is remembered."""
    terminal.until("windrow>")
    terminal.type("SELECT MAX(pri")
    terminal.until("price")  # it is offered
    terminal.type("\t) AS best\r")  # and taken
    terminal.until("->")
    terminal.type("FROM bid [RANGE 100];\r")
    shown = terminal.until("20")  # the row at 4 waits for time to pass it
    assert "best" in shown and "unknown" not in shown
    terminal.until("windrow>")
    terminal.type("SELECT auction,\r")
    terminal.until("->")
    terminal.type("  prise FROM bid [RANGE 5];\r")
    terminal.until("prise FROM bid [RANGE 5];\r\n  ^\r\n")
    assert "hint" in terminal.until('"price"')
    terminal.until("windrow>")
    terminal.type("\\watch top\r")
    terminal.until("top: 2 rows")
    engine.push("bid", {"ts": [5, 6], "auction": ["late", "b"], "price": [777, 1]})
    terminal.until("777")
    engine.push("bid", {"ts": [7, 8], "auction": ["late", "b"], "price": [778, 1]})
    assert "▁█" in terminal.until("▁█")  # the recent past of what changes
    terminal.type("\x03")
    terminal.until("windrow>")
    terminal.type("\\q\r")
    assert terminal.process.wait(30) == 0
    remembered = (tmp_path / "windrow" / "history").read_text()
    assert "SELECT MAX(price) AS best" in remembered and "\\watch top" in remembered
