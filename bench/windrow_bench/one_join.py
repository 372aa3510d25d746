"""A join that is driven in this process, one operator and one partition, and chooses as those of an engine do.

An engine's driver hears of all partitions and chooses between two ticks (`runtime/join_choices.py`). Here the same
happens after every advance, so that what choosing does to a join can be measured and tested without an engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windrow.operators.aggregate_join import AggregateDeltas, groups_of
from windrow.operators.elements import Elements
from windrow.operators.join import JoinOperator
from windrow.operators.protocol import State
from windrow.runtime.join_choices import JoinChoices, follow, report
from windrow.runtime.undo_log import UndoLog


class Chooser:
    """What the driver of an engine does for a join."""

    def __init__(self, operator: JoinOperator | AggregateDeltas) -> None:
        self.operator = operator
        self._choices = JoinChoices(UndoLog())
        self._choices.register("q", 0, operator, [1] * len(operator.parts), None)

    def choose(self) -> None:
        """Hear what the join has measured, and let it follow what is best."""
        told = report(self.operator, True)
        assert told is not None
        self._choices.take([(0, {("q", 0): told})])
        follow(self.operator, self._choices.chosen()["q"][0])

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        """What the join sends in this advance; then choose."""
        found = self.operator.advance(inputs, frontier)
        self.choose()
        return found

    def describe(self) -> dict[str, Any]:
        """As EXPLAIN has it."""
        (described,) = self._choices.describe("q")
        return described


class AggregateJoin(AggregateDeltas):
    """GROUP BY over a join, in one place: the changes and the groups they belong to."""

    def __init__(self, *inputs: Any, **settings: Any) -> None:
        """As of `AggregateDeltas`."""
        super().__init__(*inputs, **settings)
        types = {c: t for p in self.parts for c, t in p.columns.items()}
        self._output = groups_of(self.keys, self.aggregations, types, self.period)
        self.schema = self._output.schema

    def start(self, ts: int) -> None:
        """The clock starts at `ts`."""
        self._output.start(ts)

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        """What Aggregate(Join(inputs)) sends in this advance."""
        return self._output.advance([self._changed(inputs, frontier)], frontier)

    def state(self) -> State:
        """The plan, each input's entries and ends, and the output."""
        return {**super().state(), **{f"output {name}": runs for name, runs in self._output.state().items()}}

    def restore(self, state: State, frontier: int) -> None:
        """Go on from a state."""
        super().restore(state, frontier)
        output = {name.removeprefix("output "): runs for name, runs in state.items() if name.startswith("output ")}
        self._output.restore(output, frontier)
