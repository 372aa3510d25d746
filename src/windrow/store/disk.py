"""The calls by which homes and answers use a disk of this machine, one by one, in one place.

A file is put in place by four of them: its bytes, their sync, the rename, and the sync of its directory. What has not
been synced may be there after a power failure, or not, or in part. `Place` calls the disk in force (`current`), so that
a simulation can stand in for it (`windrow_bench.simulated_disk`). Cost: an attribute look-up per call.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyarrow import fs

try:
    import fcntl
except ImportError:  # no kernel locks on this system
    fcntl = None  # type: ignore[assignment]

_LOCKS = fcntl is not None
_LOCAL = fs.LocalFileSystem()


class HeldFile:
    """A file that this process has locked."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: bytes) -> None:
        """Put these bytes at the beginning of the file."""
        os.pwrite(self._descriptor, data, 0)

    def close(self) -> None:
        """Let go of the lock."""
        os.close(self._descriptor)


class Disk:
    """A disk as the system has it."""

    def __init__(self) -> None:
        self._known: set[str] = set()  # folders whose names this process has seen synced

    def read(self, path: str) -> pa.Buffer:
        """All bytes of a file, memory-mapped."""
        if os.path.getsize(path) == 0:  # an empty file cannot be mapped
            return pa.py_buffer(b"")
        # The buffer keeps the mapping alive after the descriptor is closed, so descriptors do not pile up.
        with pa.memory_map(path) as mapped:
            return mapped.read_buffer()

    def read_ranges(self, path: str, spans: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        """The bytes of a file at each (offset, size), and no others; shorter where the file ends before."""
        return ranges_of(_LOCAL, path, spans)

    def names(self, folder: str, recursive: bool) -> dict[str, int]:
        """The paths of the files under a folder, with their sizes; none if there is no such folder."""
        return files_under(_LOCAL, folder, recursive)

    def exists(self, path: str) -> bool:
        """Whether a file or a directory of that name is there."""
        return os.path.exists(path)

    def make(self, folder: str, sync: bool) -> None:
        """Create a directory and its parents; with `sync` each is known on the disk to the one above it.

        One that is there may have been made by a process that ended before it could sync it, so each is synced once.
        """
        there, above = self._is_folder(folder), os.path.dirname(folder)
        if above == folder or (there and (not sync or folder in self._known)):
            return
        self.make(above, sync)
        if not there:
            self._make_folder(folder)
        if sync:
            with contextlib.suppress(*([PermissionError] if there else [])):  # somebody else's: not ours to sync
                self.sync(above)
            self._known.add(folder)

    def _is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def _make_folder(self, path: str) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)

    def create(self, path: str, data: bytes | pa.Buffer, sync: bool) -> None:
        """A file with these bytes, on the disk if `sync`."""
        with open(path, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, replacing what has it."""
        os.replace(old, new)

    def sync(self, folder: str) -> None:
        """Let the names in a directory be on the disk."""
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, path: str) -> None:
        """Remove a file; one that is not there is no error."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def lock(self, path: str) -> HeldFile | None:
        """Create a file if need be and lock it until this process ends; None where there are no such locks.

        Another holder is a BlockingIOError.
        """
        if not _LOCKS:
            return None
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                raise
            except OSError:  # a mount without locks
                os.close(descriptor)
                return None
            if os.path.exists(path) and os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                return HeldFile(descriptor)
            os.close(descriptor)  # its holder released and removed it meanwhile


current = Disk()
"""The disk in force."""


@contextlib.contextmanager
def using(disk: Disk) -> Iterator[None]:
    """Let another disk be in force."""
    global current
    before, current = current, disk
    try:
        yield
    finally:
        current = before


def ranges_of(filesystem: fs.FileSystem, path: str, spans: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
    """The bytes of a file at each (offset, size)."""
    with filesystem.open_input_file(path) as file:
        found = []
        for offset, size in spans:
            file.seek(offset)
            found.append(file.read_buffer(size))
        return found


def files_under(filesystem: fs.FileSystem, folder: str, recursive: bool) -> dict[str, int]:
    """The paths of the files under a folder, with their sizes."""
    selector = fs.FileSelector(folder, allow_not_found=True, recursive=recursive)
    return {i.path: i.size for i in filesystem.get_file_info(selector) if i.type == fs.FileType.File}
