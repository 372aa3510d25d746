"""Rows and files that cannot be read: set aside with their place and reason, or the stream stops, and only it."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import ipc
from tests.waiting import until

import windrow
from windrow.errors import CQLSyntaxError, SourceError
from windrow.sources import quarantined_rows as limits
from windrow.testing import assert_same

COLUMNS = "(ts BIGINT, k BIGINT, name VARCHAR)"
QUERY = "CREATE QUERY q AS SELECT k, COUNT(*) AS n FROM s [RANGE 5] GROUP BY k;"
RUNTIMES = ["local", pytest.param("spark", marks=pytest.mark.spark)]


def put(folder: Path, name: str, data: str | bytes | pa.Table) -> Path:
    """A file appears whole, later than those before it."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{name}"
    if isinstance(data, pa.Table):
        pq.write_table(data, hidden)
    else:
        hidden.write_bytes(data.encode() if isinstance(data, str) else data)
    at = 1_700_000_000 + len(list(folder.iterdir()))
    os.utime(hidden, (at, at))
    return hidden.rename(folder / name)


def opened(request: pytest.FixtureRequest, runtime: str, home: Path | None = None) -> windrow.Engine:
    """An engine of a runtime."""
    spark = {"spark": request.getfixturevalue("spark")} if runtime == "spark" else {}
    return windrow.Engine(runtime=runtime, home=home, **spark)


def declared(kind: str, folder: Path, clause: str = "ON ERROR QUARANTINE") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    return f"CREATE STREAM s {COLUMNS} TIMESTAMP BY ts {clause} FROM {kind} (path => '{folder}');"


