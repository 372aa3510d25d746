"""SELECT to plans: the shapes that the lowering relies on, names, types and scopes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from sqlglot import exp

import windrow
from windrow import cql
from windrow.errors import BindingError, UnsupportedError
from windrow.plan.nodes import (
    Aggregate,
    Aggregation,
    Call,
    Emit,
    Equality,
    Filter,
    Join,
    LeftJoin,
    Project,
    Quantise,
    Scan,
    Semi,
    StreamOp,
    Window,
    WindowKind,
    walk,
)

SECOND = 1_000_000


def only(query, kind):
    """The only node of a kind."""
    (found,) = [n for n in walk(query.root) if isinstance(n, kind)]
    return found


def texts(exprs):
    return [e.sql(lambda name: name) for e in exprs]


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("SELECT * FROM s", "Emit(Window(Scan))"),
        ("SELECT a FROM s WHERE a > 1 AND b > 2", "Emit(Project(Filter(Filter(Window(Scan)))))"),
        ("SELECT DISTINCT a FROM s [NOW]", "Emit(Distinct(Project(Window(Scan))))"),
        ("SELECT COUNT(*) FROM s [NOW]", "Emit(Aggregate(Window(Scan)))"),
        ("SELECT n, SUM(x) FROM s GROUP BY n HAVING SUM(x) > 1", "Emit(Filter(Aggregate(Project(Window(Scan)))))"),
        ("SELECT SUM(x) / 2 FROM s", "Emit(Project(Aggregate(Project(Window(Scan)))))"),
        ("SELECT a FROM s [NOW SLIDE 1 SEC]", "Emit(Project(Quantise(Window(Scan))))"),
        ("SELECT ISTREAM_RESTORE(a) FROM s [NOW SLIDE 1 SEC]", "Emit(Project(Window(Scan)))"),
        ("SELECT a FROM s [NOW INTERNAL]", "Emit(Append(Project(Window(Scan))))"),
        ("SELECT a FROM s [NOW INTERNAL SLIDE 1 SEC]", "Emit(Project(Quantise(Window(Scan))))"),
        ("SELECT ISTREAM(a) FROM s [NOW INTERNAL]", "Emit(Append(Project(Window(Scan))))"),
        ("SELECT a FROM (SELECT a FROM s [NOW])", "Emit(Project(Window(Scan)))"),
        ("SELECT a FROM (SELECT ISTREAM(a) FROM s [NOW]) [ROWS 3]", "Emit(Window(Emit(Project(Window(Scan)))))"),
        (
            "SELECT a FROM (SELECT a FROM s [NOW INTERNAL]) [ROWS 3]",
            "Emit(Window(Emit(Append(Project(Window(Scan))))))",
        ),
        ("SELECT a FROM (SELECT ISTREAM(a) FROM s [NOW])", "Emit(Window(Emit(Project(Window(Scan)))))"),
        ("SELECT WSTREAM(a)[ROWS 3] FROM s [NOW]", "Emit(Window(Emit(Append(Project(Window(Scan))))))"),
        (
            "SELECT SUM(WSTREAM(SUM(x))[ROWS 3]) FROM s [NOW SLIDE 1 SEC]",
            "Emit(Aggregate(Window(Emit(Aggregate(Project(Quantise(Window(Scan))))))))",
        ),
        (
            "SELECT s.a FROM s [NOW SLIDE 1 SEC], t [NOW], r WHERE s.a = t.a AND s.a = r.a",
            "Emit(Project(Join(Quantise(Window(Scan)), Quantise(Window(Scan)), TableScan)))",
        ),
        (
            "SELECT s.a FROM s [NOW SLIDE 1 SEC INTERNAL], t [NOW] WHERE s.a = t.a",
            "Emit(Project(Join(Quantise(Window(Scan)), Quantise(Window(Scan)))))",
        ),
        (
            "SELECT a FROM s [NOW SLIDE 1 SEC] WHERE EXISTS (SELECT * FROM t [NOW] WHERE t.a = s.a)",
            "Emit(Project(Semi(Quantise(Window(Scan)), Quantise(Window(Scan)))))",
        ),
        (
            "SELECT a FROM s UNION ALL SELECT a FROM t",
            "Emit(Union(Project(Project(Window(Scan))), Project(Project(Window(Scan)))))",
        ),
        (
            "SELECT a FROM s UNION SELECT a FROM t",
            "Emit(Distinct(Union(Project(Project(Window(Scan))), Project(Project(Window(Scan))))))",
        ),
        (
            "SELECT a FROM s EXCEPT ALL SELECT a FROM t",
            "Emit(Difference(Project(Project(Window(Scan))), Project(Project(Window(Scan)))))",
        ),
        (
            "SELECT a FROM s INTERSECT ALL SELECT a FROM t",
            "Emit(Intersection(Project(Project(Window(Scan))), Project(Project(Window(Scan)))))",
        ),
        (
            "SELECT a FROM s EXCEPT SELECT a FROM t",
            "Emit(Semi(Distinct(Project(Project(Window(Scan)))), Project(Project(Window(Scan)))))",
        ),
        (
            "SELECT ISTREAM(a) FROM s UNION ALL SELECT DSTREAM(a) FROM t",
            "Emit(Union(Project(Window(Emit(Project(Window(Scan))))), Project(Window(Emit(Project(Window(Scan)))))))",
        ),
    ],
)
def test_shape(text, shape, outline):
    """A block has the one shape that the lowering expects."""
    assert outline(text) == shape


def test_operators_of_emit(plan):
    """No operator is a relation; a period makes it RSTREAM; an INTERNAL subquery streams its arrivals."""
    assert plan("SELECT a FROM s").root.op is StreamOp.RELATION
    assert plan("SELECT a FROM s").has_op
    periodic = plan("SELECT a FROM s [NOW SLIDE 2 SEC]").root
    assert (periodic.op, periodic.period) == (StreamOp.RSTREAM, 2 * SECOND)
    inner = plan("SELECT a FROM (SELECT a FROM s [NOW INTERNAL]) [ROWS 3]")
    assert [n.op for n in walk(inner.root) if isinstance(n, Emit)] == [StreamOp.ISTREAM, StreamOp.RELATION]


def test_rows_slide_is_not_periodic(plan):
    """Only a SLIDE in time makes a query periodic."""
    query = plan("SELECT a FROM s [ROWS 10 SLIDE 5]")
    assert (query.root.op, query.root.period) == (StreamOp.RELATION, None)


def test_derived_windows_are_marked(plan):
    """A window on a query's output knows that its rows have no arrival order."""
    query = plan("SELECT WSTREAM(a)[ROWS 3] FROM s [NOW]")
    assert [(n.derived, n.spec.kind) for n in walk(query.root) if isinstance(n, Window)] == [
        (False, WindowKind.NOW),
        (True, WindowKind.ROWS),
    ]


