"""EXPLAIN at every door: the same plan says the same of itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windrow import Engine
from windrow.cli.explain import explanations
from windrow.server.checking import check

DECLARED = """
CREATE STREAM s (ts BIGINT, k BIGINT, v BIGINT, w BIGINT) TIMESTAMP BY ts RETAIN '100';
CREATE TEMPLATE over (a BIGINT) AS SELECT v FROM (SELECT v, k FROM s [RANGE 5]) AS x WHERE k = $a
"""
TEXT = "SELECT v FROM (SELECT v, k FROM s [RANGE 5]) AS x WHERE k > 1"
RUNNING = f"{DECLARED}; CREATE QUERY q AS {TEXT}; CREATE QUERIES some FROM TEMPLATE over VALUES (1), (2)"


def _rules(shown: str) -> str:
    (line,) = [line for line in shown.splitlines() if line.startswith("rules applied: ")]
    return line.removeprefix("rules applied: ")


def _everywhere(engine: Engine) -> dict[str, str]:
    (statement,) = engine.execute(f"EXPLAIN {TEXT}")
    (checked,) = check(engine, TEXT, declarations=True)
    return {
        "a statement": _rules(str(statement)),
        "a query": _rules(engine["q"].explain()),
        "a query, as JSON": ", ".join(json.loads(engine["q"].explain("json"))["rules"]) or "none",
        "an instance": _rules(engine["some"].explain()),
        "a question": _rules(engine.question(f"{TEXT} AND v > 3").explain()),
        "a check": ", ".join(checked["plan"]["rules"]) or "none",
    }


@pytest.mark.parametrize("without", [(), ("pushdown_projections",), ("pushdown_predicates", "pushdown_projections")])
def test_every_door_tells_the_rules_that_fired(tmp_path: Path, without: tuple[str, ...]) -> None:
    """The rules that changed a plan are those that `windrow explain` tells, after a restart too; none that are off."""
    (shown,) = explanations(f"{DECLARED}; EXPLAIN {TEXT}", {}, {}, "upa", without)
    told = _rules(shown)
    assert (told == "none") == (len(without) == 2) and not {*without} & {*told.split(", ")}
    for script in (RUNNING, ""):
        with Engine(runtime="local", home=tmp_path, without=without) as engine:
            engine.execute(script)
            assert {*_everywhere(engine).values()} == {told}, _everywhere(engine)


@pytest.mark.parametrize("strategy", ["upa", "negative", "direct"])
@pytest.mark.parametrize("without", [(), ("pushdown_projections",), ("pushdown_predicates", "simplify_patterns")])
def test_a_question_is_planned_as_the_queries_are(strategy: str, without: tuple[str, ...]) -> None:
    """What a registered query computes is read from it, whatever the rules and the strategy; the answer is the same."""
    with Engine(runtime="local", strategy=strategy, without=without) as engine:
        engine.execute(f"{DECLARED}; CREATE QUERY q AS {TEXT}")
        engine.start()
        engine.push("s", {"ts": [1, 2, 4], "k": [1, 2, 3], "v": [10, 20, 30], "w": [0, 0, 0]})
        assert engine.question(TEXT).explain().splitlines()[-1] == "once, from the relation of q"
        assert engine.ask(TEXT).to_pylist() == [{"v": 20}]
        asked = engine.question(f"{TEXT} AND v > 3")
        assert not {*without} & {*asked.plan.rules} and not asked.plan.by_key
        assert engine.ask(f"{TEXT} AND v > 3").to_pylist() == [{"v": 20}]
