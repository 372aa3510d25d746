"""A change that fails leaves nothing: what is declared and what runs are as before, and answers go on as if it had
never been tried."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.engine import instances as planned_instances
from windrow.errors import StateError
from windrow.runtime import declared as declared_module
from windrow.runtime.declarations import Declarations
from windrow.testing import assert_same

DECLARED = """
CREATE STREAM s (ts BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY ts;
CREATE STREAM r (ts BIGINT, k BIGINT, w BIGINT) TIMESTAMP BY ts RETAIN 40;
CREATE STREAM u (ts BIGINT, k BIGINT, x BIGINT) TIMESTAMP BY ts;
CREATE STREAM unread (ts BIGINT, k BIGINT, x BIGINT) TIMESTAMP BY ts;
CREATE TABLE rules (a BIGINT);
CREATE TABLE names (k BIGINT, name VARCHAR);
CREATE TEMPLATE over (a BIGINT) AS SELECT v FROM s [RANGE 7] WHERE k = $a;
CREATE TEMPLATE sums (a BIGINT) AS SELECT SUM(v) AS t FROM s [RANGE 12 SLIDE 4] WHERE k = $a;
CREATE QUERY paned AS SELECT k, SUM(v) AS t FROM s [RANGE 10 SLIDE 5] GROUP BY k;
CREATE QUERY paired AS SELECT SUM(v) AS t FROM s [RANGE 20 SLIDE 5] WHERE k > 1;
CREATE QUERY open0 AS SELECT v FROM s [RANGE 9] WHERE k = 0;
CREATE QUERY open1 AS SELECT v FROM s [RANGE 9] WHERE k = 1;
CREATE QUERY closed AS SELECT COUNT(*) AS n FROM s [RANGE 6] WHERE k < 3;
CREATE QUERY joined AS SELECT s.k, r.w FROM s [RANGE 5], r [RANGE 8] WHERE s.k = r.k;
CREATE QUERY both0 AS SELECT COUNT(*) AS n FROM s [RANGE 8 SLIDE 4], u [RANGE 8 SLIDE 4] WHERE s.k = u.k AND v > 3;
CREATE QUERY both1 AS SELECT COUNT(*) AS n FROM s [RANGE 8 SLIDE 4], u [RANGE 8 SLIDE 4] WHERE s.k = u.k AND v > 5;
CREATE QUERY late AS SELECT SUM(w) AS t FROM r [RANGE 12 SLIDE AT MOST 3];
CREATE QUERY kept AS SELECT name, v FROM s [RANGE 5], names WHERE s.k = names.k KEEP 50;
CREATE QUERY shed AS SELECT COUNT(*) AS n FROM s [RANGE 4] SHED WHEN TICK OVER '9 s';
CREATE ARCHIVE shelf AS SELECT k, w FROM r [RANGE 20] KEY k EVERY 10;
CREATE QUERIES q FROM TEMPLATE over VALUES (0), (1), (2);
CREATE QUERIES p FROM TEMPLATE sums VALUES (0), (1), (2);
CREATE QUERIES t FROM TEMPLATE sums USING TABLE rules
"""
STEPS = (
    "CREATE QUERY a{n} AS SELECT MAX(v) AS m FROM s [RANGE {n}0 SLIDE 5]",
    "CREATE QUERY b{n} AS SELECT v FROM s [RANGE 9] WHERE k = {n}",
    "CREATE QUERY c{n} AS SELECT SUM(x) AS n FROM s [RANGE 8 SLIDE 4], u [RANGE 8 SLIDE 4] WHERE s.k = u.k AND v > {n}",
    "CREATE QUERY d{n} AS SELECT s.k FROM s [RANGE {n}], r [RANGE 3] WHERE s.k = r.k",
    "CREATE QUERY e{n} AS SELECT MIN(w) AS m FROM r [RANGE {n}2 SLIDE AT MOST 4]",
    "CREATE QUERY g0 AS SELECT COUNT(*) AS n FROM s [RANGE 6 SLIDE 3], unread [RANGE 6 SLIDE 3] WHERE s.k = unread.k; "
    "CREATE QUERY g1 AS SELECT SUM(x) AS n FROM s [RANGE 9 SLIDE 3], unread [RANGE 9 SLIDE 3] WHERE s.k = unread.k",
    "CREATE QUERY h{n} AS SELECT COUNT(*) AS n FROM s [RANGE {n}] SHED WHEN TICK OVER '5 s'", "DROP QUERY shed",
    "CREATE OR REPLACE QUERY paned AS SELECT k, SUM(v) AS t FROM s [RANGE {n}5 SLIDE 5] GROUP BY k",
    "CREATE OR REPLACE QUERY open1 AS SELECT v FROM s [RANGE 9] WHERE k = {n}",
    "DROP QUERY paired", "DROP QUERY open0", "DROP QUERY closed", "DROP QUERY joined", "DROP QUERY both1",
    "DROP QUERY late", "DROP QUERY kept; DROP TABLE names", "DROP ARCHIVE shelf", "DROP STREAM unread",
    "ALTER QUERY kept SET KEEP 90", "ALTER QUERY open0 SET KEEP 30", "ALTER STREAM s SET WITHIN 1{n}",
    "CREATE STREAM more (ts BIGINT, k BIGINT) TIMESTAMP BY ts RETAIN 5; CREATE QUERY f AS SELECT k FROM more [RANGE 3]",
    "CREATE ARCHIVE other AS SELECT v, k FROM s [RANGE 9] KEY v EVERY 10",
    "CREATE QUERIES q FROM TEMPLATE over VALUES (3{n}), (4{n})", "CREATE QUERIES p FROM TEMPLATE sums VALUES (3{n})",
    "DROP QUERIES q WHERE a < {n}", "DROP QUERIES p WHERE a = {n}", "DROP QUERIES q", "DROP QUERIES p",
    "DROP QUERIES t",
    "CREATE QUERIES z FROM TEMPLATE over VALUES ({n})",
)  # fmt: skip


def _everything(engine: windrow.Engine) -> dict[str, Any]:
    """What a change may touch, to be compared."""
    declared, ticker = engine.runtime.declared, engine.runtime.ticker
    sharing, plans, deadlines = ticker.sharing, ticker.plans, ticker.deadlines
    assert deadlines is not None
    return {
        "catalog": (engine.catalog, declared._catalog, ticker.manifest, dict(ticker.functions)),
        "streams": {k: (s.definition, s.source, s.uid) for k, s in declared.streams.items()},
        "tables": ({k: t.reading for k, t in declared.tables.items()}, dict(ticker.tables)),
        "outlets": {k: (o.recent, o.log) for k, o in declared.outlets.items()},
        "archives": {k: (a.definition, a.state) for k, a in declared.archives.live.items()},
        "coming": (sorted(declared.fresh), sorted(declared._newcomers), dict(declared.failures)),
        "groups": {k: (g.instances.rows, dict(g.place), sorted(g.blocks)) for k, g in declared.groups.live.items()},
        "of": dict(declared.groups.of),
        "queries": {k: getattr(q, "uid", q) for k, q in ticker.queries.items()},
        "clocks": (dict(ticker.starts), {*ticker._clockless}, dict(sharing.on_clock), dict(ticker.streams)),
        "choices": (ticker.choices.chosen(), ticker.heavy.saved()),
        "budgets": [dict(getattr(declared.budgets, name)) for name in ("behind", "gates", "plans", "spans")],
        "deadlines": (dict(deadlines.records), dict(deadlines.unscheduled)),
        "families": {sharing.names[k]: {*f.joined, *f.columns} for k, f in sharing.families.items()},
        "places": (dict(sharing.places), {k: c.left.tolist() for k, c in sharing.columns.items()}, {*sharing.members}),
        "joins": ({s: {*f.joined} for s, f in sharing.joins.families.items()}, dict(sharing.joins.alone)),
        "served": ({*sharing.served}, {*sharing.joins.served}, {*sharing.join_members}),
        "plans": {n: ({*p.members}, {b: x.left.tolist() for b, x in p.blocks.items()}) for n, p in plans.plans.items()},
        "placed": (dict(plans.place), dict(plans.columns), {*plans._waiting}),
    }


def _rows(step: int) -> dict[str, pa.Table]:
    rng = np.random.default_rng(step)
    found = {}
    for name, value in (("s", "v"), ("r", "w"), ("u", "x"), ("unread", "x")):
        ts = np.sort(rng.integers(6 * step, 6 * step + 6, 12))
        found[name] = pa.table({"ts": ts, "k": rng.integers(0, 5, 12), value: rng.integers(0, 9, 12)})
    return found


def _begun(home: Path | None) -> tuple[windrow.Engine, dict[str, list[pa.Table]]]:
    engine = windrow.Engine("local", home=home)
    engine.execute(DECLARED)
    engine.table("rules", pa.table({"a": [1, 2]}))
    engine.table("names", pa.table({"k": [0, 1, 2], "name": ["zero", "one", "two"]}))
    heard: dict[str, list[pa.Table]] = {}
    for name in (*engine.catalog.queries, *engine.catalog.groups):
        engine[name].subscribe(heard.setdefault(name, []).append)
    engine.start()
    _go_on(engine, range(3))
    return engine, heard


def _go_on(engine: windrow.Engine, steps: range) -> None:
    for step in steps:
        for name, table in _rows(step).items():
            engine.push(name, table)
    engine.drain()


@contextmanager
def _failing(engine: windrow.Engine, chance: random.Random) -> Iterator[None]:
    """The change fails at some step, or when it is to be made durable."""

    def full(*_: object) -> None:
        raise StateError("the disk is full")

    def nth(real: Callable[..., Any], n: int) -> Callable[..., Any]:
        left = [n]

        def step(*given: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                full()
            return real(*given)

        return step

    with pytest.MonkeyPatch.context() as patch:
        if chance.random() < 0.5:
            patch.setattr(engine.runtime.store, "commit", full)
        else:
            for step in ("_add_query", "_run_query", "_stop", "_end_columns", "_run_instances", "_add_archive"):
                patch.setattr(Declarations, step, nth(getattr(Declarations, step), chance.randint(0, 2)))
            patch.setattr(engine.runtime.store, "commit", full)  # if there are fewer steps
        yield


@pytest.mark.parametrize("few", [1, 64], ids=["in columns", "one by one"])
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_left_of_a_change_that_fails(
    seed: int, few: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random scripts that fail at random steps, between ticks; another engine never hears of them."""
    monkeypatch.setattr(declared_module, "FEW", few)
    monkeypatch.setattr(planned_instances, "SAMPLES", 2)
    chance = random.Random(10 * seed + few)
    (engine, heard), (other, wanted) = (_begun(tmp_path / name if seed % 2 else None) for name in ("one", "two"))
    with engine, other:
        for round_ in range(3):
            before = _everything(engine)
            for _ in range(4):
                script = "; ".join(t.format(n=chance.randint(1, 4)) for t in chance.sample(STEPS, chance.randint(1, 5)))
                with _failing(engine, chance), pytest.raises(windrow.errors.WindrowError):
                    engine.execute(script)
                after = _everything(engine)
                assert after == before, (script, [k for k in before if before[k] != after[k]])
            with _failing(engine, chance), pytest.raises(StateError):
                engine.table("rules", pa.table({"a": [2, 3 + round_]}))
            assert _everything(engine) == before
            for each in (engine, other):
                _go_on(each, range(3 + 2 * round_, 5 + 2 * round_))
        for each in (engine, other):  # and a change that does not fail is made
            each.table("rules", pa.table({"a": [2, 4]}))
            each.execute("CREATE QUERY z AS SELECT v FROM s [RANGE 9] WHERE k = 4; DROP QUERY open1")
            _go_on(each, range(9, 11))
    assert heard.keys() == wanted.keys()
    for name, parts in wanted.items():
        assert len(parts) > 2, name
        assert_same(pa.concat_tables(heard[name]), pa.concat_tables(parts))
