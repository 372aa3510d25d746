"""Continuous and periodic aggregation against their definition, at every instant of small clocks."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windrow.operators import grid_aggregate, keytable
from windrow.operators.aggregate import ContinuousAggregate
from windrow.operators.aggregates import Aggregation, groups
from windrow.operators.elements import INF, Elements
from windrow.operators.grid_aggregate import GridAggregate

END = 16
HUGE = pa.decimal128(38, 0)
TYPES = {"g": pa.string(), "h": pa.float64(), "i": pa.int64(), "f": pa.float64(), "s": pa.string()}

INTEGERS = [None, 0, 1, 2, 3, -5, 2**63 - 1, -(2**63), 2**31, -(2**40)]
FLOATS = [
    None,
    0.0,
    -0.0,
    0.1,
    0.2,
    -0.3,
    1.0,
    2.5,
    1e16,
    -1e16,
    1e300,
    -1e300,
    5e-324,
    3.7e-310,
    math.nan,
    math.inf,
    -math.inf,
]
STRINGS = [None, "", "a", "b", "é", "\U0001f600", "\uffff"]


def linear(column, **extra):
    total = HUGE if column == "i" else pa.float64()
    kinds = ["count", "sum", "avg", "variance", "stddev", "var_pop", "stddev_pop"]
    types = [pa.int64(), total] + [pa.float64()] * 5
    mark = "d" if extra.get("distinct") else ""
    return [Aggregation(k, column, f"{mark}{k}_{column}", t, **extra) for k, t in zip(kinds, types, strict=True)]


def extremes(column):
    return [Aggregation(k, column, f"{k}_{column}", TYPES[column]) for k in ("min", "max")]


def holistic(column):
    calls = [
        Aggregation("quantile", column, f"q_{column}", TYPES[column], parameters=(0.3,)),
        Aggregation("top_k", column, f"top_{column}", pa.list_(TYPES[column]), parameters=(2,)),
        Aggregation("quantile_disc", column, f"qd_{column}", TYPES[column], distinct=True, parameters=(0.75,)),
    ]
    if column != "s":
        calls += [Aggregation("median", column, f"med_{column}", pa.float64())]
        calls += [Aggregation("quantile_cont", column, f"qc_{column}", pa.float64(), parameters=(0.9,))]
    return calls


CALLS = {
    "count": [Aggregation("count", None, "n", pa.int64())],
    "nothing": [],
    "linear i": linear("i"),
    "linear f": linear("f"),
    "extremes": extremes("i") + extremes("s"),
    "one extreme": extremes("f")[:1],
    "mixed": [Aggregation("count", None, "n", pa.int64()), *extremes("f"), *linear("i")[:2]],
    "distinct": [*linear("i", distinct=True), Aggregation("count", "s", "ds", pa.int64(), distinct=True)],
    "distinct f": linear("f", distinct=True) + linear("f"),
    "holistic i": holistic("i"),
    "holistic f": holistic("f"),
    "holistic s": holistic("s"),
}


@st.composite
def streams(draw, step=1, strict=False):
    """Elements on a small clock, sorted by ts; strict ones are partly ended by negatives."""
    rows = []
    for _ in range(draw(st.integers(0, 14))):
        ts = draw(st.integers(0, END - 2)) // step * step
        exp = INF if draw(st.integers(0, 5)) == 0 else ts + step * draw(st.integers(1, 7))
        values = {
            "g": draw(st.sampled_from(["x", "y", None])),
            "h": draw(st.sampled_from([0.0, -0.0, math.nan, None])),
            "i": draw(st.sampled_from(INTEGERS)),
            "f": draw(st.sampled_from(FLOATS)),
            "s": draw(st.sampled_from(STRINGS)),
        }
        rows.append((ts, exp, 1, values))
        if strict and draw(st.booleans()):
            later = ts + step * draw(st.integers(0, 5))
            if later < exp:
                rows.append((later, exp, -1, values))
    rows.sort(key=lambda r: r[0])
    return elements(rows)


def elements(rows):
    columns = {n: pa.array([r[3][n] for r in rows], t) for n, t in TYPES.items()}
    ts, exp, sign = (np.array([r[k] for r in rows], np.int64) for k in range(3))
    return Elements(ts, exp, sign.astype(np.int8), columns)


# -- the definition: exact rational arithmetic over the rows alive at one instant, row by row --


def alive(elements, t):
    """The rows (as dicts) whose signs sum to more than zero at `t`, with multiplicity."""
    total, rows = Counter(), {}
    for part in elements:
        columns = {n: a.to_pylist() for n, a in part.columns.items()}
        for i in range(len(part)):
            if part.ts[i] <= t < part.exp[i]:
                row = {n: c[i] for n, c in columns.items()}
                key = tuple(plain(v) for v in row.values())
                total[key] += int(part.sign[i])
                rows[key] = row
    assert all(n >= 0 for n in total.values()), (t, total)
    return [rows[k] for k, n in total.items() for _ in range(n)]


def plain(value):
    """A value that equals itself: one NaN, one zero, lists as tuples."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return tuple(plain(v) for v in value) if isinstance(value, list) else value


