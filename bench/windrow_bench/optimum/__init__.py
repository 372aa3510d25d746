"""The best answer that a star join short of memory could have given, had it known the future (Towne et al., 3.1).

It measures how far the online heuristics of `operators/star_join.py` are from what could be had.
"""

from windrow_bench.optimum.offline import Optimum, optimal

__all__ = ["Optimum", "optimal"]
