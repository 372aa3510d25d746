"""What a declared source holds now, as one table: a live declaration as bounded input.

Files of a directory and lake tables end; a topic and a rate do not. Invariant: the rows are those that a live engine
would take, in the same order of arrival. Cost: one pass over the files, through this process.
"""

from __future__ import annotations

import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.sources.protocol import KINDS, MalformedRow, Offset, open_source
from windrow.store.place import Place

ENDING = frozenset(kind for kind, module in KINDS.items() if module in ("directory", "delta", "iceberg"))
"""The kinds of sources of which one can say: this is all that is there."""


def rows_now(stream: StreamDef) -> tuple[pa.Table, list[MalformedRow]]:
    """All rows of a stream's source, and those that cannot be read where the stream sets them aside."""
    source = open_source(stream, Place.temporary())
    batches: list[pa.RecordBatch] = []
    aside: list[MalformedRow] = []
    offset: Offset | None = None
    try:
        while not source.drained(offset):
            found = source.poll(offset)
            if found is None:
                continue  # a long directory is still being listed
            for piece in found.pieces:
                batches += piece.read(stream, None, aside.append if stream.quarantine else None)
            offset = found.offset
            source.committed(offset)
    finally:
        source.close()
    return pa.Table.from_batches(batches, pa.schema(list(stream.columns.items()))), aside
