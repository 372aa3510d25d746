"""`windrow.run` from the outside: what it takes, what it refuses, and how it says so."""

from __future__ import annotations

import gzip
import math
from datetime import UTC, datetime
from decimal import Decimal

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as csv
import pytest
from pyarrow import feather, parquet

import windrow
from windrow.engine.replay import QuarantineWarning
from windrow.errors import WindrowError

INT64 = (-(2**63), 2**63 - 1)


def run(script, until=None, tables=None, **streams):
    return windrow.run(script, streams, tables, runtime="local", until=until)


def rows(table):
    return sorted((tuple(r.values()) for r in table.to_pylist()), key=repr)


TRADES = pa.table({"a": [1, 2, 1], "x": [0.5, 1.5, 2.5], "ts": [1, 2, 4]})


@pytest.mark.parametrize(
    "given",
    [TRADES, TRADES.to_pandas(), pl.from_arrow(TRADES), TRADES.to_batches()[0], TRADES.to_pydict()],
    ids=["arrow", "pandas", "polars", "batch", "mapping"],
)
def test_any_frame_is_a_stream(given):
    """Arrow, pandas, polars and mappings of columns give one answer."""
    assert rows(run("SELECT SUM(x) FROM s [RANGE 2]", s=given)["q1"])[0] == (1, 1, 0.5)


def test_a_path_is_a_stream(tmp_path):
    """A file by its path, typed by the declaration."""
    csv.write_csv(TRADES, tmp_path / "s.csv")
    script = "CREATE STREAM s (a INTEGER, x DOUBLE, ts BIGINT); SELECT a FROM s [NOW]"
    assert rows(run(script, s=str(tmp_path / "s.csv"))["q1"])[0] == (1, 1, 1)


def test_the_answer_has_time_and_op_first():
    """`_ts`, `_op` for a relation, then the SELECT list; sorted by time."""
    answer = run("SELECT a, x FROM s [RANGE 2]", s=TRADES)["q1"]
    assert answer.column_names == ["_ts", "_op", "a", "x"]
    assert answer["_ts"].to_pylist() == sorted(answer["_ts"].to_pylist())
    assert run("SELECT ISTREAM(a) FROM s [RANGE 2]", s=TRADES)["q1"].column_names == ["_ts", "a"]
    assert run("SELECT a FROM s [RANGE 2 SLIDE 2]", s=TRADES)["q1"].column_names == ["_ts", "a"]


def test_until_moves_time_past_the_last_row():
    """Rows leave their windows up to `until`, and no further; at 4 an equal row enters, so nothing leaves."""
    script = "SELECT DSTREAM(a) FROM s [RANGE 3]"
    assert [r[0] for r in rows(run(script, s=TRADES)["q1"])] == []
    assert [r[0] for r in rows(run(script, until=6, s=TRADES)["q1"])] == [5]
    assert [r[0] for r in rows(run(script, until=7, s=TRADES)["q1"])] == [5, 7]


@pytest.mark.parametrize("far", [INT64[0], -(2**62) - 1, 2**62 + 1, INT64[1]])
def test_times_that_are_too_far_from_zero(far):
    """Times with which no length can be added are refused, not computed with; the furthest are taken."""
    with pytest.raises(WindrowError, match=r"(?s)a time that is too far from zero.*row 2"):
        run("SELECT a FROM TUMBLE(s, ts, 4)", s={"ts": [0, far], "a": [1, 2]})
    with windrow.Engine(runtime="local") as engine:
        engine.execute("CREATE STREAM s (ts BIGINT, a BIGINT) TIMESTAMP BY ts; CREATE QUERY q AS SELECT a FROM s [NOW]")
        with pytest.raises(WindrowError, match="too far from zero"):
            engine.push("s", {"ts": [0, far], "a": [1, 2]})
        engine.push("s", {"ts": [1], "a": [1]})  # nothing of what is refused stays
        engine.execute("CREATE STREAM t (ts BIGINT, a BIGINT) TIMESTAMP BY ts ON ERROR QUARANTINE")
        engine.execute("CREATE QUERY r AS SELECT a FROM t [NOW]")
        engine.start()
        engine.push("t", {"ts": [1, far, None], "a": [1, 2, 3]})
        engine.drain()
        assert sorted(engine.quarantine("t")["reason"].to_pylist()) == [
            "column ts is NULL",
            "column ts is too far from zero",
        ]
    ends = {"ts": [-(2**62), 0, 2**62], "a": [1, 2, 3]}
    assert [r[0] for r in rows(run("SELECT a FROM TUMBLE(s, ts, 4)", s=ends)["q1"])] == [-(2**62) + 4, 4]