def test_one_join_with_equalities_and_residual(plan):
    """Equalities of columns, computed and cast keys below, the rest residual."""
    query = plan("SELECT s.b FROM s, t, r WHERE s.a = t.a AND t.c = s.b AND abs(r.a) = s.a AND s.x > t.c AND s.b > 3")
    join = only(query, Join)
    assert join.equalities == (
        Equality("s.a", "t.a"),
        Equality("s.b", "CAST(t.c AS BIGINT)"),
        Equality("s.a", "ABS(r.a)"),
    )
    assert texts(join.residual) == ["(s.x > t.c)"]
    assert texts([only(query, Filter).predicate]) == ["(s.b > 3)"]
    assert join.internal == ()
    assert all(e.left in join.parts[0].schema for e in join.equalities)
    assert join.schema["CAST(t.c AS BIGINT)"] == pa.int64()


@pytest.mark.parametrize("text", ["s JOIN t ON s.a = t.a", "s INNER JOIN t USING (a)", "s, t WHERE s.a = t.a"])
def test_spellings_of_a_join(text, plan):
    """Comma, ON and USING make the same join."""
    assert only(plan(f"SELECT s.b FROM {text}"), Join).equalities == (Equality("s.a", "t.a"),)


def test_using_merges_a_column(plan):
    """USING makes one column that needs no qualifier and stands once in *."""
    query = plan("SELECT *, a + 1 AS z FROM s JOIN t USING (a)")
    names = [name for name, _ in query.output]
    assert names == ["a", "b", "x", "n", "ts", "c", "y", "n", "ts", "z"]


