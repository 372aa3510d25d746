"""Queries join and leave a running group; the others do not notice."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import windrow
from windrow.errors import WindrowError
from windrow.testing import assert_same


def engine(case: Any, sharing: str, retain: str) -> windrow.Engine:
    """An engine in this process over the case's stream and table."""
    made = windrow.Engine(runtime="local", sharing=sharing)
    made.execute(f"CREATE STREAM st (ts BIGINT, a BIGINT, x DOUBLE, s VARCHAR, b BOOLEAN) TIMESTAMP BY ts {retain}")
    made.table("k", case.table)
    made.start()
    return made


def played(case: Any, seed: int, sharing: str, retain: str) -> dict[str, Any]:
    """Push rows in batches; between them queries join and leave."""
    r = random.Random(seed)
    running = engine(case, sharing, retain)
    waiting, here, answers = list(case.queries.items()), list[str](), {}
    at = 0
    while at < case.stream.num_rows or waiting:
        for _ in range(r.choice([0, 1, 1, 2])):
            if waiting:
                name, text = waiting.pop()
                running.execute(f"CREATE QUERY {name} AS {text}")
                here.append(name)
        if here and r.random() < 0.2:
            gone = here.pop(r.randrange(len(here)))
            answers[gone] = running[gone].results()
            running.execute(f"DROP QUERY {gone}")
        size = r.randint(1, 9)
        if at < case.stream.num_rows:
            running.push("st", case.stream.slice(at, size))
        at += size
    running.advance(90)
    running.stop()
    return answers | {name: running[name].results() for name in here}


@pytest.mark.parametrize("retain", ["", "RETAIN 8", "RETAIN 50"])
@pytest.mark.parametrize("seed", range(200, 206))
def test_queries_join_and_leave(make_case: Callable[[int], Any], seed: int, retain: str) -> None:
    """Whenever a query joins, with history or without, and whoever leaves, its answers are those it has alone."""
    case = make_case(seed)
    want = played(case, seed, "off", retain)
    got = played(case, seed, "shards", retain)
    assert want.keys() == got.keys()
    for name in want:
        assert_same(got[name], want[name])


def test_a_change_that_fails_leaves_everyone_as_they_were(make_case: Callable[[int], Any]) -> None:
    """A script that drops and creates queries and then fails changes nothing."""
    case = make_case(7)
    running = engine(case, "shards", "")
    running.execute("CREATE QUERY old AS SELECT count(*) AS c FROM st [RANGE 10 SLIDE 10]")
    running.push("st", case.stream)
    with pytest.raises(WindrowError):
        running.execute(
            "DROP QUERY old; CREATE QUERY new AS SELECT sum(a) FROM st [RANGE 5 SLIDE 5]; DROP QUERY nobody"
        )
    running.advance(100)
    assert running["old"].results().column("_ts").to_pylist()[-1] == 100
    assert "new" not in running
    assert list(running.runtime.sharing.served) == ["old"]


def test_history_has_the_columns_of_those_who_join() -> None:
    """A query that joins a family with kept history and other columns starts with a full window, as it would alone."""
    stream = "CREATE STREAM t (ts BIGINT, k VARCHAR, x BIGINT, y BIGINT) TIMESTAMP BY ts RETAIN 100;"
    late = "CREATE QUERY b AS SELECT k, SUM(x * y) AS s, MAX(y) AS m FROM t [RANGE 10 SLIDE 1] WHERE y > 0 GROUP BY k"
    found = {}
    for sharing in ("auto", "off"):
        with windrow.Engine(runtime="local", sharing=sharing) as running:
            running.execute(f"{stream} CREATE QUERY a AS SELECT k, SUM(x) AS s FROM t [RANGE 10 SLIDE 1] GROUP BY k")
            running.start()
            running.push("t", {"ts": [1, 2, 3, 4], "k": ["a", "b", "a", "b"], "x": [1, 2, 3, 4], "y": [5, 0, 7, 8]})
            running.execute(late)
            running.push("t", {"ts": [6, 7], "k": ["a", "b"], "x": [1, 1], "y": [2, 3]})
            found[sharing] = [sorted(map(str, running[q].results().to_pylist())) for q in "ab"]
    assert found["auto"] == found["off"]
    assert any("'k': 'a', 's': Decimal('26'), 'm': 7" in row for row in found["auto"][1])
