"""The plans of one-time queries: a text that is asked again is not planned again.

A plan depends on the text and on the catalog, and a catalog is never changed, only followed by another. So the plans of
the newest catalog are kept by text, the longest unused forgotten first. Whatever reads the state (`Question`) happens
anew every time. A question with `AS OF` is planned each time: what it may read depends on what is kept at that moment.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType

import pyarrow as pa

from windrow.catalog import Catalog, TableDef
from windrow.cql.one_time import OneTimeQuery, OneTimeSelect
from windrow.cql.parameters import Parameters, with_values
from windrow.errors import UnsupportedError
from windrow.optimize import Optimizer
from windrow.plan.nodes import QueryPlan, Scan, StreamOp
from windrow.runtime.history_reader import ScanWish, wishes
from windrow.runtime.split import SplitPlan, split, without
from windrow.runtime.state_reader import StateReader
from windrow.sharing.recognise import Recognised
from windrow.sharing.reused_partials import as_member

KEPT = 500
"""Plans kept for texts that come again."""

Travels = Mapping[str, tuple[str, int | datetime]]
"""By the name of a table: which query's kept answers it shows, and of which instant."""


Extras = Callable[[Travels, Collection[str]], "Mapping[str, Extra]"]
"""What a question may read besides: for what it says AS OF of, and the names in it."""


@dataclass(frozen=True)
class Extra:
    """A table that only one-time queries have: an answer as of an instant, or an archive.

    `read` is given what raises when the question is to be given up.
    """

    columns: Mapping[str, pa.DataType]
    read: Callable[[QueryPlan, StateReader, Callable[[], None]], pa.Table]


@dataclass(frozen=True)
class QuestionPlan:
    """A question as it is computed. `running`: the registered query that computes just this.

    `how`: how it splits by run, unless it does not; `asked`: the aggregate that running queries may have partials of.
    """

    query: OneTimeQuery
    wishes: Mapping[Scan, ScanWish]
    running: str | None
    extras: Mapping[str, Extra]
    how: SplitPlan | None = None
    asked: Recognised | None = None


class QuestionPlans:
    """Plans over one catalog."""

    def __init__(self, catalog: Catalog, extras: Extras, optimizer: Optimizer) -> None:
        self.catalog, self._optimizer = catalog, optimizer
        self.relations = {k: q for k, q in catalog.queries.items() if q.has_op}
        self._others = {k: q for k, q in catalog.queries.items() if k not in self.relations}
        self._tables = dict(catalog.tables)
        for key, query in self.relations.items():
            self._tables[key] = TableDef(query.name, {s: query.root.schema[c] for s, c in query.output})
        self._extras = extras
        self._known: OrderedDict[str, QuestionPlan] = OrderedDict()
        self._lock = threading.Lock()

    def plan(self, text: str, parameters: Parameters | None = None) -> QuestionPlan:
        """The plan of a SELECT."""
        text = with_values(text, parameters)
        with self._lock:
            known = self._known.get(text)
            if known is not None:
                self._known.move_to_end(text)
                return known
        parsed = OneTimeSelect.parse(text)
        made = self._planned(parsed)
        if not parsed.travels:
            with self._lock:
                self._known[text] = made
                while len(self._known) > KEPT:
                    self._known.popitem(last=False)
        return made

    def _planned(self, parsed: OneTimeSelect) -> QuestionPlan:
        extras = self._extras(parsed.travels, self._names(parsed))
        more = {k: TableDef(k, e.columns) for k, e in extras.items()}
        seen = Catalog(
            self.catalog.streams,
            MappingProxyType({**self._tables, **more}),
            self._others,
            self.catalog.functions,
            views=self.catalog.views,
            macros=self.catalog.macros,
        )
        bound = parsed.bind(seen)
        query = replace(bound, plan=self._optimizer.asked(bound.plan, seen))
        if query.plan.root.op is not StreamOp.RELATION:
            raise UnsupportedError(
                "a one-time query has no stream operator and no SLIDE",
                detail="it is answered once, as of now",
                hint="leave SLIDE out, or write FROM and the name of a periodic query for its last answer",
            )
        found = QuestionPlan(query, wishes(query.plan.root), self._running(query.plan), extras)
        how = None if found.running is not None else split(query.plan)
        if how is None or how.scan not in found.wishes:
            return found
        how = without(how, found.wishes[how.scan].decided)
        return replace(found, how=how, asked=None if how.aggregate is None else as_member(query.plan))

    def _names(self, parsed: OneTimeSelect) -> set[str]:
        """What a question reads, the views that it reads included."""
        views = self.catalog.views
        over = {o.lower() for n in parsed.reads if n in views for o in views[n].plan.over}
        return parsed.reads | over

    def _running(self, plan: QueryPlan) -> str | None:
        for key, query in self.relations.items():
            if query.root == plan.root and query.output == plan.output:
                return key
        return None
