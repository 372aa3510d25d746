"""Every query printed in the papers runs, the same under every strategy and as the oracle says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import windrow
from windrow.catalog import Catalog, FunctionDef
from windrow.engine.script import bind_script
from windrow.testing import assert_same, oracle

PAPERS = sorted(Path(__file__).parents[1].glob("fixtures/papers/*.cql"))
FUNCTIONS = {"midcap": FunctionDef("midcap", lambda s: pc.equal(s, "s1"), pa.bool_())}
WORDS = {"protocol": ["ftp", "telnet", "TCP", "UDP"], "user": ["U", "W"], "state": ["VT", "NY"]}
ROWS = 60


def column(name, type_, rng, rows):
    """Values that meet often: few keys, the words the papers compare with."""
    if pa.types.is_string(type_):
        return pa.array(rng.choice(WORDS.get(name.lower(), ["s0", "s1", "s2"]), rows))
    if pa.types.is_boolean(type_):
        return pa.array(rng.random(rows) < 0.5)
    if pa.types.is_floating(type_):
        return pa.array(rng.integers(1, 40, rows) * 0.25)
    high = 120_000 if name.lower() in ("volume", "vol") else 5
    return pa.array(rng.integers(0, high, rows)).cast(type_)


def table_of(definition, rng, rows, time=None):
    columns = {n: column(n, t, rng, rows) for n, t in definition.columns.items() if n != time}
    if time is not None:
        spread = 30 if pa.types.is_integer(definition.columns[time]) else 20_000_000
        ts = np.cumsum(rng.integers(0, spread, rows))
        columns[time] = pa.array(ts).cast(definition.columns[time])
    return pa.table({n: columns[n] for n in definition.columns})


def data_for(script):
    """Random rows for every stream and table a script declares."""
    catalog = bind_script(script, Catalog(functions=FUNCTIONS))
    rng = np.random.default_rng(7)
    streams = {d.name: table_of(d, rng, ROWS, d.time) for d in catalog.streams.values()}
    tables = {d.name: table_of(d, rng, 12) for d in catalog.tables.values()}
    return streams, tables, catalog


def shorter(script):
    """Windows a tenth as long where they are counted in units, so that rows expire."""
    return script.replace("RANGE 2000", "RANGE 200")


def plain(script):
    """The script as the oracle reads it: words and double-quoted strings as literals."""
    script = re.sub(r'=\s*"(\w+)"', r"= '\1'", script)
    return re.sub(r"=\s*(ftp|telnet|TCP|UDP|U)\b", r"= '\1'", script)


@pytest.mark.parametrize("path", PAPERS, ids=lambda p: p.stem)
def test_printed_queries_run_alike_under_every_strategy(path):
    """The three strategies and a small batch size give one answer, and not an empty file."""
    script = shorter(path.read_text())
    streams, tables, catalog = data_for(script)
    want = windrow.run(script, streams, tables, runtime="local", functions=FUNCTIONS)
    assert set(want) == {q.name for q in catalog.queries.values()}
    assert any(t.num_rows for t in want.values())
    for way in ({"strategy": "negative"}, {"strategy": "direct", "batch_rows": 13}, {"batch_rows": 5}):
        got = windrow.run(script, streams, tables, runtime="local", functions=FUNCTIONS, **way)
        for name, answer in want.items():
            assert_same(got[name], answer)


@pytest.mark.parametrize("path", PAPERS, ids=lambda p: p.stem)
def test_printed_queries_equal_the_oracle(path):
    """Every printed query against the definition."""
    script = plain(shorter(path.read_text()))
    # an aggregate of a subquery's unnamed aggregate is for the binder to resolve; the oracle wants the name
    script = script.replace("(SELECT SUM(a) FROM", "(SELECT SUM(a) AS a FROM")
    streams, tables, _ = data_for(script)
    want = oracle(script, streams, tables, functions={n: (f.fn, "BOOLEAN") for n, f in FUNCTIONS.items()})
    got = windrow.run(script, streams, tables, runtime="local", functions=FUNCTIONS)
    for name, answer in want.items():
        assert_same(got[name].rename_columns(answer.column_names), answer)
