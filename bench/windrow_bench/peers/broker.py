"""A Kafka broker in KRaft mode on loopback, from the artifacts of Maven's registry, made once and kept in the cache."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from windrow.errors import RuntimeFailure
from windrow_bench.peers.environment import MARK, cache

VERSION = "4.3.1"
ARTIFACT = ("org.apache.kafka", "kafka_2.13")
HEAP = "512m"


def jars(say: Callable[[str], None] = lambda _: None, *, fetch: bool = True) -> Path | None:
    """The folder of the broker's jars; fetched the first time (a minute, 45 MB), or None if that is not wanted."""
    place = cache() / f"kafka-{VERSION}"
    if not (place / MARK).exists():
        if not fetch:
            return None
        say(f"fetching Kafka {VERSION} into {place}")
        _fetch(place)
    return place


def _fetch(place: Path) -> None:
    """By Ivy, which Spark brings along."""
    shutil.rmtree(place, ignore_errors=True)
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    (ivy,) = (Path(spec.origin).parent / "jars").glob("ivy-*.jar")
    with tempfile.TemporaryDirectory(prefix="windrow-ivy-") as scratch:
        named = f"{place}/[artifact]-[revision](-[classifier]).[ext]"
        words = ["-cache", scratch, "-dependency", *ARTIFACT, VERSION, "-confs", "default", "-types", "jar", "bundle"]
        command = ["java", "-jar", str(ivy), *words, "-retrieve", named]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not any(place.glob("kafka_*.jar")):
        raise RuntimeFailure(
            f"Kafka {VERSION} could not be fetched",
            detail=(done.stderr or done.stdout).strip()[-300:],
            hint="Maven's registry must be reachable the first time",
        )
    (place / MARK).write_text(VERSION, encoding="utf-8")


@contextlib.contextmanager
def broker(say: Callable[[str], None] = lambda _: None) -> Iterator[str]:
    """A running broker; yields its address. It is stopped by its process at the end."""
    place = jars(say)
    assert place is not None
    port, controller = _free_ports(2)
    with tempfile.TemporaryDirectory(prefix="windrow-kafka-") as folder:
        settings = Path(folder) / "server.properties"
        settings.write_text(_settings(folder, port, controller), encoding="utf-8")
        java = ["java", f"-Xmx{HEAP}", "-cp", f"{place}/*"]
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        made = [*java, "kafka.tools.StorageTool", "format", "-t", identity, "-c", str(settings)]
        done = subprocess.run(made, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeFailure("Kafka's storage could not be made", detail=(done.stderr or done.stdout)[-300:])
        with open(f"{folder}/log", "wb") as log:
            process = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=log, stderr=log)
        try:
            _wait(port, process, f"{folder}/log")
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _settings(folder: str, port: int, controller: int) -> str:
    return "\n".join(
        [
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@127.0.0.1:{controller}",
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names=CONTROLLER",
            f"log.dirs={folder}/data",
            "offsets.topic.replication.factor=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "offsets.topic.num.partitions=1",
            "transaction.state.log.num.partitions=1",
            "group.initial.rebalance.delay.ms=0",
            "num.partitions=4",
            "",
        ]
    )


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        found = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in found:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in found]


def _wait(port: int, process: subprocess.Popen[bytes], log: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    said = Path(log).read_text(encoding="utf-8", errors="replace")
    raise RuntimeFailure("Kafka did not start", detail=said[-500:], hint=f"java and {os.cpu_count()} cores were used")