def answered(engine: windrow.Engine, rows: list[tuple[int, int, str]]) -> None:
    """The query has answered these rows, and no others."""
    ts, k, name = zip(*rows, strict=True)
    want = windrow.run(
        f"CREATE STREAM s {COLUMNS} TIMESTAMP BY ts; {QUERY}",
        {"s": pa.table({"ts": ts, "k": k, "name": name})},
        runtime="local",
        until=engine.status()["frontier"],
    )["q"]
    assert_same(engine["q"].results(), want)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_lines_that_cannot_be_read_are_set_aside(runtime: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Each with file, line, reason and text; the rest is answered; a restart counts them once."""
    data, home = tmp_path / "in", tmp_path / "home"
    with opened(request, runtime, home) as engine:
        engine.execute(declared("csv", data) + QUERY)
        put(data, "a.csv", "ts,k,name\n1,1,a\n2,x,b\n,3,c\n4,4,d\n5,5\n6,6,e\n")
        put(data, "b.csv", "ts,k,name\n7,7,f\n8,8888888888888888888888,g\n")
        put(data, "c.csv", "ts,name\n9,h\n")
        put(data, "e.csv", "ts,k,name\n")
        engine.start()
        engine.drain()
        engine.drain()
        found = sorted(engine.quarantine("s").to_pylist(), key=lambda r: (r["file"], r["position"] or ""))
        assert [(Path(r["file"]).name, r["position"], r["text"]) for r in found] == [
            ("a.csv", "line 3", "2,x,b"), ("a.csv", "line 4", ",3,c"), ("a.csv", "line 6", "5,5"),
            ("b.csv", "line 3", "8,8888888888888888888888,g"), ("c.csv", None, None),
            ("e.csv", None, None),
        ]  # fmt: skip
        assert "'x' is not BIGINT" in found[0]["reason"]
        assert "is NULL" in found[1]["reason"]
        assert "2 values, 3 expected" in found[2]["reason"]
        assert 'has no column "k"' in found[4]["reason"]
        assert found[5]["reason"] == "the file has no rows"
        assert engine.status()["streams"]["s"]["quarantined"] == 6
        answered(engine, [(1, 1, "a"), (4, 4, "d"), (6, 6, "e"), (7, 7, "f")])
    with opened(request, runtime, home) as engine:
        engine.start()
        put(data, "d.csv", "ts,k,name\n10,1,x\nwhat\n")
        engine.drain()
        assert engine.quarantine("s").num_rows == engine.status()["streams"]["s"]["quarantined"] == 7


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_files_that_cannot_be_read_are_set_aside(runtime: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """A truncated file, one with another type, rows without a time; the others are answered."""
    data = tmp_path / "in"
    good = pa.table({"ts": [1, 2, 3], "k": [1, 2, 3], "name": ["a", "b", "c"]})
    with opened(request, runtime, tmp_path / "home") as engine:
        engine.execute(declared("parquet", data) + QUERY)
        put(data, "a.parquet", good)
        whole = put(
            tmp_path / "else", "whole.parquet", pa.table({"ts": range(9999), "k": range(9999), "name": ["x"] * 9999})
        )
        put(data, "b.parquet", whole.read_bytes()[:-500])
        put(data, "c.parquet", pa.table({"ts": ["soon"], "k": [1], "name": ["a"]}))
        put(data, "d.parquet", pa.table({"ts": [4, None, 6], "k": [4, 5, 6], "name": ["d", "e", "f"]}))
        engine.start()
        engine.drain()
        found = {Path(r["file"]).name: r for r in engine.quarantine("s").to_pylist()}
        assert set(found) == {"b.parquet", "c.parquet", "d.parquet"}
        assert "cannot read" in found["b.parquet"]["reason"]
        assert 'column "ts" is declared BIGINT' in found["c.parquet"]["reason"]
        assert found["d.parquet"]["position"] == "row 2"
        assert json.loads(found["d.parquet"]["text"])["k"] == 5
        answered(engine, [(1, 1, "a"), (2, 2, "b"), (3, 3, "c"), (4, 4, "d"), (6, 6, "f")])


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "json"])
def test_files_without_rows_are_noted(kind: str, runtime: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Whatever the format, with or without parts that have none; the stream goes on."""
    data, good = tmp_path / "in", pa.table({"ts": [1], "k": [1], "name": ["a"]})
    batches = [pa.RecordBatch.from_pylist([], schema=good.schema)]
    none = {
        "parquet": [parquet_file(good.schema, [])],
        "arrow": [arrow_file(good.schema, [], ipc.new_file), arrow_file(good.schema, batches, ipc.new_file),
                  arrow_file(good.schema, [], ipc.new_stream)],
        "csv": [b"ts,k,name\n"],
        "json": [b"\n"],
    }[kind]  # fmt: skip
    one = {
        "parquet": parquet_file(good.schema, good.to_batches()),
        "arrow": arrow_file(good.schema, good.to_batches(), ipc.new_file),
        "csv": b"ts,k,name\n1,1,a\n",
        "json": b'{"ts": 1, "k": 1, "name": "a"}\n',
    }[kind]
    with opened(request, runtime, tmp_path / "home") as engine:
        engine.execute(declared(kind, data) + QUERY)
        for number, content in enumerate([*none, one]):
            put(data, f"{number}.{kind}", content)
        engine.start()
        engine.drain()
        found = engine.quarantine("s").to_pylist()
        assert [Path(r["file"]).name for r in found] == [f"{n}.{kind}" for n in range(len(none))]
        assert {r["reason"] for r in found} == {"the file has no rows"}
        answered(engine, [(1, 1, "a")])


def parquet_file(schema: pa.Schema, batches: list[pa.RecordBatch]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_batches(batches, schema), sink)
    return sink.getvalue()


def arrow_file(schema: pa.Schema, batches: list[pa.RecordBatch], form: Any) -> bytes:
    sink = io.BytesIO()
    with form(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_by_default_the_stream_stops_and_only_it(runtime: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Its time stands still, status says so, others are read; mended, it goes on and nothing is lost."""
    data = tmp_path / "in"
    with opened(request, runtime, tmp_path / "home") as engine:
        engine.execute(declared("json", data, "ON ERROR STOP") + QUERY)
        engine.execute("CREATE STREAM other (ts BIGINT, k BIGINT) TIMESTAMP BY ts RETAIN 100")
        put(data, "a.json", '{"ts": 1, "k": 1, "name": "a"}\n{"ts": 3, "k": 2, "name": "b"}\n')
        engine.start()
        engine.push("other", {"ts": [3], "k": [1]})
        engine.drain()
        bad = put(data, "b.json", '{"ts": 5, "k": 1, "name": "c"}\n{"ts": 6, "k": "many", "name": "d"}\n')
        engine.push("other", {"ts": [9], "k": [1]})
        with pytest.raises(SourceError, match=r"malformed row in .*b\.json, line 2"):
            engine.drain()
        said = engine.status()
        assert said["running"] and said["error"] is None
        assert "b.json, line 2" in said["streams"]["s"]["error"] and said["streams"]["s"]["stopped_since"]
        assert said["streams"]["other"]["rows"] == 2 and said["streams"]["s"]["rows"] == 2
        engine.execute("CREATE QUERY late AS SELECT k FROM other [RANGE 50]; DROP QUERY late")
        bad.write_text('{"ts": 5, "k": 1, "name": "c"}\n{"ts": 6, "k": 7, "name": "d"}\n')
        engine.drain()
        assert engine.status()["streams"]["s"]["error"] is None
        answered(engine, [(1, 1, "a"), (3, 2, "b"), (5, 1, "c"), (6, 7, "d")])


def test_pushed_rows_without_a_time(tmp_path: Path) -> None:
    """They are refused at the door, or set aside where the stream says so."""
    for clause in ("", "ON ERROR QUARANTINE"):
        with windrow.Engine(runtime="local") as engine:
            engine.execute(f"CREATE STREAM s {COLUMNS} TIMESTAMP BY ts {clause}; {QUERY}")
            engine.start()
            rows = {"ts": [1, None, 3], "k": [1, 2, 3], "name": ["a", "b", "c"]}
            if not clause:
                with pytest.raises(SourceError, match="without a time"):
                    engine.push("s", rows)
            else:
                engine.push("s", rows)
                (found,) = engine.quarantine("s").to_pylist()
                assert json.loads(found["text"]) == {"ts": None, "k": 2}  # what somebody reads
                assert engine["q"].results().num_rows == 1


def test_what_is_not_the_declared_format_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More malformed rows than are worth keeping stop the stream."""
    monkeypatch.setattr(limits, "MOST", 10)
    with windrow.Engine(runtime="local") as engine:
        engine.execute(declared("csv", tmp_path / "in") + QUERY)
        put(tmp_path / "in", "a.csv", "ts,k,name\n" + "no\n" * 50)
        engine.start()
        with pytest.raises(SourceError, match="more than 10 rows of one tick cannot be read"):
            engine.drain()
        assert engine.quarantine("s").num_rows == 0


def test_a_source_that_is_gone_stops_its_stream(tmp_path: Path) -> None:
    """And the engine goes on without it, and with it when it is back."""
    data = tmp_path / "in"
    with windrow.Engine(runtime="local", home=tmp_path / "home") as engine:
        engine.execute(declared("csv", data) + QUERY)
        engine.start()
        put(data, "a.csv", "ts,k,name\n1,1,a\n2,2,b\n")
        engine.drain()
        (data / "a.csv").rename(tmp_path / "kept")
        data.rmdir()
        until(lambda: engine.status()["streams"]["s"]["error"] is not None)
        assert engine.status()["running"]
        put(data, "b.csv", "ts,k,name\n5,1,a\n")
        engine.drain()
        assert engine.status()["streams"]["s"]["greatest"] == 5


BAD = st.sampled_from(
    ["nonsense", '{"ts": null, "k": 1}', '{"ts": 1, "k": "x"}', "[1]", '{"k": 2}', '{"ts": 3, "k": 1']
)


@given(st.lists(st.lists(BAD | st.integers(0, 3), max_size=5), min_size=1, max_size=5), st.sets(st.integers(0, 4)))
@settings(max_examples=15)
def test_every_line_is_answered_or_set_aside(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[Any]], restarts: set[int]
) -> None:
    """Good and bad lines in any order, over restarts: each once, in one place."""
    folder = tmp_path_factory.mktemp("q")
    engine, ts, good, bad = windrow.Engine(runtime="local", home=folder / "home"), 0, [], []
    engine.execute(declared("json", folder / "in") + QUERY)
    engine.sink("q", "parquet", path=str(folder / "out"))
    engine.start()
    for number, lines in enumerate(files):
        texts = []
        for line in lines:
            ts += 1
            if isinstance(line, int):
                good.append((ts, line, "n"))
                texts.append(json.dumps({"ts": ts, "k": line, "name": "n"}))
            else:
                bad.append(line)
                texts.append(line)
        put(folder / "in", f"{number}.json", "\n".join(texts))
        if number in restarts:
            engine.stop()
            engine = windrow.Engine(runtime="local", home=folder / "home")
            engine.sink("q", "parquet", path=str(folder / "out"))
            engine.start()
        engine.drain()
    assert sorted(engine.quarantine("s")["text"].to_pylist()) == sorted(bad)
    frontier = engine.status()["frontier"]
    engine.stop()
    if len(good) > 1:
        ts_, k, name = zip(*good, strict=True)
        script = f"CREATE STREAM s {COLUMNS} TIMESTAMP BY ts; {QUERY}"
        streams = {"s": pa.table({"ts": ts_, "k": k, "name": name})}
        want = windrow.run(script, streams, runtime="local", until=frontier)["q"]
        assert_same(pq.read_table(folder / "out" / "q").sort_by("_ts"), want)


def test_texts_mean_the_same_live_and_in_a_replay(tmp_path: Path) -> None:
    """Times with zones and without, csv with more columns in another order."""
    columns = "(ts TIMESTAMP, k BIGINT)"
    files = {
        "json": '{"k": 1, "ts": "2024-01-01T02:00:00+02:00"}\n{"ts": "2024-01-01 00:00:01Z", "k": 2, "more": [1]}\n'
        '{"ts": "2024-01-01 00:00:02", "k": 3}\n{"ts": "2024-01-01T00:00:09.5", "k": 4}\n',
        "csv": "more,k,ts\nx,1,2024-01-01T02:00:00+02:00\n,2,2024-01-01 00:00:01Z\n"
        "y,3,2024-01-01 00:00:02\nz,4,2024-01-01T00:00:09.5\n",
    }
    found = []
    for kind, text in files.items():
        path = put(tmp_path / kind, f"a.{kind}", text)
        query = "CREATE QUERY q AS SELECT k FROM s [RANGE 5 SECONDS]"
        with windrow.Engine(runtime="local") as engine:
            engine.execute(f"CREATE STREAM s {columns} TIMESTAMP BY ts FROM {kind} (path => '{path.parent}'); {query}")
            engine.start()
            engine.drain()
            until, live = engine.status()["frontier"], engine["q"].results()
        script = f"CREATE STREAM s {columns} TIMESTAMP BY ts; {query}"
        found += [live, windrow.run(script, {"s": str(path)}, runtime="local", until=until)["q"]]
    assert found[0].num_rows == 6
    for other in found[1:]:
        assert_same(other, found[0])


def test_the_command_line_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For people and for programs."""
    from windrow.cli.state import main

    with windrow.Engine(runtime="local", home=tmp_path / "home") as engine:
        engine.execute(declared("csv", tmp_path / "in") + QUERY)
        put(tmp_path / "in", "a.csv", "ts,k,name\n1,[x],a\n")
        engine.start()
        engine.drain()
    assert main([str(tmp_path / "home"), "--quarantine", "S", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["text"] == "1,[x],a"
    assert main([str(tmp_path / "home"), "--quarantine", "s"]) == 0
    assert "1 of stream s in quarantine" in capsys.readouterr().out


def test_the_clause() -> None:
    """It has two words."""
    with windrow.Engine(runtime="local") as engine:
        engine.execute("CREATE STREAM a (ts BIGINT) ON ERROR QUARANTINE TIMESTAMP BY ts")
        assert engine.catalog.streams["a"].quarantine
        with pytest.raises(CQLSyntaxError, match="STOP"):
            engine.execute("CREATE STREAM b (ts BIGINT) ON ERROR IGNORE")
