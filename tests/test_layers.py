"""What imports cost: `import windrow` and `windrow --help` load nothing heavy; and a class name is one class.

The layers themselves are contracts for import-linter (`pyproject.toml`), which `make check` runs: that they can be
broken, from any package, is tested here.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "windrow"


def test_import_is_light() -> None:
    """`import windrow` loads none of the heavy libraries."""
    heavy = ["pyspark", "duckdb", "numba", "sqlglot", "pandas", "polars", "matplotlib"]
    done = run_python(f"import sys, windrow; print(*[m for m in {heavy} if m in sys.modules])")
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_help_is_light() -> None:
    """`windrow --help` loads none of the heavy libraries."""
    heavy = ["pyspark", "duckdb", "numba", "sqlglot", "pandas", "polars", "matplotlib", "rich.table"]
    done = run_python(
        "import sys\nfrom windrow.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
        f"print(*[m for m in {heavy} if m in sys.modules], file=sys.stderr)"
    )
    assert (done.returncode, done.stderr.strip()) == (0, "")
    assert "usage: windrow" in done.stdout


def test_a_class_name_is_one_class() -> None:
    """Whoever looks for a class finds one."""
    trees = (ast.parse(p.read_text(encoding="utf-8")) for p in SOURCE.rglob("*.py"))
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []


PLANTED = {
    "store/lock.py": "from windrow.plan import cost",
    "testing/bags.py": "from windrow import errors",
    "errors.py": "import sqlglot",
    "archive/keys.py": "from pyspark.sql import SparkSession",
    "server/faults.py": "from windrow.testing import oracle",
    "cli/demo.py": "from windrow_bench import drive",
}


def test_the_contracts_forget_no_package(tmp_path: Path) -> None:
    """An import that should not be breaks a contract, lazily too, whichever package it is in."""
    shutil.copytree(SOURCE, tmp_path / "src" / "windrow", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(SOURCE.parents[1] / "pyproject.toml", tmp_path)
    for place, line in PLANTED.items():
        with (tmp_path / "src" / "windrow" / place).open("a", encoding="utf-8") as file:
            file.write(f"\n\ndef lazily() -> None:\n    {line}\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "0 kept, 5 broken" in done.stdout, done.stdout
    for place, line in PLANTED.items():
        importer = "windrow." + place.removesuffix(".py").replace("/", ".")
        assert re.search(rf"{importer} -> {re.escape(line.split()[1].partition('.')[0])}", done.stdout), place


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a child that sees this tree, installed or not."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
