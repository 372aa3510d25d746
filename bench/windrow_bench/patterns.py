"""Queries 1 to 4 of the thesis (3.6) under the three strategies: time and space as windows grow.

Each query runs as a change log, in batches of a fixed length ("fixed") and of a hundredth of its window ("window /
100"). The thesis handles one tuple at a time: fixed batches are nearer to it, since what a batch costs by itself weighs
the same at every window; batches that grow with the window share that cost between ever more tuples. The windows are
filled first; then a stretch of batches is replayed from that state by every strategy in turn, several times, and a
batch counts with its least time. Space is what the operators keep: the bytes and rows of their runs. The negative
strategy keeps no answer: it computes a result a second time to take it back. Figure 3.9 has calendars of 10 and of 50
days beside those of 16 that windrow makes. With many results and fixed batches upa is not twice as fast as negative
tuples: every strategy writes each result into the change log twice, when it comes and when it goes, and that is most of
what upa does; and negative tuples look the partners of all that ends in a batch up in one step, which weighs less the
more results there are.

"3 premature" is query 3 with partners that count a third as long as results, over as many sources as a window has
ticks: at every window about two fifths of the results end early, as in the thesis's trace ("early": of the ends, those
before the window's). "filling" is how many changes the answer had while its windows filled: a set of sources that are
all there does not change any more. "3 early" is query 3 with a short window of partners, so that more results end
early the longer the window of results is: there upa keeps results by calendar and "negative" by key, which is what a
plan may choose (thesis 3.5.2). "chosen" is what it does choose, given the rates and the number of sources. "scatter"
is by how much the second best repetition is slower than the best, "writing" the share of the time that goes into the
change log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow.compute as pc

from windrow.operators.elements import Elements
from windrow.operators.state.pending import DAYS
from windrow.optimize.announce_ends import announce_ends
from windrow.optimize.rule import RuleContext
from windrow.plan.cost import Statistics
from windrow.plan.dataflow import Circuit
from windrow.plan.lowering import Tuning
from windrow.plan.nodes import QueryPlan
from windrow_bench import flows
from windrow_bench.drive import Streams, advance, planned, resumed, runs_of, states
from windrow_bench.harness import (
    CLOCKS,
    Figure,
    Ratio,
    Result,
    commit,
    parser,
    progress,
    recorded,
    report,
    saved_in,
)

STRATEGIES = ("upa", "negative", "direct")
YEARS = {"1 many": (10, 50)}
"""Calendars of so many days are measured, too."""
PARTNERS = 1_000
"""Ticks for which a partner counts where many results end early."""
WINDOWS = (2_000, 10_000, 50_000, 200_000)
BATCHES_PER_WINDOW, FIXED = 100, 500
"""Batches of a window, or ticks of a batch."""
FILL, SETTLE, MEASURED = 20, 5, 40
"""Advances that fill the windows, then batches that give the state its usual shape, then those that count."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Variant:
    """A query of the thesis and its figure there; `window` stands for its window, `third` for a third of it.

    `fixed`: planned as written; `sourced`: over flows with as many sources as a window has ticks.
    """

    name: str
    figure: str
    text: str
    fixed: bool = False
    strategies: tuple[str, ...] = STRATEGIES
    sourced: bool = False

    def plan(self, links: Streams, window: int) -> QueryPlan:
        """The bound and optimised plan."""
        off = ("simplify_patterns", "announce_ends") if self.fixed else ("announce_ends",)
        text = self.text.replace("window", f"[RANGE {window}]").replace("third", f"[RANGE {max(1, window // 3)}]")
        return planned(text, links, off)


