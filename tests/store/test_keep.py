"""Changes of the catalog: in force with their manifest, whole again after some, and never half after a crash."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.catalog import Catalog
from windrow.catalog.names import Names
from windrow.cli.state import describe
from windrow.engine import Engine
from windrow.errors import BindingError, StateError
from windrow.runtime import saved_catalog as keep
from windrow.runtime.column_places import NOBODY, ColumnPlace
from windrow.runtime.saved_catalog import SavedCatalog, applied, between, in_force
from windrow.runtime.settings import Settings
from windrow.sharing.condition_columns import ConditionColumns
from windrow.sharing.member_columns import InstanceNames, MemberColumns
from windrow.store.failpoints import CHANGES
from windrow.store.store import Store

STREAM = "CREATE STREAM s (k BIGINT, v DOUBLE, ts BIGINT) TIMESTAMP BY ts"


class Declaring(Engine):
    """An engine over a home in which nothing runs."""

    def __init__(self, path: Path) -> None:
        super().__init__("local", home=path)

    @property
    def kept(self) -> tuple[int, int]:
        manifest = self.runtime.ticker.manifest
        return manifest.catalog, len(manifest.changes)


def query(n: int) -> str:
    return f"CREATE QUERY q{n} AS SELECT SUM(v) AS s FROM s [RANGE {10 + n} SLIDE 5] WHERE k > {n}"


def reopened(path: Path) -> list[str]:
    """The queries that a restart finds."""
    with Declaring(path) as engine:
        return list(engine.catalog.queries)


def test_a_change_is_written_with_its_manifest(tmp_path: Path) -> None:
    """One more query is one more change, no new catalog; a restart has it, and a reader sees it."""
    with Declaring(tmp_path) as engine:
        engine.execute(f"{STREAM}; {query(0)}; {query(1)}")
        assert engine.kept == (1, 0)
        engine.execute(query(2))
        engine.execute("DROP QUERY q0")
        assert engine.kept == (1, 2)
        saved = engine.runtime.ticker.sharing.saved()
        store = Store.open(tmp_path, read_only=True)
        shown = describe(store, store.latest())
        assert shown["declared"] == {
            "streams": ["s"],
            "tables": [],
            "queries": ["q1", "q2"],
            "archives": [],
            "templates": [],
            "groups": [],
            "sinks": [],
            "views": [],
            "macros": [],
        }
        assert (shown["catalog"], shown["changes"], list(shown["queries"])) == (1, 2, ["q1", "q2"])
        written = {**saved, "queries": dict(saved["queries"]), "columns": {}}
        assert in_force(store, store.latest())["shared"] == json.loads(json.dumps(written))
    assert reopened(tmp_path) == ["q1", "q2"]
    with Declaring(tmp_path) as engine:
        engine.execute(query(3))
        assert list(engine.catalog.queries) == ["q1", "q2", "q3"]
    assert reopened(tmp_path) == ["q1", "q2", "q3"]


def test_many_changes_become_a_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are bounded: the whole catalog is written when they have grown, and at once for a long script."""
    monkeypatch.setattr(keep, "FOLD", 10)
    seen = []
    with Declaring(tmp_path) as engine:
        engine.execute(STREAM)
        for n in range(12):
            engine.execute(query(n))
            seen.append(engine.kept)
        engine.execute("; ".join(query(n) for n in range(20, 40)))
        assert engine.kept == (seen[-1][0] + 1, 0)
        assert max(changes for _, changes in seen) < 10
        assert seen[-1][0] > 1
    assert len(reopened(tmp_path)) == 32
    assert len(Store.open(tmp_path, read_only=True).place.names("catalog")) <= 3


