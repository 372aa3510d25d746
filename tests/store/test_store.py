"""A home: created, locked, committed, swept, recovered, and refused when it is not what it should be."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from windrow import errors
from windrow.errors import StateError
from windrow.operators.state.run import Run
from windrow.store import runs as runs_module
from windrow.store.manifest import Manifest, encode
from windrow.store.store import Store


@pytest.fixture(autouse=True)
def _fresh_cache():
    runs_module.cache.clear()


def run(n):
    return Run(pa.table({"k": list(range(n))}))


def test_new_home_is_empty(tmp_path):
    """A new home has an identity and no manifest."""
    with Store.open(tmp_path / "home") as store:
        assert store.latest() is None
        assert len(store.identity) == 32


def test_commit_and_recover(tmp_path):
    """What was committed is there after opening again, runs too, under the same identity."""
    with Store.open(tmp_path) as store:
        identity = store.identity
        refs = store.runs.write(("s", 0), 0, [run(3)])
        store.commit(Manifest(0, 0, offsets={"bid": {"batch": 7}}, runs={("s", 0, "w", "rows"): refs}))
    runs_module.cache.clear()
    with Store.open(tmp_path) as store:
        latest = store.latest()
        assert store.identity == identity
        assert latest.offsets == {"bid": {"batch": 7}}
        assert store.runs.read(latest.runs["s", 0, "w", "rows"][0]).table["k"].to_pylist() == [0, 1, 2]


def test_crash_before_the_rename(tmp_path):
    """A manifest torn before its rename never happened: the one before it is the newest."""
    with Store.open(tmp_path) as store:
        store.commit(Manifest(0, 0))
    data = encode(Manifest(1, 1))
    for size in range(0, len(data) + 1, 17):
        (tmp_path / "manifests" / ".00000001.json.deadbeef.tmp").write_bytes(data[:size])
        with Store.open(tmp_path) as store:
            assert store.latest().version == 0
            assert store.sweep(orphans=True) == 1


def test_torn_newest_is_refused(tmp_path):
    """A newest manifest that lost bytes is refused at every length, never passed over."""
    with Store.open(tmp_path) as store:
        store.commit(Manifest(0, 0))
        store.commit(Manifest(1, 1))
    path = tmp_path / "manifests" / "00000001.json"
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(StateError, match=r"00000001\.json"):
            Store.open(tmp_path)
    path.write_bytes(data)
    Store.open(tmp_path).close()


def test_versions_have_no_gaps(tmp_path):
    """A manifest that does not follow the newest, or comes twice, is not committed."""
    with Store.open(tmp_path) as store:
        store.commit(Manifest(0, 0))
        for version in (0, 2):
            with pytest.raises(StateError, match=f"cannot commit manifest {version}"):
                store.commit(Manifest(version, 1))


def test_renamed_manifest_is_refused(tmp_path):
    """A manifest under another's name is refused."""
    with Store.open(tmp_path) as store:
        store.commit(Manifest(0, 0))
    os.rename(tmp_path / "manifests" / "00000000.json", tmp_path / "manifests" / "00000003.json")
    with pytest.raises(StateError, match="holds manifest 0"):
        Store.open(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (json.dumps({"magic": "windrow-home", "format": 99, "identity": "x"}), "newer version"),
        (json.dumps({"magic": "other"}), "corrupt file"),
        ("{", "corrupt file"),
        ("", "corrupt file"),
        ("[]", "corrupt file"),
    ],
)
def test_other_format_is_refused(tmp_path, content, message):
    """A home whose format is another's, or unreadable, is refused and left alone."""
    (tmp_path / "format.json").write_text(content)
    with pytest.raises(StateError, match=message):
        Store.open(tmp_path)
    assert (tmp_path / "format.json").read_text() == content
    assert os.listdir(tmp_path) == ["format.json"]


def test_someone_elses_directory_is_refused(tmp_path):
    """A directory of other files does not become a home."""
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(StateError, match="not a windrow home"):
        Store.open(tmp_path)
    assert os.listdir(tmp_path) == ["thesis.txt"]


def test_second_engine_is_refused(tmp_path):
    """A home that is open is refused with its holder, and is free once closed."""
    with Store.open(tmp_path), pytest.raises(StateError, match="in use by another engine") as caught:
        Store.open(tmp_path)
    assert f"process {os.getpid()}" in caught.value.detail
    Store.open(tmp_path).close()


def test_second_process_is_refused(tmp_path):
    """Another process cannot open a home in use; one killed leaves nothing stale."""
    script = (
        "import sys, time; from windrow.store.store import Store\n"
        f"store = Store.open({str(tmp_path)!r}); print('open', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(errors.__file__).parents[1])},
    )
    try:
        assert child.stdout.readline() == b"open\n"
        with pytest.raises(StateError, match=f"process {child.pid}|in use"):
            Store.open(tmp_path)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    assert (tmp_path / "lock").exists()
    Store.open(tmp_path).close()


