"""The command line: `windrow run | explain | serve | sql | demo | state | doctor | bench`.

Each command is a module with `main(argv) -> exit code` that is imported when it is chosen, so help and usage errors
come at once. Exit codes: 0 done, 1 an error in the script, the data or the engine, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from windrow.errors import UnsupportedError, WindrowError

COMMANDS = {
    "run": "replay streams through a script and print every answer",
    "explain": "show the plan of every query: patterns, state and cost",
    "serve": "serve an engine: a console for people, an API for programs",
    "sql": "a shell: ask, declare, watch, here or on a server",
    "demo": "watch a live pipeline for a minute",
    "state": "show what an engine keeps in its home",
    "doctor": "say what is installed, what is missing, and what to do about it",
    "bench": "run an experiment",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    traceback = "--traceback" in given
    given = [a for a in given if a != "--traceback"]
    if not given:
        _parser().print_help(sys.stderr)
        raise SystemExit(2)
    options = _parser().parse_args(given[:1])
    try:
        code = _dispatch(options.command, given[1:])
        sys.stdout.flush()  # here, where a reader that has gone is no fault
        return code
    except WindrowError as error:
        if traceback:
            raise
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (BrokenPipeError, SystemExit) as error:  # the reader (head, less) has seen enough; rich exits then
        if not isinstance(error if isinstance(error, BrokenPipeError) else error.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if traceback:
            raise
        print(f"error: internal: {type(error).__name__}: {error}", file=sys.stderr)
        print("hint: this is a fault in windrow, not in your query; --traceback shows where", file=sys.stderr)
        return 1


def _dispatch(command: str, argv: list[str]) -> int:
    name = f"windrow.cli.{command}"
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise UnsupportedError(f"windrow {command} is not part of this version") from None
    code: int = module.main(argv)
    return code


def _parser() -> argparse.ArgumentParser:
    commands = "\n".join(f"  {name:<10}{summary}" for name, summary in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="windrow",
        usage="windrow COMMAND ...",
        description="Continuous queries over data streams.",
        epilog=f"commands:\n{commands}\n\nwindrow COMMAND --help says more; --traceback shows where an error is from.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help=argparse.SUPPRESS)
    parser.add_argument("--version", action="version", version=f"windrow {_version()}")
    return parser


def _version() -> str:
    try:
        return version("windrow")
    except PackageNotFoundError:
        return "(not installed)"
