"""Sums of tasks into answers: what several tasks read for the same window and group is added up and lowered.

Queries with the same keys, aggregates and list above them are finished together, as one batch. What a task read for a
long stretch of time is first cut where others read: then equal instants have equal ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.answers import PointValues, coded, scalars
from windrow.operators.aggregates.call import EXTREMES
from windrow.operators.aggregates.final_values import Lowering
from windrow.operators.aggregates.order import CodeOrder
from windrow.operators.aggregates.partials import Partials
from windrow.operators.aggregates.sums import SumLanes, relaid
from windrow.operators.aggregates.sweep import sweep_of
from windrow.operators.aggregates.vectors import Int64s, distinct_values
from windrow.operators.elements import Elements, one
from windrow.operators.keys import factorize
from windrow.operators.state.ranges import expand
from windrow.operators.state.run import ints
from windrow.sharing.joins.members import JoinMember, name_of
from windrow.sharing.joins.readers import ResultGrouping
from windrow.sharing.query_group import Batch

_MARKS = ("least", "least?", "greatest", "greatest?", "key", "value")


AlikeMembers = Sequence[tuple[ResultGrouping, Mapping[int, JoinMember]]]
"""Queries that are finished together: how their results are told apart, and they by the numbers that tables have."""


def alike_members(members: Sequence[JoinMember]) -> AlikeMembers:
    """Queries with the same keys, aggregates and list above them together."""
    found: dict[tuple[object, ...], tuple[ResultGrouping, dict[int, JoinMember]]] = {}
    for number, member in enumerate(members):
        grouping = ResultGrouping(member.keys, member.counted)
        found.setdefault((grouping, member.calls, member.above), (grouping, {}))[1][number] = member
    return tuple(found.values())


def combine(alike: AlikeMembers, read: Mapping[ResultGrouping, Sequence[pa.Table]]) -> list[Batch]:
    """The aggregates' elements of all queries that have any."""
    found = []
    for grouping, members in alike:
        tables = [t for t in read.get(grouping, ()) if t.num_rows]
        if tables:
            batch = _batch(list(members.values()), list(members), grouping, tables)
            if len(batch):
                found.append(batch)
    return found


def _batch(
    members: Sequence[JoinMember], numbers: Sequence[int], grouping: ResultGrouping, tables: Sequence[pa.Table]
) -> Batch:
    """The answers of alike queries, one query after the other, each in time order."""
    place = np.full(max(int(ints(t, "query").max()) for t in tables) + 1, -1, np.int64)
    known = [n for n in numbers if n < len(place)]
    place[known] = np.arange(len(known))
    mine = [t if (k := place[ints(t, "query")] >= 0).all() else t.filter(pa.array(k)) for t in tables]
    mine = [t for t in mine if t.num_rows]
    names = [m.name for m in members]
    if not mine:
        return Batch(names, np.zeros(len(names), np.int64), Elements.empty({}))
    slide = np.array([m.slide for m in members], np.int64)
    mine = _aligned(mine, place, slide)
    owner = place[np.concatenate([ints(t, "query") for t in mine])]
    ts, until = (np.concatenate([ints(t, c) for t in mine]) for c in ("ts", "until"))
    keys = {k: _column(mine, f"key|{k}") for k in members[0].key_names}
    at, of_row, count = _points(owner, ts, keys, len(mine) > 1 or bool(grouping.counted))
    columns = {k: a.take(pa.array(at)) for k, a in keys.items()}
    lowered = (
        _counted(members[0], mine, of_row, count) if grouping.counted else _summed(members[0], mine, of_row, count)
    )
    columns |= {call.output: answer.build(slice(None)) for call, answer in lowered}
    whose, when = owner[at], ts[at]
    rows = Elements(when, until[at], np.ones(len(when), np.int8), columns)
    counts = np.bincount(whose, minlength=len(names)).astype(np.int64)
    stretched = bool((rows.exp - rows.ts > slide[whose]).any())
    return Batch(names, counts, rows, periods=slide if stretched else None)


def _aligned(tables: list[pa.Table], place: Int64s, slide: Int64s) -> list[pa.Table]:
    """The tables with every row of a query cut at all instants at which one of its rows begins or ends."""
    owner, ts, until = (np.concatenate([ints(t, c) for t in tables]) for c in ("query", "ts", "until"))
    if not (until - ts > slide[place[owner]]).any():
        return tables
    whose = np.concatenate((owner, owner))
    points = np.unique(np.stack((whose, np.concatenate((ts, until))), axis=1), axis=0)  # by query, then by time
    bounds = {q: points[points[:, 0] == q, 1] for q in distinct_values(owner).tolist()}
    found = []
    for table in tables:
        query, begin, end = (ints(table, c) for c in ("query", "ts", "until"))
        low, high = np.zeros(len(query), np.int64), np.zeros(len(query), np.int64)
        for q in distinct_values(query).tolist():
            mine = np.flatnonzero(query == q)
            low[mine], high[mine] = (np.searchsorted(bounds[q], t[mine]) for t in (begin, end))
        base = np.searchsorted(points[:, 0], query)
        at = expand(base + low, high - low)
        cut = table.take(pa.array(np.repeat(np.arange(len(query)), high - low)))
        for name, times in (("ts", points[at, 1]), ("until", points[at + 1, 1])):
            cut = cut.set_column(cut.column_names.index(name), name, pa.array(times))
        found.append(cut)
    return found


