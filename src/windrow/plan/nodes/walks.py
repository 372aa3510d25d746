"""Ways over a tree of nodes."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.operators.terms import Router
from windrow.plan.expr import Expr
from windrow.plan.nodes.node import Node
from windrow.plan.nodes.rows import Admit, Filter, Project, Route, Stamp
from windrow.plan.nodes.windows import Quantise, Scan, Window, WindowKind


def routed_scans(node: Node, router: Router | None = None) -> Iterator[tuple[Scan, Router]]:
    """Every scan whose rows meet nothing before several queries choose among them, and how these choose."""
    match node:
        case Admit(router=mine) | Route(router=mine):
            yield from routed_scans(node.input, mine)
        case Scan() if router is not None:
            yield node, router
        case Project() | Filter() | Stamp() | Quantise():
            yield from routed_scans(node.input, router)
        case Window(spec=spec) if spec.kind is not WindowKind.ROWS:
            yield from routed_scans(node.input, router)
        case _:
            for child in node.inputs:
                yield from routed_scans(child)


def scanned(node: Node) -> Iterator[tuple[Scan, tuple[Expr, ...]]]:
    """Every scan below a node, with the predicates that its rows must satisfy before anything else sees them."""
    predicates: list[Expr] = []
    while isinstance(node, Filter):
        predicates.append(node.predicate)
        node = node.input
    if isinstance(node, Scan):
        yield node, tuple(predicates)
    for child in node.inputs:
        yield from scanned(child)


def has(node: Node, *kinds: type[Node]) -> bool:
    """Whether there is a node of some kinds."""
    below = [node]
    for one in below:
        if isinstance(one, kinds):
            return True
        below += one.inputs
    return False


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, inputs first."""
    found, stack = [], [node]
    while stack:  # the node before its inputs, the last of these first: backwards, it is the other way round
        found.append(stack.pop())
        stack += found[-1].inputs
    return reversed(found)
