"""Chapter 4 of the thesis: a doubly partitioned index on disk (figures 4.4 to 4.11)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windrow_bench.reproduction.claims import Claim, Reason, Record, Seen, Source
from windrow_bench.reproduction.looks import (
    COUNTED,
    Look,
    alike,
    because,
    both,
    exact,
    order,
    spread,
    times,
    trend,
)

PRINTED = (
    "Java, Pentium 4 at 2.4 GHz, a disk; records of 1,000 bytes, 100 keys, uniform lifetimes; 36 updates are one window; "
    "windows of 500 MB (small) and 5 GB (large); times"
)
HERE = (
    "the same records, keys and layouts; windows of 50 MB and 500 MB (a tenth, `scale` in the record) in compressed blocks; "
    "the page cache is warm, so a claim is held against the bytes that move, and against times too: it must hold in both"
)
SIDES = {4: "2x2", 9: "3x3", 16: "4x4", 25: "5x5"}
SMALL, LARGE = "small", "large"
EVERY = "n of 4, 9, 16 and 25"
Amount = Callable[..., float]


def _bytes_of(what: str) -> Amount:
    """Megabytes that an update, probe or scan moves."""

    def amount(record: Record, **at: object) -> float:
        written = record.one("update_written_mb", **at) if what == "update" else 0.0
        return record.one(f"{what}_read_mb", **at) + written

    return amount


def _time_of(what: str) -> Amount:
    return lambda record, **at: record.one(f"{what}_ms", **at)


def _compared(what: str, part: str, over: str, under: str, ns: Sequence[int] = tuple(SIDES),
              about: float | tuple[float, float] | None = None, most: float | None = None) -> Look:  # fmt: skip
    """One technique over another at every n, by bytes and by time."""

    def look(record: Record) -> Seen:
        def ratios(amount: Amount) -> list[float]:
            return [
                amount(record, part=part, technique=over, n=n) / amount(record, part=part, technique=under, n=n)
                for n in ns
            ]

        moved, spent = ratios(_bytes_of(what)), ratios(_time_of(what))
        name = f"{over} / {under}"
        return both(
            order(record, moved, f"{name}: bytes {', '.join(map(times, moved))}", about, most=most, scatter=COUNTED),
            order(record, spent, f"time {', '.join(map(times, spent))}", about, most=most),
        )

    return look


def _by_n(what: str, part: str, technique: str, first: int, last: int, falls: bool = False) -> Look:
    """How bytes and times go with n, from a layout to another."""

    def look(record: Record) -> Seen:
        ns = [n for n in SIDES if first <= n <= last]
        moved, spent = (
            [(float(n), amount(record, part=part, technique=technique, n=n)) for n in ns]
            for amount in (_bytes_of(what), _time_of(what))
        )
        return both(trend(record, moved, f"{technique}: MB", falls, COUNTED), trend(record, spent, "ms", falls))

    return look


def _turns(part: str, technique: str, at: int) -> Look:
    """Whether updates get cheaper up to a number of sub-indices and dearer from there on."""

    def look(record: Record) -> Seen:
        before = _by_n("update", part, technique, 4, at, falls=True)(record)
        after = _by_n("update", part, technique, at, 25)(record)
        return both(before, after) if at > 4 else after

    return look


def _opened(record: Record) -> Seen:
    rows = [
        r for part in (SMALL, LARGE) for t in ("Rebuild", "NoRebuild") for r in record.where(part=part, technique=t)
    ]
    wrong = sum(r["subindices_opened"] != 2 * round(float(r["n"]) ** 0.5) - 1 or not r["always"] for r in rows)
    return exact(len(rows), wrong, "layouts")


def _of_side(record: Record, amount: Amount) -> dict[str, float]:
    return {side: amount(record, part="sides", layout=side) for side in ("4x4", "2x8", "8x2")}


def _sides(record: Record) -> Seen:
    def seen(amount: Amount, name: str, scatter: float) -> Seen:
        cost = _of_side(record, amount)
        ratios = [cost[s] / cost["4x4"] for s in ("2x8", "8x2")]
        return order(record, ratios, f"the others / 4x4: {name} {spread(ratios)}", about=1.25, scatter=scatter)

    return both(seen(_bytes_of("update"), "bytes", COUNTED), seen(_time_of("update"), "time", 0.05))


def _negligible(record: Record) -> Seen:
    ratios = [
        _of_side(record, _bytes_of(w))[s] / _of_side(record, _bytes_of(w))["4x4"]
        for w in ("probe", "scan")
        for s in ("2x8", "8x2")
    ]
    return alike(record, ratios, f"bytes of probes and scans, the others / 4x4 {spread(ratios)}")


def _deletions(record: Record) -> Seen:
    moved, spent = _of_side(record, _bytes_of("update")), _of_side(record, _time_of("update"))
    ratios = [moved["2x8"] / moved["8x2"]], [spent["2x8"] / spent["8x2"]]
    return both(
        order(record, ratios[0], f"2x8 / 8x2: bytes {times(*ratios[0])}", scatter=COUNTED),
        order(record, ratios[1], f"time {times(*ratios[1])}"),
    )


def _scan_over_probe(part: str) -> Look:
    def look(record: Record) -> Seen:
        moved, spent = (
            amount("scan")(record, part=part, technique="Rebuild", n=16)
            / amount("probe")(record, part=part, technique="Rebuild", n=16)
            for amount in (_bytes_of, _time_of)
        )
        return both(
            order(record, [moved], f"scan / probe: bytes {times(moved)}", about=100, scatter=COUNTED),
            order(record, [spent], f"time {times(spent)}", about=100),
        )

    return look


def _no_directories(record: Record) -> Seen:
    ratio = [
        _time_of("update")(record, part=SMALL, technique="Rebuild", n=16)
        / _time_of("update")(record, part="no directories", technique="partitions only", n=16)
    ]
    return order(record, ratio, f"time of an update, with / without directories {times(*ratio)}", about=1.25)


def _scans_alike(record: Record) -> Seen:
    with_, without = (
        _bytes_of("scan")(record, part=p, technique=t, n=16)
        for p, t in ((SMALL, "Rebuild"), ("no directories", "partitions only"))
    )
    return alike(record, [with_ / without], f"bytes of a scan, with / without directories {times(with_ / without)}")


def _space(record: Record, technique: str) -> list[float]:
    return [record.one("space_mb", part=SMALL, technique=technique, n=n) for n in SIDES]


def _least_space(record: Record) -> Seen:
    ratios = [a / b for a, b in zip(_space(record, "Rebuild"), _space(record, "R-ins"), strict=True)]
    return alike(record, ratios, f"Rebuild / R-ins {spread(ratios)}")


def _more_space(record: Record) -> Seen:
    pairs = [("NoRebuild", "Rebuild"), ("D-ins", "R-ins")]
    ratios = [a / b for over, under in pairs for a, b in zip(_space(record, over), _space(record, under), strict=True)]
    return order(record, ratios, f"NoRebuild / Rebuild and D-ins / R-ins {spread(ratios)}", scatter=COUNTED)


def _space_grows(record: Record) -> Seen:
    lines = {
        t: list(zip(map(float, SIDES), _space(record, t), strict=True))
        for t in ("Rebuild", "NoRebuild", "R-ins", "D-ins")
    }
    return trend(record, lines, "MB", scatter=COUNTED)


# -- uneven rates ----------------------------------------------------------------------------------------------------


def _uneven(record: Record, technique: str, n: int, amount: Amount | None = None) -> float:
    """An update at uneven rates against one at even rates."""
    amount = amount or _bytes_of("update")
    return amount(record, part="uneven", technique=technique, n=n) / amount(
        record, part=SMALL, technique=technique, n=n
    )


def _adapts(ours: str, wave: str) -> Look:
    def look(record: Record) -> Seen:
        ratios = [_uneven(record, wave, n) / _uneven(record, ours, n) for n in (4, 16)]
        said = ", ".join(f"{t} {_uneven(record, t, n):.3f}x at {n}" for n in (4, 16) for t in (ours, wave))
        return order(record, ratios, f"bytes of an update, uneven / even: {said}", scatter=COUNTED)

    return look


def _larger_n(first: int, last: int, *techniques: str) -> Look:
    """Whether what uneven rates add is more at one n than at another."""

    def look(record: Record) -> Seen:
        ratios = [_uneven(record, t, first) / _uneven(record, t, last) for t in techniques]
        said = ", ".join(
            f"{t} {_uneven(record, t, first):.3f}x and {_uneven(record, t, last):.3f}x" for t in techniques
        )
        return order(
            record, ratios, f"bytes of an update, uneven / even, at n = {first} and {last}: {said}", scatter=COUNTED
        )

    return look


def _slower_access(record: Record) -> Seen:
    ratios = [_uneven(record, "Rebuild", n, _bytes_of(w)) for n in (4, 16) for w in ("probe", "scan")]
    return order(
        record, ratios, f"bytes of probes and scans, uneven / even {spread(ratios)}", about=(1.02, 1.09), scatter=0.005
    )


# -- why, where it is not so -----------------------------------------------------------------------------------------


def _unsteady(record: Record) -> str | None:
    """A layout of one part is the same files whatever it is called."""
    a, b = (_time_of("update")(record, part=SMALL, technique=t, n=1) for t in ("Rebuild", "R-ins"))
    ratio = max(a, b) / min(a, b)
    return f"an update of the same one file, measured twice: {times(ratio)}" if ratio > 1.25 else None


def _few_bytes(what: str, part: str = SMALL) -> Callable[[Record], str | None]:
    """What NoRebuild saves of an update, or adds to a question, in bytes."""

    def rests(record: Record) -> str | None:
        names = ("Rebuild", "NoRebuild") if what == "update" else ("NoRebuild", "Rebuild")
        ratios = [
            _bytes_of(what)(record, part=part, technique=names[0], n=n)
            / _bytes_of(what)(record, part=part, technique=names[1], n=n)
            for n in SIDES
        ]
        return f"bytes, {names[0]} / {names[1]} {spread(ratios)}" if min(ratios) > 1.05 else None

    return rests


def _appended(part: str) -> Callable[[Record], str | None]:
    def rests(record: Record) -> str | None:
        read = {t: record.one("update_read_mb", part=part, technique=t, n=16) for t in ("NoRebuild", "D-ins")}
        written = {t: record.one("update_written_mb", part=part, technique=t, n=16) for t in read}
        if read["D-ins"] >= written["D-ins"] and read["NoRebuild"] >= written["NoRebuild"]:
            return None
        said = ", ".join(f"{t} reads {read[t]:.2f} MB and writes {written[t]:.2f}" for t in read)
        return f"at n = 16 {said}"

    return rests


def _evened(record: Record) -> str | None:
    rows = record.where(part=SMALL)
    steady = all(r["always"] for r in rows if str(r["technique"]).startswith("Rebuild"))
    ratios = [
        _bytes_of("update")(record, part=SMALL, technique="Rebuild chr", n=n)
        / _bytes_of("update")(record, part=SMALL, technique="Rebuild", n=n)
        for n in SIDES
    ]
    return f"bytes, chronological / round robin {spread(ratios)}" if steady and max(ratios) < 1.05 else None


def _grain(record: Record) -> str | None:
    """How much of the small index a block of every key and file is."""
    files, mega = (record.one(c, part=SMALL, technique="NoRebuild", n=16) for c in ("probe_files", "probe_read_mb"))
    return f"{mega / files * 1000:.0f} KB of a file that a probe opens" if files else None


def _still_falls(record: Record) -> str | None:
    line = [_bytes_of("update")(record, part=SMALL, technique="Rebuild", n=n) for n in SIDES]
    return ", ".join(f"{mb:.0f} MB" for mb in line) if line == sorted(line, reverse=True) else None


def _all_rewritten(record: Record) -> str | None:
    moved = {n: _bytes_of("update")(record, part=LARGE, technique="R-ins", n=n) for n in (4, 25)}
    alike_ = max(moved.values()) / min(moved.values()) < 1 + COUNTED
    return ", ".join(f"{mb:,.0f} MB at n = {n}" for n, mb in moved.items()) if alike_ else None


def _not_directories(record: Record) -> str | None:
    grown = _space(record, "Rebuild")[-1] / _space(record, "Rebuild")[0]
    ended = [a / b for a, b in zip(_space(record, "NoRebuild"), _space(record, "Rebuild"), strict=True)]
    return f"NoRebuild / Rebuild {spread(ended)}, Rebuild itself grows {times(grown)}" if min(ended) > grown else None


def _whole_files(record: Record) -> str | None:
    moved = _of_side(record, _bytes_of("update"))
    ratio = moved["2x8"] / moved["8x2"]
    return f"bytes {times(ratio)}" if abs(ratio - 1) < COUNTED else None


def _no_adaptation(record: Record) -> str | None:
    found = [_uneven(record, t, n) for t in ("Rebuild", "NoRebuild", "R-ins", "D-ins") for n in (4, 16)]
    return f"bytes, uneven / even {spread(found)} over all four" if max(found) < 1.05 else None


BUSY = because("times of this record are not steady", _unsteady)
ALL_REWRITTEN = because("R-ins rewrites all of its sub-indices at every update, however many they are", _all_rewritten)
ENDED = because(
    "what NoRebuild and D-ins need beside the rows that count is ended rows of blocks that are not dropped yet, not directories",
    _not_directories,
)
REWRITTEN = because("an update writes whole files anew, whichever end of a bucket rows come or go at", _whole_files)
STEADY = because(
    "blocks are as long as their rows are many: there is no size of buckets that rates could make wrong", _no_adaptation
)
DROPPED = because(
    "NoRebuild drops ended rows with whole blocks and reads no old ones, and a file is appended to",
    _few_bytes("update"),
)
SCATTERED = because(
    "a probe of NoRebuild reads a block of every file of a key, however few rows of it are wanted", _few_bytes("probe")
)
WHOLE = because("a scan of NoRebuild reads blocks with ended rows in them", _few_bytes("scan"))
NEARLY_FREE = because(
    "both drop ended rows with whole blocks instead of editing buckets, so that neither reads much of what is old, and what is left is appending",
    _appended(SMALL),
)
NEARLY_FREE_LARGE = because(
    "both drop ended rows with whole blocks instead of editing buckets, so that what is left is appending, and the merging of chains that have grown long",
    _appended(LARGE),
)
EVEN = because(
    "what an update moves is the same in the mean, G + E - 1 of n sub-indices; round robin makes it even from one update to the next (theorem 4.1, tested)",
    _evened,
)
CHEAP_OPENING = because(
    "what opening one more file costs is little beside the bytes that a smaller sub-index saves", _still_falls
)
GRAIN = because(
    "windows are a tenth of the thesis's, so that what a probe reads at least, a block of each file, weighs more",
    _grain,
)


def _claim(figure: str, says: str, look: Look, here: str = "", printed: str = "", *reasons: Reason) -> Claim:
    return Claim(figure, says, "archive", look, printed, here, reasons)


def _timed(figure: str, says: str, look: Look, here: str = "", printed: str = "", *reasons: Reason) -> Claim:
    """A claim that is held against times, too."""
    return _claim(figure, says, look, here, printed, *reasons, BUSY)


def _against_wave(figure: str, part: str, printed: str, about: tuple[float, float] | None) -> list[Claim]:
    """The two techniques against the wave indices that work as they do."""
    free = NEARLY_FREE if part == SMALL else NEARLY_FREE_LARGE
    return [
        _timed(figure, f"{part} data: {ours} is cheaper to update than the wave index {wave}", _compared("update", part, wave, ours, about=about), EVERY, printed, *why)
        for ours, wave, why in (("Rebuild", "R-ins", ()), ("NoRebuild", "D-ins", (free,)))
    ]  # fmt: skip


CLAIMS = [
    _timed("4.4", "4x4 is updated about 20% faster than 2x8 and 8x2", _sides, "n = 16, Rebuild"),
    _claim("4.4", "probes and scans of the three differ negligibly", _negligible, "n = 16, Rebuild"),
    _timed("4.4", "8x2 is updated faster than 2x8, since deletions are simpler than insertions", _deletions, "n = 16, Rebuild", "", REWRITTEN),
    _claim("4.5", "an update opens G + E - 1 sub-indices", _opened, "all layouts"),
    *_against_wave("4.5", SMALL, "", None),
    _timed("4.5", "even with chronological partitions Rebuild is cheaper to update than R-ins", _compared("update", SMALL, "R-ins", "Rebuild chr"), EVERY),
    _timed("4.5", "even with chronological partitions NoRebuild is cheaper to update than D-ins", _compared("update", SMALL, "D-ins", "NoRebuild chr"), EVERY, "", NEARLY_FREE),
    _timed("4.5", "round robin makes updates another 10 to 20% cheaper", _compared("update", SMALL, "Rebuild chr", "Rebuild", about=(1.1, 1.2)), f"Rebuild; {EVERY}", "", EVEN),
    _timed("4.5", "Rebuild is dearer to update than NoRebuild, by about 5%", _compared("update", SMALL, "Rebuild", "NoRebuild", (4,), about=1.05), "n = 4", "n below 9", DROPPED),
    _timed("4.5", "and by less than 2% for large n", _compared("update", SMALL, "Rebuild", "NoRebuild", (16, 25), most=1.02), "n of 16 and 25", "", DROPPED),
    *(_timed("4.5", f"updates of {t} get cheaper up to n = 16 and dearer from there on", _turns(SMALL, t, 16), EVERY, "", CHEAP_OPENING) for t in ("Rebuild", "NoRebuild")),
    *(_timed("4.5", f"updates of {t} get dearer from n = 9 on", _by_n("update", SMALL, t, 9, 25), "n of 9, 16 and 25", "", reason) for t, reason in (("R-ins", ALL_REWRITTEN), ("D-ins", NEARLY_FREE))),
    _timed("4.6", "NoRebuild is dearer to probe than Rebuild, by less than 1%", _compared("probe", SMALL, "NoRebuild", "Rebuild", most=1.01), EVERY, "", SCATTERED),
    _timed("4.6", "Rebuild is probed slightly faster than R-ins", _compared("probe", SMALL, "R-ins", "Rebuild", most=1.25), EVERY, "in general", GRAIN),
    _timed("4.6", "NoRebuild is probed slightly faster than D-ins", _compared("probe", SMALL, "D-ins", "NoRebuild", most=1.25), EVERY, "in general", GRAIN),
    *(_timed("4.6", f"probes of {t} get dearer as n grows", _by_n("probe", SMALL, t, 4, 25), EVERY) for t in ("Rebuild", "NoRebuild")),
    _timed("4.7", "NoRebuild is dearer to scan than Rebuild", _compared("scan", SMALL, "NoRebuild", "Rebuild"), EVERY, "", WHOLE),
    _timed("4.7", "scans get dearer as n grows", _by_n("scan", SMALL, "Rebuild", 4, 25), f"Rebuild; {EVERY}"),
    _timed("4.7", "a probe is two orders of magnitude cheaper than a scan", _scan_over_probe(SMALL), "n = 16, Rebuild", "", GRAIN),
    _timed("4.7", "without directories updates are about 20% cheaper", _no_directories, "n = 16, Rebuild", "said, not drawn"),
    _claim("4.7", "and a scan takes about as long as with them", _scans_alike, "n = 16, Rebuild", "said, not drawn"),
    _claim("4.7", "Rebuild and R-ins need the least space", _least_space, EVERY, "said, not drawn"),
    _claim("4.7", "NoRebuild and D-ins need more", _more_space, EVERY, "said, not drawn"),
    _claim("4.7", "all need more as n grows", _space_grows, EVERY, "said, not drawn", ENDED),
    _claim("4.8", "Rebuild suffers less from uneven rates than R-ins", _adapts("Rebuild", "R-ins"), "n of 4 and 16", "rates vary by a factor of up to four", STEADY),
    _claim("4.8", "NoRebuild suffers less from uneven rates than D-ins", _adapts("NoRebuild", "D-ins"), "n of 4 and 16", "", STEADY),
    _claim("4.8", "Rebuild and NoRebuild suffer more at larger n", _larger_n(16, 4, "Rebuild", "NoRebuild"), "n of 4 and 16", "", STEADY),
    _claim("4.8", "R-ins and D-ins suffer more at smaller n", _larger_n(4, 16, "R-ins", "D-ins"), "n of 4 and 16", "", STEADY),
    _claim("4.8", "probes and scans get several percent slower", _slower_access, "Rebuild, n of 4 and 16", "said, not drawn"),
    *_against_wave("4.9", LARGE, "up to three times", (1.5, 3)),
    *(_timed("4.9", f"large data: updates of {t} get cheaper with every n that was tried", _by_n("update", LARGE, t, 4, 25, falls=True), EVERY, "all techniques", *why)
      for t, why in (("Rebuild", ()), ("NoRebuild", (NEARLY_FREE_LARGE,)), ("R-ins", (ALL_REWRITTEN,)), ("D-ins", (NEARLY_FREE_LARGE,)))),
    _timed("4.9", "large data: Rebuild is 9% dearer to update than NoRebuild at n = 4", _compared("update", LARGE, "Rebuild", "NoRebuild", (4,), about=1.09), "n = 4", "", because(DROPPED.words, _few_bytes("update", LARGE))),
    _timed("4.9", "and 5% at n = 25", _compared("update", LARGE, "Rebuild", "NoRebuild", (25,), about=1.05), "n = 25", "", because(DROPPED.words, _few_bytes("update", LARGE))),
    _timed("4.10", "large data: NoRebuild is 2 to 3% dearer to probe than Rebuild", _compared("probe", LARGE, "NoRebuild", "Rebuild", about=(1.02, 1.03)), EVERY, "", because(SCATTERED.words, _few_bytes("probe", LARGE))),
    _timed("4.11", "large data: NoRebuild is dearer to scan than Rebuild", _compared("scan", LARGE, "NoRebuild", "Rebuild"), EVERY, "", because(WHOLE.words, _few_bytes("scan", LARGE))),
]  # fmt: skip
SOURCE = Source("The same, chapter 4", PRINTED, HERE, CLAIMS)

__all__ = ["SOURCE"]
