"""Joins as operators.

EXISTS, NOT EXISTS and LEFT JOIN need no operators of their own. With signed lifetimes, a semi-join is a join with the
distinct keys of the right side, an anti-join is the left side minus that, and a left join is the inner join plus the
anti-join padded with nulls. When the correlation is more than equalities, the distinct correlated values of the left
side are first joined to the right, and the left side meets those that found a partner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa

from windrow.operators.aggregate_join import AggregateDeltas, groups_of
from windrow.operators.aggregates import Aggregation
from windrow.operators.asof import AsofOperator
from windrow.operators.bag import BagOperator
from windrow.operators.births import BORN, Births
from windrow.operators.early_extremes import EarlyExtremes
from windrow.operators.first_match import FirstMatch
from windrow.operators.join import JoinOperator
from windrow.operators.join_steps import LEAST, Part, classes
from windrow.operators.linear import Formula, Pad, ProjectOperator, UnionOperator
from windrow.operators.quantise import QuantiseOperator
from windrow.operators.recall_join import RecallJoin
from windrow.operators.star_join import FactTable, Policy, StarJoinOperator, StarStream
from windrow.plan import nodes as n
from windrow.plan.aggregate_join_cost import early_extremes_pay
from windrow.plan.aggregation_joins import AggregationJoin
from windrow.plan.bands import bands
from windrow.plan.expr import Expr
from windrow.plan.extremes_below import ExtremesBelow, extremes_below, over_extremes, repetitions_count
from windrow.plan.lowering import PlanLowering, formula
from windrow.plan.patterns import Pattern, lifetimes
from windrow.plan.timestamped import comes_in_order

Equalities = Sequence[tuple[str, str, bool]]


def join(to: PlanLowering, node: n.Join) -> int:
    """The exact join of any number of inputs.

    Rows meet a table that does not reach back as it is when they come: a periodic query looks at such a join, and not
    at its inputs, which is the same for lifetimes.
    """
    seen = seen_behind(node) if to.periodic else None
    if seen is None:
        return _join(to, node)
    with to.at_own_times():
        joined = _join(to, node)
    return to.append(joined, QuantiseOperator(seen.period, seen.offset, seen.before), node)


def seen_behind(node: n.Node) -> n.Quantise | None:
    """How a periodic query looks at its inputs, if they meet a table that does not reach back."""
    found = _looks(node)
    if found is None or not any(isinstance(t, n.TableScan) and not t.retroactive for t in n.walk(node)):
        return None
    return found[0] if len({(q.period, q.offset, q.before) for q in found}) == 1 else None


def _looks(node: n.Node) -> list[n.Quantise] | None:
    """The looks at inputs below; None where something else lies between."""
    match node:
        case n.Quantise():
            return [node]
        case n.TableScan():
            return []
        case n.Filter() | n.Project() | n.Call() | n.Unnest() | n.Join():
            below = [_looks(i) for i in node.inputs]
            return None if any(b is None for b in below) else [q for b in below for q in b or ()]
    return None


def _join(to: PlanLowering, node: n.Join) -> int:
    equalities = [(e.left, e.right, e.null_safe) for e in node.equalities]
    # an internal window's ends must not undo results, so they stay lifetimes up to the join
    with to.unannounced() if any(node.internal) else nullcontext():
        parts = [to.lower(p) for p in node.parts]
    joined = join_steps(to, parts, equalities, node.residual, node, node.internal)
    return to.announced(joined, node) if any(node.internal) else joined


def join_steps(
    to: PlanLowering,
    steps: Sequence[int],
    equalities: Sequence[tuple[str, str, bool]],
    residual: Sequence[Expr],
    node: n.Node,
    internal: Sequence[bool] = (),
    rename: Mapping[str, str] | None = None,
    reach_back: bool = False,
    once: bool = False,
) -> int:
    """A join over steps; `rename`: other names for columns of the residual; `reach_back`: tables end what they met;
    `once`: the rows of the first that have a partner in the second."""
    flags = internal or (False,) * len(steps)
    read = [to.flow.steps[s] for s in steps]
    met = not reach_back and not all(r.static for r in read)  # tables alone meet each other as they change
    signed = [r.signed or (r.static and reach_back) for r in read]
    parts = [Part(dict(r.schema), g, i, r.static and met) for r, g, i in zip(read, signed, flags, strict=True)]
    types, renamed = {c: t for p in parts for c, t in p.columns.items()}, rename or {}

    def made(parts: Sequence[Part], equalities: Equalities, residual: Sequence[Expr]) -> JoinOperator:
        return (FirstMatch if once else JoinOperator)(
            parts,
            equalities,
            [formula(e, rename, {c: types[renamed.get(c, c)] for c in e.columns}) for e in residual],
            eager=to.strategy.scans,
            bands=bands(residual, types, rename),
            measures=to.tuning.measures,
            interval=to.expires_every,
        )

    shown = dict(parts[0].columns) if once else types
    announced = any(p.static for p in parts) and any(p.strict and not p.static for p in parts)
    if to.recalls and announced and not any(flags):
        return to.flow.add(_recalling(parts, equalities, residual, renamed, shown, made), steps, node, shown)
    return to.flow.add(made(parts, equalities, residual), steps, node, shown)


def _recalling(
    parts: Sequence[Part],
    equalities: Equalities,
    residual: Sequence[Expr],
    renamed: Mapping[str, str],
    shown: Mapping[str, pa.DataType],
    made: Callable[..., JoinOperator],
) -> RecallJoin:
    """The join of inputs that announce ends with tables: the inputs first, by all that they have in common."""
    moving, fixed = [p for p in parts if not p.static], [p for p in parts if p.static]
    births = [Births(f"{BORN}{i}", p.columns, p.strict) for i, p in enumerate(moving)]
    dated = [replace(p, columns={**p.columns, b.name: pa.int64()}) for p, b in zip(moving, births, strict=True)]
    joined = Part({**{c: t for p in dated for c, t in p.columns.items()}, LEAST: pa.int64()})
    inner, outer = list[tuple[str, str, bool]](), list[tuple[str, str, bool]]()
    for columns, safe in classes(equalities):
        ours, others = [c for c in columns if c in joined.columns], [c for c in columns if c not in joined.columns]
        inner += [(a, b, safe) for a, b in pairwise(ours)]
        outer += [(a, b, safe) for a, b in pairwise([*ours[:1], *others])]
    within = [e for e in residual if {renamed.get(c, c) for c in e.columns} <= joined.columns.keys()]
    streams = made(dated, inner, within) if len(moving) > 1 else None
    if streams is None:
        outer, within = [*inner, *outer], []
    tables = made([joined, *fixed], outer, [e for e in residual if e not in within])
    return RecallJoin([p.static for p in parts], births, streams, tables, shown)


def counted(to: PlanLowering, step: int, node: n.Node) -> int:
    """Distinct keys by counting: one element while a key is there, where delta-star would hand over from copy to
    copy and make every live row on the left meet each of them."""
    schema = to.flow.steps[step].schema
    return to.flow.add(BagOperator("distinct", schema, to.pending()), [step], node, schema)


def star_join(to: PlanLowering, node: n.StarJoin) -> int:
    """The join in bounded memory."""
    # rows wait in memory for their end, so windows must not spell it as a negative element
    with to.unannounced():
        steps = [to.lower(p) for p in node.parts]
    count = len(node.keys)
    names = [next((s.stream for s in n.walk(p) if isinstance(s, n.Scan)), "") for p in node.parts[:count]]
    schemas = [dict(to.flow.steps[s].schema) for s in steps]
    streams = [StarStream(*part) for part in zip(names, schemas, node.keys, node.importance, strict=False)]
    facts = None
    if node.facts:
        table = next(t.table for t in n.walk(node.parts[-1]) if isinstance(t, n.TableScan))
        facts = FactTable(table, schemas[-1], node.facts, node.valid)
    shedding = node.shedding
    policy = Policy(shedding.heuristic, shedding.keep, shedding.shared, shedding.alpha, shedding.beta, shedding.seed)
    join = StarJoinOperator(streams, facts, policy, [formula(e, types=node.schema) for e in node.residual])
    return to.announced(to.flow.add(join, steps, node, node.schema), node)


def asof_join(to: PlanLowering, node: n.AsofJoin) -> int:
    """The newest right row at or before the time of each left row."""
    # the newer of two right rows must live longer, so windows must not spell ends as negative elements
    with to.unannounced():
        left, right = to.lower(node.left), to.lower(node.right)
    operator = AsofOperator(
        node.left.schema,
        node.right.schema,
        [(e.left, e.right, e.null_safe) for e in node.equalities],
        node.times,
        strict=node.strict,
        pad=node.pad,
        derived=node.derived,
        static=to.flow.steps[right].static,
        recent=comes_in_order(node.left, node.times[0]),
    )
    return to.announced(to.flow.add(operator, [left, right], node, node.schema), node)


def semi(to: PlanLowering, node: n.Semi | n.LeftJoin, anti: bool) -> int:
    """Rows of the left side that have a partner, or none."""
    seen = seen_behind(n.Join((node.left, node.right), node.equalities, node.residual)) if to.periodic else None
    if seen is not None:
        with to.at_own_times():
            kept = semi(to, node, anti)
        return to.append(kept, QuantiseOperator(seen.period, seen.offset, seen.before), node)
    left, right = to.lower(node.left), to.lower(node.right)
    if to.recalls and node.residual and to.flow.steps[right].static and not to.flow.steps[left].static:
        equal = [(e.left, e.right, e.null_safe) for e in node.equalities]
        kept = join_steps(to, [left, right], equal, node.residual, node, once=True)
        return to.flow.add(UnionOperator((False, True)), [left, kept], node, node.left.schema) if anti else kept
    keys, equalities = matched(to, node)
    # a row that has left a table is no longer there, with a partner or without
    both = join_steps(to, [left, keys], equalities, (), node, reach_back=to.flow.steps[left].static)
    kept = to.project(both, {c: c for c in node.left.schema}, node)
    if not anti:
        return kept
    return to.flow.add(UnionOperator((False, True)), [left, kept], node, node.left.schema)


def matched(to: PlanLowering, node: n.Semi | n.LeftJoin) -> tuple[int, list[tuple[str, str, bool]]]:
    """The distinct keys that have a partner on the right, and how the left side meets them."""
    right = to.lower(node.right)
    if node.residual or _meets_versions(to, node, right):
        return matched_by_value(to, node, right)
    if not node.equalities:  # no correlation: one row for as long as the right side has any
        one = ProjectOperator([("exists'", Formula("1", pa.int32(), ()))])
        return counted(to, to.flow.add(one, [right], node, {"exists'": pa.int32()}), node), []
    keys = to.project(right, {f"{e.right}'": e.right for e in node.equalities}, node)
    return counted(to, keys, node), [(e.left, f"{e.right}'", e.null_safe) for e in node.equalities]


def _meets_versions(to: PlanLowering, node: n.Semi | n.LeftJoin, right: int) -> bool:
    """Whether the left side are tables whose rows have a partner only among rows that came while they were there."""
    return to.flow.steps[to.lower(node.left)].static and not to.flow.steps[right].static


def matched_by_value(
    to: PlanLowering, node: n.Semi | n.LeftJoin, right: int
) -> tuple[int, list[tuple[str, str, bool]]]:
    used = {c for e in node.residual for c in e.columns} | {e.left for e in node.equalities}
    versions = _meets_versions(to, node, right)
    if versions:
        used = set(node.left.schema)
    rename = {c: f"{c}'" for c in node.left.schema if c in used}
    correlated = to.project(to.lower(node.left), {new: c for c, new in rename.items()}, node)
    if not rename:  # the residual speaks of the right side alone
        one = ProjectOperator([("exists'", Formula("1", pa.int32(), ()))])
        correlated = to.flow.add(one, [to.lower(node.left)], node, {"exists'": pa.int32()})
    values = counted(to, correlated, node) if versions else to.distinct(correlated, node)
    equalities = [(rename[e.left], e.right, e.null_safe) for e in node.equalities]
    pairs = join_steps(to, [values, right], equalities, node.residual, node, rename=rename)
    columns = to.flow.steps[values].schema
    found = counted(to, to.project(pairs, {c: c for c in columns}, node), node)
    return found, [(c, new, True) for c, new in rename.items()]


def left_join(to: PlanLowering, node: n.LeftJoin) -> int:
    """The inner join, and the left rows without a partner."""
    inner = join(to, n.Join((node.left, node.right), node.equalities, node.residual))
    unmatched = semi(to, node, anti=True)
    padded = to.flow.add(Pad(node.right.schema), [unmatched], node, node.schema)
    return to.flow.add(UnionOperator(), [inner, padded], node, node.schema)


def aggregate_join(
    to: PlanLowering, node: n.Aggregate, calls: Sequence[Aggregation], shape: AggregationJoin
) -> int | None:
    """Aggregate from aggregation sets, unless the shape has another number of inputs than the plan asked for."""
    forced = None if to.tuning.aggregation == "auto" else to.tuning.aggregation
    if forced is not None and len(forced) != len(shape.join.parts):
        return None
    if to.recalls and _is_recalled(to, shape.join):
        return None
    steps = [_given(to, part, outputs) for part, outputs in zip(shape.join.parts, shape.outputs, strict=True)]
    steps, kept, calls = _extremes(to, steps, node, calls, shape, forced)
    made = [to.flow.steps[s] for s in steps]
    streams = not all(m.static for m in made)  # tables alone meet each other as they change
    parts = [Part(dict(m.schema), m.signed, static=m.static and streams) for m in made]
    period = to.grid[1] if to.grid is not None and node is to.grid[0] else None
    operator = AggregateDeltas(
        parts,
        [(e.left, e.right, e.null_safe) for e in shape.join.equalities],
        [formula(e, types={c: t for p in parts for c, t in p.columns.items()}) for e in shape.residual],
        node.keys,
        calls,
        period=period,
        plan=forced,
        measures=to.tuning.measures,
        below={i: k.text for i, k in enumerate(kept) if k is not None},
    )
    met = to.flow.add(operator, steps, node, operator.schema)
    types = {c: t for p in parts for c, t in p.columns.items()}
    return to.flow.add(groups_of(node.keys, calls, types, period), [met], node, node.schema)


def _is_recalled(to: PlanLowering, node: n.Join) -> bool:
    """Whether results must be remembered: rows that meet a table which does not reach back announce their ends."""
    known = [lifetimes(p, to.strategy)[p] for p in node.parts]
    counts = any(id(d) in to.unbroken for p in node.parts for d in n.walk(p))
    ends = counts or any(k.pattern is Pattern.STRICT and not k.static for k in known)
    return ends and any(k.static for k in known)


def _given(to: PlanLowering, part: n.Node, outputs: Sequence[tuple[str, Expr]]) -> int:
    """An input of an aggregation join: the columns that it must give."""
    step = to.lower(part)
    if all(e.column == name for name, e in outputs) and len(outputs) == len(part.schema):
        return step
    project = ProjectOperator([(name, formula(e)) for name, e in outputs])
    return to.flow.add(project, [step], part, {name: e.type for name, e in outputs})


def _extremes(
    to: PlanLowering,
    steps: Sequence[int],
    node: n.Aggregate,
    calls: Sequence[Aggregation],
    shape: AggregationJoin,
    forced: str | None,
) -> tuple[list[int], Sequence[ExtremesBelow | None], Sequence[Aggregation]]:
    """The inputs as groups with their best values where repetitions do not count, and the calls over those."""
    made = [to.flow.steps[s] for s in steps]
    if repetitions_count(calls) or any(m.static for m in made):
        return list(steps), (), calls
    read = {*node.keys, *(c for e in shape.join.equalities for c in (e.left, e.right))}
    read |= {c for e in shape.residual for c in e.columns}
    found: list[int] = []
    kept: list[ExtremesBelow | None] = []
    for step, m, bit in zip(steps, made, forced or "1" * len(steps), strict=True):
        below = extremes_below(m.schema, read, calls) if bit == "1" else None
        if below is not None:
            pays = early_extremes_pay if forced is None else None
            operator = EarlyExtremes(below.keys, below.calls, m.schema, strict=m.signed, pays=pays)
            step = to.flow.add(operator, [step], m.node, operator.schema)
        found.append(step)
        kept.append(below)
    return found, kept, over_extremes(calls, kept)
