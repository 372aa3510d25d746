"""EXPLAIN of sharing names slices, cells, partners and bits."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pytest

import windrow
from windrow.engine.replay import Replay
from windrow.runtime.job import Feed, LocalJob
from windrow.sharing.explain import sharing_of
from windrow.sharing.ranked_windows import RankedWindows
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
    text = "\n".join(sharing_of(group, plans["a"])["text"])
    assert text.startswith("sharing: shards, paired slices, 3 queries over st\n")
    assert "is cut into (12 ticks, 3 ticks)" in text
    assert "entries of a synopsis" in text
    assert "shares its predicate with b\n" in text
    assert "3 passes over the rows become" in text
    bits = "\n".join(sharing_of(group, plans["c"])["text"])
    assert "bit: \"st.g\" LIKE '%a' (like is indexed for 'prefix%' only)" in bits
    assert "partials per group" in bits
    assert sharing_of(group, plans["d"])["text"] == ["sharing: none, it is no aggregate of one window (quantise)"]


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
    assert alone == {"shared": False, "why": "it is the first of its kind"}
    (off,) = windrow.Engine(runtime="local", sharing="off").execute(
        "CREATE STREAM st (ts BIGINT, n BIGINT) TIMESTAMP BY ts; EXPLAIN SELECT max(n) FROM st [RANGE 4 SLIDE 2]"
    )
    assert off.rstrip().endswith("sharing: none, sharing is off")


RULES = {
    "SS1": (("sum(n)", 20, 4, ""), ("sum(n)", 8, 4, "")),
    "CS1": (("sum(n)", 8, 4, ""), ("sum(n)", 8, 2, "")),
    "CS2": (("median(n)", 8, 4, ""), ("median(n)", 20, 4, "")),
    "SS2": (("avg(n)", 8, 4, ""), ("sum(n)", 20, 4, "")),
    "CS3": (("avg(n)", 8, 4, ""), ("sum(n)", 8, 4, ""), ("count(n)", 8, 4, "")),
    "SS4": (("max(n)", 8, 80, "n < 3 OR n > 7"), ("max(n)", 8, 80, "n < 3"), ("max(n)", 8, 80, "n > 7")),
    "CS6": (("sum(n)", 8, 80, "n < 3 OR n > 7"), ("sum(n)", 8, 80, "n < 3"), ("sum(n)", 8, 80, "n > 7")),
    "CS7": (("median(n)", 8, 80, "n < 3 OR n > 7"), ("median(n)", 4, 80, "n < 3"), ("median(n)", 6, 80, "n > 7")),
    "CS8": (("sum(n)", 8, 4, ""), ("sum(n)", 8, 2, "")),
}
"""(aggregate, RANGE, SLIDE, WHERE) of a query and of those with which it shares by a rule."""
WITHOUT = {
    "SS1": ("max(n)", 8, 4, ""), "CS1": ("sum(n)", 20, 4, ""), "CS2": ("median(n)", 20, 4, "n > 3"),
    "SS2": ("max(n)", 20, 4, ""), "CS3": ("sum(n)", 20, 4, ""), "SS4": ("max(n)", 8, 80, "n < 4"),
    "CS6": ("sum(n)", 8, 80, "n < 4"), "CS7": ("median(n)", 4, 80, "n < 4"), "CS8": ("sum(n)", 20, 2, ""),
}  # fmt: skip
"""A query with which the first of them does not share by that rule."""


@pytest.mark.parametrize("rule", RULES)
def test_explain_names_the_rule(rule: str) -> None:
    """Of queries that share by a rule EXPLAIN names it and them; not of one to which it does not apply."""

    def rules_of(queries: Sequence[tuple[str, int, int, str]]) -> tuple[dict[str, list[str]], str]:
        engine = windrow.Engine(runtime="local", sharing="shards")
        engine.execute("CREATE STREAM st (ts BIGINT, n BIGINT) TIMESTAMP BY ts")
        for i, (what, window, slide, where) in enumerate(queries):
            text = f"SELECT {what} AS x FROM st [RANGE {window} SLIDE {slide}]"
            engine.execute(f"CREATE QUERY q{i} AS {text}" + (f" WHERE {where}" if where else ""))
        sharing, text = json.loads(engine["q0"].explain("json"))["sharing"], engine["q0"].explain()
        engine.stop()
        return sharing["rules"], text

    found, text = rules_of(RULES[rule])
    assert set(found[rule]) == {f"q{i}" for i in range(1, len(RULES[rule]))}
    assert f"rule {rule}: q1" in text and "synopsis: " in text
    assert rule not in rules_of([RULES[rule][0], WITHOUT[rule]])[0]


def test_a_twin_takes_the_answers_of_the_other_until_that_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """CS8: equal queries that differ in their periods have one answer where both are due, and each its own again."""
    asked = list[int]()
    ranked = RankedWindows.of
    monkeypatch.setattr(RankedWindows, "of", lambda begin, end: (asked.append(len(begin)), ranked(begin, end))[1])
    engine = windrow.Engine(runtime="local", sharing="shards")
    engine.execute("CREATE STREAM st (ts BIGINT, n BIGINT) TIMESTAMP BY ts")
    for name, slide in (("often", 2), ("seldom", 4), ("other", 4)):
        window = 9 if name == "other" else 7
        engine.execute(f"CREATE QUERY {name} AS SELECT median(n) AS m FROM st [RANGE {window} SLIDE {slide}]")
    engine.start()
    rows = pa.table({"ts": list(range(1, 30)), "n": [i * i % 7 for i in range(29)]})
    for i in range(20):
        engine.push("st", rows.slice(i, 1))
    assert set(asked) == {2}, "two windows for three queries"
    assert "rule CS8: often" in engine["seldom"].explain()
    engine.execute("DROP QUERY often")
    assert "CS8" not in engine["seldom"].explain()
    for i in range(20, 29):
        engine.push("st", rows.slice(i, 1))
    want = windrow.run("SELECT median(n) AS m FROM st [RANGE 7 SLIDE 4]", {"st": rows}, runtime="local")["q1"]
    assert engine["seldom"].results().equals(want)
    engine.stop()


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


AXES = {
    "equality and range": ("n = {i} AND x > {i}.5", ["st.n"], ["st.x"]),
    "a list": ("n IN ({i}, {i}7, {i}9)", ["st.n"], []),
    "a prefix": ("g LIKE 'p{i}%' AND x > {i}", ["st.g"], ["st.x"]),
    "a null test": ("g IS NULL AND n > {i}", ["st.g"], ["st.n"]),
    "no null": ("g IS NOT NULL AND n = {i}", ["st.g", "st.n"], []),
    "a boolean": ("b AND n = {i}", ["st.b", "st.n"], []),
    "a boolean negated": ("NOT b AND n = {i} AND x < {i}", ["st.b", "st.n"], ["st.x"]),
    "alternatives": ("n = {i} OR n = 4{i} AND g = 'a{i}'", ["st.n"], ["st.g"]),
    "a negation": ("NOT (n < {i} OR n >= {i}3) AND g = 'k{i}'", ["st.g"], ["st.n"]),
    "another": ("n <> {i}", [], ["st.n"]),
}


@pytest.mark.parametrize("what", AXES)
def test_every_kind_of_test_is_an_axis(what: str) -> None:
    """Equalities, lists, prefixes, null tests and booleans are keys, ranges lie within them; nothing is a bit."""
    where, keys, ranges = AXES[what]
    rows = "CREATE STREAM st (ts BIGINT, n BIGINT, x DOUBLE, g VARCHAR, b BOOLEAN) TIMESTAMP BY ts;"
    queries = [
        f"CREATE QUERY q{i} AS SELECT count(*) AS c FROM st [RANGE 10 SLIDE 5] WHERE {where.format(i=i)};"
        for i in range(1, 9)
    ]
    with windrow.Engine(runtime="local") as engine:
        engine.execute(rows + "".join(queries))
        told = json.loads(engine["q3"].explain("json"))["sharing"]
        cells = told["cells"]
        assert told["bits"] == []
        assert (sorted(cells["keys"]), sorted(cells["ranges"])) == (
            sorted(f'"{k}"' for k in keys), sorted(f'"{r}"' for r in ranges),
        )  # fmt: skip
        assert cells["predicates"] == 8
        shown = engine["q3"].explain()
        assert all(name in shown for name in (*keys, *ranges))


def test_explain_of_many_names_some() -> None:
    """Of a hundred thousand others, some are named and the rest counted; the answer of one does not grow with them."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute("CREATE STREAM st (ts BIGINT, n BIGINT, x DOUBLE) TIMESTAMP BY ts;")
        engine.execute("CREATE TABLE rules (s BIGINT, lim DOUBLE)")
        engine.execute(
            "CREATE TEMPLATE t (s BIGINT, lim DOUBLE) AS "
            "SELECT count(*) AS c FROM st [RANGE 10 SLIDE 5] WHERE n = $s AND x > $lim;"
            "CREATE QUERIES q FROM TEMPLATE t USING TABLE rules; CREATE QUERY one AS "
            "SELECT count(*) AS c FROM st [RANGE 10 SLIDE 5] WHERE n = 1 AND x > 2"
        )
        engine.table("rules", pa.table({"s": range(1000), "lim": [i / 2 for i in range(1000)]}))
        text, told = engine["q"].explain(), json.loads(engine["q"].explain("json"))["sharing"]
        assert text.startswith("1000 queries from template t")
        assert 'over "st.n", and within it over "st.x"' in text
        assert "shares rows with q(1, 0.5), " in text and " and 995 more" in text
        assert told["others"] == {"rows": 1000, "cells": 999, "predicate": 0}
        assert len(told["with"]["rows"]) == len(told["with"]["cells"]) == 100
        alone = json.loads(engine["one"].explain("json"))["sharing"]
        assert alone["others"] == {"rows": 1000, "cells": 0, "predicate": 0} and len(alone["with"]["rows"]) == 100


