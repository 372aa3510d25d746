"""`windrow bench`: run one experiment of `windrow.bench`; its own arguments follow the name."""

from __future__ import annotations

import argparse
import ast
import importlib
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    names = experiments()
    listed = "\n".join(f"  {name:<14}{summary}" for name, summary in names.items()) or "  (none in this version)"
    parser = argparse.ArgumentParser(
        prog="windrow bench",
        usage="windrow bench NAME [options of the experiment]",
        description=__doc__,
        epilog=f"experiments:\n{listed}\n\nwindrow bench NAME --help says more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", help=argparse.SUPPRESS)
    if not argv:
        parser.print_help()
        return 0
    name = parser.parse_args(argv[:1]).name
    if name not in names:
        parser.error(f"no experiment named {name!r}; there are: {', '.join(names) or 'none'}")
    code: int = importlib.import_module(f"windrow.bench.{name}").main(list(argv[1:]))
    return code


def experiments() -> dict[str, str]:
    """Name and first line of every experiment, read without importing any."""
    directory = Path(__file__).parents[1] / "bench"
    found = {}
    for path in sorted(directory.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        runs = any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body)
        if runs and not path.name.startswith("_"):
            found[path.stem] = (ast.get_docstring(tree) or "").split("\n", 1)[0]
    return found
