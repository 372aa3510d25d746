"""EXPLAIN of sharing names slices, cells, partners and bits."""

from __future__ import annotations

import json

import pyarrow as pa

import windrow
from windrow.engine.replay import Replay
from windrow.runtime.job import Feed, LocalJob
from windrow.sharing.explain import explain_sharing
from windrow.store.store import MemoryStore

ROWS = pa.table({"ts": [1, 2, 3, 12], "g": ["a", "b", "a", "c"], "n": [5, 7, 9, 11]})
SCRIPT = """
CREATE QUERY a AS SELECT sum(n) FROM st [RANGE 18 SLIDE 15] WHERE n > 3;
CREATE QUERY b AS SELECT sum(n) FROM st [RANGE 12 SLIDE 9] WHERE n > 3;
CREATE QUERY c AS SELECT g, count(*) FROM st [RANGE 12 SLIDE 9] WHERE g LIKE '%a' GROUP BY g;
CREATE QUERY d AS SELECT n FROM st [RANGE 12 SLIDE 9]
"""


def test_explain_says_what_is_shared() -> None:
    """A query's slices, its cells, what it reads and with whom; bits with their reason; and why a query is alone."""
    replay = Replay.of(SCRIPT, {"st": ROWS}, {})
    plans = replay.catalog.queries
    job = LocalJob()
    ticker = replay.registered(job, MemoryStore(), "upa", sharing="shards")
    ticker.run(job, [Feed("st", ROWS)], 12)
    group = ticker.sharing
    text = explain_sharing(group, plans["a"])
    assert text.startswith("sharing: shards, paired slices, 3 queries over st\n")
    assert "is cut into (12 ticks, 3 ticks)" in text
    assert "entries of a synopsis" in text
    assert "shares its predicate with b\n" in text
    assert "3 passes over the rows become" in text
    bits = explain_sharing(group, plans["c"])
    assert "bit: \"st.g\" LIKE '%a' (like is indexed for 'prefix%' only)" in bits
    assert "partials per group" in bits
    assert explain_sharing(group, plans["d"]) == "sharing: none, it is no aggregate of one window (quantise)\n"


def test_an_engine_explains_what_runs_and_what_would() -> None:
    """EXPLAIN of a registered query has its figures; of a new one, with whom it would share; nobody notices."""
    engine = windrow.Engine(runtime="local")
    engine.execute("CREATE STREAM st (ts BIGINT, g VARCHAR, n BIGINT) TIMESTAMP BY ts; " + SCRIPT)
    engine.start()
    engine.push("st", ROWS)
    assert "so far 4 rows" in engine["a"].explain()
    (text,) = engine.execute("EXPLAIN SELECT max(n) FROM st [RANGE 4 SLIDE 2] WHERE n > 3")
    assert "4 queries over st" in text
    assert "shares its predicate with a, b" in text
    shared = json.loads(engine["b"].explain("json"))["sharing"]
    assert (shared["queries"], shared["with"]["predicate"], shared["slices"]["own"]) == (3, ["a"], [6, 3])
    alone = json.loads(engine["d"].explain("json"))["sharing"]
    assert alone == {"shared": False, "why": "it is no aggregate of one window (quantise)"}
    (off,) = windrow.Engine(runtime="local", sharing="off").execute(
        "CREATE STREAM st (ts BIGINT, n BIGINT) TIMESTAMP BY ts; EXPLAIN SELECT max(n) FROM st [RANGE 4 SLIDE 2]"
    )
    assert off.rstrip().endswith("sharing: none, sharing is off")


def test_few_rows_are_not_worth_sharing() -> None:
    """A live engine weighs a query that comes by the rate so far: inequality 1."""
    engine = windrow.Engine(runtime="local")
    engine.execute("CREATE STREAM st (ts BIGINT, n BIGINT) TIMESTAMP BY ts")
    engine.start()
    engine.push("st", pa.table({"ts": [0, 1_000_000, 2_000_000], "n": [1, 2, 3]}))
    for i in range(3):
        engine.execute(f"CREATE QUERY q{i} AS SELECT sum(n) FROM st [RANGE {1001 + i} SLIDE {7 + i}]")
    assert "rows are so few that sharing costs more" in engine["q2"].explain()
    assert list(engine.runtime.sharing.served) == ["q0"]
    engine.push("st", pa.table({"ts": [2_000_010], "n": [5]}))
    assert engine["q2"].results().num_rows