def variants(few: str, many: str) -> tuple[Variant, ...]:
    """All queries; `few` and `many` are the protocols of query 1's two variants, `few` also that of query 4's join."""
    join = (
        "SELECT * FROM link1 window, link2 window WHERE link1.source = link2.source "
        "AND link1.protocol = '{0}' AND link2.protocol = '{0}'"
    )
    absent = "NOT EXISTS (SELECT * FROM link2 window WHERE link2.source = link1.source)"
    early = absent.replace("window", f"[RANGE {PARTNERS}]")
    third = f"link3.protocol = '{few}'"
    up = (
        "SELECT link1.*, link3.bytes AS more FROM link1 window, link3 window "
        f"WHERE link1.source = link3.source AND {third} AND {absent}"
    )
    down = (
        f"SELECT a.*, link3.bytes AS more FROM (SELECT * FROM link1 window WHERE {absent}) AS a, link3 window "
        f"WHERE a.source = link3.source AND {third}"
    )
    return (
        Variant("1 few", "3.8", join.format(few)),
        Variant("1 many", "3.9", join.format(many)),
        Variant("2 sources", "3.10", "SELECT DISTINCT source FROM link1 window"),
        Variant("2 pairs", "3.11", "SELECT DISTINCT source, destination FROM link1 window"),
        Variant("3", "3.5.2", f"SELECT * FROM link1 window WHERE {absent}"),
        Variant(
            "3 premature", "3.14", f"SELECT * FROM link1 window WHERE {absent.replace('window', 'third')}", sourced=True
        ),
        Variant("3 early", "3.5.2", f"SELECT * FROM link1 window WHERE {early}", strategies=STRATEGIES[:2]),
        Variant("4 negation up", "3.15", up, fixed=True),
        Variant("4 negation down", "3.15", down, fixed=True),
    )


