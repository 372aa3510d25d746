"""The sharing experiment on few rows: its parts run, both sides agree, and its queries are those of the paper."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from windrow.errors import RuntimeFailure, SourceError
from windrow_bench import sharing, sharing_ends
from windrow_bench import sharing_counters as counters
from windrow_bench.peers import PeerResult


@pytest.mark.parametrize("name", list(sharing.TARGETS))
def test_workloads_have_the_papers_shape(name: str) -> None:
    """A: windows differ; B: predicates differ; C: both, the square roots of n of each, or all."""
    data = sharing_ends.of_trades(sharing.market(2000, 1, 50))
    found = sharing_ends.queries(data, name, 16, 1)
    windows, tests = len({(q.range, q.slide) for q in found}), len({q.where for q in found})
    assert (windows, tests) == {"A": (16, 1), "B": (1, 16), "C regular": (4, 4), "C low sharing": (16, 16)}[name]


class _Failing:
    """An engine that bears fewer queries than it is asked for."""

    name = "peer"

    def __init__(self, bears: int) -> None:
        self.bears = bears

    def run(self, queries: Any, files: Any, tables: Any = None) -> PeerResult:
        if len(queries) > self.bears:
            raise RuntimeFailure("too many")
        return PeerResult(float(len(queries)), {}, {}, {})


def test_a_peer_is_asked_for_all_sizes_and_may_fail_at_the_last() -> None:
    """What it answered is kept beside its failure; with fewer than two sizes there is nothing to continue."""
    data = sharing_ends.of_trades(sharing.market(2000, 1, 50))
    ends: Any = SimpleNamespace(data=data, files=None, run_live=lambda _: (0.0, {}, {}))
    found = [
        [(r["engine"], r["queries"], r.get("seconds")) for r in sharing_ends.on_peer(ends, peer, [4, 16, 64], 1)]
        for peer in (_Failing(64), _Failing(16))
    ]
    assert found[0] == [("peer", 4, 4.0), ("peer", 16, 16.0), ("peer", 64, 64.0)]
    assert found[1] == [*found[0][:2], ("peer (failed)", 64, None)]
    with pytest.raises(RuntimeFailure, match="too many"):
        sharing_ends.on_peer(ends, _Failing(4), [4, 16], 1)


def test_a_small_run_agrees_with_itself(tmp_path: Path) -> None:
    """Kernel times are taken only after shared and unshared answers were found equal; the result is one document."""
    out = tmp_path / "r.json"
    options = [
        "--quick",
        "--rows",
        "3000",
        "--queries",
        "4",
        "--repeat",
        "1",
        "--parts",
        "kernel",
        "--workloads",
        "A",
        "B",
    ]
    assert sharing.main([*options, "--json", str(out)]) in (0, 1)
    rows = json.loads(out.read_text())["rows"]
    assert [(r["workload"], r["queries"]) for r in rows] == [("A", 4), ("B", 4)]
    assert all(r["shared partial"] <= 3000 <= r["unshared partial"] or r["workload"] == "B" for r in rows)


def test_a_capture_is_found_in_its_directory(tmp_path: Path) -> None:
    """--data takes the file or the directory it lies in, and says what it looked for."""
    with pytest.raises(SourceError, match="no flows"):
        sharing._capture(tmp_path)
    (tmp_path / "x.binetflow.csv").write_text("")
    assert sharing._capture(tmp_path).name == "x.binetflow.csv"


def test_counters_equal_the_formulas(tmp_path: Path) -> None:
    """Running operators do what tables 3 and 5 say, and the experiment fails if they do not."""
    out = tmp_path / "r.json"
    assert sharing.main(["--quick", "--rows", "3000", "--parts", "counters", "--json", str(out)]) == 0
    document = json.loads(out.read_text())
    assert [(r["value"], r["met"]) for r in document["ratios"]] == [(0, True)]
    plans = [r["workload"] for r in document["rows"]]
    assert len(plans) == 11 and sum("table 3" in p for p in plans) == 4 and sum("table 5" in p for p in plans) == 2
    wrong = counters.Counted("table 3", 2, counters.Cost(10, 5), counters.Cost(10, 6))
    assert not counters.target([wrong]).met
