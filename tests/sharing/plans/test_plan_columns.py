"""Continuous queries from a template as columns: each answers as it would alone, and nothing is made for each."""

from __future__ import annotations

import functools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.engine import replay
from windrow.runtime import declared
from windrow.sharing import member_columns
from windrow.sharing.plans.form_columns import FormColumns
from windrow.store.manifest import encode
from windrow.testing import assert_same

STREAMS = """CREATE STREAM s (k BIGINT, v DOUBLE, n VARCHAR, ts BIGINT) TIMESTAMP BY ts WITHIN 2;
CREATE STREAM r (k BIGINT, u BIGINT, ts BIGINT) TIMESTAMP BY ts WITHIN 2;"""
TEMPLATES = {
    "filters": ("c BIGINT, x DOUBLE", "SELECT k, v FROM s [RANGE 6] WHERE k = $c AND v > $x"),
    "stream": ("x DOUBLE", "SELECT ISTREAM(k, v) FROM s [NOW] WHERE v > $x OR k = 3"),
    "repeated": ("x DOUBLE", "SELECT RSTREAM(k, v) FROM s [RANGE 6] WHERE v > $x"),
    "computed": ("c BIGINT, x DOUBLE",
                 "SELECT k, v FROM s [RANGE 6] WHERE ((2 * $c - 1) / 2 < k AND v > (0.5 + $x) * 2 - $c)"),
    "windows": ("w BIGINT, x DOUBLE", "SELECT k, v FROM s [RANGE $w] WHERE v > $x"),
    "shown": ("c BIGINT, x DOUBLE", "SELECT k, $c AS rule, v, $x AS least FROM s [RANGE 6] WHERE v > $x"),
    "only shown": ("c BIGINT, t VARCHAR", "SELECT $c AS rule, $t AS said, 1.5 AS w FROM s [RANGE 4] WHERE k = $c"),
    "shown of groups": ("c BIGINT, t VARCHAR",
                        "SELECT k, $t AS said, COUNT(*) AS m FROM s [RANGE 8] GROUP BY k HAVING COUNT(*) > $c"),
    "texts": ("t VARCHAR", "SELECT k, n FROM s [RANGE 5] WHERE n >= $t"),
    "distinct": ("x DOUBLE", "SELECT DISTINCT k FROM s [RANGE 5] WHERE v > $x"),
    "having": ("c BIGINT", "SELECT k, COUNT(*) AS m FROM s [RANGE 8] GROUP BY k HAVING COUNT(*) > $c"),
    "cells": ("x DOUBLE, c BIGINT",
              "SELECT k, COUNT(*) AS m, SUM(v) AS t FROM s [RANGE 8] WHERE v > $x GROUP BY k HAVING COUNT(*) > $c"),
    "greatest": ("x DOUBLE, w BIGINT", "SELECT k, MAX(v) AS m FROM s [RANGE $w] WHERE v < $x GROUP BY k"),
    "joins": ("x DOUBLE, c BIGINT",
              "SELECT a.k, a.v, b.u FROM s [RANGE 6] a, r [RANGE 4] b WHERE a.k = b.k AND a.v > $x AND b.u > $c"),
    "wide": ("w BIGINT, x DOUBLE",
             "SELECT ISTREAM(a.k, b.u) FROM s [RANGE $w] a, r [RANGE 4] b WHERE a.k = b.k AND a.v > $x"),
    "absent": ("x DOUBLE",
               "SELECT k, v FROM s [RANGE 6] a WHERE v > $x "
               "AND NOT EXISTS (SELECT 1 FROM r [RANGE 4] b WHERE b.k = a.k)"),
    "apart": ("c BIGINT",
              "SELECT k, v FROM s [RANGE 6] a "
              "WHERE NOT EXISTS (SELECT 1 FROM r [RANGE 4] b WHERE b.k = a.k AND b.u > $c)"),
    "padded": ("x DOUBLE",
               "SELECT a.k, a.v, b.u FROM s [RANGE 6] a LEFT JOIN r [RANGE 4] b ON a.k = b.k WHERE a.v > $x"),
}  # fmt: skip
VALUES: dict[str, tuple[Any, ...]] = {
    "c": (-1, 0, 1, 2, 3), "x": (-5.0, 0.25, 1.0, 2.5, 4.0), "w": (2, 5, 9), "t": ("'a'", "'b'", "'c'", "''"),
}  # fmt: skip


def rows(rng: np.random.Generator, first: int, stream: str) -> pa.Table:
    """Some rows of four instants, of which some come out of order."""
    count = int(rng.integers(3, 9))
    ts = first + rng.integers(0, 4, count)
    if stream == "r":
        return pa.table({"k": rng.integers(0, 4, count), "u": rng.integers(0, 4, count), "ts": ts})
    names = [["a", "b", "c", None][i] for i in rng.integers(0, 4, count)]
    return pa.table({"k": rng.integers(0, 4, count), "v": rng.integers(0, 20, count) / 4.0, "n": names, "ts": ts})


def instances(r: random.Random, template: str, there: set[str]) -> list[str]:
    """Some rows of values that are not there."""
    names = [p.split()[0] for p in TEMPLATES[template][0].split(", ")]
    made = {", ".join(str(r.choice(VALUES[n])) for n in names) for _ in range(r.randint(1, 6))}
    return sorted(made - there)


