"""One-time queries over a long history: what they read and how long they take, and what ticks notice of them.

A stream keeps ten million rows of a day, a thousand keys. A question about one key, and one about the last minute, are
compared with a full pass: bytes read, and time; so is the full pass itself while a periodic query runs whose partials
have most of its window. Then ticks go on, with and without five questions a second beside them in turns; a stretch of
ticks counts with its median, by the clock on the wall and by the CPU time of the thread that ticks. `latest` asks while
ticks run say how many ticks old they are.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

import windrow
from windrow.runtime.ask import ask
from windrow.runtime.history_reader import HistoryFigures
from windrow_bench.harness import CLOCKS, Ratio, Result, parser, progress, report

KEYS = 1000
DAY = 86_400_000_000
BATCHES = 100
STREAM = "CREATE STREAM trade (ts TIMESTAMP, sym BIGINT, price DOUBLE, qty BIGINT) TIMESTAMP BY ts RETAIN 2 DAYS"
PASS = "SELECT COUNT(*) AS n, SUM(price) AS s, MAX(qty) AS m FROM trade [RANGE {}]{}"
QUESTIONS = {
    "full pass": PASS.format("1 DAY", ""),
    "one key": PASS.format("1 DAY", " WHERE sym = 17"),
    "last minute": PASS.format("1 MINUTE", ""),
}
COVERED = "full pass, a query has partials"
Row = Mapping[str, Any]


class History:
    """An engine with a day of trades, and more to come."""

    def __init__(self, rows: int, seed: int, home: str) -> None:
        self.engine = windrow.Engine(runtime="local", home=home)
        self.engine.execute(STREAM)
        self.engine.start()
        self._rng, self._at = np.random.default_rng(seed), 0
        self._gap, self.size = DAY // rows, rows // BATCHES

    def push(self, size: int | None = None) -> None:
        """One tick."""
        count = size or self.size
        ts = self._at + self._gap * np.arange(count)
        self._at += self._gap * count
        columns = {
            "ts": pa.array(ts).cast(pa.timestamp("us")),
            "sym": self._rng.integers(0, KEYS, count),
            "price": self._rng.random(count),
            "qty": self._rng.integers(1, 100, count),
        }
        self.engine.push("trade", pa.table(columns))

    def asked(self, text: str, isolation: str = "snapshot") -> tuple[pa.Table, HistoryFigures]:
        """An answer, and what it read."""
        figures = HistoryFigures()
        engine = self.engine
        return ask(engine.question(text), isolation, figures), figures

    def ticks(self) -> int:
        return self.engine.runtime.ticker.manifest.tick


def covered(history: History, repeat: int, clock: str) -> list[Row]:
    """The full pass again, while a query runs that has partials of nearly all of its window."""
    history.engine.execute(f"CREATE QUERY sums AS {PASS.format('1 DAY SLIDE 1 MINUTE', '')}")
    history.push(2_000)
    found = questions(history, repeat, clock, {COVERED: QUESTIONS["full pass"]})
    history.engine.execute("DROP QUERY sums")
    return found


def questions(history: History, repeat: int, clock: str, asked: Mapping[str, str] = QUESTIONS) -> list[Row]:
    """Bytes and the least time of each question at each level."""
    rows: list[Row] = []
    now = CLOCKS[clock]
    for name, text in asked.items():
        for isolation in ("snapshot", "latest"):
            best = float("inf")
            for _ in range(max(3, repeat)):
                begin = now()
                answer, figures = history.asked(text, isolation)
                best = min(best, now() - begin)
            rows.append({
                "part": "questions", "question": name, "isolation": isolation, "ms": 1000 * best,
                "read_mb": figures.bytes / 1e6, "of_mb": figures.of_bytes / 1e6, "runs": figures.runs,
                "of_runs": figures.of_runs, "rows": answer.column("n")[0].as_py(),
            })  # fmt: skip
    return rows


def beside(history: History, rounds: int, ticks: int, rate: float) -> list[Row]:
    """Times of ticks with and without questions beside them, in turns; and how old the answers of `latest` were."""
    times: dict[bool, list[float]] = {False: [], True: []}
    spent: dict[bool, list[float]] = {False: [], True: []}
    stale: list[int] = []
    for turn in range(2 * rounds):
        asking = turn % 2 == 1
        stop = threading.Event()
        reader = threading.Thread(target=_asks, args=(history, rate, stop, stale)) if asking else None
        if reader is not None:
            reader.start()
        found, used = [], []
        for _ in range(ticks):
            begin, cpu = time.perf_counter(), time.thread_time()
            history.push(2_000)
            found.append(time.perf_counter() - begin)
            used.append(time.thread_time() - cpu)
            time.sleep(0.05)
        times[asking].append(statistics.median(found))
        spent[asking].append(statistics.median(used))
        stop.set()
        if reader is not None:
            reader.join()
    wall, of_cpu = ({k: 1000 * statistics.median(v) for k, v in each.items()} for each in (times, spent))
    told = {False: (0.0, 0, None), True: (rate, len(stale), max(stale, default=0))}
    return [
        {
            "part": "ticks", "questions_a_second": a_second, "tick_ms": wall[asking], "tick_cpu_ms": of_cpu[asking],
            "asked": asked, "ticks_old": old,
        }
        for asking, (a_second, asked, old) in told.items()
    ]  # fmt: skip


def _asks(history: History, rate: float, stop: threading.Event, stale: list[int]) -> None:
    """Ask the question about a key at a rate; note by how many ticks each answer was behind when it came."""
    due = time.monotonic()
    while not stop.wait(max(0.0, due - time.monotonic())):
        due += 1 / rate
        answer = history.engine.ask(QUESTIONS["one key"], isolation="latest")
        ticker = history.engine.runtime.ticker
        as_of = int(answer.schema.metadata[b"windrow.as_of"])
        span = 2_000 * (DAY // (history.size * BATCHES))
        stale.append(max(0, -(-(ticker.frontier - as_of) // span)))


def ratios(rows: Sequence[Row]) -> list[Ratio]:
    """What the issue of reading asks for."""
    at = {(r["question"], r["isolation"]): r for r in rows if r["part"] == "questions"}
    found = []
    for name in (n for n in dict.fromkeys(n for n, _ in at) if n != "full pass"):
        for isolation in ("snapshot", "latest"):
            r, full = at[name, isolation], at["full pass", isolation]
            found.append(Ratio(f"{name}, {isolation}: share of the history's bytes", r["read_mb"] / r["of_mb"], 0.05))
            found.append(Ratio(f"{name}, {isolation}: time against a full pass", r["ms"] / full["ms"], 0.1))
    without, with_ = (r for r in rows if r["part"] == "ticks")
    for what, column in (("", "tick_ms"), (", CPU of their thread", "tick_cpu_ms")):
        ratio = with_[column] / without[column]
        found.append(Ratio(f"ticks with five questions a second / without{what}", ratio, 1.04))
    found.append(Ratio("ticks that an answer of latest was behind, at most", with_["ticks_old"], 1))
    return found


def main(argv: Sequence[str]) -> int:
    """Run the experiment."""
    accepts = parser("reading", __doc__ or "")
    accepts.add_argument("--rows", type=int, help="rows of the history (default: 10,000,000)")
    accepts.add_argument("--rounds", type=int, default=6, help="turns with and without questions (default: 6)")
    options = accepts.parse_args(list(argv))
    rows = options.rows or (200_000 if options.quick else 10_000_000)
    with progress() as shown, tempfile.TemporaryDirectory(prefix="windrow-reading-") as home:
        task = shown.add_task("filling", total=None)
        history = History(rows, options.seed, f"{home}/home")
        for _ in range(BATCHES):
            history.push()
        shown.update(task, description="questions")
        found = questions(history, options.repeat, options.clock) + covered(history, options.repeat, options.clock)
        shown.update(task, description="ticks")
        found += beside(history, 1 if options.quick else options.rounds, 8 if options.quick else 30, 5.0)
        history.engine.stop()
    parameters = {"rows": rows, "keys": KEYS, "ticks": "2,000 rows each, 50 ms apart", "clock": options.clock}
    about = " ".join((__doc__ or "").split())
    return report(Result("reading", about, options.seed, parameters, found, ratios(found)), options)