def group_by(rows, keys, calls):
    """The GROUP BY answer over `rows`, as a sorted list of tuples."""
    groups = {} if keys else {(): []}
    for row in rows:
        groups.setdefault(tuple(plain(row[k]) for k in keys), []).append(row)
    return sorted((key + tuple(plain(answer(c, members)) for c in calls) for key, members in groups.items()), key=repr)


def answer(call, rows):
    """One aggregate over the rows of a group."""
    if call.column is None:
        return len(rows)
    values = [row[call.column] for row in rows if row[call.column] is not None]
    if call.distinct:
        values = list({plain(v): v for v in values}.values())
    if call.kind == "count":
        return len(values)
    if not values:
        return None
    ordered = sorted(values, key=_rank)
    match call.kind:
        case "min":
            return ordered[0]
        case "max":
            return ordered[-1]
        case "sum":
            total, odd = _total(values)
            return odd or (Decimal(int(total)) if isinstance(values[0], int) else _float(total))
        case "avg":
            total, odd = _total(values)
            return odd or _float(total / len(values))
        case "quantile" | "quantile_disc":
            return ordered[max(1, math.ceil(Fraction(str(call.parameters[0])) * len(ordered))) - 1]
        case "median" | "quantile_cont":
            return _between(ordered, (len(ordered) - 1) * (call.parameters[0] if call.parameters else 0.5))
        case "top_k":
            found = Counter(plain(v) for v in values)
            by_value = {plain(v): v for v in values}
            return sorted(by_value.values(), key=lambda v: (-found[plain(v)], _rank(v)))[: call.parameters[0]]
    return _deviation(call.kind, values)


def _rank(value):
    if isinstance(value, float) and math.isnan(value):
        return (1, 0)
    return (0, value.encode() if isinstance(value, str) else value)


def _finite(values):
    return [v for v in values if not isinstance(v, float) or math.isfinite(v)]


def _total(values):
    odd = sum(v for v in values if isinstance(v, float) and not math.isfinite(v))
    return sum((Fraction(v) for v in _finite(values)), Fraction(0)), odd


def _float(x):
    try:
        return float(x)
    except OverflowError:
        return math.inf if x > 0 else -math.inf


def _between(ordered, place):
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    d = place - math.floor(place)
    return float(low) if d == 0 else float(low) * (1 - d) + float(high) * d


def _deviation(kind, values):
    n = len(values)
    pop = kind.endswith("pop")
    if n == 1:
        return 0.0 if pop else None
    if len(_finite(values)) < n:
        return math.nan
    total, squares = sum(map(Fraction, values)), sum(Fraction(v) ** 2 for v in values)
    variance = _float((n * squares - total**2) / (n * (n if pop else n - 1)))
    return _close(math.sqrt(variance) if kind.startswith("stddev") else variance)


def _close(x):
    """Rounded to 13 digits: the engine rounds more than once."""
    return float(f"{x:.12e}")


def rounded(rows, calls, keys):
    """Answer rows with VARIANCE and its kin rounded the same way."""
    kinds = [None] * len(keys) + [c.kind for c in calls]
    return sorted(
        (
            tuple(
                _close(v) if k and ("var" in k or "std" in k) and isinstance(v, float) else v
                for k, v in zip(kinds, row, strict=True)
            )
            for row in rows
        ),
        key=repr,
    )


def shown(outputs: list[Elements], t, keys, calls):
    """The relation that output elements make at `t`, comparable with `group_by`."""
    rows = [tuple(plain(v) for v in row.values()) for row in alive(outputs, t)]
    return rounded(rows, calls, keys)


cuts = st.lists(st.integers(0, END - 1), max_size=5).map(lambda c: sorted({*c, END}))


