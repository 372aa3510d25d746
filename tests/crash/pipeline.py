"""A pipeline to be killed: joins and aggregates, shared or not, of two streams and a table, into files and PostgreSQL.

    python pipeline.py FOLDER DSN [SERVERS]

reads FOLDER/bid and FOLDER/ask on Spark, or the topics bid and ask of Kafka SERVERS in process, goes on from
FOLDER/home, and ends when all input is consumed. Says "started" once it runs. Answers of some length go by reference.
"""

from __future__ import annotations

import sys

import pyarrow as pa

import windrow
from windrow.runtime import kept_answers

kept_answers.BOUND = 2000  # bytes: those of pairs and best, not of the others

ROWS, STEP = 300, 100

SCRIPT = """
CREATE STREAM bid (k BIGINT, v DOUBLE, ts BIGINT) TIMESTAMP BY ts WITHIN 7 {bid};
CREATE STREAM ask (k BIGINT, w DOUBLE, ts BIGINT) TIMESTAMP BY ts WITHIN 7 {ask};
"""
QUERIES = """
CREATE QUERY pairs AS SELECT b.k, b.v, a.w FROM bid [RANGE 20] b, ask [RANGE 20] a WHERE a.k = b.k AND a.w > b.v;
CREATE QUERY totals AS SELECT b.k, n.name, COUNT(*) AS n, SUM(b.v) AS s FROM bid [RANGE 50 SLIDE 10] b, names n
  WHERE n.k = b.k GROUP BY b.k, n.name;
CREATE QUERY best AS SELECT k, MAX(v) AS top FROM bid [RANGE 30] GROUP BY k;
CREATE QUERY flow AS SELECT COUNT(*) AS n, SUM(v) AS s, MAX(v) AS top FROM bid [RANGE 35 SLIDE 10] WHERE v > 20;
CREATE QUERY calm AS SELECT AVG(v) AS mean, COUNT(DISTINCT k) AS n FROM bid [RANGE 60 SLIDE 20] WHERE v <= 20 AND k < 6;
CREATE QUERY turns AS SELECT ISTREAM(k, COUNT(*) AS n) FROM bid [RANGE 25 SLIDE 5] WHERE v > 50 GROUP BY k;
CREATE QUERY last AS SELECT k, v FROM bid [PARTITION BY k ROWS 2];
"""
NAMES = pa.table({"k": list(range(8)), "name": [f"n{i}" for i in range(8)]})


def main(folder: str, dsn: str, servers: str = "") -> None:
    """Run to the end of the input."""
    engine = windrow.Engine(home=f"{folder}/home", runtime="local" if servers else "spark")
    if "best" not in engine:
        source = "parquet (path => '{folder}/{stream}', maxFilesPerTrigger => 1)"
        if servers:
            source = "kafka (servers => '{servers}', topic => '{stream}', max_rows => '{rows}')"
        words = {"folder": folder, "servers": servers, "rows": ROWS}
        sources = {s: "FROM " + source.format(stream=s, **words) for s in ("bid", "ask")}
        for name in list(engine.catalog.tables):
            engine.execute(f"DROP TABLE {name}")
        engine.table("names", NAMES)
        engine.execute(SCRIPT.format(**sources) + QUERIES)
    for query in ("pairs", "totals", "best", "flow", "calm", "turns", "last"):
        engine.sink(query, "parquet", path=f"{folder}/out")
        engine.sink(query, "postgres", dsn=dsn)
    engine.start()
    print("started", flush=True)
    engine.drain(300)
    engine.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
