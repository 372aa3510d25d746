"""FROM: streams with their windows, tables, subqueries, and the joins written between them.

Every stream reference becomes Scan -> Window, and every input that changes with time gets a `Quantise` when
the block is periodic. Outer joins become one input; everything else is left to the n-way join.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from windrow.catalog import StreamDef, TableDef
from windrow.cql import windows
from windrow.cql.bounds import NAMES as BOUNDS
from windrow.cql.bounds import parted
from windrow.cql.dialect import AS_OF
from windrow.cql.expressions import extend
from windrow.cql.joins import JoinInput, full_join, join, match, validity
from windrow.cql.nesting import common_table
from windrow.cql.scope import Entry, Scope, ScopeColumn, conjuncts, did_you_mean, offset_of, resolve, resolved, span_of
from windrow.cql.shapes import BlockShape, shape_of, stands_alone, window_of
from windrow.cql.windows import Clock, WindowClause
from windrow.errors import BindingError, UnsupportedError
from windrow.plan.nodes import (
    Filter,
    LeftJoin,
    Node,
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


@dataclass
class From:
    """A bound FROM clause: the inputs to join, the conditions of its JOINs, and the pairs joined by CROSS."""

    inputs: list[JoinInput] = field(default_factory=list)
    conditions: list[exp.Expr] = field(default_factory=list)
    crossed: set[tuple[int, int]] = field(default_factory=set)


def bind_from(select: exp.Select, scope: Scope, shape: BlockShape, binder: Binder) -> From:
    """Bind FROM, adding its entries to the scope."""
    from_ = select.args.get("from_")
    if from_ is None:
        raise BindingError("a query needs FROM", hint="name a stream: SELECT ... FROM s [RANGE 1 MINUTE]")
    return _FromBinder(scope, shape, binder).bind(select)


class _FromBinder:
    """Binds one FROM. `start` is the first input of the current comma item, which an outer join takes whole."""

    def __init__(self, scope: Scope, shape: BlockShape, binder: Binder) -> None:
        self.scope, self.shape, self.binder = scope, shape, binder
        self.context = binder.context
        self.result = From()
        self.start = 0

    def bind(self, select: exp.Select) -> From:
        first = select.args["from_"].this
        self._add(first)
        for join_ in (first.args.get("joins") or []) + (select.args.get("joins") or []):
            self._join(join_)
        return self.result

    def _add(self, source: exp.Expr) -> None:
        entry_input = self._source(source)
        self.scope.entries.extend(entry_input.entries)
        self.result.inputs.append(entry_input)

    def _join(self, node: exp.Join) -> None:
        side, kind, method = ((node.args.get(k) or "").upper() for k in ("side", "kind", "method"))
        if kind in ("SEMI", "ANTI", "STRAIGHT") or method in ("ASOF", "POSITIONAL"):
            raise UnsupportedError(
                f"{' '.join(filter(None, (method, side, kind)))} JOIN",
                hint="use INNER, LEFT, RIGHT, FULL or CROSS JOIN, or [NOT] EXISTS",
                span=span_of(node, self.context.source),
            )
        if node.this.args.get("joins"):
            raise UnsupportedError(
                "a JOIN in parentheses",
                hint="write the joins one after another",
                span=span_of(node, self.context.source),
            )
        comma = not (side or kind or method or node.args.get("on") or node.args.get("using")) and self._is_comma(node)
        before = list(self.scope.entries)
        if comma:
            self.start = len(self.result.inputs)
        self._add(node.this)
        conditions = self._conditions(node, before, method == "NATURAL", side)
        if side in ("LEFT", "RIGHT", "FULL"):
            self._outer(side, conditions, node)
            return
        if kind == "CROSS":
            self.result.crossed.add((self.start, len(self.result.inputs) - 1))
        self.result.conditions.extend(conditions)

    def _is_comma(self, node: exp.Join) -> bool:
        """sqlglot writes `a, b` and `a JOIN b` alike; the text before the part tells."""
        offset = offset_of(node.this)
        text = self.context.source.text[: offset or 0].rstrip().rstrip("(").rstrip()
        return not text.upper().endswith("JOIN")

    def _conditions(self, node: exp.Join, before: list[Entry], natural: bool, side: str) -> list[exp.Expr]:
        if (on := node.args.get("on")) is not None:
            scope = replace(self.scope, aliases={})
            return [resolve(c, scope) for c in conjuncts(on)]
        names = [i.name for i in node.args.get("using") or []]
        right = self.result.inputs[-1].entries[0]
        if natural:
            names = [c.name for c in right.columns if any(e.find(c.name) for e in before)]
        return [self._using(name, Scope(self.context.source, before), right, node, side) for name in names]

    def _using(self, name: str, left: Scope, right: Entry, node: exp.Join, side: str) -> exp.Expr:
        reference = exp.column(exp.to_identifier(name, quoted=True))
        reference.meta["start"] = offset_of(node) or 0
        a = self.scope.merged.get(name.lower()) or left.column(reference)
        found = right.find(name)
        if a is None or not found:
            raise (left if a is None else Scope(self.context.source, [right])).unknown(reference)
        self.scope.merged[name.lower()] = found[0] if side == "RIGHT" else a
        return exp.EQ(this=resolved(a.internal, reference), expression=resolved(found[0].internal, reference))

    def _outer(self, side: str, conditions: list[exp.Expr], node: exp.Join) -> None:
        """Make one input of what stands before and after LEFT, RIGHT or FULL JOIN."""
        if self.shape.append or self.shape.mixed:
            raise self.binder.not_internal(f"{side} JOIN", span_of(node, self.context.source))
        right = self.result.inputs.pop()
        group = self.result.inputs[self.start :]
        crossed = {(a - self.start, b - self.start) for a, b in self.result.crossed if a >= self.start}
        inside = frozenset(c for i in group for c in i.columns)
        own = [c for c in self.result.conditions if {x.name for x in c.find_all(exp.Column)} <= inside]
        self.result.conditions = [c for c in self.result.conditions if c not in own]
        node_, rest = join(group, own, crossed, False, self.context)
        for tree in rest:
            node_ = Filter(node_, self.context.predicate(tree, "ON"))
        left = JoinInput(node_, [e for i in group for e in i.entries])
        if side == "RIGHT":
            left, right = right, left
        del self.result.inputs[self.start :]
        self.result.crossed = {p for p in self.result.crossed if max(p) < self.start}
        combined = self._pad(left, right, conditions, node, both=side == "FULL")
        self.result.inputs.append(combined)
        # what VALID asks of these tables has been asked here
        padded = combined.entries if side == "FULL" else right.entries
        settled = {e.alias: replace(e, valid=None, nullable=e.nullable or e in padded) for e in combined.entries}
        combined.entries[:] = settled.values()
        self.scope.entries[:] = [settled.get(e.alias, e) for e in self.scope.entries]

    def _pad(
        self, left: JoinInput, right: JoinInput, conditions: list[exp.Expr], node: exp.Join, both: bool
    ) -> JoinInput:
        if not conditions:
            raise BindingError(
                f"no join condition between {left.label} and {right.label}",
                hint="write ... JOIN ... ON a.k = b.k",
                span=span_of(node, self.context.source),
            )
        conditions, fixed = parted(conditions)
        if fixed:
            raise UnsupportedError(
                "bounds of windows in the condition of an outer join",
                hint="join within equal windows (a.window_end = b.window_end), or compute it in a subquery",
                span=span_of(node, self.context.source),
            )
        entries = left.entries + right.entries
        conditions = conditions + validity(entries, entries, conditions, self.context)
        matching = match([left.node, right.node], conditions, self.context)
        inner, residual = matching.nodes[1], list(matching.residual)
        for tree in matching.rest:
            predicate = self.context.predicate(tree, "ON")
            if predicate.columns and predicate.columns <= right.columns and not both:
                inner = Filter(inner, predicate)
            else:
                residual.append(predicate)
        padded = LeftJoin(matching.nodes[0], inner, tuple(matching.equalities), tuple(residual))
        return JoinInput(self._merged(full_join(padded), node) if both else padded, entries)

    def _merged(self, node: Node, written: exp.Join) -> Node:
        """A full join with a column for each one that USING names: of the side that is there."""
        names = [i.name.lower() for i in written.args.get("using") or []]
        if (written.args.get("method") or "").upper() == "NATURAL":
            names = [n for n in self.scope.merged if self.scope.merged[n].internal in node.schema]
        for name in names:
            one = self.scope.merged[name]
            other = next(c for c in self.scope.entries[-1].columns if c.name.lower() == name)
            sides = exp.Anonymous(this="coalesce", expressions=[resolved(one.internal), resolved(other.internal)])
            value = self.context.expr(sides)
            column_ = self.context.fresh(one.name, value.type)
            node = extend(node, {column_: value})
            self.scope.merged[name] = ScopeColumn(one.name, column_, value.type)
        return node

    def _source(self, source: exp.Expr) -> JoinInput:
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

    def _refuse(self, source: exp.Expr) -> None:
        if isinstance(source, exp.Table) and (source.args.get("db") or source.args.get("catalog")):
            raise BindingError(
                f'unknown stream or table "{".".join(p.name for p in source.parts)}"',
                hint="streams and tables are in no schema: write the name alone",
                span=span_of(source, self.context.source),
            )
        for key in ("pivots", "sample", "laterals", "version", "when", "hints"):
            if source.args.get(key):
                raise UnsupportedError(f"{key} in FROM", span=span_of(source, self.context.source))
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
        names = [d.name for d in catalog.streams.values()] + [d.name for d in catalog.tables.values()]
        hint = did_you_mean(name, names)
        if name.lower() in catalog.queries:
            hint = f"{name} is a query; write its SELECT as a subquery in parentheses"
        return BindingError(
            f'unknown stream or table "{name}"',
            hint=hint or f"declare it: CREATE STREAM {name} (..., ts TIMESTAMP) TIMESTAMP BY ts",
            span=span_of(source, self.context.source),
        )

    def _alias(self, source: exp.Expr, wanted: str) -> tuple[str, str]:
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
        span = span_of(source, self.context.source)
        clock = self.binder.use_clock(stream, span)
        shown, unique = self._alias(source, source.alias or stream.name)
        entry = self._entry(shown, unique, stream.columns)
        time = entry.find(stream.time)[0].internal
        entry = replace(entry, time=time)
        triples = tuple((c.internal, c.name, c.type) for c in entry.columns)
        scan = Scan(stream.name, unique, triples, stream.time)
        clause = window_of(source)
        spec = self._spec(clause, clock, entry) if clause else _UNBOUNDED
        if clause is not None and clause.kind is WindowKind.SESSION:
            return self._session(clause, scan, spec, entry, stream)
        if clause is not None and clause.aligned:
            entry = self._aligned(clause, entry, stream, spec)
        return JoinInput(self._seen(Window(scan, spec), clause), [entry], spec.internal)

    def _aligned(self, clause: WindowClause, entry: Entry, stream: StreamDef, spec: WindowSpec) -> Entry:
        """What TUMBLE and HOP show of a stream: its columns and the bounds of the window."""
        assert spec.size is not None
        self._check_time(clause, stream)
        if clause.shift is not None:
            clause.shift.on(self.binder.clock or Clock.MICROSECONDS, self.context.source, "OFFSET")
        own = [b for b in self.binder.bounded(spec.size) if not entry.find(b.name)]
        return replace(entry, columns=(*entry.columns, *own))

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
        if clause.time is not None and clause.time[0].lower() != stream.time.lower():
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
        shown, unique = self._alias(source, source.alias or table.name)
        entry = self._entry(shown, unique, table.columns)
        valid = None
        if table.valid is not None:
            begin, end = (entry.find(c)[0].internal for c in table.valid)
            valid = (begin, end)
        entry = replace(entry, is_table=True, valid=valid)
        triples = tuple((c.internal, c.name, c.type) for c in entry.columns)
        return JoinInput(TableScan(table.name, unique, triples, table.retroactive, valid), [entry])

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
            block = self.binder.settled(block)
        stream = self.binder.stream(block) if inner is None else None
        shown, _ = self._alias(source, alias or self.binder.unused_alias(fallback, self.scope.entries))
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
