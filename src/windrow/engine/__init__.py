"""The public doors: a live engine, replays, and user functions."""

from windrow.engine.engine import Engine, Query

__all__ = ["Engine", "Query"]
