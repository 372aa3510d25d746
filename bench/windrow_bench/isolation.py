"""Queries that scan a window while it slides (thesis 7.5): aborts, staleness and response of four schedulers.

Serial locks the window, WS keeps the window that a query began with, LWS is algorithm 7 with a fixed order of reads,
TTU algorithm 8. Reads add up a sub-window's bandwidth by address; a commit computes five answers (top 10 or
percentiles). What a read costs (a fixed part and a part per packet), what an answer costs and what each scheduler adds
is measured first, at its best of several repetitions; then the schedulers run by a clock that these costs advance, so
that a busy machine does not disturb them. The clock's second is one mean scan of a window of 100 sub-windows of one
second: there, the thesis says, nearly every scan met a movement. All else is as printed there. How often scans are
aborted there hangs on that choice: "speed" has the same point on a machine that needs so many times as long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from windrow_bench.harness import Figure, Ratio, Result, parser, progress, report
from windrow_bench.isolation_model import Execution, Isolation, Scheduler, ring_order, youngest_first

SCHEDULERS = ("Serial", "WS", "LWS", "TTU")
ADDRESSES = 1000
GROUP = 5
"""Periodic queries that share a scan."""

PERCENTILES = (25, 50, 75, 90, 95, 99)
SLOWER = (0.8, 0.9, 1.0, 1.05, 1.1, 1.25)
"""Machines on which the longest scans are tried, too."""
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Workload:
    """One point of the experiment: n sub-windows of t seconds, so many periodic queries, one-time queries or none."""

    n: int
    t: float
    queries: int
    one_time: bool = False


@dataclass(frozen=True)
class Costs:
    """Seconds of processor time: of a read, in all and for each packet, of an answer, and of a scheduler's own work."""

    read: float
    packet: float
    top: float
    percentiles: float
    step: Mapping[tuple[str, int], float]
    move: Mapping[tuple[str, int], float]
    slower: float = 1.0

    @property
    def second(self) -> float:
        """What counts as a second: the mean scan of 100 sub-windows of 1,000 packets, as long as the longest of five
        windows; less of it on a slower machine."""
        reads = 100 * GROUP / (GROUP + 1)
        scan = reads * (self.read + 1000 * self.packet + self.step["Serial", 100]) + GROUP * self.percentiles
        return scan / self.slower


@dataclass
class Scan:
    """A query's scan: whether it wants the top or percentiles, the group it belongs to, and since when it waits."""

    top: bool
    group: int | None
    due: float
    attempt: int = 0


def scheduler(name: str, n: int) -> Scheduler:
    """The scheduler of that name."""
    isolation = {"Serial": Isolation.SERIAL, "WS": Isolation.SNAPSHOT}.get(name, Isolation.LATEST)
    return Scheduler(n, isolation, ring_order(n) if name == "LWS" else youngest_first)


