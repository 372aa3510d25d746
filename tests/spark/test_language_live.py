"""Views, functions in SQL, ALTER, columns that come, sketches, frequent values, and templates over a changing table,
live on Spark.

One engine has all of them; what it answers is what an engine of this process answers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.testing import assert_same

pytestmark = pytest.mark.spark

SCRIPT = """
CREATE STREAM trade (sym BIGINT, price DOUBLE, ts BIGINT) TIMESTAMP BY ts RETAIN 100;
CREATE TABLE rules (id BIGINT, sym BIGINT, lim DOUBLE) KEY (id) CHANGES BY op;
CREATE FUNCTION spread(low, high) AS (MAX(high) - MIN(low)) / MAX(high);
CREATE FUNCTION dear(p DOUBLE) AS p > 50;
CREATE VIEW by_sym AS SELECT sym, COUNT(*) AS n, spread(price, price) AS s FROM trade [RANGE 20] GROUP BY sym;
CREATE QUERY busy AS SELECT sym, n FROM by_sym WHERE n > 3;
CREATE QUERY busiest AS SELECT MAX(n) AS n FROM busy;
CREATE QUERY costly AS SELECT ISTREAM(sym, price) FROM trade [NOW] WHERE dear(price) KEEP 1000;
CREATE QUERY sketched AS
    SELECT APPROX_COUNT_DISTINCT(sym) AS d, APPROX_QUANTILE(price, 0.5) AS m, APPROX_TOP_K(sym, 2) AS top
    FROM trade [RANGE 20 SLIDE 10];
CREATE QUERY often AS SELECT FREQUENT(sym, 3) AS f, FREQUENT_DELTA(sym, 3) AS delta FROM trade [RANGE 20 SLIDE 5];
CREATE TEMPLATE alert (sym BIGINT, lim DOUBLE) AS
    SELECT COUNT(*) AS n FROM trade [RANGE 10 SLIDE 5] WHERE sym = $sym AND price > $lim HAVING COUNT(*) > 0;
CREATE QUERIES ruled FROM TEMPLATE alert USING TABLE rules;
CREATE STREAM visit (usr BIGINT, path VARCHAR, ts BIGINT) TIMESTAMP BY ts AS PROCTIME();
CREATE VIEW known AS SELECT usr, path, PROCTIME() AS at FROM visit WHERE usr > 0;
CREATE QUERY visits AS SELECT usr, COUNT(*) AS n, window_start FROM TUMBLE(known, at, 10) GROUP BY usr, window_start;
CREATE QUERY came AS SELECT v.usr, COUNT(*) AS n, TUMBLE_END(v.at, 10) AS e FROM (SELECT usr, NOW() AS at FROM visit) v
    GROUP BY v.usr, TUMBLE(v.at, 10);
CREATE QUERY newest AS SELECT DISTINCT ON (usr) usr, path, ts FROM visit [RANGE 20] ORDER BY usr, ts DESC, path;
CREATE QUERY member AS
    SELECT sym, sym IN (SELECT usr FROM visit [RANGE 10]) AS i, price >= ALL (SELECT price FROM trade [RANGE 10]) AS a
    FROM trade [RANGE 10];
CREATE QUERY labelled AS SELECT v.label, COUNT(t.sym) AS n FROM (VALUES (1, 'one'), (9, 'nine')) AS v(k, label)
    LEFT JOIN trade [RANGE 20] t ON t.sym = v.k GROUP BY v.label;
CREATE QUERY dearest AS SELECT v.usr, t.price FROM visit [RANGE 10] v,
    LATERAL (SELECT price FROM trade [RANGE 10] s WHERE s.sym = v.usr ORDER BY price DESC LIMIT 1) t;
