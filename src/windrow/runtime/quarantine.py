"""Rows that cannot be read as declared: file, position, reason and what is written there, under home or in memory.

    home/quarantine/<stream>/tick-0000000042.parquet

They are named by the manifest of the tick that took the rows around them, so each is here once, whatever crashes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
from pyarrow import parquet

from windrow.errors import SourceError
from windrow.sinks.directory import DirectorySink
from windrow.sources.protocol import MalformedRow
from windrow.store.place import Place
from windrow.store.store import StateStore

SCHEMA = pa.schema([("file", pa.string()), ("position", pa.string()), ("reason", pa.string()), ("text", pa.string())])
SHOWN = pa.schema([("tick", pa.int64()), *SCHEMA])

MOST = 100_000
"""Malformed rows in one task and tick beyond which this is not the declared format, and the stream stops."""

_POSITION = re.compile(r"(?P<file>.*), (?P<position>(?:line|row|offset|byte|message)s? \d.*)", re.S)


class Aside:
    """Collects what a task cannot read."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self.rows: list[MalformedRow] = []

    def __call__(self, row: MalformedRow) -> None:
        if len(self.rows) >= MOST:
            raise SourceError(
                f'stream "{self._stream}": more than {MOST:,} rows of one tick cannot be read',
                detail=f"the last one: {row.where}: {row.why}",
                hint="this does not look like the declared format; declare the stream as it is, or remove the file",
            )
        self.rows.append(row)

    def table(self) -> pa.Table:
        """What was collected."""
        return quarantined(self.rows)


def quarantined(rows: Sequence[MalformedRow]) -> pa.Table:
    """Malformed rows as a table.

    >>> quarantined([MalformedRow("a.csv, line 3", "not a number", "1;x")]).to_pylist()
    [{'file': 'a.csv', 'position': 'line 3', 'reason': 'not a number', 'text': '1;x'}]
    """
    split = [_POSITION.fullmatch(row.where) for row in rows]
    columns = [
        [found["file"] if found else row.where for row, found in zip(rows, split, strict=True)],
        [found["position"] if found else None for found in split],
        [row.why for row in rows],
        [row.text or None for row in rows],
    ]
    return pa.table(columns, schema=SCHEMA)


def output_name(stream: str) -> str:
    """The name under which a manifest keeps them until they are in their place: one no query can have."""
    return f"!{stream.lower()}"


class Quarantine:
    """What was set aside of all streams; writing that of a tick again changes nothing."""

    def __init__(self, store: StateStore) -> None:
        self._place = store.place.below("quarantine") if store.place is not None else None
        self._held: dict[str, dict[int, pa.Table]] = {}

    def write(self, stream: str, tick: int, rows: pa.Table) -> None:
        """Keep what a tick could not read."""
        if self._place is None:
            self._held.setdefault(stream, {})[tick] = rows
        else:
            _sink(self._place).write(stream, tick, rows)

    def read(self, stream: str) -> pa.Table:
        """Everything of a stream: tick, file, position, reason, text."""
        return read_quarantine(self._place, stream) if self._place is not None else _shown(self._held.get(stream, {}))

    def count(self, stream: str) -> int:
        """How many there are."""
        if self._place is None:
            return sum(t.num_rows for t in self._held.get(stream, {}).values())
        place = self._place
        return sum(parquet.read_metadata(pa.BufferReader(place.read(n))).num_rows for n in _files(place, stream))


def read_quarantine(place: Place, stream: str) -> pa.Table:
    """Everything of a stream in the folder `quarantine` of a home."""
    found = {}
    for name in _files(place, stream):
        tick = int(name.rsplit("-", 1)[1].removesuffix(".parquet"))
        found[tick] = parquet.read_table(pa.BufferReader(place.read(name)))
    return _shown(found)


def _shown(ticks: dict[int, pa.Table]) -> pa.Table:
    parts = [
        t.cast(SCHEMA).add_column(0, SHOWN.field("tick"), pa.array([n] * t.num_rows, pa.int64()))
        for n, t in sorted(ticks.items())
    ]
    return pa.concat_tables([SHOWN.empty_table(), *parts])


def _files(place: Place, stream: str) -> list[str]:
    folder = _sink(place).name(stream.lower(), 0).rpartition("/")[0]
    return sorted(n for n in place.names(folder) if n.endswith(".parquet"))


def _sink(place: Place) -> DirectorySink:
    return DirectorySink(place.uri, "parquet")
