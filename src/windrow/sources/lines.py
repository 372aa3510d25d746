"""Files of lines in pieces of bytes.

    file   ......\\n...........\\n....|.....\\n......\\n    a piece has the lines that begin in its range of bytes,
    piece  [        first          )[  second         )    wherever they end, so that neighbours agree

A piece is read in blocks of whole lines; a compressed file is one piece, because there is no beginning in its middle.
Cost: two short reads to find where the lines of a piece begin and end.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.sources.cuts import PIECE_BYTES, Share
from windrow.sources.data_file import DataFile, Given, declared, no_rows, reading
from windrow.sources.protocol import MalformedRow, Report
from windrow.sources.row_text import RowParser

HEADER = re.compile(rb"(?>(?:\xef\xbb\xbf)?(?:[ \t]*[\r\n])*)([^\r\n]+)(?:\r?\n|\r(?=[^\n]))")
"""The first line that holds something, with the end that it has: \\n, \\r\\n or, where more follows, \\r."""

SEEK_BYTES = 1 << 16
INFLATE_BYTES = 1 << 20


class LineFormat(Protocol):
    """How lines are written: small and picklable."""

    @property
    def whole(self) -> bool:
        """Whether a row may span lines, so that a file cannot be cut."""

    @property
    def drop(self) -> bool:
        """Whether malformed rows are left out."""

    def given(self, stream: StreamDef, file: DataFile) -> Given:
        """The columns that the path of a file says, and its rows do not have."""

    def open(
        self, stream: StreamDef, file: DataFile, wanted: Mapping[str, pa.DataType], report: Report | None
    ) -> tuple[RowParser, int]:
        """A parser for the wanted columns of a file, and the byte where its rows begin."""


@dataclass(frozen=True)
class LinePiece:
    """The lines of a file that begin in bytes `[start, stop)`."""

    file: DataFile
    format: LineFormat
    start: int
    stop: int

    @property
    def weight(self) -> int:
        """Bytes as they lie in the file."""
        return self.stop - self.start

    def given(self, stream: StreamDef) -> Given:
        """The columns that the path says, and the file does not have."""
        try:
            return self.format.given(stream, self.file) if self.file.given else ()
        except (SourceError, pa.ArrowException, OSError):  # whoever reads it says why
            return ()

    def read(
        self, stream: StreamDef, columns: Sequence[str] | None, report: Report | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows, a batch for each block that has some.

        All declared columns are parsed: whether a row is malformed must not depend on who reads it.
        """
        wanted, some = list(declared(stream, columns)), False
        rows = _leave_out if report is None and self.format.drop else report
        with reading(stream, self.file.path, f"bytes from {self.start}", report):
            parse, first = self.format.open(stream, self.file, stream.columns, rows)
            for lines in blocks(self.file, self.start, self.stop, first, whole=self.format.whole):
                batch = parse(lines.block, lines)
                some |= bool(lines.block.strip())
                if batch.num_rows:
                    yield batch.select(wanted)
            if not some and self.weight == self.file.size:
                no_rows(stream, self.file, report)


