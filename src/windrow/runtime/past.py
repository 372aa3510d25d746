"""Answers of the past: what a query with KEEP has answered, by time, and its relation as of an instant; and what a
periodic query answered at its last evaluation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime

import pyarrow as pa

from windrow.catalog import Catalog
from windrow.errors import BindingError, StateError, UnsupportedError
from windrow.operators.elements import BEGINNING, one
from windrow.plan.nodes import QueryPlan, StreamOp
from windrow.runtime.outlet import Outlet
from windrow.runtime.question_plans import Extra, Travels
from windrow.runtime.view import StateReader
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
    return int(at)


def past_answers(travels: Travels, catalog: Catalog, outlets: Mapping[str, Outlet]) -> dict[str, Extra]:
    """The tables that `FROM q AS OF ...` names."""
    return {name.lower(): _table(query, at, catalog, outlets) for name, (query, at) in travels.items()}


def _table(query: str, at: int | datetime, catalog: Catalog, outlets: Mapping[str, Outlet]) -> Extra:
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
    return Extra(columns, lambda *_: log.as_of(instant).select(list(columns)))


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


def last_answer(plan: QueryPlan, outlet: Outlet, frontier: int) -> pa.Table:
    """What a periodic query answered at its last evaluation at or before a frontier."""
    emit, rows = plan.emit, outlet.recent.table()
    assert emit.period is not None
    ts = one(rows.column("_ts").cast(pa.int64())).to_numpy()
    instant = (frontier - emit.offset) // emit.period * emit.period + emit.offset
    if emit.at_most:  # evaluated whenever there was time for it
        instant = int(ts[ts <= frontier].max(initial=BEGINNING))
    if instant > outlet.recent.since:
        return rows.filter(pa.array(ts == instant)).select(list(_columns(plan)))
    if outlet.log is not None:
        return outlet.log.as_of(instant).select(list(_columns(plan)))
    raise StateError(
        f'query "{plan.name}" has not been evaluated since it is here',
        detail="its answers before are with its sinks",
        hint="ask after its next period; with KEEP its answers are at hand after a restart too",
    )
