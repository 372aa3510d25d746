"""EXPLAIN of sharing names slices, cells, partners and bits."""

from __future__ import annotations

import pyarrow as pa

from windrow.replay import Replay
from windrow.sharing.explain import explain_sharing
from windrow.sharing.group import share

ROWS = pa.table({"ts": [1, 2, 3, 12], "g": ["a", "b", "a", "c"], "n": [5, 7, 9, 11]})
SCRIPT = """
CREATE QUERY a AS SELECT sum(n) FROM st [RANGE 18 SLIDE 15] WHERE n > 3;
CREATE QUERY b AS SELECT sum(n) FROM st [RANGE 12 SLIDE 9] WHERE n > 3;
CREATE QUERY c AS SELECT g, count(*) FROM st [RANGE 12 SLIDE 9] WHERE g LIKE 'a%' GROUP BY g;
CREATE QUERY d AS SELECT n FROM st [RANGE 12 SLIDE 9]
"""


def test_explain_says_what_is_shared() -> None:
    """A query's slices, its cells, what it reads and with whom; bits with their reason; and why a query is alone."""
    replay = Replay.of(SCRIPT, {"st": ROWS}, {})
    plans = replay.catalog.queries
    group, _ = share(plans.values(), {}, {}, "shards")
    group.advance(lambda _: replay._slice("st", {"st": 0}, 12), 12, replay.starts)
    text = explain_sharing(group, plans["a"])
    assert text.startswith("sharing: shards, paired slices, 3 queries over st\n")
    assert "is cut into (12 ticks, 3 ticks)" in text
    assert "entries of a ledger" in text
    assert "shares its predicate with b\n" in text
    assert "3 passes over the rows become" in text
    bits = explain_sharing(group, plans["c"])
    assert "bit: \"st.g\" LIKE 'a%' (like is not indexed)" in bits
    assert "partials per group" in bits
    assert explain_sharing(group, plans["d"]) == "sharing: none, it is no aggregate of one window (quantise)\n"
