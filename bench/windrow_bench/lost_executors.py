"""Executors of Spark that are killed, and machines that are lost with all that runs on them, while ticks are computed.

    executors   `local-cluster[2,1,1024]`: the process of an executor ends; the master starts another
    machines    a master and two workers as on a cluster of two machines: a worker, its executor and the Python
                processes of that end at one moment, with the shuffle files they had; another takes their place

Each run has a process of its own, because a session has one master. Processes are found by their command line among
the descendants of that process, and killed by their ids. What is answered equals a replay.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa

PATIENCE = 300.0
"""Seconds that a tick may take, executors that start anew among them."""

CLUSTER = "local-cluster[2,1,1024]"
EXECUTOR = "CoarseGrainedExecutorBackend"
SCRIPT = """
CREATE STREAM s (ts BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY ts WITHIN 3;
CREATE QUERY groups AS SELECT k, COUNT(*) AS n, MAX(v) AS top FROM s [RANGE 20] GROUP BY k;
CREATE QUERY pairs AS SELECT a.k, a.v, b.v AS w FROM s [RANGE 6] a, s [RANGE 6] b WHERE a.k = b.k AND a.v > b.v + 50;
CREATE QUERY flow AS SELECT COUNT(*) AS n, SUM(v) AS total FROM s [RANGE 30 SLIDE 10];
"""


def killed(what: str, kills: int, seed: int, said: Callable[[str], None]) -> int:
    """Kill so many executors or machines, and check the answers; returns how many were killed."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    life = context.Process(target=_live, args=(what, kills, seed, theirs))
    life.start()
    theirs.close()
    done = 0
    with contextlib.suppress(EOFError):
        while True:
            done = ours.recv()
            said(f"{done:,} {what} killed")
    life.join()
    if life.exitcode != 0:
        raise AssertionError(f"the driver of lost {what} ended with {life.exitcode}")
    return done


def _live(what: str, kills: int, seed: int, told: Connection) -> None:
    with tempfile.TemporaryDirectory(prefix="windrow-lost-") as folder, _cluster(what, folder) as (master, lose):
        _driven(master, lose, kills, random.Random(seed), folder, told)


@contextlib.contextmanager
def _cluster(what: str, folder: str) -> Iterator[tuple[str, Callable[[random.Random], bool]]]:
    """The address of a master, and what loses an executor or a machine of it."""
    if what == "executors":
        yield CLUSTER, _kill_executor
        return
    machines = Machines(folder)
    try:
        yield machines.master, machines.lose
    finally:
        machines.close()


def _driven(
    master: str, lose: Callable[[random.Random], bool], kills: int, chance: random.Random, folder: str, told: Connection
) -> None:
    """Push rows, lose something while they are computed, and compare with a replay."""
    import windrow
    from windrow.spark.session import session
    from windrow.testing import assert_same

    settings = {"spark.python.daemon.module": "windrow.spark.daemon", "spark.driver.host": "127.0.0.1"}
    settings |= {"spark.executor.memory": "1g", "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    spark = session(master=master, settings={} if master == CLUSTER else settings)
    rows: list[pa.Table] = []
    lost = 0
    with windrow.Engine(runtime="spark", spark=spark, home=f"{folder}/home", partitions=2) as engine:
        engine.execute(SCRIPT)
        heard: dict[str, list[pa.Table]] = {name: [] for name in engine.catalog.queries}
        for name, parts in heard.items():
            engine[name].subscribe(parts.append)
        engine.start()
        while lost < kills or not rows:
            rows.append(_rows(len(rows), chance))
            engine.push("s", rows[-1])
            time.sleep(chance.choice((0.0, 0.2, 0.6)) * chance.random())
            lost += len(rows) > 1 and lose(chance)
            engine.drain(PATIENCE)
            told.send(lost)
        frontier = engine.status()["frontier"]
    spark.stop()
    for name, want in windrow.run(
        SCRIPT, {"s": pa.concat_tables(rows)}, runtime="local", until=frontier
    ).items():  # fmt: skip
        assert_same(pa.concat_tables(heard[name]), want)


def _rows(number: int, chance: random.Random) -> pa.Table:
    times = sorted((20 * number + chance.randrange(20) for _ in range(60)), key=lambda ts: ts + chance.randrange(3))
    return pa.table(
        {"ts": times, "k": [chance.randrange(6) for _ in times], "v": [chance.randrange(100) for _ in times]}
    )


def _kill_executor(chance: random.Random) -> bool:
    """Kill one of the executors that this process has, as soon as there is one."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found = [pid for pid in descendants(os.getpid()) if EXECUTOR in command(pid)]
        if found:
            os.kill(chance.choice(found), signal.SIGKILL)
            return True
        time.sleep(0.05)
    return False


class Machines:
    """A master, and workers that are machines: they go with everything that they have started."""

    def __init__(self, folder: str, number: int = 2) -> None:
        self._folder, self._made = folder, 0
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        self.master = f"spark://127.0.0.1:{port}"
        self._processes = [self._start("master.Master", "--host", "127.0.0.1", "--port", str(port))]
        _answers(port)
        for _ in range(number):
            self._add()

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        import pyspark

        home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
        self._made += 1
        with open(f"{self._folder}/{self._made}.log", "wb") as log:
            line = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{name}", "--webui-port", "0", *arguments]
            environment = {**os.environ, "SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1"}
            return subprocess.Popen(line, stdout=log, stderr=log, env=environment)

    def _add(self) -> None:
        where = ("--host", "127.0.0.1", "--cores", "1", "--memory", "2g", "--work-dir", f"{self._folder}/{self._made}")
        self._processes.append(self._start("worker.Worker", *where, self.master))

    def lose(self, chance: random.Random) -> bool:
        """Lose a machine on which an executor runs, and have another."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            busy = [p for p in self._processes[1:] if any(EXECUTOR in command(c) for c in descendants(p.pid))]
            if busy:
                gone = chance.choice(busy)
                self._processes.remove(gone)
                _end(gone)
                self._add()
                return True
            time.sleep(0.05)
        return False

    def close(self) -> None:
        """End everything."""
        for process in reversed(self._processes):
            _end(process)


def _answers(port: int) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise AssertionError("the master did not start")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it has started, by their ids."""
    for pid in [*descendants(process.pid), process.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # the name, in parentheses, may hold anything
            children.setdefault(int(entry.read_text().rpartition(")")[2].split()[1]), []).append(int(entry.parent.name))
    found, waiting = list[int](), [pid]
    while waiting:
        more = children.get(waiting.pop(), [])
        found, waiting = found + more, waiting + more
    return found


def command(pid: int) -> str:
    """The command line of a process; nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
