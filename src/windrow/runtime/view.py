"""Looking into a manifest: the rows that streams have kept and the relations that queries stand at.

Everything comes from runs that the manifest names and that are never changed, so ticks go on meanwhile.
"""

from __future__ import annotations

import pyarrow as pa

from windrow.catalog import StreamDef
from windrow.operators.elements import Elements, concat
from windrow.operators.quality import Quality
from windrow.operators.standing import relation_of
from windrow.operators.star_join import StarJoin, quality_of
from windrow.operators.state.run import elements_of
from windrow.plan.dataflow import answer
from windrow.plan.nodes import Emit, QueryPlan, Scan, StreamOp
from windrow.runtime.program import QueryProgram
from windrow.runtime.task_state import WAITING
from windrow.store.manifest import Manifest
from windrow.store.store import Store


def kept_name(stream: str) -> str:
    """The name of the query that keeps a stream's history: one no user can give."""
    return f"~{stream.lower()}"


def kept_plan(stream: StreamDef) -> QueryPlan:
    """The bare scan behind a stream's history."""
    key = stream.name.lower()
    columns = tuple((f"{key}.{c}", c, t) for c, t in stream.columns.items())
    scan = Scan(stream.name, key, columns, stream.time)
    output = tuple((c, internal) for internal, c, _ in columns)
    return QueryPlan(kept_name(key), Emit(scan, StreamOp.RELATION), output, stream.time_type)


def kept_rows(store: Store, manifest: Manifest, stream: StreamDef, *, waiting: bool = False) -> pa.Table:
    """The rows a stream has kept, in the order of their time; with those that wait for the frontier, if asked."""
    key = stream.name.lower()
    empty = pa.schema(list(stream.columns.items())).empty_table()
    parts = []
    for (_, _, query, slot), refs in manifest.runs.items():
        if query == kept_name(key) and (waiting or not slot.startswith(WAITING)):
            parts += [elements_of(store.read_run(r), "_hash") for r in refs]
    if not parts:
        return empty
    rows = concat(parts)
    if manifest.frontier is not None:
        rows = rows.filter(rows.exp > manifest.frontier)
    return pa.table({n: rows.columns[f"{key}.{n}"] for n in stream.columns}).sort_by(stream.time)


def star_quality(store: Store, query: QueryProgram) -> Quality | None:
    """What the joins of a query that shed when memory is short have kept, all partitions together; None: it has
    none."""
    slots = {f"{i}/figures" for i, s in enumerate(query.layout.flow.steps) if isinstance(s.operator, StarJoin)}
    if not slots:
        return None
    name = query.plan.name.lower()
    with store.snapshot() as manifest:
        found = manifest.runs.items() if manifest is not None else ()
        runs = [store.read_run(r) for (_, _, q, s), refs in found if q == name and s in slots for r in refs]
        return quality_of(runs)


def relation(store: Store, manifest: Manifest, query: QueryProgram) -> pa.Table:
    """The rows of a relation-valued query at the manifest's frontier."""
    steps = query.layout.flow.steps
    name, slot = query.plan.name.lower(), f"{len(steps) - 1}/rows"
    runs = [store.read_run(r) for (_, _, q, s), refs in manifest.runs.items() if (q, s) == (name, slot) for r in refs]
    rows = relation_of(runs) or Elements.empty(steps[-1].schema)
    return answer(query.plan, rows).drop_columns(["_ts", "_op"])
