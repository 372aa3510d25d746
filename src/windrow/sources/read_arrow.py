"""Arrow IPC files in pieces of record batches; an IPC stream is one piece, for it has no index.

Cost on the driver: one read of the file's footer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import ipc

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.sources.cuts import PIECE_BYTES, Share
from windrow.sources.data_file import (
    DataFile,
    Given,
    check_types,
    declared,
    find_columns,
    no_rows,
    reading,
    shaped,
    with_times,
)
from windrow.sources.protocol import Report

MAGIC = b"ARROW1"


@dataclass(frozen=True)
class ArrowPiece:
    """Record batches `[first, stop)` of a file; `stop` None: all of a stream."""

    file: DataFile
    first: int
    stop: int | None
    weight: int

    def given(self, stream: StreamDef) -> Given:
        """The columns that the path says, and the file does not have."""
        if not self.file.given:
            return ()
        try:
            with self.file.open() as handle:
                reader = ipc.open_stream(handle) if self.stop is None else ipc.open_file(handle)
                return self.file.less_given(reader.schema.names).given
        except (SourceError, pa.ArrowException, OSError):  # whoever reads it says why
            return ()

    def read(
        self, stream: StreamDef, columns: Sequence[str] | None, report: Report | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of those batches."""
        wanted = declared(stream, columns)
        with reading(stream, self.file.path, f"record batches from {self.first}", report), self.file.open() as handle:
            reader = ipc.open_stream(handle) if self.stop is None else ipc.open_file(handle)
            types = dict(zip(reader.schema.names, reader.schema.types, strict=True))
            names = find_columns(stream, self.file.path, self.file.given, reader.schema.names, stream.columns)
            check_types(stream, self.file, {n: types[have] for n, have in names.items()})
            if self.stop is not None:  # the bytes of other columns are not read
                places = [reader.schema.names.index(names[n]) for n in wanted if n in names]
                reader = ipc.open_file(handle, options=ipc.IpcReadOptions(included_fields=places))
            stop = None if self.stop is None else min(self.stop, reader.num_record_batches)
            found = reader if stop is None else map(reader.get_batch, range(self.first, stop))
            whole = stop is None or (self.first == 0 and stop == reader.num_record_batches)
            for number, batch in enumerate(found, self.first):
                if batch.num_rows:
                    whole = False
                    rows = shaped(stream, self.file, batch, names, wanted)
                    yield with_times(stream, self.file.path, 1, rows, report, f" of record batch {number + 1}")
            if whole:
                no_rows(stream, self.file, report)


def cut_arrow(file: DataFile, start: int) -> list[Share]:
    """The record batches from `start` on, in pieces."""
    with file.open() as handle:
        if handle.read_at(len(MAGIC), 0) != MAGIC:
            return [Share(ArrowPiece(file, 0, None, file.size), 1)] if start == 0 else []
        count = ipc.open_file(handle).num_record_batches
    if not count:
        return []
    each = max(1, PIECE_BYTES * count // max(1, file.size))
    ends = [*range(start, count, each), count]
    size = file.size // count
    return [Share(ArrowPiece(file, a, b, size * (b - a)), b) for a, b in itertools.pairwise(ends)]
