"""Queries of TPC-H whose subqueries and outer joins lie deep, over streams and tables: as DuckDB has them."""

from __future__ import annotations

from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.testing import assert_same, oracle


def given() -> tuple[dict[str, pa.Table], dict[str, pa.Table]]:
    rng = np.random.default_rng(5)

    def picked(values: list[object], rows: int) -> list[object]:
        return [values[i] for i in rng.integers(0, len(values), rows)]

    nation = pa.table({"n_nationkey": [0, 1, 2], "n_name": ["FRANCE", "GERMANY", "CANADA"]})
    customer = pa.table({
        "c_custkey": list(range(12)), "c_nationkey": picked([0, 1, 2], 12),
        "c_acctbal": rng.integers(-100, 900, 12) / 1.0,
        "c_phone": [f"{13 + i % 5}-9" for i in range(12)],
    })  # fmt: skip
    supplier = pa.table({
        "s_suppkey": list(range(6)), "s_name": [f"S{i}" for i in range(6)], "s_nationkey": picked([0, 1, 2], 6),
        "s_comment": picked(["Customer Complaints", "none"], 6),
    })  # fmt: skip
    part = pa.table({
        "p_partkey": list(range(9)), "p_brand": picked(["Brand#12", "Brand#23"], 9),
        "p_name": picked(["forest", "red"], 9),
    })  # fmt: skip
    orders = pa.table({"o_orderkey": list(range(30)), "o_custkey": picked(list(range(9)), 30), "ts": list(range(30))})
    partsupp = pa.table({
        "ps_partkey": picked(list(range(9)), 25), "ps_suppkey": picked(list(range(6)), 25),
        "ps_availqty": rng.integers(1, 300, 25), "ps_supplycost": rng.integers(1, 50, 25) / 1.0, "ts": list(range(25)),
    })  # fmt: skip
    lineitem = pa.table({
        "l_orderkey": picked(list(range(30)), 80), "l_partkey": picked(list(range(9)), 80),
        "l_suppkey": picked(list(range(6)), 80), "l_quantity": rng.integers(1, 50, 80) / 1.0,
        "l_late": picked([True, False], 80), "ts": list(range(80)),
    })  # fmt: skip
    tables = {"nation": nation, "customer": customer, "supplier": supplier, "part": part}
    return {"orders": orders, "partsupp": partsupp, "lineitem": lineitem}, tables


QUERIES = {
    "2": "SELECT s_name, p_partkey, ps_supplycost FROM part, supplier, partsupp {w} WHERE p_partkey = ps_partkey AND "
    "s_suppkey = ps_suppkey AND ps_supplycost = (SELECT MIN(ps_supplycost) FROM partsupp {w}, supplier WHERE "
    "p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND s_nationkey < 2)",
    "11": "SELECT ps_partkey, SUM(ps_supplycost * ps_availqty) AS v FROM partsupp {w}, supplier WHERE ps_suppkey = "
    "s_suppkey GROUP BY ps_partkey HAVING SUM(ps_supplycost * ps_availqty) > (SELECT SUM(ps_supplycost * ps_availqty) "
    "* 0.1 FROM partsupp {w}, supplier WHERE ps_suppkey = s_suppkey)",
    "13": "SELECT c_count, COUNT(*) AS n FROM (SELECT c_custkey, COUNT(o_orderkey) FROM customer LEFT OUTER JOIN "
    "orders {w} ON c_custkey = o_custkey GROUP BY c_custkey) AS c_orders (c_custkey, c_count) GROUP BY c_count",
    "16": "SELECT p_brand, COUNT(DISTINCT ps_suppkey) AS n FROM partsupp {w}, part WHERE p_partkey = ps_partkey AND "
    "ps_suppkey NOT IN (SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Customer%Complaints%') GROUP BY p_brand",
    "17": "SELECT SUM(l_quantity) / 7.0 AS v FROM lineitem {w}, part WHERE p_partkey = l_partkey AND p_brand = "
    "'Brand#23' AND l_quantity < (SELECT 0.9 * AVG(l_quantity) FROM lineitem {w} WHERE l_partkey = p_partkey)",
    "20": "SELECT s_name FROM supplier, nation WHERE s_suppkey IN (SELECT ps_suppkey FROM partsupp {w} WHERE "
    "ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE 'forest%') AND ps_availqty > (SELECT 0.5 * "
    "SUM(l_quantity) FROM lineitem {w} WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey)) AND "
    "s_nationkey = n_nationkey",
    "21": "SELECT s_name, COUNT(*) AS n FROM supplier, lineitem {w} l1, orders {w} WHERE s_suppkey = l1.l_suppkey AND "
    "o_orderkey = l1.l_orderkey AND l1.l_late AND EXISTS (SELECT * FROM lineitem {w} l2 WHERE l2.l_orderkey = "
    "l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey) AND NOT EXISTS (SELECT * FROM lineitem {w} l3 WHERE l3.l_orderkey "
    "= l1.l_orderkey AND l3.l_suppkey <> l1.l_suppkey AND l3.l_late) GROUP BY s_name",
    "22": "SELECT code, COUNT(*) AS n, SUM(c_acctbal) AS v FROM (SELECT substring(c_phone FROM 1 FOR 2) AS code, "
    "c_acctbal FROM customer WHERE c_acctbal > (SELECT AVG(c_acctbal) FROM customer WHERE c_acctbal > 0.00) AND NOT "
    "EXISTS (SELECT * FROM orders {w} WHERE o_custkey = c_custkey)) AS custsale GROUP BY code",
    "nations of customers, with and without orders": "SELECT n_name, COUNT(o_orderkey) AS n FROM customer JOIN nation "
    "ON c_nationkey = n_nationkey LEFT JOIN orders {w} ON o_custkey = c_custkey GROUP BY n_name",
}  # fmt: skip


