"""The rules of sharing, each where it holds and where it does not, and the worked example of page 126."""

from __future__ import annotations

from math import log2

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.operators.aggregates import Aggregation
from windrow.sharing import rules
from windrow.sharing.covers import (
    Combination,
    Term,
    Terms,
    disjoint,
    relevant,
)
from windrow.sharing.rules import AggregateSpec, SynopsisSpec, synopsis_of
from windrow.sharing.synopses import SynopsisKind

TCP, UDP, U = Term("protocol", 6, 7), Term("protocol", 17, 18), Term("user", 42, 43)
BASIC, RUNNING, INTERVAL = SynopsisKind.BASIC_INTERVAL, SynopsisKind.RUNNING, SynopsisKind.INTERVAL
BIJ, IJ, RJ = SynopsisKind.BASIC_INTERVAL_JOIN, SynopsisKind.INTERVAL_JOIN, SynopsisKind.RUNNING_JOIN


def call(kind: str, column: str | None = "length") -> Aggregation:
    return Aggregation(kind, column, f"{kind}({column})", pa.int64())


def query(kind: str, *windows: int, period: int = 1, terms: Terms | None = None, name: str = "q") -> AggregateSpec:
    return AggregateSpec(name, "S", terms, windows or (8,), period, (call(kind),), terms=terms)


def synopsis(kind: SynopsisKind, function: str, intervals: int = 8, **others: object) -> SynopsisSpec:
    terms = others.get("terms")
    return SynopsisSpec(kind, "S", terms, 1, intervals, rules.data_of(call(function)), **others)  # type: ignore[arg-type]


# -- covers ------------------------------------------------------------------------------------------------------------


def test_the_worked_example_of_combining() -> None:
    """Page 126: Q3 = Q1 + Q2, Q1 = Q3 - Q2, Q6 = max(Q4, Q5); a SUM over Q6 has no disjoint cover."""
    q1, q2, q3, q6 = frozenset({TCP}), frozenset({UDP}), frozenset({TCP, UDP}), frozenset({TCP, U})
    added = relevant(q3, {"q1": q1, "q2": q2}, duplicates=True, subtracts=True)
    assert added is not None and (set(added.together), added.how) == ({"q1", "q2"}, Combination.ADD)
    taken = relevant(q1, {"q3": q3, "q2": q2}, duplicates=True, subtracts=True)
    assert taken is not None and (taken.together, taken.without, taken.how) == (("q3",), ("q2",), Combination.SUBTRACT)
    known = {"q4": frozenset({TCP}), "q5": frozenset({U})}
    best = relevant(q6, known, duplicates=False, subtracts=False)
    assert best is not None and (set(best.together), best.how) == ({"q4", "q5"}, Combination.BEST)
    assert relevant(q6, known, duplicates=True, subtracts=True) is None


def test_terms_of_one_attribute_are_disjoint_if_their_values_are() -> None:
    """Ranges that touch are disjoint, ranges that overlap are not, other attributes never are."""
    low, high, middle = Term("x", None, 5), Term("x", 5, None), Term("x", 3, 8)
    assert disjoint([low, high])
    assert not disjoint([low, middle])
    assert not disjoint([low, U])
    assert not disjoint([low, low])


sets = st.frozensets(st.integers(0, 5), min_size=1)


@given(sets, st.lists(sets, max_size=6))
def test_relevant_sets_give_the_answer(whole: frozenset[int], known: list[frozenset[int]]) -> None:
    """Over rows with one value each, what is put together and taken away counts every row of the query once."""

    def terms(values: frozenset[int]) -> Terms:
        return frozenset(Term("x", v, v + 1) for v in values)

    found = relevant(terms(whole), {str(i): terms(k) for i, k in enumerate(known)}, duplicates=True, subtracts=True)
    counts = dict.fromkeys(range(6), 0)
    if found is not None:
        for name in found.together:
            for v in known[int(name)]:
                counts[v] += 1
        for name in found.without:
            for v in known[int(name)]:
                counts[v] -= 1
        assert counts == {v: int(v in whole) for v in range(6)}
    assert found is not None or whole not in known


