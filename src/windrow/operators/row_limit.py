"""How many rows a query may answer with in one tick.

A query that is answered again and again (RSTREAM) has, over a long stretch of time, as many rows as there are
evaluations in it, whether or not anything happened. Operators count what they are about to make before they make it:
an answer beyond the limit is refused with the name of its query, and costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from windrow.errors import RuntimeFailure

MOST_ROWS = 10_000_000
"""Rows of one query in one tick, on each partition: about half a gigabyte of a few columns."""


@dataclass(frozen=True)
class RowLimit:
    """The limit of one query."""

    query: str = ""
    rows: int = MOST_ROWS

    def check(self, rows: int) -> None:
        """Refuse an answer of so many rows if they are too many.

        >>> RowLimit("q", 10).check(10)
        """
        if rows <= self.rows:
            return
        raise RuntimeFailure(
            f'query "{self.query}" would answer with {rows} rows at once',
            detail=f"a query may answer with {self.rows} in one tick: its SLIDE is short for the time that passed",
            hint="write a longer SLIDE, or ISTREAM, which tells what changes; or raise max_rows",
        )
