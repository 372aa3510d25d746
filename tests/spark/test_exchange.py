"""Envelopes arrive whole, however long their bodies and in whatever order their pieces come."""

import pickle
import random

import pyarrow as pa
import pytest

from windrow.errors import RuntimeFailure
from windrow.runtime import wire
from windrow.runtime.messages import Envelope, LateRows
from windrow.runtime.wire import Spool, pack, put_together, rows, unpack

ENVELOPES = [
    Envelope(i % 3, i % 5, LateRows(f"{task}:{i}", pa.table({"a": list(range(i))})))
    for task in (0, 7)
    for i in range(60)
]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Pieces of a few bytes."""
    monkeypatch.setattr(wire, "PIECE", 80)
    monkeypatch.setattr(wire, "BATCH", 200)


def packed():
    """What two tasks pack; some of it was sent by others, and is passed on."""
    return [
        batch
        for task in (0, 7)
        for batch in pack([e for e in ENVELOPES if e.message.stream.startswith(f"{task}:")], task)
    ]


def plain(envelope):
    """An envelope in a comparable form."""
    return envelope.to, envelope.sender, envelope.message.stream, envelope.message.table["a"].to_pylist()


def test_rows_and_batches_are_bounded():
    """No row has more than a piece, no batch more than its share."""
    for batch in packed():
        sizes = [len(body) for body in batch["body"].to_pylist()]
        assert max(sizes) <= 80
        assert sum(sizes) <= 200


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_pieces_in_any_order(seed):
    """What was sent is received, whatever a shuffle does to the order."""
    table = pa.Table.from_batches(packed())
    order = random.Random(seed).sample(range(table.num_rows), table.num_rows)
    got = unpack(table.take(pa.array(order)).to_batches(max_chunksize=7))
    assert sorted(map(plain, got)) == sorted(map(plain, ENVELOPES))


def test_rows_without_arrow():
    """Rows may travel by themselves, pickled and in any order."""
    sent = list(rows(ENVELOPES, 0))
    assert max(len(row[-1]) for row in sent) <= 80
    got = put_together(pickle.loads(pickle.dumps(random.Random(1).sample(sent, len(sent)))))
    assert sorted(map(plain, got)) == sorted(map(plain, ENVELOPES))


def test_long_bodies_go_by_files(tmp_path, monkeypatch):
    """A name goes through the JVM, the reader maps the file, and has its rows when the file is gone."""
    monkeypatch.setattr(wire, "LONG", 100)
    spool = Spool(str(tmp_path))
    batches = list(pack(ENVELOPES, 0, spool))
    filed = sum(kind.startswith("@") for batch in batches for kind in batch["kind"].to_pylist())
    assert filed == sum(e.message.table.nbytes >= 100 for e in ENVELOPES) == len(list(tmp_path.iterdir())) > 0
    got = list(unpack(batches, spool))
    spool.clear()
    assert not list(tmp_path.iterdir())
    assert sorted(map(plain, got)) == sorted(map(plain, ENVELOPES))


def test_a_missing_piece_is_an_error():
    """Half a body is never taken for a whole one."""
    table = pa.Table.from_batches(packed())
    with pytest.raises(RuntimeFailure, match="arrived in part"):
        list(unpack(table.slice(0, table.num_rows - 1).to_batches()))
