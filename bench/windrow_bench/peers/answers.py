"""What a peer gives back, brought to a replay's form, and compared with ours.

A replay ends at its last row and an aggregate without GROUP BY has an answer for an empty window too; both are said
here, once, for all peers. Answers are equal when they hold the same bag of rows, floats within 1e-9 of their size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.testing.compare import ABSOLUTE, RELATIVE, assert_same
from windrow_bench.peers.feed import Feed, instants
from windrow_bench.peers.queries import PeerQuery, SlidingAggregate


@dataclass(frozen=True)
class PeerResult:
    """Seconds from the queries to the last answer, the answers, where the time went, and what ran."""

    seconds: float
    answers: Mapping[str, pa.Table]
    parts: Mapping[str, float] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)


class Peer(Protocol):
    """Another engine."""

    name: str

    def run(
        self, queries: Sequence[PeerQuery], files: str | Path, tables: Mapping[str, pa.Table] | None = None
    ) -> PeerResult:
        """Run the queries together over the streams that `write_streams` put into `files`."""


def settle(raw: pa.Table, query: PeerQuery, feed: Feed) -> pa.Table:
    """An engine's answer (`_ts` as int64) with the windows, the rows and the types of a replay."""
    kept = raw.filter(pc.less_equal(raw["_ts"], feed.until))
    if isinstance(query, SlidingAggregate) and not query.keys:
        kept = _completed(kept, query, feed)
    kept = kept.sort_by("_ts")
    return kept.set_column(0, "_ts", kept["_ts"].cast(feed.time_type(query)))


def _completed(table: pa.Table, query: SlidingAggregate, feed: Feed) -> pa.Table:
    first = -(-feed.start(query) // query.slide)
    every = np.arange(first, feed.until // query.slide + 1, dtype=np.int64) * query.slide
    missing = np.setdiff1d(every, table["_ts"].to_numpy())
    if not len(missing):
        return table
    empty = _of_nothing(query, feed)
    columns = [
        pa.array(missing),
        *(pa.repeat(empty[n][0].cast(table.field(n).type), len(missing)) for n in query.aggregates),
    ]
    return pa.concat_tables([table, pa.table(columns, schema=table.schema)])


def _of_nothing(query: SlidingAggregate, feed: Feed) -> pa.Table:
    """The answer of SQL over no rows."""
    import duckdb

    with duckdb.connect() as connection:
        connection.register(query.stream, feed.streams[query.stream.lower()].schema.empty_table())
        for lookup in query.tables:
            connection.register(lookup.table, feed.tables[lookup.table.lower()].schema.empty_table())
        items = ", ".join(f"{sql} AS {name}" for name, sql in query.aggregates.items())
        parts = ", ".join(f'"{name}"' for name in (query.stream, *(t.table for t in query.tables)))
        return connection.sql(f"SELECT {items} FROM {parts}").to_arrow_table()


def compare(ours: Mapping[str, pa.Table], theirs: Mapping[str, pa.Table]) -> dict[str, str]:
    """A readable difference for each query whose answers differ; empty when all agree.

    >>> one = pa.table({"_ts": [1, 2], "total": [0.3, 1.0]})
    >>> compare({"q": one}, {"q": pa.table({"_ts": [2, 1], "total": [1.0, 0.1 + 0.2]})})
    {}
    >>> print(compare({"q": one}, {"q": one.slice(1)})["q"])
    answers differ first at _ts = 1 (ours 2 rows, theirs 1)
      columns: total
      missing (1):
        (0.3,)
      ...
    """
    found = {}
    for name in dict.fromkeys([*ours, *theirs]):
        if name not in ours or name not in theirs:
            found[name] = f"no answer of {'theirs' if name in ours else 'ours'}"
        elif said := _compared(ours[name], theirs[name]):
            found[name] = said
    return found


def _compared(ours: pa.Table, theirs: pa.Table) -> str | None:
    if ours.column_names != theirs.column_names:
        return f"columns differ: ours {ours.column_names}, theirs {theirs.column_names}"
    names = ours.column_names
    pairs = {n: [_plain_column(n, t[n]) for t in (ours, theirs)] for n in names}
    floats = [n for n in names if any(pa.types.is_floating(c.type) for c in pairs[n])]
    exact = [n for n in names if n not in floats]
    for name in floats:
        pairs[name] = [c.cast(pa.float64()) for c in pairs[name]]
    tables = [pa.table({n: pairs[n][side] for n in names}) for side in (0, 1)]
    left, right = (t.sort_by([(n, "ascending") for n in (*exact, *floats)]) for t in tables)
    return _difference(left, right)


def _plain_column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if name == "_ts" or pa.types.is_timestamp(kind):
        return instants(column)
    if pa.types.is_decimal(kind):
        return column.cast(pa.float64())
    if pa.types.is_integer(kind):
        return column.cast(pa.int64())
    if pa.types.is_floating(kind):
        return column.cast(pa.float64())
    return column.cast(pa.string()) if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) else column


def _difference(ours: pa.Table, theirs: pa.Table) -> str | None:
    """The rows of the first instant at which sorted answers differ."""
    sizes = f"(ours {len(ours):,} rows, theirs {len(theirs):,})"
    while (at := _first_unlike(ours, theirs)) is not None:
        instant = min(t["_ts"][at].as_py() for t in (ours, theirs) if at < len(t))
        mine, other = (t.filter(pc.equal(t["_ts"], instant)) for t in (ours, theirs))
        try:
            assert_same(other, mine)
        except AssertionError as error:
            first, *rest = str(error).splitlines()
            return "\n".join([f"{first} {sizes}", *rest])
        # Nearly equal floats were sorted differently; look again past this instant.
        ours, theirs = (t.filter(pc.greater(t["_ts"], instant)) for t in (ours, theirs))
    return None


def _first_unlike(ours: pa.Table, theirs: pa.Table) -> int | None:
    rows = min(len(ours), len(theirs))
    same = np.ones(rows, bool)
    for a, b in zip(ours.slice(0, rows).columns, theirs.slice(0, rows).columns, strict=True):
        same &= _close(a, b)
    if not same.all():
        return int(np.argmin(same))
    return None if len(ours) == len(theirs) else rows


def _close(a: pa.ChunkedArray, b: pa.ChunkedArray) -> np.ndarray:
    no_a, no_b = pc.is_null(a).to_numpy(), pc.is_null(b).to_numpy()
    if pa.types.is_floating(a.type):
        x, y = (pc.fill_null(c, 0.0).to_numpy() for c in (a, b))
        same = np.isclose(x, y, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True)
    else:
        same = pc.fill_null(pc.equal(a, b), False).to_numpy()
    return (no_a & no_b) | (same & ~no_a & ~no_b)


def extrapolate(seconds: Mapping[int, float], count: int) -> float:
    """Seconds for `count` queries by the slope between the two largest measured counts.

    >>> extrapolate({1: 5.0, 16: 20.0, 64: 68.0}, 256)
    260.0
    """
    (a, low), (b, high) = sorted(seconds.items())[-2:]
    return high + (high - low) / (b - a) * (count - b)
