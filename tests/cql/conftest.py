"""A small catalog that the tests of the language share."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from windrow import cql
from windrow.catalog import Catalog, FunctionDef
from windrow.plan.nodes import Node, QueryPlan

DECLARATIONS = """
CREATE STREAM s (a BIGINT, b BIGINT, x DOUBLE, n VARCHAR, ts TIMESTAMP);
CREATE STREAM t (a BIGINT, c INT, y DECIMAL(10, 2), n VARCHAR, ts TIMESTAMP);
CREATE STREAM u (k BIGINT, v DOUBLE, ts BIGINT);
CREATE TABLE p (a BIGINT, name VARCHAR, since TIMESTAMP, till TIMESTAMP) VALID FROM since TO till;
CREATE TABLE r (a BIGINT, name VARCHAR) RETROACTIVE;
"""
FUNCTIONS = {
    "midcap": FunctionDef("midcap", lambda a: a, pa.bool_()),
    "score": FunctionDef("score", lambda a, b: a, pa.float64()),
}


def _declare(script: str, catalog: Catalog | None = None) -> Catalog:
    catalog = catalog or Catalog(functions=FUNCTIONS)
    for statement in cql.parse(script):
        bound = cql.bind(statement, catalog)
        if isinstance(bound, cql.Create):
            catalog = catalog.add(bound.definition)
    return catalog


@pytest.fixture(scope="session")
def declare() -> Callable[..., Catalog]:
    """The catalog after all statements of a script."""
    return _declare


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return _declare(DECLARATIONS)


@pytest.fixture(scope="session")
def plan(catalog: Catalog) -> Callable[[str], QueryPlan]:
    """The plan of one SELECT over the shared catalog."""
    return lambda text: cql.compile_select(text, catalog, "q")


def _outline(node: Node) -> str:
    inner = ", ".join(_outline(i) for i in node.inputs)
    return type(node).__name__ + (f"({inner})" if inner else "")


@pytest.fixture(scope="session")
def outline(plan: Callable[[str], QueryPlan]) -> Callable[[str], str]:
    """The shape of a SELECT's plan in one line: Emit(Project(Window(Scan)))."""
    return lambda text: _outline(plan(text).root)
