"""Queries of one form that are created one at a time, while rows flow, are one dataflow."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import windrow
from windrow.sharing.plans import registry
from windrow.sharing.plans.shape import PlanColumns
from windrow.testing import assert_same, oracle

DECLARED = """CREATE STREAM s (k BIGINT, v BIGINT, u BIGINT, ts BIGINT) TIMESTAMP BY ts WITHIN {0};
CREATE STREAM r (k BIGINT, v BIGINT, u BIGINT, ts BIGINT) TIMESTAMP BY ts WITHIN {0};
CREATE TABLE p (k BIGINT, w VARCHAR)"""
COUNTED = "(SELECT k, count(*) AS n FROM r [RANGE 4] GROUP BY k)"
FORMS = {
    "filter": "SELECT {e}k, v FROM s [RANGE {w}] WHERE v > {c}",
    "having": "SELECT {e}k, count(*) AS n FROM s [RANGE 6] GROUP BY k HAVING count(*) > {c}",
    "count": "SELECT {e}k, count(*) AS n FROM s [RANGE 6] WHERE v > {c} GROUP BY k",
    "max": "SELECT {e}k, max(v) AS m FROM s [RANGE 5] WHERE u > {c} GROUP BY k",
    "both": "SELECT {e}k, sum(v) AS n FROM s [RANGE 6] WHERE v > {c} GROUP BY k HAVING count(*) > {d}",
    "lengths": "SELECT {e}k, count(*) AS n FROM s [RANGE {w}] GROUP BY k HAVING count(*) > {d}",
    "sum of all": "SELECT {e}count(*) AS n, sum(v) AS t FROM s [RANGE 3] WHERE v > {c}",
    "count of one": "SELECT {e}count(*) AS n FROM s [RANGE {w}] WHERE k = {d}",
    "greatest of all": "SELECT {e}max(v) AS m, count(DISTINCT k) AS n FROM s [RANGE 3] WHERE u > {c}",
    "silence": "SELECT {e}count(*) AS n FROM s [RANGE 3] WHERE v > {c} HAVING count(*) < {d}",
    "greatest of counts": "SELECT {e}max(n) AS m, count(*) AS g FROM (SELECT k, count(*) AS n FROM s [RANGE 5] "
    "WHERE v > {c} GROUP BY k)",
    "all in a join": "SELECT {e}a.k, b.n FROM s [RANGE 3] a, (SELECT count(*) AS n FROM r [RANGE 4] WHERE v > {c}) b "
    "WHERE a.v > b.n",
    "above the mean of all": "SELECT {e}a.k, a.u FROM s [RANGE 3] a WHERE a.u > {c} AND a.v > "
    "(SELECT avg(v) FROM r [RANGE {w}])",
    "sum of a join": "SELECT {e}count(*) AS n, sum(b.v) AS t FROM s [RANGE 3] a, r [RANGE 4] b WHERE a.k = b.k "
    "AND a.v > {c}",
    "join groups": "SELECT {e}a.k, count(*) AS n FROM s [RANGE 5] a, r [RANGE 4] b WHERE a.k = b.k AND a.v > {c} "
    "GROUP BY a.k",
    "join having": "SELECT {e}a.k, max(b.v) AS n FROM s [RANGE 5] a, r [RANGE 4] b WHERE a.k = b.k GROUP BY a.k "
    "HAVING max(b.v) > {c}",
    "absent": "SELECT {e}a.k, a.v FROM s [RANGE 6] a WHERE a.v > {c} AND NOT EXISTS "
    "(SELECT 1 FROM r [RANGE 3] b WHERE b.k = a.k)",
    "absent, lengths": "SELECT {e}a.k, a.v FROM s [RANGE {w}] a WHERE a.v > {c} AND NOT EXISTS "
    "(SELECT 1 FROM r [RANGE 3] b WHERE b.k = a.k AND b.v > a.v)",
    "absent by what": "SELECT {e}a.k FROM s [RANGE 6] a WHERE NOT EXISTS "
    "(SELECT 1 FROM r [RANGE 4] b WHERE b.k = a.k AND b.v > {c})",
    "absent by what and how": "SELECT {e}a.k FROM s [RANGE 6] a WHERE a.v < 4 AND NOT EXISTS "
    "(SELECT 1 FROM r [RANGE 4] b WHERE b.k = a.k AND b.v > a.v AND b.u > {c})",
    "left join": "SELECT {e}a.k, a.v, b.v AS w FROM s [RANGE {w}] a LEFT JOIN r [RANGE 4] b ON a.k = b.k "
    "WHERE a.v > {c}",
    "join, lengths": "SELECT {e}a.k, b.v FROM s [RANGE {l}] a, r [RANGE 4] b WHERE a.k = b.k AND a.v > {c}",
    "full join": "SELECT {e}a.k, a.v, b.v AS w FROM s [RANGE 5] a FULL JOIN r [RANGE 4] b ON a.k = b.k WHERE a.v > {c}",
    "distinct": "SELECT {e}DISTINCT k FROM s [RANGE 5] WHERE v > {c}",
    "distinct join": "SELECT {e}DISTINCT a.k, b.v FROM s [RANGE 5] a, r [RANGE 4] b WHERE a.k = b.k AND a.v > {c}",
    "union": "SELECT {e}x.k FROM (SELECT k FROM s [RANGE 5] WHERE v > {c} UNION SELECT k FROM r [RANGE 3] "
    "WHERE v > {d}) x",
    "except": "SELECT {e}x.k FROM (SELECT k FROM s [RANGE 5] WHERE v > {c} EXCEPT ALL SELECT k FROM r [RANGE 3]) x",
    "now and then": "SELECT {e}k, v FROM s [RANGE 4 SLIDE 3] WHERE v > {c}",
    "distinct now and then": "SELECT {e}DISTINCT k FROM s [RANGE 5 SLIDE 2] WHERE v > {c}",
    "absent now and then": "SELECT {e}a.k, a.v FROM s [RANGE 6 SLIDE 3] a WHERE a.v > {c} AND NOT EXISTS "
    "(SELECT 1 FROM r [RANGE 3 SLIDE 3] b WHERE b.k = a.k)",
    "join now and then": "SELECT {e}a.k, b.v FROM s [RANGE 5 SLIDE 2] a, r [RANGE 4 SLIDE 2] b WHERE a.k = b.k "
    "AND a.v > {c}",
    "left join of a window that ends": "SELECT {e}a.k, b.v FROM TUMBLE(s, ts, 4) a LEFT JOIN TUMBLE(r, ts, 4) b "
    "ON a.k = b.k WHERE a.v > {c}",
    "last rows": "SELECT {e}k, v FROM s [ROWS 4] WHERE v > {c}",
    "last rows of each": "SELECT {e}k, max(v) AS m FROM s [PARTITION BY k ROWS 3] GROUP BY k HAVING max(v) > {c}",
    "for ever": "SELECT {e}k, count(*) AS n FROM s [RANGE UNBOUNDED] GROUP BY k HAVING count(*) > {c}",
    "above its mean": "SELECT {e}a.k, a.v FROM s [RANGE 3] a, (SELECT k, avg(v) AS m FROM s [RANGE 6] GROUP BY k) b "
    "WHERE a.k = b.k AND a.v > b.m AND a.u > {c}",
    "of two counts": "SELECT {e}a.k, a.n, b.n AS o FROM (SELECT k, count(*) AS n FROM s [RANGE 5] GROUP BY k) a, "
    f"{COUNTED} b WHERE a.k = b.k AND a.n > {{c}}",
    "of a table": "SELECT {e}a.k, p.w, count(*) AS n FROM s [RANGE 5] a, p WHERE a.k = p.k AND a.v > {c} "
    "GROUP BY a.k, p.w",
}
NEVER = {"last rows", "last rows of each", "for ever"}
"""Where what came before a query makes a difference for ever."""
EMITTED = ("", "ISTREAM(", "DSTREAM(", "RSTREAM(")


def written(r: random.Random, form: str, emit: str) -> str:
    """A query of a form."""
    chosen = {"c": r.randint(-1, 4), "d": r.randint(0, 2), "w": r.choice([2, 4, 6, 9])}
    chosen["l"] = r.choice([2, 5, 9, "UNBOUNDED"])
    text = FORMS[form].format(e="", **chosen)
    if not emit:
        return text
    head, rest = text.split(" FROM ", 1)
    return f"SELECT {emit}{head.removeprefix('SELECT ')}) FROM {rest}"


def rows(r: random.Random, now: int, slack: int) -> pa.Table:
    """Some rows of about now."""
    found = []
    for _ in range(r.choice([1, 2, 3])):
        ts = max(0, now - r.randint(0, slack))
        found.append({"k": r.choice([0, 1, 2, None]), "v": r.randint(-1, 5), "u": r.randint(0, 4), "ts": ts})
    return pa.Table.from_pylist(found, pa.schema([(c, pa.int64()) for c in ("k", "v", "u", "ts")]))


def lived(
    form: str, seed: int, sharing: str, home: Path | None, partitions: int, look: Callable[[Any], None]
) -> tuple[dict[str, pa.Table], list[Any]]:
    """Rows flow; queries come one in a tick, and go; with a home the engine is opened again."""
    r = random.Random(seed)
    emit, slack, silent = r.choice(EMITTED) if seed else "", r.choice([0, 2]), r.choice([0, 0, 9])

    def opened() -> windrow.Engine:
        return windrow.Engine(runtime="local", sharing=sharing, home=home, partitions=partitions)

    engine = opened()
    engine.execute(DECLARED.format(slack))
    engine.table("p", {"k": [0, 1, 1], "w": ["a", "b", "c"]})
    engine.start()
    here, answers, stood, now = list[str](), dict[str, list[pa.Table]](), list[Any](), 0
    for tick in range(44):
        now += r.choice([0, 1, 1, 2])
        for stream in "sr":
            if r.random() < 0.8 and (stream == "s" or tick >= silent):
                engine.push(stream, rows(r, now, slack))
        if tick % 3 == 1 and tick < 28:
            name = f"q{tick}"
            engine.execute(f"CREATE QUERY {name} AS {written(r, form, emit)}")
            here.append(name)
            answers[name] = []
        elif len(here) > 4 and r.random() < 0.1:
            gone = here.pop(r.randrange(len(here)))
            answers[gone].append(engine[gone].results())
            engine.execute(f"DROP QUERY {gone}")
        elif home is not None and r.random() < 0.12:
            for name in here:
                answers[name].append(engine[name].results())
            engine.stop()
            engine = opened()
            engine.start()
        if tick % 5 == 4 and here and engine[here[0]].plan.has_op:
            stood.append({name: sorted(map(str, engine[name].snapshot().to_pylist())) for name in here})
    engine.advance(now + 12)
    for stream in "sr":
        engine.push(stream, rows(r, now + 20, 0))
    engine.advance(now + 40)
    for name in here:
        answers[name].append(engine[name].results())
    assert not engine.status()["failed"]
    look(engine)
    engine.stop()
    return {name: pa.concat_tables(found) for name, found in answers.items()}, stood


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("form", FORMS)
def test_they_answer_as_if_alone(form: str, seed: int, tmp_path: Path) -> None:
    """Whichever tick each comes with, over restarts and partitions: its answers are its own, and few dataflows run."""
    shared: list[tuple[int, int]] = []
    readers: list[int] = []

    def look(engine: Any) -> None:
        plans = engine.runtime.ticker.plans
        there = sum(map(len, plans.plans.values()))
        shared.append((len(plans.plans), len(engine.status()["queries"]) - there))
        for plan in plans.plans.values():
            if plan.readers is not None:
                readers.append(len(plan.readers) - len({r.selects for r in plan.readers.values()}))

    homes = [tmp_path / s if seed == 1 else None for s in ("auto", "off")]
    partitions = 3 if seed == 2 else 1
    got, stood = lived(form, seed, "auto", homes[0], partitions, look)
    want, wanted = lived(form, seed, "off", homes[1], partitions, lambda _: None)
    assert got.keys() == want.keys()
    for name, table in want.items():
        try:
            assert_same(got[name], table)
        except AssertionError as error:
            raise AssertionError(f"{form}, {name}: {error}") from error
    assert stood == wanted
    assert sum(table.num_rows for table in want.values()) > 20
    plans, alone = shared[0]
    assert plans <= (2 if "{w}" in FORMS[form] else 1)  # the first two may have one length of window
    assert alone <= (1 if homes[0] is None else 2)  # an engine that is opened again does not know the first of a form
    assert form in NEVER or not any(readers)  # windows have turned over


def test_who_comes_before_a_row_has_the_reader_of_others() -> None:
    """Queries that come in different ticks between which no row of their streams has come are told apart by nothing."""
    text = "SELECT k, count(*) AS n FROM s [RANGE 50] GROUP BY k HAVING count(*) > {}"
    engine = windrow.Engine(runtime="local")
    engine.execute(DECLARED.format(0))
    engine.start()
    for ts in range(6):
        engine.push("s" if ts < 4 else "r", {"k": [1], "v": [ts], "u": [0], "ts": [ts]})
        engine.execute(f"CREATE QUERY q{ts} AS {text.format(ts)}")
    engine.push("s", {"k": [1], "v": [9], "u": [0], "ts": [9]})
    (plan,) = engine.runtime.ticker.plans.plans.values()
    assert len(plan) == 5
    assert sorted(plan.reads.values()) == [0, 2, 4, 4, 4]
    engine.stop()


def test_a_few_columns_more_are_no_other_dataflow() -> None:
    """A plan that begins with the second query of a form has the columns and windows that the first one had."""
    lists = ("k", "k, v", "k, u", "k, v, u", "k, v")
    engine = windrow.Engine(runtime="local")
    engine.execute(DECLARED.format(0))
    engine.start()
    for ts, shown in enumerate(lists):
        engine.push("s", {"k": [1], "v": [ts], "u": [0], "ts": [ts]})
        engine.execute(f"CREATE QUERY q{ts} AS SELECT {shown} FROM s [RANGE {5 + ts}] a WHERE NOT EXISTS "
                       "(SELECT 1 FROM r [RANGE 3] b WHERE b.k = a.k)")  # fmt: skip
    engine.push("s", {"k": [1], "v": [9], "u": [0], "ts": [9]})
    assert len(engine.runtime.ticker.plans.plans) <= 3
    assert len(engine.runtime.ticker.plans.place) == 4
    engine.stop()


def test_what_nobody_shows_any_more_makes_no_difference() -> None:
    """Rows that differ in a column of which only a query that has left told cancel for those that are there."""
    engine = windrow.Engine(runtime="local")
    engine.execute(DECLARED.format(0))
    absent = "NOT EXISTS (SELECT 1 FROM r [RANGE 3] b WHERE b.k = a.k)"
    for i, shown in enumerate(("k, v", "k", "k")):
        engine.execute(f"CREATE QUERY q{i} AS SELECT {shown} FROM s [RANGE 5] a WHERE a.u > {i} AND {absent}")
    engine.start()
    engine.push("s", {"k": [1], "v": [1], "u": [9], "ts": [1]})
    engine.push("r", {"k": [2], "v": [1], "u": [9], "ts": [1]})
    engine.execute("DROP QUERY q0")
    for stream in "sr":
        engine.push(stream, {"k": [1 if stream == "s" else 2], "v": [7], "u": [9], "ts": [6]})
    engine.advance(8)
    assert [(r["_ts"], r["_op"]) for r in engine["q1"].results().to_pylist()] == [(1, 1)]
    engine.stop()


def test_states_that_are_remembered_for_a_reader_go_with_it() -> None:
    """When readers have become one, nothing more is kept for the younger one."""
    engine = windrow.Engine(runtime="local")
    engine.execute(DECLARED.format(0))
    engine.start()
    text = "SELECT k, max(v) AS m FROM s [RANGE 5] GROUP BY k HAVING max(v) > {}"
    for ts in range(40):
        engine.push("s", {"k": list(range(20)), "v": [ts] * 20, "u": [0] * 20, "ts": [ts] * 20})
        engine.push("r", {"k": [0], "v": [0], "u": [0], "ts": [ts]})
        if ts < 12:
            engine.execute(f"CREATE QUERY q{ts} AS {text.format(ts)}")
    (plan,) = engine.runtime.ticker.plans.plans.values()
    assert len(plan) == 11 and len(plan.readers or ()) == 1
    states = [s for _, states in engine.runtime.job.memory.attempts.values() for s in states.values()]
    kept = max(sum(run.table.num_rows for _, runs in state.slots(1, 0) for run in runs) for state in states)
    assert kept < 400  # of twelve readers it would be thousands
    engine.stop()


def test_how_many_forms_are_remembered_is_bounded() -> None:
    """Queries of one form that show ever other columns are remembered up to a number."""
    known = registry.SharedPlans(True)
    engine = windrow.Engine(runtime="local")
    engine.execute(DECLARED.format(0))
    for i in range(registry.KNOWN + 9):
        engine.execute(f"CREATE QUERY q{i} AS SELECT k, v + {i}.5 AS x FROM s [RANGE {5 + i}]")
        known.offer(engine[f"q{i}"].plan, materialized=True, start=None, retained=False)
        known.settle({})
    assert all(len(forms) <= registry.KNOWN for forms in known._seen.values())
    engine.stop()


LENGTHS = "SELECT a.k, b.v FROM s [RANGE {}] a, r [RANGE 30] b WHERE a.k = b.k AND a.v > 1"


@pytest.mark.parametrize("home", [False, True])
@pytest.mark.parametrize(("lengths", "later"), [((3, 5), "UNBOUNDED"), ((3, 5, "UNBOUNDED"), 4), (("UNBOUNDED", 2), 5)])
def test_windows_without_an_end_come_and_go(lengths: tuple[Any, ...], later: Any, home: bool, tmp_path: Path) -> None:
    """Whether the longest window of all who share has an end makes no difference to what is remembered."""
    found = []
    for sharing in ("auto", "off"):

        def opened(sharing: str = sharing) -> windrow.Engine:
            return windrow.Engine("local", sharing=sharing, home=tmp_path / sharing if home else None)

        engine = opened()
        engine.execute(DECLARED.format(0))
        engine.start()
        texts = {f"q{i}": LENGTHS.format(length) for i, length in enumerate(lengths)}
        engine.execute(";".join(f"CREATE QUERY {name} AS {text}" for name, text in texts.items()))
        answers = dict.fromkeys([*texts, "late"], 0)
        for ts in range(1, 13):
            if ts == 4:
                engine.execute(f"CREATE QUERY late AS {LENGTHS.format(later)}")
            if ts in (6, 9):
                engine.execute(f"DROP QUERY {'q2' if 'q2' in texts and ts == 6 else 'late' if ts == 9 else 'q0'}")
            if home and ts in (5, 7, 10):
                engine.stop()
                engine = opened()
                engine.start()
            for stream in "sr":
                engine.push(stream, {"k": [1, 2], "v": [ts, 5], "u": [0, 0], "ts": [ts, ts]})
            for name in engine.status()["queries"]:
                answers[name] = engine[name].results().num_rows, sorted(map(str, engine[name].snapshot().to_pylist()))
        assert not engine.status()["failed"]
        found.append(answers)
        engine.stop()
    assert found[0] == found[1]


@pytest.mark.parametrize(("lengths", "later"), [((3, 5), "UNBOUNDED"), ((3, 5, "UNBOUNDED"), 4), (("UNBOUNDED", 2), 5)])
def test_windows_without_an_end_come_to_an_older_home_and_go(
    lengths: tuple[Any, ...], later: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows that were no operators while the longest had no end stay so, and the others stay operators."""
    plain, of = PlanColumns.plain, PlanColumns.of.__func__  # type: ignore[attr-defined]
    found = []
    for sharing in ("auto", "off"):
        answers = dict[str, Any]()
        for life in range(5):
            with monkeypatch.context() as older:
                if life == 0:
                    older.setattr(PlanColumns, "of", classmethod(lambda cls, f: of(cls, f).of_older(f)))
                    older.setattr(PlanColumns, "plain", lambda s: {k: v for k, v in plain(s).items() if k != "endless"})
                with windrow.Engine("local", sharing=sharing, home=tmp_path / sharing) as engine:
                    engine.start()
                    if life == 0:
                        texts = (f"CREATE QUERY q{i} AS {LENGTHS.format(length)}" for i, length in enumerate(lengths))
                        engine.execute(f"{DECLARED.format(0)}; {';'.join(texts)}")
                    if life == 1:
                        engine.execute(f"CREATE QUERY late AS {LENGTHS.format(later)}")
                    if life in (2, 3):
                        engine.execute(f"DROP QUERY {('q0', 'late')[life == 2]}")
                    for ts in range(3 * life, 3 * life + 3):
                        for stream in "sr":
                            engine.push(stream, {"k": [1, 2], "v": [ts, 5], "u": [0, 0], "ts": [ts, ts]})
                    for name in engine.status()["queries"]:
                        stands = sorted(map(str, engine[name].snapshot().to_pylist()))
                        answers[f"{name} {life}"] = engine[name].results().num_rows, stands
                    assert not engine.status()["failed"]
                    assert len(engine.runtime.ticker.plans.plans) == (sharing == "auto")
        found.append(answers)
    assert found[0] == found[1]


