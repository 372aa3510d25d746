"""The files under a path, on any file system, found again and again as they come.

A path may have patterns (`2024-*/`, `{a,b}/*.csv`); on this machine a name that is there is none. Behind the last one
its files are those of the folder itself, those of folders named `column=value`, and with `recursive` those of every
folder. Names that begin with a dot or an underscore, or end in `._COPYING_` or `.tmp`, are what writers have not
finished.

Cost of a look: a stat of each folder; folders are listed again when their time of change differs. Since a change within
the grain of that clock cannot be seen by it, and some file systems do not keep it, a folder is also listed after a
multiple of the time that its last listing took; where nothing has changed for a while, ten times a second at most.
Names that are known are not looked at further. A folder that changes all the time is listed half of the time at most,
and so is a store that has no times of folders.
"""

from __future__ import annotations

import copy
import fnmatch
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from pyarrow import fs

from windrow.errors import SourceError
from windrow.store.place import Place

GRAIN_SECONDS = 3.0  # no file system's clock is coarser
CHANGED, RECENT, SETTLED = 1.0, 4.0, 20.0  # a folder is listed again after so many times as long as it took
SETTLED_SECONDS = 0.1  # and a settled one not before
REMOTE_SECONDS = 1.0  # between looks at a store that has no times of folders, or as long as the last one took
CHUNK = 1 << 16

Unseen = Callable[[Sequence[str]], list[str]]


@dataclass(frozen=True, order=True, slots=True)
class ListedFile:
    """A file that was found; files are taken in order of their time of change."""

    changed_ns: int
    name: str
    size: int


@dataclass
class _Folder:
    """What is known of a folder; times are of this machine's own steady clock."""

    mark: tuple[int, int] | None = None  # time of change and identity, by the file system
    since: float = 0.0  # when that mark was first seen
    began: float = float("-inf")  # the last listing, from here
    ended: float = float("-inf")  # to here
    below: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _ListedFile:
    name: str
    folder: bool
    size: int = 0
    changed_ns: int = 0

    def is_dir(self) -> bool:
        return self.folder


class Listing:
    """The files of a path with patterns."""

    def __init__(
        self,
        place: Place,
        patterns: Sequence[str],
        recursive: bool,
        names: str | None,
        clock: Callable[[], float],
        only: str | None = None,
    ) -> None:
        self.place = place
        self.longest = 0.0  # seconds that the listing of a folder, or a look, has taken lately
        self._only = only  # the one file that is asked for, as it is named
        self._patterns = [_matcher(p) for p in patterns] if only is None else [only.__eq__]
        self._names = None if names is None else _matcher(names)
        self._recursive = recursive
        self._clock = clock
        self._folders: dict[str, _Folder] = {}
        self._next = float("-inf")  # do not look before
        self._listed = 0.0  # seconds of this look that went into listing

    def look(self, unseen: Unseen, *, force: bool = False) -> list[ListedFile]:
        """Files that `unseen` does not know; unless forced, only where something may have changed."""
        start = self._clock()
        if not force and start < self._next:
            return []
        self._listed = 0.0
        found = list(self._walk("", 0, unseen, force))
        end = self._clock()
        self.longest = max(f.ended - f.began for f in self._folders.values() if f.ended >= f.began)
        self.longest = max(self.longest, end - start)
        if self.place.local:
            self._next = end + RECENT * (end - start - self._listed)
        else:
            self._next = end + max(CHANGED * (end - start), REMOTE_SECONDS)
        return found

    def forget(self) -> None:
        """Look at everything again next time."""
        self._folders, self._next = {}, float("-inf")

    def names(self) -> Iterator[str]:
        """The names of all files that are there now."""
        every = copy.copy(self)
        every.forget()
        return (f.name for f in every._walk("", 0, list, True))

    def _walk(self, path: str, depth: int, unseen: Unseen, force: bool) -> Iterator[ListedFile]:
        folder = self._folders.setdefault(path, _Folder())
        try:
            if force or self._may_have_changed(path, folder):
                yield from self._list(path, depth, folder, unseen)
        except FileNotFoundError:
            if path == "":
                raise SourceError(f"there is no directory {self.place.path('')}") from None
            self._folders.pop(path)
            return
        for name in folder.below:
            yield from self._walk(f"{path}/{name}" if path else name, depth + 1, unseen, force)

    def _may_have_changed(self, path: str, folder: _Folder) -> bool:
        now = self._clock()
        if not self.place.local:
            return True
        found = os.stat(self.place.path(path))
        mark = (found.st_mtime_ns, found.st_ino)
        if mark != folder.mark:
            folder.mark, folder.since = mark, now
        took = max(0.0, folder.ended - folder.began)
        if folder.since >= folder.began:
            pause = CHANGED * took
        elif folder.began < folder.since + GRAIN_SECONDS:
            pause = RECENT * took
        else:
            pause = max(SETTLED * took, SETTLED_SECONDS)
        return now >= folder.ended + pause

    def _list(self, path: str, depth: int, folder: _Folder, unseen: Unseen) -> Iterator[ListedFile]:
        start = self._clock()
        below: list[str] = []
        chunk: dict[str, os.DirEntry[str] | _ListedFile] = {}
        prefix, tests = f"{path}/" if path else "", self._tests(depth)
        for entry in self._entries(path):  # of all files that were ever there: as little as can be for each
            name = entry.name
            if is_hidden(name) and name != self._only:
                continue
            if entry.is_dir():
                if self._descends(name, depth):
                    check_name(prefix + name)
                    below.append(name)
            elif not tests or all(test(name) for test in tests):
                chunk[prefix + name] = entry
                if len(chunk) >= CHUNK:
                    yield from _stated(chunk, unseen)
                    chunk = {}
        yield from _stated(chunk, unseen)
        folder.below, folder.began, folder.ended = sorted(below), start, self._clock()
        self._listed += folder.ended - start

    def _entries(self, path: str) -> Iterator[os.DirEntry[str] | _ListedFile]:
        if self.place.local:
            with os.scandir(self.place.path(path)) as entries:
                yield from entries
            return
        for info in self.place.filesystem.get_file_info(fs.FileSelector(self.place.path(path))):
            if info.type in (fs.FileType.File, fs.FileType.Directory):
                yield _ListedFile(
                    info.base_name, info.type == fs.FileType.Directory, info.size or 0, info.mtime_ns or 0
                )

    def _descends(self, name: str, depth: int) -> bool:
        if depth < len(self._patterns):
            return self._patterns[depth](name)
        return self._recursive or "=" in name

    def _tests(self, depth: int) -> list[Callable[[str], bool]]:
        """What the name of a file must pass so far below the first folder."""
        if depth < len(self._patterns) - 1:
            return [lambda name: False]
        return [*self._patterns[depth : depth + 1], *([] if self._names is None else [self._names])]


