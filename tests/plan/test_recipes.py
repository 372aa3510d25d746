"""The recipes of CONTRIBUTING are true: whatever is added is known wherever it must be."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import windrow
from windrow.operators.aggregates.call import Aggregation
from windrow.plan import nodes

SOURCE = Path(windrow.__file__).parent
NODES = [
    c for _, c in inspect.getmembers(nodes, inspect.isclass) if issubclass(c, nodes.Node) and c.__subclasses__() == []
]
PLACES = ("plan/patterns.py", "plan/words.py", "plan/cost.py", "plan/lower.py")


def named(path: str) -> set[str]:
    """Every name that a module mentions."""
    tree = ast.parse((SOURCE / path).read_text(encoding="utf-8"))
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    return names | {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}


@pytest.mark.parametrize("place", PLACES)
def test_every_node_is_known(place: str) -> None:
    """Patterns, words, costs and lowering name every kind of node."""
    assert {n.__name__ for n in NODES} - named(place) == set()


def test_the_places_are_those_of_the_recipe() -> None:
    """CONTRIBUTING names the places that this test looks at, and every package there is."""
    text = (SOURCE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert all(f"`{place}`" in text for place in PLACES)
    packages = {p.name for p in SOURCE.iterdir() if (p / "__init__.py").exists()}
    assert {p for p in packages if f"`{p}/`" not in text} == set()
    assert Aggregation.__module__.endswith("aggregates.call")
