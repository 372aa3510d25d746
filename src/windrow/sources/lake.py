"""Rows of a lake's table, as they are added: first what the table holds, then what each version adds.

    offset  {"version": the version to take next, "files": how many of its files were taken, "first": whether it stands
             for all that the table held then, not for one commit}

A format (Delta, Iceberg) says which versions there are and which files each adds. Files that only arrange rows anew
bring nothing. A stream never takes a row back: a version that removes rows is an error, unless `ignoreDeletes` says to
go on without them, or `ignoreChanges` to take files that were rewritten as new ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.sources.cuts import Share, available
from windrow.sources.data_file import DataFile, reading
from windrow.sources.options import SourceOptions
from windrow.sources.protocol import Available, Offset
from windrow.sources.read_parquet import cut_parquet
from windrow.store.place import Place

MAX_FILES = 32


@dataclass(frozen=True)
class LakeOptions:
    """What can be said of a stream from any table of a lake."""

    max_files: int = MAX_FILES
    start: str | None = None
    ignore_deletes: bool = False
    ignore_changes: bool = False

    @classmethod
    def of(cls, options: SourceOptions) -> LakeOptions:
        """The options of a declaration, when those of the format were read; anything else is refused."""
        max_files = options.number("max_files", MAX_FILES, "maxFilesPerTrigger")
        start = options.text("startingVersion")
        changes = options.flag("ignoreChanges", False)
        deletes = options.flag("ignoreDeletes", False) or changes
        options.finish()
        if start is not None and start != "latest" and not start.isdecimal():
            raise options.refusal(f'startingVersion is "{start}"', "it is a whole number, or latest")
        return cls(max_files, start, deletes, changes)


@dataclass(frozen=True)
class VersionPlace:
    """The version to take next, how many of its files were taken, and whether it stands for the whole table."""

    version: int
    files: int = 0
    first: bool = False

    def plain(self) -> Offset:
        """The place as an offset."""
        return {"version": self.version, "files": self.files, "first": self.first}


class LakeSource(ABC):
    """The files that versions behind an offset have added; `named` is the table for people."""

    def __init__(self, stream: StreamDef, named: str, options: LakeOptions) -> None:
        self.stream, self._named, self._options = stream, named, options
        self._lists: dict[tuple[int, bool], list[DataFile]] = {}
        self._cuts: dict[str, list[Share]] = {}

    @abstractmethod
    def _newest(self) -> int:
        """The newest version."""

    @abstractmethod
    def _has(self, version: int) -> bool:
        """Whether a version exists; one that was cleaned up is noticed when it is read."""

    @abstractmethod
    def _whole(self, version: int) -> list[DataFile]:
        """The files of the table as of a version, in the order in which they came."""

    @abstractmethod
    def _added(self, version: int) -> list[DataFile]:
        """The files that a version adds."""

    def poll(self, offset: Offset | None) -> Available | None:
        """Files of the next versions. The first poll may have none, but says where the stream begins."""
        at = self._position(offset)
        taken: list[DataFile] = []
        most = self._options.max_files
        with self._reading():
            while len(taken) < most and self._is_there(at):
                files = self._files(at)
                more = files[at.files : at.files + most - len(taken)]
                taken += more
                whole = at.files + len(more) == len(files)
                at = VersionPlace(at.version + 1) if whole else replace(at, files=at.files + len(more))
            if offset is not None and at == VersionPlace(**offset):
                return None
            return available(at.plain(), [s for f in taken for s in self._cut(f)])

    def drained(self, offset: Offset | None) -> bool:
        """Whether every file of every version that is there now was taken."""
        with self._reading():
            return offset is not None and not self._is_there(VersionPlace(**offset))

    def committed(self, offset: Offset) -> None:
        """Forget what earlier versions listed."""
        self._lists = {k: v for k, v in self._lists.items() if k[0] >= int(offset["version"])}
        self._cuts = {}

    def close(self) -> None:
        """Nothing is open."""
        return None

    def _position(self, offset: Offset | None) -> VersionPlace:
        if offset is not None:
            return VersionPlace(**offset)
        start = self._options.start
        with self._reading():
            if start is None:
                return VersionPlace(self._newest(), 0, True)
            return VersionPlace(self._newest() + 1 if start == "latest" else int(start))

    def _is_there(self, at: VersionPlace) -> bool:
        return at.first or self._has(at.version)

    def _files(self, at: VersionPlace) -> list[DataFile]:
        key = (at.version, at.first)
        if key not in self._lists:
            self._lists[key] = self._whole(at.version) if at.first else self._added(at.version)
        return self._lists[key]

    def _cut(self, file: DataFile) -> Sequence[Share]:
        if file.path not in self._cuts:
            self._cuts[file.path] = cut_parquet(file, self.stream, 0)
        return self._cuts[file.path]

    def _check_removed(self, version: int, gone: bool, added: bool) -> None:
        allowed = self._options.ignore_changes if added else self._options.ignore_deletes
        if gone and not allowed:
            what = "changes rows" if added else "deletes rows"
            way = "ignoreChanges => 'true' takes rewritten files as new ones" if added else "ignoreDeletes => 'true'"
            raise self._refusal(version, what, f"a stream only grows; {way}, or read it as a table")

    def _refusal(self, version: int, what: str, hint: str) -> SourceError:
        return SourceError(f"{self.stream.what}: version {version} of {self._named} {what}", hint=hint)

    def _reading(self) -> AbstractContextManager[None]:
        return reading(self.stream, self._named)


def lake_file(
    place: Place, name: str, size: int, columns: Iterable[str], partition: Mapping[str, str | None]
) -> DataFile:
    """A file of a table; columns that it may lack, because they are younger than it, are null there."""
    young = {n: None for n in columns if n not in partition}
    return DataFile(place, name, size, tuple({**young, **partition}.items()))
