"""The map of the code (`docs/design.md`, CONTRIBUTING) names what is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "windrow"
DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
WAYS = re.findall(r"^## One (row|query)'s way.*?```\n(.*?)```", DESIGN, re.M | re.S)


def test_there_are_two_ways() -> None:
    """One of a row, one of a query."""
    assert [of for of, _ in WAYS] == ["row", "query"]


@pytest.mark.parametrize(("of", "drawing"), WAYS, ids=[of for of, _ in WAYS])
def test_a_way_enters_packages_once_and_names_their_modules(of: str, drawing: str) -> None:
    """The packages at its left edge are there, none twice, and have the modules that are named beside them."""
    packages = re.findall(r"^ (\w+)/", drawing, re.M)
    assert len(set(packages)) == len(packages)
    here = ""
    for line in drawing.splitlines():
        entered = re.match(r" (\w+)/", line)
        here = entered[1] if entered else here
        assert (SOURCE / here).is_dir()
        for package, module in re.findall(r"(?:(\w+)/)?(\w+\.py)", line):
            assert (SOURCE / (package or here) / module).exists(), (here, module)


def test_the_list_of_packages_is_that_of_the_layers() -> None:
    """CONTRIBUTING has a line for every package and none for others, in the order of the contract."""
    listed = re.search(r"\| where \| what \|\n(.*?)\n\n", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.S)
    assert listed is not None
    named = [n for line in listed[1].splitlines() for n in re.findall(r"`(\w+)/`", line.split("|")[1])]
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    layers = next(c["layers"] for c in tools["importlinter"]["contracts"] if c["type"] == "layers")
    assert named == [layer for layer in layers if (SOURCE / layer).is_dir()]
