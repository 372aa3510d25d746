"""Aggregate functions as lift / combine / lower over exact partials.

Three families of partial cover every function (one file each):

* `sums`      lanes of integers, added on arrival and subtracted on departure: COUNT, SUM, AVG, VARIANCE
* `stairs`    the elements no later-expiring better one dominates: MIN and MAX where nothing is retracted
* `values`    multiplicities of values: DISTINCT, MEDIAN, QUANTILE, TOP_K, and MIN / MAX under retraction

Law of all three: what a partial holds is a function of the rows alive alone, not of their order, of the
batches they came in, or of rows that came and went. Floats obey it too because they are summed as integers
(`limbs`).
"""

from windrow.operators.aggregates.call import Aggregation

__all__ = ["Aggregation"]
