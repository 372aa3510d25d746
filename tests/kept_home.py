"""Homes with some of everything, as they are kept for versions to come: what is declared, and what comes to it.

    python -m tests.kept_home tests/fixtures/home-format-4.zip

writes them as this version leaves them after some parts: one that is never late, and one with a tick budget. A new
format needs new ones, and those of older formats cannot be made again.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import windrow
from windrow.store.store import Store

DECLARED = """
CREATE STREAM s (k BIGINT, v DOUBLE, ts BIGINT) TIMESTAMP BY ts WITHIN 2;
CREATE STREAM r (k BIGINT, w BIGINT, ts BIGINT) TIMESTAMP BY ts;
CREATE STREAM f (k BIGINT, name VARCHAR, ts BIGINT) TIMESTAMP BY ts RETAIN 60 ON ERROR QUARANTINE
    FROM csv (path => 'landing', header => true);
CREATE TABLE names (id BIGINT, name VARCHAR) KEY (id) CHANGES BY op;
CREATE TABLE bands (k BIGINT, band VARCHAR) RETROACTIVE;
CREATE TABLE rules (k BIGINT, lim DOUBLE);
CREATE VIEW big AS SELECT k, v FROM s [RANGE 20] WHERE v > 50;
CREATE FUNCTION half(x) AS (x / 2);
CREATE TEMPLATE alert (k BIGINT, lim DOUBLE) AS
    SELECT COUNT(*) AS n FROM s [RANGE 20 SLIDE 5] WHERE k = $k AND v > $lim HAVING COUNT(*) > 0;
CREATE TEMPLATE seen (k BIGINT, lim DOUBLE) AS SELECT v FROM s [RANGE 15] WHERE k = $k AND v > $lim;
CREATE ARCHIVE recent AS SELECT k, v FROM s [RANGE 40] KEY k EVERY 10;
CREATE QUERY sums AS SELECT k, SUM(v) AS total FROM s [RANGE 20 SLIDE 5] GROUP BY k;
CREATE QUERY met AS SELECT COUNT(*) AS n FROM s [RANGE 20 SLIDE 5], r [RANGE 20 SLIDE 5] WHERE s.k = r.k AND v > 30;
CREATE QUERY met_too AS SELECT SUM(w) AS n FROM s [RANGE 20 SLIDE 5], r [RANGE 20 SLIDE 5] WHERE s.k = r.k AND v > 50;
CREATE QUERY named AS SELECT s.k, name, v FROM s [RANGE 10], names WHERE s.k = id;
CREATE QUERY banded AS SELECT band, COUNT(*) AS n FROM s [RANGE 30], bands WHERE s.k = bands.k GROUP BY band;
CREATE QUERY chained AS
    SELECT s.k, w, f.name FROM s [RANGE 10], r [RANGE 10], f [RANGE 20] WHERE s.k = r.k AND r.k = f.k KEEP 100;
CREATE QUERY high AS SELECT k, half(v) AS v FROM big WHERE v > 80;
CREATE QUERY higher AS SELECT k, half(v) AS v FROM big WHERE v > 90;
CREATE QUERY newest AS SELECT k, v FROM s [PARTITION BY k ROWS 3];
CREATE SINK files FOR sums TO parquet (path => 'sums');
CREATE SINK away FOR named TO parquet (path => 'away');
CREATE QUERIES alerts FROM TEMPLATE alert VALUES (0, 20), (1, 40), (2, 60);
CREATE QUERIES watched FROM TEMPLATE seen VALUES {};
CREATE QUERIES ruled FROM TEMPLATE seen USING TABLE rules;
""".format(", ".join(f"({i % 4}, {90 + i / 8})" for i in range(70)))
IN_TIME = """
CREATE STREAM s (k BIGINT, v DOUBLE, ts BIGINT) TIMESTAMP BY ts WITHIN 2;
CREATE STREAM r (k BIGINT, w BIGINT, ts BIGINT) TIMESTAMP BY ts;
CREATE QUERY mid AS SELECT median(w) AS w FROM r [RANGE 20 SLIDE AT MOST 5];
CREATE QUERY sums AS SELECT k, SUM(v) AS total FROM s [RANGE 20 SLIDE AT MOST 5] GROUP BY k;
CREATE QUERY shed AS SELECT SUM(v) AS total FROM s [RANGE 10] SHED WHEN TICK OVER '60 s';
"""
HOMES: dict[str, tuple[str, dict[str, Any]]] = {"home": (DECLARED, {}), "in-time": (IN_TIME, {"tick_budget": "60 s"})}
PARTS = 2
"""How many parts have come to the homes that are kept."""


def opened(home: str, runtime: str = "local", **options: Any) -> windrow.Engine:
    """An engine over one of the homes, below the current directory."""
    return windrow.Engine(runtime, home=home, **HOMES[home][1], **options)


def declare(engine: windrow.Engine, home: str) -> None:
    """Declare everything, and start."""
    Path("landing").mkdir(exist_ok=True)
    engine.execute(HOMES[home][0])
    if home == "home":
        engine.table("bands", pa.table({"k": [0, 1, 2], "band": ["low", "low", "high"]}))
        engine.table("rules", pa.table({"k": [0, 3], "lim": [50.0, 70.0]}))
    engine.start()


def bring(engine: windrow.Engine, home: str, part: int) -> None:
    """Let a part come: rows of every stream, some late and some malformed, and changes of tables."""
    rng, first = np.random.default_rng(part), 20 * part
    ts = np.arange(first, first + 20)
    k, v, w = rng.integers(0, 4, 20), rng.integers(0, 100, 20).astype(float), rng.integers(0, 9, 20)
    if home == "home":
        engine.push("names", {"op": ["u", "d"], "id": [part % 4, (part + 2) % 4], "name": [f"in part {part}", None]})
        engine.drain()  # on Spark, too, the table is another before any row comes
        lines = [f"{a},name {a},{t}" for a, t in zip(k[::2], ts[::2], strict=True)]
        Path("landing/.new").write_text("\n".join(["k,name,ts", *lines, f"x,malformed,{first}"]) + "\n")
        Path("landing/.new").rename(f"landing/{part}.csv")
    engine.push("s", {"k": k, "v": v, "ts": ts})
    engine.push("r", {"k": k[::-1], "w": w, "ts": ts})
    if part:
        engine.push("s", {"k": [0], "v": [0.0], "ts": [first - 20]})
    engine.drain()
    if home == "home":
        engine.table("bands", pa.table({"k": [0, 1, 2, 3], "band": ["low", "high", "high", f"from {part}"]}))
    if home == "home" and not part:
        engine.execute("CREATE QUERY highest AS SELECT k, half(v) AS v FROM big WHERE v > 95")
        engine.execute("CREATE QUERIES alerts FROM TEMPLATE alert VALUES (3, 10); DROP QUERIES alerts WHERE k = 1")
        engine.execute("ALTER STREAM r ADD COLUMN note VARCHAR")


def make(path: Path) -> None:
    """Write the homes, and what they read, as this version leaves them."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("away").touch()  # where a folder should be: this sink gets nothing
        for home in HOMES:
            with opened(home, partitions=2) as engine:
                declare(engine, home)
                for part in range(PARTS):
                    bring(engine, home, part)
            with Store.open(home, keep=0) as store:
                store.sweep(orphans=True)  # a kept home is to be small
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(p for p in Path().rglob("*") if p.is_file() and p.name not in ("away", "lock")):
                archive.write(file)


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve())
