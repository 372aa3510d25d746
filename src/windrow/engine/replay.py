"""Replay: bounded input, complete answers.

All streams are merged by time and cut into batches; after each batch the frontier is just below the next row's time, so
an instant is never evaluated before all its rows are there. Each batch is one tick with its frontier given, on the same
ticker and job that serve live streams. Where the cuts fall changes nothing but speed.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.catalog import Catalog, FunctionDef, StreamDef, TableDef
from windrow.engine.display import notebook_progress
from windrow.engine.instances import TemplatePlanner
from windrow.engine.replay_input import stream_rows, table_rows, wish_of, working_place
from windrow.engine.script import bind_script
from windrow.errors import WindrowError
from windrow.operators.elements import Elements
from windrow.operators.row_limit import MOST_ROWS
from windrow.optimize import Optimizer
from windrow.plan.dataflow import no_answer
from windrow.plan.nodes import QueryPlan
from windrow.plan.strategies import Strategy
from windrow.runtime.change import ComingInstances
from windrow.runtime.collector import without_collector
from windrow.runtime.instances import FEW, TemplateGroup
from windrow.runtime.job import Feed, Job, LocalJob
from windrow.runtime.kept_answers import rows_of
from windrow.runtime.tick import Ticker
from windrow.sharing.query_group import Batch
from windrow.sources.intake import Arrivals
from windrow.sources.quarantined_rows import quarantine_summary
from windrow.sources.staging import StagedRows, Staging
from windrow.store.runs import RunStore
from windrow.store.store import MemoryStore, StateStore, Store

BATCH_ROWS = {"local": 1 << 17, "spark": 1 << 19}
"""Rows per batch when the caller does not say: large enough to be columnar, small enough to show progress."""

STAGED_BYTES, STAGED_ROWS = 128 << 20, 1 << 22
"""Of rows that tasks read, about so many bytes, and rows at most: a batch is a job of its own."""

Progress = Callable[[int, int], None]


class LateRowsWarning(UserWarning):
    """Rows of a stream came later than WITHIN allows, and are in `answers.late`."""


class QuarantineWarning(UserWarning):
    """Rows or files of a stream, or changes of a table, cannot be read, and are in `answers.quarantine`."""


class Answers(dict[str, pa.Table]):
    """The answer of each query by name; `late` holds each stream's late rows, `quarantine` what cannot be read."""

    def __init__(
        self,
        answers: Mapping[str, pa.Table],
        late: Mapping[str, pa.Table],
        quarantine: Mapping[str, pa.Table] | None = None,
    ) -> None:
        super().__init__(answers)
        self.late, self.quarantine = dict(late), dict(quarantine or {})

    def _repr_html_(self) -> str:
        """For notebooks."""
        from windrow.engine.display import answers_html

        return answers_html(self)


def run(
    script: str,
    streams: Mapping[str, Any] | None = None,
    tables: Mapping[str, Any] | None = None,
    runtime: str = "spark",
    batch_rows: int | None = None,
    until: Any = None,
    *,
    strategy: str = "upa",
    sharing: str = "auto",
    without: Iterable[str] = (),
    functions: Mapping[str, FunctionDef] | None = None,
    progress: Progress | None = None,
    spark: Any = None,
    max_rows: int = MOST_ROWS,
    home: str | os.PathLike[str] | None = None,
) -> Answers:
    """Run every query of `script` over bounded input and return the complete answers.

    `batch_rows`, `strategy` ("upa", "negative" or "direct") and `sharing` ("auto", "off", "slices", "fragments" or
    "shards") never change an answer, nor do optimizer rules, which `without` switches off by name. `until` advances
    time past the last row. `progress` is called with rows done and rows in all; without it, a notebook shows a bar.
    `max_rows`: that a query may answer with in one batch, on each partition; one that would have more is refused.
    `home`: a folder that the driver and the tasks of a Spark cluster reach, for what lies on disk while it runs.
    """
    _check_options(runtime, batch_rows)
    given = (script, streams or {}, tables or {}, until)
    progress = progress or notebook_progress()
    if runtime == "local":
        replay = Replay.of(*given, without=without, strategy=strategy, functions=functions)
        replay.most_rows = max_rows
        answers = replay.on(LocalJob(), MemoryStore(), batch_rows, strategy, progress=progress, sharing=sharing)
    else:
        from windrow.spark.job import SparkJob
        from windrow.spark.session import session

        job = SparkJob(session(spark))
        with working_place(home, job.spark.sparkContext.master or "") as place:
            staging = Staging(place.below("input"), job.map)
            replay = Replay.of(*given, without=without, strategy=strategy, functions=functions, staging=staging)
            replay.most_rows = max_rows
            where = place.below("home").uri
            answers = replay.in_home(where, job, batch_rows, strategy, progress=progress, sharing=sharing)
    for told, kind in _left_out(answers):
        warnings.warn(told, kind, stacklevel=2)
    return answers