def _stated(chunk: dict[str, os.DirEntry[str] | _ListedFile], unseen: Unseen) -> Iterator[ListedFile]:
    """The unknown files of a chunk; only they are asked for size and time. A pipe or a device would not end."""
    for name in unseen(list(chunk)):
        check_name(name)
        entry = chunk[name]
        if isinstance(entry, _ListedFile):
            yield ListedFile(entry.changed_ns, name, entry.size)
            continue
        try:
            found = entry.stat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(found.st_mode):
            yield ListedFile(found.st_mtime_ns, name, found.st_size)


def listing_of(path: str, what: str, recursive: bool = False, names: str | None = None) -> Listing:
    """The files under a path, or the one that it is; `names`: a pattern of theirs."""
    root, patterns = split_path(path)
    place = Place.of(root)
    while patterns and place.local and os.path.exists(os.path.join(place.path(""), patterns[0])):
        place, patterns = Place(os.path.join(place.uri, patterns[0])), patterns[1:]
    kind = place.filesystem.get_file_info(place.path("")).type
    if kind == fs.FileType.NotFound:
        raise SourceError(f"{what}: there is no directory {root}", hint="make it, or change the path")
    if kind == fs.FileType.File:
        address, mark, options = place.uri.partition("?") if "://" in place.uri else (place.uri, "", "")
        folder, _, name = address.rpartition("/")
        return Listing(Place(f"{folder or '/'}{mark}{options}"), [], recursive, names, time.monotonic, name)
    return Listing(place, patterns, recursive, names, time.monotonic)


def check_name(name: str, what: str = "") -> None:
    """Refuse a name that is not text: no library would open it, nor could an offset hold it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise SourceError(f"{what}the name of a file is not UTF-8: {os.fsencode(name)!r}", hint="rename it") from None


def is_hidden(name: str) -> bool:
    """Whether a name is one that writers use for what is not, or not yet, data.

    >>> [is_hidden(n) for n in ("_SUCCESS", ".part-1", "part-1", "a.csv._COPYING_")]
    [True, True, False, True]
    """
    return name.startswith((".", "_")) or name.endswith(("._COPYING_", ".tmp"))


def split_path(path: str) -> tuple[str, list[str]]:
    """The folder before the first pattern of a path, and the segments from there on; options of an address stay.

    >>> split_path("/data/2024-*/day"), split_path("s3a://bucket/in"), split_path("s3://b/a-*/c?region=x")
    (('/data', ['2024-*', 'day']), ('s3://bucket/in', []), ('s3://b?region=x', ['a-*', 'c']))
    """
    path = re.sub(r"^(s3[an]|abfss)://", lambda m: {"s3a": "s3", "s3n": "s3", "abfss": "abfs"}[m[1]] + "://", path)
    path, mark, options = path.partition("?") if "://" in path else (path, "", "")
    segments = path.rstrip("/").split("/")
    first = next((i for i, s in enumerate(segments) if has_patterns(s)), len(segments))
    root = "/".join(segments[:first]) or ("/" if path.startswith("/") else ".")
    return f"{root}{mark}{options}", segments[first:]


def has_patterns(path: str) -> bool:
    """Whether a path names what it may match."""
    return re.search(r"[*?\[{]", path) is not None


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a name matches a pattern with `*`, `?`, `[...]` and `{a,b}`."""
    alternatives = "|".join(fnmatch.translate(p) for p in _braces(pattern))
    compiled = re.compile(alternatives)
    return lambda name: compiled.match(name) is not None


def _braces(pattern: str) -> list[str]:
    """A pattern without braces for each choice.

    >>> _braces("{a,b}-*.csv")
    ['a-*.csv', 'b-*.csv']
    """
    found = re.search(r"\{([^{}]*)\}", pattern)
    if not found:
        return [pattern]
    return [
        p for choice in found[1].split(",") for p in _braces(pattern[: found.start()] + choice + pattern[found.end() :])
    ]
