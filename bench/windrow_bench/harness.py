"""What every experiment shares: its options, its result as one document, and how that is shown.

A result says what was run, on which machine, from which commit and seed, and holds rows (one per measured point) and
ratios (one per target). Only ratios are compared with anything: times depend on the machine, and two sides of a ratio
are measured in one run, in turns, each at its best of several repetitions.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

LIBRARIES = ("windrow", "duckdb", "numba", "numpy", "pyarrow")


@dataclass(frozen=True)
class Ratio:
    """A measured ratio and the target it should meet, if there is one; `least`: the target is a lower bound."""

    name: str
    value: float
    target: float | None
    least: bool = False

    @property
    def met(self) -> bool:
        if self.target is None:
            return True
        return self.value >= self.target if self.least else self.value <= self.target


@dataclass(frozen=True)
class Figure:
    """A plot: a line per label through (x, y) points."""

    name: str
    caption: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    log: bool = True


@dataclass(frozen=True)
class Result:
    """What an experiment found."""

    experiment: str
    about: str
    seed: int
    parameters: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    ratios: Sequence[Ratio]
    figures: Sequence[Figure] = field(default=())

    def document(self) -> dict[str, Any]:
        """The result for a program to read."""
        return {
            "experiment": self.experiment,
            "machine": machine(),
            "commit": commit(),
            "seed": self.seed,
            "parameters": dict(self.parameters),
            "rows": [dict(r) for r in self.rows],
            "ratios": [{"name": r.name, "value": r.value, "target": _target(r), "met": r.met} for r in self.ratios],
        }


def _target(ratio: Ratio) -> str:
    if ratio.target is None:
        return "-"
    return f"{'>=' if ratio.least else '<='} {ratio.target:g}"


# -- options ---------------------------------------------------------------------------------------------------------


class _Noting(argparse.ArgumentParser):
    """A parser that notes in what it returns what it was given, and when."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        words = list(sys.argv[1:] if args is None else args)
        found, rest = super().parse_known_args(words, namespace)
        found.made_by, found.begun = [self.prog, *words], time.monotonic()
        return found, rest


def parser(name: str, about: str) -> argparse.ArgumentParser:
    """The options that every experiment has."""
    made = _Noting(
        prog=f"windrow bench {name}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--quick", action="store_true", help="small sizes: a look in seconds, not a result")
    made.add_argument("--seed", type=int, default=1, help="of all generated data (default: 1)")
    made.add_argument("--repeat", type=int, default=3, help="repetitions, of which the best counts (default: 3)")
    made.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="on a busy machine, cpu (default: wall)")
    made.add_argument("--json", metavar="FILE", help="write the result as JSON; - for standard output")
    made.add_argument("--out", type=Path, metavar="DIR", help="save JSON, page and plots here (default: docs/results)")
    return made


def results_directory() -> Path | None:
    """Where results are kept in a checkout; None in an installed package, or for quick looks."""
    root = Path(__file__).parents[2]
    return root / "docs" / "results" if (root / "pyproject.toml").exists() else None


def saved_in(options: argparse.Namespace) -> Path | None:
    """Where a result with these options is saved, if anywhere."""
    chosen: Path | None = options.out
    return chosen or (None if options.quick else results_directory())


def recorded(experiment: str, directory: Path | None) -> tuple[list[dict[str, Any]], list[Ratio]]:
    """What is in the record that a piece of an experiment is put into; each row has the commit that it was measured at.

    A piece that is run alone takes the place of its rows there and leaves the others as they are.
    """
    known = None if directory is None else directory / f"{experiment}.json"
    if known is None or not known.exists():
        return [], []
    before = json.loads(known.read_text(encoding="utf-8"))
    rows = [{"commit": before["commit"], **row} for row in before["rows"]]
    return rows, [_ratio(r) for r in before["ratios"]]


def _ratio(plain: Mapping[str, Any]) -> Ratio:
    bound, _, target = (plain["target"] or "").partition(" ")
    return Ratio(plain["name"], plain["value"], float(target) if target else None, least=bound == ">=")


# -- measuring -------------------------------------------------------------------------------------------------------


def _children_time() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


CLOCKS: Mapping[str, Callable[[], float]] = {
    "wall": time.perf_counter,
    "cpu": time.process_time,
    "children": _children_time,
}
"""Time on the wall, or time that this process, or those it started, had a processor: that a busy machine can repeat."""


def best_of(repeat: int, sides: Mapping[str, Callable[[], object]], clock: str = "wall") -> dict[str, float]:
    """The least time in seconds of each side; the sides take turns, so that a busy moment meets all of them."""
    best, now = dict.fromkeys(sides, float("inf")), CLOCKS[clock]
    for _ in range(max(1, repeat)):
        for name, run in sides.items():
            begin = now()
            run()
            best[name] = min(best[name], now() - begin)
    return best


def progress() -> Progress:
    """A line on the terminal that says what is being measured."""
    parts = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    return Progress(*parts, console=Console(stderr=True), transient=True)


