"""Envelopes arrive whole, however long their bodies and in whatever order their pieces come."""

import random

import pyarrow as pa
import pytest

from windrow.errors import RuntimeFailure
from windrow.runtime import exchange
from windrow.runtime.exchange import pack, unpack

ENVELOPES = [(i % 3, i % 5, "rows", f"{task}:{i}:q", bytes(range(i))) for task in (0, 7) for i in range(60)]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Pieces of a few bytes."""
    monkeypatch.setattr(exchange, "PIECE", 8)
    monkeypatch.setattr(exchange, "BATCH", 20)


def packed():
    """What two tasks pack; some of it was sent by others, and is passed on."""
    return [batch for task in (0, 7) for batch in pack([e for e in ENVELOPES if e[3].startswith(f"{task}:")], task)]


def test_rows_and_batches_are_bounded():
    """No row has more than a piece, no batch more than its share."""
    for batch in packed():
        sizes = [len(body) for body in batch["body"].to_pylist()]
        assert max(sizes) <= 8
        assert sum(sizes) <= 20


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_pieces_in_any_order(seed):
    """What was sent is received, whatever a shuffle does to the order."""
    rows = pa.Table.from_batches(packed())
    order = random.Random(seed).sample(range(rows.num_rows), rows.num_rows)
    got = unpack(rows.take(pa.array(order)).to_batches(max_chunksize=7))
    assert sorted((*e[:4], bytes(e[4])) for e in got) == sorted(ENVELOPES)


def test_a_missing_piece_is_an_error():
    """Half a body is never taken for a whole one."""
    rows = pa.Table.from_batches(packed())
    with pytest.raises(RuntimeFailure, match="arrived in part"):
        list(unpack(rows.slice(0, rows.num_rows - 1).to_batches()))
