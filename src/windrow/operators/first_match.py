"""Rows that have a partner in a table that does not reach back: each once, whatever it finds.

A row meets such a table as it is at the row's own time, and never again. So rows that are equal in all that the
condition looks at may differ in whether they have a partner, if the table has changed between them: a value that was
looked up once must not answer for rows that come later.

Cost: that of the join; of a row's partners the first counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from windrow.operators.elements import Elements, Int64s, concat
from windrow.operators.join import JoinOperator

ROW = "~row"


class FirstMatch(JoinOperator):
    """The rows of the first input that have a partner in the second, a table; only their own columns."""

    def advance(self, inputs: Sequence[Elements], frontier: int) -> Elements:
        return concat([*self.parts_of(inputs, frontier), Elements.empty(self.parts[0].columns)])

    def _complete(self, first: int, new: Elements, hashes: dict[tuple[str, ...], Int64s]) -> Iterator[Elements]:
        seen = np.zeros(len(new), np.bool_)
        numbered = new.with_columns({**new.columns, ROW: pa.array(np.arange(len(new)))})
        for pairs in self._extend(first, 0, self._with_dates(numbered), new.exp, hashes):
            rows, at = np.unique(pairs.columns[ROW].to_numpy(), return_index=True)
            found = pairs.take(at[~seen[rows]])
            seen[rows] = True
            yield found.with_columns({n: found.columns[n] for n in self.parts[first].columns})
