"""`windrow doctor`: say what is installed, what is missing, and what to do about it."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version

from windrow.errors import WindrowError

EXTRAS = {
    "shell": ("windrow sql with completion and history", ("prompt_toolkit",)),
    "delta": ("streams from and answers to Delta tables", ("deltalake",)),
    "iceberg": ("streams from and answers to Iceberg tables", ("pyiceberg", "sqlalchemy")),
    "kafka": ("streams from Kafka", ("confluent_kafka",)),
    "postgres": ("tables from and answers to PostgreSQL", ("psycopg",)),
}
CORE = ("pyarrow", "duckdb", "numpy", "numba", "sqlglot", "rich", "fastapi", "uvicorn", "prometheus_client")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: well, missing (something optional) or wrong."""

    what: str
    state: str
    detail: str
    todo: str = ""


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit code: 1 if something that everything needs is wrong."""
    parser = argparse.ArgumentParser(prog="windrow doctor", description=__doc__, allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="for a program to read")
    parser.add_argument("--home", metavar="DIR", help="look at this home, too")
    options = parser.parse_args(argv)
    found = list(examine(options.home))
    if options.json:
        json.dump([asdict(f) for f in found], sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        _draw(found)
    return int(any(f.state == "wrong" for f in found))


def examine(home: str | None = None) -> Iterator[Finding]:
    """Everything that windrow may need, in order."""
    here = f"{platform.python_version()} at {sys.executable}"
    yield Finding("Python", "well" if sys.version_info >= (3, 11) else "wrong", here, "install Python 3.11 or newer")
    yield Finding("windrow", "well", _version("windrow") or "not installed; run from its sources")
    for name in CORE:
        yield _module(name, f"pip install {name}", "wrong")
    yield from _asked("Java, for runtime spark", _java, 'install Java 17 or newer, or use runtime="local"')
    yield _module("pyspark", "pip install pyspark", "missing")
    for extra, (purpose, modules) in EXTRAS.items():
        lacking = [m for m in modules if importlib.util.find_spec(m) is None]
        detail = f"{purpose}: {', '.join(f'{m} {_version(m)}' for m in modules)}"
        todo = f'pip install "windrow[{extra}]"'
        absent = Finding(f"extra {extra}", "missing", f"{purpose}: no {', '.join(lacking)}", todo)
        yield absent if lacking else Finding(f"extra {extra}", "well", detail)
    yield from _machine()
    if home is not None:
        yield from _asked(f"home {home}", lambda: _home(home), "see docs/operations.md")


def _module(name: str, todo: str, otherwise: str) -> Finding:
    if importlib.util.find_spec(name) is None:
        return Finding(name, otherwise, "not installed", todo)
    return Finding(name, "well", _version(name) or "")


def _version(module: str) -> str | None:
    for name in (module, module.replace("_", "-")):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def _asked(what: str, look: Callable[[], str], todo: str) -> Iterator[Finding]:
    """A look that raises a WindrowError when something is not there."""
    try:
        yield Finding(what, "well", look())
    except WindrowError as error:
        yield Finding(what, "missing", error.detail or error.primary, error.hint or todo)


def _java() -> str:
    from windrow.spark.session import check_java

    return f"Java {check_java()}"


def _machine() -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding("processor", "well", f"{cores} cores, {platform.machine()}")
    if hasattr(os, "sysconf"):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        state = "well" if memory >= 2 else "missing"
        yield Finding("memory", state, f"{memory:.1f} GiB", "Spark wants at least 2 GiB")
    place = tempfile.gettempdir()
    free = shutil.disk_usage(place).free / 2**30
    yield Finding("disk", "well" if free >= 1 else "wrong", f"{free:.1f} GiB free at {place}", "free some space")


def _home(home: str) -> str:
    from windrow.cli.state import _instant
    from windrow.store.store import Store

    manifest = Store.open(home, read_only=True).latest()
    return "empty" if manifest is None else f"tick {manifest.tick}, frontier {_instant(manifest.frontier)}"


def _draw(found: Sequence[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, show_header=False)
    for name in ("", "", ""):
        drawn.add_column(name)
    for f in found:
        colour = {"well": "green", "missing": "yellow", "wrong": "red"}[f.state]
        said = f.detail if f.state == "well" or not f.todo else f"{f.detail}; {f.todo}"
        drawn.add_row(Text(f.state, colour), Text(f.what), Text(said))
    Console().print(drawn)
