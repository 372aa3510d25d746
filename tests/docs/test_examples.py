"""The examples in README and docs run, and their scripts parse.

Fences say what is meant: ```python runnable``` blocks are executed, those of one page in one namespace, top to bottom;
```console runnable``` blocks are `$ windrow ...` commands with their output, compared as a bag of lines (order within
an instant is unspecified); every ```cql``` block must parse. Others are only shown.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(?P<kind>[^\n`]*)\n(?P<text>.*?)^```\s*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, the line of its first line of text, the words after the fence, the text."""

    page: Path
    line: int
    words: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, m.start("text")) + 1, tuple(m["kind"].split()), m["text"])
        for m in FENCE.finditer(text)
    ]


ALL = [b for page in PAGES for b in blocks(page)]
PYTHON_PAGES = sorted({b.page for b in ALL if b.words == ("python", "runnable")})
CONSOLE = [b for b in ALL if b.words == ("console", "runnable")]
SCRIPTS = [b for b in ALL if b.words[:1] == ("cql",)]


def test_there_are_examples() -> None:
    """The pages have examples of every kind, so a broken pattern cannot pass as success."""
    assert PYTHON_PAGES
    assert CONSOLE
    assert SCRIPTS


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=lambda p: p.name)
def test_python(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runnable Python of a page runs from top to bottom, and its assertions hold."""
    monkeypatch.chdir(ROOT)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.words == ("python", "runnable"):
            # Line numbers of the page, so that a failure points there.
            code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
            exec(code, namespace)


@pytest.mark.parametrize("block", CONSOLE, ids=str)
def test_console(block: Block, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A command on a page prints what the page says."""
    from windrow.cli import main

    monkeypatch.chdir(ROOT)
    command, _, expected = block.text.partition("\n")
    words = shlex.split(command.removeprefix("$ "))
    assert words[0] == "windrow"
    assert main(words[1:]) == 0
    assert Counter(capsys.readouterr().out.splitlines()) == Counter(expected.splitlines())


@pytest.mark.parametrize("block", SCRIPTS, ids=str)
def test_script(block: Block) -> None:
    """Every script on a page parses."""
    from windrow.cql import parse

    assert parse(block.text)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links(page: Path) -> None:
    """Links between pages lead somewhere."""
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [t for t in targets if not (page.parent / t).exists()] == []
