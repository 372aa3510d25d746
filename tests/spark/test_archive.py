"""A start finds the classes that an earlier one left, whole, and never fails for want of them."""

import os
import time
from pathlib import Path

import pytest

from windrow.spark.archive import archive_options

HEAD = (0xF00BABA8).to_bytes(4, "little")


@pytest.fixture
def options(monkeypatch, tmp_path):
    """The options for a Spark and a Java, with a cache of their own."""
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "java").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.delenv("WINDROW_CLASS_ARCHIVE", raising=False)
    return lambda: archive_options(str(tmp_path / "spark" / "jars"), str(tmp_path / "java"))


def part_of(said):
    return said.rpartition("-XX:ArchiveClassesAtExit=")[2]


def test_the_first_leaves_one_and_the_next_has_it(options):
    """What the first session wrote is what later ones begin with."""
    part = part_of(options())
    assert part.endswith(".part")
    Path(part).write_bytes(HEAD + b"classes")
    for _ in range(2):
        archive = options().rpartition("-XX:SharedArchiveFile=")[2]
        assert Path(archive).read_bytes() == HEAD + b"classes"
    assert not os.path.exists(part)


def test_one_session_at_a_time_makes_it(options):
    """While one session is to leave an archive others start without."""
    assert "ArchiveClassesAtExit" in options()
    assert options() == ""


def test_a_torn_one_is_not_used(options, monkeypatch):
    """Java writes the head last: without it the rest is not whole, and is made again."""
    part = part_of(options())
    Path(part).write_bytes(bytes(100))
    assert options() == ""
    monkeypatch.setattr("windrow.spark.archive._ATTEMPT", 0.0)
    assert part_of(options()) == part


def test_another_spark_has_another(options, tmp_path):
    """New jars in the same place do not get the old archive."""
    part = part_of(options())
    os.utime(tmp_path / "spark" / "jars", ns=(1, 1))
    assert part_of(options()) not in ("", part)


def test_unused_ones_are_deleted(options, tmp_path):
    """What nothing has begun with for a month goes when a new one is made; what is used stays."""
    cache = tmp_path / "cache" / "windrow"
    cache.mkdir(parents=True)
    month_ns = time.time_ns() - 31 * 86_400 * 10**9
    for name in ("spark-old.jsa", "spark-new.jsa", "other"):
        (cache / name).touch()
    for name in ("spark-old.jsa", "other"):
        os.utime(cache / name, ns=(month_ns, month_ns))
    Path(part_of(options())).write_bytes(HEAD)
    assert {f.name for f in cache.glob("*.jsa")} == {"spark-new.jsa"} and (cache / "other").exists()
    (used,) = {options().rpartition("=")[2] for _ in range(2)}
    os.utime(used, ns=(month_ns, month_ns))
    options()
    assert os.stat(used).st_mtime_ns > month_ns


@pytest.mark.parametrize("why", ["off", "settings", "settings beside it", "no cache", "no java", "space"])
def test_goes_without(options, monkeypatch, tmp_path, why):
    """Whatever stands in the way, a session starts without an archive."""
    match why:
        case "off":
            monkeypatch.setenv("WINDROW_CLASS_ARCHIVE", "off")
        case "settings":
            monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
        case "settings beside it":
            (tmp_path / "spark" / "conf").mkdir()
        case "no cache":
            (tmp_path / "cache").touch()
        case "no java":
            (tmp_path / "java").unlink()
        case "space":
            monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    assert options() == ""
