"""ASOF JOIN: equalities and one inequality, `l.ts >= r.ts`, to a plan.

Where the times are those of streams, what a left row may meet is known when it comes, and `AsofJoin` makes the pair
once (`operators/asof.py`). In any other case (the right side is a query, a count window or a table that reaches back,
or values other than times are compared) the newest right row is the last one before the left row in the union of both
sides, sorted by the value compared:

    Union(left, right) -> Analytic(last right row, by key, in the order of value) -> Filter(left rows)

Right rows of one value are in the order of arrival where they have one, else by their time and their columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from windrow.cql import types
from windrow.cql.bounds import parted
from windrow.cql.expressions import BindingContext
from windrow.cql.joins import JoinInput, Matching, match
from windrow.cql.pipeline import extend
from windrow.cql.scope import columns_of, span_of
from windrow.errors import BindingError, UnsupportedError
from windrow.operators.aggregates.order import has_fixed_codes
from windrow.operators.terms import SortKey
from windrow.plan.expr import Expr, Ref, column
from windrow.plan.nodes import (
    Analytic,
    AnalyticCall,
    AsofJoin,
    Filter,
    Node,
    Project,
    Quantise,
    Scan,
    TableScan,
    Union,
    Window,
    WindowKind,
)
from windrow.plan.timestamped import comes_in_order

if TYPE_CHECKING:
    from windrow.cql.select import Binder

_HINT = "write ASOF JOIN r ON l.k = r.k AND l.ts >= r.ts"
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {exp.LTE: exp.GTE, exp.LT: exp.GT, exp.GTE: exp.LTE, exp.GT: exp.LT}


def bind_asof(
    left: JoinInput, right: JoinInput, conditions: Sequence[exp.Expr], pad: bool, node: exp.Join, binder: Binder
) -> JoinInput:
    """The ASOF JOIN of two inputs on resolved conditions."""
    context = binder.context
    if any(e.valid is not None for e in right.entries):
        raise UnsupportedError(
            "ASOF JOIN with a table that has VALID FROM ... TO",
            hint="its rows say when they are valid: write JOIN",
            span=span_of(node, context.source),
        )
    conditions, fixed = parted(list(conditions))  # rows of one window meet anyway
    order, equal = _split(conditions, left, right, node, context)
    matching = match([left.node, right.node], equal, context)
    if matching.rest or matching.residual or fixed:
        raise _malformed(node, context, "its condition has more than equalities between the sides and one inequality")
    strict = isinstance(order, exp.GT)
    times = _compared(order, matching, context)
    entries = left.entries + [replace(e, nullable=True) if pad else e for e in right.entries]
    plan = _timed(matching, times, strict, pad, left, right)
    plan = plan or _from_table(matching, times, strict, pad, node, context)
    return JoinInput(plan or _general(matching, times, strict, pad, right, context), entries)


def _split(
    conditions: Sequence[exp.Expr], left: JoinInput, right: JoinInput, node: exp.Join, context: BindingContext
) -> tuple[exp.Expr, list[exp.Expr]]:
    """The inequality, with the left side's value on the left, and the rest."""
    found: list[exp.Expr] = []
    rest: list[exp.Expr] = []
    for condition in conditions:
        turned = condition
        if type(condition) in _MIRRORED and columns_of(condition.this) <= right.columns:
            turned = _MIRRORED[type(condition)](this=condition.expression, expression=condition.this)
            turned.meta.update(condition.meta)
        crosses = type(turned) in _MIRRORED and (
            columns_of(turned.this) <= left.columns and columns_of(turned.expression) <= right.columns
        )
        (found if crosses else rest).append(turned)
    if len(found) != 1:
        raise _malformed(node, context, f"it needs one inequality between the times of its sides, and has {len(found)}")
    if not isinstance(found[0], (exp.GTE, exp.GT)):
        raise UnsupportedError(
            "ASOF JOIN with the first row afterwards",
            detail="a row is joined with the newest one at or before its time",
            hint="write l.ts >= r.ts, or l.ts > r.ts",
            span=span_of(found[0], context.source),
        )
    return found[0], rest


