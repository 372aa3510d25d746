"""The streams of a run as files: one directory per stream, `NAME/part-00000.parquet`, ..., names in order of time.

Every engine reads the same rows from them. The clock of the run is theirs too: a query's first instant is the earliest
row of the streams it reads, the last instant of all queries is the latest row of all streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from windrow.errors import SourceError
from windrow_bench.peers.queries import PeerQuery

TICK_US = 1000
"""A tick is a millisecond of event time for peers, the finest that all of them have."""

Tables = Mapping[str, pa.Table]


def write_streams(directory: str | Path, streams: Tables, *, files: int = 1, form: str = "parquet") -> Path:
    """Write each stream, in the order of its rows, to `files` files of equal length (`form`: parquet or csv)."""
    root = Path(directory)
    for name, table in streams.items():
        place = root / name.lower()
        place.mkdir(parents=True, exist_ok=True)
        step = -(-max(1, len(table)) // files)
        for number in range(files):
            write_file(table.slice(number * step, step), place / f"part-{number:05}.{form}")
    return root


def write_file(table: pa.Table, path: Path) -> None:
    """One file, by its suffix."""
    if path.suffix == ".csv":
        pacsv.write_csv(table, path)
    else:
        pq.write_table(table, path)


@dataclass(frozen=True)
class Stream:
    """The files of one stream."""

    name: str
    paths: tuple[Path, ...]
    time: str

    @cached_property
    def form(self) -> str:
        return self.paths[0].suffix[1:]

    @cached_property
    def data(self) -> ds.Dataset:
        return ds.dataset(list(self.paths), format=self.form)

    @property
    def schema(self) -> pa.Schema:
        return self.data.schema

    @cached_property
    def clock(self) -> tuple[int, int] | None:
        """First and last instant, in microseconds or ticks; None without rows."""
        ts = pc.min_max(instants(self.data.to_table([self.time])[self.time]))
        return None if ts["min"].as_py() is None else (ts["min"].as_py(), ts["max"].as_py())


def instants(ts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as int64: microseconds or ticks."""
    if pa.types.is_timestamp(ts.type):
        ts = ts.cast(pa.timestamp("us", ts.type.tz))
    return ts.cast(pa.int64())


@dataclass(frozen=True)
class Feed:
    """All streams of a directory, by lower-case name, and the static tables."""

    streams: Mapping[str, Stream]
    tables: Tables

    @classmethod
    def of(cls, directory: str | Path, tables: Tables, time: str) -> Feed:
        """Look at what `write_streams` wrote."""
        found = {}
        for place in sorted(p for p in Path(directory).iterdir() if p.is_dir()):
            paths = tuple(sorted(p for p in place.iterdir() if p.suffix in (".parquet", ".csv")))
            if paths:
                found[place.name.lower()] = Stream(place.name.lower(), paths, time)
        if not found:
            raise SourceError(f"no streams in {directory}", hint="write_streams makes NAME/part-00000.parquet for each")
        return cls(found, {name.lower(): table for name, table in tables.items()})

    def columns(self, query: PeerQuery) -> dict[str, list[str]]:
        """Columns of each relation that a query names, by its lower-case alias."""
        found = {alias.lower(): self.streams[s.lower()].schema.names for alias, s in query.streams.items()}
        found |= {t.table.lower(): self.tables[t.table.lower()].column_names for t in query.tables}
        return {alias: [c.lower() for c in columns] for alias, columns in found.items()}

    def start(self, query: PeerQuery) -> int:
        """The first instant of a query."""
        clocks = [self.streams[s.lower()].clock for s in query.streams.values()]
        return min((c[0] for c in clocks if c), default=0)

    @property
    def until(self) -> int:
        """The last instant of all."""
        return max((c[1] for s in self.streams.values() if (c := s.clock)), default=0)

    def time_type(self, query: PeerQuery) -> pa.DataType:
        """The type of `_ts` in a query's answer."""
        stream = self.streams[next(iter(query.streams.values())).lower()]
        kind = stream.schema.field(query.time).type
        return pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else pa.int64()
