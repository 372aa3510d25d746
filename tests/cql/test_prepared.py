"""Texts that differ in literals only are planned once: the plan is the one that planning from scratch gives."""

from __future__ import annotations

import pickle
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windrow import cql
from windrow.catalog import Catalog
from windrow.cql import prepared
from windrow.engine.script import bind_script
from windrow.errors import WindrowError
from windrow.optimize import optimize
from windrow.plan.nodes import QueryPlan
from windrow.plan.parametric import same
from windrow.sharing.recognise import NotShared, recognise
from windrow.testing import seeded_case

_NUMBER = re.compile(r"(?<![\w.'])\d+(?:\.\d+)?(?![\w.'])")


def planned(text: str, catalog: Catalog) -> QueryPlan:
    (statement,) = cql.parse(text)
    bound = cql.bind(statement, catalog)
    assert isinstance(bound, cql.Create)
    return optimize(bound.definition, catalog)


def scratch(text: str, catalog: Catalog) -> QueryPlan:
    kept, prepared._known = prepared._known, type(prepared._known)()
    try:
        return planned(text, catalog)
    finally:
        prepared._known = kept


def shared(plan: QueryPlan) -> object:
    try:
        found = recognise(plan)
    except NotShared as why:
        return str(why)
    return found.source, found.member, found.columns, found.shown, found.aggregate


def assert_planned_alike(texts: list[str], catalog: Catalog) -> int:
    """Plan texts one after the other, and each from scratch; returns how many were made of a shape."""
    made = 0
    for text in texts:
        try:
            want = scratch(text, catalog)
        except WindrowError as error:
            with pytest.raises(type(error)) as raised:
                planned(text, catalog)
            assert str(raised.value) == str(error), text
            continue
        got = planned(text, catalog)
        made += got.made is not None
        assert same(got, want), text
        assert same(shared(got), shared(want)), text
    return made


SHAPES = (
    "SELECT COUNT(*) AS n, MAX(x) AS m FROM s [RANGE 1 MINUTE SLIDE 10 SECONDS] WHERE a = {i} AND x > {d}",
    "SELECT a, SUM(b) AS t FROM s [RANGE 1 MINUTE SLIDE 30 SECONDS] WHERE b BETWEEN {i} AND {i} GROUP BY a",
    "SELECT a, SUM(b) AS t FROM s [RANGE 1 MINUTE SLIDE 30 SECONDS] GROUP BY a HAVING SUM(b) > {i} AND COUNT(*) < {i}",
    "SELECT a, x FROM s [RANGE 30 SECONDS] WHERE x < {d} OR NOT (a = {i} AND n = {t})",
    "SELECT ISTREAM(s.a, t.c) FROM s [RANGE 9 SECONDS], t [NOW] WHERE s.a = t.a AND t.y >= {d} AND b <> {i}",
    "SELECT a FROM s [RANGE 9 SECONDS] WHERE n IN ({t}, {t}) AND b IN ({i}, {i}) AND x > -{d} AND a > {i} AND a > {i}",
    "SELECT COUNT(*) AS n FROM s [RANGE {i} SECONDS SLIDE {i} SECONDS] WHERE {i} < a AND ts > {t}",
    "SELECT a + {i} AS k, COUNT(*) FILTER (WHERE b > {i}) AS n FROM s [RANGE 9 SECONDS] WHERE b > {i} GROUP BY a + {i}",
    "SELECT a FROM s [NOW] WHERE EXISTS (SELECT 1 FROM t [RANGE 9 SECONDS] WHERE t.a = s.a AND t.c > {i}) AND b = {i}",
    "SELECT a > {i}, score(a, x) AS c FROM s [ROWS {i}] WHERE a > {i} AND score(a, x) > {d} AND midcap(a)",
    "SELECT COUNT(*) AS n FROM s [RANGE 9 SECONDS SLIDE 3 SECONDS] WHERE x > {i} AND b < {d} AND n >= {t} AND n > {i}",
    "SELECT 7 + {i} AS c FROM s WHERE a = {i} KEEP {i} DAYS",
    "SELECT a, {i} AS rule, {t} AS said, x * {d} AS y FROM s [RANGE {i} SECONDS] WHERE x > b * {d} AND b % {i} = {i}",
    "SELECT ISTREAM(a, {i} AS rule, CAST({i} AS DOUBLE) AS y) FROM s [ROWS {i}] WHERE abs(x - {d}) > {d}",
    "SELECT a, CASE WHEN x > {d} THEN {i} ELSE 3 END AS y FROM s [RANGE {i} SECONDS] WHERE n LIKE 'p{i}%'",
    "SELECT s.a, {i} - b AS y FROM s [RANGE {i} SECONDS] JOIN t [RANGE {i} SECONDS] ON s.a = t.a AND s.x > t.y * {d}",
    "SELECT s.a FROM s [RANGE {i} SECONDS] JOIN t [NOW] ON abs(s.x - t.y) < {d} AND s.b > {i}",
    "SELECT b * {i} AS y, COUNT(*) AS n FROM s [RANGE {i} SECONDS] GROUP BY b * {i} HAVING SUM(x) * {d} > {i}",
    "SELECT DISTINCT a, coalesce(b, {i}) AS y FROM s [PARTITION BY a ROWS {i}] WHERE greatest(b, {i}) > {i}",
    "SELECT LEFT(n, {i}) AS y, round(x, {i}) AS z FROM s [RANGE {i} SECONDS] WHERE n LIKE {t} AND x / {i} > {d}",
    "SELECT u.a FROM (SELECT a, {i} AS y FROM s [RANGE 7 SECONDS] WHERE x * {d} > 7) AS u WHERE u.y > {i}",
    "SELECT s.a, window_start AS w FROM s [RANGE 20 SECONDS SLIDE 5 SECONDS], t [RANGE {i} SECONDS] WHERE s.a = t.a",
    "SELECT s.a FROM s [RANGE 20 SECONDS SLIDE 2 SECONDS], t [RANGE {i} SECONDS] WHERE s.b = {i} AND s.a = t.a",
    "SELECT a FROM s [RANGE {i} SECONDS] UNION ALL SELECT {i} AS a FROM t [RANGE {i} SECONDS] WHERE c * {i} > 9",
)


