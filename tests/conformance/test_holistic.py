"""Aggregates that need all values of a group: all of them, as DuckDB has them, over windows that slide."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.cql.expressions import HOLISTIC
from windrow.operators import holistic
from windrow.testing import assert_same, oracle

DECLARED = "CREATE STREAM s (k BIGINT, a BIGINT, x DOUBLE, t VARCHAR, ts BIGINT) TIMESTAMP BY ts;\n"
TWO = ("arg_max", "arg_min", "corr", "covar_pop", "covar_samp")
OWN = ("first_value", "last_value")  # names that DuckDB has for functions OVER only
SPELLED = (
    "LIST(t ORDER BY x DESC)", "STRING_AGG(t, '/' ORDER BY a, x)", "SUM(x ORDER BY t)", "AVG(DISTINCT a ORDER BY a)",
    "LIST(DISTINCT a)", "FIRST(t ORDER BY ts DESC) FILTER (WHERE x > 1)", "COUNT_IF(x > 1)", "BOOL_AND(x > 0)",
    "BOOL_OR(x > 1) FILTER (WHERE a > 0)", "COUNT_IF(x > 1) + COUNT(*)", "BIT_OR(a) - MAX(a)",
)  # fmt: skip

WITHIN_GROUP = {
    "LISTAGG(t, ',' ORDER BY t)": "LISTAGG(t, ',') WITHIN GROUP (ORDER BY t)",
    "QUANTILE_CONT(x, 0.9)": "PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x)",
    "QUANTILE_DISC(x, 0.4) FILTER (WHERE a > 1)": "percentile_disc(0.4) WITHIN GROUP (ORDER BY x) FILTER (WHERE a > 1)",
    "MODE(t ORDER BY t DESC)": "MODE() WITHIN GROUP (ORDER BY t DESC)",
}
"""DuckDB's spelling, and that of the standard."""


def rows(count=50):
    random = np.random.default_rng(3)
    return pa.table(
        {
            "k": pa.array(random.integers(0, 3, count), mask=random.random(count) < 0.2),
            "a": pa.array(random.integers(0, 5, count), mask=random.random(count) < 0.2),
            "x": pa.array((1 + random.integers(0, 9, count)) / 4, mask=random.random(count) < 0.1),
            "t": [f"t{i % 7}" for i in range(count)],
            "ts": np.sort(random.integers(0, 20, count)),
        }
    )


def call(name):
    if name in ("string_agg", "group_concat", "listagg"):
        return f"{name}(t, '+')"
    if name in TWO or name.startswith("regr") or HOLISTIC[name] in TWO:
        return f"{name}(x, a)"
    return f"{name}({'a' if name.startswith('bit') else 'x'})"


CALLS = [*(call(n) for n in HOLISTIC if n not in OWN), *SPELLED, *WITHIN_GROUP]


@pytest.mark.parametrize("calls", [CALLS[i : i + 6] for i in range(0, len(CALLS), 6)], ids=lambda c: c[0])
def test_the_oracle_agrees(calls):
    """Continuously and periodically, grouped and not, beside aggregates that are kept by sums."""
    items = ", ".join(f"{c} AS c{i}" for i, c in enumerate(calls))
    script = DECLARED + (
        f"SELECT k, {items} FROM s [RANGE 5] GROUP BY k; SELECT {items} FROM s [RANGE 6 SLIDE 3];"
        f"SELECT k, COUNT(*) AS n, {items} FROM s [RANGE 6 SLIDE 3] GROUP BY k HAVING SUM(x) > 1;"
        f"SELECT {items} FROM TUMBLE(s, ts, 4)"
    )
    want = oracle(script, {"s": rows()})
    for ours, standard in WITHIN_GROUP.items():
        script = script.replace(ours, standard)
    for way in ({}, {"batch_rows": 3}):
        got = windrow.run(script, {"s": rows()}, runtime="local", **way)
        for name in want:
            assert_same(got[name], want[name])


@pytest.mark.spark
def test_both_runtimes_agree():
    """Groups lie by their keys, on Spark."""
    script = DECLARED + "SELECT k, LIST(t ORDER BY x) AS l, SUM(x) AS n FROM s [RANGE 5] GROUP BY k"
    want = windrow.run(script, {"s": rows()}, runtime="local")["q1"]
    assert_same(windrow.run(script, {"s": rows()}, runtime="spark")["q1"], want)


@pytest.mark.parametrize("piece", [1, 300, 2000])
def test_rows_are_gathered_for_some_instants_at_a_time(monkeypatch, piece):
    """However few bytes are taken at once, the answers are the same."""
    monkeypatch.setattr(holistic, "PIECE", piece)
    script = (
        DECLARED + "SELECT k, LIST(a) AS l, STRING_AGG(t, '+') AS g, HISTOGRAM(t) AS h FROM s [RANGE 5] GROUP BY k;"
    )
    want = oracle(script, {"s": rows()})["q1"]
    assert_same(windrow.run(script, {"s": rows()}, runtime="local")["q1"], want)


def test_long_values_at_many_instants_are_refused(monkeypatch):
    """A query whose lists grow beyond the bound stops by its name, before all of them are made."""
    monkeypatch.setattr(holistic, "PIECE", 1000)
    monkeypatch.setattr(holistic, "MOST", 20_000)
    script = DECLARED + "SELECT HISTOGRAM(repeat(t, 90) || ts) AS h FROM s [RANGE 5];"
    with pytest.raises(windrow.WindrowError, match="GB of values at once"):
        windrow.run(script, {"s": rows()}, runtime="local")
