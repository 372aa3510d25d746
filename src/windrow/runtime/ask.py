"""One-time queries: the same language and operators, at one instant.

Streams are seen through their kept rows and relation-valued queries as tables, all of one moment. The clock starts and
ends there, so the answer is Q(now).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import pyarrow as pa

from windrow.catalog import Catalog, TableDef
from windrow.errors import BindingError, UnsupportedError
from windrow.operators.elements import one
from windrow.optimize import optimize
from windrow.plan.dataflow import Circuit
from windrow.plan.nodes import QueryPlan, Scan, StreamOp, Window, WindowKind, walk
from windrow.runtime.view import View
from windrow.sources.intake import times


def ask(
    text: str,
    catalog: Catalog,
    view: View,
    tables: Mapping[str, pa.Table],
    functions: Mapping[str, Callable[..., object]],
) -> pa.Table:
    """The answer of a SELECT now."""
    from windrow import cql

    relations = {k: q for k, q in catalog.queries.items() if q.has_op}
    views = {k: TableDef(q.name, {shown: q.root.schema[c] for shown, c in q.output}) for k, q in relations.items()}
    seen = Catalog(catalog.streams, MappingProxyType({**catalog.tables, **views}), functions=catalog.functions)
    plan = optimize(cql.compile_select(text, seen, "ask", one_time=True), seen)
    if plan.root.op is not StreamOp.RELATION:
        raise UnsupportedError(
            "a one-time query has no stream operator and no SLIDE", hint="it is answered once, as of now"
        )
    _check_reach(plan, catalog, view)
    read = {t: view.snapshot(t) if t in relations else tables[t] for t in (n.lower() for n in plan.tables)}
    circuit = Circuit(plan, functions, read)
    circuit.start(view.frontier)

    def feed(stream: str):  # type: ignore[no-untyped-def]
        rows = view.history(stream)
        return times(catalog.streams[stream], rows), {n: one(rows.column(n)) for n in rows.column_names}

    elements = circuit.advance(feed, view.frontier)
    return circuit.answer(elements).drop_columns(["_ts", "_op"])


def _check_reach(plan: QueryPlan, catalog: Catalog, view: View) -> None:
    for node in walk(plan.root):
        if not (isinstance(node, Window) and isinstance(node.input, Scan)):
            continue
        stream = catalog.streams[node.input.stream.lower()]
        kept = view.reach(node.input.stream.lower())
        size = {WindowKind.RANGE: node.spec.size, WindowKind.NOW: 1}.get(node.spec.kind)
        if size is None or size > kept:
            raise BindingError(
                f'stream "{stream.name}" does not keep enough history for {node.spec.text or "this window"}',
                detail=f"it keeps {kept} {'ticks' if pa.types.is_integer(stream.time_type) else 'microseconds'}",
                hint="declare it with RETAIN, or ask a registered query",
            )