def _malformed(node: exp.Join, context: BindingContext, detail: str) -> BindingError:
    return BindingError(
        "ASOF JOIN on what it cannot follow", detail=detail, hint=_HINT, span=span_of(node, context.source)
    )


def _compared(order: exp.Expr, matching: Matching, context: BindingContext) -> tuple[str, str]:
    """The columns that hold the values compared, in one type; computed where they are not columns."""
    context.expr(order)  # DuckDB agrees that the two can be compared
    sides = [context.expr(order.this), context.expr(order.expression)]
    if not types.comparable(sides[0].type, sides[1].type):
        raise BindingError(
            "type mismatch",
            detail=f"cannot compare {types.sql_name(sides[0].type)} with {types.sql_name(sides[1].type)}",
            hint="CAST one side to the type that is meant",
            span=span_of(order, context.source),
        )
    common = types.common_type(sides[0].type, sides[1].type)
    names = []
    for place, side in enumerate(sides):
        if side.type != common:
            side = Expr(("CAST(", *side.parts, f" AS {types.sql_name(common)})"), common)
        name = side.column
        if name is None:
            name = context.computed(side)
            matching.nodes[place] = extend(matching.nodes[place], {name: side})
        names.append(name)
    return names[0], names[1]


# -- times of streams --------------------------------------------------------------------------------------------------


def _timed(
    matching: Matching, times: tuple[str, str], strict: bool, pad: bool, left: JoinInput, right: JoinInput
) -> Node | None:
    """The pairs as they come, where both times are those of streams; None if it is not so."""
    (one, seen), (other, also) = (_peeled(node) for node in matching.nodes)
    if seen != also or not comes_in_order(other, times[1]):
        return None
    if times[0] not in {e.time for e in left.entries} and not comes_in_order(one, times[0]):
        return None
    derived = times[1] not in {e.time for e in right.entries}
    joined: Node = AsofJoin(one, other, tuple(matching.equalities), times, strict, pad, derived)
    return joined if seen is None else Quantise(joined, *seen)


def _peeled(node: Node) -> tuple[Node, tuple[int, int, bool] | None]:
    """A node without the period that it is seen by: a join of what is there is seen as its sides are."""
    if isinstance(node, Quantise):
        return node.input, (node.period, node.offset, node.before)
    if isinstance(node, Filter | Project):
        below, seen = _peeled(node.input)
        return replace(node, input=below), seen
    return node, None


def _from_table(
    matching: Matching, times: tuple[str, str], strict: bool, pad: bool, node: exp.Join, context: BindingContext
) -> Node | None:
    """The join with a table as it is when a left row comes; None if the right side is anything else."""
    left, right = matching.nodes
    table = next((x for x in _chain(right) if isinstance(x, TableScan)), None)
    if table is None or table.retroactive:
        return None
    one, seen = _peeled(left)
    window = next((x for x in _chain(one) if isinstance(x, Window)), None)
    direct = window is not None and isinstance(window.input, Scan) and window.spec.kind is not WindowKind.ROWS
    compared = right.schema[times[1]]
    what, hint = "with what is no window of time over one stream", "join it right behind the stream"
    if direct:
        what, hint = f"by a {types.sql_name(compared)}", "compare 64 bits or less, as with CAST(... AS DOUBLE)"
    if not direct or not has_fixed_codes(compared):
        raise UnsupportedError(
            f'ASOF JOIN of the table "{table.table}" {what}',
            hint=f"{hint}, or declare {table.table} as a RETROACTIVE table",
            span=span_of(node, context.source),
        )
    joined: Node = AsofJoin(one, right, tuple(matching.equalities), times, strict, pad, derived=True)
    return joined if seen is None else Quantise(joined, *seen)


def _chain(node: Node) -> Iterator[Node]:
    """A node and those below it while each looks at rows one by one."""
    yield node
    while isinstance(node, Filter | Project):
        node = node.input
        yield node


# -- anything else -----------------------------------------------------------------------------------------------------


