"""One Spark session for the experiments' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """A session as windrow starts it, on two cores."""
    from windrow.spark.session import session

    yield session(master="local[2]")
