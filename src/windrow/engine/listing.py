"""What is declared, as tables: the answers of SHOW and DESCRIBE.

SHOW has a row for each declaration, with the text that would declare it now; DESCRIBE has a row for each thing that is
known of one: `property` says what (column, added (a column that came by ALTER), time, key, source, option, reads,
read by, ...), `name` of what, `value` the rest. Both look at the catalog alone, as it is where the statement stands in
its script. Options that hold secrets are shown without their values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from windrow.catalog import (
    ArchiveDef,
    Catalog,
    QueriesDef,
    SinkDef,
    SqlFunctionDef,
    StreamDef,
    TableDef,
    TemplateDef,
    ViewDef,
)
from windrow.cql.types import sql_name
from windrow.plan.nodes import QueryPlan
from windrow.plan.words import duration
from windrow.scalar_engine import literal, quote

PRIVATE = ("password", "secret", "token", "dsn", "jaas", "credential", "sasl", "keystore", "private")
"""Options of sources and sinks whose values are not shown."""

Fact = tuple[str, str, str | None]
_FACTS = pa.schema([("property", pa.string()), ("name", pa.string()), ("value", pa.string())])
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def show(catalog: Catalog, kind: str, like: str | None = None) -> pa.Table:
    """A row for each declaration of a kind (streams, tables, ...), by names like a pattern, case aside."""
    fields, rows = _listed(catalog, kind)
    found = [r for r in rows if like is None or _is_like(r[0], like)]
    columns = list(zip(*found, strict=True)) or [()] * len(fields)
    return pa.table([pa.array(list(c), t) for c, t in zip(columns, fields.values(), strict=True)], names=list(fields))


def describe(catalog: Catalog, kind: str, name: str) -> pa.Table:
    """A row for each thing that is known of one declaration."""
    rows = list(_facts(catalog, kind, name.lower()))
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(list(c), pa.string()) for c in columns], schema=_FACTS)


def _listed(catalog: Catalog, kind: str) -> tuple[dict[str, pa.DataType], list[tuple[Any, ...]]]:
    """The columns of an answer of SHOW, and its rows."""
    text, texts = pa.string(), pa.list_(pa.string())
    match kind:
        case "streams":
            return {"name": text, "columns": texts, "time": text, "source": text, "text": text}, [
                (s.name, list(s.columns), s.time, s.options.get("source"), stream_text(s))
                for s in catalog.streams.values()
            ]
        case "tables":
            return {"name": text, "columns": texts, "source": text, "text": text}, [
                (t.name, list(t.columns), t.options.get("source"), table_text(t)) for t in catalog.tables.values()
            ]
        case "queries":
            own = [
                (q.name, [n for n, _ in q.output], _reads(q), catalog.sinks_of(q.name), q.text)
                for q in catalog.queries.values()
            ]
            groups = [
                (g.name, list(g.parameters), [g.template, *([g.table] if g.table else [])], catalog.sinks_of(g.name),
                 queries_text(g))
                for g in catalog.groups.values()
            ]  # fmt: skip
            return {"name": text, "columns": texts, "reads": texts, "sinks": texts, "text": text}, own + groups
        case "sinks":
            return {"name": text, "query": text, "kind": text, "text": text}, [
                (s.name, s.query, s.kind, sink_text(s)) for s in catalog.sinks.values()
            ]
        case "functions":
            return {"name": text, "parameters": texts, "returns": text, "text": text}, [
                *((f.name, None, sql_name(f.returns), None) for f in catalog.functions.values()),
                *((f.name, list(f.parameters), None, f.text) for f in catalog.macros.values()),
            ]
        case "templates":
            return {"name": text, "parameters": texts, "text": text}, [
                (t.name, list(t.parameters), t.text) for t in catalog.templates.values()
            ]
        case "archives":
            return {"name": text, "columns": texts, "key": texts, "reads": texts, "text": text}, [
                (a.name, list(a.columns), list(a.keys), _reads(a.plan), a.plan.text)
                for a in catalog.archives.values()
            ]  # fmt: skip
    return {"name": text, "columns": texts, "reads": texts, "text": text}, [
        (v.name, list(v.columns), _reads(v.plan), v.plan.text) for v in catalog.views.values()
    ]


def _facts(catalog: Catalog, kind: str, key: str) -> Iterator[Fact]:
    item: Any = {**catalog.kinds(), "function": {**catalog.functions, **catalog.macros}}[kind][key]
    yield (kind, item.name, _text(item))
    match item:
        case StreamDef():
            yield from _columns(item.columns)
            yield from (("added", column, None) for column in item.added)
            yield ("time", item.time, sql_name(item.time_type))
            yield from _options(item.options)
        case TableDef():
            yield from _columns(item.columns)
            yield from (("added", column, None) for column in item.added)
            if item.valid is not None:
                yield from (("valid", c, w) for c, w in zip(item.valid, ("from", "to"), strict=True))
            yield from (("key", k, None) for k in item.keys)
            if item.changes is not None:
                yield ("changes", ".".join(item.changes.op), item.changes.text())
            yield from _options(item.options)
        case QueryPlan():
            yield from _columns({shown: item.root.schema[column] for shown, column in item.output})
            yield ("answer", item.root.op.name.lower(), None)
        case ViewDef():
            yield from _columns(item.columns)
            yield from (("reads", name, None) for name in _reads(item.plan))
        case ArchiveDef():
            yield from _columns(item.columns)
            yield from (("key", k, None) for k in item.keys)
            yield from (("reads", name, None) for name in _reads(item.plan))
        case TemplateDef() | QueriesDef():
            yield from (("parameter", n, sql_name(t)) for n, t in item.parameters.items())
        case SqlFunctionDef():
            yield from (("parameter", n, t) for n, t in item.parameters.items())
            yield from (("called by", name, None) for _, name in catalog.dependents(kind, item.name))
        case SinkDef():
            yield ("query", item.query, None)
            yield from _options(item.options)
    if isinstance(item, QueryPlan):
        yield from (("reads", name, None) for name in _reads(item))
    if kind in ("stream", "table", "view", "query"):
        yield from (("read by", name, None) for name in catalog.readers(item.name))
    if kind in ("query", "queries"):
        yield from (("sink", name, None) for name in catalog.sinks_of(item.name))


def _reads(plan: QueryPlan) -> list[str]:
    return [*plan.over, *plan.streams, *plan.tables]


def _columns(columns: Mapping[str, pa.DataType]) -> Iterator[Fact]:
    return (("column", name, sql_name(type_)) for name, type_ in columns.items())


def shown_options(options: Mapping[str, str]) -> dict[str, str]:
    """Options with secrets hidden."""
    return {k: "•••" if any(p in k.lower() for p in PRIVATE) else v for k, v in options.items()}


def _options(options: Mapping[str, str]) -> Iterator[Fact]:
    return (("source" if k == "source" else "option", k, v) for k, v in shown_options(options).items())


def _is_like(name: str, pattern: str) -> bool:
    """LIKE without regard to case: % any text, _ one character."""
    parts = re.split("([%_])", pattern)
    written = "".join({"%": ".*", "_": "."}.get(p, re.escape(p)) for p in parts)
    return re.fullmatch(written, name, re.IGNORECASE | re.DOTALL) is not None


def _text(item: Any) -> str | None:
    """The statement that declares something; of a Python function there is none."""
    match item:
        case StreamDef():
            return stream_text(item)
        case TableDef():
            return table_text(item)
        case SinkDef():
            return sink_text(item)
        case QueriesDef():
            return queries_text(item)
        case ArchiveDef() | ViewDef():
            return item.plan.text
        case QueryPlan() | TemplateDef() | SqlFunctionDef():
            return item.text
    return None


def stream_text(s: StreamDef) -> str:
    """The CREATE STREAM that declares a stream; lengths are in seconds, or in ticks."""
    seconds = pa.types.is_timestamp(s.time_type)
    clauses = [f"TIMESTAMP BY {_name(s.time)}{' AS PROCTIME()' * s.proctime}"]
    clauses += [f"WITHIN {_length(s.slack, seconds)}"] if s.within else []
    clauses += [f"IDLE AFTER {_length(s.idle_after, True)}"] if s.idle_after is not None else []
    clauses += [f"AHEAD {_length(s.ahead, True)}"] if s.ahead is not None else []
    clauses += [f"RETAIN {_length(s.retain, seconds)}"] if s.retain is not None else []
    clauses += ["ON ERROR QUARANTINE"] if s.quarantine else []
    return " ".join([f"CREATE STREAM {_name(s.name)} {_declared(s.columns)}", *clauses, *_from(s.options)])


def table_text(t: TableDef) -> str:
    """The CREATE TABLE that declares a table."""
    clauses = ["RETROACTIVE"] if t.retroactive else []
    clauses += [f"VALID FROM {_name(t.valid[0])} TO {_name(t.valid[1])}"] if t.valid else []
    clauses += [f"KEY ({', '.join(_name(k) for k in t.keys)})"] if t.keys else []
    clauses += [t.changes.text()] if t.changes is not None else []
    clauses += ["ON ERROR QUARANTINE"] if t.quarantine else []
    return " ".join([f"CREATE TABLE {_name(t.name)} {_declared(t.columns)}", *clauses, *_from(t.options)])


def sink_text(s: SinkDef) -> str:
    """The CREATE SINK that declares a sink."""
    options = f" {_written(s.options)}" if s.options else ""
    return f"CREATE SINK {_name(s.name)} FOR {_name(s.query)} TO {s.kind}{options}"


def queries_text(g: QueriesDef) -> str:
    """The CREATE QUERIES of queries from a template, with how many there are instead of their values."""
    rows = f"USING TABLE {_name(g.table)}" if g.table else f"VALUES /* {len(g.instances):,} */"
    return f"CREATE QUERIES {_name(g.name)} FROM TEMPLATE {_name(g.template)} {rows}"


def _declared(columns: Mapping[str, pa.DataType]) -> str:
    return "(" + ", ".join(f"{_name(n)} {sql_name(t)}" for n, t in columns.items()) + ")"


def _from(options: Mapping[str, str]) -> Iterable[str]:
    rest = {k: v for k, v in options.items() if k != "source"}
    if "source" in options:
        return [f"FROM {options['source']}" + (f" {_written(rest)}" if rest else "")]
    return [f"WITH {_written(rest)}"] if rest else []


def _written(options: Mapping[str, str]) -> str:
    return "(" + ", ".join(f"{_name(k)} => {literal(v)}" for k, v in shown_options(options).items()) + ")"


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else quote(name)


def _length(value: int, seconds: bool) -> str:
    """A length of time as a script writes it.

    >>> _length(1_500_000, True), _length(60_000_000, True), _length(7, False)
    ('1500 ms', '1 min', '7')
    """
    return duration(value, 1_000_000) if seconds else str(value)
