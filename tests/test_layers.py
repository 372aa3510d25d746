"""The layers of the code, checked on its imports.

`operators/` ships to executors, so it knows no SQL text, no Spark and no plan. sqlglot stays in `cql/`, pyspark in
`spark/`. The oracle is only worth something while it shares nothing with the engine it judges.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "windrow"
MODULES = sorted(SOURCE.rglob("*.py"))


def module_name(path: Path) -> str:
    """The dotted name of a file under src/."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    """Dotted names that a file imports anywhere: at its top, in functions, or for types only."""
    name = module_name(path)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def offenders(module: str, *, forbidden: tuple[str, ...], allowed: tuple[str, ...] = ()) -> list[str]:
    """`file: import` for every file under `module` that imports something forbidden and not allowed."""
    found = []
    for path in MODULES:
        if within(module_name(path), module):
            for name in imports(path):
                if any(within(name, f) for f in forbidden) and not any(within(name, a) for a in allowed):
                    found.append(f"{path.relative_to(SOURCE)}: {name}")
    return found


def within(name: str, module: str) -> bool:
    """Whether `name` is `module` or lies below it."""
    return name == module or name.startswith(module + ".")


def test_there_is_something_to_check() -> None:
    """The source tree is where this test looks."""
    assert any(within(module_name(p), "windrow.operators") for p in MODULES)


def test_operators_are_pure() -> None:
    """Operators import no SQL parser, no Spark, no plan, and no layer above them."""
    layers = ("plan", "cql", "optimize", "catalog", "local", "spark", "cli", "engine", "replay")
    above = [f"windrow.{layer}" for layer in layers]
    assert offenders("windrow.operators", forbidden=("sqlglot", "pyspark", *above)) == []


@pytest.mark.parametrize(("library", "home"), [("sqlglot", "cql/"), ("pyspark", "spark/")])
def test_library_stays_in_its_layer(library: str, home: str) -> None:
    """sqlglot is imported by cql/ alone, pyspark by spark/ alone (benchmarks drive Spark as users do)."""
    assert [o for o in offenders("windrow", forbidden=(library,)) if not o.startswith((home, "bench/"))] == []


def test_oracle_shares_nothing_with_the_engine() -> None:
    """The oracle imports nothing of windrow but the errors and its own package."""
    allowed = ("windrow.testing", "windrow.errors")
    for module in sorted({module_name(p) for p in MODULES if within(module_name(p), "windrow.testing")}):
        if "oracle" in module:
            assert offenders(module, forbidden=("windrow",), allowed=allowed) == []


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


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a child that sees this tree, installed or not."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
