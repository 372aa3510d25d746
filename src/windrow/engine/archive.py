"""Archives as their users see them: probed by key, scanned, and read by one-time queries as tables.

What is shown is the last update, whose instant is `windrow.as_of` in the answer's schema metadata; rows that wait in
memory for the next one are not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.archive import OPEN, ArchiveLayout
from windrow.catalog import ArchiveDef
from windrow.errors import BindingError
from windrow.operators.aggregates.order import CodeOrder, has_fixed_codes
from windrow.operators.state.zones import Code
from windrow.plan.nodes import Filter, Node, QueryPlan, TableScan, walk
from windrow.runtime.answer_metadata import ISOLATION, with_answer_metadata
from windrow.runtime.archives import Archives
from windrow.runtime.pruning import conditions_of
from windrow.runtime.question_plans import Extra
from windrow.runtime.state_reader import StateReader
from windrow.scalar_engine import quote
from windrow.sharing.conditions import Condition
from windrow.sharing.spans import united


class Archive:
    """A declared archive."""

    def __init__(self, archives: Archives, key: str) -> None:
        self._archives, self._key = archives, key

    def probe(self, key: Any = OPEN, *, low: Any = OPEN, high: Any = OPEN) -> pa.Table:
        """The rows with a key (a value, or a tuple of the key's first columns), or with keys from `low` to `high`."""
        if (key is OPEN) == (low is OPEN and high is OPEN):
            raise BindingError("probe takes a key, or low and high", hint="write probe(7), or probe(low=7, high=9)")
        as_of, rows = self._archives.probe(self._key, key, low, high)
        return with_answer_metadata(rows, as_of, {ISOLATION: "snapshot"})

    def scan(self) -> pa.Table:
        """All rows."""
        as_of, rows = self._archives.scan(self._key)
        return with_answer_metadata(rows, as_of, {ISOLATION: "snapshot"})

    @property
    def status(self) -> dict[str, Any]:
        """The last update, rows, bytes, rows that wait for the next one, and layout."""
        name = self._archives.live[self._key].definition.name
        found: dict[str, Any] = self._archives.status()[name]
        return found

    @property
    def layouts(self) -> list[dict[str, Any]]:
        """The layout that new rows go to, then those that run empty: rows and bytes of every sub-index, row by row."""
        return self._archives.layouts(self._key)

    def migrate(self, partitions: str, *, rebuild: bool = False, gradually: bool = True) -> None:
        """Change the layout with the next tick: beside the old one until that has run empty, or at once."""
        self._archives.live[self._key].wish = (ArchiveLayout.parse(partitions, rebuild=rebuild), gradually)


def archive_table(archives: Archives, key: str, definition: ArchiveDef) -> Extra:
    """An archive as a table of a one-time query, which is probed where the query tests the first column of the key."""

    def read(plan: QueryPlan, state: StateReader, check: Callable[[], None]) -> pa.Table:
        as_of, rows = archives.ranges(key, _ranges(plan, key, definition), check)
        return with_answer_metadata(rows, as_of)

    return Extra(definition.columns, read)


def _ranges(plan: QueryPlan, key: str, definition: ArchiveDef) -> list[tuple[Any, Any]] | None:
    """The ranges of keys that a plan asks an archive for; None: all of them."""
    scans = [n for n in walk(plan.root) if isinstance(n, TableScan) and n.table.lower() == key]
    if len(scans) != 1:
        return None
    (scan,) = scans
    above: dict[int, Node] = {id(child): node for node in walk(plan.root) for child in node.inputs}
    predicates, node = [], above.get(id(scan))
    while isinstance(node, Filter):
        predicates.append(node.predicate)
        node = above.get(id(node))
    internal = next((i for i, column, _ in scan.columns if column == definition.keys[0]), None)
    if internal is None:
        return None
    quoted = quote(internal)
    for condition in conditions_of(predicates):
        spans = _spans(condition, quoted)
        if spans is not None:
            type_ = definition.columns[definition.keys[0]]
            return [(_end(low, type_), _end(_last(high), type_)) for low, high in spans]
    return None


def _spans(condition: Condition, column: str) -> tuple[tuple[Code | None, Code | None], ...] | None:
    """The spans that a condition allows a column, if it says so by itself."""
    found = [values for box in condition.boxes for attribute, values in box if attribute.sql == column]
    if len(found) < len(condition.boxes) or any(values.null for values in found):
        return None
    return united(span for values in found for span in values.spans)


def _last(code: Code | None) -> Code | None:
    """The last code before an end that is not included; for text at most one too many."""
    if isinstance(code, bytes):
        return code[:-1] if code.endswith(b"\0") else code
    return None if code is None else code - 1


def _end(code: Code | None, type_: pa.DataType) -> Any:
    if code is None:
        return OPEN
    if isinstance(code, bytes):
        return code.decode()
    return CodeOrder(type_).decode(np.array([code]))[0] if has_fixed_codes(type_) else OPEN
