"""A home on an object store: exactly once over restarts and a store that refuses requests, one engine at a time."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import windrow
from windrow.errors import StateError
from windrow.store.store import Store
from windrow.testing import assert_same

SCRIPT = """
CREATE STREAM s (ts BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY ts;
CREATE QUERY counted AS SELECT k, COUNT(*) AS n, SUM(v) AS m FROM s [RANGE 10] GROUP BY k;
CREATE QUERY joined AS SELECT a.k, b.v FROM s [RANGE 5] a, s [RANGE 5] b WHERE a.k = b.k AND a.v < b.v;
CREATE QUERY shared AS SELECT k, MAX(v) AS n FROM s [RANGE 10 SLIDE 5] GROUP BY k
"""


def _module() -> Any:
    path = Path(__file__).parents[1] / "object_store.py"
    spec = importlib.util.spec_from_file_location("windrow_tests_object_store", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def objects() -> Iterator[Any]:
    server = _module().ObjectStore()
    yield server
    server.close()


def rows(number: int) -> pa.Table:
    ts = list(range(10 * number, 10 * number + 10))
    return pa.table({"ts": ts, "k": [t % 3 for t in ts], "v": [t * 7 % 11 for t in ts]})


def live(home: str, numbers: range) -> dict[str, list[pa.Table]]:
    """The answers of one engine over some rows."""
    found: dict[str, list[pa.Table]] = {}
    engine = windrow.Engine("local", home=home)
    if not engine.catalog.queries:
        engine.execute(SCRIPT)
    engine.start()
    for number in numbers:
        engine.push("s", rows(number))
    for name in engine.catalog.queries:
        found[name] = [engine[name].results()]
    engine.stop()
    return found


@pytest.mark.parametrize("every", [None, 7])
def test_a_home_on_an_object_store(objects: Any, every: int | None) -> None:
    """Three lives give what one replay gives, also when every seventh request is refused, carried out or not."""
    home = objects.uri("monitoring/home")
    objects.fail(every)
    got: dict[str, list[pa.Table]] = {"counted": [], "joined": [], "shared": []}
    for numbers in (range(2), range(2, 3), range(3, 5)):
        for name, answers in live(home, numbers).items():
            got[name] += answers
    want = windrow.run(SCRIPT, {"s": pa.concat_tables([rows(n) for n in range(5)])}, runtime="local", until=48)
    for name, answer in want.items():
        assert_same(pa.concat_tables(got[name]), answer)
    assert objects.refused > 0 or every is None
    assert not [k for k in objects.objects if k.endswith(".tmp")]


def test_one_engine_at_a_time(objects: Any) -> None:
    """The heartbeat in the lock object decides."""
    home = objects.uri("home")
    with Store.open(home), pytest.raises(StateError, match="in use by another engine"):
        Store.open(home)


def test_an_object_that_is_gone(objects: Any) -> None:
    """Is missed at the start, as on a disk."""
    home = objects.uri("home")
    live(home, range(2))
    for key in [k for k in objects.objects if "/runs/1/" in k]:
        del objects.objects[key]
    with pytest.raises(StateError, match=r"lacks \d+ of its files"):
        windrow.Engine("local", home=home)
