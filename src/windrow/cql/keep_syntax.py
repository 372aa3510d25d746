"""KEEP: how long the answers of a query last.

    CREATE QUERY hot AS SELECT ... KEEP 7 DAYS

The clause is the last of the statement. KEEP 5 ROWS belongs to SHED BY, and is left to it.
"""

from __future__ import annotations

import re

import pyarrow as pa

from windrow.catalog.lengths import UNITS
from windrow.cql.source import Cursor, ScriptText
from windrow.cql.windows import Amount, Clock, parse_amount
from windrow.errors import BindingError


def split_keep(cursor: Cursor) -> Amount | None:
    """Take the clause off the end of the tokens at the cursor, if it is there."""
    for i in range(cursor.end - 1, max(cursor.index, cursor.end - 8) - 1, -1):
        clause = Cursor(cursor.source, cursor.tokens, i, cursor.end)
        if clause.word == "KEEP":
            words = " ".join(str(t.text).lower() for t in cursor.tokens[i + 1 : cursor.end])
            if not re.fullmatch(r"(interval )?[\d.+\- ]*\d( ?[a-z]+)*", words) or not _is_time(words):
                return None
            clause.take()
            amount = parse_amount(clause, "KEEP")
            if clause.current is not None:
                return None
            cursor.end = i
            return amount
    return None


def _is_time(words: str) -> bool:
    units = [w for w in re.findall(r"[a-z]+", words) if w != "interval"]
    return all(u in UNITS for u in units)


def bind_keep(keep: Amount | None, time_type: pa.DataType, source: ScriptText) -> int | None:
    """The time that answers are kept, in units of the query's clock."""
    if keep is None:
        return None
    value = keep.on(Clock.TICKS if pa.types.is_integer(time_type) else Clock.MICROSECONDS, source, "KEEP")
    if value < 1:
        raise BindingError(f"KEEP {keep.text} is too short", hint="write KEEP 7 DAYS", span=source.span(keep.offset))
    return value
