"""What windrow withstands: simulated faults, killed processes, texts that nobody would write, hours of work.

    simulation  the whole driver in process on a disk that fails by a schedule: crashes at any call, power failures,
                torn and lost writes, a full and a slow disk, tasks run twice, messages in any order
    kills       drivers of the local runtime killed with SIGKILL at random moments, reading and writing files
    workers     workers of Spark killed in the middle of a tick (needs Java)
    executors   executors of a small cluster killed, then machines lost with all that runs on them (needs Java)
    fuzz        texts of CQL from a grammar and by mutation: each is answered, or refused by a WindrowError, within 10 s
    hardening   what the guards of texts and rows cost, by taking them out
    soak        drivers that are killed for so many minutes, on request (--soak 60)

In every part what is answered is compared with a run without faults, or with a replay. A run follows from its seed, and
what fails is shown as small as it fails. A part that is run alone takes the place of that part in the record; schedules
from another seed on (--first) come beside those that are there.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rich.progress import Progress, TaskID

from windrow_bench import fuzz, hardening, kills, lost_executors, simulation
from windrow_bench.fuzz_texts import text_of
from windrow_bench.harness import Ratio, Result, beside, commit, parser, progress, report, results_directory

Rows = list[Mapping[str, Any]]

SCHEDULES = "schedules of faults"


def fuzzed(options: argparse.Namespace) -> tuple[Rows, list[Ratio]]:
    """Texts, and what becomes of them."""
    texts = options.texts or (500 if options.quick else 100_000)
    counts, failed, slowest = {"answered": 0, "refused": 0}, dict[str, int](), 0.0
    with progress() as shown:
        task = shown.add_task("")
        found = fuzz.measured(options.seed, options.first, texts, options.processes)
        for done, (number, outcome) in enumerate(found, 1):
            if done % fuzz.CHUNK == 0:
                shown.update(task, description=f"{done:,} texts, {len(failed)} kinds of failure")
            slowest = max(slowest, outcome.seconds)
            if outcome.good:
                counts[outcome.kind] += 1
            else:
                failed.setdefault(re.sub(r"\d+", "0", outcome.kind), number)
    rows: Rows = [{"part": "fuzz", "what": f"texts {kind}", "number": n} for kind, n in counts.items()]
    rows.append({"part": "fuzz", "what": "slowest text, seconds of a processor", "number": slowest})
    for kind, number in failed.items():
        text = fuzz.least(text_of(options.seed, number))
        rows.append({"part": "fuzz", "what": f"failed: {kind}: {text!r}", "number": number})
    targets = [
        Ratio("fuzzed texts", texts, None if options.texts or options.quick else 100_000, least=True),
        Ratio("kinds of failure among fuzzed texts", len(failed), 0),
        Ratio("slowest fuzzed text, seconds of a processor", slowest, fuzz.SECONDS),
    ]
    return rows, targets


def simulated(options: argparse.Namespace) -> tuple[Rows, list[Ratio]]:
    """Schedules of faults, and which of them fail."""
    schedules = options.schedules or (48 if options.quick else 10_000)
    failed: list[simulation.Failure] = []
    with progress() as shown:
        task = shown.add_task("")
        for done, more in simulation.simulate(options.first, schedules, options.processes):
            failed += more
            shown.update(task, description=f"{done:,} schedules, {len(failed)} failed")
    what = SCHEDULES if not options.first else f"{SCHEDULES}, from {options.first:,} on"
    rows: Rows = [{"part": "simulation", "what": what, "number": schedules}]
    rows += [{"part": "simulation", "what": f"failed: {f.what}\n{f.schedule}", "number": f.seed} for f in failed]
    return rows, []


def _simulated(rows: Rows, asked: int | None) -> list[Ratio]:
    """Of all pieces that were run."""
    mine = [row for row in rows if row["part"] == "simulation"]
    done = sum(int(row["number"]) for row in mine if str(row["what"]).startswith(SCHEDULES))
    failed = sum(str(row["what"]).startswith("failed") for row in mine)
    found = [Ratio("schedules", done, asked, least=True), Ratio("schedules that fail", failed, 0)]
    return [replace(r, name=f"simulation: {r.name}") for r in found] if mine else []


def killed(options: argparse.Namespace) -> tuple[Rows, list[Ratio]]:
    """Drivers that are killed."""
    asked = options.kills or (5 if options.quick else 200)
    with progress() as shown:
        task = shown.add_task("")
        found = kills.killed_drivers(asked, options.seed, lambda text: shown.update(task, description=text))
    row = {"part": "kills", "what": "drivers killed, nothing lost, nothing twice", "number": found}
    return [row], [Ratio("drivers killed", found, asked, least=True)]


def worked(options: argparse.Namespace) -> tuple[Rows, list[Ratio]]:
    """Workers of Spark that are killed."""
    asked = options.workers or (2 if options.quick else 20)
    with progress() as shown:
        task = shown.add_task("")
        found = kills.killed_workers(asked, lambda text: shown.update(task, description=text))
    row = {"part": "workers", "what": "workers of Spark killed, nothing lost, nothing twice", "number": found}
    return [row], [Ratio("workers of Spark killed", found, asked, least=True)]


def executed(options: argparse.Namespace) -> tuple[Rows, list[Ratio]]:
    """Executors of Spark that are killed, and machines that are lost."""
    asked = {"executors": options.executors or (1 if options.quick else 20), "machines": 1 if options.quick else 3}
    rows: Rows = []
    with progress() as shown:
        task = shown.add_task("")
        for what, number in asked.items():
            said = partial(_said, shown, task, "")
            found = lost_executors.killed(what, number, options.seed, said)
            rows.append(
                {"part": "executors", "what": f"{what} lost, nothing else lost, nothing twice", "number": found}
            )
    return rows, [Ratio("executors of Spark killed", rows[0]["number"], asked["executors"], least=True)]


def hardened(options: argparse.Namespace) -> tuple[Rows, list[Ratio]]:
    """What hardening costs."""
    rows, rounds = (20_000, 1) if options.quick else (200_000, 9)
    with progress() as shown:
        task = shown.add_task("")
        found = hardening.measured(rows, rounds, options.seed, partial(_said, shown, task, ""))
    target = None if options.quick else 1.03
    return (
        [
            {
                "part": "hardening",
                "what": f"time of the processor, {name}; with guards twice; share within guards",
                "number": cost.ratio,
                "spread": cost.spread,
                "within": cost.within,
            }
            for name, cost in found.items()
        ],
        [
            Ratio(f"time with guards over time without, {name}", cost.ratio, None if name == "planning" else target)
            for name, cost in found.items()
        ],
    )


def soaked(options: argparse.Namespace) -> tuple[Rows, list[Ratio]]:
    """Drivers that are killed again and again, for minutes."""
    until, found, rounds = time.monotonic() + 60 * options.soak, 0, 0
    with progress() as shown:
        task = shown.add_task("")
        while time.monotonic() < until:
            rounds += 1
            said = partial(_said, shown, task, f"round {rounds}, {found:,} killed before: ")
            found += kills.killed_drivers(20, options.seed + rounds, said)
    what = f"drivers killed in {options.soak:g} minutes, {rounds} homes, nothing lost, nothing twice"
    return [{"part": "soak", "what": what, "number": found}], []


def _said(shown: Progress, task: TaskID, before: str, text: str) -> None:
    shown.update(task, description=before + text)


PARTS: Mapping[str, Callable[[argparse.Namespace], tuple[Rows, list[Ratio]]]] = {
    "simulation": simulated,
    "kills": killed,
    "workers": worked,
    "executors": executed,
    "fuzz": fuzzed,
    "hardening": hardened,
    "soak": soaked,
}


def main(argv: Sequence[str]) -> int:
    """Run the experiment."""
    options_of = parser("chaos", __doc__ or "")
    options_of.add_argument("--part", choices=tuple(PARTS), help="this part alone (default: all)")
    options_of.add_argument("--schedules", type=int, help="how many to simulate (default: 10,000; 48 when quick)")
    options_of.add_argument("--kills", type=int, help="drivers to kill (default: 200; 5 when quick)")
    options_of.add_argument("--workers", type=int, help="workers of Spark to kill (default: 20; 2 when quick)")
    options_of.add_argument("--executors", type=int, help="executors of Spark to kill (default: 20; 1 when quick)")
    options_of.add_argument("--texts", type=int, help="how many to fuzz (default: 100,000; 500 when quick)")
    options_of.add_argument("--first", type=int, default=0, help="first schedule or text (default: 0)")
    options_of.add_argument("--processes", type=int, default=1, help="at a time (default: 1)")
    options_of.add_argument("--soak", type=float, metavar="MINUTES", help="go on for so long (default: no soak)")
    options = options_of.parse_args(argv)
    chosen = [options.part] if options.part else [p for p in PARTS if p != "soak" or options.soak]
    if "soak" in chosen and not options.soak:
        options_of.error("--part soak needs --soak MINUTES")
    rows: Rows = []
    ratios: list[Ratio] = []
    measured = commit()  # what is loaded: a run is long, and files may change
    for name in chosen:
        more, targets = PARTS[name](options)
        rows += [{**row, "commit": measured} for row in more]
        ratios += [replace(target, name=f"{name}: {target.name}") for target in targets]
    directory = options.out or (None if options.quick else results_directory())
    rows, ratios = beside("chaos", directory, list(PARTS), chosen if not options.first else [], rows, ratios)
    others = [r for r in ratios if not r.name.startswith("simulation: ")]  # that one is of all runs together
    ratios = [*_simulated(rows, None if options.quick else 10_000), *others]
    parts = ", ".join(dict.fromkeys(str(row["part"]) for row in rows))
    return report(Result("chaos", __doc__ or "", options.seed, {"parts": parts}, rows, ratios), options)
