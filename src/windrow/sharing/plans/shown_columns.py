"""Which queries show a column.

Queries have few different lists of columns between them, so a column that all lists have is known without a look at
anybody. Law: `changed` knows what is known of all who are there, but for those that are gone, who are not asked about.

Cost: a flag per query and column; a change costs copies of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from windrow.operators.aggregates.vectors import Bools
from windrow.sharing.plans.routed_columns import RoutedColumns


class ShownColumns:
    """By query, the columns that it shows; `size`: one more than the greatest number of a query."""

    def __init__(self, shown: Mapping[int, tuple[str, ...]], blocks: Sequence[RoutedColumns], size: int) -> None:
        self.by_query, self._blocks = shown, blocks
        self._counts = Counter(shown.values())
        self._shows = {column: self._of(column, size) for column in {c for mine in self.lists for c in mine}}
        self._look(size)

    def _of(self, column: str, size: int) -> Bools:
        found = np.zeros(size, np.bool_)
        found[[q for q, columns in self.by_query.items() if column in columns]] = True
        for block in self._blocks:
            found[block.numbers] = column in block.shown
        return found

    def _look(self, size: int) -> None:
        lists = self.lists
        self._by_all = {c for c in self._shows if all(c in mine for mine in lists)}
        self._nobody = np.zeros(size, np.bool_)

    @property
    def lists(self) -> set[tuple[str, ...]]:
        """The different lists of columns."""
        return {*self._counts, *(b.shown for b in self._blocks)}

    def by(self, column: str) -> Bools | None:
        """By query: whether it shows a column; None: all do."""
        return None if column in self._by_all else self._shows.get(column, self._nobody)

    def changed(self, new: Mapping[int, tuple[str, ...]], gone: Collection[int], size: int) -> ShownColumns:
        """The same with what some queries show as it is here, and without those that are gone."""
        found = ShownColumns.__new__(ShownColumns)
        found._blocks = self._blocks
        left = [q for q in (*new, *gone) if q in self.by_query]
        found.by_query = {q: columns for q, columns in {**self.by_query, **new}.items() if q in new or q not in gone}
        found._counts = self._counts - Counter(self.by_query[q] for q in {*left}) + Counter(new.values())
        found._shows = {}
        for column in dict.fromkeys([*self._shows, *(c for columns in new.values() for c in columns)]):
            known = self._shows.get(column, self._nobody)
            shows = found._shows[column] = np.append(known, np.zeros(size - len(known), np.bool_))
            for query, columns in new.items():
                shows[query] = column in columns
        found._look(size)
        return found
