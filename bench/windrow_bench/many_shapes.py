"""What `many` runs: streams, rules, and a query for each rule, of every shape; texts of which no two are alike.

A shape is a template: its parameters are columns of the table of rules. `CREATE QUERIES ... USING TABLE rules` makes a
query of each rule; `plain` writes the same queries as texts of their own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

SLIDE, SPAN, LENGTH = 60, 960, 60
"""Between evaluations of alerts; the instants there are; how long rows are followed."""
KEYS = 10_000
FLOOR = 250.0
"""Below every limit; a price is above it once in 25 rows."""
STREAMS = """
CREATE STREAM trade (sym BIGINT, price DOUBLE, ts BIGINT) TIMESTAMP BY ts;
CREATE STREAM quote (sym BIGINT, ts BIGINT) TIMESTAMP BY ts;
"""
RULES = "CREATE TABLE rules (s BIGINT, lim DOUBLE, w BIGINT, length BIGINT);"


@dataclass(frozen=True)
class Shape:
    """A query by its parameters; `most`: what 64 of them may cost against one; none for what is periodic."""

    parameters: str
    text: str
    most: float | None = 3.0

    @property
    def names(self) -> list[str]:
        """Of the parameters."""
        return [p.split()[0] for p in self.parameters.split(", ")]


SHAPES = {
    "alerts": Shape(
        "s BIGINT, lim DOUBLE, w BIGINT",
        "SELECT COUNT(*) AS n, MAX(price) AS m FROM trade [RANGE $w SLIDE 60] WHERE sym = $s AND price > $lim",
        None,
    ),
    "grouped": Shape(
        "s BIGINT, lim DOUBLE, w BIGINT",
        "SELECT sym, COUNT(*) AS n FROM trade [RANGE $w SLIDE 60] WHERE sym = $s AND price > $lim GROUP BY sym",
        None,
    ),
    "filters": Shape("lim DOUBLE", "SELECT ISTREAM(sym, price) FROM trade [NOW] WHERE price > $lim", 2.0),
    "having": Shape(
        "lim DOUBLE",
        "SELECT ISTREAM(sym, COUNT(*) AS n) FROM trade [RANGE 60] GROUP BY sym "
        "HAVING SUM(price) > $lim AND COUNT(*) > 4",
    ),
    "aggregates": Shape(
        "lim DOUBLE",
        "SELECT ISTREAM(sym, COUNT(*) AS n) FROM trade [RANGE 60] WHERE price > $lim GROUP BY sym HAVING COUNT(*) > 1",
    ),
    "windows": Shape(
        "length BIGINT",
        "SELECT ISTREAM(sym, COUNT(*) AS n) FROM trade [RANGE $length] GROUP BY sym HAVING SUM(price) > 1000",
    ),
    "distinct": Shape("lim DOUBLE", "SELECT ISTREAM(DISTINCT sym) FROM trade [RANGE 60] WHERE price > $lim"),
    "union": Shape(
        "s BIGINT, lim DOUBLE",
        "SELECT ISTREAM(sym) FROM (SELECT sym FROM trade [RANGE 60] WHERE price > $lim "
        "UNION SELECT sym FROM quote [RANGE 20] WHERE sym = $s) u",
    ),
    "joins": Shape(
        "lim DOUBLE",
        "SELECT ISTREAM(t.sym, price) FROM trade [RANGE 60] t, quote [RANGE 60] q WHERE t.sym = q.sym AND price > $lim",
    ),
    "left joins": Shape(
        "lim DOUBLE",
        "SELECT ISTREAM(t.sym, price, q.sym AS other) FROM trade [RANGE 60] t LEFT JOIN quote [RANGE 60] q "
        "ON t.sym = q.sym WHERE price > $lim",
    ),
    "absence": Shape(
        "lim DOUBLE",
        "SELECT ISTREAM(sym, price) FROM trade [RANGE 60] t WHERE price > $lim "
        "AND NOT EXISTS (SELECT 1 FROM quote [RANGE 60] q WHERE q.sym = t.sym)",
        4.0,
    ),
}  # fmt: skip
CONTINUOUS = {name: shape.most for name, shape in SHAPES.items() if shape.most is not None}
"""Shapes that are followed at every instant, and what 64 of them may cost against one."""


def data(rows: int, seed: int, begin: int = 0, span: int = SPAN) -> dict[str, pa.Table]:
    """Trades of many symbols, and quotes of some."""
    rng = np.random.default_rng(seed)
    trade = {"sym": rng.integers(0, KEYS, rows), "price": rng.gamma(2.0, 50.0, rows)}
    quotes = max(rows // 20, 1)
    trade["ts"] = np.sort(rng.integers(begin, begin + span, rows))
    quote = {"sym": rng.integers(0, KEYS, quotes), "ts": np.sort(rng.integers(begin, begin + span, quotes))}
    return {"trade": pa.table(trade), "quote": pa.table(quote)}


def rules(count: int, seed: int, floor: float = FLOOR) -> pa.Table:
    """Rules of which no two are equal, and which hold for few rows: the fewer the higher the `floor`."""
    rng, number = np.random.default_rng(seed + 1), np.arange(count)
    limits = np.round(np.round(floor + rng.gamma(2.0, 50.0, count), 2) + number * 1e-7, 7)
    spans = {"w": SLIDE * (1 + number % 4), "length": SLIDE + number}
    return pa.table({"s": number % KEYS, "lim": limits, **spans})


def script(shape: str) -> str:
    """The queries from a template, as an engine gets them."""
    made = SHAPES[shape]
    template = f"CREATE TEMPLATE t ({made.parameters}) AS {made.text}"
    return f"{STREAMS} {RULES} {template}; CREATE QUERIES q FROM TEMPLATE t USING TABLE rules"


def plain(shape: str, given: pa.Table) -> Iterator[str]:
    """The queries as texts of their own."""
    made = SHAPES[shape]
    for rule in given.select(made.names).to_pylist():
        text = made.text
        for name in sorted(rule, key=len, reverse=True):
            text = text.replace(f"${name}", repr(rule[name]))
        yield text


# -- texts of which no two are alike ----------------------------------------------------------------------------------

WIDE = """
CREATE STREAM trade (sym BIGINT, price DOUBLE, volume BIGINT, side VARCHAR, ts BIGINT) TIMESTAMP BY ts;
CREATE STREAM quote (sym BIGINT, bid DOUBLE, ask DOUBLE, ts BIGINT) TIMESTAMP BY ts;
"""
_CALLS = (
    "COUNT(*)", "SUM(price)", "AVG(price)", "MIN(price)", "MAX(volume)", "SUM(volume * price)", "COUNT(DISTINCT sym)",
    "STDDEV(price)", "MAX(price) - MIN(price)",
)  # fmt: skip
_TESTS = (
    "price > {c}", "sym = {k}", "volume BETWEEN {k} AND {c}", "sym IN ({k}, {c})", "price < {c} AND sym <> {k}",
    "side = 'b'", "price * 2 > volume", "side LIKE 'a%'", "(sym = {k} OR price > {c})",
)  # fmt: skip
_WINDOWS = ("[RANGE {w}]", "[RANGE {w} SLIDE {s}]", "[ROWS {w}]", "[PARTITION BY sym ROWS {w}]", "[NOW]")
_COLUMNS = ("sym", "price", "volume", "side", "price * 2", "price + volume")
_PAIRS = ("t.sym", "t.price", "q.bid", "q.ask", "t.price - q.bid", "t.volume")


def texts(count: int, seed: int) -> list[str]:
    """Different texts over `WIDE`: selections, aggregates with keys and without, joins of two windows."""
    rng, found = random.Random(seed), dict[str, None]()
    while len(found) < count:
        kind = rng.randrange(4)
        found[_joined(rng) if kind == 3 else _selected(rng) if kind == 0 else _grouped(rng, kind)] = None
    return list(found)


def wide(rows: int, seed: int, at: int) -> dict[str, pa.Table]:
    """Rows of `WIDE` at an instant."""
    rng, ts = np.random.default_rng(seed), np.full(rows, at)
    sym, price = rng.integers(0, KEYS, rows), rng.gamma(2.0, 50.0, rows)
    volume, side = rng.integers(1, 500, rows), np.array(["a", "b", "ask"])[rng.integers(0, 3, rows)]
    trade = pa.table({"sym": sym, "price": price, "volume": volume, "side": side, "ts": ts})
    return {"trade": trade, "quote": pa.table({"sym": sym, "bid": price - 1, "ask": price + 1, "ts": ts})}


def _some(rng: random.Random, among: tuple[str, ...], least: int, most: int) -> list[str]:
    return rng.sample(among, rng.randint(least, most))


def _from(rng: random.Random) -> str:
    window = rng.choice(_WINDOWS).format(w=10 * rng.randint(2, 50), s=rng.choice([2, 5, 10]))
    tests = " AND ".join(_some(rng, _TESTS, 0, 3)).format(c=rng.randint(100, 400), k=rng.randint(1, 90))
    return f"FROM trade {window}{f' WHERE {tests}' if tests else ''}"


def _selected(rng: random.Random) -> str:
    items = ", ".join(f"{item} AS c{i}" for i, item in enumerate(_some(rng, _COLUMNS, 1, 4)))
    return f"SELECT {items} {_from(rng)}"


def _grouped(rng: random.Random, least: int) -> str:
    keys = _some(rng, ("sym", "side"), least - 1, 2)
    items = ", ".join([*keys, *(f"{call} AS a{i}" for i, call in enumerate(_some(rng, _CALLS, 1, 4)))])
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    call = rng.choice(("COUNT(*)", "AVG(price)", "SUM(volume)"))
    having = f" HAVING {call} > {rng.randint(1, 50)}" if rng.random() < 0.4 else ""
    return f"SELECT {items} {_from(rng)}{group}{having}"


def _joined(rng: random.Random) -> str:
    items = ", ".join(f"{item} AS c{i}" for i, item in enumerate(_some(rng, _PAIRS, 1, 4)))
    one = 10 * rng.randint(2, 50)
    other, above = one + 10 * rng.randint(1, 5), f" AND t.price > {one}" if rng.random() < 0.5 else ""
    below = " AND q.bid < t.price" if rng.random() < 0.3 else ""
    return f"SELECT {items} FROM trade [RANGE {one}] t, quote [RANGE {other}] q WHERE t.sym = q.sym{above}{below}"
