"""A Kafka broker in KRaft mode on loopback, from the artifacts of Maven's registry, made once and kept in the cache."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from windrow.errors import RuntimeFailure
from windrow_bench.peers import environment

VERSION = "4.3.1"
CONNECTOR = (  # the last that the registry has of each
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)
HEAP = "512m"


def jars(say: Callable[[str], None] = lambda _: None, *, fetch: bool = True) -> Path | None:
    """The folder of the broker's jars; fetched the first time (a minute, 45 MB), or None if that is not wanted."""
    return environment.jars(f"kafka-{VERSION}", [("org.apache.kafka", "kafka_2.13", VERSION)], say, fetch=fetch)


def connector(say: Callable[[str], None] = lambda _: None) -> Path:
    """The folder of the jars of Spark's own connector; fetched the first time (10 MB)."""
    place = environment.jars(f"spark-kafka-{CONNECTOR[0][2]}", CONNECTOR, say, "-notransitive")
    assert place is not None
    return place


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
