"""SELECT to plan nodes, one block at a time.

    Scan -> Window [-> Quantise] -> Join -> Filter -> Semi -> [Aggregate -> Filter] -> Project [-> Distinct] -> Emit

A block is a SELECT (or set operation) with its EXISTS subqueries: their windows share one SLIDE. Subqueries
in FROM are blocks of their own. Rules 5 to 9 of the semantics (periods, INTERNAL, WSTREAM) are decided
here and nowhere else; below this page the operators know only windows and lifetimes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from sqlglot import exp

from windrow.catalog import Catalog, StreamDef
from windrow.cql import types
from windrow.cql.aggregates import BlockAggregates
from windrow.cql.analytic import Analytics, own_windows, with_named_windows
from windrow.cql.bounds import EvaluationGrid, bounds_of, is_bound, is_symbol, parted, with_bounds
from windrow.cql.dialect import OPERATORS, TEXT, StreamItems
from windrow.cql.expressions import BindingContext, Pipeline, find_aggregate, has_user_function
from windrow.cql.group_windows import expand_group_windows
from windrow.cql.grouping_sets import MOST as MOST_SETS
from windrow.cql.grouping_sets import count_of, has_sets, sets_of
from windrow.cql.growth import check_growth
from windrow.cql.importance import Importance, bind_importance, shed_clause, with_importance
from windrow.cql.joins import join
from windrow.cql.memberships import MembershipTest, check, keep_columns, membership_of, semi_join
from windrow.cql.nesting import DEPTH, PLAN, taken_together, too_deep
from windrow.cql.ordering import check_order, first_rows, limit_of, order_of, ordinal, sort_key, term_tree
from windrow.cql.relations import bind_from
from windrow.cql.rendering import AGGREGATE_SYNTAX, Piece, Refused, render
from windrow.cql.scope import (
    Entry,
    Scope,
    ScopeColumn,
    columns_of,
    conjuncts,
    has_subquery,
    offset_of,
    resolve,
    resolved,
    span_of,
)
from windrow.cql.setops import combine
from windrow.cql.shapes import RESTORE, BlockShape, clauses_of, shape_of, unwrap
from windrow.cql.shed import shed_join, tick_budget
from windrow.cql.source import ScriptText
from windrow.cql.subqueries import Subqueries, filter_by
from windrow.cql.unnest import unnested
from windrow.cql.windows import Clock, WindowClause
from windrow.cql.wstream import expand_all
from windrow.errors import BindingError, CQLSyntaxError, Span, UnsupportedError, WindrowError
from windrow.operators.terms import SortKey
from windrow.plan.expr import Expr, column, sql_of
from windrow.plan.nodes import (
    Aggregate,
    Append,
    Distinct,
    Emit,
    Join,
    Node,
    Project,
    Quantise,
    QueryPlan,
    Scan,
    Semi,
    Session,
    StreamOp,
    TableScan,
    TickBudget,
    Union,
    Window,
    WindowKind,
)
from windrow.scalar_engine import quote

BLOCKS = 500
_CLAUSES = {
    "laterals": ("LATERAL", "join instead"),
    "sample": ("TABLESAMPLE", "filter in WHERE"),
    "into": ("INTO", "write CREATE QUERY name AS SELECT ..."),
    "pivots": ("PIVOT", "write one aggregate with FILTER per column"),
    "operation_modifiers": ("select modifiers", None),
    "exclude": ("EXCLUDE", "name the columns"),
}


@dataclass(frozen=True)
class Output:
    """A column of an answer: the name shown and the internal one; `also` as in `ScopeColumn`."""

    name: str
    column: str
    type: pa.DataType
    also: str | None = None


@dataclass(frozen=True)
class Block:
    """A bound block before it becomes a stream: a relation, its columns, and how it leaves."""

    node: Node
    outputs: tuple[Output, ...]
    shape: BlockShape
    op: StreamOp | None = None
    span: Span | None = None
    ends: str | None = None  # of sessions: the column with the instant at which rows are seen


@dataclass
class SelectList:
    """A select list as written, without its stream operator."""

    items: list[exp.Expr]
    op: StreamOp | None
    distinct: bool
    node: StreamItems | None


class Binder:
    """Binds one query: the state that its blocks share."""

    def __init__(self, catalog: Catalog, source: ScriptText) -> None:
        self.catalog = catalog
        self.context = BindingContext(catalog, source)
        # by the tree's identity, with the tree to keep it: a WITH is looked at once, however often it is read
        self.shapes: dict[int, tuple[exp.Expr, BlockShape]] = {}
        self.windows: dict[int, tuple[exp.Expr, list[WindowClause | None]]] = {}
        self._depth = self._blocks = 0
        self.clock: Clock | None = None
        self.time_type: pa.DataType | None = None
        self.budget: TickBudget | None = None
        self._first_stream = ""
        self._aliases: set[str] = set()

    # -- the query ---------------------------------------------------------------------------------------

    def query(self, tree: exp.Expr, name: str, text: str, one_time: bool = False) -> QueryPlan:
        """The plan of a whole query; a one-time query may read tables alone."""
        tree = expand_group_windows(expand_all(tree, self.context.source), self)
        check_order(unwrap(tree), self, top=not one_time)
        block = self.block(tree)
        if one_time and self.time_type is None:
            self.time_type = pa.int64()
        if self.time_type is None:
            raise BindingError(
                "a query must read at least one stream",
                hint="add a stream to FROM; tables alone do not change",
                span=span_of(tree, self.context.source),
            )
        root = self.emit(self.settled(block, rename=False))
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

    def emit(self, block: Block) -> Emit:
        """How a block's answer leaves."""
        op, period = block.op, block.shape.period
        if block.shape.session:
            self._check_ends(block)
            return Emit(block.node, StreamOp.RSTREAM, each=True)
        if op in RESTORE and period is None:
            raise BindingError(
                f"{op.name} needs a periodic query",
                hint="write a SLIDE in the window: [RANGE 1 MINUTE SLIDE 10 SECONDS]",
                span=block.span,
            )
        if op is None:
            op = StreamOp.RELATION if period is None else StreamOp.RSTREAM
        node = block.node
        if block.shape.append:
            node = Append(node)
        return Emit(node, op, period, block.shape.offset, at_most=block.shape.at_most)

    def stream(self, block: Block) -> Emit | None:
        """A block as a stream; None when its answer is a relation."""
        if block.op is not None or block.shape.period is not None or block.shape.session:
            return self.emit(block)
        return Emit(Append(block.node), StreamOp.ISTREAM) if block.shape.append else None

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

    def settled(self, block: Block, rename: bool = True) -> Block:
        """The block with the bounds that it shows computed, under names of their own."""
        shown = [o for o in block.outputs if is_bound(o.column)]
        if not shown:
            return block
        node = with_bounds(block.node, {o.column for o in shown}, self.grid(block.shape))
        if not rename:
            return replace(block, node=node)
        names = {o.column: self.context.fresh(o.name, o.type) for o in shown}
        outputs = tuple(replace(o, column=names.get(o.column, o.column)) for o in block.outputs)
        back = {new: old for old, new in names.items()}
        columns = {o.column: column(back.get(o.column, o.column), o.type) for o in outputs}
        return replace(block, node=Project(node, tuple(columns.items())), outputs=outputs)

    def _check_ends(self, block: Block) -> None:
        """Refuse a query over sessions whose rows may be there when none ends."""
        if not only_at_ends(block.node):
            raise UnsupportedError(
                "rows without a session in a query over SESSION",
                detail="the query is evaluated at the ends of sessions",
                hint="put SESSION on the left of an outer join, and into every branch of a set operation",
                span=block.span,
            )

    def use_clock(self, stream: StreamDef, span: Span | None) -> Clock:
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
                span=span,
            )
        return clock

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
        self.refuse_clauses(tree)
        if (with_ := tree.args.get("with_")) is not None and with_.args.get("recursive"):
            raise UnsupportedError("WITH RECURSIVE", span=span_of(with_, self.context.source))
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

    def select_list(self, select: exp.Select) -> SelectList:
        items = select.expressions
        distinct = select.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise UnsupportedError(
                "DISTINCT ON", hint="use PARTITION BY a ROWS 1", span=span_of(distinct, self.context.source)
            )
        node = items[0] if len(items) == 1 and isinstance(items[0], StreamItems) else None
        if node is None:
            return SelectList(items, None, distinct is not None, None)
        either = distinct is not None or bool(node.args.get("distinct"))
        return SelectList(node.expressions, OPERATORS[node.this], either, node)

    def _select(self, select: exp.Select, shape: BlockShape) -> Block:
        select = with_named_windows(select)
        listed = self.select_list(select)
        if not listed.items:
            raise CQLSyntaxError("an empty select list", hint="write SELECT * FROM ... or name columns")
        scope = Scope(self.context.source)
        self._check_shape(select, listed, shape)
        self.context.offsets[""] = offset_of(select) or 0
        shed = shed_clause(select)
        sheds = shed is not None and shed.heuristic is not None
        # rows are shed at their own times, so a shed join is looked at periodically, not its inputs
        from_ = bind_from(select, scope, replace(shape, quantise=False) if sheds else shape, self)
        scope.bounds = self.bounds(shape)
        importance = bind_importance(shed, from_, self.context) if shed is not None else Importance()
        select = with_importance(select, importance, self.context)
        listed = self.select_list(select)
        scope.aliases = {i.alias.lower(): i.this for i in listed.items if isinstance(i, exp.Alias)}
        plain, memberships = self.where(select, scope, top=True)
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
        for condition in conjuncts(where.this) if (where := select.args.get("where")) is not None else ():
            if membership_of(condition) is None and has_subquery(condition):
                filter_by(pipeline, scope, condition, shape, self)
        ends = next((e.ends for e in scope.entries if e.ends is not None), None)
        outputs = self._outputs(select, listed, scope, pipeline, shape, ends)
        span = span_of(listed.node, self.context.source) if listed.node is not None else None
        span = span or span_of(select, self.context.source)
        return Block(pipeline.node, outputs, shape, listed.op, span, ends)

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

    def where(self, select: exp.Select, scope: Scope, top: bool = False) -> tuple[list[exp.Expr], list[MembershipTest]]:
        """The resolved plain conditions, and the EXISTS and IN conditions as written; `top`: others with subqueries
        are left to the caller."""
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
                if not top:
                    raise UnsupportedError(
                        "a subquery inside an expression of a subquery",
                        hint="join it in FROM",
                        span=span_of(condition, self.context.source),
                    )
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

    # -- the select list ---------------------------------------------------------------------------------

    def _outputs(
        self,
        select: exp.Select,
        listed: SelectList,
        scope: Scope,
        pipeline: Pipeline,
        shape: BlockShape,
        ends: str | None,
    ) -> tuple[Output, ...]:
        """Compute the select list at the top of the pipeline."""
        subqueries = Subqueries(scope, shape, self)
        listed = replace(listed, items=[subqueries.lift(i) for i in listed.items])
        items = self.expand(listed.items, scope)
        starless = len(items) == len(listed.items)
        also = {name: _argument(i) for (name, _), i in zip(items, listed.items, strict=False)} if starless else {}
        group, having = select.args.get("group"), select.args.get("having")
        sets = self._sets(group, items, scope) if group is not None else [[]]
        keys = [k for keys in sets for k in keys]
        condition = resolve(subqueries.lift(having.this), scope) if having is not None else None
        qualify = select.args.get("qualify")
        qualified = [resolve(c, scope, over=True) for c in conjuncts(qualify.this)] if qualify is not None else []
        terms = order_of(select) if limit_of(select, self) is not None else []
        aliases = {name.lower(): tree for (name, tree), i in zip(items, listed.items, strict=False) if starless}
        sorted_ = [term_tree(term, items, aliases, scope, self) for term in terms]
        listing = [*(t for _, t in items), *sorted_, *qualified]
        grouped = group is not None or having is not None or any(find_aggregate(t, self.catalog) for t in listing)
        if grouped:
            session = _session_keys(keys, scope, ends)
            sets = [[*keys, *session] for keys in sets]
            grouping = BlockAggregates(pipeline, scope, sets, subqueries.columns)
            items = [(name, grouping.rewrite(tree)) for name, tree in items]
            sorted_, qualified = ([grouping.rewrite(t) for t in trees] for trees in (sorted_, qualified))
            wanted = taken_together(list(conjuncts(condition))) if condition is not None else []
            conditions = [grouping.rewrite(c) for c in wanted]
            above = grouping.finish(per_window=shape.aligned or (group is not None and len(sets) == 1))
            subqueries.attach(above, grouping.rewrite)
            for tree in conditions:
                above.filter(tree, "HAVING")
            pipeline.node, pipeline.calls = above.node, {}
        subqueries.attach(pipeline)
        of_rows = [c.internal for e in scope.entries for c in e.columns if c.internal in pipeline.node.schema]
        analytics = Analytics(pipeline, tuple(dict.fromkeys(grouping.keys.values() if grouped else of_rows)))
        items = [(name, analytics.rewrite(tree)) for name, tree in items]
        sorted_, qualified = ([analytics.rewrite(t) for t in trees] for trees in (sorted_, qualified))
        analytics.finish()
        for tree in qualified:
            pipeline.filter(tree, "QUALIFY")
        items = unnested(items, pipeline)
        columns: dict[str, Expr] = {}
        outputs = []
        symbolic = any(not is_symbol(tree) for _, tree in items)  # a relation needs some column
        for name, tree in items:
            if symbolic and is_symbol(tree):
                outputs.append(Output(name, tree.name, self.context.types[tree.name]))
                continue
            expr = pipeline.expr(tree)
            internal = expr.column or next((n for n, e in columns.items() if e == expr), None)
            internal = internal or self.context.computed(expr)
            columns[internal] = expr
            outputs.append(Output(name, internal, expr.type, also.get(name)))
        if ends is not None:
            columns[ends] = column(ends, self.context.types[ends])
        shown = tuple(columns)
        keys_by = [self._sorted_by(t, tree, columns, pipeline, listed) for t, tree in zip(terms, sorted_, strict=True)]
        if tuple(columns) != tuple(pipeline.node.schema):
            pipeline.node = Project(pipeline.node, tuple(columns.items()))
        if listed.distinct:
            pipeline.node = Distinct(pipeline.node)
        if (limit := limit_of(select, self)) is not None:
            ties = tuple(dict.fromkeys(o.column for o in outputs if o.column in columns))
            partition = () if ends is None else (ends,)
            pipeline.node = keep_columns(first_rows(pipeline.node, keys_by, ties, limit, partition), shown)
        return tuple(outputs)

    def _sorted_by(
        self, term: exp.Ordered, tree: exp.Expr, columns: dict[str, Expr], pipeline: Pipeline, listed: SelectList
    ) -> SortKey:
        """The key of a term, over a column that is computed for it if nothing else has it."""
        expr = pipeline.expr(tree)
        name = expr.column or next((n for n, e in columns.items() if e == expr), None)
        if listed.distinct and name not in columns:
            raise BindingError(
                "ORDER BY of what SELECT DISTINCT does not show",
                hint="add it to the select list",
                span=span_of(term, self.context.source),
            )
        name = name or self.context.fresh(expr.sql(lambda n: n), expr.type)
        columns[name] = expr
        return sort_key(term, name)

    def expand(self, items: list[exp.Expr], scope: Scope) -> list[tuple[str, exp.Expr]]:
        """The select list with * expanded: (shown name, resolved tree)."""
        found: list[tuple[str, exp.Expr]] = []
        for item in items:
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                found.extend(self._star(item, scope))
                continue
            tree = resolve(item.this if isinstance(item, exp.Alias) else item, scope, over=True)
            found.append((self._name(item, tree, scope, len(found)), tree))
        return found

    def _star(self, item: exp.Expr, scope: Scope) -> Iterator[tuple[str, exp.Expr]]:
        star = item if isinstance(item, exp.Star) else item.this
        if any(star.args.values()):
            raise UnsupportedError(
                "* with EXCLUDE, REPLACE or RENAME", hint="name the columns", span=span_of(item, self.context.source)
            )
        entries = scope.entries
        if isinstance(item, exp.Column):
            entry = next((e for e in scope.entries if e.named(item.table)), None)
            if entry is None:
                raise scope.unknown(item)
            entries = [entry]
        merged = set()
        for entry in entries:
            for c in entry.columns:
                one = scope.merged.get(c.name.lower()) if isinstance(item, exp.Star) else None
                if one is not None and c.name.lower() in merged:
                    continue
                merged.add(c.name.lower() if one is not None else "")
                yield c.name, resolved(one.internal if one is not None else c.internal, item)

    def _name(self, item: exp.Expr, tree: exp.Expr, scope: Scope, position: int) -> str:
        """The name of a select item: its own, its column's, or the one DuckDB would give it."""
        if isinstance(item, exp.Alias):
            return str(item.alias)
        if isinstance(item, exp.Column) and isinstance(tree, exp.Column):
            return next(
                (c.name for e in scope.everything() for c in e.columns if c.internal == tree.name), str(item.name)
            )
        tables = {e.alias: {c.name: c.type for c in e.columns} for e in scope.entries}
        try:
            check_growth(item, {})
            shown = types.shown_name(sql_of(render(item, _as_written, AGGREGATE_SYNTAX)), tables)
        except Refused:  # a user function, or what will be refused
            shown = None
        return shown or " ".join(str(item.meta.get(TEXT, "")).split()).lower() or f"column{position}"

    def _sets(self, group: exp.Group, items: list[tuple[str, exp.Expr]], scope: Scope) -> list[list[exp.Expr]]:
        """The sets of trees to group by: columns, expressions, ordinals, select aliases, or ALL."""
        for key in ("grouping_sets", "cube", "rollup", "totals"):
            if group.args.get(key):
                raise UnsupportedError(
                    f"WITH {key.replace('_', ' ').upper()}",
                    hint="write GROUP BY ROLLUP (a, b)",
                    span=span_of(group, self.context.source),
                )
        if group.args.get("all"):
            return [[t for _, t in items if find_aggregate(t, self.catalog) is None]]
        if (count := count_of(group)) > MOST_SETS:
            raise UnsupportedError(
                f"{count:,} sets of keys in one GROUP BY",
                hint=f"write at most {MOST_SETS}",
                span=span_of(group, self.context.source),
            )
        found = sets_of(group) if has_sets(group) else [tuple(group.expressions)]
        return [[self._key(tree, items, scope) for tree in keys] for keys in found]

    def _key(self, tree: exp.Expr, items: list[tuple[str, exp.Expr]], scope: Scope) -> exp.Expr:
        if isinstance(tree, exp.Literal) and not tree.is_string:
            return self._ordinal(tree, items)
        return resolve(tree, scope)

    def _ordinal(self, tree: exp.Literal, items: list[tuple[str, exp.Expr]]) -> exp.Expr:
        position = int(tree.name) if tree.name.isdigit() else 0
        if not 1 <= position <= len(items):
            raise BindingError(
                f"GROUP BY {tree.name}: the select list has {len(items)} items",
                hint="count from 1",
                span=span_of(tree, self.context.source),
            )
        return items[position - 1][1]


