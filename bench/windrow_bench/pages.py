"""The pages of docs/results: what makes each of them, word for word, and the code that lies under it.

A page is stale when a commit that one of its rows was measured at is unknown to the repository, was not clean, or has
another text in a file that the experiment imports, directly or through others. What a package runs when it is imported
does not count unless it is asked for by its own name.
"""

from __future__ import annotations

import ast
import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CAPTURE, SWITCHES = "{capture}", "{switches}"
"""In place of what has to be given: a CTU-13 capture, the directory of the flows of three switches."""
OPTIONS = {CAPTURE: "--capture FILE", SWITCHES: "--switches DIR"}


@dataclass(frozen=True)
class ResultsPage:
    """A page and the record beside it, and the experiment and its arguments that make both."""

    name: str
    experiment: str
    argv: tuple[str, ...] = ()

    @property
    def needs(self) -> list[str]:
        """The data that have to be given."""
        return [word for word in self.argv if word in OPTIONS]

    def given(self, data: Mapping[str, str]) -> list[str]:
        """The arguments with these data."""
        return [data.get(word, word) for word in self.argv]


CPU = ("--clock", "cpu")
KERNELS = ("--parts", "kernel", "counters", "throughput", "registration")
PAGES = (
    ResultsPage("analysis", "analysis"),
    ResultsPage("patterns", "patterns", CPU),
    ResultsPage("patterns-ctu13", "patterns", (*CPU, "--data", CAPTURE)),
    ResultsPage("archive", "archive", CPU),
    ResultsPage("joins", "joins", CPU),
    ResultsPage("joins-switches", "joins", (*CPU, "--data", SWITCHES)),
    ResultsPage("joins-spark", "joins", ("--part", "spark", "--peers")),
    ResultsPage("frequent-ctu13", "frequent", (*CPU, "--data", CAPTURE)),
    ResultsPage("isolation", "isolation"),
    ResultsPage("schedule", "schedule"),
    ResultsPage("sharing", "sharing", (*CPU, *KERNELS)),
    ResultsPage("sharing-ctu13", "sharing", (*CPU, "--parts", "kernel", "counters", "registration", "--data", CAPTURE)),
    ResultsPage("sharing-spark", "sharing", ("--parts", "spark")),
    ResultsPage("sharing-ctu13-spark", "sharing", ("--parts", "spark", "--data", CAPTURE)),
    ResultsPage("sharing-structured", "sharing", ("--parts", "spark", "--peers", "structured")),
    ResultsPage("sharing-flink", "sharing", ("--parts", "spark", "--peers", "flink")),
    ResultsPage(
        "sharing-esper", "sharing", ("--parts", "esper", "--rows", "200000", "--peer-queries", "16", "64", "256")
    ),
    ResultsPage("aggjoin", "aggjoin", CPU),
    ResultsPage("aggjoin-switches", "aggjoin", (*CPU, "--data", SWITCHES)),
    ResultsPage("star", "star", CPU),
    ResultsPage("overload", "star", ("--overload",)),
    ResultsPage("engine", "engine", (*CPU, "--repeat", "5")),
    ResultsPage("many", "many", CPU),
    ResultsPage("many-spark", "many", ("--runtime", "spark")),
    ResultsPage("ticks", "ticks"),
    ResultsPage("ingest", "ingest"),
    ResultsPage("latency", "latency"),
    ResultsPage("reading", "reading", CPU),
    ResultsPage("sql", "sql", (*CPU, "--repeat", "8")),
    ResultsPage("chaos", "chaos"),
)
"""In the order in which they are made: what the page of verdicts needs comes first."""


# -- the code under a page --------------------------------------------------------------------------------------------

ROOTS = {"windrow": "src/windrow", "windrow_bench": "bench/windrow_bench"}


def code_of(experiment: str, root: Path) -> list[str]:
    """The files that an experiment imports, from the root of the repository, itself among them."""
    found: set[Path] = set()
    waiting = [root / ROOTS["windrow_bench"] / f"{experiment}.py"]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imports(path, root)
    beside = {p for path in found if "peers" in path.parts for p in path.parent.glob("*.java")}
    return sorted(str(p.relative_to(root)) for p in found | beside)


@cache
def _imports(path: Path, root: Path) -> tuple[Path, ...]:
    """The files of this repository that one of them names in its imports, wherever they stand."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return tuple(p for name in names for p in _file(name, root))


def _file(name: str, root: Path) -> Iterator[Path]:
    """The file of a module, if it is one of ours."""
    package, *rest = name.split(".")
    if package not in ROOTS:
        return
    place = (root / ROOTS[package]).joinpath(*rest)
    for path in (place.with_suffix(".py"), place / "__init__.py"):
        if path.is_file():
            yield path


def stale(name: str, directory: Path, root: Path) -> str | None:
    """Why a record is not of the present code; None if it is."""
    record = json.loads((directory / f"{name}.json").read_text(encoding="utf-8"))
    commits = {str(r.get("commit") or record["commit"]) for r in record["rows"]} or {str(record["commit"])}
    page = next((p for p in PAGES if p.name == name), None)
    if page is None:
        return "nothing says how it is made"
    if any(c.endswith("+") for c in commits):
        return "measured with changes that no commit has"
    under, changed = code_of(page.experiment, root), set[str]()
    for commit in sorted(commits):
        if _git(root, "cat-file", "-e", f"{commit}^{{commit}}").returncode:
            return "its commit is not in the history"
        changed |= set(_git(root, "diff", "--name-only", commit, "HEAD", "--", *under).stdout.split())
    return f"{len(changed)} of the {len(under)} files under it have changed" if changed else None


def _git(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)


__all__ = ["CAPTURE", "OPTIONS", "PAGES", "SWITCHES", "ResultsPage", "code_of", "stale"]
