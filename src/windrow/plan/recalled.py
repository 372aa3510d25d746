"""Joins with tables that do not reach back: what they must remember, and which rows below them must stay themselves.

A row meets such a table once, at the instant at which it comes, and goes with what it has met. So its input must not
let it go and come again in between: delta-star hands a value over from one copy to the next, and each copy would meet
the table anew. DISTINCT below such a join counts instead, and a value is one row for as long as it is there.

Tables that need not be remembered (`TableScan.recall`) are met as ever: they do not change, or the state of their
queries was written so.
"""

from __future__ import annotations

from windrow.plan import nodes as n


def recalls(root: n.Node) -> bool:
    """Whether the joins of a plan remember whom rows have met of tables."""
    tables = [t for t in n.walk(root) if isinstance(t, n.TableScan) and not t.retroactive]
    return bool(tables) and all(t.recall for t in tables)


def unbroken(root: n.Node) -> frozenset[int]:
    """The DISTINCT nodes, by identity, whose values must stay the rows that they are while they are there."""
    if not recalls(root):
        return frozenset()
    found: set[int] = set()
    for node in n.walk(root):
        if isinstance(node, n.Join | n.Semi | n.LeftJoin) and any(map(_still, node.inputs)):
            moving = [part for part in node.inputs if not _still(part)]
            found |= {id(d) for part in moving for d in n.walk(part) if isinstance(d, n.Distinct)}
    return frozenset(found)


def _still(node: n.Node) -> bool:
    """Whether rows come from tables alone that do not reach back."""
    leaves = [leaf for leaf in n.walk(node) if not leaf.inputs]
    return all(isinstance(leaf, n.TableScan) and not leaf.retroactive for leaf in leaves)
