"""The command line: arguments, output formats, errors and exit codes, with the engine replaced by a stand-in."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import subprocess
import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import windrow
from windrow.cli import main
from windrow.engine.replay import Answers
from windrow.errors import BindingError, Span
from windrow.plan.nodes import Emit, QueryPlan, Scan, Window, WindowKind, WindowSpec

HOT = pa.table(
    {
        "_ts": pa.array([datetime(2024, 1, 1), datetime(2024, 1, 2)], pa.timestamp("us")),
        "_op": pa.array([1, -1], pa.int8()),
        "total": pa.array([Decimal(3), None], pa.decimal128(38, 0)),
        "x": pa.array([1.5, math.nan]),
        "top": pa.array([["a", "b"], None], pa.list_(pa.string())),
    }
)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Replace the engine; the list receives what it is called with."""
    seen: list[dict[str, Any]] = []

    def run(script: str, **given: Any) -> Answers:
        seen.append({"script": script, **given})
        late = {"bid": pa.table({"ts": [1, 2]}), "ask": pa.table({"ts": pa.array([], pa.int64())})}
        return Answers(dict.fromkeys(script.split(), HOT), late)

    monkeypatch.setattr(windrow, "run", run)
    monkeypatch.setattr("windrow.cli.explain.explanations", lambda *_: [])
    return seen


@pytest.fixture
def script(tmp_path: Path) -> str:
    """A script file; the stand-in answers one query per word."""
    path = tmp_path / "q.cql"
    path.write_text("hot")
    return str(path)


def test_arguments_reach_the_engine(calls: list[dict[str, Any]], script: str) -> None:
    """Every option of run is passed on as the argument of the same meaning."""
    given = "--stream bid=b.csv --stream ask=a.csv --table p=p.json --runtime local --strategy direct --batch-rows 10"
    more = ("--home", "h", "--until", "2024-01-01T10:00", "--no-rule", "a", "--no-rule", "b")
    assert main(["run", script, *given.split(), *more]) == 0
    (call,) = calls
    assert call.pop("progress") is None
    assert call == {
        "script": "hot",
        "streams": {"bid": "b.csv", "ask": "a.csv"},
        "tables": {"p": "p.json"},
        "runtime": "local",
        "sharing": "auto",
        "strategy": "direct",
        "batch_rows": 10,
        "home": "h",
        "until": datetime(2024, 1, 1, 10),
        "without": ("a", "b"),
    }


