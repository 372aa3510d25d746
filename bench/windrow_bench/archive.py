"""The doubly partitioned index on disk (thesis 4.4): what updates, probes and scans open, read and write.

Records of 1,000 bytes with one of 100 keys and uniform lifetimes come at one per time unit; 36 updates are one window.
An index is filled for one window; then each update is followed by a probe of a random key and a scan, and averages
count. Techniques with as many sub-indices are updated in turns. Times are with a warm page cache, so the honest figures
are files opened and bytes read and written. The wave indices of the thesis are layouts with one part on one side
(`archive/layout.py`). NoRebuild and D-ins drop ended rows block by block instead of editing buckets in place: they read
no old rows unless a chain of files has grown too long, so among them it is the number of sub-indices opened that tells
double partitioning from the wave.

The thesis's windows have 500,000 and 5,000,000 records (500 MB and 5 GB). Here they, and so the time between updates,
are divided by `scale`; records, keys, updates per window and layouts are the thesis's. A key has as many times fewer
records, and a probe of NoRebuild, whose files have a stretch of each key, reads a block of every one however few of
them it wants: so the smaller a window, the closer are probe and scan. A part, or some sides of it, run alone
takes the place of those rows in the record, and each row has the commit that it was measured at.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.archive import ArchiveIndex, ArchiveLayout, ArchiveState, Traffic
from windrow.store.place import Place
from windrow_bench.harness import CLOCKS, Figure, Ratio, Result, commit, parser, progress, recorded, report, saved_in

UPDATES = 36
KEYS = 100
RECORD = 1000
SMALL, LARGE = 500_000, 5_000_000
"""Time units, and so records, of the thesis's two windows: 500 MB and 5 GB."""

MAIN = ("Rebuild", "NoRebuild", "R-ins", "D-ins")
SCHEMA = pa.schema([("key", pa.int64()), ("content", pa.binary())])
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Technique:
    """A way to keep the index; `keys`: without any, the files are no more than partitions."""

    name: str
    layout: ArchiveLayout
    part: str
    keys: tuple[str, ...] = ("key",)


def square(side: int, part: str, *, only: Sequence[str] = ()) -> list[Technique]:
    """The techniques with side x side sub-indices."""
    n = side * side
    found = [
        Technique("Rebuild", ArchiveLayout(side, side, True), part),
        Technique("NoRebuild", ArchiveLayout(side, side), part),
        Technique("Rebuild chr", ArchiveLayout(side, side, True, round_robin=False), part),
        Technique("NoRebuild chr", ArchiveLayout(side, side, round_robin=False), part),
        Technique("R-ins", ArchiveLayout(n, 1, True, round_robin=False), part),
        Technique("D-ins", ArchiveLayout(n, 1, round_robin=False), part),
    ]
    return [t for t in found if not only or t.name in only]


class Data:
    """Records slot by slot; `rates`: how many times the usual number come in a slot."""

    def __init__(self, units: int, seed: int, rates: Sequence[float]) -> None:
        self.every = units // UPDATES
        self.lifetime = self.every * UPDATES
        self._rng = np.random.default_rng(seed)
        self._pool = pa.py_buffer(self._rng.bytes(32 << 20))
        self._rates = rates

    def slots(self) -> list[pa.Table]:
        """The records of every slot."""
        return [self._slot(i, rate) for i, rate in enumerate(self._rates)]

    def _slot(self, i: int, rate: float) -> pa.Table:
        count, width = int(self.every * rate), RECORD - 24
        ts = i * self.every + 1 + np.sort(self._rng.integers(0, self.every, count))
        begin = self._rng.integers(0, self._pool.size - width, count)  # contents that nothing compresses
        content = np.frombuffer(self._pool, np.uint8)[begin[:, None] + np.arange(width)[None, :]]
        offsets = pa.py_buffer(np.arange(0, (count + 1) * width, width, dtype=np.int32))
        return pa.table(
            {
                "key": self._rng.integers(0, KEYS, count),
                "content": pa.Array.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(content.ravel())]),
                "_ts": ts,
                "_exp": ts + self._rng.integers(1, self.lifetime + 1, count),
            }
        )


