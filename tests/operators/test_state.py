"""State structures differ in cost, never in content."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windrow.operators.elements import INF, Elements
from windrow.operators.keys import hash_rows
from windrow.operators.keytable import KeyTable
from windrow.operators.state import keyed, pending
from windrow.operators.state.keyed import KeyedRuns
from windrow.operators.state.pairs import Needles, Pairs
from windrow.operators.state.pending import Calendar, Fifo, ScannedList
from windrow.operators.state.surviving import surviving


def elements(ts, exp, sign=None, **columns):
    sign = np.ones(len(ts), np.int8) if sign is None else np.array(sign, np.int8)
    return Elements(np.array(ts, np.int64), np.array(exp, np.int64), sign, {n: pa.array(v) for n, v in columns.items()})


def ids(found):
    return [] if found is None else sorted(found.column("id").to_pylist())


@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    keep=st.lists(st.booleans(), min_size=20, max_size=20),
)
def test_some_of_the_pairs_are_the_same_pairs(sizes, keep):
    """Pairs that are left over when others go have the partners that they had, wherever these lie."""
    pages = [elements(range(10 * i, 10 * i + 4), [99 + i] * 4, k=range(4)) for i in range(len(sizes))]
    stops = np.cumsum(sizes).tolist()
    right = np.concatenate([np.arange(size)[::-1] for size in sizes])
    n, mask = len(right), np.array(keep[: len(right)], np.bool_)
    sources = [(p, s - size, s) for p, s, size in zip(pages, stops, sizes, strict=True) if size]
    pairs = Pairs(np.arange(n), right, np.arange(n), np.arange(n) + 1, np.ones(n, np.int8), sources)
    left = pairs.where(mask)
    assert left.left.tolist() == np.flatnonzero(mask).tolist() == left.ts.tolist() == (left.end - 1).tolist()
    if mask.any():
        assert left.column("k").to_pylist() == np.array(pairs.column("k").to_pylist())[mask].tolist()
        for which in ("ts", "exp"):
            assert left.times(which).tolist() == pairs.times(which)[mask].tolist()


@pytest.mark.parametrize("spread", [0, 7])
def test_rows_one_by_one_are_let_go(spread):
    """Of rows that come one by one no more is kept than lives, and a share of that; in the end nothing is."""
    rng, runs, window, most = np.random.default_rng(1), KeyedRuns(("k",)), 300, 0
    for t in range(3000):
        runs.expire(t - 1)
        runs.insert(elements([t], [t + window + int(rng.integers(0, spread + 1))], k=[t % 5]), t - 1)
        most = max(most, len(runs))
    assert window <= most <= 2 * (window + spread) + 16
    runs.expire(4000)
    assert len(runs) == 0


@given(
    ends=st.lists(st.lists(st.integers(1, 300), max_size=6), max_size=12),
    frontiers=st.lists(st.integers(0, 40), min_size=12, max_size=12),
    restart=st.booleans(),
    much=st.sampled_from([(1, 2), (3, 4), (pending.NEW_BATCHES, pending.NEW_ROWS)]),
    days=st.sampled_from([1, 10, pending.DAYS, 50]),
)
def test_calendar_and_scan_hand_out_the_same(ends, frontiers, restart, much, days):
    """Whatever order ends come in, each element is due once, at the first frontier that reaches it."""
    calendar, scan, frontier, row = Calendar(days), ScannedList(), 0, 0
    with mock.patch.multiple(pending, NEW_BATCHES=much[0], NEW_ROWS=much[1]):  # so that few rows fill days
        for batch, step in zip(ends, frontiers, strict=False):
            exp = [frontier + e for e in batch]
            new = elements([frontier] * len(exp), exp, id=pa.array(range(row, row + len(exp)), pa.int64()))
            row += len(exp)
            calendar.add(new)
            scan.add(new)
            if restart:
                runs, calendar = calendar.runs(), Calendar(days)
                calendar.restore(runs, frontier)
            frontier += step
            assert ids(calendar.due(frontier)) == ids(scan.due(frontier))


def test_a_calendar_writes_each_end_once():
    """What waits is not written again because more comes: the runs of a tick are those before it and the new rows."""
    rng, calendar, known, written, live = np.random.default_rng(1), Calendar(), set(), 0, 0
    for tick in range(40):
        at = 1000 * tick
        exp = at + rng.integers(1, 20_000, 9000)
        calendar.due(at)
        calendar.add(elements([at] * 9000, exp, id=np.arange(9000)))
        runs = calendar.runs()
        written += sum(r.table.num_rows for r in runs if r.uid not in known)
        known = {r.uid for r in runs}
        live = sum(len(p) for p in calendar.parts())
        assert sum(r.table.num_rows for r in runs) <= 2 * live + 9000
    assert written <= 2 * 40 * 9000
    assert live > 60_000


@given(sizes=st.lists(st.integers(0, 5), max_size=10), step=st.integers(1, 9))
def test_fifo_hands_out_in_order(sizes, step):
    """When ends come in order, a queue does what a search of everything does."""
    fifo, scan, t = Fifo(), ScannedList(), 0
    for size in sizes:
        new = elements([t] * size, [t + 20 + i for i in range(size)], id=pa.array(range(size), pa.int64()))
        fifo.add(new)
        scan.add(new)
        t += step
        assert ids(fifo.due(t)) == ids(scan.due(t))


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([20, 30, INF]), st.sampled_from([1, 1, -1])), max_size=20
    )
)
def test_cancelling_keeps_the_net_of_every_row(rows):
    """Positives and negatives of one (row, end) cancel; what remains has the same sum."""
    if not rows:
        return
    value, exp, sign = zip(*rows, strict=True)
    e = elements([1] * len(rows), exp, sign, v=list(value))
    kept = e.take(surviving(e, 5))
    for key in {(v, x) for v, x, _ in rows}:
        net = sum(s for v, x, s in rows if (v, x) == key)
        left = [s for v, x, s in zip(kept.columns["v"].to_pylist(), kept.exp, kept.sign, strict=True) if (v, x) == key]
        assert sum(left) == net
        assert len(left) == abs(net)


def test_expired_rows_leave_keyed_runs():
    """State stays within a small factor of what is alive, however long it runs."""
    runs, size = KeyedRuns(("k",)), 100
    for tick in range(200):
        ts = np.arange(tick * size, (tick + 1) * size)
        runs.expire(tick * size - 1)
        runs.insert(elements(ts, ts + 1000, k=ts % 37), tick * size - 1)
        assert len(runs) <= 3 * 1000 + size


def test_small_ticks_are_merged_now_and_then():
    """Each row by itself: runs stay few, and most insertions touch no other run."""
    runs, written = KeyedRuns(("k",)), set()
    for ts in range(1_000):
        runs.insert(Elements.positive(np.array([ts]), INF, {"k": pa.array([ts])}), ts)
        written |= {run.uid for run in runs.runs()}
        assert len(runs.runs()) <= keyed.FEW + 10
    assert len(written) < 1_000 * (1 + 1.5 / keyed.FEW)


def test_large_ticks_are_written_once(monkeypatch):
    """What ends in the order of arrival stays in the run it was first written to until that has ended."""
    monkeypatch.setattr(keyed, "LARGE", 64)
    runs, written = KeyedRuns(("k",)), set()
    for tick in range(60):
        ts = np.arange(100 * tick, 100 * (tick + 1))
        runs.expire(100 * tick)
        runs.insert(Elements.positive(ts, ts + 4_000, {"k": pa.array(ts)}), 100 * tick)
        written |= {run.uid for run in runs.runs()}
    assert len(written) == 60
    assert len(runs.runs()) == 41


@pytest.mark.parametrize("types", [{"a": pa.string()}, {"a": pa.string(), "b": pa.int64()}])
def test_equal_hashes_do_not_make_rows_equal(types, monkeypatch):
    """Two rows with one hash get two slots, and keep them."""
    from windrow.operators import keytable

    monkeypatch.setattr(keytable, "hash_rows", lambda columns, length: np.zeros(length, np.int64))
    table = KeyTable(types)
    columns = {"a": pa.array(["x", "y", "x", None, "z"]), "b": pa.array([1, 1, 1, 1, None])}
    columns = {n: columns[n] for n in types}
    slots = table.slots(columns, 5)
    assert slots[0] == slots[2]
    assert len(set(slots.tolist())) == 4
    assert table.slots(columns, 5).tolist() == slots.tolist()
    assert table.rows(slots)["a"].to_pylist() == ["x", "y", "x", None, "z"]


@pytest.mark.parametrize("type_", [pa.int64(), pa.int8(), pa.uint32(), pa.timestamp("us"), pa.string()], ids=str)
def test_slots_are_numbers_in_order_of_appearance(type_):
    """However many new rows a call brings, with nulls or without; and restored, each has the slot it had."""
    rng, table = np.random.default_rng(3), KeyTable({"a": type_})
    known: dict[object, int] = {}
    for size, nulls in ((10, False), (3000, False), (3000, True), (50, False)):
        values = rng.integers(0, 2000, size) % (100 if type_ == pa.int8() else 2000)
        column = pa.array(values, mask=values == 7 if nulls else None).cast(type_)
        found = table.slots({"a": column}, size)
        assert found.tolist() == [known.setdefault(v, len(known)) for v in column.to_pylist()]
    again = KeyTable({"a": type_})
    arrays = table.arrays()
    again.restore(arrays["_hash"].to_numpy(), {"a": arrays["a"]})
    assert again.slots({"a": arrays["a"]}, len(table)).tolist() == list(range(len(known)))


def test_forgotten_rows_get_new_slots():
    """After compaction the kept rows are found under their new numbers."""
    table = KeyTable({"a": pa.int64()})
    table.slots({"a": pa.array([10, 20, 30])}, 3)
    kept = table.compact(np.array([False, True, True]))
    assert kept.tolist() == [1, 2]
    assert table.slots({"a": pa.array([30, 10, 20])}, 3).tolist() == [1, 2, 0]


CHANGES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1), st.booleans()), max_size=4)


@settings(max_examples=80)
@given(st.lists(CHANGES, max_size=14), st.integers(0, 14))
def test_a_table_row_that_has_gone_meets_nobody(steps, restart):
    """Whatever comes, goes and comes again, equal rows too: probes meet what is there, also after a restart."""
    runs, there = KeyedRuns(("k",), static=True), []
    for at, step in enumerate(steps, 1):
        rows, signs = [], []
        for k, v, gone in step:
            said = [s for r, s in zip(rows, signs, strict=True) if r == (k, v)]
            if (1 if gone else -1) in said or (gone and (k, v) not in there):
                continue  # what comes and goes at once does neither
            there.remove((k, v)) if gone else there.append((k, v))
            rows.append((k, v))
            signs.append(-1 if gone else 1)
        if rows:
            keys, values = zip(*rows, strict=True)
            runs.insert(elements([at] * len(rows), [INF] * len(rows), signs, k=keys, v=values), at - 1)
        if at == restart:
            kept, runs = runs.runs(), KeyedRuns(("k",), static=True)
            runs.restore(kept)
        keys = pa.array(np.arange(6))
        needles = Needles(hash_rows([keys], 6), np.full(6, at), np.full(6, INF), np.ones(6, np.int8))
        found = [(p.left.tolist(), p.column("v").to_pylist()) for p in runs.probe(needles, 1000)]
        met = [pair for lefts, values in found for pair in zip(lefts, values, strict=True)]
        assert sorted(met) == sorted(there)
        pairs = [zip(*(e.columns[c].to_pylist() for c in "kv"), strict=True) for e in runs.everything()]
        assert sorted(p for each in pairs for p in each) == sorted(there)
