"""Random joins that shed rows: star joins through a table of facts, and joins of windows on the same keys."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from windrow.testing.random_queries import Writer

SHED_BY = " SHED BY "
"""Before it stands the query that is exact."""


def shed(w: Writer) -> str:
    """A join with SHED BY. The oracle knows none: it answers what is written before."""
    op, table = w.operator(), w.pick("P", "V", "V", "")
    aliases = ["l", "r", "m"][: w.pick(2, 2, 2, 3)]
    heuristic = w.pick("SIMP", "SIMPPROB", "DIMPPROB", "FIFO", f"RANDOM(seed => {w.number(0, 9)})", "DGL")
    parts = [w.stream(_window(w, heuristic), alias) for alias in aliases]
    if table:
        keys = [w.pick(f"{alias}.a = p.k", f"{alias}.a = p.k", f"{alias}.{w.measure} = p.w") for alias in aliases]
        parts.insert(w.number(0, len(parts)), f"{table} AS p")
    else:
        name = w.pick("a", "a", "s", "x") if len(aliases) == 2 else "f"  # one type: three share a key, not a cast of it
        keys = [f"{left}.{name} = {right}.{name}" for left, right in pairwise(aliases)]
    shown = f"{w.items(aliases)}{w.pick('', ', p.v AS c8') if table else ''}"
    query = f"{w.select(op, shown)} FROM {', '.join(parts)} WHERE {' AND '.join(w.shuffled(keys))}"
    heuristic = heuristic.replace("DGL", f"DGL(alpha => {w.pick(1, 10)}, beta => {w.pick(0, 0.5, 1)})")
    keep = f"{w.number(len(aliases), 5)} ROWS{w.pick('', ' EACH', ' BY NEED')}"
    worth = f" IMPORTANCE {', '.join(f'coalesce({alias}.a, 0) + 1' for alias in aliases)}"
    return f"{query}{SHED_BY}{heuristic} KEEP {keep}{w.pick(worth, worth, '')}"


def facts(table: pa.Table) -> pa.Table:
    """The rows of a table that may be facts: those that do not end before they begin."""
    return table.filter(pc.fill_null(pc.less_equal(table["since"], table["til"]), True))


def _window(w: Writer, heuristic: str) -> str:
    if heuristic != "DGL" and w.chance(6):
        return ""
    return f"[RANGE {w.time(w.number(1, 12))}]"
