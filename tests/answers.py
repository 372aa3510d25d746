"""Answers as bags of rows, for tests that compare them whatever their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa


def shown(row: Mapping[str, Any]) -> str:
    """A row without its time and sign, as text: NaN equals itself there, and -0.0 is 0.0."""
    return repr(tuple(0.0 if v == 0 else v for n, v in row.items() if n not in ("_ts", "_op")))


def bag(table: pa.Table) -> Counter[str]:
    """The rows of a relation."""
    return Counter(map(shown, table.to_pylist()))


def relation(log: pa.Table) -> Counter[str]:
    """What a change log adds up to."""
    counts: Counter[str] = Counter()
    for row in log.to_pylist():
        counts[shown(row)] += row["_op"]
    return +counts
