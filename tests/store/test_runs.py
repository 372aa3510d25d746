"""Runs in files: packed, mapped, checked, cached."""

import os
import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from windrow.errors import StateError
from windrow.operators.state.run import Run
from windrow.store import runs as module
from windrow.store.place import Place
from windrow.store.runs import RunCache, RunStore, tick_of


@pytest.fixture(autouse=True)
def _fresh_cache():
    module.cache.clear()
    yield
    module.cache.clear()


def some(n, start=0):
    return Run(pa.table({"k": np.arange(start, start + n), "s": [f"v{i}" for i in range(n)]}))


def test_pack_roundtrip(tmp_path):
    """Several runs go into one file and come back by reference, each itself."""
    store = RunStore(Place.of(tmp_path))
    written = [some(5), some(0), some(1000, 7)]
    refs = store.write(("stage 1", 2), 42, written)
    assert len({r.path for r in refs}) == 1
    assert tick_of(refs[0].path) == 42
    for run, ref in zip(written, refs, strict=True):
        back = store.read(ref)
        assert back.uid == run.uid
        assert back.table.equals(run.table)
        assert ref.rows == run.table.num_rows


def test_nothing_to_write(tmp_path):
    """No runs, no file."""
    assert RunStore(Place.of(tmp_path)).write(("s", 0), 1, []) == ()
    assert os.listdir(tmp_path) == []


def test_mapped_not_copied(tmp_path):
    """A local run is used in place: reading it allocates next to nothing and holds no descriptor."""
    store = RunStore(Place.of(tmp_path))
    run = Run(pa.table({"k": np.arange(1_000_000)}))
    (ref,) = store.write(("s", 0), 1, [run])
    before, descriptors = pa.total_allocated_bytes(), len(os.listdir("/proc/self/fd"))
    back = store.read(ref)
    assert pa.total_allocated_bytes() - before < 100_000
    assert len(os.listdir("/proc/self/fd")) == descriptors
    os.unlink(Place.of(tmp_path).path(ref.path))
    assert back.table["k"][999_999].as_py() == 999_999


def test_chunks_become_one(tmp_path):
    """A table of many chunks is written as one, so columns are read without copying."""
    store = RunStore(Place.of(tmp_path))
    table = pa.concat_tables([some(3).table, some(4).table])
    (ref,) = store.write(("s", 0), 1, [Run(table)])
    assert store.read(ref).table["k"].num_chunks == 1


def test_remote_roundtrip():
    """Runs on a file system that cannot be mapped are read whole."""
    store = RunStore(Place.of("mock:///h"))
    (ref,) = store.write(("s", 0), 1, [run := some(9)])
    assert store.read(ref).table.equals(run.table)


def test_cached_by_uid(tmp_path):
    """The second read gives the same object without the file."""
    store = RunStore(Place.of(tmp_path))
    (ref,) = store.write(("s", 0), 1, [some(9)])
    first = store.read(ref)
    Place.of(tmp_path).delete(ref.path)
    assert store.read(ref) is first


def test_cache_keeps_the_recently_used():
    """Over the limit, the run unused for longest goes."""
    runs = [Run(pa.table({"k": np.arange(100)})) for _ in range(3)]
    held = RunCache(2 * runs[0].nbytes)
    held.put(runs[0])
    held.put(runs[1])
    held.get(runs[0].uid)
    held.put(runs[2])
    assert [held.get(r.uid) is not None for r in runs] == [True, False, True]
    assert held.held == 2 * runs[0].nbytes


def test_a_run_that_is_over_is_forgotten():
    """A dropped run gives its room back; dropping one that is not there is nothing."""
    run = Run(pa.table({"a": [1, 2, 3]}))
    held = RunCache(10 * run.nbytes)
    held.put(run)
    held.drop([run.uid, "unknown"])
    assert (held.get(run.uid), held.held, len(held)) == (None, 0, 0)


@pytest.mark.parametrize("size", [0, 1, 100, -1])
def test_cut_file_is_refused(tmp_path, size):
    """A run file cut anywhere is refused by name."""
    place = Place.of(tmp_path)
    store = RunStore(place)
    (ref,) = store.write(("s", 0), 1, [some(50)])
    path = place.path(ref.path)
    os.truncate(path, size % ref.bytes)
    with pytest.raises(StateError, match="corrupt run"):
        store.read(ref)


def test_zeroed_tail_is_refused(tmp_path):
    """A file of the right length with lost bytes is refused."""
    place = Place.of(tmp_path)
    store = RunStore(place)
    (ref,) = store.write(("s", 0), 1, [some(50)])
    with open(place.path(ref.path), "r+b") as file:
        file.seek(ref.bytes // 2)
        file.write(b"\0" * 40)
    with pytest.raises(StateError, match="checksum"):
        store.read(ref)


def test_lost_file_is_refused(tmp_path):
    """A reference to a file that is gone is refused."""
    store = RunStore(Place.of(tmp_path))
    (ref,) = store.write(("s", 0), 1, [some(5)])
    with pytest.raises(StateError, match="does not exist"):
        store.read(replace(ref, path="runs/s/0/0000000001-gone.arrow"))


def test_is_a_small_value(tmp_path):
    """A run store is sent to executors as a few bytes."""
    store = RunStore(Place.of(tmp_path))
    sent = pickle.dumps(store)
    assert len(sent) < 500
    assert pickle.loads(sent) == store


def test_attempts_do_not_collide(tmp_path):
    """Two attempts of one task write two files."""
    store = RunStore(Place.of(tmp_path))
    run = some(5)
    (one,), (two,) = store.write(("s", 0), 1, [run]), store.write(("s", 0), 1, [run])
    assert one.path != two.path
    assert one.uid == two.uid