def test_until_as_text_is_what_the_clock_has():
    """A number is an instant of streams that count ticks, and none of streams with times; the other way round, too."""
    stamped = {"ts": pa.array([0, 60_000_000], pa.timestamp("us")), "a": [1, 2]}
    query = "SELECT a FROM s [NOW]"
    assert rows(run(query, until="2", s={"ts": [1, 2, 3], "a": [1, 2, 3]})["q1"])[-1][0] == 2
    assert rows(run(query, until="1970-01-01T00:00:30", s=stamped)["q1"])[-1][0] == datetime(1970, 1, 1, 0, 0, 0, 1)
    with pytest.raises(WindrowError, match="until is '5', and the streams have times"):
        run(query, until="5", s=stamped)
    with pytest.raises(WindrowError, match="the streams count ticks"):
        run(query, until="2024-01-01", s={"ts": [1], "a": [1]})


def test_until_may_be_a_datetime():
    """For timestamp streams `until` is an instant of their clock."""
    stream = pa.table({"a": [1], "ts": pa.array([datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))})
    script = "SELECT a FROM s [RANGE 1 MINUTE]"
    answer = run(script, until=datetime(2024, 1, 1, 0, 2, tzinfo=UTC), s=stream)["q1"]
    assert answer["_op"].to_pylist() == [1, -1]
    assert answer.schema.field("_ts").type == pa.timestamp("us", "UTC")


def test_nanoseconds_are_read_as_microseconds():
    """pandas' clocks fit."""
    stream = pd.DataFrame({"a": [1], "ts": pd.to_datetime(["2024-01-01 00:00:00.000001500"])})
    assert run("SELECT a FROM s [NOW]", s=stream)["q1"]["_ts"].to_pylist() == [datetime(2024, 1, 1, 0, 0, 0, 1)]


def test_late_rows_are_set_aside_and_can_be_read():
    """A row beyond the slack takes no part; within it, order of arrival does not matter."""
    stream = pa.table({"a": [1, 2, 3, 4], "ts": [10, 8, 20, 14]})
    script = "CREATE STREAM s (a BIGINT, ts BIGINT) WITHIN 5; SELECT COUNT(*) FROM s"
    answers = run(script, s=stream)
    assert answers.late["s"].to_pylist() == [{"a": 4, "ts": 14}]
    assert rows(answers["q1"])[-1] == (8, 1, 1)
    assert (20, 1, 3) in rows(answers["q1"])


def test_lateness_does_not_depend_on_batches():
    """The same rows are late however the replay is cut."""
    stream = pa.table({"a": list(range(9)), "ts": [5, 3, 9, 1, 9, 8, 2, 12, 10]})
    script = "CREATE STREAM s (a BIGINT, ts BIGINT) WITHIN 2; SELECT a FROM s"
    wanted = run(script, s=stream)
    for batch_rows in (1, 2, 5):
        got = windrow.run(script, {"s": stream}, runtime="local", batch_rows=batch_rows)
        assert got.late["s"].equals(wanted.late["s"])
        assert rows(got["q1"]) == rows(wanted["q1"])


