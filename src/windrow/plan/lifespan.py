"""How long results may live: the greatest lifetime on an edge, from the windows below it.

A window bounds the lifetimes that it gives, selection and projection pass them on, a join intersects them, a union has
the longest of its parts. Rounding to a period makes them at most a period longer. None: without bound, or not known
when a row comes (count windows, aggregates).
"""

from __future__ import annotations

from windrow.plan import nodes as n
from windrow.plan.patterns import lifetimes


def greatest_lifetime(node: n.Node) -> int | None:
    """The greatest lifetime of a row of `node`; None when there is none."""
    match node:
        case n.Window(spec=spec):
            return spec.longest
        case n.Quantise(period=period):
            below = greatest_lifetime(node.input)
            return None if below is None else -(-below // period) * period
        case n.Filter() | n.Project() | n.Call() | n.Distinct() | n.Emit():
            return greatest_lifetime(node.input)
        case n.Semi() | n.LeftJoin() | n.AsofJoin():
            return greatest_lifetime(node.inputs[0])
        case n.Union():
            found = [greatest_lifetime(part) for part in node.parts]
            known = [life for life in found if life is not None]
            return max(known) if len(known) == len(found) else None
        case n.Join(internal=internal):
            return _intersected(node, internal)
        case n.StarJoin():
            return _intersected(node, ())
    return None


def _intersected(node: n.Node, internal: tuple[bool, ...]) -> int | None:
    """A joined row lives no longer than any of its parts whose windows let results expire."""
    flags = internal or (False,) * len(node.inputs)
    bounding = [p for p, inner in zip(node.inputs, flags, strict=True) if not inner and not lifetimes(p)[p].static]
    known = [life for life in map(greatest_lifetime, bounding) if life is not None]
    return min(known, default=None)