@st.composite
def scripts(draw: st.DrawFn) -> list[str]:
    """Texts of one shape, of which many have literals in common."""
    shape = draw(st.sampled_from(SHAPES))
    numbers = st.one_of(st.integers(0, 12), st.integers(0, 10**20)).map(str)
    decimals = st.one_of(
        st.sampled_from(["0.5", "00.5", "2.50", "10.25", "5", "7."]),
        st.tuples(st.integers(0, 10**12), st.integers(0, 10**12)).map("{0[0]}.{0[1]}".format),
    )
    texts = st.sampled_from(["'a'", "'it''s'", "'2026-01-01'", "'x;y'", "''", "'1'", "'@windrow 001@'"])

    def filled(_: int) -> str:
        text = shape
        for kind, values in (("{i}", numbers), ("{d}", decimals), ("{t}", texts)):
            while kind in text:
                text = text.replace(kind, draw(values), 1)
        return text

    return [f"CREATE QUERY q{k} AS {filled(k)}" for k in range(5)]


@settings(max_examples=60, deadline=None)
@given(texts=scripts())
def test_a_plan_made_of_a_shape_is_the_plan_from_scratch(texts, catalog):
    """Bound, optimised and recognised: every field equal, and the same errors at the same places."""
    assert_planned_alike(texts, catalog)


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_random_queries_with_other_literals_are_planned_as_from_scratch(first):
    """Whatever shape a query has: literals of the same digits in its place."""
    for seed in range(first, first + 20):
        script, streams, tables, _ = seeded_case(seed)
        catalog = bind_script(script, Catalog(), {k.lower(): (k, v) for k, v in streams.items()},
                              {k.lower(): (k, v) for k, v in tables.items()})  # fmt: skip
        for query in catalog.queries.values():
            body = re.sub(r"^\s*CREATE\s+QUERY\s+\w+\s+AS\s+", "", query.text)
            texts = [f"CREATE QUERY again{k} AS {_changed(body, random.Random(seed + k))}" for k in range(4)]
            assert_planned_alike(texts, catalog)


def _changed(body: str, chance: random.Random) -> str:
    """The text with other digits in some of its numbers."""

    def other(found: re.Match[str]) -> str:
        digits = str.maketrans("23456789", "".join(chance.sample("23456789", 8)))
        return found[0] if chance.random() < 0.5 else found[0].translate(digits)

    return _NUMBER.sub(other, body)


