"""Answers of the past: what a query with KEEP has answered, by time, and its relation as of an instant; and what a
periodic query answered at its last evaluation."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from windrow.catalog import Catalog
from windrow.errors import BindingError, StateError, UnsupportedError
from windrow.operators.elements import BEGINNING, Int64s, one
from windrow.plan.nodes import Emit, QueryPlan, StreamOp
from windrow.runtime.answer_metadata import with_answer_metadata
from windrow.runtime.instances import TemplateGroup
from windrow.runtime.outlet import Outlet
from windrow.runtime.question_plans import Extra, Travels
from windrow.runtime.state_reader import StateReader
from windrow.sinks.answer_log import AnswerLog

_EPOCH = datetime(1970, 1, 1)


def kept_log(plan: QueryPlan, outlet: Outlet) -> AnswerLog:
    """The kept answers of a query, or a refusal."""
    if outlet.log is None:
        raise UnsupportedError(
            f'the answers of "{plan.name}" are not kept',
            hint=f"write CREATE QUERY {plan.name} AS SELECT ... KEEP 7 DAYS",
        )
    return outlet.log


def instant_of(at: int | datetime, time_type: pa.DataType) -> int:
    """An instant in units of a clock: microseconds, or ticks."""
    if isinstance(at, datetime):
        if pa.types.is_integer(time_type):
            raise BindingError(f"{at} is a time, and this clock counts ticks", hint="give a number of ticks")
        plain = at.astimezone(UTC).replace(tzinfo=None) if at.tzinfo is not None else at
        return int((plain - _EPOCH).total_seconds()) * 1_000_000 + plain.microsecond
    try:
        return operator.index(at)
    except TypeError:
        hint = "give a number of ticks" if pa.types.is_integer(time_type) else "give a datetime, or microseconds"
        raise BindingError(f"{at!r} is no instant", hint=hint) from None


def past_answers(
    travels: Travels, catalog: Catalog, outlets: Mapping[str, Outlet], answered: Callable[[], int]
) -> dict[str, Extra]:
    """The tables that `FROM q AS OF ...` names; `answered` waits until what is committed has been kept."""
    return {name.lower(): _table(query, at, catalog, outlets, answered) for name, (query, at) in travels.items()}


def _table(
    query: str, at: int | datetime, catalog: Catalog, outlets: Mapping[str, Outlet], answered: Callable[[], int]
) -> Extra:
    plan = catalog.queries.get(query.lower())
    if plan is None:
        raise BindingError(f'query "{query}" does not exist', hint="AS OF reads the kept answers of a query")
    if plan.root.op not in (StreamOp.RELATION, StreamOp.RSTREAM):
        raise UnsupportedError(
            f'"{plan.name}" has no relation to look at', hint="its answers are a stream: read them with results(since=)"
        )
    log = kept_log(plan, outlets[query.lower()])
    instant = instant_of(at, plan.time_type)
    columns = _columns(plan)

    def read(_: QueryPlan, state: StateReader, check: Callable[[], None]) -> pa.Table:
        answered()
        reached = min(instant, state.frontier)
        return with_answer_metadata(log.as_of(reached).select(list(columns)), reached)

    return Extra(columns, read)


def _columns(plan: QueryPlan) -> dict[str, pa.DataType]:
    return {shown: plan.root.schema[internal] for shown, internal in plan.output}


def last_answers(
    names: Collection[str], catalog: Catalog, read: Callable[[StateReader, str], pa.Table]
) -> dict[str, Extra]:
    """The periodic queries among these names, as tables that hold their last answers."""
    found = {}
    for key in names:
        plan = catalog.queries.get(key)
        if plan is not None and plan.emit.op is StreamOp.RSTREAM and plan.emit.period is not None:
            found[key] = Extra(_columns(plan), lambda _, state, check, key=key: read(state, key))  # type: ignore[misc]
    return found


def last_instant(emit: Emit, frontier: int, done: int | None) -> int:
    """When a periodic query was evaluated last by a frontier; `done`: of one that may be late, the newest of all."""
    assert emit.period is not None
    if done is not None and done <= frontier:
        return done
    return (frontier - emit.offset) // emit.period * emit.period + emit.offset


def last_answer(plan: QueryPlan, outlet: Outlet, instant: int) -> pa.Table:
    """What a periodic query answered at its last evaluation."""
    if instant > outlet.recent.since:
        rows = outlet.recent.table()
        return rows.filter(pa.array(_times(rows) == instant)).select(list(_columns(plan)))
    if outlet.log is not None:
        return outlet.log.as_of(instant).select(list(_columns(plan)))
    raise _not_at_hand(plan.name)


def group_answers(
    names: Collection[str], groups: Mapping[str, TemplateGroup], read: Callable[[StateReader, str], pa.Table]
) -> dict[str, Extra]:
    """The queries from templates among these names, as tables: the values of the parameters, then the SELECT list."""
    found = {}
    for key, group in ((k, groups[k]) for k in names if k in groups):
        if group.plan.emit.op not in (StreamOp.RELATION, StreamOp.RSTREAM):
            raise UnsupportedError(
                f'"{group.name}" has no relation to look at',
                hint=f'its answers are a stream: read them with engine["{group.name}"].results()',
            )
        shown = [f for f in group.empty.schema if f.name not in ("_ts", "_op")]
        columns = {f.name: f.type for f in shown}
        twice = next((f.name for i, f in enumerate(shown) if f.name in [g.name for g in shown[:i]]), None)
        if twice is not None:
            raise UnsupportedError(
                f'"{group.name}" has two columns "{twice}"',
                detail="a parameter has the name of a selected column",
                hint=f"select it in the template AS something else than {twice}",
            )
        found[key] = Extra(columns, lambda _, state, check, key=key: read(state, key))  # type: ignore[misc]
    return found


def last_answers_of(group: TemplateGroup, outlet: Outlet, instants: Mapping[int, int]) -> pa.Table:
    """What every instance of a template answered at its last evaluation; `instants`: by the instances' numbers."""
    shown = [f.name for f in group.empty.schema if f.name != "_ts"]
    numbers = np.array(sorted(instants), np.int64)
    last = np.array([instants[n] for n in numbers.tolist()], np.int64)
    rows = outlet.recent.table()
    if len(last) and last.min() <= outlet.recent.since:  # some were evaluated before what is remembered
        if outlet.log is None:
            raise _not_at_hand(group.name)
        rows = outlet.log.results(int(last.min()), int(last.max()) + 1)
    mine = group.numbers(rows.select(list(group.template.parameters)))
    at = np.searchsorted(numbers, mine)
    there = np.append(numbers, -1)[at] == mine
    instant = np.append(last, BEGINNING)[at]
    return rows.filter(pa.array(there & (mine >= 0) & (_times(rows) == instant))).select(shown)


def _times(rows: pa.Table) -> Int64s:
    found: Int64s = one(rows.column("_ts").cast(pa.int64())).to_numpy()
    return found


def _not_at_hand(name: str) -> StateError:
    return StateError(
        f'query "{name}" has not been evaluated since it is here',
        detail="its answers before are with its sinks",
        hint="ask after its next period; with KEEP its answers are at hand after a restart too",
    )
