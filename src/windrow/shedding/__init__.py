"""Star joins under a memory or time limit: offline optimum, online priorities, overload control.

`optimal` finds the best answer that a join could have given with so much memory, had it known the future (paper,
section 3.1). The online heuristics (section 3.2) run inside `operators/star_join.py`, on the kernel in `memory.py`.
`controller` and `estimate` serve queries that are short of time instead of memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windrow.shedding.offline import Optimum, optimal

__all__ = ["Optimum", "optimal"]


def __getattr__(name: str) -> Any:
    # the operators ship to executors and import this package: the offline part is loaded only when it is asked for
    if name in __all__:
        from windrow.shedding.offline import Optimum, optimal

        globals().update(Optimum=Optimum, optimal=optimal)
        return globals()[name]
    raise AttributeError(name)