class Trial:
    """One technique over one stream of updates, in a directory of its own."""

    def __init__(self, technique: Technique, data: Data, folder: Path, seed: int, clock: str) -> None:
        self.technique, self.now, self.folder = technique, CLOCKS[clock], folder
        names = itertools.count()
        self.index = ArchiveIndex(
            Place.of(folder), SCHEMA, technique.keys, every=data.every, lifetime=data.lifetime,
            name=lambda slot: f"{slot:06d}-{next(names)}.arrow", sync=False,
        )  # fmt: skip
        self.state = self.index.empty(technique.layout, 0)
        self._rng = np.random.default_rng(seed)
        self.sums: dict[str, float] = {}
        self.updates, self.most, self.least = 0, 0, 10**9

    def fill(self, slots: Sequence[pa.Table]) -> None:
        """Updates that do not count."""
        for slot in slots:
            self.state = self.index.update(self.state, slot).state
            self._sweep(self.state)

    def measure(self, slot: pa.Table) -> None:
        """An update that counts, with a probe and a scan."""
        self.index.shelf.forget()
        begin = self.now()
        done = self.index.update(self.state, slot)
        self._count("update", done.traffic, self.now() - begin)
        self.state = done.state
        self.updates += 1
        opened = len(done.opened[0])
        self.most, self.least = max(self.most, opened), min(self.least, opened)
        self._sweep(self.state)
        self._ask("probe", int(self._rng.integers(KEYS)) if self.technique.keys else None)
        self._ask("scan", None)

    def _ask(self, what: str, key: int | None) -> None:
        self.index.shelf.forget()  # every question begins with nothing in memory
        traffic, begin = Traffic(), self.now()
        if key is None:
            self.index.scan(self.state, traffic=traffic)
        else:
            self.index.probe(self.state, key, traffic=traffic)
        self._count(what, traffic, self.now() - begin)

    def _count(self, what: str, traffic: Traffic, seconds: float) -> None:
        found = {"opened": traffic.opened, "read": traffic.read, "created": traffic.created, "written": traffic.written}
        for name, value in {**found, "seconds": seconds}.items():
            self.sums[f"{what} {name}"] = self.sums.get(f"{what} {name}", 0.0) + value

    def _sweep(self, state: ArchiveState) -> None:
        kept = state.files()
        for file in self.folder.iterdir():
            if file.name not in kept:
                file.unlink()

    def row(self) -> Row:
        """Averages over the updates that count."""
        mean = {name: value / self.updates for name, value in self.sums.items()}
        mega, space = 1e6, sum(f.stat().st_size for f in self.folder.iterdir())
        return {
            "part": self.technique.part,
            "technique": self.technique.name,
            "layout": f"{self.technique.layout.insertions}x{self.technique.layout.expirations}",
            "n": self.technique.layout.count,
            "subindices_opened": self.most,
            "always": self.most == self.least,
            "files_created": mean["update created"],
            "update_read_mb": mean["update read"] / mega,
            "update_written_mb": mean["update written"] / mega,
            "update_ms": 1000 * mean["update seconds"],
            "probe_files": mean["probe opened"],
            "probe_read_mb": mean["probe read"] / mega,
            "probe_ms": 1000 * mean["probe seconds"],
            "scan_read_mb": mean["scan read"] / mega,
            "scan_ms": 1000 * mean["scan seconds"],
            "space_mb": space / mega,
        }