def test_an_empty_stream_has_an_empty_answer():
    """No rows, no clock: the columns and nothing else."""
    answer = run("SELECT COUNT(*) AS n FROM s [RANGE 2]", s=TRADES.slice(0, 0))["q1"]
    assert (answer.num_rows, answer.column_names) == (0, ["_ts", "_op", "n"])


def test_null_columns_and_null_typed_columns():
    """All-null columns group as one, join with nothing and sum to NULL."""
    stream = pa.table({"a": pa.array([None, None], pa.int64()), "ts": [1, 1]})
    assert rows(run("SELECT a, COUNT(*), COUNT(a), SUM(a) FROM s GROUP BY a", s=stream)["q1"]) == [
        (1, 1, None, 2, 0, None)
    ]
    assert run("SELECT l.a FROM s l, s r WHERE l.a = r.a", s=stream)["q1"].num_rows == 0


def test_nan_and_infinity():
    """NaN equals itself and is the greatest number; infinities leave no trace when they expire."""
    stream = pa.table({"x": [math.inf, math.nan, -math.inf, 1.5], "ts": [1, 2, 3, 9]})
    answer = run("SELECT SUM(x) AS s, MAX(x) AS m FROM s [RANGE 3]", s=stream)["q1"]
    at = {ts: (s, m) for ts, op, s, m in rows(answer) if op == 1}
    assert at[1] == (math.inf, math.inf)
    assert math.isnan(at[2][0]) and math.isnan(at[2][1])
    assert at[9] == (1.5, 1.5)
    distinct = pa.table({"x": [math.nan, math.nan, -0.0, 0.0], "ts": [1, 1, 1, 1]})
    assert run("SELECT DISTINCT x FROM s", s=distinct)["q1"].num_rows == 2


def test_sums_of_64_bit_extremes_do_not_overflow():
    """SUM of integers is as wide as DuckDB's."""
    stream = pa.table({"a": [INT64[1], INT64[1], INT64[0]], "ts": [1, 2, 3]})
    answer = rows(run("SELECT SUM(a) FROM s [RANGE 2]", s=stream)["q1"])
    assert (2, 1, Decimal(2 * INT64[1])) in answer
    assert (3, 1, Decimal(-1)) in answer


def test_time_may_be_negative_and_large():
    """Ticks are 64-bit integers of either sign."""
    stream = pa.table({"a": [1, 2], "ts": [-(2**40), 2**62]})
    answer = rows(run("SELECT a FROM s [RANGE 10]", s=stream)["q1"])
    assert sorted(r[0] for r in answer) == [-(2**40), -(2**40) + 10, 2**62]


def test_duplicate_rows_count_twice():
    """Bags, not sets."""
    stream = pa.table({"a": [1, 1], "ts": [1, 1]})
    assert rows(run("SELECT a FROM s [RANGE 2]", s=stream)["q1"]) == [(1, 1, 1), (1, 1, 1)]


def test_user_functions_see_whole_batches():
    """A vectorised function may stand anywhere a scalar may."""
    import pyarrow.compute as pc

    windrow.function("twice", lambda a: pc.multiply(a, 2), returns="bigint")
    answer = run("SELECT twice(a) AS t, COUNT(*) AS n FROM s WHERE twice(a) > 2 GROUP BY twice(a)", s=TRADES)["q1"]
    assert rows(answer) == [(2, 1, 4, 1)]


def test_a_function_that_raises_is_named():
    """The message says which function and what it said."""
    windrow.function("broken", lambda a: 1 / 0, returns="bigint")
    with pytest.raises(windrow.RuntimeFailure, match="broken"):
        run("SELECT broken(a) FROM s", s=TRADES)


def refuses(kind, script, match, hint=None, tables=None, **streams):
    with pytest.raises(kind, match=match) as caught:
        run(script, tables=tables, **streams)
    assert caught.value.hint, "an error says what to do"
    if hint:
        assert hint in caught.value.hint