def lived(template: str, seed: int, few: int, monkeypatch: pytest.MonkeyPatch, home: Path | None, **engine: Any) -> Any:
    """Rows come, instances come and go, and with a home the engine is opened again."""
    monkeypatch.setattr(declared, "FEW", few)
    r, rng = random.Random(seed), np.random.default_rng(seed)
    parameters, text = TEMPLATES[template]
    opened = windrow.Engine(runtime="local", home=home, **engine)
    opened.execute(f"{STREAMS} CREATE TEMPLATE t ({parameters}) AS {text};")
    opened.start()
    there, found, snapshots = set[str](), list[pa.Table](), list[list[str]]()
    first = instances(r, template, there)
    opened.execute(f"CREATE QUERIES q FROM TEMPLATE t VALUES {', '.join(f'({v})' for v in first)}")
    there |= set(first)
    opened["q"].subscribe(found.append)
    for tick in range(9):
        for stream in "sr":
            opened.push(stream, rows(rng, 4 * tick, stream))
        opened.drain()
        snapshots.append(sorted(map(str, opened["q"].snapshot().to_pylist())))
        chance = r.random()
        more = instances(r, template, there)
        if chance < 0.4 and more:
            opened.execute(f"CREATE QUERIES q FROM TEMPLATE t VALUES {', '.join(f'({v})' for v in more)}")
            there |= set(more)
        elif chance < 0.6 and len(there) > 1:
            gone = r.choice(sorted(there))
            names = [p.split()[0] for p in parameters.split(", ")]
            tests = " AND ".join(f"{n} = {v}" for n, v in zip(names, gone.split(", "), strict=True))
            opened.execute(f"DROP QUERIES q WHERE {tests}")
            there.discard(gone)
        if r.random() < 0.3 and home is not None:
            opened.stop()
            opened = windrow.Engine(runtime="local", home=home, **engine)
            opened["q"].subscribe(found.append)
            opened.start()
    opened.drain()
    columns = [type(b) for b in opened.runtime.declared.groups.live["q"].blocks.values()]
    opened.stop()
    return pa.concat_tables(found) if found else None, snapshots, columns


@functools.cache
def lived_alone(template: str, seed: int) -> Any:
    """The same life with each query by itself: what is wanted, however many partitions the others have."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        return lived(template, seed, 10**9, monkeypatch, None, sharing="off")


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("template", TEMPLATES)
def test_instances_in_columns_answer_as_they_would_alone(
    template: str, partitions: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """While rows and instances come and go, over restarts: the changes, and what the queries stand at."""
    for seed in range(3):
        many, stood, columns = lived(
            template, seed, 1, monkeypatch, tmp_path / f"{seed}", partitions=partitions
        )  # fmt: skip
        alone, wanted, nobody = lived_alone(template, seed)
        assert columns and not nobody
        assert stood == wanted
        assert (many is None) == (alone is None)
        if many is not None and alone is not None:
            assert_same(many.sort_by("_ts"), alone.sort_by("_ts"))


@pytest.mark.parametrize("template", TEMPLATES)
def test_replays_in_columns_equal_replays_without(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All instances at once, over rows in time order."""
    r, rng = random.Random(1), np.random.default_rng(1)
    parameters, text = TEMPLATES[template]
    streams = {x: pa.concat_tables([rows(rng, 4 * t, x) for t in range(12)]).sort_by("ts") for x in "sr"}
    values = sorted({v for _ in range(20) for v in instances(r, template, set())})
    script = f"{STREAMS} CREATE TEMPLATE t ({parameters}) AS {text}; "
    script += f"CREATE QUERIES q FROM TEMPLATE t VALUES {', '.join(f'({v})' for v in values)}"
    found = []
    for few, sharing in ((1, "auto"), (10**9, "auto"), (10**9, "off")):
        monkeypatch.setattr(replay, "FEW", few)
        found.append(windrow.run(script, streams, runtime="local", sharing=sharing, batch_rows=25, until=60)["q"])
    assert_same(found[0], found[2])
    assert_same(found[1], found[2])


def many(count: int) -> str:
    """So many values."""
    return ", ".join(f"({i % 7}, {i}.5)" for i in range(count))


def test_nothing_is_made_or_written_for_each(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A thousand instances have one form, no name, and as long a manifest as a hundred of them."""
    parameters, text = TEMPLATES["filters"]
    sizes, looked, name = list[int](), list[int](), member_columns.InstanceNames._name
    monkeypatch.setattr(member_columns.InstanceNames, "_name", lambda self, i: looked.append(i) or name(self, i))
    for count in (100, 1000):
        with windrow.Engine(runtime="local", home=tmp_path / str(count)) as engine:
            engine.execute(f"{STREAMS} CREATE TEMPLATE t ({parameters}) AS {text};")
            engine.execute(f"CREATE QUERIES q FROM TEMPLATE t VALUES {many(count)}")
            engine.start()
            for tick in range(3):
                engine.push("s", rows(np.random.default_rng(tick), 4 * tick, "s"))
                engine.drain()
            (block,) = engine.runtime.declared.groups.live["q"].blocks.values()
            assert isinstance(block.forms, FormColumns) and len(block) == count and not engine.runtime.ticker.queries
            sizes.append(len(encode(engine.runtime.ticker.manifest)))
            assert engine.status()["templates"]["q"]["instances"] == count
            assert not looked
            engine.execute("DROP QUERIES q WHERE c = 3")
            assert f"and {len(engine['q']) - 6} more" in engine["q"].explain()
            engine.push("s", rows(np.random.default_rng(9), 20, "s"))
            engine.drain()
            assert 3 not in engine["q"].snapshot().column("c").to_pylist()
        looked.clear()
    assert sizes[1] < sizes[0] + 100
