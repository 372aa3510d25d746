"""Texts that people bring, over streams with nulls and duplicates: as DuckDB has them, and as the definition does.

A text has `{w}` behind each stream. Without windows the relation that remains is DuckDB's answer over all rows; with
windows, continuously and periodically, every instant is the oracle's.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import windrow
from windrow.testing import assert_same, oracle

DECLARED = """
CREATE STREAM req (host VARCHAR, path VARCHAR, status INTEGER, ms DOUBLE, bytes BIGINT, usr BIGINT, body VARCHAR,
                   tags VARCHAR[], ts TIMESTAMP) TIMESTAMP BY ts;
CREATE STREAM beat (host VARCHAR, ts TIMESTAMP) TIMESTAMP BY ts;
CREATE STREAM trade (sym VARCHAR, price DOUBLE, qty BIGINT, side VARCHAR, ts TIMESTAMP) TIMESTAMP BY ts;
CREATE STREAM orders (id BIGINT, customer BIGINT, amount DECIMAL(10, 2), addr STRUCT(city VARCHAR, zip INTEGER),
                      items STRUCT(sku VARCHAR, qty INTEGER)[], attrs MAP(VARCHAR, VARCHAR), ts TIMESTAMP)
    TIMESTAMP BY ts;
CREATE TABLE info (host VARCHAR, team VARCHAR, cap INTEGER);
"""
WINDOWS = ("[RANGE 40 MINUTES]", "[RANGE 1 HOUR SLIDE 20 MINUTES]")
START = dt.datetime(2024, 3, 30, 22, 50)


@cache
def given() -> tuple[dict[str, pa.Table], dict[str, pa.Table]]:
    """The streams and tables."""
    rng = np.random.default_rng(3)

    def picked(values: list[Any], rows: int, missing: float = 0.12) -> list[Any]:
        places = rng.integers(0, len(values), rows)
        return [None if rng.random() < missing else values[i] for i in places]

    def times(rows: int) -> pa.Array:
        seconds = np.sort(rng.integers(0, 3 * 360, rows)) * 10
        return pa.array([START + dt.timedelta(seconds=int(s)) for s in seconds], pa.timestamp("us"))

    bodies = [json.dumps({"user": {"id": i, "name": f"u{i}"}, "n": i, "tags": ["a", "b"][: i % 3]}) for i in range(5)]
    item = pa.struct([("sku", pa.string()), ("qty", pa.int32())])
    items = [[{"sku": f"s{k}", "qty": i + k} for k in range(i)] for i in range(4)]
    request = pa.table({
        "host": picked(["h0", "h1", "h2"], 40), "path": picked([f"/api/v{i}/items?id={i * 7}" for i in range(4)], 40),
        "status": pa.array(picked([200, 200, 204, 404, 500, 503], 40), pa.int32()),
        "ms": pa.array(picked([i / 4 for i in range(1, 800, 7)], 40), pa.float64()),
        "bytes": pa.array(picked(list(range(0, 2000, 9)), 40), pa.int64()),
        "usr": pa.array(picked(list(range(5)), 40), pa.int64()), "body": picked(bodies, 40),
        "tags": pa.array(picked([["a", "b", "c"][:i] for i in range(4)], 40), pa.list_(pa.string())), "ts": times(40),
    })  # fmt: skip
    beat = pa.table({"host": picked(["h0", "h1", "h2"], 20, 0), "ts": times(20)})
    trade = pa.table({
        "sym": picked(["AAPL", "MSFT", "IBM"], 40, 0.05),
        "price": pa.array(picked([95 + i / 4 for i in range(40)], 40), pa.float64()),
        "qty": pa.array(picked(list(range(1, 9)), 40), pa.int64()), "side": picked(["buy", "sell"], 40),
        "ts": times(40),
    })  # fmt: skip
    orders = pa.table({
        "id": pa.array(range(25)), "customer": pa.array(picked([0, 1, 2, 3], 25), pa.int64()),
        "amount": pa.array(picked([Decimal(i) / 100 for i in range(100, 99999, 77)], 25), pa.decimal128(10, 2)),
        "addr": pa.array(picked([{"city": c, "zip": i} for c in ("Bern", "Rome") for i in (1, 2)], 25),
                         pa.struct([("city", pa.string()), ("zip", pa.int32())])),
        "items": pa.array(picked(items, 25), pa.list_(item)),
        "attrs": pa.array([[("color", c), ("k", c[:1])] for c in picked(["red", "blue"], 25, 0)],
                          pa.map_(pa.string(), pa.string())),
        "ts": times(25),
    })  # fmt: skip
    info = pa.table({
        "host": ["h0", "h1", "h9", None], "team": ["red", "blue", "green", None],
        "cap": pa.array([1, None, 3, 4], pa.int32()),
    })  # fmt: skip
    return {"req": request, "beat": beat, "trade": trade, "orders": orders}, {"info": info}


def answer(text: str, window: str = "") -> pa.Table:
    """What windrow answers to the text with this window on its streams."""
    script = f"{DECLARED} CREATE QUERY q AS {text.replace('{w}', window)}"
    return windrow.run(script, *given(), runtime="local")["q"]


def check_all_rows(text: str, theirs: str | None = None) -> None:
    """What remains after all rows is what DuckDB answers to the text, or to `theirs`."""
    got: Counter[str] = Counter()
    for row in answer(text).to_pylist():
        sign = row.pop("_op", 1)
        row.pop("_ts")
        got[repr(tuple(map(_rounded, row.values())))] += sign
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for tables in given():
            for name, table in tables.items():
                connection.register(name, table)
        wanted = connection.sql((theirs or text).replace("{w}", "")).to_arrow_table()
    want = Counter(repr(tuple(map(_rounded, row.values()))) for row in wanted.to_pylist())
    assert want and +got == want


def check_windows(text: str, theirs: str | None = None) -> None:
    """Every instant is what the oracle answers to the text, or to `theirs`."""
    for window in WINDOWS:
        script = f"{DECLARED} CREATE QUERY q AS {(theirs or text).replace('{w}', window)}"
        assert_same(answer(text, window), oracle(script, *given())["q"])


def _rounded(value: Any) -> Any:
    return float(f"{value:.12g}") if isinstance(value, float) else value
