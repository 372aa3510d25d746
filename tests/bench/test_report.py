"""Pages of results are made word for word as they say, and say when other code lies under them."""

from __future__ import annotations

import importlib
import json
import subprocess
from pathlib import Path

import pytest

from windrow_bench import harness
from windrow_bench.pages import CAPTURE, PAGES, ResultsPage, code_of, stale
from windrow_bench.report import MARK, check, made, mark

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"


def test_every_record_has_its_page() -> None:
    """Nothing is in docs/results of which nobody knows how it was made."""
    known = {p.name for p in PAGES}
    assert [path.stem for path in RESULTS.glob("*.json") if path.stem not in known] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_experiments_take_their_arguments(page: ResultsPage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line of the table is one that its experiment understands."""

    class Understood(Exception):
        """Arguments were read, and nothing else was done."""

    parse = harness._Noting.parse_known_args

    def parsed(self: harness._Noting, *given: object) -> None:
        _, rest = parse(self, *given)
        raise Understood(rest)

    monkeypatch.setattr(harness._Noting, "parse_known_args", parsed)
    with pytest.raises(Understood) as reached:
        importlib.import_module(f"windrow_bench.{page.experiment}").main(page.given({}))
    assert reached.value.args == ([],)


def test_code_under_a_page_is_what_it_imports() -> None:
    """Helpers of an experiment count, wherever they are, and what none of them imports does not."""
    assert {"bench/windrow_bench/reorder.py", "bench/windrow_bench/switches.py"} <= {*code_of("joins", ROOT)}
    assert {"bench/windrow_bench/drive.py", "bench/windrow_bench/flows.py"} <= {*code_of("patterns", ROOT)}
    assert "bench/windrow_bench/peers/EsperJob.java" in code_of("sharing", ROOT)
    narrow = code_of("aggjoin", ROOT)
    assert "src/windrow/operators/aggregate_join.py" in narrow
    assert "src/windrow/engine/engine.py" not in narrow


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """An experiment that imports a helper, and a record of it."""
    for name, text in {"sql": "from windrow_bench import harness", "harness": "x = 1", "other": ""}.items():
        path = tmp_path / "bench" / "windrow_bench" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    _git(tmp_path, "init", "-q")
    _commit(tmp_path)
    return tmp_path


def _git(root: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def _commit(root: Path) -> str:
    _git(root, "add", "-A")
    _git(root, "commit", "-qm", "one")
    return _git(root, "rev-parse", "--short=12", "HEAD")


def _record(root: Path, head: str, **row: str) -> str | None:
    directory = root / "results"
    directory.mkdir(exist_ok=True)
    (directory / "sql.json").write_text(json.dumps({"commit": head, "rows": [row]}))
    return stale("sql", directory, root)


def test_a_record_is_of_the_code_of_its_rows(repository: Path) -> None:
    """A row of an older commit makes a record stale if what the experiment imports has changed since, else not."""
    first = _git(repository, "rev-parse", "--short=12", "HEAD")
    (repository / "bench" / "windrow_bench" / "other.py").write_text("y = 2")
    second = _commit(repository)
    assert _record(repository, second) is None
    assert _record(repository, second, commit=first) is None
    (repository / "bench" / "windrow_bench" / "harness.py").write_text("x = 2")
    third = _commit(repository)
    assert _record(repository, third) is None
    assert _record(repository, third, commit=first) == "1 of the 2 files under it have changed"
    assert _record(repository, second, commit=third) is None
    assert "no commit has" in (_record(repository, third, commit=f"{third}+") or "")
    assert "history" in (_record(repository, "0123456789ab") or "")


def test_a_page_must_say_what_state_it_is_in(tmp_path: Path) -> None:
    """A stale page without a mark is found, and a fresh one with it; a mark stays right however much changes."""
    directory = tmp_path / "results"
    directory.mkdir()
    (tmp_path / "reproduction.md").write_text("")
    (directory / "sql.md").write_text("# sql\n\nText.\n")

    def wrong(reason: str | None) -> list[str]:
        return [w for w in check(directory, {"sql": reason}) if "reproduction" not in w]

    assert wrong(None) == []
    assert wrong("3 files") == ["docs/results/sql.md: 3 files"]
    mark(directory, {"sql": "3 files"})
    assert MARK in (directory / "sql.md").read_text()
    assert wrong("4 files") == []
    assert wrong(None) == ["docs/results/sql.md: it is of the present code"]


def test_one_that_fails_stops_no_other(tmp_path: Path) -> None:
    """An experiment that raises is said at the end, as one whose data are missing is, and the page is written."""
    directory = tmp_path / "results"
    directory.mkdir()
    pages = [ResultsPage("a", "nowhere"), ResultsPage("b", "sql", ("--data", CAPTURE)), ResultsPage("c", "nowhere")]
    said = made(pages, {}, directory, tmp_path)
    assert [*said] == ["a", "b", "c"]
    assert "exit code 70" in said["a"] and "exit code 70" in said["c"]
    assert said["b"] == "needs --capture FILE"
    assert (tmp_path / "reproduction.md").exists()


def test_a_record_says_what_made_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Record and page have the arguments, without places on this machine, and the time that it took."""
    accepts = harness.parser("sql", "")
    accepts.add_argument("--data")
    options = accepts.parse_args(["--out", str(tmp_path), "--data", "/somewhere/else/flows.csv"])
    harness.report(harness.Result("sql", "About.", 1, {}, [{"a": 1}], []), options)
    record = json.loads((tmp_path / "sql.json").read_text())
    assert record["made_by"] == f"windrow bench sql --out {tmp_path.name} --data flows.csv"
    assert record["seconds"] >= 0
    assert "Made by `windrow bench sql" in (tmp_path / "sql.md").read_text()
    assert "/somewhere" not in (tmp_path / "sql.json").read_text()
    assert capsys.readouterr().out
