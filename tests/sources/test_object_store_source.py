"""Files of an object store: read as they appear, and by a replay, by addresses, patterns and folders `column=value`."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv, ipc, parquet

import windrow
from windrow.errors import SourceError

FORMS = ("parquet", "csv", "json", "arrow")
RUNTIMES = ["local", pytest.param("spark", marks=pytest.mark.spark)]
COLUMNS = "(ts BIGINT, a BIGINT, k VARCHAR) TIMESTAMP BY ts"


def _module() -> Any:
    path = Path(__file__).parents[1] / "object_store.py"
    spec = importlib.util.spec_from_file_location("windrow_tests_object_store", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def objects() -> Iterator[Any]:
    server = _module().ObjectStore()
    yield server
    server.close()


def content(form: str, numbers: range) -> bytes:
    """A file of rows."""
    table, out = pa.table({"ts": list(numbers), "a": [n * n for n in numbers]}), io.BytesIO()
    if form == "parquet":
        parquet.write_table(table, out, row_group_size=3)
    elif form == "csv":
        csv.write_csv(table, out)
    elif form == "arrow":
        with ipc.new_file(out, table.schema) as writer:
            writer.write_table(table, max_chunksize=3)
    else:
        out.write("".join(json.dumps(r) + "\n" for r in table.to_pylist()).encode())
    return out.getvalue()


def rows(found: pa.Table) -> list[tuple[int, int, str | None]]:
    return sorted((r["ts"], r["a"], r["k"]) for r in found.to_pylist())


def drained(engine: windrow.Engine, objects: Any, every: int | None) -> None:
    """Take all there is; what a client does not try again stops the stream, which goes on from the same place."""
    objects.fail(every)
    try:
        engine.drain(60)
    except SourceError:
        objects.fail(None)
        engine.drain(60)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("every", [None, 9])
def test_objects_are_taken_once_as_they_appear(objects: Any, tmp_path: Path, form: str, every: int | None) -> None:
    """Between ticks and after a restart, also from a store that refuses requests now and then."""
    for n in range(3):
        objects.objects[f"in/k=p/{n}.{form}"] = content(form, range(10 * n, 10 * n + 10))
    script = f"""
        CREATE STREAM s {COLUMNS} FROM {form} (path => '{objects.uri("in")}');
        CREATE QUERY q AS SELECT ISTREAM(ts AS t, a, k) FROM s [NOW]
    """
    found: list[dict[str, Any]] = []
    for life in range(2):
        objects.fail(None)
        with windrow.Engine(runtime="local", home=str(tmp_path)) as engine:
            if not life:
                engine.execute(script)
            engine.start()
            for n in range(3 + 2 * life, 5 + 2 * life):
                objects.objects[f"in/k=q%2F{n}/{n}.{form}"] = content(form, range(10 * n, 10 * n + 10))
                drained(engine, objects, every)
            found += engine["q"].results().to_pylist()
            assert engine.status()["streams"]["s"]["rows"] == 50 + 20 * life - 50 * life
    assert [r["t"] for r in found] == list(range(69))  # the last instant is not over
    assert [r["k"] for r in found] == ["p"] * 30 + [f"q/{n // 10}" for n in range(30, 69)]
    assert objects.refused > 0 or every is None


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("form", FORMS)
def test_a_replay_of_addresses_and_patterns(
    objects: Any, tmp_path: Path, form: str, runtime: str, request: pytest.FixtureRequest
) -> None:
    """Of objects, of a folder with folders, and of names that match: the rows that a source would take."""
    spark = request.getfixturevalue("spark") if runtime == "spark" else None
    script = f"CREATE STREAM s {COLUMNS}; CREATE QUERY q AS SELECT ISTREAM(ts AS t, a, k) FROM s [NOW]"
    want = [(n, n * n, "p" if n < 10 else "q") for n in range(20)]
    places = ((objects.uri("in"), objects.objects), (str(tmp_path / "in"), None))
    for n, name in enumerate(("in/k=p/0.", "in/k=q/1.")):
        data = content(form, range(10 * n, 10 * n + 10))
        objects.objects[name + form] = data
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Path(str(tmp_path / name) + form).write_bytes(data)
    patterns = (objects.uri("*/k={p,q}"), f"{tmp_path}/i?/k=*/[01].{form}")
    for path in (*(p for p, _ in places), *patterns):
        got = windrow.run(script, {"s": path}, runtime=runtime, spark=spark)["q"].rename_columns(
            ["_ts", "ts", "a", "k"]
        )
        if "k=" in path.partition("?")[0]:  # what is in the pattern is not in the names behind it, in the folder it is
            assert [r[:2] for r in rows(got)] == [w[:2] for w in want]
        else:
            assert rows(got) == want
    if form in ("parquet", "arrow"):  # files that say their types need no declaration
        got = windrow.run("SELECT ISTREAM(a, k) FROM s [NOW]", {"s": objects.uri("in")}, runtime=runtime, spark=spark)
        assert [r["k"] for r in got["q1"].to_pylist()] == ["p"] * 10 + ["q"] * 10
    else:
        with pytest.raises(SourceError, match="does not say the types of its columns"):
            windrow.run("SELECT a FROM s", {"s": objects.uri("in")}, runtime=runtime, spark=spark)


def test_paths_without_files(objects: Any, tmp_path: Path) -> None:
    """Are refused by name."""
    script = f"CREATE STREAM s {COLUMNS}; SELECT a FROM s"
    objects.objects["other/x"] = b"1"
    for path in (objects.uri("nowhere"), f"{tmp_path}/*.csv", f"{tmp_path}/none"):
        with pytest.raises(SourceError, match=r"nowhere|no files in|no such file"):
            windrow.run(script, {"s": path}, runtime="local")
