"""SELECT to plan nodes, one block at a time.

    Scan -> Window [-> Quantise] -> Join -> Filter -> Semi -> [Aggregate -> Filter] -> Project [-> Distinct] -> Emit

A block is a SELECT (or set operation) with its EXISTS subqueries: their windows share one SLIDE. Subqueries
in FROM are blocks of their own. Rules 5 to 9 of the semantics (periods, INTERNAL, WSTREAM) are decided
here and nowhere else; below this page the operators know only windows and lifetimes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import pyarrow as pa
from sqlglot import exp

from windrow.catalog import Catalog, StreamDef
from windrow.cql import types
from windrow.cql.analytic import own_windows, with_named_windows
from windrow.cql.bounds import EvaluationGrid, bounds_of, parted
from windrow.cql.composition import composed
from windrow.cql.emission import Block, emit, settled
from windrow.cql.expressions import BindingContext, find_aggregate, has_user_function
from windrow.cql.importance import Importance, bind_importance, shed_clause, with_importance
from windrow.cql.joins import join
from windrow.cql.memberships import MembershipTest, check, membership_of, semi_join
from windrow.cql.nesting import DEPTH, PLAN, common_table, taken_together, too_deep
from windrow.cql.ordering import check_order, first_rows, limit_of, order_of, ordinal, sort_key
from windrow.cql.pipeline import Pipeline
from windrow.cql.relations import bind_from
from windrow.cql.rewrites import rewritten
from windrow.cql.scope import Entry, Scope, ScopeColumn, conjuncts, has_subquery, resolve, span_of
from windrow.cql.select_items import SelectList, select_list
from windrow.cql.select_outputs import BlockOutputs
from windrow.cql.setops import combine
from windrow.cql.shapes import BlockShape, clauses_of, shape_of, unwrap
from windrow.cql.shed import shed_join, tick_budget
from windrow.cql.source import ScriptText
from windrow.cql.spellings import respell
from windrow.cql.sql_functions import inlined
from windrow.cql.subqueries import filter_by
from windrow.cql.walks import find_all
from windrow.cql.windows import Clock, WindowClause
from windrow.errors import BindingError, CQLSyntaxError, Span, UnsupportedError, WindrowError
from windrow.plan.nodes import Node, Quantise, QueryPlan, TickBudget, WindowKind

BLOCKS = 500
_CLAUSES = {
    "laterals": ("LATERAL VIEW of this function", "LATERAL VIEW explode(l) t AS x is known, and UNNEST(l)"),
    "sample": ("TABLESAMPLE", "choose rows by their values, such as WHERE hash(id) % 10 = 0"),
    "into": ("INTO", "write CREATE QUERY name AS SELECT ..."),
    "pivots": ("PIVOT", "write one aggregate with FILTER per column"),
    "operation_modifiers": ("select modifiers", None),
    "exclude": ("EXCLUDE", "name the columns"),
}


class Binder:
    """Binds one query: the state that its blocks share."""

    def __init__(self, catalog: Catalog, source: ScriptText) -> None:
        self.catalog: Catalog = catalog
        self.context: BindingContext = BindingContext(catalog, source)
        # by the tree's identity, with the tree to keep it: a WITH is looked at once, however often it is read
        self.shapes: dict[int, tuple[exp.Expr, BlockShape]] = {}
        self.windows: dict[int, tuple[exp.Expr, list[WindowClause | None]]] = {}
        self._depth = self._blocks = 0
        self.clock: Clock | None = None
        self.time_type: pa.DataType | None = None
        self.budget: TickBudget | None = None
        self.there: set[type | str] = set()  # kinds of nodes and names of functions in the query
        self._tree: exp.Expr | None = None
        self._first_stream = ""
        self._aliases: set[str] = set()

    # -- the query ---------------------------------------------------------------------------------------

    def query(self, tree: exp.Expr, name: str, text: str, one_time: bool = False) -> QueryPlan:
        """The plan of a whole query; a one-time query may read tables alone."""
        tree = rewritten(tree, self)
        check_order(unwrap(tree), self, top=not one_time)
        self._tree = tree
        block = self.block(tree)
        if one_time and self.time_type is None:
            self.time_type = pa.int64()
        if self.time_type is None:
            raise BindingError(
                "a query must read at least one stream",
                hint="add a stream to FROM; tables alone do not change",
                span=span_of(tree, self.context.source),
            )
        root = emit(settled(block, self, rename=False))
        self._check_depth(root, tree)
        output = tuple((o.name, o.column) for o in block.outputs)
        return QueryPlan(name, root, output, self.time_type, text, self.budget)

    def _check_depth(self, root: Node, tree: exp.Expr) -> None:
        """Plans are walked by recursion, in this process and in workers."""
        level, depth = [root], 0
        while level:
            level, depth = [i for node in level for i in node.inputs], depth + 1
        if depth > PLAN:
            raise UnsupportedError(
                f"a plan of more than {PLAN} operators above each other",
                hint="write the query flatter, or split it",
                span=span_of(tree, self.context.source),
            )

    def grid(self, shape: BlockShape) -> EvaluationGrid | None:
        """When a block is evaluated, if it looks at its windows periodically."""
        if shape.period is None or not shape.quantise or self.time_type is None:
            return None
        return EvaluationGrid(shape.period, shape.offset, self.time_type)

    def bounds(self, shape: BlockShape) -> tuple[ScopeColumn, ...]:
        """What window_start and window_end mean in a block."""
        if self.grid(shape) is None or shape.size is None or self.time_type is None:
            return ()
        return self.bounded(shape.size)

    def bounded(self, size: int) -> tuple[ScopeColumn, ScopeColumn]:
        """The bounds of a window of this length, as columns that expressions may read."""
        assert self.time_type is not None
        found = bounds_of(size, self.time_type)
        self.context.types |= {b.internal: b.type for b in found}
        return found

    def use_clock(self, stream: StreamDef, source: exp.Expr) -> Clock:
        """Note a stream's clock; all streams of a query must have the same."""
        clock = Clock.MICROSECONDS if pa.types.is_timestamp(stream.time_type) else Clock.TICKS
        if self.clock is None:
            self.clock, self._first_stream = clock, stream.name
            self.time_type = types.instant_type(stream.time_type)
        elif clock is not self.clock:
            raise BindingError(
                f'"{self._first_stream}" counts {self.clock.value} and "{stream.name}" counts {clock.value}',
                detail="one query cannot mix streams whose time is an integer with streams whose time is a timestamp",
                hint="declare both time columns with the same kind of type",
                span=span_of(source, self.context.source),
            )
        return clock

    @cached_property
    def any_input(self) -> str:
        """The name of some stream that the query reads, else of a table; empty if there is none."""
        tables = find_all(self._tree, exp.Table) if self._tree is not None else []
        names = [t.name.lower() for t in tables if common_table(t) is None]
        known = (n for kind in (self.catalog.streams, self.catalog.tables) for n in names if n in kind)
        return next(known, "")

    def unique_alias(self, alias: str) -> str:
        """An alias for internal names that no other part of the query has."""
        unique, n = alias, 1
        while unique.lower() in self._aliases:
            n += 1
            unique = f"{alias}#{n}"
        self._aliases.add(unique.lower())
        return unique

    def unused_alias(self, alias: str, entries: list[Entry]) -> str:
        """A name for a subquery that has none."""
        shown, n = alias, 1
        while any(e.named(shown) for e in entries):
            n += 1
            shown = f"{alias}{n}"
        return shown

    def not_internal(self, what: str, span: Span | None) -> UnsupportedError:
        """The error for an INTERNAL window where results would have to expire."""
        return UnsupportedError(
            f"{what} over INTERNAL windows",
            detail="results of INTERNAL windows never expire, and this operator must take results back",
            hint="remove INTERNAL, or put the INTERNAL part in a subquery",
            span=span,
        )

    # -- blocks ------------------------------------------------------------------------------------------

    def block(self, tree: exp.Expr, shape: BlockShape | None = None) -> Block:
        """Bind a SELECT or a set operation."""
        tree = unwrap(tree)
        respell(tree, self.catalog, self.context.source)
        self.refuse_clauses(tree)
        if (with_ := tree.args.get("with_")) is not None and with_.args.get("recursive"):
            raise UnsupportedError(
                "WITH RECURSIVE",
                hint="what is computed step by step is a series here: FROM generate_series(1, 10) AS t(n)",
                span=span_of(with_, self.context.source),
            )
        self._count(tree)
        try:
            shape = shape or shape_of(tree, self)
            if isinstance(tree, exp.SetOperation):
                return self._limited(tree, combine(tree, shape, self))
            if isinstance(tree, exp.Select):
                return self._select(tree, shape)
            raise UnsupportedError(f"{tree.key.upper()} as a query", span=span_of(tree, self.context.source))
        finally:
            self._depth -= 1

    def _count(self, tree: exp.Expr) -> None:
        """Refuse queries that nest too deep, or that are too large once every WITH stands where it is read."""
        self._depth += 1
        self._blocks += 1
        if self._depth > DEPTH:
            raise too_deep(span_of(tree, self.context.source))
        if self._blocks > BLOCKS:
            raise UnsupportedError(
                f"more than {BLOCKS} SELECTs in one query",
                detail="a query of WITH counts each time it is read",
                hint="split it into several queries",
                span=span_of(tree, self.context.source),
            )

    def _limited(self, tree: exp.SetOperation, block: Block) -> Block:
        """A set operation with its LIMIT, which sorts by columns of the answer."""
        if (limit := limit_of(tree, self)) is None:
            return block
        entry = Entry("", tuple(ScopeColumn(o.name, o.column, o.type, o.also) for o in block.outputs))
        scope, keys = Scope(self.context.source, [entry]), []
        for term in order_of(tree):
            place = ordinal(term, len(block.outputs), self)
            found = block.outputs[place].column if place is not None else resolve(term.this, scope).name
            if found not in block.node.schema:
                raise UnsupportedError(
                    "an expression in ORDER BY of a set operation",
                    hint="sort by a column of the answer, or select from the set operation in FROM",
                    span=span_of(term, self.context.source),
                )
            keys.append(sort_key(term, found))
        ties = tuple(dict.fromkeys(o.column for o in block.outputs if o.column in block.node.schema))
        partition = () if block.ends is None else (block.ends,)
        return replace(block, node=first_rows(block.node, keys, ties, limit, partition))

    def refuse_clauses(self, tree: exp.Expr) -> None:
        for key, (clause, hint) in _CLAUSES.items():
            if tree.args.get(key):
                part = tree.args[key]
                span = span_of(part, self.context.source) if isinstance(part, exp.Expr) else None
                raise UnsupportedError(clause, hint=hint, span=span or span_of(tree, self.context.source))

    def _select(self, select: exp.Select, shape: BlockShape) -> Block:
        select = with_named_windows(select)
        listed = select_list(select, self.context.source)
        if not listed.items:
            raise CQLSyntaxError("an empty select list", hint="write SELECT * FROM ... or name columns")
        scope = Scope(self.context.source)
        self._check_shape(select, listed, shape)
        shed = shed_clause(select)
        sheds = shed is not None and shed.heuristic is not None
        # rows are shed at their own times, so a shed join is looked at periodically, not its inputs
        from_ = bind_from(select, scope, replace(shape, quantise=False) if sheds else shape, self)
        scope.bounds = self.bounds(shape)
        importance = bind_importance(shed, from_, self.context) if shed is not None else Importance()
        if "importance" in self.there:
            select = with_importance(select, importance, self.context)
            listed = select_list(select, self.context.source)
        scope.aliases = {i.alias.lower(): i.this for i in listed.items if isinstance(i, exp.Alias)}
        plain, memberships = self.where(select, scope)
        conditions, fixed = parted(from_.conditions + plain)
        if len(conditions) < len(from_.conditions + plain):  # rows of one window meet
            from_.crossed |= {(0, i) for i in range(1, len(from_.inputs))}
        if shed is not None and sheds:
            node, rest = shed_join(shed, from_, conditions, importance, shape, self.context)
        else:
            node, rest = join(from_.inputs, conditions, from_.crossed, shape.mixed, self.context)
        if shed is not None:
            self.budget = tick_budget(shed, from_, importance, self.budget, self.context)
        if (shape.mixed or sheds) and shape.period is not None and shape.quantise:
            node = Quantise(node, shape.period, shape.offset)
        pipeline = Pipeline(self.context, node, grid=self.grid(shape))
        for condition in taken_together(sorted(rest + fixed, key=lambda c: has_user_function(c, self.catalog))):
            pipeline.filter(condition, "WHERE")
        for membership in memberships:
            semi_join(pipeline, scope, membership, shape, self)
        self.filter_by_subqueries(pipeline, select, scope, shape)
        ends = next((e.ends for e in scope.entries if e.ends is not None), None)
        outputs = BlockOutputs(select, listed, scope, pipeline, shape, ends, self).bind()
        written = select if listed.node is None else listed.node
        return Block(pipeline.node, outputs, shape, listed.op, (written, self.context.source), ends)

    def _check_shape(self, select: exp.Select, listed: SelectList, shape: BlockShape) -> None:
        """Refuse what INTERNAL windows cannot express."""
        if not (shape.append or shape.mixed):
            return
        span = span_of(select, self.context.source)
        if listed.distinct:
            raise self.not_internal("DISTINCT", span)
        if next(own_windows(select), None) is not None:
            raise self.not_internal("a function OVER", span)
        where = select.args.get("where")
        if where is not None and any(membership_of(c) is not None for c in conjuncts(where.this)):
            raise self.not_internal("EXISTS", span_of(where, self.context.source))
        if not shape.mixed:
            return
        clauses = list(clauses_of(select, self))
        grouped = select.args.get("group") or select.args.get("having")
        if grouped or any(find_aggregate(i, self.catalog) for i in listed.items):
            raise UnsupportedError(
                "aggregates over a mix of INTERNAL and other windows",
                hint="make all windows INTERNAL, or none",
                span=span,
            )
        rows = next((c for c in clauses if c is not None and c.kind is WindowKind.ROWS), None)
        if rows is not None:
            raise UnsupportedError(
                "ROWS windows in a mix of INTERNAL and other windows",
                hint="make all windows INTERNAL, or none",
                span=self.context.source.span(rows.offset),
            )

    # -- WHERE -------------------------------------------------------------------------------------------

    def where(self, select: exp.Select, scope: Scope) -> tuple[list[exp.Expr], list[MembershipTest]]:
        """The resolved plain conditions, and the EXISTS and IN conditions as written; others with subqueries are left
        to `filter_by_subqueries`."""
        plain: list[exp.Expr] = []
        memberships: list[MembershipTest] = []
        where = select.args.get("where")
        for condition in conjuncts(where.this) if where is not None else ():
            membership = membership_of(condition)
            if membership is not None:
                check(membership, self)
                memberships.append(membership)
                continue
            if has_subquery(condition):
                continue
            tree = resolve(condition, scope)
            if (aggregate := find_aggregate(tree, self.catalog)) is not None:
                raise BindingError(
                    "an aggregate in WHERE",
                    hint="filter groups with HAVING",
                    span=span_of(aggregate, self.context.source),
                )
            plain.append(tree)
        return plain, memberships

    def filter_by_subqueries(self, pipeline: Pipeline, select: exp.Select, scope: Scope, shape: BlockShape) -> None:
        """Keep the rows for which the conditions of WHERE hold that compute with subqueries."""
        for condition in conjuncts(where.this) if (where := select.args.get("where")) is not None else ():
            if membership_of(condition) is None and has_subquery(condition):
                filter_by(pipeline, scope, condition, shape, self)


def bind_select(
    tree: exp.Expr, catalog: Catalog, source: ScriptText, name: str, text: str, span: Span, one_time: bool = False
) -> QueryPlan:
    """Bind a query; an error that names no place gets the statement's."""
    try:
        whole = composed(tree, catalog, source, name)
        calls = inlined(whole.tree, catalog, whole.source)
        plan = Binder(catalog, whole.source).query(whole.tree, name, text, one_time)
        return replace(plan, over=whole.over, calls=calls) if whole.over or calls else plan
    except WindrowError as error:
        raise error.at(span) from None