def test_cross_join_needs_no_condition(plan):
    """CROSS JOIN says that a product is meant."""
    assert only(plan("SELECT s.a FROM s CROSS JOIN r"), Join).equalities == ()


def test_internal_flags_only_for_a_mix(plan):
    """A mix of INTERNAL and other windows marks the join's inputs; all INTERNAL does not."""
    mixed = plan("SELECT s.a FROM s [NOW INTERNAL], t [NOW], r WHERE s.a = t.a AND s.a = r.a")
    assert only(mixed, Join).internal == (True, False, False)
    every = plan("SELECT s.a FROM s [NOW INTERNAL], t [NOW INTERNAL] WHERE s.a = t.a")
    assert only(every, Join).internal == ()
    assert all(n.spec.internal for n in walk(every.root) if isinstance(n, Window))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM s [NOW INTERNAL], t [NOW] WHERE s.a = t.a",
        "SELECT s.a FROM s [ROWS 5 INTERNAL], t [NOW] WHERE s.a = t.a",
        "SELECT s.a FROM s [NOW INTERNAL] LEFT JOIN t [NOW INTERNAL] ON s.a = t.a",
        "SELECT a FROM s [NOW INTERNAL] EXCEPT ALL SELECT a FROM t [NOW INTERNAL]",
        "SELECT a FROM s [NOW INTERNAL] WHERE EXISTS (SELECT * FROM t [NOW] WHERE t.a = s.a)",
        "SELECT WSTREAM(DISTINCT a)[ROWS 4] FROM s [NOW]",
    ],
)
def test_what_internal_windows_cannot_do(text, plan):
    """Operators that take results back refuse INTERNAL windows."""
    with pytest.raises(UnsupportedError):
        plan(text)


def test_left_and_right_join(plan):
    """Conditions on the padded side filter it first; RIGHT is LEFT mirrored."""
    left = only(plan("SELECT s.a, c FROM s LEFT JOIN t ON s.a = t.a AND t.c > 5 AND s.b > 3"), LeftJoin)
    assert left.equalities == (Equality("s.a", "t.a"),)
    assert texts(left.residual) == ["(s.b > 3)"]
    assert texts([left.right.predicate]) == ["(t.c > 5)"]
    right = only(plan("SELECT s.a, name FROM r RIGHT JOIN s ON r.a = s.a"), LeftJoin)
    assert (set(right.left.schema) & {"s.a"}, set(right.right.schema) & {"r.a"}) == ({"s.a"}, {"r.a"})


def test_outer_join_takes_its_comma_item_only(outline):
    """a, b LEFT JOIN c pads b, then joins a."""
    text = "SELECT s.a FROM s, t LEFT JOIN r ON t.a = r.a WHERE s.a = t.a"
    assert outline(text) == "Emit(Project(Join(Window(Scan), LeftJoin(Window(Scan), TableScan))))"


def test_exists_is_correlated(plan):
    """Conditions between the two queries go to the semi-join, the others inside."""
    semi = only(
        plan("SELECT a FROM s WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.a = s.a AND t.c < s.b AND t.n = 'x')"), Semi
    )
    assert (semi.anti, semi.equalities, texts(semi.residual)) == (True, (Equality("s.a", "t.a"),), ["(t.c < s.b)"])
    assert texts([semi.right.predicate]) == ["(t.n = 'x')"]


