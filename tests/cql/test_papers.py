"""Every query printed in the papers parses and binds."""

from __future__ import annotations

from pathlib import Path

import pytest

from windrow import cql
from windrow.catalog import Catalog

FIXTURES = sorted((Path(__file__).parents[1] / "fixtures" / "papers").glob("*.cql"))


def test_there_are_fixtures():
    """The fixtures are where the tests look for them."""
    assert len(FIXTURES) >= 7


@pytest.mark.parametrize("path", FIXTURES, ids=lambda p: p.stem)
def test_papers_bind(path, declare):
    """All statements of a paper bind, and each SELECT becomes a query that reads a stream."""
    script = path.read_text(encoding="utf-8")
    catalog: Catalog = declare(script)
    selects = sum(s.text.upper().startswith("SELECT") for s in cql.parse(script))
    assert len(catalog.queries) == selects > 0
    assert all(q.streams for q in catalog.queries.values())
