"""The auction queries of Nexmark, over streams without windows and in windows of the standard, equal the definition."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.testing import assert_same, oracle

TEXTS = (Path(__file__).parents[1] / "fixtures/nexmark.sql").read_text(encoding="utf-8")
DECLARED, *QUERIES = re.split(r"(?m)^(?=CREATE QUERY )", TEXTS)


def stamps(random, count, start):
    seconds = np.sort(random.integers(0, 24, count))
    return [start + dt.timedelta(seconds=int(s)) for s in seconds]


def streams():
    random, start = np.random.default_rng(4), dt.datetime(2024, 5, 1, 7, 59, 50)
    made, bids = stamps(random, 9, start), stamps(random, 40, start)
    urls = [f"https://a.b/item/x{i % 3}/cc.htm?q=1&channel_id={i}" if i % 3 else "https://a.b/c" for i in range(40)]
    return {
        "person": pa.table(
            {
                "id": range(5), "name": list("vwxyz"), "city": ["r", "s", "t", "u", "v"],
                "state": ["or", "id", "wa", "ca", "ny"], "date_time": stamps(random, 5, start),
            }
        ),
        "auction": pa.table(
            {
                "id": range(9), "item_name": [f"i{i}" for i in range(9)], "initial_bid": random.integers(1, 9, 9),
                "reserve": random.integers(9, 20, 9), "expires": [t + dt.timedelta(seconds=9) for t in made],
                "seller": random.integers(0, 5, 9), "category": random.integers(0, 3, 9), "date_time": made,
            }
        ),
        "bid": pa.table(
            {
                "auction": random.integers(0, 9, 40), "bidder": random.integers(0, 4, 40),
                "price": random.integers(1, 40, 40), "channel": [("Apple", "Google", "none")[i % 3] for i in range(40)],
                "url": urls, "date_time": bids,
            }
        ),
    }  # fmt: skip


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q.split()[2])
def test_the_oracle_agrees(query):
    """At every instant, at once and by few rows."""
    script, given = DECLARED + query, streams()
    ((name, want),) = oracle(script, given).items()
    assert want.num_rows
    for way in ({}, {"batch_rows": 7}):
        assert_same(windrow.run(script, given, runtime="local", **way)[name], want)
