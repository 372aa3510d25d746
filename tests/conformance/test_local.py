"""The law of the engine: every answer equals the oracle's, whatever the batches, the strategy or the rules."""

from __future__ import annotations

import pytest

import windrow
from windrow.optimize import names
from windrow.testing import assert_same, oracle, seeded_case

CASES = 420
GROUPS = 20
"""Cases per test, so that a failure names a short list of seeds and workers share them evenly."""

WAYS = (
    {},
    {"batch_rows": 1},
    {"batch_rows": 7, "strategy": "negative"},
    {"batch_rows": 3, "strategy": "direct"},
    {"batch_rows": 2, "without": names()},
)
"""Ways to run a case, none of which may change an answer; each rule in turn is also switched off alone."""

FOUND = (
    # a periodic ISTREAM's first answer belongs to the first evaluation, not to the clock's start
    "SELECT Istream(COUNT(*) AS n) FROM (SELECT RSTREAM(COUNT(*) AS a) FROM S AS i [ROWS 2]) q [RANGE 4 SLIDE 4]",
    # negative tuples of an INTERNAL window must not undo results of a join with an ordinary one
    "SELECT Dstream(r.x AS c0, l.x AS c1) FROM S l [RANGE 7], S [RANGE 6 INTERNAL] AS r WHERE r.b = l.a",
    # rows of tables begin before all instants: no index may be computed from that (it was written out of bounds)
    "SELECT P.k, COUNT(s.a) AS n FROM P LEFT JOIN S AS s [RANGE 10 SLIDE 5] ON P.k = s.a GROUP BY P.k",
    "SELECT COUNT(*) AS n FROM P WHERE NOT EXISTS (SELECT 1 FROM S AS s [RANGE 10 SLIDE 5] WHERE s.a = P.k)",
    # a periodic query sees them at its first evaluation, not at the clock's start, and not before it
    "SELECT Dstream(P.k, s.x) FROM P LEFT JOIN S AS s [RANGE 5 SLIDE 5] ON P.k = s.a",
    "SELECT Istream(COUNT(*) AS n) FROM P WHERE NOT EXISTS (SELECT 1 FROM S AS s [RANGE 2 SLIDE 4] WHERE s.a = P.k)",
    # groups and partitions of which no stream has a row are answered, too, by whatever keeps all rows of a group
    "SELECT P.k, LIST(s.a) AS l FROM P LEFT JOIN S AS s [RANGE 5] ON P.k = s.a GROUP BY P.k",
    "SELECT P.k, COUNT(*) OVER (PARTITION BY P.k) AS n FROM P LEFT JOIN S AS s [RANGE 5 SLIDE 5] ON P.k = s.a",
    # a stream of which no column is read keeps one that its block still computes
    "SELECT ISTREAM(COUNT(*) AS n) FROM (SELECT a, COUNT(*) AS m FROM S [RANGE 4 SLIDE 2] GROUP BY a) q [RANGE 5]",
)


def check(script, streams, tables, until, seed=0):
    """Compare every way of running a case with the oracle."""
    want = oracle(script, streams, tables, until)
    for way in (*WAYS, {"without": [names()[seed % len(names())]]}):
        got = windrow.run(script, streams, tables, runtime="local", until=until, **way)
        for name in want:
            try:
                assert_same(got[name], want[name])
            except AssertionError as error:
                raise AssertionError(f"{script}\nrun with {way}: {error}") from error


@pytest.mark.parametrize("first", range(0, CASES, GROUPS))
def test_random_cases_equal_the_oracle(first):
    """Random queries over random streams: five ways of running each agree with the definition."""
    for seed in range(first, first + GROUPS):
        check(*seeded_case(seed), seed)


def test_tables_that_streams_decide_about_equal_the_oracle():
    """LEFT JOIN, EXISTS, NOT EXISTS and IN with a table first, aggregated or not, periodic or not."""
    for seed in range(50):
        check(*seeded_case(seed, shapes=("table first",)), seed)


@pytest.mark.parametrize("query", FOUND)
def test_found_failures_stay_fixed(query):
    """Queries that were once wrong, over a stream with ties, gaps and nulls."""
    import pyarrow as pa

    rows = [(1, 2, 0.25, 9), (2, 1, None, 9), (2, 2, 0.5, 10), (None, 1, 1.0, 13), (1, 1, 2.0, 17), (3, 3, 0.5, 30)]
    a, b, x, ts = zip(*rows, strict=True)
    tables = {"P": pa.table({"k": [1, 2, 2, None, 5]})}
    check(query, {"S": pa.table({"a": a, "b": b, "x": x, "ts": ts})}, tables, 41)