CONTINUOUS = """
CREATE QUERY h0 AS SELECT g FROM st [RANGE 5] WHERE g = 'a' AND n > 3;
CREATE QUERY h1 AS SELECT g FROM st [RANGE 5] WHERE g = 'a' AND n > 7;
CREATE QUERY h2 AS SELECT g FROM st [RANGE 5] WHERE g = 'b' AND n > 5;
CREATE QUERY lone AS SELECT DISTINCT n FROM st [RANGE 5];
"""


def explained(engine: windrow.Engine, query: str) -> list[str]:
    """What EXPLAIN says of sharing."""
    text = engine[query].explain().split("\n")
    return text[next(i for i, line in enumerate(text) if line.startswith("sharing: ")) :]


def test_a_route_says_how_it_finds_queries() -> None:
    """Keys, ranges within, cells, and what is a bit."""
    engine = windrow.Engine(runtime="local")
    engine.execute("CREATE STREAM st (ts BIGINT, g VARCHAR, n BIGINT) TIMESTAMP BY ts; " + CONTINUOUS)
    engine.start()
    engine.push("st", ROWS)
    index = 'index: 3 conditions, looked up by "0.g", ordered within by "0.n", in 7 cells'
    assert index in "\n".join(explained(engine, "h1"))
    engine.execute("CREATE QUERY odd AS SELECT g FROM st [RANGE 5] WHERE g LIKE '%x'")
    engine.push("st", {"ts": [20], "g": ["c"], "n": [6]})
    said = "\n".join(explained(engine, "h1"))
    assert index in said
    assert "bit: (\"0.g\" LIKE '%x') (like is indexed for 'prefix%' only)" in said
    (route,) = (o for o in json.loads(engine["h1"].explain("json"))["sharing"]["operators"] if "index" in o)
    assert {"keys": ['"0.g"'], "ranges": ['"0.n"'], "predicates": 3, "cells": 7, "boxed": False} in route["index"]
    engine.stop()


def test_a_query_that_waits_says_with_whom_it_will_be() -> None:
    """Before a row has come to it: with those who wait, too, or with those who run; or why it will be alone."""
    engine = windrow.Engine(runtime="local")
    engine.execute("CREATE STREAM st (ts BIGINT, g VARCHAR, n BIGINT) TIMESTAMP BY ts; " + CONTINUOUS)
    engine.start()
    assert explained(engine, "h1")[0] == "sharing: from the next row on, one dataflow with h0, h2"
    assert explained(engine, "lone")[0] == "sharing: none, it is the first of its kind"
    engine.push("st", ROWS)
    assert explained(engine, "h1")[0] == "sharing: one dataflow with h0, h2"
    engine.execute("CREATE QUERY late AS SELECT g FROM st [RANGE 5] WHERE g = 'c' AND n > 5")
    waits = json.loads(engine["late"].explain("json"))["sharing"]
    assert (waits["begins"], waits["queries"], waits["with"]) == (False, 4, ["h0", "h1", "h2"])
    engine.push("st", {"ts": [20], "g": ["c"], "n": [6]})
    assert explained(engine, "late")[0] == "sharing: one dataflow with h0, h1, h2"
    engine.stop()
