"""Random aggregates over a join of two streams."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pytest

AGGREGATES = [
    "count(*)", "count(r.a)", "sum(r.a)", "sum(s.x)", "avg(s.x)", "min(r.a)", "max(s.x)", "variance(r.a)",
    "count(DISTINCT r.w)", "median(s.x)", "top_k(r.w, 2)", "max(r.w)", "sum(DISTINCT s.b)",
]  # fmt: skip
FILTERS = ["r.a > 1", "r.a IN (0, 2)", "r.w = 'a'", "s.x > 0.4", "s.b <= 2", "s.x IS NULL", "r.w <> 'b'"]
KEYS = [[], [], [], ["r.k"], ["r.w"], ["s.b"], ["r.w", "s.b"]]


@dataclass(frozen=True)
class JoinCase:
    """Queries over `r` and `s`, and their rows."""

    queries: Mapping[str, str]
    streams: Mapping[str, pa.Table]

    @property
    def script(self) -> str:
        return ";\n".join(f"CREATE QUERY {name} AS {text}" for name, text in self.queries.items())


def rows_of(r: random.Random, count: int, columns: Mapping[str, tuple[list[object], pa.DataType]]) -> pa.Table:
    made = {"ts": pa.array(sorted(r.randint(-20, 60) for _ in range(count)), pa.int64())}
    return pa.table(made | {n: pa.array([r.choice(v) for _ in range(count)], t) for n, (v, t) in columns.items()})


def query(r: random.Random) -> str:
    """A random periodic aggregate over the join."""
    slide = r.randint(1, 9)
    first = r.randint(1, 20)
    second = r.choice([first, first, r.randint(1, 20)])
    keys = r.choice(KEYS)
    items = ", ".join(f"{i} AS c{n}" for n, i in enumerate([*keys, *r.sample(AGGREGATES, r.randint(1, 3))]))
    operator = r.choice(["", "", "", "ISTREAM", "DSTREAM"])
    text = f"SELECT {f'{operator}({items})' if operator else items} "
    parts = [f"r [RANGE {first} SLIDE {slide}]", f"s [RANGE {second} SLIDE {slide}]"]
    text += f"FROM {', '.join(parts if r.random() < 0.7 else parts[::-1])} WHERE r.k = s.k"
    text += "".join(f" AND {f}" for f in r.sample(FILTERS, r.choice([0, 0, 1, 2])))
    text += f" GROUP BY {', '.join(keys)}" if keys else ""
    return text + (" HAVING count(*) > 1" if r.random() < 0.2 else "")


@pytest.fixture(scope="session")
def make_join_case() -> Callable[[int], JoinCase]:
    """Random cases by seed."""

    def make(seed: int) -> JoinCase:
        r = random.Random(seed)
        keys: list[object] = [None, 1, 2, 3]
        numbers, words = [None, 0, 1, 2, 5, 2**40], [None, "a", "b", "c"]
        floats = [None, 0.5, -0.0, 1.25, 3e10, float("nan")]
        first = {"k": (keys, pa.int64()), "a": (numbers, pa.int64()), "w": (words, pa.string())}
        second = {"k": (keys, pa.int64()), "x": (floats, pa.float64()), "b": ([1, 2, 3], pa.int64())}
        streams = {"r": rows_of(r, r.randint(0, 50), first), "s": rows_of(r, r.randint(0, 50), second)}
        return JoinCase({f"q{i}": query(r) for i in range(r.randint(1, 6))}, streams)

    return make