def test_in_is_exists(plan):
    """x IN (SELECT c ...) is a semi-join, also over a grouped subquery."""
    assert only(plan("SELECT a FROM s WHERE a IN (SELECT a FROM t)"), Semi).equalities == (Equality("s.a", "t.a"),)
    grouped = plan("SELECT a FROM s WHERE a IN (SELECT a FROM t GROUP BY a HAVING COUNT(*) > 1)")
    assert only(grouped, Semi).equalities == (Equality("s.a", "t.a"),)
    assert only(grouped, Aggregate).keys == ("t.a",)


def test_a_stream_twice_has_two_names(plan):
    """Internal names stay unique when a subquery uses an alias again."""
    query = plan("SELECT a FROM s WHERE EXISTS (SELECT * FROM s WHERE a > 3 AND b = 1)")
    assert [n.alias for n in walk(query.root) if isinstance(n, Scan)] == ["s", "s#2"]


def test_validity_follows_the_links(plan):
    """A table row must be active at the time of every stream row that a condition links to it."""
    linked = only(plan("SELECT 1 FROM s, t, p WHERE s.a = p.a AND s.a = t.a"), Join)
    assert texts(linked.residual) == ["(p.since IS NULL OR p.since <= s.ts)", "(p.till IS NULL OR s.ts < p.till)"]
    both = only(plan("SELECT 1 FROM s, t, p WHERE s.a = p.a AND t.a = p.a"), Join)
    assert len(both.residual) == 4
    none = only(plan("SELECT 1 FROM s CROSS JOIN p"), Join)
    assert len(none.residual) == 2
    padded = only(plan("SELECT 1 FROM s LEFT JOIN p ON s.a = p.a"), LeftJoin)
    assert len(padded.residual) == 2
    exists = only(plan("SELECT 1 FROM s WHERE EXISTS (SELECT * FROM p WHERE p.a = s.a)"), Semi)
    assert len(exists.residual) == 2


def test_aggregates(plan):
    """Kinds, parameters, DISTINCT and FILTER; equal calls share one output."""
    query = plan(
        "SELECT COUNT(*), COUNT(s.*), COUNT(DISTINCT a), MIN(DISTINCT a), SUM(x) FILTER (WHERE a > 3), VAR_SAMP(x), "
        "QUANTILE(x, 0.9), QUANTILE_CONT(x, 0.25), TOP_K(n, 3), MEDIAN(a), SUM(a), SUM(a) + 1 AS more FROM s"
    )
    calls = only(query, Aggregate).calls
    assert [(c.kind, c.column, c.distinct, c.parameters, str(c.type)) for c in calls] == [
        ("count", None, False, (), "int64"),
        ("count", "s.a", True, (), "int64"),
        ("min", "s.a", False, (), "int64"),
        ("sum", "CASE WHEN s.a > 3 THEN s.x END", False, (), "double"),
        ("variance", "s.x", False, (), "double"),
        ("quantile", "s.x", False, (0.9,), "double"),
        ("quantile_cont", "s.x", False, (0.25,), "double"),
        ("top_k", "s.n", False, (3,), "list<item: string>"),
        ("median", "s.a", False, (), "double"),
        ("sum", "s.a", False, (), "decimal128(38, 0)"),
    ]


@pytest.mark.parametrize("keys", ["n, b + 1", "1, 2", "n, z", "ALL", "N, (B+1)"])
def test_spellings_of_group_by(keys, plan):
    """Columns, expressions, ordinals, aliases and ALL."""
    assert only(plan(f"SELECT n, b + 1 AS z, COUNT(*) FROM s GROUP BY {keys}"), Aggregate).keys == ("s.n", "(s.b + 1)")


def test_count_of_an_empty_key_list(plan):
    """A global aggregate has no keys."""
    assert only(plan("SELECT COUNT(*) FROM s"), Aggregate).keys == ()
    assert only(plan("SELECT 1 FROM s HAVING COUNT(*) > 1"), Aggregate).calls == (
        Aggregation("count", None, "count(*)", pa.int64()),
    )


