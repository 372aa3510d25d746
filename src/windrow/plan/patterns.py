"""Update patterns: in which order an edge's rows come and go.

Every edge of a plan has one of four patterns, each a promise to whoever keeps its rows:

    MONOTONIC   rows never leave
    WEAKEST     every row lives equally long, so rows leave in the order they came
    WEAK        a row's end is known when it comes, but ends have another order
    STRICT      a row's end may depend on the future: a negative element announces it

Computed bottom-up, one value per node, by the rules of the thesis (3.5.1), sharpened where they are coarse:
a union of two windows is WEAKEST only if both are equally long, and an input that never changes (a table that is not
retroactive) changes no lifetime, whatever the operator. A join with one external and one internal window is WEAK, not
WEAKEST as 3.3.2 says: with both of length 10, rows at 0 (external) and 5 (internal) join on [5, 10), but rows at 0
(internal) and 5 (external) on [5, 15).

Law: on an edge below STRICT no row ends before the end it came with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from windrow.operators.aggregates.call import SKETCHED
from windrow.plan import nodes as n
from windrow.plan.internal import only_selects
from windrow.plan.recalled import recalls, unbroken
from windrow.plan.strategies import Strategy
from windrow.plan.timestamped import dates


class Pattern(IntEnum):
    """The update pattern of an edge; a greater one promises less."""

    MONOTONIC = 0
    WEAKEST = 1
    WEAK = 2
    STRICT = 3

    @property
    def word(self) -> str:
        """How the pattern is written in EXPLAIN."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """What is known of an edge: its pattern, the one length of all lifetimes if WEAKEST, whether it never changes."""

    pattern: Pattern
    length: int | None = None
    static: bool = False


MONOTONIC = Lifetimes(Pattern.MONOTONIC)
STATIC = Lifetimes(Pattern.MONOTONIC, static=True)
WEAK = Lifetimes(Pattern.WEAK)
STRICT = Lifetimes(Pattern.STRICT)


def annotate(root: n.Node, strategy: str = "upa") -> dict[n.Node, Pattern]:
    """The pattern of every node's output edge. Equal subtrees have equal patterns, so nodes are the keys.

    With strategy "negative" windows announce each expiration, so every edge that is not monotonic is STRICT.
    """
    return {node: life.pattern for node, life in _found(root, strategy).values()}


def monotonic(root: n.Node) -> frozenset[n.Node]:
    """The nodes on whose output edges nothing ends."""
    found = _found(root, "upa").values()
    return frozenset(node for node, life in found if life.pattern is Pattern.MONOTONIC)


def pattern(root: n.Node) -> Pattern:
    """The pattern of a whole plan: that of its output edge."""
    return _found(root, "upa")[id(root)][1].pattern


def lifetimes(root: n.Node, strategy: str = "upa") -> dict[n.Node, Lifetimes]:
    """What is known of the lifetimes on every node's output edge."""
    return dict(_found(root, strategy).values())


def _found(root: n.Node, strategy: str) -> dict[int, tuple[n.Node, Lifetimes]]:
    """The same by identity: hashing a node takes its whole subtree."""
    how = Strategy(strategy)
    found: dict[int, tuple[n.Node, Lifetimes]] = {}
    counted = unbroken(root)
    for node in n.walk(root):
        if id(node) not in found:
            life = STRICT if id(node) in counted else _rule(node, [found[id(i)][1] for i in node.inputs], how)
            found[id(node)] = node, life
    return found


