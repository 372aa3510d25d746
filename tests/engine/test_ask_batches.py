"""Answers batch by batch: the same as whole, of one instant, whatever ticks do meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import windrow
from windrow.errors import BindingError, RuntimeFailure

QUESTIONS = (
    "SELECT k, v FROM s [RANGE 500]",
    "SELECT ts, v * 2 AS w FROM s [RANGE 90] WHERE k = 3",
    "SELECT v, name FROM s [RANGE 100], t WHERE s.k = t.k",
    "SELECT k, v FROM s [RANGE 500] WHERE v > 1000000",
    "SELECT k, COUNT(*) AS n FROM s [RANGE 500] GROUP BY k",
    "SELECT k, v FROM s [RANGE 500] ORDER BY v DESC LIMIT 5",
    "SELECT DISTINCT k FROM s [RANGE 300]",
    "SELECT * FROM q",
)


def rows(n: int) -> pa.Table:
    return pa.table(
        {"ts": range(20 * n, 20 * n + 20), "k": [i % 7 for i in range(20)], "v": [n * i for i in range(20)]}
    )


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[windrow.Engine]:
    with windrow.Engine(runtime="local", home=tmp_path / "home") as made:
        made.execute(
            "CREATE STREAM s (ts BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY ts RETAIN 1000;"
            "CREATE TABLE t (k BIGINT, name VARCHAR);"
            "CREATE QUERY q AS SELECT k, COUNT(*) AS n FROM s [RANGE 100] GROUP BY k"
        )
        made.table("t", pa.table({"k": [1, 3], "name": ["one", "three"]}))
        made.start()
        for n in range(20):
            made.push("s", rows(n))
        yield made


def ordered(table: pa.Table) -> list[dict[str, object]]:
    return sorted(table.to_pylist(), key=repr)


@pytest.mark.parametrize("isolation", ["snapshot", "latest"])
@pytest.mark.parametrize("text", QUESTIONS)
def test_batches_are_the_answer(engine: windrow.Engine, text: str, isolation: str) -> None:
    """The same rows, types and metadata as whole."""
    want = engine.ask(text, isolation=isolation)
    with engine.ask_batches(text, isolation=isolation) as reader:
        got = reader.read_all()
    assert got.schema.equals(want.schema)
    assert got.schema.metadata == want.schema.metadata
    assert ordered(got) == ordered(want)


def test_ticks_do_not_change_what_is_being_read(engine: windrow.Engine) -> None:
    """A reader keeps its state while windows slide and runs are merged; then it lets go of it."""
    want = engine.ask(QUESTIONS[0])
    reader = engine.ask_batches(QUESTIONS[0])
    first = reader.read_next_batch()
    for n in range(20, 60):
        engine.push("s", rows(n))
    got = pa.Table.from_batches([first, *reader])
    assert ordered(got) == ordered(want)
    assert reader.schema.metadata[b"windrow.as_of"] == want.schema.metadata[b"windrow.as_of"]


def test_it_can_be_given_up(engine: windrow.Engine) -> None:
    """Between two batches, by an event or after a time; unknown levels are refused at once."""
    cancel = threading.Event()
    reader = engine.ask_batches(QUESTIONS[0], cancel=cancel)
    cancel.set()
    with pytest.raises(RuntimeFailure, match="cancelled"):
        reader.read_all()
    with pytest.raises(BindingError, match="no isolation level"):
        engine.ask_batches(QUESTIONS[0], isolation="none")
    engine.push("s", rows(21))
