"""A home is data: files that were cut, changed, swapped or linked are refused by name, or do not matter."""

from __future__ import annotations

import io
import os
import random
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import ipc
from tests.sealed_files import resealed

import windrow
from windrow.errors import StateError, WindrowError
from windrow.store.runs import cache

SCRIPT = """
CREATE STREAM s (ts BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY ts RETAIN 100;
CREATE TABLE t (k BIGINT, w BIGINT);
CREATE QUERY alone AS SELECT k, COUNT(*) AS n FROM s [RANGE 10] GROUP BY k;
CREATE QUERY kept AS SELECT k, COUNT(*) AS n FROM s [RANGE 10] GROUP BY k KEEP 100;
CREATE QUERY joined AS SELECT s.k, t.w FROM s [RANGE 10], t WHERE s.k = t.k;
CREATE QUERY shared AS SELECT k, SUM(v) AS n FROM s [RANGE 10 SLIDE 5] GROUP BY k;
CREATE QUERY too AS SELECT k, MAX(v) AS n FROM s [RANGE 20 SLIDE 5] WHERE v > 0 GROUP BY k;
CREATE ARCHIVE a AS SELECT k, v FROM s [RANGE 20] KEY k EVERY 5;
"""


def life(home: Path, first: int, last: int, declare: bool = False) -> dict[str, Any]:
    """One life of an engine over a home: some rows, and everything that can be read of it."""
    with windrow.Engine("local", home=home) as engine:
        if declare:
            engine.execute(SCRIPT)
            engine.table("t", pa.table({"k": [0, 1], "w": [5, 6]}))
        engine.start()
        instants = list(range(first, last))
        engine.push("s", {"ts": instants, "k": [i % 3 for i in instants], "v": [i % 7 for i in instants]})
        engine.push("s", {"ts": [0], "k": [0], "v": [0]})  # late
        engine.drain()
        found: dict[str, Any] = {q: engine[q].snapshot().to_pylist() for q in engine.catalog.queries}
        found["asked"] = engine.ask("SELECT k, COUNT(*) AS n FROM s [RANGE 90] GROUP BY k ORDER BY k").to_pylist()
        found["archived"] = sorted(map(str, engine.archive("a").scan().to_pylist()))
        found["results"] = engine["kept"].results(since=0, until=1000).to_pylist()
        return found


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, Any]]:
    """A home, another one of the same script, and what the next life over the first answers."""
    folder = tmp_path_factory.mktemp("homes")
    for name, last in (("one", 40), ("two", 44)):
        life(folder / name, 0, 30, declare=True)
        life(folder / name, 30, last)
    shutil.copytree(folder / "one", folder / "copy")
    return folder / "one", folder / "two", life(folder / "copy", 40, 60)


def flip(path: Path, chance: random.Random, _: Path) -> None:
    data = bytearray(path.read_bytes())
    for _flip in range(min(1, len(data))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def cut(path: Path, chance: random.Random, _: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: chance.randrange(len(data) + 1)])


def noise(path: Path, chance: random.Random, _: Path) -> None:
    path.write_bytes(chance.randbytes(max(1, path.stat().st_size)))


def link(path: Path, _: random.Random, secret: Path) -> None:
    path.unlink()
    path.symlink_to(secret)


def upwards(path: Path, _: random.Random, __: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data.replace(b"runs/", b"../r/").replace(b"archives/", b"/../../e/"))


def sibling(path: Path, chance: random.Random, _: Path) -> None:
    others = [p for p in sorted(path.parent.glob(f"*{path.suffix}")) if p != path and p.is_file()]
    if others:
        shutil.copy(chance.choice(others), path)


DAMAGES: list[Callable[[Path, random.Random, Path], None]] = [flip, flip, cut, noise, link, upwards, sibling]