def test_who_comes_before_time_moves_takes_no_row_from_others() -> None:
    """Rows that wait for another stream are answered, though a query that has missed them shares by now."""
    text = "SELECT a.k FROM s [RANGE 9] a WHERE a.u > {} AND a.v > (SELECT count(*) FROM r [RANGE 4])"
    with windrow.Engine("local") as engine:
        engine.execute(DECLARED.format(0))
        engine.start()
        engine.execute(f"CREATE QUERY q0 AS {text.format(0)}; CREATE QUERY q1 AS {text.format(1)}")
        engine.push("s", {"k": [1, 2], "v": [5, 5], "u": [3, 3], "ts": [2, 8]})
        engine.execute(f"CREATE QUERY late AS {text.format(2)}")
        engine.advance(30)
        script = f"{DECLARED.format(0)}; CREATE QUERY q0 AS {text.format(0)}"
        rows = pa.table({"k": [1, 2], "v": [5, 5], "u": [3, 3], "ts": [2, 8]})
        want = oracle(script, {"s": rows}, {}, 30)["q0"]
        for name in ("q0", "q1"):
            assert_same(engine[name].results(), want)
        assert engine["late"].results().column("_ts").to_pylist() == []


ENDED = {
    "rows": "SELECT {}k, v{} FROM TUMBLE(s, ts, 3) WHERE v > {}",
    "distinct": "SELECT {}DISTINCT k{} FROM TUMBLE(s, ts, 3) WHERE v > {}",
    "join": "SELECT {}a.k, b.v{} FROM TUMBLE(s, ts, 3) a JOIN TUMBLE(r, ts, 3) b ON a.u = b.u WHERE a.v > {}",
    "left join": "SELECT {}a.k, b.v{} FROM TUMBLE(s, ts, 3) a LEFT JOIN TUMBLE(r, ts, 3) b ON a.k = b.k WHERE a.v > {}",
}