def cut_lines(file: DataFile, form: LineFormat, start: int) -> list[Share]:
    """The rest of a file from byte `start` on, in pieces of about equal size."""
    left = file.size - start
    if left <= 0:
        return []
    if compression(file) is not None or form.whole:
        return [Share(LinePiece(file, form, 0, file.size), file.size)]
    count = -(-left // PIECE_BYTES)
    ends = [start + left * i // count for i in range(count + 1)]
    return [Share(LinePiece(file, form, a, b), b) for a, b in itertools.pairwise(ends)]


def compression(file: DataFile) -> str | None:
    """The compression that a file's name says, if any."""
    suffixes = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4", ".br": "brotli"}
    return suffixes.get(os.path.splitext(file.name)[1].lower())


@contextlib.contextmanager
def inflated(file: DataFile) -> Iterator[pa.NativeFile]:
    """The content of a file from its beginning on."""
    with file.open() as handle:
        packed = compression(file)
        yield handle if packed is None else pa.CompressedInputStream(handle, packed)


def blocks(file: DataFile, start: int, stop: int, first: int, *, whole: bool = False) -> Iterator[FileLines]:
    """The lines that begin in `[start, stop)`, in blocks of whole lines; the first of the file does at `first`."""
    if whole or compression(file) is not None:
        with inflated(file) as content:
            for at, block, last in _sequence(content, max(start, first), whole):
                yield FileLines(file, at, block, last)
    elif stop > first:
        with file.open() as handle:
            begin = first if start <= first else line_start(handle, start)
            for at, block in _ranges(handle, begin, line_start(handle, stop)):
                yield FileLines(file, at, block, at + len(block) >= file.size)


def _ranges(handle: pa.NativeFile, at: int, end: int) -> Iterator[tuple[int, bytes]]:
    while at < end:
        want = PIECE_BYTES
        block = handle.read_at(min(want, end - at), at)
        while at + len(block) < end and b"\n" not in block:  # a line longer than a block
            want *= 2
            block = handle.read_at(min(want, end - at), at)
        if at + len(block) < end:
            block = block[: block.rfind(b"\n") + 1]
        yield at, block
        at += len(block)


def _sequence(content: pa.NativeFile, start: int, whole: bool) -> Iterator[tuple[int, bytes, bool]]:
    kept, at = bytearray(), start
    _skip(content, start)
    while chunk := content.read(INFLATE_BYTES):
        kept += chunk
        cut = 0 if whole or len(kept) < PIECE_BYTES else kept.rfind(b"\n", 0, -1) + 1  # some is left to be the last
        if cut:
            yield at, bytes(kept[:cut]), False
            at += cut
            del kept[:cut]
    if kept:
        yield at, bytes(kept), True


def _skip(content: pa.NativeFile, count: int) -> int:
    """Read over so many bytes and count the newlines among them."""
    lines = 0
    while count > 0 and (chunk := content.read(min(INFLATE_BYTES, count))):
        lines += chunk.count(b"\n")
        count -= len(chunk)
    return lines


def line_start(handle: pa.NativeFile, position: int) -> int:
    """The first place at or behind `position` where a line begins, or the end of the file."""
    size = handle.size()
    if position == 0 or position >= size:
        return min(position, size)
    at = position - 1
    while at < size:
        found = handle.read_at(SEEK_BYTES, at)
        if (newline := found.find(b"\n")) >= 0:
            return at + newline + 1
        at += len(found)
    return size


def header(file: DataFile) -> tuple[bytes, int]:
    """The first line of a file that holds something, without its end, and the byte behind that."""
    text = b""
    with inflated(file) as content:
        while not (found := HEADER.match(text)) and (more := content.read(SEEK_BYTES)):
            text += more
    found = found or HEADER.match(text + b"\n")  # the end of the file ends a line
    return (found[1], min(found.end(), len(text))) if found else (b"", len(text))


@dataclass(frozen=True)
class FileLines:
    """The rows of a block of a file, which begins at byte `at`; looked at only when one is malformed.

    `last`: nothing follows in the file.
    """

    file: DataFile
    at: int
    block: bytes
    last: bool = True

    def malformed(self, row: int, why: str) -> MalformedRow:
        """The row of that index; blank lines are no rows."""
        lines, filled = self._lines
        number = self._before + 1 + filled[min(row, len(filled) - 1)]  # about: rows that span lines are not told apart
        text = lines[filled[min(row, len(filled) - 1)]].decode("utf-8", "replace").rstrip("\r")
        return MalformedRow(f"{self.file.path}, line {number}", why, text)

    @cached_property
    def _lines(self) -> tuple[list[bytes], list[int]]:
        """The lines of the block, and which of them hold something."""
        lines = _split(self.block)
        return lines, [i for i, line in enumerate(lines) if line.strip()]

    @cached_property
    def _before(self) -> int:
        """How many lines of the file are before the block."""
        with inflated(self.file) as content:
            return _skip(content, self.at)

    def texts(self) -> list[bytes]:
        """The lines that hold something."""
        return [line for line in _split(self.block) if line.strip()]


def _split(block: bytes) -> list[bytes]:
    """Lines that end in \\n or, where none of them does, in \\r."""
    return block.split(b"\r" if b"\n" not in block and b"\r" in block else b"\n")


def _leave_out(row: MalformedRow) -> None:
    """Leave a malformed row out, as the declaration asks."""
