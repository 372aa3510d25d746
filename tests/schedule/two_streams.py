"""Two streams that join, of which every row follows from its instant."""

from __future__ import annotations

import pyarrow as pa

DECLARED = """
    CREATE STREAM r (ts BIGINT, k BIGINT, a BIGINT) TIMESTAMP BY ts;
    CREATE STREAM s (ts BIGINT, k BIGINT, b BIGINT) TIMESTAMP BY ts;
"""


def rows(stream: str, first: int, last: int, each: int) -> pa.Table:
    """So many rows of a stream at every instant from `first` to before `last`."""
    made = [(t, k) for t in range(first, last) for k in range(each)]
    shift = 3 * (stream == "s")
    return pa.table({
        "ts": [t for t, _ in made], "k": [(t * t + k + shift) % 5 for t, k in made],
        "a" if stream == "r" else "b": [(7 * k + t * t + shift) % 11 for t, k in made],
    })  # fmt: skip
