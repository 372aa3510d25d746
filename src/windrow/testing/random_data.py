"""Random streams and tables, small and mean: few distinct values, many equal times, nulls everywhere.

Every stream has the columns a, b (integers), x (float), s (text), f (boolean) and ts. Floats are multiples of 0.25, so
their sums are exact in any order; `specials` adds NaN and infinities, `extremes` the ends of int64 to `b`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from windrow.testing.choices import Chooser

TICKS = "ticks"
TIMESTAMPS = "timestamps"
SECOND = 1_000_000
BASE = 1_700_000_000 * SECOND
"""Where timestamp clocks begin, in microseconds; a tick is a second."""

STREAM_TYPES = {"a": "BIGINT", "b": "BIGINT", "x": "DOUBLE", "s": "VARCHAR", "f": "BOOLEAN"}
TABLE_TYPES = {"k": "BIGINT", "v": "VARCHAR", "w": "DOUBLE"}
_ARROW = {"BIGINT": pa.int64(), "DOUBLE": pa.float64(), "VARCHAR": pa.string(), "BOOLEAN": pa.bool_()}

_SPECIALS = [float("nan"), float("inf"), float("-inf")]
_EXTREMES = [2**63 - 1, -(2**63)]


def time_type(clock: str) -> pa.DataType:
    """The Arrow type of a clock's time column."""
    return pa.int64() if clock == TICKS else pa.timestamp("us")


def sql_time_type(clock: str) -> str:
    """The SQL type of a clock's time column."""
    return "BIGINT" if clock == TICKS else "TIMESTAMP"


def to_time(tick: int | None, clock: str) -> int | None:
    """A tick as a value of the time column, in its integer form."""
    return tick if clock == TICKS or tick is None else BASE + tick * SECOND


def _sizes(max_rows: int) -> list[int]:
    likely = [n for n in (6, 8, 10, 12, 12, 15, 18, 18, 25, 25, 40) if n <= max_rows]
    return [*(n for n in (0, 1, 3) if n <= max_rows), *likely, *likely]


def _times(choose: Chooser, size: int) -> list[int]:
    """Times in order: dense, sparse, in bursts, or all at once."""
    gaps = choose.pick((0, 1, 2), (0, 1, 1, 2), (0, 1), (1, 2, 3), (1, 4, 9), (0, 0, 0, 1, 11), (0, 0, 1))
    gaps = (0,) if choose.chance(20) else gaps
    now, found = choose.pick(0, 0, 1, 2, -5, 7), []
    for _ in range(size):
        now += choose.pick(*gaps)
        found.append(now)
    return found


def _arrivals(choose: Chooser, times: list[int], slack: int, late: bool) -> list[int]:
    """Positions of the rows in arrival order: out of order within the slack, and maybe one row later than that."""
    order = list(range(len(times)))
    if slack:
        # A row that is held back by at most the slack is overtaken only by rows at most the slack newer.
        delays = [choose.number(0, slack) for _ in times]
        order.sort(key=lambda i: times[i] + delays[i])
    if late and times:
        order.append(order.pop(choose.number(0, len(order) - 1)))
    return order


class Column(NamedTuple):
    """What a column may hold besides null: its SQL type, and values, likelier ones more than once."""

    type: str
    values: pa.Array


Columns = Mapping[str, Column]


def _plain(types: Mapping[str, str], values: Sequence[list[Any]]) -> Columns:
    return {n: Column(t, pa.array(v, _ARROW[t])) for (n, t), v in zip(types.items(), values, strict=True)}


def stream_columns(specials: bool, extremes: bool) -> Columns:
    """The columns of every stream, but for its time."""
    quarters = [n / 4 for n in range(-8, 13)]
    values: list[list[Any]] = [
        [0, 1, 2, 3],
        [*range(-4, 7), *(_EXTREMES * 3 if extremes else [])],
        [*quarters, *(_SPECIALS * 3 if specials else [])],
        ["p", "q", "", "pq"],
        [True, False],
    ]
    return _plain(STREAM_TYPES, values)


def table_columns() -> Columns:
    """The columns of every table, but for its interval."""
    return _plain(TABLE_TYPES, [[0, 1, 2, 3], ["one", "two", "p"], [n / 4 for n in range(-4, 9)]])


def random_stream(choose: Chooser, clock: str, max_rows: int, slack: int, late: bool, held: Columns) -> pa.Table:
    """A stream's rows in arrival order; `slack` (in ticks) lets them be out of order, `late` adds a late row."""
    size = choose.pick(*_sizes(max_rows))
    values = [range(len(column.values)) for column in held.values()]
    rows = [tuple(None if choose.chance(6) else choose.pick(*v) for v in values) for _ in range(size)]
    if choose.chance(5):
        rows = [rows[i // 2] for i in range(size)]  # every row twice
    if choose.chance(40):
        rows = [(None,) * len(values) for _ in rows]
    times = _times(choose, size)
    order = _arrivals(choose, times, slack, late)
    columns = _taken(held, [rows[i] for i in order])
    ticks = pa.array([to_time(times[i], clock) for i in order], pa.int64())
    return pa.table({**columns, "ts": ticks.cast(time_type(clock))})


def _taken(held: Columns, rows: Sequence[Sequence[int | None]]) -> dict[str, pa.Array]:
    """The values that rows name by their place."""
    return {
        name: column.values.take(pa.array([row[c] for row in rows], pa.int64()))
        for c, (name, column) in enumerate(held.items())
    }


_PUT = ("c", "r", "u", "insert", "UPDATE", " Create ", "+I", "+U")
_TAKE = ("d", "DELETE", "-D", "-U", "delete")


def random_changes(choose: Chooser, rows: pa.Table, key: str, envelope: bool) -> pa.Table:
    """Changes that put rows of a table and take some of them away, some twice, in any order: flat or in envelopes.

    What they put has a key; what they take away may never have been there.
    """
    given = [{**row, key: row[key] if row[key] is not None else 0} for row in rows.to_pylist()]
    found: list[dict[str, Any]] = []
    for row in [*given, *(choose.pick(*given) for _ in given)]:
        kind = choose.number(0, 11)
        op = "t" if kind == 0 else choose.pick(*(_TAKE if kind < 4 else _PUT))
        before = None if choose.chance(2) and kind >= 4 else {**choose.pick(row, row, *given)}
        if not envelope:
            found.append({**row, "op": op})
        elif kind == 0:
            found.append({"op": op, "before": None, "after": None})
        else:
            found.append({"op": op, "before": before, "after": None if kind < 4 else row})
    image = pa.struct(list(rows.schema))
    fields = (
        [("op", pa.string()), ("before", image), ("after", image)] if envelope else [*rows.schema, ("op", pa.string())]
    )
    return pa.Table.from_pylist(found, pa.schema(fields))


def random_table(choose: Chooser, clock: str, max_rows: int, held: Columns) -> pa.Table:
    """A table with an active interval [since, til) whose ends may be open, empty or turned round."""
    values = [*(range(len(column.values)) for column in held.values()), range(-6, 21), range(41)]
    size = choose.pick(*range(max_rows + 1), max_rows, max_rows)
    rows = [tuple(None if choose.chance(6) else choose.pick(*v) for v in values) for _ in range(size)]
    columns = _taken(held, rows)
    for c, name in ((-2, "since"), (-1, "til")):
        columns[name] = pa.array([to_time(r[c], clock) for r in rows], pa.int64()).cast(time_type(clock))
    return pa.table(columns)
