"""The doubly partitioned index on disk (thesis 4.4): what updates, probes and scans open, read and write.

Records of 1,000 bytes with one of 100 keys and uniform lifetimes come at one per time unit; 36 updates are one window.
An index is filled for one window; then each update is followed by a probe of a random key and a scan, and averages
count. Techniques with as many sub-indices are updated in turns. Times are with a warm page cache, so the honest figures
are files opened and bytes read and written. The wave indices of the thesis are layouts with one part on one side
(`archive/layout.py`). NoRebuild and D-ins drop ended rows block by block instead of editing buckets in place: they read
no old rows unless a chain of files has grown too long, so among them it is the number of sub-indices opened that tells
double partitioning from the wave.
"""

from __future__ import annotations

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
from windrow_bench.harness import CLOCKS, Figure, Ratio, Result, parser, progress, report

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
    """What the thesis, and the issue of an archive, promise."""
    found = []

    def row(part: str, technique: str, layout: str) -> Row:
        chosen = (part, technique, layout)
        return next(r for r in rows if (r["part"], r["technique"], r["layout"]) == chosen)

    def moved(r: Row) -> float:
        return float(r["update_read_mb"] + r["update_written_mb"])

    wrong = sum(not _expected(r) for r in rows)
    found.append(Ratio("techniques that did not open exactly G + E - 1 sub-indices at every update", wrong, 0))
    for part in dict.fromkeys(r["part"] for r in rows if r["part"] in ("small", "large")):
        double, wave = row(part, "Rebuild", "4x4"), row(part, "R-ins", "16x1")
        found.append(
            Ratio(f"{part}, n = 16: bytes of an update, R-ins / Rebuild", moved(wave) / moved(double), 2, True)
        )
        found.append(Ratio(f"{part}, n = 16: time of an update, R-ins / Rebuild", _time(wave, double), 2, True))
        lazy, wave = row(part, "NoRebuild", "4x4"), row(part, "D-ins", "16x1")
        opened = wave["subindices_opened"] / lazy["subindices_opened"]
        found.append(Ratio(f"{part}, n = 16: sub-indices opened, D-ins / NoRebuild", opened, 2, True))
        found.append(Ratio(f"{part}, n = 16: bytes of an update, D-ins / NoRebuild", moved(wave) / moved(lazy), None))
        found.append(
            Ratio(f"{part}, n = 16: bytes of an update, Rebuild / NoRebuild", moved(double) / moved(lazy), None)
        )
        for r in (double, lazy):
            what = f"{part}, n = 16: scan / probe with {r['technique']}"
            found.append(Ratio(f"{what}, bytes", r["scan_read_mb"] / r["probe_read_mb"], 20, True))
            found.append(Ratio(f"{what}, time", r["scan_ms"] / r["probe_ms"], 20, True))
    four, others = row("sides", "Rebuild", "4x4"), [row("sides", "Rebuild", x) for x in ("2x8", "8x2")]
    found.append(Ratio("figure 4.4: bytes of an update, 2x8 / 4x4", moved(others[0]) / moved(four), 1.1, True))
    found.append(Ratio("figure 4.4: bytes of an update, 8x2 / 4x4", moved(others[1]) / moved(four), 1.1, True))
    return found


def _expected(r: Row) -> bool:
    g, e = map(int, r["layout"].split("x"))
    return bool(r["always"]) and r["subindices_opened"] == g + e - 1


def _time(slow: Row, fast: Row) -> float:
    return float(slow["update_ms"] / fast["update_ms"])


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
            made.append(Figure(number, caption, "sub-indices", "MB", lines, log=False))
    return made


def _megabytes(r: Row, what: str) -> float:
    return float(r[f"{what}_read_mb"] + (r["update_written_mb"] if what == "update" else 0.0))


def main(argv: Sequence[str]) -> int:
    """Run the experiment."""
    accepts = parser("archive", __doc__ or "")
    accepts.add_argument("--scale", type=int, help="the thesis's sizes divided by this (default: 10)")
    accepts.add_argument("--sides", type=int, nargs="+", metavar="N", help="square roots of n (default: 1 2 3 4 5)")
    options = accepts.parse_args(list(argv))
    scale = options.scale or (500 if options.quick else 10)
    sides = options.sides or ((2, 4) if options.quick else (1, 2, 3, 4, 5))
    counted = 6 if options.quick else UPDATES
    even = [1.0] * (UPDATES + counted)
    small, seed = SMALL // scale, options.seed
    wanted: list[tuple[str, Data, list[Technique], int]] = [
        (
            "sides", Data(small, seed, even),
            [Technique("Rebuild", ArchiveLayout(*side, rebuild=True), "sides") for side in ((4, 4), (2, 8), (8, 2))],
            counted,
        ),
        ("small", Data(small, seed, even), [t for side in sides for t in square(side, "small")], counted),
        (
            "uneven", Data(small, seed, uneven(seed, UPDATES + counted)),
            [t for side in (2, 4) for t in square(side, "uneven", only=MAIN)],
            counted,
        ),
        (
            "no directories", Data(small, seed, even),
            [Technique("partitions only", ArchiveLayout(4, 4, True), "no directories", keys=())], counted,
        ),
        (
            "large", Data(small if options.quick else LARGE // scale, seed, [1.0] * (UPDATES + counted // 3)),
            [t for side in sides if side > 1 for t in square(side, "large", only=MAIN)],
            counted // 3,
        ),
    ]  # fmt: skip
    rows: list[Row] = []
    with progress() as shown:
        task = shown.add_task("", total=None)
        for part, data, techniques, updates in wanted:
            shown.update(task, description=part)
            for row in trials(techniques, data, updates, seed, options.clock):
                rows.append(row)
                shown.update(task, description=f"{part}: {row['technique']} {row['layout']}")
    parameters = {
        "records": f"{RECORD} bytes, {KEYS} keys", "small window": f"{small:,} time units (thesis: {SMALL:,})",
        "large window": f"{(small if options.quick else LARGE // scale):,} (thesis: {LARGE:,})",
        "updates that count": f"{counted}, large {counted // 3}", "clock": options.clock,
    }  # fmt: skip
    about = " ".join((__doc__ or "").split())
    result = Result("archive", about, seed, parameters, rows, ratios(rows), figures(rows))
    return report(result, options)
