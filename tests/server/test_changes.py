"""Answers as server-sent events: numbered, resumed without loss or repetition, ended in order."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.engine import Engine
from windrow.server import changes
from windrow.server.process import Server

Event = tuple[str, int, dict[str, Any]]


@contextmanager
def reading(client: httpx.Client, query: str, last: int | None = None, **params: Any) -> Iterator[Iterator[Event]]:
    """The events of a query, from the point that `last` names."""
    headers = {} if last is None else {"last-event-id": str(last)}
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
            yield fields["event"], int(fields["id"]), json.loads(fields["data"])
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
        assert (first, second) == ("change", "change") and begun < one < two
        assert rows["rows"] == [[1, 1, "a", 10]] and rows["tick"] == one
        assert sorted(more["rows"]) == [[2, -1, "a", 10], [2, 1, "a", 20]]


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
    with reading(reader, "top", after=got[3][1]) as events:
        assert list(islice(events, 8))[1:] == got[4:]


def test_reset_when_the_point_is_gone(engine: Engine, reader: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A point before the log's beginning, or from another life, gets the present answer instead."""
    monkeypatch.setattr(changes, "KEPT_ROWS", 4)
    with reading(reader, "top") as events:
        _, begun, _ = next(events)
        push(engine, *range(1, 12))
    for last, next_, price in ((begun, 12, 100), (10**9, 13, 110)):
        with reading(reader, "top", last=last) as events:
            kind, number, said = next(events)
            assert (kind, said["rows"], said["tick"]) == ("reset", [["a", price]], number)
            push(engine, next_)
            assert next(events)[0] == "change"


def test_dropped_queries_end(engine: Engine, reader: httpx.Client) -> None:
    """When the query goes, the stream of its changes says so and ends."""
    with reading(reader, "top") as events:
        next(events)
        engine.execute("DROP QUERY top")
        assert [kind for kind, _, _ in events] == ["end"]


def test_a_stop_ends_streams(engine: Engine, server: Server, reader: httpx.Client) -> None:
    """Open event streams do not hold up a stop."""
    with reading(reader, "top") as events:
        next(events)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        assert list(events) == []
        stopping.join(4)
        assert not stopping.is_alive()


def test_many_readers_one_text(engine: Engine, server: Server, reader: httpx.Client) -> None:
    """A tick is written as JSON once for all its readers, and there are at most so many."""
    with reading(reader, "top") as one, reading(reader, "top") as two:
        next(one), next(two)
        push(engine, 1, 2)
        assert next(one) == next(two)
        log = next(iter(server._changes._logs.values()))
        assert [e._event is not None for e in log._entries] == [True]
        assert server._changes.readers == 2


@given(st.lists(st.integers(0, 3), max_size=20), st.integers(1, 9), st.integers(0, 25))
def test_the_log(counts: list[int], kept: int, place: int) -> None:
    """What a log gives after a tick is exactly what came after it, or nothing when some of that is gone."""
    import pyarrow as pa

    log = object.__new__(changes.ChangeLog)
    log._entries, log._rows, log._gone, log.newest = changes.deque(), 0, 0, 0
    log._lock = threading.Lock()
    log.wake = lambda: None  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes, "KEPT_ROWS", kept)
        patch.setattr(changes, "_tick_of", lambda _: 0)
        log._engine = None  # type: ignore[assignment]
        for n in counts:
            log._add(pa.table({"a": [0] * n}))
    found = log.after(place)
    if found is not None:
        assert [e.tick for e in found] == list(range(place + 1, len(counts) + 1))
    else:
        assert place > len(counts) or sum(counts[place:]) > kept
