"""What lies under a null is never computed on: the same answer, and no warning, whatever garbage is there."""

from __future__ import annotations

import re
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import windrow
from windrow.archive.keys import KeyRange, _ordered, compare
from windrow.operators import scalar
from windrow.operators.aggregates.groups import Groups
from windrow.operators.aggregates.order import encode
from windrow.operators.aggregates.sums import Cells, Sums
from windrow.operators.aggregates.vectors import validity
from windrow.operators.elements import Elements
from windrow.operators.keys import canonical, comparable, factorize, hash_rows, same_rows
from windrow.operators.keytable import KeyTable
from windrow.operators.state import zones
from windrow.operators.state.bands import codes_of, has_codes, range_of
from windrow.runtime import wire
from windrow.runtime.by_hash import by_hash, rows_at, rows_of_each
from windrow.sharing.boxes import Axis
from windrow.sharing.conditions import Attribute
from windrow.testing import assert_same, oracle, seeded_case

NAN, INF = float("nan"), float("inf")
PATTERNS = (
    "zero", "ones", "infinity", "infinity32", "signalling", "signalling32", "least", "greatest", "huge", "random",
)  # fmt: skip

COLUMNS = {
    "bool": pa.array([True, None, False, None, True]),
    "int8": pa.array([1, None, -5, None, 1], pa.int8()),
    "int32": pa.array([1, None, -5, None, 1], pa.int32()),
    "int64": pa.array([1, None, 2**62, None, 1]),
    "uint64": pa.array([1, None, 2**63 + 1, None, 1], pa.uint64()),
    "float32": pa.array([1.5, None, NAN, None, -0.0], pa.float32()),
    "float64": pa.array([1.5, None, -INF, None, 0.0]),
    "decimal": pa.array([Decimal("1.5"), None, Decimal("-2.5"), None, Decimal("1.5")], pa.decimal128(9, 1)),
    "huge": pa.array([Decimal(10**37), None, Decimal(-1), None, Decimal(10**37)], pa.decimal128(38, 0)),
    "date": pa.array([date(2024, 1, 1), None, date(1960, 1, 1), None, date(2024, 1, 1)]),
    "time": pa.array([time(1, 2), None, time(3), None, time(1, 2)], pa.time64("us")),
    "timestamp": pa.array([datetime(2024, 1, 1), None, datetime(1960, 1, 1), None, None], pa.timestamp("us")),
    "timestamp_s": pa.array([datetime(2024, 1, 1), None, datetime(1960, 1, 1), None, None], pa.timestamp("s")),
    "timestamp_ns": pa.array([datetime(2024, 1, 1), None, datetime(1960, 1, 1), None, None], pa.timestamp("ns", "UTC")),
    "interval": pa.array([(1, 0, 0), None, (0, 30, 0), None, (0, 0, 7000)], pa.month_day_nano_interval()),
    "text": pa.array(["a", None, "", None, "bc"]),
    "bytes": pa.array([b"a", None, b"", None, b"\xff"]),
    "list": pa.array([[1.5, None], None, [], None, [NAN]]),
    "fixed": pa.array([[1, None], None, [2, 3], None, [1, None]], pa.list_(pa.int32(), 2)),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}, None, {"a": 1, "b": "x"}]),
    "map": pa.array([[("a", 1)], None, [], None, [("a", None)]], pa.map_(pa.string(), pa.int32())),
    "nested": pa.array([[{"a": [1]}], None, [None], None, [{"a": None}]]),
}
NUMBERS = tuple(n for n, c in COLUMNS.items() if pa.types.is_integer(c.type) or pa.types.is_floating(c.type))
SUMMED = (*NUMBERS, "decimal", "huge", "date", "timestamp", "timestamp_s", "timestamp_ns")


def shown(value):
    """A result in a form that can be compared: arrays as lists, NaN equal to itself."""
    if isinstance(value, tuple | list):
        return [shown(v) for v in value]
    if isinstance(value, pa.Array):
        return repr(value.to_pylist())
    return repr(value.tolist()) if isinstance(value, np.ndarray) else repr(value)


def lifted(column, cells, squares=True):
    sums = Sums(column.type, True, squares)
    return sums.lift(column, cells), sums.layout


def order_of(column):
    (codes,), order = encode([column])
    valid = validity(column)
    return codes[valid], order.decode(codes, valid)


def slots_of(column):
    table = KeyTable({"c": column.type})
    return table.slots({"c": column}, len(column)), list(table.rows(np.arange(len(table))).values())


