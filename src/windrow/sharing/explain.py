"""What EXPLAIN says about sharing: the slices, cells and partials a query reads, with whom, and what that saves."""

from __future__ import annotations

from collections.abc import Sequence

from windrow.plan.nodes import QueryPlan
from windrow.plan.words import duration
from windrow.sharing.cells import Index, Plot
from windrow.sharing.conditions import Condition, Opaque, atoms
from windrow.sharing.counters import least_rate, slice_rate
from windrow.sharing.registry import Registry, Served
from windrow.sharing.windows import Window, sliced

SHOWN = 5
"""Names listed before the rest is only counted."""


def explain_sharing(group: Registry, plan: QueryPlan, unit: int = 1) -> str:
    """How a query shares, or why it does not; `unit`: ticks per second, 1 for plain ticks."""
    if plan.name not in group.served:
        why = group.reasons.get(plan.name, "sharing is off" if group.sharing == "off" else "it is not registered")
        return f"sharing: none, {why}\n"
    served = group.served[plan.name]
    lines = [
        f"sharing: {group.sharing}, {group.slicing} slices, "
        f"{_count(len(served.family), 'query', 'queries')} over {_rows(served)}"
    ]
    lines += [
        f"  {line}"
        for line in (*_slices(group, served, unit), *_cells(served), *_others(served), *_saved(group, served, unit))
    ]
    return "\n".join(lines) + "\n"


def _rows(served: Served) -> str:
    source = served.query.source
    return " join ".join((source.stream, *source.tables))


def _windows(served: Served) -> list[Window]:
    return [e.member.window for e in served.family.joined.values()]


def _slices(group: Registry, served: Served, unit: int) -> list[str]:
    window, windows = served.query.member.window, _windows(served)
    own = ", ".join(duration(s, unit) for s in sliced(window, group.slicing).slices[:SHOWN])
    common = slice_rate(windows, group.slicing) * window.range
    shown = f"[RANGE {duration(window.range, unit)} SLIDE {duration(window.slide, unit)}]"
    return [
        f"slices: {shown} is cut into ({own}); "
        f"about {common:,.0f} common slices of {len(set(windows))} windows in a window"
    ]


def _index(served: Served) -> Index:
    family = served.family
    if served.query.member.condition in family.index.home:
        return family.index
    return Index(e.member.condition for e in family.joined.values())


def _cells(served: Served) -> list[str]:
    index, condition = _index(served), served.query.member.condition
    k, i = index.home[condition]
    plot = index.plots[k]
    inside = int(plot.membership[i].sum())
    tested = ", ".join(plot.attributes) or "nothing"
    how = "one bit per row" if plot.solo else f"{inside} of {plot.cells} cells, {_runs(plot, i)}"
    lines = [f"cells: {how} of the plot over {tested}"]
    lines += [f"bit: {a.attribute.sql} ({a.why})" for a in _opaque(condition)]
    member = served.query.member
    called = {c.column for c in member.user_calls}
    lines += [f"bit: {name} (a user's function)" for name in sorted(called)]
    return lines


def _runs(plot: Plot, i: int) -> str:
    first, _, _ = plot.runs
    return _count(int(first[i + 1] - first[i]), "run", "runs")


def _opaque(condition: Condition) -> list[Opaque]:
    return [a for a in atoms(condition) if isinstance(a, Opaque)]


def _others(served: Served) -> list[str]:
    mine, index = served.query.member, _index(served)
    entries = [e for e in served.family.joined.values() if e.member.name != mine.name]
    home = index.home[mine.condition][0]
    same = [e.member.name for e in entries if e.member.condition == mine.condition]
    plot = [e.member.name for e in entries if index.home[e.member.condition][0] == home]
    kept = served.family.joined[mine.name]
    where = (
        "entries of a ledger"
        if kept.account is not None
        else "partials per group"
        if mine.keys
        else "partials per value"
    )
    return [
        f"reads: {where}",
        f"shares rows with {_names([e.member.name for e in entries])}",
        f"shares cells with {_names(plot)}",
        f"shares its predicate with {_names(same)}",
    ]


def _saved(group: Registry, served: Served, unit: int) -> list[str]:
    n, windows = len(served.family), _windows(served)
    if n < 2:
        return ["saves: nothing, it is alone"]
    done = served.family.counters
    passes = len(_index(served).plots)
    least = max(0.0, least_rate(windows, group.slicing)) * unit
    per = "s" if unit > 1 else "tick"
    line = f"saves: {n} passes over the rows become {passes}; worth it above {least:,.3g} rows/{per} (inequality 1)"
    if done.rows:
        line += (
            f"; so far {done.rows:,} rows, {done.partials:,} partials, {done.reads:,} read for {done.answers:,} answers"
        )
    return [line]


def _names(names: Sequence[str]) -> str:
    if not names:
        return "nobody"
    rest = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _count(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"


__all__ = ["explain_sharing"]
