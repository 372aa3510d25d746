"""A replay in which every operator is rebuilt from its runs, as files would give them back, before every batch."""

from __future__ import annotations

import pyarrow as pa
from windrow_tests_in_process import sliced

from windrow.engine.replay import Replay
from windrow.plan.dataflow import Circuit


def run_with_restarts(script, streams, tables, until, batch_rows, strategy):
    """The answers of a replay in which every operator is rebuilt from its runs before every batch."""
    replay = Replay.of(script, streams, tables, until, strategy=strategy)
    answers = {}
    for plan in replay.catalog.queries.values():
        circuit, parts, begin = Circuit(plan, {}, replay.tables, strategy), [], dict.fromkeys(replay.data, 0)
        for _, frontier in replay.frontiers(batch_rows):
            new = {k: sliced(replay, k, begin, frontier) for k in replay.data}
            start = replay.starts(plan)
            if start is None or start > frontier:
                continue
            if circuit.started:
                circuit = restarted(circuit, plan, replay.tables, strategy)
            else:
                circuit.start(start)
            parts.append(circuit.answer(circuit.advance(new.__getitem__, frontier)))
        answers[plan.name] = pa.concat_tables(parts) if parts else None
    return answers


def restarted(circuit, plan, tables, strategy):
    """A new circuit with the old one's state, its runs written to bytes and read back."""
    fresh = Circuit(plan, {}, tables, strategy)
    for old, new in zip(circuit.flow.steps, fresh.flow.steps, strict=True):
        if old.operator is not None:
            state = {slot: tuple(through_bytes(r) for r in runs) for slot, runs in old.operator.state().items()}
            new.operator.restore(state, circuit.frontier)
    fresh.started, fresh.frontier = True, circuit.frontier
    return fresh


def through_bytes(run):
    """A run as a file would give it back."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, run.table.schema) as writer:
        writer.write_table(run.table)
    return type(run)(pa.ipc.open_file(sink.getvalue()).read_all(), run.uid)
