"""One-time queries over periodic ones: what they answered at their last evaluation."""

from __future__ import annotations

import pytest

import windrow
from windrow.errors import BindingError, StateError, UnsupportedError

SCRIPT = """
CREATE STREAM s (k VARCHAR, v BIGINT, ts BIGINT) TIMESTAMP BY ts RETAIN 100;
CREATE QUERY hot AS SELECT k, COUNT(*) AS n, SUM(v) AS t FROM s [RANGE 10 SLIDE 5] GROUP BY k;
CREATE QUERY later AS SELECT k, COUNT(*) AS n FROM s [RANGE 10 SLIDE AT MOST 5] GROUP BY k;
CREATE QUERY ends AS SELECT k, COUNT(*) AS n FROM TUMBLE(s, ts, 5) GROUP BY k;
CREATE QUERY new AS SELECT ISTREAM(k) FROM s [RANGE 10];
CREATE VIEW hottest AS SELECT MAX(n) AS n FROM hot;
"""


def asked(engine: windrow.Engine, text: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in engine.ask(text).to_pylist()]


@pytest.mark.parametrize("runtime", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_the_last_answer(runtime: str, request: pytest.FixtureRequest, tmp_path) -> None:
    """Filtered, sorted, joined and through views; what the metadata says is the state's frontier."""
    spark = {"spark": request.getfixturevalue("spark")} if runtime == "spark" else {}
    with windrow.Engine(runtime=runtime, home=str(tmp_path / "home"), **spark) as engine:
        engine.execute(SCRIPT)
        engine.start()
        engine.push("s", {"k": ["a", "b", "a"], "v": [1, 2, 3], "ts": [1, 4, 7]})
        engine.drain()
        assert asked(engine, "SELECT * FROM hot ORDER BY k") == [("a", 1, 1), ("b", 1, 2)]  # at 5
        engine.push("s", {"k": ["c"], "v": [4], "ts": [12]})
        engine.drain()
        found = engine.ask("SELECT k, t * 2 AS t FROM hot WHERE n > 1")  # at 10
        assert [tuple(r.values()) for r in found.to_pylist()] == [("a", 8)]
        assert found.schema.metadata[b"windrow.as_of"] == b"11"
        assert engine["hot"].snapshot().schema.metadata[b"windrow.as_of"] == b"11"
        assert asked(engine, "SELECT n FROM hottest") == [(2,)]
        assert asked(engine, "SELECT k, n FROM ends ORDER BY k") == [("a", 1)]  # [5, 10)
        assert asked(engine, "SELECT COUNT(*) AS c FROM s [RANGE 20] x JOIN hot h ON x.k = h.k") == [(3,)]
        assert sorted(asked(engine, "SELECT k, n FROM later")) == [("a", 2), ("b", 1)]


def test_nothing_at_the_last_evaluation(tmp_path) -> None:
    """An answer without rows is not the answer before it."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute(SCRIPT)
        engine.start()
        engine.push("s", {"k": ["a"], "v": [1], "ts": [1]})
        engine.advance(7)
        assert asked(engine, "SELECT k FROM hot") == [("a",)]
        engine.advance(21)
        assert asked(engine, "SELECT k FROM hot") == []


def test_after_a_restart(tmp_path) -> None:
    """Answers of before are refused unless they are kept; the next evaluation is there as ever."""
    home = str(tmp_path / "home")
    with windrow.Engine(runtime="local", home=home) as engine:
        engine.execute(SCRIPT)
        engine.execute("CREATE QUERY kept AS SELECT COUNT(*) AS n FROM s [RANGE 10 SLIDE 5] KEEP 100")
        engine.start()
        engine.push("s", {"k": ["a", "a"], "v": [1, 1], "ts": [1, 7]})
        engine.drain()
    with windrow.Engine(runtime="local", home=home) as engine:
        engine.start()
        with pytest.raises(StateError, match='"hot" has not been evaluated'):
            engine.ask("SELECT * FROM hot")
        assert asked(engine, "SELECT n FROM kept") == [(1,)]
        engine.push("s", {"k": ["b"], "v": [1], "ts": [11]})
        assert asked(engine, "SELECT n FROM hot") == [(2,)]
        assert asked(engine, "SELECT n FROM kept") == [(2,)]


def test_streams_have_no_last_answer() -> None:
    """A stream is all that it had, which nobody keeps; a SLIDE in the question itself is refused."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute(SCRIPT)
        engine.start()
        with pytest.raises(BindingError, match="does not keep enough history"):
            engine.ask("SELECT k FROM new")
        with pytest.raises(UnsupportedError, match="no SLIDE") as caught:
            engine.ask("SELECT COUNT(*) AS n FROM s [RANGE 10 SLIDE 5]")
        assert "periodic query" in str(caught.value)