def test_table(calls: list[dict[str, Any]], script: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The default is a table with every column, values as SQL writes them; late rows are a note on standard error."""
    assert main(["run", script]) == 0
    out, err = capsys.readouterr()
    for text in ("hot (2 rows)", "_ts", "_op", "2024-01-01 00:00:00", "null", "[a, b]"):
        assert text in out
    assert err == "note: 2 late rows of stream bid took no part (--late DIR keeps them)\n"


def test_table_limit(calls: list[dict[str, Any]], script: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A long table says how many rows it leaves out."""
    assert main(["run", script, "--limit", "1"]) == 0
    assert "... 1 more rows" in capsys.readouterr().out


def test_csv(calls: list[dict[str, Any]], script: str, capsys: pytest.CaptureFixture[str]) -> None:
    """csv has a header and a line per row."""
    assert main(["run", script, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(r["_ts"], r["_op"], r["total"]) for r in rows] == [
        ("2024-01-01 00:00:00", "1", "3"),
        ("2024-01-02 00:00:00", "-1", ""),
    ]


def test_json_lines(calls: list[dict[str, Any]], script: str, capsys: pytest.CaptureFixture[str]) -> None:
    """json is strict JSON, an object per line: NaN is a string, null is null."""
    assert main(["run", script, "--format", "json"]) == 0
    first, second = (json.loads(line, parse_constant=pytest.fail) for line in capsys.readouterr().out.splitlines())
    assert first == {"_ts": "2024-01-01T00:00:00.000000", "_op": 1, "total": 3, "x": 1.5, "top": ["a", "b"]}
    assert (second["x"], second["total"], second["top"]) == ("nan", None, None)


def test_json_document(calls: list[dict[str, Any]], script: str, capsys: pytest.CaptureFixture[str]) -> None:
    """--json is one document with answers, counts, late rows and time."""
    Path(script).write_text("hot cold")
    assert main(["run", script, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"answers", "rows", "late", "seconds"}
    assert document["rows"] == {"hot": 2, "cold": 2}
    assert document["late"] == {"bid": [{"ts": 1}, {"ts": 2}]}
    assert document["answers"]["cold"][0]["total"] == 3


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_output(calls: list[dict[str, Any]], script: str, tmp_path: Path, kind: str) -> None:
    """--output writes a file per query, --late one per stream that has late rows."""
    Path(script).write_text("hot cold")
    out, late = tmp_path / "new" / "out", tmp_path / "late"
    assert main(["run", script, "--output", str(out), "--format", kind, "--late", str(late)]) == 0
    assert sorted(p.name for p in out.iterdir()) == [f"cold.{kind}", f"hot.{kind}"]
    assert [p.name for p in late.iterdir()] == [f"bid.{kind}"]
    if kind == "parquet":
        assert pa.parquet.read_table(out / "hot.parquet").to_pydict()["total"] == [Decimal(3), None]


def test_output_json_document(
    calls: list[dict[str, Any]], script: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--output with --json prints the files instead of the rows."""
    assert main(["run", script, "--output", str(tmp_path / "o"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == {"hot": str(tmp_path / "o" / "hot.parquet")}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--stream", "bid"], "'bid' is not of the form NAME=PATH"),
        (["--until", "noon"], "neither a tick"),
        (["--batch-rows", "0"], "not a whole number above zero"),
        (["--format", "parquet"], "needs --output"),
        (["--output", "x", "--format", "table"], "--output needs --format"),
        (["--json", "--format", "csv"], "format of its own"),
        (["--query", "cold"], "no query named cold"),
        (["--what"], "unrecognized arguments: --what"),
    ],
)
def test_usage_errors(
    calls: list[dict[str, Any]], script: str, given: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong usage ends with code 2 and one line that says what is wrong."""
    with pytest.raises(SystemExit) as caught:
        main(["run", script, *given])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_several_queries_need_a_choice(
    calls: list[dict[str, Any]], script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """csv of several queries on one output is refused; one of them can be chosen."""
    Path(script).write_text("hot cold")
    with pytest.raises(SystemExit):
        main(["run", script, "--format", "csv"])
    assert "choose one with --query" in capsys.readouterr().err
    assert main(["run", script, "--format", "csv", "--query", "cold"]) == 0


def test_error_output(monkeypatch: pytest.MonkeyPatch, script: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An error is its message, place, detail and hint on standard error, code 1, and no traceback."""

    def fail(*_: Any, **__: Any) -> None:
        raise BindingError(
            'unknown column "pricee"', detail="d", hint='did you mean "price"?', span=Span(1, 8, "SELECT pricee")
        )

    monkeypatch.setattr(windrow, "run", fail)
    assert main(["run", script]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        'error: line 1, column 8: unknown column "pricee"\n'
        "  SELECT pricee\n"
        "         ^\n"
        "detail: d\n"
        'hint: did you mean "price"?\n'
    )
    with pytest.raises(BindingError):
        main(["run", script, "--traceback"])


def test_internal_error(monkeypatch: pytest.MonkeyPatch, script: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A fault of windrow is called one, without a traceback unless asked."""
    monkeypatch.setattr(windrow, "run", lambda *_, **__: 1 / 0)
    assert main(["run", script]) == 1
    assert "internal: ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["table", "csv"])
def test_a_reader_that_has_gone(script: str, bids: str, form: str) -> None:
    """`windrow run ... | head` ends quietly when head has seen enough, also when nothing was written before."""
    Path(script).write_text("SELECT price FROM bid [NOW]")
    command = [sys.executable, "-m", "windrow.cli", "run", script, "--stream", bids, "--runtime", "local"]
    ended = subprocess.run(
        ["bash", "-c", '"$@" | true; exit ${PIPESTATUS[0]}', "-", *command, "--format", form],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")


def test_missing_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A script that cannot be read is named with the reason."""
    assert main(["run", str(tmp_path / "no.cql")]) == 1
    assert "no.cql\ndetail: No such file" in capsys.readouterr().err
    (tmp_path / "bad.cql").write_bytes(b"\xff\xfe")
    assert main(["explain", str(tmp_path / "bad.cql")]) == 1
    assert "not UTF-8" in capsys.readouterr().err


def test_script_from_standard_input(calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The script - is standard input."""
    monkeypatch.setattr("sys.stdin", io.StringIO("hot"))
    assert main(["run", "-"]) == 0
    assert calls[0]["script"] == "hot"


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> dict[str, QueryPlan]:
    """Replace the binder; the script has two queries."""
    scan = Scan("bid", "bid", (("bid.a", "a", pa.int64()),), "ts")
    windows = {n: Window(scan, WindowSpec(WindowKind.RANGE, size)) for n, size in (("hot", 5), ("cold", 50))}
    found = {n: QueryPlan(n, Emit(w), (("a", "bid.a"),), pa.int64()) for n, w in windows.items()}
    monkeypatch.setattr("windrow.cli.explain.bound", lambda *_: found)
    return found


def test_explain(plans: dict[str, QueryPlan], script: str, capsys: pytest.CaptureFixture[str]) -> None:
    """explain shows every query, or the one that is named."""
    assert main(["explain", script]) == 0
    out = capsys.readouterr().out
    assert "query hot: weakest" in out
    assert "query cold: weakest" in out
    assert main(["explain", script, "--query", "HOT", "--format", "dot"]) == 0
    assert capsys.readouterr().out.startswith("digraph")


def test_explain_json(plans: dict[str, QueryPlan], script: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON, explain gives a list of plans, or the one that is named."""
    assert main(["explain", script, "--json"]) == 0
    assert [p["query"] for p in json.loads(capsys.readouterr().out)] == ["hot", "cold"]
    assert main(["explain", script, "--json", "--query", "cold", "--strategy", "negative"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["query"], plan["pattern"], plan["strategy"]) == ("cold", "strict", "negative")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--query", "warm"], "no query named warm in the script; it has hot, cold"),
        (["--format", "svg"], "choose it with --query"),
        (["--format", "dot", "--json"], "--json contradicts --format dot"),
    ],
)
def test_explain_usage_errors(
    plans: dict[str, QueryPlan], script: str, given: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong usage of explain ends with code 2 and says what is wrong."""
    with pytest.raises(SystemExit) as caught:
        main(["explain", script, *given])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_explain_unknown_rule(plans: dict[str, QueryPlan], script: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A rule that does not exist is an error that lists those that do."""
    assert main(["explain", script, "--no-rule", "magic"]) == 1
    assert "pushdown_predicates" in capsys.readouterr().err


@pytest.fixture
def bids(tmp_path: Path) -> str:
    """A stream given as data."""
    path = tmp_path / "bids.csv"
    path.write_text("ts,auction,price\n1,a,10\n3,b,20\n2,a,5\n")
    return f"bid={path}"


def test_run_for_real(script: str, bids: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A script and a file give an answer, and the late row a note."""
    declared = "CREATE STREAM bid (ts BIGINT, auction VARCHAR, price BIGINT) TIMESTAMP BY ts WITHIN 0"
    Path(script).write_text(f"{declared}; SELECT ISTREAM(price) FROM bid [RANGE 5]")
    assert main(["run", script, "--stream", bids, "--runtime", "local", "--format", "csv", "--until", "9"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == ["_ts,price", "1,10", "3,20"]
    assert err.startswith("note: 1 late row of stream bid")


def test_what_leaves_stands_before_what_comes(bids: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Within an instant a change log shows the row that is replaced before the one that replaces it."""
    script = tmp_path / "top.cql"
    script.write_text("SELECT MAX(price) AS price FROM bid [RANGE UNBOUNDED]")
    given = ["run", str(script), "--stream", bids, "--runtime", "local"]
    assert main([*given, "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines() == ["_ts,_op,price", "1,1,10", "3,-1,10", "3,1,20"]
    assert main([*given, "--json"]) == 0
    assert [row["_op"] for row in json.loads(capsys.readouterr().out)["answers"]["q1"]] == [1, -1, 1]
    assert main(given) == 0
    assert re.findall("-?1(?= │ +[12]0 │)", capsys.readouterr().out) == ["1", "-1", "1"]


def test_declared_files_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Streams and tables FROM files need no option: what is there now is replayed, as the declaration reads it."""
    (tmp_path / "meters").mkdir()
    (tmp_path / "meters" / "b.csv").write_text("meter;kwh;at\nhall;5;17.11.2026 10:00\n")
    (tmp_path / "meters" / "a.csv").write_text("meter;kwh;at\nroof;six;17.11.2026 10:01\nroof;6;17.11.2026 10:02\n")
    (tmp_path / "place.csv").write_text("meter,floor\nhall,0\nroof,3\n")
    script = tmp_path / "energy.cql"
    script.write_text(f"""
        CREATE STREAM m (meter VARCHAR, kwh DOUBLE, at TIMESTAMP) TIMESTAMP BY at ON ERROR QUARANTINE
        FROM csv (path => '{tmp_path / "meters"}', sep => ';', timestampFormat => 'dd.MM.yyyy HH:mm', max_files => 1);
        CREATE TABLE place (meter VARCHAR, floor BIGINT) FROM csv (path => '{tmp_path / "place.csv"}');
        SELECT m.meter, p.floor, kwh FROM m [NOW], place p WHERE m.meter = p.meter;
    """)
    assert main(["run", str(script), "--runtime", "local", "--format", "csv"]) == 0
    out, err = capsys.readouterr()
    assert [line.split(",")[1:] for line in out.splitlines()[1:] if ",1," in line] == [
        ["1", "hall", "0", "5.0"],
        ["1", "roof", "3", "6.0"],
    ]
    assert "note: 1 row of m cannot be read" in err
    assert "a.csv, line 2: column \"kwh\": 'six' is not" in err
    other = tmp_path / "other.csv"
    other.write_text("meter;kwh;at\nhall;7;17.11.2026 10:00\n")
    assert main(["run", str(script), "--stream", f"m={other}", "--runtime", "local", "--format", "csv"]) == 0
    assert "hall,0,7.0" in capsys.readouterr().out


def test_a_source_without_an_end_is_not_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A topic has no last row, so its stream must be given."""
    script = tmp_path / "topic.cql"
    source = "FROM kafka (servers => 'localhost:1', topic => 'k')"
    script.write_text(f"CREATE STREAM k (a BIGINT, ts BIGINT) TIMESTAMP BY ts {source}; SELECT a FROM k [NOW]")
    assert main(["run", str(script), "--runtime", "local"]) == 1
    assert "--stream k=PATH" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("k,v,ts\n", "has no rows, so nobody knows the types"),
        ("k;v;ts\na;1;2024-01-01\n", "sep => ';'"),
        ("k\tv\tts\na\t1\t2024-01-01\n", "sep => '\t'"),
    ],
)
def test_a_file_that_says_too_little(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str) -> None:
    """A file without rows has no types to guess, and one with another separator one column: both say what to write."""
    (tmp_path / "s.csv").write_text(text)
    (tmp_path / "q.cql").write_text("SELECT COUNT(*) AS n FROM s [RANGE 1 MINUTE]")
    assert main(["run", str(tmp_path / "q.cql"), "--stream", f"s={tmp_path / 's.csv'}", "--runtime", "local"]) == 1
    assert said in capsys.readouterr().err


def test_who_waits_for_spark_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Spark takes some seconds to start: a terminal says so, a pipe does not."""
    from windrow.cli.inputs import announce

    announce("spark")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    announce("local")
    assert capsys.readouterr().err == ""
    announce("spark")
    assert capsys.readouterr().err == "starting Spark ...\n"


def test_a_script_without_a_query(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Says that there is nothing to answer, instead of nothing."""
    script = tmp_path / "empty.cql"
    script.write_text("-- nothing yet\n")
    assert main(["run", str(script), "--runtime", "local"]) == 0
    assert "the script has no query" in capsys.readouterr().err


def test_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`windrow` alone lists the commands."""
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2
    assert "replay streams through a script" in capsys.readouterr().err


def test_a_narrow_answer_keeps_its_title(capsys: pytest.CaptureFixture[str]) -> None:
    """The name of an answer is one line, however narrow its table."""
    from windrow.cli.answers import print_tables

    print_tables({"readings": pa.table({"a": [1]})}, 10)
    assert capsys.readouterr().out.startswith("readings (1 row)\n")


def test_explain_statements(script: str, bids: str, capsys: pytest.CaptureFixture[str]) -> None:
    """EXPLAIN in a script is shown by run before the answers, and by explain beside the queries."""
    Path(script).write_text("SELECT price FROM bid [NOW]; EXPLAIN SELECT auction FROM bid [ROWS 1]; EXPLAIN q1")
    assert main(["explain", script, "--stream", bids]) == 0
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("query")] == [
        "query q1",
        "query explain1",
    ]
    assert main(["run", script, "--stream", bids, "--runtime", "local"]) == 0
    out = capsys.readouterr().out
    assert out.index("query explain: strict") < out.index("query q1: weakest") < out.index("q1 (")


def test_unknown_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown experiment is a usage error that lists those there are."""
    with pytest.raises(SystemExit) as caught:
        main(["bench", "nonesuch"])
    assert caught.value.code == 2
    assert "no experiment named 'nonesuch'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "explain", "bench"])
def test_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command explains itself."""
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    assert f"usage: windrow {command}" in capsys.readouterr().out


def test_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown command, and none at all, are usage errors."""
    for given in (["dance"], []):
        with pytest.raises(SystemExit) as caught:
            main(given)
        assert caught.value.code == 2


def test_run_without_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty directory is no error, and is told."""
    (tmp_path / "in").mkdir()
    script = tmp_path / "q.cql"
    script.write_text(f"""CREATE STREAM m (v DOUBLE, ts BIGINT) TIMESTAMP BY ts FROM csv (path => '{tmp_path / "in"}');
        SELECT v FROM m [NOW]""")
    assert main(["run", str(script), "--runtime", "local"]) == 0
    assert capsys.readouterr().err == "note: there is no row for stream m yet\n"
