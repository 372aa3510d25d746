"""The page for readers who come from elsewhere: both programs on it give one answer."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.docs.test_examples import ROOT, blocks

from windrow.engine import Engine

CLICKS = [("a", "10:01"), ("b", "10:02"), ("a", "10:09"), ("a", "10:08"), ("b", "10:40")]
ANSWERS = [  # the window that holds 10:40 is open
    ("09:55", "10:05", "a", 1), ("09:55", "10:05", "b", 1), ("10:00", "10:10", "a", 3), ("10:00", "10:10", "b", 1),
    ("10:05", "10:15", "a", 2),
]  # fmt: skip
TEXTS = {b.words[1]: b.text for b in blocks(ROOT / "docs" / "comparison.md") if b.words[1:]}


def clicks(folder: Path) -> None:
    """The rows that both read."""
    (folder / "clicks").mkdir()
    lines = [json.dumps({"page": page, "ts": f"2026-01-01T{at}:00Z"}) for page, at in CLICKS]
    (folder / "clicks" / "first.json").write_text("\n".join(lines))


def answers(folder: Path) -> list[tuple[str, str, str, int]]:
    """What was written, with times of day."""
    table = pa.concat_tables([pq.read_table(p) for p in folder.rglob("*.parquet")])
    times = [table[name].cast(pa.timestamp("us", "UTC")) for name in ("start", "end")]
    begin, end = (pc.strftime(time, "%H:%M").to_pylist() for time in times)
    return sorted(zip(begin, end, table["page"].to_pylist(), table["count"].to_pylist(), strict=True))


def test_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script writes the counts of all windows that are over."""
    monkeypatch.chdir(tmp_path)
    clicks(tmp_path)
    with Engine(runtime="local", home="state") as engine:
        engine.execute(TEXTS["clicks"])
        engine.start()
        engine.drain()
    assert answers(tmp_path / "out") == ANSWERS


@pytest.mark.spark
def test_the_program_that_it_replaces(spark, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Structured Streaming writes the same."""
    clicks(tmp_path)
    text = TEXTS["structured-streaming"].replace(".start()", ".trigger(availableNow=True).start().awaitTermination()")
    for name in ("clicks", "out", "state"):
        text = text.replace(f'"{name}")', f'"{tmp_path / name}")')
    exec(compile(text, "comparison", "exec"), {"spark": spark})
    assert answers(tmp_path / "out") == ANSWERS
