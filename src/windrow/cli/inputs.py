"""Arguments that several commands share: the script, and the data that its streams and tables are read from."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from windrow.errors import SourceError
from windrow.plan.strategies import Strategy

RUNTIMES = ("spark", "local")
SHARING = ("auto", "off", "slices", "fragments", "shards")


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Declare FILE, --stream, --table and --no-rule."""
    parser.add_argument("file", metavar="FILE.cql", help="CQL statements separated by ';' (- reads standard input)")
    kinds = "a csv, json, parquet or arrow file, or a directory of them"
    parser.add_argument("--stream", type=binding, action="append", default=[], metavar="NAME=PATH", help=kinds)
    parser.add_argument("--table", type=binding, action="append", default=[], metavar="NAME=PATH", help="likewise")
    parser.add_argument(
        "--strategy",
        choices=[*Strategy],
        default="upa",
        help="how results expire; never changes an answer (default: upa)",
    )
    parser.add_argument(
        "--sharing",
        choices=SHARING,
        default="auto",
        help="which aggregates are computed together; never changes an answer (default: auto)",
    )
    parser.add_argument(
        "--no-rule", action="append", default=[], metavar="NAME", help="leave out an optimizer rule; may be repeated"
    )


def binding(text: str) -> tuple[str, str]:
    """A name and the path of its data.

    >>> binding("bid=data/bids.csv")
    ('bid', 'data/bids.csv')
    """
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=PATH")
    return name, path


def instant(text: str) -> str | datetime:
    """An instant of the clock: a tick, as it is written (only the streams know if they count), or an ISO 8601 time.

    >>> instant("120"), instant("2024-01-01T00:02")
    ('120', datetime.datetime(2024, 1, 1, 0, 2))
    """
    with suppress(ValueError):
        return str(int(text))
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a tick (120) nor a time (2024-01-01T00:02:00)") from None


def positive(text: str) -> int:
    """A whole number above zero."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")
    return int(text)


def port(text: str) -> int:
    """A port to listen at; 0 is any that is free."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: a whole number up to 65535")
    return int(text)


def count(text: str) -> int:
    """A whole number, zero included."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def announce(runtime: str) -> None:
    """Tell a person who waits what takes the seconds before anything else happens."""
    if runtime == "spark" and sys.stderr.isatty():
        print("starting Spark ...", file=sys.stderr, flush=True)


def read_script(name: str) -> str:
    """The text of the script; `-` is standard input."""
    if name == "-":
        return sys.stdin.read()
    try:
        return Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(f"script {name} is not UTF-8 text", detail=str(error)) from None
    except OSError as error:
        raise SourceError(f"cannot read script {name}", detail=error.strerror) from None
