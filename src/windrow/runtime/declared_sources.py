"""Where the rows of declared streams and tables come from: opened, opened again, taken over from older homes."""

from __future__ import annotations

import threading
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pyarrow as pa

from windrow.catalog import StreamDef, TableDef
from windrow.errors import SourceError, WindrowError
from windrow.runtime.change import Change, Frames
from windrow.runtime.streams import PushSource, Stream, folder_of
from windrow.runtime.tables import LiveTable, fixed, open_table, told
from windrow.runtime.tick import Ticker
from windrow.runtime.undo_log import LoggedDict
from windrow.sources.bounded import rows_given
from windrow.sources.checkpoint import upgraded
from windrow.sources.protocol import Source, open_source
from windrow.sources.tabular import to_table
from windrow.store.place import Place

CLEANING = "cleanSource"
"""What an engine's owner may allow: sources that delete or move files they have taken."""


class DeclaredSources:
    """Streams with their sources, and tables with what they hold.

    `busy` is held by whoever changes them or runs a tick, but for its job.
    """

    def __init__(self, ticker: Ticker, frames: Frames | None, allow: Collection[str]) -> None:
        self.ticker, self.frames, self.undo = ticker, frames, ticker.undo
        unknown = set(allow) - {CLEANING}
        if unknown:
            raise WindrowError(f'allow has "{min(unknown)}"', hint=f'what can be allowed is "{CLEANING}"')
        self._may_write = CLEANING in allow
        self.streams: LoggedDict[str, Stream] = LoggedDict(self.undo)
        self.tables: LoggedDict[str, LiveTable] = LoggedDict(self.undo)
        self.place = ticker.store.place
        self.busy = threading.RLock()

    def _opened(self, stream: StreamDef, data: Any, opened: ExitStack, uid: str | None = None) -> Stream:
        """A stream with its source."""
        made = Stream(stream, PushSource())
        if uid is not None:
            made.uid = uid
        made.source = self._source(made, data)
        opened.callback(made.source.close)
        return made

    def _source(self, stream: Stream, data: Any) -> Source:
        definition = stream.definition
        if data is not None and self.frames is not None and self.frames.knows(data):
            assert self.place is not None
            stream.data = data
            folder = folder_of(definition, stream.uid, "checkpoints")
            return self.frames.source(data, definition, self.place.below(folder).uri)
        spool = self.place.below(folder_of(definition, stream.uid)) if self.place is not None else None
        if definition.options.get("source"):
            place = spool if spool is not None else Place.temporary()
            return open_source(definition, place, may_write=self._may_write)
        offset = self.ticker.manifest.offsets.get(stream.key) or {}
        return PushSource(spool, int(offset.get("pushed", 0)))

    def reopen(self, stream: Stream) -> None:
        """Open the source of a stream anew, so that it is tried from the place where it was left."""
        if not isinstance(stream.source, PushSource):
            made = self._source(stream, stream.data)
            stream.source.close()
            stream.source = made

    def _upgrade_offset(self, stream: Stream) -> None:
        """Go on where a home of an older format has read a source to, in batches of Spark's."""
        offset = self.ticker.manifest.offsets.get(stream.key) or {}
        if "batch" in offset and not isinstance(stream.source, PushSource) and self.place is not None:
            checkpoint = self.place.below(folder_of(stream.definition, stream.uid, "checkpoints"))
            found = upgraded(stream.source, checkpoint, int(offset["batch"]), stream.definition.name)
            manifest = self.ticker.manifest
            self.ticker.manifest = replace(manifest, offsets={**manifest.offsets, stream.key: found})

    def check_sources(self) -> None:
        """Refuse to start while a stream that was read from a DataFrame has none."""
        for stream in self.streams.values():
            offset = self.ticker.manifest.offsets.get(stream.key) or {}
            if isinstance(stream.source, PushSource) and "batch" in offset:
                name = stream.definition.name
                raise SourceError(f'stream "{name}" has no source', hint=f"attach one: engine.stream('{name}', df)")

    def attach(self, name: str, data: Any) -> bool:
        """Give a declared stream whose rows come from the program a DataFrame; False when it has another source."""
        with self.busy:
            stream = self.streams[name.lower()]
            if not isinstance(stream.source, PushSource) or self.frames is None or not self.frames.knows(data):
                return False
            stream.source = self._source(stream, data)
            return True

    def _table(self, table: TableDef, change: Change, opened: ExitStack) -> LiveTable:
        """A table that is declared, with what it holds; one that is altered, and is not read from elsewhere, what it
        held."""
        key = table.name.lower()
        known = self.tables.get(key) if key not in change.dropped["table"] and key not in change.data else None
        if known is not None and table.changes is not None:
            return told(table, self.ticker.table_runs(self.ticker.tables[key][-1]))
        if known is not None and not table.options:
            return fixed(table, known.reading.table)
        return self._read(table, change.data.get(table.name.lower()), opened)

    def _changes(self, table: TableDef, change: Change, opened: ExitStack) -> Stream:
        """The changes of a table that is declared; of one that is altered they go on where they were."""
        known = self.streams.get(table.name.lower()) if self._goes_on(table, change) else None
        return self._opened(table.change_stream, None, opened, None if known is None else known.uid)

    def _goes_on(self, table: TableDef, change: Change) -> bool:
        key = table.name.lower()
        return table.changes is not None and key in self.streams and key not in change.dropped["table"]

    def _read(self, table: TableDef, data: Any, opened: ExitStack) -> LiveTable:
        """A table with what it holds."""
        read = self._first_reading(table, data)
        opened.callback(read.close)
        return read

    def _first_reading(self, table: TableDef, data: Any) -> LiveTable:
        if data is None and (table.changes is not None or not table.options):
            # empty until the program, or a change, says what it holds
            return fixed(table, pa.schema(list(table.columns.items())).empty_table())
        if data is None:
            return open_table(table)
        if self.frames is not None and self.frames.knows(data):
            return open_table(table, self.frames.table(data))
        return fixed(table, rows_given(table.rows, data)[0])

    def columns(self, data: Any) -> dict[str, pa.DataType]:
        """The columns of a DataFrame or of rows as Arrow types."""
        if self.frames is not None and self.frames.knows(data):
            return self.frames.columns(data)
        rows = to_table(data, "the table")
        return dict(zip(rows.column_names, rows.schema.types, strict=True))
