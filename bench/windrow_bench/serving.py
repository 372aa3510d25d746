"""Readers and questions over HTTP while ticks run: what they cost the ticks, and how soon a change arrives.

Trades are pushed at a steady rate into an engine in process with 64 queries, behind a server on loopback. Phases
without and with load alternate, so that whatever else the machine does falls on both: the load is a process of its own
with open event streams, spread over the queries, and one-time questions at a steady rate. The time between a tick's
end and its event at the reader tells how soon answers arrive.

What the load costs a tick: rows are pushed in process, so the thread that pushes runs the tick, and Linux says how long
that thread ran, and how long it stood in line for a core (`/proc/thread-self/schedstat`). A tick's time without that
line is what windrow makes it: its own work, and its waits for the interpreter and for locks that the load holds. The
line for a core belongs to the machine and whoever else uses it, the load's own process among them; it is told apart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

PERIOD = 0.5
"""Seconds between two ticks."""

ASKED = "SELECT symbol, COUNT(*) AS n FROM trade [RANGE 5 SECONDS] GROUP BY symbol"


def main(argv: Sequence[str]) -> int:
    """Run the experiment and print its figures."""
    parser = argparse.ArgumentParser(prog="windrow bench serving", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--streams", type=int, default=200, help="open event streams (default: 200)")
    parser.add_argument("--asks", type=int, default=50, help="questions a second (default: 50)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each phase (default: 10)")
    parser.add_argument("--rounds", type=int, default=3, help="phases without and with load (default: 3 of each)")
    parser.add_argument("--rate", type=int, default=4000, help="trades a second (default: 4000)")
    parser.add_argument("--load", help=argparse.SUPPRESS)  # the process that makes the load
    options = parser.parse_args(argv)
    if options.load:
        asyncio.run(Load(options).run())
        return 0
    print(json.dumps(measure(options), indent=2))
    return 0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Alternate phases without and with load."""
    from windrow.cli.trades import DECLARATION, monitors
    from windrow.engine import Engine
    from windrow.server.access import Right, Tokens
    from windrow.server.guard import ServerLimits
    from windrow.server.process import Address, Server

    token = "a-token-for-measuring"
    with Engine("local") as engine:
        engine.execute(f"CREATE STREAM trade {DECLARATION} WITHIN 100 MILLISECONDS RETAIN 10 SECONDS")
        engine.execute("".join(f"CREATE QUERY {n} AS {text};" for n, text in monitors(64).items()))
        engine.start()
        stop = threading.Event()
        ticks: list[TickTime] = []
        feeder = threading.Thread(target=_feed, args=(engine, options.rate, stop, ticks), daemon=True)
        feeder.start()
        with Server(engine, Tokens({token: Right.ADMIN}), Address(port=0), ServerLimits()) as server:
            time.sleep(20)  # compiled, and windows full
            where = f"{server.url} {token}"
            phases = [_phase(engine, ticks, options, where, bool(i % 2)) for i in range(2 * options.rounds)]
        stop.set()
        feeder.join()
    return _summary(options, phases)


class TickTime(NamedTuple):
    """Milliseconds of a tick: by the clock, on a core, and in line for one; and of all threads on cores meanwhile."""

    wall: float
    ran: float
    waited: float
    all_ran: float


def _thread() -> tuple[int, int, int, int]:
    """The clock, how long this thread has run and stood in line, and how long all have run, in nanoseconds."""
    with open("/proc/thread-self/schedstat", encoding="ascii") as file:
        ran, waited, _ = map(int, file.read().split())
    return time.perf_counter_ns(), ran, waited, time.process_time_ns()


def _feed(engine: Any, rate: int, stop: threading.Event, ticks: list[TickTime]) -> None:
    from windrow.cli.trades import trades

    made, due = time.time_ns() // 1000, time.monotonic()
    while not stop.wait(max(0.0, due - time.monotonic())):
        due += PERIOD
        begin, made = made, made + int(PERIOD * 1e6)  # every tick has the same work, however late it is
        rows = trades(round(rate * PERIOD), begin, made, seed=begin)
        before = _thread()
        engine.push("trade", rows)
        ticks.append(TickTime(*((b - a) / 1e6 for a, b in zip(before, _thread(), strict=True))))


