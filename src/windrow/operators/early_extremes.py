"""The best values of an input's groups below a join, as long as that leaves fewer changes than there are rows.

Over a join in which repetitions do not count, an input may be its rows, its groups with the best value of each, or any
mix of the two: MIN of some rows and of the MIN of the others is MIN of all. So the operator goes from one to the other
whenever it likes, and nothing is carried over: rows that pass end by themselves, groups that are kept go on until their
rows are gone.

    aggregating   row --> group --> a change when its best value does      n rows a group: 4 / n changes a row
    passing       row ------------> the row itself, which comes and goes                   2

It begins with aggregating. After four times as many rows as there are groups it looks at how many of them changed
a best value; where the cost model says that this does not pay (`pays`), the next rows pass, sixteen times as many as
were tried.

Invariant: MIN and MAX over the output, by the keys or coarser, are those over the input at every instant. What was
counted is part of the state, so an attempt that is made twice decides the same. Cost: that of the aggregate, or of
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from windrow.errors import StateError
from windrow.operators.aggregate import ContinuousAggregate
from windrow.operators.aggregates import Aggregation
from windrow.operators.aggregates.reduced import best_of
from windrow.operators.elements import BEGINNING, Elements, concat
from windrow.operators.protocol import State
from windrow.operators.state.run import Run

LOOK = 4
"""Rows for each group that is alive, before it is judged whether aggregating pays."""
LEAST = 1024
"""Fewer rows are never judged."""
PASS = 16
"""Rows that pass for each row of a trial that did not pay."""

Pays = Callable[[float], bool]
"""From the share of rows that change a best value to whether aggregating costs less than passing."""


class EarlyExtremes(ContinuousAggregate):
    """MIN and MAX by `keys`, or the rows themselves where `pays` says so; without it, always aggregated."""

    def __init__(
        self,
        keys: Sequence[str],
        aggregations: Sequence[Aggregation],
        types: Mapping[str, pa.DataType],
        *,
        strict: bool = False,
        pays: Pays | None = None,
    ) -> None:
        super().__init__(keys, aggregations, types, strict=strict)
        # a row that is taken back must find itself: where rows are, it would not be known how they came
        self._pays = None if strict else pays
        self._rows = self._changing = 0  # of this trial
        self._left = 0  # rows that pass before the next trial

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        """The changes of best values, and what passes."""
        if self._pays is None:
            return super().advance(inputs, frontier)
        new = concat(inputs)
        if self._left:
            self._left = max(0, self._left - len(new))
            passed = self._passed(self._on_time([new], frontier))
            return concat([passed, super().advance([new.slice(0, 0)], frontier)])
        changes = super().advance([new], frontier)
        self._rows += len(new)
        self._changing += int(np.count_nonzero(changes.sign > 0))
        self._judge()
        return changes

    def _judge(self) -> None:
        """At the end of a trial: let the next rows pass, or begin another."""
        assert self._pays is not None
        if self._rows < max(LEAST, LOOK * len(self._groups)):
            return
        if not self._pays(self._changing / self._rows):
            self._left = PASS * self._rows
        self._rows = self._changing = 0

    def _passed(self, rows: Elements) -> Elements:
        columns = {k: rows.columns[k] for k in self.keys}
        columns |= {a.output: best_of(rows.columns, str(a.column), a.kind == "min") for a in self.aggregations}
        return rows.with_columns(columns)

    def state(self) -> State:
        """As of the aggregate, and what was counted."""
        counted = {"rows": [self._rows], "changing": [self._changing], "left": [self._left]}
        return {**super().state(), "figures": (Run(pa.table(counted)),)}

    def restore(self, state: State, frontier: int = BEGINNING) -> None:
        """Go on from a state."""
        if "figures" not in state:
            raise StateError(
                "this home was written by an older version of windrow, which kept MIN and MAX over a join otherwise",
                hint="drop the query with the version that wrote the home, and create it again with this one",
            )
        super().restore({slot: runs for slot, runs in state.items() if slot != "figures"}, frontier)
        counted = state["figures"][0].table.to_pylist()[0]
        self._rows, self._changing, self._left = counted["rows"], counted["changing"], counted["left"]


__all__ = ["EarlyExtremes", "Pays"]
