"""`windrow serve`: an engine at an address, with a console for people and an API for programs."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING

from windrow.cli.inputs import RUNTIMES, announce, port, positive, read_script
from windrow.errors import WindrowError

if TYPE_CHECKING:
    from windrow.engine import Engine

DIFFERS = (
    "the script has another {name} than the home; that of the home stays. To change it, ALTER {kind} {name} SET ..., or"
    " DROP it and create it again, in the console or by `windrow sql`; or begin with a new home"
)


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    if (options.certificate is None) != (options.key is None):
        parser.error("--certificate and --key go together")

    from windrow.engine import Engine
    from windrow.server.access import Right, Tokens, make_token, read_tokens
    from windrow.server.process import Address, Server

    made = None if options.token_file else make_token()
    tokens = Tokens({made: Right.ADMIN}) if made else read_tokens(options.token_file)
    script = read_script(options.file) if options.file else ""
    announce(options.runtime)
    with Engine(options.runtime, home=options.home, partitions=options.partitions) as engine:
        declare(engine, script)
        with _plans_stay():
            server = Server(engine, tokens, Address(options.host, options.port, options.certificate, options.key))
            engine.start()
            _greet(server.url, made, options)
            server.run_until_signal()
    return 0


@contextmanager
def _plans_stay() -> Iterator[None]:
    """With thousands of queries, looking through their plans for garbage takes a second. What is frozen when the
    process ends is reported as leaked, so it is always given back."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="windrow serve", description=__doc__, allow_abbrev=False)
    parser.add_argument("file", metavar="SCRIPT", nargs="?", help="CQL to begin with; what the home has is left alone")
    parser.add_argument("--home", metavar="DIR", help="where state is kept (default: nothing survives)")
    parser.add_argument(
        "--partitions",
        type=positive,
        metavar="N",
        help="spread state over so many, moving what the home has (default: as is)",
    )
    parser.add_argument("--runtime", choices=RUNTIMES, default="spark", help="default: spark; local needs no Java")
    parser.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1, this machine only")
    parser.add_argument("--port", type=port, default=8765, help="default: 8765; 0 takes any that is free")
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="lines `admin TOKEN` and `read TOKEN`; without it a token is made and printed once",
    )
    parser.add_argument("--certificate", metavar="FILE", help="serve by TLS with this certificate (PEM)")
    parser.add_argument("--key", metavar="FILE", help="the certificate's private key (PEM)")
    return parser


def declare(engine: Engine, script: str) -> None:
    """Run a script, leaving out what the engine's home has already, so that the same command starts and restarts; what
    the script says otherwise than the home has it is told."""
    from windrow import cql

    text, at = script, 0
    for statement in cql.parse(script):
        begin = script.index(statement.text, at)
        at = begin + len(statement.text)
        created = cql.created_by(statement)
        if created is not None and created[1].lower() in engine.catalog.kinds()[created[0]]:
            blank = "".join(c if c.isspace() else " " for c in statement.text)  # places of errors stay
            text = text[:begin] + blank + text[at:]
    for kind, name in _different(engine, script):
        print(f"warning: {DIFFERS.format(kind=kind.upper(), name=name)}", file=sys.stderr)
    engine.execute(text)


def _different(engine: Engine, script: str) -> list[tuple[str, str]]:
    """The streams, tables and queries that a script declares otherwise than the home has them, as far as one can see:
    a script that needs what only the home has is not compared."""
    from windrow import cql
    from windrow.engine.script import applied

    catalog = type(engine.catalog)(functions=engine.catalog.functions)
    try:
        for statement in cql.parse(script):
            catalog = applied(cql.bind(statement, catalog), catalog)
    except WindrowError:
        return []
    home, found = engine.catalog, list[tuple[str, str]]()
    found += [("stream", s.name) for k, s in catalog.streams.items() if home.streams.get(k, s) != s]
    found += [("table", t.name) for k, t in catalog.tables.items() if home.tables.get(k, t) != t]
    texts = {k: q.text.split() for k, q in home.queries.items()}
    return found + [
        ("query", q.name) for k, q in catalog.queries.items() if texts.get(k, q.text.split()) != q.text.split()
    ]


def _greet(url: str, token: str | None, options: argparse.Namespace) -> None:
    if options.token_file and os.stat(options.token_file).st_mode & 0o007:
        told = f"everybody on this machine can read the tokens: chmod 600 {options.token_file}"
        print(f"warning: {told}", file=sys.stderr)
    if not _is_loopback(options.host) and not options.certificate:
        print("warning: tokens and data travel in clear text; --certificate and --key help", file=sys.stderr)
    print(f"windrow serves {options.file or 'an empty engine'} at {url}")
    if token:
        print(f"log in once with this link; it has the administrator's token:\n  {url}/?token={token}")
    print("Ctrl-C stops", flush=True)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
