"""Chapter 6 of the thesis: frequent items (figure 6.3)."""

from __future__ import annotations

from windrow_bench.reproduction.claims import Claim, Reason, Record, Seen, Source
from windrow_bench.reproduction.looks import COUNTED, FAR, Line, Look, because, bound, near, order, times, trend

PRINTED = (
    "Java, Pentium 4; the TCP trace of chapter 3, 1,647 sources; a window of 100,000 in sub-windows of b = 20, 100 and 500; "
    "lists of k = 1 to 10; means of 100 starting points"
)
HERE = (
    "the flows of a CTU-13 capture, 72,345 sources, that is 44 times as many as in print; the same window, b and k; means of "
    "100 starting points"
)
RECORD, WINDOW = "frequent-ctu13", 100_000
BS = (20, 100, 500)
ALL = "every b"


def _lines(record: Record, what: str) -> dict[int, Line]:
    """A quantity by k, for every length of a sub-window; nothing reported has no error."""
    found: dict[int, Line] = {}
    for b in BS:
        rows = [r for r in record.where(part="figure 6.3", b=b) if r.get(what) is not None]
        found[b] = sorted(
            (float(r["k"]), float(r[what])) for r in rows if what != "relative_error" or r.get("reported")
        )
    return found


def _by_k(what: str, falls: bool = False) -> Look:
    def look(record: Record) -> Seen:
        return trend(
            record, {f"at b = {b}": line for b, line in _lines(record, what).items()}, falls=falls, scatter=COUNTED
        )

    return look


def _by_b(what: str, over: int, under: int, first: int = 1) -> Look:
    """One length of sub-windows over another, for every k from a first one on."""

    def look(record: Record) -> Seen:
        lines = {b: dict(line) for b, line in _lines(record, what).items()}
        ks = [k for k in sorted(lines[over]) if k >= first and k in lines[under]]
        ratios = [lines[over][k] / lines[under][k] for k in ks]
        said = f"b = {over} / b = {under}: {', '.join(map(times, ratios))}"
        return order(record, ratios, said, scatter=COUNTED)

    return look


def _at_five(what: str, printed: float, share: bool = False) -> Look:
    def look(record: Record) -> Seen:
        values = [dict(line)[5.0] for line in _lines(record, what).values()]
        said = ", ".join(f"{v:.1%}" if share else f"{v:.2g}" for v in values)
        return near(sum(values) / len(values), printed, f"{said} at b = 20, 100, 500")

    return look


def _no_false(record: Record) -> Seen:
    rows = record.where(part="figure 6.3")
    wrong = sum(int(r["false"]) for r in rows)
    return Seen(f"{wrong or 'none'} in {len(rows)} x 100 windows", not wrong)


def _most_found(record: Record) -> Seen:
    least = {b: min(y for k, y in line if k >= 3) for b, line in _lines(record, "share_found").items()}
    words = ", ".join(f"{share:.0%} at b = {b}" for b, share in least.items())
    return bound(min(least.values()), f"at least {words}", least=0.8)


def _nearly_all(record: Record) -> Seen:
    least = min(y for k, y in _lines(record, "share_found")[20] if k > 7)
    return bound(least, f"at least {least:.1%}", least=0.99)


def _small(record: Record) -> Seen:
    rows = record.where(part="figure 6.3")
    most = max(rows, key=lambda r: float(r["pairs"]))
    ratio = WINDOW / float(most["pairs"])
    words = (
        f"window / pairs at least {times(ratio)}: {float(most['pairs']):,.0f} pairs at b = {most['b']}, k = {most['k']}, where "
        f"exact counts of every sub-window would be {float(most['exact_pairs']):,.0f}"
    )
    return order(record, [ratio], words, least=FAR, scatter=COUNTED)


def _two_percent(record: Record) -> Seen:
    most = max(y for k, y in _lines(record, "relative_error")[20] if k >= 7)
    return bound(most, f"at most {most:.3%}", most=0.02)


# -- why, where it is not so -----------------------------------------------------------------------------------------


def _thin(record: Record) -> str | None:
    """How many rows the k-th source of a sub-window of 20 has, in the mean."""
    rows = {k: 20 * share for k, share in _lines(record, "delta_share")[20] if k in (3, 10)}
    return ", ".join(f"{r:.2g} rows for k = {k:g}" for k, r in rows.items()) if rows[3] < 2 else None


def _tail(record: Record) -> str | None:
    values = {k: y for k, y in _lines(record, "over_delta")[500] if k in (4, 10)}
    return ", ".join(f"{y:.2g} values at k = {k:g}" for k, y in values.items()) if values[10] > 2 * values[4] else None


def _few(record: Record) -> str | None:
    values = [y for line in _lines(record, "over_delta").values() for k, y in line if k in (2, 3, 4)]
    return f"{min(values):.2g} to {max(values):.2g} values at k of 2 to 4" if max(values) < 3 else None


THIN = because(
    "smaller sub-windows raise the threshold where data are bursty; with so many sources the last place of a list of a sub-window of 20 rows is worth little more than one row",
    _thin,
)
TAIL = because("with k the threshold falls to values that are missing from many lists of large sub-windows", _tail)
FEW = because("errors at small k are means over few values", _few)


def _claim(figure: str, says: str, look: Look, here: str = ALL, *reasons: Reason) -> Claim:
    return Claim(figure, says, RECORD, look, "", here, reasons)


CLAIMS = [
    _claim("6.3 (a)", "the threshold falls as k grows", _by_k("delta_share", falls=True)),
    _claim("6.3 (a)", "smaller sub-windows raise the threshold", _by_b("delta_share", 20, 500), "every k", THIN),
    _claim("6.3 (a)", "at k = 5 the threshold is roughly five percent of the window", _at_five("delta_share", 0.05, True)),
    _claim("6.3 (b)", "the number of values over the threshold grows with k", _by_k("over_delta")),
    _claim("6.3 (b)", "at k = 5 three to four values are over it", _at_five("over_delta", 3.5)),
    _claim("6.3 (c)", "the number of values reported grows with k", _by_k("reported")),
    _claim("6.3 (c)", "nothing is reported that is not over the threshold", _no_false),
    _claim("6.3 (d)", "from k = 3 on at least 80% of the values over the threshold are reported", _most_found),
    _claim("6.3 (d)", "smaller sub-windows find more of them", _by_b("share_found", 20, 500, 3), "k from 3 on"),
    _claim("6.3 (d)", "with k above 7 and b = 20 hardly any is missed", _nearly_all, "b = 20; hardly: one in a hundred"),
    _claim("6.3 (e)", "space grows as sub-windows shrink", _by_b("pairs", 20, 500), "every k"),
    _claim("6.3 (e)", "space grows with k", _by_k("pairs")),
    _claim("6.3 (e)", "space is significantly smaller than the window", _small, "every b and k; pairs of value and count, beside rows"),
    _claim("6.3 (f)", "the relative error falls as k grows", _by_k("relative_error", falls=True), ALL, TAIL),
    _claim("6.3 (f)", "the relative error falls as sub-windows shrink from 500 to 100", _by_b("relative_error", 500, 100), "every k", FEW),
    _claim("6.3 (f)", "and from 100 to 20", _by_b("relative_error", 100, 20), "every k", FEW),
    _claim("6.3 (f)", "with b = 20 and k of 7 or more it is below 2%", _two_percent, "b = 20"),
]  # fmt: skip
SOURCE = Source("The same, chapter 6", PRINTED, HERE, CLAIMS)

__all__ = ["SOURCE"]