def groups_of(column):
    groups = Groups([column.type])
    return groups.lookup([column], len(column)), groups.keys(np.arange(len(groups)))


def zones_of(column):
    """What a run's metadata says of a column in blocks of two rows."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(zones, "BLOCK", 2)
        made = zones.zoned(pa.table({"c": column}), ["c"])
    return sorted(made.schema.metadata.items())


def exchanged(column):
    """The rows of each partition, as another process reads them."""
    to = by_hash(hash_rows([column], len(column)), 3)
    rows = [(p, rows_at(pa.table({"c": column}), rows)["c"].to_pylist()) for p, rows in rows_of_each(to, 3)]
    ts = np.arange(len(column))
    sent = Elements(ts, ts + 1, np.ones(len(column), np.int8), {"c": column})
    return rows, wire.decode_elements(wire.encode_table(wire._element_table(sent))).columns["c"]


def compared(column):
    """Where keys are beyond those of an archive's question, equal to them, and within them."""
    found = []
    for value in (column[0], column[2], pa.scalar(None, column.type)):
        found += [*compare(column, value), KeyRange((value,), (value,)).holds([column], len(column))]
    return found


PLACED = Cells(np.array([0, 1, 0, 1, 1]), np.array([1, 1, 1, 1, -1], np.int8), 2)
EVERY = {
    "canonical": canonical,
    "comparable": comparable,
    "factorize": lambda c: factorize([c, c], len(c)),
    "hash": lambda c: hash_rows([c, c], len(c)),
    "same": lambda c: same_rows([c], [c.take(pa.array([4, 3, 2, 1, 0]))], len(c)),
    "order": order_of,
    "key table": slots_of,
    "groups": groups_of,
    "count": lambda c: (s := Sums(c.type, False, False)) and (s.lift(c), s.lift(c, PLACED)),
    "scalar": lambda c: scalar.evaluate({"c": c}, len(c), [('"c"', c.type), ('"c" IS NULL', pa.bool_())]),
    "sorted": lambda c: scalar.ordered([c], len(c)),
    "zones": zones_of,
    "exchange": exchanged,
}
NUMERIC = {
    "sums": lambda c: lifted(c, None),
    "sums by cell": lambda c: lifted(c, PLACED),
}
ARCHIVED = {"archive keys": compared}
BANDED = {"codes": codes_of, "range": lambda c: range_of(c, -1.5, 2.0), "open": lambda c: range_of(c, -INF, 0.0)}
CELLS = [
    *((n, kernel, run) for n in COLUMNS for kernel, run in EVERY.items()),
    *((n, kernel, run) for n in SUMMED for kernel, run in NUMERIC.items()),
    *((n, kernel, run) for n, c in COLUMNS.items() if has_codes(c.type) for kernel, run in BANDED.items()),
    *((n, kernel, run) for n, c in COLUMNS.items() if _ordered(c.type) for kernel, run in ARCHIVED.items()),
    *(
        (n, "axis", lambda c: Axis(Attribute("x", c.type, ("x",)), (0, 5)).places(c))
        for n in (*NUMBERS, "bool", "date", "timestamp")
    ),
    ("text", "axis", lambda c: Axis(Attribute("x", c.type, ("x",)), (b"a", b"b")).places(c)),
]


@pytest.mark.parametrize(("name", "kernel", "run"), CELLS, ids=[f"{k}-{n}" for n, k, _ in CELLS])
def test_kernels_ignore_what_lies_under_nulls(name, kernel, run, poison):
    """Every kernel that looks at values, on every type."""
    clean = COLUMNS[name]
    want = shown(run(clean))
    for seed, pattern in enumerate(PATTERNS):
        assert shown(run(poison.poisoned(clean, pattern, seed))) == want, pattern


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_are_the_same_as_their_copies(name, poison):
    """Also NULL and NaN, whatever lies under a null; where NULL is nothing's equal, all but those."""
    column = COLUMNS[name]
    for other in (column, column.take(pa.array(np.arange(len(column)))), poison.poisoned(column, "random", 1)):
        assert same_rows([column], [other], len(column)).all()
        assert same_rows([column], [other], len(column), null_safe=False).tolist() == column.is_valid().to_pylist()
        valid = column.drop_null()
        assert same_rows([valid], [other.drop_null()], len(valid), null_safe=False).all()


