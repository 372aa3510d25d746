"""Random streams, tables, queries, and whole cases of a script with its data, as Hypothesis strategies.

`seeded_case(seed)` makes the same kind of case from a number: for runs of many different cases. `smaller` then takes
rows away from a failing one as long as it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from windrow.testing.choices import Choices, Chooser, Drawn, Seeded
from windrow.testing.live import Moment
from windrow.testing.random_data import (
    BASE,
    SECOND,
    TICKS,
    TIMESTAMPS,
    Columns,
    random_changes,
    random_stream,
    random_table,
    sql_time_type,
    stream_columns,
    table_columns,
)
from windrow.testing.random_live import random_moments
from windrow.testing.random_queries import SHAPES, Writer, random_query
from windrow.testing.random_shed import SHED_BY, facts
from windrow.testing.random_types import TYPED_SHAPES, TypedWriter, random_types
from windrow.testing.tokens import tokenize

__all__ = [
    "SHAPES", "TICKS", "TIMESTAMPS", "TYPED_SHAPES", "Case", "Life", "cases", "queries", "seeded_case", "seeded_life",
    "smaller", "streams", "tables", "typed_case", "typed_life",
]  # fmt: skip


STREAMS = ("S", "T", "U")


class Case(NamedTuple):
    """The arguments of `windrow.run` and of `oracle`; `until` in ticks or microseconds."""

    script: str
    streams: dict[str, pa.Table]
    tables: dict[str, pa.Table]
    until: int | None


class Life(NamedTuple):
    """The arguments of `live_oracle`: a script with the ticks in which its rows come; `until` as that of a case."""

    script: str
    moments: list[Moment]
    tables: dict[str, pa.Table]
    until: int | None


@st.composite
def streams(
    draw: st.DrawFn,
    clock: str = TICKS,
    max_rows: int = 40,
    slack: int = 0,
    late: bool = False,
    specials: bool = True,
    extremes: bool = True,
) -> pa.Table:
    """A stream's rows in arrival order, with the columns a, b, x, s, f and ts.

    `slack` (in ticks) lets rows be out of order, `late` makes one later than that; `specials` adds NaN and infinities
    to x, `extremes` the ends of int64 to b.
    """
    return random_stream(Chooser(Drawn(draw)), clock, max_rows, slack, late, stream_columns(specials, extremes))


@st.composite
def tables(draw: st.DrawFn, clock: str = TICKS, max_rows: int = 6) -> pa.Table:
    """A table with the columns k, v, w and an active interval [since, til)."""
    return random_table(Chooser(Drawn(draw)), clock, max_rows, table_columns())


@st.composite
def queries(
    draw: st.DrawFn,
    clock: str = TICKS,
    shapes: Sequence[str] = SHAPES,
    specials: bool = False,
    extremes: bool = False,
) -> str:
    """One query over the streams S, T, U and the tables P (plain) and V (valid from since to til)."""
    return random_query(Drawn(draw), clock, shapes, specials, extremes)


@st.composite
def cases(draw: st.DrawFn, clock: str | None = None, shapes: Sequence[str] = SHAPES, max_rows: int = 25) -> Case:
    """A script of one query `q1` with data for everything it may read."""
    return _case(Drawn(draw), clock, shapes, max_rows)


def seeded_case(seed: int, clock: str | None = None, shapes: Sequence[str] = SHAPES, max_rows: int = 25) -> Case:
    """The case that follows from a seed."""
    return _case(Seeded(seed), clock, shapes, max_rows)


def seeded_life(seed: int, clock: str | None = None, shapes: Sequence[str] = SHAPES, max_rows: int = 25) -> Life:
    """The rows of a case in random ticks: late, silent, from the future, beside tables that change."""
    return _life(Seeded(seed), clock, shapes, max_rows)[1]()


def typed_case(seed: int, clock: str | None = None, shapes: Sequence[str] = TYPED_SHAPES, max_rows: int = 25) -> Case:
    """The case that follows from a seed, over columns of any types, which two streams need not share."""
    return _life(Seeded(seed), clock, shapes, max_rows, typed=True)[0]


def typed_life(seed: int, clock: str | None = None, shapes: Sequence[str] = TYPED_SHAPES, max_rows: int = 25) -> Life:
    """The rows of such a case in random ticks."""
    return _life(Seeded(seed), clock, shapes, max_rows, typed=True)[1]()


def smaller(case: Case, fails: Callable[[Case], bool]) -> Case:
    """The case with as many rows taken away, from streams and tables, as leave it failing."""
    for name in (*case.streams, *case.tables):
        case = _with(case, name, _fewest(case, name, fails))
    return case


def _with(case: Case, name: str, table: pa.Table) -> Case:
    if name in case.streams:
        return case._replace(streams={**case.streams, name: table})
    return case._replace(tables={**case.tables, name: table})


def _fewest(case: Case, name: str, fails: Callable[[Case], bool]) -> pa.Table:
    """Take away stretches of rows, half the table first, single rows last, as long as the case fails."""
    table = {**case.streams, **case.tables}[name]
    step = max(1, table.num_rows // 2)
    while step:
        start = 0
        while start < table.num_rows:
            less = pa.concat_tables([table.slice(0, start), table.slice(start + step)])
            if fails(_with(case, name, less)):
                table = less
            else:
                start += step
        step //= 2
    return table


def declarations(clock: str, slack: int, more: Mapping[str, str], held: Mapping[str, Columns]) -> str:
    """CREATE statements for S, T, U, P and V, each with clauses of its own behind those that all have."""
    columns = {name: ", ".join(f"{n} {c.type}" for n, c in of.items()) for name, of in held.items()}
    time = sql_time_type(clock)
    unit = "" if clock == TICKS else " SECONDS"
    within = f" WITHIN {slack}{unit}" if slack else ""
    found = [
        f"CREATE STREAM {name} ({columns[name]}, ts {time}) TIMESTAMP BY ts{within}{more[name]};" for name in STREAMS
    ]
    interval = f"since {time}, til {time}"
    found.append(f"CREATE TABLE P ({columns['P']}, {interval}){more['P']};")
    found.append(f"CREATE TABLE V ({columns['V']}, {interval}) VALID FROM since TO til{more['V']};")
    return "\n".join(found)


def _clauses(choose: Chooser, clock: str, told: str) -> dict[str, str]:
    """By stream and table: silence, the future, and whether a table changes past results; no replay cares."""
    found = {}
    for name in STREAMS:
        found[name] = choose.pick("", "", "", f" IDLE AFTER {choose.pick(3, 8, 20)} SECONDS")
        found[name] += choose.pick("", "", "", f" AHEAD {choose.pick(10, 60)} SECONDS") if clock == TIMESTAMPS else ""
    found["P"] = choose.pick("", " RETROACTIVE") + told
    found["V"] = choose.pick("", " RETROACTIVE")
    return found


def _case(choices: Choices, clock: str | None, shapes: Sequence[str], max_rows: int) -> Case:
    return _life(choices, clock, shapes, max_rows)[0]


def _life(
    choices: Choices, clock: str | None, shapes: Sequence[str], max_rows: int, typed: bool = False
) -> tuple[Case, Callable[[], Life]]:
    """A case, and what makes an engine's life with its rows."""
    choose = Chooser(choices)
    clock = clock or choose.pick(TICKS, TICKS, TIMESTAMPS)
    specials, extremes = choose.chance(4), choose.chance(4)
    held, writer = _columns(choose, clock, specials, extremes, typed)
    query = writer.write(writer.pick(*shapes))
    slack = choose.pick(0, 0, 0, 2, 5)
    late = choose.chance(4)
    words = {t.text for t in tokenize(query)}
    read: list[str] = [name for name in STREAMS if name in words]
    joined: list[str] = [name for name in ("P", "V") if name in words]
    rows = {1: max_rows, 2: min(max_rows, 18)}.get(len(read), min(max_rows, 12))
    data = {n: random_stream(choose, clock, rows, slack, late, held[n]) for n in read}
    relations = {n: random_table(choose, clock, 6, held[n]) for n in joined}
    after = choose.pick(None, None, None, 0, 4, 15, -3)
    until = None if after is None else _last(data, clock) + after * (1 if clock == TICKS else SECOND)
    told, flat = "", True
    if "P" in relations and choose.chance(3):
        flat = choose.chance(2)
        relations["P"] = random_changes(choose, relations["P"], "k", envelope=not flat)
        told = " KEY (k) CHANGES BY op" + ("" if flat else " BEFORE before AFTER after")
    more = _clauses(choose, clock, told)
    if "FREQUENT" in query or SHED_BY in query:  # refuse tables that change past results
        more |= {name: more[name].replace(" RETROACTIVE", "") for name in ("P", "V")}
    if SHED_BY in query and "V" in relations:
        relations["V"] = facts(relations["V"])

    def changed(name: str) -> pa.Table:
        rows = random_table(choose, clock, 3 if name == "P" and told else 6, held[name])
        return random_changes(choose, rows, "k", envelope=not flat) if name == "P" and told else rows

    def life() -> Life:
        change = {n: partial(changed, n) for n in relations if "RETROACTIVE" in more[n]}
        declared, streams = [], dict(data)
        end = until if until is not None or choose.chance(8) else _last(data, clock)
        for line in case.script.split("\n"):
            unread = next((n for n in STREAMS if n not in data and line.startswith(f"CREATE STREAM {n} ")), None)
            kind = "read" if unread is None else choose.pick("gone", "gone", "without rows", "not read")
            declared += [line] if kind != "gone" else []
            if unread is not None and kind == "not read":
                streams[unread] = random_stream(choose, clock, rows, slack, late, held[unread])
        return Life("\n".join(declared), random_moments(choose, streams, change), relations, end)

    case = Case(f"{declarations(clock, slack, more, held)}\n{query}", data, relations, until)
    return case, life


def _columns(
    choose: Chooser, clock: str, specials: bool, extremes: bool, typed: bool
) -> tuple[Mapping[str, Columns], Writer]:
    """The columns of S, T, U, P and V, and what writes queries over them."""
    if typed:
        types = random_types(choose, specials, extremes)
        return types.columns, TypedWriter(choose.choices, clock, specials, extremes, types)
    streams, tables = stream_columns(specials, extremes), table_columns()
    held = dict.fromkeys(STREAMS, streams) | dict.fromkeys(("P", "V"), tables)
    return held, Writer(choose.choices, clock, specials, extremes)


def _last(data: dict[str, pa.Table], clock: str) -> int:
    """The greatest time of the data, as an integer."""
    times = [t for table in data.values() for t in table["ts"].cast(pa.int64()).to_pylist()]
    return max(times, default=0 if clock == TICKS else BASE)