def test_output_names(plan):
    """Alias, else column, else what DuckDB would call it; duplicates are allowed."""
    query = plan('SELECT A, s.a AS "Ä b", b+1, COUNT(*) c, Sum(x*2), COUNT(*), a FROM s GROUP BY a, b')
    assert [n for n, _ in query.output] == ["a", "Ä b", "(b + 1)", "c", "sum((x * 2))", "count_star()", "a"]
    assert query.output[0][1] == query.output[1][1] == query.output[6][1] == "s.a"
    query = plan("SELECT v, A, q.W, COUNT(*) AS n FROM (SELECT a, a AS v, a AS w FROM s) q GROUP BY v, a, w")
    assert [n for n, _ in query.output] == ["v", "a", "w", "n"]  # of columns that are one, the one that is written


def test_time_types(plan):
    """_ts has the type of the streams' time column."""
    assert plan("SELECT a FROM s").time_type == pa.timestamp("us")
    assert plan("SELECT k FROM u").time_type == pa.int64()


def test_user_functions_become_calls(plan):
    """Arguments are columns, a call is computed once, plain filters come first."""
    query = plan("SELECT midcap(n), SUM(score(a, x + 1)) FROM s WHERE midcap(n) AND a > 3 GROUP BY midcap(n)")
    calls = [n for n in walk(query.root) if isinstance(n, Call)]
    assert [(c.function, c.arguments, c.type) for c in calls] == [
        ("midcap", ("s.n",), pa.bool_()),
        ("score", ("s.a", "(s.x + 1)"), pa.float64()),
    ]
    assert [p.predicate.columns for p in walk(query.root) if isinstance(p, Filter)] == [{"s.a"}, {"midcap(s.n)"}]


def test_a_user_function_can_link_two_streams(plan):
    """A condition with a user function is a filter above the join, and counts as a join condition."""
    query = plan("SELECT s.a FROM s, t WHERE score(s.a, t.y) > 1")
    assert only(query, Join).equalities == ()
    assert only(query, Call).arguments == ("s.a", "t.y")


def test_aliases_reach_where_and_having(plan):
    """A name of the select list stands for its expression when no column has it."""
    query = plan("SELECT n, a + b AS total, MAX(x) AS top FROM s WHERE total > 5 GROUP BY n, total HAVING top > 1")
    filters = [f.predicate for f in walk(query.root) if isinstance(f, Filter)]
    assert texts(filters) == ["((s.a + s.b) > 5)", "(max(s.x) > 1)"]


def test_strings_as_the_papers_write_them(plan):
    """A quoted name that means nothing is a string; so is a bare one beside = with a string column."""
    assert texts([only(plan('SELECT a FROM s WHERE n = "VT"'), Filter).predicate]) == ["(s.n = 'VT')"]
    assert texts([only(plan("SELECT a FROM s WHERE n = ftp"), Filter).predicate]) == ["(s.n = 'ftp')"]
    with pytest.raises(BindingError, match="unknown column"):
        plan("SELECT a FROM s WHERE a = ftp")


@pytest.mark.parametrize("written", ["naem", '"naem"'])
def test_a_misspelled_column_is_no_string(written):
    """A name that looks like a column's is that name misspelled, not a text."""
    with pytest.raises(BindingError, match="unknown column") as error:
        windrow.run(f"SELECT name FROM s WHERE name = {written}", {"s": {"ts": [1], "name": ["naem"]}}, runtime="local")
    assert error.value.hint == "did you mean \"name\"? A text is written in single quotes: 'naem'"


def test_cte_and_nested_subqueries(plan):
    """WITH names subqueries, which may be used twice."""
    query = plan(
        "WITH z AS (SELECT ISTREAM(a, b) FROM s [NOW]) SELECT z1.a FROM z [ROWS 3] z1, z [NOW] z2 WHERE z1.a = z2.b"
    )
    assert only(query, Join).equalities == (Equality("s.a", "s#2.b"),)


def test_a_quantised_relation(plan):
    """A relation in a periodic block is looked at when the block is."""
    query = plan("SELECT COUNT(*) FROM (SELECT DISTINCT a FROM s [NOW]) z, t [NOW SLIDE 1 SEC] WHERE z.a = t.a")
    assert [n.period for n in walk(query.root) if isinstance(n, Quantise)] == [SECOND, SECOND]


