"""What a text takes is bounded: memory in flight, rows made of one row, and one time for all expressions of a call."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

import windrow
from windrow import scalar_engine
from windrow.errors import RuntimeFailure, UnsupportedError
from windrow.operators import scalar


def enum(count: int) -> str:
    """A type of so many values."""
    return "ENUM(" + ", ".join(f"'e{i}'" for i in range(count)) + ")"


LONG = "k" * 50_000
MULTIPLIED = [
    # a value that is shown, put or found many times
    "length(format('" + "{0}" * 3000 + "', repeat(n, 100)))",
    "length(printf('" + "%1$s" * 2000 + "', repeat(n, 100)))",
    "length(concat_ws(repeat(n, 400), " + ", ".join(["''"] * 500) + "))",
    "length(array_to_string(list_select([repeat(n, 100)], list_transform(range(9000), lambda i: 1)), ''))",
    "len(list_resize([[1]], 40000, range(40000)))",
    "len(array_resize([''], 9000, repeat(n, 90)))",
    "regexp_extract(repeat(n, 90), '((((.*))))', [" + ", ".join(f"'g{i}'" for i in range(900)) + "]) IS NULL",
    "len(json_extract('\"' || repeat(n, 90) || '\"', [" + ", ".join(["'$'"] * 500) + "]))",
    "len(json_extract('\"' || repeat(n, 90) || '\"', list_transform(range(20000), lambda v: '$')))",
    "len(json_extract('\"' || n || '\"', '$.' || '.*'))",
    "len(json_extract(repeat('[', 900) || repeat(']', 900), '$..*..*'))",
    "len((repeat('[', 900) || repeat(']', 900))::JSON -> '$..*')",
    "len(list_transform(range(9000), lambda v: json_keys('{}', [" + ", ".join(["'$'"] * 100) + "])))",
    # names and places that a type brings along
    f"len(list_transform(range(9000), lambda v: enum_range(NULL::{enum(200)})))",
    f"length(array_to_string(list_transform(range(9000), lambda v: typeof(NULL::{enum(200)})), ''))",
    f"length(list_transform(range(3000), lambda v: {{'{LONG}': v}})::VARCHAR)",
    f"length(list_transform(range(3000), lambda v: struct_pack({LONG} := v))::VARCHAR)",
    f"length(list_transform(range(3000), lambda v: row(v))::STRUCT({LONG} INT)[]::VARCHAR)",
    "len(list_transform(range(900), lambda v: NULL::INT[100][100]))",
    "(NULL::STRUCT(" + ", ".join(f"f{i} INT[10000]" for i in range(20)) + ")).f1 IS NULL",
    # types whose values are as large as what they are made of
    *(f"length(repeat(repeat(n, 900)::{t}::VARCHAR, 3000))" for t in ("VARIANT", "UNION(a VARCHAR)", "BIGNUM")),
    *(f"length(repeat(repeat(n, 900)::{t}, 9000))" for t in ("NVARCHAR", "BPCHAR", "JSONB")),
    "length(repeat(('LINESTRING(' || repeat('1 1,', 20000) || '1 1)')::GEOMETRY::VARCHAR, 3000))",
    *(
        f"length(repeat(({bits})::VARCHAR, 3500))"
        for bits in (
            "xor(repeat('1', 12000)::BIT, '0'::BIT)",
            "repeat('1', 12000)::BIT << 1",
            "~repeat('1', 12000)::BIT",
        )
    ),
    # steps of regular expressions, each of which is taken for every place of the text
    "regexp_matches(repeat(n, 500), '" + "x?" * 20_000 + "b')",
    "repeat(n, 900) SIMILAR TO '" + "x{0,999}" * 50 + "b'",
    "regexp_matches(n, '" + "x{0,999}" * 500 + "b')",
    "len(regexp_extract_all(repeat(n, 900), 'x*y|x'))",
    "length(regexp_replace(repeat(n, 900), 'x*y|x', '', 'g'))",
    "len(string_split_regex(repeat(n, 900), 'x*y|x'))",
]
DECLARED = "CREATE STREAM s (a BIGINT, n VARCHAR, l BIGINT[], ts BIGINT);"
ROWS = {"a": [1, 2], "n": ["x" * 100, "y"], "l": [[3, 1, 2], []], "ts": [1, 2]}


def run(query: str) -> list[dict[str, object]]:
    """The answer of one query over two rows."""
    return windrow.run(f"{DECLARED} {query}", streams={"s": ROWS}, runtime="local")["q1"].to_pylist()


@pytest.mark.parametrize(
    "text",
    [
        "bitstring('1', 100000000)",
        "bitstring('1', a::INTEGER * 1000000)",
        "list_transform(l, lambda v: length(repeat(n || v::VARCHAR, 900)))",
        "list_filter(l, lambda v: len(list_resize(l, 99000)) + len(list_resize(l, 98000)) > v)",
        "list_reduce(range(300), lambda v, w: v + len(list_resize(l, 90000)))",
        " + ".join(f"length(rpad(n, {99000 - i}, 'x'))" for i in range(120)),
    ],
)
def test_what_parts_make_of_a_row_is_bounded(text: str) -> None:
    """A length from elsewhere, what a lambda makes for each element, and many parts: refused before anything runs."""
    with pytest.raises(UnsupportedError):
        run(f"SELECT {text} AS v FROM s")


@pytest.mark.parametrize("text", MULTIPLIED, ids=range(len(MULTIPLIED)))
def test_what_multiplies_is_bounded(text: str) -> None:
    """Short texts that would make gigabytes, or take minutes for one row: refused before anything runs."""
    with pytest.raises(UnsupportedError, match=r"a value of up to|make more than|a path that is computed"):
        run(f"SELECT {text} AS v FROM s")


@pytest.mark.parametrize(
    "text",
    [
        "format('{} {} {:>5}', n, n, a)",
        "concat_ws(', ', n, n, a::VARCHAR)",
        "json_extract_string('{\"a\": {\"b\": 1}}', '$.a.b')",
        "len(json_extract('[[1], [2]]', '$[*][*]'))",
        "list_transform(['$.a', '$.b'], lambda p: json_extract_string('{\"a\": 1}', p))",
        "regexp_replace(n, '([a-z]+)-(\\d{1,4})', '\\2', 'g')",
        "regexp_extract(n, '(x+)(y*)', ['one', 'two'])",
        "len(string_split_regex(n || n, '[,;] *'))",
        "list_select(l, [1, 2])",
        "list_resize(l, 5, 0)",
        "('{\"aa\": 1}'::JSON::STRUCT(aa INT)).aa",
        "a & 3 | 4 << 1",
    ],
)
def test_what_people_write_is_not_refused(text: str) -> None:
    """The same functions with what they are for."""
    assert len(run(f"SELECT {text} AS v FROM s")) == 2


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a FROM s, unnest(range(99999)) u(v), unnest(range(99999)) w(x)",
        "SELECT y FROM (SELECT unnest(range(99999)) AS y, l FROM s) q, unnest(range(9999)) w(x)",
        "SELECT unnest(list_resize(l, 9000)) AS z FROM (SELECT unnest(list_resize(l, 9000)) AS y, l FROM s) q",
    ],
)
def test_lists_that_a_text_makes_multiply_rows_within_a_bound(query: str) -> None:
    """One UNNEST of a long list is as it was; several that multiply are refused by their product."""
    with pytest.raises(UnsupportedError, match="UNNEST of up to"):
        run(query)


def test_lists_of_rows_may_be_unnested_however_often() -> None:
    """They are data: nothing in the text says how many there are."""
    found = run("SELECT u.v, w.x, z.y FROM s, unnest(l) u(v), unnest(l) w(x), unnest(l) z(y)")
    assert len(found) == 27


def test_what_makes_much_takes_few_rows_at_a_time() -> None:
    """The same answer in one piece and row by row, and no more than the bound in flight."""
    text = "list_sort(list_transform(range(400), lambda v: length(n) * v % 7))"
    script = f"SELECT len(string_split(repeat(n, 90), 'x')) + list_sum({text}) AS v FROM s"
    assert [r["v"] for r in run(script)] == [
        9001 + sum(100 * v % 7 for v in range(400)),
        1 + sum(v % 7 for v in range(400)),
    ]


def test_memory_in_flight(tmp_path) -> None:
    """Vectors of 2,048 rows would hold gigabytes of these lists."""
    script = f"""
