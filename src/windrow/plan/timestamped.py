"""Timestamped rows: rows that carry the times that decide how long they live.

If equal rows of an edge always have equal lifetimes, no row enters at the instant at which an equal one leaves. Then
nothing in the edge's change log can cancel, and ISTREAM is the rows themselves: no end need be waited for. A selection
or a join of time-based windows is timestamped while the time column of each of its streams is among its columns.
"""

from __future__ import annotations

from windrow.plan import nodes as n


def dates(node: n.Node) -> frozenset[str] | None:
    """The columns that together decide a row's lifetime; None if nothing in the row does."""
    match node:
        case n.Scan():
            times = [internal for internal, column, _ in node.columns if column.lower() == node.time.lower()]
            return frozenset(times[:1]) if times else None
        case n.TableScan():
            return None if node.retroactive else frozenset()  # its rows bound no lifetime
        case n.Window():
            return dates(node.input) if node.spec.kind is not n.WindowKind.ROWS else None
        case n.Filter() | n.Admit() | n.Stamp() | n.Quantise() | n.Call() | n.Unnest():
            return dates(node.input)
        case n.Session():
            return frozenset((node.end,))
        case n.WindowBounds():
            return frozenset(name for name, _ in node.bounds[:1])
        case n.Route():
            below = dates(node.input)
            own = {c for c in node.keep if node.router.lists(c) is None}  # that every query shows
            return below if below is None or below <= own else None
        case n.Project():
            return _renamed(dates(node.input), node)
        case n.AsofJoin(pad=True):  # a padded row begins when its partner has left, which the row does not say
            return None
        case n.AsofJoin():
            both = dates(node.left), dates(node.right)
            return None if both[0] is None or both[1] is None else both[0] | both[1]
        case n.Join():
            found = [dates(p) for p in node.parts]
            return None if any(f is None for f in found) else frozenset().union(*(f for f in found if f))
    return None


def comes_in_order(node: n.Node, time: str) -> bool:
    """Whether rows come at the instants that their column `time` tells: those of a window of time over a stream."""
    below = node
    while isinstance(below, n.Filter | n.Project | n.Call | n.Unnest | n.Admit):
        below = below.input
    if not isinstance(below, n.Window) or not isinstance(below.input, n.Scan):
        return False
    return below.spec.kind is not n.WindowKind.ROWS and dates(node) == frozenset((time,))


def _renamed(columns: frozenset[str] | None, node: n.Project) -> frozenset[str] | None:
    if columns is None:
        return None
    copies = {e.column: name for name, e in node.outputs if e.column is not None}
    return frozenset(copies[c] for c in columns) if columns <= copies.keys() else None
