"""Hash chains find what a search of everything would, while elements end, cancel and are numbered anew."""

from __future__ import annotations

from collections import Counter
from unittest import mock

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from windrow.operators.elements import Elements
from windrow.operators.keys import hash_rows
from windrow.operators.state import chains, keyed
from windrow.operators.state.keyed import KeyedRuns
from windrow.operators.state.pairs import Needles

ROW = st.tuples(st.integers(0, 4), st.integers(1, 12))


@given(
    batches=st.lists(st.lists(ROW, max_size=12), min_size=1, max_size=25),
    length=st.sampled_from([None, 3, 8]),
    strict=st.booleans(),
    limit=st.sampled_from([1, 3, 100]),
    looked=st.integers(0, 5),
    large=st.sampled_from([1, keyed.LARGE]),
    turns=st.lists(st.integers(0, 2), min_size=25, max_size=25),
    room=st.sampled_from([1, chains.ROOM]),
    keys=st.sampled_from([("k",), ()]),
)
@settings(deadline=None)
def test_probing_equals_a_search_of_everything(batches, length, strict, limit, looked, large, turns, room, keys):
    """Ends in order (`length`) or not, with negatives, chains made late or early, parts and pages of any size, by a key
    or all with all, and `turns` of indexes that go on from what others left: the same pairs."""
    with mock.patch.object(keyed, "LARGE", large), mock.patch.object(chains, "ROOM", room):
        search_everything(batches, length, strict, limit, looked, turns, keys)


def search_everything(batches, length, strict, limit, looked, turns, keys):
    """Compare after every batch."""
    indexes, everything, number = [KeyedRuns(keys, strict=strict) for _ in range(3)], [], 0
    for step, batch in enumerate(batches):
        runs, tick = indexes[turns[step]], 4 * step
        if step and turns[step] != turns[step - 1]:
            runs.restore(indexes[turns[step - 1]].runs())
        runs.expire(tick - 1)
        starts = sorted(tick + (k + life) % 4 for k, life in batch)
        rows = [
            (k, number + i, ts, ts + 4 * (length or life), 1)
            for i, ((k, life), ts) in enumerate(zip(batch, starts, strict=True))
        ]
        number += len(rows)
        if strict:  # every third of those that live is ended by a negative one
            rows += [(k, i, tick, end, -1) for k, i, start, end, s in everything if s > 0 and i % 3 == step % 3
                     and end > tick > start and not any(o[1] == i and o[4] < 0 for o in everything)]  # fmt: skip
        if step >= looked:
            assert found(runs, tick, limit) == searched(everything, tick)
        everything += rows
        if rows:
            key, i, ts, exp, sign = map(np.array, zip(*rows, strict=True))
            new = Elements(ts, exp, sign.astype(np.int8), {"k": pa.array(key), "id": pa.array(i)})
            runs.insert(new, tick - 1, hash_rows([new.columns[k] for k in keys], len(new)) if step % 2 else None)
        if step >= looked:  # what came at this instant, too
            assert found(runs, tick, limit) == searched(everything, tick)


def found(runs, tick, limit):
    """The net of every (key, id, begin, end) that needles of all keys find, living from `tick + 1` to `tick + 20`."""
    keys = pa.array(range(5), pa.int64())
    lives = np.full(5, tick + 1), np.full(5, tick + 20), np.ones(5, np.int8)
    net: Counter[tuple[int, ...]] = Counter()
    for met in runs.probe(Needles(hash_rows([keys] if runs.keys else [], 5), *lives), limit):
        pairs = zip(
            met.left if runs.keys else met.column("k").to_pylist(),
            met.column("id").to_pylist(),
            met.ts,
            met.end,
            met.sign,
            strict=True,
        )
        for key, row, begin, end, sign in pairs:
            net[int(key), row, int(begin), int(end)] += int(sign)
    times = 1 if runs.keys else 5  # each needle has met all of them
    assert all(n % times == 0 for n in net.values())
    return {k: n // times for k, n in net.items() if n}


def searched(everything, tick):
    """The same from a list of all rows."""
    net: Counter[tuple[int, ...]] = Counter()
    for k, i, ts, exp, sign in everything:
        begin, end = max(ts, tick + 1), min(exp, tick + 20)
        if begin < end:
            net[k, i, begin, end] += sign
    return {k: n for k, n in net.items() if n}
