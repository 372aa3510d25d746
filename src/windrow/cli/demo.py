"""`windrow demo`: simulated trades at a steady rate, and monitoring queries that are registered while they flow.

Trades carry the time at which they are made, so the lag that is shown is the true one: how far the answers are behind
the wall clock. On Spark a thread writes them as small parquet files, which the engine reads as it would anyone's; in
process they are pushed. A few queries are there from the start; the others join while it runs. When all are in, trades
come several times as fast for a while: an overload to watch, and the recovery from it. The console shows all of it.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from windrow.cli.inputs import RUNTIMES, positive

if TYPE_CHECKING:
    from windrow.cli.monitor import Monitor
    from windrow.engine import Engine

FIRST = 8
"""Queries that are there when the first trade comes."""

STEP = 0.5
"""Seconds of trades in one file or push."""

SLACK = "100 MILLISECONDS"
BURST = (0.72, 0.84)
"""The part of the time in which trades come faster."""

SPOTLIGHTS = ("volume", "venues", "vwap", "swings", "heavy", "blocks", "both")


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    options = _parser().parse_args(argv)
    with _quiet(), tempfile.TemporaryDirectory(prefix="windrow-demo-", ignore_cleanup_errors=True) as temporary:
        place = Path(options.keep or temporary)
        try:
            code = Demo(options, place).run()
        except KeyboardInterrupt:  # before there was anything to see
            code = 0
        if options.keep:
            _write_script(place, options.queries)
    if code == 0:
        _next(options)
    return code


@contextmanager
def _quiet() -> Iterator[None]:
    """Log nothing meanwhile: what matters is shown, and an error ends the demo and is told then."""
    logger = logging.getLogger("windrow")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="windrow demo", description=__doc__.split("\n", 1)[0], allow_abbrev=False)
    parser.add_argument("--runtime", choices=RUNTIMES, default="spark", help="default: spark; local needs no Java")
    parser.add_argument("--seconds", type=positive, default=60, metavar="N", help="how long to run (default: 60)")
    parser.add_argument("--queries", type=positive, default=64, metavar="N", help="queries in the end (default: 64)")
    parser.add_argument("--rate", type=positive, default=4000, metavar="N", help="trades per second (default: 4000)")
    parser.add_argument("--burst", type=positive, default=6, metavar="N", help="so many times the rate when all are in")
    parser.add_argument("--no-console", action="store_true", help="only the terminal")
    parser.add_argument("--plain", action="store_true", help="a line now and then; the default when not on a terminal")
    parser.add_argument("--keep", metavar="DIR", help="keep the trades, the script and the engine's home here")
    return parser


class Demo:
    """One run: the engine, the trades, the queries that join, and what is shown of them."""

    def __init__(self, options: argparse.Namespace, place: Path) -> None:
        from windrow.cli.trades import monitors

        self.options, self.place = options, place
        self.queries = monitors(options.queries)
        self.waiting = list(self.queries)
        self.newest: dict[str, Any] = {}
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failure: Exception | None = None
        self._began = float("inf")  # when answers began
        self._monitor: Monitor | None = None

    def run(self) -> int:
        """Start, watch until the time is up or Ctrl-C, stop."""
        from windrow.cli.monitor import Monitor

        monitor = self._monitor = Monitor(self.options, self.queries, SPOTLIGHTS)
        with monitor.waiting("starting Spark" if self.options.runtime == "spark" else "starting"):
            engine = self._engine()
        # after the start: Spark sets a handler of its own, which would cancel the tick
        with _interrupts(self._stop), self._console(engine, monitor):
            try:
                with monitor.waiting("waiting for the first tick"):
                    self._begin(engine)
                self._thread(self._join, engine)
                self._watch(engine, monitor)
            finally:
                self._stop.set()
                monitor.close()
                with monitor.waiting("stopping"):
                    for thread in self._threads:  # none may be in the engine when it stops
                        thread.join()
                    engine.stop()
        if self._failure is not None:
            raise self._failure
        return monitor.farewell(len(self.queries) - len(self.waiting))

    @contextmanager
    def _console(self, engine: Engine, monitor: Any) -> Iterator[None]:
        """Serve the console meanwhile, if it is wanted."""
        if self.options.no_console:
            yield
            return
        from windrow.errors import SourceError
        from windrow.server.access import Right, Tokens, make_token
        from windrow.server.process import Address, Server

        token = make_token()
        try:
            server = Server(engine, Tokens({token: Right.ADMIN}), Address())
        except SourceError:  # the usual port is taken
            server = Server(engine, Tokens({token: Right.ADMIN}), Address(port=0))
        with server:
            monitor.link = f"{server.url}/?token={token}"
            monitor.console.print(f"console: {monitor.link}", soft_wrap=True, highlight=False, markup=False)
            if not monitor.plain and (os.environ.get("DISPLAY") or sys.platform == "darwin"):
                webbrowser.open(monitor.link)
            yield

    def _engine(self) -> Engine:
        from windrow.cli.trades import DECLARATION
        from windrow.engine import Engine
        from windrow.scalar_engine import literal

        source, home = "", None
        if self.options.runtime == "spark":
            folder = self.place / "trades"
            folder.mkdir(parents=True, exist_ok=True)
            source = f"FROM parquet (path => {literal(str(folder))})"
            home = str(self.place / "home")
        engine = Engine(self.options.runtime, home)
        if "trade" not in engine.catalog.streams:  # else a kept home that goes on
            engine.execute(f"CREATE STREAM trade {DECLARATION} WITHIN {SLACK} RETAIN 30 SECONDS {source}")
        return engine

    def _begin(self, engine: Engine) -> None:
        self._register(engine, FIRST)
        self._made_us = _now_us()
        self._more(engine)
        engine.start()
        self._thread(self._feed, engine)
        while not self._stop.is_set() and engine.status()["frontier"] is None and not engine.status().get("error"):
            self._stop.wait(0.1)
        self._began = time.monotonic()  # the overload comes when somebody sees it, however long the first tick took

    def _register(self, engine: Engine, count: int) -> None:
        """Let the next few queries join, all at once."""
        names = self.waiting[:count]
        engine.execute("".join(f"CREATE QUERY {n} AS {self.queries[n]};" for n in names if n not in engine))
        self.waiting = self.waiting[count:]
        for name in set(names) & set(SPOTLIGHTS):
            engine[name].subscribe(partial(self.newest.__setitem__, name))

    @property
    def _bursts(self) -> bool:
        past = (time.monotonic() - self._began) / self.options.seconds
        return BURST[0] <= past < BURST[1]

    def _feed(self, engine: Engine) -> None:
        while not self._stop.wait(max(0.0, STEP - (_now_us() - self._made_us) / 1e6)):
            self._more(engine)

    def _more(self, engine: Engine) -> None:
        """Make the trades of the time since the last ones."""
        from pyarrow import parquet

        from windrow.cli.trades import trades

        begin_us, self._made_us = self._made_us, max(_now_us(), self._made_us + 1)
        burst = self.options.burst if self._bursts else 1
        if self._monitor is not None:
            self._monitor.announce(burst)
        rate = self.options.rate * burst
        rows = trades(max(1, round(rate * (self._made_us - begin_us) / 1e6)), begin_us, self._made_us, seed=begin_us)
        if self.options.runtime == "local":
            engine.push("trade", rows)
            return
        name = f"{begin_us}.parquet"
        hidden = self.place / "trades" / f".{name}"  # Spark skips it until it is whole
        parquet.write_table(rows, hidden)
        hidden.rename(self.place / "trades" / name)

    def _join(self, engine: Engine) -> None:
        """Let queries join; all are in when two thirds of the time are over."""
        begin, joining = time.monotonic(), len(self.waiting)
        while self.waiting and not self._stop.wait(0.2):
            past = (time.monotonic() - begin) / (0.66 * self.options.seconds)
            due = round(joining * min(1.0, past)) - (joining - len(self.waiting))
            if due > 0:
                self._register(engine, due)

    def _thread(self, work: Callable[[Engine], None], engine: Engine) -> None:
        """Work beside the view; a failure ends the demo, and the main thread tells."""

        def run() -> None:
            try:
                work(engine)
            except Exception as error:
                self._failure = error
                self._stop.set()

        self._threads.append(threading.Thread(target=run, name=f"windrow-demo{work.__name__}", daemon=True))
        self._threads[-1].start()

    def _watch(self, engine: Engine, monitor: Any) -> None:
        begin = time.monotonic()
        while True:
            past, status = time.monotonic() - begin, engine.status()
            monitor.show(past, status, _now_us(), len(self.queries) - len(self.waiting), self.newest)
            if past >= self.options.seconds or status.get("error") or self._stop.wait(0.1):
                return


@contextmanager
def _interrupts(stop: threading.Event) -> Iterator[None]:
    """Let Ctrl-C and a polite kill end the demo between two looks, not in the middle of a tick."""

    def asked(number: int, frame: FrameType | None) -> None:
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[int, Any] = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _now_us() -> int:
    return time.time_ns() // 1000


def _write_script(place: Path, count: int) -> None:
    from windrow.cli.trades import DECLARATION, monitors

    place.mkdir(parents=True, exist_ok=True)
    queries = "".join(f"CREATE QUERY {name} AS\n  {text};\n" for name, text in monitors(count).items())
    place.joinpath("demo.cql").write_text(
        f"CREATE STREAM trade {DECLARATION} WITHIN {SLACK};\n{queries}", encoding="utf-8"
    )


def _next(options: argparse.Namespace) -> None:
    """Say what to try now, in commands that work as they stand."""
    here = sys.argv[0] if sys.argv[0].endswith("windrow") and not shutil.which("windrow") else "windrow"
    if options.keep and options.runtime == "spark":
        first = (
            f"{here} run {options.keep}/demo.cql --stream trade={options.keep}/trades --query volume",
            "the same trades again, as a replay",
        )
        second = (f"{here} state {options.keep}/home", "what the engine has kept")
    else:
        first = (
            f"{here} demo --keep demo-run --seconds 20",
            "keep trades, queries and state, to look at",
        )
        second = (f"{here} demo --queries 200 --rate 20000", "more queries, more trades")
    if Path("docs/examples/top.cql").exists() and not options.keep:
        first = (
            f"{here} run docs/examples/top.cql --stream bid=docs/examples/bids.csv --runtime local",
            "a query over a file, every answer",
        )
    third = (f"{here} bench ticks --quick", "where the time of a tick goes")
    print("\nTry next:")
    for command, why in (first, second, third):
        print(f"  {command}\n      {why}")
    if Path("docs/first-steps.md").exists():
        print("  docs/first-steps.md\n      your own rows in the console, in ten minutes")