@pytest.fixture
def poisoned_elements(poison, monkeypatch):
    """Let every batch of elements that an operator gets or makes have garbage under its nulls."""
    plain, count = Elements.__init__, iter(range(10**9))

    def init(self, ts, exp, sign, columns=None):  # type: ignore[no-untyped-def]
        seed = next(count)
        pattern = PATTERNS[seed % len(PATTERNS)]
        hidden = {n: poison.poisoned(c, pattern, seed) if c.null_count else c for n, c in (columns or {}).items()}
        plain(self, ts, exp, sign, hidden)

    monkeypatch.setattr(Elements, "__init__", init)


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_operators_ignore_what_lies_under_nulls(first, poisoned_elements, poison):
    """Random queries through every operator and aggregate: the oracle's answers, from poisoned batches."""
    for seed in range(first, first + 20):
        script, streams, tables, until = seeded_case(seed)
        want = oracle(script, streams, tables, until)
        dirty = {n: poison.poisoned_table(t, PATTERNS[seed % len(PATTERNS)], seed) for n, t in streams.items()}
        for way in ({}, {"batch_rows": 3, "strategy": ("upa", "negative", "direct")[seed % 3]}):
            got = windrow.run(script, dirty, tables, runtime="local", until=until, **way)
            for name in want:
                assert_same(got[name], want[name])


SHARED = """
SELECT k, SUM(x) AS s, COUNT(y) AS n FROM S [RANGE 4 SLIDE 2] WHERE x > 0.5 AND t <> 'b' GROUP BY k;
SELECT k, AVG(x) AS s, MIN(y) AS n FROM S [RANGE 6 SLIDE 2] WHERE x < 2 OR f GROUP BY k;
SELECT k, VARIANCE(y) AS s, MAX(x) AS n FROM S [RANGE 3 SLIDE 3] WHERE y IS NULL OR y > 1 GROUP BY k;
SELECT SUM(y) AS s, COUNT(DISTINCT t) AS n FROM S [RANGE 6 SLIDE 3] WHERE t >= 'a';
SELECT SUM(y) AS s, COUNT(DISTINCT x) AS n FROM S [RANGE 6 SLIDE 3] WHERE NOT f;
"""


