"""SLIDE AT MOST beside SLIDE where nobody can be late: the same queries in two engines without a tick budget.

Both get the same rows, update by update and in turns, so whatever else the machine does meets both. Windows are filled
first; then a round is some updates, whose ticks are compared by processor time, and the middle one of all rounds
counts. After every four rounds both engines are new ones, the other first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import pyarrow as pa

import windrow
from windrow_bench.harness import CLOCKS, Ratio
from windrow_bench.schedule_engine import AT_ONCE, FULL, PER_GROUP, RATES, STREAM, packets, queries

SPELLINGS = {"SLIDE AT MOST": True, "SLIDE": False}
ROUNDS = 4
"""Of the same two engines."""


def measured(
    rounds: int, updates: int, seed: int, per_group: int = PER_GROUP[-1], bar: Any = None
) -> Iterator[dict[str, Any]]:
    """A row for each round."""
    engines: dict[str, windrow.Engine] = {}
    for number in range(rounds):
        if bar is not None:
            bar.update(bar.task_ids[0], description=f"SLIDE AT MOST beside SLIDE, round {number + 1} of {rounds}")
        pair, before = divmod(number, ROUNDS)
        if not before:
            _stop(engines)
            order = list(SPELLINGS.items())[:: -1 if pair % 2 else 1]
            engines = {name: _filled(seed, per_group, at_most) for name, at_most in order}
        seconds = _round(engines, FULL + before * updates, updates, seed)
        one, other = seconds["SLIDE AT MOST"], seconds["SLIDE"]
        yield {"part": "spellings", "round": number + 1, "updates": updates, "at_most_s": one, "slide_s": other,
               "ratio": one / other}  # fmt: skip
    _stop(engines)


def _round(engines: Mapping[str, windrow.Engine], after: int, updates: int, seed: int) -> dict[str, float]:
    now, seconds = CLOCKS["cpu"], dict.fromkeys(engines, 0.0)
    for update in range(after + 1, after + updates + 1):
        batch = packets(RATES[0], update, seed)
        for name in list(engines)[:: 1 if update % 2 else -1]:
            begin = now()
            engines[name].push("packets", batch)
            seconds[name] += now() - begin
    return seconds


def _stop(engines: Mapping[str, windrow.Engine]) -> None:
    for engine in engines.values():
        engine.stop()


def _filled(seed: int, per_group: int, at_most: bool) -> windrow.Engine:
    """An engine whose windows are full."""
    engine = windrow.Engine(runtime="local", sharing="shards")
    engine.execute(STREAM + queries(per_group, seed, at_most))
    engine.start()
    for first in range(1, FULL + 1, AT_ONCE):
        engine.push("packets", pa.concat_tables([packets(RATES[0], first + k, seed) for k in range(AT_ONCE)]))
    return engine


def targets(found: Sequence[Mapping[str, Any]]) -> list[Ratio]:
    """The middle round."""
    ratio = median(r["ratio"] for r in found)
    return [Ratio("SLIDE AT MOST over SLIDE without overload, processor time of ticks", ratio, 1.02)]
