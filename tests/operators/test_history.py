"""A history keeps what is alive in few sorted runs, and its zones never deny a row that is there."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.operators import history
from windrow.operators.aggregates.order import encode
from windrow.operators.elements import Elements
from windrow.operators.history import HistoryOperator, default_key
from windrow.operators.state import zones
from windrow.operators.state.run import Run
from windrow.operators.state.zones import zoned, zones_of


def ticks(count, rows, retain, seed=0):
    """Elements of some ticks, and their frontiers."""
    rng = np.random.default_rng(seed)
    for t in range(count):
        ts = np.sort(rng.integers(10 * t, 10 * t + 10, rows))
        columns = {"s.k": pa.array(rng.integers(0, 50, rows)), "s.v": pa.array(rng.random(rows))}
        yield Elements.positive(ts, ts + retain, columns), 10 * t + 9


def rows_of(runs, frontier):
    """What is alive in runs, sorted."""
    found = [r.table.replace_schema_metadata(None) for r in runs]
    table = pa.concat_tables(found)
    return sorted(map(tuple, (r.values() for r in table.filter(pa.compute.field("_exp") > frontier).to_pylist())))


@pytest.mark.parametrize("rows", [1, 37, 900])
def test_it_keeps_what_is_alive(rows, monkeypatch):
    """At every tick the runs hold the living rows; they are few, and merged ones are sorted by key and time."""
    monkeypatch.setattr(history, "MOST", 5000)
    monkeypatch.setattr(history, "WORTH", 64)
    kept, seen = HistoryOperator(("s.k",)), []
    for elements, frontier in ticks(60, rows, 300):
        assert not len(kept.advance([elements], frontier))
        seen.append(elements)
        runs = kept.state()["rows"]
        want = [
            (int(e.ts[i]), int(e.exp[i]), number, e.columns["s.k"][i].as_py(), e.columns["s.v"][i].as_py())
            for number, (e, i) in enumerate((e, i) for e in seen for i in range(len(e)))
            if e.exp[i] > frontier
        ]
        assert rows_of(runs, frontier) == sorted(want)
        assert len(runs) <= 30 * rows * 2 / 2500 + 8
        assert sum(r.table.num_rows for r in runs) <= len(want) + 5000
        for run in runs:
            if zones_of(run) is not None:
                assert run.table.select(["s.k", "_ts"]).equals(
                    run.table.select(["s.k", "_ts"]).sort_by([("s.k", "ascending"), ("_ts", "ascending")])
                )


def test_it_goes_on_after_a_restart():
    """A restored history expires and merges as if it had never stopped; an unchanged run keeps its identity."""
    one, two = HistoryOperator(("s.k",)), HistoryOperator(("s.k",))
    for elements, frontier in ticks(12, 300, 60):
        one.advance([elements], frontier)
        again = HistoryOperator(("s.k",))
        again.restore(two.state(), frontier - 10)
        before = {r.uid for r in again.state()["rows"]}
        again.advance([elements], frontier)
        assert len(before & {r.uid for r in again.state()["rows"]}) >= len(before) - 3
        two = again
        assert rows_of(one.state()["rows"], frontier) == rows_of(two.state()["rows"], frontier)


COLUMNS = {
    "i": (pa.int64(), [None, 0, 1, -5, 2**63 - 1, -(2**63)]),
    "u": (pa.uint64(), [None, 0, 2**64 - 1]),
    "f": (pa.float64(), [None, 0.0, -0.0, 1.5, -math.inf, math.inf, math.nan]),
    "s": (pa.string(), [None, "", "a", "é", "\U0001f600"]),
    "b": (pa.bool_(), [None, True, False]),
    "d": (pa.date32(), [None, 0, 100]),
}


@given(
    rows=st.lists(
        st.fixed_dictionaries({c: st.sampled_from(v) for c, (_, v) in COLUMNS.items()}), min_size=1, max_size=40
    )
)
def test_zones_never_deny_a_row(rows):
    """Every value lies between its block's ends, nulls are counted, and filters let every value through."""
    table = pa.table({c: pa.array([r[c] for r in rows], t) for c, (t, _) in COLUMNS.items()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zones, "BLOCK", 7)
        patch.setattr(zones, "FEW", 0)
        found = zones_of(Run(zoned(table, ["i", "u", "s", "d"])))
    assert found.begins.tolist() == [*range(0, len(rows), 7), len(rows)]
    for name, (type_, _) in COLUMNS.items():
        span = found.spans[name]
        column = table.column(name).combine_chunks()
        codes = [None if v is None else v.encode() for v in column.to_pylist()] if type_ == pa.string() else None
        if codes is None:
            (numbers,), _ = encode([column])
            codes = [int(c) if v.is_valid else None for c, v in zip(numbers, column, strict=True)]
        for b in range(found.blocks):
            part = codes[found.begins[b] : found.begins[b + 1]]
            there = [c for c in part if c is not None]
            assert (span.low[b], span.high[b]) == ((min(there), max(there)) if there else (None, None))
            assert span.nulls[b] == len(part) - len(there)
        assert all(found.may_have(name, c) for c in codes if c is not None)
        if name in ("i", "u", "s", "d"):
            assert found.distinct(name) == len({c for c in codes if c is not None})


def test_filters_deny_most_that_is_not_there():
    """About one in a hundred keys that a run does not have passes its filter; sketches are near the truth."""
    table = pa.table({"k": np.arange(0, 40_000, 2), "s": [f"k{i}" for i in range(20_000)]})
    found = zones_of(Run(zoned(table, ["k", "s"])))
    passed = (
        sum(found.may_have("k", i) for i in range(1, 4001, 2)),
        sum(found.may_have("s", b"x%d" % i) for i in range(2000)),
    )
    assert all(p < 60 for p in passed)
    assert all(0.6 < found.distinct(c) / 20_000 < 1.6 for c in ("k", "s"))


def test_the_default_key():
    """The first column that equality picks few rows of; a stream of measures has none."""
    assert default_key([("t", pa.timestamp("us")), ("f", pa.float64()), ("src", pa.int64())], "t") == ("src",)
    assert default_key([("t", pa.int64()), ("f", pa.float64()), ("b", pa.bool_())], "t") == ()