def test_bad_data_is_refused_with_a_hint():
    """Null times, times that are no times, streams without data or without a time column."""
    null = pa.table({"a": [1, 2], "ts": pa.array([1, None], pa.int64())})
    refuses(windrow.SourceError, "SELECT a FROM s", "without a time", s=null)
    text = pa.table({"a": [1], "ts": ["noon"]})
    refuses(windrow.WindrowError, "SELECT a FROM s", "time", "(ts TIMESTAMP, ...) TIMESTAMP BY ts", s=text)
    two = pa.table({"a": pa.array([1], pa.timestamp("s")), "b": pa.array([1], pa.timestamp("s"))})
    refuses(windrow.BindingError, "SELECT a FROM s", "several columns .*: a, b", "TIMESTAMP BY a", s=two)
    refuses(windrow.SourceError, "CREATE STREAM s (a BIGINT, ts BIGINT); SELECT a FROM s", "no data", "streams=")
    refuses(windrow.BindingError, "SELECT a FROM s", "no time column", "TIMESTAMP BY", s=pa.table({"a": [1]}))
    refuses(windrow.BindingError, "SELECT a FROM nobody", "nobody", s=TRADES)


def test_lines_of_another_delimiter(tmp_path):
    """Lines with more values than the header name the option that says how they are separated."""
    (tmp_path / "s.csv").write_text("ts;v\n1;1,5\n")
    refuses(windrow.SourceError, "SELECT ts FROM s", "cannot read", "sep => ';'", s=str(tmp_path / "s.csv"))


def test_a_failure_names_its_query():
    """What an expression raises is told with the query that it stands in, among others."""
    script = "CREATE QUERY ok AS SELECT b FROM s; CREATE QUERY Wrong AS SELECT CAST(b AS INT) AS i FROM s"
    text = pa.table({"b": ["x"], "ts": [1]})
    refuses(windrow.RuntimeFailure, script, '^query "Wrong": an expression failed', "TRY_CAST", s=text)


def test_a_time_that_is_a_date():
    """Is midnight, and so are the times of answers."""
    days = pa.table({"ts": pa.array([0, 1], pa.date32()), "a": [1, 2]})
    found = windrow.run("SELECT MAX(ts) AS last FROM s [RANGE 2 DAYS SLIDE 1 DAY]", {"s": days}, runtime="local")["q1"]
    assert found.schema.types == [pa.timestamp("us")] * 2
    assert found.cast(pa.schema([("_ts", pa.date32()), ("last", pa.date32())]))["_ts"].equals(days["ts"])


@pytest.mark.parametrize(
    "options", [{"runtime": "flink"}, {"strategy": "fast"}, {"batch_rows": 0}, {"without": ["no_such_rule"]}]
)
def test_bad_options_are_refused(options):
    """A word that means nothing is named, with those that do."""
    with pytest.raises(windrow.WindrowError) as caught:
        windrow.run("SELECT a FROM s", {"s": TRADES}, **{"runtime": "local", **options})
    assert caught.value.hint


def test_progress_is_reported():
    """Rows done and rows in all, the last call with all of them."""
    calls = []
    windrow.run("SELECT a FROM s", {"s": TRADES}, runtime="local", batch_rows=1, progress=lambda *c: calls.append(c))
    assert calls[-1] == (3, 3)
    assert [c[0] for c in calls] == sorted(c[0] for c in calls)


