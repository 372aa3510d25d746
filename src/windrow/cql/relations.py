"""FROM: its parts, and the joins written between them.

Outer joins and ASOF JOIN become one input, UNNEST and LATERAL widen one; everything else is left to the n-way join.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from windrow.cql.asof import bind_asof
from windrow.cql.bounds import parted
from windrow.cql.from_sources import SourceBinder
from windrow.cql.joins import JoinInput, full_join, join, match, validity
from windrow.cql.lateral import Laterals, is_constant, is_lateral
from windrow.cql.pipeline import extend
from windrow.cql.scope import Entry, Scope, ScopeColumn, conjuncts, offset_of, resolve, resolved, span_of
from windrow.cql.shapes import BlockShape
from windrow.cql.windows import Clock
from windrow.cql.within import check_grace, within_conditions, within_of
from windrow.errors import BindingError, UnsupportedError
from windrow.plan.nodes import (
    Filter,
    LeftJoin,
    Node,
)

if TYPE_CHECKING:
    from windrow.cql.select import Binder


@dataclass
class From:
    """A bound FROM clause: the inputs to join, the conditions of its JOINs, and the pairs joined by CROSS."""

    inputs: list[JoinInput] = field(default_factory=list)
    conditions: list[exp.Expr] = field(default_factory=list)
    crossed: set[tuple[int, int]] = field(default_factory=set)


def bind_from(select: exp.Select, scope: Scope, shape: BlockShape, binder: Binder) -> From:
    """Bind FROM, adding its entries to the scope."""
    if select.args.get("from_") is None and not binder.any_input:
        raise BindingError("a query needs FROM", hint="name a stream: SELECT ... FROM s [RANGE 1 MINUTE]")
    return _FromBinder(scope, shape, binder).bind(select)


def _is_true(on: exp.Expr) -> bool:
    return isinstance(on, exp.Boolean) and bool(on.this)


class _FromBinder(SourceBinder):
    """Binds one FROM. `start` is the first input of the current comma item, which an outer join takes whole."""

    def __init__(self, scope: Scope, shape: BlockShape, binder: Binder) -> None:
        super().__init__(scope, shape, binder)
        self.result = From()
        self.start = 0

    def bind(self, select: exp.Select) -> From:
        if select.args.get("from_") is None:
            self.result.inputs.append(self.one_row())
            return self.result
        first = select.args["from_"].this
        if is_lateral(first):
            self._constant(first)
        else:
            self._add(first)
        if (range_ := within_of(first)) is not None:
            raise BindingError(
                "WITHIN without a join before it",
                hint="write a JOIN b WITHIN 1 HOUR ON a.id = b.id; a window is written b [RANGE 1 HOUR]",
                span=self.context.source.span(range_.offset),
            )
        for join_ in (first.args.get("joins") or []) + (select.args.get("joins") or []):
            self._join(join_)
        return self.result

    def _add(self, source: exp.Expr) -> None:
        if isinstance(source, exp.Subquery) and isinstance(source.this, exp.Table) and not source.alias:
            self._together(source.this)
            return
        entry_input = self.source(source)
        self.scope.entries.extend(entry_input.entries)
        self.result.inputs.append(entry_input)

    def _together(self, first: exp.Expr) -> None:
        """Add what stands in parentheses, joins included, as one input."""
        inside = _FromBinder(self.scope, self.shape, self.binder)
        inside._add(first)
        for join_ in first.args.get("joins") or ():
            inside._join(join_)
        found = inside.result
        entries = [e for i in found.inputs for e in i.entries]
        conditions, fixed = parted(found.conditions)
        node, rest = join(found.inputs, conditions, found.crossed, self.shape.mixed, self.context)
        for tree in rest + fixed:
            node = Filter(node, self.context.predicate(tree, "ON"))
        self.result.inputs.append(JoinInput(node, entries))

    def _constant(self, source: exp.Expr) -> None:
        """Add an input of rows that are always there."""
        if not self.binder.any_input:
            raise BindingError(
                "a query must read at least one stream",
                hint="add a stream to FROM; constants alone do not change",
                span=span_of(source, self.context.source),
            )
        made = self.one_row()
        entry = Laterals([made], Scope(self.context.source), self.binder).bind(source, False)
        shown, _ = self.alias(source, entry.alias)
        made.entries[:] = [replace(entry, alias=shown)]
        self.scope.entries.extend(made.entries)
        self.result.inputs.append(made)

    def _join(self, node: exp.Join) -> None:
        side, kind, method = ((node.args.get(k) or "").upper() for k in ("side", "kind", "method"))
        if (
            kind in ("SEMI", "ANTI", "STRAIGHT")
            or method == "POSITIONAL"
            or (method == "ASOF" and side not in ("", "LEFT"))
        ):
            raise UnsupportedError(
                f"{' '.join(filter(None, (method, side, kind)))} JOIN",
                hint="use INNER, LEFT, RIGHT, FULL, CROSS, ASOF or ASOF LEFT JOIN, or [NOT] EXISTS",
                span=span_of(node, self.context.source),
            )
        if node.this.args.get("joins"):
            raise UnsupportedError(
                "a JOIN in parentheses",
                hint="write the joins one after another",
                span=span_of(node, self.context.source),
            )
        always = node.args.get("on") is None or _is_true(node.args["on"])
        constant = is_constant(node.this) and (side in ("RIGHT", "FULL") or not always)
        if is_lateral(node.this) and not (constant and side):
            self._lateral(node, side)
            return
        comma = not (side or kind or method or node.args.get("on") or node.args.get("using")) and self._is_comma(node)
        before = list(self.scope.entries)
        if comma:
            self.start = len(self.result.inputs)
        if constant:
            self._constant(node.this)
        else:
            self._add(node.this)
        conditions = self._conditions(node, before, method == "NATURAL", side)
        if (range_ := within_of(node.this)) is not None:
            clock = self.binder.clock or Clock.MICROSECONDS
            conditions += within_conditions(range_, before, self.scope.entries[-1], clock, self.context.source)
            named = [t.name.lower() for t in (node.parent or node).find_all(exp.Table)]
            streams = [d for n, d in self.binder.catalog.streams.items() if n.lower() in named]
            if range_.grace is not None:
                check_grace(range_.grace, "a join of", streams, clock, self.context.source)
        if method == "ASOF":
            self._asof(side, conditions, node)
            return
        if side in ("LEFT", "RIGHT", "FULL"):
            self._outer(side, conditions, node)
            return
        if kind == "CROSS":
            self.result.crossed.add((self.start, len(self.result.inputs) - 1))
        self.result.conditions.extend(conditions)

    def _lateral(self, node: exp.Join, side: str) -> None:
        """Widen an input by the rows that each of its rows makes."""
        on = node.args.get("on")
        always = on is None or _is_true(on)
        if side not in ("", "LEFT") or (side == "LEFT" and not always) or node.args.get("using"):
            raise UnsupportedError(
                f"{side or 'this'} JOIN with UNNEST or LATERAL",
                hint="write CROSS JOIN, or LEFT JOIN ... ON TRUE",
                span=span_of(node, self.context.source),
            )
        entry = Laterals(self.result.inputs, self.scope, self.binder).bind(node.this, side == "LEFT")
        shown, _ = self.alias(node.this, entry.alias)
        self.scope.entries.append(replace(entry, alias=shown))
        if on is not None and not always:
            scope = replace(self.scope, aliases={})
            self.result.conditions.extend(resolve(c, scope) for c in conjuncts(on))

    def _is_comma(self, node: exp.Join) -> bool:
        """sqlglot writes `a, b` and `a JOIN b` alike; the text before the part tells."""
        offset = offset_of(node.this)
        text = self.context.source.text[: offset or 0].rstrip().rstrip("(").rstrip()
        return not text.upper().endswith("JOIN")

    def _conditions(self, node: exp.Join, before: list[Entry], natural: bool, side: str) -> list[exp.Expr]:
        written = [tree for key in ("match_condition", "on") if (tree := node.args.get(key)) is not None]
        if written:
            scope = replace(self.scope, aliases={})
            return [resolve(c, scope) for tree in written for c in conjuncts(tree)]
        names = [i.name for i in node.args.get("using") or []]
        right = self.result.inputs[-1].entries[0]
        if natural:
            names = [c.name for c in right.columns if any(e.find(c.name) for e in before)]
        found = [self._using(name, Scope(self.context.source, before), right, node, side) for name in names]
        if (node.args.get("method") or "").upper() == "ASOF" and found:  # the last name is the time
            found[-1] = exp.GTE(this=found[-1].this, expression=found[-1].expression)
        return found

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
        left, right = self._sides(f"{side} JOIN", node)
        if side == "RIGHT":
            left, right = right, left
        combined = self._pad(left, right, conditions, node, both=side == "FULL")
        # what VALID asks of these tables has been asked here
        padded = combined.entries if side == "FULL" else right.entries
        settled = [replace(e, valid=None, nullable=e.nullable or e in padded) for e in combined.entries]
        self._combined(combined, settled)

    def _asof(self, side: str, conditions: list[exp.Expr], node: exp.Join) -> None:
        """Make one input of what stands before and after ASOF JOIN."""
        left, right = self._sides("ASOF JOIN", node)
        combined = bind_asof(left, right, conditions, side == "LEFT", node, self.binder)
        self._combined(combined, list(combined.entries))

    def _combined(self, combined: JoinInput, entries: list[Entry]) -> None:
        """Put one input in the place of those it was made of."""
        self.result.inputs.append(combined)
        by_alias = {e.alias: e for e in entries}
        combined.entries[:] = entries
        self.scope.entries[:] = [by_alias.get(e.alias, e) for e in self.scope.entries]

    def _sides(self, what: str, node: exp.Join) -> tuple[JoinInput, JoinInput]:
        """What stands before a join of two sides as one input, and what stands behind it; both are taken out."""
        if self.shape.append or self.shape.mixed:
            raise self.binder.not_internal(what, span_of(node, self.context.source))
        right = self.result.inputs.pop()
        group = self.result.inputs[self.start :]
        crossed = {(a - self.start, b - self.start) for a, b in self.result.crossed if a >= self.start}
        inside = frozenset(c for i in group for c in i.columns)
        own = [c for c in self.result.conditions if {x.name for x in c.find_all(exp.Column)} <= inside]
        self.result.conditions = [c for c in self.result.conditions if c not in own]
        node_, rest = join(group, own, crossed, False, self.context)
        for tree in rest:
            node_ = Filter(node_, self.context.predicate(tree, "ON"))
        del self.result.inputs[self.start :]
        self.result.crossed = {p for p in self.result.crossed if max(p) < self.start}
        return JoinInput(node_, [e for i in group for e in i.entries]), right

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