def test_set_operations_cast_to_common_types(plan):
    """Both sides are projected to the same names and types."""
    query = plan("SELECT c FROM t UNION ALL SELECT x FROM s")
    sides = [n for n in walk(query.root) if isinstance(n, Project) and isinstance(n.input, Project)]
    assert [list(p.schema.items()) for p in sides] == [[("c", pa.float64())]] * 2


@pytest.mark.parametrize(
    ("text", "rendered", "type_"),
    [
        ("a + 1", "(s.a + 1)", "int64"),
        ("x::INT", "CAST(s.x AS INT)", "int32"),
        ("CASE WHEN a > 3 THEN 'é;x' ELSE n END", "CASE WHEN s.a > 3 THEN 'é;x' ELSE s.n END", "string"),
        ("ts + INTERVAL 5 MINUTE", "(s.ts + INTERVAL '5' MINUTE)", "timestamp[us]"),
        ("date_trunc('hour', ts)", "DATE_TRUNC('hour', s.ts)", "timestamp[us]"),
        ("coalesce(n, 'z')", "COALESCE(s.n, 'z')", "string"),
        ("a IN (1, 2)", "(s.a IN (1, 2))", "bool"),
        ("extract(hour FROM ts)", "(EXTRACT(HOUR FROM s.ts))", "int64"),
        ("[a, b][1]", "([s.a, s.b][1])", "int64"),
        ("'it''s' || n", "('it''s' || s.n)", "string"),
    ],
)
def test_expressions(text, rendered, type_, plan):
    """Scalars are DuckDB's text with holes, and DuckDB's types."""
    query = plan(f"SELECT {text} AS z FROM s")
    expr = dict(only(query, Project).outputs)[query.output[0][1]]
    assert (expr.sql(lambda n: n), str(expr.type), expr.functions) == (rendered, type_, ())


def test_sums_of_integers_stay_integers(plan):
    """A SUM of integers is DuckDB's HUGEINT again where an expression reads it, so a product does not overflow."""
    query = plan("SELECT SUM(a) * 1000 AS z, SUM(a) AS plain FROM s")
    assert [str(t) for t in query.root.schema.values()] == ["decimal128(38, 0)"] * 2
    assert texts([dict(query.root.input.outputs)[query.output[0][1]]]) == ["(CAST(sum(s.a) AS HUGEINT) * 1000)"]


def test_struct_fields(declare):
    """A dot reaches into a struct column."""
    known = declare("CREATE STREAM z (p STRUCT(q BIGINT, w STRUCT(v DOUBLE)), ts BIGINT)")
    query = cql.compile_select("SELECT p.q, z.p.w.v AS v FROM z", known, "q")
    assert [str(t) for t in query.root.schema.values()] == ["int64", "double"]


@pytest.mark.parametrize("column", ["t", "i", "h", "d", "f", "s"])
def test_a_comparison_has_one_type_whatever_its_number(column):
    """DuckDB is asked about one number of as many digits: it gives the same type, or refuses, for all of them."""
    from windrow.cql import types
    from windrow.cql.alike import alike
    from windrow.cql.expressions import _operand
    from windrow.plan.expr import sql_of

    columns = {
        "t": pa.int8(), "i": pa.int64(), "h": types.HUGEINT, "d": pa.decimal128(30, 20), "f": pa.float64(),
        "s": pa.string(),
    }  # fmt: skip
    for operator in ("BETWEEN 0.25 AND", "BETWEEN 1234 AND", "<", "=", "<>", ">="):
        for number in ("0", "7", "300", "99999", "999999999", "0.5", "0.00125", "00012.50", "123456789.987654321"):
            tree = exp.condition(f"{column} {operator} {number}", dialect="duckdb")
            sql = sql_of(_operand(tree))
            asked = [alike(tree, sql, columns), sql]
            said = []
            for text in asked:
                try:
                    said.append(types.expression_type(text, {column: columns[column]}))
                except types.DuckDBRefusal:
                    said.append(None)
            assert said[0] == said[1], asked
    assert alike(tree, sql, columns).endswith("111111111.111111111)")


