"""Who shares a join with whom: queries over the same two streams, joined on the same keys.

One query over a join runs by itself: its plan may aggregate before it joins, which one query does cheaper. From the
second on they share one join state, and the pairs are formed once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from windrow.plan.nodes import QueryPlan
from windrow.sharing.family import Counters
from windrow.sharing.joins.members import JoinMember, JoinSource
from windrow.sharing.joins.recognise import RecognisedJoin, recognise_join
from windrow.sharing.recognise import NotShared

ALONE = "it is alone over its join"


@dataclass
class JoinedQuery:
    """A member of a family: the epoch of the first rows that it sees."""

    query: RecognisedJoin
    epoch: int

    @property
    def member(self) -> JoinMember:
        return self.query.member


@dataclass
class JoinFamily:
    """The queries over one join, as the driver knows them: it holds no rows."""

    joined: dict[str, JoinedQuery] = field(default_factory=dict)
    epoch: int = 0
    counters: Counters = field(default_factory=Counters)
    _used: bool = False  # rows have come in this epoch

    def __len__(self) -> int:
        return len(self.joined)

    def join(self, query: RecognisedJoin) -> JoinedQuery:
        """Let one more query in, for the rows that come from now on."""
        if self._used:
            self.epoch, self._used = self.epoch + 1, False
        return self.serve(JoinedQuery(query, self.epoch))

    def serve(self, entry: JoinedQuery) -> JoinedQuery:
        """Let a query in whose epoch is settled."""
        self.joined[entry.query.plan.name] = entry
        return entry

    def resume(self, epoch: int) -> None:
        """Go on where another process, which may have seen rows since, has stopped."""
        self.epoch, self._used = epoch, True

    def used(self) -> None:
        """Rows have come: who joins from now on has not seen them."""
        self._used = True


class JoinRegistry:
    """The shared joins of a runtime."""

    def __init__(self) -> None:
        self.families: dict[JoinSource, JoinFamily] = {}
        self.served: dict[str, JoinedQuery] = {}
        self.alone: dict[JoinSource, RecognisedJoin] = {}  # the only query over a join, which runs by itself
        self.kept: Callable[[str], bool] = lambda _: False  # whether a stream keeps its history

    def recognised(self, plan: QueryPlan) -> RecognisedJoin:
        """The query as it would be served; raises `NotShared` with the reason if it runs by itself."""
        query = recognise_join(plan)
        if any(self.kept(s) for s in query.source.streams):
            raise NotShared("its streams keep their history (RETAIN)")
        return query

    def worth(self, query: RecognisedJoin) -> bool:
        """Whether somebody else is over the same join."""
        others = self.families.get(query.source)
        first = self.alone.get(query.source)
        return bool(others) or (first is not None and first.plan.name != query.plan.name)

    def chosen(self, queries: Sequence[RecognisedJoin]) -> list[RecognisedJoin]:
        """Of queries that come together, those that are not alone."""
        return [q for q in queries if sum(q.source == other.source for other in queries) > 1]

    def enter(self, query: RecognisedJoin, entry: JoinedQuery | None = None) -> JoinedQuery:
        """Let a query share; `entry`: as it did before."""
        family = self.families.setdefault(query.source, JoinFamily())
        found = self.served[query.plan.name] = family.join(query) if entry is None else family.serve(entry)
        return found

    def remove(self, name: str) -> None:
        """Serve a query no longer."""
        source = self.served.pop(name).query.source
        self.families[source].joined.pop(name)
        if not self.families[source]:
            del self.families[source]

    def forget(self, name: str) -> None:
        """A query that ran by itself is gone."""
        for source in [s for s, q in self.alone.items() if q.plan.name == name]:
            del self.alone[source]
