"""The closed list of functions against the DuckDB that is installed: each is there, and none changes by itself."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

from windrow.cql import builtins
from windrow.scalar_engine import connect

CALLS = (Path(__file__).parents[1] / "fixtures" / "builtin_calls.sql").read_text(encoding="utf-8").splitlines()
SYNTAX = {"coalesce", "ifnull", "try"}  # DuckDB's parser knows them, its catalog does not
NEVER = builtins.names(
    """
    now today current_date current_timestamp get_current_time current_localtime current_localtimestamp ago random
    setseed uuid uuidv4 uuidv7 gen_random_uuid nextval currval setval sleep_ms pg_sleep current_setting getvariable
    current_database current_schema current_schemas current_user current_query version stats vector_type write_log error
    in_search_path txid_current alias json_serialize_sql json_deserialize_sql json_serialize_plan unnest query read_text
    read_csv read_blob glob getenv pragma_version duckdb_settings create_sort_key invoke cast_to_type make_type
    from_json
    """
)


def test_every_function_is_a_scalar_that_is_consistent():
    """Nothing on the list is unknown to DuckDB, is no scalar, or is said to be volatile."""
    rows = connect().sql("SELECT lower(function_name), function_type, stability FROM duckdb_functions()").fetchall()
    known: dict[str, set[tuple[str, str | None]]] = {}
    for name, kind, stability in rows:
        known.setdefault(name, set()).add((kind, stability))
    for name in builtins.SCALARS - SYNTAX:
        assert {k for k, _ in known.get(name, set())} & {"scalar", "macro"}, name
        assert {s for k, s in known[name] if k == "scalar"} <= {"CONSISTENT"}, name


def test_groups_are_apart():
    """A function grows in one way."""
    groups = [
        builtins.FIXED, builtins.SUMS, builtins.SCALED, builtins.PRODUCTS, builtins.TRANSFORMS, builtins.GENERATORS,
        builtins.SERIES, builtins.PATTERNS, builtins.REDUCERS, builtins.FINDERS,
    ]  # fmt: skip
    for a, b in itertools.combinations(groups, 2):
        assert not set(a) & set(b)
    assert builtins.PAIRS <= builtins.FIXED
    assert set(builtins.PRODUCTS) >= builtins.LIST_AGGREGATORS


def test_what_must_never_be_called_is_not_on_the_list():
    """The clock, chance, sleep, the session, the catalog, files and SQL as text stay outside."""
    assert not builtins.SCALARS & NEVER


def test_every_function_is_called_here():
    """The calls below leave none out."""
    assert {re.match(r"\w*", call).group().lower() for call in CALLS} >= builtins.SCALARS


ANSWER = """
import sys
from windrow.scalar_engine import connect
connection = connect()
for call in open(sys.argv[1], encoding="utf-8"):
    print(connection.sql(f"SELECT CAST({call} AS VARCHAR)").fetchall())
"""


def test_every_function_gives_the_same_value_everywhere():
    """Two processes with other time zones, locales and environments give equal values."""
    path = Path(__file__).parents[1] / "fixtures" / "builtin_calls.sql"
    said = []
    for zone, locale in (("America/New_York", "C"), ("Asia/Kolkata", "C.UTF-8")):
        environment = {**os.environ, "TZ": zone, "LC_ALL": locale, "PYTHONIOENCODING": "utf-8"}
        done = subprocess.run(
            [sys.executable, "-c", ANSWER, str(path)], capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.splitlines())
    assert len(said[0]) == len(CALLS)
    assert said[0] == said[1]