def trials(techniques: Sequence[Technique], data: Data, counted: int, seed: int, clock: str) -> Iterator[Row]:
    """The techniques over the same records; those with as many sub-indices in turns, since they are compared."""
    slots = data.slots()
    for _, group in itertools.groupby(techniques, lambda t: t.layout.count):
        with tempfile.TemporaryDirectory(prefix="windrow-archive-") as folder:
            mine = [(t, Path(folder) / str(i)) for i, t in enumerate(group)]
            for _, path in mine:
                path.mkdir()
            found = [Trial(technique, data, path, seed, clock) for technique, path in mine]
            for trial in found:
                trial.fill(slots[:UPDATES])
            for slot in slots[UPDATES : UPDATES + counted]:
                for trial in found:
                    trial.measure(slot)
            yield from (trial.row() for trial in found)


def uneven(seed: int, count: int) -> list[float]:
    """Rates that vary by up to a factor of four, one on average."""
    rates = 2.0 ** np.random.default_rng(seed).uniform(-1, 1, count)
    return list(rates / rates.mean())


def ratios(rows: Sequence[Row]) -> list[Ratio]:
    """What the thesis, and the issue of an archive, promise; of the parts that are there."""
    at = {(r["part"], r["technique"], r["layout"]): r for r in rows}
    wrong = sum(not _expected(r) for r in rows)
    found = [Ratio("techniques that did not open exactly G + E - 1 sub-indices at every update", wrong, 0)]
    for part in ("small", "large"):
        if (part, "Rebuild", "4x4") in at:
            found += _of_sixteen(part, at)
    if ("sides", "Rebuild", "4x4") in at:
        four = _moved(at["sides", "Rebuild", "4x4"])
        for side in ("2x8", "8x2"):
            moved = _moved(at["sides", "Rebuild", side])
            found.append(Ratio(f"figure 4.4: bytes of an update, {side} / 4x4", moved / four, 1.1, True))
    return found


def _of_sixteen(part: str, at: Mapping[tuple[str, str, str], Row]) -> Iterator[Ratio]:
    said = f"{part}, n = 16:"
    double, wave = at[part, "Rebuild", "4x4"], at[part, "R-ins", "16x1"]
    lazy, lazy_wave = at[part, "NoRebuild", "4x4"], at[part, "D-ins", "16x1"]
    yield Ratio(f"{said} bytes of an update, R-ins / Rebuild", _moved(wave) / _moved(double), 2, True)
    yield Ratio(f"{said} time of an update, R-ins / Rebuild", wave["update_ms"] / double["update_ms"], 2, True)
    opened = lazy_wave["subindices_opened"] / lazy["subindices_opened"]
    yield Ratio(f"{said} sub-indices opened, D-ins / NoRebuild", opened, 2, True)
    yield Ratio(f"{said} bytes of an update, D-ins / NoRebuild", _moved(lazy_wave) / _moved(lazy), None)
    yield Ratio(f"{said} bytes of an update, Rebuild / NoRebuild", _moved(double) / _moved(lazy), None)
    for r in (double, lazy):
        what = f"{said} scan / probe with {r['technique']}"
        yield Ratio(f"{what}, bytes", r["scan_read_mb"] / r["probe_read_mb"], 20, True)
        yield Ratio(f"{what}, time", r["scan_ms"] / r["probe_ms"], 20, True)


def _moved(r: Row) -> float:
    return float(r["update_read_mb"] + r["update_written_mb"])


def _expected(r: Row) -> bool:
    g, e = map(int, r["layout"].split("x"))
    return bool(r["always"]) and r["subindices_opened"] == g + e - 1


def figures(rows: Sequence[Row]) -> list[Figure]:
    """By the number of sub-indices, as the thesis draws them."""
    made = []
    wanted = {"update": ("4.5", "4.9"), "probe": ("4.6", "4.10"), "scan": ("4.7", "4.11")}
    for what, numbers in wanted.items():
        for part, number in zip(("small", "large"), numbers, strict=True):
            chosen = [r for r in rows if r["part"] == part]
            lines = {
                t: [(r["n"], _megabytes(r, what)) for r in chosen if r["technique"] == t]
                for t in dict.fromkeys(r["technique"] for r in chosen)
            }
            caption = f"Bytes that {what}s of the {part} data move (figure {number} of the thesis draws times)"
            made += [Figure(number, caption, "sub-indices", "MB", lines, log=False)] if lines else []
    return made


