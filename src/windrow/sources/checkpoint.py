"""What a home of format 2 has read: Spark kept it, in the checkpoint of each stream, by numbered batches.

The manifest named the last batch that it contained. The files of a batch are in the checkpoint's log of its source, one
JSON object a line, compacted now and then into a file that holds all before it; a replayed file's row is in the log of
offsets. A stream that goes on begins behind them.
"""

from __future__ import annotations

import json
import re

from windrow.errors import StateError
from windrow.sources.directory import DirectorySource, offset_of
from windrow.sources.protocol import Offset, Source
from windrow.store.place import Place

_LOG = re.compile(r"^sources/0/(\d+)(\.compact)?$")


def checkpoint_id(checkpoint: Place) -> str | None:
    """Which one a checkpoint of Spark's is; None if it is none."""
    try:
        return str(json.loads(bytes(checkpoint.read("metadata")))["id"]) if checkpoint.exists("metadata") else None
    except (ValueError, KeyError, TypeError):
        return None


def upgraded(source: Source, checkpoint: Place, batch: int, stream: str) -> Offset:
    """The offset of a source that has been read up to a batch of Spark's."""
    if isinstance(source, DirectorySource):
        return offset_of(source, _files(checkpoint, batch))
    try:
        rows = json.loads(bytes(checkpoint.read(f"offsets/{batch}")).decode().splitlines()[-1])
        return {"row": int(rows["row"])}
    except (StateError, ValueError, KeyError, IndexError, TypeError) as error:
        raise StateError(
            f'stream "{stream}" was read by an older version, and where it was cannot be told',
            detail=f"its checkpoint is {checkpoint.uri}, batch {batch}",
            hint="finish with the version of windrow that wrote this home, or start with a new home",
        ) from error


def _files(checkpoint: Place, batch: int) -> list[str]:
    """The names of the files of all batches up to one."""
    logs = {}
    for name in checkpoint.names("sources/0"):
        found = _LOG.match(name)
        if found:
            logs[int(found[1]), bool(found[2])] = name
    compacted = max((n for n, whole in logs if whole and n <= batch), default=-1)
    read = [name for (n, whole), name in sorted(logs.items()) if (n == compacted if whole else compacted < n <= batch)]
    entries = [json.loads(line) for name in read for line in bytes(checkpoint.read(name)).decode().splitlines()[1:]]
    return [str(e["path"]).rpartition("/")[2] for e in entries if int(e["batchId"]) <= batch]
