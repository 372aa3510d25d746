"""The list of queries, a page at a time: those that a search finds, in some order.

A page of thousands costs its own lines. A search goes over texts that are kept until the catalog changes; update
patterns and figures are found out for the lines that are shown, and for all only where an order or a search asks for
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from windrow.plan.nodes import QueryPlan
from windrow.plan.patterns import Pattern, pattern
from windrow.server.live import Live

Sort = Literal["name", "pattern", "rate", "answers", "late", "state", "shared", "failed", "text"]
"""What a list of queries may be ordered by."""

BY_PLAN: dict[str, Callable[[QueryPlan], Any]] = {
    "name": lambda plan: plan.name.lower(),
    "pattern": lambda plan: pattern(plan.root),
    "text": lambda plan: plan.text,
}
BY_FIGURES: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "rate": lambda line: line.get("answers_per_second", 0.0),
    "answers": lambda line: line.get("answers", 0),
    "late": lambda line: (line.get("deadline") or {}).get("late", 0),
    "state": lambda line: line.get("state_bytes", 0),
    "shared": lambda line: line.get("shared_with", 0),
}
assert {*BY_PLAN, *BY_FIGURES, "failed"} == set(get_args(Sort))


@dataclass(frozen=True)
class PageRequest:
    """Which queries, in which order, and which of them; without `limit`, all the rest."""

    search: str = ""
    sort: Sort | None = None
    down: bool = False
    offset: int = 0
    limit: int | None = None


class QueryList:
    """The queries of an engine, listed."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._texts: tuple[Mapping[str, QueryPlan] | None, dict[str, str]] = (None, {})

    def page(self, asked: PageRequest) -> tuple[int, list[dict[str, Any]]]:
        """How many queries a search finds, and a line for each of a page of them."""
        plans = self._live.engine.catalog.queries
        keys = self._found(plans, asked.search)
        if asked.sort is not None:
            keys.sort(key=self._order(plans, asked.sort), reverse=asked.down)
        end = None if asked.limit is None else asked.offset + asked.limit
        return len(keys), self._lines(plans, keys[asked.offset : end])

    def _found(self, plans: Mapping[str, QueryPlan], search: str) -> list[str]:
        """The queries that have every word: in name, text or pattern, or `failed` if they have."""
        known, texts = self._texts
        if known is not plans:
            texts = {k: f"{p.name} {p.text}".lower() for k, p in plans.items()}
            self._texts = (plans, texts)
        found, failed = list(texts), self._live.status()["failed"]
        for word in search.lower().split():
            meant = {p for p in Pattern if word in p.word}
            found = [
                k
                for k in found
                if word in texts[k] or (meant and pattern(plans[k].root) in meant) or (k in failed and word in "failed")
            ]
        return found

    def _order(self, plans: Mapping[str, QueryPlan], sort: Sort) -> Callable[[str], Any]:
        if sort in BY_PLAN:
            return lambda key: BY_PLAN[sort](plans[key])
        status = self._live.status(None if sort in BY_FIGURES else ())
        if sort in BY_FIGURES:
            return lambda key: BY_FIGURES[sort](status["queries"].get(plans[key].name, {}))
        return lambda key: status["failed"].get(key, "")

    def _lines(self, plans: Mapping[str, QueryPlan], keys: list[str]) -> list[dict[str, Any]]:
        status = self._live.status(keys if len(keys) < len(plans) else None)
        return [
            {
                "name": plans[key].name,
                "text": plans[key].text,
                "pattern": pattern(plans[key].root).word,
                "period": plans[key].root.period,
                "unit": self._live.clock(plans[key]),
                "failed": status["failed"].get(key),
                **{k: v for k, v in status["queries"].get(plans[key].name, {}).items() if k != "quality"},
            }
            for key in keys
        ]
