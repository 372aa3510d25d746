"""Random sets of continuous queries that differ in constants, windows, select lists and spelling."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from windrow.testing import seeded_case

FORMS = (
    "SELECT {e}a, x, s FROM S{w} WHERE {p}{f}",
    "SELECT {e}i.a AS k, i.x * 2 AS y FROM S AS i{w} WHERE {p}{f}",
    "SELECT {e}DISTINCT a, s FROM S{w} WHERE {p}{f}",
    "SELECT {e}a, COUNT(*) AS n, SUM(x) AS t FROM S{w} WHERE {p} GROUP BY a HAVING COUNT(*) > {c}{f}",
    "SELECT {e}a, COUNT(*) AS n, AVG(x) AS m FROM S{w} GROUP BY a HAVING COUNT(*) > {c} AND AVG(x) < 3{f}",
    "SELECT {e}s, MAX(x) AS m FROM S{w} GROUP BY s HAVING MAX(x) > {c}{f}",
    "SELECT {e}COUNT(*) AS n FROM S{w} HAVING COUNT(*) > {c}{f}",
    "SELECT {e}l.a, l.x, r.b FROM S AS l{w}, T AS r{v} WHERE l.a = r.a AND l.{p}{f}",
    "SELECT {e}l.s, r.b FROM S AS l{w}, T AS r{v} WHERE r.a = l.a AND r.b > {c} AND l.{p}{f}",
    "SELECT {e}l.a, r.b FROM S AS l{w}, T AS r{v} WHERE r.a = l.a AND l.x + r.x > {c}{f}",
    "SELECT {e}l.a, l.b FROM S AS l{w} WHERE l.{p} AND NOT EXISTS (SELECT 1 FROM T AS r{v} WHERE r.a = l.a){f}",
    "SELECT {e}l.a FROM S AS l{w} WHERE NOT EXISTS (SELECT 1 FROM T AS r{v} WHERE r.a = l.a AND r.b > {c}){f}",
    "SELECT {e}l.a, l.s FROM S AS l{w} WHERE l.{p} AND EXISTS (SELECT 1 FROM T AS r{v} WHERE r.a = l.a AND r.{p}){f}",
    "SELECT {e}l.a, p.v FROM S AS l{w}, P AS p WHERE l.a = p.k AND l.{p}{f}",
    "SELECT {e}{a, x, s, a + 1 AS y} FROM S{w} WHERE {p}{f}",
    "SELECT {e}{l.a, l.x, r.b, r.s AS z, l.x + r.x AS y} FROM S AS l{w}, T AS r{v} WHERE l.a = r.a AND r.{p}{f}",
    "SELECT {e}{l.a, l.s, l.x} FROM S AS l{w} WHERE l.{p} AND NOT EXISTS (SELECT 1 FROM T AS r{v} WHERE r.a = l.a){f}",
    "SELECT {e}{l.a, l.x, r.b, r.s AS z} FROM S AS l{w} LEFT JOIN T AS r{v} ON l.a = r.a WHERE l.{p}{f}",
    "SELECT {e}u.a, u.b FROM (SELECT a, b FROM S{w} WHERE {p} UNION ALL SELECT a, b FROM T{v} WHERE {p}) AS u{f}",
    "SELECT {e}u.a FROM (SELECT a FROM S{w} WHERE {p} UNION SELECT b FROM T{v} WHERE b > {c}) AS u WHERE u.a > {c}{f}",
    "SELECT {e}u.a FROM (SELECT a FROM S{w} WHERE {p} EXCEPT ALL SELECT a FROM T{v} WHERE {p}) AS u{f}",
    "SELECT {e}u.s FROM (SELECT s FROM S{w} WHERE {p} INTERSECT ALL SELECT s FROM T{v} WHERE {p}) AS u{f}",
    "SELECT {e}{l.a, l.x, r.b} FROM S AS l{w} FULL JOIN T AS r{v} ON l.a = r.a WHERE l.{p}{f}",
    "SELECT {e}{l.a, l.s, r.b} FROM S AS l{w} FULL JOIN T AS r{v} ON l.a = r.a WHERE l.a > {c} OR r.b > {c}{f}",
    "SELECT {e}{l.a, r.b, r.x} FROM S AS l{w} LEFT JOIN T AS r{v} ON l.a = r.a AND r.b > 0 WHERE l.{p}{f}",
    "SELECT {e}l.a, COUNT(*) AS n, SUM(r.x) AS t FROM S AS l{w}, T AS r{v} WHERE l.a = r.a AND l.{p} GROUP BY l.a{f}",
    "SELECT {e}l.a, COUNT(*) AS n FROM S AS l{w}, T AS r{v} WHERE l.a = r.a GROUP BY l.a HAVING COUNT(*) > {c}{f}",
    "SELECT {e}DISTINCT l.a, r.b FROM S AS l{w}, T AS r{v} WHERE l.a = r.a AND l.{p}{f}",
    "SELECT {e}a, COUNT(DISTINCT s) AS d, MIN(x) AS m FROM S{w} WHERE {p} GROUP BY a{f}",
    "SELECT {e}a, COUNT(*) AS n FROM S{w} WHERE {p} GROUP BY a HAVING COUNT(*) BETWEEN {c} AND 2 OR SUM(b) > {c}{f}",
    "SELECT {e}l.a, p.v FROM S AS l{w} LEFT JOIN P AS p ON l.a = p.k WHERE l.{p}{f}",
    "SELECT {e}l.a, r.b, m.x FROM S AS l{w}, T AS r{v}, S AS m{v} WHERE l.a = r.a AND r.a = m.a AND m.{p} AND l.{p}{f}",
    "SELECT {e}l.a FROM S AS l{w} WHERE NOT EXISTS (SELECT 1 FROM T AS r{v} WHERE r.a = l.a AND r.b > l.b) AND {p}{f}",
    "SELECT {e}a, x FROM S{w} WHERE ({p} OR {p}) AND NOT ({p} AND {p}){f}",
)
"""Shapes of queries: `{p}` a condition on a column, `{c}` a constant, `{w}` and `{v}` windows; `{a, b}` some."""

WHOLE = (
    "SELECT {e}COUNT(*) AS n, SUM(x) AS t FROM S{w} WHERE {p}{f}",
    "SELECT {e}AVG(x) AS m FROM S{w} WHERE a = {c}{f}",
    "SELECT {e}COUNT(*) AS n FROM S{w} WHERE {p} HAVING COUNT(*) < 3{f}",
    "SELECT {e}MAX(b) AS m, COUNT(DISTINCT s) AS d FROM S{w} WHERE {p}{f}",
    "SELECT {e}MAX(u.n) AS m FROM (SELECT a, COUNT(*) AS n FROM S{w} WHERE {p} GROUP BY a) AS u{f}",
    "SELECT {e}AVG(r.b) AS m FROM S AS l{w}, T AS r{v} WHERE l.a = r.a AND l.{p}{f}",
    "SELECT {e}l.a, r.m FROM S AS l{w}, (SELECT MIN(b) AS m FROM T{v} WHERE {p}) AS r WHERE l.a > r.m{f}",
    "SELECT {e}{l.a, l.s} FROM S AS l{w} WHERE l.{p} AND l.b > (SELECT AVG(b) FROM T{v}){f}",
    "SELECT {e}l.a FROM S AS l{w} WHERE l.{p} AND l.b > (SELECT COUNT(*) FROM T{v} WHERE b > {c}){f}",
)
"""The same with aggregates without GROUP BY."""


CONDITIONS = (
    *("@a > {c}", "@a = {c}", "@x < {c}", "@b <> {c}", "@a IN ({c}, {c})", "@s >= '{l}'", "@s = '{l}'", "@x IS NULL"),
    *("@s LIKE '{l}%'", "@b BETWEEN {c} AND 2", "@a IS NOT DISTINCT FROM {c}", "@a > {c} + 1", "@x <> 2 * {c}"),
    *("@f", "NOT @f", "@f IS NULL", "@d > {c}", "@d = 1.25", "@d * 2 < @x + {c}", "@s ILIKE '%{l}%'", "@a > @b"),
    *("abs(@x) > {c}", "coalesce(@b, @a, {c}) = {c}", "upper(@s) || 'x' > '{l}'", "length(@s) = {c}", "@a % 2 = {c}"),
    *("CASE WHEN @f THEN @x > {c} ELSE @s = '{l}' END", "greatest(@a, @b) > {c}", "round(@x) IN ({c}, 1)"),
)
"""Conditions on columns of S and T, which all are called `@name`."""
RAISING = ("@a + 1 > {c}", "CAST(@x AS INTEGER) > {c}", "abs(@b) = {c}")
"""Conditions that may raise, and so do not share."""
WINDOWS = ("", " [RANGE 3]", " [RANGE 7]", " [NOW]", " [ROWS 3]", " [PARTITION BY a ROWS 2]")
TIMED = (" [RANGE 3]", " [RANGE 7]", " [NOW]", " [RANGE UNBOUNDED]")
LENGTHS = (" [RANGE UNBOUNDED]", " [RANGE 2]", " [RANGE 3]", " [RANGE 7]", " [RANGE 12]", " [NOW]")


PLAIN = pa.table({"k": [0, 1, 1, 2], "v": ["p", "q", "r", None], "w": [1.0] * 4, "since": [0] * 4, "til": [9] * 4})


PERIODIC = (
    "SELECT {e}a, x, s FROM S{w} WHERE {p}{f}",
    "SELECT {e}{a, x, s} FROM S{w} WHERE {p}{f}",
    "SELECT {e}DISTINCT a, s FROM S{w} WHERE {p}{f}",
    "SELECT {e}l.a, l.x, r.b FROM S AS l{w}, T AS r{v} WHERE l.a = r.a AND l.{p}{f}",
    "SELECT {e}{l.a, l.b} FROM S AS l{w} WHERE l.{p} AND NOT EXISTS (SELECT 1 FROM T AS r{v} WHERE r.a = l.a){f}",
    "SELECT {e}l.a FROM S AS l{w} WHERE NOT EXISTS (SELECT 1 FROM T AS r{v} WHERE r.a = l.a AND r.b > {c}){f}",
    "SELECT {e}{l.a, l.x, r.b} FROM S AS l{w} LEFT JOIN T AS r{v} ON l.a = r.a WHERE l.{p}{f}",
    "SELECT {e}l.a, r.b FROM S AS l{w} FULL JOIN T AS r{v} ON l.a = r.a WHERE l.{p}{f}",
    "SELECT {e}u.a FROM (SELECT a FROM S{w} WHERE {p} UNION SELECT b FROM T{v} WHERE b > {c}) AS u{f}",
    "SELECT {e}u.a FROM (SELECT a FROM S{w} WHERE {p} EXCEPT ALL SELECT a FROM T{v} WHERE {p}) AS u{f}",
    "SELECT {e}l.a, p.v FROM S AS l{w}, P AS p WHERE l.a = p.k AND l.{p}{f}",
    "SELECT {e}a, x FROM TUMBLE(S, ts, 3) WHERE {p}{f}",
)
"""The same for windows with a SLIDE."""
ASOF = (
    "SELECT {e}l.a, l.x, r.b FROM S AS l [NOW] ASOF JOIN T AS r ON l.a = r.a AND l.ts >= r.ts WHERE l.{p}{f}",
    "SELECT {e}{l.a, r.b, r.s AS z} FROM S AS l{w} ASOF JOIN T AS r{v} ON l.a = r.a AND l.ts >= r.ts WHERE l.{p}{f}",
    "SELECT {e}l.a, r.b FROM S AS l{w} ASOF LEFT JOIN T AS r{v} ON l.a = r.a AND l.ts > r.ts WHERE l.{p}{f}",
    "SELECT {e}l.a, r.b FROM S AS l{w} ASOF LEFT JOIN T AS r{v} ON l.ts >= r.ts WHERE r.b > {c} OR l.{p}{f}",
    "SELECT {e}l.a, r.b FROM S AS l{w} ASOF JOIN T AS r{v} ON l.a = r.a AND l.ts >= r.ts WHERE r.b > {c}{f}",
    "SELECT {e}l.a, COUNT(*) AS n FROM S AS l{w} ASOF JOIN T AS r{v} ON l.a = r.a AND l.ts > r.ts WHERE l.{p} "
    "GROUP BY l.a{f}",
)
"""The same with ASOF JOIN."""
SLIDES = (
    " [RANGE 3 SLIDE 2]",
    " [RANGE 7 SLIDE 3]",
    " [RANGE 1 SLIDE 3]",
    " [RANGE 4 SLIDE 4]",
    " [RANGE UNBOUNDED SLIDE 5]",
)


def condition(r: random.Random, of: str = "", depth: int = 2) -> str:
    """A condition on columns of S and T, as those of `of`: of numbers, texts, truths and nulls in random nests."""
    if depth and r.random() < 0.3:
        form = r.choice(["({0} OR {1})", "({0} AND {1})", "NOT ({0} OR {1})", "({0} OR NOT {1})", "NOT ({0} AND {1})"])
        return form.format(condition(r, of, depth - 1), condition(r, of, depth - 1))
    text = r.choice(CONDITIONS if r.random() < 0.95 else RAISING).replace("{l}", r.choice("pqr")).replace("@", of)
    return re.sub(r"\{c\}", lambda _: str(r.choice([-1, 0, 1, 2, 3, 0.5])), text)


def _written(r: random.Random, form: str, windows: tuple[str, str], emit: str) -> str:
    text = form.replace("{w}", windows[0]).replace("{v}", windows[1])
    text = re.sub(r"(\w\.)?\{p\}", lambda m: condition(r, m[1] or ""), text)
    text = re.sub(r"\{c\}", lambda _: str(r.choice([-1, 0, 1, 2])), text)
    text = re.sub(r"\{([^}]+, [^}]+)\}", lambda m: _some(r, m.group(1).split(", ")), text)
    head, rest = text.split(" FROM ", 1)
    if emit:
        head = head.replace("{e}", emit, 1) + ")"
    return f"{head} FROM {rest}".replace("{e}", "").replace("{f}", "")


def _some(r: random.Random, columns: list[str]) -> str:
    """A select list."""
    return ", ".join(r.sample(columns, r.randint(1, len(columns))))


def set_of_queries(r: random.Random, count: int, forms: Sequence[str] = FORMS) -> dict[str, str]:
    """Queries of a few shapes, several of each that differ in constants, and in some sets in windows."""
    found: dict[str, str] = {}
    while len(found) < count:
        form, emit = r.choice(forms), r.choice(["", "", "ISTREAM(", "DSTREAM(", "RSTREAM("])
        windows = (r.choice(WINDOWS), r.choice(WINDOWS[:4]))
        differ = r.random() < 0.5
        if forms is ASOF:
            windows = (r.choice(TIMED), r.choice(TIMED))
            differ = False
        if forms is PERIODIC:
            windows, differ = (r.choice(SLIDES),) * 2, False
            emit = "" if "TUMBLE" in form and emit == "RSTREAM(" else emit
        for _ in range(r.randint(2, 5)):
            if differ:
                windows = (r.choice(LENGTHS), r.choice((*LENGTHS, windows[1], windows[1])))
            found[f"q{len(found)}"] = _written(r, form, windows, emit)
    return found


def _with_decimals(rows: pa.Table) -> pa.Table:
    """The rows with a column of decimals, which are quarters of a number beside them."""
    values = [None if b is None else Decimal(b % 17) / 4 for b in rows.column("b").to_pylist()]
    quarters = pa.array(values, pa.decimal128(6, 2))
    return rows.add_column(rows.column_names.index("f") + 1, "d", quarters)


@pytest.fixture
def all_forms() -> dict[str, tuple[str, ...]]:
    """The shapes of queries by kind."""
    return {"FORMS": FORMS, "WHOLE": WHOLE, "PERIODIC": PERIODIC, "ASOF": ASOF}


@pytest.fixture
def make_set() -> Callable[..., tuple[str, dict[str, str], dict[str, Any], dict[str, Any], int]]:
    """Declarations, queries, streams, tables and the end of a random case."""

    def make(
        seed: int, forms: Sequence[str] = FORMS
    ) -> tuple[str, dict[str, str], dict[str, Any], dict[str, Any], int]:
        at = 7 * seed
        while True:  # a case with both streams, and ticks for a clock
            script, streams, tables, until = seeded_case(at, shapes=("join", "table join"))
            if {"S", "T"} <= streams.keys() and "ts BIGINT" in script:
                break
            at += 1
        declared = ";".join(line for line in script.split(";") if "CREATE STREAM" in line or "TABLE P" in line)
        declared = declared.replace("f BOOLEAN,", "f BOOLEAN, d DECIMAL(6, 2),")
        data = {k: _with_decimals(v) for k, v in streams.items() if k in ("S", "T")}
        return declared, set_of_queries(random.Random(seed), 12, forms), data, {"P": tables.get("P", PLAIN)}, until

    return make
