"""Damaged homes: every loss is an error with the way out, and a repair says what it does before it does it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windrow
from windrow.cli.state import main
from windrow.errors import StateError
from windrow.store.manifest import Manifest
from windrow.store.store import Store
from windrow.testing import assert_same

SCRIPT = """
CREATE STREAM s (ts BIGINT, k BIGINT, v BIGINT) FROM parquet (path => '{0}') TIMESTAMP BY ts;
CREATE TABLE t (k BIGINT, w BIGINT);
CREATE QUERY alone AS SELECT k, COUNT(*) AS n FROM s [RANGE 10] GROUP BY k;
CREATE QUERY other AS SELECT s.k, t.w FROM s [RANGE 10], t WHERE s.k = t.k;
CREATE QUERY shared AS SELECT k, SUM(v) AS n FROM s [RANGE 10 SLIDE 5] GROUP BY k;
CREATE QUERY too AS SELECT k, MAX(v) AS n FROM s [RANGE 20 SLIDE 5] WHERE v > 0 GROUP BY k
"""


class Kept:
    """A home with files that were read, and more that come."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home, self.landing = folder, folder / "home", folder / "landing"
        self.landing.mkdir()
        self.number = 0

    def land(self) -> None:
        """One more file of rows."""
        n = self.number
        table = pa.table({"ts": [10 * n + i for i in range(10)], "k": [i % 3 for i in range(10)], "v": list(range(10))})
        pq.write_table(table, self.landing / f".{n}")
        (self.landing / f".{n}").rename(self.landing / f"{n:03d}.parquet")
        self.number += 1

    def run(self, first: bool = False) -> dict[str, pa.Table]:
        """Read a file with an engine of its own; the answers of this life."""
        self.land()
        with windrow.Engine("local", home=self.home) as engine:
            if first:
                engine.execute(SCRIPT.format(self.landing))
                engine.table("t", pa.table({"k": [0, 1], "w": [5, 6]}))
            engine.start()
            engine.drain()
            return {name: engine[name].results() for name in engine.catalog.queries}

    def manifests(self) -> list[Path]:
        return sorted((self.home / "manifests").glob("*.json"))


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    found = Kept(tmp_path)
    found.run(first=True)
    found.run()
    return found


def repaired(kept: Kept, capsys: pytest.CaptureFixture[str]) -> str:
    """What `--repair` says; it changes nothing before `--yes`, and nothing is left to do after it."""
    before = {p: p.read_bytes() for p in sorted(kept.home.rglob("*")) if p.is_file()}
    assert main([str(kept.home), "--repair"]) == 1
    said = capsys.readouterr().out
    assert "nothing has been changed" in said
    assert before == {p: p.read_bytes() for p in sorted(kept.home.rglob("*")) if p.is_file()}
    assert main([str(kept.home), "--repair", "--yes"]) == 0
    assert "repaired: manifest" in capsys.readouterr().out
    assert main([str(kept.home), "--repair"]) == 0
    assert "nothing is damaged" in capsys.readouterr().out
    return said


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])