@pytest.mark.parametrize("column", ["s", "t", "i", "f", "b"])
def test_a_comparison_has_one_type_whatever_its_text(column):
    """DuckDB is asked about one text where texts are compared; about each where it would be cast."""
    from windrow.cql import types
    from windrow.cql.alike import alike
    from windrow.cql.expressions import _operand

    columns = {
        "s": pa.string(), "t": pa.timestamp("us"), "i": pa.int64(), "f": pa.float64(), "b": pa.bool_(),
    }  # fmt: skip
    for operator in ("<", "=", "<>", "LIKE"):
        for text in ("", "7", "x'y", "a%", "2020-01-01", "true", "12.5"):
            tree = exp.condition(f"{column} {operator} {exp.Literal.string(text).sql()}", dialect="duckdb")
            parts, said = _operand(tree), []
            for shape in (str, lambda sql, tree=tree: alike(tree, sql, columns)):
                try:
                    said.append(types.type_of(parts, columns, shape))
                except types.DuckDBRefusal as refusal:
                    said.append(refusal.short)
            assert said[0] == said[1], (operator, text)


@pytest.mark.parametrize("column", ["t", "i", "h", "d", "f", "s", "b", "at"])
def test_a_condition_has_one_type_whatever_its_numbers(column):
    """A condition of tests with numbers is asked about once for all numbers of as many digits, and refused alike."""
    from windrow.cql import types
    from windrow.cql.alike import alike
    from windrow.cql.expressions import _operand

    columns = {
        "t": pa.int8(), "i": pa.int64(), "h": types.HUGEINT, "d": pa.decimal128(4, 2), "f": pa.float64(),
        "s": pa.string(), "b": pa.bool_(), "at": pa.timestamp("us"),
    }  # fmt: skip
    asked = []
    for first, second in (("7", "999"), ("8", "300"), ("0.5", "00012.50"), ("0.7", "00099.99"), ("999999999", "0")):
        for text in (
            f"{column} IN ({first}, {second})",
            f"NOT ({column} = {first} OR i > {second})",
            f"f <= {first} AND {column} BETWEEN {first} AND {second} AND i NOT IN ({second})",
        ):
            tree = exp.condition(text, dialect="duckdb")
            parts, said = _operand(tree), []
            for shape in (str, lambda sql, tree=tree: asked.append(alike(tree, sql, columns)) or asked[-1]):
                try:
                    said.append(types.type_of(parts, columns, shape))
                except types.DuckDBRefusal as refusal:
                    said.append(refusal.short)
            assert said[0] == said[1], text
    assert len({sql for sql in asked if '"' not in sql}) == 9, "one for each class of numbers"


def test_columns_of_the_same_types_are_asked_about_once(monkeypatch):
    """Operators look at types: DuckDB is asked about (c0 + c1), and of what it refuses about the columns themselves."""
    from windrow.cql import types
    from windrow.plan.expr import Ref

    asked, ask = [], types._ask
    monkeypatch.setattr(types, "_ask", lambda query: (asked.append(query), ask(query))[1])
    types._expression_type.cache_clear()
    columns = {"a": pa.int64(), "b": pa.float64(), "s": pa.string(), "c": pa.int64(), 'q"': pa.float64()}
    found = [types.type_of(("(", Ref(x), " + ", Ref(y), ")"), columns) for x, y in (("a", "b"), ("c", 'q"'))]
    assert found == [pa.float64()] * 2
    assert len(asked) == 1
    with pytest.raises(types.DuckDBRefusal, match="VARCHAR"):
        types.type_of(("(", Ref("a"), " + ", Ref("s"), ")"), columns)
    assert '"s"' in asked[-1]
    types.type_of(("struct_pack(", Ref("a"), ")"), columns)
    assert '"a"' in asked[-1]
