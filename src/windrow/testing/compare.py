"""Two answers are the same when they have the same columns and, at every instant, the same bag of rows.

Floats are equal within 1e-9 of their size: a sum may be added up in any order, and so differ in its last bits from one
instant to the next although nothing changed. A change log that says so (-1 and +1 of nearly equal rows in one instant)
is the same as one that is silent; an exact pair of -1 and +1 is not, because a change log is consolidated.
"""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa

from windrow.testing.bags import grouping_key

RELATIVE = 1e-9
ABSOLUTE = 1e-12
SHOWN = 10

Row = tuple[Any, ...]


def assert_same(got: pa.Table, want: pa.Table) -> None:
    """Fail unless `got` is the answer `want`, with the first instant at which they differ and the rows that do."""
    if got.column_names != want.column_names:
        raise AssertionError(f"columns differ\n  got:  {got.column_names}\n  want: {want.column_names}")
    if got.column_names[:1] != ["_ts"] or "_op" in got.column_names[2:]:
        raise AssertionError(f"_ts must come first and _op second: {got.column_names}")
    times = _instants(got)
    if times != sorted(times):
        raise AssertionError("rows are not sorted by _ts")
    has_op = got.column_names[1:2] == ["_op"]
    found, wanted = _by_instant(got), _by_instant(want)
    for t in sorted({*found, *wanted}):
        missing, extra = _differences(found.get(t, []), wanted.get(t, []), has_op)
        if missing or extra:
            raise AssertionError(_explain(t, got.column_names[1:], missing, extra, found.get(t, []), wanted.get(t, [])))


def _instants(table: pa.Table) -> list[int]:
    times = table["_ts"]
    if pa.types.is_timestamp(times.type):
        times = times.cast(pa.timestamp("us", times.type.tz))
    return times.cast(pa.int64()).to_pylist()


def _by_instant(table: pa.Table) -> dict[int, list[Row]]:
    columns = [c.to_pylist() for c in table.columns[1:]]
    found: dict[int, list[Row]] = {}
    for t, *row in zip(_instants(table), *columns, strict=True):
        found.setdefault(t, []).append(tuple(row))
    return found


def _differences(got: list[Row], want: list[Row], has_op: bool) -> tuple[list[Row], list[Row]]:
    """Rows of `want` that `got` lacks, and rows of `got` that are not wanted."""
    missing, extra = _minus(want, got), _minus(got, want)
    for row in list(missing):
        match = next((e for e in extra if _near(row, e)), None)
        if match is not None:
            _remove(missing, row)
            _remove(extra, match)
    if has_op:
        _cancel(missing)
        _cancel(extra)
    return missing, extra


def _minus(rows: list[Row], others: list[Row]) -> list[Row]:
    """Bag difference by exact value."""
    left = Counter(grouping_key(r) for r in others)
    found = []
    for row in rows:
        if left[grouping_key(row)] > 0:
            left[grouping_key(row)] -= 1
        else:
            found.append(row)
    return found


def _cancel(log: list[Row]) -> None:
    """Drop pairs of -1 and +1 whose rows differ, but only in the last bits of a float."""
    for row in [r for r in log if r[0] < 0]:
        own = grouping_key(row[1:])
        match = next((r for r in log if r[0] > 0 and grouping_key(r[1:]) != own and _near(r[1:], row[1:])), None)
        if match is not None:
            _remove(log, row)
            _remove(log, match)


def _remove(rows: list[Row], row: Row) -> None:
    del rows[next(i for i, r in enumerate(rows) if r is row)]


def _near(a: Any, b: Any) -> bool:
    """Equal, floats within the tolerance.

    >>> _near((1, 0.1 + 0.2), (1, 0.3)), _near((None,), (0,)), _near((math.nan,), (math.nan,))
    (True, False, True)
    """
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_near(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) or isinstance(b, float):
        if not (isinstance(a, float | int | Decimal) and isinstance(b, float | int | Decimal)):
            return False
        x, y = float(a), float(b)
        return (math.isnan(x) and math.isnan(y)) or math.isclose(x, y, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return grouping_key(a) == grouping_key(b)


def _explain(t: int, columns: list[str], missing: list[Row], extra: list[Row], got: list[Row], want: list[Row]) -> str:
    lines = [f"answers differ first at _ts = {t}", f"  columns: {', '.join(columns)}"]
    for title, rows in (("missing", missing), ("extra", extra), ("got all", got), ("want all", want)):
        lines.append(f"  {title} ({len(rows)}):")
        lines += [f"    {row}" for row in rows[:SHOWN]]
        lines += [f"    ... and {len(rows) - SHOWN} more"] if len(rows) > SHOWN else []
    return "\n".join(lines)
