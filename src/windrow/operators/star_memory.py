"""The memory of a star join that has too little of it: which rows stay, instant by instant.

Rows of n streams meet through facts. A row holds the facts that match it at its own time; rows of all n streams that
hold one fact join through it. What happens at an instant at which rows arrive, in this order:

    1  expired rows leave (`exp <= t`), and rows whose facts have all ended by t (condition 8) 2  new rows that hold no
    fact are dropped (pre-filtering); the others join what is there: the results of this instant 3  priorities are given
    to the new rows and recalculated for the others, where the heuristic does that 4  while a memory holds more rows
    than it may, the row of least priority leaves it; new rows compete like any other

With `evict_first` step 2's joining comes after step 4, as in the offline algorithm (3.1): a row that must leave at t
joins nothing at t, but rows of one instant always meet. `mn(r)`, the matches of r at t, are the combinations of rows of
the other streams, in memory or new at t, that meet r through facts active at t. Steps 3 and 4 use counts taken before
any row leaves.

    heuristic   priority                                             ties: who leaves first
    SIMP        imp                                                  the oldest
    SIMPPROB    imp * mn on arrival                                  least imp, fewest mn, oldest
    DIMPPROB    imp * mn at t                                        the same
    DGL         imp * mn on arrival; at every later instant          the same
                + imp * mn * (exp - t) / alpha if it joined at t, else - beta, not below 0
    RANDOM      -                                                    any row, equally likely
    FIFO        -                                                    the oldest

RANDOM's k-th departure from a memory takes the row number `splitmix64(seed, k) mod rows` counted from the oldest, so it
depends on nothing but the rows.

Cost per instant: the results, plus a scan of a memory when a row must leave it; DGL scans all memories at every
instant. A scan of 1,000 rows takes about a microsecond, which a heap of changing priorities does not beat until
memories are far larger.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from windrow.operators.star_kernels import run_instants

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

HEURISTICS = ("SIMP", "SIMPPROB", "DIMPPROB", "DGL", "RANDOM", "FIFO")
_SIMP, _SIMPPROB, _DIMPPROB, _DGL, _RANDOM, _FIFO = range(6)

SEEN, FILTERED, SHED, RESULTS = range(4)
"""Counters of rows: arrived, dropped by pre-filtering, shed; and of results."""

IMPORTANCE_SEEN, IMPORTANCE_SHED, LIFE_SEEN, LIFE_SHED = range(4)
"""Sums: importance of rows with a fact, of those shed before they expired; lifetime of rows with a fact, and how much
of it was cut off."""


@dataclass(frozen=True)
class Policy:
    """Who leaves when memory is full. `keep`: rows per stream, or in all when `shared`."""

    heuristic: str
    keep: tuple[int, ...]
    shared: bool = False
    alpha: float = 10.0
    beta: float = 1.0
    seed: int = 0
    evict_first: bool = False


@dataclass
class StarRows:
    """Rows of all streams in one numbering: those in memory first, oldest first within a stream, then new ones by (ts,
    stream, arrival).

    Row i holds the facts `facts[ptr[i]:ptr[i + 1]]`, numbered from 0; `fact_end` says when each fact ends.
    """

    stream: Ints
    ts: Ints
    exp: Ints
    imp: Floats
    prio: Floats
    matches: Ints
    ptr: Ints
    facts: Ints
    fact_end: Ints
    stored: int


@dataclass(frozen=True)
class Outcome:
    """`results`: one row of each stream, then the fact, a column per result. `spans`: when each begins and ends.
    `kept`: rows in memory, by stream, oldest first."""

    results: NDArray[np.int32]
    spans: Ints
    kept: Ints


def advance(rows: StarRows, streams: int, policy: Policy, drops: Ints, counts: Ints, sums: Floats) -> Outcome:
    """Run all instants of the new rows. Updates `rows.prio`, `rows.matches`, the departures `drops` of each memory,
    and the counters."""
    results, spans, kept = run_instants(
        streams, rows.stream, rows.ts, rows.exp, rows.imp, rows.prio, rows.matches, rows.ptr, rows.facts,
        rows.fact_end, rows.stored,
        HEURISTICS.index(policy.heuristic), np.asarray(policy.keep, np.int64), policy.shared, policy.alpha, policy.beta,
        np.uint64(policy.seed & (2**64 - 1)), policy.evict_first, drops, counts, sums,
    )  # fmt: skip
    return Outcome(results, spans, kept)
