"""Histories have the isolation levels that their definitions and the thesis's theorems give them."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from windrow.errors import WindrowError
from windrow_bench.isolation_model.histories import (
    History,
    Operation,
    commit_order_preserving,
    graph_latest_window_serializable,
    graph_window_serializable,
    latest_window_serializable,
    serialization_graph,
    window_serializable,
)

PRINTED = {  # thesis 7.3.1, 7.4.2 and 7.6: (WS, LWS, CPS)
    "rQ1[0] w5[0] c5 w6[1] c6 rQ1[1] rQ1[2] rQ1[3] rQ1[4] cQ1": (False, False, False),
    "rQ1[0] w5[0] c5 rQ1[1] w6[1] c6 rQ1[2] rQ1[3] rQ1[4] cQ1": (True, False, False),
    "w5[0] c5 rQ1[0] rQ1[1] rQ1[2] rQ1[3] w6[1] c6 rQ1[4] cQ1": (True, False, False),
    "w5[0] c5 rQ1[0] w6[1] c6 rQ1[1] rQ1[2] rQ1[3] rQ1[4] cQ1": (True, True, True),
    "rQ1[4] w5[0] c5 rQ1[0] rQ1[3] rQ1[2] w6[1] c6 rQ1[1] cQ1": (True, True, True),
    "rQ1[0] w5[0] c5 rQ1[1] rQ1[2] rQ1[3] w6[1] c6 rQ1[4] cQ1": (True, False, False),
    "rQ1[0] w5[0] w6[1] c6 rQ1[1] rQ1[2] rQ1[3] rQ1[4] cQ1 c5": (False, False, True),
    "rQ1[0] rQ1[1] rQ1[2] rQ1[3] w9[4] rQ1[4] cQ1 c9": (True, True, False),
}


@pytest.mark.parametrize(("text", "levels"), PRINTED.items(), ids=[f"H_{x}" for x in "abcdefgh"])
def test_printed_histories_have_the_printed_levels(text, levels):
    """H_a to H_h are classified as the thesis says."""
    history = History.parse(5, text)
    assert str(history) == text
    found = (window_serializable(history), latest_window_serializable(history), commit_order_preserving(history))
    assert found == levels


def test_the_graph_of_a_printed_history():
    """Figure 7.4: H_a serializes T6 before the query and T5 after it."""
    assert serialization_graph(History.parse(5, next(iter(PRINTED)))) == {("Q1", 5), (6, "Q1")}


def interleavings(n, movements):
    """Every history of one query over the whole window and some movements that commit at once."""
    for order in permutations(range(n)):
        for slots in product(range(n + 1), repeat=movements):
            if list(slots) != sorted(slots):
                continue
            operations, moved = [], 0
            for i, part in enumerate([*order, None]):
                while moved < movements and slots[moved] <= i:
                    j = n + moved
                    operations += [Operation("w", j, j % n), Operation("c", j)]
                    moved += 1
                operations.append(Operation("c", "Q") if part is None else Operation("r", "Q", part))
            yield History(n, tuple(operations))


@pytest.mark.parametrize(("n", "movements"), [(1, 3), (2, 4), (3, 4), (4, 3)])
def test_the_theorems_agree_with_the_definitions(n, movements):
    """Theorems 7.1, 7.2 and 7.5 on every history of one query: graph, definition and commit order say the same."""
    seen = set()
    for history in interleavings(n, movements):
        ws, lws = window_serializable(history), latest_window_serializable(history)
        assert graph_window_serializable(history) == ws, history
        assert graph_latest_window_serializable(history) == lws, history
        assert commit_order_preserving(history) == lws, history
        assert ws or not lws
        seen.add((ws, lws))
    assert (True, True) in seen and (n < 2 or (True, False) in seen) and (n < 3 or (False, False) in seen)


def test_a_query_over_fewer_sub_windows():
    """A shorter window must be the youngest sub-windows as of some movement."""
    assert latest_window_serializable(History.parse(5, "rQ[4] w5[0] c5 rQ[0] cQ", Q=2))
    assert not latest_window_serializable(History.parse(5, "rQ[3] w5[0] c5 rQ[4] cQ", Q=2))
    assert window_serializable(History.parse(5, "rQ[3] w5[0] c5 rQ[4] cQ", Q=2))
    assert not window_serializable(History.parse(5, "rQ[3] w5[0] c5 rQ[0] cQ", Q=2))


def test_an_aborted_query_has_read_nothing():
    """Aborted queries count for no level and leave no edges."""
    history = History.parse(2, "rQ1[0] w2[0] c2 rQ1[1] aQ1")
    assert latest_window_serializable(history)
    assert serialization_graph(history) == set()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rQ1", "reads no sub-window"),
        ("rQ1[7]", "reads no sub-window"),
        ("w5[1]", "writes the wrong sub-window"),
        ("r5[0]", "no operation"),
        ("wQ[0]", "no operation"),
        ("hello!", "no operation"),
    ],
)
def test_what_is_no_history_is_refused(text, message):
    """A text that is no history says which operation is wrong."""
    with pytest.raises(WindrowError, match=message):
        History.parse(5, text)
