"""The flows of three switches, recorded at once: a natural window join of several streams.

Westermo network traffic data set, CC BY 4.0; one zip with one csv for each switch.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

NAMES = ("bottom", "left", "right")

Flows = tuple[np.ndarray, dict[str, pa.Array]]
"""Times in microseconds, ascending, and columns."""


def flows(directory: Path, name: str, columns: Mapping[str, str]) -> Flows:
    """The flows of one switch; `columns` maps the names they get to the names they have."""
    with (
        zipfile.ZipFile(directory / f"reduced_flows_output_{name}.zip") as archive,
        archive.open(archive.namelist()[0]) as file,
    ):
        table = csv.read_csv(file)
    ts = (table.column("start").cast(pa.float64()).to_numpy() * 1e6).astype(np.int64)
    order = np.argsort(ts, kind="stable")
    picks = pa.array(order)
    return ts[order], {new: table.column(old).combine_chunks().take(picks) for new, old in columns.items()}


def between(given: Sequence[Flows], begin: int, end: int) -> list[Flows]:
    """What comes in `[begin, end)` on each switch."""
    found = []
    for ts, columns in given:
        low, high = np.searchsorted(ts, (begin, end))
        found.append((ts[low:high], {c: a.slice(low, high - low) for c, a in columns.items()}))
    return found
