"""IN, ANY and ALL over subqueries, wherever they stand: with the nulls of SQL."""

from __future__ import annotations

import pytest
from tests.brought import check_all_rows, check_windows

TEXTS = [
    "SELECT host, host IN (SELECT host FROM info WHERE team = 'red') AS red FROM req {w} r",
    "SELECT r.host, r.host IN (SELECT host FROM info) AS a, r.host NOT IN (SELECT host FROM info) AS b FROM req {w} r",
    "SELECT host FROM req {w} WHERE status = 500 OR host NOT IN (SELECT host FROM info WHERE host IS NOT NULL)",
    "SELECT CASE WHEN host IN (SELECT host FROM beat {w}) THEN 'alive' ELSE 'dead' END AS k FROM req {w}",
    "SELECT sym, ts FROM trade {w} WHERE (sym, price) IN (SELECT sym, MAX(price) FROM trade {w} GROUP BY sym)",
    "SELECT sym, ts FROM trade {w} WHERE (sym, price) NOT IN (SELECT sym, MAX(price) FROM trade {w} WHERE sym > 'A' "
    "GROUP BY sym)",
    "SELECT host, ms FROM req {w} WHERE ms >= ALL (SELECT ms FROM req {w} WHERE ms IS NOT NULL)",
    "SELECT host, ms FROM req {w} WHERE ms > SOME (SELECT ms FROM req {w} WHERE status = 500)",
    "SELECT host, ms FROM req {w} WHERE host <> ALL (SELECT host FROM info WHERE host IS NOT NULL)",
    "SELECT host, ms < ANY (SELECT ms FROM req {w} WHERE status = 500) AS a, status >= ALL (SELECT cap FROM info) AS b "
    "FROM req {w}",
    "SELECT host, COUNT(*) AS n FROM req {w} GROUP BY host HAVING host IN (SELECT host FROM info WHERE cap = 1) "
    "OR COUNT(*) > 11",
    "SELECT host, list(status ORDER BY ts DESC)[1:3] AS l, array_agg(status ORDER BY ts)[1] AS f FROM req {w} "
    "GROUP BY host",
]


@pytest.mark.parametrize("text", TEXTS)
def test_texts(text):
    """As DuckDB has it over all rows, and at every instant as the definition does."""
    check_all_rows(text)
    check_windows(text)