def _megabytes(r: Row, what: str) -> float:
    return float(r[f"{what}_read_mb"] + (r["update_written_mb"] if what == "update" else 0.0))


PARTS = ("sides", "small", "uneven", "no directories", "large")


def wanted(part: str, options: argparse.Namespace, scale: int, sides: Sequence[int], counted: int) -> Iterator[Row]:
    """The rows of a part."""
    seed, small = options.seed, SMALL // scale
    even = [1.0] * (UPDATES + counted)
    match part:
        case "sides":
            layouts = [ArchiveLayout(*side, rebuild=True) for side in ((4, 4), (2, 8), (8, 2))]
            data, techniques = Data(small, seed, even), [Technique("Rebuild", layout, part) for layout in layouts]
        case "small":
            data, techniques = Data(small, seed, even), [t for side in sides for t in square(side, part)]
        case "uneven":
            data = Data(small, seed, uneven(seed, UPDATES + counted))
            techniques = [t for side in (2, 4) for t in square(side, part, only=MAIN)]
        case "no directories":
            layout = ArchiveLayout(4, 4, True)
            data, techniques = Data(small, seed, even), [Technique("partitions only", layout, part, keys=())]
        case _:
            counted //= 3
            data = Data(small if options.quick else LARGE // scale, seed, even[: UPDATES + counted])
            techniques = [t for side in sides if side > 1 for t in square(side, part, only=MAIN)]
    return trials(techniques, data, counted, seed, options.clock)


def beside(before: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """New rows in the place of those that a record has; a part keeps no rows of another scale, which do not compare."""
    known = {(r["part"], r["technique"], r["layout"]) for r in new}
    scales = {r["part"]: r["scale"] for r in new}
    kept = [
        r
        for r in ({"scale": 10, **r} for r in before)  # rows that do not say are of the default
        if (r["part"], r["technique"], r["layout"]) not in known and scales.get(r["part"], r["scale"]) == r["scale"]
    ]
    techniques = [t.name for t in square(2, "")]
    order = {name: i for i, name in enumerate([*techniques, "partitions only"])}
    return sorted([*kept, *new], key=lambda r: (PARTS.index(r["part"]), r["n"], order[r["technique"]]))


def main(argv: Sequence[str]) -> int:
    """Run the experiment."""
    accepts = parser("archive", __doc__ or "")
    accepts.add_argument("--part", choices=PARTS, help="this part alone (default: all)")
    accepts.add_argument("--scale", type=int, help="the thesis's sizes divided by this (default: 10)")
    accepts.add_argument("--sides", type=int, nargs="+", metavar="N", help="square roots of n (default: 1 2 3 4 5)")
    options = accepts.parse_args(list(argv))
    scale = options.scale or (500 if options.quick else 10)
    sides = options.sides or ((2, 4) if options.quick else (1, 2, 3, 4, 5))
    counted = 6 if options.quick else UPDATES
    measured = commit()  # what is loaded: a run is long, and files may change
    rows: list[Row] = []
    with progress() as shown:
        task = shown.add_task("", total=None)
        for part in [options.part] if options.part else PARTS:
            shown.update(task, description=part)
            for row in wanted(part, options, scale, sides, counted):
                rows.append({**row, "scale": scale, "clock": options.clock, "commit": measured})
                shown.update(task, description=f"{part}: {row['technique']} {row['layout']}")
    rows = beside(recorded("archive", saved_in(options))[0], rows)
    parameters = {
        "records": f"{RECORD} bytes, {KEYS} keys", "small window": f"{SMALL:,} time units in the thesis",
        "large window": f"{LARGE:,}", "here divided by": "scale, in the tables",
        "updates that count": f"{counted}, large {counted // 3}",
    }  # fmt: skip
    about = " ".join((__doc__ or "").split())
    result = Result("archive", about, options.seed, parameters, rows, ratios(rows), figures(rows))
    return report(result, options)
