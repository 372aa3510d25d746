"""Update-pattern simplification (thesis 3.5.3): strict operators go up, so that fewer edges carry negative elements.

A semi join, anti join or left join decides by its left row alone, so it commutes with a join of that row to others:

    (L ▷ R) ⋈ B  =  (L ⋈ B) ▷ R          figure 3.5: right plan = left plan

Above the join, the join's inputs are not strict. Below it, a selective anti join makes the join smaller. Both are
considered and the cheaper is taken, except that nothing strict stays below a join with a table: such a join cannot undo
a match with a row that has since been updated.

Operators that do nothing go too.
"""

from __future__ import annotations

from dataclasses import replace

from windrow.optimize.rule import RuleContext, keep, rewrite, with_root
from windrow.plan.expr import Expr
from windrow.plan.nodes import Append, Filter, Join, LeftJoin, Node, Project, Quantise, QueryPlan, Semi, Union
from windrow.plan.patterns import Pattern, lifetimes


def simplify_patterns(plan: QueryPlan, context: RuleContext) -> QueryPlan:
    """Pull strict operators above joins, or push them below, whichever is cheaper; drop operators that do nothing.

    >>> from windrow.plan.words import sketch
    >>> sketch(rewrite(Quantise(Union((Union(()),)), 1), _drop_idle))
    'union all'
    """
    root: Node | None = None
    better: Node = rewrite(plan.root, _drop_idle)
    while better != root:  # one move may make room for the next; each lowers the cost
        root, better = better, rewrite(better, lambda node: _place(node, context))
    return with_root(plan, better)


def _drop_idle(node: Node) -> Node:
    """The node's input if the node changes nothing, or a simpler node of the same meaning."""
    match node:
        case Union(parts=(only,)):
            return only
        case Join(parts=(only,), equalities=(), residual=(), internal=() | (False,)):
            return only
        case Quantise(period=1, before=False):
            return node.input
        case Quantise(before=False, input=Quantise(before=False) as inner) if _coarser(node, inner):
            return replace(node, input=inner.input)
        case Filter(predicate=Expr(parts=(str() as text,))) if text.strip("() ").upper() == "TRUE":
            return node.input
        case Project() if _is_identity(node):
            return node.input
        case Project(input=Project() as inner) if _may_merge(node, inner):
            below = dict(inner.outputs)
            return Project(inner.input, tuple((n, e.substitute(below)) for n, e in node.outputs))
        case Append(input=below):
            life = lifetimes(below)[below]
            return below if life.pattern is Pattern.MONOTONIC and not life.static else node
    return node


def _coarser(outer: Quantise, inner: Quantise) -> bool:
    """Whether every instant of the outer grid is one of the inner grid."""
    return outer.period % inner.period == 0 and (outer.offset - inner.offset) % inner.period == 0


def _is_identity(node: Project) -> bool:
    return tuple((n, e.column) for n, e in node.outputs) == tuple((n, n) for n in node.input.schema)


def _may_merge(outer: Project, inner: Project) -> bool:
    """One projection does for two if no computed column is then computed twice."""
    uses = [p for _, e in outer.outputs for p in e.parts if not isinstance(p, str)]
    computed = {n for n, e in inner.outputs if e.column is None}
    counts = [r.name for r in uses if r.name in computed]
    return len(counts) == len(set(counts))


def _place(node: Node, context: RuleContext) -> Node:
    if isinstance(node, Join):
        for position, part in enumerate(node.parts):
            higher = _pull_up(node, position, part)
            if higher is not None and (_joins_table(node) or context.cheaper(higher, node)):
                return higher
    if isinstance(node, Semi | LeftJoin):
        join = node.left.input if isinstance(node.left, Project) and _only_drops(node.left) else node.left
        lower = _push_down(node, join) if isinstance(join, Join) and not _joins_table(join) else None
        if lower is not None and context.cheaper(lower, node):
            return lower
    return node


def _only_drops(node: Project) -> bool:
    return all(e.column == n for n, e in node.outputs)


def _joins_table(join: Join) -> bool:
    known = lifetimes(join)
    return any(known[p].static for p in join.parts)


def _is_strict(node: Semi | LeftJoin) -> bool:
    """Whether the operator itself makes its output strict: its right input changes."""
    known = lifetimes(node)
    return known[node].pattern is Pattern.STRICT and not known[node.right].static


def _pull_up(join: Join, position: int, part: Node) -> Node | None:
    """The join with the semi or left join of one part above it; None if that part has none or it cannot move."""
    project = part if isinstance(part, Project) else None
    inner = project.input if project else part
    if not isinstance(inner, Semi | LeftJoin) or any(join.internal) or not _is_strict(inner):
        return None
    asked = _left_columns(inner)
    shown = join.schema
    if project is None:
        below = inner.left
    else:
        copied = {n for n, e in project.outputs if e.column == n}
        hidden = [c for c in inner.left.schema if c in asked and c not in copied]
        from_left = inner.left.schema.keys()
        if any(c in shown for c in hidden) or not all(e.columns <= from_left for _, e in project.outputs):
            return None
        below = _extended(Project(inner.left, project.outputs), hidden)
    if isinstance(inner, LeftJoin) and (project is not None or _reads(join) & inner.right.schema.keys()):
        return None
    if inner.right.schema.keys() & (shown.keys() - part.schema.keys()):
        return None
    parts = (*join.parts[:position], below, *join.parts[position + 1 :])
    return keep(replace(inner, left=replace(join, parts=parts)), tuple(shown))


def _extended(project: Project, hidden: list[str]) -> Project:
    """The projection with more columns of its input."""
    extra = keep(project.input, hidden)
    return replace(project, outputs=(*project.outputs, *(extra.outputs if isinstance(extra, Project) else ())))


def _push_down(node: Semi | LeftJoin, join: Join) -> Node | None:
    """The semi or left join on the one part of the join that it asks about."""
    asked = _left_columns(node)
    if any(join.internal) or not asked or not _is_strict(node):
        return None
    for position, part in enumerate(join.parts):
        if asked <= part.schema.keys():
            parts = (*join.parts[:position], replace(node, left=part), *join.parts[position + 1 :])
            return keep(replace(join, parts=parts), tuple(node.schema))
    return None


def _left_columns(node: Semi | LeftJoin) -> frozenset[str]:
    """The columns of the left input that the condition reads."""
    names = frozenset(e.left for e in node.equalities) | frozenset(c for r in node.residual for c in r.columns)
    return names & node.left.schema.keys()


def _reads(join: Join) -> frozenset[str]:
    names = (c for e in join.equalities for c in (e.left, e.right))
    return frozenset(names) | frozenset(c for r in join.residual for c in r.columns)