def _phase(engine: Any, ticks: list[TickTime], options: argparse.Namespace, where: str, loaded: bool) -> dict[str, Any]:
    process = None
    if loaded:
        words = ["--streams", str(options.streams), "--asks", str(options.asks), "--seconds", str(options.seconds + 2)]
        command = [sys.executable, "-m", "windrow_bench.serving", *words, "--load", where]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        time.sleep(2)
    first, spent = len(ticks), time.process_time()
    time.sleep(options.seconds)
    found: dict[str, Any] = {"loaded": loaded, "ticks": ticks[first:], "cpu": time.process_time() - spent}
    if process is not None:
        told = json.loads(process.communicate(timeout=120)[0])
        ended = {t["tick"]: t["ended"] for t in engine.ticks()}
        found["arrival_ms"] = [1000 * (at - ended[tick]) for tick, at in told["seen"] if tick in ended]
        found |= {k: told[k] for k in ("asked", "failed", "ask_ms")}
    return found


def _summary(options: argparse.Namespace, phases: list[dict[str, Any]]) -> dict[str, Any]:
    alone, loaded = (_ticks([t for p in phases if p["loaded"] is which for t in p["ticks"]]) for which in (False, True))
    arrivals = sorted(ms for p in phases for ms in p.get("arrival_ms", ()))
    asks = sorted(ms for p in phases for ms in p.get("ask_ms", ()))
    return {
        "streams": options.streams,
        "asks_per_second": round(sum(p.get("asked", 0) for p in phases) / (options.rounds * options.seconds), 1),
        "asks_failed": sum(p.get("failed", 0) for p in phases),
        "ask_ms": {"median": round(statistics.median(asks), 1), "p99": round(asks[int(0.99 * (len(asks) - 1))], 1)},
        "tick_ms_alone": alone,
        "tick_ms_loaded": loaded,
        "cores_alone": _cores(options, [p for p in phases if not p["loaded"]]),
        "cores_loaded": _cores(options, [p for p in phases if p["loaded"]]),
        "slower": round(loaded["own"] / alone["own"] - 1, 3),
        "slower_by_the_clock": round(loaded["wall"] / alone["wall"] - 1, 3),
        "events": len(arrivals),
        "arrival_ms": {
            "median": round(statistics.median(arrivals), 1),
            "p99": round(arrivals[int(0.99 * (len(arrivals) - 1))], 1),
            "most": round(arrivals[-1], 1),
        },
    }


def _cores(options: argparse.Namespace, phases: list[dict[str, Any]]) -> float:
    """Of how many cores the process of the engine and the server has used."""
    return round(sum(p["cpu"] for p in phases) / (len(phases) * options.seconds), 3)


def _ticks(found: list[TickTime]) -> dict[str, float]:
    """Means, which add up; `own`: without the line for a core; `beside`: what other threads of the process ran."""
    wall, ran, waited, all_ran = (statistics.fmean(column) for column in zip(*found, strict=True))
    told = {"wall": wall, "own": wall - waited, "ran": ran, "in line": waited, "beside": all_ran - ran}
    return {name: round(ms, 1) for name, ms in told.items()}


class Load:
    """Readers of changes, and questions at a rate, from a process of its own."""

    def __init__(self, options: argparse.Namespace) -> None:
        from windrow.cli.trades import monitors

        url, self.token = options.load.split()
        self.host, self.port = url.removeprefix("http://").split(":")
        self.options, self.names = options, list(monitors(64))
        self.seen: list[tuple[int, float]] = []
        self.ask_ms: list[float] = []
        self.failed = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def run(self) -> None:
        """Make the load for the time, and tell what was seen."""
        readers = [
            asyncio.create_task(self._read(self.names[i % len(self.names)])) for i in range(self.options.streams)
        ]
        asking, until = [], time.monotonic() + self.options.seconds
        while time.monotonic() < until:
            asking.append(asyncio.create_task(self._ask()))
            await asyncio.sleep(1 / self.options.asks)
        await asyncio.wait(asking, timeout=10)
        for reader in readers:
            reader.cancel()
        told = {"seen": self.seen, "asked": len(self.ask_ms), "failed": self.failed, "ask_ms": self.ask_ms}
        print(json.dumps(told))

    async def _open(self, method: str, path: str, body: bytes = b"") -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection(self.host, int(self.port), limit=1 << 24)
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.token}\r\nConnection: close\r\n"
        writer.write(f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        self._writers.append(writer)  # a writer that nobody holds closes its connection
        return reader

    async def _read(self, name: str) -> None:
        reader = await self._open("GET", f"/api/queries/{name}/changes")
        async for line in reader:
            if line.startswith(b'data: {"tick":') and b'"rows":' in line[:60]:
                self.seen.append((int(line[15:].split(b",", 1)[0]), time.time()))

    async def _ask(self) -> None:
        begin = time.perf_counter()
        reader = await self._open("POST", "/api/ask", json.dumps({"query": ASKED}).encode())
        answered = await reader.read()
        if answered.startswith(b"HTTP/1.1 200"):
            self.ask_ms.append(1000 * (time.perf_counter() - begin))
        else:
            self.failed += 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
