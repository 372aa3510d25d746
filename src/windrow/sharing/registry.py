"""Who shares with whom: the queries that a runtime serves together, and why others run by themselves.

Queries are put into families by their rows (stream and joined tables) and by the technique:

    slices      same rows, predicate and keys; windows differ        (paper, section 3)
    fragments   same rows and window; predicates differ              (section 4)
    shards      same rows; windows and predicates differ             (section 5)
    auto        shards, except for queries that are cheaper alone    (`windows.worth_sharing`)
    off         nothing is shared

`auto` decides when a query comes, by inequality 1 at the rate that its stream has shown so far; before there is one,
and for the first query over some rows, it shares, because a family of one costs what a query by itself costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from windrow.errors import WindrowError
from windrow.plan.nodes import QueryPlan, Scan, walk
from windrow.plan.weights import gate_of
from windrow.sharing.family import Family
from windrow.sharing.joins.recognise import RecognisedJoin
from windrow.sharing.joins.registry import ALONE, JoinRegistry
from windrow.sharing.recognise import FamilySource, NotShared, Recognised, recognise
from windrow.sharing.windows import PAIRED, PANED, least_rate, worth_sharing

TECHNIQUES = ("auto", "off", "slices", "fragments", "shards")
FEW_ROWS = "rows are so few that sharing costs more"
Functions = Mapping[str, Callable[..., object]]
Rate = Callable[[str], float | None]
"""A stream's rows per tick of its clock; None while nothing is known."""


def check(sharing: str, slicing: str = PAIRED) -> None:
    """Refuse a name that is no technique."""
    for what, given, allowed in (("sharing", sharing, TECHNIQUES), ("slicing", slicing, (PAIRED, PANED))):
        if given not in allowed:
            raise WindrowError(f"unknown {what} {given!r}", hint=f"use one of {', '.join(allowed)}")


@dataclass
class Served:
    """A query that shares, and its family."""

    query: Recognised
    family: Family


