"""Row groups that nobody wants are not read: answers, times and late rows are those of all rows."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv, ipc, parquet

import windrow
from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.runtime import feed, job
from windrow.sources.data_file import DataFile
from windrow.sources.lines import LinePiece
from windrow.sources.read_arrow import ArrowPiece
from windrow.sources.read_parquet import ParquetPiece
from windrow.store.place import Place

COLUMNS = "(ts BIGINT, a BIGINT, x DOUBLE, t TIMESTAMP, s VARCHAR, d DATE, ok BOOLEAN, k VARCHAR) TIMESTAMP BY ts"
TESTS = (
    "a < {n}", "a > {n}", "a = {n}", "a IN ({n}, 3)", "a BETWEEN {n} AND 12", "a IS NULL", "NOT (a > {n})", "x > {n}",
    "x <= {n}.5", "a > {n} AND x < 6", "a > {n} OR x < 2", "a + 1 > {n}", "s = 'b'", "ts > {n}",
    "t >= TIMESTAMP '1970-01-01 00:00:0{n}'", "a > {n} AND s = 'a'", "s > 'a'", "s LIKE 'b%'", "ok", "NOT ok",
    "d < DATE '1970-01-0{m}'", "k = 'p'", "k IS NULL", "k > 'p' AND a < {n}", "k = 'r'", "a IS NOT NULL AND k = 'q'",
)  # fmt: skip
QUERIES = (
    "CREATE QUERY {q} AS SELECT COUNT(*) AS n, SUM(a) AS v FROM s [RANGE 10 SLIDE 5] WHERE {test}",
    "CREATE QUERY {q} AS SELECT ISTREAM(a, ts) FROM s [RANGE 4] WHERE {test}",
    "CREATE QUERY {q} AS SELECT a FROM s [ROWS 3] WHERE {test}",
    "CREATE QUERY {q} AS SELECT COUNT(*) AS n FROM s [RANGE 6] p, s [RANGE 6] q "
    "WHERE p.a = q.a AND p.a > {n} AND q.x < 6",
    "CREATE QUERY {q} AS SELECT COUNT(*) AS n FROM s [RANGE 6 SLIDE 2] p, s [RANGE 4 SLIDE 2] q "
    "WHERE p.a = q.a AND p.k = 'p' AND q.s = 'b'",
    "CREATE ARCHIVE {q} AS SELECT a, ts FROM s [RANGE 5] WHERE {test} KEY a EVERY 5",
    "CREATE TABLE {q} (a BIGINT); CREATE QUERY of_{q} AS SELECT a FROM s [RANGE 5] WHERE a NOT IN (SELECT a FROM {q})",
)
FOLDERS = ("k=p", "k=q", "k=__HIVE_DEFAULT_PARTITION__")


def rows(seed: int, sorted_: bool, punctual: bool = True) -> pa.Table:
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 20, 60)
    a = np.sort(a) if sorted_ else a
    x = rng.integers(0, 20, 60) / 2
    x[rng.random(60) < 0.1] = np.nan
    ts = np.arange(60) // 2
    return pa.table(
        {
            "ts": ts if punctual else np.maximum(0, ts + rng.integers(-9, 3, 60)),
            "a": pa.array(a, mask=rng.random(60) < 0.1),
            "x": np.sort(x) if sorted_ else x,
            "t": pa.array(np.sort(rng.integers(0, 10_000_000, 60)), pa.timestamp("us")),
            "s": np.sort(rng.choice(["a", "b", "c"], 60)) if sorted_ else rng.choice(["a", "b", "c"], 60),
            "d": pa.array(np.sort(rng.integers(0, 9, 60)).astype(np.int32)).cast(pa.date32()),
            "ok": np.arange(60) % 30 < 11,
        }
    )


def write(table: pa.Table, path: Path, form: str) -> None:
    if form == "parquet":
        parquet.write_table(table, path, row_group_size=5)
    elif form == "arrow":
        with ipc.new_file(path, table.schema) as out:
            out.write_table(table, max_chunksize=5)
    elif form == "csv":
        csv.write_csv(table, path)
    else:
        told = (
            {k: v if isinstance(v, int | float | None) else str(v) for k, v in r.items()} for r in table.to_pylist()
        )
        path.write_text("".join(json.dumps({k: v for k, v in r.items() if v == v}) + "\n" for r in told))


def answered(
    table: pa.Table, script: str, form: str = "parquet", clauses: str = ""
) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """What a live engine answers over files of small row groups in folders, and its status."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "in"
        step = -(-table.num_rows // len(FOLDERS))
        for n, name in enumerate(FOLDERS):
            path = place / name / f"{n}.{form}"
            path.parent.mkdir(parents=True)
            write(table.slice(n * step, step), path, form)
            os.utime(path, (n + 1, n + 1))
        with windrow.Engine(runtime="local", home=f"{folder}/home") as engine:
            engine.execute(
                f"CREATE STREAM s {COLUMNS} {clauses} FROM {form} (path => '{place}', max_files => 1); {script}"
            )
            engine.start()
            engine.drain(60)
            found = {name: sorted(engine[name].results().to_pylist(), key=str) for name in engine.catalog.queries}
            found |= {
                name: sorted(engine.ask(f"SELECT * FROM {name}").to_pylist(), key=str)
                for name in engine.catalog.archives
            }
            late = {"late": sorted(map(str, engine.late("s").to_pylist())), "aside": engine.quarantine("s").to_pylist()}
            return {**found, **late}, engine.status()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    sorted_=st.booleans(),
    punctual=st.booleans(),
    form=st.sampled_from(["parquet", "parquet", "arrow", "csv", "json"]),
    clauses=st.sampled_from(["", "", "WITHIN 2", "WITHIN 3 ON ERROR QUARANTINE", "RETAIN 9"]),
    queries=st.lists(st.tuples(st.sampled_from(QUERIES), st.sampled_from(TESTS), st.integers(0, 9)), max_size=3),
)
def test_answers_are_those_of_all_rows(
    seed: int, sorted_: bool, punctual: bool, form: str, clauses: str, queries: list[tuple[str, str, int]]
) -> None:
    """For any queries over any columns, what is left out changes neither answers nor counts nor the time reached."""
    table = rows(seed, sorted_, punctual)
    script = ";".join(
        text.replace("{test}", test).replace("{n}", str(n)).replace("{m}", str(n % 9 + 1)).replace("{q}", f"q{i}")
        for i, (text, test, n) in enumerate(queries)
    )
    got, status = answered(table, script, form, clauses)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "wanted", lambda program, stream, pieces: feed.Wanted(list(pieces), [], None))
        want, told = answered(table, script, form, clauses)
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


