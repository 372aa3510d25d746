"""The garbage collector is paused while scripts are planned, and only then."""

from __future__ import annotations

import contextlib
import gc
import weakref

import pytest
from sqlglot import exp

import windrow
from windrow.runtime.collector import SWEPT, swept, without_collector


class Cycle:
    """Something that only the collector can find."""

    def __init__(self) -> None:
        self.self = self


def test_what_is_young_goes_while_the_collector_is_paused() -> None:
    """Of many items what is dead goes after every few, and the collector is on again afterwards."""
    dead = []
    with without_collector():
        for _ in swept(range(SWEPT)):
            dead.append(weakref.ref(Cycle()))
            assert not gc.isenabled()
    assert gc.isenabled()
    assert not any(ref() for ref in dead)


def test_a_statement_leaves_its_tree_to_nobody() -> None:
    """What was parsed goes with its statement, without the collector."""
    engine = windrow.Engine(runtime="local")
    engine.execute("CREATE STREAM s (a BIGINT, ts BIGINT) TIMESTAMP BY ts; CREATE QUERY p AS SELECT a AS b FROM s")
    gc.collect()
    gc.disable()
    try:
        before = aliases()
        engine.execute("CREATE QUERY q AS SELECT " + ", ".join(f"a + {i} AS c{i}" for i in range(40)) + " FROM s")
        assert aliases() == before
    finally:
        gc.enable()


def aliases() -> int:
    return sum(isinstance(o, exp.Alias) for o in gc.get_objects())


@pytest.mark.parametrize("script", ["CREATE STREAM s (a BIGINT, ts BIGINT) TIMESTAMP BY ts", "SELECT a FROM nowhere"])
@pytest.mark.parametrize("on", [True, False])
def test_a_script_leaves_the_collector_as_it_was(script: str, on: bool) -> None:
    """On or off, whether the script is right or wrong."""
    engine = windrow.Engine(runtime="local")
    try:
        (gc.enable if on else gc.disable)()
        with contextlib.suppress(windrow.WindrowError):
            engine.execute(script)
        assert gc.isenabled() == on
    finally:
        gc.enable()