CREATE QUERY tumbled AS SELECT sym, tumble(10) AS w, COUNT(*) AS n FROM trade GROUP BY sym, w;
CREATE QUERY unseen AS SELECT DISTINCT sym FROM trade [RANGE 20] t ANTI JOIN visit [RANGE 5] v ON v.usr = t.sym;
CREATE QUERY judged AS SELECT lim, COUNT(*) AS n FROM visit [RANGE 20], rules WHERE usr = sym GROUP BY lim;
"""


def rows(batch: int) -> pa.Table:
    rng = np.random.default_rng(batch)
    ts = np.sort(rng.integers(15 * batch, 15 * batch + 15, 60))
    return pa.table({"sym": rng.integers(0, 5, 60), "price": rng.integers(1, 400, 60) / 4.0, "ts": ts})


def visits(batch: int, **more: Any) -> pa.Table:
    rng = np.random.default_rng(batch + 50)
    ts = np.sort(rng.integers(15 * batch, 15 * batch + 15, 40))
    return pa.table(
        {"usr": rng.integers(0, 5, 40), "path": [f"/{i}" for i in rng.integers(0, 3, 40)], "ts": ts, **more}
    )


def lived(**options: Any) -> dict[str, Any]:
    """The answers of one life, in which declarations and a table change."""
    found: dict[str, Any] = {}
    with windrow.Engine(**options) as engine:
        engine.execute(SCRIPT)
        engine.start()
        engine.push("rules", {"op": ["c", "c"], "id": [1, 2], "sym": [1, 2], "lim": [10.0, 20.0]})
        engine.drain()
        engine.push("trade", rows(0))
        engine.push("visit", visits(0))
        engine.drain()
        engine.execute("""
            ALTER STREAM trade SET WITHIN 3;
            ALTER QUERY costly SET KEEP NONE;
            CREATE OR REPLACE VIEW unread AS SELECT sym FROM trade [RANGE 5];
            CREATE QUERY later AS SELECT sym, s FROM by_sym WHERE s > 0.5;
            ALTER STREAM visit ADD COLUMN ms DOUBLE;
            ALTER TABLE rules ADD COLUMN note VARCHAR;
            CREATE QUERY slow AS
                SELECT usr, percentile(ms, 0.5) AS p, COUNT(*) AS n FROM visit [RANGE 20 SLIDE 5] GROUP BY usr;
            CREATE QUERY noted AS SELECT usr, note FROM visit [RANGE 10], rules WHERE usr = sym;
        """)
        engine.push("rules", {"op": ["u", "d", "c"], "id": [1, 2, 3], "sym": [3, None, 4], "lim": [5.0, None, 1.0]})
        engine.drain()
        for batch in (1, 2):
            engine.push("trade", rows(batch))
            engine.push("visit", visits(batch, **({"ms": np.arange(40) / 2.0} if batch == 2 else {})))
            engine.drain()
        found["described"] = engine.execute("DESCRIBE by_sym; SHOW TABLES; SHOW QUERIES")
        found["asked"] = engine.ask("SELECT sym, n FROM by_sym ORDER BY sym")
        found["held"] = engine.ask("SELECT id, sym, lim, note FROM rules ORDER BY id")
        found["instances"] = sorted(engine["ruled"].instances()["sym"].to_pylist())
        found["frontier"] = engine.status()["frontier"]
        assert not engine.status()["failed"]
        names = ("busy", "busiest", "costly", "sketched", "often", "later", "ruled")
        names += ("visits", "came", "newest", "judged", "slow", "noted")
        names += ("member", "labelled", "dearest", "tumbled", "unseen")
        found["answers"] = {name: engine[name].results() for name in names}
    return found


def test_the_language_on_spark_is_that_of_this_process(spark):
    """Every answer, listing and question."""
    got, want = lived(runtime="spark", spark=spark), lived(runtime="local")
    for what in ("described", "asked", "held", "instances", "frontier"):
        assert got[what] == want[what]
    assert want["instances"] == [3, 4]
    for name, table in want["answers"].items():
        assert table.num_rows, name
        assert_same(got["answers"][name].sort_by("_ts"), table.sort_by("_ts"))
