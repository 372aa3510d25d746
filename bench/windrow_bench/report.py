"""Make every page of docs/results that is missing or stale, and the page of verdicts.

    windrow bench report            run what is missing or stale, then write docs/reproduction.md
    windrow bench report --list     say what makes every page, how long it took, and what state it is in
    windrow bench report --pages    only write docs/reproduction.md from the records that are there
    windrow bench report --mark     say on the pages of stale records that other code lies under them
    windrow bench report --check    1 if a page does not say what state it is in, or is not what its record makes

Every experiment runs in a process of its own, so that one that fails is said at the end and stops no other. A record of
the present code is not made again: what was cut short goes on where it was. Pages whose data are not given (--capture,
--switches) are left as they are.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from windrow_bench.harness import results_directory
from windrow_bench.pages import CAPTURE, OPTIONS, PAGES, SWITCHES, ResultsPage, stale
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
from windrow_bench.reproduction.claims import Source, records
from windrow_bench.reproduction.page import page

SOURCES: tuple[Source, ...] = (
    patterns.SOURCE, archive.SOURCE, lazy_joins.SOURCE, frequent.SOURCE, isolation.SOURCE, schedule.SOURCE,
    joins.SOURCE, sharing.SOURCE, aggregation_joins.SOURCE, star_joins.SOURCE,
)  # fmt: skip
MARK = "> **Older code.** What was measured has changed since this commit; `windrow bench report` measures it again."
"""Below the title of a page whose record is stale."""

RUN = """
import importlib, sys, traceback
try:
    code = importlib.import_module("windrow_bench." + sys.argv[1]).main(sys.argv[2:])
except Exception:
    traceback.print_exc()
    code = 70
sys.exit(code)
"""
"""An experiment in a process of its own: 1 is a target that is missed, 70 one that did not come to its end."""


def states(directory: Path, root: Path) -> dict[str, str | None]:
    """Why each record is not of the present code, by its name; None if it is."""
    return {path.stem: stale(path.stem, directory, root) for path in sorted(directory.glob("*.json"))}


def marked(text: str) -> bool:
    """Whether a page says that its record is stale."""
    return text.partition("\n")[2].startswith(f"\n{MARK}")


def mark(directory: Path, reasons: Mapping[str, str | None]) -> list[Path]:
    """Say on the page of every stale record that it is one, and on no other; returns the pages that changed.

    What has changed is left out: it would be stale itself with the next commit.
    """
    changed = []
    for name, reason in reasons.items():
        page_ = directory / f"{name}.md"
        if not page_.exists():
            continue
        before = page_.read_text(encoding="utf-8")
        title, _, rest = before.partition("\n")
        if marked(before):
            rest = rest.removeprefix("\n").partition("\n")[2]
        text = f"{title}\n\n{MARK}\n{rest}" if reason else f"{title}\n{rest}"
        if text != before:
            page_.write_text(text, encoding="utf-8")
            changed.append(page_)
    return changed


def check(directory: Path, reasons: Mapping[str, str | None]) -> list[str]:
    """What pages do not say of themselves: whether other code lies under them, or what their records make."""
    wrong = []
    for name, reason in reasons.items():
        page_ = directory / f"{name}.md"
        says = page_.exists() and marked(page_.read_text(encoding="utf-8"))
        if says != bool(reason):
            wrong.append(f"docs/results/{name}.md: {reason or 'it is of the present code'}")
    written = directory.parent / "reproduction.md"
    if written.read_text(encoding="utf-8") != page(SOURCES, records(directory)):
        wrong.append("docs/reproduction.md is not what the records make: `windrow bench report --pages`")
    return wrong


def write(directory: Path) -> Path:
    """The page of verdicts, beside the directory of records."""
    target = directory.parent / "reproduction.md"
    target.write_text(page(SOURCES, records(directory)), encoding="utf-8")
    return target


def listed(directory: Path, root: Path) -> Table:
    """What makes every page, how long it took when it was made last, and what state it is in."""
    table = Table("page", "made by windrow bench", "minutes", "state")
    for page_ in PAGES:
        path = directory / f"{page_.name}.json"
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        minutes = f"{known['seconds'] / 60:.1f}" if "seconds" in known else ""
        state = (stale(page_.name, directory, root) or "of this code") if path.exists() else "missing"
        table.add_row(page_.name, " ".join([page_.experiment, *page_.argv]), minutes, state)
    return table


def made(pages: Sequence[ResultsPage], data: Mapping[str, str], directory: Path, root: Path) -> dict[str, str]:
    """Make pages that are missing or stale, one after the other; returns what is to be said of those that are not."""
    said: dict[str, str] = {}
    for page_ in pages:
        missing = [OPTIONS[word] for word in page_.needs if word not in data]
        there = (directory / f"{page_.name}.json").exists()
        if there and stale(page_.name, directory, root) is None:
            continue
        if missing:
            said[page_.name] = f"needs {' '.join(missing)}"
            continue
        print(f"-- {page_.name}: windrow bench {' '.join([page_.experiment, *page_.argv])}", flush=True)
        words = [sys.executable, "-c", RUN, page_.experiment, *page_.given(data)]
        code = subprocess.run(words, cwd=root, check=False).returncode
        if code:
            said[page_.name] = "a target is missed" if code == 1 else f"did not come to its end (exit code {code})"
        mark(directory, states(directory, root))
        write(directory)
    return said


def main(argv: Sequence[str]) -> int:
    """Run, list, mark, check or write."""
    accepts = argparse.ArgumentParser(
        prog="windrow bench report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    accepts.add_argument("--list", action="store_true", help="say what makes every page, and its state")
    accepts.add_argument("--pages", action="store_true", help="write docs/reproduction.md from the records there are")
    accepts.add_argument("--mark", action="store_true", help="say on the pages of stale records that they are")
    accepts.add_argument("--check", action="store_true", help="1 if a page does not say what state it is in")
    accepts.add_argument("--only", nargs="+", metavar="PAGE", choices=[p.name for p in PAGES], help="these alone")
    accepts.add_argument("--capture", metavar="FILE", help="flows of a CTU-13 capture")
    accepts.add_argument("--switches", metavar="DIR", help="the directory of the flows of three switches")
    options = accepts.parse_args(list(argv))
    directory = results_directory()
    if directory is None:
        accepts.error("records are kept in a checkout: there is none here")
    root = directory.parents[1]
    if options.list:
        Console().print(listed(directory, root))
        return 0
    if options.mark:
        for path in mark(directory, states(directory, root)):
            print(path)
        return 0
    if options.check:
        wrong = check(directory, states(directory, root))
        print("\n".join([*wrong, "`make stale` marks pages"] if wrong else ["pages say what state they are in"]))
        return 1 if wrong else 0
    data = {CAPTURE: options.capture, SWITCHES: options.switches}
    given = {word: str(Path(value).resolve()) for word, value in data.items() if value}
    chosen = [p for p in PAGES if not options.pages and p.name in (options.only or [p.name])]
    said = made(chosen, given, directory, root)
    print(write(directory))
    for name, words in said.items():
        print(f"{name}: {words}")
    return 1 if said else 0
