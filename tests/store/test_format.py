"""One number says what a home's files contain: what another version wrote is refused as that, never as damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tests.sealed_files import resealed

import windrow
from windrow.cli.state import main
from windrow.errors import StateError
from windrow.store.manifest import Manifest
from windrow.store.manifest_values import ArchiveMark, HeavyKeysOfJoin, LastEvaluation
from windrow.store.runs import RunRef
from windrow.store.sealed import FORMAT
from windrow.store.store import Store

SAYS = {
    4: {
        Manifest: "version tick partitions spread offsets declared marks frontier clocks firsts lapsed runs outputs "
        "sinks choices heavy gathered budget deadlines archives plans tables catalog changes",
        LastEvaluation: "period done",
        HeavyKeysOfJoin: "query step since",
        ArchiveMark: "slot layouts",
        RunRef: "uid path rows bytes checksum offset",
    }
}
"""What a home of each format says. Who changes it changes the number."""


@pytest.mark.parametrize("part", SAYS[FORMAT])
def test_what_a_home_says_has_a_number(part: type) -> None:
    """Fields that come or go without a new format are refused here, before an older version meets them."""
    assert " ".join(each.name for each in fields(part)) == SAYS[FORMAT][part]


def newest(home: Path, folder: str) -> Path:
    return max((home / folder).iterdir())


def a_field(home: Path) -> None:
    """A manifest says what there was not when this version was made."""
    resealed(newest(home, "manifests"), lambda content: content | {"colours": {"q": "red"}})


def a_format(home: Path) -> None:
    path = home / "format.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": FORMAT + 1}))


def a_manifest(home: Path) -> None:
    resealed(newest(home, "manifests"), lambda content: content, format=FORMAT + 1)


def a_catalog(home: Path) -> None:
    resealed(newest(home, "catalog"), lambda content: content, format=FORMAT + 1)


@pytest.mark.parametrize("newer", [a_field, a_format, a_manifest, a_catalog])
def test_a_home_of_a_newer_version_is_refused_untouched(newer: Callable[[Path], None], tmp_path: Path) -> None:
    """By an engine, by who looks at it and by repair: none sends its owner to what would damage it."""
    home = tmp_path / "home"
    with windrow.Engine("local", home=home) as engine:
        engine.execute("CREATE STREAM s (k BIGINT, ts BIGINT) TIMESTAMP BY ts; CREATE QUERY q AS SELECT k FROM s")
        engine.start()
        engine.push("s", {"k": [1, 2], "ts": [1, 2]})
        engine.drain()
    newer(home)
    before = {p: p.read_bytes() if p.is_file() else None for p in home.rglob("*")}
    meetings: list[Callable[[], Any]] = [
        lambda: windrow.Engine("local", home=home),
        lambda: main([str(home)]),
        lambda: main([str(home), "--repair"]),
        lambda: main([str(home), "--repair", "--yes"]),
    ]
    for meet in meetings:
        with pytest.raises(StateError, match="was written by a newer version of windrow") as refused:
            meet()
        assert "run the version of windrow that wrote it" in str(refused.value) and "--repair" not in str(refused.value)
        assert before == {p: p.read_bytes() if p.is_file() else None for p in home.rglob("*")}


@pytest.mark.parametrize("commit", [Store.commit, Store.commit_repaired])
def test_a_home_is_of_this_format_from_its_first_commit_on(
    commit: Callable[[Store, Manifest], None], tmp_path: Path
) -> None:
    """Not before: until then the version that wrote it can go on with it."""
    with Store.open(tmp_path) as store:
        store.commit(Manifest(0, 0))
    resealed(newest(tmp_path, "manifests"), lambda content: content, format=3)
    path = tmp_path / "format.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 3}))
    with Store.open(tmp_path) as store:
        assert store.format == 3 and json.loads(path.read_text())["format"] == 3
        commit(store, Manifest(1, 1))
        assert store.format == FORMAT == json.loads(path.read_text())["format"]
    with Store.open(tmp_path) as store:
        assert store.latest() == Manifest(1, 1)
