"""Settings and fixtures that every test shares."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Examples are small but build tables and plans: time per example says nothing, so there is no deadline.
_quiet = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("dev", deadline=None, max_examples=50, suppress_health_check=_quiet)
settings.register_profile("ci", deadline=None, max_examples=50, suppress_health_check=_quiet, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=2000, suppress_health_check=_quiet)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


def _load(name: str):  # type: ignore[no-untyped-def]
    """A module beside this file: tests are no package, so it is loaded by its path."""
    spec = importlib.util.spec_from_file_location(f"windrow_tests_{name}", Path(__file__).parent / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_in_process = _load("in_process")
_postgres = _load("postgres")
postgres, postgres_server = _postgres.postgres, _postgres.postgres_server


def pytest_collection_modifyitems(items):  # type: ignore[no-untyped-def]
    """mapInArrow warns about pandas, which it imports and we do not use; pytest forgets the filter the session set."""
    quiet = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(quiet)


@pytest.fixture(scope="session")
def spark():  # type: ignore[no-untyped-def]
    """One session for all Spark tests, as windrow starts it, on two cores or on the master in WINDROW_MASTER."""
    from windrow.spark.session import session

    started = session(master=os.environ.get("WINDROW_MASTER") or "local[2]")
    yield started
    started.stop()


@pytest.fixture(autouse=True)
def exchanges(request, left_as_found, monkeypatch):  # type: ignore[no-untyped-def]
    """Tests are small, and small ticks are no jobs: on Spark those of the tests have exchanges unless they say.

    What the process is, is compared when everything that was patched is as it was.
    """
    if request.node.get_closest_marker("spark"):
        from windrow.spark.job import SparkJob

        monkeypatch.setattr(SparkJob, "small_in_one", False)


@pytest.fixture(autouse=True)
def left_as_found():  # type: ignore[no-untyped-def]
    """A test that changes what the process is fails itself, not whichever test comes after it."""

    def process():  # type: ignore[no-untyped-def]
        loggers = [logging.getLogger(name) for name in ("windrow", "windrow.engine", None)]
        return {
            "__main__": sys.modules["__main__"],
            "logging": [(one.level, one.disabled, one.propagate) for one in loggers] + [logging.root.manager.disable],
            "directory": os.getcwd(),
        }

    before = process()
    yield
    assert process() == before, "the test has changed the process for those after it"


@pytest.fixture(scope="session")
def in_process_job():  # type: ignore[no-untyped-def]
    """The class that runs a tick's tasks in this process."""
    return _in_process.InProcessJob


@pytest.fixture(scope="session")
def poison():  # type: ignore[no-untyped-def]
    """The module that puts garbage under nulls."""
    return _load("poison")


@pytest.fixture(scope="session")
def run_with_restarts():  # type: ignore[no-untyped-def]
    """The answers of a replay with a restart before every batch."""
    return _load("restarts").run_with_restarts