def test_a_search_that_explodes_ends() -> None:
    """40 terms and hundreds of overlapping synopses: the search stops instead of trying everything."""
    every = [Term("x", v, v + 1) for v in range(40)]
    known = {f"{i},{j}": frozenset({every[i], every[j]}) for i in range(40) for j in range(i + 1, 40)}
    known = {n: t for n, t in known.items() if every[39] not in t}
    assert relevant(frozenset(every), known, duplicates=True, subtracts=True) is None


# -- rules -------------------------------------------------------------------------------------------------------------


def test_ss1() -> None:
    """Same data, windows up to b intervals; not other data, not longer, not between intervals, not other rows."""
    counters = synopsis(BASIC, "median")
    assert rules.ss1(counters, query("median", 5)) and rules.ss1(counters, query("top_k", 8))
    assert not rules.ss1(counters, query("sum", 5))
    assert not rules.ss1(counters, query("median", 9))
    assert not rules.ss1(SynopsisSpec(BASIC, "S", None, 3, 8, counters.data), query("median", 5))
    assert not rules.ss1(synopsis(BASIC, "median", terms=frozenset({TCP})), query("median", 5))


def test_cs1() -> None:
    """Equal windows on a running or interval synopsis; not different ones, not a basic interval synopsis."""
    both = [query("max", 5), query("max", 5, name="r")]
    assert rules.cs1(synopsis(INTERVAL, "max"), both)
    assert not rules.cs1(synopsis(INTERVAL, "max"), [*both, query("max", 6)])
    assert not rules.cs1(synopsis(BASIC, "max"), both)


def test_cs2() -> None:
    """Any windows on one basic interval synopsis; not on an interval synopsis, and not beyond its reach."""
    some = [query("max", 5), query("max", 8)]
    assert rules.cs2(synopsis(BASIC, "max"), some)
    assert not rules.cs2(synopsis(INTERVAL, "max"), some)
    assert not rules.cs2(synopsis(BASIC, "max"), [*some, query("max", 9)])


def test_ss2() -> None:
    """AVG from aligned sums and counts of one interval; not from others, and not beyond the shorter of the two."""
    sums, counts = synopsis(RUNNING, "sum"), synopsis(RUNNING, "count", 6)
    assert rules.ss2(sums, counts, query("avg", 6))
    assert not rules.ss2(sums, counts, query("avg", 7))
    assert not rules.ss2(sums, synopsis(RUNNING, "count", phase=1), query("avg", 6))
    assert not rules.ss2(SynopsisSpec(RUNNING, "S", None, 2, 8, sums.data), counts, query("avg", 6))
    assert not rules.ss2(sums, counts, query("sum", 6))


def test_cs3() -> None:
    """SUM, COUNT and AVG over one window; not over two."""
    sums, counts = synopsis(RUNNING, "sum"), synopsis(RUNNING, "count")
    three = [query("sum", 5), query("count", 5), query("avg", 5)]
    assert rules.cs3(sums, counts, three)
    assert not rules.cs3(sums, counts, [*three[:2], query("avg", 6)])
    assert not rules.cs3(sums, counts, three[:2])


def test_ss3() -> None:
    """Equal windows up to b, differences that have values; not others, and by the printed three values not two."""
    plain, wide = synopsis(BIJ, "max"), synopsis(BIJ, "max", differences=frozenset(range(-2, 3)))
    printed = synopsis(BIJ, "max", differences=frozenset({-1, 0, 1}))
    assert rules.ss3(plain, query("max", 7, 7)) and not rules.ss3(plain, query("max", 7, 8))
    assert rules.ss3(printed, query("max", 7, 8)) and not rules.ss3(printed, query("max", 6, 8))
    assert rules.ss3(wide, query("max", 6, 8)) and not rules.ss3(wide, query("max", 5, 8))
    assert not rules.ss3(wide, query("max", 8, 9))
    assert not rules.ss3(wide, query("max", 8))


