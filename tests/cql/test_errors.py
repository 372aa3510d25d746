"""Bad input gets an error with its place, what is wrong, and what to write instead."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from windrow import cql
from windrow.errors import BindingError, CQLSyntaxError, UnsupportedError

CASES = [
    # (what, statement with ¦ before the place of the error, class, part of the primary, part of the hint)
    ("no statement", "¦SELEC a FROM s", CQLSyntaxError, "expected a statement", "SELECT"),
    ("a token that does not fit", "SELECT (a ¦FROM s", CQLSyntaxError, "syntax error", "SELECT ... FROM"),
    ("a missing condition", "SELECT a FROM s WHERE¦", CQLSyntaxError, "the end", "SELECT ... FROM"),
    ("an open string", "SELECT a FROM s WHERE n = ¦'abc", CQLSyntaxError, "unterminated", "close it"),
    ("an open window", "SELECT a FROM s [RANGE 5 SEC¦", CQLSyntaxError, "found the end", "[RANGE 10 MINUTES"),
    ("an unknown window", "SELECT a FROM s [¦RANGES 5 SEC]", CQLSyntaxError, "RANGES", "[ROWS 100]"),
    ("an unknown unit", "SELECT a FROM s [RANGE 5 ¦PARSECS]", CQLSyntaxError, "PARSECS", "units are"),
    ("an unknown quoted unit", "SELECT a FROM s [RANGE ¦'5 parsecs']", CQLSyntaxError, "length of time", "units are"),
    ("a window without a size", "SELECT a FROM s [RANGE ¦SLIDE 5 SEC]", CQLSyntaxError, "length of time", "10 SECONDS"),
    ("two windows", "SELECT a FROM s [NOW] ¦[ROWS 4]", CQLSyntaxError, "two windows", "one window"),
    ("PARTITION BY without ROWS", "SELECT a FROM s ¦[PARTITION BY a RANGE 5 SEC]", CQLSyntaxError, "ROWS", "ROWS 100"),
    ("an operator among items", "SELECT ISTREAM(a)¦, b FROM s", CQLSyntaxError, "whole select list", "ISTREAM(a, b)"),
    ("WSTREAM without a window", "SELECT ¦WSTREAM(*) FROM s", CQLSyntaxError, "needs a window", "[ROWS 10]"),
    ("an unknown thing to create", "CREATE ¦INDEX v AS SELECT 1", CQLSyntaxError, "INDEX", "CREATE STREAM"),
    ("SELECT misspelled", "CREATE QUERY v AS ¦SELCT a FROM s", CQLSyntaxError, 'found "SELCT"', "SELECT"),
    ("FROM misspelled", "SELECT a FORM ¦s [NOW]", CQLSyntaxError, "syntax error", 'FROM for "FORM"'),
    ("WHERE misspelled", "SELECT a FROM s [NOW] WEHRE ¦a > 1", CQLSyntaxError, "syntax error", 'WHERE for "WEHRE"'),
    ("GROUP misspelled", "SELECT a FROM s [NOW] GRUOP ¦BY a", CQLSyntaxError, "syntax error", 'GROUP for "GRUOP"'),
    ("an unknown format", "EXPLAIN (FORMAT ¦XML) SELECT a FROM s", CQLSyntaxError, "XML", "FORMAT JSON"),
    ("an unknown stream", "SELECT k FROM ¦uu", BindingError, 'stream or table "uu"', 'did you mean "u"'),
    ("an undeclared stream", "SELECT a FROM ¦bids", BindingError, '"bids"', "CREATE STREAM bids"),
    ("an unknown column", "SELECT ¦aa FROM s", BindingError, 'column "aa"', 'did you mean "a"'),
    ("an unknown qualified column", "SELECT ¦s.price FROM s", BindingError, "s.price", "columns are a, b, x, n, ts"),
    ("an unknown alias", "SELECT ¦z.a FROM s", BindingError, 'alias "z"', "FROM has s"),
    ("an unknown function", "SELECT ¦uper(n) FROM s", BindingError, 'function "uper"', 'did you mean "upper"'),
    ("an unregistered function", "SELECT ¦xyzzyplugh(n) FROM s", BindingError, "xyzzyplugh", "windrow.function"),
    ("an ambiguous name", "SELECT ¦a FROM s, t WHERE s.a = t.a", BindingError, 'ambiguous column "a"', "s.a or t.a"),
    ("an operator on wrong types", "SELECT ¦n + 1 FROM s", BindingError, "type mismatch", "CAST"),
    ("a comparison of wrong types", "SELECT a FROM s WHERE ¦s.n = s.a", BindingError, "type mismatch", "CAST"),
    ("a number compared with a word", "SELECT a FROM s WHERE ¦a > 'abc'", BindingError, "type mismatch", "CAST"),
    ("a join of wrong types", "SELECT 1 FROM s, t WHERE ¦s.a = t.ts", BindingError, "type mismatch", "CAST"),
    ("a join of wrong values", "SELECT 1 FROM s, t WHERE ¦s.a + 1 = t.ts", BindingError, "type mismatch", "CAST"),
    ("an aggregate of a wrong type", "SELECT ¦SUM(n) FROM s", BindingError, "SUM of a VARCHAR", "CAST"),
    ("a condition that is none", "SELECT a FROM s WHERE ¦n", BindingError, "needs a condition", "compare"),
    ("a zero window", "SELECT a FROM s [RANGE ¦0 SEC]", BindingError, "not positive", "greater than zero"),
    ("a negative window", "SELECT a FROM s [RANGE ¦-5 SEC]", BindingError, "not positive", "greater than zero"),
    ("a zero count", "SELECT a FROM s [ROWS ¦0]", BindingError, "ROWS 0", "greater than zero"),
    ("a zero slide", "SELECT a FROM s [RANGE 5 SEC SLIDE ¦0 SEC]", BindingError, "SLIDE 0 SEC", "greater than zero"),
    ("a zero slide of rows", "SELECT a FROM s [ROWS 5 SLIDE ¦0]", BindingError, "SLIDE 0", "greater than zero"),
    (
        "mixed slides",
        "SELECT s.a FROM s [NOW SLIDE 1 SEC], t [NOW SLIDE ¦2 SEC] WHERE s.a = t.a",
        BindingError, "SLIDE 2 SEC differs from SLIDE 1 SEC", "one SLIDE",
    ),
    (
        "mixed slides in EXISTS",
        "SELECT a FROM s [NOW SLIDE 1 SEC] WHERE EXISTS (SELECT * FROM t [NOW SLIDE ¦2 SEC] WHERE t.a = s.a)",
        BindingError, "differs", "one SLIDE",
    ),
    ("no time column", "CREATE STREAM ¦z (a BIGINT, b BIGINT)", BindingError, "no time column", "TIMESTAMP BY ts"),
    ("two timestamps", "CREATE STREAM ¦z (d TIMESTAMP, e TIMESTAMP)", BindingError, "no time column", "TIMESTAMP BY d"),
    ("a wrong time column", "CREATE STREAM z (b VARCHAR) TIMESTAMP BY ¦b", BindingError, "VARCHAR", "TIMESTAMP or"),
    ("an unknown time column", "CREATE STREAM z (ts BIGINT) TIMESTAMP BY ¦tss", BindingError, '"tss"', '"ts"'),
    ("an unknown type", "CREATE STREAM z (a ¦BIGNT, ts BIGINT)", BindingError, 'type "BIGNT"', '"BIGINT"'),
    ("a column twice", "CREATE STREAM z (ts BIGINT, ¦TS BIGINT)", BindingError, "stands twice", "another name"),
    ("a clause twice", "CREATE STREAM z (ts BIGINT) WITHIN 5 ¦WITHIN 6", CQLSyntaxError, "twice", "once"),
    ("a slack without unit", "CREATE STREAM z (ts TIMESTAMP) WITHIN ¦5", BindingError, "no unit", "5 SECONDS"),
    ("a taken stream name", "CREATE STREAM ¦S (ts BIGINT)", BindingError, "already exists", "DROP STREAM"),
    ("a stream twice", "CREATE STREAM ¦S (ts BIGINT)", BindingError, "already exists", "STREAM IF NOT EXISTS S"),
    ("a taken query name", "CREATE QUERY ¦r AS SELECT a FROM s", BindingError, "already exists", "DROP TABLE"),
    ("a constraint", "CREATE TABLE z (a BIGINT ¦PRIMARY KEY)", UnsupportedError, "PRIMARY KEY", "remove"),
    ("a window on a table", "SELECT * FROM s, r ¦[ROWS 5] WHERE s.a = r.a", BindingError, 'table "r"', "[ROWS 5]"),
    ("no stream", "SELECT ¦a FROM r", BindingError, "at least one stream", "add a stream"),
    ("no join condition", "SELECT s.a FROM s, ¦t", BindingError, "between s and t", "s.a = t.a, or write CROSS JOIN"),
    ("a third part apart", "SELECT s.a FROM s, t, ¦r WHERE s.a = t.a", BindingError, "between s and r", "s.a = r.a"),
    ("a part twice", "SELECT 1 FROM s, ¦s WHERE s.a = 1", BindingError, "stands twice in FROM", "alias"),
    ("an aggregate in WHERE", "SELECT a FROM s WHERE ¦sum(a) > 5", BindingError, "aggregate in WHERE", "HAVING"),
    ("an aggregate in GROUP BY", "SELECT 1 FROM s GROUP BY ¦sum(a)", BindingError, "aggregate in GROUP BY", "HAVING"),
    ("a column not grouped", "SELECT a, ¦n FROM s GROUP BY a", BindingError, 'column "n"', "add n to GROUP BY"),
    ("an ordinal out of range", "SELECT a FROM s GROUP BY ¦2", BindingError, "GROUP BY 2", "from 1"),
    ("nested aggregates", "SELECT sum(¦count(*)) FROM s", BindingError, "cannot be nested", "subquery"),
    ("a quantile out of range", "SELECT quantile(x, ¦3) FROM s", BindingError, "between 0 and 1", "0.9"),
    ("a bad k", "SELECT top_k(x, ¦0) FROM s", BindingError, "at least 1", "TOP_K(a, 10)"),
    ("ticks on a timestamp", "SELECT a FROM s [RANGE ¦5]", BindingError, "has no unit", "RANGE 5 SECONDS"),
    ("seconds on ticks", "SELECT k FROM u [RANGE ¦5 SEC]", BindingError, "has a unit", "plain number"),
    ("mixed clocks", "SELECT 1 FROM s, ¦u WHERE s.a = u.k", BindingError, "counts ticks", "same kind"),
    ("a partition by nothing", "SELECT a FROM s [PARTITION BY ¦zz ROWS 3]", BindingError, '"zz"', "columns are"),
    ("restore without a period", "SELECT ¦ISTREAM_RESTORE(a) FROM s [NOW]", BindingError, "periodic", "SLIDE"),
    (
        "a window on a relation", "SELECT m FROM (SELECT a m FROM s [NOW]) ¦[ROWS 10]",
        BindingError, "not a stream", "ISTREAM(...)",
    ),
    ("too many columns", "SELECT a FROM s UNION ALL SELECT ¦a, n FROM t", BindingError, "1 and 2", "same number"),
    ("columns that do not meet", "SELECT ts FROM s UNION ALL SELECT ¦a FROM t", BindingError, "type mismatch", "CAST"),
    ("IN with two columns", "SELECT a FROM s WHERE a IN (SELECT ¦a, c FROM t)", BindingError, "one column", None),
    ("ORDER BY", "SELECT a FROM s ORDER BY ¦a", UnsupportedError, "ORDER BY without LIMIT", "add LIMIT 10"),
    ("LIMIT", "SELECT a FROM s LIMIT ¦a", BindingError, "whole number of rows", "LIMIT 10"),
    ("OVER", "SELECT a FROM s WHERE ¦sum(a) OVER () > 1", BindingError, "OVER stands in the select list", "QUALIFY"),
    ("OVER", "SELECT lag(¦sum(a) OVER ()) OVER () FROM s", BindingError, "OVER inside another", "subquery"),
    ("OVER", "SELECT ¦sqrt(a) OVER () FROM s", UnsupportedError, "SQRT OVER", "ROW_NUMBER"),
    ("OVER", "SELECT ¦sum(a) OVER w FROM s", BindingError, 'unknown window "w"', "WINDOW w AS"),
    ("a scalar subquery", "SELECT (SELECT ¦a FROM t) FROM s", UnsupportedError, "several rows", "LIMIT 1"),
    ("two columns", "SELECT (SELECT ¦max(a), min(a) FROM t) FROM s", BindingError, "one column, not 2", None),
    (
        "a linked subquery", "SELECT (SELECT max(t.a) FROM t WHERE ¦coalesce(t.n, 0) < s.n) FROM s",
        UnsupportedError, "more than equalities", "FROM",
    ),
    ("POSITIONAL JOIN", "SELECT 1 FROM s POSITIONAL JOIN ¦t", UnsupportedError, "POSITIONAL JOIN", "LEFT"),
    ("an unknown aggregate", "SELECT ¦bitstring_agg(a) FROM s", UnsupportedError, "aggregate bitstring_agg", "TOP_K"),
    ("a clock function", "SELECT ¦now() FROM s", UnsupportedError, "now()", "time column"),
    ("DISTINCT and INTERNAL", "SELECT DISTINCT ¦a FROM s [NOW INTERNAL]", UnsupportedError, "DISTINCT", "INTERNAL"),
    (
        "ISTREAM in EXISTS", "SELECT a FROM s WHERE EXISTS (SELECT ¦ISTREAM(*) FROM t WHERE t.a = s.a)",
        UnsupportedError, "ISTREAM inside EXISTS", "remove the stream operator",
    ),
    (
        "a user function in an outer join", "SELECT 1 FROM s LEFT JOIN t ON s.a = t.a AND ¦midcap(t.n)",
        UnsupportedError, "user function", "subquery in FROM",
    ),
    ("an unknown query to drop", "DROP QUERY ¦foo", BindingError, 'unknown query "foo"', "no query"),
    ("an unknown query to explain", "EXPLAIN ¦foo", BindingError, 'unknown query "foo"', "no query"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "error", "primary", "hint"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_error(text, error, primary, hint, catalog):
    """The error has its class, its line and column, a lowercase message and a way out."""
    before, after = text.split("¦")
    script = f"-- a comment; with a semicolon\n  {before}{after}"
    with pytest.raises(error) as caught:
        for statement in cql.parse(script):
            cql.bind(statement, catalog)
    raised = caught.value
    assert type(raised) is error
    assert (raised.span.line, raised.span.column) == (2, len(before) + 3)
    assert raised.span.text == script.split("\n")[1]
    assert primary in raised.primary
    assert hint is None or hint in (raised.hint or "")
    assert "Candidate" not in str(raised)
    assert "sqlglot" not in str(raised)


def test_error_on_a_later_line(catalog):
    """Lines are counted in the whole script, columns in characters."""
    script = "SELECT a FROM s;\n\nSELECT 'é', a,\n       bb\nFROM s"
    first, second = cql.parse(script)
    cql.bind(first, catalog)
    with pytest.raises(BindingError) as caught:
        cql.bind(second, catalog)
    assert (caught.value.span.line, caught.value.span.column, caught.value.span.text) == (4, 8, "       bb")


def test_a_stream_in_use_cannot_be_dropped(catalog, declare):
    """DROP STREAM names the query that still reads it."""
    used = declare("CREATE QUERY hot AS SELECT a FROM s", catalog)
    (statement,) = cql.parse("DROP STREAM S")
    with pytest.raises(BindingError, match="is read by hot"):
        cql.bind(statement, used)


def test_binding_changes_nothing(catalog):
    """bind gives values; the catalog stays as it was."""
    before = (dict(catalog.streams), dict(catalog.tables), dict(catalog.queries))
    for statement in cql.parse("CREATE STREAM z (ts BIGINT); CREATE QUERY hot AS SELECT a FROM s; DROP TABLE r"):
        cql.bind(statement, catalog)
    assert (dict(catalog.streams), dict(catalog.tables), dict(catalog.queries)) == before


def test_compiled_classes_of_sqlglot_are_refused(tmp_path):
    """Where sqlglot is compiled, whose parser cannot be extended, the error says what to uninstall."""
    package = tmp_path / "sqlglot"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "parser.so").touch()
    code = "import windrow; windrow.run('SELECT a FROM s', {'s': {'ts': [1], 'a': [1]}}, runtime='local')"
    run = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert run.returncode != 0
    assert "sqlglot is compiled in this environment" in run.stderr
    assert "pip uninstall sqlglotc" in run.stderr
