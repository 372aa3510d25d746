"""Files of a directory, as they appear: each is taken once, whole or in parts, in order of time of change.

As with Spark's file source a file is known by its name: one that is written again under the same name is not read
again. Unlike there, no file is too old to be new, so clocks that disagree lose nothing, and a local file without a
byte is one whose writer has not begun: it waits, and does not hold up those behind it.

    offset  {"files": taken so far, "log": [...], "tail": [...], "part": {"name", "size", "at"}}

See seen.py for log and tail. `part` is a file of which a tick has taken a beginning: a tick takes at most `max_files`
files and about `max_bytes` bytes, so a file larger than memory goes through many ticks.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.sources.cuts import Share, available
from windrow.sources.data_file import DataFile, FileWithoutRows, given_by, reading
from windrow.sources.lines import LineFormat, cut_lines
from windrow.sources.listing import ListedFile, Listing, listing_of
from windrow.sources.options import SourceOptions
from windrow.sources.protocol import Available, Offset, Piece
from windrow.sources.read_arrow import ArrowPiece, cut_arrow
from windrow.sources.read_csv import csv_format
from windrow.sources.read_json import json_format
from windrow.sources.read_parquet import ParquetPiece, cut_parquet
from windrow.sources.seen import NameSet, Reference, SeenLog
from windrow.store.place import Place

LOG = logging.getLogger("windrow.sources")
MAX_FILES = 32
MAX_BYTES = 1 << 30
TAIL_NAMES = 256
ALL_PARTS = 1 << 31  # of a file that could not be cut: it may go better when it is read
SLOW_SECONDS = 0.05
EMPTY_SECONDS = 5.0  # a file that has been empty for so long is reported

Cutter = Callable[[DataFile, int], list[Share]]


Cleaner = Callable[[Place, str], None] | None


@dataclass(frozen=True)
class DirectoryOptions:
    """What can be said of files of a directory."""

    path: str
    max_files: int
    max_bytes: int
    recursive: bool
    names: str | None
    clean: Cleaner
    cut: Cutter


def read_options(stream: StreamDef, *, may_write: bool = False) -> DirectoryOptions:
    """The options of a declaration; anything else is refused."""
    options = SourceOptions(stream)
    found = DirectoryOptions(
        path=options.need("path"),
        max_files=options.number("max_files", MAX_FILES, "maxFilesPerTrigger"),
        max_bytes=options.number("max_bytes", MAX_BYTES, "maxBytesPerTrigger"),
        recursive=options.flag("recursiveFileLookup", False),
        names=options.text("pathGlobFilter"),
        clean=_cleaner(options, may_write),
        cut=cutter(stream, options),
    )
    options.finish()
    return found


def open_source(stream: StreamDef, spool: Place, *, may_write: bool = False) -> DirectorySource:
    """The files that a declaration names."""
    options = read_options(stream, may_write=may_write)
    with reading(stream, options.path):
        listing = listing_of(options.path, stream.what, options.recursive, options.names)
    return DirectorySource(stream, listing, SeenLog(spool), options)


def cutter(stream: StreamDef, options: SourceOptions) -> Cutter:
    """How files of the declared kind are cut; one that cannot be is left to the task, which says what is wrong."""
    if options.kind == "parquet":
        rest = partial(ParquetPiece, stop=ALL_PARTS)
        return _rest_if_bad(lambda file, start: cut_parquet(file, stream, start), rest)
    if options.kind == "arrow":
        return _rest_if_bad(cut_arrow, partial(ArrowPiece, stop=ALL_PARTS))
    form: LineFormat = csv_format(options) if options.kind == "csv" else json_format(options)
    return lambda file, start: cut_lines(file, form, start)


def _rest_if_bad(cut: Cutter, rest: Callable[..., Piece]) -> Cutter:
    def cut_or_rest(file: DataFile, start: int) -> list[Share]:
        try:
            return cut(file, start)
        except (FileNotFoundError, SourceError):
            raise
        except (pa.ArrowException, OSError):
            return [Share(rest(file, start, weight=file.size), ALL_PARTS)]

    return cut_or_rest


def _cleaner(options: SourceOptions, may_write: bool) -> Cleaner:
    """What becomes of files that a manifest says were taken."""
    what = options.choice("cleanSource", ("off", "delete", "archive"), "off")
    target = options.text("sourceArchiveDir")
    if what == "off":
        return None
    if not may_write:
        raise options.refusal(
            "cleanSource deletes or moves files, which the owner of this engine has not allowed",
            "leave it out, and remove what was taken by other means",
        )
    if what == "delete":
        return lambda place, name: place.delete(name)
    archive = Place.of(target or options.need("sourceArchiveDir"))
    return lambda place, name: _move(place, name, archive)


def _move(place: Place, name: str, archive: Place) -> None:
    archive.make(name.rpartition("/")[0])
    place.filesystem.move(place.path(name), archive.path(name))


@dataclass(frozen=True)
class _Position:
    """An offset, taken apart."""

    files: int = 0
    log: Sequence[Reference] = ()
    tail: Sequence[str] = ()
    part: Mapping[str, Any] | None = None

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(str(r[0]) for r in self.log)

    def plain(self) -> Offset:
        offset: dict[str, Any] = {"files": self.files, "log": list(self.log), "tail": list(self.tail)}
        return offset if self.part is None else {**offset, "part": dict(self.part)}


@dataclass(frozen=True)
class _Absorbed:
    """The first `count` names behind `segments` are in `log` now."""

    segments: tuple[str, ...]
    count: int
    log: Sequence[Reference]


class DirectorySource:
    """The files of a listing that an offset has not taken.

    Invariant: what an offset at or behind the last committed one has taken is all names that are known, without those
    that wait, and with those in its tail.
    """

    def __init__(self, stream: StreamDef, listing: Listing, log: SeenLog, options: DirectoryOptions) -> None:
        self.stream = stream
        self._listing, self._cut, self._log, self._clean = listing, options.cut, log, options.clean
        self._max_files, self._max_bytes = options.max_files, options.max_bytes
        self._known: NameSet | None = None
        self._waiting: dict[str, ListedFile] = {}
        self._order: list[ListedFile] = []  # sorted; from `_head` on, some of them no longer wait
        self._head = 0
        self._segments: tuple[str, ...] = ()
        self._absorbed = _Absorbed((), 0, ())
        self._cuts: dict[tuple[str, int, int], list[Share]] = {}  # by name, size and start
        self._done: list[str] = []  # taken, not cleaned up yet
        self._empty: dict[str, float] = {}  # files without a byte, and when to report them
        self._looking: Future[list[ListedFile]] | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="windrow-listing")

    def poll(self, offset: Offset | None) -> Available | None:
        """The next files behind `offset`."""
        position = self._position(offset)
        with reading(self.stream, self._listing.place.path("")):
            self._look()
            return self._take(position)

    def drained(self, offset: Offset | None) -> bool:
        """Whether every file that is there now was taken whole."""
        position = self._position(offset)
        with reading(self.stream, self._listing.place.path("")):
            self._look(now=True)
            return position.part is None and not any(map(self._has_bytes, self._candidates(position)))

    def committed(self, offset: Offset) -> None:
        """Forget what waited, and move names from the offset into the log when they are many."""
        position = self._position(offset)
        self._done += [n for n in position.tail if self._waiting.pop(n, None)]
        self._cuts = {}
        self._clean_up(position)
        self._log.keep(offset.get("log", ()))
        if len(position.tail) >= TAIL_NAMES:
            log = self._log.absorb(position.log, position.tail, lambda: NameSet(self._listing.names()))
            self._absorbed = _Absorbed(position.segments, len(position.tail), log)
            self._segments = tuple(str(r[0]) for r in log)

    def _clean_up(self, position: _Position) -> None:
        """Delete or move what was taken whole, if the declaration says so and the owner allows it."""
        part = None if position.part is None else position.part["name"]
        clean = self._clean or (lambda place, name: None)
        for name in self._done:
            if name != part:
                clean(self._listing.place, name)
        self._done = [n for n in self._done if n == part]

    def close(self) -> None:
        """Stop looking."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _position(self, offset: Offset | None) -> _Position:
        """Where an offset stands, in terms of the log as it is now; an offset that is not known starts all anew."""
        found = _Position(**offset) if offset else _Position()
        if self._known is not None and found.segments == self._absorbed.segments != self._segments:
            return replace(found, log=self._absorbed.log, tail=found.tail[self._absorbed.count :])
        if self._known is None or found.segments != self._segments:
            if self._looking is not None:
                self._looking.exception()
                self._looking = None
            self._known = NameSet([*self._log.names(found.log), *found.tail])
            self._waiting, self._order, self._head, self._cuts = {}, [], 0, {}
            self._segments, self._absorbed = found.segments, _Absorbed((), 0, ())
            self._listing.forget()
        return found

    def _look(self, *, now: bool = False) -> None:
        """List what is new; in another thread where that takes long, unless it must be known now."""
        if self._looking is not None and (now or self._looking.done()):
            looking, self._looking = self._looking, None
            self._add(looking.result())
        if now or (self._looking is None and self._listing.longest < SLOW_SECONDS):
            self._add(self._listing.look(self._unseen, force=now))
        elif self._looking is None:
            self._looking = self._pool.submit(self._listing.look, self._unseen)

    def _unseen(self, names: Sequence[str]) -> list[str]:
        assert self._known is not None
        return self._known.missing(names)

    def _add(self, found: list[ListedFile]) -> None:
        """Let files wait; a name that was listed and is no file, or gone before it was looked at, stays unknown."""
        if found:
            assert self._known is not None
            self._known.add(f.name for f in found)
            self._waiting.update((f.name, f) for f in found)
            self._order = sorted(self._order[self._head :] + found)
            self._head = 0

    def _candidates(self, position: _Position) -> Iterator[ListedFile]:
        """Files that wait and that the position has not taken, in order; one that went and came again is there once."""
        while self._head < len(self._order) and self._order[self._head].name not in self._waiting:
            self._head += 1
        taken = set(position.tail)
        for index in range(self._head, len(self._order)):
            file = self._waiting.get(self._order[index].name)
            if file is not None and file.changed_ns == self._order[index].changed_ns and file.name not in taken:
                taken.add(file.name)
                yield file

    def _take(self, position: _Position) -> Available | None:
        shares: list[Share] = []
        part, left = position.part, self._max_bytes
        taken: list[str] = []
        self._cut_ahead(position)
        if part is not None:
            more, part = self._within(self._file(part["name"], part["size"]), part["at"], left)
            shares += more
            left -= sum(s.piece.weight for s in more)
        for found in self._candidates(position):
            if part is not None or len(taken) >= self._max_files or (shares and left <= 0):
                break
            current = self._current(found)
            if current is None:
                continue
            more, part = self._within(current, 0, left)
            taken.append(found.name)
            shares += more
            left -= sum(s.piece.weight for s in more)
        if part == position.part and not taken:
            return None
        after = _Position(position.files + len(taken), position.log, [*position.tail, *taken], part)
        return available(after.plain(), shares)

    def _within(self, file: DataFile, start: int, budget: int) -> tuple[list[Share], dict[str, Any] | None]:
        """Pieces of a file up to a number of bytes, at least one, and what is left of the file."""
        key = (file.name, file.size, start)
        if key not in self._cuts:
            self._cuts[key] = self._cut(file, start)
        every = self._cuts[key]
        if not every and start == 0:
            every = self._cuts[key] = [Share(FileWithoutRows(file), 0, 0)]
        count = 0
        while count < len(every) and (count == 0 or budget >= every[count].piece.weight):
            budget -= every[count].piece.weight
            count += 1
        rest = {"name": file.name, "size": file.size, "at": every[count - 1].stop} if count < len(every) else None
        return every[:count], rest

    def _cut_ahead(self, position: _Position) -> None:
        """Where a footer is a network's round trip away, ask for those of the next files at once."""
        if not self._listing.place.local:
            files = [self._file(f.name, f.size) for f in itertools.islice(self._candidates(position), self._max_files)]
            files = [f for f in files if (f.name, f.size, 0) not in self._cuts]
            with ThreadPoolExecutor(16) as pool:
                for file, shares in zip(files, pool.map(lambda f: self._cut(f, 0), files), strict=True):
                    self._cuts[file.name, file.size, 0] = shares

    def _current(self, found: ListedFile) -> DataFile | None:
        """The file as it is now; one that is gone or still grows is not taken. Objects of a store do not grow."""
        if not self._listing.place.local:
            return self._file(found.name, found.size)
        info = self._listing.place.filesystem.get_file_info(self._listing.place.path(found.name))
        if info.type != fs.FileType.File:
            LOG.warning('stream "%s": %s went before it was taken', self.stream.name, found.name)
            self._forget(found.name)
            return None
        if info.size != found.size:
            self._waiting[found.name] = ListedFile(found.changed_ns, found.name, info.size)
            return None
        if found.size == 0:
            self._report_empty(found.name)
            return None
        return self._file(found.name, found.size)

    def _forget(self, name: str) -> None:
        """Let a file that went before it was taken be new when it comes again."""
        assert self._known is not None
        self._waiting.pop(name, None)
        self._empty.pop(name, None)
        self._known.discard(name)

    def _has_bytes(self, found: ListedFile) -> bool:
        """Whether there is something to take of a file that waits."""
        place = self._listing.place
        return found.size > 0 or not place.local or bool(place.filesystem.get_file_info(place.path(found.name)).size)

    def _report_empty(self, name: str) -> None:
        """Say once that a file has stayed empty."""
        now = time.monotonic()
        if now >= self._empty.setdefault(name, now + EMPTY_SECONDS):
            self._empty[name] = float("inf")
            LOG.warning('stream "%s": %s is empty; it is read when it has rows', self.stream.name, name)

    def _file(self, name: str, size: int) -> DataFile:
        return DataFile(self._listing.place, name, size, given_by(name))


def offset_of(source: DirectorySource, paths: Sequence[str]) -> Offset:
    """The offset at which files of these paths were taken, for homes that kept their names otherwise."""
    root = source._listing.place.path("") + "/"
    names = []
    for path in paths:
        plain = unquote(path.partition("://")[2] or path) if path.startswith("file:") else path
        plain = plain.removeprefix("file:")
        names.append(plain.removeprefix(root))
    log = source._log.absorb((), names)
    return _Position(len(names), log).plain()
