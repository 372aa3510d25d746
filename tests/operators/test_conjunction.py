"""The order of conjuncts: by rank, measured, and without a change of any answer."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow
from windrow.operators import conjunction, scalar
from windrow.operators.conjunction import LARGE, holds, ordered
from windrow.plan.expr import Expr, Ref
from windrow.plan.lowering import formula

ROWS = 2 * LARGE
PREDICATES = (
    '"a" > 3', '"a" % 2 = 0', '"b" IS NULL', "regexp_matches(\"t\", 'x[0-4]')", "levenshtein(\"t\", 'x42') < 2",
    "\"t\" LIKE '%7%'", '"b" < "a"', "false", "NULL",
)  # fmt: skip


def rows(seed: int) -> dict[str, pa.Array]:
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 99, ROWS)
    holes = pa.array(numbers, mask=rng.random(ROWS) < 0.2)
    return {"a": pa.array(rng.integers(0, 9, ROWS)), "b": holes, "t": pa.array([f"x{i}" for i in numbers.tolist()])}


@settings(max_examples=12, deadline=None)
@given(st.lists(st.sampled_from(PREDICATES), min_size=1, max_size=5), st.integers(0, 3))
def test_the_order_changes_no_answer(predicates: list[str], seed: int) -> None:
    """All conjuncts at once and one after the other keep the same rows."""
    columns = rows(seed)
    sql = " AND ".join(f"({p})" for p in predicates)
    (whole,) = scalar.evaluate(columns, ROWS, [(f"coalesce(({sql}), false)", pa.bool_())])
    assert holds(columns, ROWS, predicates, predicates).tolist() == whole.to_pylist()


def test_dear_conjuncts_see_what_the_others_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cheap ones go first; of two dear ones that which keeps less for its cost."""
    seen: dict[str, int] = {}
    evaluate = scalar.evaluate

    def watched(columns, length, expressions):
        seen[expressions[0][0]] = length
        return evaluate(columns, length, expressions)

    columns, dear, keen = rows(1), "levenshtein(\"t\", 'x42') < 9", "levenshtein(\"t\", 'x42') < 1"
    monkeypatch.setattr(conjunction, "_orders", type(conjunction._orders)())
    holds(columns, ROWS, [dear, keen, '"a" = 3'], {dear, keen})
    assert conjunction._orders[dear, keen, '"a" = 3'].steps == (('"a" = 3',), (keen,), (dear,))
    monkeypatch.setattr(scalar, "evaluate", watched)
    holds(columns, ROWS, [dear, keen, '"a" = 3'], {dear, keen})
    few = {sql: n for sql, n in seen.items() if "levenshtein" in sql}
    assert all(n < ROWS / 6 for n in few.values()) and min(few.values()) < ROWS / 60


def test_rank_is_what_is_kept_less_one_over_the_cost() -> None:
    """A dear predicate goes behind one of half its cost that keeps as much, and before one that keeps all."""
    assert ordered({"a": (0.5, 2e-6), "b": (0.5, 1e-6), "c": (1.0, 1e-6)}, "abc") == (("b",), ("a",), ("c",))


def test_an_order_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a number of batches, so that it follows the data; only so many orders are remembered."""
    monkeypatch.setattr(conjunction, "_orders", type(conjunction._orders)())
    monkeypatch.setattr(conjunction, "KNOWN", 2)
    predicates = ('"a" > 3', '"b" < 5')
    holds(rows(1), ROWS, predicates, predicates)
    conjunction._orders[predicates].batches = 0
    holds(rows(1), ROWS, predicates, predicates)
    assert conjunction._orders[predicates].batches == conjunction.AGAIN
    for i in range(4):
        holds(rows(1), ROWS, [f'"a" > {i}', '"b" < 5'], {'"b" < 5'})
    assert len(conjunction._orders) == 2


@pytest.mark.parametrize("batch_rows", [100, ROWS])
def test_what_may_raise_sees_every_row(batch_rows: int) -> None:
    """Whether a query fails depends neither on the size of batches nor on what was measured."""
    texts = ["x" if i == ROWS - 1 else str(i % 7) for i in range(ROWS)]
    given = {"s": {"ts": list(range(ROWS)), "a": [0] * ROWS, "t": texts}}
    query = "SELECT ts FROM s [NOW] WHERE a = 1 AND levenshtein(t, 'y') < 1 AND CAST(t AS BIGINT) > 3"
    with pytest.raises(windrow.WindrowError, match="could not convert string 'x'"):
        windrow.run(query, streams=given, runtime="local", batch_rows=batch_rows)


def test_selections_and_joins_say_what_cannot_raise() -> None:
    """From the plan: a comparison and an edit distance may be put in order, a cast may not."""
    text = pa.string()
    types = {"t": text}
    for parts, safe in (
        (("levenshtein(", Ref("t"), ", 'x') < 2"), True),
        (("regexp_matches(", Ref("t"), ", '^a[0-9]+$')"), True),
        (("regexp_matches(", Ref("t"), ", 'a[')"), False),
        (("regexp_matches(", Ref("t"), ", 'a++')"), False),
        (("CAST(", Ref("t"), " AS BIGINT) > 3"), False),
    ):
        assert formula(Expr(parts, pa.bool_()), types=types).total is safe