@dataclass
class Trial:
    """One scheduler over one workload and stream, for as long as the window is."""

    work: Workload
    name: str
    seed: int
    costs: Costs
    now: float = 0.0
    commits: int = 0
    aborts: int = 0
    reads: int = 0
    found: dict[str, list[float]] = field(default_factory=dict)

    def run(self) -> Trial:
        """Run it."""
        n, t, rng = self.work.n, self.work.t, np.random.default_rng(self.seed)
        self.scheduler = scheduler(self.name, n)
        # the rate of a sub-window is up to ten times off; 1.98 is the mean of the factor
        self.packets = 1000 * t * 10 ** np.random.default_rng(self.seed).uniform(-1, 1, 3 * n + 9) / 1.98
        self.due, self.scans, self.last = [0.0], dict[Execution, Scan](), dict[int, float]()
        end, group = n * t, 0
        arrivals = list(np.cumsum(rng.exponential(1.0, int(4 * end) + 9))) if self.work.one_time else []
        lengths = [int(rng.integers(1, n + 1, GROUP).max()) for _ in range(self.work.queries // GROUP)]
        while self.now < end:
            while self.now >= len(self.due) * t:
                self.due.append(len(self.due) * t)
                self._spend(self.costs.move[self.name, n])
                self.aborts += len(self.scheduler.move())
            while arrivals and arrivals[0] <= self.now:
                self._begin(rng, None, int(rng.integers(1, n + 1)), 1, arrivals.pop(0))
            if not any(scan.group is not None for scan in self.scans.values()):
                self._begin(rng, group, lengths[group], 0, self.now)
                group = (group + 1) % len(lengths)
            self._step()
        return self

    def _spend(self, seconds: float) -> None:
        self.now += seconds / self.costs.second

    def _begin(self, rng: np.random.Generator, group: int | None, length: int, priority: int, due: float) -> None:
        execution = self.scheduler.begin(f"Q{self.reads}x{len(self.scans)}", length, priority)
        self.scans[execution] = Scan(bool(rng.integers(2)), group, due)

    def _step(self) -> None:
        found = self.scheduler.step()
        assert found is not None
        execution, version = found
        self._spend(self.costs.read + self.costs.step[self.name, self.work.n])
        self._spend(self.costs.packet * self.packets[version])
        self.reads += 1
        if execution.committed:
            self._answer(execution, self.scans.pop(execution))

    def _answer(self, execution: Execution, scan: Scan) -> None:
        answers = GROUP if scan.group is not None else 1
        self._spend(answers * (self.costs.top if scan.top else self.costs.percentiles))
        self.commits += 1
        kind = "one-time" if scan.group is None else "periodic"
        self._note(f"{kind} staleness", self.now - self.due[execution.as_of - self.work.n + 1])
        if scan.group is None:
            self._note("response", self.now - scan.due)
            return
        if scan.group in self.last:
            self._note("inter-execution", self.now - self.last[scan.group])
        self.last[scan.group] = self.now

    def _note(self, what: str, value: float) -> None:
        self.found.setdefault(what, []).append(value)


def row(work: Workload, name: str, trials: Sequence[Trial]) -> Row:
    """The averages of several trials."""

    def mean(what: str) -> float | None:
        values = [v for trial in trials for v in trial.found.get(what, [])]
        return float(np.mean(values)) if values else None

    commits, aborts = sum(t.commits for t in trials), sum(t.aborts for t in trials)
    return {
        "part": "mixed" if work.one_time else "periodic",
        "t": work.t,
        "n": work.n,
        "scheduler": name,
        "aborted_percent": 100 * aborts / max(1, aborts + commits),
        "staleness_s": mean("periodic staleness"),
        "inter_execution_s": mean("inter-execution"),
        "transactions_per_s": commits / sum(t.now for t in trials),
        "reads_per_s": sum(t.reads for t in trials) / sum(t.now for t in trials),
        "one_time_response_s": mean("response"),
        "one_time_staleness_s": mean("one-time staleness"),
        "commits": commits,
    }


def measured(sizes: Sequence[int], seed: int, repeat: int) -> Costs:
    """What reads, answers and schedulers cost on this machine."""
    rng = np.random.default_rng(seed)
    totals = np.zeros(ADDRESSES)
    counts = (500, 50_000)
    times = []
    for count in counts:
        address, size = rng.integers(0, ADDRESSES, count), rng.integers(1, 101, count).astype(np.float64)
        times.append(_least(repeat, 20, partial(_add, totals, address, size)))
    packet = (times[1] - times[0]) / (counts[1] - counts[0])
    points = [(name, n) for n in sorted({*sizes, 100}) for name in SCHEDULERS]
    step, move = (dict.fromkeys(points, float("inf")) for _ in range(2))
    for _ in range(max(25, repeat)):  # all in turns: a busy moment meets every one of them
        for name, n in points:
            found = _own_work(name, n)
            step[name, n], move[name, n] = min(step[name, n], found[0]), min(move[name, n], found[1])
    return Costs(
        times[0] - counts[0] * packet,
        packet,
        _least(repeat, 20, lambda: np.argpartition(totals, -10)[-10:]),
        _least(repeat, 20, lambda: np.percentile(totals, PERCENTILES)),
        step,
        move,
    )


def _add(totals: np.ndarray, address: np.ndarray, size: np.ndarray) -> None:
    """What a read does."""
    totals += np.bincount(address, size, ADDRESSES)


def _least(repeat: int, times: int, work: Callable[[], object]) -> float:
    """The least mean of some repetitions."""
    best = float("inf")
    for _ in range(max(5, repeat)):
        begin = time.process_time()
        for _ in range(times):
            work()
        best = min(best, (time.process_time() - begin) / times)
    return best


def _own_work(name: str, n: int) -> tuple[float, float]:
    """What a scheduler itself needs for a read, and for a movement in the midst of one scan."""
    made, begin = scheduler(name, n), time.process_time()
    execution = made.begin("Q")
    while not execution.committed:
        made.step()
    step = (time.process_time() - begin) / n
    made.begin("R")
    made.step()
    begin = time.process_time()
    for _ in range(20):
        made.move()
    return step, (time.process_time() - begin) / 20


def ratios(rows: Sequence[Row]) -> list[Ratio]:
    """What the figures of the thesis show."""
    rows = [r for r in rows if r["part"] != "speed"]
    at = {(r["part"], r["t"], r["n"], r["scheduler"]): r for r in rows}
    points = list(dict.fromkeys((r["part"], r["t"], r["n"]) for r in rows))
    most = max(n for _, _, n in points)

    def mean(what: str, above: str, below: str, part: str) -> float:
        """One scheduler's figure over another's, on average over the numbers of sub-windows."""
        chosen = [p for p in points if p[0] == part]
        return float(np.mean([at[(*p, above)][what] / at[(*p, below)][what] for p in chosen]))

    aborted = [at[(*p, "TTU")]["aborted_percent"] for p in points if p[0] == "periodic"]
    end = [at["periodic", 1.0, most, name] for name in ("LWS", "TTU")]
    throughput = [
        at[(*p, "TTU")]["transactions_per_s"] / at[(*p, "Serial")]["transactions_per_s"]
        for p in points
        if p[0] == "periodic"
    ]
    slower = end[0]["inter_execution_s"] / end[1]["inter_execution_s"]
    found = [
        Ratio("figure 7.8: percent aborted by algorithm 8, at most", max(aborted), 0),
        Ratio(f"figure 7.8: percent aborted by algorithm 7, t = 1, n = {most}", end[0]["aborted_percent"], 50, True),
        Ratio("figure 7.9: staleness, LWS / TTU", mean("staleness_s", "LWS", "TTU", "periodic"), 1.0, True),
        Ratio("figure 7.9: staleness, Serial / TTU", mean("staleness_s", "Serial", "TTU", "periodic"), 1.0, True),
        Ratio(f"figure 7.10: inter-execution, LWS / TTU, t = 1, n = {most}", slower, 1.5, True),
        Ratio("figure 7.11: transactions a second, TTU / Serial, at least", float(min(throughput)), 0.96, True),
    ]
    if any(p[0] == "mixed" for p in points):
        response = mean("one_time_response_s", "Serial", "TTU", "mixed")
        found += [
            Ratio("figure 7.12: one-time response, Serial / TTU", response, 1.0, True),
            Ratio(
                "figure 7.13: one-time staleness, WS / TTU",
                mean("one_time_staleness_s", "WS", "TTU", "mixed"),
                1,
                True,
            ),
            Ratio("figure 7.14: periodic staleness, WS / TTU", mean("staleness_s", "WS", "TTU", "mixed"), 1, True),
        ]
    return found


FIGURES = (
    ("7.8", "aborted_percent", "periodic", "Transactions aborted (percent)"),
    ("7.9", "staleness_s", "periodic", "Staleness of periodic queries (s)"),
    ("7.10", "inter_execution_s", "periodic", "Time between two executions (s)"),
    ("7.11", "transactions_per_s", "periodic", "Transactions a second"),
    ("7.12", "one_time_response_s", "mixed", "Response of one-time queries (s)"),
    ("7.13", "one_time_staleness_s", "mixed", "Staleness of one-time queries (s)"),
    ("7.14", "staleness_s", "mixed", "Staleness of periodic queries beside one-time ones (s)"),
)


def figures(rows: Sequence[Row]) -> list[Figure]:
    """Figures 7.8 to 7.14."""
    made = []
    for number, what, part, caption in FIGURES:
        chosen = [r for r in rows if r["part"] == part]
        lines = {
            f"{s}, t = {t:g} s": [(r["n"], r[what]) for r in chosen if (r["scheduler"], r["t"]) == (s, t)]
            for t in dict.fromkeys(r["t"] for r in chosen)
            for s in SCHEDULERS
        }
        if lines:
            made.append(
                Figure(number, f"{caption}: figure {number} of the thesis", "sub-windows", what, lines, log=False)
            )
    return made


def main(argv: Sequence[str]) -> int:
    """Run the experiment."""
    accepts = parser("isolation", __doc__ or "")
    accepts.add_argument("--windows", type=int, nargs="+", metavar="N", help="numbers of sub-windows")
    accepts.add_argument("--trials", type=int, default=20, help="streams per point (default: 20; five in print)")
    options = accepts.parse_args(list(argv))
    sizes = options.windows or ((10, 50) if options.quick else (10, 25, 50, 75, 100))
    trials = 1 if options.quick else options.trials
    costs = measured(sizes, options.seed, options.repeat)
    works = [Workload(n, t, queries) for t, queries in ((1.0, 40), (5.0, 100)) for n in sizes]
    works += [Workload(n, 5.0, 100, one_time=True) for n in sizes]
    rows: list[Row] = []
    seeds = range(options.seed, options.seed + trials)
    with progress() as shown:
        task = shown.add_task("", total=None)
        for work in works:
            shown.update(
                task, description=f"n = {work.n}, t = {work.t:g} s{', one-time queries' if work.one_time else ''}"
            )
            for name in SCHEDULERS:
                rows.append(row(work, name, [Trial(work, name, seed, costs).run() for seed in seeds]))
    slowest = Workload(max(sizes), 1.0, 40)
    for slower in SLOWER:
        slow = replace(costs, slower=slower)
        found = row(slowest, "LWS", [Trial(slowest, "LWS", seed, slow).run() for seed in seeds])
        rows.append({**found, "part": "speed", "slower": slower})
    parameters = {
        "packets": "1 per ms, 1,000 addresses",
        "a second": f"{1000 * costs.second:.2f} ms of processor time (scaled by {1 / costs.second:,.0f})",
        "a read": f"{1e6 * costs.read:.1f} us and {1e9 * costs.packet:.1f} ns for each packet",
        "of the scheduler, n = 100": ", ".join(f"{name} {1e6 * costs.step[name, 100]:.1f} us" for name in SCHEDULERS),
        "trials": trials,
    }
    about = " ".join((__doc__ or "").split())
    return report(Result("isolation", about, options.seed, parameters, rows, ratios(rows), figures(rows)), options)
