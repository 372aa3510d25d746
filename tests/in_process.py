"""The tasks of a tick without a JVM: what Spark does between them, in this process, with everything it may do to them.

Envelopes arrive in any order, tasks run twice, and workers forget what they held: none of it may change an answer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa

from windrow.runtime import stage as stages_of
from windrow.runtime.exchange import SCHEMA
from windrow.runtime.feed import blobs, feed_blobs
from windrow.runtime.program import Program
from windrow.spark.job import Feed


class InProcessJob:
    """Runs tasks one after the other; `chaos` shuffles envelopes, repeats tasks and clears workers' memory."""

    def __init__(self, pieces: int = 2, chaos: int | None = None) -> None:
        self.pieces = pieces
        self.random = None if chaos is None else random.Random(chaos)

    def run(self, feeds: Sequence[Feed], program: Program, stages: int) -> pa.Table:
        sent = []
        packed = blobs([(f.stream, f.only, f.rows) for f in feeds], self.pieces)
        for sender, piece in enumerate(packed.to_batches(max_chunksize=2)):
            sent += feed_blobs(program, iter([piece]), sender)
        for number in range(1, stages + 1):
            envelopes = pa.Table.from_batches(sent, SCHEMA)
            sent = []
            for partition in range(program.partitions):
                mine = envelopes.filter(pa.compute.equal(envelopes["to"], partition))
                sent += self._task(program, number, partition, number == stages, mine)
        return pa.Table.from_batches(sent, SCHEMA)

    def _task(self, program: Program, number: int, partition: int, last: bool, mine: pa.Table) -> list[pa.RecordBatch]:
        if self.random is not None:
            order = self.random.sample(range(mine.num_rows), mine.num_rows)
            mine = mine.take(pa.array(order, pa.int64()))
            if self.random.random() < 0.3:
                stages_of._held.clear()
            if self.random.random() < 0.3:  # an attempt whose report is lost
                list(stages_of.Stage(program, number, partition, last).run(iter(mine.to_batches())))
        return list(stages_of.Stage(program, number, partition, last).run(iter(mine.to_batches(max_chunksize=5))))