BAD = {
    "csv": b'ts,k,name\n1,1,"a\nb"\n2,x,b\n,3,c\n4611686018427387905,4,d\n5,5,e\n',
    "tsv": b'ts\tk\tname\n1\t1\t"a\nb"\n2\tx\tb\n\t3\tc\n4611686018427387905\t4\td\n5\t5\te\n',
    "json": b"""{"ts": 1, "k": 1, "name": "a\\nb"}\n{"ts": 2, "k": "x", "name": "b"}\n{"k": 3, "name": "c"}
        {"ts": 4611686018427387905, "k": 4, "name": "d"}\n{"ts": 5, "k": 5, "name": "e"}\n""",
    "array.json": b"""[{"ts": 1, "k": 1, "name": "a\\nb"}, {"ts": 2, "k": "x", "name": "b"}, {"k": 3, "name": "c"},
        {"ts": 4611686018427387905, "k": 4, "name": "d"}, {"ts": 5, "k": 5, "name": "e"}]""",
}
QUARANTINED = """
CREATE STREAM s (ts BIGINT, k BIGINT, name VARCHAR) TIMESTAMP BY ts ON ERROR QUARANTINE;
CREATE QUERY q AS SELECT ISTREAM(k, name) FROM s [NOW];
"""
RUNTIMES = ["local", pytest.param("spark", marks=pytest.mark.spark)]


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", BAD)
def test_malformed_rows_of_a_path_are_set_aside(kind, packed, runtime, tmp_path):
    """As live, with ON ERROR QUARANTINE: the others are answered, and whoever runs it is told."""
    if packed and runtime == "spark":
        pytest.skip("what is packed is read by the same tasks")
    (tmp_path / f"a.{kind}{'.gz' if packed else ''}").write_bytes(gzip.compress(BAD[kind]) if packed else BAD[kind])
    with pytest.warns(QuarantineWarning, match=r'3 rows of s cannot be read.*answers.quarantine\["s"\]'):
        answers = windrow.run(QUARANTINED, {"s": str(tmp_path)}, runtime=runtime)
    assert rows(answers["q"]) == [(1, 1, "a\nb"), (5, 5, "e")]
    found = answers.quarantine["s"].to_pylist()
    assert len(found) == 3 and any("is not BIGINT" in r["reason"] for r in found)
    assert any("NULL" in r["reason"] for r in found) and any("too far from zero" in r["reason"] for r in found)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_files_that_cannot_be_read_are_set_aside(runtime, tmp_path):
    """Files that are cut, lack a column, have another type or no rows; of the others every row is answered once."""
    whole = pa.table({"ts": [1, 2], "k": [1, 2], "name": ["a", "b"]})
    parquet.write_table(whole, tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-100])
    parquet.write_table(whole.drop_columns(["name"]), tmp_path / "c.parquet")
    feather.write_feather(pa.table({"ts": ["x"], "k": [1], "name": ["a"]}), tmp_path / "d.arrow")
    feather.write_feather(whole.slice(0, 0), tmp_path / "e.arrow")
    (tmp_path / "f.csv").write_bytes(b"")
    (tmp_path / "g.csv").write_bytes(b"ts,k\n7,7\n")
    parquet.write_table(pa.table({"ts": [8, None], "k": [8, 9], "name": ["h", "i"]}), tmp_path / "h.parquet")
    with pytest.warns(QuarantineWarning, match="7 rows of s cannot be read"):
        answers = windrow.run(QUARANTINED, {"s": tmp_path}, runtime=runtime)
    assert rows(answers["q"]) == [(1, 1, "a"), (2, 2, "b"), (8, 8, "h")]
    found = {r["file"].rpartition("/")[2]: r["reason"] for r in answers.quarantine["s"].to_pylist()}
    assert list(found) == ["b.parquet", "c.parquet", "d.arrow", "e.arrow", "f.csv", "g.csv", "h.parquet"]
    assert 'no column "name"' in found["c.parquet"] and "is declared BIGINT" in found["d.arrow"]
    assert found["e.arrow"] == found["f.csv"] == "the file has no rows"
    with pytest.raises(WindrowError, match=r"cannot read .*b\.parquet"):
        windrow.run(QUARANTINED.replace("QUARANTINE", "STOP"), {"s": tmp_path}, runtime=runtime)


