"""`windrow run`: replay bounded streams through a script and show every answer.

Answers go to standard output (or to files), everything else to standard error, so the output can be piped.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.cli.inputs import RUNTIMES, add_inputs, announce, count, instant, positive, read_script

if TYPE_CHECKING:
    import pyarrow as pa

    from windrow.catalog import StreamDef, TableDef

FORMATS = ("table", "csv", "json", "parquet")
Progress = Callable[[int, int], None]


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    _check(parser, options)
    script = read_script(options.file)

    import windrow
    from windrow.engine.replay import LateRowsWarning, QuarantineWarning
    from windrow.sources.quarantined_rows import quarantine_summary

    arguments = _arguments(options)
    start = time.perf_counter()
    read_declared(script, arguments["streams"], arguments["tables"])
    announce(options.runtime)
    with _progress(quiet=options.json) as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", LateRowsWarning)  # late rows are told below
        warnings.simplefilter("ignore", QuarantineWarning)
        answers = windrow.run(script, progress=progress, **arguments)
    seconds = time.perf_counter() - start
    explained = _explanations(script, options) if options.format == "table" and not options.json else []
    for text in explained:
        print(text)
    if not answers and not explained:
        print("note: the script has no query, so there is no answer", file=sys.stderr)
    _show(parser, options, answers, answers.late, seconds)
    for stream, aside in answers.quarantine.items():
        if aside.num_rows:
            print(f"note: {quarantine_summary(aside, stream)}", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="windrow run", description=__doc__.split("\n", 1)[0], allow_abbrev=False)
    add_inputs(parser)
    parser.add_argument("--runtime", choices=RUNTIMES, default="spark", help="default: spark; local needs no Java")
    parser.add_argument("--home", metavar="DIR", help="where the driver and tasks of a cluster put what they copy")
    parser.add_argument("--batch-rows", type=positive, metavar="N", help="rows per batch; never changes an answer")
    parser.add_argument("--until", type=instant, metavar="T", help="advance time to T (default: the last row's time)")
    parser.add_argument(
        "--query", action="append", default=[], metavar="NAME", help="show this query only; may be repeated"
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="write one file per query here")
    parser.add_argument("--format", choices=FORMATS, help="default: table; with --output, parquet")
    parser.add_argument(
        "--limit", type=count, default=50, metavar="N", help="rows of each table shown (default: 50; 0: all)"
    )
    parser.add_argument("--late", type=Path, metavar="DIR", help="write late rows here, one file per stream")
    parser.add_argument("--json", action="store_true", help="print one JSON document: answers, late rows, seconds")
    return parser


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Settle the format, and refuse options that contradict each other."""
    if options.output and options.format == "table":
        parser.error("--output needs --format csv, json or parquet")
    if options.format == "parquet" and not options.output:
        parser.error("--format parquet needs --output DIR")
    if options.json and options.format and not options.output:
        parser.error("--json is a format of its own; leave --format out, or write files with --output")
    options.format = options.format or ("parquet" if options.output else "table")


def _arguments(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "streams": dict(options.stream),
        "tables": dict(options.table),
        "runtime": options.runtime,
        "strategy": options.strategy,
        "sharing": options.sharing,
        "batch_rows": options.batch_rows,
        "until": options.until,
        "without": tuple(options.no_rule),
        "home": options.home,
    }


def read_declared(script: str, streams: dict[str, Any], tables: dict[str, Any]) -> None:
    """Add what the sources that the script declares hold now, for streams and tables that are not given.

    Whoever runs the command names the script, so its sources are theirs to name, too; `windrow.run` reads none.
    """
    from windrow.catalog import StreamDef
    from windrow.runtime.tables import open_table

    given = {name.lower() for name in (*streams, *tables)}
    for definition in _declared(script):
        if definition.name.lower() in given:
            continue
        if isinstance(definition, StreamDef):
            _read_now(definition, streams, f"row for stream {definition.name}")
        elif definition.changes is not None:
            _read_now(definition.change_stream, tables, f"change of table {definition.name}")
        elif definition.options:
            table = open_table(definition)
            tables[definition.name] = table.reading.table
            table.close()


def _read_now(stream: StreamDef, found: dict[str, Any], wanted: str) -> None:
    """Add the rows of a source that ends."""
    from windrow.sources.bounded import ENDING, SourceNow
    from windrow.sources.data_file import FileWithoutRows

    if stream.options.get("source", "").lower() in ENDING:
        found[stream.name] = now = SourceNow.of(stream)
        if all(isinstance(piece, FileWithoutRows) for piece in now.pieces):
            print(f"note: there is no {wanted} yet", file=sys.stderr)


def _declared(script: str) -> Iterator[StreamDef | TableDef]:
    """The streams and tables of a script; what is wrong in it is told with its place when it is run."""
    from windrow import cql
    from windrow.catalog import Catalog, StreamDef, TableDef
    from windrow.errors import WindrowError

    with suppress(WindrowError):
        for statement in cql.parse(script):
            if isinstance(statement, cql.Declaration):
                bound = cql.bind(statement, Catalog())
                if isinstance(bound, cql.Create) and isinstance(bound.definition, StreamDef | TableDef):
                    yield bound.definition


def _explanations(script: str, options: argparse.Namespace) -> list[str]:
    from windrow.cli.explain import explanations

    given = dict(options.stream), dict(options.table)
    return explanations(script, *given, options.strategy, options.no_rule, options.sharing)


def _show(
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    answers: Mapping[str, pa.Table],
    late: Mapping[str, pa.Table],
    seconds: float,
) -> None:
    from windrow.cli import answers as shown

    unknown = [q for q in options.query if q not in answers]
    if unknown:
        parser.error(f"no query named {unknown[0]} in the script; it has {', '.join(answers) or 'none'}")
    if options.query:
        answers = {q: answers[q] for q in options.query}
    late = {name: rows for name, rows in late.items() if len(rows)}
    files: dict[str, str] = {}
    if options.output:
        files = shown.write_files(answers, options.output, options.format)
    if options.late and late:
        kind = "csv" if options.format == "table" else options.format
        shown.write_files(late, options.late, kind)
    if options.json:
        sys.stdout.write(shown.document(answers, late, seconds, files))
    elif options.output:
        for name, path in files.items():
            print(f"{path}\t{len(answers[name])} rows")
    elif options.format == "table":
        shown.print_tables(answers, options.limit)
    elif len(answers) > 1:
        parser.error(f"the script has {len(answers)} queries: choose one with --query, or write files with --output")
    else:
        for answer in answers.values():
            shown.print_rows(answer, options.format)
    for name, rows in late.items():
        kept = f"written to {options.late}" if options.late else "--late DIR keeps them"
        count = f"{len(rows)} late row{'s' if len(rows) > 1 else ''}"
        print(f"note: {count} of stream {name} took no part ({kept})", file=sys.stderr)


@contextmanager
def _progress(quiet: bool) -> Iterator[Progress | None]:
    """A bar on standard error while the replay runs, when a person is watching."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("replay"), BarColumn(), MofNCompleteColumn(), TextColumn("rows"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("replay", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
