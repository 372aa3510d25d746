"""`windrow bench`: run one experiment of `windrow_bench`; its own arguments follow the name."""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from windrow.errors import WindrowError


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    directory = package()
    if directory is None:
        raise WindrowError(
            "the experiments are not installed",
            hint="they are no part of the wheel: run `make setup` in a checkout, or `pip install ./bench` there",
        )
    names = experiments(directory)
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
    code: int = importlib.import_module(f"windrow_bench.{name}").main(list(argv[1:]))
    return code


def package() -> Path | None:
    """Where the experiments are: installed by `make setup`, or in the checkout that this windrow is run from."""
    spec = importlib.util.find_spec("windrow_bench")
    if spec is not None and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    beside = Path(__file__).parents[3] / "bench"
    if (beside / "windrow_bench").is_dir():
        sys.path.insert(0, str(beside))
        return beside / "windrow_bench"
    return None


def experiments(directory: Path) -> dict[str, str]:
    """Name and first line of every experiment, read without importing any."""
    found = {}
    for path in sorted(directory.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        runs = any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body)
        if runs and not path.name.startswith("_"):
            found[path.stem] = (ast.get_docstring(tree) or "").split("\n", 1)[0]
    return found