CHANGED = """
CREATE STREAM s (k BIGINT, ts BIGINT) TIMESTAMP BY ts;
CREATE TABLE t (id BIGINT, name VARCHAR){clauses};
CREATE QUERY q AS SELECT ISTREAM(k, name) FROM s [NOW], t WHERE k = id;
"""
LINES_OF_CHANGES = {
    "csv": "op;id;name\nc;1;a\nwhat;2;b\nc;;c\nc;x;d\n;3;e\nu;1;f\nc;4;g\n",
    "json": """{"op": "c", "id": 1, "name": "a"}\n{"op": "what", "id": 2, "name": "b"}\n{"op": "c", "name": "c"}
{"op": "c", "id": "x", "name": "d"}\n{"id": 3, "name": "e"}\n{"op": "u", "id": 1, "name": "f"}
{"op": "c", "id": 4, "name": "g"}\n""",
}


@pytest.mark.parametrize("kind", LINES_OF_CHANGES)
def test_malformed_changes_of_a_path_are_set_aside(kind, tmp_path):
    """Those with an unknown operation or none, without a key, or that the source cannot read: as live."""
    file, options = tmp_path / f"a.{kind}", ", sep => ';'" * (kind == "csv")
    file.write_text(LINES_OF_CHANGES[kind])
    source = f" KEY (id) CHANGES BY op ON ERROR QUARANTINE FROM {kind} (path => '{tmp_path}'{options})"
    script, data = CHANGED.format(clauses=source), {"s": {"k": [1, 2, 3, 4], "ts": [1, 2, 3, 4]}}
    with pytest.warns(QuarantineWarning, match=r'4 rows of t cannot be read.*answers.quarantine\["t"\]'):
        answers = windrow.run(script, data, {"t": file}, runtime="local")
    assert rows(answers["q"]) == [(1, 1, "f"), (4, 4, "g")]
    with windrow.Engine(runtime="local") as engine:
        engine.execute(script)
        engine.start()
        engine.drain()
        live = engine.quarantine("t").drop_columns(["tick"])
        assert engine.ask("SELECT * FROM t").num_rows == 2
    order = [("reason", "ascending"), ("text", "ascending")]
    assert answers.quarantine["t"].sort_by(order).to_pylist() == live.sort_by(order).to_pylist()
    with pytest.raises(WindrowError, match="malformed row in"):
        windrow.run(script.replace("QUARANTINE", "STOP"), data, {"t": file}, runtime="local")


def test_malformed_changes_and_rows_in_memory_are_set_aside():
    """As Engine.push does with a stream or a table that has a quarantine."""
    clauses = " KEY (id) CHANGES BY op BEFORE before AFTER after ON ERROR QUARANTINE"
    row = pa.struct([("id", pa.int64()), ("name", pa.string())])
    after = [{"id": 1, "name": "a"}, {"id": None, "name": "b"}, None]
    changes = pa.table({"op": ["c", "c", None], "before": pa.nulls(3, row), "after": pa.array(after, row)})
    script = CHANGED.format(clauses=clauses).replace("BY ts", "BY ts ON ERROR QUARANTINE")
    stream = {"k": [1, 2, 3], "ts": [1, None, 2**62 + 1]}
    with pytest.warns(QuarantineWarning) as told:
        answers = windrow.run(script, {"s": stream}, {"t": changes}, runtime="local")
    assert [str(w.message).partition(" cannot")[0] for w in told] == ["2 rows of s", "2 rows of t"]
    assert rows(answers["q"]) == [(1, 1, "a")]
    assert answers.quarantine["s"]["reason"].to_pylist() == ["column ts is NULL", "column ts is too far from zero"]
    assert answers.quarantine["t"]["reason"].to_pylist() == ["unknown operation", "no key after the change"]
    with pytest.raises(WindrowError, match='table "t": a change with unknown operation'):
        windrow.run(CHANGED.format(clauses=clauses.replace("QUARANTINE", "STOP")), {"s": {"k": [1], "ts": [1]}},
                    {"t": changes}, runtime="local")  # fmt: skip
