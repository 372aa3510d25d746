"""`windrow sql`: a shell for CQL, over an engine of its own or a server.

    windrow sql                          an engine in this process, empty
    windrow sql --home state/            ... with what a home keeps
    windrow sql --server URL             a server; the link that `windrow serve` printed will do
    windrow sql -c "SHOW QUERIES"        one script, no questions; also from standard input

A statement ends with `;`. SELECT is answered once, now; everything else is executed. Lines that begin with `\\` are for
the shell: `\\?` lists them. On a terminal there are completion, colours and history.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.cli.inputs import RUNTIMES, announce, count
from windrow.errors import WindrowError

if TYPE_CHECKING:
    import pyarrow as pa

    from windrow.cli.sessions import SqlSession

COMMANDS = {
    "\\?": "this list",
    "\\d": "what is declared; \\d NAME: its columns, and a query's plan",
    "\\watch": "\\watch QUERY: its answer as it changes, until Ctrl-C",
    "\\push": "\\push STREAM FILE: hand in the rows of a csv, json, parquet or Arrow file",
    "\\i": "\\i FILE: run a script",
    "\\status": "rates, tick time, lag, state",
    "\\timing": "say how long statements take, or no longer",
    "\\q": "leave",
}
QUIET = r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/"  # strings, names and comments, in which ; ends nothing
WORDS = {"help": "\\?", "\\help": "\\?", "quit": "\\q", "\\quit": "\\q", "exit": "\\q", "\\exit": "\\q"}
"""What people type who do not know the commands yet."""
ONCE = ("SELECT", "WITH", "FROM", "(")


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    options = _parser().parse_args(argv)
    session = _session(options)
    try:
        shell = Shell(session, options.format, options.limit)
        if options.command is not None or not sys.stdin.isatty():
            return shell.run(options.command if options.command is not None else sys.stdin.read())
        shell.talk()
    finally:
        session.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="windrow sql", description=__doc__.partition("\n")[0], allow_abbrev=False, epilog=_help()
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--home", metavar="DIR", help="open this home")
    where.add_argument("--server", metavar="URL", help="talk to this server")
    parser.add_argument("--token", default=os.environ.get("WINDROW_TOKEN"), help="for the server; or set WINDROW_TOKEN")
    parser.add_argument("--runtime", choices=RUNTIMES, default="local", help="of an engine of its own (default: local)")
    parser.add_argument("-c", "--command", metavar="SCRIPT", help="run this and leave")
    parser.add_argument("--format", choices=("table", "csv", "json"), default="table", help="of answers")
    parser.add_argument("--limit", type=count, default=100, metavar="N", help="rows shown of a table (default: 100)")
    return parser


def _session(options: argparse.Namespace) -> SqlSession:
    from windrow.cli.sessions import EngineSession, ServerSession

    if options.server:
        return ServerSession(options.server, options.token)
    from windrow.engine import Engine

    announce(options.runtime)
    return EngineSession(Engine(options.runtime, home=options.home))


def _help() -> str:
    return "\n".join(f"  {name:<10}{text}" for name, text in COMMANDS.items())


def statements(text: str) -> list[str]:
    """The statements of a text, each with its `;`; what has none is last.

    >>> statements("SELECT ';' -- a ; b\\n; SELECT 2; SEL")
    ["SELECT ';' -- a ; b\\n;", ' SELECT 2;', ' SEL']
    """
    found, start = [], 0
    for match in re.finditer(f"{QUIET}|;", text, re.DOTALL):
        if match[0] == ";":
            found.append(text[start : match.end()])
            start = match.end()
    return found + ([text[start:]] if text[start:].strip() else [])


def caret(text: str, error: WindrowError) -> str:
    """The line that an error is in, with a mark under its column."""
    span = error.span
    lines = text.splitlines()
    if span is None or span.line > len(lines):
        return ""
    line = lines[span.line - 1]
    tabs = "".join("\t" if c == "\t" else " " for c in line[: span.column - 1])
    return f"{line}\n{tabs}^"


class Shell:
    """Reads statements, shows answers."""

    def __init__(self, session: SqlSession, format: str = "table", limit: int = 100) -> None:
        self.session, self.format, self.limit = session, format, limit
        self.timing = False

    def run(self, script: str) -> int:
        """Run a script without a person; stops at the first error."""
        return 0 if all(self.do(part) for part in _parts(script)) else 1

    def do(self, text: str) -> bool:
        """Do one part of a script or a command; False if it went wrong."""
        begin = time.perf_counter()
        try:
            if (command := _commanded(text)).startswith("\\"):
                self._command(command)
            else:
                self._statement(text)
        except WindrowError as error:
            place = caret(text, error)
            error.span = None if place else error.span
            print(f"{place}\n{error}" if place else str(error), file=sys.stderr)
            return False
        if self.timing:
            print(f"{1000 * (time.perf_counter() - begin):.0f} ms")
        return True

    def _statement(self, text: str) -> None:
        if not (bare := _bare(text)):
            return
        if bare.upper().startswith(ONCE):
            self.show(self.session.ask(text.rstrip().removesuffix(";")))
            return
        shown = self.session.execute(text)
        for one in shown:
            print(one) if isinstance(one, str) else self.show(one)
        if not shown:
            print("done")

    def show(self, table: pa.Table, title: str = "answer") -> None:
        """Show a table."""
        from windrow.cli.answers import print_rows, print_tables

        if self.format == "table":
            print_tables({title: table}, self.limit)
        else:
            print_rows(table, self.format)

    def _command(self, text: str) -> None:
        name, *words = text.rstrip(";").split()
        commands: dict[str, Callable[[list[str]], None]] = {
            "\\?": lambda _: print(_help()), "\\d": self._declared, "\\watch": self._watch, "\\push": self._push,
            "\\i": self._include, "\\status": self._status, "\\timing": self._time, "\\q": _leave,
        }  # fmt: skip
        if name not in commands:
            raise WindrowError(f"there is no command {name}", hint="\\? lists them")
        commands[name](words)

    def _declared(self, words: list[str]) -> None:
        names = self.session.names()
        if words:
            for kind, known in names.items():
                for name, columns in known.items():
                    if name.lower() == words[0].lower():
                        print(f"{kind.removesuffix('s').replace('querie', 'query')} {name} ({', '.join(columns)})")
                        if kind == "queries":
                            print(self.session.execute(f"EXPLAIN {name}")[0])
                        return
            raise WindrowError(f'nothing is called "{words[0]}"')
        for kind, known in names.items():
            print(f"{kind}: {', '.join(known) or 'none'}")

    def _push(self, words: list[str]) -> None:
        if len(words) != 2:
            raise WindrowError("\\push needs a stream and a file")
        print(f"{self.session.push(*words):,} rows")

    def _include(self, words: list[str]) -> None:
        from windrow.cli.inputs import read_script

        if len(words) != 1:
            raise WindrowError("\\i needs a file")
        self.run(read_script(words[0]))

    def _status(self, _: list[str]) -> None:
        from rich.console import Console

        from windrow.cli.status import render

        Console().print(render(self.session.status()))

    def _time(self, _: list[str]) -> None:
        self.timing = not self.timing
        print(f"timing is {'on' if self.timing else 'off'}")

    def _watch(self, words: list[str]) -> None:
        from windrow.cli.watch import watch

        if not words:
            raise WindrowError("\\watch needs a query")
        try:
            watch(self.session, words[0], self.limit)
        except KeyboardInterrupt:
            print()

    def talk(self) -> None:
        """Ask a person for statements until there are no more."""
        read = _reader(self.session)
        print("windrow: \\? lists commands, \\q leaves; statements end with ;")
        while True:
            try:
                text = read()
                for part in _parts(text):
                    self.do(part)
            except KeyboardInterrupt:
                continue
            except (EOFError, SystemExit):
                return


def _lines(text: str) -> Iterator[str]:
    """Commands, which end with their line, and statements, which end with `;`."""
    rest = text
    while rest.strip():
        if rest.lstrip().startswith("\\"):
            command, _, rest = rest.lstrip().partition("\n")
            yield command
            continue
        first, *more = statements(rest)
        rest = "".join(more)
        yield first


def _parts(text: str) -> Iterator[str]:
    """What is done at once: commands, questions, and all declarations between them, which take effect together.

    So queries see the first rows of the streams that are declared with them.

    >>> list(_parts("CREATE a; DROP b; SELECT 1; \\\\d\\nCREATE c"))
    ['CREATE a; DROP b;', ' SELECT 1;', '\\\\d', 'CREATE c']
    """
    together = ""
    for line in _lines(text):
        if _commanded(line).startswith("\\") or _bare(line).upper().startswith(ONCE):
            yield from filter(None, (together, line))
            together = ""
        else:
            together += line
    if together:
        yield together


def _bare(text: str) -> str:
    """A statement without the comments before it and its `;`."""
    return re.sub(r"^(\s|--[^\n]*\n|/\*.*?\*/)+", "", text, flags=re.DOTALL).rstrip().removesuffix(";")


def _commanded(text: str) -> str:
    return WORDS.get(text.strip(" \t\n;").lower(), text.strip())


def _leave(_: list[str]) -> None:
    raise SystemExit(0)


def is_whole(text: str) -> bool:
    """Whether what was typed can be run: a command, or statements of which the last has its `;`.

    >>> is_whole("SELECT 1"), is_whole("SELECT 1;"), is_whole("\\\\d"), is_whole("quit"), is_whole("SELECT ';")
    (False, True, True, True, False)
    """
    bare = _commanded(re.sub(QUIET, "", text, flags=re.DOTALL))
    return not bare or bare.startswith("\\") or (bare.endswith(";") and bare.count("'") == 0)


def _reader(session: SqlSession) -> Callable[[], str]:
    """A function that asks for the next statements: with everything a terminal can, or plainly."""
    try:
        from windrow.cli.prompt import reader
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prompt_toolkit":
            raise
        print('hint: pip install "windrow[shell]" for completion, colours and history', file=sys.stderr)
        return _plain
    return reader(session.names, list(COMMANDS), is_whole, history())


def _plain() -> str:
    text = input("windrow> ")
    while not is_whole(text):
        text += "\n" + input("      -> ")
    return text


def history() -> Path:
    """Where what was typed is kept."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "windrow"
    state.mkdir(parents=True, exist_ok=True)
    return state / "history"
