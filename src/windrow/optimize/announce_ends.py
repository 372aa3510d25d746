"""How strict results are kept (thesis 3.5.2): by calendar, or by key when most of them end early.

A result of NOT EXISTS, EXISTS or LEFT JOIN ends when its window says so, or early, when a partner comes:

    by calendar   it waits for the end it came with; when it ends early a negative element waits for that end, too, and
                  there the two meet and cancel                        cost: more for each that ends early
    by key        windows announce every end by a negative element, which finds its row by key; nothing waits behind
                  the operator                                         cost: more for each row of a window

How many end early is estimated by the cost model: a partner that was not there yet ends the rows of its key, so a long
window beside a short one, over few keys, has many such ends, and windows of one length over many keys have few. The
plan keeps its tree; `QueryPlan.by_key` says how it runs.
"""

from __future__ import annotations

from dataclasses import replace

from windrow.optimize.rule import RuleContext
from windrow.plan import nodes as n
from windrow.plan.cost import estimate
from windrow.plan.strategies import Strategy

EARLY = 4.0
"""Row touches that an early end costs more by calendar: its negative waits by day, and both meet at the end."""

GAIN = 0.9
"""Results are kept by key when that costs less than this share of the calendar."""

_BY_ROW = n.Scan | n.TableScan | n.Window | n.Filter | n.Project | n.Join | n.Semi | n.LeftJoin


def announce_ends(plan: n.QueryPlan, context: RuleContext) -> n.QueryPlan:
    """Let the windows of a query announce their ends where most of its results would end early.

    >>> from windrow.plan.cost import Statistics
    >>> from windrow.optimize.announce_ends import costs
    >>> def absent(size):
    ...     left, right = (n.Window(n.Scan(s, s, ((f"{s}.k", "k", pa.int64()),), "ts"),
    ...                    n.WindowSpec(n.WindowKind.RANGE, length)) for s, length in (("a", 1000), ("b", size)))
    ...     return n.Emit(n.Semi(left, right, (n.Equality("a.k", "b.k"),), anti=True))
    >>> import pyarrow as pa
    >>> context = RuleContext(statistics=Statistics(rate=1, values=50))
    >>> [key < calendar for calendar, key in (costs(absent(size), context) for size in (10, 1000))]
    [True, False]
    """
    by_key = False
    if context.strategy.by_pattern and _may(plan):
        calendar, key = costs(plan.root, context)
        by_key = key < GAIN * calendar
    return plan if by_key == plan.by_key else replace(plan, by_key=by_key, made=None)


def costs(root: n.Emit, context: RuleContext) -> tuple[float, float]:
    """What the plan costs with its results by calendar, and by key."""
    found = [estimate(root, context.statistics, how, context.unit) for how in (Strategy.UPA, Strategy.NEGATIVE)]
    calendar, key = (sum(e[node].cost for node in n.walk(root)) for e in found)
    return calendar + EARLY * found[0][root.input].negative, key


def _may(plan: n.QueryPlan) -> bool:
    """Whether a continuous query has results that end early, and nothing but rows of windows by time that do."""
    root = plan.root
    if root.period is not None or root.each or plan.budget is not None:
        return False
    below = list(n.walk(root.input))
    if not any(isinstance(node, n.Semi | n.LeftJoin) for node in below):
        return False
    return all(isinstance(node, _BY_ROW) and not _counts(node) for node in below)


def _counts(node: n.Node) -> bool:
    """Whether ends of windows are no lifetimes here, or must stay some."""
    match node:
        case n.Window(spec=spec):
            return spec.kind is n.WindowKind.ROWS or spec.internal
        case n.Join(internal=internal):
            return any(internal)
    return False