def drive(make, whole, frontiers, start, snapshot=False, reduced=frozenset()):
    """All outputs, batch by batch; with `snapshot`, each batch by a new operator restored from the last one's state.

    `reduced`: the frontiers of batches that come reduced.
    """
    operator, outputs, previous = make(), [], -1
    operator.start(start)
    for frontier in frontiers:
        batch = whole.filter((whole.ts > previous) & (whole.ts <= frontier))
        if frontier in reduced:
            batch = operator.reduction.reduced(batch)
        outputs.append(operator.advance([batch], frontier))
        previous = frontier
        if snapshot:
            state = operator.state()
            operator = make()
            operator.restore(state)
    return outputs


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("strict", [False, True])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_continuous_equals_group_by_at_every_instant(name, strict, data):
    """Whatever the batches, reduced or not, the output's sum at t is the GROUP BY answer over the rows alive at t."""
    keys = data.draw(st.sampled_from([("g",), (), ("g", "h")]))
    whole, frontiers, calls = data.draw(streams(strict=strict)), data.draw(cuts), CALLS[name]
    expiration, snapshot = data.draw(st.sampled_from(["calendar", "scan"])), data.draw(st.booleans())
    start = int(whole.ts.min()) if len(whole) else 3

    def make():
        return ContinuousAggregate(keys, calls, TYPES, strict=strict, expiration=expiration)

    outputs = drive(make, whole, frontiers, start, snapshot, data.draw(st.sets(st.sampled_from(frontiers))))
    previous = -1
    for frontier, output in zip(frontiers, outputs, strict=True):
        assert ((output.ts > previous) & (output.ts <= frontier) & (output.ts < output.exp)).all()
        previous = frontier
    for t in range(END + 1):
        expected = group_by(alive([whole], t), keys, calls) if t >= start else []
        assert shown(outputs, t, keys, calls) == expected, t


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("strict", [False, True])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_grid_equals_group_by_at_every_evaluation(name, strict, data):
    """Whatever the batches, reduced or not, each multiple of the period has the GROUP BY answer, for one period."""
    period, keys = 2, data.draw(st.sampled_from([("g",), (), ("g", "h")]))
    whole, frontiers, calls = data.draw(streams(step=period, strict=strict)), data.draw(cuts), CALLS[name]
    start = int(whole.ts.min()) - data.draw(st.integers(0, 1)) if len(whole) else 3
    snapshot, expiration = data.draw(st.booleans()), data.draw(st.sampled_from(["calendar", "scan"]))

    def make():
        return GridAggregate(keys, calls, TYPES, period, strict=strict, expiration=expiration)

    with mock.patch.object(grid_aggregate, "_ROOM", data.draw(st.sampled_from([65_536, -1_000]))):
        outputs = drive(make, whole, frontiers, start, snapshot, data.draw(st.sets(st.sampled_from(frontiers))))
    for output in outputs:
        assert (output.ts % period == 0).all() and (output.exp == output.ts + period).all() and (output.sign == 1).all()
    for t in range(END + 1):
        begin = t // period * period
        expected = group_by(alive([whole], begin), keys, calls) if begin >= start else []
        assert shown(outputs, t, keys, calls) == expected, t


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_answers_do_not_depend_on_the_batches(data):
    """Two ways to cut the same rows give the same sums of elements, bit by bit."""
    whole, calls = data.draw(streams(strict=True)), CALLS["linear f"] + CALLS["holistic i"]
    results = []
    for frontiers in (data.draw(cuts), list(range(END + 1))):
        outputs = drive(lambda: ContinuousAggregate(("g",), calls, TYPES, strict=True), whole, frontiers, 0)
        results.append([sorted(repr(r) for r in alive(outputs, t)) for t in range(END + 1)])
    assert results[0] == results[1]


def test_a_row_that_does_not_change_is_not_sent_again():
    """COUNT over a row that leaves as another enters stays silent."""
    whole = elements([(t, t + 1, 1, dict.fromkeys(TYPES)) for t in range(5)])
    operator = ContinuousAggregate((), CALLS["count"], TYPES)
    operator.start(0)
    assert len(operator.advance([whole.filter(whole.ts < 3)], 2)) == 1
    assert len(operator.advance([whole.filter(whole.ts >= 3)], 4)) == 0


