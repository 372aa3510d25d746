"""Run every experiment that a page needs, as far as its record is not of this code, and write the page of verdicts.

    windrow bench report            run what is missing or stale, then write docs/reproduction.md
    windrow bench report --pages    only write docs/reproduction.md from the records that are there
    windrow bench report --check    say which records other code lies under; 1 when there are some
    windrow bench report --mark     the same, and say so on their pages

A record is stale when its commit is unknown to the repository, was not clean, or is followed by one that changes the
product or the experiment. Running resumes by itself: a record of the present code is not made again.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from windrow_bench.harness import results_directory
from windrow_bench.reproduction import (
    aggregation_joins,
    archive,
    frequent,
    isolation,
    joins,
    lazy_joins,
    patterns,
    schedule,
    sharing,
    star_joins,
)
from windrow_bench.reproduction.claims import Record, Source, records
from windrow_bench.reproduction.page import page

SOURCES: tuple[Source, ...] = (
    patterns.SOURCE, archive.SOURCE, lazy_joins.SOURCE, frequent.SOURCE, isolation.SOURCE, schedule.SOURCE,
    joins.SOURCE, sharing.SOURCE, aggregation_joins.SOURCE, star_joins.SOURCE,
)  # fmt: skip
EXPERIMENTS = (
    "analysis", "patterns", "archive", "joins", "frequent", "isolation", "schedule", "sharing", "aggjoin", "star",
)  # fmt: skip
"""Those that make a record in which a claim is looked for."""


MARK = "> **Older code.** What was measured has changed since this commit; `windrow bench report` measures it again."
"""Below the title of a page whose record is stale."""


def stale(record: Record, root: Path) -> str | None:
    """Why a record is not of the present code; None if it is."""
    if record.commit.endswith("+"):
        return "measured with changes that no commit has"
    if _git(root, "merge-base", "--is-ancestor", record.commit, "HEAD").returncode:
        return "its commit is not in the history"
    under = ("src/windrow", f"bench/windrow_bench/{record.name.split('-')[0]}*.py")
    count = _git(root, "rev-list", "--count", f"{record.commit}..HEAD", "--", *under).stdout.strip()
    return None if count == "0" else f"{count} commits changed what it ran"


def _git(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)


def check(kept: Mapping[str, Record], reasons: Mapping[str, str | None]) -> int:
    """Print every record and whether it is of the present code."""
    table = Table("record", "commit", "state")
    for name, reason in reasons.items():
        table.add_row(name, kept[name].commit, reason or "of this code")
    Console().print(table)
    return 1 if any(reasons.values()) else 0


def mark(directory: Path, reasons: Mapping[str, str | None]) -> list[Path]:
    """Say on the page of every stale record that it is one, and on no other; returns the pages that changed.

    The number of commits is left out: it would be stale itself with the next one.
    """
    changed = []
    for name, reason in reasons.items():
        page = directory / f"{name}.md"
        if not page.exists():
            continue
        before = page.read_text(encoding="utf-8")
        title, _, rest = before.partition("\n")
        if rest.startswith(f"\n{MARK}"):
            rest = rest.removeprefix("\n").partition("\n")[2]
        text = f"{title}\n\n{MARK}\n{rest}" if reason else f"{title}\n{rest}"
        if text != before:
            page.write_text(text, encoding="utf-8")
            changed.append(page)
    return changed


def write(directory: Path) -> Path:
    """The page of verdicts, beside the directory of records."""
    target = directory.parent / "reproduction.md"
    target.write_text(page(SOURCES, records(directory)), encoding="utf-8")
    return target


def main(argv: Sequence[str]) -> int:
    """Run, check or write."""
    accepts = argparse.ArgumentParser(
        prog="windrow bench report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    accepts.add_argument("--pages", action="store_true", help="write the page from the records that are there")
    accepts.add_argument("--check", action="store_true", help="say which records are stale, and run nothing")
    accepts.add_argument("--mark", action="store_true", help="as --check, and say so on the pages of stale records")
    accepts.add_argument("--only", nargs="+", choices=EXPERIMENTS, help="run these alone")
    accepts.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="on a busy machine, cpu")
    options = accepts.parse_args(list(argv))
    directory = results_directory()
    if directory is None:
        accepts.error("records are kept in a checkout: there is none here")
    root, failed = directory.parents[1], []
    if options.check or options.mark:
        kept = records(directory)
        reasons = {name: stale(record, root) for name, record in kept.items()}
        for page_ in mark(directory, reasons) if options.mark else ():
            print(page_)
        return check(kept, reasons)
    for name in [] if options.pages else options.only or EXPERIMENTS:
        record = records(directory).get(name)
        if record is not None and stale(record, root) is None:
            continue
        code = importlib.import_module(f"windrow_bench.{name}").main(["--clock", options.clock])
        failed += [name] if code else []
        write(directory)
    print(write(directory))
    if failed:
        print(f"targets missed by: {', '.join(failed)}")
    return 1 if failed else 0
