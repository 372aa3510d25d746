"""Test your own queries: an oracle that recomputes answers from the definition, and random data and queries.

    from windrow.testing import assert_same, oracle
    assert_same(windrow.run(script, streams)["hot"], oracle(script, streams)["hot"])

`cases`, `queries`, `streams` and `tables` are Hypothesis strategies, `seeded_case` makes a case from a number and
`smaller` reduces one that fails. `seeded_life` makes ticks of a live engine, and `live_oracle` says what it answers.
`typed_case` and `typed_life` make such cases over columns of any types.
Hypothesis is imported when one of the strategies is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.testing.compare import assert_same
from windrow.testing.live import live_oracle
from windrow.testing.oracle import oracle

if TYPE_CHECKING:
    from windrow.testing.strategies import (
        cases,
        queries,
        seeded_case,
        seeded_life,
        smaller,
        streams,
        tables,
        typed_case,
        typed_life,
    )

__all__ = [
    "assert_same", "cases", "live_oracle", "oracle", "queries", "seeded_case", "seeded_life", "smaller", "streams",
    "tables", "typed_case", "typed_life",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in __all__:
        from windrow.testing import strategies

        return getattr(strategies, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
