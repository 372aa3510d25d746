"""The public doors: a live engine, replays, and user functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windrow.engine.engine import Engine
    from windrow.engine.query import Query

__all__ = ["Engine", "Query"]


def __getattr__(name: str) -> Any:
    """Load the engine when it is first used: EXPLAIN needs none of it."""
    if name in __all__:
        from windrow.engine import engine

        return getattr(engine, name)
    raise AttributeError(f"module 'windrow.engine' has no attribute {name!r}")