@pytest.mark.parametrize("name", QUERIES)
def test_queries(name):
    """Over all rows as DuckDB has it, and with windows as the definition does."""
    streams, tables = given()
    text = QUERIES[name].replace("{w}", "")
    got: Counter[tuple[object, ...]] = Counter()
    for row in windrow.run(text, streams, tables, runtime="local")["q1"].to_pylist():
        sign = row.pop("_op")
        del row["_ts"]
        got[tuple(row.values())] += sign
    with duckdb.connect() as connection:
        for given_name, table in {**streams, **tables}.items():
            connection.register(given_name, table)
        want = Counter(connection.sql(text).fetchall())
    assert want and +got == want
    for window in ("[RANGE 20]", "[RANGE 30 SLIDE 10]"):
        text = QUERIES[name].replace("{w}", window)
        assert_same(windrow.run(text, streams, tables, runtime="local")["q1"], oracle(text, streams, tables)["q1"])


@pytest.mark.parametrize("partitions", [1, 3])
def test_tables_that_meet_before_a_stream(partitions):
    """A join of tables is a table: what it gives an outer join changes with either, and reaches back as little."""
    with windrow.Engine(runtime="local", partitions=partitions) as engine:
        engine.execute("""
            CREATE STREAM s (k BIGINT, ts BIGINT) TIMESTAMP BY ts;
            CREATE TABLE a (k BIGINT, g BIGINT);
            CREATE TABLE b (g BIGINT, name VARCHAR);
            CREATE QUERY q AS SELECT a.k, b.name, s.ts AS at FROM a JOIN b ON a.g = b.g
                LEFT JOIN s [RANGE 9] ON s.k = a.k;
        """)
        engine.table("a", {"k": [1, 2, 3], "g": [1, 1, 2]})
        engine.table("b", {"g": [1], "name": ["x"]})
        engine.start()
        engine.push("s", {"k": [1], "ts": [1]})
        engine.advance(1)

        def now() -> list[tuple[object, ...]]:
            return sorted((tuple(r.values()) for r in engine["q"].snapshot().to_pylist()), key=str)

        assert now() == [(1, "x", 1), (2, "x", None)]
        engine.table("b", {"g": [1, 2], "name": ["x", "y"]})
        engine.push("s", {"k": [2], "ts": [3]})
        engine.advance(3)
        assert now() == [(1, "x", 1), (2, "x", 3), (3, "y", None)]
