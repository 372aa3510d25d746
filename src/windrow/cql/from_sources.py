"""What stands in FROM by itself: streams with their windows, tables, and subqueries.

Every stream reference becomes Scan -> Window, and every input that changes with time gets a `Quantise` when the block
is periodic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from windrow.catalog import StreamDef, TableDef
from windrow.cql import windows
from windrow.cql.bounds import NAMES as BOUNDS
from windrow.cql.dialect import AS_OF
from windrow.cql.emission import as_stream, settled
from windrow.cql.joins import JoinInput
from windrow.cql.nesting import common_table
from windrow.cql.scope import INSTANT, Entry, Scope, ScopeColumn, did_you_mean, offset_of, span_of
from windrow.cql.shapes import BlockShape, shape_of, stands_alone, window_of
from windrow.cql.windows import Clock, WindowClause
from windrow.errors import BindingError, UnsupportedError
from windrow.plan.expr import Expr, Ref, column
from windrow.plan.nodes import (
    Node,
    Project,
    Quantise,
    Scan,
    Session,
    TableScan,
    Window,
    WindowKind,
    WindowSpec,
)

if TYPE_CHECKING:
    from windrow.cql.select import Binder

_UNBOUNDED = WindowSpec(WindowKind.UNBOUNDED)
_NAMED = 8  # so many names are told to who wrote another
_REFUSED = {
    "pivots": (
        "PIVOT or UNPIVOT",
        "list the columns in a subquery, FROM (SELECT a, k FROM s) PIVOT (SUM(a) FOR k IN (1, 2)), or "
        "write one aggregate for each column: COUNT(*) FILTER (WHERE status = 200) AS ok; for UNPIVOT, "
        "SELECT 'a' AS k, a AS v FROM s UNION ALL SELECT 'b', b FROM s",
    ),
    "sample": ("TABLESAMPLE", "choose rows by their values, such as WHERE hash(id) % 10 = 0"),
    "laterals": ("LATERAL VIEW of this function", "LATERAL VIEW explode(l) t AS x is known, and UNNEST(l)"),
    "version": ("FOR SYSTEM_TIME AS OF", "tables are met as they are when a row comes; remove it"),
    "when": ("a version", None),
    "hints": ("a hint", "remove it"),
}
"""What stands behind a table elsewhere, and what to write here."""


class SourceBinder:
    """Binds the parts of one FROM."""

    def __init__(self, scope: Scope, shape: BlockShape, binder: Binder) -> None:
        self.scope, self.shape, self.binder = scope, shape, binder
        self.context = binder.context

    def source(self, source: exp.Expr) -> JoinInput:
        """One part of FROM as an input."""
        self._refuse(source)
        if isinstance(source, exp.Subquery):
            return self._subquery(source, source.this, source.alias, "subquery")
        if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
            raise UnsupportedError(
                "this kind of table in FROM",
                hint="name a stream, a table or a subquery in parentheses",
                span=span_of(source, self.context.source),
            )
        name = source.name
        catalog = self.binder.catalog
        if (query := common_table(source)) is not None:
            return self._subquery(source, query, source.alias, name)
        if (stream := catalog.streams.get(name.lower())) is not None:
            return self._stream(source, stream)
        if (table := catalog.tables.get(name.lower())) is not None:
            return self._table(source, table)
        raise self._unknown(source)

    def one_row(self) -> JoinInput:
        """One row that is always there, without columns to name: a count of nothing, at every instant 0."""
        nothing = exp.select(exp.Anonymous(this="count", expressions=[exp.Star()])).from_(
            exp.Table(this=exp.to_identifier(self.binder.any_input, quoted=True))
        )
        nothing.set("where", exp.Where(this=exp.Boolean(this=False)))
        made = self._subquery(exp.Subquery(this=nothing), nothing, "", "constant")
        return JoinInput(made.node, [replace(e, columns=()) for e in made.entries], made.internal)

    def _refuse(self, source: exp.Expr) -> None:
        if isinstance(source, exp.Table) and (source.args.get("db") or source.args.get("catalog")):
            raise BindingError(
                f'unknown stream or table "{".".join(p.name for p in source.parts)}"',
                hint="streams and tables are in no schema: write the name alone",
                span=span_of(source, self.context.source),
            )
        for key, (what, hint) in _REFUSED.items():
            if source.args.get(key):
                raise UnsupportedError(f"{what} in FROM", hint=hint, span=span_of(source, self.context.source))
        alias = source.args.get("alias")
        if alias is not None and AS_OF in alias.meta:
            raise UnsupportedError(
                "AS OF in a continuous query",
                hint="it follows the present; ask a one-time query for the past of a query with KEEP",
                span=span_of(source, self.context.source),
            )
        if alias is not None and alias.args.get("columns") and not isinstance(source, exp.Subquery):
            raise UnsupportedError(
                "column names after an alias",
                hint="rename in the select list with AS",
                span=span_of(source, self.context.source),
            )

    def _unknown(self, source: exp.Table) -> BindingError:
        catalog, name = self.binder.catalog, source.name
        kinds = (catalog.streams, catalog.tables, catalog.views, catalog.queries)
        known = [d.name for kind in kinds for d in kind.values()]
        hint = did_you_mean(name, known)
        if name.lower() in catalog.groups or name.lower() in catalog.archives:
            what = "queries from a template" if name.lower() in catalog.groups else "an archive"
            hint = f"{name} is {what}, which only one-time queries read"
        return BindingError(
            f'unknown stream or table "{name}"',
            detail=f"known are {', '.join(known)}" if known and hint is None and len(known) <= _NAMED else None,
            hint=hint or f"declare it: CREATE STREAM {name} (..., ts TIMESTAMP) TIMESTAMP BY ts",
            span=span_of(source, self.context.source),
        )

    def alias(self, source: exp.Expr, wanted: str) -> tuple[str, str]:
        """The alias to show and the unique one for internal names."""
        if any(e.named(wanted) for e in self.scope.entries):
            raise BindingError(
                f'"{wanted}" stands twice in FROM',
                hint=f"give each an alias of its own: {source.name or '(SELECT ...)'} AS a",
                span=span_of(source, self.context.source),
            )
        self.context.offsets.setdefault(wanted, offset_of(source) or 0)
        return wanted, self.binder.unique_alias(wanted)

    def _stream(self, source: exp.Table, stream: StreamDef) -> JoinInput:
        clock = self.binder.use_clock(stream, source)
        shown, unique = self.alias(source, source.alias or stream.name)
        entry = self._entry(shown, unique, stream.columns)
        time = entry.find(stream.time)[0].internal
        entry = replace(entry, time=time)
        triples = tuple((c.internal, c.name, c.type) for c in entry.columns)
        scan = Scan(stream.name, unique, triples, stream.time)
        clause = window_of(source)
        spec = self._spec(clause, clock, entry) if clause else _UNBOUNDED
        if clause is not None and clause.kind is WindowKind.SESSION:
            return self._session(clause, scan, spec, entry, stream)
        node: Node = Window(scan, spec)
        if clause is not None and clause.aligned:
            node, entry = self._aligned(clause, node, entry, stream, spec)
        return JoinInput(self._seen(node, clause), [entry], spec.internal)

    def _aligned(
        self, clause: WindowClause, node: Node, entry: Entry, stream: StreamDef, spec: WindowSpec
    ) -> tuple[Node, Entry]:
        """What TUMBLE, HOP and CUMULATE show of a stream: its columns and the bounds of the window."""
        assert spec.size is not None
        self._check_time(clause, stream)
        if clause.shift is not None:
            clause.shift.on(self.binder.clock or Clock.MICROSECONDS, self.context.source, "OFFSET")
        start, end = self.binder.bounded(spec.size)
        if spec.kind is WindowKind.CUMULATE:  # each row says where its windows begin
            assert entry.time is not None
            begin = begins(entry.time, node.schema[entry.time], spec, start.type)
            start = replace(start, internal=self.context.fresh(f"{entry.alias}.window_start", start.type))
            kept = tuple((name, column(name, type_)) for name, type_ in node.schema.items())
            node = Project(node, (*kept, (start.internal, begin)))
        own = [b for b in (start, end) if not entry.find(b.name)]
        return node, replace(entry, columns=(*entry.columns, *own))

    def _session(
        self, clause: WindowClause, scan: Scan, spec: WindowSpec, entry: Entry, stream: StreamDef
    ) -> JoinInput:
        """What SESSION shows of a stream: its columns and the bounds of the session."""
        type_ = self.binder.time_type
        assert spec.size is not None
        assert type_ is not None
        self._check_time(clause, stream)
        start, end = (self.context.fresh(f"{scan.alias}.{name}", type_) for name in BOUNDS)
        session = Session(scan, spec.partition, spec.size, start, end, type_, clause.text)
        names = zip(BOUNDS, (start, end), strict=True)
        own = [ScopeColumn(name, internal, type_) for name, internal in names if not entry.find(name)]
        keys = (*spec.partition, start, end)
        return JoinInput(session, [replace(entry, columns=(*entry.columns, *own), ends=end, session=keys)])

    def _check_time(self, clause: WindowClause, stream: StreamDef) -> None:
        if clause.time is not None and clause.time[0].lower() not in (stream.time.lower(), INSTANT):
            raise BindingError(
                f'"{clause.time[0]}" is not the time of stream "{stream.name}"',
                hint=f"write {stream.time}, or declare the stream with TIMESTAMP BY {clause.time[0]}",
                span=self.context.source.span(clause.time[1]),
            )

    def _table(self, source: exp.Table, table: TableDef) -> JoinInput:
        if (clause := window_of(source)) is not None:
            raise BindingError(
                f'window on the table "{table.name}"',
                detail="only streams have windows; a table is read as it is",
                hint=f"remove {clause.text}",
                span=self.context.source.span(clause.offset),
            )
        shown, unique = self.alias(source, source.alias or table.name)
        entry = self._entry(shown, unique, table.columns)
        valid = None
        if table.valid is not None:
            begin, end = (entry.find(c)[0].internal for c in table.valid)
            valid = (begin, end)
        entry = replace(entry, is_table=True, valid=valid)
        triples = tuple((c.internal, c.name, c.type) for c in entry.columns)
        return JoinInput(TableScan(table.name, unique, triples, table.retroactive, valid, table.recall), [entry])

    def _entry(self, shown: str, unique: str, columns: Mapping[str, pa.DataType]) -> Entry:
        return Entry(
            shown,
            tuple(ScopeColumn(n, self.context.fresh(f"{unique}.{n}", t), t) for n, t in columns.items()),
        )

    def _subquery(self, source: exp.Expr, tree: exp.Expr, alias: str, fallback: str) -> JoinInput:
        clause, inner = window_of(source), None
        if not stands_alone(source, tree, self.binder):  # one SQL text with the query around it
            inner = shape_of(tree, self.binder).within(self.shape)
        block = self.binder.block(tree, inner)
        if inner is None:
            block = settled(block, self.binder)
        stream = as_stream(block) if inner is None else None
        shown, _ = self.alias(source, alias or self.binder.unused_alias(fallback, self.scope.entries))
        names = self._renamed(source, [o.name for o in block.outputs])
        pairs = zip(names, block.outputs, strict=True)
        columns = tuple(ScopeColumn(n, o.column, o.type, o.also) for n, o in pairs)
        entry = Entry(shown, columns, ends=block.ends if inner is not None else None)
        if clause is not None and stream is None:
            raise BindingError(
                "window on a subquery that is not a stream",
                detail="its answer is a relation that changes; a window needs rows that arrive",
                hint="write ISTREAM(...) in the subquery, or make its windows INTERNAL or periodic (SLIDE)",
                span=self.context.source.span(clause.offset),
            )
        if stream is None:
            return JoinInput(block.node, [entry])
        spec = self._spec(clause, self.binder.clock, entry) if clause else _UNBOUNDED
        return JoinInput(self._seen(Window(stream, spec, derived=True), clause), [entry], spec.internal)

    def _renamed(self, source: exp.Expr, names: list[str]) -> list[str]:
        alias = source.args.get("alias")
        given = [c.name for c in alias.args.get("columns") or []] if alias is not None else []
        if len(given) > len(names):
            raise BindingError(
                f"{len(given)} column names for {len(names)} columns", span=span_of(source, self.context.source)
            )
        return given + names[len(given) :]

    def _spec(self, clause: WindowClause, clock: Clock | None, entry: Entry) -> WindowSpec:
        partition = []
        for name, offset in clause.partition:
            found = entry.find(name)
            if not found:
                reference = exp.column(name)
                reference.meta["start"] = offset
                raise Scope(self.context.source, [entry]).unknown(reference)
            partition.append(found[0].internal)
        return windows.resolve(clause, clock or Clock.MICROSECONDS, self.context.source, tuple(partition))

    def _seen(self, node: Node, clause: WindowClause | None) -> Node:
        """What a periodic block sees of an input."""
        shape = self.shape
        if shape.period is None or not shape.quantise or shape.mixed:
            return node
        return Quantise(node, shape.period, shape.offset, clause is not None and clause.aligned)


def begins(time: str, type_: pa.DataType, spec: WindowSpec, instants: pa.DataType) -> Expr:
    """The greatest `k * size + shift` that is not after the time of a row."""
    if pa.types.is_integer(type_):
        ticks: tuple[str | Ref, ...] = ("CAST(", Ref(time), " AS BIGINT)")
        into = "{}"
    else:
        ticks = ("epoch_us(", Ref(time), ")")
        into = "make_timestamp({})" if instants.tz is None else "make_timestamptz({})"
    since = f" - {spec.shift}) % {spec.size} + {spec.size}) % {spec.size}"
    before, after = into.split("{}")
    return Expr((f"({before}", *ticks, " - ((", *ticks, f"{since}{after})"), instants)
