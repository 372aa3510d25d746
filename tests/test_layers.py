"""What imports cost: `import windrow` and `windrow --help` load nothing heavy; and a class name is one class.

The layers themselves are contracts for import-linter (`pyproject.toml`), which `make check` runs.
"""

from __future__ import annotations

import ast
import os
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


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a child that sees this tree, installed or not."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
