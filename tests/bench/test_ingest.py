"""`windrow bench ingest`: every part measures its points; its files hold the same rows in every format."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from windrow_bench import ingest_data as data
from windrow_bench.harness import Ratio, beside
from windrow_bench.ingest import PARTS, Sizes, main, run
from windrow_bench.ingest_run import shared

TINY = Sizes(
    {"parquet": 20_000, "csv": 20_000, "json": 20_000, "kafka": 2_000},
    (4,),
    4,
    (1, 3),
    (20_000,),
    5_000,
    3,
    2,
    2_000,
    4_000,
)


def test_files_hold_the_same_rows(tmp_path: Path) -> None:
    """Every format has the rows in order, split over files, and a last row behind them."""
    rows = data.table(1000, 5, seed=3)
    places = {form: data.write(rows, tmp_path / form, form, 3) for form in data.FORMATS}
    whole = pa.concat_tables([rows, data.last_row(rows)])
    read = [parquet.read_table(p) for p in sorted(places["parquet"].iterdir())]
    assert pa.concat_tables(read).equals(whole)
    text = [k for p in sorted(places["csv"].iterdir()) for k in csv.read_csv(p)["k"].to_pylist()]
    assert text == whole["k"].to_pylist()
    parsed = [json.loads(line) for p in sorted(places["json"].iterdir()) for line in p.read_text().splitlines()]
    assert [r["k"] for r in parsed] == whole["k"].to_pylist()
    assert [r["v"] for r in parsed] == whole["v"].to_pylist()
    assert {data.bare(p, ["ts", "k"]) for p in places.values()} == {1001}


def test_shared_queries_differ() -> None:
    """No two of the queries that share are the same text."""
    texts = [t.split(" AS ", 1)[1] for t in shared(64).split(";")]
    assert len(set(texts)) == 64


def test_help_names_the_parts(capsys: pytest.CaptureFixture[str]) -> None:
    """--help says what can be chosen."""
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    assert all(part in said for part in PARTS)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_parts(spark: object) -> None:
    """Every part that needs no process of its own measures its points and gives the ratios that have a target."""
    parts = [p for p in PARTS if p != "cores"]
    options = argparse.Namespace(parts=parts, master=None, quick=True, repeat=1, seed=1, no_peers=False, clock="wall")
    found = run(options, TINY)
    assert {r["part"] for r in found.rows} == set(parts)
    measured = {(r["part"], r["engine"]) for r in found.rows if "engine" in r and "seconds" in r}
    assert {(f, e) for f in data.FORMATS for e in ("windrow", "bare read", "Structured Streaming")} <= measured
    assert {r.name.partition(": ")[0] for r in found.ratios} == set(parts) - {"files", "kafka"}
    assert all(r.value > 0 for r in found.ratios)


def test_a_part_takes_its_place_in_the_record(tmp_path: Path) -> None:
    """Beside what was recorded of others, each with its commit; a part that is gone is left out."""
    old = [{"part": "json", "n": 1}, {"part": "csv", "n": 2}, {"part": "gone", "n": 3}]
    ratios = [
        {"name": "csv: a", "value": 2.0, "target": ">= 1.5"},
        {"name": "json: b", "value": 1.0, "target": "-"},
        {"name": "gone: c", "value": 1.0, "target": "<= 3"},
    ]
    record = {"commit": "old", "rows": old, "ratios": ratios}
    (tmp_path / "ingest.json").write_text(json.dumps(record), encoding="utf-8")
    new = [{"part": "json", "n": 4, "commit": "new"}]
    order = ["csv", "json", "kafka"]
    rows, found = beside("ingest", tmp_path, order, ["json"], new, [Ratio("json: d", 5.0, None)])
    assert rows == [{"commit": "old", "part": "csv", "n": 2}, *new]
    assert found == [Ratio("csv: a", 2.0, 1.5, least=True), Ratio("json: d", 5.0, None)]
    assert beside("ingest", None, order, ["json"], new, []) == (new, [])


def test_a_record_from_before_there_were_parts_gives_way(tmp_path: Path) -> None:
    """Its rows and ratios belong to no part, so that none is kept beside the new ones."""
    ratio = {"name": "64 filters / one", "value": 2.0, "target": "<= 2"}
    record = {"commit": "old", "rows": [{"shape": "filters", "queries": 64}], "ratios": [ratio]}
    (tmp_path / "many.json").write_text(json.dumps(record), encoding="utf-8")
    new = [{"part": "push", "ms": 4}]
    assert beside("many", tmp_path, ["rows", "push"], ["push"], new, []) == (new, [])