def _rule(node: n.Node, inputs: list[Lifetimes], strategy: Strategy) -> Lifetimes:
    match node:
        case n.Scan():
            return MONOTONIC
        case n.TableScan(retroactive=retroactive):
            return STRICT if retroactive else STATIC
        case n.Window():
            return _window(node, strategy)
        case n.Quantise(period=period):
            return _quantise(inputs[0], period)
        case n.Session():
            return Lifetimes(Pattern.WEAKEST, 1)
        case n.WindowBounds(period=period):
            return Lifetimes(Pattern.WEAKEST, period)
        case n.Route(router=router) if router.lives is not None and router.lives.sizes:
            return STRICT if inputs[0].pattern is Pattern.STRICT else WEAK
        case n.Filter() | n.Project() | n.Call() | n.Unnest() | n.Admit() | n.Route() | n.Stamp():
            return inputs[0]
        case n.Union():
            return _union(inputs)
        case n.Join(internal=internal):
            return _join(inputs, internal)
        case n.StarJoin():
            return _join(inputs, ())
        case n.Distinct():
            return WEAK if inputs[0].pattern is Pattern.WEAKEST else inputs[0]
        case n.Semi(anti=anti):
            left, right = inputs
            if right.static:
                return left
            never_ends = left.pattern is right.pattern is Pattern.MONOTONIC and not anti
            return MONOTONIC if never_ends else STRICT
        case n.LeftJoin():
            return inputs[0] if inputs[1].static else STRICT
        case n.AsofJoin(pad=pad):
            return _asof(inputs, pad)
        case n.Aggregate() | n.Holistic() | n.Analytic() | n.TopN() | n.Difference() | n.Intersection():
            return STRICT
        case n.OverNothing():
            return STRICT
        case n.Append():
            return MONOTONIC
        case n.Emit(op=op):
            return inputs[0] if op is n.StreamOp.RELATION else MONOTONIC
    raise NotImplementedError(f"no pattern rule for {type(node).__name__}")


def _window(node: n.Window, strategy: Strategy) -> Lifetimes:
    if node.spec.kind is n.WindowKind.UNBOUNDED:
        return MONOTONIC
    if node.spec.kind is n.WindowKind.ROWS or strategy.announces:
        return STRICT
    if node.spec.kind is n.WindowKind.CUMULATE:
        return Lifetimes(Pattern.WEAKEST)
    return Lifetimes(Pattern.WEAKEST, node.spec.longest)


def _quantise(life: Lifetimes, period: int) -> Lifetimes:
    """[ts, ts + T) becomes a multiple of the period: T itself, or the multiples next to it (0 is never seen)."""
    if life.pattern is not Pattern.WEAKEST or life.length is None:
        return life
    if life.length < period:
        return Lifetimes(Pattern.WEAKEST, period)
    return life if life.length % period == 0 else WEAK


def _union(parts: list[Lifetimes]) -> Lifetimes:
    if len(set(parts)) == 1:
        return parts[0]
    patterns = {p.pattern for p in parts}
    if Pattern.STRICT in patterns:
        return STRICT
    return MONOTONIC if patterns == {Pattern.MONOTONIC} else WEAK


def _join(parts: list[Lifetimes], internal: tuple[bool, ...]) -> Lifetimes:
    flags = internal or (False,) * len(parts)
    live = [(part, flag) for part, flag in zip(parts, flags, strict=True) if not part.static]
    if not live:
        return STATIC
    if any(part.pattern is Pattern.STRICT for part, _ in live):
        return STRICT
    bounding = [part for part, flag in live if not flag and part.pattern is not Pattern.MONOTONIC]
    if not bounding:
        return MONOTONIC
    return bounding[0] if len(live) == 1 else WEAK


def _asof(inputs: list[Lifetimes], pad: bool) -> Lifetimes:
    """A pair lives while both do; a row is padded at once, or from when its partner has left."""
    left, right = inputs
    if right.pattern is Pattern.MONOTONIC:
        return left
    return WEAK if pad and Pattern.STRICT not in (left.pattern, right.pattern) else _join(inputs, ())


