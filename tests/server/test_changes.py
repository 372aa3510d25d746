"""Answers as server-sent events: numbered, resumed without loss or repetition, ended in order."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import httpx
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.engine import Engine
from windrow.runtime.outlet import Recent
from windrow.runtime.status import RECENT_SECONDS, TickFigures
from windrow.runtime.tick_result import TickResult
from windrow.server.process import Server

Event = tuple[str, str, dict[str, Any]]


@contextmanager
def reading(client: httpx.Client, query: str, last: str | None = None, **params: Any) -> Iterator[Iterator[Event]]:
    """The events of a query, from the point that `last` names."""
    headers = {} if last is None else {"last-event-id": last}
    with client.stream("GET", f"/api/queries/{query}/changes", headers=headers, params=params) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield parsed(response.iter_lines())


def parsed(lines: Iterator[str]) -> Iterator[Event]:
    """Events of an event stream: kind, number, data."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "event" in fields:
            yield fields["event"], fields["id"], json.loads(fields["data"])
            fields = {}


def push(engine: Engine, *instants: int) -> None:
    """One tick for each instant."""
    for ts in instants:
        engine.push("bid", {"ts": [ts], "auction": ["a"], "price": [ts * 10]})


def test_changes_arrive(engine: Engine, reader: httpx.Client) -> None:
    """Each tick's changes come as one event with its number, after one that says where it begins."""
    push(engine, 1)
    with reading(reader, "top") as events:
        kind, begun, said = next(events)
        assert kind == "begin" and [c["name"] for c in said["columns"]] == ["_ts", "_op", "auction", "price"]
        push(engine, 2, 3)
        (first, one, rows), (second, two, more) = next(events), next(events)
        assert (first, second) == ("change", "change") and said["tick"] < rows["tick"] < more["tick"]
        assert len({begun, one, two}) == 3 and one.endswith(f"-{rows['tick']}")
        assert rows["rows"] == [[1, 1, "a", 10]]
        assert sorted(more["rows"]) == [[2, -1, "a", 10], [2, 1, "a", 20]]
        assert (rows["as_of"], more["as_of"]) == ("1", "2")


def test_resumed_without_loss_or_repetition(engine: Engine, reader: httpx.Client) -> None:
    """Whoever comes back gets what came since, however often the connection breaks."""
    got: list[Event] = []
    with reading(reader, "top") as events:
        got.append(next(events))
    for ts in range(1, 12):
        push(engine, ts)
        with reading(reader, "top", last=got[-1][1]) as events:
            assert next(events)[0] == "begin"
            if ts > 1:  # the row of an instant is complete when a later one comes
                got.append(next(events))
    rows = [row for _, _, said in got[1:] for row in said["rows"]]
    assert sorted(rows) == sorted([list(r.values()) for r in engine["top"].results().to_pylist()])
    with reading(reader, "top", after=got[3][2]["tick"]) as events:
        assert list(islice(events, 8))[1:] == got[4:]


def test_reset_when_the_point_is_gone(engine: Engine, reader: httpx.Client) -> None:
    """A point before the log's beginning, or from another life, gets the present answer instead."""
    engine.runtime.declared.outlets["top"].recent._limit = 4
    with reading(reader, "top") as events:
        _, begun, _ = next(events)
        push(engine, *range(1, 12))
    life = begun.partition("-")[0]
    for last, ts, price in ((begun, 12, 100), (f"{life}-999999", 13, 110), ("feedbeef-9", 14, 120), ("nonsense", 0, 0)):
        with reading(reader, "top", last=last) as events:
            kind, number, said = next(events)
            if not ts:  # as if there were none
                assert kind == "begin"
                continue
            assert (kind, said["rows"]) == ("reset", [["a", price]]) and number == f"{life}-{said['tick']}"
            assert (said["as_of"], said["isolation"]) == (str(ts - 2), "snapshot")
            push(engine, ts)
            assert next(events)[0] == "change"


def test_streams_are_reset_to_their_newest_instant(engine: Engine, reader: httpx.Client) -> None:
    """A stream-valued query begins with the rows of its newest instant, and goes on from there."""
    push(engine, 3, 8, 13)
    with reading(reader, "counts", after=-1) as events:
        kind, _, said = next(events)
        assert (kind, said["rows"]) == ("reset", [[10, 2]])
        push(engine, 21)
        assert next(events)[2]["rows"] == [[15, 2], [20, 1]]


def test_dropped_queries_end(engine: Engine, reader: httpx.Client) -> None:
    """When the query goes, the stream of its changes says so and ends."""
    with reading(reader, "top") as events:
        next(events)
        engine.execute("DROP QUERY top")
        assert [kind for kind, _, _ in events] == ["end"]


def test_queries_that_stop_end(engine: Engine, reader: httpx.Client) -> None:
    """When a query stops, the stream of its changes says why and ends; so does one that is opened afterwards."""
    engine.execute("CREATE QUERY wrong AS SELECT CAST(auction AS INT) AS i FROM bid [RANGE 5]")
    with reading(reader, "wrong") as events:
        next(events)
        push(engine, 3, 8)
        ((kind, _, said),) = events
        assert kind == "end" and "TRY_CAST" in said["stopped"]
    with reading(reader, "wrong", after=-1) as events:
        assert [kind for kind, _, _ in events] == ["end"]


def test_a_stop_ends_streams(engine: Engine, server: Server, reader: httpx.Client) -> None:
    """Open event streams do not hold up a stop."""
    with reading(reader, "top") as events:
        next(events)
        stopping = threading.Thread(target=server.__exit__)
        stopping.start()
        assert list(events) == []
        stopping.join(4)
        assert not stopping.is_alive()


def test_many_readers_one_text(engine: Engine, server: Server, reader: httpx.Client) -> None:
    """A tick is written as JSON once for all its readers."""
    with reading(reader, "top") as one, reading(reader, "top") as two:
        next(one), next(two)
        push(engine, 1, 2)
        assert next(one) == next(two)
        assert len(server._changes._written) == 1
        assert server._changes.readers == 2


@given(st.lists(st.integers(0, 3), max_size=20), st.integers(1, 9), st.integers(0, 25))
def test_the_log(counts: list[int], kept: int, place: int) -> None:
    """What the log of a query gives after a tick is what came after it, or nothing when some of that is gone."""
    log = Recent(pa.schema([("a", pa.int64())]).empty_table(), limit=kept)
    for tick, n in enumerate(counts, 1):
        log.add(tick, pa.table({"a": pa.array([tick] * n, pa.int64())}))
    found = log.after(place)
    if found is None:
        assert sum(counts[place:]) > kept
    else:
        assert [t for t, _ in found] == list(range(place + 1, len(counts) + 1))
        assert [table.num_rows for _, table in found] == counts[place:]
    assert log.up_to()[0] == len(counts)


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 9)), max_size=12))
def test_rates_are_of_the_last_half_minute(ticks: list[tuple[float, int]]) -> None:
    """Summing as ticks come and go gives what summing all recent ticks anew gives."""
    figures = TickFigures()
    figures._began = 0.0
    clock, seen = 1000.0, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: clock)
        for past, rows in ticks:
            clock += past
            figures.add(
                TickResult(number=len(seen) + 1, frontier=0, counters={"rows.s": rows, "rows.st": 1}, ended=clock)
            )
            seen.append((clock, rows))
            expected = sum(n for at, n in seen if at >= clock - RECENT_SECONDS) / RECENT_SECONDS
            assert figures._rate("rows.s") == pytest.approx(expected, abs=0.06)
    assert [t["rows"] for t in figures.timeline(0)] == [n + 1 for _, n in seen]
