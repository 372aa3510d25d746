"""An archive's index equals the relation it keeps, at every update, by key, by range and as a whole."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import math
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windrow.archive import ArchiveIndex, ArchiveLayout, Traffic
from windrow.errors import BindingError, StateError, UnsupportedError
from windrow.store.place import Place

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


@pytest.fixture
def make(tmp_path):
    """Make an index under a directory of its own."""
    counter = itertools.count()

    def index(keys=("k",), schema=SCHEMA, every=10, lifetime=80, folder="a"):
        place = Place.of(tmp_path / folder)
        return ArchiveIndex(
            place, schema, keys, every=every, lifetime=lifetime, name=lambda slot: f"{slot:06d}-{next(counter)}.arrow",
            sync=False,
        )  # fmt: skip

    return index


def rows(seed, begin, end, count, lifetime, keys=20):
    """Random rows that come in (begin, end] and live for up to `lifetime`."""
    rng = np.random.default_rng(seed)
    ts = np.sort(rng.integers(begin + 1, end + 1, count))
    exp = ts + rng.integers(1, lifetime + 1, count)
    return pa.table(
        {
            "k": rng.integers(0, keys, count),
            "v": pa.array([f"row {seed} {i}" for i in range(count)], pa.string()),
            "_ts": ts,
            "_exp": exp,
        }
    )


def bag(table, *columns):
    """The rows of a table, with their numbers."""
    chosen = table.select(list(columns) or [c for c in table.column_names if not c.startswith("_")])
    return Counter(tuple(r.values()) for r in chosen.to_pylist())


def alive(parts, instant):
    """The relation at an instant, from the definition."""
    everything = pa.concat_tables(parts)
    ts, exp = (everything.column(c).to_numpy() for c in ("_ts", "_exp"))
    return everything.filter(pa.array((ts <= instant) & (exp > instant)))


LAYOUTS = [
    ArchiveLayout(4, 4, rebuild=True),
    ArchiveLayout(4, 4),
    ArchiveLayout(2, 8),
    ArchiveLayout(8, 2, rebuild=True),
    ArchiveLayout(9, 1, rebuild=True, round_robin=False),  # wave index by insertion
    ArchiveLayout(1, 9, round_robin=False),  # wave index by expiration
    ArchiveLayout(3, 3, round_robin=False),
    ArchiveLayout(1, 1),
]


def filled(index, layout, updates, count=60, seed=0):
    """The states and rows of some updates."""
    state, parts = index.empty(layout, 0), []
    for u in range(updates):
        part = rows(seed * 1000 + u, u * index.every, (u + 1) * index.every, count, index.lifetime)
        parts.append(part)
        yield (done := index.update(state, part)), parts
        state = done.state


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_it_equals_the_relation_at_every_update(make, layout):
    """Scan, probe and range probe show the rows that are alive, after each of two windows of updates."""
    index = make()
    for done, parts in filled(index, layout, 2 * index.p):
        want = alive(parts, index.as_of(done.state))
        assert bag(index.scan(done.state)) == bag(want)
        for key in (0, 7, 19, 20):
            mine = bag(want.filter(pc.equal(want.column("k"), key)))
            assert bag(index.probe(done.state, key)) == mine
        between = pc.and_(pc.greater_equal(want.column("k"), 3), pc.less_equal(want.column("k"), 5))
        assert bag(index.probe(done.state, low=3, high=5)) == bag(want.filter(between))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_an_update_opens_g_plus_e_minus_one(make, layout):
    """Once the window is full, exactly so many sub-indices are opened, and at most so many files are made."""
    index = make(every=10, lifetime=180)
    for u, (done, _) in enumerate(filled(index, layout, 2 * index.p, count=300)):
        opened = layout.insertions + layout.expirations - 1
        assert len(done.opened[0]) == opened
        assert done.traffic.created <= opened
        if u > index.p and layout.rebuild:
            assert done.traffic.created == opened


def test_no_rebuild_reads_nothing_old(make):
    """Without rebuilding, an update that writes no sub-index anew reads directories only."""
    index = make()
    read = [done.traffic.read for done, _ in filled(index, ArchiveLayout(2, 2), 4, count=2000)]
    again = [
        done.traffic.read for done, _ in filled(make(folder="b"), ArchiveLayout(2, 2, rebuild=True), 4, count=2000)
    ]
    assert max(read) < 8000 < again[-1]


def test_chains_are_bounded(make):
    """A sub-index that is not rebuilt consists of at most four files, and of two and a half on average."""
    index, chains = make(every=1, lifetime=200), []
    for done, _ in filled(index, ArchiveLayout(2, 2), 120, count=30):
        chains += [len([f for f, size in part.files.items() if size]) for part in done.state.indices[0].parts.values()]
    assert max(chains) == 4 and 2 < sum(chains) / len(chains) < 3


@given(
    layout=st.sampled_from(LAYOUTS),
    steps=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 40)), min_size=1, max_size=14),
    every=st.integers(1, 12),
    lifetime=st.integers(1, 60),
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_pace(tmp_path, layout, steps, every, lifetime):
    """Updates that skip slots, bring nothing, or bring rows that came long before: the relation, every time."""
    counter = itertools.count()
    index = ArchiveIndex(
        Place.of(tmp_path / f"any{next(NUMBERS)}"), SCHEMA, ("k",), every=every, lifetime=lifetime,
        name=lambda slot: f"{next(counter)}.arrow", sync=False,
    )  # fmt: skip
    state, parts, at = index.empty(layout, 0), [], 0
    for i, (skip, count) in enumerate(steps):
        slot = state.slot + (1 if skip < 20 else skip - 18)
        parts.append(rows(i, at, slot * every, count, lifetime))
        at = slot * every
        state = index.update(state, parts[-1], slot).state
        want = alive(parts, index.as_of(state))
        assert bag(index.scan(state)) == bag(want)
        assert bag(index.probe(state, 3)) == bag(want.filter(pc.equal(want.column("k"), 3)))


NUMBERS = itertools.count()


@pytest.mark.parametrize("gradually", [True, False])
def test_migration_is_not_seen(make, gradually):
    """From one layout to another and on to a third: readers see the relation, and the old index goes."""
    index = make()
    target = [ArchiveLayout(2, 2, rebuild=True), ArchiveLayout(3, 3)]
    state, parts = index.empty(ArchiveLayout(4, 4), 0), []
    for u in range(4 * index.p):
        part = rows(u, u * index.every, (u + 1) * index.every, 50, index.lifetime)
        parts.append(part)
        state = index.update(state, part).state
        if u % (index.p + 3) == index.p and target:
            before = state
            state = index.migrate(state, target.pop(), gradually=gradually).state
            assert bag(index.scan(before)) == bag(index.scan(state))  # whoever holds the old one reads on
        assert bag(index.scan(state)) == bag(alive(parts, index.as_of(state)))
        if len(state.indices) > 1:
            assert gradually
    assert len(state.indices) == 1 and state.layout == ArchiveLayout(2, 2, rebuild=True)


def test_on_another_file_system(make):
    """Whatever pyarrow.fs reaches can hold an archive."""
    index = make()
    index.shelf.place = Place.of("mock:///archive")
    for done, parts in filled(index, ArchiveLayout(2, 2), 4):
        want = alive(parts, index.as_of(done.state))
        assert bag(index.scan(done.state)) == bag(want)
        assert bag(index.probe(done.state, 5)) == bag(want.filter(pc.equal(want.column("k"), 5)))


class Torn(Place):
    """A place whose files can no longer be written after some."""

    left = 0

    def write(self, name, data, *, sync=True):
        if Torn.left == 0:
            raise StateError("the power is gone")
        Torn.left -= 1
        super().write(name, data, sync=sync)


@pytest.mark.parametrize("layout", [ArchiveLayout(3, 3), ArchiveLayout(3, 3, rebuild=True)], ids=str)
def test_a_kill_at_any_point_of_an_update(make, tmp_path, layout):
    """Whatever was written of an update that failed: the state before it reads as ever, and the update works again."""
    index = make()
    states = list(filled(index, layout, 2 * index.p))
    state, parts = states[-1][0].state, states[-1][1]
    more = rows(99, index.as_of(state), index.as_of(state) + index.every, 60, index.lifetime)
    for written in range(5):
        index.shelf.place = Torn(index.shelf.place.uri)
        Torn.left = written
        with pytest.raises(StateError, match="the power is gone"):
            index.update(state, more)
        index.shelf.place = Place(index.shelf.place.uri)
        assert bag(index.scan(state)) == bag(alive(parts, index.as_of(state)))
    done = index.update(state, more).state
    assert bag(index.scan(done)) == bag(alive([*parts, more], index.as_of(done)))


def test_files_names_all_that_readers_need(make, tmp_path):
    """With every other file deleted, a state is read as before."""
    index = make()
    done, parts = list(filled(index, ArchiveLayout(3, 3), 20))[-1]
    kept = done.state.files()
    for name in os.listdir(index.shelf.place.uri):
        if name not in kept:
            os.unlink(Path(index.shelf.place.uri, name))
    assert bag(index.scan(done.state)) == bag(alive(parts, index.as_of(done.state)))


def test_damage_is_refused_by_name(make):
    """A changed byte in a block or a directory is found when it is read, and the file is named."""
    index = make()
    done, _ = list(filled(index, ArchiveLayout(1, 1, rebuild=True), 3))[-1]
    (part,) = done.state.indices[0].parts.values()
    path = Path(index.shelf.place.uri, part.path)
    whole = path.read_bytes()
    for at in (700, part.offset + 40):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        index.shelf.forget()
        with pytest.raises(StateError, match=r"corrupt archive file .*\.arrow"):
            index.scan(done.state)
    path.write_bytes(whole[: part.offset + 5])
    index.shelf.forget()
    with pytest.raises(StateError, match="corrupt archive file"):
        index.probe(done.state, 1)
    path.unlink()
    index.shelf.forget()
    with pytest.raises(StateError, match="does not exist"):
        index.probe(done.state, 1)


def test_a_probe_reads_little(make):
    """At n = 16 a probe reads less than a twentieth of what a scan reads."""
    index = make(every=100, lifetime=800)
    for layout in (ArchiveLayout(4, 4), ArchiveLayout(4, 4, rebuild=True)):
        state = index.empty(layout, 0)
        for u in range(8):
            state = index.update(state, rows(u, u * 100, u * 100 + 100, 100_000, 800, keys=100)).state
        probe, scan = Traffic(), Traffic()
        found = index.probe(state, 42, traffic=probe)
        everything = index.scan(state, traffic=scan)
        assert 0 < found.num_rows < everything.num_rows / 50
        assert probe.read * 20 < scan.read


def test_blocks_are_bounded(make):
    """Whatever the number of rows of a key, no block is larger than 64 KB before compression, and most have one key."""
    index = make(every=100, lifetime=800)
    for keys in (1, 3, 100, 100_000):
        table = rows(keys, 0, 100, 20_000, 800, keys=keys)
        state = index.update(index.empty(ArchiveLayout(1, 1), 0), table).state
        (part,) = state.indices[0].parts.values()
        lines = index.shelf.directory(part, Traffic()).lines
        assert max(lines.column("rows").to_pylist()) * table.nbytes / table.num_rows < 70_000
        assert sum(lines.column("rows").to_pylist()) == part.rows
        probe = Traffic()
        found = index.probe(state, 0, traffic=probe)
        assert probe.read < part.bytes + 2 * 64_000 + 2 * found.nbytes


def test_blocks_of_wide_rows_are_small(tmp_path):
    """Rows of 1,000 bytes and hardly one for each key, as in a stretch of NoRebuild: blocks have the least size, and a
    probe reads one of each stretch."""
    wide = pa.schema([("k", pa.int64()), ("v", pa.binary())])
    names = itertools.count()
    index = ArchiveIndex(
        Place.of(tmp_path), wide, ["k"], every=100, lifetime=800, name=lambda _: f"{next(names)}.arrow", sync=False
    )
    rng, state = np.random.default_rng(1), index.empty(ArchiveLayout(1, 1), 0)
    for u in range(3):
        ts = np.sort(rng.integers(100 * u + 1, 100 * u + 101, 90))
        new = {"k": rng.integers(0, 100, 90), "v": [rng.bytes(1000) for _ in range(90)], "_ts": ts, "_exp": ts + 800}
        state = index.update(state, pa.table(new)).state
    (part,) = state.indices[0].parts.values()
    sizes = index.shelf.directory(part, Traffic()).lines.column("bytes").to_pylist()
    assert max(sizes) < 9_500 and len(sizes) >= 3 * 90 * 1000 / 9_500
    index.shelf.forget()
    probe = Traffic()
    index.probe(state, 42, traffic=probe)
    assert probe.read <= part.bytes + 3 * 9_500


D = decimal.Decimal
KEYS = {
    "int8": (pa.int8(), [-128, -1, 0, 5, 127, None]),
    "uint64": (pa.uint64(), [0, 2**63, 2**64 - 1, None]),
    "double": (pa.float64(), [-math.inf, -1.5, -0.0, 0.0, 2.5, math.inf, math.nan, None]),
    "boolean": (pa.bool_(), [False, True, None]),
    "decimal": (pa.decimal128(20, 2), [D("-3.25"), D("0"), D("12345678.99"), None]),
    "text": (pa.string(), ["", "A", "a", "ab", "Ä", "日本", None]),
    "bytes": (pa.binary(), [b"", b"\x00", b"\xff", None]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(2024, 2, 29), None]),
    "timestamp": (pa.timestamp("us"), [dt.datetime(1969, 1, 1), dt.datetime(2024, 1, 1, 12), None]),
    "time": (pa.time64("us"), [dt.time(0), dt.time(23, 59), None]),
}


def same(a, b):
    return (a is None) == (b is None) and (a == b or (a is not None and a != a and b != b))


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_ordered_type(make, kind):
    """Each value is found by itself, and ranges follow the order: numbers, NaN, NULL."""
    type_, values = KEYS[kind]
    index = make(schema=pa.schema([("k", type_), ("i", pa.int64())]))
    many = [i for i in range(len(values)) for _ in range(7)]
    table = pa.table(
        {
            "k": pa.array([values[i] for i in many], type_),
            "i": pa.array(many, pa.int64()),
            "_ts": pa.array([5] * len(many)),
            "_exp": pa.array([25] * len(many)),
        }
    )
    state = index.update(index.empty(ArchiveLayout(2, 2), 0), table).state
    for value in values:
        alike = [i for i, v in enumerate(values) if same(v, value)]
        assert sorted(index.probe(state, value).column("i").to_pylist()) == sorted(i for i in many if i in alike)
    low = values[1]
    assert set(index.probe(state, low=low).column("i").to_pylist()) == set(range(1, len(values)))
    assert set(index.probe(state, high=low).column("i").to_pylist()) == {0, 1}


def test_keys_of_several_columns(make):
    """A tuple finds its rows; a prefix finds those of all that follow; ranges go column by column."""
    schema = pa.schema([("a", pa.string()), ("b", pa.int64())])
    index = make(keys=("a", "b"), schema=schema)
    pairs = list(itertools.product("xyz", range(30)))
    table = pa.table({"a": [a for a, _ in pairs], "b": [b for _, b in pairs], "_ts": [1] * 90, "_exp": [30] * 90})
    state = index.update(index.empty(ArchiveLayout(2, 2, rebuild=True), 0), table).state
    assert index.probe(state, ("y", 4)).to_pylist() == [{"a": "y", "b": 4}]
    assert index.probe(state, "y").num_rows == 30
    assert bag(index.probe(state, low=("x", 28), high=("y", 1))) == {
        ("x", 28): 1, ("x", 29): 1, ("y", 0): 1, ("y", 1): 1,
    }  # fmt: skip
    assert bag(index.probe(state, low=("y", 29), high="y")) == {("y", 29): 1}
    assert index.probe(state, low="z").num_rows == 30


def test_bad_input(make):
    """Unknown or unorderable keys, wrong values, rows that live too long, times that run backwards: clear errors."""
    index = make()
    with pytest.raises(BindingError, match='"x" is no column'):
        make(keys=("x",))
    with pytest.raises(BindingError, match='"k" occurs twice'):
        make(keys=("k", "k"))
    with pytest.raises(BindingError, match=r'"l" cannot be a key: list<item: int64> has no order'):
        make(keys=("l",), schema=pa.schema([("l", pa.list_(pa.int64()))]))
    with pytest.raises(UnsupportedError, match='no column "_exp"'):
        make(schema=pa.schema([("k", pa.int64()), ("_exp", pa.int64())]))
    with pytest.raises(UnsupportedError, match="positive time"):
        make(every=0)
    state = index.empty(ArchiveLayout(2, 2), 0)
    with pytest.raises(BindingError, match="'seven' is no value of the key"):
        index.probe(state, "seven")
    with pytest.raises(BindingError, match="1 columns, and 2 values"):
        index.probe(state, (1, 2))
    long = pa.table({"k": [1], "v": ["a"], "_ts": [1], "_exp": [2**63 - 1]})
    with pytest.raises(UnsupportedError, match="lives longer than its archive"):
        index.update(state, long)
    early = pa.table({"k": [1], "v": ["a"], "_ts": [11], "_exp": [12]})
    with pytest.raises(StateError, match="a row of 11"):
        index.update(state, early)
    with pytest.raises(StateError, match="update 0 of an archive"):
        index.update(state, long, 0)
