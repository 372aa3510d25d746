"""Walks over trees in the orders of sqlglot's own, mostly level by level.

A list that grows while it is read is the queue and the answer: a walk of plain loops takes a quarter of what one of
generators within generators does, and a query is walked some thirty times before it is a plan.

Cost: the nodes of the tree. What is found is a list, so the tree may be changed while it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from sqlglot import exp

E = TypeVar("E", bound=exp.Expr)


def nodes(tree: exp.Expr, within: type[exp.Expr] | None = None) -> list[exp.Expr]:
    """The nodes of a tree; of those of the kind `within` that are below the top, not what is inside.

    >>> [n.key for n in nodes(exp.condition("a + 1 > b"))]
    ['gt', 'add', 'column', 'column', 'literal', 'identifier', 'identifier']
    """
    found, kind = [tree], exp.Expr
    for node in found:
        if node.is_primitive or (within is not None and node is not tree and isinstance(node, within)):
            continue
        for part in node.args.values():
            if type(part) is list:
                found += [p for p in part if isinstance(p, kind)]
            elif isinstance(part, kind):
                found.append(part)
    return found


def preorder(tree: exp.Expr) -> list[exp.Expr]:
    """The nodes of a tree in the order in which they were written, each before what is inside."""
    made, stack = [], [tree]
    while stack:
        node = stack.pop()
        made.append(node)
        parts: list[exp.Expr] = []
        for part in node.args.values():
            if isinstance(part, exp.Expr):
                parts.append(part)
            elif type(part) is list:
                parts += [p for p in part if isinstance(p, exp.Expr)]
        stack += reversed(parts)
    return made


def copied(tree: exp.Expr, put: Callable[[exp.Expr], exp.Expr] = lambda node: node) -> exp.Expr:
    """A copy; what is noted of its nodes is the same, and not copied itself. `put` is asked of each node, in the order
    in which they were written, what stands in its place: itself, with what is inside, or another.

    >>> copied(exp.condition("a + b"), lambda n: exp.column("c") if n.name == "b" else n).sql()
    'a + c'
    """
    made, stack = tree, [(tree, tree, "", 0)]
    while stack:
        node, above, key, place = stack.pop()
        new = put(node)
        if new is node:
            new = type(node)()
            new.comments = node.comments
            if node._meta is not None:
                new.meta.update(node._meta)
            inside: list[tuple[exp.Expr, exp.Expr, str, int]] = []
            for name, part in node.args.items():
                if isinstance(part, exp.Expr):
                    inside.append((part, new, name, -1))
                elif type(part) is list:
                    inside += [(p, new, name, i) for i, p in enumerate(part) if isinstance(p, exp.Expr)]
                    part = list(part)
                new.args[name] = part
            stack += reversed(inside)
        if not key:
            made = new
        elif place < 0:
            new.parent, new.arg_key, new.index, above.args[key] = above, key, None, new
        else:
            new.parent, new.arg_key, new.index, above.args[key][place] = above, key, place, new
    return made


def find_all(tree: exp.Expr, *kinds: type[E]) -> list[E]:
    """The nodes of some kinds."""
    return [node for node in nodes(tree) if isinstance(node, kinds)]


def has(tree: exp.Expr, *kinds: type[exp.Expr]) -> bool:
    """Whether there is a node of some kinds."""
    return isinstance(tree, kinds) or any(isinstance(node, kinds) for node in nodes(tree))


def kinds(tree: exp.Expr) -> set[type]:
    """The kinds of nodes that there are: one walk, where looking for each is a walk of its own."""
    return kinds_of(nodes(tree))


def kinds_of(found: Iterable[exp.Expr]) -> set[type]:
    """The kinds that some nodes are of."""
    return {base for kind in {type(node) for node in found} for base in kind.__mro__}


def calls(found: Iterable[exp.Expr]) -> set[str]:
    """The names of the functions that some nodes call, in lower case."""
    return {node.name.lower() for node in found if isinstance(node, exp.Anonymous)}
