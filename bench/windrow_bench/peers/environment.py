"""What peers need, made once and kept in the user's cache: a Python of its own for Flink, jars from Maven's registry.

PyFlink pins old versions of libraries that windrow also needs (pyarrow, numpy, py4j), so that the two cannot share one.
The environment counts as made when its mark is there: an install that failed or was stopped is made again.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from windrow.errors import RuntimeFailure

VERSION = "2.3.0"
PYTHONS = ((3, 11), (3, 12), (3, 10))  # that PyFlink's own dependencies support
MARK = "windrow-complete"
OVERRIDE = "WINDROW_FLINK_PYTHON"


def cache() -> Path:
    """Where windrow keeps what it can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "windrow"


def jars(
    name: str,
    artifacts: Sequence[tuple[str, str, str]],
    say: Callable[[str], None] = lambda _: None,
    *options: str,
    fetch: bool = True,
) -> Path | None:
    """The folder of some artifacts and what they need; fetched the first time, or None if that is not wanted."""
    place = cache() / name
    if not (place / MARK).exists():
        if not fetch:
            return None
        say(f"fetching {name} into {place}")
        shutil.rmtree(place, ignore_errors=True)
        for artifact in artifacts:
            _fetch(place, artifact, *options)
        (place / MARK).write_text(name, encoding="utf-8")
    return place


def _fetch(place: Path, artifact: tuple[str, str, str], *options: str) -> None:
    """By Ivy, which Spark brings along."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    (ivy,) = (Path(spec.origin).parent / "jars").glob("ivy-*.jar")
    with tempfile.TemporaryDirectory(prefix="windrow-ivy-") as scratch:
        named = f"{place}/[artifact]-[revision](-[classifier]).[ext]"
        words = ["-cache", scratch, "-dependency", *artifact, "-confs", "default", "-types", "jar", "bundle"]
        command = ["java", "-jar", str(ivy), *words, *options, "-retrieve", named]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not any(place.glob(f"{artifact[1]}-*.jar")):
        raise RuntimeFailure(
            f"{artifact[1]} {artifact[2]} could not be fetched",
            detail=(done.stderr or done.stdout).strip()[-300:],
            hint="Maven's registry must be reachable the first time",
        )


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
