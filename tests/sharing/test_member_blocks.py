"""Members of families as they travel: nothing about all queries is written or looked at per tick or per change."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from windrow.engine.replay import Replay
from windrow.runtime.job import Feed, LocalJob
from windrow.runtime.member_blocks import BLOCK, SMALL_BLOCKS, FamilyPlace, MemberBlock, MemberBlocks
from windrow.runtime.program import Deployment
from windrow.runtime.tick import Ticker
from windrow.sharing.recognise import NotShared, recognise
from windrow.store.manifest import Manifest, encode
from windrow.store.store import MemoryStore, Store

SCRIPT = """
CREATE STREAM st (sym BIGINT, price DOUBLE, ts BIGINT) TIMESTAMP BY ts;
CREATE TABLE rules (s BIGINT, lim DOUBLE);
CREATE TEMPLATE t (s BIGINT, lim DOUBLE) AS
    SELECT COUNT(*) AS n, MAX(price) AS m FROM st [RANGE 10 SLIDE 5] WHERE sym = $s AND price > $lim;
CREATE QUERIES q FROM TEMPLATE t USING TABLE rules
"""


def ticker_of(count: int, store: Any) -> tuple[Replay, Ticker]:
    rows = pa.table({"sym": [0, 1, 2, 3], "price": [1.0, 5.0, 2.0, 9.0], "ts": [1, 2, 6, 11]})
    rules = pa.table({"s": list(range(count)), "lim": [float(i % 7) for i in range(count)]})
    replay = Replay.of(SCRIPT, {"st": rows}, {"rules": rules})
    return replay, replay.registered(LocalJob(), store, "upa")


def places(count: int) -> list[tuple[str, FamilyPlace]]:
    _, ticker = ticker_of(count, MemoryStore())
    return [(name, member) for name, member in ticker.sharing.members.items()]


@pytest.mark.parametrize("seed", range(400, 410))
def test_blocks_unpack_to_what_was_packed(make_case: Callable[[int], Any], seed: int) -> None:
    """Members of any kinds are the same queries in another process: name, place, window, condition, kind and steps."""
    case = make_case(seed)
    script = ";".join(f"CREATE QUERY {n} AS {t}" for n, t in case.queries.items())
    replay = Replay.of(script, {"st": case.stream}, {"k": case.table})
    members = {}
    for number, plan in enumerate(replay.catalog.queries.values()):
        try:
            members[plan.name] = FamilyPlace(recognise(plan), number, number % 3 or None)
        except NotShared:
            continue
    block = MemberBlock.of(members)
    found: MemberBlock = pickle.loads(pickle.dumps(block))
    assert (found.uid, found.columns, found.conditions, found.late) == (
        block.uid, block.columns, block.conditions, block.late,
    )  # fmt: skip
    assert list(found.members) == list(members)
    for name, want in members.items():
        got = found.members[name]
        assert (got.uid, got.epoch, got.synopsis) == (want.uid, want.epoch, want.synopsis)
        mine, theirs = got.query.member, want.query.member
        assert (mine.name, mine.window, mine.condition, tuple(mine.steps)) == (
            theirs.name, theirs.window, theirs.condition, tuple(theirs.steps),
        )  # fmt: skip
        assert mine.kind is theirs.kind
        assert (got.query.source, got.query.shown, got.query.columns) == (
            want.query.source, want.query.shown, want.query.columns,
        )  # fmt: skip


def test_a_change_touches_its_block_alone() -> None:
    """One that comes makes one small block; one that goes makes its own anew; the others stay the same objects."""
    found = places(50)
    family = MemberBlocks()
    for number in range(3 * BLOCK):
        family.add(f"m{number}", found[number % 50][1])
    before = family.blocks()
    assert len(before) == 3
    family.looked_at = 0
    family.add("new", found[0][1])
    after = family.blocks()
    assert after[:3] == before and len(after) == 4 and family.looked_at == 1
    family.remove("m7")
    last = family.blocks()
    assert sum(b in after for b in last) == 3 and family.looked_at == 1 + BLOCK - 1
    assert sorted(n for b in last for n in b.members) == sorted(["new", *(f"m{i}" for i in range(3 * BLOCK) if i != 7)])


def test_small_blocks_are_put_together() -> None:
    """However members come, blocks stay few."""
    (_, place), *_ = places(2)
    family = MemberBlocks()
    for number in range(5 * SMALL_BLOCKS):
        family.add(f"m{number}", place)
        assert len(family.blocks()) <= SMALL_BLOCKS + 1
    assert sorted(n for b in family.blocks() for n in b.members) == sorted(f"m{i}" for i in range(5 * SMALL_BLOCKS))


def test_ticks_say_nothing_of_every_query(tmp_path: Path) -> None:
    """The program of a tick and its manifest are as long for many queries as for few."""
    sizes = []
    for count in (20, 400):
        with Store.open(str(tmp_path / str(count))) as store:
            replay, ticker = ticker_of(count, store)
            for frontier, rows in ((5, slice(0, 2)), (11, slice(2, 4))):
                program = ticker.program(frontier)
                sent = len(pickle.dumps(replace(program, deployment=Deployment())))
                feed = Feed("st", replay.data["st"].rows.slice(rows.start, 2))
                tick = ticker.collect(program, LocalJob().run([feed], program, 1), 1)
                ticker.commit(tick)
            assert list(ticker.manifest.clocks) == ["+1@0"]
            sizes.append((sent, len(encode(ticker.manifest))))
    (few, written), (many, written_of_many) = sizes
    assert abs(many - few) < 200
    assert abs(written_of_many - written) < 200


def test_a_home_with_a_clock_for_each_query_is_taken_up() -> None:
    """Clocks of one epoch become one; a query without a clock had failed or not begun, and begins anew."""
    _, ticker = ticker_of(1, MemoryStore())
    ticker.manifest = Manifest(1, 1, clocks={"a": 5, "b": 5, "alone": 3}, firsts={"c": 9})
    saved = {
        "technique": "auto", "next": 2, "families": {"+1": (1, 3), "+2": (0, 1)},
        "queries": {"A": ("+1", 0, 0), "B": ("+1", 0, 1), "gone": ("+1", 0, 2), "C": ("+2", 0, 0)},
    }  # fmt: skip
    ticker.take_up(saved)
    assert ticker.manifest.clocks == {"alone": 3, "+1@0": 5}
    assert ticker.manifest.firsts == {"+2@0": 9}
    assert [ticker.has_begun(n) for n in ("A", "B", "C", "gone", "alone", "other")] == [True] * 3 + [False, True, False]
