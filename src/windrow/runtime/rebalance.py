"""State that follows its rows: what a key's home holds when the key becomes heavy goes where its rows lie from now on.

The runs that the manifest names are the state just before this tick, in every partition, and all tasks can read them.
So nothing is sent: each task reads the home's runs and takes what lies with it; the home itself does the same, and all
let go of what they held of those keys. Cost: a reading of the home's part of the join, in every task, once per key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from windrow.operators.changes import Changes
from windrow.operators.elements import Elements, Int64s, concat
from windrow.operators.join import JoinOperator
from windrow.operators.state.run import elements_of
from windrow.runtime.by_hash import by_hash
from windrow.runtime.exchange import belonging
from windrow.runtime.placement import Partitioning
from windrow.runtime.program import Program
from windrow.runtime.task_state import WAITING, QueryState
from windrow.store.runs import RunRef

Where = tuple[int, int]
"""Stage and partition."""


def move(program: Program, name: str, held: QueryState, here: Where, step: int, keys: Int64s) -> None:
    """Move the rows of `keys`, which become heavy in the join `step`, in one stage of one partition."""
    placement = held.layout.placement
    homes = np.unique(by_hash(keys, program.partitions)).tolist()
    for index, partitionings in placement.moves.items():
        operator = held.flow.steps[index].operator
        if placement.stages[index] != here[0] or not isinstance(operator, JoinOperator | Changes):
            continue
        for port, partitioning in enumerate(partitionings):
            if partitioning.split is not None and partitioning.split.step == step:
                prefix = f"{index}/{port}:" if isinstance(operator, JoinOperator) else f"{index}/pending"
                found = [e for home in homes for e in _read(program, name, (here[0], home), prefix)]
                more = [e.filter(_lies(e, partitioning, program, here[1], keys)) for e in found]
                operator.replace_rows(port, _others(partitioning, program, here[1], keys), [e for e in more if len(e)])
    for number, exchange in enumerate(held.layout.exchanges):
        split = exchange.partitioning.split
        if exchange.stage == here[0] and split is not None and split.step == step:
            slot = f"{WAITING}/{number}"
            parts = [e for home in homes for e in _read(program, name, (here[0], home), slot)]
            parts = [e.filter(_lies(e, exchange.partitioning, program, here[1], keys)) for e in parts]
            if number in held.waiting:
                mine = held.waiting[number]
                parts.insert(0, mine.filter(_others(exchange.partitioning, program, here[1], keys)(mine)))
            parts = [e for e in parts if len(e)]
            held.waiting.pop(number, None)
            if parts:
                held.waiting[number] = concat(parts)


def _lies(rows: Elements, partitioning: Partitioning, program: Program, here: int, keys: Int64s) -> np.ndarray:
    return belonging(rows, partitioning, program.partitions, here, keys)[1]


def _others(partitioning: Partitioning, program: Program, here: int, keys: Int64s) -> Callable[[Elements], np.ndarray]:
    return lambda rows: ~belonging(rows, partitioning, program.partitions, here, keys)[0]


def _read(program: Program, name: str, where: Where, prefix: str) -> Iterator[Elements]:
    """The rows of one slot; of several that hold the same rows, the one that leaves none out."""
    slots = program.runs.get((name, *where), {})
    mine = sorted((s for s in slots if s.startswith(prefix)), key=lambda s: ("~" in s, s))
    refs: tuple[RunRef, ...] = slots[mine[0]] if mine else ()
    for ref in refs:
        run = program.store.read(ref)
        yield elements_of(run, "_hash") if "_hash" in run.table.column_names else elements_of(run)
