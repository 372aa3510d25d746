"""Fixtures of the sink tests."""

import importlib.util
from pathlib import Path

_spec = importlib.util.spec_from_file_location("windrow_tests_postgres", Path(__file__).parents[1] / "postgres.py")
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
postgres, postgres_server = _module.postgres, _module.postgres_server