def machine() -> dict[str, Any]:
    """What the figures depend on: processor, memory, system, Python and libraries; nothing that names the host."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "os": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "libraries": {name: _version(name) for name in LIBRARIES},
    }


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def commit(here: Path = Path(__file__).parent) -> str | None:
    """The commit that was measured, with `+` when its product or experiments differ; None outside a repository."""
    try:
        head = _git(here, "rev-parse", "--short=12", "HEAD")
        return head + ("+" if _git(here, "status", "--porcelain", "--", ":/src", ":/bench") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(where: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=where, capture_output=True, text=True, check=True)
    return done.stdout.strip()


# -- showing ---------------------------------------------------------------------------------------------------------


def report(result: Result, options: argparse.Namespace) -> int:
    """Print the tables, write what was asked for; 0 when every target is met, 1 otherwise."""
    document = result.document() | run_by(options)
    if options.json == "-":
        print(json.dumps(document, indent=1))
    else:
        console = Console()
        for rows in _alike(result.rows):
            console.print(_table(result.experiment, rows))
        if document["ratios"]:
            console.print(_table("targets", document["ratios"]))
        if options.json:
            Path(options.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    directory = saved_in(options)
    if directory is not None:
        save(result, document, directory)
    return 0 if all(r.met for r in result.ratios) else 1


def run_by(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of an experiment, files by their names alone, and the seconds since it began."""
    words = [Path(word).name if Path(word).is_absolute() else word for word in options.made_by]
    return {"made_by": " ".join(words), "seconds": round(time.monotonic() - options.begun, 1)}


def beside(
    experiment: str,
    directory: Path | None,
    parts: Sequence[str],
    chosen: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    ratios: Sequence[Ratio],
) -> tuple[list[Mapping[str, Any]], list[Ratio]]:
    """What was found, in the order of `parts`, beside what a record has of those that were not chosen.

    A row has its part and the commit that was measured; the name of a ratio begins with its part. Of a part that was
    not chosen, rows that say "what" give way to those that say the same. Rows without a part, of a record that an older
    form of the experiment left, are dropped.
    """
    before, targets = recorded(experiment, directory)
    now = {(r["part"], r.get("what")) for r in rows}
    kept = [p for p in parts if p not in chosen]
    others = [r for r in before if r.get("part") in kept and (r["part"], r.get("what")) not in now]
    older = [r for r in targets if r.name.partition(": ")[0] in kept]
    named = {r.name for r in ratios}
    return (
        sorted([*rows, *others], key=lambda r: parts.index(r["part"])),
        sorted(
            [*ratios, *(r for r in older if r.name not in named)],
            key=lambda r: parts.index(r.name.partition(": ")[0]),
        ),
    )


def save(result: Result, document: Mapping[str, Any], directory: Path) -> None:
    """Write NAME.json, NAME.md and a plot for each figure."""
    directory.mkdir(parents=True, exist_ok=True)
    stem = directory / result.experiment
    stem.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    drawn = [f for f in result.figures if _draw(f, directory / f"{result.experiment}-{f.name}.svg")]
    stem.with_suffix(".md").write_text(_page(result, document, drawn), encoding="utf-8")


def _alike(rows: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Rows in tables: a row goes with those of its part before it if one side has all the columns of the other.

    >>> [len(t) for t in _alike([{"a": 1}, {"a": 1, "b": 2}, {"a": 3}, {"c": 4}])]
    [3, 1]
    """
    tables: list[list[Mapping[str, Any]]] = []
    known: set[str] = set()
    for row in rows:
        fits = known <= row.keys() or row.keys() <= known
        if tables and fits and tables[-1][-1].get("part") == row.get("part"):
            tables[-1].append(row)
        else:
            tables, known = [*tables, [row]], set()
        known |= row.keys()
    return tables


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title=title)
    names = list(dict.fromkeys(n for row in rows for n in row))
    for name in names:
        table.add_column(name, justify="left" if any(isinstance(r.get(name), str) for r in rows) else "right")
    for row in rows:
        table.add_row(*(_shown(row.get(n)) for n in names))
    return table


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else "" if value is None else str(value)


def _page(result: Result, document: Mapping[str, Any], figures: Sequence[Figure]) -> str:
    host, parameters = document["machine"], ", ".join(f"{k} {_shown(v)}" for k, v in result.parameters.items())
    libraries = ", ".join(f"{k} {v}" for k, v in host["libraries"].items() if v)
    lines = [
        f"# {result.experiment}", "", result.about, "",
        f"Machine: {host['cpu']}, {host['cores']} cores, {host['memory_gb']} GB, {host['os']}, "
        f"Python {host['python']}, {libraries}.",
        f"Commit {document['commit'] or 'unknown'}, seed {result.seed}. Data: {parameters}.",
    ]  # fmt: skip
    lines += [f"Made by `{document['made_by']}` in {document['seconds'] / 60:.1f} minutes."]
    if document["ratios"]:
        lines += ["", "## Targets", "", *_markdown(document["ratios"])]
    lines += ["", "## Measured", ""]
    for rows in _alike(result.rows):
        lines += [*_markdown(rows), ""]
    for figure in figures:
        lines += [f"![{figure.caption}]({result.experiment}-{figure.name}.svg)", "", f"*{figure.caption}*", ""]
    return "\n".join(lines)


def _markdown(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    names = list(dict.fromkeys(n for row in rows for n in row))
    body = ["| " + " | ".join(_shown(row.get(n)) for n in names) + " |" for row in rows]
    return ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names), *body]


def _draw(figure: Figure, path: Path) -> bool:
    """Save a plot; False, with a word about it, when matplotlib is not there."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        print("no plots: pip install 'windrow[bench]' brings matplotlib", file=sys.stderr)
        return False
    matplotlib.use("svg")
    from matplotlib import pyplot

    with matplotlib.rc_context({"svg.hashsalt": figure.name, "svg.fonttype": "none"}):
        canvas, axes = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
        for label, points in figure.lines.items():
            axes.plot([x for x, _ in points], [y for _, y in points], marker="o", markersize=3, label=label)
        scale = "log" if figure.log else "linear"
        axes.set(xlabel=figure.x, ylabel=figure.y, xscale=scale, yscale=scale)
        axes.grid(True, which="major", alpha=0.3)
        axes.legend()
        canvas.savefig(path, metadata={"Date": None})
        pyplot.close(canvas)
    return True


__all__ = ["CLOCKS", "Figure", "Ratio", "Result", "beside", "best_of", "parser", "progress", "report"]
