"""The whole driver under faults from a seed; and that the simulation finds what is wrong when something is."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from unittest import mock

import pytest

from windrow.runtime.outlet import AttachedSink
from windrow.runtime.tick import Ticker
from windrow.store.store import Store
from windrow_bench import simulation
from windrow_bench.simulated_disk import Ended, Fault, SimulatedDisk
from windrow_bench.simulated_engine import simulated
from windrow_bench.simulation import Refused, Run, Schedule, failure_of, schedule_of, simulate, smallest

SCHEDULES = 1000
TRIED = range(3 * simulation.SCHEDULES_OF_ONE)


@pytest.fixture(scope="module")
def schedules() -> list[Schedule]:
    """Some schedules, whose runs without faults are known before anything is planted."""
    return [schedule_of(seed) for seed in TRIED]


def test_a_thousand_schedules_of_faults() -> None:
    """Answers are those of a run without faults, and of the definition."""
    found = [f for _, failed in simulate(0, SCHEDULES, processes=2) for f in failed]
    assert not found, "\n\n".join(f"{f.what}\n{f.schedule}" for f in found)


def test_a_seed_decides_everything(schedules: list[Schedule]) -> None:
    """The same schedule makes the same calls of the disk, in the same order."""
    for schedule in schedules[:4]:
        traces = []
        for _ in range(2):
            run = Run(schedule)
            with contextlib.suppress(Refused):
                run.outcome()
            traces.append([re.sub(r"([0-9a-f]{20})[0-9a-f]{12}", r"\1", line) for line in run.disk.trace])
        assert traces[0] == traces[1]


def forgotten_sync() -> object:
    """Files are not synced before the manifest that names them."""

    def create(self: SimulatedDisk, path: str, data: bytes, sync: bool) -> None:
        real(self, path, data, sync and "/runs/" not in path)

    real = SimulatedDisk.create
    return mock.patch.object(SimulatedDisk, "create", create)


def late_runs() -> object:
    """The manifest is committed before the runs that it names are written."""
    waiting = []

    def write(self, name, data, *, sync=True):  # type: ignore[no-untyped-def]
        if "runs/" in name:
            waiting.append((self, name, data))
        else:
            real(self, name, data, sync=sync)
            while name.startswith("manifests/") and waiting:
                place, late, bytes_ = waiting.pop()
                real(place, late, bytes_)

    from windrow.store.place import Place

    real = Place.write
    return mock.patch.object(Place, "write", write)


def doubled_answers() -> object:
    """A sink is handed a tick twice, under two numbers."""

    def add(self, tick, table, load, size):  # type: ignore[no-untyped-def]
        real(self, tick, table, load, size)
        if tick % 3 == 0:
            self.delivery.add(tick, size, lambda: self._write(tick + 1, table))

    real = AttachedSink.add
    return mock.patch.object(AttachedSink, "add", add)


def forgotten_offsets() -> object:
    """Where sources are is not part of the commit."""

    def commit(self, tick, offsets=None, *rest):  # type: ignore[no-untyped-def]
        real(self, tick, {}, *rest)
        self.manifest = real_replace(self.manifest, offsets={**self.manifest.offsets, **(offsets or {})})

    from dataclasses import replace as real_replace

    real = Ticker.commit
    return mock.patch.object(Ticker, "commit", commit)


def greedy_sweep() -> object:
    """Only what the newest manifest names is kept, and manifests go last."""

    def sweep(self, *, orphans=False):  # type: ignore[no-untyped-def]
        newest = self.latest()
        if newest is not None:
            for name in self.place.names("runs/answers", recursive=True):
                if f"{newest.tick:010d}-" not in name:
                    self.place.delete(name)
        return real(self, orphans=orphans)

    real = Store.sweep
    return mock.patch.object(Store, "sweep", sweep)


@pytest.mark.parametrize("bug", [forgotten_sync, late_runs, doubled_answers, forgotten_offsets, greedy_sweep])
def test_planted_bugs_are_found(bug, schedules: list[Schedule]) -> None:  # type: ignore[no-untyped-def]
    """A few dozen schedules are enough, and what is found is made smaller."""
    with bug():
        found = next((s for s in schedules if failure_of(s) is not None), None)
        assert found is not None
        if bug is forgotten_sync:
            least = smallest(found, lambda s: failure_of(s) is not None)
            assert [f.kind for f in least.faults] == ["power"]
            assert len(least.scenario.steps) <= len(found.scenario.steps)


def test_a_failure_is_shown_with_its_seed(schedules: list[Schedule]) -> None:
    """And with the steps and faults that are left."""
    shown = str(schedules[0])
    assert shown.startswith("seed 0: ") and "at call" in shown and "create q0" in shown


def written(disk: SimulatedDisk, sync: bool) -> None:
    """Put a file in place as a home does."""
    disk.make("/simulated/a", sync)
    disk.create("/simulated/a/.f.tmp", b"0123456789", sync)
    disk.rename("/simulated/a/.f.tmp", "/simulated/a/f")
    if sync:
        disk.sync("/simulated/a")


def ends(kind: str, sync: bool) -> Iterator[dict[str, bytes]]:
    """What is there after an end at each call of a write, and after it."""
    for at in range(12):
        for seed in range(20):
            disk = SimulatedDisk([Fault(at, kind, seed)])
            try:
                written(disk, sync)
                disk.names("/simulated", True)
                while True:
                    disk.exists("/simulated")
            except Ended:
                disk.restart()
            yield {n: bytes(disk.read(n)) for n in disk.names("/simulated", True)}


def test_what_is_synced_lasts_and_what_is_not_may_be_lost() -> None:
    """A file that is put in place with syncs is never there in part; without, it may be."""
    whole = [b"0123456789"]
    for kind in ("killed", "power"):
        assert all(f.get("/simulated/a/f", whole[0]) in whole for f in ends(kind, True))
    torn = {f.get("/simulated/a/f") for f in ends("power", False)}
    assert {None, b"", b"01234", b"0123456789"} <= torn


def test_a_directory_that_nobody_synced_is_synced_by_the_next_process() -> None:
    """One that was killed between making it and syncing it leaves that to whoever writes there next."""
    for seed in range(20):
        disk = SimulatedDisk([Fault(1, "killed")])
        with pytest.raises(Ended):
            written(disk, True)
        disk.restart()
        written(disk, True)
        disk.faults.append(Fault(0, "power", seed))
        with pytest.raises(Ended):
            disk.exists("/simulated")
        disk.restart()
        assert bytes(disk.read("/simulated/a/f")) == b"0123456789"


def test_runs_are_written_through_the_disk(schedules: list[Schedule]) -> None:
    """No other way leads to a home: its files are all seen by the simulation."""
    run = Run(Schedule(0, schedules[0].scenario))
    run.outcome()
    assert {"create", "rename", "sync", "remove", "read", "list", "lock"} <= {t.split()[0] for t in run.disk.trace}


FOUND = {
    "a worker that had been another engine's on the same home took its synopses for theirs": range(2016, 2032),
    "a manifest that a killed process had not synced was relied on, and a power failure took it back": [2120],
    "rows that last are told from before the first instant on": [4896],
}


@pytest.mark.parametrize("seeds", FOUND.values(), ids=FOUND)
def test_found_failures_stay_fixed(seeds: Sequence[int]) -> None:
    """Schedules that once failed, with what was behind them."""
    assert simulation.failures(seeds) == []


def test_what_a_home_is_opened_with_is_on_the_disk() -> None:
    """One that was killed between a manifest's rename and the sync of its folder: who opens the home sees to it."""
    for seed in range(20):
        disk = SimulatedDisk([])
        with simulated(disk, seed):
            home = "/simulated/home"
            with Store.open(home) as store:
                store.place.write("manifests/x", b"1")
                store.place.write("manifests/y", b"2", sync=False)
            Store.open(home).close()
            disk.faults.append(Fault(0, "power", seed))
            with pytest.raises(Ended):
                disk.exists(home)
            disk.restart()
            assert disk.exists(f"{home}/manifests/y")