def forge(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"tick": ', b'"tick":9', 1) if b'"tick": ' in data else data[:-30] + b"x" * 30)


def from_another_home(path: Path) -> None:
    """A whole manifest of this number, written elsewhere."""
    with Store.open(path.parents[2] / "elsewhere") as store:
        for version in range(int(path.stem) + 1):
            store.commit(Manifest(version, version))
    shutil.copy(path.parents[2] / "elsewhere" / "manifests" / path.name, path)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "removed": Path.unlink, "cut": cut, "forged": forge, "emptied": lambda p: p.write_bytes(b""),
    "copied": from_another_home,
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_manifest_that_is_not_as_it_was_written(kept: Kept, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The engine refuses the home; repaired, it reads again what came after, and its answers are whole."""
    want = windrow.run(
        SCRIPT.format(kept.landing), {"s": str(kept.landing)}, {"t": pa.table({"k": [0, 1], "w": [5, 6]})}, "local"
    )
    DAMAGES[damage](kept.manifests()[-1])
    with pytest.raises(StateError) as refused:
        windrow.Engine("local", home=kept.home)
    assert "windrow state" in str(refused.value) and "--repair" in str(refused.value)
    assert "manifest" in repaired(kept, capsys)
    with Store.open(kept.home, read_only=True) as store:
        manifest = store.latest()
    assert manifest is not None and manifest.version > int(kept.manifests()[-2].stem)
    got = kept.run()
    assert got["shared"].num_rows > 0 and want["shared"].num_rows > 0


def test_all_manifests_removed(kept: Kept) -> None:
    """Such a home is no new one: it is refused, and there is nothing to repair it from."""
    for path in kept.manifests():
        path.unlink()
    with pytest.raises(StateError, match="lacks its newest manifest"):
        windrow.Engine("local", home=kept.home)
    with pytest.raises(StateError, match="no whole manifest left"):
        main([str(kept.home), "--repair", "--yes"])


def state_files(kept: Kept) -> list[Path]:
    return sorted(p for p in (kept.home / "runs").rglob("*.arrow") if p.parts[-3] not in ("tables", "answers"))


@pytest.mark.parametrize("damage", [Path.unlink, cut, lambda p: p.write_bytes(b"x" * p.stat().st_size)])
def test_runs_that_are_gone(kept: Kept, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]) -> None:
    """Queries whose state is gone are named and begin anew; the engine goes on."""
    for path in state_files(kept):
        damage(path)
    for old in kept.manifests()[:-1]:
        old.unlink()
    said = repaired(kept, capsys)
    assert "begins anew" in said and '"alone"' in said and '"shared", "too"' in said
    with Store.open(kept.home, read_only=True) as store:
        manifest = store.latest()
    assert manifest is not None and not any("@" in clock for clock in manifest.clocks)
    got = kept.run()
    fresh = pa.table({"ts": list(range(20, 30)), "k": [i % 3 for i in range(10)], "v": list(range(10))})
    want = windrow.run(
        SCRIPT.format(kept.landing), {"s": fresh}, {"t": pa.table({"k": [0, 1], "w": [5, 6]})}, "local", until=28
    )
    for name, answer in want.items():
        assert_same(got[name], answer)


def test_missing_runs_are_found_at_the_start(kept: Kept) -> None:
    """Not in some later tick."""
    state_files(kept)[-1].unlink()
    for path in state_files(kept):
        path.unlink()
    with pytest.raises(StateError, match=r"lacks \d+ of its files"):
        windrow.Engine("local", home=kept.home)


def test_an_older_manifest_that_is_whole_takes_the_place_of_one_that_is_not(
    kept: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it still has is worth more than a beginning anew: what came after is read again."""
    with Store.open(kept.home, read_only=True) as store:
        newest = store.latest()
        older, _ = sorted(((m.version, m) for m in store._manifests.values()), key=lambda pair: pair[0])[-2:]
    assert newest is not None
    only = newest.paths() - older[1].paths()
    for name in only:
        (kept.home / name).unlink()
    if not only:
        pytest.skip("both name the same files")
    assert "takes its place" in repaired(kept, capsys)
    kept.run()


def test_a_table_that_is_gone(kept: Kept, capsys: pytest.CaptureFixture[str]) -> None:
    """Empty until it is given again, which is said."""
    for path in (kept.home / "runs" / "tables").rglob("*.arrow"):
        path.unlink()
    assert 'table "t" is gone' in repaired(kept, capsys)
    assert kept.run()["other"].num_rows == 0


def test_what_a_source_keeps(kept: Kept, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of taken files that is gone: the stream is read again, and what time has passed is late, not doubled."""
    with Store.open(kept.home) as store:
        manifest = store.latest()
        assert manifest is not None
        offset = dict(manifest.offsets["s"])
        from dataclasses import replace

        from windrow.sources.seen import SeenLog

        folder = kept.home / "sources" / f"s-{manifest.declared['s']}"
        log = SeenLog(store.place.below(f"sources/{folder.name}"))
        offset |= {"log": log.absorb([], offset["tail"]), "tail": []}
        store.commit(replace(manifest, version=manifest.version + 1, offsets={"s": offset}))
    (segment,) = folder.glob("seen-*")
    segment.unlink()
    assert 'what stream "s" has read is not known any more' in repaired(kept, capsys)
    kept.land()
    with windrow.Engine("local", home=kept.home) as engine:
        engine.start()
        engine.drain()
        assert engine.late("s").num_rows == 20 - 1  # the last row is at the frontier's edge
        assert engine["alone"].results().num_rows > 0


def test_readers_while_a_home_is_repaired(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who would open it meanwhile is refused by name, and nothing is lost; a repair under an engine is refused, too."""
    shutil.rmtree(kept.home / "runs" / "1")
    refused, real = [], Store.commit_repaired

    def slowly(store: Store, made: Manifest) -> None:
        with pytest.raises(StateError, match="in use") as error:
            windrow.Engine("local", home=kept.home)
        refused.append(error.value)
        real(store, made)

    monkeypatch.setattr(Store, "commit_repaired", slowly)
    assert main([str(kept.home), "--repair", "--yes"]) == 0
    assert len(refused) == 1
    with windrow.Engine("local", home=kept.home) as engine:
        engine.start()
        assert engine.ask("SELECT COUNT(*) AS n FROM t").to_pylist() == [{"n": 2}]
        shutil.rmtree(kept.home / "tables", ignore_errors=True)
        for run in (kept.home / "runs").rglob("*.arrow"):
            cut(run)
        with pytest.raises(StateError, match="in use"):
            main([str(kept.home), "--repair", "--yes"])
        assert engine.status()["error"] is None and engine.ask("SELECT COUNT(*) AS n FROM t").num_rows == 1


def test_a_home_without_damage(kept: Kept, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing to do, and nothing done; a program reads it as JSON."""
    assert main([str(kept.home), "--repair", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"findings": [], "repaired": None}


def test_a_note_of_the_newest_that_was_torn_is_no_damage(kept: Kept) -> None:
    """It is not synced, so the power may fail while it is written."""
    (kept.home / "newest").write_bytes(b"")
    assert kept.run()["shared"].num_rows > 0


def test_archives_are_examined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An archive that is whole is not taken for damaged; one whose block has changed begins anew, the others go on."""
    home = tmp_path / "home"

    def life(first: int, archives: tuple[str, ...] = ()) -> dict[str, list[int]]:
        with windrow.Engine("local", home=home) as engine:
            if archives:
                engine.execute("CREATE STREAM s (ts BIGINT, k BIGINT) TIMESTAMP BY ts")
            for name in archives:
                engine.execute(f"CREATE ARCHIVE {name} AS SELECT k FROM s [RANGE 100] KEY k EVERY 5")
            engine.start()
            engine.push("s", {"ts": list(range(first, first + 20)), "k": list(range(first, first + 20))})
            return {n: sorted(engine.archive(n).scan()["k"].to_pylist()) for n in ("one", "other")}

    assert life(1, ("one", "other"))["one"] == list(range(1, 16))
    assert main([str(home), "--repair"]) == 0
    assert "nothing is damaged" in capsys.readouterr().out
    file = max((home / "runs" / "archive" / "one").glob("*.arrow"), key=lambda f: f.stat().st_size)
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 0xFF
    file.write_bytes(data)
    for old in sorted((home / "manifests").glob("*.json"))[:-1]:
        old.unlink()
    assert main([str(home), "--repair", "--yes"]) == 0
    assert 'state of "^one" is gone' in capsys.readouterr().out
    assert main([str(home), "--repair"]) == 0
    assert life(21) == {"one": list(range(21, 41 - 5)), "other": list(range(1, 36))}