def _general(
    matching: Matching, times: tuple[str, str], strict: bool, pad: bool, input_: JoinInput, context: BindingContext
) -> Node:
    left, right = matching.nodes
    wanted = dict(right.schema)
    right, ties = _numbered(right, [e.right for e in matching.equalities], times[1], input_, context)
    value, side = context.fresh("value", left.schema[times[0]]), context.fresh("side", pa.int32())
    keys = [context.fresh("key", left.schema[e.left]) for e in matching.equalities]
    struct = pa.struct([(f"f{i}", t) for i, t in enumerate(wanted.values())])
    row, found = context.fresh("row", struct), context.fresh("newest", struct)
    tied = [context.fresh("tie", right.schema[t]) for t in ties]

    def columns(node: Node, names: Sequence[str], rank: int) -> dict[str, Expr]:
        read = [column(n, node.schema[n]) for n in names]
        return dict(zip([*keys, value], read, strict=True)) | {side: Expr((str(rank),), pa.int32())}

    ours = {n: column(n, t) for n, t in left.schema.items()}
    ours |= columns(left, [*(e.left for e in matching.equalities), times[0]], 0 if strict else 1)
    ours |= {t: types.null_of(right.schema[n]) for t, n in zip(tied, ties, strict=True)} | {row: types.null_of(struct)}
    theirs = {n: types.null_of(t) for n, t in left.schema.items()}
    theirs |= columns(right, [*(e.right for e in matching.equalities), times[1]], 1 if strict else 0)
    theirs |= {t: column(n, right.schema[n]) for t, n in zip(tied, ties, strict=True)} | {row: _packed(wanted, struct)}
    there = [e.right for e in matching.equalities if not e.null_safe] + [times[1]]
    for name in there:
        right = Filter(right, Expr(("(", Ref(name), " IS NOT NULL)"), pa.bool_()))
    both = Union((Project(left, tuple(ours.items())), Project(right, tuple(theirs.items()))))
    call = AnalyticCall(
        found,
        "last_value",
        Expr(("last_value(", Ref(row), " IGNORE NULLS)"), struct),
        (SortKey(value, nulls_first=True), SortKey(side)),
        tuple(tied),
        "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    )
    made: Node = Analytic(both, tuple(keys), (call,))
    made = Filter(made, Expr(("(", Ref(side), f" = {0 if strict else 1})"), pa.bool_()))
    if not pad:
        made = Filter(made, Expr(("(", Ref(found), " IS NOT NULL)"), pa.bool_()))
    shown = {n: column(n, t) for n, t in left.schema.items()}
    shown |= {n: Expr(("struct_extract(", Ref(found), f", 'f{i}')"), t) for i, (n, t) in enumerate(wanted.items())}
    return Project(made, tuple(shown.items()))


def _numbered(
    node: Node, keys: Sequence[str], time: str, input_: JoinInput, context: BindingContext
) -> tuple[Node, list[str]]:
    """The right side, and the columns by which rows of one value are ordered: a count window numbers its rows.

    Those of one key must be numbered together, whatever partitions of the window they are in.
    """
    below, seen = _peeled(node)
    chain = list(_chain(below))
    if isinstance(chain[-1], Window) and chain[-1].spec.kind is WindowKind.ROWS and len(chain) == 1:
        number = context.fresh("number", pa.int64())
        partition = chain[-1].spec.partition
        shared = tuple(i for i, c in enumerate(partition) if c in keys)
        together = shared if len(shared) < len(partition) else None
        made: Node = replace(chain[-1], number=number, together=together)
        return (made if seen is None else Quantise(made, *seen)), [number]
    own = [e.time for e in input_.entries if e.time is not None and e.time != time]
    return node, list(dict.fromkeys([*own, *(c.internal for e in input_.entries for c in e.columns)]))


def _packed(columns: dict[str, pa.DataType], struct: pa.DataType) -> Expr:
    parts: list[str | Ref] = ["struct_pack("]
    for i, name in enumerate(columns):
        parts += [", " * bool(i) + f"f{i} := ", Ref(name)]
    return Expr((*parts, ")"), struct)
