"""Sources as descriptors: what is new, how it is cut into pieces of work, how a piece is read.

No runtime is known here:

    driver                                            task, on any machine
    poll(offset) ─► Available(offset', pieces) ──────► piece.read(stream, columns) ─► record batches
         ▲                     │ the tick commits its manifest, which holds offset'
         └──── committed(offset') ◄┘

An offset is plain JSON whose meaning only its source knows. It is kept in the manifest of the tick that took the rows:
one commit point, so offset and state cannot disagree. Law: for any sequence of polls, each from the offset of the one
before it or (after a crash) from the last committed one, the pieces on the committed path hold every row exactly once,
in order of arrival.

Cost: `poll` is called every few hundredths of a second and touches no rows. A piece is small and picklable; it travels
inside a job, never through a home.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.store.place import Place

Offset = Mapping[str, Any]


@dataclass(frozen=True)
class MalformedRow:
    """A row that cannot be read as declared: where it stands, why, and what is written there."""

    where: str  # a file and a line, a topic and an offset
    why: str
    text: str


Report = Callable[[MalformedRow], None]


class Piece(Protocol):
    """A unit of work: frozen, picklable, small; cut so that pieces can be dealt evenly."""

    @property
    def weight(self) -> int:
        """About how many bytes it is to read."""

    def read(
        self, stream: StreamDef, columns: Sequence[str] | None, report: Report | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows in order, with the declared types of the declared columns: all, or those asked for.

        The first malformed row is a SourceError; with `report` malformed rows are handed there and left out.
        """


class FrameRows(Protocol):
    """Rows as a DataFrame, which only Spark reads."""

    @property
    def rdd(self) -> Any: ...

    def mapInArrow(self, func: Any, schema: Any) -> Any: ...


@dataclass(frozen=True)
class Available:
    """Rows that have not been taken yet, and where the stream stands once they are."""

    offset: Offset
    pieces: tuple[Piece, ...]  # in order of arrival
    rows: int | None = None  # where it is known without reading
    bounds: tuple[int, int] | None = None  # least and greatest time, where known without reading

    @property
    def given(self) -> tuple[Piece, ...] | FrameRows:
        """What a job is given to read: the pieces."""
        return self.pieces


class Source(Protocol):
    """Where the rows of one stream come from, as the driver sees it."""

    def poll(self, offset: Offset | None) -> Available | None:
        """What is new behind `offset` (None: from the beginning), or None if nothing is; cheap: it is called often."""

    def committed(self, offset: Offset) -> None:
        """A manifest holds this offset: what is before it is never asked for again."""

    def drained(self, offset: Offset | None) -> bool:
        """Whether everything that the source has now is before `offset`."""

    def close(self) -> None:
        """Give back what is open."""


# The module that has `open_source` and `read_options` for a kind; imported when a stream of that kind is opened.
KINDS: Mapping[str, str] = {
    "parquet": "directory",
    "csv": "directory",
    "json": "directory",
    "arrow": "directory",
    "replay": "replay",
    "rate": "rate",
    "kafka": "kafka",
    "delta": "delta",
    "iceberg": "iceberg",
}


def open_source(stream: StreamDef, spool: Place, *, may_write: bool = False) -> Source:
    """Open the source that a declaration names by FROM kind (...).

    `spool` is a folder of the home that is this source's own: copies, logs of seen files. What a committed offset names
    there must stay. `may_write`: whether the owner of the engine allows options that change what is read (cleanSource).
    """
    source: Source = _module(stream).open_source(stream, spool, may_write=may_write)
    return source


def check_source(stream: StreamDef) -> None:
    """Refuse a declaration that `open_source` would refuse for its options, where its rows come from elsewhere."""
    _module(stream).read_options(stream, may_write=True)


def _module(stream: StreamDef) -> Any:
    kind = stream.options.get("source", "").lower()
    if kind not in KINDS:
        raise SourceError(
            f"{stream.what} has no source that windrow knows" + (f': "{kind}"' if kind else ""),
            hint=f"write FROM {' | '.join(KINDS)} (...), or give a DataFrame by engine.stream(...)",
        )
    return importlib.import_module(f"windrow.sources.{KINDS[kind]}")