def state_structure(node: n.Node, strategy: str = "upa", known: Mapping[n.Node, Lifetimes] | None = None) -> str:
    """What an operator keeps, in EXPLAIN's words; "none" if it keeps nothing.

    Matching needs keyed runs whatever the pattern; the pattern says how rows that wait for their end are kept.
    `known`: the lifetimes of its whole plan, on which it depends below joins with tables.
    """
    how = Strategy(strategy)
    known = known or lifetimes(node, how)
    inputs = [known[i] for i in node.inputs]
    match node:
        case n.TableScan():
            return "table"
        case n.Window(spec=spec):
            if spec.kind is n.WindowKind.ROWS:
                return "FIFO per partition" if spec.partition else "FIFO"
            ends = spec.kind is not n.WindowKind.UNBOUNDED
            return "FIFO" if ends and how.announces else "none"
        case n.Quantise():
            return "rows of one period"
        case n.Session():
            return "rows of open sessions"
        case n.Join():
            ends = any(i.static for i in inputs) and any(i.pattern is Pattern.STRICT and not i.static for i in inputs)
            met = " + whom rows met" if ends and recalls(node) else ""
            return " ⋈ ".join(_keyed(i, how) for i in inputs) + met
        case n.StarJoin(shedding=shedding):
            kept = (
                f"{shedding.keep[0]:,} rows shared"
                if shedding.shared
                else " ⋈ ".join(f"{k:,} rows" for k in shedding.keep)
            )
            return f"{kept} ⋈ keyed table" if node.facts else kept
        case n.AsofJoin():
            return "keyed table" if inputs[1].static else "keyed by time"
        case n.Semi() | n.LeftJoin():
            return f"{_keyed(inputs[0], how)} ⋈ {_counts(inputs[1], how)}"
        case n.Distinct():
            counts = known[node].pattern is Pattern.STRICT
            return _counts(inputs[0], how) if counts else _distinct(inputs[0], how)
        case n.TopN():
            return "rows that may be shown"
        case n.Analytic() | n.Holistic():
            return "rows alive"
        case n.Aggregate() if node.summarised:
            sketched = any(c.kind in SKETCHED for c in node.calls)
            return "a sketch per basic window" if sketched else f"{node.summarised} values per basic window"
        case n.Aggregate():
            return _with("group array", _waiting(inputs[0], how, ordered=False))
        case n.Difference() | n.Intersection():
            return _with("counts", _waiting(max(inputs, key=lambda i: i.pattern), how, ordered=False))
        case n.Emit(op=n.StreamOp.RSTREAM) | n.WindowBounds():
            return "rows alive"
        case n.Append() | n.Emit():
            return "none" if _spelled(node, known, how) else _waiting(inputs[0], how)
    return "none"


def _spelled(node: n.Append | n.Emit, known: Mapping[n.Node, Lifetimes], strategy: Strategy) -> bool:
    """Whether the change log waits for no end: delta-star spells its own, and timestamped rows only enter."""
    below = node.input
    if isinstance(below, n.Append) or (isinstance(node, n.Append) and only_selects(below)):
        return True
    if isinstance(below, n.Distinct):
        return _distinct(known[below.input], strategy) == "delta-star"
    entering = isinstance(node, n.Append) or node.op is n.StreamOp.ISTREAM
    return entering and known[below].pattern is not Pattern.STRICT and dates(below) is not None


def _waiting(life: Lifetimes, strategy: Strategy, *, ordered: bool = True) -> str:
    """The structure for rows that wait for a known end."""
    if life.pattern is Pattern.MONOTONIC or strategy.announces:
        return "none"
    if strategy.scans:
        return "list"
    return "FIFO" if ordered and life.pattern is Pattern.WEAKEST else "calendar"


def _keyed(life: Lifetimes, strategy: Strategy) -> str:
    """The structure for rows that are found by key."""
    if life.static:
        return "keyed table"
    if life.pattern is Pattern.STRICT:
        return "keyed + tombstones"
    return "keyed list" if strategy.scans else "keyed runs"


def _distinct(life: Lifetimes, strategy: Strategy) -> str:
    return _counts(life, strategy) if life.pattern is Pattern.STRICT or not strategy.by_pattern else "delta-star"


def _counts(life: Lifetimes, strategy: Strategy) -> str:
    return _with("counts", _waiting(life, strategy, ordered=False))


def _with(main: str, waiting: str) -> str:
    return main if waiting == "none" else f"{main} + {waiting}"
