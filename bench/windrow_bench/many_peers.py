"""Alerts and selections of `many` on other engines: as separate queries, and as their users do it for many rules, with
a table of rules that is joined with the stream.

Times are on the wall, from the queries to the last answer (`peers`); answers are compared row by row.
"""

from __future__ import annotations

import tempfile
from typing import Any

import pyarrow as pa

from windrow_bench import many_shapes as shapes
from windrow_bench.many_runs import memory, with_rules
from windrow_bench.many_shapes import SHAPES, SLIDE
from windrow_bench.many_yardsticks import Row, digest
from windrow_bench.peers import (
    Flink,
    Lookup,
    Peer,
    PeerQuery,
    Selection,
    SlidingAggregate,
    StructuredStreaming,
    write_streams,
)
from windrow_bench.peers.environment import MARK, VERSION, cache

ENGINES = {"structured": "Structured Streaming", "flink": "Flink SQL"}
HOW = ("separate", "table of rules")
COUNTED = {"n": "COUNT(*)", "m": "MAX(price)"}


def there(engine: str) -> bool:
    """Whether an engine can be run without fetching anything."""
    return engine != "flink" or (cache() / f"flink-{VERSION}" / MARK).exists()


def run(shape: str, count: int, rows: int, seed: int, engine: str, how: str) -> Row:
    """The answers of all queries of a shape on an engine."""
    given = shapes.rules(count, seed)
    queries = separate(shape, given) if how == HOW[0] else by_table(shape, given)
    peer: Peer = StructuredStreaming() if engine == "structured" else Flink()
    with tempfile.TemporaryDirectory(prefix="windrow-many-") as place:
        write_streams(place, {"trade": shapes.data(rows, seed)["trade"]}, files=2)
        found = peer.run(queries, place, {} if how == HOW[0] else {"rules": given})
    named = given.select(SHAPES[shape].names)
    answers = [found.answers[q.name] for q in queries]
    table = with_rules(answers, named) if how == HOW[0] else pa.concat_tables(_lengths(shape, given, answers))
    return {
        "plan_s": 0.0,
        "run_s": found.seconds,
        "answers": table.num_rows,
        **memory(engine == "structured"),
        **digest(table),
    }


def separate(shape: str, given: pa.Table) -> list[PeerQuery]:
    """A query for each rule."""
    found: list[PeerQuery] = []
    for i, rule in enumerate(given.to_pylist()):
        test = f"price > {rule['lim']!r}"
        if shape == "filters":
            found.append(Selection(f"q{i}", "trade", {"sym": "sym", "price": "price"}, test, ticks=True))
            continue
        test += f" AND sym = {rule['s']}"
        found.append(SlidingAggregate(f"q{i}", "trade", rule["w"], SLIDE, COUNTED, test, ticks=True))
    return found


def by_table(shape: str, given: pa.Table) -> list[PeerQuery]:
    """A query for all rules, or for all of one range."""
    if shape == "filters":
        listed = {"sym": "sym", "price": "price", "lim": "lim"}
        return [Selection("all", "trade", listed, "price > lim", [Lookup("rules", {})], ticks=True)]
    tables = [Lookup("rules", {"sym": "s"})]
    return [
        SlidingAggregate(
            f"w{w}", "trade", w, SLIDE, COUNTED, f"price > lim AND w = {w}", ["s", "lim"], tables, ticks=True
        )
        for w in _ranges(given)
    ]  # fmt: skip


def _ranges(given: pa.Table) -> list[int]:
    return sorted(set(given.column("w").to_pylist()))


def _lengths(shape: str, given: pa.Table, answers: list[pa.Table]) -> list[pa.Table]:
    """The answers with the range of their rules."""
    if shape == "filters":
        return answers
    ranges: list[Any] = _ranges(given)
    return [t.append_column("w", pa.array([w] * t.num_rows, pa.int64())) for t, w in zip(answers, ranges, strict=True)]
