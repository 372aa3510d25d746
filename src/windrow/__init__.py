"""windrow: many continuous queries over data streams, one pass, exact answers, on Spark.

>>> import windrow
>>> trades = {"symbol": ["A", "B", "A"], "price": [10, 20, 12], "ts": [1, 2, 3]}
>>> query = "CREATE QUERY top AS SELECT MAX(price) AS top FROM trades [RANGE 2]"
>>> answers = windrow.run(query, streams={"trades": trades}, runtime="local")
>>> sorted(tuple(row.values()) for row in answers["top"].to_pylist())  # _ts, _op, top
[(1, 1, 10), (2, -1, 10), (2, 1, 20)]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.errors import (
    BindingError,
    CQLSyntaxError,
    RuntimeFailure,
    SourceError,
    StateError,
    UnsupportedError,
    WindrowError,
)

if TYPE_CHECKING:
    from windrow.engine import Engine, Query
    from windrow.engine.functions import function
    from windrow.engine.replay import Answers, run

__version__ = "0.1.0"

__all__ = [
    "Answers",
    "BindingError",
    "CQLSyntaxError",
    "Engine",
    "Query",
    "RuntimeFailure",
    "SourceError",
    "StateError",
    "UnsupportedError",
    "WindrowError",
    "__version__",
    "function",
    "run",
]

_LAZY = {
    "Answers": "windrow.engine.replay",
    "Engine": "windrow.engine",
    "Query": "windrow.engine",
    "function": "windrow.engine.functions",
    "run": "windrow.engine.replay",
}


def __getattr__(name: str) -> Any:
    """Load the engine when it is first used, so that `import windrow` stays cheap."""
    if name in _LAZY:
        from importlib import import_module

        value = getattr(import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'windrow' has no attribute {name!r}")