@pytest.mark.parametrize("pattern", PATTERNS)
def test_sharing_ignores_what_lies_under_nulls(pattern, poison):
    """Predicates over cells, shared sums, extremes and distinct values."""
    random = np.random.default_rng(7)

    def some(values, type_):  # type: ignore[no-untyped-def]
        return pa.array(
            [None if random.random() < 0.3 else values[random.integers(len(values))] for _ in range(60)], type_
        )

    columns = {
        "ts": pa.array(np.arange(60) // 3),
        "k": some([1, 2, 3], pa.int32()),
        "x": some([0.25, 1.5, -0.0, 2.5], pa.float32()),
        "y": some([1.0, 2.25, 1e100], pa.float64()),
        "t": some(["a", "b", "c"], pa.string()),
        "f": some([True, False], pa.bool_()),
    }
    clean = pa.table(columns)
    want = oracle(SHARED, {"S": clean})
    dirty = poison.poisoned_table(clean, pattern, 3)
    for sharing in ("auto", "off"):
        got = windrow.run(SHARED, {"S": dirty}, runtime="local", sharing=sharing)
        for name in want:
            assert_same(got[name], want[name])


SHARED_BY_MANY = """
SELECT l.k AS c0, r.x AS c1 FROM S [RANGE 5] l, T [RANGE 5] r WHERE l.k = r.k AND r.y > 1;
SELECT l.k AS c0, r.y AS c1 FROM S [RANGE 5] l, T [RANGE 5] r WHERE l.k = r.k AND (l.x > 1 OR l.f);
SELECT l.k, COUNT(*) AS n, SUM(r.y) AS s FROM S [RANGE 6 SLIDE 2] l, T [RANGE 6] r WHERE l.k = r.k GROUP BY l.k;
SELECT l.t, COUNT(r.x) AS n, AVG(r.y) AS s FROM S [RANGE 4 SLIDE 2] l, T [RANGE 4] r WHERE l.k = r.k GROUP BY l.t;
SELECT l.t AS c0, r.k AS c1 FROM S [RANGE 5] l LEFT JOIN T [RANGE 3] r ON l.x = r.x;
SELECT l.t AS c0 FROM S [RANGE 5] l WHERE NOT EXISTS (SELECT 1 FROM T [RANGE 3] r WHERE r.t = l.t AND r.x < 2);
SELECT k, t FROM S [RANGE 5] WHERE x > 0.5 AND t <> 'b';
SELECT k, t FROM S [RANGE 5] WHERE x > 1 OR y IS NULL;
SELECT DISTINCT k FROM S [RANGE 5] WHERE t = 'a';
SELECT DISTINCT k FROM S [RANGE 5] WHERE t = 'c' OR NOT f;
SELECT k, SUM(y) AS s, COUNT(x) AS n FROM S [RANGE 5] WHERE x > 0.5 GROUP BY k;
SELECT k, SUM(y) AS s, COUNT(x) AS n FROM S [RANGE 5] WHERE x <= 0.5 OR f GROUP BY k;
SELECT k, SUM(y) AS s, COUNT(x) AS n FROM S [RANGE 7] WHERE t = 'a' GROUP BY k;
SELECT k, SUM(y) AS s, MIN(x) AS n FROM S [RANGE 3] WHERE t = 'b' GROUP BY k;
SELECT k, SUM(y) AS s, MAX(x) AS n FROM S [RANGE 4] GROUP BY k;
SELECT t, SUM(y) AS s, COUNT(x) AS n FROM S [RANGE 4] WHERE x > 0.5 GROUP BY t;
SELECT t, SUM(y) AS s, COUNT(x) AS n FROM S [RANGE 4] WHERE x <= 0.5 OR f GROUP BY t;
SELECT t, SUM(y) AS s, COUNT(x) AS n FROM S [RANGE 4] WHERE k = 2 GROUP BY t;
SELECT SUM(y) AS s, AVG(x) AS n FROM S [ROWS 5];
SELECT SUM(y) AS s, AVG(x) AS n FROM S [ROWS 7];
SELECT MAX(x) AS m, MIN(y) AS n FROM S [RANGE 2 SLIDE 2];
SELECT MAX(x) AS m, MIN(y) AS n FROM S [RANGE 6 SLIDE 2];
SELECT MAX(x) AS m, MIN(y) AS n FROM S [RANGE 9 SLIDE 3];
SELECT MAX(x) AS m, MIN(y) AS n FROM S [RANGE 12 SLIDE 4] WHERE f;
SELECT l.k, COUNT(*) AS n, SUM(r.y) AS s FROM S [RANGE 4 SLIDE 2] l, T [RANGE 4] r WHERE l.k = r.k GROUP BY l.k;
SELECT l.k, COUNT(*) AS n, SUM(r.y) AS s FROM S [RANGE 2 SLIDE 2] l, T [RANGE 2] r WHERE l.k = r.k GROUP BY l.k;
SELECT l.k, MAX(r.y) AS s FROM S [RANGE 4 SLIDE 2] l, T [RANGE 4] r WHERE l.k = r.k GROUP BY l.k;
SELECT l.k, MAX(r.y) AS s FROM S [RANGE 8 SLIDE 2] l, T [RANGE 8] r WHERE l.k = r.k GROUP BY l.k;
"""


@pytest.mark.parametrize("pattern", PATTERNS[::3])
def test_shared_joins_ignore_what_lies_under_nulls(pattern, poison, poisoned_elements):
    """Joins that many queries read, sums of queries that come to share, synopses, and whom a row is routed to."""
    random = np.random.default_rng(5)

    def rows():  # type: ignore[no-untyped-def]
        def some(values, type_):  # type: ignore[no-untyped-def]
            return pa.array(
                [None if random.random() < 0.3 else values[random.integers(len(values))] for _ in range(30)], type_
            )

        return pa.table({
            "ts": np.arange(30) // 2, "k": some([1, 2, 3], pa.int32()), "x": some([0.25, 1.5, -0.0], pa.float32()),
            "y": some([1.0, 2.25, 1e100], pa.float64()), "t": some(["a", "b", "c"], pa.string()),
            "f": some([True, False], pa.bool_()),
        })  # fmt: skip

    clean = {"S": rows(), "T": rows()}
    want = oracle(SHARED_BY_MANY, clean)
    dirty = {n: poison.poisoned_table(t, pattern, i) for i, (n, t) in enumerate(clean.items())}
    for sharing in ("auto", "shards", "off"):
        got = windrow.run(SHARED_BY_MANY, dirty, runtime="local", sharing=sharing)
        for name in want:
            assert_same(got[name], want[name])


@pytest.mark.parametrize("pattern", PATTERNS)
def test_shedding_ignores_what_lies_under_nulls(pattern, poison, poisoned_elements):
    """Rows with null keys hold no fact, open intervals are open, and importance is looked at where it is."""
    query = """
        CREATE TABLE f (a DOUBLE, b DOUBLE, since BIGINT, til BIGINT) VALID FROM since TO til;
        SELECT r.v, s.v AS w FROM r [RANGE 9], s [RANGE 9], f WHERE r.k = f.a AND s.k = f.b
        SHED BY SIMP KEEP 6 ROWS IMPORTANCE coalesce(imp, 1)
    """
    keys, times = [1.0, None, 2.0, None, 1.0, 2.0], [1, 2, 3, 4, 5, 6]
    rows = pa.table({"ts": times, "k": keys, "v": [None, 1, None, 2, 3, 4], "imp": [1.5, None, 2.0, None, 3.0, 1.0]})
    facts = pa.table(
        {
            "a": [1.0, None, 2.0],
            "b": [1.0, 2.0, None],
            "since": pa.array([None, 1, 2]),
            "til": pa.array([None, 9, None]),
        }
    )
    want = windrow.run(query, {"r": rows, "s": rows}, {"f": facts}, runtime="local")["q1"]
    dirty, hidden = poison.poisoned_table(rows, pattern, 1), poison.poisoned_table(facts, pattern, 2)
    got = windrow.run(query, {"r": dirty, "s": dirty}, {"f": hidden}, runtime="local")["q1"]
    assert want.num_rows and got.to_pylist() == want.to_pylist()


def test_the_buffers_of_nothing_may_hold_anything():
    """Lists without elements come with a buffer for these of any size."""
    nothing = pa.Array.from_buffers(pa.float64(), 0, [None, pa.py_buffer(b"twelve bytes")])
    lists = pa.ListArray.from_arrays(pa.array([0, 0, 0], pa.int32()), nothing)
    assert len(set(hash_rows([lists], 2).tolist())) == 1


NO_NULLS = "it is given times, places, ranks and counts, which are never null"
RANDOM, SHARING, JOINING = (
    test_operators_ignore_what_lies_under_nulls,
    test_sharing_ignores_what_lies_under_nulls,
    test_shared_joins_ignore_what_lies_under_nulls,
)
KERNELS = {
    "operators/aggregates/basic_kernels.py": RANDOM,
    "operators/aggregates/cell_kernels.py": JOINING,
    "operators/aggregates/extremes.py": NO_NULLS,
    "operators/aggregates/kernels.py": RANDOM,
    "operators/aggregates/length_kernels.py": JOINING,
    "operators/aggregates/limbs.py": test_kernels_ignore_what_lies_under_nulls,
    "operators/aggregates/row_lists.py": JOINING,
    "operators/aggregation_sets.py": JOINING,
    "operators/asof.py": RANDOM,
    "operators/changes.py": RANDOM,
    "operators/delta_star.py": RANDOM,
    "operators/keys.py": test_kernels_ignore_what_lies_under_nulls,
    "operators/keytable.py": test_kernels_ignore_what_lies_under_nulls,
    "operators/open_sessions.py": RANDOM,
    "operators/radix.py": NO_NULLS,
    "operators/repeats.py": "it leaves columns with nulls to others",
    "operators/scatter.py": "arrays with nulls it leaves to Arrow",
    "operators/session.py": RANDOM,
    "operators/star_kernels.py": test_shedding_ignores_what_lies_under_nulls,
    "operators/state/chains.py": RANDOM,
    "operators/state/ranges.py": RANDOM,
    "operators/top_n_contenders.py": RANDOM,
    "operators/top_n_kernels.py": RANDOM,
    "sharing/chains.py": JOINING,
    "sharing/joins/kernels.py": JOINING,
    "sharing/kernels.py": SHARING,
    "sharing/synopses.py": JOINING,
    "sources/plain_json.py": "it reads the bytes of texts, before there are nulls",
    "sources/tokens.py": "it reads the bytes of texts, before there are nulls",
}
"""For every module with compiled loops the test that gives them garbage, or why they cannot meet any."""


def test_every_module_with_compiled_loops_is_given_garbage():
    """Arrow's kernels skip what lies under a null; ours must be seen to: a new module names its test here."""
    source = Path(windrow.__file__).parent
    compiled = re.compile(r"^\s*@(\w+\.)?(njit|jit|vectorize|guvectorize|cfunc|borrowing)\b", re.MULTILINE)
    found = {f.relative_to(source).as_posix() for f in source.rglob("*.py") if compiled.search(f.read_text("utf-8"))}
    assert found == set(KERNELS)
