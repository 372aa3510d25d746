"""Sinks of an engine: made from options, checked against the query, and attached between two ticks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.catalog import SinkDef
from windrow.errors import BindingError, UnsupportedError, WindrowError
from windrow.plan.nodes import QueryPlan
from windrow.runtime.change import Change
from windrow.sinks import RelationSink, Sink, outbox_bytes, parse_sink
from windrow.sinks.memory import CallbackSink

if TYPE_CHECKING:
    from windrow.engine.engine import Engine

LOG = logging.getLogger("windrow.engine")


class UnavailableSink:
    """A declared sink that cannot be made now: it takes nothing, and says why."""

    def __init__(self, error: WindrowError) -> None:
        self._error = error

    def write(self, query: str, tick: int, table: pa.Table) -> None:
        """Say why not."""
        raise self._error

    def close(self) -> None:
        """Nothing is open."""


def made_sink(kind: str, options: Mapping[str, Any], plan: QueryPlan | None, owner: str) -> Sink:
    """The sink that options describe, if it can take the answers of the query."""
    made: Sink
    if kind == "callback":
        made = CallbackSink(options["fn"])
    else:  # a home's ticks are its own, whoever else writes to the same server
        made = parse_sink({"sink": kind, **options}, owner=owner)
    if isinstance(made, RelationSink):
        if plan is None:
            raise UnsupportedError("a declared sink with mode upsert for queries from a template", hint="use append")
        if not plan.has_op:
            raise BindingError(
                f'the answer of query "{plan.name}" is a stream, which has no rows to replace',
                hint="use mode append, or leave the stream operator or SLIDE out",
            )
        made.check(plan.name, [shown for shown, _ in plan.output])
    return made


def attach(engine: Engine, key: str, kind: str, made: Sink, name: str | None, bound: int | None) -> None:
    """Write a query's answers to a sink from the next tick on; one that holds a relation begins with it as it is."""
    with engine.runtime.between_ticks():
        attached = engine.runtime.declared.outbox.attach(key, kind, made, name, bound)
        if isinstance(made, RelationSink):
            attached.fill(*engine[key].as_of_tick())


def declared_sinks(engine: Engine, change: Change) -> dict[str, Sink]:
    """The sinks that a change declares, made before anything is changed."""
    owner = engine.runtime.store.identity
    plans = change.catalog.queries
    for definition in change.sinks.values():
        outbox_bytes(definition.options.get("outbox"))
    return {
        key: made_sink(d.kind, _without_bound(d), plans.get(d.query.lower()), owner)
        for key, d in change.sinks.items()
    }  # fmt: skip


def attach_declared(engine: Engine, definition: SinkDef, made: Sink | None = None) -> None:
    """Attach a declared sink; at a restart one that cannot be made is attached all the same, and says why."""
    key = definition.query.lower()
    if made is None:
        try:
            plan = engine.catalog.queries.get(key)
            made = made_sink(definition.kind, _without_bound(definition), plan, engine.runtime.store.identity)
        except WindrowError as error:
            LOG.error("sink %s: %s", definition.name, error)
            made = UnavailableSink(error)
    attach(engine, key, definition.kind, made, definition.name, outbox_bytes(definition.options.get("outbox")))


def detach_declared(engine: Engine, definition: SinkDef) -> None:
    """Write to a declared sink no longer; one whose query is gone has gone with it."""
    if definition.query.lower() in engine.runtime.declared.outlets:
        engine.runtime.declared.outbox.detach(definition.query.lower(), definition.name)


def _without_bound(definition: SinkDef) -> dict[str, str]:
    return {k: v for k, v in definition.options.items() if k.lower() != "outbox"}
