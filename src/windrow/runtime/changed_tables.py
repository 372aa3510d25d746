"""Tables that are told by their changes: what has come is applied before a tick, and made real by it.

    poll ── changes ── table as it is from this tick on ── program ── job ── manifest (table, offset) ── committed

The rows of changes travel as those of a stream do: the same sources, offsets in the same manifests, the same standing
still when they cannot be read, the same quarantine. But they have no time, hold none back, and are read here and not
by tasks, because a table is everywhere. A tick that fails leaves the offset where it was; the changes are then applied
again, which changes nothing (`sources/table_changes.py`).

Cost: that of the changes; a version of the table is one more run behind those of the version before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from windrow.errors import SourceError, StateError, WindrowError
from windrow.runtime.declarations import Declarations
from windrow.runtime.streams import Stream
from windrow.sources.protocol import Available
from windrow.sources.quarantined_rows import QuarantinedRows


@dataclass
class TakenChanges:
    """What a tick is to make real: how far the changes of tables were read, how many, and which were set aside."""

    read: list[tuple[Stream, Available]] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    aside: dict[str, pa.Table] = field(default_factory=dict)


def take_changes(
    declared: Declarations,
    polled: Iterable[tuple[Stream, Available]],
    stop: Callable[[Stream, WindrowError], None],
) -> TakenChanges:
    """Apply what has come; a table whose changes cannot be applied stands still, as it was."""
    taken = TakenChanges()
    for stream, available in polled:
        try:
            _apply(declared, stream, available, taken)
        except (StateError, MemoryError):
            raise
        except WindrowError as error:
            stop(stream, error)
        except Exception as error:  # one table must not stop the others
            stop(stream, SourceError(f"{type(error).__name__}: {error}"))
    return taken


def _apply(declared: Declarations, stream: Stream, available: Available, taken: TakenChanges) -> None:
    live, definition = declared.tables[stream.key], stream.definition
    aside = QuarantinedRows(definition.name) if definition.quarantine else None
    batches = [b for piece in available.pieces for b in piece.read(definition, None, aside)]
    changes = pa.Table.from_batches(batches, pa.schema(list(definition.columns.items())))
    change = live.keyed().change(changes, aside)
    if change is not None:  # the same content is the same version
        declared.change_table(stream.key, change)
    taken.read.append((stream, available))
    taken.rows[stream.key] = changes.num_rows
    if aside is not None and aside.rows:
        taken.aside[stream.key] = aside.table()