def _column(tables: Sequence[pa.Table], name: str) -> pa.Array:
    return pa.concat_arrays([one(t.column(name)) for t in tables])


def _points(owner: Int64s, ts: Int64s, keys: Mapping[str, pa.Array], several: bool) -> tuple[Int64s, Int64s, int]:
    """Windows and groups in the order of queries and times: (a row of each, the point of every row, how many)."""
    if several:
        codes, first = factorize([pa.array(owner), pa.array(ts), *keys.values()], len(ts))
    else:
        codes = first = np.arange(len(ts))
    order = np.lexsort((ts[first], owner[first]))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return first[order], rank[codes], len(order)


def _summed(
    member: JoinMember, tables: Sequence[pa.Table], of_row: Int64s, count: int
) -> list[tuple[Aggregation, PointValues]]:
    arguments = {name_of(a): a[1].type for a in member.arguments}
    rows = _added(np.concatenate([ints(t, "rows") for t in tables]).reshape(-1, 1), of_row, count)[:, 0]
    lowered: dict[str, Lowering] = {}
    found: list[tuple[Aggregation, PointValues]] = []
    for call in member.calls:
        if call.column is None:
            answer = scalars(rows, None, call.type)
        elif call.kind in EXTREMES:
            answer = _best(tables, call.column, call.kind == "min", of_row, count, arguments[call.column], call.type)
        else:
            if call.column not in lowered:
                parts = [_lanes(t, call.column) for t in tables]
                layout = SumLanes()
                for _, mine in parts:
                    layout = layout.union(mine)
                lanes = np.concatenate([relaid(m, mine, layout) for m, mine in parts])
                lanes = _added(lanes, of_row, count)
                lowered[call.column] = Lowering(lanes, layout, arguments[call.column], rows)
            answer = lowered[call.column].answer(call)
        found.append((call, answer))
    return found


def _added(lanes: Int64s, of_row: Int64s, count: int) -> Int64s:
    if len(lanes) == count:
        out = np.empty_like(lanes)
        out[of_row] = lanes
        return out
    out = np.zeros((count, lanes.shape[1]), np.int64)
    np.add.at(out, of_row, lanes)
    return out


def _best(
    tables: Sequence[pa.Table], column: str, least: bool, of_row: Int64s, count: int, type_: pa.DataType,
    to: pa.DataType,
) -> PointValues:  # fmt: skip
    mark = "least" if least else "greatest"
    codes = np.concatenate([ints(t, f"{mark}|{column}") for t in tables])
    some = np.concatenate([ints(t, f"{mark}?|{column}") for t in tables])
    best, any_ = np.full(count, np.iinfo(np.int64).min), np.zeros(count, np.bool_)
    np.maximum.at(best, of_row[some], codes[some])
    any_[of_row[some]] = True
    best = np.where(any_, best, 0)
    return coded(~best if least else best, None if any_.all() else any_, CodeOrder(type_), to)


def _lanes(table: pa.Table, column: str) -> tuple[Int64s, SumLanes]:
    """The lanes of one argument, and their layout."""
    ending = f"|{column}"
    names = [n[: -len(ending)] for n in table.column_names if n.endswith(ending)]
    layout = SumLanes.of_names([n for n in names if n not in _MARKS])
    lanes = np.zeros((table.num_rows, layout.width), np.int64)
    for k, name in enumerate(layout.names()):
        lanes[:, k] = ints(table, name + ending)
    return lanes, layout


def _counted(
    member: JoinMember, tables: Sequence[pa.Table], of_row: Int64s, count: int
) -> Iterable[tuple[Aggregation, PointValues]]:
    """Functions of values, from how often each occurs in a window and group."""
    values = {name_of(a): _column(tables, f"value|{name_of(a)}") for a in member.counted}
    rows = np.concatenate([ints(t, "rows") for t in tables])
    sweep = sweep_of(of_row, np.zeros(len(of_row), np.int64), np.arange(len(of_row)), rows)
    partials = Partials(member.calls, {n: a.type for n, a in values.items()}, strict=True)
    partials.grow(count)
    _, answers = partials.advance(sweep, values, None, 0)
    order = np.argsort(sweep.slots, kind="stable")
    points = sweep.last[order]
    for call, answer in zip(member.calls, answers, strict=True):
        yield call, PointValues(answer.keys, answer.valid, lambda _, a=answer: a.build(points))  # type: ignore[misc]
