"""Compiled functions whose arrays belong to their caller."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from numba.core.errors import NumbaError

from windrow.operators.borrowing import borrowing
from windrow.sources.tokens import integer


def test_arrays_are_given_back():
    """Nobody holds an array because it was read."""
    data = np.frombuffer(b"17\n", np.uint8)
    before = sys.getrefcount(data)
    assert [integer(data, 0) for _ in range(3)] == [(17, 2)] * 3
    assert sys.getrefcount(data) == before


def made(count):
    return np.zeros(count, np.int64).sum()


def test_arrays_are_not_made():
    """What would allocate does not compile."""
    with pytest.raises(NumbaError, match="No implementation"):
        borrowing(made)(1)
