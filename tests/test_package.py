"""The wheel brings everything: its first query, its command line and its console run where the sources are not."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FIRST = """
import windrow, sys
assert "elsewhere" in windrow.__file__, windrow.__file__
answers = windrow.run(
    "CREATE QUERY top AS SELECT auction, MAX(price) AS price FROM bid [RANGE 5] GROUP BY auction",
    streams={"bid": {"ts": [1, 2, 4, 9], "auction": ["a", "b", "a", "a"], "price": [10, 20, 30, 5]}}, runtime="local")
print(answers["top"].num_rows)
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked where no sources are."""
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    made = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(made)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = made.glob("windrow-*.whl")
    place = tmp_path_factory.mktemp("elsewhere")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    return place


def run(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Python with the wheel and the libraries, and without the sources."""
    libraries = sysconfig.get_paths()["purelib"]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment["PYTHONPATH"] = f"{place}{os.pathsep}{libraries}"
    environment["NUMBA_DISABLE_JIT"] = "1"  # nothing is cached there, and compiling proves nothing here
    command = [sys.executable, "-S", *words]  # -S: no .pth file leads back to the sources
    return subprocess.run(command, cwd=place, capture_output=True, text=True, env=environment, check=False)


def test_the_first_query(elsewhere: Path) -> None:
    """The README's first query answers from the wheel."""
    done = run(elsewhere, "-c", FIRST)
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr


def test_the_console_is_in_it(elsewhere: Path) -> None:
    """The console's files are part of the wheel, with the licenses of what they bring, and the server finds them."""
    pytest.importorskip("fastapi")
    static = elsewhere / "windrow" / "server" / "static"
    assert {"index.html", "console.js", "console.css"} <= {p.name for p in static.iterdir()}
    assert {"ui.js", "chart.js", "editor.js", "LICENSES.txt"} <= {p.name for p in (static / "vendor").iterdir()}
    code = "from windrow.server.app import STATIC; print((STATIC / 'index.html').exists())"
    done = run(elsewhere, "-c", code)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    assert run(elsewhere, "-m", "windrow.cli", "serve", "--help").returncode == 0


def test_extras(elsewhere: Path) -> None:
    """The extras that the documentation names are in the wheel."""
    (metadata,) = elsewhere.glob("windrow-*.dist-info/METADATA")
    extras = {line.split()[1] for line in metadata.read_text().splitlines() if line.startswith("Provides-Extra:")}
    assert {"serve", "shell", "kafka", "postgres"} <= extras


def test_nothing_comes_from_elsewhere() -> None:
    """No file of the console asks another host for anything."""
    static = ROOT / "src" / "windrow" / "server" / "static"
    for path in [*static.glob("*.*"), *static.glob("pages/*.js")]:
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/", "")
        assert "http://" not in text and "https://" not in text, path
