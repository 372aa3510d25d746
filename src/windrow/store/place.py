"""A place: a directory on any file system that `pyarrow.fs` reaches, with whole-file atomic writes.

A file either has its final name and all its bytes, or it does not exist under that name: bytes go to a hidden
temporary name first and are renamed. On a local disk the file and its directory are synced before `write` returns, so
what a later file refers to is there after a power failure. Object stores publish a file when its stream closes, which
is the same promise.

Every operating-system error leaves here as a StateError that says which file, what went wrong and what to do.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import hashlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

import pyarrow as pa
from pyarrow import fs

from windrow.errors import StateError
from windrow.store import disk

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}


@dataclass(frozen=True, slots=True)
class Place:
    """A directory named by a local path or a URI; a small value that can be sent to executors."""

    uri: str

    @classmethod
    def of(cls, home: str | os.PathLike[str]) -> Place:
        """The place for what a user wrote; local paths become absolute."""
        text = os.fspath(home)
        if text.startswith("file:"):
            _, text = fs.FileSystem.from_uri(text)
        return cls(text if "://" in text else os.path.abspath(os.path.expanduser(text)))

    @classmethod
    def temporary(cls) -> Place:
        """A new directory of this machine that goes with the process."""
        path = tempfile.mkdtemp(prefix="windrow-")
        atexit.register(shutil.rmtree, path, ignore_errors=True)
        return cls(path)

    def below(self, folder: str) -> Place:
        """A directory within this one."""
        path, mark, options = self.uri.partition("?")
        return Place(f"{path.rstrip('/')}/{folder}{mark}{options}")

    @property
    def local(self) -> bool:
        """Whether files here are ordinary files of this machine (or a shared mount)."""
        return isinstance(_resolve(self.uri)[0], fs.LocalFileSystem)

    @property
    def filesystem(self) -> fs.FileSystem:
        """The file system that `path` is a path of."""
        return _resolve(self.uri)[0]

    def path(self, name: str) -> str:
        """The full path of a file, as its file system spells it; names come from files, too, so none leads outside."""
        if name.startswith("/") or "\0" in name or (".." in name and ".." in name.split("/")):
            raise StateError(
                f"{name!r} does not lie in {self.uri}",
                hint="a file there is not as it was written: restore it from a backup",
            )
        root = _resolve(self.uri)[1]
        return f"{root}/{name}" if name else root

    def read(self, name: str) -> pa.Buffer:
        """All bytes of a file; memory-mapped when local."""
        filesystem, _ = _resolve(self.uri)
        path = self.path(name)
        with explained("read", path):
            if not self.local:
                with filesystem.open_input_file(path) as file:
                    return file.read_buffer()
            return disk.current.read(path)

    def read_ranges(self, name: str, spans: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        """The bytes of a file at each (offset, size), and no others; shorter where the file ends before."""
        filesystem, _ = _resolve(self.uri)
        path = self.path(name)
        with explained("read", path):
            if self.local:
                return disk.current.read_ranges(path, spans)
            return disk.ranges_of(filesystem, path, spans)

    def write(self, name: str, data: bytes | pa.Buffer, *, sync: bool = True) -> None:
        """Put a whole file in place, replacing one of that name."""
        folder, _, base = name.rpartition("/")
        temporary = f"{folder}/.{base}.{uuid.uuid4().hex[:8]}.tmp" if folder else f".{base}.{uuid.uuid4().hex[:8]}.tmp"
        path = self.path(name)
        with explained("write", path):
            if self.local:
                self._write_local(path, self.path(temporary), data, sync)
            else:
                self._write_remote(path, data)

    def _write_local(self, path: str, temporary: str, data: bytes | pa.Buffer, sync: bool) -> None:
        system, folder = disk.current, os.path.dirname(path)
        system.make(folder, sync)
        try:
            system.create(temporary, data, sync)
            system.rename(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                system.remove(temporary)
            raise
        if sync:
            system.sync(folder)

    def move(self, name: str, to: str) -> None:
        """Give a file another name, in the same folder, replacing one that has it."""
        filesystem, _ = _resolve(self.uri)
        old, new = self.path(name), self.path(to)
        with explained("write", new):
            if self.local:
                disk.current.rename(old, new)
                disk.current.sync(os.path.dirname(new))
            else:
                filesystem.move(old, new)

    def sync(self, folder: str) -> None:
        """Let the names in a folder be on the disk: who gave them may have ended before it could see to that."""
        if self.local and self.exists(folder):
            disk.current.sync(self.path(folder))

    def _write_remote(self, path: str, data: bytes | pa.Buffer) -> None:
        filesystem, _ = _resolve(self.uri)
        filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        if filesystem.type_name in {"s3", "gcs", "abfs"}:  # published when closed; a rename there is a copy
            with filesystem.open_output_stream(path) as stream:
                stream.write(data)
            return
        folder, _, base = path.rpartition("/")
        temporary = f"{folder}/.{base}.{uuid.uuid4().hex[:8]}.tmp"
        with filesystem.open_output_stream(temporary) as stream:
            stream.write(data)
        filesystem.move(temporary, path)

    def names(self, folder: str = "", *, recursive: bool = False) -> dict[str, int]:
        """Files under a folder (temporary ones too), relative to this place, with their sizes."""
        filesystem, root = _resolve(self.uri)
        path = self.path(folder)
        with explained("list", path):
            if self.local:
                found = disk.current.names(path, recursive)
            else:
                found = disk.files_under(filesystem, path, recursive)
        return {path[len(root) + 1 :]: size for path, size in found.items()}

    def exists(self, name: str) -> bool:
        """Whether a file or a directory of that name is there."""
        filesystem, _ = _resolve(self.uri)
        with explained("look for", self.path(name)):
            if self.local:
                return disk.current.exists(self.path(name))
            return bool(filesystem.get_file_info(self.path(name)).type != fs.FileType.NotFound)

    def delete(self, name: str) -> None:
        """Remove a file; one that is not there is no error."""
        filesystem, _ = _resolve(self.uri)
        with explained("delete", self.path(name)), contextlib.suppress(FileNotFoundError):
            if self.local:
                disk.current.remove(self.path(name))
            else:
                filesystem.delete_file(self.path(name))

    def make(self, folder: str = "") -> None:
        """Create a directory and its parents."""
        filesystem, _ = _resolve(self.uri)
        with explained("create", self.path(folder)):
            if self.local:
                disk.current.make(self.path(folder), True)
            else:
                filesystem.create_dir(self.path(folder), recursive=True)


def is_temporary(name: str) -> bool:
    """Whether a name is one that was never renamed: hidden, and ends in .tmp."""
    base = name.rpartition("/")[2]
    return base.startswith(".") and base.endswith(".tmp")


LONGEST_SEGMENT = 220
"""File systems take 255 bytes, of which this leaves some for what is put behind a segment."""


def segment(name: str) -> str:
    """A path segment that is safe on every file system, different for different names.

    >>> segment("top/10 bids"), segment("..")
    ('top%2F10%20bids', '%2E%2E')
    """
    safe = quote(name, safe="")
    if len(safe) > LONGEST_SEGMENT:  # %~ is what no name becomes
        return (
            f"{safe[:60].replace('.', '%2E')}%~{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:40]}"
        )
    return safe.replace(".", "%2E") if safe.startswith(".") else safe


@contextlib.contextmanager
def explained(action: str, path: str) -> Iterator[None]:
    """Turn an operating-system error about `path` into a StateError."""
    try:
        yield
    except OSError as error:
        raise _explain(action, path, error) from error


def _explain(action: str, path: str, error: OSError) -> StateError:
    if error.errno in _FULL or "No space left" in str(error):
        return StateError(
            f"cannot {action} {path}: the disk is full",
            detail=str(error),
            hint="free some space and start again with the same home; it goes on from the last complete tick",
        )
    if error.errno in _REFUSED:
        return StateError(
            f"cannot {action} {path}: permission denied",
            detail=str(error),
            hint="choose a home that this user may write, or change its permissions",
        )
    if isinstance(error, FileNotFoundError):
        return StateError(
            f"cannot {action} {path}: it does not exist",
            detail="a file that the state refers to is gone",
            hint="restore home from a backup, or start with a new home",
        )
    return StateError(
        f"cannot {action} {path}", detail=str(error), hint="check that the file system of home is reachable"
    )


@functools.lru_cache(maxsize=4096)
def _resolve(uri: str) -> tuple[fs.FileSystem, str]:
    if "://" not in uri:
        return fs.LocalFileSystem(), uri.rstrip("/") or "/"
    try:
        filesystem, root = fs.FileSystem.from_uri(uri)
    except (OSError, pa.ArrowInvalid) as error:
        raise StateError(
            f"cannot open {uri}",
            detail=str(error).splitlines()[0],
            hint="use a local path, or a file://, hdfs://, s3://, gs:// or abfs:// address that pyarrow.fs can reach",
        ) from error
    return filesystem, root.rstrip("/")
