"""When two answers are the same."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from windrow.testing import assert_same


def log(*rows: tuple[int, int, float | None]) -> pa.Table:
    """A change log with one column x."""
    ts, op, x = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table({"_ts": pa.array(ts, pa.int64()), "_op": pa.array(op, pa.int8()), "x": pa.array(x, pa.float64())})


def test_order_within_an_instant_does_not_matter() -> None:
    """Rows of one instant are a bag."""
    assert_same(log((1, 1, 2.0), (1, 1, 3.0)), log((1, 1, 3.0), (1, 1, 2.0)))


def test_floats_are_near_and_nan_is_itself() -> None:
    """The last bits of a float do not matter; NaN equals NaN and null only null."""
    assert_same(log((1, 1, 0.1 + 0.2), (2, 1, math.nan)), log((1, 1, 0.3), (2, 1, math.nan)))
    with pytest.raises(AssertionError):
        assert_same(log((1, 1, None)), log((1, 1, math.nan)))
    with pytest.raises(AssertionError):
        assert_same(log((1, 1, 0.3)), log((1, 1, 0.3001)))


def test_numbers_are_compared_by_value() -> None:
    """A decimal equals the integer of its value."""
    assert_same(
        pa.table({"_ts": [1], "n": pa.array([3], pa.decimal128(38, 0))}),
        pa.table({"_ts": [1], "n": pa.array([3], pa.int64())}),
    )


def test_a_change_in_the_last_bits_is_none() -> None:
    """-1 and +1 of nearly equal rows cancel; exactly equal ones are a log that was not consolidated."""
    assert_same(log((1, 1, 0.3), (2, -1, 0.3), (2, 1, 0.1 + 0.2)), log((1, 1, 0.3)))
    with pytest.raises(AssertionError):
        assert_same(log((1, 1, 0.3), (2, -1, 0.3), (2, 1, 0.3)), log((1, 1, 0.3)))


def test_the_first_difference_is_shown() -> None:
    """The error names the instant, what is missing and what is too much."""
    with pytest.raises(AssertionError, match=r"(?s)_ts = 2.*missing \(1\).*5\.0.*extra \(1\).*6\.0"):
        assert_same(log((1, 1, 1.0), (2, 1, 6.0), (3, 1, 9.0)), log((1, 1, 1.0), (2, 1, 5.0)))


def test_copies_count() -> None:
    """One row less of a kind is a difference."""
    with pytest.raises(AssertionError, match="missing"):
        assert_same(log((1, 1, 1.0)), log((1, 1, 1.0), (1, 1, 1.0)))


def test_columns_and_order_are_checked() -> None:
    """Other names, or rows out of order, are a failure."""
    with pytest.raises(AssertionError, match="columns differ"):
        assert_same(log((1, 1, 1.0)).rename_columns(["_ts", "_op", "y"]), log((1, 1, 1.0)))
    with pytest.raises(AssertionError, match="not sorted"):
        assert_same(log((2, 1, 1.0), (1, 1, 1.0)), log((1, 1, 1.0), (2, 1, 1.0)))
