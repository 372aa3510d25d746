"""The wheel brings everything: its first query, its command line and its console run where the sources are not.

Unpacked beside the libraries of this environment, at once; and installed by pip into an environment that is empty.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.docs.test_examples import blocks

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
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from these sources."""
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    made = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(made)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (found,) = made.glob("windrow-*.whl")
    return found


@pytest.fixture(scope="module")
def elsewhere(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked where no sources are."""
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


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A new environment into which pip has installed the wheel with all that it depends on, at the tested versions."""
    place = tmp_path_factory.mktemp("empty")
    subprocess.run([sys.executable, "-m", "venv", place], check=True, env=BARE)
    pip = [place / "bin" / "pip", "--disable-pip-version-check", "--quiet"]
    try:
        look = [*pip, "--retries=1", "--timeout=10", "download", "--no-deps", "--dest", place, "rich"]
        if subprocess.run(look, capture_output=True, check=False, env=BARE).returncode:
            pytest.skip("pip reaches no package index")
        done = subprocess.run(
            [*pip, "install", "--no-compile", "-c", ROOT / "requirements.lock", wheel],
            capture_output=True, text=True, check=False, env=BARE,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        yield place
    finally:
        shutil.rmtree(place)  # more than a gigabyte


BARE = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")}


@pytest.mark.slow
def test_an_empty_environment(installed: Path, tmp_path: Path) -> None:
    """After `pip install windrow-*.whl` alone, the README's first query answers, doctor finds nothing wrong, and
    `windrow serve` serves a script: health to everyone, the rest by the token of the link that it prints."""
    first = next(b.text for b in blocks(ROOT / "README.md") if b.words == ("python", "runnable"))
    (tmp_path / "first.py").write_text(f"{first}\nassert {str(installed)!r} in windrow.__file__\nprint(len(rows))")
    python, windrow = installed / "bin" / "python", installed / "bin" / "windrow"

    def say(*words: object) -> str:
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=BARE, check=False)  # type: ignore[call-overload]
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    assert say(python, "-W", "error", "first.py") == "7\n"
    found = {f["what"]: f["state"] for f in json.loads(say(windrow, "doctor", "--json"))}
    assert "wrong" not in found.values() and found["extra kafka"] == "missing", found
    say(python, "-c", "import importlib.resources as r; assert r.files('windrow').joinpath('py.typed').is_file()")
    (tmp_path / "bids.cql").write_text(
        "CREATE STREAM bid (ts BIGINT, auction VARCHAR, price BIGINT) TIMESTAMP BY ts;"
        "CREATE QUERY top AS SELECT auction, MAX(price) AS price FROM bid [RANGE 5] GROUP BY auction"
    )
    serve = [windrow, "serve", "bids.cql", "--runtime", "local", "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(serve, cwd=tmp_path, text=True, env=BARE, **pipes) as process:  # type: ignore[call-overload]
        try:
            assert process.stdout is not None
            link = next(m for line in process.stdout if (m := re.search(r"(http://\S+)/\?token=(\S+)", line)))
            with httpx.Client(base_url=link[1], timeout=60) as client:
                assert client.get("/healthz").json() == {"ok": True}
                assert client.get("/api/status").status_code == 401
                assert "<script" in client.get("/").text and client.get("/static/console.js").status_code == 200
                status = client.get("/api/status", headers={"authorization": f"Bearer {link[2]}"}).json()
                assert status["running"] and status["streams"] and status["queries"]
        finally:
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")


def test_nothing_comes_from_elsewhere() -> None:
    """No file of the console asks another host for anything."""
    static = ROOT / "src" / "windrow" / "server" / "static"
    for path in [*static.glob("*.*"), *static.glob("pages/*.js")]:
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/", "")
        assert "http://" not in text and "https://" not in text, path
