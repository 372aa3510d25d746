"""Who is in which shared plan: written once, found again, and no part of what a tick writes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import windrow
from windrow.runtime import program
from windrow.runtime.plan_members import MOST_RUNS, PLANS
from windrow.store.manifest import encode

STREAM = "CREATE STREAM s (k BIGINT, v DOUBLE, ts BIGINT) TIMESTAMP BY ts;"


def query(number: int) -> str:
    """A continuous query of one form."""
    return f"CREATE QUERY q{number} AS SELECT k, v FROM s [RANGE 10] WHERE v > {number}"


def at(ts: int) -> pa.Table:
    """Some rows of an instant."""
    return pa.table({"k": [1, 2, 3], "v": [0.5, 20.5, 200.5], "ts": [ts] * 3})


@pytest.mark.parametrize("sharing", ["auto", "off"])
def test_a_manifest_does_not_grow_with_members(tmp_path: Path, sharing: str) -> None:
    """A tick writes as much with three queries of a form as with three hundred, unless each runs by itself."""
    sizes = []
    for count in (3, 300):
        with windrow.Engine("local", home=tmp_path / str(count), sharing=sharing) as engine:
            engine.execute(STREAM)
            engine.execute(";".join(query(i) for i in range(count)))
            engine.start()
            for ts in (1, 2):
                engine.push("s", at(ts))
                engine.drain()
            manifest = engine.runtime.ticker.manifest
            sizes.append(len(encode(manifest)))
            assert len(manifest.clocks) == (1 if sharing == "auto" else count)
    assert (sizes[1] < sizes[0] + 100) == (sharing == "auto")


def test_queries_that_share_are_not_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who will share is never made by itself; one that comes too late to share runs by itself, with its own choices."""
    made: list[str] = []
    lower = program.lower
    monkeypatch.setattr(program, "lower", lambda plan, *more: made.append(plan.name) or lower(plan, *more))
    grouped = "CREATE QUERY {} AS SELECT ISTREAM(k, SUM(v) AS n) FROM kept [RANGE 10] GROUP BY k HAVING SUM(v) > {}"
    joined = "CREATE QUERY {} AS SELECT a.v FROM s [RANGE 10] a, s [RANGE 10] b WHERE a.k = b.k AND a.v > {}"
    with windrow.Engine("local") as engine:
        engine.execute(f"{STREAM} {STREAM.replace(' s (', ' kept (').replace(';', ' RETAIN 1')}")
        engine.execute(";".join([*(grouped.format(f"g{i}", i) for i in range(9)),
                                 *(joined.format(f"j{i}", i) for i in range(9))]))  # fmt: skip
        assert not made
        engine.start()
        for ts in (1, 2, 3, 20):
            engine.push("s", at(ts))
            engine.push("kept", at(ts))
            if ts == 2:
                engine.execute(grouped.format("late", 5))
        engine.drain()
        ticker = engine.runtime.ticker
        assert not {"g0", "g5", "j0", "j5"}.intersection(made)
        assert {f"g{i}" for i in range(9)} | {f"j{i}" for i in range(9)} <= ticker.plans.place.keys()
        assert "late" not in ticker.plans.place and "late" in made
        sums = [n * v for n in (1, 2, 3, 2, 1) for v in (20.5, 200.5)]  # as rows come, and as they leave
        for name in ("g5", "late"):  # which is given what the stream has kept
            assert engine[name].results().column("n").to_pylist() == sums


def test_members_are_found_again_after_many_changes(tmp_path: Path) -> None:
    """Queries come and go over many ticks and restarts; runs stay few, and everybody has his own number."""
    home, there = tmp_path / "home", set[int]()
    for round_ in range(3):
        with windrow.Engine("local", home=home) as engine:
            if round_ == 0:
                engine.execute(STREAM)
            engine.start()
            before = dict(engine.runtime.ticker.plans.place)
            assert {int(name[1:]) for name in before} == there
            for step in range(MOST_RUNS):
                number = 100 * round_ + 2 * step
                engine.execute(";".join(query(n) for n in (number, number + 1)))
                there |= {number, number + 1}
                engine.push("s", at(100 * round_ + step))
                engine.drain()
                if step % 3 == 2:
                    engine.execute(f"DROP QUERY q{number}")
                    there.discard(number)
            places = engine.runtime.ticker.plans.place
            assert {n: p for n, p in places.items() if n in before}.items() <= before.items()
            assert len(set(places.values())) == len(places) == len(there)
            runs = engine.runtime.ticker.manifest.runs
            assert all(len(refs) <= MOST_RUNS for key, refs in runs.items() if key[0] == PLANS)


def test_a_newcomer_keeps_its_beginning(tmp_path: Path) -> None:
    """One that came when rows were still to be answered sees them from its beginning on, also if opened again."""
    shown = {}
    for sharing in ("auto", "off"):
        with windrow.Engine("local", home=tmp_path / sharing, sharing=sharing) as engine:
            engine.execute("CREATE STREAM s (k BIGINT, v DOUBLE, ts BIGINT) TIMESTAMP BY ts WITHIN 5")
            engine.execute(";".join(query(i) for i in range(3)))
            engine.start()
            engine.push("s", at(7))
            engine.push("s", at(10))
            engine.drain()
            engine.execute(query(3))
            engine.push("s", at(11))
            engine.drain()
        with windrow.Engine("local", home=tmp_path / sharing, sharing=sharing) as engine:
            engine.start()
            engine.push("s", at(30))
            engine.drain()
            engine.push("s", at(60))
            engine.drain()
            shown[sharing] = (engine["q3"].results().to_pylist(), engine.status()["queries"]["q3"]["clock"])
    assert shown["auto"] == shown["off"]
