"""How the inputs of joins lie over partitions, and what they make.

Inputs that have a key in common are spread by it; those that have none lie on a grid of partitions (`grid.py`). Tables
are everywhere. Law: every combination of rows meets in one partition, and in one only.
"""

from __future__ import annotations

from collections.abc import Sequence

from windrow.operators.aggregate_join import AggregateDeltas
from windrow.operators.asof import AsofOperator
from windrow.operators.join import JoinOperator
from windrow.operators.recall_join import RecallJoin
from windrow.runtime.grid import GridPlacement
from windrow.runtime.placement import ANY, EVERYWHERE, ONE, HeavySplit, How, Partitioning, by_columns


def join_inputs(join: JoinOperator | AggregateDeltas, inputs: Sequence[Partitioning]) -> list[Partitioning]:
    """Partition the moving inputs by the columns of classes that all of them have, else on a grid; tables stay
    everywhere.

    Rows that were copied would be joined twice, so what lies on a grid already must move.
    """
    moving = [i for i, s in enumerate(inputs) if s is not EVERYWHERE]
    if len(moving) == 1:
        return [ANY if i in moving else EVERYWHERE for i in range(len(inputs))]
    shared = _shared(join, moving)
    if shared:
        partitionings = [Partitioning(How.COLUMNS, tuple(c[k] for c in shared)) for k in range(len(moving))]
    else:
        partitionings = [Partitioning(How.GRID, grid=grid) for grid in _grids(join, moving)]
    wanted = [EVERYWHERE] * len(inputs)
    for i, partitioning in zip(moving, partitionings, strict=True):
        wanted[i] = partitioning
    return wanted


def recall_inputs(join: RecallJoin, inputs: Sequence[Partitioning]) -> list[Partitioning]:
    """Rows that end lie with those that they end: by any of their columns, or by those that all of them share."""
    moving = [i for i, fixed in enumerate(join.static) if not fixed]
    wanted = [EVERYWHERE] * len(inputs)
    if join.streams is None:
        wanted[moving[0]] = by_columns(join.births[0].columns, inputs[moving[0]])
        return wanted
    shared = _shared(join.streams, range(len(moving)))
    for k, i in enumerate(moving):
        wanted[i] = Partitioning(How.COLUMNS, tuple(c[k] for c in shared)) if shared else ONE
    return wanted


def asof_inputs(join: AsofOperator, inputs: Sequence[Partitioning]) -> list[Partitioning]:
    """Equal keys together, else everything in one place; a table is everywhere, so left rows stay where they are."""
    if inputs[1] is EVERYWHERE:
        return [ANY, EVERYWHERE]
    if not join.equalities:
        return [ONE, ONE]
    left, right, _ = zip(*join.equalities, strict=True)
    return [Partitioning(How.COLUMNS, left), Partitioning(How.COLUMNS, right)]


def joined(
    join: JoinOperator | AggregateDeltas, moving: Sequence[Partitioning], kept: Sequence[str] | None = None
) -> Partitioning:
    """How results lie: by the key, or wherever their parts met; `kept`: the columns that are left of them."""
    first = moving[0]
    if first.how is How.GRID:
        grids = [s.grid for s in moving if s.grid is not None]
        axes = tuple(next(c for c in axis if c) for axis in zip(*(g.axes for g in grids), strict=True))
        # an input's own axis is by all its columns: rows that agree on some of them may lie in different cells
        grid = GridPlacement(axes, grids[0].inputs)
        return Partitioning(How.TOGETHER, tuple(c for axis in axes for c in axis), grid)
    if first.how is not How.COLUMNS:
        return first
    if kept is not None:  # the key by the name of an input that still has it
        return next((s for s in moving if set(s.columns) <= set(kept)), ANY)
    if first.split is None:
        return first
    parts = [s.split.grid for s in moving if s.split is not None]
    axes = tuple(next((c for c in axis if c), ()) for axis in zip(*(g.axes for g in parts), strict=True))
    key, grid = first.split.key, GridPlacement(axes, parts[0].inputs)
    columns = tuple(dict.fromkeys((*key, *(c for axis in axes for c in axis))))
    return Partitioning(How.TOGETHER, columns, split=HeavySplit(first.split.step, key, grid))


def _shared(join: JoinOperator | AggregateDeltas, moving: Sequence[int]) -> list[list[str]]:
    """For each class that all moving inputs have: the column of each."""
    shared = []
    for columns, _ in join.classes:
        own = [[c for c in columns if c in join.parts[i].columns] for i in moving]
        if all(own):
            shared.append([c[0] for c in own])
    return shared


def _grids(join: JoinOperator | AggregateDeltas, moving: Sequence[int]) -> list[GridPlacement]:
    """An axis for each class that two moving inputs have, and one for each input that has none of these."""
    axes: list[dict[int, tuple[str, ...]]] = []
    for columns, _ in join.classes:
        own = {i: next((c for c in columns if c in join.parts[i].columns), None) for i in moving}
        having: dict[int, tuple[str, ...]] = {i: (c,) for i, c in own.items() if c is not None}
        if len(having) > 1:
            axes.append(having)
    for i in moving:
        if not any(i in axis for axis in axes) and join.parts[i].columns:
            axes.append({i: tuple(join.parts[i].columns)})
    having_axes = tuple(tuple(a for a, axis in enumerate(axes) if i in axis) for i in moving)
    return [GridPlacement(tuple(axis.get(i, ()) for axis in axes), having_axes) for i in moving]
