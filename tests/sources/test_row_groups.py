"""Row groups that nobody wants are not read: answers, times and late rows are those of all rows."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import windrow
from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.sources.data_file import DataFile
from windrow.sources.read_parquet import ParquetPiece
from windrow.store.place import Place

COLUMNS = "(ts BIGINT, a BIGINT, x DOUBLE, t TIMESTAMP, s VARCHAR) TIMESTAMP BY ts"
TESTS = (
    "a < {n}", "a > {n}", "a = {n}", "a IN ({n}, 3)", "a BETWEEN {n} AND 12", "a IS NULL", "NOT (a > {n})", "x > {n}",
    "x <= {n}.5", "a > {n} AND x < 6", "a > {n} OR x < 2", "a + 1 > {n}", "s = 'b'", "ts > {n}",
    "t >= TIMESTAMP '1970-01-01 00:00:0{n}'", "a > {n} AND s = 'a'",
)  # fmt: skip
QUERIES = (
    "SELECT COUNT(*) AS n, SUM(a) AS v FROM s [RANGE 10 SLIDE 5] WHERE {test}",
    "SELECT ISTREAM(a, ts) FROM s [RANGE 4] WHERE {test}",
    "SELECT a FROM s [ROWS 3] WHERE {test}",
    "SELECT COUNT(*) AS n FROM s [RANGE 6] p, s [RANGE 6] q WHERE p.a = q.a AND p.a > {n} AND q.x < 6",
)


def rows(seed: int, sorted_: bool) -> pa.Table:
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 20, 60)
    a = np.sort(a) if sorted_ else a
    x = rng.integers(0, 20, 60) / 2
    x[rng.random(60) < 0.1] = np.nan
    return pa.table(
        {
            "ts": np.arange(60) // 2,
            "a": pa.array(a, mask=rng.random(60) < 0.1),
            "x": np.sort(x) if sorted_ else x,
            "t": pa.array(np.sort(rng.integers(0, 10_000_000, 60)), pa.timestamp("us")),
            "s": rng.choice(["a", "b", "c"], 60),
        }
    )


def answered(table: pa.Table, script: str, files: int = 2) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """What a live engine answers over files of small row groups, and its status."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "in"
        place.mkdir()
        step = table.num_rows // files
        for n in range(files):
            path = place / f"{n}.parquet"
            parquet.write_table(table.slice(n * step, step), path, row_group_size=5)
            os.utime(path, (n + 1, n + 1))
        with windrow.Engine(runtime="local", home=f"{folder}/home") as engine:
            engine.execute(f"CREATE STREAM s {COLUMNS} FROM parquet (path => '{place}', max_files => 1); {script}")
            engine.start()
            engine.drain(60)
            found = {name: sorted(engine[name].results().to_pylist(), key=str) for name in engine.catalog.queries}
            return found, engine.status()


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    sorted_=st.booleans(),
    queries=st.lists(
        st.tuples(st.sampled_from(QUERIES), st.sampled_from(TESTS), st.integers(0, 9)), min_size=1, max_size=3
    ),
)
def test_answers_are_those_of_all_rows(seed: int, sorted_: bool, queries: list[tuple[str, str, int]]) -> None:
    """For any queries over any columns, skipping changes neither answers nor counts nor the time reached."""
    table = rows(seed, sorted_)
    texts = [text.replace("{test}", test).replace("{n}", str(n)) for text, test, n in queries]
    script = ";".join(f"CREATE QUERY q{i} AS {text}" for i, text in enumerate(texts))
    got, status = answered(table, script)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParquetPiece, "without", lambda self, *_: (self, []))
        want, told = answered(table, script)
    assert got == want
    for what in ("rows", "late"):
        assert status["streams"]["s"][what] == told["streams"]["s"][what]
    assert status["frontier"] == told["frontier"]


def test_time_passes_over_what_is_skipped() -> None:
    """A file of which nobody wants a row is not read, is counted, and lets time go on."""
    table = rows(1, True).set_column(1, "a", pa.array(np.arange(60)))
    read: list[int] = []
    whole = ParquetPiece.read

    def counted(self: ParquetPiece, *given: Any) -> Any:
        for batch in whole(self, *given):
            read.append(batch.num_rows)
            yield batch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParquetPiece, "read", counted)
        got, status = answered(table, "CREATE QUERY q AS SELECT ISTREAM(a) FROM s [RANGE 4] WHERE a BETWEEN 3 AND 8")
    assert [r["a"] for r in got["q"]] == [3, 4, 5, 6, 7, 8]
    assert sum(read) == 10
    assert status["streams"]["s"]["rows"] == 60 and status["frontier"] == 28


@pytest.mark.parametrize("select", ["ISTREAM(a) FROM s [RANGE 4]", "COUNT(*) AS n FROM s [RANGE 2 SLIDE 2]"])
def test_of_very_many_queries_none_is_forgotten(select: str) -> None:
    """Beyond as many conditions as are looked at, every row is somebody's."""
    table = rows(1, True).set_column(1, "a", pa.array(np.arange(60)))
    only = "; ".join(
        f"CREATE QUERY q{i} AS SELECT {select} WHERE a = {5 if i < 300 else 50} AND length(s) <> {i + 9}"
        for i in range(301)
    )
    got, _ = answered(table, only)
    assert sum(r.get("n", 1) for r in got["q300"]) == 1


def test_a_file_that_cannot_be_read_is_left_to_its_reader(tmp_path: Path) -> None:
    """Asking a footer raises nothing: not for what is no Parquet, nor for columns of other types."""
    definition = StreamDef("s", {"ts": pa.int64(), "a": pa.int64()}, "ts")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 is not enough")
    parquet.write_table(pa.table({"ts": [1], "a": ["x"]}), tmp_path / "other.parquet")
    for name in ("bad.parquet", "other.parquet"):
        file = DataFile(Place.of(str(tmp_path)), name, (tmp_path / name).stat().st_size)
        piece = ParquetPiece(file, 0, 1, 1)
        assert piece.without(definition, ["a"], lambda group: True) == (piece, [])
        with pytest.raises(SourceError):
            list(piece.read(definition, None))
