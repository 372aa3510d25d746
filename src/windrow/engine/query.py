"""A running query as its user sees it: answers, snapshots, changes, quality and the plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.plan.nodes import Aggregate, QueryPlan, has
from windrow.runtime.answer_metadata import ISOLATION, QUALITY, with_answer_metadata
from windrow.runtime.instances import Block, TemplateGroup
from windrow.runtime.past_answers import instant_of, kept_log
from windrow.sharing.plans.shared_plan import OfferedColumns

if TYPE_CHECKING:
    from windrow.engine.engine import Engine


class Query:
    """A registered query."""

    def __init__(self, engine: Engine, key: str) -> None:
        self._engine, self._key = engine, key

    @property
    def key(self) -> str:
        """Its name, in the letters that names are compared in."""
        return self._key

    @property
    def plan(self) -> QueryPlan:
        return self._engine.catalog.queries[self._key]

    def results(self, since: int | datetime | None = None, until: int | datetime | None = None) -> pa.Table:
        """The newest rows of the answer (the last 100,000; attach a sink, or KEEP the query, for all of them).

        With `since` or `until`, the kept answers with since <= _ts < until; the query says KEEP. What was answered up
        to `windrow.as_of` in the schema's metadata is there.
        """
        outlet, frontier = self._engine.runtime.declared.outlets[self._key], self._engine.runtime.answered()
        if since is None and until is None:
            _, as_of, rows = outlet.recent.up_to()
            return with_answer_metadata(rows, max(frontier, as_of), self._quality())
        log = kept_log(self.plan, outlet)
        bounds = [None if at is None else instant_of(at, self.plan.time_type) for at in (since, until)]
        return with_answer_metadata(log.results(*bounds), frontier, self._quality())

    def _quality(self) -> dict[str, str]:
        quality = self.quality()
        return {} if quality is None else {QUALITY: json.dumps(quality)}

    def _told(self, rows: pa.Table, frontier: int) -> pa.Table:
        """The rows of a snapshot with what they are exact for."""
        return with_answer_metadata(rows, frontier, {ISOLATION: "snapshot", **self._quality()})

    def quality(self) -> dict[str, Any] | None:
        """What was shed: `time` by the tick budget, `memory` by joins with SHED BY; None when nothing can be.

        The same figures are in the metadata of `results()` and `snapshot()`, as JSON under `windrow.quality`.
        """
        return self._engine.runtime.quality(self._key)

    def snapshot(self) -> pa.Table:
        """The rows of the relation now; for a stream-valued query, the rows of its newest instant."""
        return self.as_of_tick()[1]

    def as_of_tick(self) -> tuple[int, pa.Table]:
        """`snapshot()`, and the number of the tick after which it holds: with `changes(tick)` nothing is missed."""
        runtime = self._engine.runtime
        if self.plan.has_op:
            with runtime.view() as view:
                return view.tick, self._told(view.snapshot(self._key), view.frontier)
        frontier = runtime.answered()
        tick, as_of, rows = runtime.declared.outlets[self._key].recent.up_to()
        if rows.num_rows:
            ts = rows.column("_ts")
            rows = rows.filter(pc.equal(ts, ts[rows.num_rows - 1]))
        return tick, self._told(rows, max(frontier, as_of))

    def changes(self, after: int) -> list[tuple[int, pa.Table]] | None:
        """What was answered after a tick, by tick; None if some of that is gone, or if there was no such tick yet."""
        runtime = self._engine.runtime
        if after > runtime.ticker.manifest.tick:
            return None
        return runtime.declared.outlets[self._key].recent.after(after)

    def explain(self, format: str = "text") -> str:
        """The plan as it runs: with the orders and plans that its joins have chosen, what they rest on, and what was
        shed so far (text and json). A notebook shows it drawn."""
        from windrow.engine.display import Explained

        return Explained(self._explained(format), lambda: self._explained("svg"))

    def _explained(self, format: str) -> str:
        from windrow.plan.explain import explain

        runtime, sharing = self._engine.runtime, sharing_with(self._engine, self.plan)
        joins, reduced = runtime.joins(self._key), runtime.reduced(self._key)
        strategy = self._engine.optimizer.strategy
        shown = explain(self.plan, format, strategy=strategy, joins=joins, sharing=sharing, reduced=reduced)
        quality = self.quality()
        if quality is not None and format.lower() == "text":
            shown += "".join(f"\nshed for {what}: {_figures(found)}" for what, found in quality.items())
        elif quality is not None and format.lower() == "json":
            shown = json.dumps({**json.loads(shown), "quality": quality}, indent=2)
        return shown

    def to_pandas(self) -> Any:
        """The present answer as a pandas frame."""
        return self.snapshot().to_pandas()

    def to_polars(self) -> Any:
        """The present answer as a polars frame."""
        import polars

        return polars.from_arrow(self.snapshot())

    def to_duckdb(self, connection: Any = None) -> Any:
        """The present answer as a DuckDB relation, of `connection` if one is given."""
        import duckdb

        return (connection or duckdb.connect()).from_arrow(self.snapshot())

    def dataframe(self, spark: Any, follow: str | None = None) -> Any:
        """The present answer as a DataFrame of a Spark session.

        With `follow`, a streaming DataFrame of the rows that `results()` gets from now on: a sink writes them as
        Parquet under that path, a file a tick, and Spark reads the files exactly once.
        """
        if follow is None:
            return spark.createDataFrame(self.snapshot())
        from windrow.sinks.directory import DirectorySink

        name, shown = self.plan.name, self._engine.runtime.declared.outlets[self._key].recent.schema
        self._engine.sink(name, "parquet", path=follow)
        folder = DirectorySink(follow).folder(name)
        return spark.readStream.schema(spark.createDataFrame(shown.empty_table()).schema).parquet(folder)

    def _repr_html_(self) -> str:
        """For notebooks: the present answer over the plan."""
        from windrow.engine.display import table_html

        return table_html(self.snapshot(), self.plan.name) + self.explain("svg")

    def live(self, every: float = 0.5) -> Any:
        """Show the answer in a notebook as it changes, at most once in `every` seconds; `.stop()` ends it."""
        from windrow.engine.display import LiveView, table_html

        return LiveView(lambda: table_html(self.snapshot(), self.plan.name), self.subscribe, every)

    def subscribe(self, callback: Callable[[pa.Table], None]) -> Callable[[], None]:
        """Call `callback` with each new part of the answer; calling what is returned ends that.

        A part is what one tick answered, and `windrow.as_of` in its schema's metadata is the frontier of that tick.
        """
        return self._engine.runtime.declared.outlets[self._key].recent.subscribe(self.plan.name, callback)


class Queries(Query):
    """Queries from a template: one answer, the values of the parameters before the SELECT list."""

    @property
    def plan(self) -> QueryPlan:
        """The plan of some instance, under the name of all."""
        return self._group.plan

    @property
    def _group(self) -> TemplateGroup:
        return self._engine.runtime.declared.groups.live[self._key]

    def __len__(self) -> int:
        return len(self._group)

    def instances(self) -> pa.Table:
        """The values of the parameters of all instances, a row for each."""
        return self._group.instances.rows

    def quality(self) -> dict[str, Any] | None:
        """Instances shed nothing by themselves."""
        return None

    def as_of_tick(self) -> tuple[int, pa.Table]:
        """`snapshot()`, and the number of the tick after which it holds."""
        if not self.plan.has_op:
            return super().as_of_tick()
        runtime = self._engine.runtime
        with runtime.state() as state:
            return state.tick, self._told(runtime.answer_of_group(state, self._key), state.frontier)

    def _explained(self, format: str) -> str:
        """The plan of one instance, and with whom it shares."""
        from windrow.plan.explain import explain

        group = self._group
        first, block = next(iter(group.place), None), next(iter(group.blocks.values()), None)
        running = None if first is None else self._engine.runtime.ticker.queries.get(first.lower())
        plan = self.plan if running is None else running.plan
        sharing = sharing_with(self._engine, plan) if running is not None else None
        if block is not None:
            plan, sharing = _sharing_of_columns(self._engine, block)
        shown = explain(plan, format, strategy=self._engine.optimizer.strategy, sharing=sharing)
        if format.lower() != "text":
            return shown
        return f"{len(group)} queries from template {group.template.name}, one of them:\n{shown}"


def sharing_with(engine: Engine, plan: QueryPlan) -> dict[str, Any] | None:
    """What EXPLAIN says of sharing: as it is, or as it would be if a periodic query were registered."""
    if plan.root.period is None:
        return engine.runtime.shared_with(plan)
    from windrow.sharing.explain import sharing_of

    registry = engine.runtime.sharing
    known = plan.name in registry.served or plan.name.lower() in engine.runtime.ticker.queries
    found = sharing_of(registry if known else registry.with_plan(plan), plan)
    if found["shared"]:
        return found
    as_one = engine.runtime.shared_with(plan)
    return found if as_one is None or not (as_one["shared"] or not has(plan.root, Aggregate)) else as_one


def _sharing_of_columns(engine: Engine, members: Block) -> tuple[QueryPlan, dict[str, Any]]:
    """The plan of one of many instances, and with whom it shares."""
    from windrow.sharing.explain import sharing_of_instance
    from windrow.sharing.plans.explain import sharing_of_many

    catalog, ticker, planner = engine.catalog, engine.runtime.ticker, engine.runtime.declared.planner
    queries = catalog.groups[members.names.group.lower()]
    if isinstance(members, OfferedColumns):
        alive = ticker.plans.block(members.key).alive
    else:
        alive = ticker.sharing.columns[members.uid].alive
    place = int(np.flatnonzero(alive)[0])
    assert planner is not None
    plan = planner.plan(queries, catalog.templates[queries.template.lower()], members.names.rows, place, catalog)
    if isinstance(members, OfferedColumns):
        return plan, sharing_of_many(ticker.plans, members, place)
    return plan, sharing_of_instance(ticker.sharing, plan, members, place)


def _figures(quality: Mapping[str, Any]) -> str:
    """One line on what was shed.

    >>> _figures({"rows_seen": 9, "rows_shed": 3, "importance_kept": 0.75, "estimated_recall": 0.5, "exact": False})
    '3 of 9 rows, importance kept 75.0 %, estimated recall 50.0 %, approximate'
    """
    kept, recall = (100 * quality[n] for n in ("importance_kept", "estimated_recall"))
    rows = f"{quality['rows_shed']:,} of {quality['rows_seen']:,} rows"
    state = "exact" if quality["exact"] else "approximate"
    return f"{rows}, importance kept {kept:.1f} %, estimated recall {recall:.1f} %, {state}"
