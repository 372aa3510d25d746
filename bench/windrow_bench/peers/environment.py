"""A Python environment of its own for Flink, made once and kept in the user's cache.

PyFlink pins old versions of libraries that windrow also needs (pyarrow, numpy, py4j), so that the two cannot share one.
The environment counts as made when its mark is there: an install that failed or was stopped is made again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from windrow.errors import RuntimeFailure

VERSION = "2.3.0"
PYTHONS = ((3, 11), (3, 12), (3, 10))  # that PyFlink's own dependencies support
MARK = "windrow-complete"
OVERRIDE = "WINDROW_FLINK_PYTHON"


def cache() -> Path:
    """Where windrow keeps what it can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "windrow"


def interpreter(say: Callable[[str], None] = lambda _: None) -> Path:
    """The interpreter that can import pyflink; makes its environment the first time (minutes, some 600 MB)."""
    given = os.environ.get(OVERRIDE)
    if given:
        if not Path(given).exists():
            raise RuntimeFailure(
                f"{OVERRIDE} names no file", detail=given, hint="unset it to let windrow make an environment"
            )
        return Path(given)
    place = cache() / f"flink-{VERSION}"
    python = place / "bin" / "python"
    if not (place / MARK).exists():
        say(f"installing apache-flink {VERSION} into {place}")
        _make(place)
    return python


def _make(place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    _run("no environment for Flink could be made", [_base(), "-m", "venv", "--clear", str(place)])
    python = str(place / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--quiet"]
    # The sources of some of PyFlink's dependencies still build with an older setuptools only.
    _run(f"apache-flink {VERSION} could not be installed", [*pip, "setuptools<81", "wheel"])
    _run(f"apache-flink {VERSION} could not be installed", [*pip, f"apache-flink=={VERSION}"])
    _run(f"apache-flink {VERSION} was installed but does not load", [python, "-c", "import pyflink.table"])
    (place / MARK).write_text(VERSION, encoding="utf-8")


def _base() -> str:
    """A Python of a version that PyFlink supports: this one, or one on PATH."""
    if sys.version_info[:2] in PYTHONS:
        return sys.executable
    for major, minor in PYTHONS:
        found = shutil.which(f"python{major}.{minor}")
        if found:
            return found
    wanted = ", ".join(f"{a}.{b}" for a, b in sorted(PYTHONS))
    raise RuntimeFailure(
        f"Flink needs a Python of version {wanted}",
        detail=f"this is {sys.version.split()[0]} and no other is on PATH",
        hint=f"install one, or set {OVERRIDE} to an interpreter that can import pyflink",
    )


def _run(primary: str, command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean())
    except OSError as error:
        raise RuntimeFailure(primary, detail=str(error)) from error
    if done.returncode:
        said = [
            line
            for line in (done.stderr or done.stdout).splitlines()
            if line.strip() and not line.startswith("WARNING")
        ]
        errors = [line for line in said if line.lower().startswith("error")] or said[-3:]
        raise RuntimeFailure(
            primary,
            detail="; ".join(errors[:3]) or f"exit code {done.returncode}",
            hint=f"pip needs the package index, or set {OVERRIDE} to an interpreter that can import pyflink",
        )


def clean() -> dict[str, str]:
    """The environment variables for another interpreter: ours would find our packages."""
    return {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "FLINK_HOME")}