@pytest.mark.parametrize("emit", EMITTED)
@pytest.mark.parametrize("form", ENDED)
def test_who_comes_as_a_window_ends_has_its_rows(form: str, emit: str) -> None:
    """A clock that starts with an evaluation of windows that end there has the late rows of these, as it has alone."""
    for began in (4, 6):
        found = []
        for sharing in ("auto", "off"):
            with windrow.Engine("local", sharing=sharing) as engine:
                engine.execute(DECLARED.format(3))
                engine.start()
                for name, least in (("q0", 4), ("q1", 2)):
                    text = ENDED[form].format(emit, ")" if emit else "", least)
                    engine.execute(f"CREATE QUERY {name} AS {text}")
                    for stream in "sr":
                        engine.push(stream, {"k": [9], "v": [0], "u": [9], "ts": [began]})
                for stream, k in (("s", 1), ("r", 2)):
                    late = {"k": [k] * 3, "v": [3, 4, 5], "u": [1, 1, 2], "ts": [began - 3, began - 2, began - 1]}
                    engine.push(stream, late)
                engine.advance(began + 12)
                found.append({name: sorted(map(str, engine[name].results().to_pylist())) for name in ("q0", "q1")})
                assert ("q1" in engine.runtime.ticker.plans.place) == (sharing == "auto")
        assert found[0] == found[1]
        assert found[0]["q1"]