def test_heartbeat_decides_without_kernel_locks():
    """Where there are no kernel locks, a holder of another machine is gone when it has been silent for a minute."""
    now = [1000.0]
    home = "mock:///shared/heartbeat"
    first = Store.open(home, clock=lambda: now[0])
    other = json.dumps({"uuid": "u", "host": "elsewhere", "pid": 1, "heartbeat": 1000.0}).encode()
    first.place.write("lock", other)
    with pytest.raises(StateError, match="process 1 on elsewhere"):
        Store.open(home, clock=lambda: now[0])
    now[0] += 61
    Store.open(home, clock=lambda: now[0]).close()


def test_engine_that_lost_its_home_cannot_commit():
    """An engine whose lock was taken over commits nothing."""
    store = Store.open("mock:///shared/lost")
    store.place.write("lock", json.dumps({"uuid": "other", "host": "h", "pid": 1, "heartbeat": 0}).encode())
    with pytest.raises(StateError, match="taken over"):
        store.commit(Manifest(0, 0))
    assert store.latest() is None


def test_sweep_deletes_what_expired(tmp_path):
    """Run files that only swept manifests name are deleted; the newest manifests and their files stay."""
    with Store.open(tmp_path, keep=1) as store:
        files = []
        for tick in range(5):
            refs = store.runs.write(("s", 0), tick, [run(tick + 1)])
            files.append(refs[0].path)
            store.commit(Manifest(tick, tick, runs={("s", 0, "w", "rows"): refs}))
        assert store.sweep() == 6
        assert sorted(store.place.names("runs", recursive=True)) == sorted(files[-2:])
        assert sorted(store.place.names("manifests")) == ["manifests/00000003.json", "manifests/00000004.json"]
        assert store.sweep() == 0


def test_sweep_keeps_what_is_still_named(tmp_path):
    """A run carried from manifest to manifest is never deleted."""
    with Store.open(tmp_path, keep=0) as store:
        refs = store.runs.write(("s", 0), 0, [run(1)])
        for tick in range(4):
            store.commit(Manifest(tick, tick, runs={("s", 0, "w", "rows"): refs}))
            store.sweep(orphans=True)
        assert list(store.place.names("runs", recursive=True)) == [refs[0].path]


def test_orphans_of_finished_ticks_go(tmp_path):
    """Files of failed attempts go once their tick is committed; those of the running tick stay."""
    with Store.open(tmp_path) as store:
        kept = store.runs.write(("s", 0), 5, [run(1)])
        store.runs.write(("s", 0), 5, [run(2)])
        running = store.runs.write(("s", 0), 6, [run(3)])
        store.commit(Manifest(0, 5, runs={("s", 0, "w", "rows"): kept}))
        assert store.sweep(orphans=True) == 1
        assert sorted(store.place.names("runs", recursive=True)) == sorted([kept[0].path, running[0].path])


def test_snapshot_keeps_its_runs(tmp_path):
    """A reader's snapshot stays readable while ticks go on and sweep."""
    with Store.open(tmp_path, keep=0) as store:
        refs = store.runs.write(("s", 0), 0, [run(1)])
        store.commit(Manifest(0, 0, runs={("s", 0, "w", "rows"): refs}))
        with store.snapshot() as manifest:
            store.commit(Manifest(1, 1))
            store.sweep(orphans=True)
            assert store.place.exists(next(manifest.refs()).path)
        store.sweep()
        assert not store.place.exists(refs[0].path)


def test_catalog_versions(tmp_path):
    """Catalogs are kept by version, the older ones go."""
    with Store.open(tmp_path, keep=1) as store:
        for version in range(4):
            store.write_catalog(version, {"queries": [version]})
        assert store.read_catalog(3) == {"queries": [3]}
        assert len(store.place.names("catalog")) == 2


def test_unwritable_home(tmp_path):
    """A home this user may not write is refused."""
    if os.geteuid() == 0:
        os.chmod(tmp_path, 0o755)
        os.seteuid(65534)
        try:
            with pytest.raises(StateError, match="permission denied"):
                Store.open(tmp_path / "home")
        finally:
            os.seteuid(0)
    else:
        os.chmod(tmp_path, 0o555)
        with pytest.raises(StateError, match="permission denied"):
            Store.open(tmp_path / "home")
        os.chmod(tmp_path, 0o755)


def test_home_under_a_file(tmp_path):
    """A home whose parent is a file is refused."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="cannot create"):
        Store.open(tmp_path / "file" / "home")


def test_full_disk(tmp_path):
    """A disk that fills mid-tick loses nothing: the home opens again at the last complete tick and goes on."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk needs root")
    try:
        home = disk / "home"
        with Store.open(home) as store:
            store.commit(Manifest(0, 0))
            with pytest.raises(StateError, match="disk is full") as caught:
                store.runs.write(("s", 0), 1, [run(100_000)])
            assert "same home" in caught.value.hint
            (disk / "filler").write_bytes(b"x" * 65536)
            with pytest.raises(StateError, match="disk is full"):
                for version in range(1, 1000):
                    store.commit(Manifest(version, version, budget={"pad": "x" * 3000}))
        last = store.latest().version
        os.unlink(disk / "filler")
        with Store.open(home) as store:
            assert store.latest().version == last
            assert not any(n.endswith(".tmp") for n in store.place.names("", recursive=True))
            store.commit(Manifest(last + 1, last + 1))
    finally:
        subprocess.run(["umount", str(disk)], check=True)
