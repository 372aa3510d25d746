"""A stream's history: rows stay until their lifetime ends, in runs that can be read in part.

    oldest  [ 262,144 rows ][ 262,144 rows ][ 90,000 ][ 20,000 ][ 4,000 ][ 1,000 ]  newest tick

Runs follow each other in time. The newest are merged by size until they have `MOST` rows and are then left alone, so a
tick costs its rows times the number of merges, log(MOST / rows of a tick), whatever the length of the history, and a
run that has ended is dropped whole. A merged run is sorted by the stream's key and has zones (`state/zones`): a
question about a key reads a few blocks of each run, one about the last minutes a few runs.

Invariant: the runs hold every row of the stream with exp > frontier, and besides them at most the ended rows of the
runs that have others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.operators.elements import Elements
from windrow.operators.protocol import State, Stateless, Unclocked
from windrow.operators.state.run import Run, ints
from windrow.operators.state.zones import WORTH, is_key, zoned

MOST = 1 << 18
"""Rows of a run that is not merged any more, unless a tick brings more."""

FILTERED = 1 << 16
"""Rows from which a run has sketches and filters: smaller ones are soon merged."""

FANOUT = 4
"""A run is merged with the ones after it when they have a fourth of its rows together."""

TS, EXP, SEQ = "_ts", "_exp", "_seq"
"""Beside the stream's columns: the lifetime, and a number that says in which order rows came."""


class HistoryOperator(Unclocked):
    """Rows of a stream; `key`: the columns they are sorted by within a run; `time`: that of their time. Nothing comes
    out."""

    def __init__(self, key: Sequence[str] = (), time: str = "") -> None:
        self.key, self.time = tuple(key), time
        self._runs: list[Run] = []  # in the order of their time
        self._last: dict[str, int] = {}  # the last end in each run
        self._count = 0  # rows that have come

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (rows,) = inputs
        self._runs = [r for r in self._runs if self._end(r) > frontier]
        rows = rows.filter(rows.exp > frontier)
        if len(rows):
            self._insert(rows, frontier)
        self._last = {r.uid: self._end(r) for r in self._runs}
        return rows.take(np.zeros(0, np.int64))

    def _end(self, run: Run) -> int:
        if run.uid not in self._last:
            self._last[run.uid] = int(ints(run.table, EXP).max())
        return self._last[run.uid]

    def _insert(self, rows: Elements, frontier: int) -> None:
        size = len(rows)
        numbers = pa.array(np.arange(self._count, self._count + size))
        tables = [pa.table({TS: pa.array(rows.ts), EXP: pa.array(rows.exp), SEQ: numbers, **rows.columns})]
        self._count += size
        while self._runs and _merges(self._runs[-1].table.num_rows, size):
            tables.append(self._runs.pop().table)
            size += tables[-1].num_rows
        table = pa.concat_tables([t.replace_schema_metadata(None) for t in reversed(tables)])
        if len(tables) > 1 and (ended := ints(table, EXP) <= frontier).any():
            table = table.filter(pa.array(~ended))
        self._runs.append(Run(self._arranged(table)))

    def _arranged(self, table: pa.Table) -> pa.Table:
        if table.num_rows < WORTH:
            return table.combine_chunks()
        order = [(k, "ascending", "at_end") for k in (*self.key, TS, SEQ)]
        table = table.take(pc.sort_indices(table, sort_keys=order))
        return zoned(table, self._keys(table) if table.num_rows >= FILTERED else (), (*self.key, TS)[0])

    def _keys(self, table: pa.Table) -> list[str]:
        """The columns that a question may name a value of; the blocks of the first key say enough."""
        known = (TS, EXP, SEQ, self.time, *self.key[:1])
        return [n for n in table.column_names if n not in known and is_key(table.schema.field(n).type)]

    def state(self) -> State:
        return {"rows": tuple(self._runs)}

    def restore(self, state: State, frontier: int) -> None:
        self._runs = [r if SEQ in r.table.column_names else _numbered(r) for r in state["rows"]]
        self._last = {}
        self._count = max((int(ints(r.table, SEQ).max()) + 1 for r in self._runs), default=0)


class LifetimesOperator(Stateless):
    """What an archive takes: rows as they begin, with their ends. Nothing stays behind."""

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        (rows,) = inputs
        return rows


def _numbered(run: Run) -> Run:
    """A run of an earlier version of windrow, whose rows lie in the order in which they came."""
    table = run.table.drop_columns([n for n in run.table.column_names if n in ("_sign", "_hash")])
    return Run(table.append_column(SEQ, pa.array(np.arange(table.num_rows))))


def _merges(older: int, newer: int) -> bool:
    return older <= FANOUT * newer and older + newer <= MOST


def default_key(columns: Iterable[tuple[str, pa.DataType]], time: str) -> tuple[str, ...]:
    """What a history is sorted by if nobody says: the first column that may be a key and is not the time.

    >>> default_key([("ts", pa.int64()), ("price", pa.float64()), ("sym", pa.string())], "ts")
    ('sym',)
    """
    return next(((name,) for name, type_ in columns if name != time and is_key(type_)), ())