def _session_keys(keys: list[exp.Expr], scope: Scope, ends: str | None) -> list[exp.Expr]:
    """What an aggregate over sessions is grouped by besides: the session itself, unless its bounds are named."""
    if ends is None:
        return []
    named = {c for k in keys for c in columns_of(k)}
    found = [ends]
    for entry in scope.entries:
        if not named & set(entry.session[-2:]):
            found += entry.session
    return [resolved(c) for c in dict.fromkeys(found)]


def only_at_ends(node: Node) -> bool:
    """Whether rows are there only at instants at which a session ends."""
    match node:
        case Session():
            return True
        case Join(parts=parts):
            return any(map(only_at_ends, parts))
        case Semi(left=left, right=right, anti=anti):
            return only_at_ends(left) or (not anti and only_at_ends(right))
        case Aggregate(keys=keys):
            return bool(keys) and only_at_ends(node.input)
        case Union(parts=parts):
            return all(map(only_at_ends, parts))
        case Window() | Scan() | TableScan() | Append() | Emit():
            return False
    return bool(node.inputs) and only_at_ends(node.inputs[0])


def _as_written(column: exp.Expr) -> list[Piece]:
    """A column that is not resolved, by the names it was written with."""
    return [".".join(quote(p.name) for p in column.parts)]  # type: ignore[attr-defined]


def _argument(item: exp.Expr) -> str | None:
    """The column's name when an unnamed item is a function of just that column."""
    only = item.expressions[0] if isinstance(item, exp.Anonymous) and len(item.expressions) == 1 else None
    return str(only.name) if isinstance(only, exp.Column) and not isinstance(only.this, exp.Star) else None


def bind_select(
    tree: exp.Expr, catalog: Catalog, source: ScriptText, name: str, text: str, span: Span, one_time: bool = False
) -> QueryPlan:
    """Bind a query; an error that names no place gets the statement's."""
    try:
        return Binder(catalog, source).query(tree, name, text, one_time)
    except WindrowError as error:
        raise error.at(span) from None