def test_cs4_and_cs5() -> None:
    """On IJ and RJ only joins of the same windows, on BIJ all."""
    differences = frozenset(range(-2, 3))
    same, other = [query("max", 6, 8), query("max", 6, 8)], query("max", 7, 7)
    for kind in (IJ, RJ):
        held = synopsis(kind, "max", differences=differences)
        assert rules.cs4(held, same) and not rules.cs4(held, [*same, other]) and not rules.cs5(held, same)
    basic = synopsis(BIJ, "max", differences=differences)
    assert rules.cs5(basic, [*same, other]) and not rules.cs4(basic, same)
    assert not rules.cs5(basic, [*same, query("max", 4, 8)])


def covering(kind: SynopsisKind, function: str, intervals: int = 8) -> dict[str, SynopsisSpec]:
    return {
        "tcp": synopsis(kind, function, intervals, terms=frozenset({TCP})),
        "user": synopsis(kind, function, intervals, terms=frozenset({U})),
    }


def test_ss4() -> None:
    """MAX from any cover that reaches back; not SUM without a disjoint one, not beyond, not unaligned."""
    either = frozenset({TCP, U})
    found = rules.ss4(query("max", 8, terms=either), covering(BASIC, "max"))
    assert found is not None and set(found.together) == {"tcp", "user"}
    assert rules.ss4(query("sum", 8, terms=either), covering(RUNNING, "sum")) is None
    assert rules.ss4(query("max", 9, terms=either), covering(BASIC, "max")) is None
    unaligned = covering(BASIC, "max") | {"user": synopsis(BASIC, "max", terms=frozenset({U}), phase=1)}
    assert rules.ss4(query("max", 8, terms=either), unaligned) is None


def test_ss4_is_decided_by_cost() -> None:
    """Reading two synopses pays where runs are rare beside updates, and does not where the window is long."""
    found = rules.ss4(query("max", 8, terms=frozenset({TCP, U})), covering(BASIC, "max"))
    assert found is not None
    assert rules.worth_covering(query("max", 8, period=20), found, 1)
    assert not rules.worth_covering(query("max", 8, period=2), found, 1)


def test_cs6_and_cs7() -> None:
    """Candidates and the query: equal windows on interval synopses, any on basic ones."""
    terms = frozenset({TCP, U})
    asked, same, other = query("max", 8, terms=terms), query("max", 8), query("max", 5)
    for kind, together in ((INTERVAL, rules.cs6), (BASIC, rules.cs6)):
        held = covering(kind, "max")
        found = rules.ss4(asked, held)
        assert found is not None
        assert together(asked, found, held, [same]) == (kind is INTERVAL)
        assert not together(asked, found, held, [same, other])
        assert rules.cs7(found, held) == (kind is BASIC)


def test_cs8() -> None:
    """A longer period of the same query takes the other's answers; not a shorter one, not another window."""
    often, seldom = query("max", 8, period=2), query("max", 8, period=5, name="r")
    assert rules.cs8(seldom, often)
    assert not rules.cs8(often, seldom)
    assert not rules.cs8(query("max", 7, period=5), often)
    assert not rules.cs8(query("min", 8, period=5), often)


@pytest.mark.parametrize(("intervals", "queries"), [(16, 4), (32, 7), (64, 11), (256, 32)])
def test_basic_beats_interval_from_the_break_even_on(intervals: int, queries: int) -> None:
    """8.3.1: at b / log b queries that run together the basic interval synopsis is chosen, not before."""
    from windrow.sharing.synopses import kind_of

    assert intervals / log2(intervals) <= queries < intervals / log2(intervals) + 1
    assert kind_of([call("max")], intervals, queries) is BASIC
    assert kind_of([call("max")], intervals, queries - 1) is INTERVAL


def test_a_synopsis_is_as_long_as_its_longest_window() -> None:
    """It grows when a longer window joins, and its interval divides all windows and periods."""
    few = [query("sum", 10, period=2), query("sum", 6, period=4)]
    assert (synopsis_of(few, RUNNING).interval, synopsis_of(few, RUNNING).intervals) == (2, 5)
    more = [*few, query("sum", 30, period=5)]
    assert (synopsis_of(more, RUNNING).interval, synopsis_of(more, RUNNING).intervals) == (1, 30)