import re, windrow
items = ", ".join(f"string_split(repeat(n, {{890 + i}}), 'x') IS NULL AS c{{i}}" for i in range(4))
rows = {{"a": [1] * 700, "n": ["x" * 100] * 700, "l": [[]] * 700, "ts": list(range(700))}}
answer = windrow.run(f"{DECLARED} SELECT {{items}} FROM s", streams={{"s": rows}}, runtime="local")
assert answer["q1"].num_rows == 700
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])  # not what it was started by had
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True)
    assert int(found.stdout) < 1_000_000  # kilobytes


def test_expressions_that_are_evaluated_apart_have_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of forty may take as long as all of them, and no longer."""
    monkeypatch.setattr(scalar_engine, "SECONDS", 1.0)
    note = scalar_engine.noted(scalar_engine.IN_FLIGHT)
    asked = [
        (f"{note}len(list_sort(list_transform(range(300000), lambda v: v * {i + 1} % 977 + a)))", pa.int64())
        for i in range(40)
    ]
    with pytest.raises(RuntimeFailure, match="too long") as caught:
        scalar.evaluate({"a": pa.array([1] * 40)}, 40, asked)
    assert "/*" not in str(caught.value)


def test_functions_over_windows_that_make_much_stay_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of them that together make more than may be in flight are still values of the same rows."""
    monkeypatch.setattr(scalar, "IN_FLIGHT", 100_000)
    long = "repeat(repeat('x', 100), 900)"
    query = f"""
        SELECT ISTREAM(v, length(LAG({long} || k) OVER (PARTITION BY k ORDER BY v)) AS back,
               length(LEAD({long} || k, 1, '') OVER (PARTITION BY k ORDER BY v DESC)) AS forth) FROM s [NOW]"""
    rows = {"ts": [1] * 60, "k": [str(i % 7) for i in range(60)], "v": list(range(60))}
    (found,) = windrow.run(query, {"s": rows}, runtime="local").values()
    want = {(v, 90_001 if v >= 7 else None, 90_001 if v >= 7 else 0) for v in range(60)}
    assert {tuple(row.values())[1:] for row in found.to_pylist()} == want