class Run:
    """A query under one strategy, with its windows full, and the least time of each measured batch."""

    def __init__(
        self, plan: QueryPlan, strategy: str, links: Streams, window: int, ticks: int, days: int = DAYS
    ) -> None:
        self.plan, self.strategy, self.window, self.ticks = plan, strategy, window, ticks
        self.tuning = Tuning(days=days)
        self.name = strategy if days == DAYS else f"{strategy}({days})"
        self.links = {name.lower(): links[name.lower()] for name in plan.streams}
        self.best: list[float] = []
        self.totals: list[float] = []  # of whole stretches
        self.changes = 0
        self.ended, self.early = 0, 0  # results, and those before their window ended
        circuit = Circuit(plan, {}, {}, strategy, tuning=self.tuning)
        circuit.start(0)
        at = self.filling = 0
        fill = np.linspace(0, window, FILL + 1, dtype=int)[1:].tolist()
        for upto in [*fill, *self._ends(window, SETTLE)]:
            self.filling += len(advance(circuit, self.links, at, upto))
            at = upto
        self.begin = at
        self.filled = states(circuit)

    def _ends(self, start: int, batches: int) -> list[int]:
        return [start + self.ticks * (i + 1) for i in range(batches)]

    def stretch(self, effort: Effort) -> None:
        """Replay the measured batches from the filled state, or as many of them as fit in the time."""
        now = CLOCKS[effort.clock]
        circuit = resumed(self.plan, self.strategy, self.filled, self.begin - 1, self.tuning)
        at, stop, changes, total = self.begin, now() + effort.seconds, 0, 0.0
        for i, upto in enumerate(self._ends(self.begin, effort.batches)):
            begin = now()
            log = advance(circuit, self.links, at, upto)
            took, at, changes = now() - begin, upto, changes + len(log)
            total += took
            if i == len(self.best):
                self.best.append(took)
                self.changes = changes
                self._count(log)
            self.best[i] = min(self.best[i], took)
            if now() > stop:
                return
        self.totals.append(total)

    def _count(self, log: Elements) -> None:
        """How many results have ended, and how many early, where they say when they came."""
        if "link1.ts" in log.columns:
            gone = log.sign < 0
            lived = log.ts[gone] - np.asarray(log.columns["link1.ts"])[gone]
            self.ended, self.early = self.ended + len(lived), self.early + int(np.sum(lived < self.window))

    def writing(self, effort: Effort) -> float:
        """The share of the time that goes into writing the change log, which every strategy has to."""
        now, spent = CLOCKS[effort.clock], 0.0
        circuit = resumed(self.plan, self.strategy, self.filled, self.begin - 1, self.tuning)
        last = circuit.flow.steps[-1].operator
        assert last is not None
        write = last.advance

        def timed(inputs: Sequence[Elements], frontier: int) -> Elements:
            nonlocal spent
            begin = now()
            log = write(inputs, frontier)
            spent += now() - begin
            return log

        last.advance = timed  # type: ignore[method-assign]
        at, begin = self.begin, now()
        for upto in self._ends(self.begin, max(1, len(self.best) // 4)):
            advance(circuit, self.links, at, upto)
            at = upto
        return spent / (now() - begin)

    def _scatter(self) -> float | None:
        first, *others = sorted(self.totals) or [0.0]
        return others[0] / first - 1 if others else None

    def row(self, variant: Variant, effort: Effort) -> Row:
        """What was measured."""
        thousands = len(self.best) * self.ticks * len(self.links) / 1000
        runs = runs_of(self.filled)
        return {
            "query": variant.name,
            "batch": effort.name,
            "window": self.window,
            "strategy": self.name,
            "ms_per_1000": 1000 * sum(self.best) / thousands,
            "scatter": self._scatter(),
            "writing": self.writing(effort),
            "state_bytes": sum(r.nbytes for r in runs),
            "state_rows": sum(r.table.num_rows for r in runs),
            "changes_per_1000": self.changes / thousands,
            "filling": self.filling,
            "early": self.early / self.ended if self.ended else None,
            "chosen": chosen(self.plan, self.links),
            "tuples": int(1000 * thousands),
        }


def chosen(plan: QueryPlan, links: Streams) -> str:
    """The strategy of a plan that may choose how it keeps its results, given what its streams are like."""
    distinct = {f"{name}.source": float(pc.count_distinct(rows["source"]).as_py()) for name, rows in links.items()}
    statistics = Statistics(dict.fromkeys(links, 1.0), distinct, horizon=1e9)
    return announce_ends(plan, RuleContext(statistics=statistics)).run_by("upa")


@dataclass(frozen=True)
class Effort:
    """How to measure: ticks per batch (None: a part of the window), batches, repetitions, seconds for each, clock."""

    ticks: int | None = None
    batches: int = MEASURED
    repeat: int = 3
    seconds: float = 2.0
    clock: str = "wall"

    @property
    def name(self) -> str:
        """How batches are cut, in a word."""
        return "fixed" if self.ticks else "window / 100"

    def batch(self, window: int) -> int:
        """Ticks per batch."""
        return self.ticks or max(1, window // BATCHES_PER_WINDOW)

    def within(self, window: int, rows: int) -> Effort:
        """As many batches as there are rows for."""
        return replace(self, batches=min(self.batches, (rows - window) // self.batch(window) - SETTLE))

    def ends(self, windows: Sequence[int]) -> int:
        """The last tick that is needed."""
        return max(w + (SETTLE + self.batches) * self.batch(w) for w in windows)


def measure(variant: Variant, links: Streams, window: int, effort: Effort) -> list[Row]:
    """A row per strategy."""
    plan = variant.plan(links, window)
    effort = effort.within(window, min(rows.num_rows for rows in links.values()))
    ticks = effort.batch(window)
    runs = [Run(plan, strategy, links, window, ticks) for strategy in variant.strategies]
    runs += [Run(plan, "upa", links, window, ticks, days) for days in YEARS.get(variant.name, ())]
    for _ in range(max(1, effort.repeat)):
        for run in runs:
            run.stretch(effort)
    return [run.row(variant, effort) for run in runs]


def empty(rows: Sequence[Row]) -> list[str]:
    """The queries that had no results at a window, while it filled or since, whose times say nothing.

    >>> empty([{"query": "1 few", "window": w, "changes_per_1000": 0, "filling": w - 1} for w in (1, 2)])
    ['1 few at 1']
    """
    without = (r for r in rows if not (r["changes_per_1000"] or r["filling"]))
    return list(dict.fromkeys(f"{r['query']} at {r['window']:,}" for r in without))


def ratios(rows: Sequence[Row]) -> list[Ratio]:
    """At the largest window: upa against the better of the other two."""
    largest = max(r["window"] for r in rows)
    cost = {(r["batch"], r["query"], r["strategy"]): float(r["ms_per_1000"]) for r in rows if r["window"] == largest}
    found = []
    for batch, query in dict.fromkeys((r["batch"], r["query"]) for r in rows):
        upa = cost[batch, query, "upa"]
        other = min(cost[batch, query, s] for s in ("negative", "direct") if (batch, query, s) in cost)
        name = f"query {query}, batches {batch}"
        if query.startswith("3"):
            taken = {r["window"]: r["chosen"] for r in rows if r["query"] == query}[largest]
            found.append(Ratio(f"{name}: chosen / better", cost[batch, query, taken] / min(upa, other), 1.1))
        if query in ("3 early", "3 premature"):  # where print has the other strategy win
            continue
        if query in ("1 many", "2 sources", "2 pairs"):
            found.append(Ratio(f"{name}: better of the others / upa", other / upa, 2.0, least=True))
        else:
            found.append(Ratio(f"{name}: upa / better of the others", upa / other, 1.1))
    return found


def figures(rows: Sequence[Row], drawn: Sequence[Variant]) -> list[Figure]:
    """Time of every query and space of query 2, as the thesis draws them, in fixed batches if those were measured."""
    made = []
    drawn_of = "fixed" if any(r["batch"] == "fixed" for r in rows) else "window / 100"
    rows = [r for r in rows if r["batch"] == drawn_of]
    for number in dict.fromkeys(v.figure for v in drawn):
        queries = [v.name for v in drawn if v.figure == number]
        lines = {
            strategy if len(queries) == 1 else f"{strategy}, {query[2:]}": _points(rows, query, strategy, "ms_per_1000")
            for query in queries
            for strategy in (*STRATEGIES, *(f"upa({days})" for days in YEARS.get(query, ())))
            if any(r["query"] == query and r["strategy"] == strategy for r in rows)
        }
        where = "figure" if number != "3.5.2" else "section"
        caption = f"Time of query {queries[0] if len(queries) == 1 else queries[0][0]} ({where} {number} of the thesis)"
        made.append(Figure(f"time-{number}", caption, "window (ticks)", "ms per 1,000 tuples", lines))
    for number, query in (("3.12", "2 sources"), ("3.13", "2 pairs")):
        if any(v.name == query for v in drawn):
            lines = {strategy: _points(rows, query, strategy, "state_bytes") for strategy in STRATEGIES}
            caption = f"Space of query {query} (figure {number} of the thesis)"
            made.append(Figure(f"space-{number}", caption, "window (ticks)", "state (bytes)", lines))
    return made


def _points(rows: Sequence[Row], query: str, strategy: str, what: str) -> list[tuple[float, float]]:
    return [(r["window"], r[what]) for r in rows if r["query"] == query and r["strategy"] == strategy]


def main(argv: Sequence[str]) -> int:
    """Run the experiment."""
    accepts = parser("patterns", __doc__ or "")
    accepts.add_argument("--data", metavar="FILE", help="flows of a CTU-13 capture (csv, may be compressed)")
    accepts.add_argument("--windows", type=int, nargs="+", metavar="TICKS", help="window sizes")
    accepts.add_argument(
        "--queries",
        nargs="+",
        metavar="NAME",
        help='only these ("1 many"); a record keeps those of others',
    )
    accepts.add_argument("--batch", type=int, default=FIXED, metavar="TICKS", help=f"ticks of a fixed batch ({FIXED})")
    options = accepts.parse_args(list(argv))
    windows = options.windows or ((500, 2_000) if options.quick else WINDOWS[:3] if options.data else WINDOWS)
    batches = 5 if options.quick else MEASURED
    efforts = [Effort(ticks, batches, options.repeat, clock=options.clock) for ticks in (options.batch, None)]
    ends = max(effort.ends(windows) for effort in efforts)
    links = flows.read(options.data) if options.data else flows.generate(ends, options.seed)
    everything = variants("icmp", "https") if options.data else variants("ftp", "telnet")
    everything = tuple(v for v in everything if not (options.data and v.sourced))
    chosen = tuple(v for v in everything if not options.queries or v.name in options.queries)
    if not chosen:
        accepts.error(f"no such query; there are: {', '.join(v.name for v in variants('', ''))}")
    name, measured = "patterns-ctu13" if options.data else "patterns", commit()
    rows: list[Row] = []
    with progress() as shown:
        task = shown.add_task("", total=None)
        for variant in chosen:
            for window in windows:
                shown.update(task, description=f"query {variant.name}, window {window:,}")
                some = links
                if variant.sourced:
                    some = flows.generate(max(e.ends([window]) for e in efforts), options.seed, sources=window)
                for effort in efforts:
                    rows += [{**row, "commit": measured} for row in measure(variant, some, window, effort)]
    if empty(rows) and not options.quick:
        raise AssertionError(f"no results: {', '.join(empty(rows))}")
    parameters = {
        "flows": "CTU-13 scenario 6 (Garcia et al. 2014), split by destination" if options.data else "generated",
        "ticks per batch": f"{options.batch:,}, and window / 100",
        "repetitions": options.repeat,
        "clock": options.clock,
    }
    before = [r for r in recorded(name, saved_in(options))[0] if "batch" in r and r["window"] in windows]
    rows += [r for r in before if r["query"] not in {v.name for v in chosen}]
    rows.sort(key=lambda r: [v.name for v in everything].index(r["query"]))
    there = [v for v in everything if any(r["query"] == v.name for r in rows)]
    about = " ".join((__doc__ or "").split())
    return report(Result(name, about, options.seed, parameters, rows, ratios(rows), figures(rows, there)), options)
