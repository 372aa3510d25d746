"""`windrow state` shows a home without disturbing it."""

import json

import pyarrow as pa
import pytest

from windrow.cli.state import main
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
