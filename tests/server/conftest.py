"""A server on a free port of this machine, in front of an engine in this process."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from windrow.engine import Engine
from windrow.server.access import Right, Tokens
from windrow.server.guard import ServerLimits
from windrow.server.process import Address, Server

ADMIN, READ = "the-administrator-s-token", "a-token-that-only-reads"
TOKENS = Tokens({ADMIN: Right.ADMIN, READ: Right.READ})
SCRIPT = """
    CREATE STREAM bid (ts BIGINT, auction VARCHAR, price BIGINT) TIMESTAMP BY ts RETAIN 100;
    CREATE QUERY top AS SELECT auction, MAX(price) AS price FROM bid [RANGE 5] GROUP BY auction;
    CREATE QUERY counts AS SELECT COUNT(*) AS n FROM bid [RANGE 10 SLIDE 5];
"""


@pytest.fixture
def engine() -> Iterator[Engine]:
    """An engine with a stream of bids and two queries, running."""
    with Engine(runtime="local") as made:
        made.execute(SCRIPT)
        made.table("person", {"id": [1, 2], "name": ["ann", "bob"]})
        made.start()
        yield made


@pytest.fixture
def server(engine: Engine) -> Iterator[Server]:
    """That engine at an address."""
    limits = ServerLimits(
        body_bytes=100_000, requests_per_second=100_000, refusals_per_second=100_000, event_streams=50
    )
    with Server(engine, TOKENS, Address(port=0), limits) as running:
        yield running


@pytest.fixture
def admin(server: Server) -> Iterator[httpx.Client]:
    """A client with the administrator's token."""
    with client(server, ADMIN) as made:
        yield made


@pytest.fixture
def reader(server: Server) -> Iterator[httpx.Client]:
    """A client whose token only reads."""
    with client(server, READ) as made:
        yield made


@pytest.fixture
def stranger(server: Server) -> Iterator[httpx.Client]:
    """A client without a token."""
    with httpx.Client(base_url=server.url, timeout=60) as made:
        yield made


def client(server: Server, token: str) -> httpx.Client:
    """A client with a token."""
    return httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {token}"}, timeout=60)
