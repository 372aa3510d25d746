"""UNNEST and LATERAL in FROM: rows that each row before them makes.

    FROM s, UNNEST(s.tags) AS u(tag)                      a row for each element
    FROM s CROSS JOIN UNNEST(s.tags) WITH ORDINALITY AS u(tag, n)
    FROM s, LATERAL (SELECT t FROM UNNEST(s.tags) AS u(t) WHERE t > s.a) AS x

They read columns of one input of FROM, and only widen it: an `Unnest`, a selection or a projection above its node, so
nothing is joined. `LEFT JOIN UNNEST(...) ON TRUE` keeps rows whose list is empty or null, with a null.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from windrow.cql import types
from windrow.cql.bounds import symbols
from windrow.cql.expressions import find_aggregate
from windrow.cql.forms import FIELDS
from windrow.cql.pipeline import Pipeline, extend
from windrow.cql.scope import Entry, Scope, ScopeColumn, columns_of, conjuncts, resolve, span_of
from windrow.errors import BindingError, UnsupportedError
from windrow.plan.expr import Expr, Ref
from windrow.plan.nodes import Unnest

if TYPE_CHECKING:
    from windrow.cql.joins import JoinInput
    from windrow.cql.select import Binder

_PARTS = {"kind", "expressions", "from_", "joins", "where"}


def is_lateral(source: exp.Expr) -> bool:
    """Whether an item of FROM makes rows of those before it."""
    return isinstance(source, (exp.Unnest, exp.Lateral))


def is_constant(source: exp.Expr) -> bool:
    """Whether the rows that an item of FROM makes are the same whatever stands before it."""
    return isinstance(source, exp.Unnest) and source.find(exp.Column) is None


@dataclass
class Laterals:
    """The inputs of a FROM that such items widen, and the names they may use."""

    inputs: list[JoinInput]
    scope: Scope
    binder: Binder
    owner: JoinInput | None = field(default=None)

    def bind(self, source: exp.Expr, pad: bool) -> Entry:
        """Widen the input that the item reads; the entry is what it shows."""
        self.owner = None
        if isinstance(source, exp.Unnest):
            return self._unnest(source, source, self.scope, pad)
        if isinstance(source.this, exp.Unnest):
            return self._unnest(source.this, source, self.scope, pad)
        query = source.this.this if isinstance(source.this, exp.Subquery) else None
        if not isinstance(query, exp.Select):
            raise self._unsupported("LATERAL with a function", source)
        return self._select(query, source, pad)

    # -- UNNEST ----------------------------------------------------------------------------------------------------

    def _unnest(self, call: exp.Unnest, source: exp.Expr, scope: Scope, pad: bool) -> Entry:
        if len(call.expressions) != 1:
            raise self._unsupported("UNNEST of several lists in FROM", call)
        pipeline = self._pipeline([tree := resolve(call.expressions[0], scope)], call)
        context = self.binder.context
        lists = pipeline.materialise(pipeline.hoist(tree))
        type_ = context.types[lists]
        if not (pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_)):
            raise BindingError(
                f"UNNEST of a {types.sql_name(type_)}",
                hint="unnest a list, such as map_entries(a)",
                span=span_of(call, context.source),
            )
        context.unnested(lists, call)
        columns = [(self._names(call, source, 1)[0], lists, type_.value_type)]
        if call.args.get("offset"):
            columns.append((self._names(call, source, 2)[1], self._places(pipeline, lists), pa.int64()))
        given = self._given(source)
        width = type_.value_type.num_fields if pa.types.is_struct(type_.value_type) else 0
        found = []
        for name, list_, element in columns:
            column = self._padded(pipeline, list_, element) if pad else list_
            found.append((ScopeColumn(name, context.fresh(name, element), element), column))
        pipeline.node = Unnest(pipeline.node, tuple((c.internal, list_, c.type) for c, list_ in found))
        shown = [c for c, _ in found]
        if width and (call.meta.get(FIELDS) or 1 < width <= len(given)):
            place = self._names(call, source, 2, first=width)[1]
            shown = [*self._fields(pipeline, shown[0], given), *(replace(c, name=place) for c in shown[1:])]
        self._widen(pipeline)
        return Entry(self._alias(source, "unnest"), tuple(shown), is_table=True)

    def _given(self, source: exp.Expr) -> list[str]:
        alias = source.args.get("alias")
        return [c.name for c in alias.args.get("columns") or []] if alias is not None else []

    def _fields(self, pipeline: Pipeline, row: ScopeColumn, names: list[str]) -> list[ScopeColumn]:
        """A column for each field of the elements, which are rows."""
        found = []
        for place, (name, field_) in enumerate(zip(names, row.type, strict=False)):
            read = Expr(("struct_extract_at(", Ref(row.internal), f", {place + 1})"), field_.type)
            found.append(ScopeColumn(name, self._computed(pipeline, read), field_.type))
        return found

    def _names(self, call: exp.Unnest, source: exp.Expr, count: int, first: int = 1) -> list[str]:
        """What the columns are called: as the alias says, or as DuckDB would; `first`: the names of the elements."""
        given = self._given(source)[first - 1 :]
        offset = call.args.get("offset")
        default = [self._alias(source, "unnest"), offset.name if isinstance(offset, exp.Identifier) else "ordinality"]
        return [given[i] if i < len(given) else default[i] for i in range(count)]

    def _places(self, pipeline: Pipeline, lists: str) -> str:
        """A column of the places of a list's elements, counted from 1."""
        return self._computed(pipeline, Expr(("generate_series(1, len(", Ref(lists), "))"), pa.list_(pa.int64())))

    def _padded(self, pipeline: Pipeline, lists: str, element: pa.DataType) -> str:
        """A column with a null in the place of lists without elements."""
        sql = f"{types.sql_name(element)}[]"
        empty = ("CASE WHEN coalesce(len(", Ref(lists), f"), 0) = 0 THEN CAST([NULL] AS {sql}) ELSE CAST(")
        return self._computed(pipeline, Expr((*empty, Ref(lists), f" AS {sql}) END"), pa.list_(element)))

    def _computed(self, pipeline: Pipeline, expr: Expr) -> str:
        name = self.binder.context.computed(expr)
        pipeline.node = extend(pipeline.node, {name: expr})
        return name

    # -- LATERAL (SELECT ...) --------------------------------------------------------------------------------------

    def _select(self, query: exp.Select, source: exp.Expr, pad: bool) -> Entry:
        from_, where = query.args.get("from_"), query.args.get("where")
        others = [key for key, part in query.args.items() if part and key not in _PARTS]
        items = [from_.this] if from_ is not None else []
        items += [join.this for join in query.args.get("joins") or ()]
        if (
            others
            or not all(map(is_lateral, items))
            or any(find_aggregate(i, self.binder.catalog) for i in query.expressions)
        ):
            raise UnsupportedError(
                "LATERAL that is more than the row before it and rows that comparisons link to it",
                hint="link it by comparisons of columns with tables (WHERE s.k = i.k); an aggregate without GROUP "
                "BY is a subquery of the select list: (SELECT COUNT(*) FROM s WHERE s.k = i.k)",
                span=span_of(source, self.binder.context.source),
            )
        if pad and (where is not None or len(items) > 1):
            raise self._unsupported("LEFT JOIN LATERAL with a condition", source)
        inner = Scope(self.binder.context.source, [], outer=self.scope)
        for item in items:
            call = item.this if isinstance(item, exp.Lateral) else item
            if not isinstance(call, exp.Unnest):
                raise self._unsupported("LATERAL inside LATERAL", source)
            inner.entries.append(self._unnest(call, item, inner, pad))
        conditions = [resolve(c, inner) for c in conjuncts(where.this)] if where is not None else []
        shown = [
            (i.alias_or_name or f"column{n}", resolve(i.unalias(), inner)) for n, i in enumerate(query.expressions)
        ]
        pipeline = self._pipeline([*conditions, *(tree for _, tree in shown)], source)
        for condition in conditions:
            pipeline.filter(condition, "WHERE")
        columns = []
        for name, tree in shown:
            internal = pipeline.materialise(pipeline.hoist(tree))
            columns.append(ScopeColumn(name, internal, self.binder.context.types[internal]))
        self._widen(pipeline)
        return Entry(self._alias(source, "lateral"), tuple(columns), is_table=True)

    # -- the input that is widened -----------------------------------------------------------------------------------

    def _pipeline(self, trees: Iterable[exp.Expr], at: exp.Expr) -> Pipeline:
        """The top of the one input whose columns are read."""
        read = frozenset().union(*(columns_of(tree) for tree in trees))
        owners = [i for i in self.inputs if not read.isdisjoint(i.columns)]
        owner = owners[0] if owners else self.owner or self.inputs[-1]
        if not read <= owner.columns or any(symbols(tree) for tree in trees):
            raise self._unsupported("UNNEST or LATERAL over several parts of FROM", at)
        self.owner = owner
        return Pipeline(self.binder.context, owner.node)

    def _widen(self, pipeline: Pipeline) -> None:
        assert self.owner is not None
        self.owner.node = pipeline.node

    def _alias(self, source: exp.Expr, default: str) -> str:
        return str(source.alias or default)

    def _unsupported(self, what: str, at: exp.Expr) -> UnsupportedError:
        return UnsupportedError(
            what,
            hint="compute it in a subquery in FROM, or with functions of lists",
            span=span_of(at, self.binder.context.source),
        )
