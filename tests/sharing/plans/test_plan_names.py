"""Columns that are computed alike in different places of a plan stay apart when plans are merged."""

from __future__ import annotations

import pyarrow as pa
import pytest

import windrow
from windrow.testing import assert_same, oracle

DECLARED = ";".join(f"CREATE STREAM {s} (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts" for s in "sr")
COUNTED = "(SELECT k, count(*) AS n FROM {} [RANGE {}] GROUP BY k)"
FORMS = {
    "groups of groups": f"SELECT q.n, count(*) AS c FROM {COUNTED.format('s', '{0}')} AS q GROUP BY q.n",
    "joined counts": "SELECT x.k, x.n, y.n AS m FROM {x} AS x, {y} AS y WHERE x.k = y.k AND x.n > {{0}} - 4".format(
        x=COUNTED.format("s", 5), y=COUNTED.format("r", 7)
    ),
    "a padded count": "SELECT x.k, x.n, y.n AS m FROM {x} x LEFT JOIN {y} y ON x.k = y.k WHERE x.n > {{0}} - 4".format(
        x=COUNTED.format("s", 5), y=COUNTED.format("r", 2)
    ),
    "padded constants": "SELECT x.k, x.one, y.one AS two FROM (SELECT k, v, 1 AS one FROM s [RANGE 5]) AS x LEFT JOIN "
    "(SELECT k, 1 AS one FROM r [RANGE 2]) AS y ON x.k = y.k WHERE x.v > {0}",
    "counts that exist": "SELECT x.k, x.n FROM {x} AS x WHERE x.n > {{0}} - 4 AND EXISTS "
    "(SELECT 1 FROM {y} AS y WHERE y.k = x.k AND y.n < x.n)".format(x=COUNTED.format("s", 6), y=COUNTED.format("r", 6)),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_names_stay_apart(form: str) -> None:
    """Whatever two parts of a query call what they compute, its answers are those of the definition."""
    queries = {f"q{i}": FORMS[form].format(3 + i) for i in range(3)}
    script = ";".join([DECLARED, *(f"CREATE QUERY {name} AS {text}" for name, text in queries.items())])
    rows = {
        "s": pa.table({"k": [i * i % 4 for i in range(24)], "v": [i % 7 for i in range(24)], "ts": list(range(24))}),
        "r": pa.table({"k": [i % 3 for i in range(24)], "v": [i % 5 for i in range(24)], "ts": list(range(24))}),
    }
    want = oracle(script, rows, {}, 30)
    for sharing in ("auto", "off"):
        got = windrow.run(script, rows, runtime="local", until=30, sharing=sharing)
        for name in queries:
            assert want[name].num_rows
            assert_same(got[name], want[name])
