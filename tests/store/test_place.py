"""Whole-file writes: all or nothing, and every failure says which file and what to do."""

import errno
import os

import pytest

from windrow.errors import StateError
from windrow.store import place as places
from windrow.store.place import Place, segment


def test_write_then_read(tmp_path):
    """A file comes back as it was written, in folders made on the way."""
    place = Place.of(tmp_path)
    place.write("a/b/c.json", b"hello")
    assert bytes(place.read("a/b/c.json")) == b"hello"
    assert place.names("a", recursive=True) == {"a/b/c.json": 5}


def test_write_replaces(tmp_path):
    """Writing a name again replaces the file and leaves no temporary."""
    place = Place.of(tmp_path)
    place.write("x", b"one")
    place.write("x", b"two")
    assert bytes(place.read("x")) == b"two"
    assert os.listdir(tmp_path) == ["x"]


def test_empty_file(tmp_path):
    """An empty file reads as no bytes."""
    place = Place.of(tmp_path)
    place.write("x", b"")
    assert bytes(place.read("x")) == b""


def test_file_uri_is_the_local_path(tmp_path):
    """A file:// address and the path are one place."""
    assert Place.of(f"file://{tmp_path}") == Place.of(tmp_path)


def test_remote_file_system():
    """Files on a file system that is not local are written, listed, read and deleted."""
    place = Place.of("mock:///home")
    assert not place.local
    place.write("runs/a", b"abc")
    place.write("runs/a", b"abcd")
    assert bytes(place.read("runs/a")) == b"abcd"
    assert place.names("runs") == {"runs/a": 4}
    place.delete("runs/a")
    place.delete("runs/a")
    assert not place.exists("runs/a")


def test_unknown_scheme():
    """An address no file system knows is refused with the ones that are."""
    with pytest.raises(StateError, match="hdfs://"):
        Place.of("nowhere://x/y").names()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_leaves_the_old_file(tmp_path, monkeypatch, number):
    """A disk that fills while writing keeps the previous file and removes the half-written one."""
    place = Place.of(tmp_path)
    place.write("x", b"old")

    def full(_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(places.os, "fsync", full)
    with pytest.raises(StateError, match="disk is full") as caught:
        place.write("x", b"new")
    assert "free some space" in caught.value.hint
    assert (tmp_path / "x").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x"]


def test_missing_file(tmp_path):
    """A file that is gone is named."""
    with pytest.raises(StateError, match="runs/x: it does not exist"):
        Place.of(tmp_path).read("runs/x")


def test_segments_are_distinct_and_safe():
    """Names that differ become segments that differ and never leave their folder."""
    names = ["a", "a/b", "a%2Fb", "..", ".", "über q", ".hidden", "." * 300, "x" * 300, "x" * 301, "ü" * 100]
    names += [segment("x" * 300), segment(segment("x" * 300))]  # what a name became is a name as well
    made = [segment(n) for n in names]
    assert len(set(made)) == len(names)
    assert not any("/" in m or m.startswith(".") or len(m) > 255 for m in made)
