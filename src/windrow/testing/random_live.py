"""Random lives of an engine: rows together or out of order, or from the future, silence, and tables that change.

Clocks on the wall stand where those of the streams begin, and a pause is some seconds, so that rows are ahead of the
wall and streams are silent in some lives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from windrow.testing.choices import Chooser
from windrow.testing.live import Moment
from windrow.testing.random_data import BASE, SECOND

PAUSES = (1, 2, 5, 9, 30)


def random_moments(
    choose: Chooser, streams: Mapping[str, pa.Table], change: Mapping[str, Callable[[], pa.Table]]
) -> list[Moment]:
    """The ticks in which the rows of streams come; `change` makes what a table is from then on, or its next changes."""
    streams = {name: _disordered(choose, rows) for name, rows in streams.items() if rows.num_rows}
    taken = dict.fromkeys(streams, 0)
    wall, found = float(BASE // SECOND + choose.pick(0, 0, -20, 40)), list[Moment]()
    most = choose.pick(7, 7, 1, 3, 40)
    kinds = ["rows"] * 5 + ["pause"] * 2 + ["change"] * (3 if change else 0) + ["restart"]
    while left := [n for n in streams if taken[n] < streams[n].num_rows]:
        what = choose.pick(*kinds)
        wall += choose.pick(0, 0, 0, 1, 3) if what == "rows" else choose.pick(*PAUSES)
        rows = {}
        for name in choose.shuffled(left)[: choose.pick(1, 1, 2, 3)] if what == "rows" else ():
            size = choose.number(1, most)
            rows[name] = streams[name].slice(taken[name], size)
            taken[name] += size
        tables = {name: make() for name, make in change.items() if what == "change"}
        found.append(Moment(wall, rows, tables, what == "restart"))
    return found + [Moment(wall + pause) for pause in choose.pick((), (), (4,), (12, 20))]


def _disordered(choose: Chooser, rows: pa.Table) -> pa.Table:
    """Rows as they come: mostly in the order that they have, sometimes with a part that comes later, or any order."""
    order = list(range(rows.num_rows))
    kind = choose.pick("given", "given", "given", "later", "any")
    if kind == "any":
        order = choose.shuffled(order)
    elif kind == "later":
        first = choose.number(0, rows.num_rows - 1)
        part = order[first : first + choose.number(1, 5)]
        order = [i for i in order if i not in part]
        at = choose.number(min(first, len(order)), len(order))
        order[at:at] = part
    return rows.take(pa.array(order, pa.int64()))
