"""Rows are dealt to partitions by the hash of their keys: the same ones however many partitions there are."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from windrow.runtime.by_hash import by_hash, rows_at, rows_of_each

HASHES = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=60).map(lambda v: np.array(v, np.int64))


@given(hashes=HASHES, partitions=st.integers(1, 300))
def test_a_hash_belongs_to_the_partition_it_is_congruent_to(hashes, partitions):
    """What homes were written with, for powers of two as for any other number; negative hashes are large ones."""
    assert by_hash(hashes, partitions).tolist() == [int(h) % 2**64 % partitions for h in hashes]


@given(hashes=HASHES, partitions=st.integers(1, 40))
def test_every_row_is_in_one_partition_in_its_order(hashes, partitions):
    """Whether each partition looks for its rows or all are sorted."""
    to = by_hash(hashes, partitions)
    found = [(p, rows.tolist()) for p, rows in rows_of_each(to, partitions)]
    assert found == [(p, [i for i, q in enumerate(to.tolist()) if q == p]) for p in sorted(set(to.tolist()))]


@given(rows=st.lists(st.integers(0, 4), max_size=9))
def test_rows_of_a_table(rows):
    """Columns with nulls, in several chunks and without a width are copied alike."""
    table = pa.table({
        "a": pa.chunked_array([[1, 2], [3, 4, 5]]), "b": ["x", None, "y", "", "z"], "c": [None, 1.5, 2.5, None, 0.0],
    })  # fmt: skip
    at = np.array(rows, np.int64)
    assert rows_at(table, at).to_pylist() == table.take(pa.array(at)).to_pylist()