def test_who_comes_under_the_name_of_one_that_has_gone_is_new(tmp_path: Path) -> None:
    """A query that is dropped and created again behind a restart has not the place that its name had in the home."""
    text = "SELECT ISTREAM(x.k, x.v) FROM (SELECT k, v FROM s UNION ALL SELECT k, v FROM r [NOW] WHERE v > {}) x"
    engine = windrow.Engine("local", home=tmp_path)
    engine.execute(DECLARED.format(0))
    engine.start()
    engine.push("r", {"k": [1], "v": [5], "u": [0], "ts": [8]})
    engine.execute(f"CREATE QUERY stays AS {text.format(1)}; CREATE QUERY goes AS {text.format(2)}")
    engine.push("r", {"k": [3], "v": [7], "u": [0], "ts": [23]})  # it waits for the other stream
    engine.stop()
    with windrow.Engine("local", home=tmp_path) as engine:
        engine.start()
        engine.execute("DROP QUERY goes")
        engine.execute(f"CREATE QUERY goes AS {text.format(2)}")
        engine.advance(40)
        assert "one dataflow with stays" in engine["goes"].explain()
        assert engine["stays"].results().to_pylist() == [{"_ts": 23, "k": 3, "v": 7}]
        assert engine["goes"].results().num_rows == 0
