"""Isolation levels of queries that read a window while it slides (thesis, chapter 7): a model that can be checked.

`histories` says which levels an execution history has, `schedulers` makes histories: the thesis's algorithms 7 and 8
and the two they are compared with. The engine itself needs no scheduler, because its runs never change; what it
promises (`docs/reading.md`) is said in these words, and its tests hold it to them.
"""

from windrow_bench.isolation_model.histories import (
    History,
    commit_order_preserving,
    latest_window_serializable,
    serialization_graph,
    window_serializable,
)
from windrow_bench.isolation_model.schedulers import (
    Execution,
    Isolation,
    Scheduler,
    oldest_first,
    ring_order,
    youngest_first,
)

__all__ = [
    "Execution",
    "History",
    "Isolation",
    "Scheduler",
    "commit_order_preserving",
    "latest_window_serializable",
    "oldest_first",
    "ring_order",
    "serialization_graph",
    "window_serializable",
    "youngest_first",
]
