"""Answers in notebooks and in other libraries."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import duckdb
import pyarrow as pa
import pytest
from tests.waiting import until

import windrow


@pytest.fixture
def engine() -> Iterator[windrow.Engine]:
    """An engine that has answered something."""
    with windrow.Engine(runtime="local") as made:
        made.execute("""
            CREATE STREAM bid (ts BIGINT, auction VARCHAR, price BIGINT) TIMESTAMP BY ts;
            CREATE QUERY top AS SELECT auction, MAX(price) AS price FROM bid [RANGE 5] GROUP BY auction;
        """)
        made.start()
        made.push("bid", {"ts": [1, 2, 3], "auction": ["<script>", "b", "c"], "price": [10, None, 5]})
        yield made


def test_html(engine: windrow.Engine) -> None:
    """Answers, queries and engines show themselves; what data holds is escaped."""
    shown = engine["top"]._repr_html_()
    assert "&lt;script&gt;" in shown and "<script>" not in shown and "<i>null</i>" in shown
    assert "<svg" in shown
    assert "top" in engine._repr_html_() and "running" in engine._repr_html_()
    answers = windrow.run("SELECT * FROM s [NOW]", streams={"s": {"ts": list(range(50))}}, runtime="local")
    assert "20 of 99 rows" in answers._repr_html_()


def test_other_libraries(engine: windrow.Engine) -> None:
    """The present answer as pandas, polars and DuckDB have it."""
    want = {("<script>", 10), ("b", None)}
    assert set(engine["top"].to_polars().iter_rows()) == want
    assert set(engine["top"].to_duckdb().fetchall()) == want
    assert set(engine["top"].to_duckdb(duckdb.connect()).fetchall()) == want
    assert sorted(engine["top"].to_pandas()["auction"]) == ["<script>", "b"]


def test_live_view(engine: windrow.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A live view shows the answer anew when it changes, and stops when told."""
    seen: list[str] = []
    fake = ModuleType("IPython.display")
    fake.HTML = lambda text: text  # type: ignore[attr-defined]
    fake.display = lambda text, display_id: seen.append(text) or SimpleNamespace(update=seen.append)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    view = engine["top"].live(every=0.01)
    engine.push("bid", {"ts": [4, 5], "auction": ["new", "x"], "price": [99, 1]})
    until(lambda: len(seen) >= 2)
    view.stop()
    assert "new" not in seen[0] and "new" in seen[-1]
    before = len(seen)
    engine.push("bid", {"ts": [6, 7], "auction": ["later", "x"], "price": [99, 1]})
    assert len(seen) == before


def test_a_change_log_reads_as_it_happens() -> None:
    """Within an instant, what leaves is shown before what comes; one row is a row."""
    from windrow.engine.display import table_html

    shown = table_html(pa.table({"_ts": [1, 2, 2], "_op": [1, 1, -1], "price": [10, 30, 10]}))
    assert re.findall(r">(-?\d+)</td></tr>", shown) == ["10", "10", "30"]
    assert "1 row</caption>" in table_html(pa.table({"a": [1]}))


def test_an_engine_says_for_whom_it_waits() -> None:
    """The status of an engine names the streams that hold time back."""
    from windrow.engine.display import status_html

    assert "waits for rows of a, &lt;b&gt;" in status_html({"running": True, "held_back_by": ["a", "<b>"]})
    assert "waits" not in status_html({"running": True, "held_back_by": []})
