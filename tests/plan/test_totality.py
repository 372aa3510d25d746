"""What is called total never raises: judged over the extremes of every type."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from itertools import product

import pyarrow as pa
import pytest

from windrow.catalog import Catalog, StreamDef
from windrow.cql import compile_select
from windrow.errors import RuntimeFailure, WindrowError
from windrow.operators import scalar
from windrow.plan.expr import Expr, Ref
from windrow.plan.nodes import Filter, walk
from windrow.plan.raising import _RULES
from windrow.plan.totality import key_safe, total
from windrow.scalar_engine import binding, quote, select

LEAST, MOST = -(2**63), 2**63 - 1
INF, NAN = float("inf"), float("nan")
TEXTS = ["", "%", "\\", None, "é'", "a" * 300, "_", "\x00", "12", "2020-01-01", "[", "(", "👩‍👧", "-1", "abc"]
VALUES = {
    "i": pa.array([LEAST, MOST, 0, None, -1, 1, 2**53 + 1, 7], pa.int64()),
    "j": pa.array([0, -1, LEAST, None, MOST, 2], pa.int64()),
    "n": pa.array([-(2**31), 2**31 - 1, 0, None, -1], pa.int32()),
    "h": pa.array([-(2**15), 2**15 - 1, 0, None, -1], pa.int16()),
    "u": pa.array([0, 255, 1, None], pa.uint8()),
    "big": pa.array([0, 2**64 - 1, None], pa.uint64()),
    "x": pa.array([INF, -INF, NAN, -0.0, None, 1.7e308, -1.7e308, 5e-324, 1.0, -1.0, 0.5]),
    "f": pa.array([INF, -INF, NAN, -0.0, None, 3.4e38, -3.4e38, 1e-45], pa.float32()),
    "d": pa.array(list(map(Decimal, ("-99999999.99", "99999999.99", "0.00"))), pa.decimal128(10, 2)),
    "e": pa.array([Decimal("9" * 18), Decimal("-" + "9" * 18), None], pa.decimal128(18, 0)),
    "w": pa.array([Decimal("9" * 38), Decimal("-" + "9" * 38), None, Decimal(0)], pa.decimal128(38, 0)),
    "t": pa.array(TEXTS),
    "b": pa.array([True, False, None]),
    "ts": pa.array([0, 2**62, -(2**61), None, 1, MOST, -MOST, 1 - MOST, -9223372022400000000], pa.timestamp("us")),
    "tn": pa.array([0, 2**62, -(2**61), None, 1, MOST, -MOST], pa.timestamp("ns")),
    "tz": pa.array([0, 2**60, -(2**60), None, 1, MOST, -MOST], pa.timestamp("us", "UTC")),
    "day": pa.array([0, 2**31 - 1, 1 - 2**31, 2 - 2**31, None, 2**31 - 2, 18000], pa.date32()),
    "at": pa.array([0, 86399999999, None], pa.time64("us")),
}  # fmt: skip
TYPES = {name: values.type for name, values in VALUES.items()}
NAMES = sorted(TYPES, key=len, reverse=True)

TOTAL = [
    "(#i > 3)", "(#i = -1)", "(#i BETWEEN 1 AND 9)", "(#i IN (1, 2))", "(#i % 7 = 0)", "(#i / #j > 1)",
    "(#i % 0 = 0)", "(#x * 2 + 1 > #x)", "(#t LIKE 'a%')", "(NOT #t IS NULL)", "(LOWER(#t) = 'it''s')",
    "(LENGTH(#t) > 3)", "(#i > '3')", "(#ts > '2020-01-01')", "(#ts > CAST('2020-01-01 10:00:00' AS TIMESTAMP))",
    "(#i > 1.5)", "(#x > 1e300)", "(#t = 'a' OR #x > 3)", "(#t IS NULL OR #i > 3)",
    "(#x BETWEEN 1 AND 5 OR #t = 'x')", "(#d > 3.5)", "(#d = #i)", "(#t ILIKE '%a')", "(abs(#x) > 3)",
    "(abs(#d) > 3)", "(round(#x, 2) > 1)", "(round(#d, 1) = 2)", "(round(#i) = 2)", "coalesce(#i, #n, 0)",
    "CASE WHEN #i > 3 THEN #t WHEN #b THEN 'x' ELSE lower(#t) END", "(nullif(#t, '') = 'x')",
    "(greatest(#i, #n) > 2)", "(least(#d, 7, #u) < 2)", "(upper(#t) || 'x' = 'Ax')", "(length(#t) + 1 > 3)",
    "(#i % 100 + 1 > 3)", "(CAST(#n AS BIGINT) + 1 > 3)", "(CAST(#n AS BIGINT) * #n > 3)", "(#d + 1 > 2.5)",
    "(#d * 2.5 > 3)", "(-#d < 1)", "(#i ** 2 > 3)", "(hour(#ts) * 60 + minute(#ts) > 600)",
    "(#ts::DATE > '2020-01-01')", "(date_trunc('hour', #ts) = #ts)", "(extract(year FROM #day) > 2000)",
    "(year(#tz) > 2000)", "(#tz > '2020-01-01 10:00:00+00')", "(#tz < CAST('2020-01-01' AS TIMESTAMPTZ))",
    "(#ts = #ts)", "(TRY_CAST(#t AS BIGINT) > 3)", "(TRY(#i + 1) > 3)",
    "(CAST(#i AS VARCHAR) LIKE '1%')", "(#i IS DISTINCT FROM #n)", "(regexp_matches(#t, 'a.*b'))",
    "(substring(#t, 1, 3) = 'a')", "(left(#t, 2) IN ('a', 'b'))", "(CAST(#b AS INT) = 1)", "(sqrt(#x) > 2)",
    "(ln(#i) > 2)", "(sign(#i) = 1)", "(CAST(#d AS BIGINT) > 3)", "(#n // 7 = 3)", "(#u & 3 = 1)",
    "(contains(#t, 'a'))", "(starts_with(#t, #t))", "(strpos(#t, 'a') = 1)", "(#i = #d)", "(#w IS NULL)", "(#w = #i)",
    "(#i > 12345678901234567890)", "(#b OR NOT (#x > #n))", "(concat(#t, #i) = 'a1')", "(#big > 3)", "(#x > #big)",
]  # fmt: skip
RAISING = [
    "(#i + 1)", "(#i % #j = 0)", "(#i // #j = 0)", "(CAST(#t AS INT) > 3)", "(ABS(#i) > 1)", "(#w > 0.5)",
    "(#i - #j > 0)", "(#n + 1)", "(#n * #n > 3)", "(-#i)", "(-#u < 1)", "(#e * 10 > 1)", "(#w + #w > 1)",
    "(#i > 0.12345678901234567890)", "(CAST(#x AS INT) > 3)", "(CAST(#i AS INT) > 3)", "(CAST(#x AS FLOAT) > 3)",
    "(#i << 1 > 3)", "(CAST(#d AS TINYINT) > 3)", "(substring(#t, #i) = 'a')", "(#ts + INTERVAL 1 DAY > #ts)",
    "(#day = #ts)", "(epoch_ms(#ts) > 3)", "(date_trunc('year', #ts) = #ts)", "(#u + 1)", "(round(#i, -1) > 1)",
    "(regexp_matches(#t, #t))", "(CASE WHEN #b THEN #i + 1 ELSE 0 END > 1)", "(coalesce(#i, CAST(#t AS BIGINT)) > 1)",
]  # fmt: skip


def parsed(text: str) -> Expr:
    """An expression from text in which `#name` is a column."""
    parts: list[str | Ref] = []
    for n, piece in enumerate(text.split("#")):
        name = next((k for k in NAMES if n and piece.startswith(k)), "")
        parts += [Ref(name), piece[len(name) :]] if name else [piece]
    return Expr(tuple(parts), pa.null())


def raises(e: Expr) -> bool:
    """Whether DuckDB raises on some of the extremes, all columns with all others."""
    names = sorted(e.columns) or ["b"]
    places = list(product(*(range(len(VALUES[name])) for name in names)))
    rows = {name: VALUES[name].take(pa.array(at)) for name, at in zip(names, zip(*places, strict=True), strict=True)}
    try:
        scalar.evaluate(rows, len(places), [(f"({e.sql()}) IS NULL", pa.bool_())])
    except RuntimeFailure:
        return True
    return False


@pytest.mark.parametrize("text", TOTAL)
def test_total_expressions_never_raise(text: str) -> None:
    """What is called total has a value on extremes, nulls, zeros, NaN and odd strings."""
    assert total(parsed(text), TYPES)
    assert not raises(parsed(text))


@pytest.mark.parametrize("type_", ["TIMESTAMPTZ", "TIMESTAMP", "DATE", "TIME", "INTERVAL", "UUID", "BLOB", "BIGINT[]"])
def test_what_a_written_text_is_leaves_the_connection_as_it_was(type_: str) -> None:
    """Whatever a text is cast to: whoever is asked next answers."""
    total(parsed(f"(CAST('2020-01-01 10:00:00' AS {type_}) IS NULL)"), TYPES)
    with binding() as connection:
        assert select(connection, "SELECT 7 AS c").to_arrow_table().to_pylist() == [{"c": 7}]


@pytest.mark.parametrize("text", RAISING)
def test_expressions_that_raise(text: str) -> None:
    """What raises on some value is not called total."""
    assert not total(parsed(text), TYPES)
    assert raises(parsed(text))


@pytest.mark.parametrize("text", ["(list_sum([#i]) > 3)", "(json_valid(#t))", "(chr(#h) = 'a')"])
def test_what_is_not_known_may_raise(text: str) -> None:
    """A function that is not on the page is taken to raise, whatever it does."""
    assert not total(parsed(text), TYPES)


def calls() -> Iterator[str]:
    """Every function and sign that has a rule, over columns of one and of two types."""
    names = [n for n in _RULES if n not in ("constant", "cast", "case", "test", "try_cast", "round", "regexp_matches")]
    kinds = ["i", "n", "u", "x", "f", "d", "w", "t", "b", "ts", "day", "tz"]
    for name in names:
        word = name[0].isalpha()
        for a in kinds:
            yield f"{name}(#{a})" if word else f"{name} #{a}"
            yield from (f"{name}(#{a}, #{b})" if word else f"(#{a} {name} #{b})" for b in (a, "j", "t", "x"))


def test_every_rule_holds() -> None:
    """For arguments of all types: what the rules let pass has a value for all extremes of these."""
    found = [text for text in calls() if total(parsed(text), TYPES)]
    assert len(found) > 300
    for text in found:
        assert not raises(parsed(text)), text


@pytest.mark.parametrize("width", range(1, 39))
def test_decimals_of_every_width(width: int) -> None:
    """Arithmetic, rounding and casts of the least and greatest decimals: what is called total has a value."""
    judged = 0
    for scale in {0, 1, width // 2, width}:
        type_, nines = pa.decimal128(width, scale), (9,) * width
        rows = {"d": pa.array([*(Decimal((sign, nines, -scale)) for sign in (0, 1)), Decimal(0), None], type_)}
        for text in (
            "#d + #d", "#d - 1", "#d * #d", "#d * 1.5", "-#d", "abs(#d)", "round(#d)", "round(#d, 1)", "ceil(#d)",
            "floor(#d)", "CAST(#d AS BIGINT)", "CAST(#d AS HUGEINT)", "CAST(#d AS DOUBLE)", "#d > 3.5", "#d = 7",
            "#d % 3", "CAST(#d AS DECIMAL(20, 4))", "CAST(#d AS VARCHAR)", "greatest(#d, 1)", "#d / 3",
            "#d BETWEEN -1 AND #d",
        ):  # fmt: skip
            e = parsed(text)
            if total(e, {"d": type_}):
                judged += 1
                scalar.evaluate(rows, 4, [(f"({e.sql()}) IS NULL", pa.bool_())])
    assert judged > 20


LEAVES = {
    "number": ("i", "n", "h", "x", "d", "e", "u", "3", "1.5", "1e0", "-2", "100", "NULL"),
    "text": ("t", "'a'", "''", "NULL"),
    "truth": ("b", "true"),
}
MADE = {
    "number": (
        "({number} + {number})", "({number} - {number})", "({number} * {number})", "({number} / {number})",
        "({number} % {number})", "abs({number})", "(-{number})", "coalesce({number}, {number})", "length({text})",
        "CASE WHEN {truth} THEN {number} ELSE {number} END", "greatest({number}, {number})", "round({number})",
        "CAST({number} AS BIGINT)", "CAST({number} AS DOUBLE)", "nullif({number}, {number})", "hour(ts)",
    ),
    "text": ("lower({text})", "({text} || {text})", "coalesce({text}, {text})", "CAST({number} AS VARCHAR)",
             "CASE WHEN {truth} THEN {text} ELSE {text} END", "left({text}, 2)"),
    "truth": (
        "({number} > {number})", "({number} = {number})", "({number} BETWEEN {number} AND {number})",
        "({text} = {text})", "({text} LIKE 'a%')", "({text} ILIKE '%a%')", "({number} IN (1, {number}))",
        "({number} IS NULL)", "({text} IS NULL)", "({truth} AND {truth})", "({truth} OR {truth})", "(NOT {truth})",
        "(ts > '2020-01-01')", "(day <= '2020-01-01')", "({truth} IS NOT NULL)", "({text} IN ('a', 'b'))",
    ),
}  # fmt: skip


def written(r: random.Random, kind: str, depth: int) -> str:
    """A random expression of numbers, texts or truths."""
    if depth == 0 or r.random() < 0.15:
        return r.choice(LEAVES[kind])
    text = r.choice(MADE[kind])
    for inner in LEAVES:
        while f"{{{inner}}}" in text:
            text = text.replace(f"{{{inner}}}", written(r, inner, depth - 1), 1)
    return text


CATALOG = Catalog().add(StreamDef("st", {"now": pa.int64(), **TYPES}, "now"))


def bound(text: str) -> Expr | None:
    """A condition as the binder has it; None if it refuses it."""
    try:
        plan = compile_select(f"SELECT now FROM st [RANGE 1] WHERE {text}", CATALOG, "q")
    except WindrowError:
        return None
    (found, *_) = [n.predicate for n in walk(plan.root) if isinstance(n, Filter)]
    return found.substitute({f"st.{c}": Expr((Ref(c),), t) for c, t in TYPES.items()})


@pytest.mark.parametrize("seed", range(4))
def test_random_conditions_that_are_total_never_raise(seed: int) -> None:
    """As the binder understands them, in random nests: for some thousand random rows of extremes."""
    r, judged, refused = random.Random(seed), 0, 0
    rows = {n: v.take(pa.array([r.randrange(len(v)) for _ in range(2000)])) for n, v in VALUES.items()}
    for _ in range(150):
        text = written(r, "truth", r.randint(1, 4))
        e = bound(text)
        if e is None or not e.columns:
            continue
        if not total(e, TYPES):
            refused += 1
            continue
        judged += 1
        values = scalar.evaluate({n: rows[n] for n in e.columns}, 2000, [(e.sql(), pa.bool_())])
        assert len(values[0]) == 2000, text
    assert judged > 40
    assert refused > 5


def test_key_safe_tells_comparisons_from_looks() -> None:
    """Division and casts tell -0.0 from 0.0; comparisons and integers do not."""
    for text in ("(#x > 0.5)", "(CAST(#t AS INT) > 3)", "(abs(#x) + 1 > 2)", "(CASE WHEN #x > 1 THEN #t ELSE 'a' END)"):
        assert key_safe(parsed(text), TYPES), text
    for text in ("(1 / #x > 0)", "(CAST(#x AS VARCHAR) = '-0.0')", "(signbit(#x))", "(atan2(#x, 1) > 0)", "hash(#f)"):
        assert not key_safe(parsed(text), TYPES), text


def test_columns_that_are_key_safe_agree() -> None:
    """What is called key-safe gives the same for 0.0 and -0.0, whatever is beside them."""
    floats = [text for text in calls() if "#x" in text and key_safe(parsed(text), TYPES)]
    assert len(floats) > 20
    for text in floats:
        e = parsed(text)
        others = sorted(e.columns - {"x"})
        for at in product(*(range(len(VALUES[n])) for n in others)):
            rows = {n: VALUES[n].take(pa.array([i, i])) for n, i in zip(others, at, strict=True)}
            try:
                (same,) = scalar.evaluate({**rows, "x": pa.array([0.0, -0.0])}, 2, [(f"hash({e.sql()})", pa.uint64())])
            except RuntimeFailure:
                continue
            assert same[0] == same[1], text


def test_a_column_of_any_type_is_total() -> None:
    """Nothing is computed of it; what is computed of lists is not known."""
    lists = {"l": pa.list_(pa.int64())}
    assert total(Expr((Ref("l"),), lists["l"]), lists)
    assert not total(Expr((Ref("l"), " = [1]"), pa.bool_()), lists)
    assert quote("l") == Expr((Ref("l"),), lists["l"]).sql()
