"""Chapters 4, 6, 7 and 8 of the thesis: archives, frequent items, isolation, schedules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from windrow_bench.reproduction.claims import Claim, Record, Seen, spread, times

Look = Callable[[Record], Seen]

# -- chapter 4: a doubly partitioned index on disk --------------------------------------------------------------------

DISK = "Java, Pentium 4; records of 1,000 bytes, 100 keys; windows of 500 MB (small) and 5 GB (large); times"
PAGES = "the same records; windows a tenth as long (`scale` in the record), in compressed blocks; warm page cache, so bytes instead of times"
LAYOUTS = {4: "2x2", 9: "3x3", 16: "4x4", 25: "5x5"}


def _moved(record: Record, part: str, technique: str, n: int) -> float:
    at = {"part": part, "technique": technique, "n": n}
    return record.one("update_read_mb", **at) + record.one("update_written_mb", **at)


def _sides(record: Record) -> Seen:
    moved = {
        side: record.one("update_read_mb", part="sides", layout=side)
        + record.one("update_written_mb", part="sides", layout=side)
        for side in ("4x4", "2x8", "8x2")
    }
    ratios = [moved[s] / moved["4x4"] for s in ("2x8", "8x2")]
    return Seen(f"bytes of an update of the others / 4x4 {spread(ratios)}", min(ratios) > 1.1)


def _opened(record: Record) -> Seen:
    rows = [r for r in record.rows if r["part"] in ("small", "large") and r["technique"] in ("Rebuild", "NoRebuild")]
    wrong = sum(r["subindices_opened"] != 2 * round(float(r["n"]) ** 0.5) - 1 or not r["always"] for r in rows)
    return Seen(f"{len(rows)} layouts, {wrong} differ", not wrong)


def _updates(part: str, at_least: float) -> Look:
    def look(record: Record) -> Seen:
        ratios = {n: _moved(record, part, "R-ins", n) / _moved(record, part, "Rebuild", n) for n in LAYOUTS}
        return Seen(
            f"bytes of an update, R-ins / Rebuild {times(ratios[4])} at n = 4 to {times(ratios[25])} at 25",
            ratios[16] >= at_least,
        )

    return look


def _round_robin(record: Record) -> Seen:
    ratios = [_moved(record, "small", "Rebuild chr", n) / _moved(record, "small", "Rebuild", n) for n in LAYOUTS]
    return Seen(f"bytes of an update, chronological / round robin {spread(ratios)}", min(ratios) > 1)


def _cheaper_updates(record: Record) -> Seen:
    ratios = [_moved(record, "small", "Rebuild", n) / _moved(record, "small", "NoRebuild", n) for n in LAYOUTS]
    return Seen(f"bytes of an update, Rebuild / NoRebuild {spread(ratios)}", min(ratios) > 1)


def _read(what: str, part: str) -> Look:
    def look(record: Record) -> Seen:
        ratios = [
            record.one(what, part=part, technique="NoRebuild", n=n)
            / record.one(what, part=part, technique="Rebuild", n=n)
            for n in LAYOUTS
        ]
        return Seen(f"bytes read, NoRebuild / Rebuild {spread(ratios)}", min(ratios) > 1)

    return look


def _probe_grows(part: str) -> Look:
    def look(record: Record) -> Seen:
        line = record.line("n", "probe_files", part=part, technique="Rebuild")
        return Seen(
            f"files opened by a probe {line[0][1]:g} at n = {line[0][0]:g} to {line[-1][1]:g} at {line[-1][0]:g}",
            line[-1][1] > line[0][1],
        )

    return look


def _fluctuation(record: Record) -> Seen:
    def more(technique: str, n: int) -> float:
        return _moved(record, "uneven", technique, n) / _moved(record, "small", technique, n)

    ours, wave = (max(more(t, n) for n in (4, 16)) for t in ("Rebuild", "R-ins"))
    return Seen(
        f"bytes of an update, uneven / even rates: Rebuild at most {times(ours)}, R-ins {times(wave)}", ours <= wave
    )


def _keeps_falling(record: Record) -> Seen:
    line = [_moved(record, "large", "Rebuild", n) for n in LAYOUTS]
    return Seen(", ".join(f"{mb:,.0f} MB" for mb in line), line == sorted(line, reverse=True))


def _scan(part: str, at_least: float) -> Look:
    def look(record: Record) -> Seen:
        ratio = record.one("scan_read_mb", part=part, technique="Rebuild", n=16) / record.one(
            "probe_read_mb", part=part, technique="Rebuild", n=16
        )
        return Seen(f"bytes of a scan / of a probe at n = 16 {times(ratio)}", ratio >= at_least)

    return look


BUCKETS = "our buckets are blocks of a file whose keys are in its footer, and ended rows leave with whole blocks"
ARCHIVE = [
    Claim("4.4", DISK, PAGES, "with n = 16, 4x4 is updated about 20% faster than 2x8 and 8x2", "archive", _sides),
    Claim("4.5", DISK, PAGES, "an update opens G + E - 1 sub-indices", "archive", _opened),
    Claim("4.5", DISK, PAGES, "doubly partitioned indices are cheaper to update than the wave index", "archive", _updates("small", 1.5)),
    Claim("4.5", DISK, PAGES, "round robin is 10 to 20% cheaper to update than chronological partitions", "archive", _round_robin,
          "what an update moves is the same in the mean, G + E - 1 of n sub-indices; round robin makes it even from one update to the next (theorem 4.1, tested)"),
    Claim("4.5", DISK, PAGES, "NoRebuild is cheaper to update than Rebuild", "archive", _cheaper_updates),
    Claim("4.6", DISK, PAGES, "a probe costs more as n grows", "archive", _probe_grows("small")),
    Claim("4.6", DISK, PAGES, "NoRebuild is slower to probe than Rebuild", "archive", _read("probe_read_mb", "small")),
    Claim("4.7", DISK, PAGES, "NoRebuild is slower to scan than Rebuild", "archive", _read("scan_read_mb", "small")),
    Claim("4.7", DISK, PAGES, "a probe is two orders of magnitude cheaper than a scan", "archive", _scan("small", 50)),
    Claim("4.8", DISK + "; rates that vary by a factor of four", PAGES, "doubly partitioned indices suffer less from uneven rates than the wave index",
          "archive", _fluctuation),
    Claim("4.9", DISK, PAGES, "large data: up to three times as cheap to update as the wave index", "archive", _updates("large", 2)),
    Claim("4.9", DISK, PAGES, "large data: updates get cheaper with every n that was tried", "archive", _keeps_falling),
    Claim("4.10", DISK, PAGES, "large data: NoRebuild is slower to probe than Rebuild", "archive", _read("probe_read_mb", "large")),
    Claim("4.11", DISK, PAGES, "large data: NoRebuild is slower to scan than Rebuild", "archive", _read("scan_read_mb", "large")),
]  # fmt: skip

# -- chapter 6: frequent items ----------------------------------------------------------------------------------------

FLOWS = "Java, Pentium 4; the same TCP trace, 1,647 sources; windows of 100,000; sub-windows of 20, 100 and 500; k of 1 to 10"
SOURCES = "sources of the flows of a CTU-13 capture; the same windows, sub-windows and k; 100 starting points"
BS = (20, 100, 500)


def _lines(record: Record, what: str) -> dict[int, list[float]]:
    """A quantity by k, for every length of a sub-window; nothing reported has no error."""
    some = replace(record, rows=[r for r in record.rows if what != "relative_error" or r.get("reported")])
    found = {b: [y for _, y in some.line("k", what, part="figure 6.3", b=b)] for b in BS}
    if not all(found.values()):
        raise LookupError("no figure 6.3")
    return found


def _falls(what: str, name: str) -> Look:
    def look(record: Record) -> Seen:
        lines = _lines(record, what)
        words = ", ".join(f"{line[0]:.3g} to {line[-1]:.3g} at b = {b}" for b, line in lines.items())
        return Seen(f"{name} {words}", all(line[-1] < line[0] for line in lines.values()))

    return look


def _rises(what: str, name: str) -> Look:
    def look(record: Record) -> Seen:
        lines = _lines(record, what)
        words = ", ".join(f"{line[0]:.3g} to {line[-1]:.3g} at b = {b}" for b, line in lines.items())
        return Seen(f"{name} {words}", all(line[-1] > line[0] for line in lines.values()))

    return look


def _most_found(record: Record) -> Seen:
    lines = _lines(record, "share_found")
    least = {b: min(line[2:]) for b, line in lines.items()}
    words = ", ".join(f"{100 * share:.0f}% at b = {b}" for b, share in least.items())
    return Seen(f"from k = 3 on at least {words}", min(least.values()) >= 0.8)


def _small(record: Record) -> Seen:
    lines = _lines(record, "pairs")
    return Seen(
        ", ".join(f"{max(line):,.0f} pairs at b = {b}" for b, line in lines.items()),
        max(lines[500]) < max(lines[100]) < max(lines[20]) and max(lines[500]) < 100_000,
    )


FREQUENT = [
    Claim("6.3 (a)", FLOWS, SOURCES, "the threshold falls as k grows", "frequent-ctu13", _falls("delta_share", "delta / N")),
    Claim("6.3 (b)", FLOWS, SOURCES, "the number of values over the threshold grows with k", "frequent-ctu13", _rises("over_delta", "values")),
    Claim("6.3 (c)", FLOWS, SOURCES, "the number of values reported grows with k", "frequent-ctu13", _rises("reported", "values")),
    Claim("6.3 (d)", FLOWS, SOURCES, "from k = 3 on at least 80% of the values over the threshold are reported", "frequent-ctu13", _most_found),
    Claim("6.3 (e)", FLOWS, SOURCES, "space grows as sub-windows shrink, and is far below the window's", "frequent-ctu13", _small),
    Claim("6.3 (f)", FLOWS, SOURCES, "the relative error falls as k grows", "frequent-ctu13", _falls("relative_error", "error")),
]  # fmt: skip

# -- chapter 7: isolation ---------------------------------------------------------------------------------------------

THREADS = "Java, Pentium 4; 40 and 100 periodic queries over 10 to 100 sub-windows of 1 and 5 s; times"
CLOCK = "the same workload on a simulated clock whose costs were measured here; sub-windows scaled so that the load is the same"
SIZES = (10, 25, 50, 75, 100)


def _over(
    what: str, first: str, second: str, part: str, ts: tuple[float, ...], holds: Callable[[list[float]], bool]
) -> Look:
    """The ratio of two schedulers at every number of sub-windows."""

    def look(record: Record) -> Seen:
        ratios = [
            record.one(what, part=part, t=t, n=n, scheduler=first)
            / record.one(what, part=part, t=t, n=n, scheduler=second)
            for t in ts
            for n in SIZES
        ]
        return Seen(f"{first} / {second} {spread(ratios)}, mean {times(sum(ratios) / len(ratios))}", holds(ratios))

    return look


def _mean_above(bound: float) -> Callable[[list[float]], bool]:
    return lambda ratios: sum(ratios) / len(ratios) > bound


def _aborts(record: Record) -> Seen:
    lines = {
        t: [y for _, y in record.line("n", "aborted_percent", part="periodic", t=t, scheduler="LWS")]
        for t in (1.0, 5.0)
    }
    rises = all(line[-1] > line[0] for line in lines.values())
    often = all(a >= b for a, b in zip(lines[1.0], lines[5.0], strict=True))
    return Seen(
        f"algorithm 7: {lines[1.0][0]:.0f} to {lines[1.0][-1]:.0f}% at 1 s, {lines[5.0][0]:.0f} to {lines[5.0][-1]:.0f}% at 5 s",
        rises and often,
    )


def _half(record: Record) -> Seen:
    worst = record.one("aborted_percent", part="periodic", t=1.0, n=100, scheduler="LWS")
    return Seen(f"{worst:.0f}%", worst > 50)


def _none(record: Record) -> Seen:
    worst = max(float(r["aborted_percent"]) for r in record.where(scheduler="TTU", part="periodic"))
    return Seen(f"algorithm 8: at most {worst:g}%", worst == 0)


def _serial_and_ws(record: Record) -> Seen:
    ratios = [record.one("staleness_s", part="periodic", t=t, n=n, scheduler="WS") / record.one("staleness_s", part="periodic", t=t, n=n, scheduler="Serial")
              for t in (1.0, 5.0) for n in SIZES]  # fmt: skip
    return Seen(f"WS / Serial {spread(ratios)}", sum(ratios) / len(ratios) >= 1)


MIXED = (5.0,)
BOTH = (1.0, 5.0)
ISOLATION = [
    Claim("7.8", THREADS, CLOCK, "algorithm 8 (TTU) aborts no transaction", "isolation", _none),
    Claim("7.8", THREADS, CLOCK, "algorithm 7 aborts more with more and with shorter sub-windows", "isolation", _aborts),
    Claim("7.8", THREADS, CLOCK, "algorithm 7 aborts over half at 1 s and 100 sub-windows", "isolation", _half,
          "a query takes three quarters of the second between two updates here, so a quarter of them meets none; in print nearly every one meets one"),
    Claim("7.9", THREADS, CLOCK, "TTU is less stale than Serial", "isolation", _over("staleness_s", "Serial", "TTU", "periodic", BOTH, lambda r: min(r) > 1)),
    Claim("7.9", THREADS, CLOCK, "TTU is less stale than LWS, or as little", "isolation", _over("staleness_s", "LWS", "TTU", "periodic", BOTH, lambda r: min(r) >= 1)),
    Claim("7.9", THREADS, CLOCK, "Serial is slightly less stale than WS", "isolation", _serial_and_ws,
          "they differ by a few percent either way: what a scheduler costs is microseconds here"),
    Claim("7.10", THREADS, CLOCK, "LWS executes queries least often", "isolation", _over("inter_execution_s", "LWS", "TTU", "periodic", BOTH, _mean_above(1))),
    Claim("7.10", THREADS, CLOCK, "TTU follows Serial very closely", "isolation", _over("inter_execution_s", "TTU", "Serial", "periodic", BOTH, lambda r: max(r) < 1.05)),
    Claim("7.11", THREADS, CLOCK, "throughput of TTU at least 96% of Serial", "isolation", _over("transactions_per_s", "TTU", "Serial", "periodic", BOTH, lambda r: min(r) > 0.96)),
    Claim("7.11", THREADS, CLOCK, "throughput of LWS is lower in all cases", "isolation", _over("transactions_per_s", "TTU", "LWS", "periodic", BOTH, lambda r: min(r) > 1)),
    Claim("7.12", THREADS, CLOCK, "one-time queries: Serial responds slowest", "isolation", _over("one_time_response_s", "Serial", "TTU", "mixed", MIXED, lambda r: min(r) > 1)),
    Claim("7.12", THREADS, CLOCK, "one-time queries: LWS responds later than TTU", "isolation", _over("one_time_response_s", "LWS", "TTU", "mixed", MIXED, _mean_above(1))),
    Claim("7.12", THREADS, CLOCK, "one-time queries: WS and TTU respond nearly alike", "isolation", _over("one_time_response_s", "WS", "TTU", "mixed", MIXED, lambda r: min(r) > 0.85 and max(r) < 1.15)),
    Claim("7.13", THREADS, CLOCK, "one-time queries: TTU least stale, WS more", "isolation", _over("one_time_staleness_s", "WS", "TTU", "mixed", MIXED, lambda r: min(r) > 1)),
    Claim("7.13", THREADS, CLOCK, "one-time queries: LWS somewhat more stale than TTU", "isolation", _over("one_time_staleness_s", "LWS", "TTU", "mixed", MIXED, _mean_above(1))),
    Claim("7.14", THREADS, CLOCK, "periodic queries beside one-time ones: TTU least stale", "isolation", _over("staleness_s", "WS", "TTU", "mixed", MIXED, lambda r: min(r) > 1)),
]  # fmt: skip

# -- chapter 8: schedules ---------------------------------------------------------------------------------------------

LOAD = "Java, Pentium 4; eight groups of 40 to 240 queries, windows of 20 to 100, slides up to half of them; times"
SIMULATED = "the same groups on one simulated clock, five seeds; costs of scans and merges in the thesis's proportions"
COUNTS = (40, 80, 160, 240)


def _at(record: Record, what: str, rate: int, queries: int, technique: str) -> float:
    return record.one(what, part="simulated", tuples_per_s=rate, queries=queries, technique=technique)


def _versus(what: str, rate: int, first: str, second: str, bound: float, queries: int = 240) -> Look:
    def look(record: Record) -> Seen:
        ratio = _at(record, what, rate, queries, first) / _at(record, what, rate, queries, second)
        return Seen(
            f"{first} / {second} {ratio:.2g} at {queries} queries", ratio > bound if bound >= 1 else ratio < bound
        )

    return look


def _doubled(record: Record) -> Seen:
    done = {t: _at(record, "executions_per_s", 1500, 240, t) for t in ("HS", "CS")}
    due = 6 * _at(record, "executions_per_s", 1500, 40, "CS")
    ratio = done["HS"] / done["CS"]
    return Seen(
        f"HS / CS {ratio:.2g} at 240 queries; CS {done['CS']:.3g} a second of {due:.3g} due (six times what 40 queries get)",
        ratio >= 2,
    )


def _lowest_throughput(rate: int) -> Look:
    def look(record: Record) -> Seen:
        found = {t: _at(record, "executions_per_s", rate, 240, t) for t in ("No-S", "CS", "HS", "H-LS", "H-LP", "AS")}
        order = sorted(found, key=found.__getitem__)
        return Seen(" < ".join(order), order[:2] == ["No-S", "CS"])

    return look


def _gap_grows(record: Record) -> Seen:
    ratios = [
        _at(record, "executions_per_s", 1500, q, "CS") / _at(record, "executions_per_s", 1500, q, "No-S")
        for q in COUNTS
    ]
    return Seen(f"CS / No-S {ratios[0]:.2g} at 40 to {ratios[-1]:.2g} at 240", ratios[-1] > ratios[0])


def _shortened(record: Record) -> Seen:
    share = [_at(record, "shortened", rate, q, "HS") for rate in (1500, 3000) for q in COUNTS]
    return Seen(f"{100 * min(share):.0f} to {100 * max(share):.0f}% of the sub-groups", min(share) > 0.5)


def _winner(what: str, least: bool) -> Look:
    def look(record: Record) -> Seen:
        found = {t: _at(record, what, 3000, 240, t) for t in ("No-S", "AS", "CS", "HS", "H-LS", "H-LP")}
        order = sorted(found, key=found.__getitem__, reverse=not least)
        return Seen(", ".join(f"{t} {found[t]:.3g}" for t in order[:3]), order[0] == "H-LP")

    return look


def _costs(record: Record) -> Seen:
    found = {
        r["schedule"]: (r["printed"], r["cost_per_minute"]) for r in record.where(part="costs") if r.get("printed")
    }
    wrong = [s for s, (printed, ours) in found.items() if printed != ours]
    return Seen(
        f"{len(found)} costs; {', '.join(f'{s} {found[s][1]}, not {found[s][0]}' for s in wrong) or 'none differs'}",
        wrong == ["conservative"],
    )


EARLY = (
    "finishing one more query of a group is cheap beside the scan that its group shares (0.25 units a counter, a "
    "proportion that print does not give), which favours executing whole groups; early executions count as executions"
)
SCHEDULE = [
    Claim("8.4.4", "computed", "computed", "costs of the schedules of the example (as recomputed: conservative 11.93)", "schedule", _costs),
    Claim("8.7", LOAD + "; 1,500 tuples/s", SIMULATED, "No-S and CS have the lowest throughput", "schedule", _lowest_throughput(1500)),
    Claim("8.7", LOAD + "; 1,500 tuples/s", SIMULATED, "the gap between CS and No-S grows with the queries", "schedule", _gap_grows),
    Claim("8.7", LOAD + "; 1,500 tuples/s", SIMULATED, "HS doubles the throughput of CS", "schedule", _doubled,
          "twice what CS does is more than all that is due: the load is heavy for CS and light for HS here"),
    Claim("8.8", LOAD + "; 1,500 tuples/s", SIMULATED, "HS has a tenth of the latency of CS", "schedule", _versus("latency_updates", 1500, "HS", "CS", 0.25)),
    Claim("8.8", LOAD + "; 1,500 tuples/s", SIMULATED, "late-pending sharing lowers latency further", "schedule", _versus("latency_updates", 1500, "H-LP", "HS", 0.99)),
    Claim("8.8", LOAD + "; 1,500 tuples/s", SIMULATED, "aggressive scheduling has poor latency (above 4 updates at 240 queries)", "schedule", _versus("latency_updates", 1500, "AS", "CS", 1), EARLY),
    Claim("8.7, 8.9", LOAD, SIMULATED, "hybrid shortens the periods of more than half of the sub-groups", "schedule", _shortened),
    Claim("8.9", LOAD + "; 3,000 tuples/s", SIMULATED, "late-pending more than doubles the throughput of HS", "schedule", _versus("executions_per_s", 3000, "H-LP", "HS", 2)),
    Claim("8.9", LOAD + "; 3,000 tuples/s", SIMULATED, "late-pending is the clear winner in throughput", "schedule", _winner("executions_per_s", False), EARLY),
    Claim("8.10", LOAD + "; 3,000 tuples/s", SIMULATED, "No-S has extremely high latency", "schedule", _versus("latency_updates", 3000, "No-S", "HS", 2)),
    Claim("8.10", LOAD + "; 3,000 tuples/s", SIMULATED, "late-pending is the clear winner in latency", "schedule", _winner("latency_updates", True), EARLY),
]  # fmt: skip