def _left_out(answers: Answers) -> Iterator[tuple[str, type[UserWarning]]]:
    """What has no part in the answers, and where it is."""
    for name, rows in answers.late.items():
        if len(rows):
            yield (
                f'stream "{name}": {len(rows)} of its rows came too late; they are in answers.late["{name}"]',
                LateRowsWarning,
            )
    for name, rows in answers.quarantine.items():
        if len(rows):
            yield f'{quarantine_summary(rows, name)}; all are in answers.quarantine["{name}"]', QuarantineWarning


def _check_options(runtime: str, batch_rows: int | None) -> None:
    if runtime not in ("spark", "local"):
        raise WindrowError(f"unknown runtime {runtime!r}", hint="use one of spark, local")
    if batch_rows is not None and batch_rows < 1:
        raise WindrowError(
            f"batch_rows is {batch_rows}", hint="a batch has at least one row; leave it out to let windrow choose"
        )


class Replay:
    """A script bound to its data."""

    def __init__(
        self,
        catalog: Catalog,
        data: Mapping[str, Arrivals | StagedRows],
        tables: Mapping[str, pa.Table],
        until: int | None,
    ) -> None:
        self.catalog, self.data, self.tables = catalog, data, tables
        self.most_rows = MOST_ROWS
        self.aside: Mapping[str, pa.Table] = {}
        self.planner = TemplatePlanner(Optimizer())
        last = max((int(a.ts[-1]) for a in data.values() if len(a.ts)), default=None)
        self.until = until if until is not None else last

    @classmethod
    def of(
        cls,
        script: str,
        streams: Mapping[str, Any],
        tables: Mapping[str, Any],
        until: Any = None,
        *,
        without: Iterable[str] = (),
        strategy: str = "upa",
        functions: Mapping[str, FunctionDef] | None = None,
        staging: Staging | None = None,
    ) -> Replay:
        """Parse, bind and optimise the script; read and check the data, or let tasks (`staging`)."""
        from windrow.engine.functions import registered

        raw_streams = {k.lower(): (k, v) for k, v in streams.items()}
        raw_tables = {k.lower(): (k, v) for k, v in tables.items()}
        catalog = Catalog(functions={**registered(), **(functions or {})})
        catalog = bind_script(script, catalog, raw_streams, raw_tables)
        optimizer = Optimizer(frozenset(without), Strategy(strategy))
        catalog = replace(catalog, queries={k: optimizer.best(q, catalog) for k, q in catalog.queries.items()})
        end = _instant(until, catalog)
        planner = TemplatePlanner(optimizer)
        templates = [planner.like(t, catalog) for t in catalog.templates.values()]
        plans = [*catalog.queries.values(), *templates]
        read = {name.lower() for q in plans for name in q.streams + q.tables}
        read |= {g.table.lower() for g in catalog.groups.values() if g.table is not None}
        data = {
            k: stream_rows(d, raw_streams, end, staging, wish_of(d, catalog.queries.values(), templates))
            for k, d in catalog.streams.items()
            if k in read | raw_streams.keys()
        }
        held = {k: table_rows(d, raw_tables) for k, d in catalog.tables.items() if k in read}
        made = cls(catalog, data, {k: rows for k, (rows, _) in held.items()}, end)
        aside = {k: found.aside for k, found in data.items()} | {k: unread for k, (_, unread) in held.items()}
        declared: dict[str, StreamDef | TableDef] = {**catalog.streams, **catalog.tables}
        made.aside = {declared[k].name: rows for k, rows in aside.items() if declared[k].quarantine}
        made.planner = planner
        return made

    def starts(self, plan: QueryPlan) -> int | None:
        """Where a query's clock starts: the earliest row of the streams it reads."""
        firsts = [int(self.data[s.lower()].ts[0]) for s in plan.streams if len(self.data[s.lower()].ts)]
        return min(firsts, default=None)

    def frontiers(self, batch_rows: int | None) -> Iterator[tuple[int, int]]:
        """(rows done, frontier) after each batch; the last frontier is `until`."""
        if self.until is None:
            return
        times = [a.ts[: np.searchsorted(a.ts, self.until, "right")] for a in self.data.values()]
        ts = times[0] if len(times) == 1 else np.sort(np.concatenate(times), kind="stable")
        staged = [a for a in self.data.values() if isinstance(a, StagedRows)]
        step, previous = batch_rows or _batch_rows(staged), None
        starts = np.concatenate([np.empty(0, np.int64), *(a.edges for a in staged)])
        edges = np.unique(np.searchsorted(ts, starts))
        for done in range(step, len(ts), step):
            near = edges[np.searchsorted(edges, done - step // 2) :][:1]  # a part that is cut is read twice
            done = int(near[0]) if len(near) and near[0] <= done + step // 2 else done
            frontier = int(ts[min(done, len(ts) - 1)]) - 1
            if previous is None or frontier > previous:
                yield done, frontier
                previous = frontier
        yield len(ts), self.until

    def on(
        self,
        job: Job,
        store: StateStore,
        batch_rows: int | None,
        strategy: str = "upa",
        *,
        partitions: int | None = None,
        progress: Progress | None = None,
        sharing: str = "auto",
    ) -> Answers:
        """Run every query by ticks, with state in a new store."""
        return self.play(self.registered(job, store, strategy, partitions, sharing), job, batch_rows, progress)

    def registered(
        self, job: Job, store: StateStore, strategy: str, partitions: int | None = None, sharing: str = "auto"
    ) -> Ticker:
        """A ticker over a new store that knows all queries."""
        if isinstance(store.runs, RunStore):
            store.runs = store.runs.unsynced()  # a replay that dies is started anew
        functions = {n: f.fn for n, f in self.catalog.functions.items()}
        spread, sharing = partitions or job.parallelism, Strategy(strategy).sharing(sharing)
        ticker = Ticker(store, functions, spread, sharing, in_process=job.in_process, most_rows=self.most_rows)
        for stream in self.catalog.streams.values():
            ticker.add_stream(stream)
        for name, table in self.tables.items():
            ticker.set_table(name, table)
        with without_collector():
            declared = (*self.catalog.queries.values(), *self._instances(ticker))
            plans = [p for p in declared if self.starts(p) is not None]
            together = [q for p in plans if (q := ticker.sharing.recognised(p)) is not None]
            if sharing == "auto":
                together = ticker.sharing.worth_sharing(together, self.rate)
            for query in together:
                ticker.add_shared(ticker.sharing.admit(query), self.starts(query.plan))
            for plan in plans:
                if plan.name.lower() not in ticker.queries:
                    ticker.add_query(plan, strategy, self.starts(plan), alone=True)
        return ticker

    def _instances(self, ticker: Ticker) -> Iterator[QueryPlan]:
        """The plans of queries from templates that run by themselves; the others run from now on."""
        for key, queries in self.catalog.groups.items():
            template = self.catalog.templates[queries.template.lower()]
            like = self.planner.like(template, self.catalog)
            group = TemplateGroup(queries, template, like, no_answer(like, like.root.schema))
            ticker.groups.live[key] = group
            rows, start = self.planner.wanted(queries, template, self.tables.__getitem__).rows, self.starts(group.like)
            few = FEW if ticker.sharing.takes_columns and start is not None else None
            planned = self.planner.planned(queries, template, rows, self.catalog, few)
            ticker.add_instances(group, ComingInstances(rows, planned), start)
            yield from planned.plans.values()

    def play(self, ticker: Ticker, job: Job, batch_rows: int | None, progress: Progress | None = None) -> Answers:
        """All ticks, from the first row to the last answer."""
        parts: dict[str, list[pa.Table]] = {}
        shared: list[Batch] = []
        total = sum(len(a.ts) for a in self.data.values())
        before = None
        for done, frontier in () if ticker.idle else self.frontiers(batch_rows):
            tick = ticker.run(job, list(self._feeds(before, frontier, job.parallelism)), frontier)
            before = frontier
            for key, failure in tick.failed.items():
                raise _of_query(ticker.queries[key].plan.name if key in ticker.queries else key, failure)
            ticker.commit(tick)
            ticker.store.sweep()
            shared += ticker.groups.put_together(tick.answers, tick.shared, ticker.how_shown, tick.instances)
            for name, table in tick.answers.items():
                parts.setdefault(name, []).append(rows_of(table))
            if progress is not None:
                progress(done, total)
        for name, table in ticker.shown(shared).items():
            parts[name] = [table]
        whole = dict(self._whole(parts))
        for group in ticker.groups.live.values():
            whole[group.name] = pa.concat_tables(parts.get(group.name) or [group.empty])
        late = {self.catalog.streams[k].name: a.late for k, a in self.data.items()}
        return Answers(whole, late, self.aside)

    def in_home(self, home: str, job: Job, batch_rows: int | None, strategy: str = "upa", **options: Any) -> Answers:
        """Run every query with state in a new home."""
        with Store.open(home) as store:
            return self.on(job, store, batch_rows, strategy, **options)

    def _feeds(self, before: int | None, frontier: int, tasks: int) -> Iterator[Feed]:
        """The rows with times in `(before, frontier]`."""
        for stream, data in self.data.items():
            if isinstance(data, StagedRows):
                pieces = tuple(data.between(before, frontier, tasks))
                if pieces:
                    yield Feed(stream, pieces)
                continue
            low = 0 if before is None else int(np.searchsorted(data.ts, before, "right"))
            high = int(np.searchsorted(data.ts, frontier, "right"))
            if high > low:
                yield Feed(stream, data.rows.slice(low, high - low), ts=data.ts[low:high])

    def _whole(self, parts: Mapping[str, list[pa.Table]]) -> Iterator[tuple[str, pa.Table]]:
        from windrow.plan.dataflow import answer

        for plan in self.catalog.queries.values():
            found = parts.get(plan.name) or [answer(plan, Elements.empty(plan.root.schema))]
            yield plan.name, found[0] if len(found) == 1 else pa.concat_tables(found)

    def rate(self, stream: str) -> float:
        """Rows per tick of a stream's clock."""
        ts = self.data[stream].ts
        return len(ts) / (int(ts[-1]) - int(ts[0]) + 1) if len(ts) else 0.0


def _of_query(query: str, failure: WindrowError) -> WindrowError:
    """What stopped a query, with its name: a script has many."""
    named = f'query "{query}"'
    if named not in failure.primary:
        failure.primary = f"{named}: {failure.primary}"
    return failure


def _batch_rows(staged: Sequence[StagedRows]) -> int:
    """Rows per batch when the caller does not say; `staged`: the streams that tasks read."""
    if not staged:
        return BATCH_ROWS["local"]
    rows, weight = sum(len(a.ts) for a in staged), sum(a.weight for a in staged)
    return min(STAGED_BYTES * rows // max(1, weight) + 1, STAGED_ROWS)


def _instant(until: Any, catalog: Catalog) -> int | None:
    """`until` in ticks of the clock: an integer, or a datetime for timestamp streams; a text is what the clock has."""
    if until is None or isinstance(until, int | np.integer):
        return None if until is None else int(until)
    clocks = [s.time_type for s in catalog.streams.values()]
    if not any(map(pa.types.is_timestamp, clocks)):
        if isinstance(until, str) and until.removeprefix("-").isdecimal():
            return int(until)
        raise WindrowError(f"until is {until!r}, and the streams count ticks", hint="give a number of ticks")
    if isinstance(until, float):
        raise WindrowError(f"until is {until!r}", hint="give an integer (ticks or microseconds) or a datetime")
    tz = next((t.tz for s in catalog.streams.values() if pa.types.is_timestamp(t := s.time_type)), None)
    try:
        return int(pa.scalar(until, pa.timestamp("us", tz)).cast(pa.int64()).as_py())
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError):
        pass
    try:
        return int(pa.array([str(until)]).cast(pa.timestamp("us")).cast(pa.int64())[0].as_py())
    except pa.ArrowInvalid as error:
        raise WindrowError(
            f"until is {until!r}, and the streams have times", hint="give a time, as in 2024-01-01T00:02:00"
        ) from error