def test_a_change_that_fails_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, or a name taken, leaves the catalog as it was; the next change goes on from there."""
    with Declaring(tmp_path) as engine:
        engine.execute(f"{STREAM}; {query(0)}")
        with monkeypatch.context() as patch:
            patch.setattr(engine.runtime.store, "commit", _full)
            with pytest.raises(StateError, match="full"):
                engine.execute(query(1))
        with pytest.raises(BindingError, match="already exists"):
            engine.execute(f"{query(2)}; {query(0)}")
        engine.execute(query(3))
        assert engine.kept == (1, 1)
    assert reopened(tmp_path) == ["q0", "q3"]


def test_changes_made_at_once_are_all_kept(tmp_path: Path) -> None:
    """Callers that wait for the same tick to end do not undo one another."""
    with Declaring(tmp_path) as engine:
        engine.execute(STREAM)
        callers = [threading.Thread(target=engine.execute, args=(query(n),)) for n in range(4)]
        with engine.runtime.declared.busy:  # as a tick has it
            for caller in callers:
                caller.start()
            callers[0].join(0.3)
            assert callers[0].is_alive()
        for caller in callers:
            caller.join()
        assert set(engine.catalog.queries) == set(engine.runtime.declared.outlets) == {"q0", "q1", "q2", "q3"}
    assert set(reopened(tmp_path)) == {"q0", "q1", "q2", "q3"}


def _full(manifest: object) -> None:
    raise StateError("the disk is full")


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=12))
def test_changes_add_up(steps: list[tuple[bool, int]]) -> None:
    """Law: applying what lies between two catalogs to the first gives the second, through JSON and in order."""
    keeper = SavedCatalog(None, Settings())  # type: ignore[arg-type]
    catalog, places = Catalog(), {"technique": "auto", "next": 0, "families": {}, "queries": {}, "columns": Names()}
    content = first = keeper._whole(catalog, places)
    changes, begin = [], (catalog, places)
    for create, n in steps:
        name = f"q{n}"
        before = (catalog, places)
        if create and name not in catalog.queries:
            catalog = catalog.add(_plan(name))
            places = {**places, "next": places["next"] + 1, "queries": {**places["queries"], name: ["+1", n, n]}}
        elif not create and name in catalog.queries:
            catalog = catalog.drop("query", name)
            places = {**places, "queries": {q: s for q, s in places["queries"].items() if q != name}}
        else:
            places = {**places, "columns": _with_block(places["columns"], f"b{n}", create)}
        changes.append(json.loads(json.dumps(between(before, (catalog, places)))))
    for change in changes:
        content = applied(content, change)
    assert content == keeper._whole(catalog, places)
    assert applied(first, between(begin, (catalog, places))) == keeper._whole(catalog, places)


def _with_block(columns: Names[ColumnPlace], block: str, create: bool) -> Names[ColumnPlace]:
    """Members in columns: a block of three comes, one of it leaves, and with the last one the block."""
    there = columns.get(block)
    if there is None:
        rows = pa.table({"s": [1, 2, None]})
        members = MemberColumns(
            block, None, ConditionColumns(3, ()), InstanceNames(block, "q", rows), np.arange(3), 7, np.arange(3)
        )  # type: ignore[arg-type]
        return columns.put(block, ColumnPlace(members, "+1", NOBODY)) if create else columns
    left = there.without(np.array([2 * len(there.left) % 3]))
    return columns.put(block, left) if left.alive.any() else columns.without(block)


def _plan(name: str) -> object:
    from windrow import cql

    (stream,) = cql.parse(STREAM)
    declared = Catalog().add(cql.bind(stream, Catalog()).definition)  # type: ignore[union-attr]
    return cql.compile_select("SELECT SUM(v) AS s FROM s [RANGE 10 SLIDE 5]", declared, name)


@pytest.mark.parametrize("damage", ["cut", "byte", "version", "gone"])
def test_a_damaged_catalog_is_refused(damage: str, tmp_path: Path) -> None:
    """A whole catalog that was cut, changed, renamed or removed is refused with its name."""
    with Declaring(tmp_path) as engine:
        engine.execute(f"{STREAM}; {query(0)}")
        engine.execute(query(1))
    file = tmp_path / "catalog" / "00000001.json"
    data = file.read_bytes()
    match damage:
        case "cut":
            file.write_bytes(data[:-20])
        case "byte":
            file.write_bytes(data.replace(b"k > 0", b"k > 7"))
        case "version":
            with Store.open(str(tmp_path)) as store:
                store.write_catalog(2, store.read_catalog(1))
            (tmp_path / "catalog" / "00000002.json").rename(file)
        case "gone":
            file.unlink()
    with pytest.raises(StateError, match=r"00000001\.json"):
        Declaring(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "byte"])
def test_a_damaged_change_is_refused(damage: str, tmp_path: Path) -> None:
    """A change is part of its manifest: cut or altered, the manifest is refused, and no older catalog comes back."""
    with Declaring(tmp_path) as engine:
        engine.execute(f"{STREAM}; {query(0)}")
        engine.execute(query(1))
    newest = max((tmp_path / "manifests").glob("*.json"))
    data = newest.read_bytes()
    newest.write_bytes(data[:-20] if damage == "cut" else data.replace(b"k > 1", b"k > 7"))
    with pytest.raises(StateError, match="corrupt manifest"):
        Declaring(tmp_path)


def test_a_change_that_was_never_renamed_never_happened(tmp_path: Path) -> None:
    """A torn temporary of a manifest is no manifest."""
    with Declaring(tmp_path) as engine:
        engine.execute(f"{STREAM}; {query(0)}")
    newest = max((tmp_path / "manifests").glob("*.json"))
    (tmp_path / "manifests" / ".00000009.json.abc.tmp").write_bytes(newest.read_bytes()[:30])
    assert reopened(tmp_path) == ["q0"]


def _changes(path: str) -> None:
    """Create one query after another, saying so once each call has returned."""
    with Declaring(Path(path)) as engine:
        if not engine.catalog.streams:
            engine.execute(STREAM)
        keep.FOLD = 5
        for n in range(100):
            if f"q{n}" not in engine:
                engine.execute(query(n))
                print(f"q{n}", flush=True)


@pytest.mark.parametrize("point", CHANGES)
def test_a_crash_leaves_the_catalog_before_or_after(point: str, tmp_path: Path) -> None:
    """Killed at any point of a change: what had returned is there, at most the change under way besides."""
    done: list[str] = []
    for times in (1, 3, 6):
        environment = {**os.environ, "WINDROW_CRASH_AT": f"{point}:{times}", "PYTHONPATH": os.pathsep.join(sys.path)}
        ran = subprocess.run(
            [sys.executable, __file__, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=120
        )
        assert ran.returncode == -signal.SIGKILL, ran.stderr
        done += ran.stdout.split()
        store = Store.open(tmp_path, read_only=True)
        manifest = store.latest()
        held = [] if manifest is None else [q["name"] for q in in_force(store, manifest)["queries"]]
        assert held[: len(done)] == done and len(held) <= len(done) + 1
        if point == "after change" and times > 1:
            assert len(held) == len(done) + 1
        done = held
    assert reopened(tmp_path) == done


if __name__ == "__main__":
    _changes(sys.argv[1])
