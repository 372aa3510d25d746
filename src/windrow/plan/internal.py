"""INTERNAL windows over selections, projections and joins: results come into being and never expire.

What a result came from decides whether it ever was: a row that a ROWS window displaces within an instant takes what it
met at that instant with it, and nothing else. So the rows of ROWS windows carry their numbers up to the answer, where
negative elements cancel by them; a row's number and partition tell it from every equal one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from windrow.plan import nodes as n
from windrow.plan.expr import column


def only_selects(node: n.Node) -> bool:
    """Whether nothing but selections, projections, calls and joins stands above windows and tables."""
    match node:
        case n.Scan() | n.Window():
            return True
        case n.TableScan():
            return not node.retroactive
        case n.Filter() | n.Project() | n.Call() | n.Join():
            return all(only_selects(i) for i in node.inputs)
    return False


def numbered(node: n.Node) -> n.Node:
    """The same rows with the number of every row of a ROWS window, and its partition, in columns of their own."""
    return _numbered(node, count())


def _numbered(node: n.Node, windows: Iterator[int]) -> n.Node:
    match node:
        case n.Window(spec=spec) if spec.kind is n.WindowKind.ROWS:
            return replace(node, number=f"_number {next(windows)}")
        case n.Project():
            below = _numbered(node.input, windows)
            passed = [c for c in below.schema if c.startswith("_number ")]
            keys = [p for w in n.walk(below) if isinstance(w, n.Window) and w.number for p in w.spec.partition]
            named = {e.column for _, e in node.outputs if e.column is not None}
            extra = [*passed, *(k for k in dict.fromkeys(keys) if k in below.schema and k not in named)]
            made = [(_carried(c), column(c, below.schema[c])) for c in extra]
            return replace(node, input=below, outputs=(*node.outputs, *made))
        case n.Filter() | n.Call() | n.Join():
            return node.with_inputs(*(_numbered(i, windows) for i in node.inputs))
    return node


def _carried(name: str) -> str:
    return name if name.startswith("_number ") else f"_number of {name}"
