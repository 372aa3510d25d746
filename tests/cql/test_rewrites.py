"""Rewrites that are left out would have done nothing."""

from __future__ import annotations

import pytest
from sqlglot import exp

from windrow.cql import rewrites
from windrow.cql.select import Binder
from windrow.cql.source import ScriptText
from windrow.cql.statements import parsed
from windrow.cql.walks import copied, nodes, preorder

TEXTS = [
    "SELECT a FROM s WHERE a > 1 AND b = 2",
    "SELECT a, count(*) AS n FROM s [RANGE 10] GROUP BY a HAVING count(*) > 2",
    "SELECT s.a FROM s [RANGE 10], u [RANGE 10] WHERE s.a = u.a",
    "SELECT WSTREAM(a)[ROWS 10] FROM s [RANGE 5]",
    "SELECT sum(WSTREAM(a)[ROWS 10]) FROM s [RANGE 5]",
    "SELECT ISTREAM(a) FROM s [RANGE 5]",
    "WITH w(x) AS (SELECT a FROM s) SELECT x FROM w [RANGE 10]",
    "SELECT a FROM s [RANGE 10] ORDER BY a LIMIT 3",
    "SELECT a FROM s [RANGE 10] LIMIT ALL",
    "SELECT a, b FROM s [RANGE 10] ORDER BY b LIMIT 2 BY a",
    "SELECT s.a FROM s [RANGE 10] SEMI JOIN u [RANGE 10] ON s.a = u.a",
    "SELECT s.a FROM s [RANGE 10] ANTI JOIN u [RANGE 10] USING (a)",
    "SELECT a, x FROM s LATERAL VIEW explode([a, b]) t AS x",
    "SELECT s.a, g.i FROM s, generate_series(1, 3) AS g(i)",
    "SELECT s.a, v.i FROM s, (VALUES (1, 'a')) AS v(i, x) WHERE s.a = v.i",
    "SELECT a FROM s WHERE a BETWEEN SYMMETRIC 3 AND 1",
    "SELECT [x + 1 FOR x IN [a, b] IF x > 1] AS l FROM s",
    "SELECT ARRAY(SELECT a FROM u [RANGE 10]) AS l FROM s [RANGE 10]",
    "SELECT any(a) AS x FROM s [RANGE 10]",
    "SELECT * FROM s [RANGE 10] PIVOT (SUM(a) FOR b IN (1, 2))",
    "SELECT * FROM s [RANGE 10] UNPIVOT (v FOR k IN (a, b))",
    "SELECT a FROM s [RANGE 10] WHERE a > (SELECT max(a) FROM u [RANGE 10] WHERE u.b = s.b)",
    "SELECT a FROM s [RANGE 10] WHERE EXISTS (SELECT 1 FROM u [RANGE 10] WHERE u.b = s.b)",
    "SELECT s.a, l.n FROM s [RANGE 10], LATERAL (SELECT count(*) AS n FROM u [RANGE 10] WHERE u.b = s.b) l",
    "SELECT x FROM (SELECT a AS x FROM s) [RANGE 10]",
    "SELECT DISTINCT ON (a) a, b FROM s [RANGE 10] ORDER BY a, b",
    "SELECT DISTINCT a FROM s [RANGE 10]",
    "SELECT a, PROCTIME() AS p FROM p",
    "SELECT p.a, t.b FROM p LEFT JOIN t FOR SYSTEM_TIME AS OF PROCTIME() ON p.a = t.a",
    "SELECT a FROM z WHERE ts > NOW() - INTERVAL '5 minutes'",
    "SELECT a FROM z WHERE CURRENT_TIMESTAMP <= ts + INTERVAL '1 hour'",
    "SELECT ts, avg(a) FROM z SAMPLE BY 1h",
    "SELECT a, count(*) AS n FROM z GROUP BY a, TUMBLE(ts, INTERVAL '1' MINUTE)",
    "SELECT a, count(*) AS n FROM z GROUP BY a, HoppingWindow(minute, 10, 5)",
]


@pytest.fixture
def catalog(declare):
    return declare(
        """
        CREATE STREAM s (a BIGINT, b BIGINT, ts BIGINT) TIMESTAMP BY ts;
        CREATE STREAM u (a BIGINT, b BIGINT, ts BIGINT) TIMESTAMP BY ts;
        CREATE STREAM z (a BIGINT, ts TIMESTAMP) TIMESTAMP BY ts;
        CREATE STREAM p (a BIGINT, ts TIMESTAMP) TIMESTAMP BY ts AS PROCTIME();
        CREATE TABLE t (a BIGINT, b BIGINT);
        """
    )


def rewritten(text, catalog, by):
    """The nodes of a query after rewrites, with where they were written and their windows."""
    source = ScriptText(text)
    tree = by(parsed(source, 0, len(text), 1).tree, Binder(catalog, source))
    return [(repr(node), {k: str(v) for k, v in node.meta.items() if k != "common table"}) for node in nodes(tree)]


def every(tree, binder):
    for _, rewrite in rewrites._REWRITES:
        tree = rewrite(tree, binder) or tree
    return tree


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_left_out_does_nothing(text, catalog):
    """A query is the same whether all rewrites look at it or those alone that find what they want."""
    assert rewritten(text, catalog, rewrites.rewritten) == rewritten(text, catalog, every)


def test_every_rewrite_is_wanted_by_some_query(catalog, monkeypatch):
    """The queries above have work for each rewrite, and plain ones for none."""
    done: dict[str, set[int]] = {}

    def noting(text, number, rewrite):
        return lambda tree, binder: (done[text].add(number), rewrite(tree, binder))[1]

    written = rewrites._REWRITES
    for text in TEXTS:
        done[text] = set()
        noted = tuple((wanted, noting(text, i, rewrite)) for i, (wanted, rewrite) in enumerate(written))
        monkeypatch.setattr(rewrites, "_REWRITES", noted)
        rewritten(text, catalog, rewrites.rewritten)
    assert set().union(*done.values()) == set(range(len(written)))
    assert not done[TEXTS[0]] | done[TEXTS[1]]


@pytest.mark.parametrize("text", TEXTS)
def test_walks_and_copies_are_those_of_sqlglot(text):
    """The same nodes in the same order, and copies that are equal and apart."""
    tree = parsed(ScriptText(text), 0, len(text), 1).tree
    for mine, theirs in ((nodes(tree), tree.walk()), (preorder(tree), tree.dfs())):
        assert [id(n) for n in mine] == [id(n) for n in theirs]
    below = tree.walk(prune=lambda n: isinstance(n, exp.Query) and n is not tree)
    assert [id(n) for n in nodes(tree, exp.Query)] == [id(n) for n in below]
    made, known = copied(tree), tree.copy()
    assert made == known
    for one, other, own in zip(nodes(made), nodes(known), nodes(tree), strict=True):
        assert (type(one), one.arg_key, one.index, one.meta) == (type(other), other.arg_key, other.index, own.meta)
        assert one is not own and (one.parent is None) == (one is made)
        assert one.parent is None or one.parent in nodes(made)
