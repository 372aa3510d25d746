"""A real PostgreSQL server for tests: Debian's binaries, a fresh cluster on loopback, stopped by its pid at the end.

Use it with `pytest_plugins = ["tests.postgres"]` or by importing the fixtures. The server does not run as root, so
root runs it as `postgres`.
"""

from __future__ import annotations

import glob
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator

import pytest


class Server:
    """A server that tests can stop and start again."""

    def __init__(self, binaries: str, folder: str) -> None:
        self.binaries = binaries
        self.folder = folder
        self.port = _free_port()
        self._as = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        self._run(
            "initdb", "-D", f"{folder}/data", "-U", "windrow", "--auth=trust", "-E", "UTF8", "--no-sync", "--no-locale"
        )

    @property
    def dsn(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=windrow dbname=postgres"

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder} -c fsync=off"
        self._run(
            "pg_ctl", "-D", f"{self.folder}/data", "-w", "-t", "60", "-l", f"{self.folder}/log", "-o", options, "start"
        )

    def stop(self) -> None:
        """Stop at once, as a crash would, by the pid the server wrote."""
        try:
            with open(f"{self.folder}/data/postmaster.pid") as file:
                pid = int(file.readline())
        except FileNotFoundError:
            return
        os.kill(pid, signal.SIGQUIT)
        for _ in range(200):
            if not os.path.exists(f"/proc/{pid}"):
                return
            time.sleep(0.05)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [*self._as, f"{self.binaries}/{program}", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            cwd=self.folder,
        )
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """The server, started once."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    binaries = found[-1] if found else os.path.dirname(shutil.which("initdb") or "")
    if not binaries:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    if os.geteuid() == 0 and not shutil.which("runuser"):
        pytest.skip("root cannot run PostgreSQL and there is no runuser")
    folder = tempfile.mkdtemp(prefix="windrow-pg-")
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    try:
        server = Server(binaries, folder)
        server.start()
        yield server
        server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres(postgres_server: Server) -> Iterator[Server]:
    """The server, running, with an empty public schema."""
    import psycopg

    if not os.path.exists(f"{postgres_server.folder}/data/postmaster.pid"):
        postgres_server.start()
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute("SET client_min_messages TO warning")
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    yield postgres_server


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
