"""Plans that share: continuous queries that differ in conditions as one dataflow.

canonical   what a plan is but for names and conditions
merge       the plan of several queries at once
router      which queries want a row
"""
