"""`windrow state` shows a home without disturbing it."""

import json

import pyarrow as pa
import pytest

from windrow.cli.doctor import main as doctor
from windrow.cli.state import main
from windrow.engine import Engine
from windrow.errors import StateError
from windrow.operators.state.run import Run
from windrow.store.manifest import Manifest
from windrow.store.store import Store


@pytest.fixture
def home(tmp_path):
    with Store.open(tmp_path / "home") as store:
        refs = store.runs.write(("s0", 1), 7, [Run(pa.table({"k": [1, 2, 3]}))])
        store.commit(
            Manifest(
                0,
                7,
                offsets={"bid": {"pushed": 4}},
                marks={"bid": 1_700_000_000_000_000},
                frontier=1_700_000_000_000_000,
                clocks={"hot": 5},
                runs={("s0", 1, "join", "left"): refs, ("s0", 0, "join", "left"): ()},
            )
        )
        yield tmp_path / "home"


def test_json(home, capsys):
    """As JSON: the tick, streams, queries and state, while an engine has the home open."""
    assert main([str(home), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["version"], shown["tick"], shown["runs"]) == (0, 7, 1)
    assert shown["streams"] == {"bid": {"offset": {"pushed": 4}, "mark": 1_700_000_000_000_000}}
    assert shown["queries"] == {"hot": {"clock": 5}}
    (stage,) = shown["stages"]
    assert (stage["partitions"], stage["runs"], stage["rows"]) == (2, 1, 3)


def test_table(home, capsys):
    """As text: the same for people."""
    assert main([str(home)]) == 0
    text = capsys.readouterr().out
    for part in ("tick 7", "2023-11-14", "bid", "hot", "join", "left"):
        assert part in text


def test_new_home(tmp_path, capsys):
    """A home without a tick says so."""
    Store.open(tmp_path).close()
    assert main([str(tmp_path)]) == 0
    assert "no tick" in capsys.readouterr().out


def test_no_home(tmp_path):
    """A path without a home is an error, and nothing is created there."""
    with pytest.raises(StateError, match="there is no windrow home"):
        main([str(tmp_path / "x")])
    assert not (tmp_path / "x").exists()


def test_words_for_people(tmp_path, capsys):
    """What RETAIN keeps is called so, files are counted in words, and `windrow doctor` shows the frontier as a time."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("ts,v\n2024-01-01 00:00:00,1\n2024-01-01 00:00:02,1\n")
    with Engine(runtime="local", home=str(tmp_path / "home")) as engine:
        engine.execute(
            f"""
            CREATE STREAM s (ts TIMESTAMP, v BIGINT) TIMESTAMP BY ts RETAIN 1 HOUR
            FROM csv (path => '{tmp_path / "in"}');
            CREATE QUERY q AS SELECT SUM(v) AS v FROM s [RANGE 1 MINUTE]
            """
        )
        engine.start()
        engine.drain()
    assert main([str(tmp_path / "home")]) == 0
    out = capsys.readouterr().out
    assert "s (RETAIN)" in out
    assert "1 file, a.csv last" in out
    assert "~s" not in out
    doctor(["--home", str(tmp_path / "home")])
    assert "00:00:01.999999+00:00" in capsys.readouterr().out
