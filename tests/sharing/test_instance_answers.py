"""The answer of all instances of a name: its parts in the order of time."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windrow
from windrow.runtime import instance_answers
from windrow.runtime.instance_answers import AnswerPart, Columns, in_order

VALUES = st.one_of(st.none(), st.integers(0, 99))


def values_of(numbers: np.ndarray) -> Columns:
    return [pa.array(numbers * 10), pa.array([f"v{n}" for n in numbers.tolist()])]


@st.composite
def parts_of_answers(draw: st.DrawFn) -> list[AnswerPart]:
    """Parts whose instances have the same instants, or not; columns of all kinds of width, with nulls."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        numbers = draw(st.lists(st.integers(0, 20), min_size=1, max_size=4))
        common = draw(st.lists(st.integers(0, 9), max_size=4).map(sorted))
        own = st.lists(st.integers(0, 9), max_size=4).map(sorted)
        at = [common if draw(st.integers(0, 9)) else draw(own) for _ in numbers]
        drawn = [draw(VALUES) for instants in at for _ in instants]
        table = pa.table({
            "_ts": pa.array([t for instants in at for t in instants], pa.timestamp("us")),
            "n": pa.array(drawn, pa.int32()),
            "d": pa.array([None if v is None else Decimal(v) for v in drawn], pa.decimal128(9, 2)),
            "b": pa.array([None if v is None else v % 2 == 0 for v in drawn], pa.bool_()),
            "s": pa.array([None if v is None else str(v) for v in drawn], pa.string()),
        })  # fmt: skip
        found.append(AnswerPart(table, np.array(numbers), np.array([len(instants) for instants in at])))
    return found


@given(parts_of_answers())
def test_chunks_of_instants_are_the_rows_sorted(parts: list[AnswerPart]) -> None:
    """Whether an answer is made of chunks or sorted, its rows and their order are the same."""
    rows = [
        (row["_ts"], k, i, number, row)
        for k, part in enumerate(parts)
        for i, (row, number) in enumerate(zip(part.table.to_pylist(), part.owner.tolist(), strict=True))
    ]
    rows.sort(key=lambda r: r[:3])
    for long in (1, 1 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(instance_answers, "LONG", long)
            table, values = in_order(parts, values_of)
        assert table.to_pylist() == [row for *_, row in rows]
        assert [v.to_pylist() for v in values] == [
            [10 * number for *_, number, _ in rows],
            [f"v{number}" for *_, number, _ in rows],
        ]


def test_long_instants_share_the_values_of_parameters() -> None:
    """Where every instant has many rows, each is a chunk, and the values of the parameters are there once for all."""
    many, instants = instance_answers.LONG, [10, 20, 30]
    ts = np.tile(instants, many)
    part = AnswerPart(pa.table({"_ts": ts, "n": np.arange(len(ts))}), np.arange(many), np.full(many, 3))
    table, values = in_order([part], lambda numbers: [pa.array(numbers)])
    assert table.column("_ts").to_pylist() == np.repeat(instants, many).tolist()
    assert table.column("n").to_pylist() == np.arange(len(ts)).reshape(many, 3).T.reshape(-1).tolist()
    assert len({chunk.buffers()[1].address for chunk in values[0].chunks}) == 1
    assert values[0].to_pylist() == list(range(many)) * 3


def test_answers_of_hundreds_of_instances_are_in_the_order_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instances with two windows, parameters named as columns of the answer: chunks change no answer."""
    script = """
    CREATE STREAM st (sym BIGINT, price DOUBLE, ts BIGINT) TIMESTAMP BY ts;
    CREATE TABLE rules (s BIGINT, n BIGINT, w BIGINT);
    CREATE TEMPLATE t (s BIGINT, n BIGINT, w BIGINT) AS
        SELECT COUNT(*) AS n, MAX(price) AS m FROM st [RANGE $w SLIDE 5] WHERE sym = $s AND price > $n;
    CREATE QUERIES q FROM TEMPLATE t USING TABLE rules
    """
    number = np.arange(400)
    rules = pa.table({"s": number % 50, "n": number // 50, "w": 5 * (1 + number % 2)})
    random = np.random.default_rng(1)
    rows = pa.table({"sym": random.integers(0, 50, 500), "price": random.random(500) * 9, "ts": np.arange(500) // 10})
    found = []
    for long in (1, 1 << 20):
        monkeypatch.setattr(instance_answers, "LONG", long)
        found.append(windrow.run(script, {"st": rows}, {"rules": rules}, runtime="local", batch_rows=200)["q"])
    assert found[0].column(0).num_chunks > found[1].column(0).num_chunks
    assert found[0].equals(found[1])