@pytest.mark.parametrize("seed", range(60))
def test_a_damaged_file_is_refused_or_does_not_matter(
    seed: int, homes: tuple[Path, Path, dict[str, Any]], tmp_path: Path
) -> None:
    """One file of any kind, in one way: the answers are what they were, or a WindrowError that shows no other file."""
    whole, _, want = homes
    chance, home, secret = random.Random(seed), tmp_path / "room" / "home", tmp_path / "secret"
    secret.write_text("swordfish")
    shutil.copytree(whole, home)
    files = sorted(p for p in home.rglob("*") if p.is_file())
    path, damage = files[seed % len(files)], DAMAGES[seed % len(DAMAGES)]
    damage(path, chance, secret)
    try:
        assert life(home, 40, 60) == want
    except WindrowError as error:
        assert "swordfish" not in str(error)
    assert secret.read_text() == "swordfish"
    assert sorted(os.listdir(tmp_path)) == ["room", "secret"] and os.listdir(tmp_path / "room") == ["home"]


def test_a_catalog_of_another_home_is_refused(homes: tuple[Path, Path, dict[str, Any]], tmp_path: Path) -> None:
    """Its texts may be the same and its streams others."""
    shutil.copytree(homes[0], tmp_path / "home")
    for path in (tmp_path / "home" / "catalog").iterdir():
        shutil.copy(homes[1] / "catalog" / path.name, path)
    with pytest.raises(WindrowError, match="written in another home"):
        windrow.Engine("local", home=tmp_path / "home")


@pytest.mark.parametrize("folder", ["manifests", "runs", "catalog", "late"])
def test_a_folder_of_another_home_is_refused(
    folder: str, homes: tuple[Path, Path, dict[str, Any]], tmp_path: Path
) -> None:
    """All files of a kind from a home of the same script: refused, or not read."""
    whole, other, want = homes
    shutil.copytree(whole, tmp_path / "home")
    shutil.rmtree(tmp_path / "home" / folder)
    shutil.copytree(other / folder, tmp_path / "home" / folder)
    try:
        assert life(tmp_path / "home", 40, 60) == want
    except WindrowError as error:
        assert str(error)


@pytest.mark.parametrize(
    "text", ["{}", "[]", "null", '{"magic": "windrow", "format": 3}', '{"magic": "windrow"}', "9" * 5000]
)
def test_a_format_that_says_too_little(text: str, homes: tuple[Path, Path, dict[str, Any]], tmp_path: Path) -> None:
    """Refused by name."""
    shutil.copytree(homes[0], tmp_path / "home")
    (tmp_path / "home" / "format.json").write_text(text)
    with pytest.raises(WindrowError):
        windrow.Engine("local", home=tmp_path / "home")