@contextlib.contextmanager
def told_of_reads(form: str) -> Iterator[list[tuple[str, Any]]]:
    """Which files are read by tasks, and which columns of them."""
    read: list[tuple[str, Any]] = []

    def told(self: Any, stream: Any, columns: Any, report: Any = None) -> Any:
        read.append((self.file.name, columns))
        return whole(self, stream, columns, report)

    kind: Any = {"parquet": ParquetPiece, "arrow": ArrowPiece}.get(form, LinePiece)
    whole = kind.read
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "read", told)
        yield read


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv", "json"])
def test_folders_that_nobody_wants_are_not_read(form: str) -> None:
    """Of files in such folders times count; of Parquet these are known, of others nothing else is read."""
    with told_of_reads(form) as read:
        got, status = answered(
            rows(1, True), "CREATE QUERY q AS SELECT ISTREAM(a) FROM s [RANGE 4] WHERE k = 'q'", form
        )
    others = [] if form == "parquet" else [(f"{FOLDERS[n]}/{n}.{form}", ["ts"]) for n in (0, 2)]
    assert sorted(read) == sorted([*others, (f"k=q/1.{form}", ("ts", "a", "k"))])
    assert len(got["q"]) == 20
    assert status["streams"]["s"]["rows"] == 60 and status["frontier"] == 28


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv", "json"])
def test_a_stream_that_nobody_reads(form: str) -> None:
    """Time goes on by its footers alone, and where files do not say, by their times; rows that are late are kept."""
    with told_of_reads(form) as read:
        _, status = answered(rows(1, True), "", form)
    assert read == ([] if form == "parquet" else [(f"{FOLDERS[n]}/{n}.{form}", ["ts"]) for n in range(3)])
    assert status["streams"]["s"]["rows"] == 60 and status["frontier"] == 28
    with told_of_reads(form) as read:
        found, status = answered(rows(1, False, punctual=False), "", form)
    assert len(found["late"]) == status["streams"]["s"]["late"] > 0
    assert {columns is None for _, columns in read} == {True, False}


@pytest.mark.parametrize("clauses", ["", "ON ERROR QUARANTINE"])
@pytest.mark.parametrize("script", ["", "CREATE QUERY q AS SELECT a FROM s [RANGE 4] WHERE k = 'q'"])
def test_a_malformed_row_counts_whoever_reads(clauses: str, script: str, tmp_path: Path) -> None:
    """It stops the stream or is set aside, and its time does not count, in a column that nobody reads, too."""
    (tmp_path / "k=p").mkdir()
    (tmp_path / "k=p" / "a.csv").write_text("ts,a,x\n1,1,0.5\n99,1,half\n")
    with windrow.Engine(runtime="local") as engine:
        columns = "(ts BIGINT, a BIGINT, x DOUBLE, k VARCHAR) TIMESTAMP BY ts"
        engine.execute(f"CREATE STREAM s {columns} {clauses} FROM csv (path => '{tmp_path}'); {script}")
        engine.start()
        if clauses:
            engine.drain(60)
            assert engine.quarantine("s")["text"].to_pylist() == ["99,1,half"]
            assert engine.status()["frontier"] == 0
        else:
            with pytest.raises(SourceError, match=r"malformed row in .*a\.csv, line 3"):
                engine.drain(60)


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
        assert piece.row_groups(definition, ["a"]) is None
        with pytest.raises(SourceError):
            list(piece.read(definition, None))