def test_the_shapes_are_used(catalog):
    """From the second text on, plans come from the shape."""
    for shape in (SHAPES[0], SHAPES[3], SHAPES[4]):
        texts = [
            f"CREATE QUERY q{k} AS {shape.format(i=100 + k, d=f'{10 + k}.5', t=repr(chr(97 + k)))}" for k in range(6)
        ]
        assert assert_planned_alike(texts, catalog) >= 5


@pytest.mark.parametrize("shape", SHAPES[12:21])
def test_literals_of_expressions_and_windows_are_lifted(shape, catalog):
    """Texts that differ in them, and in constants that they show, are planned once for each class."""
    texts = [
        f"CREATE QUERY q{k} AS "
        + shape.replace("{i}", str(20 + k)).replace("{d}", f"{30 + k}.5").replace("{t}", f"'p{k}%'")
        for k in range(6)
    ]
    made = assert_planned_alike(texts, catalog)
    assert made >= 4 or "round" in shape or "GROUP BY" in shape


@pytest.mark.parametrize("slide", [1, 5])
def test_the_longest_window_is_that_of_the_text(catalog, slide):
    """Which window is the longest of a periodic query decides its window_start, whatever the texts before it had."""
    shape = "SELECT window_start AS w FROM s [RANGE 12 SECONDS SLIDE {} SECONDS], t [RANGE {} SECONDS] WHERE s.a = t.a"
    for others in ([10, 11, 14, 15, 13], [14, 13, 11, 10]):
        assert_planned_alike(
            [f"CREATE QUERY q{k} AS {shape.format(slide, other)}" for k, other in enumerate(others)], catalog
        )


def test_a_query_that_is_read_may_be_replaced(catalog, declare):
    """Texts over a query are planned once for as long as it is the same."""
    texts = [f"CREATE QUERY q{k} AS SELECT a FROM base WHERE a > {20 + k}" for k in range(4)]
    for kind in ("BIGINT", "DOUBLE"):
        declared = f"CREATE STREAM w (a {kind}, ts BIGINT); CREATE QUERY base AS SELECT a FROM w [RANGE 9]"
        over = declare(declared)
        assert assert_planned_alike(texts, over) >= 2
        assert [str(t) for t in planned(texts[3], over).root.schema.values()] == [
            str(declare(declared).streams["w"].columns["a"])
        ]


def test_a_plan_travels_without_its_tree(catalog):
    """Pickled, a plan that was made of a shape is what it was; one whose tree was changed since keeps that tree."""
    texts = [f"CREATE QUERY q{k} AS {SHAPES[0].format(i=100 + k, d=f'{10 + k}.5')}" for k in range(4)]
    plan = [planned(text, catalog) for text in texts][-1]
    assert plan.made is not None and "root" not in plan.__dict__
    assert same(pickle.loads(pickle.dumps(plan)), plan)
    found = recognise(plan)
    assert same(pickle.loads(pickle.dumps(found.above)), found.above)
    again = pickle.loads(pickle.dumps(found))
    assert again.chain == found.chain and again.member == found.member


def test_other_declarations_give_other_plans(declare):
    """The same texts against another stream of the same name are bound to that one."""
    texts = [f"CREATE QUERY q{k} AS SELECT a FROM w WHERE b = {k}" for k in range(3)]
    for kind in ("BIGINT", "VARCHAR", "DOUBLE"):
        catalog = declare(f"CREATE STREAM w (a {kind}, b BIGINT, ts BIGINT)")
        assert_planned_alike(texts, catalog)
        shown = {"BIGINT": "int64", "VARCHAR": "string", "DOUBLE": "double"}[kind]
        assert str(planned(texts[2], catalog).root.schema["w.a"]) == shown


def test_errors_of_repeated_texts_name_their_place(catalog):
    """Line and column are those of the script that has the error, not of the first text of its shape."""
    good = "CREATE QUERY q1 AS SELECT a FROM s WHERE a = 1"
    for text in (good, good.replace("1", "2"), good.replace("1", "3")):
        planned(text, catalog)
    script = "CREATE STREAM z (ts BIGINT);\n\n  " + good.replace("= 1", "= 4").replace("q1", "s") + ";"
    statement = cql.parse(script)[1]
    with pytest.raises(WindrowError) as error:
        cql.bind(statement, catalog)
    assert "line 3" in str(error.value)
