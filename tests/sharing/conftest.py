"""Random query sets over one stream and a table, and replays of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pytest

NAN, INF = float("nan"), float("inf")
NUMBERS = [None, 0, 1, 2, 3, 5, -4, 2**40]
FLOATS = [None, 0.5, -0.0, 1.25, NAN, 3e10, 0.1, INF]
WORDS = [None, "a", "b", "", "ab"]
ATOMS = [
    "a > 1",
    "a < 3",
    "a <= 2.5",
    "a >= -4",
    "a IN (1, 2, NULL)",
    "a IN (0, 5)",
    "a NOT IN (1, 2)",
    "x > 0.4",
    "x <= 1.25",
    "x BETWEEN 0 AND 2",
    "x = 'nan'::DOUBLE",
    "s = 'a'",
    "s >= 'ab'",
    "s IN ('a', 'b')",
    "s <> 'b'",
    "b",
    "NOT b",
    "a IS NULL",
    "x IS NOT NULL",
    "s LIKE 'a%'",
    "a % 2 = 1",
    "a < x",
]
AGGREGATES = [
    "count(*)",
    "count(a)",
    "sum(a)",
    "sum(x)",
    "avg(x)",
    "min(a)",
    "max(x)",
    "min(x)",
    "max(s)",
    "min(b)",
    "variance(a)",
    "stddev_pop(a)",
    "count(DISTINCT s)",
    "sum(DISTINCT a)",
    "quantile(a, 0.5)",
    "median(x)",
    "top_k(s, 2)",
    "sum(a % 3)",
    "sum(a) + count(*)",
]


@dataclass(frozen=True)
class Case:
    """Queries by name, and the rows they read."""

    queries: dict[str, str]
    stream: pa.Table
    table: pa.Table

    @property
    def script(self) -> str:
        return ";\n".join(f"CREATE QUERY {name} AS {text}" for name, text in self.queries.items())


def rows(r: random.Random, count: int) -> pa.Table:
    """Rows of the stream `st`, in time order."""
    return pa.table(
        {
            "ts": pa.array(sorted(r.randint(-20, 60) for _ in range(count)), pa.int64()),
            "a": pa.array([r.choice(NUMBERS) for _ in range(count)], pa.int64()),
            "x": pa.array([r.choice(FLOATS) for _ in range(count)], pa.float64()),
            "s": pa.array([r.choice(WORDS) for _ in range(count)], pa.string()),
            "b": pa.array([r.choice([None, True, False]) for _ in range(count)], pa.bool_()),
        }
    )


TABLE = pa.table(
    {
        "s": pa.array(["a", "b", "b", None], pa.string()),
        "w": pa.array([1, 2, None, 4], pa.int64()),
        "f": pa.array([True, False, None, True]),
    }
)


def predicate(r: random.Random, depth: int = 0) -> str:
    """A random predicate."""
    if depth > 1 or r.random() < 0.5:
        return r.choice(ATOMS)
    if r.random() < 0.2:
        return f"NOT ({predicate(r, depth + 1)})"
    return f"({predicate(r, depth + 1)} {r.choice(['AND', 'OR'])} {predicate(r, depth + 1)})"


def window_on(r: random.Random) -> str:
    """The stream with a window: of CQL, or of the SQL standard."""
    size, slide = r.randint(1, 20), r.randint(1, 12)
    offset = r.choice(["", "", f", {r.randint(0, 9)}"])
    return r.choice(
        [f"st [RANGE {size} SLIDE {slide}]"] * 2 + [f"HOP(st, ts, {slide}, {size}{offset})", f"TUMBLE(st, ts, {size})"]
    )


def query(r: random.Random) -> str:
    """A random periodic aggregate."""
    window = window_on(r)
    aggregates = r.sample(AGGREGATES, r.randint(1, 3))
    keys = r.choice([[], [], ["s"], ["a"], ["s", "b"], ["a % 2"]])
    where = [predicate(r) for _ in range(r.choice([0, 1, 1, 2]))]
    if r.random() < 0.25:
        window, where = f"{window}, k", ["st.s = k.s"]
        where += r.choice([[], ["k.w > 1"], ["k.f"], ["NOT k.f"], ["k.w IS NULL"], ["a > k.w"]])
        aggregates = [g.replace("(s", "(st.s").replace("DISTINCT s", "DISTINCT st.s") for g in aggregates] + [
            "sum(k.w)"
        ]
        keys = ["st.s" if key == "s" else key for key in keys]
    shown = r.choice([[], [], ["window_end"], ["window_start", "window_end"]])
    items = ", ".join(f"{item} AS c{i}" for i, item in enumerate([*keys, *aggregates, *shown]))
    operator = r.choice(["", "", "", "ISTREAM", "DSTREAM"])
    text = f"SELECT {f'{operator}({items})' if operator else items} FROM {window}"
    text += f" WHERE {' AND '.join(where)}" if where else ""
    text += f" GROUP BY {', '.join(keys)}" if keys else ""
    return text + (" HAVING count(*) > 1" if r.random() < 0.2 else "")


@pytest.fixture(scope="session")
def make_case() -> Callable[[int], Case]:
    """Random cases by seed."""
    return case


def case(seed: int) -> Case:
    """A random case."""
    r = random.Random(seed)
    stream = rows(r, r.randint(1, 60))
    return Case({f"q{i}": query(r) for i in range(r.randint(1, 7))}, stream, TABLE)