def test_a_global_answer_exists_from_the_start_over_nothing():
    """COUNT is 0 and the others are NULL from the clock's start, in both operators."""
    calls = [Aggregation("count", None, "n", pa.int64()), *extremes("i"), *linear("f")[1:3]]
    nothing = Elements.empty(TYPES)
    continuous, grid = ContinuousAggregate((), calls, TYPES), GridAggregate((), calls, TYPES, 5)
    for operator in (continuous, grid):
        operator.start(3)
    output = continuous.advance([nothing], 4)
    assert output.ts.tolist() == [3] and [a.to_pylist() for a in output.columns.values()] == [
        [0],
        [None],
        [None],
        [None],
        [None],
    ]
    assert len(continuous.advance([nothing], 9)) == 0
    assert len(grid.advance([nothing], 4)) == 0
    assert grid.advance([nothing], 10).ts.tolist() == [5, 10]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", ["mixed", "extremes", "holistic s", "distinct"])
def test_state_is_dropped_with_the_groups(name, strict):
    """When every row has expired nothing is left but the clock."""
    rng = np.random.default_rng(1)
    n = 300
    columns = {
        "g": pa.array([f"k{i}" for i in range(n)]),
        "h": pa.array(rng.normal(size=n)),
        "i": pa.array(rng.integers(0, 9, n)),
    }
    columns |= {"f": pa.array(rng.normal(size=n)), "s": pa.array([f"{i % 7}" for i in range(n)])}
    operator = ContinuousAggregate(("g", "h"), CALLS[name], TYPES, strict=strict)
    operator.start(0)
    operator.advance([Elements.positive(np.arange(n), np.arange(n) + 10, columns)], n)
    operator.advance([Elements.empty(TYPES)], 2 * n)
    assert all(run.table.num_rows == 0 for slot, runs in operator.state().items() if slot != "clock" for run in runs)


def test_pending_runs_keep_their_identity():
    """A run of ends that is not due is the same object in the next state."""
    n = 50_000
    columns = {c: pa.nulls(n, t) for c, t in TYPES.items()}
    operator = ContinuousAggregate((), CALLS["linear f"], TYPES)
    operator.start(0)
    operator.advance([Elements.positive(np.zeros(n, np.int64), np.arange(n) + 100, columns)], 1)
    before = operator.state()["pending"]
    operator.advance([Elements.positive(np.full(9, 2), 500_000, {c: a[:9] for c, a in columns.items()})], 200)
    after = operator.state()["pending"]
    assert before[0] is after[0] and len(after) == 2


def test_many_small_advances_keep_few_runs():
    """One row at a time does not leave one run per row."""
    operator = ContinuousAggregate((), CALLS["count"], TYPES)
    operator.start(0)
    one = Elements.positive(np.zeros(1, np.int64), 0, {c: pa.nulls(1, t) for c, t in TYPES.items()})
    for t in range(200):
        operator.advance([one.with_lifetimes(np.array([t]), np.array([t + 1000]))], t)
    assert len(operator.state()["pending"]) <= 64


def test_groups_whose_hashes_collide_are_told_apart(monkeypatch):
    """Different keys with one hash are different groups, when they come, stay and go."""
    monkeypatch.setattr(keytable, "hash_rows", lambda columns, n: np.zeros(n, np.int64))
    directory = groups.Groups([pa.string()])
    first = directory.lookup([pa.array(["a", "b", None, "a"])], 4)
    assert first.tolist() == [0, 1, 2, 0]
    directory.release(np.array([1]))
    again = directory.lookup([pa.array(["c", None, "a", "b"])], 4)
    assert again[1:3].tolist() == [2, 0] and sorted(again.tolist()) == [0, 1, 2, 3]
    assert directory.keys(again)[0].to_pylist() == ["c", None, "a", "b"]


def test_state_is_proportional_to_the_live_rows():
    """Partials and pending ends stay within three times the live rows' Arrow size."""
    n = 20_000
    rng = np.random.default_rng(3)
    columns = {"g": pa.array(rng.integers(0, 50, n).astype(str)), "h": pa.array(rng.normal(size=n).round())}
    columns |= {
        "i": pa.array(rng.integers(0, 1000, n)),
        "f": pa.array(rng.normal(size=n)),
        "s": pa.nulls(n, pa.string()),
    }
    ts = np.arange(n)
    live = n * 8 + columns["g"].nbytes + columns["f"].nbytes
    for make in (
        lambda: ContinuousAggregate(("g",), CALLS["linear f"], TYPES),
        lambda: ContinuousAggregate(("g",), [*extremes("f"), *CALLS["linear f"][:3]], TYPES),
        lambda: GridAggregate(("g",), CALLS["linear f"][:3], TYPES, 1),
    ):
        operator = make()
        operator.start(0)
        operator.advance([Elements.positive(ts, ts + n, columns)], n - 1)
        assert sum(run.nbytes for runs in operator.state().values() for run in runs) <= 3 * live