class Registry:
    """The families of a runtime; `served` and `reasons` say of every query where it is."""

    def __init__(
        self, functions: Functions, sharing: str = "auto", slicing: str = PAIRED, rate: Rate | None = None
    ) -> None:
        check(sharing, slicing)
        self.functions, self.sharing, self.slicing, self.rate = functions, sharing, slicing, rate
        self.families: dict[object, Family] = {}
        self.served: dict[str, Served] = {}
        self.joins = JoinRegistry()  # queries over joins of streams
        self.reasons: dict[str, str] = {}  # queries that run by themselves, and why
        self.may_be_late: Callable[[QueryPlan], bool] = lambda plan: False  # those that share can be, so they do
        self._least: dict[object, tuple[int, float]] = {}  # (members when it was computed, least rate) by family

    def recognised(self, plan: QueryPlan) -> Recognised | RecognisedJoin | None:
        """The query as it would be served; None, and a reason, if it runs by itself."""
        self.reasons.pop(plan.name, None)
        if self.sharing == "off":
            return None
        if gate_of(plan) is not None:
            self.reasons[plan.name] = "its budget may shed rows that others need"
            return None
        try:
            query = self.recognise(plan)
        except NotShared as why:
            self.reasons[plan.name] = str(why)
            return None
        if isinstance(query, RecognisedJoin):
            return query
        if self.sharing == "auto" and not self.may_be_late(plan) and not self._pays(query):
            self.reasons[plan.name] = FEW_ROWS
            return None
        return query

    def recognise(self, plan: QueryPlan) -> Recognised | RecognisedJoin:
        """The query as one that shares; raises `NotShared` with the reason if it cannot."""
        made = plan.made
        streams = sum(isinstance(n, Scan) for n in walk(plan.root)) if made is None else made.shape.scans
        if streams > 1 and self.sharing in ("auto", "shards"):
            return self.joins.recognised(plan)
        return recognise(plan)

    def _pays(self, query: Recognised) -> bool:
        """Whether one more query over these rows should share, as far as is known now."""
        rate = self.rate(query.source.stream) if self.rate is not None else None
        key = self.key(query)
        family = self.families.get(key)
        if rate is None or family is None or not len(family):
            return True
        known, least = self._least.get(key, (0, 0.0))
        if len(family) + 1 >= 2 * known:  # the bound moves slowly: looking at all windows each time would be dear
            windows = Counter([query.member.window, *(e.member.window for e in family.joined.values())])
            for members in family.columns.values():
                windows[members.window] += len(members)
            least = least_rate(windows, self.slicing)
            self._least[key] = (len(family) + 1, least)
        return rate > least

    def chosen(self, queries: Sequence[Recognised], rate: Callable[[str], float]) -> list[Recognised]:
        """Of queries that come together, those that cost less together than apart (inequality 1)."""
        families: dict[FamilySource, list[Recognised]] = {}
        for query in queries:
            families.setdefault(query.source, []).append(query)
        found: list[Recognised] = []
        for source, members in families.items():
            if worth_sharing([q.member.window for q in members], rate(source.stream), self.slicing):
                found += members
            else:
                why = "it is alone" if len(members) == 1 else FEW_ROWS
                self.reasons |= {q.plan.name: why for q in members}
        return found

    def with_plan(self, plan: QueryPlan) -> Registry:
        """A registry like this one in which a query shares as it would here; this one is left as it is."""
        made = Registry(self.functions, self.sharing, self.slicing, self.rate)
        for served in self.served.values():
            made.enter(served.query)
        for key, family in self.families.items():
            for members in family.columns.values():
                made.family_of(members.query).serve_columns(members)
            made.families[key].counters = family.counters
        for joined in self.joins.served.values():
            made.joins.enter(joined.query, joined)
        made.joins.alone = dict(self.joins.alone)
        made.may_be_late = self.may_be_late
        query = made.recognised(plan)
        if isinstance(query, RecognisedJoin) and not made.worth(query):
            made.reasons[plan.name] = ALONE
        elif query is not None:
            made.enter(query)
        return made

    def worth(self, query: RecognisedJoin) -> bool:
        """Whether a query over a join should share it: somebody else is over the same, or it may be late."""
        return self.joins.worth(query) or self.may_be_late(query.plan)

    def enter(self, query: Recognised | RecognisedJoin) -> None:
        """Let a query join its family, without rows."""
        if isinstance(query, RecognisedJoin):
            self.joins.enter(query)
            return
        family = self.family_of(query)
        family.join(query.member)
        self.served[query.plan.name] = Served(query, family)

    def leave_alone(self) -> None:
        """Let queries that nobody shares a join with run by themselves."""
        for family in [f for f in self.joins.families.values() if len(f) == 1]:
            (entry,) = family.joined.values()
            self.joins.remove(entry.query.plan.name)
            self.joins.alone[entry.query.source] = entry.query
            self.reasons[entry.query.plan.name] = ALONE

    def key(self, query: Recognised) -> object:
        """Which family a query belongs to."""
        m = query.member
        match self.sharing:
            case "slices":
                return (query.source, m.condition, m.kind.keys)
            case "fragments":
                return (query.source, m.window)
        return query.source

    def family_of(self, query: Recognised) -> Family:
        """The family of a query, new if nobody is in it."""
        key = self.key(query)
        if key not in self.families:
            self.families[key] = Family(self.functions, self.slicing)
        self.families[key].functions = self.functions
        return self.families[key]

    def others(self, name: str) -> int:
        """How many others a query shares with."""
        if name in self.joins.served:
            return len(self.joins.families[self.joins.served[name].query.source]) - 1
        return len(self.served[name].family) - 1

    def remove(self, name: str) -> None:
        """Serve a query no longer."""
        served = self.served.pop(name)
        served.family.leave(name)
        if not len(served.family):
            self.families = {k: f for k, f in self.families.items() if f is not served.family}
            self._least = {k: v for k, v in self._least.items() if k in self.families}
