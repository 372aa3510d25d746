"""What a plan of an aggregation join is chosen by: rates and sizes of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from windrow.operators.sketch import estimate
from windrow.operators.statistics import Seen


@dataclass(frozen=True)
class SideFigures:
    """What is measured of one input: events per tick, rows alive, entries if grouped, distinct values by class."""

    rate: float
    rows: float
    entries: float
    values: Mapping[str, float] = field(default_factory=dict)
    met: float | None = None  # entries that a change met, under the plan in use

    def drift(self, other: SideFigures) -> float:
        """The greatest ratio between the two, in any figure."""
        pairs = [(self.rate, other.rate), (self.rows, other.rows), (self.entries, other.entries)]
        pairs += [(v, other.values.get(c, v)) for c, v in self.values.items()]
        return max((max(a, b) + 1e-9) / (min(a, b) + 1e-9) for a, b in pairs)


@dataclass(frozen=True)
class PlanChoice:
    """A plan and what each plan costs per tick."""

    plan: str
    costs: Mapping[str, float]


def figures(measured: Sequence[Seen]) -> list[SideFigures]:
    """What plans are priced with."""
    found = []
    for seen in measured:
        rows, observed = max(seen.rows, 1.0), seen.observed
        entries = seen.entries
        if seen.entry_sample is not None:
            entries = min(max(estimate(seen.entry_sample), entries), rows)
        met = seen.met / seen.events if seen.events else None
        found.append(SideFigures(observed.rate, rows, max(entries, 1.0), observed.values, met))
    return found
