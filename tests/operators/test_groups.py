"""The directory of groups against a dictionary: keys keep their slots while they live, whatever else comes and goes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windrow.operators.aggregates.groups import Groups

NEAR = st.integers(-40, 40)
FAR = st.sampled_from([None, 0, 1, 5_000, -(2**31), 2**31 - 1])
BATCH = st.tuples(st.lists(NEAR | FAR, max_size=12), st.integers(0, 400), st.integers(0, 3))


@pytest.mark.parametrize("type_", [pa.int64(), pa.int32(), pa.uint32(), pa.int8(), pa.string()], ids=str)
@settings(deadline=None, max_examples=30)
@given(batches=st.lists(BATCH, max_size=12))
def test_keys_keep_their_slots_while_they_live(type_, batches):
    """A key has one slot from its first row to its release, no two keys have the same, and keys read back equal."""
    groups, known, shift = Groups([type_]), {}, 0
    for values, more, release in batches:
        shift += more  # keys that grow, as identifiers do
        keys = [_fitting(v, shift, type_) for v in values]
        slots = groups.lookup([pa.array(keys, type_)], len(keys)).tolist()
        for key, slot in zip(keys, slots, strict=True):
            assert known.setdefault(key, slot) == slot
        assert len(set(known.values())) == len(known) == len(groups)
        assert groups.keys(np.array(slots, np.int64))[0].to_pylist() == keys
        gone = list(known)[: release * 2]
        groups.release(np.array([known.pop(k) for k in gone], np.int64))


def _fitting(value, shift, type_):
    """A value of the type: shifted, and wrapped into what the type can hold."""
    if value is None:
        return None
    if pa.types.is_string(type_):
        return str(value + shift)
    low = 0 if pa.types.is_unsigned_integer(type_) else -(2 ** (type_.bit_width - 1))
    return (value + shift - low) % 2**type_.bit_width + low


@pytest.mark.parametrize("many", [100, 5_000])
def test_keys_that_grow_take_the_slots_of_those_that_went(many):
    """Groups of identifiers that only grow need no more room than live at once, in the table nor for their keys."""
    groups = Groups([pa.int64()])
    for low in range(0, 60 * many, many):
        keys = np.arange(low, low + many)
        slots = groups.lookup([pa.array(keys)], many)
        assert groups.keys(slots)[0].to_numpy().tolist() == keys.tolist() and len(groups) == many
        assert groups.lookup([pa.array(keys[::-1])], many).tolist() == slots[::-1].tolist()
        groups.release(slots)
    assert groups.capacity == many and len(groups._table._table) <= 16 * max(many, 64)
    assert sum(map(len, groups._table._chunks["0"])) <= 3 * many + 1024


TEXT = st.text("ab\0é", max_size=9) | st.text("ab", min_size=14, max_size=18)


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.binary()], ids=str)
@settings(deadline=None, max_examples=60)
@given(texts=st.lists(TEXT, min_size=1, max_size=30, unique=True), skip=st.integers(0, 9), seed=st.integers(0, 99))
def test_texts_that_repeat_are_told_apart(type_, texts, skip, seed):
    """Texts that repeat have a slot each, numbered as they appear, whatever their length, and what lies behind them."""
    values = [texts[i] for i in np.random.default_rng(seed).integers(0, len(texts), 600)]
    column = pa.array(values, pa.string()).cast(type_).slice(skip)
    groups, order = Groups([type_]), list(dict.fromkeys(values[skip:]))
    for _ in range(2):
        assert groups.lookup([column], len(column)).tolist() == [order.index(v) for v in values[skip:]]
    assert groups.keys(np.arange(len(groups)))[0].equals(pa.array(order, pa.string()).cast(type_))
