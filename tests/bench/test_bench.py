"""The experiments run on tiny data, and their results have the promised shape; no time is judged here."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.cli.bench import experiments, package
from windrow_bench import (
    archive,
    engine,
    flows,
    frequent,
    harness,
    isolation,
    many,
    many_runs,
    many_shapes,
    many_yardsticks,
    overload,
    patterns,
    reading,
    reduced,
    schedule,
    sql,
    star,
)
from windrow_bench.harness import Figure, Ratio, Result

FIELDS = {"experiment", "machine", "commit", "seed", "parameters", "rows", "ratios", "made_by", "seconds"}


def document(path: Path) -> dict[str, Any]:
    """A saved result, with the shape that every result has."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    assert found.keys() == FIELDS
    assert all(r.keys() == {"name", "value", "target", "met"} for r in found["ratios"])
    return found


def test_experiments_are_listed() -> None:
    """`windrow bench` finds the experiments and takes no shared module for one."""
    assert {"patterns", "engine"} <= experiments(package()).keys()
    assert not {"harness", "flows", "drive"} & experiments(package()).keys()


def test_a_record_says_that_the_product_was_changed(tmp_path: Path) -> None:
    """A commit is marked when what lies under it was measured with changes, not when pages are written."""
    for name in ("src/a.py", "bench/b.py", "docs/page.md"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("1")
    known = ("-c", "user.name=w", "-c", "user.email=w@localhost")
    for words in (("init", "-q"), ("add", "."), (*known, "commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    (tmp_path / "docs/page.md").write_text("2")
    clean = harness.commit(tmp_path / "bench")
    (tmp_path / "src/a.py").write_text("2")
    assert clean is not None and harness.commit(tmp_path / "bench") == f"{clean}+"
    assert not clean.endswith("+")


def test_the_page_of_experiments_lists_them_all() -> None:
    """What `bench/README.md` tells of is what `windrow bench` lists; `start` is a part of ticks and of setting up."""
    page = (package().parent / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == experiments(package()).keys() - {"start"}


def test_patterns_measures_every_query_under_every_strategy(tmp_path: Path) -> None:
    """One row per query, batch, window and strategy, all strategies with the same changes; a page and plots beside."""
    patterns.main(["--quick", "--windows", "60", "--batch", "20", "--repeat", "1", "--out", str(tmp_path)])
    found = document(tmp_path / "patterns.json")
    variants = patterns.variants("ftp", "telnet")
    names = [v.name for v in variants]
    calendars = {("1 many", "upa(10)"), ("1 many", "upa(50)")}
    every = {(v.name, s) for v in variants for s in v.strategies} | calendars
    assert {(r["query"], r["strategy"]) for r in found["rows"]} == every
    small = ["--quick", "--windows", "60", "--batch", "20", "--repeat", "1", "--out", str(tmp_path)]
    patterns.main([*small, "--queries", "1 many", "--seed", "2"])
    again = document(tmp_path / "patterns.json")
    assert {(r["query"], r["strategy"]) for r in again["rows"]} == every  # the others are those of the record
    same = [r["query"] for r, before in zip(again["rows"], found["rows"], strict=True) if r == before]
    assert "1 many" not in same and {*same} == {*names} - {"1 many"}
    for name, batch in ((n, b) for n in names for b in ("fixed", "window / 100")):
        same = {r["changes_per_1000"] for r in found["rows"] if (r["query"], r["batch"]) == (name, batch)}
        assert len(same) == 1
    assert len(found["ratios"]) == 2 * (len(names) + 1)  # of query 3 what is chosen, too
    assert "figure 3.9 of the thesis" in (tmp_path / "patterns.md").read_text(encoding="utf-8")


def test_patterns_reads_a_capture(tmp_path: Path) -> None:
    """Flows of a capture are split into links by destination; the result is kept under its own name."""
    header = "StartTime,Dur,Proto,SrcAddr,Sport,Dir,DstAddr,Dport,State,sTos,dTos,TotPkts,TotBytes,SrcBytes,Label"
    lines = [f"x,0.5,tcp,s{i % 7},1,->,d{i % 5},{(80, 443)[i % 2]},A,0,0,1,{i},1,y" for i in range(900)]
    capture = tmp_path / "flows.csv.gz"
    capture.write_bytes(gzip.compress("\n".join([header, *lines]).encode()))
    arguments = ["--quick", "--windows", "40", "--batch", "5", "--repeat", "1", "--queries", "1 many", "2 sources"]
    patterns.main([*arguments, "--data", str(capture), "--out", str(tmp_path)])
    found = document(tmp_path / "patterns-ctu13.json")
    assert {r["query"] for r in found["rows"]} == {"1 many", "2 sources"}
    assert "Garcia" in found["parameters"]["flows"]


def test_links_of_a_capture_are_without_its_busiest_destinations() -> None:
    """What has no source in common with the rest is on no link, so that links share sources."""
    destinations = np.repeat([7, 3, 0, 1, 2], [50, 40, 6, 5, 4])
    assert flows._dealt(destinations).tolist() == [-1] * 90 + [0] * 6 + [1] * 5 + [2] * 4


def test_batches_end_where_the_rows_do() -> None:
    """A capture has fewer batches behind its largest window: none is without rows."""
    effort = patterns.Effort(500, batches=40)
    assert [effort.within(50_000, rows).batches for rows in (66_717, 100_000)] == [28, 40]
    assert patterns.Effort(None, batches=40).within(2_000, 66_717).batches == 40


def test_generated_flows_come_from_the_seed() -> None:
    """The same seed gives the same flows on the same links, one per tick."""
    once, again = (flows.generate(50, 3) for _ in range(2))
    assert once == again
    assert list(once) == list(flows.LINKS)
    assert once["link1"].column("ts").to_pylist() == list(range(50))


def test_engine_measures_every_line(tmp_path: Path) -> None:
    """Every line leaves rows and ratios; delta-star keeps at most two ends for each row of its output."""
    lines = [name for name in engine.LINES if name != "start"]
    engine.main(["--quick", "--rows", "400", "--repeat", "1", "--lines", *lines, "--out", str(tmp_path)])
    found = document(tmp_path / "engine.json")
    values = {r["name"]: r for r in found["ratios"]}
    assert values["delta-star ends kept / rows of its output"]["met"]
    assert len(found["rows"]) == len(found["ratios"]) >= 15


def test_json_goes_where_it_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--json -` prints the document and nothing else; the exit code says whether all targets are met."""
    figure = Figure("f", "caption", "x", "y", {"fast": [(1.0, 2.0), (10.0, 3.0)]})
    result = Result("e", "about", 7, {"rows": 1}, [{"a": 1.5}], [Ratio("r", 3.0, 2.0)], [figure])
    options = harness.parser("e", "").parse_args(["--json", "-", "--out", str(tmp_path), "--quick"])
    assert harness.report(result, options) == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed["ratios"] == [{"name": "r", "value": 3.0, "target": "<= 2", "met": False}]
    assert (tmp_path / "e-f.svg").exists()
    assert harness.Ratio("r", 3.0, 2.0, least=True).met


def test_result_names_no_host_and_no_path() -> None:
    """The machine is described by what matters to times."""
    text = json.dumps(harness.machine())
    assert harness.platform.node() not in text or not harness.platform.node()
    assert str(Path.home()) not in text


def test_star_has_the_optimum_beside_the_heuristics(tmp_path: Path) -> None:
    """Every figure leaves rows; no heuristic of figure 6 does better than the optimum of the same order of events."""
    star.main(["--quick", "--seeds", "2", "--out", str(tmp_path)])
    found = document(tmp_path / "star.json")
    figures = {r["figure"] for r in found["rows"]}
    assert figures == {"4", "5", "6", "6, grown", "6, other seeds", "large", "optimum"}
    for row in found["rows"]:
        if row["figure"] in ("6", "6, grown"):
            assert all(row[name] <= row["OPTIMUM"] for name in star.ONLINE)


def test_overload_feeds_the_same_rows_again() -> None:
    """Rows of a second follow from seed, second and rate; rare values of the Zipf stream matter more."""
    first, again = (overload.Source(3).rows(7, 4000) for _ in range(2))
    assert first == again and first["r"].num_rows == 2000
    imp = first["r"]["imp"].to_numpy()
    assert imp.min() == 1 and imp.max() == overload.TOP and (imp < 4).mean() > 0.5


def test_schedule_prints_the_costs_of_the_thesis(tmp_path: Path) -> None:
    """8.4.4 to the digit, and a point for every technique, rate and number of queries."""
    schedule.main(["--quick", "--updates", "20", "--repeat", "1", "--out", str(tmp_path)])
    rows = document(tmp_path / "schedule.json")["rows"]
    found = {r["schedule"]: r["cost_per_minute"] for r in rows if r["part"] == "costs"}
    assert list(found.values()) == ["11.93", "11.4", "14.5", "12.67", "16.83", "10.75", "11.4", "10.75"]
    assert len([r for r in rows if r["part"] == "simulated"]) == 2 * 4 * 7


def test_a_part_of_schedule_takes_its_place_in_the_record(tmp_path: Path) -> None:
    """Run alone it leaves the other rows, and their targets, as they are."""
    for part in ("costs", "spellings", "costs"):
        schedule.main(["--quick", "--part", part, "--out", str(tmp_path)])
    found = document(tmp_path / "schedule.json")
    assert [r["part"] for r in found["rows"]] == ["costs"] * 8 + ["spellings"]
    assert all(r["commit"] == found["commit"] for r in found["rows"])
    assert [r["name"].split()[0] for r in found["ratios"]] == ["costs", "SLIDE"]


def test_isolation_compares_four_schedulers(tmp_path: Path) -> None:
    """A row for each scheduler and point; algorithm 8 aborts nothing, and has the least staleness."""
    isolation.main(["--quick", "--windows", "8", "20", "--repeat", "1", "--out", str(tmp_path)])
    found = document(tmp_path / "isolation.json")
    assert {(r["part"], r["t"], r["n"], r["scheduler"]) for r in found["rows"]} == {
        (part, t, n, s)
        for part, t in (("periodic", 1.0), ("periodic", 5.0), ("mixed", 5.0))
        for n in (8, 20)
        for s in isolation.SCHEDULERS
    } | {("speed", 1.0, 20, "LWS")}
    assert [r["slower"] for r in found["rows"] if r["part"] == "speed"] == list(isolation.SLOWER)
    assert all(r["aborted_percent"] == 0 for r in found["rows"] if r["scheduler"] in ("Serial", "WS"))
    assert {r["name"].split(":")[0] for r in found["ratios"]} == {f"figure 7.{i}" for i in range(8, 15)}


def test_frequent_finds_nothing_that_is_not_frequent() -> None:
    """Delta falls with k, nothing false is reported, and every bound holds, on generated flows."""
    items = frequent.bursts(6_000, 1, sources=200)
    rows = [r for b in (20, 100) for r in frequent.figure_6_3(items, b, np.array([0, 900]), 5_000)]
    assert {(r["b"], r["k"]) for r in rows} == {(b, k) for b in (20, 100) for k in range(1, 11)}
    assert all(r["false"] == r["bounds_broken"] == 0 and r["reported"] <= r["over_delta"] for r in rows)
    deltas = [r["delta_share"] for r in rows if r["b"] == 100]
    assert deltas == sorted(deltas, reverse=True)
    found = frequent.random_windows(40, 1)
    assert (found["false"], found["outside"]) == (0, 0)


def test_archive_measures_every_technique(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sub-indices opened are G + E - 1 for all; the wave index moves more bytes than the doubly partitioned one."""
    monkeypatch.setattr(archive, "UPDATES", 12)
    archive.main(["--quick", "--scale", "1000", "--sides", "4", "--out", str(tmp_path)])
    found = document(tmp_path / "archive.json")
    assert {r["technique"] for r in found["rows"] if r["part"] == "small"} >= set(archive.MAIN)
    assert {r["part"] for r in found["rows"]} == {"sides", "small", "uneven", "no directories", "large"}
    met = {r["name"]: r["met"] for r in found["ratios"]}
    assert met["techniques that did not open exactly G + E - 1 sub-indices at every update"]
    assert "figure 4.5 of the thesis" in (tmp_path / "archive.md").read_text(encoding="utf-8")


def test_archive_is_run_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part, or a side of one, takes the place of its rows in the record; other scales of a part are not kept."""
    monkeypatch.setattr(archive, "UPDATES", 6)

    def piece(*options: str) -> dict[tuple[str, int], set[int]]:
        archive.main(["--quick", "--out", str(tmp_path), *options])
        rows = document(tmp_path / "archive.json")["rows"]
        keys = [(r["part"], r["technique"], r["layout"]) for r in rows]
        assert len(keys) == len(set(keys))
        found: dict[tuple[str, int], set[int]] = {}
        for r in rows:
            found.setdefault((r["part"], r["scale"]), set()).add(r["n"])
        return found

    assert piece("--part", "sides", "--scale", "2000") == {("sides", 2000): {16}}
    assert piece("--part", "small", "--scale", "2000", "--sides", "4") == {("sides", 2000): {16}, ("small", 2000): {16}}
    whole = piece("--part", "small", "--scale", "2000", "--sides", "2")
    assert whole == {("sides", 2000): {16}, ("small", 2000): {4, 16}}
    assert piece("--part", "small", "--scale", "1000", "--sides", "2") == {("sides", 2000): {16}, ("small", 1000): {4}}


def test_reading_compares_questions_with_a_full_pass(tmp_path: Path) -> None:
    """A row for each question and level; a key and the last minute read less than a full pass."""
    reading.main(["--quick", "--rows", "60000", "--rounds", "1", "--out", str(tmp_path)])
    rows = [r for r in document(tmp_path / "reading.json")["rows"] if r["part"] == "questions"]
    assert {(r["question"], r["isolation"]) for r in rows} == {
        (q, i) for q in (*reading.QUESTIONS, reading.COVERED) for i in ("snapshot", "latest")
    }
    read = {r["question"]: r["read_mb"] for r in rows}
    assert read["one key"] < read["full pass"] > read["last minute"]


@pytest.mark.parametrize(("texts", "others"), [("form", "nothing"), ("different", "instances"), ("form", "plain")])
def test_many_creates_queries_while_others_run(texts: str, others: str) -> None:
    """The run that times CREATE QUERY says what one takes, and the worst of them."""
    found = many_runs.create(texts, others, 0 if others == "nothing" else 8, 5, 1, "local", "cpu", home=False)
    assert 0 < found["run_s"] <= found["worst_s"]


def test_many_has_different_texts_that_all_are_queries() -> None:
    """Of as many texts as are asked for no two are alike, and each can be created."""
    texts = many_shapes.texts(40, 3)
    assert len(set(texts)) == 40
    with windrow.Engine(runtime="local") as engine:
        engine.execute(many_shapes.WIDE)
        engine.execute(";".join(f"CREATE QUERY q{i} AS {text}" for i, text in enumerate(texts)))
        for stream, rows in many_shapes.wide(20, 1, 5).items():
            assert engine.push(stream, rows) == 20


def test_many_tells_answers_apart_that_differ_in_a_row() -> None:
    """As many rows with the same sums are not the same answers; another order of rows and columns is."""
    one = pa.table({"_ts": [1, 2], "lim": [0.5, 0.5], "n": [3, 4], "m": [1.5, None]})
    digest = many_yardsticks.digest(one)
    many_yardsticks.same("answers", digest, many_yardsticks.digest(one.take([1, 0]).select(["m", "n", "lim", "_ts"])))
    nothing = pa.table({"_ts": [9], "lim": [0.5], "n": [0], "m": [None]}, schema=one.schema)
    many_yardsticks.same("alerts", digest, many_yardsticks.digest(pa.concat_tables([one, nothing])))
    for other in (one.set_column(2, "n", pa.array([4, 3])), one.set_column(3, "m", pa.array([None, 1.5])), one[:1]):
        with pytest.raises(SystemExit, match="differ"):
            many_yardsticks.same("answers", digest, many_yardsticks.digest(other))


@pytest.mark.parametrize("shape", sorted(many_yardsticks.TEXTS))
@pytest.mark.parametrize("how", ["template", "plain"])
def test_many_answers_what_a_join_with_the_rules_does(shape: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every shape, from a template and as texts, row by row; there are rows to compare."""
    monkeypatch.setattr(many_shapes, "KEYS", 40)
    mine = many_runs.windrow(shape, 5, 3_000, 2, "local", "cpu", how, floor=20.0)
    many_yardsticks.same(shape, mine, many_runs.rules_joined(shape, 5, 3_000, 2, "cpu", floor=20.0))
    assert mine["found"] > 20


def test_many_runs_every_shape_asked_for(tmp_path: Path) -> None:
    """A row per shape, number of queries and how they came, beside a join with their rules; one alone; and pushes."""
    shown = ["--shapes", "alerts", "filters", "periodic", "--parts", "rows", "alone", "push"]
    many.main(["--quick", *shown, "--most", "4", "--out", str(tmp_path)])
    rows = document(tmp_path / "many.json")["rows"]
    assert [(r["shape"], r["queries"], r["how"], r["by"] == "windrow") for r in rows if r["part"] == "rows"] == [
        (shape, count, how, ours)
        for shape, count, how in (
            ("alerts", 1, "template"), ("filters", 1, "template"), ("filters", 4, "template"), ("filters", 4, "plain"),
        )
        for ours in (True, False)
    ]  # fmt: skip
    assert [(r["shape"], r["answers"] > 0) for r in rows if r["part"] == "alone"] == [("filters", 1), ("periodic", 1)]
    assert [(r["shape"], r["home"]) for r in rows if r["part"] == "push"] == [("filters", False), ("filters", True)]


@pytest.mark.spark
def test_many_runs_beside_other_engines(tmp_path: Path) -> None:
    """Selections and alerts have the answers that Structured Streaming gives to queries and to a table of rules."""
    many.main(["--quick", "--runtime", "spark", "--parts", "peers", "--peers", "structured", "--out", str(tmp_path)])
    rows = document(tmp_path / "many-spark.json")["rows"]
    assert [(r["shape"], r["how"], r["by"]) for r in rows] == [
        (shape, how, by)
        for shape in ("filters", "alerts")
        for how in ("separate", "table of rules")
        for by in ("windrow", "Structured Streaming")
    ]
    assert all(r["alarms"] for r in rows if r["shape"] == "filters" or r["queries"] > 2)


def test_sql_compares_constructs_with_what_computes_them_once(tmp_path: Path) -> None:
    """A row per construct, whose answers agree."""
    sql.main(["--quick", "--repeat", "1", "--cases", "asof", "top-n", "session", "--out", str(tmp_path)])
    found = document(tmp_path / "sql.json")
    assert [r["case"] for r in found["rows"]] == ["asof", "top-n", "session"]
    assert found["parameters"]["answers agree"] is True


def test_reduced_rows_are_compared_with_rows_as_they_are(tmp_path: Path) -> None:
    """Every case, small: the answers agree (or the experiment ends), and few groups take fewer bytes."""
    assert reduced.main(["--quick", "--repeat", "1", "--out", str(tmp_path)]) == 0
    rows = document(tmp_path / "reduced.json")["rows"]
    assert {r["case"] for r in rows} == set(reduced.CASES)
    assert next(r["MB reduced"] < r["MB"] for r in rows if r["case"] == "stream, max")