@pytest.mark.parametrize("kind", ["late", "quarantine"])
@pytest.mark.parametrize("damage", ["cut", "noise", "columns", "name"])
def test_rows_set_aside_are_refused_by_name(kind: str, damage: str, tmp_path: Path) -> None:
    """A damaged file of late or malformed rows is named, wherever it is read."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("ts,k\n1,1\n20,2\nx,3\n")
    declared = f"CREATE STREAM f (ts BIGINT, k BIGINT) TIMESTAMP BY ts FROM csv (path => '{tmp_path}/in')"
    with windrow.Engine("local", home=tmp_path / "home") as engine:
        engine.execute(f"{declared} ON ERROR QUARANTINE; CREATE QUERY q AS SELECT k FROM f [RANGE 5]")
        engine.start()
        engine.drain()
        for name, ts in (("b.csv", 1), ("c.csv", 30)):  # those of the last tick are written again at the start
            (tmp_path / "in" / name).write_text(f"ts,k\n{ts},1\n")
            engine.drain()
        assert engine.late("f").num_rows == engine.quarantine("f").num_rows == 1
    (path,) = (tmp_path / "home" / kind).rglob("*.parquet")
    if damage == "columns":
        pq.write_table(pa.table({"k": ["x"], "reason": [1.5]}), path)
    elif damage == "name":
        path = path.rename(path.with_name("other.parquet"))
    else:
        {"cut": cut, "noise": noise}[damage](path, random.Random(1), tmp_path)
    try:
        with windrow.Engine("local", home=tmp_path / "home") as engine:
            engine.start()
            rows = engine.late("f") if kind == "late" else engine.quarantine("f")
            assert rows.num_rows == 1 and damage == "columns" and kind == "quarantine"
    except WindrowError as error:
        assert str(path) in str(error)


def test_late_rows_from_before_a_column_was_added(tmp_path: Path) -> None:
    """They are null in it."""
    for home in (None, tmp_path / "home"):
        with windrow.Engine("local", home=home) as engine:
            engine.execute("CREATE STREAM s (ts BIGINT, k BIGINT) TIMESTAMP BY ts; CREATE QUERY q AS SELECT k FROM s")
            engine.start()
            engine.push("s", {"ts": [10, 20], "k": [1, 2]})
            engine.push("s", {"ts": [1], "k": [3]})
            engine.execute("ALTER STREAM s ADD COLUMN z BIGINT")
            assert engine.late("s").to_pylist() == [{"ts": 1, "k": 3, "z": None}]


def test_a_manifest_cannot_name_files_outside(homes: tuple[Path, Path, dict[str, Any]], tmp_path: Path) -> None:
    """Files that only old manifests name are deleted, but none elsewhere."""
    home, other = tmp_path / "home", tmp_path / "other"
    shutil.copytree(homes[0], home)
    other.write_text("mine")
    for path in sorted((home / "manifests").iterdir())[:-1]:
        resealed(path, lambda content: content | {"packs": ["../other"] * len(content["packs"])})
    with pytest.raises(WindrowError, match="does not lie in"):
        life(home, 40, 60)
    assert other.read_text() == "mine"


VALUES = [None, -1, 2**63, 10**30, 1e308, float("nan"), "", "../../evil", "/etc/passwd", "a\0b", [], {}, [[]], True]


def another(content: Any, chance: random.Random) -> Any:
    """The same with something else in one place."""
    places: list[tuple[Any, Any]] = []
    waiting = [content]
    while waiting:
        inside = waiting.pop()
        for key in inside if isinstance(inside, dict) else range(len(inside)):
            places.append((inside, key))
            if isinstance(inside[key], (dict, list)):
                waiting.append(inside[key])
    inside, key = chance.choice(places)
    inside[key] = chance.choice(VALUES)
    return content


@pytest.mark.parametrize("seed", range(40))
def test_whole_files_of_other_content(seed: int, homes: tuple[Path, Path, dict[str, Any]], tmp_path: Path) -> None:
    """A newest manifest or catalog that was changed, with a digest that is right: some answer, or a WindrowError."""
    home = tmp_path / "room" / "home"
    shutil.copytree(homes[0], home)
    path = max((home / ("manifests" if seed % 2 else "catalog")).iterdir())
    resealed(path, lambda content: another(content, random.Random(seed)))
    answered_or_refused(home)
    assert os.listdir(tmp_path) == ["room"] and os.listdir(tmp_path / "room") == ["home"]


def answered_or_refused(home: Path) -> None:
    """A life that ends with some answer, or with an error that names what is wrong and blames nobody else."""
    cache.clear()  # of an earlier life in this process
    try:
        life(home, 40, 60)
    except WindrowError as error:
        assert "this is a fault in windrow" not in str(error)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("deadlines", 7), ("budget", 1), ("gathered", [[]]), ("heavy", [1]), ("offsets", {"s": "x"}),
        ("tables", {"t": [[]]}), ("sinks", {"shared": True}), ("archives", {"a": {"slot": 7, "layouts": [[1]]}}),
        ("choices", {"joined": 3}), ("clocks", {"joined": 0.5}), ("declared", {"s": 1}), ("changes", [1]),
        ("plans", {"next": 1, "*1": {"everywhere": False, "next": 2}}), ("plans", {"*1": 1}),
        ("tables", {}), ("runs", []),
    ],
)  # fmt: skip
def test_a_manifest_with_another_value(
    field: str, value: Any, homes: tuple[Path, Path, dict[str, Any]], tmp_path: Path
) -> None:
    """Every part of a manifest is refused if it is something else."""
    shutil.copytree(homes[0], tmp_path / "home")
    newest = max((tmp_path / "home" / "manifests").iterdir())
    resealed(newest, lambda content: content | {field: value})
    answered_or_refused(tmp_path / "home")


@pytest.mark.parametrize("part", ["columns", "shown", "types"])
def test_a_shared_plan_of_other_columns(part: str, homes: tuple[Path, Path, dict[str, Any]], tmp_path: Path) -> None:
    """What a plan that queries share shows and reads is in the manifest, and may not fit them."""
    shutil.copytree(homes[0], tmp_path / "home")

    def changed(content: Any) -> Any:
        shape = content["plans"]["*1"]["shape"]
        shape[part] = {"columns": [[["0.z", "z"]]], "shown": {}, "types": "ff"}[part]
        return content

    resealed(max((tmp_path / "home" / "manifests").iterdir()), changed)
    with pytest.raises(StateError, match="corrupt"):
        life(tmp_path / "home", 40, 60)


def test_a_shared_plan_that_reads_another_column(homes: tuple[Path, Path, dict[str, Any]], tmp_path: Path) -> None:
    """A name that the stream does not have, for what a query reads."""
    shutil.copytree(homes[0], tmp_path / "home")

    def changed(content: Any) -> Any:
        content["plans"]["*1"]["shape"]["columns"] = [[["0.k", "nowhere"]]]
        return content

    resealed(max((tmp_path / "home" / "manifests").iterdir()), changed)
    with pytest.raises(StateError, match=r"0.k is column nowhere of a shared plan, and not k"):
        life(tmp_path / "home", 40, 60)


def _dropped(rows: pa.Table, at: int) -> pa.Table:
    return rows.remove_column(at)


def _emptied(rows: pa.Table, at: int) -> pa.Table:
    return rows.set_column(at, rows.schema.names[at], pa.nulls(rows.num_rows, rows.schema.types[at]))


def _retyped(rows: pa.Table, at: int) -> pa.Table:
    return rows.set_column(at, rows.schema.names[at], pa.nulls(rows.num_rows, pa.list_(pa.int64())))


@pytest.mark.parametrize("change", [_dropped, _emptied, _retyped])
@pytest.mark.parametrize("number", range(0, 30, 3))
def test_runs_of_other_columns(
    number: int,
    change: Callable[[pa.Table, int], pa.Table],
    homes: tuple[Path, Path, dict[str, Any]],
    tmp_path: Path,
) -> None:
    """State whose length and checksum are right, and whose columns are not."""
    home = tmp_path / "home"
    shutil.copytree(homes[0], home)

    def chosen(runs: Any) -> Any:
        refs = [ref for *_, stage in runs for ref in stage if not ref[0].endswith("#")]
        return refs[number % len(refs)]

    forge(home, chosen, lambda rows: change(rows, number % rows.num_columns))
    answered_or_refused(home)


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("change", [_dropped, _retyped])
def test_rows_that_wait_for_an_archive(
    change: Callable[[pa.Table, int], pa.Table], at: int, homes: tuple[Path, Path, dict[str, Any]], tmp_path: Path
) -> None:
    """Columns that are not the archive's are refused by its name."""
    home = tmp_path / "home"
    shutil.copytree(homes[0], home)

    def waiting(runs: Any) -> Any:
        return next(stage[0] for kind, *_, slot, stage in runs if (kind, slot) == ("archive", "waiting"))

    forge(home, waiting, lambda rows: change(rows, at))
    cache.clear()
    with pytest.raises(StateError, match=r'corrupt (state of archive "a"|run) '):
        life(home, 40, 60)


def forge(home: Path, chosen: Callable[[Any], Any], change: Callable[[pa.Table], pa.Table]) -> None:
    """A home in which a run has other rows, whose length and checksum are right."""

    def forged(content: Any) -> Any:
        ref = chosen(content["runs"])
        path = home / content["packs"][ref[1]]
        data = path.read_bytes()
        rows = change(ipc.open_file(data[ref[5] : ref[5] + ref[3]]).read_all())
        sink = io.BytesIO()
        with ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
        offset = len(data) + -len(data) % 64
        path.write_bytes(data.ljust(offset, b"\0") + sink.getvalue())
        ref[2:] = [rows.num_rows, len(sink.getvalue()), zlib.crc32(sink.getvalue()), offset]
        return content

    resealed(max((home / "manifests").iterdir()), forged)
