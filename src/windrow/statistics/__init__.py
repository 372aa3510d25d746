"""What a running query measures of its inputs: rates, distinct values, selectivities.

Statistics choose plans, never answers: they may be rough, late or lost.
"""

from windrow.statistics.inputs import InputStatistics, Observed, Seen, merged
from windrow.statistics.sketch import Distinct

__all__ = ["Distinct", "InputStatistics", "Observed", "Seen", "merged"]
